#!/bin/sh
# docs/settings.md is what the program says of its settings.
# usage: settings.sh NIGHTSHIFT DOCS_FILE
set -eu
made=$(mktemp)
trap 'rm -f "$made"' EXIT
sed -n '1,/^$/p;/^Made by/,/^$/p' "$2" > "$made"
"$1" config --markdown >> "$made"
diff "$2" "$made" || { echo "docs/settings.md is out of date: keep its first lines and put the output of 'nightshift config --markdown' behind them"; exit 1; }
