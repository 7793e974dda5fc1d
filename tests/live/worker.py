"""A nightshift-worker process for live tests: starts it, knows its port, reads its pages, sends it signals, waits for its end."""
import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

BIN = os.environ["NIGHTSHIFT_WORKER"]
WAIT_S = 120         # until something is given up for lost; sanitizers and busy machines are slow


class Worker:
    """failpoint and env reach the process; settings are --set pairs."""

    def __init__(self, *args, failpoint=None, env=None, wait_port=True, **settings):
        settings.setdefault("http_listen", "127.0.0.1:0")
        settings.setdefault("notice", "none")
        full = dict(os.environ, **(env or {}))
        full.pop("NIGHTSHIFT_FAILPOINT", None)
        # A watchdog and a drain leave by _exit: threads that nobody has joined are no leak there.
        full["TSAN_OPTIONS"] = full.get("TSAN_OPTIONS", "") + " report_thread_leaks=0"
        if failpoint:
            full["NIGHTSHIFT_FAILPOINT"] = failpoint
        cmd = [BIN, *args]
        for name, value in settings.items():
            cmd += ["--set", "%s=%s" % (name, value)]
        self.log, self.port = [], None
        self.begun = time.monotonic()
        self.p = subprocess.Popen(cmd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", env=full)
        self.reader = threading.Thread(target=lambda: [self.log.append(line.rstrip("\n")) for line in self.p.stderr], daemon=True)
        self.reader.start()
        if wait_port and settings["http_listen"]:
            self.port = int(re.search(r":(\d+)$", self.wait_log("event=http.listen").split("address=")[1]).group(1))

    def wait_log(self, text, timeout_s=WAIT_S):
        end = time.monotonic() + timeout_s
        while True:
            for line in list(self.log):
                if text in line:
                    return line
            assert time.monotonic() < end and (self.p.poll() is None or self.reader.is_alive()), (text, self.p.poll(), self.log[-8:])
            time.sleep(0.01)

    def call(self, path, method="GET", headers=None, host="127.0.0.1"):
        """(HTTP status, text)."""
        request = urllib.request.Request("http://%s:%d%s" % (host, self.port, path), method=method, headers=headers or {})
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=WAIT_S) as r:
                return r.status, r.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def status(self):
        code, text = self.call("/status")
        assert code == 200, (code, text)
        return json.loads(text)

    def count(self, name):
        """A metric's value; 0 while the model is still being loaded."""
        status = self.status()
        return 0 if status["state"] == "loading" else status["counts"]["nightshift_" + name]

    def until(self, what, check, timeout_s=WAIT_S):
        end = time.monotonic() + timeout_s
        while not check():
            assert time.monotonic() < end and self.p.poll() is None, (what, self.p.poll(), self.log[-8:])
            time.sleep(0.02)

    def until_ready(self):
        self.until("ready", lambda: self.call("/readyz")[0] == 200)
        return self

    def send(self, number=signal.SIGTERM):
        self.p.send_signal(number)
        return time.monotonic()

    def end(self, timeout_s=WAIT_S):
        """The exit code; sanitizers' complaints are failures."""
        code = self.p.wait(timeout=timeout_s)
        self.reader.join(timeout=WAIT_S)
        bad = [line for line in self.log if "Sanitizer" in line or "runtime error" in line or "assert.failed" in line]
        assert not bad, self.log[-60:]
        return code

    def __enter__(self):
        return self

    def __exit__(self, *args):
        if self.p.poll() is None:
            self.p.kill()
            self.p.wait()
