#!/usr/bin/env python3
"""kill -9 at every failpoint and at random moments of a 300-line job: nothing lost, nothing doubled, the same bytes as an
uninterrupted run, and at most 64 tokens computed again per sequence that was under way and kill.

usage: test_kill.py [RANDOM_KILLS] [SEED]        (25, 1; 100 is the full check; below 10, for sanitized builds: each
failpoint once instead of thrice, 60 lines)
"""
import os
import random
import re
import shutil
import sys

import job

FAILPOINTS = ["queue.job.write", "queue.job.rename", "queue.job.renamed", "queue.append.before", "queue.append.half",
              "queue.append.after", "queue.sync.before", "queue.sync.after", "queue.order.write", "queue.order.rename",
              "queue.order.renamed", "queue.finish.before", "queue.finish.after", "saver.save.before", "saver.save.after", "starts.begin.before", "starts.begin.after",
              "checkpoint.save.before", "checkpoint.save.after", "checkpoint.forget.before", "checkpoint.forget.after"]
REGENERATED_MAX = 64
COUNTS = re.compile(r"event=engine\.counts output_tokens=(\d+) running=(\d+) undurable=(\d+)")


def last_counts(log):
    """(tokens generated, sequences under way) of a dead run, as of its last step."""
    found = COUNTS.findall(open(log, errors="replace").read())
    return (int(found[-1][0]), int(found[-1][1]) + int(found[-1][2])) if found else (0, 0)


class Kills:
    """Kills and resumes one job until it is done."""

    def __init__(self, folder, source, model, want, settings):
        self.folder, self.source, self.model, self.want = folder, source, model, want
        self.settings = dict(settings, log_level="debug")
        self.output = os.path.join(folder, "killed.jsonl")
        self.log = os.path.join(folder, "log")
        self.reset()

    def reset(self):
        for name in os.listdir(self.folder):
            if name.startswith("killed.jsonl"):
                os.remove(os.path.join(self.folder, name))
        self.generated, self.allowed, self.resumed, self.kills = 0, 0, 0, 0

    def run(self, **kw):
        """One run; true when the job is done."""
        code, report = job.run(self.source, self.output, self.model, args=["--order", "input"], settings=self.settings,
                               stderr=self.log, **kw)
        assert code in (0, -9), (code, open(self.log).read()[-2000:])
        if code == 0:
            self.generated += report["output_tokens"]
            self.resumed += report["resumed_sequences"]
            return True
        made, under_way = last_counts(self.log)
        self.generated += made
        self.allowed += REGENERATED_MAX * under_way
        self.kills += 1
        return False

    def check(self, what):
        got = job.audit(self.source, self.output)
        job.same(got, self.want, what)
        offsets = list(job.answers(self.output))
        assert offsets == sorted(offsets), what + ": not in the order of the input"
        again = self.generated - job.tokens(got)
        assert again <= self.allowed, "%s: %d tokens computed again, %d allowed" % (what, again, self.allowed)
        return again


def main():
    random_kills = int(sys.argv[1]) if len(sys.argv) > 1 else 25
    small = random_kills < 10
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    with job.folder() as folder:
        model = job.tiny_model(folder)
        source = job.write(os.path.join(folder, "in.jsonl"), job.lines(60 if small else 300, 7, max_tokens=(20, 200)))
        settings = {"sequences_max": 24, "commit_ms": 20, "checkpoint_ms": 50}
        plain = os.path.join(folder, "plain.jsonl")
        wall_s = job.done(source, plain, model, settings=settings)["wall_s"]
        want = job.audit(source, plain)

        kills = Kills(folder, source, model, want, settings)
        hit = 0
        for name in FAILPOINTS:
            for nth in (1,) if small else (1, 2, 7):
                kills.reset()
                killed = not kills.run(failpoint="%s:%d" % (name, nth))
                while killed and not kills.run():
                    pass
                kills.check("%s:%d" % (name, nth))
                hit += killed
                assert killed or nth > 1, "failpoint %s was not reached" % name
        job.say("%d deaths at failpoints" % hit)

        # The thread that writes frames hangs for longer than the engine needs for hundreds of tokens: the bound holds.
        for _ in range(3):
            kills.reset()
            while not kills.run(failpoint="saver.save.before:%d:sleep=400" % rng.randint(2, 20), kill_after_s=rng.uniform(0.2, 0.5) * wall_s):
                if kills.kills > 5:
                    break
            while not kills.run():
                pass
            job.say("a saver that hangs: %d kills, %d tokens computed again (%d allowed)"
                    % (kills.kills, kills.check("hanging saver"), kills.allowed))

        left = random_kills
        while left > 0:
            kills.reset()
            while left > 0 and not kills.run(kill_after_s=rng.uniform(0.05, 0.6 * wall_s)):
                left -= 1
                if kills.kills > 20:
                    break
            while not kills.run():
                pass
            again = kills.check("random kills")
            job.say("%d kills: %d sequences resumed, %d tokens computed again (%d allowed)"
                    % (kills.kills, kills.resumed, again, kills.allowed))
    job.say("ok")


if __name__ == "__main__":
    main()
