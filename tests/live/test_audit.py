#!/usr/bin/env python3
"""nightshift audit finds each violation in topics that were doctored, and nothing in sound ones: missing, open, doubled, orphaned, a
commit beyond an open input, a mark without a result, unreadable metadata, a line uploaded twice, a dead letter put back twice.
Aborted and open transactions do not exist for it."""
import base64
import json
import subprocess

import job
import services
from topics import Topics

GROUP = "nightshift"


def audit(url, *args):
    """(exit code, {fault: [ids]}, summary)."""
    p = subprocess.run([job.BIN, "audit", "--queue", url, "--json", "--quiet"] + list(args), stdout=subprocess.PIPE, timeout=120)
    rows = [json.loads(line) for line in p.stdout.decode().splitlines()]
    assert rows, "audit said nothing"
    faults = {}
    for row in rows[:-1]:
        faults.setdefault(row["fault"], []).append(row["id"])
    for name, ids in faults.items():
        assert rows[-1][name] == len(ids), rows[-1]
    return p.returncode, faults, rows[-1]


def metadata(bits, mark="-"):
    """As workers write it: bit i of byte i / 8, the lowest first."""
    data = bytearray(max(bits) // 8 + 1 if bits else 0)
    for i in bits:
        data[i // 8] |= 1 << i % 8
    return "W1:%s:%s" % (mark, base64.b64encode(bytes(data)).decode())


class World:
    """Ten inputs in each of two partitions, all answered: offset 3 dead, offset 7 a tombstone. Then something is changed."""

    def __init__(self, kafka, name):
        self.name, self.url = name, kafka.url(name)
        self.t = Topics(self.url)
        self.t.make(2)

    def id(self, p, o):
        return "%s.prompts/%d/%d" % (self.name, p, o)

    def prompts(self, skip=()):
        rows = []
        for p in (0, 1):
            for o in range(10):
                value = None if o == 7 else json.dumps({"custom_id": "c%d-%d" % (p, o), "body": {"prompt": "x"}})
                rows.append((p, "k", value, [("ns-job", "j"), ("ns-line", p * 10 + o + 1), ("ns-lines", 20)]))
        self.t.write("prompts", rows)

    def answer(self, places, kind="results", job_name="j", **kw):
        self.t.write(kind, [(p % 2, "k", "r", [("ns-job", job_name), ("ns-id", self.id(p, o))]) for p, o in places], **kw)

    def all(self):
        return [(p, o) for p in (0, 1) for o in range(10) if o not in (3, 7)]

    def sound(self, without=()):
        self.prompts()
        self.answer([x for x in self.all() if x not in without])
        self.answer([x for x in ((0, 3), (1, 3)) if x not in without], kind="dead")
        self.t.place(GROUP, 0, 11, metadata([]))       # behind the transaction's end mark
        self.t.place(GROUP, 1, 11)

    def check(self, want, *args, code=6):
        got_code, faults, summary = audit(self.url, *args)
        want = {name: sorted(ids) for name, ids in want.items()}
        faults = {name: sorted(ids) for name, ids in faults.items()}
        assert faults == want, (self.name, faults, want)
        assert got_code == (code if want else 0) and summary["clean"] == (got_code == 0), (self.name, got_code, summary)
        return summary


def main():
    with services.Kafka() as kafka:
        w = World(kafka, "sound")
        w.sound()
        w.answer([(0, 0), (1, 1)], end="abort")        # never happened
        other = Topics(w.url)
        other.do("open", "hangs")
        summary = w.check({})
        assert (summary["inputs"], summary["tombstones"], summary["results"], summary["dead"]) == (18, 2, 16, 2), summary

        w = World(kafka, "missing")
        w.sound(without=[(0, 4), (1, 3)])
        ids = [w.id(0, 4), w.id(1, 3)]
        w.check({"missing": ids, "lwm_too_high": ids})

        w = World(kafka, "aborted")                    # the only result of (0, 4) was aborted
        w.sound(without=[(0, 4)])
        w.answer([(0, 4)], end="abort")
        w.check({"missing": [w.id(0, 4)], "lwm_too_high": [w.id(0, 4)]})

        w = World(kafka, "open")                       # not done, and no mark says so
        w.prompts()
        w.answer([(0, o) for o in (0, 1, 2, 4, 6)] + [(1, 0)])
        w.t.place(GROUP, 0, 3, metadata([1, 3], "0123abcd"))
        undone = [w.id(0, o) for o in (3, 5, 8, 9)] + [w.id(1, o) for o in (1, 2, 3, 4, 5, 6, 8, 9)]
        w.check({"open": undone})
        assert audit(w.url, "--open-ok")[0] == 0
        w.t.place(GROUP, 0, 3, metadata([1, 2], "0123abcd"))
        rest = [i for i in undone if i != w.id(0, 5)]
        w.check({"open": rest, "missing": [w.id(0, 5)], "mark_without_result": [w.id(0, 5)]})
        assert audit(w.url, "--open-ok")[0] == 6
        w.t.place(GROUP, 0, 3, metadata([4, 5, 6, 20], "0123abcd"))       # 7: a tombstone may be marked; 9 not, 23 lies beyond the end
        got = audit(w.url, "--open-ok")
        assert got[0] == 6 and sorted(got[1]["mark_without_result"]) == sorted([w.id(0, 8), w.id(0, 9), w.id(0, 23)]), got
        w.t.place(GROUP, 0, 4, metadata([], "0123abcd"))
        got = audit(w.url, "--open-ok")
        assert got[0] == 6 and got[1]["lwm_too_high"] == [w.id(0, 3)] and got[1]["missing"] == [w.id(0, 3)], got
        w.t.place("others", 0, 3, metadata([1, 3]))
        assert audit(w.url, "--open-ok", "--group", "others")[0] == 0
        w.t.place(GROUP, 0, 99)
        assert w.id(0, 99) in audit(w.url, "--open-ok")[1]["lwm_too_high"]
        for text in ("W2:-:AA==", "W1:-:A!", "W1:12345:AA==", "hello", "W1:-"):
            w.t.place(GROUP, 0, 3, text)
            assert audit(w.url, "--open-ok")[1].get("metadata_unreadable") == [w.id(0, 3)], text

        w = World(kafka, "doubled")
        w.sound()
        w.answer([(0, 2)])
        w.answer([(1, 5)], kind="dead")                # a result and a dead letter
        w.answer([(1, 6)] * 5)
        w.check({"doubled": [w.id(0, 2), w.id(1, 5), w.id(1, 6)]})

        w = World(kafka, "orphaned")
        w.sound()
        w.answer([(0, 7), (1, 10), (0, 4000), (9, 0)])                   # a tombstone, a transaction's mark, beyond the end, no partition
        w.t.write("results", [(0, "k", "no id", []), (0, "k", "other", [("ns-id", "other.prompts/0/1")]), (0, "k", "x", [("ns-id", "junk")])])
        got = audit(w.url)
        named = [i for i in got[1]["orphaned"] if "a record at" not in i]
        assert got[0] == 6 and set(got[1]) == {"orphaned"} and len(got[1]["orphaned"]) == 7, got
        assert sorted(named) == sorted([w.id(0, 7), w.id(1, 10), w.id(0, 4000)]), got

        w = World(kafka, "twice")
        w.sound()
        retry = [("ns-job", "j"), ("ns-line", 4), ("ns-lines", 20), ("ns-retry-of", w.id(0, 3))]
        w.t.write("prompts", [(0, "k", "line 4 again", retry)])
        w.answer([(0, 11)])
        w.check({})
        w.t.write("prompts", [(0, "k", "line 4 again", retry), (0, "k", "line 1 again", [("ns-job", "j"), ("ns-line", 1), ("ns-lines", 20)])])
        w.answer([(0, 13), (0, 14)])
        w.check({"retried_twice": [w.id(0, 13)], "uploaded_twice": [w.id(0, 14)]})

        w = World(kafka, "jobs")                       # one of two jobs is clean
        w.sound(without=[(0, 4)])
        w.t.write("prompts", [(0, "k", "a", [("ns-job", "half"), ("ns-line", 1), ("ns-lines", 3)])])
        w.answer([(0, 11)], job_name="half")
        w.check({"missing": [w.id(0, 4)], "lwm_too_high": [w.id(0, 4)]}, "--job", "j")
        summary = audit(w.url, "--job", "half")
        assert summary[0] == 6 and summary[2]["unsent"] == 2 and not summary[1], summary
        assert subprocess.run([job.BIN, "audit", "--queue", w.url, "--job", "no"], stderr=subprocess.PIPE).returncode == 2
    print("ok")


if __name__ == "__main__":
    main()
