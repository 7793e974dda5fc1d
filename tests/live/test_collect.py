#!/usr/bin/env python3
"""nightshift collect and retry against the real broker, with a test in the place of the workers: collect is killed at random and at
each failpoint while answers come, and its files hold each answer once; dead letters, retries that come through, order, foreign files,
incomplete uploads. retry puts each dead letter back once, whatever kills it. status and drain are asked, too.

usage: test_collect.py [SEED]        (1)
"""
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import job
import services
from topics import Topics

HASH = "0123456789abcdef"
FAILPOINTS = ["collect.write.before:1", "collect.write.half:1", "collect.write.after:1", "collect.write.half:3", "collect.order.rename:1",
              "collect.order.renamed:1"]


def run(name, *args, failpoint=None, kill_after_s=None):
    """(exit code, last JSON line, stderr)."""
    env = dict(os.environ, NIGHTSHIFT_FAILPOINT=failpoint or "")
    if not failpoint:
        del env["NIGHTSHIFT_FAILPOINT"]
    p = subprocess.Popen([job.BIN, name, *args, "--json"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, err = p.communicate(timeout=kill_after_s or 120)
    except subprocess.TimeoutExpired:
        p.send_signal(signal.SIGKILL)
        out, err = p.communicate()
        assert kill_after_s, "%s hangs" % name
    rows = out.decode().splitlines()
    return p.returncode, json.loads(rows[-1]) if rows else None, err.decode(errors="replace")


def done(name, *args):
    code, report, said = run(name, *args)
    assert code == 0, (name, code, report, said)
    return report


class Answering:
    """Plays the workers: every prompt gets a result line, every 50th a dead letter."""

    def __init__(self, name, url):
        self.name, self.url, self.t = name, url, Topics(url)
        self.from_offsets = None

    def dead(self, custom_id):
        return int(custom_id.rsplit("-", 1)[1]) % 50 == 7

    def all(self, batch=10 ** 9, pause_s=0, dead=None):
        """Answers what is there and not answered by this one; returns {custom_id: line}."""
        dead = dead or self.dead
        prompts = self.t.scan("prompts", *(self.from_offsets or []))
        self.from_offsets = [int(line.split()[2]) for line in self.t.do("ranges", "prompts")]
        random.Random(1).shuffle(prompts)
        lines = {}
        for begin in range(0, len(prompts), min(batch, max(len(prompts), 1))):
            for kind in ("results", "dead"):
                rows = []
                for r in prompts[begin:begin + batch]:
                    custom_id = json.loads(r.value)["custom_id"]
                    if dead(custom_id) == (kind == "dead"):
                        rows.append(self.row(r, custom_id, kind == "dead"))
                        lines[custom_id] = self.line(r, custom_id, kind == "dead")
                if rows:
                    self.t.write(kind, rows, writer="answers")
            time.sleep(pause_s)
        return lines

    def line(self, r, custom_id, dead):
        response = ('{"status_code":400,"request_id":"req_x","body":{"error":{}}}' if dead else
                    '{"status_code":200,"request_id":"req_x","body":{"choices":["\u00e4 %d"]}}' % r.offset)
        return '{"id":"batch_req_%s_%d_%d","custom_id":%s,"response":%s,"error":null}' % (HASH, r.partition, r.offset, json.dumps(custom_id), response)

    def row(self, r, custom_id, dead):
        own = [h for h in r.headers] + [("ns-id", "%s.prompts/%d/%d" % (self.name, r.partition, r.offset))]
        line = self.line(r, custom_id, dead)
        if dead:
            return (r.partition, r.key, r.value, own + [("ns-error-class", "invalid_value" if int(custom_id.rsplit("-", 1)[1]) % 100 == 7 else "quarantined"),
                                                        ("ns-error", "no"), ("ns-result", line)])
        return (r.partition, r.key, line, own)


def read(path):
    with open(path, encoding="utf-8", newline="\n") as f:
        rows = f.read().split("\n")
    assert rows.pop() == "", "torn line in " + path
    return rows


def same_lines(path, want, ordered=False):
    rows = read(path)
    ids = [json.loads(row)["custom_id"] for row in rows]
    assert len(ids) == len(set(ids)) == len(want), (path, len(ids), len(set(ids)), len(want))
    assert dict(zip(ids, rows)) == want, path
    if ordered:
        numbers = [int(i.rsplit("-", 1)[1]) for i in ids]
        assert numbers == sorted(numbers), path


def split(lines):
    return ({k: v for k, v in lines.items() if '"status_code":200' in v}, {k: v for k, v in lines.items() if '"status_code":200' not in v})


def killed_while_answers_come(kafka, folder, source, rng):
    url = kafka.url("kills")
    done("submit", source, "--queue", url, "--job", "j", "--partitions", "3")
    out, err = os.path.join(folder, "kills.jsonl"), os.path.join(folder, "kills.err")
    args = ["--queue", url, "--job", "j", "-o", out, "-e", err, "--order", "input"]
    found = {}
    answering = Answering("kills", url)
    thread = threading.Thread(target=lambda: found.update(answering.all(batch=120, pause_s=0.3)))
    thread.start()
    deaths = 0
    for failpoint in FAILPOINTS[:4]:
        code, _, said = run("collect", *args, failpoint=failpoint)
        assert code == -9, (failpoint, code, said)
        deaths += 1
    while thread.is_alive():
        code, report, said = run("collect", *args, kill_after_s=rng.uniform(0.1, 1.5))
        assert code in (0, -9), (code, said)
        deaths += code == -9
    thread.join()
    for failpoint in FAILPOINTS[4:]:
        code, _, said = run("collect", *args, failpoint=failpoint)
        assert code in (0, -9), (failpoint, code, said)
        deaths += code == -9
    report = done("collect", *args)
    good, bad = split(found)
    assert report["complete"] and report["done"] == len(good) and report["failed"] == len(bad) and not report["open_lines"], report
    same_lines(out, good, ordered=True)
    same_lines(err, bad, ordered=True)
    with open(out, "ab") as f:
        f.write(b'{"id":"batch_req_0123')              # torn
    done("collect", *args)
    same_lines(out, good, ordered=True)
    job.say("collect killed %d times" % deaths)


def waiting(kafka, folder, source, rows):
    """What is missing is known; --no-wait, --timeout; an upload that is not complete; a file that is not ours."""
    url, out = kafka.url("waits"), os.path.join(folder, "waits.jsonl")
    args = ["--queue", url, "--job", "j", "-o", out]
    assert run("submit", source, "--queue", url, "--job", "j", failpoint="submit.commit.before:2")[0] == -9
    answering = Answering("waits", url)
    lines = answering.all()
    assert len(lines) == 1000
    code, report, _ = run("collect", *args, "--no-wait")
    assert code == 75 and report["unsent"] == report["open"] == len(rows) - 1000 and not report["open_lines"], report
    done("submit", source, "--queue", url, "--job", "j")
    code, report, _ = run("collect", *args, "--timeout", "1")
    assert code == 75 and report["unsent"] == 0 and len(report["open_lines"]) == len(rows) - 1000, report
    missing = set(report["open_lines"])
    assert {int(name.rsplit("-", 1)[1]) + 1 for name in lines}.isdisjoint(missing)
    lines.update(answering.all())
    report = done("collect", *args)                    # without -e everything goes to one file
    same_lines(out, lines)
    code, _, said = run("collect", "--queue", url, "--job", "other", "-o", out, "--no-wait")
    assert code == 2 and "another job" in said, said
    alien = os.path.join(folder, "alien.jsonl")
    with open(alien, "w") as f:
        f.write("precious\n")
    code, _, said = run("collect", "--queue", url, "--job", "j", "-o", alien)
    assert code == 2 and open(alien).read() == "precious\n", said
    done("collect", "--queue", url, "--job", "j", "-o", alien, "--overwrite")
    same_lines(alien, lines)
    code, _, said = run("collect", "--queue", url, "--job", "none", "-o", os.path.join(folder, "none.jsonl"), "--no-wait")
    assert code == 2 and 'no job "none"' in said, said
    status = done("status", url, "--job", "j")
    assert status["lines"] == len(rows) and status["finished"] and status["done"] + status["failed"] == len(rows), status
    status = done("status", url)
    assert status["lag"] > 0 and status["committed_partitions"] == 0 and status["offsets"]["prompts"] >= len(rows), status


def retries(kafka, folder, source, rng):
    url = kafka.url("retries")
    out, err = os.path.join(folder, "retries.jsonl"), os.path.join(folder, "retries.err")
    args = ["--queue", url, "--job", "j", "-o", out, "-e", err, "--order", "input"]
    done("submit", source, "--queue", url, "--job", "j")
    answering = Answering("retries", url)
    lines = answering.all()
    good, bad = split(lines)
    done("collect", *args)
    same_lines(err, bad)
    chosen = [k for k in bad if int(k.rsplit("-", 1)[1]) % 100 != 7]
    report = done("retry", "--queue", url, "--class", "quarantined", "--dry-run")
    assert report["chosen"] == len(chosen) and report["put_back"] == 0 and report["classes"] == {"quarantined": len(chosen)}, report
    for failpoint in ("retry.commit.before:1", "retry.commit.after:1"):
        assert run("retry", "--queue", url, "--class", "quarantined", failpoint=failpoint)[0] == -9
    report = done("retry", "--queue", url, "--class", "quarantined")
    assert report["before"] == len(chosen) and report["put_back"] == 0, report
    code, report, _ = run("collect", *args, "--no-wait")
    assert code == 75 and report["open"] == len(chosen), report            # their lines are open again
    again = answering.all(dead=lambda custom_id: custom_id == chosen[0])   # one of them dies again
    assert set(again) == set(chosen)
    report = done("collect", *args)
    good.update({k: v for k, v in again.items() if k != chosen[0]})
    bad = {k: v for k, v in bad.items() if k not in chosen}
    bad[chosen[0]] = again[chosen[0]]
    same_lines(out, good, ordered=True)
    same_lines(err, bad, ordered=True)
    assert report["done"] == len(good) and report["failed"] == len(bad), report
    report = done("retry", "--queue", url, "--class", "quarantined")
    assert report["put_back"] == 0 and report["were_retries"] == 1, report
    report = done("retry", "--queue", url, "--again", "--job", "j")
    assert report["put_back"] == len(bad), report
    good.update(answering.all(dead=lambda custom_id: False))
    done("collect", *args)
    same_lines(out, good, ordered=True)
    same_lines(err, {})
    code, report, said = run("audit", "--queue", url)
    assert code == 0 and report["clean"], report


def drains(kafka, folder):
    """The whole way of `drain`: a worker that is asked ends with 0."""
    from worker import Worker
    model = job.tiny_model(folder)
    with Worker("--queue", kafka.url("waits"), "-m", model, checkpoint_url="mem:x", kafka_group="drained").until_ready() as w:
        base = "http://127.0.0.1:%d" % w.port
        page = done("status", base)
        assert page["state"] == "running" and page["queue"] == kafka.url("waits"), page
        report = done("drain", base, "--seconds", "20", "--wait")
        assert report == {"draining": True, "seconds": 20, "ended": True}, report
        assert w.end() == 0
    code, _, said = run("drain", base)
    assert code == 2 and "does not answer" in said, said
    for url in ("ftp://x", "http://", "http://127.0.0.1:1/path"):
        assert run("drain", url)[0] == 2, url


def main():
    rng = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    with job.folder() as folder, services.Kafka() as kafka:
        rows = job.lines(1500, 5)
        source = job.write(os.path.join(folder, "in.jsonl"), rows)
        killed_while_answers_come(kafka, folder, source, rng)
        waiting(kafka, folder, source, rows)
        retries(kafka, folder, source, rng)
        drains(kafka, folder)
    job.say("ok")


if __name__ == "__main__":
    main()
