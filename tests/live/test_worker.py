#!/usr/bin/env python3
"""nightshift-worker as an operator and a supervisor meet it: start, pages, drains, watchdogs, exit codes.

usage: test_worker.py [sample] [NAME ...]        (all parts; sample: a shorter job, for slow builds)
Queues are a file and an endless one in memory; tests/live/test_kafka*.py have the real broker.
"""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import job
from worker import BIN, WAIT_S, Worker


def call(*args, env=None):
    p = subprocess.run([BIN, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=WAIT_S,
                       env=dict(os.environ, **(env or {})))
    return p.returncode, p.stdout, p.stderr


def refused(code, needle, *args, env=None):
    got, _, err = call(*args, env=env)
    assert got == code and needle in err, (args, got, err)


def idle(model, **settings):
    """A worker on an endless topic that stays empty."""
    return Worker("--queue", "mem:idle", "-m", model, checkpoint_url="mem:idle", **settings)


def on_file(model, source, out, **settings):
    return Worker("--queue", "file:" + source, "-o", out, "-m", model, **settings)


def usage_is_explained(model, folder):
    code, text, _ = call("--help")
    assert code == 0 and "usage: nightshift-worker" in text and "example:" in text
    assert call("--version")[1].startswith("nightshift-worker ")
    missing = os.path.join(folder, "missing")
    quiet = ["--set", "http_listen=", "--set", "notice=none", "--set", "checkpoint_url=mem:x"]
    refused(1, "--queue URL", "-m", model)
    refused(1, "-m MODEL", "--queue", "mem:x")
    refused(1, "-o OUTPUT", "--queue", "file:in.jsonl", "-m", model)
    refused(1, "-o and -e", "--queue", "mem:x", "-m", model, "-o", "x")
    refused(1, "is no option", "--queue", "mem:x", "-m", model, "extra")
    refused(1, "--help", "--queue", "mem:x", "--what")
    refused(1, "no setting is called", "--queue", "mem:x", "--set", "drain=3")
    refused(1, "1 to 3600", "--queue", "mem:x", "--set", "drain_s=0")
    refused(1, "log_level", "--queue", "mem:x", "-m", model, "--set", "log_level=loud")
    refused(1, "NIGHTSHIFT_FAILPOINT", "--queue", "mem:x", "-m", model, env={"NIGHTSHIFT_FAILPOINT": "x:1:dance"})
    refused(1, "notice=moon", "--queue", "mem:x", "-m", model, "--set", "notice=moon")
    refused(1, missing, "--config", missing)
    refused(2, missing, "--queue", "mem:x", "-m", missing, *quiet)
    refused(2, __file__, "--queue", "mem:x", "-m", __file__, *quiet)                       # not a GGUF
    refused(2, missing, "--queue", "file:" + missing, "-o", missing + ".out", "-m", model, *quiet)
    refused(2, "no queue is called", "--queue", "amqp://localhost/x", "-m", model, *quiet)
    refused(2, "progress store", "--queue", "mem:x", "-m", model, *quiet[:4], "--set", "checkpoint_url=carrier:pigeon")
    for listen in ("9091", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000", "no such host:1", "300.1.1.1:80"):
        refused(2, "http_listen=" + listen, "--queue", "mem:x", "-m", model, "--set", "http_listen=" + listen, "--set", "notice=none")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refused(2, "in use", "--queue", "mem:x", "-m", model, "--set", "http_listen=127.0.0.1:%d" % taken.getsockname()[1], "--set", "notice=none")


def settings_come_from_a_file(model, folder):
    path = os.path.join(folder, "worker.ini")
    with open(path, "w") as f:
        f.write("[daemon]\nqueue_url = mem:idle\nmodel = %s\nmodel_name = night\ncheckpoint_url = mem:x\nhttp_listen = 127.0.0.1:0\nnotice = none\n" % model)
    with Worker("--config", path).until_ready() as w:
        assert w.status()["queue"] == "mem:idle"
        w.send(signal.SIGINT)
        assert w.end() == 0


LINE = re.compile(r'^(?:# (?:HELP|TYPE) [a-z][a-z0-9_]* .+|[a-z][a-z0-9_]*(?:\{[a-z_]+="(?:[^"\\\n]|\\["\\n])*"(?:,[a-z_]+="(?:[^"\\\n]|\\["\\n])*")*\})? [-+0-9.e]+)$')


def exposition_is_checked(text):
    """By promtool where it is installed, and by what is promised here: one HELP and TYPE a family in front of its samples."""
    families, samples = {}, set()
    assert text.endswith("\n")
    for line in text.splitlines():
        assert LINE.match(line), line
        if line.startswith("# TYPE "):
            name, kind = line.split()[2:4]
            assert name not in families and (kind == "counter") == name.endswith("_total"), line
            families[name] = kind
        elif not line.startswith("#"):
            sample = line.rsplit(" ", 1)[0]
            assert sample not in samples and sample.split("{")[0] in families, line
            samples.add(sample)
    if shutil.which("promtool"):
        p = subprocess.run(["promtool", "check", "metrics"], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert p.returncode == 0 and not p.stdout.strip(), p.stdout
    else:
        print("promtool is not installed: the exposition was checked by this test alone")
    return families


def pages(model, folder):
    with idle(model).until_ready() as w:
        assert w.call("/healthz") == (200, "ok\n")
        code, text = w.call("/metrics")
        assert code == 200
        families = exposition_is_checked(text)
        for name in ("state", "prompt_tokens_total", "output_tokens_total", "in_flight", "kv_pages", "results_total", "notices_total", "build_info"):
            assert "nightshift_" + name in families, name
        status = w.status()
        assert status["state"] == "running" and status["alive"] and status["ready"] and status["drain"] is None
        assert w.call("/")[0] == 404 and w.call("/metrics/")[0] == 404 and w.call("/../etc/passwd")[0] == 404
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"):
            assert w.call("/metrics", method)[0] == 405, method
        assert w.call("/drain")[0] == 405
        for seconds in ("0", "-1", "x", "1x", "86401", "9" * 30, ""):
            assert w.call("/drain?seconds=" + seconds, "POST")[0] == 400, seconds
        assert w.call("/drain", "POST", headers={"Origin": "http://evil.example"})[0] == 403
        assert w.status()["state"] == "running"
        code, text = w.call("/drain?seconds=20", "POST")
        assert code == 202 and json.loads(text)["seconds"] == 20
        assert w.end() == 0


def own_address():
    """An address of this machine that is not its loopback, or None."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))                     # sends nothing
            return s.getsockname()[0]
        except OSError:
            return None


def drain_is_for_this_machine(model, folder):
    address = own_address()
    if address is None or address.startswith("127."):
        print("skipped: POST /drain from another address (this machine has but its loopback)")
        return
    for allowed, want in ((0, 403), (1, 202)):
        with idle(model, http_listen="0.0.0.0:0", http_drain_remote=allowed).until_ready() as w:
            assert w.call("/healthz", host=address)[0] == 200
            assert w.call("/drain", "POST", host=address)[0] == want
            if want == 403:
                w.send()
            assert w.end() == 0


def hostile(model, folder):
    """None of these may stop the pages for others, and nothing of them may stay."""
    with idle(model, http_timeout_ms=1500, http_connections_max=16).until_ready() as w:
        def fds():
            return w.status()["counts"]["process_open_fds"]

        before = fds()
        sockets = []

        def open_one():
            s = socket.create_connection(("127.0.0.1", w.port), timeout=WAIT_S)
            sockets.append(s)
            return s

        def answer(data):
            with socket.create_connection(("127.0.0.1", w.port), timeout=WAIT_S) as s:
                got = b""
                try:
                    s.sendall(data)
                    while chunk := s.recv(65536):
                        got += chunk
                except OSError:
                    pass
                return got.split(b"\r\n")[0]

        for data in (b"\r\n\r\n\r\n", b"\x00" * 1000, b"GET", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 9,
                     b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
                     b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 50000 + b"\r\n",
                     b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 1000000 + b"\r\n\r\n",
                     b"GET /status HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
                     b"POST /drain?seconds=-3 HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
                     b"POST /drain?seconds=x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
                     b"GET /%00%ff%2e%2e/ HTTP/1.1\r\nHost: x\r\n\r\n", os.urandom(50000)):
            line = answer(data)
            assert not line.startswith(b"HTTP/1.1 2") and not line.startswith(b"HTTP/1.1 500"), (data[:40], line)
            assert w.call("/healthz")[0] == 200
        assert answer(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 50) == b"HTTP/1.1 200 OK"      # pipelined: one answer a connection
        begun = time.monotonic()
        for _ in range(12):                                                      # slow loris: a byte now and then
            open_one().sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        alive = list(sockets)
        while alive:
            for s in list(alive):
                try:
                    s.sendall(b"a")
                    s.setblocking(False)
                    if s.recv(1000) == b"":
                        alive.remove(s)
                except BlockingIOError:
                    pass
                except OSError:
                    alive.remove(s)
            assert w.call("/healthz")[0] == 200                                 # others are served meanwhile
            assert time.monotonic() - begun < WAIT_S, "a trickle of bytes keeps a connection"
            time.sleep(0.1)
        for _ in range(40):                                                      # more than there is room for
            open_one()
        time.sleep(0.2)
        for s in sockets:
            s.close()
        w.until("served after the flood", lambda: reachable(w))
        w.until("no descriptor stays", lambda: fds() <= before + 1)
        w.send()
        assert w.end() == 0


def reachable(w):
    try:
        return w.call("/healthz")[0] == 200
    except OSError:
        return False


def file_job(model, folder):
    """A file through the worker: metrics move, a drain in the middle is resumed, the bytes are those of `nightshift run`."""
    source, plain, out = (os.path.join(folder, name) for name in ("job.jsonl", "job.plain", "job.out"))
    n = 100 if "sample" in sys.argv else 600
    job.write(source, job.lines(n, 21, max_tokens=(50, 150)))
    job.done(source, plain, model)
    with on_file(model, source, out).until_ready() as w:
        w.until("work", lambda: w.count("output_tokens_total") > 500)
        one, two = w.status()["counts"], None
        w.until("metrics move", lambda: (two := w.status()["counts"])["nightshift_output_tokens_total"] > one["nightshift_output_tokens_total"])
        assert w.count("in_flight") > 0 and w.count("steps_total") > 0 and w.count("kv_held_pages") > 0
        sent = w.send()
        assert w.end() == 75
        print("a drain in the middle of a file took %.2f s" % (time.monotonic() - sent))
        assert any("event=worker.drain" in line for line in w.log)
    done = len(job.answers(out))
    assert 0 <= done < n
    with on_file(model, source, out) as w:
        assert w.end(600) == 0
    job.same(job.audit(source, out), job.audit(source, plain), "after a drain")


def drains_in_time(model, folder):
    """Exit within the budget, whatever asks; a second signal within 5 s. Slack for a busy machine beside each bound."""
    for ask, budget_s, code in ((lambda w: w.send(), 15, 0), (lambda w: w.send(signal.SIGINT), 15, 0),
                                (lambda w: (w.send(), time.sleep(0.05), w.send()), 5, 0), (lambda w: w.send(signal.SIGQUIT), 5, 130)):
        with idle(model).until_ready() as w:
            begun = time.monotonic()
            ask(w)
            assert w.end() == code
            assert time.monotonic() - begun < budget_s + 10
    path = os.path.join(folder, "drain-now")
    with idle(model, notice="file", notice_file=path).until_ready() as w:
        open(path, "w").close()
        assert w.end() == 0 and "from=file" in w.wait_log("event=notice.arrived")
    with idle(model, notice="file", notice_file=path, wait_port=False) as w:             # there before the start
        assert w.end() == 0


def a_signal_while_loading(model, folder):
    """Nothing was taken, so nothing is handed over: out at once. Pages answer meanwhile."""
    source = job.write(os.path.join(folder, "loading.jsonl"), job.lines(3, 1))
    for start, code in ((lambda **kw: idle(model, **kw), 0), (lambda **kw: on_file(model, source, source + ".out", **kw), 75)):
        with start(failpoint="worker.load:1:sleep") as w:
            assert w.call("/healthz")[0] == 200 and w.call("/readyz") == (503, "loading\n")
            assert w.status()["state"] == "loading" and "nightshift_state" in w.call("/metrics")[1]
            sent = w.send()
            assert w.end() == code
            assert time.monotonic() - sent < 10


def watchdogs(model, folder):
    """A loop that stands still ends the process, and a process that stood still ends nobody."""
    source = job.write(os.path.join(folder, "hang.jsonl"), job.lines(300, 5, max_tokens=(50, 100)))
    with idle(model, failpoint="poll:20:sleep", watchdog_poll_s=2).until_ready() as w:
        assert w.end() == 4 and "the queue is not polled" in w.wait_log("event=watchdog.end")
    with on_file(model, source, source + ".out", failpoint="engine.step:30:sleep", watchdog_step_s=2) as w:
        assert w.end() == 5 and "the engine makes no step" in w.wait_log("event=watchdog.end")
    with on_file(model, source, source + ".out", failpoint="engine.step:100:sleep", drain_s=2).until_ready() as w:      # hangs in the drain
        w.until("the hang", lambda: w.count("step_silence_seconds") > 1)
        sent = w.send()
        assert w.end() == 4 and "the drain took too long" in w.wait_log("event=watchdog.end")
        assert 1.5 < time.monotonic() - sent < 12
    with on_file(model, source, source + ".out") as w:                                                   # nothing of that is lost
        assert w.end() == 0
    job.audit(source, source + ".out")
    with idle(model, watchdog_poll_s=1, watchdog_step_s=1).until_ready() as w:
        w.send(signal.SIGSTOP)
        time.sleep(3)
        w.send(signal.SIGCONT)
        time.sleep(1)
        assert w.call("/healthz") == (200, "ok\n") and w.call("/readyz")[0] == 200
        w.send()
        assert w.end() == 0


def main():
    with job.folder() as folder:
        model = job.tiny_model(folder)
        only = [name for name in sys.argv[1:] if name != "sample"]
        for part in (usage_is_explained, settings_come_from_a_file, pages, drain_is_for_this_machine, hostile, drains_in_time,
                     a_signal_while_loading, file_job, watchdogs):
            if only and part.__name__ not in only:
                continue
            begun = time.monotonic()
            part(model, folder)
            job.say("%s: ok, %.1f s" % (part.__name__, time.monotonic() - begun))


main()
