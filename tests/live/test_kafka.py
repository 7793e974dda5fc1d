#!/usr/bin/env python3
"""The whole way on real services: submit, workers that come, go and die, a broker and a Redis that do the same, collect, audit. In the
end each line has one answer, and its bytes are those of an undisturbed file job.

usage: test_kafka.py [--seed N] [NAME ...]      (all parts)
"""
import os
import random
import signal
import subprocess
import sys
import time

import job
import pool
import services
from pool import Pool

FAILPOINTS = ["kafka.init:1", "kafka.begin:2", "kafka.produce:3", "kafka.produce:40", "kafka.guard:2", "kafka.offsets:2",
              "kafka.commit.before:1", "kafka.commit.before:3", "kafka.commit.after:1", "kafka.commit.after:3", "checkpoint.begin.before:2",
              "checkpoint.begin.after:2", "checkpoint.save.before:1", "checkpoint.save.after:1", "checkpoint.forget.before:1",
              "checkpoint.forget.after:2"]
SLOW_LAYERS = 100              # a step takes milliseconds: sequences are under way for long enough to be hit
SLOW = dict(sequences_max=8, step_rows_max=64)


class World:
    def __init__(self, kafka, redis, folder, seed):
        self.kafka, self.redis, self.folder = kafka, redis, folder
        self.fast, self.slow = job.tiny_model(folder), job.tiny_model(folder, SLOW_LAYERS)
        self.rng = random.Random(seed)

    def source(self, name, n, model, bad=True, **kw):
        """A file of n lines and some bad ones, and its undisturbed answers."""
        kw.setdefault("prefix_words", 30)
        rows = pool.lines(n, self.rng.randint(1, 10 ** 6), **kw)
        if bad:
            for i, field in enumerate([{"max_tokens": -1}, {"temperature": "hot"}, {"messages": 5, "prompt": None}, {"stream": True}]):
                rows.insert(n // 5 * (i + 1), dict(rows[0], custom_id="bad-%d" % i, body=dict(rows[0]["body"], **field)))
        path = job.write(os.path.join(self.folder, name + ".jsonl"), rows)
        if bad:
            with open(path, "ab") as f:
                f.write(b'{"custom_id": "torn", "body": {\n')
                f.write(b'{"custom_id": "latin-1 \xe9", "body": {}}\n')
        return path, pool.reference(self.folder, path, model, name + "-reference")

    def pool(self, name, model, **settings):
        return Pool(self.kafka, self.redis, name, model, self.folder, **settings)


def end_to_end(world):
    """(a) two workers; every answer equal to the file job's; dead letters are error lines."""
    path, want = world.source("plain", 400, world.fast)
    with world.pool("plain", world.fast) as p:
        p.submit(path)
        p.start(1)
        p.start(2)
        summary = p.finish(want, "end to end")
        assert summary["dead"] == 6 and summary["results"] == 400, summary
    job.say("end to end: %d lines, equal byte for byte" % len(want))


def come_and_go(world):
    """(b) a third joins, one leaves by SIGTERM: it hands over in time, and the others go on from its frames."""
    path, want = world.source("members", 150, world.slow, max_tokens=(40, 200))
    with world.pool("members", world.slow, **SLOW) as p:
        submit = p.submit_slowly(path, 15)
        p.start(1).until_ready()
        p.start(2).until_ready()
        time.sleep(1.5)
        p.start(3).until_ready()
        time.sleep(2)
        seconds = p.drain(1)
        assert seconds < 15, seconds
        assert submit.wait(timeout=120) == 0
        p.finish(want, "members come and go")
    job.say("a third joined, one left within %.1f s" % seconds)


def failpoints(world):
    """(c) kill -9 at every durable step of a worker, while another one is there."""
    path, want = world.source("points", 700, world.slow, max_tokens=(10, 120))
    reached = []
    with world.pool("points", world.slow, **SLOW) as p:
        submit = p.submit_slowly(path, 6)
        p.start(1).until_ready()
        for name in FAILPOINTS:
            w = p.start(2, failpoint=name)
            end = time.monotonic() + 8
            while w.p.poll() is None and time.monotonic() < end:
                time.sleep(0.05)
            if w.p.poll() is None:
                p.kill(2)
            else:
                assert p.take(2) == -9, (name, p.ended[-1][1], p.ended[-1][2].log[-5:])
                reached.append(name)
        assert submit.poll() is None or submit.returncode == 0, submit.communicate()
        submit.kill()
        submit.wait()
        p.submit(path)
        p.start(2)
        p.finish(want, "failpoints")
    never = sorted(set(FAILPOINTS) - set(reached))
    assert len(never) <= 2, ("failpoints that nothing reached", never)
    job.say("%d deaths at failpoints%s" % (len(reached), "; not reached: " + ", ".join(never) if never else ""))


class Chaos:
    """Two workers that are started again when they die, and one thing after another that goes wrong."""

    def __init__(self, world, p):
        self.world, self.p, self.rng = world, p, world.rng
        self.counts = {}

    def one(self):
        return self.rng.choice(sorted(self.p.workers))

    def worker_killed(self):
        self.p.kill(self.one())

    def worker_drained(self):
        self.p.drain(self.one())

    def worker_stopped(self):
        """Beyond its session and its transaction: a zombie whose partitions are somebody else's when it wakes."""
        w = self.p.workers[self.one()]
        w.send(signal.SIGSTOP)
        time.sleep(self.rng.uniform(1, 6))
        w.send(signal.SIGCONT)

    def broker_restarted(self):
        self.world.kafka.restart()

    def broker_killed(self):
        self.world.kafka.kill()
        self.world.kafka.start()

    def redis_emptied(self):
        self.world.redis.command("FLUSHALL")

    def redis_killed(self):
        self.world.redis.kill()
        time.sleep(self.rng.uniform(0, 1))
        self.world.redis.start()

    def redis_hangs(self):
        self.world.redis.pause()
        time.sleep(self.rng.uniform(0.5, 3))
        self.world.redis.resume()

    def redis_full(self):
        self.world.redis.command("CONFIG", "SET", "maxmemory", "1")
        time.sleep(self.rng.uniform(0.5, 2))
        self.world.redis.command("CONFIG", "SET", "maxmemory", "0")

    def redis_demoted(self):
        self.world.redis.command("REPLICAOF", "127.0.0.1", "1")
        time.sleep(self.rng.uniform(0.5, 2))
        self.world.redis.command("REPLICAOF", "NO", "ONE")

    def redis_scripts_flushed(self):
        self.world.redis.command("SCRIPT", "FLUSH")

    def tend(self, workers_n=2):
        """Whoever is gone is started again. No exit but those that say what happened."""
        for number in range(1, workers_n + 1):
            w = self.p.workers.get(number)
            if w is not None and w.p.poll() is not None:
                code = self.p.take(number)
                assert code in (3, 4), (code, self.p.ended[-1][2].log[-10:])
                self.counts["exit %d" % code] = self.counts.get("exit %d" % code, 0) + 1
                w = None
            if w is None:
                self.p.start(number)

    def run(self, faults, pause_s=(0.5, 2.5)):
        for fault in faults:
            self.tend()
            time.sleep(self.rng.uniform(*pause_s))
            self.tend()
            job.say("  " + fault)
            getattr(self, fault)()
            self.counts[fault] = self.counts.get(fault, 0) + 1
        self.tend()


def chaos(world):
    """(c) random deaths of everything."""
    path, want = world.source("chaos", 500, world.slow, max_tokens=(20, 200))
    faults = ["worker_killed"] * 5 + ["worker_drained"] * 2 + ["worker_stopped", "broker_restarted", "broker_killed", "redis_emptied",
              "redis_killed", "redis_hangs", "redis_full", "redis_demoted", "redis_scripts_flushed"]
    world.rng.shuffle(faults)
    with world.pool("chaos", world.slow, **SLOW) as p:
        submit = p.submit_slowly(path, 6)
        c = Chaos(world, p)
        c.run(faults)
        submit.send_signal(signal.SIGTERM)
        submit.wait(timeout=60)
        collect = subprocess.Popen(p.command("collect", "--job", "j", "-o", p.outputs()[0], "-e", p.outputs()[1]), stdout=subprocess.DEVNULL)
        p.submit(path)
        time.sleep(1)
        collect.kill()
        collect.wait()
        p.finish(want, "chaos")
    job.say("chaos: %s" % ", ".join("%s %d" % kv for kv in sorted(c.counts.items())))


POISON = "zzqpoison"


def poison(world):
    """A line that kills every worker that computes it: one dead letter, all others done, three deaths at most."""
    rows = pool.lines(300, 11, max_tokens=(20, 100))
    path = job.write(os.path.join(world.folder, "clean.jsonl"), rows)
    want = pool.reference(world.folder, path, world.fast, "poison-reference")
    at = 120
    body = rows[at]["body"]
    if "messages" in body:
        body["messages"][-1]["content"] += " " + POISON
    else:
        body["prompt"] = POISON
    body["max_tokens"] = 50
    body.pop("stop", None)
    path = job.write(os.path.join(world.folder, "poison.jsonl"), rows)
    with world.pool("poison", world.fast) as p:
        p.submit(path)
        settings = dict(failpoint="engine.poison=%s@9" % POISON)
        p.start(1, **settings)
        p.start(2, **settings)
        collect = subprocess.Popen(p.command("collect", "--job", "j", "-o", p.outputs()[0], "-e", p.outputs()[1]), stdout=subprocess.DEVNULL)
        deaths = 0
        end = time.monotonic() + 240
        while collect.poll() is None:
            assert time.monotonic() < end, "it does not end"
            for number in (1, 2):
                if p.workers[number].p.poll() is not None:
                    code = p.take(number)
                    assert code == -signal.SIGABRT, (code, p.ended[-1][2].log[-10:])
                    deaths += 1
                    p.start(number, **settings)
            time.sleep(0.1)
        assert collect.returncode == 0, collect.returncode
        p.stop()
        summary = p.audit()
        assert summary["clean"] and summary["dead"] == 1 and summary["results"] == 299, summary
        got = pool.answers(*p.outputs())
        assert b'"quarantined"' in got.pop("line-%d" % at)
        want.pop("line-%d" % at)
        pool.same(got, want, "poison")
        assert 1 <= deaths <= 3, deaths
    job.say("poison: %d deaths, one dead letter, 299 answers equal byte for byte" % deaths)


PARTS = [end_to_end, come_and_go, failpoints, chaos, poison]


def main():
    args = sys.argv[1:]
    seed = 1
    if args[:1] == ["--seed"]:
        seed, args = int(args[1]), args[2:]
    with job.folder() as folder, services.Kafka() as kafka, services.Redis() as redis:
        world = World(kafka, redis, folder, seed)
        for part in PARTS:
            if not args or part.__name__ in args:
                part(world)
    job.say("ok")


if __name__ == "__main__":
    main()
