#!/usr/bin/env python3
"""nightshift beside llama.cpp, interleaved in one run on one machine.

usage: peer_llama.py --llama DIR --models DIR --model FILE.gguf --corpus FILE.jsonl [--reps 3] [--stages step,job]
                     [--weights bf16,q8_0,q4_1] [--nightshift build/release/bin/nightshift] [--slots 16]

--llama:  folder with llama-bench, llama-batched-bench, llama-server, built natively (release).
--models: folder with bf16.gguf, q8_0.gguf, q4_1.gguf of the same model (made with llama-quantize).
Stage step: prefill of 512 tokens, one sequence, 32 sequences; stage job: the whole corpus, model load included, against
llama-server with --slots slots and as many connections. Medians and ratios are printed and appended to
tools/bench/results/peer_llama.csv. Standard library only; talks to 127.0.0.1.
"""
import argparse
import csv
import datetime
import http.client
import json
import os
import platform
import statistics
import subprocess
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PORT = 18431


def json_lines(cmd):
    out = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout.decode()
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


class Figures:
    """{(what, who): [numbers]}"""

    def __init__(self):
        self.of = {}

    def add(self, what, who, number):
        self.of.setdefault((what, who), []).append(number)
        print("%s  %-12s %-18s %10.1f" % (time.strftime("%H:%M:%S"), what, who, number), flush=True)


def nightshift_step(a, fig):
    for row in json_lines([a.nightshift, "bench", "step", "-m", a.model, "--json", "--seconds", "1", "--context", "128"]):
        what = {"prefill 512": "prefill 512", "decode 1": "1 sequence", "decode 32": "32 sequences"}.get(row["case"])
        if what:
            fig.add(what, "nightshift", row["tok_s"])


def llama_step(a, weights, fig):
    gguf, threads = "%s/%s.gguf" % (a.models, weights), str(a.threads)
    for row in json_lines([a.llama + "/llama-bench", "-m", gguf, "-p", "512", "-n", "128", "-t", threads, "-r", "2", "-o", "jsonl"]):
        fig.add("prefill 512" if row["n_prompt"] else "1 sequence", "llama " + weights, row["avg_ts"])
    for row in json_lines([a.llama + "/llama-batched-bench", "-m", gguf, "-c", str(192 * 32), "-npp", "128", "-ntg", "64", "-npl", "32",
                           "-t", threads, "-tb", threads, "--output-format", "jsonl"]):
        fig.add("32 sequences", "llama " + weights, row["speed_tg"])


def nightshift_job(a, fig):
    with tempfile.TemporaryDirectory(prefix="nightshift-peer-") as folder:
        start = time.monotonic()
        out = subprocess.run([a.nightshift, "run", a.corpus, "-o", folder + "/out.jsonl", "-m", a.model, "--json", "--quiet"],
                             stdout=subprocess.PIPE, check=True).stdout
        fig.add("job s", "nightshift", time.monotonic() - start)
        report = json.loads(out)
        assert report["failed"] == 0, report


def answer_all(bodies, slots):
    it, lock, errors = iter(bodies), threading.Lock(), []

    def worker():
        conn = http.client.HTTPConnection("127.0.0.1", PORT, timeout=600)
        while True:
            with lock:
                body = next(it, None)
            if body is None:
                return
            conn.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
            reply = conn.getresponse()
            reply.read()
            if reply.status != 200:
                errors.append(reply.status)

    threads = [threading.Thread(target=worker) for _ in range(slots)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors, errors


def llama_job(a, weights, fig):
    bodies = [json.dumps(json.loads(line)["body"]) for line in open(a.corpus, encoding="utf-8")]
    start = time.monotonic()
    p = subprocess.Popen([a.llama + "/llama-server", "-m", "%s/%s.gguf" % (a.models, weights), "--host", "127.0.0.1", "--port", str(PORT),
                          "-np", str(a.slots), "-c", str(a.slots * 2048), "-t", str(a.threads), "-tb", str(a.threads), "--no-ui"],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                conn = http.client.HTTPConnection("127.0.0.1", PORT, timeout=5)
                conn.request("GET", "/health")
                if conn.getresponse().status == 200:
                    break
            except OSError:
                pass
            assert p.poll() is None and time.monotonic() - start < 60, "llama-server does not start"
            time.sleep(0.05)
        answer_all(bodies, a.slots)
        fig.add("job s", "llama " + weights, time.monotonic() - start)
    finally:
        p.terminate()
        p.wait()


def machine():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return "%s, %d threads" % (line.split(":", 1)[1].strip(), len(os.sched_getaffinity(0)))
    return platform.machine()


def report(a, fig):
    commit = subprocess.run(["git", "-C", HERE, "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE).stdout.decode().strip()
    os.makedirs(HERE + "/results", exist_ok=True)
    path = HERE + "/results/peer_llama.csv"
    new = not os.path.exists(path)
    with open(path, "a", newline="") as f:
        out = csv.writer(f)
        if new:
            out.writerow(["date", "commit", "machine", "what", "peer", "nightshift_median", "peer_median", "ratio", "runs"])
        for what in dict.fromkeys(w for w, _ in fig.of):
            ours = statistics.median(fig.of[what, "nightshift"])
            for who in [p for w, p in fig.of if w == what and p != "nightshift"]:
                peer = statistics.median(fig.of[what, who])
                ratio = peer / ours if what == "job s" else ours / peer
                print("%-14s %10.1f   %-12s %10.1f   x %.2f" % (what, ours, who, peer, ratio))
                out.writerow([datetime.date.today(), commit, machine(), what if what != "job s" else "%s, %s" % (what, os.path.basename(a.corpus)), who,
                              "%.2f" % ours, "%.2f" % peer, "%.2f" % ratio, len(fig.of[what, who])])


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--llama", required=True)
    ap.add_argument("--models", required=True)
    ap.add_argument("--model", required=True)
    ap.add_argument("--corpus")
    ap.add_argument("--nightshift", default=HERE + "/../../build/release/bin/nightshift")
    ap.add_argument("--stages", default="step,job")
    ap.add_argument("--weights", default="bf16,q8_0,q4_1")
    ap.add_argument("--job-weights", default="bf16")
    ap.add_argument("--slots", type=int, default=16)
    ap.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    ap.add_argument("--reps", type=int, default=3)
    a = ap.parse_args()
    fig = Figures()
    for _ in range(a.reps):
        if "step" in a.stages:
            for weights in a.weights.split(","):
                nightshift_step(a, fig)
                llama_step(a, weights, fig)
        if "job" in a.stages:
            nightshift_job(a, fig)
            for weights in a.job_weights.split(","):
                llama_job(a, weights, fig)
    report(a, fig)


if __name__ == "__main__":
    main()
