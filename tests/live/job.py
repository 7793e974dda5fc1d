"""What the live tests share: jobs of random lines, runs of the real program, and an audit that knows nothing of it.

Environment (set by ctest): NIGHTSHIFT_BIN, NIGHTSHIFT_TINY (writes the tiny model), NIGHTSHIFT_MODEL (the default model).
"""
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

BIN = os.environ["NIGHTSHIFT_BIN"]
SKIPPED = 77

WORDS = ("the a of to and in is it you that he was for on are with as his they at be this from have or by one had not but what all "
         "were when we there can an your which their said if do will each about how up out them then she many some so these would "
         "other into has more her two like him see time could no make than first been its who now people my made over did down "
         "only way find use may water long little very after words called just where most know").split()


def tiny_model(folder, layers=None):
    """layers: some hundred make a step take milliseconds."""
    path = os.path.join(folder, "tiny-%s.gguf" % (layers or "default"))
    subprocess.run([os.environ["NIGHTSHIFT_TINY"], path] + ([str(layers)] if layers else []), check=True)
    return path


def default_model():
    path = os.environ["NIGHTSHIFT_MODEL"]
    if not os.path.exists(path):
        print("skipped: the default model is not at " + path)
        sys.exit(SKIPPED)
    return path


def words(rng, n):
    return " ".join(rng.choice(WORDS) for _ in range(n))


def lines(n, seed, temperature=None, max_tokens=(4, 60), prefixes=3, prefix_words=60):
    """n chat and completion lines: some share a prefix, some sample, some ask for several choices or stops."""
    rng = random.Random(seed)
    shared = [words(rng, prefix_words) for _ in range(prefixes)]
    out = []
    for i in range(n):
        body = {"model": "m", "max_tokens": rng.randint(*max_tokens)}
        body["temperature"] = rng.choice([0, 0.8]) if temperature is None else temperature
        if rng.random() < 0.5:
            body["seed"] = rng.randint(0, 2 ** 40)
        text = rng.choice(shared) + " " + words(rng, rng.randint(1, 30))
        if rng.random() < 0.15:
            body["n"] = 3
        if rng.random() < 0.2:
            body["stop"] = [rng.choice(WORDS), "\n\n"]
        if rng.random() < 0.2:
            body["top_p"] = 0.9
        if rng.random() < 0.2:
            body["presence_penalty"] = 0.5
        chat = rng.random() < 0.7
        if chat:
            body["messages"] = [{"role": "system", "content": shared[0]}, {"role": "user", "content": text}]
            if rng.random() < 0.2:
                body.update(logprobs=True, top_logprobs=3)
        else:
            body["prompt"] = text if rng.random() < 0.7 else [text, words(rng, 5)]
        out.append({"custom_id": "line-%d" % i, "method": "POST",
                    "url": "/v1/chat/completions" if chat else "/v1/completions", "body": body})
    return out


def write(path, rows):
    with open(path, "w", encoding="utf-8") as f:
        for row in rows:
            f.write(json.dumps(row, ensure_ascii=False) + "\n")
    return path


def command(source, output, model, args=(), settings=None):
    cmd = [BIN, "run", source, "-o", output, "-m", model, "--json"]
    for name, value in (settings or {}).items():
        cmd += ["--set", "%s=%s" % (name, value)]
    return cmd + list(args)


def run(source, output, model, args=(), settings=None, failpoint=None, kill_after_s=None, timeout_s=600, stderr=None):
    """(exit code, report); the exit code of a killed run is -9, its report None."""
    env = dict(os.environ)
    env.pop("NIGHTSHIFT_FAILPOINT", None)
    if failpoint:
        env["NIGHTSHIFT_FAILPOINT"] = failpoint
    with open(stderr or os.devnull, "w") as err:
        p = subprocess.Popen(command(source, output, model, args, settings), env=env, stdout=subprocess.PIPE, stderr=err)
        try:
            text = p.communicate(timeout=kill_after_s or timeout_s)[0].decode()
        except subprocess.TimeoutExpired:
            p.send_signal(signal.SIGKILL)
            text = p.communicate()[0].decode()
            assert kill_after_s, "the run hangs"
    return p.returncode, json.loads(text) if text.strip() else None


def done(source, output, model, **kw):
    """A run that must end well; returns its report."""
    code, report = run(source, output, model, **kw)
    assert code == 0, (code, report)
    return report


CACHED = re.compile(r'"cached_tokens": ?\d+')


def answers(path, errors=None):
    """{offset: line} without what may differ between two right runs: how much the cache has saved."""
    out = {}
    for name in filter(None, (path, errors)):
        with open(name, encoding="utf-8", newline="\n") as f:
            for line in f:
                assert line.endswith("\n"), "torn line in " + name
                row = json.loads(line)
                offset = int(row["id"].rsplit("_", 1)[1])
                assert offset not in out, "two answers for line %d" % (offset + 1)
                out[offset] = CACHED.sub('"cached_tokens":0', line)
    return out


def audit(source, path, errors=None):
    """Each non-blank input line has exactly one answer with its custom_id. Returns the answers."""
    got = answers(path, errors)
    with open(source, encoding="utf-8", newline="\n") as f:
        asked = {i: json.loads(line)["custom_id"] for i, line in enumerate(f) if line.strip()}
    assert set(got) == set(asked), ("missing", sorted(set(asked) - set(got))[:5], "orphaned", sorted(set(got) - set(asked))[:5])
    for offset, custom_id in asked.items():
        assert json.loads(got[offset])["custom_id"] == custom_id, offset
    return got


def tokens(got):
    return sum(json.loads(line)["response"]["body"]["usage"]["completion_tokens"] for line in got.values())


def same(got, want, what):
    for offset in want:
        assert got[offset] == want[offset], "%s: line %d differs\n  %s\n  %s" % (what, offset + 1, want[offset], got[offset])


def folder():
    return tempfile.TemporaryDirectory(prefix="nightshift-live-")


def say(text):
    print("%s %s" % (time.strftime("%H:%M:%S"), text), flush=True)
