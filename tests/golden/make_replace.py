#!/usr/bin/env python3
"""Writes the golden file of the detokenizer: broken UTF-8, and what Python's errors='replace' makes of it.

    tests/golden/make_replace.py > tests/golden/replace.txt

One case a line: the bytes and the text, both in hexadecimal.
"""
import random

PIECES = ["a", "\u00e9", "\u07ff", "\u0800", "\u4e16", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0001f600", "\U0010ffff"]
EDGES = [0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0]
EDGES += [0xF1, 0xF3, 0xF4, 0xF5, 0xFF]


def cases():
    for a in EDGES:
        yield bytes([a])
        for b in EDGES:
            yield bytes([a, b, 0x41])
    rng = random.Random(21)
    for lead in (0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF1, 0xF4):
        for b in (0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0):
            for c in (0x7F, 0x80, 0xBF, 0xC2):
                yield bytes([lead, b, c])
                yield bytes([lead, b, c, 0x80, 0x41])
    for _ in range(400):
        out = b""
        for _ in range(rng.randrange(1, 12)):
            piece = rng.choice(PIECES).encode()
            out += rng.choice((piece, piece, piece[: rng.randrange(len(piece) + 1)], bytes([rng.choice(EDGES)])))
        if out:
            yield out


def main():
    for case in cases():
        text = case.decode("utf-8", errors="replace").encode()
        print(case.hex(), text.hex())


if __name__ == "__main__":
    main()
