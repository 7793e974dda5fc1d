#!/bin/sh
# docs/lines.md names every field of a body and every code of a verdict. usage: lines_doc.sh REPOSITORY
set -u
cd "${1:?usage: lines_doc.sh REPOSITORY}" || exit 2
bad=0
fields=$(sed -n 's/^    { "\([a-z_]*\)", ON_.*/\1/p' worker/lines/params.c)
codes=$(sed -n 's/^LINES_VERDICT([A-Z_0-9]*, *[0-9]*, *"\([a-z_0-9]*\)".*/\1/p' worker/lines/verdicts.def)
[ "$(echo "$fields" | wc -l)" -gt 60 ] && [ "$(echo "$codes" | wc -l)" -gt 20 ] || { echo "the tables are not where they were"; exit 1; }
for name in $fields $codes; do
    grep -q "\`$name\`" docs/lines.md || { echo "docs/lines.md does not name $name"; bad=1; }
done
exit $bad
