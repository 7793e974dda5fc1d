#!/usr/bin/env python3
"""The daemon's own part on a real Kafka and a real Redis: a cloud's notice in the middle of the work, a broker that is away for longer than
results may wait, a second signal. What the pool as a whole promises is tested in test_kafka.py.

usage: test_worker_kafka.py [SEED]        (1)
"""
import http.server
import json
import os
import random
import signal
import sys
import threading
import time

import job
import pool
import services
from pool import Pool


class Aws(http.server.BaseHTTPRequestHandler):
    """IMDSv2; tests/faults/test_notices.py plays it in full."""
    action = None

    def do_PUT(self):
        self.answer(200, "token")

    def do_GET(self):
        text = Aws.action if self.path.endswith("instance-action") else None
        self.answer(404 if text is None else 200, text or "")

    def answer(self, code, text):
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args):
        pass


def a_notice_of_the_cloud(p, want):
    """AWS says two minutes: what runs is finished, nothing is begun, the process is gone long before the machine; another goes on."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Aws)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    w = p.start(1, sequences_max=2, notice="aws", notice_poll_ms=300, notice_aws_url="http://127.0.0.1:%d" % server.server_address[1])
    w.until("work", lambda: w.count("output_tokens_total") > 50)
    Aws.action = json.dumps({"action": "terminate", "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 120))})
    begun = time.monotonic()
    assert p.take(1) == 0
    took = time.monotonic() - begun
    server.shutdown()
    job.say("gone %.1f s after a notice of 120 s" % took)
    assert took < 100 and "kind=drain_soon from=aws" in w.wait_log("event=notice.arrived")
    summary = p.audit("--open-ok")
    assert 0 < summary["results"] < len(want), summary        # in the middle of the work
    p.start(2)
    p.finish(want, "after a notice")


def signals_and_keys(p, want, redis):
    """A drain and a second signal in the middle; what stands in Redis afterwards ends by itself."""
    w = p.start(1, sequences_max=4)
    w.until("work", lambda: w.count("output_tokens_total") > 200)
    took = p.drain(1)
    job.say("a drain in the middle of the work took %.1f s" % took)
    for key in redis.command("KEYS", "ns:*"):
        assert redis.command("TTL", key) != "-1", key
    w = p.start(2, sequences_max=4, drain_s=60)               # what runs would be finished first
    w.until("work", lambda: w.count("output_tokens_total") > 200)
    w.send()
    w.wait_log("event=worker.drain")
    begun = w.send()
    code = p.take(2)
    job.say("after a second signal: %.1f s, exit %d" % (time.monotonic() - begun, code))
    assert code == 0 and time.monotonic() - begun < 5 + 5
    p.start(3)
    p.finish(want, "after two signals")


def signals_at_any_moment(p, want, rng):
    """SIGTERM while the model loads, before the first assignment, in a rebalance that other workers make; some twice."""
    took = {1: [], 2: []}
    p.start(99, sequences_max=2)                               # one that stays: each of the others makes two rebalances
    for number in range(14):
        w, times = p.start(number, sequences_max=2), 1 + (number % 3 == 2)
        time.sleep(rng.choice((rng.uniform(0, 0.4), rng.uniform(0.4, 4))))
        begun = w.send()
        if times == 2:
            time.sleep(rng.uniform(0, 0.3))
            if w.p.poll() is None:
                w.send()
        code = p.take(number)
        assert code == 0, (number, code, w.log[-12:])
        took[times].append(time.monotonic() - begun)
    job.say("14 workers stopped at random moments: at most %.1f s, after a second signal %.1f s" % (max(took[1]), max(took[2])))
    assert max(took[1]) < 15 + 10 and max(took[2]) < 5 + 10
    p.start(100)
    p.finish(want, "after signals at any moment")


def a_broker_that_stays_away(p, want, kafka):
    """Results wait: not ready, then exit 3, with everything done again by the next."""
    w = p.start(1, watchdog_commit_s=2, sequences_max=4)
    w.until("work", lambda: w.count("txn_commits_total") > 0 and w.count("in_flight") > 0)
    kafka.pause()
    try:
        w.until("unready", lambda: w.call("/readyz") == (503, "results wait for a commit\n"))
        assert w.call("/healthz")[0] == 200
        assert p.take(1) == 3
        assert "what=\"no commit with results waiting\"" in w.wait_log("event=watchdog.end")
    finally:
        kafka.resume()
    w = p.start(2)
    w.until("the broker is back", lambda: w.count("txn_commits_total") > 0)
    p.finish(want, "after a broker was away")


def main():
    rng = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    with job.folder() as folder, services.Kafka() as kafka, services.Redis() as redis:
        model = job.tiny_model(folder)
        source = job.write(os.path.join(folder, "lines.jsonl"), pool.lines(250, rng.randint(1, 10 ** 6), max_tokens=(20, 300)))
        want = pool.reference(folder, source, model)
        for part, args in ((a_notice_of_the_cloud, ()), (signals_and_keys, (redis,)), (signals_at_any_moment, (rng,)), (a_broker_that_stays_away, (kafka,))):
            with Pool(kafka, redis, part.__name__.replace("_", "-"), model, folder) as p:
                p.submit(source)
                part(p, want, *args)
            job.say(part.__name__ + ": ok")


main()
