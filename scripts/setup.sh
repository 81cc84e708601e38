#!/usr/bin/env bash
# Installs missing packages for building and testing: system packages, and Python packages in .venv, with PyTorch.
#   setup.sh               all of these
#   setup.sh build         without packages that only tests need
#   setup.sh core          also without PyTorch and .venv
#   setup.sh docs          packages for the documentation site, in .venv-docs
#   setup.sh arm64         packages that compile and run the core for ARM64
#   setup.sh fuzz          packages that fuzz the readers of files
#   setup.sh integrations  libraries for reinforcement learning, with PyTorch, in build/integrations
#   setup.sh version 2.11  packages for tests with PyTorch 2.11, in build/pytorch-2.11
#   PIP_ARGS               more arguments for pip: an index of CPU-only wheels, a mirror
#   CMAKE_PREFIX_PATH      a libtorch to use; PyTorch is then not installed
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# install_packages LIST...: installs the packages of Debian or Ubuntu in the lists.
install_packages() {
  local packages missing=() as_root=()
  mapfile -t packages < <(grep -hv '^#' "$@")
  if ! command -v dpkg-query >/dev/null; then
    say "not Debian or Ubuntu: make sure that the equivalents of these are there: ${packages[*]}"
    return
  fi
  for package in "${packages[@]}"; do
    dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -q '^installed$' || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null ||
      fail "these packages are missing and need root or sudo to install: ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${missing[*]}"
  "${as_root[@]}" apt-get update -qq || fail "apt-get update failed; these packages are missing: ${missing[*]}"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
    "${missing[@]}" >/dev/null || fail "these packages could not be installed: ${missing[*]}"
}

# install_python FOLDER LIST [COMMAND...]: installs the Python packages in the list into a virtual environment. COMMAND,
# run with its Python, prints further requirements.
install_python() {
  local folder=$1 list=$2 stamp stamps more=()
  stamps=$folder/$(basename "$list" .txt)
  stamp=$stamps-$(sha256sum <"$list" | cut -c1-16)
  [[ ! -e $stamp ]] || return 0
  [[ -x $folder/bin/python ]] || python3 -m venv "$folder" ||
    fail "python3 must be able to make a virtual environment (Debian: python3-venv)"
  say "installing the Python packages of $list into $folder"
  if (($# > 2)); then mapfile -t more < <("$folder/bin/python" "${@:3}"); fi
  # Python compiles modules at their first import; pip would compile all of them.
  # shellcheck disable=SC2086  # PIP_ARGS is a list of arguments
  "$folder/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check ${PIP_ARGS:-} --requirement="$list" \
    "${more[@]}" ||
    fail "pip failed; PIP_ARGS can name another index or a mirror"
  rm -f "$stamps"-*
  touch "$stamp"
}

install_build() {
  install_packages scripts/packages-core.txt scripts/packages.txt
  if [[ -z ${CMAKE_PREFIX_PATH:-} ]]; then
    install_python .venv scripts/requirements-build.txt scripts/newest_torch.py
  fi
}

case ${1:-all} in
  core)
    install_packages scripts/packages-core.txt
    ;;
  arm64)
    install_packages scripts/packages-core.txt scripts/packages-arm64.txt
    ;;
  fuzz)
    install_build
    scripts/fuzz.sh compiler >/dev/null 2>&1 || install_packages scripts/packages-fuzz.txt
    ;;
  build)
    install_build
    ;;
  all)
    install_build
    install_python .venv scripts/requirements-test.txt
    ;;
  version)
    [[ ${2:-} =~ ^2\.[0-9]+$ ]] || fail "a version of PyTorch such as 2.11 must follow, got ${2:-nothing}"
    install_python "build/pytorch-$2" scripts/requirements-test.txt scripts/newest_torch.py "${2#2.}"
    ;;
  integrations)
    install_python build/integrations scripts/requirements-integrations.txt scripts/newest_torch.py
    ;;
  notebook)
    install_python build/notebook scripts/requirements-notebook.txt
    ;;
  docs)
    install_packages scripts/packages-docs.txt
    install_python .venv-docs scripts/requirements-docs.txt
    ;;
  *)
    fail "the argument must be core, arm64, build, docs, fuzz, integrations, notebook, version or all, got $1"
    ;;
esac
