#!/usr/bin/env python3
"""A line that kills its worker: it gets its error line after at most three deaths, every other line is answered with the bytes of
an undisturbed run. Also where it kills late, where two do, and where kill -9 comes in between: that sets nothing aside.

usage: test_poison.py
"""
import os
import random
import re
import sys

import job

MARK = "zzqpoison"
DEATHS_MAX = 3


def poisoned(rows, at):
    for i in at:
        body = rows[i]["body"]
        if "messages" in body:
            body["messages"][-1]["content"] += " " + MARK
        else:
            body["prompt"] = "once " + MARK
        body["max_tokens"] = 40
        body.pop("stop", None)
    return rows


def run_to_end(source, output, model, failpoint, settings, rng=None, wall_s=None):
    """Runs until the job is done: (deaths by the line, deaths by kill -9). wall_s: what it takes undisturbed; with rng kill -9 comes
    after some of that."""
    crashed = killed = 0
    while True:
        kill_s = rng.uniform(0.05, 0.15) * wall_s if rng is not None and killed < 15 else None
        code, report = job.run(source, output, model, settings=settings, failpoint=failpoint, kill_after_s=kill_s, timeout_s=120)
        if code == 0:
            return crashed, killed, report
        assert code in (-6, -9), (code, report)
        crashed += code == -6
        killed += code == -9
        assert crashed < 30, "it is never set aside"


def others(answers, at):
    """Without the job's own id: it is made of the input, too."""
    return {i: re.sub(r"(req_|cmpl-)[0-9a-f]{16}_", r"\1", line) for i, line in answers.items() if i not in at}


def case(folder, model, name, at, failpoint, settings, want, rng=None, wall_s=None, deaths_max=DEATHS_MAX):
    source = job.write(os.path.join(folder, name + ".in"), poisoned(job.lines(60, 3, max_tokens=(5, 60)), at))
    output = os.path.join(folder, name + ".out")
    crashed, killed, report = run_to_end(source, output, model, failpoint, settings, rng, wall_s)
    got = job.audit(source, output)
    refused = sorted(i for i, line in got.items() if '"quarantined"' in line)
    assert refused == (sorted(at) if failpoint else []), (name, refused, at)
    assert report["failed"] + report["before_failed"] == len(refused), report
    job.same(others(got, at), others(want, at), name)
    assert crashed <= deaths_max, "%s: %d deaths" % (name, crashed)
    assert (crashed > 0) == bool(failpoint) and (killed > 1) == (rng is not None), (name, crashed, killed)
    job.say("%s: %d deaths by the line, %d by kill -9, set aside: %s" % (name, crashed, killed, refused))


def main():
    rng = random.Random(5)
    with job.folder() as folder:
        model = job.tiny_model(folder)
        settings = {"sequences_max": 16, "commit_ms": 20, "checkpoint_ms": 50}
        plain = os.path.join(folder, "plain.out")
        source = job.write(os.path.join(folder, "plain.in"), job.lines(60, 3, max_tokens=(5, 60)))
        job.done(source, plain, model, settings=settings)
        want = job.audit(source, plain)
        point = "engine.poison=" + MARK
        case(folder, model, "at once", [7], point, settings, want)
        case(folder, model, "late", [31], point + "@25", settings, want)
        case(folder, model, "first", [0], point, settings, want)
        case(folder, model, "two", [5, 40], point, settings, want, deaths_max=2 * DEATHS_MAX)
        case(folder, model, "halves", [7], point, dict(settings, quarantine_alone_max=4), want, deaths_max=6)
        alone = dict(settings, sequences_max=2, threads=1)
        wall_s = job.done(source, os.path.join(folder, "alone.out"), model, settings=alone)["wall_s"]
        case(folder, model, "killed", [], None, alone, want, rng=rng, wall_s=wall_s)
    job.say("ok")


if __name__ == "__main__":
    main()
