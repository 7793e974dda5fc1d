#!/usr/bin/env python3
"""A long job of short lines: memory is flat in the length of the job, results come early, every line has its answer.

usage: test_long.py [LINES] [tiny|default]        (100000 tiny)
Prints what everything but the model costs a line: CPU time of the run less the time inside the model.
"""
import json
import os
import subprocess
import sys
import time

import job

GROWTH_MAX_MB = 30
FIRST_RESULTS_SHARE = 0.02


def resident_mb(pid):
    with open("/proc/%d/status" % pid) as f:
        for line in f:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0


def count_lines(path, state):
    """Lines of a growing file; reads only what is new."""
    try:
        with open(path, "rb") as f:
            f.seek(state[0])
            while True:
                block = f.read(1 << 20)
                if not block:
                    return state[1]
                state[0] += len(block)
                state[1] += block.count(b"\n")
    except FileNotFoundError:
        return 0


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 100000
    default = sys.argv[2:] == ["default"]
    with job.folder() as folder:
        model = job.default_model() if default else job.tiny_model(folder)
        source, output = os.path.join(folder, "in.jsonl"), os.path.join(folder, "out.jsonl")
        with open(source, "w") as f:
            for i in range(n):
                f.write(json.dumps({"custom_id": "r%d" % i, "method": "POST", "url": "/v1/chat/completions",
                                    "body": {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "item %d" % i}]}}) + "\n")
        start = time.monotonic()
        # The pool of KV pages is touched as it is first used: small enough here to be full before the first tenth is over.
        settings = {} if default else {"kv_memory_mb": 16}
        p = subprocess.Popen(job.command(source, output, model, settings=settings), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        state, first_s, at_tenth, most = [0, 0], None, None, 0.0
        while p.poll() is None:
            done, mb = count_lines(output, state), resident_mb(p.pid)
            if done and first_s is None:
                first_s = time.monotonic() - start
            if at_tenth is None and done >= n // 10:
                at_tenth = mb
            if at_tenth is not None:
                most = max(most, mb)
            time.sleep(0.01)
        wall_s = time.monotonic() - start
        report = json.loads(p.stdout.read())
        assert p.returncode == 0 and report["done"] == n, report
        assert len(job.audit(source, output)) == n
        growth = most - at_tenth
        outside_us = (report["cpu_s"] - report["device_s"] * device_threads(report)) / n * 1e6
        job.say("%d lines in %.1f s; first results after %.2f s; %.1f MB at line %d, at most %.1f MB more afterwards; "
                "%.1f us CPU a line outside the model" % (n, wall_s, first_s, at_tenth, n // 10, growth, outside_us))
        assert growth < GROWTH_MAX_MB, growth
        assert first_s < FIRST_RESULTS_SHARE * wall_s + 1.0, (first_s, wall_s)


def device_threads(report):
    """Threads that compute while the engine waits in the model: 'NAME (2 threads)'."""
    return int(report["device"].rsplit("(", 1)[1].split()[0]) if "(" in report["device"] else 1


if __name__ == "__main__":
    main()
