# Sourced by tools/test.sh and tools/demo.sh: brings a bare Debian or Ubuntu machine to what the build needs.
# Functions: say, fail, need_packages PACKAGE..., need_nvjitlink, need_nvrtc, need_torch, build PRESET [cmake arguments].

say() { if [ -t 1 ]; then printf '\033[1m== %s\033[0m\n' "$*"; else printf '== %s\n' "$*"; fi; }
fail() { printf 'error: %s\n' "$*" >&2; exit 3; }

# Install the Debian packages that are missing.
need_packages() {
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    say "Installing ${missing[*]}"
    local sudo=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || fail "needs the packages ${missing[*]}: install them as root"
        sudo=(sudo)
    fi
    ${sudo[@]+"${sudo[@]}"} apt-get update -qq || fail "apt-get update failed"
    ${sudo[@]+"${sudo[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        "${missing[@]}" >/dev/null || fail "apt-get could not install ${missing[*]}"
}

# The path of LIBRARY in an unpacked wheel, or nothing.
in_wheels() { find "$wheels" -path '*/nvidia/*/lib/*' -name "$1.so.[0-9]*" 2>/dev/null | sort -V | tail -1; }

# need_library LIBRARY WHEEL VARIABLE: one of NVIDIA's libraries from a CUDA toolkit, else from its wheel, which is
# unpacked under build/wheels and named to Kiln by VARIABLE; nothing is installed system-wide. 1 if it cannot be had;
# under CI=true that is an error.
need_library() {
    local library=$1 wheel=$2 variable=$3 wheels=$PWD/build/wheels path
    [ -n "${!variable:-}" ] && return 0
    # Not by a pipe into grep -q, whose early end would be a failure of the pipe; and ldconfig is not in every user's PATH.
    [[ $(PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null) == *"$library.so"* ]] && return 0
    compgen -G "/usr/local/cuda*/lib64/$library.so*" >/dev/null && return 0
    path=$(in_wheels "$library")
    if [ -z "$path" ]; then
        say "No CUDA toolkit: fetching the wheel $wheel"
        need_packages python3 python3-pip
        mkdir -p "$wheels"
        PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --no-deps --target "$wheels/$wheel" "$wheel" || true
        path=$(in_wheels "$library")
    fi
    if [ -z "$path" ]; then
        [ "${CI:-}" != true ] || fail "$library is not there and its wheel $wheel cannot be fetched"
        return 1
    fi
    export "$variable=$path"
}

need_nvjitlink() { need_library libnvJitLink nvidia-nvjitlink KILN_LIBNVJITLINK; }
need_nvrtc() {
    need_library libnvrtc nvidia-cuda-nvrtc KILN_LIBNVRTC || return 1
    # It opens a second library of its folder, which it would not find in a program with sanitizers.
    [ -z "${KILN_LIBNVRTC:-}" ] || export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${KILN_LIBNVRTC%/*}
}

# PyTorch, with which the examples compare: the distribution's package. 1 where it has none.
need_torch() { (need_packages python3-torch); }

# build PRESET [cmake arguments]: configure and build. On a terminal with progress, else silent unless it fails.
build() {
    local preset=$1 log=build/$1.log
    shift
    say "Building ($preset)"
    mkdir -p build
    if [ -t 1 ]; then
        cmake --preset "$preset" "$@" >/dev/null && cmake --build --preset "$preset" -j "$(nproc)"
        return
    fi
    { cmake --preset "$preset" "$@" && cmake --build --preset "$preset" -j "$(nproc)"; } >"$log" 2>&1 ||
        { tail -n 60 "$log" >&2; fail "the build failed: see $log"; }
}

BUILD_PACKAGES=(gcc libc6-dev cmake ninja-build pkg-config check libffi-dev libxxhash-dev libzstd-dev libjansson-dev libdlpack-dev)
TEST_PACKAGES=(g++ clang-format-14 python3-numpy python3-pip rustc golang-go)
ALL_PACKAGES=(clang libclang-rt-dev clang-tidy-14)
