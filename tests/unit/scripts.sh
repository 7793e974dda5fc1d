#!/bin/sh
# Every script can be read to its end: one that a merge has cut off fails here and not at its first user.
# usage: scripts.sh ROOT
set -u
cd "$1" || exit 1
failed=0
checked=0
for file in $(find tools tests .ci -type f); do
    case $file:$(head -n 1 "$file" | tr -d '\0') in
    *.py:* | *:'#!'*python3*)
        python3 -c 'import ast, sys; ast.parse(open(sys.argv[1], "rb").read(), sys.argv[1])' "$file" || failed=1 ;;
    *.sh:* | *:'#!/bin/sh'*) sh -n "$file" || failed=1 ;;
    *:'#!'*bash*) bash -n "$file" || failed=1 ;;
    *) continue ;;
    esac
    checked=$((checked + 1))
done
[ "$checked" -ge 20 ] || { echo "only $checked scripts were found"; failed=1; }
exit $failed
