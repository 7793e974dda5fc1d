#!/usr/bin/env python3
"""The Invariant over whole jobs: {alone, 64 mates} x {cold, warm prefix} x {chunk 16, 512} x {arrival order, shuffled} x
{1, 2 threads} x {run through, killed 5 times} x temperature {0, 0.8}: equal bytes in all cells, and a check that warm
cells really hit and killed ones really resumed.

usage: test_invariant.py tiny|default-all|sample|default
       tiny, default-all: every cell with the tiny model, with the default one (an hour); sample, default: a covering sample
"""
import itertools
import json
import os
import random
import sys

import job

TARGETS = 6
PREFIX_MIN = 48         # tokens: more than the words that every chat begins with


def targets(temperature, n_tokens):
    """Each has a prefix of its own, so that whether it is warm depends on the lines before it alone."""
    rng = random.Random(5)
    return [{"custom_id": "target-%d" % i, "method": "POST", "url": "/v1/chat/completions",
             "body": {"model": "m", "seed": 1000 + i, "max_tokens": n_tokens, "temperature": temperature, "ignore_eos": True,
                      "logprobs": True, "top_logprobs": 2,
                      "messages": [{"role": "system", "content": "%d %s" % (i, job.words(rng, 90))},
                                   {"role": "user", "content": job.words(rng, 12)}]}}
            for i in range(TARGETS)]


def content(path):
    """{custom_id: the choices} of the targets, and how many prompt tokens of each the cache had. Ids differ between jobs,
    what was generated may not."""
    out, cached = {}, []
    with open(path, encoding="utf-8") as f:
        for line in f:
            row = json.loads(line)
            if row["custom_id"].startswith("target-"):
                out[row["custom_id"]] = json.dumps(row["response"]["body"]["choices"])
                cached.append(row["response"]["body"]["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert len(out) == TARGETS
    return out, cached


def cell_lines(mates, shuffled, warm, temperature, n_tokens):
    rows = targets(temperature, n_tokens)
    if mates:
        rows += job.lines(64, 11, max_tokens=(4, 60))
    if shuffled:
        random.Random(3).shuffle(rows)
    if warm:
        # For each target a short line with its prefix, which goes first.
        rows = [dict(row, custom_id="warm-%d" % i, body=dict(row["body"], seed=i, priority=-1))
                for i, row in enumerate(targets(temperature, 2))] + rows
    return rows


def cell_settings(mates, chunk, threads):
    settings = {"threads": threads, "step_rows_max": chunk, "sequences_max": 32 if mates else 1, "commit_ms": 5,
                "checkpoint_tokens": 4}
    return settings


def run_cell(folder, model, cell, n_tokens):
    mates, warm, chunk, shuffled, threads, killed, temperature = cell
    source = job.write(os.path.join(folder, "in.jsonl"), cell_lines(mates, shuffled, warm, temperature, n_tokens))
    output = os.path.join(folder, "out.jsonl")
    for name in os.listdir(folder):
        if name.startswith("out.jsonl"):
            os.remove(os.path.join(folder, name))
    settings = cell_settings(mates, chunk, threads)
    deaths, report = 0, None
    while killed and deaths < 5 and report is None:
        code, report = job.run(source, output, model, settings=settings, failpoint="saver.save.after:1")
        assert code in (0, -9), code
        deaths += code == -9
    if report is None:
        report = job.done(source, output, model, settings=settings)
    assert report["failed"] == report["before_failed"] == 0, report
    job.audit(source, output)
    got, cached = content(output)
    if not killed:
        assert not warm or min(cached) >= PREFIX_MIN, ("a warm cell did not hit", cell, cached)
        assert warm or max(cached) < PREFIX_MIN, ("a cold cell hit", cell, cached)
    return got, deaths, report["resumed_sequences"] > 0


def main():
    assert len(sys.argv) == 2 and sys.argv[1] in ("tiny", "default-all", "sample", "default"), __doc__
    default = sys.argv[1].startswith("default")
    cells = list(itertools.product([False, True], [False, True], [16, 512], [False, True], [1, 2], [False, True], [0, 0.8]))
    if sys.argv[1] in ("sample", "default"):
        # Every pair of values of two dimensions appears.
        cells = [c for i, c in enumerate(cells) if bin(i).count("1") in (0, 7) or bin(i * 37 % 128).count("1") == 2][:14]
    n_tokens = {"default": 48, "default-all": 48, "sample": 120, "tiny": 400}[sys.argv[1]]
    want, deaths, resumed = {}, [], 0
    with job.folder() as folder:
        model = job.default_model() if default else job.tiny_model(folder)
        for cell in cells:
            got, died, went_on = run_cell(folder, model, cell, n_tokens)
            deaths.append(died)
            resumed += went_on
            first = want.setdefault(cell[-1], got)
            for name in first:
                assert got[name] == first[name], "%s differs in cell %s:\n%.300s\n%.300s" % (name, cell, first[name], got[name])
    # On a crowded machine a job may be over before its fifth death, or die just when all it began was durable.
    killed = sum(cell[5] for cell in cells)
    assert sum(deaths) >= (3 if sys.argv[1] == "tiny" else 1) * killed and resumed > killed / 2, (sum(deaths), resumed, killed)
    assert want[0] != want[0.8], "temperature has no effect"
    job.say("ok: %d cells, %d deaths, %d of %d killed jobs ended with answers that went on from stored tokens"
            % (len(cells), sum(deaths), resumed, killed))


if __name__ == "__main__":
    main()
