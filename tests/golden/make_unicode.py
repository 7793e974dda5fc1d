#!/usr/bin/env python3
"""Writes worker/text/unicode_table.c: what the reference tokenizers think of every character.

The classes are asked of the `tokenizers` library itself, character by character, so that they do not depend on the
Unicode version of a library that this machine happens to have.

    pip install tokenizers==0.23.3
    tests/golden/make_unicode.py > worker/text/unicode_table.c
"""
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

TABLE_END = 0x40000
CHARS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
BLOCK = 4096

LETTER, NUMBER, SPACE, OTHER, NEWLINE, NUMERIC, JOINING, FOREIGN = (1 << i for i in range(8))
DEFAULT = OTHER | FOREIGN


def matched(pattern):
    """The characters that a regular expression of one character matches."""
    drop = normalizers.Replace(Regex(pattern), "")
    found = set()
    for i in range(0, len(CHARS), BLOCK):
        block = CHARS[i : i + BLOCK]
        left = set(map(ord, drop.normalize_str("".join(map(chr, block)))))
        found.update(c for c in block if c not in left)
    return found


def numeric():
    """The characters that the pre-tokenizer Digits isolates."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    found = set()
    for i in range(0, len(CHARS), BLOCK):
        text = "".join("a" + chr(c) for c in CHARS[i : i + BLOCK])
        found.update(ord(p) for p, _ in digits.pre_tokenize_str(text) if len(p) == 1 and p != "a")
    return found


def joining():
    """The characters that can change, or be moved or joined to what stands before them, under the reference's NFC."""
    nfc, nfd = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str
    found, foreign = {0x345}, set()
    for c in CHARS:
        # Class 240, that of U+0345, is the highest: every other combining character moves in front of it.
        if nfc("\u0345" + chr(c))[0] != "\u0345" or nfc(chr(c)) != chr(c):
            found.add(c)
    found.update(range(0x1161, 0x1176), range(0x11A8, 0x11C3))
    for c in CHARS:
        parts = unicodedata.decomposition(chr(c)).split()
        if not parts or parts[0].startswith("<"):
            continue
        if nfd(chr(c)) != unicodedata.normalize("NFD", chr(c)):
            foreign.update([c], (int(p, 16) for p in parts))
        elif len(parts) == 2 and nfc(nfd(chr(c))) == chr(c):
            found.add(int(parts[1], 16))
    for c in CHARS:
        if unicodedata.category(chr(c)) == "Cn" or (unicodedata.combining(chr(c)) and c not in found):
            foreign.add(c)
        if c not in found and c not in foreign and nfc(chr(c)) != unicodedata.normalize("NFC", chr(c)):
            foreign.add(c)
    foreign -= found
    return found, foreign


def main():
    letter, number, space = matched(r"\p{L}"), matched(r"\p{N}"), matched(r"\s")
    isolated = numeric()
    join, foreign = joining()
    flags = []
    assert not letter & number and not letter & space and not number & space and number <= isolated
    assert matched(r"[^\s\p{L}\p{N}]") == set(CHARS) - letter - number - space
    for c in range(0x110000):
        f = LETTER if c in letter else NUMBER if c in number else SPACE if c in space else OTHER
        f |= NEWLINE if c in (10, 13) else 0
        f |= NUMERIC if c in isolated else 0
        f |= JOINING if c in join else 0
        f |= FOREIGN if c in foreign else 0
        if 0xD800 <= c <= 0xDFFF:
            f = DEFAULT
        # Assigned, but far away and of no class: the default says more than the truth, which does no harm.
        if c >= TABLE_END:
            assert f & ~FOREIGN == OTHER, hex(c)
        flags.append(f)
    runs, start = [], 0
    for c in range(1, TABLE_END + 1):
        if c == TABLE_END or flags[c] != flags[start]:
            if flags[start] != DEFAULT:
                runs.append((start, c - start, flags[start]))
            start = c
    out = sys.stdout
    out.write(f"""/* Made by tests/golden/make_unicode.py from tokenizers {tokenizers.__version__} and Unicode {unicodedata.unidata_version}; not by hand. */
#include "worker/text/unicode.h"

const struct unicode_run unicode_runs[] = {{
""")
    line = "   "
    for first, n, f in runs:
        item = f" {{{first:#x}, {n}, {f}}},"
        if len(line) + len(item) > 120:
            out.write(line + "\n")
            line = "   "
        line += item
    out.write(line + "\n};\n\nconst size_t unicode_runs_n = sizeof(unicode_runs) / sizeof(*unicode_runs);\n")


if __name__ == "__main__":
    main()
