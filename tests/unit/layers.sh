#!/bin/sh
# Includes point down, never sideways (docs/architecture.md). Also: getenv has one home, a foreign library has one home,
# public headers hold no foreign types, files stay under 800 lines.
# usage: layers.sh REPOSITORY        exit 1 and one line a breach
set -u
cd "${1:?usage: layers.sh REPOSITORY}" || exit 2
LC_ALL=C
export LC_ALL

find base kernels queue checkpoint worker tools tests -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort |
xargs awk '
function breach(text) { printf "%s:%d: %s\n", FILENAME, FNR, text; bad = 1 }
function part(path) { split(path, p, "/"); return p[1] }
BEGIN {
    level["base"] = 0; level["kernels"] = level["queue"] = level["checkpoint"] = 1
    level["worker"] = 2; level["tools"] = level["tests"] = 3
    # a folder of worker may include itself and the folders named here
    n = split("text: | lines: text | model: text | cache: | plan: lines text | engine: cache plan lines model text | " \
              "observe: pipeline engine cache | pipeline: engine lines model text cache plan | preempt: pipeline", rows, "|")
    for (i = 1; i <= n; i++) {
        gsub(/^ +| +$/, "", rows[i]); split(rows[i], row, ":"); m = split(row[2], names, " ")
        known[row[1]] = 1
        for (j = 1; j <= m; j++) below[row[1], names[j]] = 1
    }
    home["jansson.h"] = "worker/lines/|worker/model/|worker/preempt/|tests/|tools/"
    home["sqlite3.h"] = "checkpoint/sqlite"; home["msgpack.h"] = "checkpoint/frames"
    home["hiredis/"] = "checkpoint/redis|tests/"; home["openssl/"] = "checkpoint/redis_tls"; home["librdkafka/"] = "queue/kafka|tests/unit/test_kafka_errors"
    home["utf8proc.h"] = "worker/text/"
    home["xxhash.h"] = "base/hash"; home["ini.h"] = "base/config"; home["cmocka.h"] = "tests/"
    home["cuda"] = home["cublas"] = "kernels/cuda/"; home["omp.h"] = "kernels/cpu/"; home["curl/"] = "worker/preempt/"; home["microhttpd.h"] = "worker/observe/"
}
FNR == 1 { own = part(FILENAME); split(FILENAME, path, "/"); sub_own = own == "worker" && path[3] != "" ? path[2] : ""
           if (own == "worker" && sub_own != "" && !(sub_own in known)) breach("folder worker/" sub_own " has no row in this test") }
FNR == 801 { breach("more than 800 lines: split the file") }
/getenv *\(/ && FILENAME != "base/config.c" && own != "tests" { breach("getenv belongs in base/config.c") }
/^[ \t]*#[ \t]*include[ \t]*"/ {
    split($0, q, "\""); inc = q[2]; to = part(inc)
    if (!(to in level)) { breach("\"" inc "\" does not start at the root"); next }
    if (level[to] > level[own]) breach(own " includes " to ": points up")
    if (level[to] == level[own] && to != own && !(own == "tests" && to == "tools")) breach(own " includes " to ": points sideways")
    if (level[own] == 3 && FILENAME ~ /\.h$/ ) next
    if (own == "worker" && to == "worker") {
        split(inc, ip, "/"); sub_to = ip[3] != "" ? ip[2] : ""
        if (sub_own != "" && sub_to != "" && sub_to != sub_own && !((sub_own, sub_to) in below))
            breach("worker/" sub_own " includes worker/" sub_to)
    }
    if (level[to] == 1 && level[own] == 2 && inc !~ /^(kernels\/(kernels|comm|philox)|queue\/(queue|tracker)|checkpoint\/checkpoint)\.h$/)
        breach("\"" inc "\" is private to " to)
}
/^[ \t]*#[ \t]*include[ \t]*</ {
    split($0, q, /[<>]/); inc = q[2]
    for (lib in home)
        if (index(inc, lib) == 1) {
            ok = 0; m = split(home[lib], homes, "|")
            for (j = 1; j <= m; j++) if (index(FILENAME, homes[j]) == 1) ok = 1
            if (!ok) breach("<" inc "> has its home in " home[lib])
            if (FILENAME ~ /\.h$/ && own != "tests" && FILENAME !~ /(internal|private)\.h$|^kernels\/cuda\//) breach("<" inc "> in a header")
        }
}
END { exit bad }
'
