#!/usr/bin/env bash
# Builds the readers of files with clang, libFuzzer and the address and undefined-behaviour sanitizers, and gives each
# of them damaged files (docs/reliability.md#damaged-files).
#   fuzz.sh [SECONDS [READER...]]   30 seconds each by default; readers are the folders of tests/readers/seeds
#   fuzz.sh compiler                prints the clang that it uses
# Files that libFuzzer finds to reach new code stay in build/fuzz/corpus, for the next time.
# Debian packages: clang-19 libclang-rt-19-dev libomp-19-dev, or those of another version from 16.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { printf 'fuzz: %s\n' "$*" >&2; exit 1; }

compiler=
for version in {21..16}; do
  if echo 'int main() {}' | "clang++-$version" -fsanitize=address,undefined -fopenmp -x c++ - -o /dev/null 2>/dev/null; then
    compiler=clang++-$version
    break
  fi
done
[[ $compiler ]] || fail "no clang with sanitizers and OpenMP was found: install clang-19 libclang-rt-19-dev libomp-19-dev"
if [[ ${1:-} == compiler ]]; then echo "$compiler"; exit; fi

seconds=${1:-30}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || fail "the seconds must be a positive integer, got $seconds"
seeds=tests/readers/seeds
mapfile -t readers < <(if (($# > 1)); then printf '%s\n' "${@:2}"; else ls $seeds; fi)
for reader in "${readers[@]}"; do
  [[ -d $seeds/$reader ]] || fail "the reader must be one of $(ls $seeds | tr '\n' ' '), got $reader"
done

build=build/fuzz
cmake -S . -B $build -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_BUILD_TYPE=Release -DPLANISH_FUZZ=ON \
  -DPLANISH_TARGETS=SCALAR -DPLANISH_LAB_TESTS=OFF ${CMAKE_PREFIX_PATH:+"-DCMAKE_PREFIX_PATH=$CMAKE_PREFIX_PATH"} \
  -DCMAKE_CXX_FLAGS='-fsanitize=undefined -fno-sanitize-recover=all -fno-omit-frame-pointer' >/dev/null
cmake --build $build --target planish_fuzz

# fuzz READER: leaves the output in a log. A file that makes the reader fail is written to build/fuzz/failures.
fuzz() {
  mkdir -p "$build/corpus/$1" $build/failures
  PLANISH_READER=$1 OMP_NUM_THREADS=1 $build/tests/readers/planish_fuzz -max_total_time="$seconds" -timeout=10 \
    -rss_limit_mb=2048 -malloc_limit_mb=1024 -print_final_stats=1 -artifact_prefix="$build/failures/$1-" \
    "$build/corpus/$1" "$seeds/$1" >"$build/$1.log" 2>&1
}
export -f fuzz
export build seconds seeds
status=0
printf '%s\n' "${readers[@]}" | xargs -P "$(nproc)" -I{} bash -c 'fuzz {}' || status=1

printf '%-18s %12s %10s %8s\n' reader executions coverage files
for reader in "${readers[@]}"; do
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$reader.log")
  coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$build/$reader.log" | tail -n 1)
  printf '%-18s %12s %10s %8s\n' "$reader" "${executions:-failed}" "${coverage:-}" "$(find "$build/corpus/$reader" -type f | wc -l)"
done
((status == 0)) || fail "a reader failed: see $build/READER.log, and the files in $build/failures"
printf 'fuzz: %s readers, %s seconds each, nothing found\n' "${#readers[@]}" "$seconds"
