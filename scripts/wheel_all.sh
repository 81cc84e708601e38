#!/usr/bin/env bash
# Builds one wheel for all supported versions of PyTorch into dist/, tagged with the systems that it runs on.
#   PIP_ARGS   more arguments for pip: an index of CPU-only wheels, a mirror
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { printf 'wheel-all: %s\n' "$*" >&2; exit 1; }

# shellcheck disable=SC2086  # PIP_ARGS is a list of arguments
.venv/bin/python -m pip install --quiet --disable-pip-version-check ${PIP_ARGS:-} --requirement=scripts/requirements-wheel.txt ||
  fail "pip failed; PIP_ARGS can name another index or a mirror"
PLANISH_LIBTORCHS=$(.venv/bin/python scripts/libtorchs.py build/libtorch)
export PLANISH_LIBTORCHS

built=build/wheel-all
rm -rf "$built"
.venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir "$built" . ||
  fail "the build failed: see above"
# PyTorch's libraries are loaded before Planish's, and are not copied into the wheel.
PATH=$PWD/.venv/bin:$PATH .venv/bin/python -m auditwheel repair --only-plat --plat "manylinux_2_28_$(uname -m)" \
  --exclude libtorch_cpu.so --exclude libc10.so --exclude libgomp.so.1 --wheel-dir dist "$built"/*.whl >"$built/log" 2>&1 ||
  fail "auditwheel refused the wheel: $(tail -n 1 "$built/log")"
ls dist/planish-*manylinux*.whl
