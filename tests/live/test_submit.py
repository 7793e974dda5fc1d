#!/usr/bin/env python3
"""nightshift submit against the real broker: every line once, whatever kills it, whoever else submits the same job, and through a
broker's death. What the topic holds is read by topic_tool.

usage: test_submit.py [RANDOM_KILLS] [SEED]        (12, 1)
"""
import json
import os
import random
import signal
import subprocess
import sys
import time

import job
import services
from topics import Topics

LINES = 4000
FAILPOINTS = ["submit.add:1", "submit.add:700", "submit.add:2500", "submit.commit.before:1", "submit.commit.before:3",
              "submit.commit.after:1", "submit.commit.after:4", "topic.commit.before:2", "topic.commit.after:2"]


def command(source, url, *args):
    return [job.BIN, "submit", source, "--queue", url, "--json"] + list(args)


def submit(source, url, *args, failpoint=None, kill_after_s=None):
    """(exit code, report, what it said)."""
    env = dict(os.environ, NIGHTSHIFT_FAILPOINT=failpoint or "")
    if not failpoint:
        del env["NIGHTSHIFT_FAILPOINT"]
    p = subprocess.Popen(command(source, url, *args), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, err = p.communicate(timeout=kill_after_s or 120)
    except subprocess.TimeoutExpired:
        p.send_signal(signal.SIGKILL)
        out, err = p.communicate()
        assert kill_after_s, "submit hangs"
    return p.returncode, json.loads(out) if out.strip() else None, err.decode(errors="replace")


def done(source, url, *args):
    code, report, said = submit(source, url, *args)
    assert code == 0, (code, said)
    return report


def check(url, source, name):
    """The topic holds each line of the file once, with its number, key and the job's name, byte for byte."""
    with open(source, "rb") as f:
        want = {i + 1: line.rstrip(b"\n") for i, line in enumerate(f) if line.strip()}
    got = {}
    with Topics(url) as t:
        for r in t.scan("prompts"):
            assert r.header("ns-job") == name and int(r.header("ns-lines")) == len(want), r.headers
            line = int(r.header("ns-line"))
            assert line not in got, "line %d stands twice" % line
            got[line] = r.value
            assert r.key.decode() == json.loads(r.value)["custom_id"]
    assert got == want, (len(got), len(want), sorted(set(want) - set(got))[:5])


def kills(kafka, source, n, rng):
    for i, failpoint in enumerate(FAILPOINTS):
        url = kafka.url("point-%d" % i)
        code, _, said = submit(source, url, "--job", "j", failpoint=failpoint)
        assert code == -9, (failpoint, code, said)
        report = done(source, url, "--job", "j")
        if "commit.after" in failpoint:
            assert report["there_before"] > 0, failpoint
        check(url, source, "j")
    job.say("%d deaths at failpoints" % len(FAILPOINTS))
    url, left, round_i = kafka.url("random-0"), n, 0
    while left > 0:
        code, _, said = submit(source, url, "--job", "j", kill_after_s=rng.uniform(0.05, 1.2))
        assert code in (0, -9), said
        if code == 0:
            check(url, source, "j")
            round_i += 1
            url = kafka.url("random-%d" % round_i)
        left -= 1
    done(source, url, "--job", "j")
    check(url, source, "j")
    job.say("%d random kills" % n)


def together(kafka, source):
    """Two of the same job at once: one is fenced or finds the work done; a third finds it all there."""
    url = kafka.url("together")
    first = subprocess.Popen(command(source, url, "--rate", "500"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with Topics(url) as t:
        services.wait_for("the first one's records", lambda: t.has("prompts") and t.high("prompts") > 100)
    second = submit(source, url)
    out, err = first.communicate(timeout=120)
    assert second[0] == 0 and first.returncode == 3 and b"another process" in err, (second, first.returncode, err)
    assert done(source, url)["there_before"] == LINES
    with Topics(url) as t:
        name = t.scan("prompts")[0].header("ns-job")
    check(url, source, name)


def stop_and_go(kafka, source):
    url = kafka.url("stop")
    p = subprocess.Popen(command(source, url, "--rate", "800", "--job", "j"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with Topics(url) as t:
        services.wait_for("some records", lambda: t.has("prompts") and t.high("prompts") > 300)
    p.send_signal(signal.SIGTERM)
    begun = time.monotonic()
    out, err = p.communicate(timeout=60)
    assert p.returncode == 75 and b"run the same command" in err and time.monotonic() - begun < 10, (p.returncode, err)
    done(source, url, "--job", "j")
    check(url, source, "j")


def broker_dies(kafka, source):
    url = kafka.url("bounce")
    p = subprocess.Popen(command(source, url, "--rate", "1500", "--job", "j"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with Topics(url) as t:
        services.wait_for("some records", lambda: t.has("prompts") and t.high("prompts") > 600)
        kafka.kill()
        kafka.start()
    out, err = p.communicate(timeout=180)
    assert p.returncode == 0, (p.returncode, err)
    check(url, source, "j")


def refusals(kafka, folder, source):
    small = os.path.join(folder, "small.jsonl")
    rows = job.lines(5, 1)
    job.write(small, rows)
    url = kafka.url("refused")
    with open(small, "a") as f:
        f.write("{\"x\": \n\n\"no object\"\n{\"custom_id\": 5, \"body\": {}}\n")
    code, report, said = submit(small, url)
    assert code == 1 and report is None and said.count("\nline ") + said.startswith("line ") == 3, (code, said)
    with Topics(url) as t:
        assert not t.has("prompts"), "topics were made for a file that was refused"
    report = done(small, url, "--no-validate", "--job", "j")
    assert report["invalid"] == 3 and report["there"] == 8, report
    code, _, said = submit(source, url, "--job", "j")
    assert code == 2 and "--job" in said, (code, said)
    job.write(small, rows[:4])
    code, _, said = submit(small, url, "--job", "j")
    assert code == 2 and "another file" in said, (code, said)
    big = os.path.join(folder, "big.jsonl")
    job.write(big, [{"custom_id": "big", "body": {"prompt": "x" * (2 << 20)}}] + rows)
    done(big, kafka.url("big"))                                        # topics that submit makes take lines of line_mb_max
    with Topics(kafka.url("narrow")) as t:
        t.make(1)
    code, _, said = submit(big, kafka.url("narrow"))
    assert code == 2 and "max.message.bytes" in said, (code, said)
    code, _, said = submit(small, "kafka://127.0.0.1:1/x")
    assert code == 2 and "127.0.0.1:1" in said, (code, said)


def keys(kafka, folder):
    source = os.path.join(folder, "keys.jsonl")
    job.write(source, [{"custom_id": "a\u00e9\"", "body": {"prompt": "x", "user": "u1"}}, {"custom_id": "b", "body": {"prompt": "x", "user": 7}},
                       {"custom_id": "c", "body": {"prompt": "x"}}])
    for name, key, want in (("k1", "custom_id", {"a\u00e9\"".encode(), b"b", b"c"}), ("k2", "body.user", {b"u1", b"7", None}),
                            ("k3", "none", {None})):
        done(source, kafka.url(name), "--key", key)
        with Topics(kafka.url(name)) as t:
            assert {r.key for r in t.scan("prompts")} == want, name


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 12
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    with job.folder() as folder, services.Kafka() as kafka:
        source = job.write(os.path.join(folder, "in.jsonl"), job.lines(LINES, 11))
        refusals(kafka, folder, source)
        keys(kafka, folder)
        kills(kafka, source, n, rng)
        together(kafka, source)
        stop_and_go(kafka, source)
        broker_dies(kafka, source)
    job.say("ok")


if __name__ == "__main__":
    main()
