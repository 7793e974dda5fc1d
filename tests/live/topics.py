"""Topics by hand (topic_tool): written, doctored and read back. And kcat where an independent reader is wanted."""
import os
import subprocess
import time

TOOL = os.environ["NIGHTSHIFT_TOPIC_TOOL"]


class Refused(Exception):
    pass


def to_hex(value):
    if value is None:
        return "-"
    value = value if isinstance(value, bytes) else str(value).encode()
    return value.hex() or "."


def from_hex(word):
    return None if word == "-" else b"" if word == "." else bytes.fromhex(word)


class Record:
    def __init__(self, line):
        words = line.split(" ")
        self.partition, self.offset = int(words[0]), int(words[1])
        self.timestamp_s = int(words[2]) / 1000
        self.key, self.value = from_hex(words[3]), from_hex(words[4])
        self.headers = [(w.split("=", 1)[0], from_hex(w.split("=", 1)[1])) for w in words[5:]]

    def header(self, name):
        """The last of that name as text; None: absent."""
        found = [v for n, v in self.headers if n == name]
        return found[-1].decode() if found else None


class Topics:
    """One topic_tool; its writer dies with kill()."""

    def __init__(self, url, settings=()):
        self.p = subprocess.Popen([TOOL, url] + list(settings), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.p.poll() is None:
            self.p.stdin.close()
            self.p.wait(60)
        self.p.stdout.close()

    def kill(self):
        self.p.kill()
        self.p.wait()

    def do(self, *words):
        self.p.stdin.write(" ".join(str(w) for w in words) + "\n")
        self.p.stdin.flush()
        lines = []
        while True:
            line = self.p.stdout.readline()
            assert line, "topic_tool ended"
            line = line.rstrip("\n")
            if line == "ok":
                return lines
            if line.startswith("error "):
                raise Refused(line[6:])
            lines.append(line)

    def make(self, partitions=1, kinds=("prompts", "results", "dead")):
        for kind in kinds:
            self.do("make", kind, partitions)

    def add(self, kind, partition, key, value, headers=()):
        self.do("add", kind, partition, to_hex(key), to_hex(value), *["%s=%s" % (n, to_hex(v)) for n, v in headers])

    def write(self, kind, records, writer="test", end="commit"):
        """records: (partition, key, value, headers). One transaction."""
        before = self.high(kind)
        self.do("open", writer)
        self.do("begin")
        for r in records:
            self.add(kind, *r)
        if end == "abort":
            self.wait_high(kind, before + len(records))
        self.do(end)
        self.do("close")

    def has(self, kind):
        try:
            self.high(kind)
            return True
        except Refused:
            return False

    def high(self, kind):
        return sum(int(line.split()[2]) for line in self.do("ranges", kind))

    def wait_high(self, kind, high):
        """Until the broker has that many records and marks: what is not sent leaves no trace."""
        deadline = time.monotonic() + 20
        while self.high(kind) < high:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def scan(self, kind, *start):
        return [Record(line) for line in self.do("scan", kind, *start)]

    def commits(self, group):
        rows = [line.split(" ", 2) for line in self.do("commits", group)]
        return {int(p): (int(offset), None if meta == "-" else meta) for p, offset, meta in rows}

    def place(self, group, partition, offset, metadata=None):
        self.do("place", group, partition, offset, "-" if metadata is None else metadata)
