#!/bin/sh
# docs/operations.md names every metric there is and no other, with its type and its help; deploy/ asks only for those. Rules and
# configuration are checked by promtool where it is installed.
# usage: metrics_doc.sh ROOT
set -eu
cd "$1"
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
python3 - "$made/want" <<'PY'
import re, sys
defs, code = open("worker/observe/metrics.def").read(), open("worker/observe/metrics.c").read()
TEXT = r'"((?:[^"\\]|\\.)*)"'
rows = [("nightshift_" + n, k.lower(), h) for n, k, h in re.findall(r"^METRIC(?:_REAL)?\((\w+),\s*(\w+),.*?" + TEXT + r"\)$", defs, re.M)]
assert len(rows) == len(re.findall(r"^METRIC", defs, re.M)), "a line of metrics.def cannot be read"
rows += [(n, k.lower(), h) for n, k, h in re.findall(r'head\(p, "(nightshift_\w+)", (\w+), ' + TEXT + r"\)", code)]
rows += [(n, "counter", h) for n, h in re.findall(r'NOTICE_FAMILY\("(nightshift_\w+)", ' + TEXT, code)]
open(sys.argv[1], "w").write("".join("%s %s %s\n" % r for r in sorted(rows)))
PY
sed -n 's/^| `\(nightshift_[a-z0-9_]*\)\({[a-z,]*}\)\{0,1\}` | \([a-z]*\) | \(.*\) |$/\1 \3 \4/p' docs/operations.md | LC_ALL=C sort > "$made/have"
LC_ALL=C sort "$made/want" | diff - "$made/have" || { echo "docs/operations.md: the table of metrics is not what worker/observe has (< is missing, > is not there)"; exit 1; }
for name in $(grep -o 'nightshift_[a-z0-9_]*' deploy/alerts.yml docs/operations.md | cut -d: -f2 | sort -u); do
    grep -q "^$name " "$made/want" || { echo "$name is asked for, and there is no such metric"; exit 1; }
done
if command -v promtool >/dev/null 2>&1; then promtool check config deploy/prometheus.yml; else echo "promtool is not installed: deploy/*.yml are not checked"; fi
