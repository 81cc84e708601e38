#!/usr/bin/env bash
# Installs the missing libraries that bench/norm and bench/rnn compare with: Google Benchmark from the
# system's packages, the others in .venv. scripts/setup.sh must have run. The comparison leaves out
# libraries that cannot be installed.
#   PIP_ARGS  more arguments for pip
set -uo pipefail
cd "$(dirname "$0")/../.."

say() { printf 'bench: %s\n' "$*"; }

package=libbenchmark-dev
if command -v dpkg-query >/dev/null &&
  ! dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -q '^installed$'; then
  as_root=()
  [[ $(id -u) == 0 ]] || as_root=(sudo)
  say "installing $package"
  "${as_root[@]}" apt-get update -qq && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -qq -y --no-install-recommends "$package" >/dev/null ||
    say "$package could not be installed: there will be no comparison"
fi

while read -r requirement; do
  stamp=.venv/bench-${requirement//[^A-Za-z0-9.]/-}
  [[ -e $stamp ]] && continue
  say "installing $requirement into .venv"
  # shellcheck disable=SC2086  # PIP_ARGS is a list of arguments
  if .venv/bin/python -m pip install --quiet --disable-pip-version-check ${PIP_ARGS:-} "$requirement"; then
    touch "$stamp"
  else
    say "$requirement could not be installed: it will be left out"
  fi
done < <(grep -v '^#' bench/base/requirements.txt)
