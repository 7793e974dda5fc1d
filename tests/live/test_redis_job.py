#!/usr/bin/env python3
"""A file's job that keeps its progress in a real Redis, while both die: kill -9 of the run at random moments; Redis killed, emptied,
hanging, full, demoted, without scripts, and away at the start. The output is the undisturbed run's, byte for byte; what is done
leaves nothing but fences behind.

usage: test_redis_job.py [ROUNDS] [SEED]        (4, 1)
"""
import os
import random
import sys
import threading
import time

import job
import services


def full(redis):
    redis.command("CONFIG", "SET", "maxmemory", "1")
    time.sleep(0.3)
    redis.command("CONFIG", "SET", "maxmemory", "0")


def demoted(redis):
    redis.command("REPLICAOF", "127.0.0.1", "1")
    time.sleep(0.3)
    redis.command("REPLICAOF", "NO", "ONE")


def killed(redis):
    redis.kill()
    redis.start()


def hangs(redis):
    redis.pause()
    time.sleep(0.6)
    redis.resume()


FAULTS = [lambda redis: redis.command("FLUSHALL"), lambda redis: redis.command("SCRIPT", "FLUSH"), full, demoted, killed, hangs]


class Nemesis(threading.Thread):
    """One fault after the other until it is told to stop; Redis is well in the end."""

    def __init__(self, redis, rng):
        super().__init__()
        self.redis, self.rng, self.over, self.faults, self.failed = redis, rng, threading.Event(), 0, None

    def run(self):
        try:
            while not self.over.wait(self.rng.uniform(0.05, 0.4)):
                FAULTS[self.faults % len(FAULTS)](self.redis)
                self.faults += 1
        except BaseException as e:
            self.failed = e

    def stop(self):
        self.over.set()
        self.join()
        if self.failed:
            raise self.failed


class Job:
    def __init__(self, folder, redis, source, want, model):
        self.folder, self.redis, self.source, self.want, self.model = folder, redis, source, want, model
        self.output = os.path.join(folder, "out.jsonl")
        self.settings = {"sequences_max": 24, "commit_ms": 20, "checkpoint_ms": 50, "checkpoint_tokens": 8,
                         "checkpoint_timeout_ms": 300, "checkpoint_url": redis.url}

    def reset(self):
        for name in os.listdir(self.folder):
            if name.startswith("out.jsonl"):
                os.remove(os.path.join(self.folder, name))

    def run(self, **kw):
        code, report = job.run(self.source, self.output, self.model, settings=self.settings,
                               stderr=os.path.join(self.folder, "log"), **kw)
        assert code in (0, -9), (code, open(os.path.join(self.folder, "log")).read()[-2000:])
        return report

    def check(self, what):
        job.same(job.audit(self.source, self.output), self.want, what)

    def left(self):
        return [key for key in self.redis.command("KEYS", "ns:*") if key[:4] in ("ns:c", "ns:a", "ns:i")]


def resumes(j, wall_s, rng):
    """Deaths of the run alone: tokens come back, and a job that is over has left nothing."""
    j.reset()
    kills, resumed = 0, 0
    while True:
        report = j.run(kill_after_s=rng.uniform(0.3, 0.8) * wall_s) if kills < 3 else j.run()
        if report:
            break
        kills += 1
        resumed += len([key for key in j.left() if key.startswith("ns:c")])
    j.check("kills")
    assert resumed == 0 or report["resumed_sequences"] > 0, (resumed, report)
    assert j.left() == [], j.left()
    job.say("%d kills of the run, %d sequences stored at the deaths, %d resumed last" % (kills, resumed, report["resumed_sequences"]))
    return resumed


def away_at_the_start(j):
    """Redis comes while the job runs: from then on a death costs no more than with it."""
    j.reset()
    j.redis.command("FLUSHALL")
    j.redis.kill()
    comes = threading.Timer(0.3, j.redis.start)
    comes.start()
    try:
        report = j.run(failpoint="checkpoint.save.after:40")
    finally:
        comes.join()
    if report is None:
        stored = len([key for key in j.left() if key.startswith("ns:c")])
        report = j.run()
        assert report["resumed_sequences"] > 0 and stored > 0, (stored, report)
        job.say("Redis came late: %d sequences stored, %d resumed" % (stored, report["resumed_sequences"]))
    else:
        raise AssertionError("nothing was saved after Redis had come")
    j.check("away at the start")
    assert j.left() == [], j.left()


def under_faults(j, wall_s, rng, i):
    j.reset()
    nemesis = Nemesis(j.redis, rng)
    nemesis.start()
    kills = 0
    try:
        while not j.run(**({"kill_after_s": rng.uniform(0.3, 0.8) * wall_s} if kills < 3 else {})):
            kills += 1
    finally:
        nemesis.stop()
    j.check("round %d" % i)
    job.say("round %d: %d kills of the run, %d faults of Redis" % (i, kills, nemesis.faults))


def job_make(folder, redis, source, layers=None):
    """A job and how long it takes undisturbed."""
    model = job.tiny_model(folder, layers)
    plain = os.path.join(folder, "plain-%s.jsonl" % layers)
    wall_s = job.done(source, plain, model, settings={"sequences_max": 24})["wall_s"]
    return Job(folder, redis, source, job.audit(source, plain), model), wall_s


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    with job.folder() as folder, services.Redis() as redis:
        source = job.write(os.path.join(folder, "in.jsonl"), job.lines(400, 7, max_tokens=(100, 250)))
        j, wall_s = job_make(folder, redis, source)
        assert sum(resumes(j, wall_s, rng) for _ in range(2)) > 0, "no death has left anything to resume"
        # A store that was away is asked again after a second: this job takes longer on any machine.
        away_at_the_start(job_make(folder, redis, source, 16)[0])
        for i in range(rounds):
            under_faults(j, wall_s, rng, i)
    job.say("ok")


if __name__ == "__main__":
    main()
