#!/usr/bin/env python3
"""queue/topic.h against the real broker: what is written is read back byte for byte; aborted, open and dead writers' records do not
exist; a scan passes gaps at its end; a second writer of one id fences the first; a group's commits keep their metadata."""
import os

import services
from topics import Refused, Topics


def refused(what, call):
    try:
        call()
    except Refused as e:
        return str(e)
    raise AssertionError(what + " was accepted")


def values(records):
    return sorted(r.value for r in records if r.value is not None)


def bytes_as_written(t):
    headers = [("a", b""), ("a", None), ("ns-job", "x"), ("bin", bytes(range(256)).replace(b"\0", b"\1")), ("a", b"\xff\0\xfe")]
    t.write("prompts", [(0, None, b"no key", []), (0, b"", b"empty key", headers), (0, b"k", b"", []), (0, b"k", None, [])])
    got = t.scan("prompts")
    assert [(r.key, r.value) for r in got] == [(None, b"no key"), (b"", b"empty key"), (b"k", b""), (b"k", None)], got
    want = [(n, v if v is None or isinstance(v, bytes) else v.encode()) for n, v in headers]
    assert got[1].headers == want, got[1].headers
    assert got[0].headers == []


def transactions(t, url):
    t.write("results", [(0, None, "kept %d" % i, []) for i in range(3)])
    t.write("results", [(0, None, "aborted %d" % i, []) for i in range(3)], end="abort")
    assert values(t.scan("results")) == [b"kept 0", b"kept 1", b"kept 2"]      # ends although the end is a gap
    low, high = [int(w) for w in t.do("ranges", "results")[0].split()[1:]]
    assert (low, high) == (0, 8), (low, high)                                  # two control records
    assert values(t.scan("results", 2)) == [b"kept 2"]
    assert t.scan("results", 3) == [] and t.scan("results", high) == []

    with Topics(url) as dead:                                                  # its transaction stays open behind it
        dead.do("open", "dies")
        dead.do("begin")
        dead.add("results", 0, None, "never")
        dead.do("abort")
        dead.do("begin")
        for i in range(200):
            dead.add("results", 0, None, "never %d" % i)
        t.wait_high("results", high + 200)
        dead.kill()
    assert int(t.do("ranges", "results")[0].split()[2]) > high + 100
    t.write("results", [(0, None, "kept 3", [])], writer="dies")               # ends what the dead one left
    assert values(t.scan("results")) == [b"kept 0", b"kept 1", b"kept 2", b"kept 3"]


def fencing(t, url):
    with Topics(url) as first:
        first.do("open", "same")
        first.do("begin")
        first.add("dead", 0, None, "first")
        t.write("dead", [(0, None, "second", [])], writer="same")
        text = refused("a fenced writer's commit", lambda: first.do("commit"))
        assert "another process writes under the same transactional id" in text, text
        first.do("close")
    assert values(t.scan("dead")) == [b"second"]


def commits(t):
    assert t.commits("g") == {0: (-1, None), 1: (-1, None), 2: (-1, None), 3: (-1, None)}
    t.place("g", 1, 7, "W1:-:AAEC")
    t.place("g", 3, 9)
    got = t.commits("g")
    assert got[1] == (7, "W1:-:AAEC") and got[3][0] == 9 and not got[3][1], got
    assert t.commits("other")[1] == (-1, None)


def partitioner(t, kafka):
    """The same key goes where kcat (and so Java's default) puts it, and every partition is scanned."""
    keys = ["key-%d" % i for i in range(50)]
    t.write("prompts", [(-1, k, "v " + k, []) for k in keys])
    got = {r.key.decode(): r.partition for r in t.scan("prompts")}
    assert set(got) == set(keys) and set(got.values()) == {0, 1, 2, 3}, got
    assert got["key-1"] == murmur2_partition(b"key-1", 4)


def murmur2_partition(key, n):
    """org.apache.kafka.common.utils.Utils.murmur2, toPositive, modulo."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(key)
    for i in range(0, len(key) & ~3, 4):
        k = int.from_bytes(key[i:i + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = (h * m & mask) ^ k
    rest = key[len(key) & ~3:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    h ^= h >> 15
    return (h & 0x7FFFFFFF) % n


def oversize(t):
    assert int(t.do("config", "prompts", "max.message.bytes")[0]) == 1048588
    t.do("open", "big")
    t.do("begin")
    t.add("prompts", 0, None, "neighbour")
    t.add("prompts", 0, None, os.urandom(2 << 20))
    text = refused("a record beyond the topic's bound", lambda: t.do("commit"))
    assert "refuses a record" in text, text
    t.do("close")
    t.write("prompts", [(0, None, "after", [])], writer="big")
    assert b"after" in values(t.scan("prompts")) and b"neighbour" not in values(t.scan("prompts"))


def broker_bounce(t, kafka):
    t.do("open", "bounce")
    t.do("begin")
    t.add("results", 0, None, "before")
    kafka.kill()
    kafka.start()
    t.add("results", 0, None, "after")
    t.do("commit")
    t.do("close")
    got = values(t.scan("results"))
    assert got.count(b"before") == 1 and got.count(b"after") == 1, got[-3:]


def main():
    with services.Kafka() as kafka:
        with Topics(kafka.url("one")) as t:
            text = refused("a scan of nothing", lambda: t.scan("prompts"))
            assert 'no topic "one.prompts"' in text, text
            t.make(1)
            t.make(1)                                                          # is there already
            bytes_as_written(t)
            transactions(t, kafka.url("one"))
            fencing(t, kafka.url("one"))
            oversize(t)
            broker_bounce(t, kafka)
        with Topics(kafka.url("four")) as t:
            t.make(4)
            commits(t)
            partitioner(t, kafka)
    with Topics("kafka://127.0.0.1:1/x") as t:
        text = refused("no broker", lambda: t.scan("prompts"))
        assert "127.0.0.1:1" in text and "refused" in text.lower(), text
    print("ok")


if __name__ == "__main__":
    main()
