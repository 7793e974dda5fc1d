#!/usr/bin/env python3
"""The notice thread against real HTTP servers that behave as the clouds' metadata services do, at their best and at their worst.

usage: test_notices.py NOTICE_WATCH
The last part runs in a network namespace of its own, where 169.254.169.254 is a server of this test; without the right to make
one it is left out, and said so.
"""
import datetime
import email.utils
import http.server
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time

WATCH = os.path.abspath(sys.argv[1])
WAIT_S = 60          # until something is given up for lost; sanitizers and busy machines are slow


class Stub:
    """A server whose answers are a function: answer(stub, method, path, headers, body) -> (status, headers, text), or None to hang."""

    def __init__(self, answer, address="127.0.0.1", port=0):
        stub = self
        self.answer, self.seen, self.over = answer, [], threading.Event()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                stub.seen.append((self.command, self.path, dict(self.headers), body, time.monotonic()))
                got = stub.answer(stub, self.command, self.path, self.headers, body)
                if got is None:
                    stub.over.wait()
                    self.close_connection = True
                    return
                data = got[2] if isinstance(got[2], bytes) else got[2].encode()
                try:
                    self.send_response(got[0])
                    for name, value in got[1].items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    pass

            do_GET = do_PUT = do_POST = handle_any

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer((address, port), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *args: None                        # a client that hangs up is none of ours
        self.url = "http://%s:%d" % self.server.server_address[:2]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.over.set()
        self.server.shutdown()
        self.server.server_close()

    def count(self, method, part):
        return sum(1 for s in list(self.seen) if s[0] == method and part in s[1])

    def wait(self, method, part, n=1):
        end = time.monotonic() + WAIT_S
        while self.count(method, part) < n:
            assert time.monotonic() < end, ("never asked", method, part, self.seen[-5:])
            time.sleep(0.01)


class Watch:
    """notice_watch with settings; lines come through a queue."""

    def __init__(self, **settings):
        settings.setdefault("notice_poll_ms", 300)
        env = dict(os.environ, http_proxy="http://127.0.0.1:1", ALL_PROXY="http://127.0.0.1:1")      # must not be used
        self.p = subprocess.Popen([WATCH] + ["%s=%s" % kv for kv in settings.items()], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, env=env)
        self.lines, self.log = queue.Queue(), []
        for stream, take in ((self.p.stdout, self.lines.put), (self.p.stderr, self.log.append)):
            threading.Thread(target=lambda s=stream, t=take: [t(line.rstrip("\n")) for line in s], daemon=True).start()
        assert self.line() == "open"

    def line(self, timeout=WAIT_S):
        try:
            return self.lines.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError("nothing came; log: " + "\n".join(self.log[-5:])) from None

    def notice(self, kind, source, low_ms=None, high_ms=None, text=""):
        word, k, f, left, said = self.line().split(" ", 4)
        assert (word, k, f) == ("notice", kind, source) and text in said, (k, f, left, said)
        assert low_ms is None or low_ms <= int(left) <= high_ms, (left, low_ms, high_ms)
        return said

    def quiet(self, seconds=0.8):
        try:
            raise AssertionError(self.lines.get(timeout=seconds))
        except queue.Empty:
            pass

    def say(self, text):
        self.p.stdin.write(text + "\n")
        self.p.stdin.flush()

    def state(self):
        self.say("state")
        out = {}
        while True:
            words = self.line().split()
            if words[1] == "end":
                return out
            out[words[1]] = (words[2], *map(int, words[3:]))

    def until(self, check):
        end = time.monotonic() + WAIT_S
        while not check(self.state()):
            assert time.monotonic() < end, (self.state(), self.log[-5:])
            time.sleep(0.02)

    def __enter__(self):
        return self

    def __exit__(self, kind, *args):
        if kind is None:
            begun = time.monotonic()
            if self.p.poll() is None:
                self.say("quit")
            code = self.p.wait(timeout=WAIT_S)
            errors = [line for line in self.log if "ERROR:" in line or "WARNING: ThreadSanitizer" in line]
            assert code in (0, 130) and not errors, (code, self.log[-30:])
            assert time.monotonic() - begun < 15, "a slow end"
        else:
            self.p.kill()
            self.p.wait()


def utc(seconds, form):
    when = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
    return when.strftime("%Y-%m-%dT%H:%M:%SZ") if form == "aws" else email.utils.format_datetime(when, usegmt=True)


# ---- AWS ----

TOKEN, ACTION, REBALANCE = "/latest/api/token", "/latest/meta-data/spot/instance-action", "/latest/meta-data/events/recommendations/rebalance"


class Aws:
    """IMDSv2 with one token at a time."""

    def __init__(self):
        self.token, self.action, self.rebalance, self.hang = "t1", None, None, False

    def __call__(self, stub, method, path, headers, body):
        if self.hang:
            return None
        if (method, path) == ("PUT", TOKEN):
            assert int(headers["X-aws-ec2-metadata-token-ttl-seconds"]) == 21600
            return 200, {}, self.token
        if headers.get("X-aws-ec2-metadata-token") != self.token:
            return 401, {}, ""
        text = {ACTION: self.action, REBALANCE: self.rebalance}.get(path)
        return (200, {}, text) if text is not None else (404, {}, "<html>none</html>")


def aws():
    cloud = Aws()
    with Stub(cloud) as stub, Watch(notice="aws", notice_aws_url=stub.url) as w:
        stub.wait("GET", REBALANCE, 2)
        w.quiet(0.5)
        assert stub.count("PUT", TOKEN) == 1, "a token a round"
        cloud.rebalance = json.dumps({"noticeTime": utc(0, "aws")})
        w.notice("rebalance", "aws", -1, -1, "rebalance recommendation")
        cloud.token = "t2"                                                   # the old one is refused from here on
        stub.wait("PUT", TOKEN, 2)
        cloud.action = json.dumps({"action": "terminate", "time": utc(120, "aws")})
        w.notice("drain_soon", "aws", 60000, 120000, "terminate at")
        stub.wait("GET", REBALANCE, stub.count("GET", REBALANCE) + 3)
        w.quiet(0.3)                                                          # both are said once
        assert w.state()["aws"][0] == "answers" and w.state()["aws"][2:] == (0, 2), w.state()          # a refused token is no failure


def aws_odd_answers():
    for action, kind, text in (
            ('{"action": "stop", "time": "%s"}' % utc(60, "aws"), "drain_soon", "stop at"),
            ('{"action": "terminate", "time": "2017-09-18T08:22:00Z"}', "drain_soon", "2017"),              # long over: no time is left
            ('{"action": "terminate", "time": "9999-12-31T23:59:59Z"}', "drain_soon", "9999"),              # a clock that is off
            ('{"action": "hibernate"}', "drain", "hibernate"),                                              # begins at once
            ('{"action": "hibernate", "time": "%s"}' % utc(500, "aws"), "drain", "hibernate"),
            ('{"action": "terminate"}', "drain", "unknown time"),
            ('{"action": "terminate", "time": 17}', "drain", "unknown time"),
            ('{"action": "terminate", "time": "soon"}', "drain", "unknown time"),
            ('{"action": "terminate", "time": "2017-13-18T08:22:00Z"}', "drain", "unknown time"),
            ('{"action": ["terminate"]}', "drain", "cannot be read"),
            ('[1, 2]', "drain", "cannot be read"), ("", "drain", "cannot be read"), ("{" * 5000, "drain", "cannot be read"),
            ('{"action": "x\\u0000y\\n\\"z"}', "drain", "cannot be read"),          # a NUL inside a string is no text for C
            ('{"action": "end\\n\\"it\\" \\u2603"}', "drain", "end??it? ???")):       # what goes into our log is printable
        cloud = Aws()
        cloud.action = action
        with Stub(cloud) as stub, Watch(notice="aws", notice_aws_url=stub.url, drain_s=15) as w:
            low, high = (0, 15000) if kind == "drain" else (-1000, 600000)
            w.notice(kind, "aws", low, 5000 if "hibernate" in text else high, text)
            stub.wait("GET", ACTION, 3)
            w.quiet(0.2)


def aws_bad_services():
    """None of these may stop the thread, delay a signal, or be asked in a busy loop; when it heals, the notice comes."""
    def refuse(status):
        return lambda *a: (status, {}, "")
    cloud = Aws()
    huge = lambda *a: (200, {}, "x" * 400000)
    split = lambda *a: (200, {}, "token\r\nX-Evil: 1")
    moved = lambda *a: (302, {"Location": "http://127.0.0.1:1/"}, "")
    denied = lambda stub, method, path, *a: (200, {}, "t") if method == "PUT" else (401, {}, "")
    for bad in (refuse(500), refuse(403), huge, split, moved, denied, lambda *a: (200, {}, ""), lambda *a: None):
        with Stub(bad) as stub, Watch(notice="aws", notice_aws_url=stub.url) as w:
            w.until(lambda s: s["aws"][0] == "silent" and s["aws"][2] >= 2)
            assert len(stub.seen) <= 4 * w.state()["aws"][1] + 4, "a busy loop"
            w.p.send_signal(signal.SIGTERM)
            begun = time.monotonic()
            w.notice("drain", "signal", 0, 15000, "SIGTERM")
            assert time.monotonic() - begun < 5, "a signal waited for a source"
            stub.answer = cloud
            cloud.action = '{"action": "terminate", "time": "%s"}' % utc(120, "aws")
            stub.over.set()
            w.notice("drain_soon", "aws", 0, 120000, "terminate at")
            warnings = [line for line in w.log if "state=silent" in line]
            assert len(warnings) == 1, warnings                               # said once, not in every round
    with Watch(notice="aws", notice_aws_url="http://127.0.0.1:1") as w:        # nobody listens
        w.until(lambda s: s["aws"][2] >= 2)


# ---- GCP ----

class Gcp:
    def __init__(self):
        self.state, self.etag, self.changed, self.flavor = "FALSE", 1, threading.Event(), "Google"

    def __call__(self, stub, method, path, headers, body):
        if not path.startswith("/computeMetadata/v1/instance/preempted"):
            return 404, {}, ""
        if headers.get("Metadata-Flavor") != "Google":
            return 403, {}, ""
        if "wait_for_change=true" in path and "last_etag=e%d&" % self.etag in path:
            self.changed.wait(60)
        return 200, {"Metadata-Flavor": self.flavor, "ETag": "e%d" % self.etag}, self.state

    def preempt(self):
        self.state, self.etag = "TRUE", self.etag + 1
        self.changed.set()


def gcp():
    cloud = Gcp()
    with Stub(cloud) as stub, Watch(notice="gcp", notice_gcp_url=stub.url) as w:
        stub.wait("GET", "last_etag=e1")
        w.quiet(0.5)
        assert len(stub.seen) == 2, "one look, then one request that waits"
        cloud.preempt()
        w.notice("drain_soon", "gcp", 15000, 30000, "preempted")
        stub.wait("GET", "last_etag=e2")
        begun, n = time.monotonic(), len(stub.seen)
        w.quiet(2)                                                            # said once; this server no longer waits
        assert len(stub.seen) - n <= 2 + (time.monotonic() - begun), "a busy loop"
    cloud = Gcp()
    cloud.preempt()
    with Stub(cloud) as stub, Watch(notice="gcp", notice_gcp_url=stub.url) as w:
        w.notice("drain_soon", "gcp", 15000, 30000)                           # already so when we came
    cloud = Gcp()
    cloud.flavor = "Somebody"
    cloud.preempt()
    with Stub(cloud) as stub, Watch(notice="gcp", notice_gcp_url=stub.url) as w:
        w.until(lambda s: s["gcp"][2] >= 2)
        w.quiet(0.3)
    for text in ("TRUEISH", "true", "", "<html>TRUE</html>"):
        with Stub(lambda *a: (200, {"Metadata-Flavor": "Google"}, text)) as stub, Watch(notice="gcp", notice_gcp_url=stub.url) as w:
            w.until(lambda s: s["gcp"][2] >= 1)
            w.quiet(0.2)


# ---- Azure ----

class Azure:
    def __init__(self, name="pool_7"):
        self.name, self.events, self.acknowledged, self.slow = name, [], [], None

    def __call__(self, stub, method, path, headers, body):
        if headers.get("Metadata") != "true":
            return 400, {}, ""
        if path.startswith("/metadata/instance/compute/name?api-version="):
            return 200, {}, self.name
        if not path.startswith("/metadata/scheduledevents?api-version="):
            return 404, {}, ""
        if method == "POST":
            assert headers["Content-Type"] == "application/json"
            self.acknowledged.append(json.loads(body))
            return 200, {}, ""
        if self.slow:
            self.slow.wait(60)
        return 200, {}, json.dumps({"DocumentIncarnation": 1, "Events": self.events})


def event(kind, id="E1", names=("pool_7",), before=None):
    return {"EventId": id, "EventType": kind, "ResourceType": "VirtualMachine", "Resources": list(names), "EventStatus": "Scheduled" if before else "Started",
            "NotBefore": before if before is not None else "", "Description": "", "EventSource": "Platform"}


def azure():
    cloud = Azure()
    cloud.slow = threading.Event()                                            # the first call takes minutes
    with Stub(cloud) as stub, Watch(notice="azure", notice_azure_url=stub.url) as w:
        stub.wait("GET", "scheduledevents")
        w.p.send_signal(signal.SIGINT)
        w.notice("drain", "signal", 0, 15000, "SIGINT")
        cloud.slow.set()
        cloud.slow = None
        cloud.events = [event("Preempt", "E0", ["pool_8"], utc(40, "azure")), event("Freeze", "E2", before=utc(40, "azure"))]
        stub.wait("GET", "scheduledevents", stub.count("GET", "scheduledevents") + 2)
        w.quiet(0.3)                                                          # another's, and a pause of seconds
        cloud.events += [event("Reboot", "E3", before=utc(3000, "azure")), event("Preempt", "E1", ["pool_9", "POOL_7"], utc(40, "azure"))]
        w.notice("drain_soon", "azure", 10000, 40000, "event E1")
        assert not cloud.acknowledged
        w.say("ack")
        assert w.line() == "acknowledged"
        assert cloud.acknowledged == [{"StartRequests": [{"EventId": "E1"}]}], cloud.acknowledged
    cloud = Azure()
    cloud.events = [event("Terminate")]                                       # has begun: no time of its own
    with Stub(cloud) as stub, Watch(notice="azure", notice_azure_url=stub.url, notice_azure_ack=0) as w:
        w.notice("drain", "azure", 0, 15000, "Terminate")
        w.say("ack")
        assert w.line() == "acknowledged" and not cloud.acknowledged
    for text in ("", "[]", '{"Events": 3}', '{"Events": [3, null, {}, {"EventId": 1, "EventType": "Preempt", "Resources": ["pool_7"]}, '
                 '{"EventId": "x", "EventType": "Preempt", "Resources": "pool_7"}]}'):
        odd = lambda stub, method, path, *a: (200, {}, "pool_7" if "name" in path else text)
        with Stub(odd) as stub, Watch(notice="azure", notice_azure_url=stub.url) as w:
            stub.wait("GET", "scheduledevents", 2)
            w.quiet(0.2)


# ---- what is no cloud ----

def signals_file_posts(folder):
    path = os.path.join(folder, "drain")
    with Watch(notice="file", notice_file=path) as w:
        w.quiet(0.3)
        open(path + ".new", "w").write("90 seconds\n")
        os.rename(path + ".new", path)
        w.notice("drain_soon", "file", 60000, 90000)
        w.quiet(0.3)
        os.remove(path)
        time.sleep(0.3)
        open(path, "w").close()
        w.notice("drain", "file", 5000, 15000)                                # empty: drain_s
        w.say("post 7")
        w.notice("drain", "http", 0, 7000, "posted")
        w.p.send_signal(signal.SIGTERM)
        w.notice("drain", "signal", 5000, 15000)
        w.p.send_signal(signal.SIGINT)
        w.notice("leave_now", "signal", 0, 5000)
        w.say("ack")
        assert w.line() == "acknowledged"                                     # nobody waits for one
    os.remove(path)
    os.mkfifo(path)
    with Watch(notice="none") as w:
        w.quiet(0.3)
        assert {name for name, s in w.state().items() if s[0] != "off"} == {"signal", "http"}
        w.p.send_signal(signal.SIGQUIT)
        assert w.p.wait(timeout=WAIT_S) == 130
    with Watch(notice="file", notice_file=path) as w:
        w.notice("drain", "file", 0, 15000)                                   # not even a FIFO holds the thread
    p = subprocess.run([WATCH, "notice=aws,sun"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert p.returncode == 1 and "aws, gcp, azure, file" in p.stderr, p.stderr


def auto_keeps_who_answers():
    cloud = Azure()
    with Stub(cloud) as stub, Watch(notice="auto", notice_file="/nonexistent/drain", notice_aws_url=stub.url, notice_gcp_url=stub.url,
                                    notice_azure_url=stub.url) as w:
        w.until(lambda s: s["azure"][0] == "answers" and s["aws"][0] == s["gcp"][0] == "off")
        cloud.events = [event("Preempt", before=utc(30, "azure"))]
        w.notice("drain_soon", "azure", 0, 30000)
    with Stub(lambda *a: None) as stub, Watch(notice="auto", notice_aws_url=stub.url, notice_gcp_url=stub.url, notice_azure_url=stub.url) as w:
        w.until(lambda s: s["azure"][0] == s["aws"][0] == s["gcp"][0] == "off")
        assert len(stub.seen) == 3, "each cloud is tried once"


# ---- the real address, in a network namespace of our own ----

def namespace():
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "addr", "add", "169.254.169.254/32", "dev", "lo"], check=True)
    cloud = Aws()
    with Stub(cloud, "169.254.169.254", 80) as stub, Watch(notice="auto", notice_poll_ms=5000) as w:
        w.until(lambda s: s["aws"][0] == "answers" and s["gcp"][0] == "off" and s["azure"][0] == "off")
        cloud.action = '{"action": "terminate", "time": "%s"}' % utc(120, "aws")
        begun = time.monotonic()
        w.notice("drain_soon", "aws", 100000, 120000)
        took = time.monotonic() - begun
        print("169.254.169.254: the notice came %.1f s after it was there, asked every 5 s" % took)
        assert took < 10, took
    for cloud, source, act in ((Gcp(), "gcp", lambda c: c.preempt()),
                               (Azure(), "azure", lambda c: c.events.append(event("Preempt", before=utc(30, "azure"))))):
        with Stub(cloud, "169.254.169.254", 80), Watch(notice="auto") as w:
            w.until(lambda s: s[source][0] == "answers" and s["aws"][0] == "off")
            act(cloud)
            w.notice("drain_soon", source, 0, 30000)
    subprocess.run(["ip", "addr", "del", "169.254.169.254/32", "dev", "lo"], check=True)
    with Watch(notice="auto") as w:                                           # no cloud at all: no route
        w.until(lambda s: s["azure"][0] == s["aws"][0] == s["gcp"][0] == "off")


def main():
    import tempfile
    if "--namespace" in sys.argv:
        namespace()
        return
    with tempfile.TemporaryDirectory(prefix="nightshift-notices-") as folder:
        for part in (aws, aws_odd_answers, aws_bad_services, gcp, azure, auto_keeps_who_answers, lambda: signals_file_posts(folder)):
            begun = time.monotonic()
            part()
            print("%-24s ok, %.1f s" % (part.__name__.strip("<>"), time.monotonic() - begun), flush=True)
    inside = ["unshare", "-rn"]
    if not shutil.which("ip") or not shutil.which("unshare") or subprocess.run(inside + ["true"], stderr=subprocess.DEVNULL).returncode != 0:
        print("skipped: 169.254.169.254 itself (no right to make a network namespace here)")
        return
    subprocess.run(inside + [sys.executable, os.path.abspath(__file__), WATCH, "--namespace"], check=True)


main()
