#!/usr/bin/env bash
# Builds the core with each installed compiler and C++ standard library, warnings as errors, and runs its tests.
# Compilers are gcc 12 to 15 and clang 14 to 21, with libstdc++ and libc++. The tests do not compile with libc++ 14.
#   compilers.sh [CONFIGURATION...]   such as clang-19-libc++; all by default
#   TARGETS=native   compiles only the best SIMD target of this processor and SCALAR, in half of the time
# Debian packages: clang-19; libc++-19-dev libc++abi-19-dev; googletest (its sources, built with libc++).
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { printf 'compilers: %s\n' "$*" >&2; exit 1; }

# Succeeds if the compiler compiles and links a program with the flags.
works() {
  printf '#include <vector>\nint main() { return static_cast<int>(std::vector<int>(1).front()); }\n' |
    "$@" -std=c++20 -x c++ - -o /dev/null 2>/dev/null
}

known=()
for version in 12 13 14 15; do
  if works "g++-$version"; then known+=("gcc-$version"); fi
done
for version in {14..21}; do
  if works "clang++-$version"; then known+=("clang-$version"); fi
  if works "clang++-$version" -stdlib=libc++; then known+=("clang-$version-libc++"); fi
done
((${#known[@]})) || fail "no g++-N or clang++-N was found: install g++-12 or clang-19"

for name in "${@:-${known[@]}}"; do
  [[ " ${known[*]} " == *" $name "* ]] || fail "the configuration must be one of ${known[*]}, got $name"
  IFS=- read -r compiler version library <<<"$name"
  options=(-DPLANISH_TORCH=OFF -DPLANISH_LAB=OFF -DPLANISH_WERROR=ON -DCMAKE_BUILD_TYPE=Release
    "-DPLANISH_TARGETS=${TARGETS:-all}")
  case $compiler in
    gcc) options+=("-DCMAKE_CXX_COMPILER=g++-$version") ;;
    clang) options+=("-DCMAKE_CXX_COMPILER=clang++-$version") ;;
  esac
  tests=ON
  if [[ $library == libc++ ]]; then
    ((version > 14)) || tests=OFF
    [[ $tests == OFF || -e /usr/src/googletest/CMakeLists.txt ]] || fail "GoogleTest must be built with libc++: install googletest, its sources"
    options+=(-DCMAKE_CXX_FLAGS=-stdlib=libc++ -DPLANISH_GTEST_SOURCE=/usr/src/googletest)
  fi
  printf '== %s\n' "$name"
  cmake -S . -B "build/$name" -G Ninja "${options[@]}" "-DPLANISH_TESTS=$tests" >/dev/null
  cmake --build "build/$name"
  [[ $tests == OFF ]] || OMP_NUM_THREADS=1 ctest --test-dir "build/$name" --output-on-failure -j2
done
