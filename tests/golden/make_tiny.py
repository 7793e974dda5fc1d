"""Makes tiny.txt: log-probabilities of a fixed run of tokens under the small models of test_tiny.c, computed in double
precision straight from the definition: GGUF's tensors, neighbouring pairs turned by rope, one position after the other.

    build/release/bin/test_tiny write /tmp/tiny && python tests/golden/make_tiny.py /tmp/tiny
    (needs numpy and gguf; made with gguf 0.19.0, numpy 2.4.6; some seconds)

Lines of tiny.txt: NAME X... (the log-probability of token i + 1 after tokens 0..i).
"""
import os
import sys

import gguf
import numpy as np

TOKENS = [(i * 37 + 11) % 320 for i in range(64)]
NAMES = ["plain", "tied", "bias", "linear", "factors"]


def field(reader, name, default=None):
    f = reader.fields.get("llama." + name)
    return default if f is None else f.contents()


def norm(x, w, eps):
    return x / np.sqrt(np.mean(x * x) + eps) * w


def turn(head, position, freq):
    """head: [heads, head_dim]; elements 2i and 2i + 1 turn by position * freq[i]."""
    out = head.copy()
    c, s = np.cos(position * freq), np.sin(position * freq)
    n = 2 * len(freq)
    even, odd = head[:, 0:n:2], head[:, 1:n:2]
    out[:, 0:n:2] = even * c - odd * s
    out[:, 1:n:2] = even * s + odd * c
    return out


def log_probs(path):
    reader = gguf.GGUFReader(path)
    t = {x.name: np.float64(gguf.dequantize(x.data, x.tensor_type)) for x in reader.tensors}
    layers, heads = field(reader, "block_count"), field(reader, "attention.head_count")
    kv_heads, head_dim = field(reader, "attention.head_count_kv"), field(reader, "attention.key_length")
    eps, rope_dim = field(reader, "attention.layer_norm_rms_epsilon"), field(reader, "rope.dimension_count")
    freq = field(reader, "rope.freq_base") ** (-2.0 * np.arange(rope_dim // 2) / rope_dim)
    freq = freq / field(reader, "rope.scaling.factor", 1.0) / t.get("rope_freqs.weight", 1.0)
    head = t.get("output.weight", t["token_embd.weight"])
    keys, values, result = [[] for _ in range(layers)], [[] for _ in range(layers)], []

    for position, token in enumerate(TOKENS[:-1]):
        x = t["token_embd.weight"][token].copy()
        for i in range(layers):
            w = lambda name: t["blk.%d.%s.weight" % (i, name)]
            b = lambda name: t.get("blk.%d.%s.bias" % (i, name), 0.0)
            h = norm(x, w("attn_norm"), eps)
            q = turn((w("attn_q") @ h + b("attn_q")).reshape(heads, head_dim), position, freq)
            k = turn((w("attn_k") @ h + b("attn_k")).reshape(kv_heads, head_dim), position, freq)
            keys[i].append(k)
            values[i].append((w("attn_v") @ h + b("attn_v")).reshape(kv_heads, head_dim))
            out = np.zeros((heads, head_dim))
            for n in range(heads):
                g = n // (heads // kv_heads)
                score = np.array([q[n] @ past[g] for past in keys[i]]) / np.sqrt(head_dim)
                p = np.exp(score - score.max())
                out[n] = (p / p.sum()) @ np.array([past[g] for past in values[i]])
            x += w("attn_output") @ out.ravel() + b("attn_output")
            h = norm(x, w("ffn_norm"), eps)
            gate = w("ffn_gate") @ h
            x += w("ffn_down") @ (gate / (1 + np.exp(-gate)) * (w("ffn_up") @ h))
        logits = head @ norm(x, t["output_norm.weight"], eps)
        top = logits.max()
        result.append(logits[TOKENS[position + 1]] - top - np.log(np.exp(logits - top).sum()))
    return result


with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "tiny.txt"), "w") as f:
    for name in NAMES:
        print(name, *("%.6f" % x for x in log_probs(os.path.join(sys.argv[1], name + ".gguf"))), file=f)
