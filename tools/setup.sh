# Sourced by tools/test.sh and tools/demo.sh: brings a bare Debian or Ubuntu machine to what the build needs.
# Functions: need_packages PACKAGE..., need_nvjitlink.

say() { printf '\033[1m== %s\033[0m\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 3; }

# Install the Debian packages that are missing.
need_packages() {
    local missing=()
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    say "Installing ${missing[*]}"
    local sudo=""
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || fail "needs the packages ${missing[*]}: install them as root"
        sudo=sudo
    fi
    $sudo apt-get update -qq || fail "apt-get update failed"
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
        fail "apt-get could not install ${missing[*]}"
}

# True if an nvJitLink can be found where the library looks for one.
have_nvjitlink() {
    ldconfig -p 2>/dev/null | grep -q 'libnvJitLink\.so' && return 0
    compgen -G '/usr/local/cuda*/lib64/libnvJitLink.so*' >/dev/null && return 0
    compgen -G "$KILN_WHEELS/nvidia/*/lib/libnvJitLink.so*" >/dev/null
}

# nvJitLink from a CUDA toolkit, else from its wheel (unpacked under build/wheels, nothing is installed system-wide).
need_nvjitlink() {
    KILN_WHEELS=$PWD/build/wheels
    if ! have_nvjitlink; then
        say "No CUDA toolkit: fetching the wheel nvidia-nvjitlink"
        need_packages python3 python3-pip
        mkdir -p "$KILN_WHEELS"
        python3 -m pip install --quiet --no-deps --target "$KILN_WHEELS" nvidia-nvjitlink ||
            { [ -z "${CI:-}" ] || fail "nvJitLink is not there and its wheel cannot be fetched"; return 1; }
    fi
    local wheel
    wheel=$(compgen -G "$KILN_WHEELS/nvidia/*/lib/libnvJitLink.so*" | head -1)
    if [ -n "$wheel" ] && [ -z "${KILN_LIBNVJITLINK:-}" ]; then export KILN_LIBNVJITLINK=$wheel; fi
    return 0
}

BUILD_PACKAGES=(gcc libc6-dev cmake ninja-build pkg-config check libffi-dev libxxhash-dev libzstd-dev libjansson-dev libdlpack-dev)
TEST_PACKAGES=(g++ clang-format clang-tidy python3-numpy rustc golang-go file)
