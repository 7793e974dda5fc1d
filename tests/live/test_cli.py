#!/usr/bin/env python3
"""The program as a person meets it: exit codes, refusals, signals, a full disk, a growing input, failures in their own file.

usage: test_cli.py
"""
import json
import os
import signal
import subprocess

import job


def call(*args, **kw):
    p = subprocess.run([job.BIN, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, **kw)
    return p.returncode, p.stdout.decode(), p.stderr.decode()


def refused(code, needle, *args):
    got, _, err = call(*args)
    assert got == code and needle in err, (args, got, err)


def status(out):
    """None before the job has begun."""
    code, text, _ = call("status", out, "--json")
    return json.loads(text) if code == 0 else None


def usage_is_explained(model, source, folder):
    out = os.path.join(folder, "usage.jsonl")
    refused(1, "COMMAND")
    refused(1, "no command is called", "runn")
    refused(1, "-m MODEL", "run", source, "-o", out)
    refused(1, "threads=0x", "run", source, "-o", out, "-m", model, "--set", "threads=0x")
    refused(1, "no setting is called", "run", source, "-o", out, "-m", model, "--set", "thread=1")
    refused(1, "input or any", "run", source, "-o", out, "-m", model, "--order", "output")
    refused(2, "missing.gguf", "run", source, "-o", out, "-m", os.path.join(folder, "missing.gguf"))
    refused(2, source, "run", source, "-o", out, "-m", source)               # not a GGUF
    refused(2, "missing.jsonl", "run", os.path.join(folder, "missing.jsonl"), "-o", out, "-m", model)
    refused(2, "cpu", "run", source, "-o", out, "-m", model, "--set", "device=abacus")
    for command in ("run", "validate", "plan", "status", "tokenize", "model", "bench", "config"):
        code, text, _ = call(command, "--help")
        assert code == 0 and "usage: nightshift " + command in text and "example:" in text, command
    assert not os.path.exists(out), "a refused run left an output"


def numbers_are_numbers(model, source, folder):
    refused(1, "--sample 4x", "plan", source, "-m", model, "--sample", "4x")
    refused(1, "--sample 0", "plan", source, "-m", model, "--sample", "0")
    refused(1, "--line 0", "tokenize", "-m", model, "--chat", source, "--line", "0")
    refused(1, "--show -1", "validate", source, "-m", model, "--show", "-1")
    with open(os.path.join(folder, "bad.jsonl"), "w") as f:
        f.write("\n\nx\n")
    refused(2, "line 3, byte 0 (byte 2 of the file)", "tokenize", "-m", model, "--chat", f.name, "--line", "3")
    empty = job.write(os.path.join(folder, "empty.jsonl"), [])
    for command in ("plan", "validate"):
        code, text, _ = call(command, empty, "-m", model)
        assert code == 0 and "nan" not in text, text


def settings_go_round(model, source, folder):
    """What `nightshift config` prints is a settings file that says the same."""
    path = os.path.join(folder, "nightshift.ini")
    code, printed, _ = call("config", "--set", "threads=3", "--set", "checkpoint_url=mem:x", "--set", "kv_memory_mb=77")
    with open(path, "w") as f:
        f.write(printed)
    assert code == 0 and "77" in printed
    assert call("config", "--config", path) == (0, printed, "")
    refused(1, "cannot read the settings file", "config", "--config", folder)


def a_store_is_measured(model, source, folder):
    path = os.path.join(folder, "store")
    code, text, _ = call("bench", "store", "sqlite:" + path, "--seconds", "0.1", "--json")
    assert code == 0, code
    figures = json.loads(text)
    assert len(figures) == 5 and all(seconds > 0 for seconds in figures.values()), figures
    assert not os.path.exists(path), "it leaves what it has stored"
    refused(1, "store URL", "bench", "store")
    refused(2, "must begin with", "bench", "store", "elsewhere:x")
    refused(2, "does not answer", "bench", "store", "redis://127.0.0.1:1")


def a_job_is_measured(model, source, folder):
    code, text, _ = call("bench", "job", source, "-m", model, "--json")
    row = json.loads(text)
    assert code == 0 and row["lines"] == 5 and row["failed"] == 0 and 0 < row["peak_share"] < 1, text
    assert 0 < row["open_s"] < row["wall_s"] and row["tok_out_s"] > 0, text
    refused(1, "job IN", "bench", "job", "-m", model)
    refused(2, "cannot read", "bench", "job", source + ".none", "-m", model)
    assert not [name for name in os.listdir("/tmp") if name.startswith("nightshift-bench-")], "a folder is left behind"


def the_model_is_no_output(model, source, folder):
    with open(model, "rb") as f:
        before = f.read()
    refused(2, "is the model", "run", source, "-o", model, "-m", model, "--overwrite")
    refused(2, "is the model", "run", source, "-o", os.path.join(folder, "no"), "-e", model, "-m", model, "--overwrite")
    with open(model, "rb") as f:
        assert f.read() == before, "the model was overwritten"


def streams_may_be_closed_or_full(model, folder):
    """Closed: no file takes their place, so no message is written into a result. Full: it is told."""
    source, out, plain = (os.path.join(folder, name) for name in ("streams.jsonl", "streams.out", "streams.plain"))
    job.write(source, job.lines(1500, 8, max_tokens=(100, 200)))
    job.done(source, plain, model)
    p = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", job.BIN, "run", source, "-o", out, "-m", model, "--set",
                        "log_level=debug"], timeout=300)
    assert p.returncode == 0, p
    job.same(job.audit(source, out), job.audit(source, plain), "with closed streams")
    with open("/dev/full", "w") as full:
        for args in (("config",), ("validate", source, "-m", model), ("run", source, "-o", out, "-m", model, "--json")):
            p = subprocess.run([job.BIN, *args], stdout=full, stderr=subprocess.PIPE, timeout=120)
            assert p.returncode == 2 and b"No space" in p.stderr, (args, p)
        p = subprocess.run([job.BIN, "run", source, "-o", out, "-m", model], stdout=full, stderr=subprocess.PIPE, timeout=120)
        assert p.returncode == 0, p                                           # the answers are in their file


def failures_have_a_place(model, folder):
    source, out, bad = (os.path.join(folder, name) for name in ("mixed.jsonl", "mixed.out", "mixed.bad"))
    rows = job.lines(5, 1)
    with open(source, "wb") as f:
        f.write(b"\xef\xbb\xbf" + json.dumps(rows[0]).encode() + b"\r\n\r\n")
        f.write(b"not json\n" + b'{"custom_id": "x", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": [], "stream": true}}\n')
        f.write(b'{"custom_id": "\xff"}\n' + json.dumps(rows[1]).encode())
    report = job.done(source, out, model, args=["-e", bad])
    assert (report["done"], report["failed"]) == (2, 3), report
    assert sorted(job.answers(out)) == [0, 5] and sorted(job.answers(bad)) == [2, 3, 4]
    got = {o: json.loads(line) for o, line in job.answers(bad).items()}
    assert got[2]["custom_id"] is None and "line 3" in got[2]["error"]["message"]
    assert got[3]["custom_id"] == "x" and got[3]["response"]["status_code"] == 400
    refused(2, "-e", "run", source, "-o", out, "-m", model)                   # without its errors file the job is another


def signals_stop_and_it_goes_on(model, folder):
    source, out, plain = (os.path.join(folder, name) for name in ("signals.jsonl", "signals.out", "signals.plain"))
    job.write(source, job.lines(4000, 3, max_tokens=(50, 200)))
    job.done(source, plain, model)
    before = 0
    for number in (signal.SIGINT, signal.SIGTERM):
        p = subprocess.Popen(job.command(source, out, model), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        while not (state := status(out)) or not state["running"] or state["done"] <= before:
            assert p.poll() is None, "over before the signal"
        refused(2, str(p.pid), "run", source, "-o", out, "-m", model)         # one run at a time; names who holds it
        p.send_signal(number)
        report = json.loads(p.communicate(timeout=60)[0])
        assert p.returncode == 75 and report["exit_code"] == 75, report
        before = status(out)["done"]
        assert not status(out)["running"]
        if number == signal.SIGINT and before < 4000:
            refused(2, "max_tokens_default", "run", source, "-o", out, "-m", model, "--set", "max_tokens_default=7")
    job.done(source, out, model)
    job.same(job.audit(source, out), job.audit(source, plain), "after two signals")
    code, text, _ = call("run", source, "-o", out, "-m", model, "--json")
    assert code == 0 and json.loads(text)["done"] == 0, "a finished job was done again"


def a_signal_before_the_work_ends_it(model, folder):
    """While a model is loaded or an input is read (here: a hang in the middle of it) the first signal ends the process."""
    source = job.write(os.path.join(folder, "early.jsonl"), job.lines(5, 9))
    for number in (signal.SIGINT, signal.SIGTERM):
        out = os.path.join(folder, "early.%d" % number)
        p = subprocess.Popen(job.command(source, out, model), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                             env=dict(os.environ, NIGHTSHIFT_FAILPOINT="queue.job.write:1:sleep"))
        while not os.path.exists(out):
            assert p.poll() is None, "over before the signal"
        p.send_signal(number)
        assert b"before the work began" in p.communicate(timeout=60)[1] and p.returncode == 75, p.returncode
        job.done(source, out, model)
        job.audit(source, out)


def a_grown_input_goes_on(model, folder):
    source, out = os.path.join(folder, "grown.jsonl"), os.path.join(folder, "grown.out")
    rows = job.lines(30, 4)
    job.write(source, rows[:20])
    job.done(source, out, model)
    before = job.answers(out)
    with open(source, "a") as f:
        f.writelines(json.dumps(row) + "\n" for row in rows[20:])
    assert job.done(source, out, model)["done"] == 10
    job.same(job.audit(source, out), before, "lines that had their answer")
    job.write(source, rows[1:])
    refused(2, "shorter than when", "run", source, "-o", out, "-m", model)
    job.done(source, out, model, args=["--overwrite"])
    job.audit(source, out)


def a_full_disk_stops_it(model, folder):
    disk = os.path.join(folder, "disk")
    os.mkdir(disk)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", disk], stderr=subprocess.DEVNULL).returncode != 0:
        print("skipped: a small file system cannot be mounted here")
        return
    try:
        source, out = os.path.join(folder, "full.jsonl"), os.path.join(disk, "out.jsonl")
        job.write(source, job.lines(400, 5))
        code, report = job.run(source, out, model)
        assert code == 75 and "space" in report["message"], report
        subprocess.run(["mount", "-o", "remount,size=16m", disk], check=True)
        job.done(source, out, model)
        job.audit(source, out)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def main():
    with job.folder() as folder:
        model = job.tiny_model(folder)
        source = job.write(os.path.join(folder, "in.jsonl"), job.lines(5, 2))
        for test in (usage_is_explained, numbers_are_numbers, settings_go_round, a_store_is_measured, a_job_is_measured, the_model_is_no_output):
            test(model, source, folder)
        for test in (failures_have_a_place, streams_may_be_closed_or_full, signals_stop_and_it_goes_on,
                     a_signal_before_the_work_ends_it, a_grown_input_goes_on, a_full_disk_stops_it):
            test(model, folder)
            job.say(test.__name__.replace("_", " "))
    job.say("ok")


if __name__ == "__main__":
    main()
