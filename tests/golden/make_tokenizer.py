#!/usr/bin/env python3
"""Writes the golden files of the tokenizer test: a corpus made to hurt, and the ids the reference gives it.

The reference is the `tokenizers` library, built from the tables of a GGUF file (no tokenizer.json needed): the byte-level
BPE of the file's tokens and merges, under each pre-tokenizer the project knows. With the default model's vocabulary only
`smollm` is a real model; the other three put another pre-tokenizer in front of the same merges. Those merges cross few of
the borders between words (no two digits, no newline after a sign), so the words themselves are written, too.

    pip install tokenizers==0.23.3 gguf
    tests/golden/make_tokenizer.py models/smollm2-135m-instruct-q4_1.gguf tests/golden/tokenizer

A larger corpus, or another model, to check by hand (test_tokenizer_golden MODEL FOLDER reads them):

    tests/golden/make_tokenizer.py --scale 20 --pre qwen2 MODEL.gguf FOLDER

Files: corpus.txt, one case a line: P (plain) or T (trusted: control tokens count), a space, the text; bytes of anything
that does not print or combines, and of the backslash, as \\xNN. PRE.ids: the ids of each case, one line each. PRE.words:
the words of each case's text as a whole (after normalisation, control tokens or not), one line each, as bytes: one
character for each word, its length, "0" to "9", then "A" to "Z" and "a" to "z" for 10 to 61; longer ones as (LENGTH).
"""
import argparse
import pathlib
import random
import unicodedata

from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

CONTROL, USER_DEFINED = 3, 4
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def split(pattern):
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
        ]
    )


PRES = {
    "gpt2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True),
    "smollm": lambda: pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True),
        ]
    ),
    "llama-bpe": lambda: split(LLAMA3),
    "qwen2": lambda: split(LLAMA3.replace("{1,3}", "")),
}


class Tables:
    def __init__(self, path):
        fields = GGUFReader(path).fields
        self.tokens = fields["tokenizer.ggml.tokens"].contents()
        self.kinds = fields["tokenizer.ggml.token_type"].contents()
        self.merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]

    def added(self, kind):
        return [t for t, k in zip(self.tokens, self.kinds) if k == kind]

    def reference(self, pre, trusted):
        vocab = {t: i for i, t in enumerate(self.tokens)}
        t = Tokenizer(models.BPE(vocab, self.merges, ignore_merges=pre == "llama-bpe"))
        if pre == "qwen2":
            t.normalizer = normalizers.NFC()
        t.pre_tokenizer = PRES[pre]()
        t.decoder = decoders.ByteLevel()
        t.add_tokens([AddedToken(x, special=False, normalized=False) for x in self.added(USER_DEFINED)])
        if trusted:
            t.add_special_tokens([AddedToken(x, special=True, normalized=False) for x in self.added(CONTROL)])
        return t


HURT = r"""Hello world! Café déjà vu — 123 😊
 leading and trailing \n
don't DON'T Don’t it's IT'S we'Re they'LL I'M you'd he'D 'tis 's 'S '' ''s 'ſ x'ſy 'ſt Ist’ſ 'st 'lL 'Ll 'vE 'rex
'hello' "quoted" `ticks` «guillemets» “curly” ‘single’ ‚low‘
1 12 123 1234 12345 1234567890 3.14159 1,000,000 0x1F 1e-10 ½ ²³ ⅷ ٣٤٥ ४५६ ๑๒๓ 一二三 ①②③ 𝟘𝟙𝟚 🄌 a\U00011de0\U00011de1!\U00016ff4\U00016ff5b
a1b22c333 v1.2.3 2024-01-31T23:59:59Z +1 (555) 010-9999 100% $5 €7 £8 ¥9
x\ty\t\tz\n\n\na  b   c    d     e\r\nf\r\r\ng \n h\n  i \t\n\t j\u00a0k\u2003l\u3000m\u200bn\ufeffo\u2028p\u2029q\u0085r\x0bs\x0ct
    indented four\n        indented eight\n\ttab\n \t mixed\n\n    after blank\n
if (a<b && c>d) { return x[i++] *= ~y ^ 0b1010; } // comment /* block */ #include <stdio.h>
def f(x: int) -> str:\n    return f"{x!r:>10}"  # noqa\n\n\nclass A(B):\n    pass\n
SELECT * FROM t WHERE a='b''c' AND d <> "e" -- comment\n;
https://user:pass@example.com:8080/a/b%20c?d=e&f=g#h mailto:x@y.zz ftp://1.2.3.4/~q
{"key": [1, 2.5, null, true], "\\u00e9": "\\n\\t\\"", "k": {}}
<p class="a">&nbsp;&amp;&#233;</p><!-- c --><br/>
# Title\n\n* item\n  * sub\n\n> quote\n\n```c\nint x;\n```\n| a | b |\n|---|---|\n
Straße STRASSE ǅ ﬁ ﬃ İstanbul ıI ß ẞ ŉ ʼn
naïve résumé coöperate Ångström Å Å Ω Ω K K
e\u0301 e\u0327\u0301 e\u0301\u0327 a\u0308\u0304 a\u0304\u0308 o\u031b\u0323 o\u0323\u031b q\u0307\u0323 q\u0323\u0307 ḍ\u0307 ḋ\u0323
가각힣 \u1100\u1161 \u1100\u1161\u11a8 \u1100\u1161\u11a7 각\u11a8 가\u11a8\u11a8 \u1161 \u11a8
ﾊﾟ は\u309a か\u3099 が ゔ う\u3099 ﬀ 豈 \U0002f800 你好世界，今天天气怎么样？ 日本語の文章です。カタカナ 한국어 문장입니다
Привет, мир! Как дела? Ёлка ё е\u0308 Й и\u0306 Ὀδυσσεύς ἄνδρα μοι ἔννεπε Ἀ Α\u0313
مرحبا بالعالم كيف الحال؟ السَّلامُ عَلَيْكُم ‏עברית שָׁלוֹם \u200fRTL\u200e فارسی می‌شود
สวัสดีชาวโลก ภาษาไทยไม่มีช่องว่าง ກາ နေကောင်းလား ជំរាបសួរ བོད་ཡིག
नमस्ते दुनिया क्षत्रिय ज़ ज\u093c বাংলা ড় தமிழ் తెలుగు ಕನ್ನಡ ക്ഷ සිංහල
Տիրե ქართული አማርኛ ᏣᎳᎩ ᚠᚢᚦ ⵜⴰⵎⴰ 𐤀𐤁 𓀀𓂀 𒀀 𐍈 𝔘𝔫𝔦 𝕌 𝐀𝟏
😀😃👍🏽👨‍👩‍👧‍👦🏳️‍🌈🇩🇪🇫🇷🇺1️⃣#️⃣❤️❤︎☺️🧑🏿‍🚀🫠🫨
a😀b😀 😀  😀\n😀\t1😀2 !😀! '😀's
Z\u0300\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308\u0309\u030a\u030b\u030c\u030d\u030e\u030f\u0310 \u0301lone \u0301\u0301 1\u0301 !\u0301 \n\u0301
\u0000\u0001\u0002\u0003\u0004\u0005\u0006\u0007\u0008 \u000e\u000f \u0013\u0014\u0016\u001d \u001b[31m \u007f\u0080\u009f \u00ad
\ufffd\ufffe\uffff \U0001fffe \U000e0001\U000e0041 \U000f0000 \U0010ffff \U00050000 \U000a1234 \ue000\uf8ff
\U00011935\U00011930 \U00011938 \U000105d2\u0307 \U0001611e\U0001611e a\u0898\u0301 a\u0301\u0898 e\u1ac1\u0301 \U00010d50\u0301
<|im_start|>system\nYou are a helpful AI<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n
<|im_end|> <|im_end|><|im_end|> a<|im_end|>b <|im_end |> < |im_end|> <|im_end|\u200b> <|IM_END|> <|im_end <|im_end|| |im_end|> <<|im_end|>> <|im_<|im_end|>end|>
<|endoftext|> <|endoftext |> <repo_name>x<reponame>y <file_sep><filename>z <gh_stars>9 <jupyter_code> <|begin_of_text|> <|eot_id|> </s> [INST] <s> <tool_call> <think>
\u1c80\u1d00\u2c60\ua720\uab30\ufb00\uff21\uff10\uff01\U0001d400\U0001d7ce\U0001f100\U00020000\U0002ffff\U000323b0
...!!!???--- ===>>> <<<=== ***___*** ~~~~ @@@@ ^^^^ ||||
a.b,c;d:e!f?g-h_i(j)k[l]m{n}o/p\\\\q|r@s#t$u%v^w&x*y+z=1<2>3~4`5"6'7
word\n!\n!!\r\n?? \n !\n\n\n!! \r!\r \u2028! \u3000! \u3000a \u00a0a\u00a0 1\u00a0
CamelCaseWordsAndSNAKE_CASE_WORDS and-kebab-case-words antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis
"""


def unescape(line):
    return line.encode("latin-1", "backslashreplace").decode("unicode_escape")


def fixed_cases():
    for line in HURT.split("\n")[:-1]:
        text = unescape(line)
        yield text
        yield " " + text + " "
    yield ""
    for c in (" ", "\n", "\t", "a", "1", "'", "!", "\u00e9", "\u3000", "\U0001f600", "\r\n", "\u0301"):
        for n in (1, 2, 3, 4, 17):
            yield c * n
            yield c * n + "x"
            yield "x" + c * n
    for run in ("a" * 3000, "ab" * 900, " " * 700, "\n" * 300, "1" * 500, "!" * 500, " \n" * 200, "'s" * 200):
        yield run
        yield run + "x 1"
    yield "".join(random.Random(5).choice("etaoinshrdlu") for _ in range(4000))


def de_bruijn(alphabet, n):
    """Every sequence of n characters of the alphabet, once (the sequence is a cycle; its start is repeated)."""
    k, a, out = len(alphabet), [0] * len(alphabet) * n, []

    def extend(t, p):
        if t > n:
            if n % p == 0:
                out.extend(a[1 : p + 1])
            return
        a[t] = a[t - p]
        extend(t + 1, p)
        for j in range(a[t - p] + 1, k):
            a[t] = j
            extend(t + 1, t)

    extend(1, 1)
    return "".join(alphabet[i] for i in out) + "".join(alphabet[i] for i in out[: n - 1])


def class_cases(scale):
    """Every meeting of three (or four) characters of different classes."""
    text = de_bruijn(["a", "\u00c9", "1", "\u00b2", " ", "\t", "\n", "\r", "'", "s", "!", "\u00a0", "\u0301"], 3)
    text += de_bruijn(["a", "1", " ", "\n", "\r", "'", "s", "L", "!"], 4)
    if scale > 1:
        text += de_bruijn(["a", "1", " ", "\t", "\n", "\r", "'", "s", "L", "l", "!", "\u3000", "\u0301"], 4)
    for i in range(0, len(text), 150):
        yield text[i : i + 153]


def random_char(rng):
    kind = rng.randrange(12)
    if kind < 3:
        return chr(rng.randrange(0x20, 0x7F))
    if kind < 5:
        return rng.choice(" \n\t\r'  ")
    if kind < 6:
        return chr(rng.randrange(0x80, 0x800))
    if kind < 8:
        return rng.choice("abcdefghij 0123456789stmrevld'")
    while True:
        c = rng.randrange(0x800, (0x10000, 0x10000, 0x20000, 0x110000)[kind - 8])
        if not 0xD800 <= c <= 0xDFFF:
            return chr(c)


def random_cases(scale):
    rng = random.Random(11)
    for _ in range(150 * scale):
        yield "".join(random_char(rng) for _ in range(rng.randrange(1, 80)))


def mark_cases(scale):
    """What normalisation moves, joins and leaves."""
    rng = random.Random(12)
    marks = [chr(c) for c in range(0x300, 0x1F000) if unicodedata.combining(chr(c))]
    common = [chr(c) for c in range(0x300, 0x345)]
    bases = [chr(c) for c in range(0x110000) if unicodedata.decomposition(chr(c))[:1] not in ("", "<")] + list("aeioAzx ")
    jamo = [chr(c) for c in [*range(0x1100, 0x1113), *range(0x1161, 0x1176), *range(0x11A7, 0x11C3), 0xAC00, 0xAC01]]
    for _ in range(60 * scale):
        text = ""
        for _ in range(rng.randrange(1, 14)):
            base = rng.choice(bases)
            text += rng.choice((base, unicodedata.normalize("NFD", base), rng.choice(jamo), ""))
            for _ in range(rng.choice((0, 0, 1, 1, 2, 3, 5))):
                text += rng.choice(common if rng.random() < 0.7 else marks)
        yield text


def border_cases(scale):
    """The characters where a class begins or ends."""
    text, last = "", None
    for c in range(0x110000):
        if 0xD800 <= c <= 0xDFFF:
            continue
        kind = unicodedata.category(chr(c))[0], unicodedata.combining(chr(c)) > 0
        if scale > 1 or (kind != last and c % 3 == 0):
            text += chr(c)
        last = kind
    for i in range(0, len(text), 64):
        yield text[i : i + 64]


def look_alikes(tables, scale):
    rng = random.Random(13)
    added = tables.added(CONTROL) + tables.added(USER_DEFINED)
    for _ in range(60 * scale):
        text = ""
        for _ in range(rng.randrange(1, 8)):
            t = rng.choice(added)
            cut = rng.randrange(len(t) + 1)
            text += rng.choice((t, t, t[:cut], t[cut:], t[:cut] + rng.choice(added), " ", "\n", "a", "user\n", "12"))
        yield text


def escape(text):
    def plain(c):
        return c.isprintable() and c != "\\" and unicodedata.category(c)[0] != "M"

    return "".join(c if plain(c) else "".join(f"\\x{b:02x}" for b in c.encode()) for c in text)


def word_length(n):
    return DIGITS[n] if n < len(DIGITS) else f"({n})"


def words(reference, text):
    if reference.normalizer:
        text = reference.normalizer.normalize_str(text)
    # One character of the byte-level alphabet is one byte.
    return "".join(word_length(len(word)) for word, _ in reference.pre_tokenizer.pre_tokenize_str(text))


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("model", help="a GGUF file")
    args.add_argument("folder", type=pathlib.Path)
    args.add_argument("--scale", type=int, default=1, help="more random cases; 2 and up: every character of Unicode")
    args.add_argument("--pre", choices=PRES, action="append", help="only these (default: all)")
    a = args.parse_args()
    tables = Tables(a.model)
    cases = []
    for make in (fixed_cases(), class_cases(a.scale), random_cases(a.scale), mark_cases(a.scale), border_cases(a.scale)):
        cases += [("P", text) for text in make]
    cases += [(kind, text) for text in look_alikes(tables, a.scale) for kind in "PT"]
    cases += [("T", unescape(line)) for line in HURT.split("\n") if "<" in line]
    a.folder.mkdir(parents=True, exist_ok=True)
    with open(a.folder / "corpus.txt", "w", encoding="utf-8", newline="\n") as f:
        f.writelines(f"{kind} {escape(text)}\n" for kind, text in cases)
    for pre in a.pre or PRES:
        reference = {kind: tables.reference(pre, kind == "T") for kind in "PT"}
        with open(a.folder / f"{pre}.ids", "w", newline="\n") as f:
            for kind, text in cases:
                ids = reference[kind].encode(text, add_special_tokens=False).ids
                f.write(" ".join(map(str, ids)) + "\n")
        with open(a.folder / f"{pre}.words", "w", newline="\n") as f:
            f.writelines(words(reference["P"], text) + "\n" for _, text in cases)


if __name__ == "__main__":
    main()
