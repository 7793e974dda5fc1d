"""The Kafka queue against a real broker, without a model (kafka_echo): whatever dies, freezes, doubles or changes, every record of the
prompts gets exactly one answer, and what cannot be done right is refused in words.

usage: test_kafka_queue.py [sample]          sample: fewer cases, for slow builds
"""
import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import time

import services

ECHO = os.environ["NIGHTSHIFT_ECHO"]
FAST = ["--set", "session_timeout_ms=3000", "--set", "poll_max_ms=10000", "--set", "txn_timeout_ms=2000",
        "--set", "kafka.heartbeat.interval.ms=500"]
BROKER = ["group.min.session.timeout.ms=1000", "transaction.abort.timed.out.transaction.cleanup.interval.ms=500"]
ANSWERS = 300
IDLE_MS = 9000       # longer than what a peer's death takes to be noticed, so that no worker leaves before


def group(url):
    return ["--set", "kafka_group=" + url.rsplit("/", 1)[1]]


def echo(*args, code=0, timeout_s=120):
    done = subprocess.run([ECHO] + list(args) + group(args[1]), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout_s)
    assert done.returncode == code, (args, done.returncode, done.stdout, done.stderr[-3000:])
    return done.stdout.decode(), done.stderr.decode(errors="replace")


class Worker:
    def __init__(self, url, *args, failpoint=None):
        env = dict(os.environ)
        if failpoint:
            env["NIGHTSHIFT_FAILPOINT"] = failpoint
        self.process = subprocess.Popen([ECHO, "work", url] + FAST + group(url) + list(args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)

    def end(self, code=0, timeout_s=120):
        out, err = self.process.communicate(timeout=timeout_s)
        assert self.process.returncode == code, (self.process.args, self.process.returncode, out, err[-3000:])
        self.words = err.decode(errors="replace")
        return json.loads(out) if out else {}

    def stopped(self):
        with open("/proc/%d/stat" % self.process.pid) as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "T"


def fill(url, n=ANSWERS, size=200, partitions=4):
    echo("fill", url, str(n), str(size), str(partitions))


def audit(url, n=ANSWERS, doubles=False, **want):
    done = subprocess.run([ECHO, "audit", url] + group(url), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    seen = json.loads(done.stdout)
    want = dict({"inputs": n, "missing": 0, "orphans": 0, "marks_without_result": 0}, **({} if doubles else {"doubled": 0}), **want)
    assert all(seen[k] == v for k, v in want.items()), (url, seen, want)
    return seen


def idle(*args, ms=IDLE_MS):
    return ("--idle-ms", str(ms), "--hold", "40", "--set", "txn_results_max=25") + args


# ---- deaths ----

POINTS = ["kafka.begin:1", "kafka.begin:3", "kafka.produce:1", "kafka.produce:30", "kafka.guard:2", "kafka.offsets:1", "kafka.offsets:3",
          "kafka.commit.before:1", "kafka.commit.before:3", "kafka.commit.after:1", "kafka.commit.after:3"]


def dies(kafka, point):
    """Two workers; one is killed at the point. The other one does everything that is left, each of it once."""
    url = kafka.url("die." + point.replace(":", "."))
    fill(url)
    a = Worker(url, *idle("--every", "30"), failpoint=point)
    time.sleep(1.2)      # A has its partitions, so that it comes to the point
    b = Worker(url, *idle())
    a.end(code=-9)
    b.end()
    audit(url)


def same_slot_comes_back(kafka):
    """Killed with a transaction open; the next one with the same slot ends it at once and goes on."""
    url = kafka.url("slot")
    fill(url)
    Worker(url, *idle("--set", "kafka_slot=one"), failpoint="kafka.commit.before:2").end(code=-9)
    Worker(url, *idle("--set", "kafka_slot=one")).end()
    audit(url)


def killed_again_and_again(kafka):
    url = kafka.url("again")
    fill(url, 1500)
    for i in range(12):
        Worker(url, *idle("--every", "20"), failpoint=POINTS[i * 5 % 11].split(":")[0] + ":%d" % (1 + i % 4)).end(code=-9)
    Worker(url, *idle()).end()
    audit(url, 1500)


# ---- zombies ----

def zombie(kafka, point):
    """Frozen beyond session and transaction time-outs, at the worst places; what it wakes up with is refused."""
    url = kafka.url("zombie." + point.replace(":", "."))
    fill(url)
    a = Worker(url, *idle(), failpoint=point + ":stop")
    services.wait_for("a freeze at " + point, a.stopped, 60)
    b = Worker(url, *idle(ms=7000))
    b.end()
    os.kill(a.process.pid, signal.SIGCONT)
    a.end()
    audit(url)


def duel(kafka):
    """Two workers with one slot: one of them ends with exit code 3 and says why, the other one does the work."""
    url = kafka.url("duel")
    fill(url, 4000)
    two = [Worker(url, *idle("--every", "100", "--set", "kafka_slot=same")) for _ in range(2)]
    services.wait_for("the end of a duel", lambda: any(w.process.poll() is not None for w in two), 90)
    first, other = sorted(two, key=lambda w: w.process.poll() is None)
    first.end(code=3)
    assert "another process uses this transactional id" in first.words, first.words[-2000:]
    other.end()
    audit(url, 4000)


# ---- the group ----

def members_come_and_go(kafka):
    url = kafka.url("members")
    fill(url, 6000, partitions=6)
    stays = Worker(url, *idle("--every", "60", "--dead", "7"))
    for i in range(5):
        guest = Worker(url, *idle("--every", "30", "--dead", "7"))
        time.sleep(2.0 + 0.3 * i)
        guest.process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        guest.end()
        assert time.monotonic() - begun < 8, "a drain took too long"
    stays.end()
    seen = audit(url, 6000)
    assert 0 < seen["dead"] < 6000 and seen["dead"] + seen["results"] == 6000, seen


def eager_members(kafka):
    url = kafka.url("eager")
    fill(url, 2000)
    a = Worker(url, *idle("--every", "60", "--set", "kafka_eager=1"))
    time.sleep(2)
    b = Worker(url, *idle("--every", "60", "--set", "kafka_eager=1"))
    a.end(), b.end()
    audit(url, 2000)


def broker_dies(_):
    """kill -9 of the only broker in the middle of it; it comes back after some seconds. (One of its own: few topics to recover.)"""
    with services.Kafka(settings=BROKER) as kafka:
        url = kafka.url("broker")
        fill(url, 3000)
        a = Worker(url, *idle("--every", "40", ms=12000))
        time.sleep(2)
        kafka.kill()
        time.sleep(4)
        kafka.start()
        a.end()
        audit(url, 3000)


def long_outage(_):
    """Longer than a minute without any broker: everything is lost, the consumer is made anew, the work goes on. (By name only.)"""
    with services.Kafka(settings=BROKER) as kafka:
        url = kafka.url("outage")
        fill(url, 3000)
        a = Worker(url, *idle("--every", "40", "--quiet", ms=30000))
        time.sleep(2)
        kafka.kill()
        time.sleep(75)
        kafka.start()
        a.end()
        assert "the consumer is made anew" in a.words, a.words
        audit(url, 3000)


# ---- where a partition begins ----

def commits(url):
    return [line.split(" ", 2) for line in echo("commits", url)[0].splitlines()]


def foreign_metadata(kafka):
    """A commit of another tool: refused in words; taken as an offset when told to."""
    url = kafka.url("foreign")
    fill(url, 40, partitions=2)
    echo("commit", url, "0", "5", "W2:something:new")
    a = Worker(url, *idle(ms=4000))
    a.end()
    assert "partition_stopped" in a.words and "another tool or version" in a.words, a.words
    assert commits(url)[0][1:] == ["5", "W2:something:new"], commits(url)
    Worker(url, *idle("--set", "kafka_ignore_foreign_metadata=1", ms=4000)).end()
    assert audit_open(url)["missing"] == 5       # the five below that offset were never read


def audit_open(url):
    return json.loads(subprocess.run([ECHO, "audit", url] + group(url), stdout=subprocess.PIPE, timeout=120).stdout)


def made_anew(kafka):
    """The topic is deleted and made again under its name: marks of the old one must not pass for marks of the new one."""
    url = kafka.url("anew")
    fill(url, 40, partitions=1)
    Worker(url, *idle("--lose", "7", ms=4000)).end()          # offsets 0, 7, 14 ... stay open: LWM 0 and a bitmap
    place = commits(url)[0]
    assert place[1] == "0" and len(place[2]) > len("W1:12345678:"), place
    kafka.topics("--delete", "--topic", "anew.prompts")       # Kafka forgets the commit with it; a mirror or a restore does not
    fill(url, 80, size=300, partitions=1)
    echo("commit", url, *place)
    a = Worker(url, *idle(ms=4000))
    assert a.end()["polled"] == 0
    assert "made anew or cut" in a.words, a.words


def records_deleted(kafka):
    """Retention went past the lowest open record: stopped in words, never skipped in silence."""
    url = kafka.url("deleted")
    fill(url, 40, partitions=1)
    echo("commit", url, "0", "10000", "W1:-:")
    a = Worker(url, *idle(ms=4000))
    a.end()
    assert "does not exist any more" in a.words, a.words
    assert audit_open(url)["results"] == 0


def partitions_added(kafka):
    url = kafka.url("added")
    fill(url, 100, partitions=2)
    a = Worker(url, *idle("--set", "kafka.topic.metadata.refresh.interval.ms=1000"))
    time.sleep(3)
    kafka.topics("--alter", "--topic", "added.prompts", "--partitions", "4")
    fill(url, 100, partitions=4)
    a.end()
    audit(url, 200)


# ---- records of every shape ----

def odd_records(kafka):
    """Null and empty keys, tombstones, headers of any bytes, aborted and open gaps, results larger than the topic: bytewise, and none
    of them stands in another's way."""
    url = kafka.url("odd")
    echo("odd", url)
    a = Worker(url, *idle("--set", "log_level=error", ms=5000))
    assert a.end()["skipped"] == 2
    assert echo("odd-check", url)[0].startswith("all as it should be"), url


def limit_lowered(kafka):
    """max.message.bytes of the results is lowered under a running worker: a whole batch is refused once, then the limit is known."""
    url = kafka.url("lowered")
    fill(url, 1000, size=3000, partitions=1)
    a = Worker(url, *idle("--every", "200", "--set", "txn_results_max=20", "--set", "kafka.compression.type=none", ms=6000))
    time.sleep(2.5)
    kafka.configs("--alter", "--entity-type", "topics", "--entity-name", "lowered.results", "--add-config", "max.message.bytes=2000")
    seen = a.end()
    assert seen["dead"] > 50 and seen["remade"] >= 1, (seen, a.words)
    audit(url, 1000)


# ---- brokers that promise less ----

def unfenced_broker_is_refused(kafka):
    """librdkafka's own mock accepts the commit of a member that cannot be: exactly-once would be a lie."""
    mock = ("--set", "kafka.test.mock.num.brokers=1")
    words = echo("work", kafka.url("mock"), *mock, code=2)[1]
    assert "does not fence" in words and "at_least_once" in words, words


def missing_topic(kafka):
    words = echo("work", kafka.url("nothing.here"), code=2)[1]
    assert "there is no topic nothing.here.prompts" in words, words


def at_least_once(kafka):
    """Idempotent producer, plain commits of LWM and bitmap: nothing is lost; deaths may double."""
    url = kafka.url("least")
    fill(url)
    plain = ("--set", "kafka_delivery=at_least_once")
    Worker(url, *idle(*plain)).end()
    audit(url)
    url = kafka.url("least.death")
    fill(url)
    for point in "kafka.offsets:2", "kafka.commit.after:1", "kafka.produce:30":
        Worker(url, *idle(*plain), failpoint=point).end(code=-9)
    Worker(url, *idle(*plain)).end()
    audit(url, doubles=True)


def small_metadata(kafka):
    """A broker that keeps 256 bytes of metadata: the window shrinks to what fits, and everything is answered."""
    with services.Kafka(settings=BROKER + ["offset.metadata.max.bytes=256"]) as small:
        url = small.url("small")
        fill(url, 5000, partitions=1)
        a = Worker(url, *idle("--set", "log_level=warn"))
        a.end()
        assert "offset.metadata.max.bytes" in a.words, a.words
        audit(url, 5000)


def main():
    sample = "sample" in sys.argv[1:]
    alone = [broker_dies]
    together = [odd_records, limit_lowered, duel, members_come_and_go, eager_members, killed_again_and_again, same_slot_comes_back, foreign_metadata, made_anew,
                records_deleted, partitions_added, unfenced_broker_is_refused, missing_topic, at_least_once, small_metadata]
    points = POINTS[::4] if sample else POINTS
    frozen = ["kafka.produce:20", "kafka.guard:2", "kafka.offsets:2", "kafka.commit.before:2", "kafka.commit.after:2", "kafka.begin:2"]
    names = [a for a in sys.argv[1:] if a != "sample"]
    cases = [(f.__name__, f, ()) for f in together]
    cases += [("dies " + p, dies, (p,)) for p in points]
    cases += [("zombie " + p, zombie, (p,)) for p in (frozen[2:4] if sample else frozen)]
    with services.Kafka(settings=BROKER) as kafka:
        failed = []

        def run(name, f, args):
            begun = time.monotonic()
            try:
                f(kafka, *args)
                print("ok      %-40s %5.1f s" % (name, time.monotonic() - begun), flush=True)
            except Exception as e:
                failed.append(name)
                print("FAILED  %-40s %s" % (name, e), flush=True)

        chosen = [c for c in cases if not names or any(n in c[0] for n in names)]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for c in chosen:
                pool.submit(run, *c)
        for f in alone + ([long_outage] if names else []):
            if not names or any(n in f.__name__ for n in names):
                run(f.__name__, f, ())
    if failed:
        sys.exit("failed: " + ", ".join(failed))


if __name__ == "__main__":
    main()
