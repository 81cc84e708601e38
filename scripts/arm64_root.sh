#!/usr/bin/env bash
# Unpacks Highway and GoogleTest for ARM64 into build/arm64-root, where the toolchain file looks for them. Uses a
# package list of its own in build/arm64-apt: the system gets no foreign architecture and no package.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { printf 'arm64_root: %s\n' "$*" >&2; exit 1; }

# On Debian and Ubuntu setup.sh has installed both.
command -v aarch64-linux-gnu-g++ >/dev/null || fail "aarch64-linux-gnu-g++ is missing: install GCC for ARM64"
command -v qemu-aarch64 >/dev/null || command -v qemu-aarch64-static >/dev/null ||
  fail "qemu-aarch64 is missing: install QEMU's user mode, which runs the tests"

root=build/arm64-root
[[ ! -e $root/complete ]] || exit 0
for tool in apt-get apt-cache dpkg-deb; do
  command -v "$tool" >/dev/null ||
    fail "$tool is missing: on systems other than Debian and Ubuntu, install Highway and GoogleTest for ARM64 into $root and create $root/complete"
done

apt=$PWD/build/arm64-apt
rm -rf "$root" "$apt"
mkdir -p "$apt"/{lists,archives}/partial "$apt/packages"
: >"$apt/status"
options=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root
  -o Dir::State::lists="$apt/lists" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt")
# Ubuntu has the packages of other architectures on another server.
system=$(. /etc/os-release && echo "$ID $VERSION_CODENAME")
if [[ $system == ubuntu\ * && $(dpkg --print-architecture) != arm64 ]]; then
  printf 'deb [signed-by=/usr/share/keyrings/ubuntu-archive-keyring.gpg] %s %s main universe\n' \
    http://ports.ubuntu.com/ubuntu-ports "${system#ubuntu }" >"$apt/sources.list"
  options+=(-o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=-)
fi

advice="check the network and the sources in /etc/apt"
apt-get "${options[@]}" update || fail "the list of ARM64 packages could not be fetched: $advice"
# The library's package has its ABI in its name.
library=$(apt-cache "${options[@]}" depends --important libhwy-dev | sed -n 's/^ *Depends: \(libhwy[^ :]*\).*/\1/p')
(cd "$apt/packages" && apt-get "${options[@]}" download libhwy-dev $library libgtest-dev libgmock-dev) ||
  fail "Highway and GoogleTest for ARM64 could not be fetched: $advice"
for package in "$apt"/packages/*.deb; do dpkg-deb -x "$package" "$root"; done
rm -rf "$apt"
touch "$root/complete"
