"""A pool of real workers on a real broker, and what must be true of it in the end: every line answered once, the audit clean, and the
text of each answer equal byte for byte to an undisturbed run of the same lines from a file."""
import json
import os
import random
import re
import signal
import subprocess
import time

import job
import services
from topics import Topics
from worker import Worker

ID = re.compile(rb'\b(batch_req_|req_|chatcmpl-|cmpl-)[0-9a-f]{16}(_\d+)+')
CREATED = re.compile(rb'"created": ?\d+')
CACHED = re.compile(rb'"cached_tokens": ?\d+')
PLACE = re.compile(rb'line \d+, byte (\d+) \(byte \d+ of the file\)|offset \d+ of source \d+, byte (\d+)')


def lines(n, seed, **kw):
    """Every sampled line has its own seed: one that has none gets it from its place, which differs between file and topic."""
    rows = job.lines(n, seed, **kw)
    rng = random.Random(seed + 1)
    for row in rows:
        row["body"].setdefault("seed", rng.randint(0, 2 ** 40))
    return rows


def normal(line):
    """An answer without what tells one job from another: ids, the record's time, what the cache saved, where a bad line stood."""
    line = ID.sub(rb"\1X", line)
    line = CREATED.sub(b'"created":0', line)
    line = CACHED.sub(b'"cached_tokens":0', line)
    return PLACE.sub(lambda m: b"byte " + (m.group(1) or m.group(2)), line)


def answers(*paths):
    """{custom_id: normal answer}; lines without one are listed under None."""
    out = {}
    for path in paths:
        with open(path, "rb") as f:
            for line in f:
                assert line.endswith(b"\n"), "torn line in " + path
                name = json.loads(line)["custom_id"]
                if name is None:
                    out.setdefault(None, []).append(normal(line))
                    continue
                assert name not in out, "two answers for " + name
                out[name] = normal(line)
    if None in out:
        out[None].sort()
    return out


def reference(folder, source, model, name="reference"):
    """What an undisturbed file job says."""
    out, err = os.path.join(folder, name + ".jsonl"), os.path.join(folder, name + ".err.jsonl")
    code, _ = job.run(source, out, model, args=["-e", err, "--quiet"])
    assert code == 0, code
    return answers(out, err)


def same(got, want, what):
    assert set(got) == set(want), (what, "missing", sorted(map(str, set(want) - set(got)))[:5], "more", sorted(map(str, set(got) - set(want)))[:5])
    for name in want:
        assert got[name] == want[name], "%s: %s differs\n  %s\n  %s" % (what, name, want[name], got[name])


class Pool:
    """One queue. Workers are started by number, so that one that died is started again as the same."""

    def __init__(self, kafka, redis, name, model, folder, **settings):
        self.kafka, self.redis, self.name, self.model, self.folder = kafka, redis, name, model, folder
        self.url = kafka.url(name)
        self.settings = dict(session_timeout_ms=3000, txn_timeout_ms=2000, txn_ms=50, checkpoint_ms=100, log_level="info",
                             checkpoint_url=redis.url if redis else "mem:x", threads=1)
        self.settings.update(settings)
        self.workers = {}
        self.ended = []                # (number, exit code, the worker)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for w in self.workers.values():
            w.__exit__()

    def start(self, number, **kw):
        kw = dict(self.settings, **kw)
        self.workers[number] = Worker("--queue", self.url, "-m", self.model, **kw)
        return self.workers[number]

    def take(self, number):
        """The end of a worker; returns its exit code."""
        w = self.workers.pop(number)
        code = w.end()
        self.ended.append((number, code, w))
        return code

    def kill(self, number):
        self.workers[number].send(signal.SIGKILL)
        assert self.take(number) == -9

    def drain(self, number):
        """SIGTERM; returns the seconds it took."""
        begun = self.workers[number].send()
        code = self.take(number)
        assert code == 0, (code, self.ended[-1][2].log[-10:])
        return time.monotonic() - begun

    def stop(self):
        for number in list(self.workers):
            self.workers[number].send()
        for number in list(self.workers):
            code = self.take(number)
            assert code == 0, (number, code, self.ended[-1][2].log[-10:])

    def command(self, name, *args):
        return [job.BIN, name, "--queue", self.url, "--quiet", "--json"] + list(args)

    def call(self, name, *args, timeout_s=300, code=0):
        p = subprocess.run(self.command(name, *args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout_s)
        assert p.returncode == code, (name, p.returncode, p.stdout[-2000:], p.stderr[-2000:])
        return json.loads(p.stdout.splitlines()[-1]) if p.stdout.strip() else None

    def submit(self, source, job_name="j", *args, partitions=6):
        return self.call("submit", source, "--job", job_name, "--partitions", str(partitions), "--no-validate", *args)

    def submit_slowly(self, source, rate, job_name="j", partitions=6):
        """Returns when the topics are there and the first records come."""
        p = subprocess.Popen(self.command("submit", source, "--job", job_name, "--partitions", str(partitions), "--no-validate",
                                          "--rate", str(rate)), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with Topics(self.url) as t:
            services.wait_for("the topics", lambda: p.poll() is not None or t.has("dead"))
        assert p.poll() in (None, 0), p.communicate()
        return p

    def outputs(self, job_name="j"):
        return [os.path.join(self.folder, "%s-%s.%s.jsonl" % (self.name, job_name, kind)) for kind in ("out", "err")]

    def collect(self, job_name="j", *args, timeout_s=300, code=0):
        out, err = self.outputs(job_name)
        return self.call("collect", "--job", job_name, "-o", out, "-e", err, *args, timeout_s=timeout_s, code=code)

    def audit(self, *args, code=0):
        return self.call("audit", *args, code=code)

    def finish(self, want, what, job_name="j", timeout_s=300):
        """Waits for all answers, stops the workers, and checks everything."""
        report = self.collect(job_name, timeout_s=timeout_s)
        assert report["doubled"] == report["orphaned"] == report["uploaded_twice"] == 0, report
        self.stop()
        summary = self.audit()
        assert summary["clean"], summary
        same(answers(*self.outputs(job_name)), want, what)
        return summary
