"""Makes smollm2.txt: what the reference implementation (transformers on torch, CPU, fp32, eager attention, weights
dequantised by the gguf package) answers to 60 prompts, greedily, 96 tokens each, never ending early; and its
perplexity over text.txt.

    python tests/golden/make_reference.py models/smollm2-135m-instruct-q4_1.gguf
    (made with torch 2.15.0, transformers 5.24.0, gguf 0.19.0; some minutes on two cores)

Lines of smollm2.txt:
    prompt ID...        begins a case
    tokens ID...        96 greedy tokens
    logprobs X...       of each of them
    margins X...        distance of the best two logits at each of them
    window N NLL        sum of the negative log-probabilities of tokens 1..N-1 of one window of text.txt;
                        the windows stand one after the other and know nothing of each other
text.txt: descriptions of Debian packages, one after the other.
"""
import os
import sys

import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

TOKENS, WINDOWS, WINDOW = 96, 20, 1024
HERE = os.path.dirname(os.path.abspath(__file__))

RAW = [
    "The quick brown fox", "Once upon a time, in a small village by the sea,", "def fibonacci(n):\n",
    "The capital of France is", "#include <stdio.h>\n\nint main(void)\n{\n", "Water boils at a temperature of",
    "1, 1, 2, 3, 5, 8, 13,", "Dear Sir or Madam,\n\n", "In 1969, the first humans", "SELECT name, COUNT(*) FROM",
    "The mitochondria is", "import numpy as np\n\n", "Roses are red,\nviolets are blue,\n", "{\"name\": \"Alice\", \"age\":",
    "Abstract: We present", "A long time ago in a galaxy", "The derivative of x^2 is", "Chapter 1\n\n", "<html>\n<head>\n",
    "According to a study published in", "The best way to learn a language is", "Q: What is the speed of light?\nA:",
    "Il était une fois", "Es war einmal", "  ", "\n\n\n", "a", "0.5 + 0.25 =", "The following is a list of", "Photosynthesis",
]
CHAT = [
    "What is the capital of Germany?", "Write a haiku about autumn leaves.", "Explain gravity to a five-year-old.",
    "List three uses of copper.", "Translate 'good morning' into Spanish.", "What is 17 times 23?",
    "Summarise the plot of Romeo and Juliet in two sentences.", "Write a Python function that reverses a string.",
    "Why is the sky blue?", "Give me a recipe for pancakes.", "Who wrote 'Pride and Prejudice'?",
    "What are the primary colours?", "How do vaccines work?", "Name five animals that live in the ocean.",
    "What is the difference between weather and climate?", "Write a short story about a dragon who is afraid of fire.",
    "How can I improve my handwriting?", "What does HTTP stand for?", "Describe the water cycle.", "Tell me a joke.",
    "What is machine learning?", "Convert 100 degrees Fahrenheit to Celsius.", "What causes the seasons?",
    "Give three tips for a job interview.", "Who was Ada Lovelace?", "What is a prime number?",
    "Write a limerick about a cat.", "How does a refrigerator work?", "What should I pack for a week at the beach?",
    "Explain what a hash table is, with an example in C.",
]


def prompts(tokenizer):
    for text in RAW:
        yield tokenizer.encode(text, add_special_tokens=False)
    for i, text in enumerate(CHAT):
        messages = [{"role": "user", "content": text}]
        if i % 3 == 0:
            messages.insert(0, {"role": "system", "content": "You are a terse assistant. Answer in one paragraph."})
        rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        yield tokenizer.encode(rendered, add_special_tokens=False)


def greedy(model, prompts):
    """For every prompt 96 tokens, their log-probabilities and margins. The prompts run side by side, padded on the left;
    what is padded is masked and counts no position."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    cache, steps = None, []
    for _ in range(TOKENS):
        positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        out = model(input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True,
                    logits_to_keep=1)
        logits, cache = out.logits[:, -1].float(), out.past_key_values
        best = torch.topk(logits, 2).values
        token = torch.argmax(logits, -1)
        logprob = torch.log_softmax(logits.double(), -1).gather(1, token[:, None])[:, 0]
        steps.append((token, logprob, best[:, 0] - best[:, 1]))
        ids, mask = token[:, None], torch.cat([mask, torch.ones(len(prompts), 1, dtype=mask.dtype)], 1)
    return [torch.stack(column, 1) for column in zip(*steps)]


def window_nll(model, ids):
    logits = model(input_ids=torch.tensor([ids])).logits[0, :-1].float()
    lp = torch.log_softmax(logits, -1)
    return -float(lp.gather(1, torch.tensor(ids[1:])[:, None]).double().sum())


def main():
    folder, name = os.path.split(os.path.abspath(sys.argv[1]))
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    # What the model's own tokenizer.json has; the conversion from GGUF leaves the digits out.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32,
                                                 attn_implementation="eager").eval()
    with torch.no_grad(), open(os.path.join(HERE, "smollm2.txt"), "w") as out:
        cases = list(prompts(tokenizer))
        for ids, tokens, logprobs, margins in zip(cases, *greedy(model, cases)):
            print("prompt", *ids, file=out)
            print("tokens", *tokens.tolist(), file=out)
            print("logprobs", *("%.5f" % x for x in logprobs.tolist()), file=out)
            print("margins", *("%.5f" % x for x in margins.tolist()), file=out)
        out.flush()
        text = open(os.path.join(HERE, "text.txt")).read()
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert len(ids) >= WINDOWS * WINDOW, len(ids)
        for i in range(WINDOWS):
            window = ids[i * WINDOW : (i + 1) * WINDOW]
            print("window", WINDOW, "%.4f" % window_nll(model, window), file=out)


main()
