#!/usr/bin/env bash
# Installs what building and testing needs and is not there: system packages by name, and Python
# packages, PyTorch among them, in .venv. Quick when nothing is missing. "setup.sh core" installs what the
# core needs: no PyTorch, no .venv. "setup.sh arm64" also installs what compiles and runs the core for ARM64.
#   PIP_ARGS           more arguments for pip: an index of CPU-only wheels, a mirror
#   CMAKE_PREFIX_PATH  a libtorch of one's own: PyTorch is then not installed
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

part=${1:-all}
lists=(scripts/packages-core.txt)
case $part in
  core) ;;
  arm64) lists+=(scripts/packages-arm64.txt) ;;
  all) lists+=(scripts/packages.txt) ;;
  *) fail "the argument must be core, arm64 or all, got $part" ;;
esac
mapfile -t packages < <(grep -hv '^#' "${lists[@]}")
if command -v dpkg-query >/dev/null; then
  missing=()
  for package in "${packages[@]}"; do
    dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -q '^installed$' || missing+=("$package")
  done
  if ((${#missing[@]})); then
    as_root=()
    if [[ $(id -u) != 0 ]]; then
      command -v sudo >/dev/null ||
        fail "these packages are missing and need root or sudo to install: ${missing[*]}"
      as_root=(sudo)
    fi
    say "installing ${missing[*]}"
    "${as_root[@]}" apt-get update -qq || fail "apt-get update failed; these packages are missing: ${missing[*]}"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
      "${missing[@]}" >/dev/null || fail "these packages could not be installed: ${missing[*]}"
  fi
else
  say "not Debian or Ubuntu: make sure that the equivalents of these are there: ${packages[*]}"
fi

[[ $part == all ]] || exit 0
files=(scripts/requirements-test.txt)
[[ -n ${CMAKE_PREFIX_PATH:-} ]] || files+=(scripts/requirements.txt)
stamp=.venv/installed-$(cat "${files[@]}" | sha256sum | cut -c1-16)
if [[ ! -e $stamp ]]; then
  [[ -x .venv/bin/python ]] || python3 -m venv .venv ||
    fail "python3 must be able to make a virtual environment (Debian: python3-venv)"
  say "installing Python packages into .venv"
  # shellcheck disable=SC2086  # PIP_ARGS is a list of arguments
  .venv/bin/python -m pip install --quiet --disable-pip-version-check ${PIP_ARGS:-} "${files[@]/#/--requirement=}" ||
    fail "pip failed; PIP_ARGS can name another index or a mirror"
  rm -f .venv/installed-*
  touch "$stamp"
fi
