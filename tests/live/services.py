"""A real broker and a real Redis for one test: private folders, free ports, ended by pid, also when the test is killed.

    with services.Kafka() as kafka, services.Redis() as redis:
        ... kafka.bootstrap, redis.url ...
        kafka.kill(); kafka.start()

Where Java, Maven or redis-server are missing the test ends at once with exit code 77 and says what is missing.
"""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOOL = os.path.join(ROOT, "tools", "kafka_local")


def tool(*args, timeout_s=700):
    done = subprocess.run([sys.executable, TOOL] + list(args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout_s)
    text = done.stderr.decode(errors="replace").strip()
    if done.returncode == SKIPPED:
        print("skipped: " + text)
        sys.exit(SKIPPED)
    assert done.returncode == 0, text
    return done.stdout.decode()


def wait_for(what, check, timeout_s=60, every_s=0.05):
    deadline = time.monotonic() + timeout_s
    while True:
        value = check()
        if value:
            return value
        assert time.monotonic() < deadline, "waited %d s for %s" % (timeout_s, what)
        time.sleep(every_s)


class Service:
    """What Kafka and Redis share: a folder of their own and pids to send signals to."""

    def __enter__(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="nightshift-live-", ignore_cleanup_errors=True)
        self.folder = self.temporary.name
        try:
            self.start()
        except BaseException:
            self.temporary.cleanup()
            raise
        return self

    def __exit__(self, *_):
        try:
            tool("stop", self.folder)
        finally:
            self.temporary.cleanup()

    def _send(self, signal_number, node=0):
        pid = self.pids[node]
        os.kill(pid, signal_number)
        return pid

    def pause(self, node=0):
        self._send(signal.SIGSTOP, node)

    def resume(self, node=0):
        self._send(signal.SIGCONT, node)

    def kill(self, node=0):
        """kill -9; returns when the process is gone. start() brings it back with its data."""
        pid = self._send(signal.SIGKILL, node)
        wait_for("the end of pid %d" % pid, lambda: gone(pid))

    def terminate(self, node=0):
        pid = self._send(signal.SIGTERM, node)
        wait_for("the end of pid %d" % pid, lambda: gone(pid))


def gone(pid):
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


class Kafka(Service):
    """nodes: 1 or 3. settings: lines of server.properties."""

    def __init__(self, nodes=1, settings=(), namespaces=False):
        self.nodes, self.settings, self.namespaces = nodes, list(settings), namespaces

    def start(self):
        args = ["start", self.folder, "--no-redis", "--nodes", str(self.nodes)]
        if not os.path.exists(os.path.join(self.folder, "bootstrap")):
            args += ["--end-with", str(os.getpid())]
        if self.namespaces:
            args += ["--namespaces"]
        for s in self.settings:
            args += ["--set", s]
        state = json.loads(tool(*args))
        self.bootstrap, self.pids = state["bootstrap"], state["kafka_pids"]
        return self

    def restart(self, node=0):
        self.terminate(node)
        return self.start()

    def _link(self, node, state):
        with open(os.path.join(self.folder, "node-%d" % (node + 1), "namespace")) as f:
            subprocess.run(["ip", "link", "set", f.read().strip(), state], check=True)

    def cut(self, node):
        """Nobody reaches this node, and it reaches nobody; with namespaces only."""
        self._link(node, "down")

    def join(self, node):
        self._link(node, "up")

    def url(self, name):
        return "kafka://%s/%s" % (self.bootstrap, name)

    def topics(self, *args):
        return tool("topics", self.folder, *args)

    def configs(self, *args):
        return tool("configs", self.folder, *args)

    def alive(self):
        return all(not gone(pid) for pid in self.pids)


class Redis(Service):
    def __init__(self):
        pass

    def start(self):
        args = ["start", self.folder, "--no-kafka"]
        if not os.path.exists(os.path.join(self.folder, "redis")):
            args += ["--end-with", str(os.getpid())]
        state = json.loads(tool(*args))
        self.url, self.pids = state["redis"], [state["redis_pid"]]
        return self

    def restart(self):
        self.terminate()
        return self.start()

    def command(self, *words, timeout_s=5):
        """One command; its reply's text (strings, errors and integers; an array as a list)."""
        host, port = self.url.rsplit("/", 1)[-1].split(":")
        with socket.create_connection((host, int(port)), timeout=timeout_s) as s:
            message = b"*%d\r\n" % len(words)
            for word in words:
                word = word if isinstance(word, bytes) else str(word).encode()
                message += b"$%d\r\n%s\r\n" % (len(word), word)
            s.sendall(message)
            with s.makefile("rb") as f:
                return reply(f)


def reply(f):
    line = f.readline()
    kind, rest = line[:1], line[1:-2]
    if kind == b"$":
        return None if rest == b"-1" else f.read(int(rest) + 2)[:-2].decode(errors="replace")
    if kind == b"*":
        return [reply(f) for _ in range(int(rest))]
    assert kind in (b"+", b"-", b":"), line
    return rest.decode(errors="replace")
