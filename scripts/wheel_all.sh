#!/usr/bin/env bash
# Builds one wheel for all supported versions of PyTorch into dist/, tagged with the systems that it runs on.
#
#   scripts/wheel_all.sh [aarch64]   for ARM64: compiled by GCC's cross compiler
#
#   PIP_ARGS   more arguments for pip: an index of CPU-only wheels, a mirror
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { printf 'wheel-all: %s\n' "$*" >&2; exit 1; }

# shellcheck disable=SC2086  # PIP_ARGS is a list of arguments
.venv/bin/python -m pip install --quiet --disable-pip-version-check ${PIP_ARGS:-} --requirement=scripts/requirements-wheel.txt ||
  fail "pip failed; PIP_ARGS can name another index or a mirror"

machine=$(uname -m)
built=build/wheel-all
platform=manylinux_2_28_$machine
case ${1:-$machine} in
"$machine")
  libtorchs=$(.venv/bin/python scripts/libtorchs.py build/libtorch)
  ;;
aarch64)
  machine=aarch64
  built=build/wheel-arm64
  platform=auto # auditwheel knows the tags of other processors, but takes none as an argument
  libtorchs=$(.venv/bin/python scripts/libtorchs.py build/libtorch-arm64 aarch64)
  # The first is built with, and the others beside it.
  export PLANISH_LIBTORCH=${libtorchs%%;*} CMAKE_TOOLCHAIN_FILE=$PWD/cmake/toolchains/aarch64-linux-gnu.cmake
  export _PYTHON_HOST_PLATFORM=linux-aarch64 # the wheel's tag
  # GCC 12's cross compiler crashes when it reads libtorch's headers precompiled.
  export CMAKE_ARGS="-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON"
  libtorchs=${libtorchs#*;}
  ;;
*) fail "the processor must be $machine or aarch64, got $1" ;;
esac
export PLANISH_LIBTORCHS=$libtorchs

rm -rf "$built"
.venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir "$built" . ||
  fail "the build failed: see above"
# PyTorch's libraries are loaded before Planish's, and are not copied into the wheel.
PATH=$PWD/.venv/bin:$PATH .venv/bin/python -m auditwheel repair --only-plat --plat "$platform" \
  --exclude libtorch_cpu.so --exclude libc10.so --exclude libgomp.so.1 --wheel-dir dist "$built"/*.whl >"$built/log" 2>&1 ||
  fail "auditwheel refused the wheel: $(tail -n 1 "$built/log")"
wheel=$(sed -n 's/^Fixed-up wheel written to //p' "$built/log")
[[ $wheel =~ manylinux_2_(1[0-9]|2[0-8])_$machine ]] || fail "the wheel must need glibc 2.28 or older, got $wheel"
printf '%s\n' "$wheel"
