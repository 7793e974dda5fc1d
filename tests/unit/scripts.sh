#!/bin/sh
# Every script can be read to its end: one that a merge has cut off fails here and not at its first user.
# usage: scripts.sh ROOT
set -u
cd "$1" || exit 1
failed=0
checked=0

# kind_of FILE: by its name, or where that tells nothing by its first line.
kind_of() {
    case $1 in
    *.py) echo python; return ;;
    *.sh) echo sh; return ;;
    esac
    case $(head -n 1 "$1" | tr -d '\0') in
    '#!'*python3*) echo python ;;
    '#!'*bash*) echo bash ;;
    '#!'*sh*) echo sh ;;
    esac
}

for file in $(find tools tests .ci -type f); do
    kind=$(kind_of "$file")
    case $kind in
    python) python3 -c 'import ast, sys; ast.parse(open(sys.argv[1], "rb").read(), sys.argv[1])' "$file" || failed=1 ;;
    sh | bash) "$kind" -n "$file" || failed=1 ;;
    *) continue ;;
    esac
    checked=$((checked + 1))
done
[ "$checked" -ge 20 ] || { echo "only $checked scripts were found"; failed=1; }
exit $failed
