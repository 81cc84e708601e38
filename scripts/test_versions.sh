#!/usr/bin/env bash
# Runs the Python tests with other versions of PyTorch than that of .venv, on one package with a binding to each.
#   VERSIONS   such as "2.11 2.12". By default the oldest and the newest supported version, if pip finds a CPU build.
#   PIP_ARGS   more arguments for pip: an index of CPU-only wheels, a mirror
set -euo pipefail
cd "$(dirname "$0")/.."

python=.venv/bin/python
versions=()
for version in ${VERSIONS:-$("$python" -c 'import sys; sys.path.insert(0, "scripts"); import torch_requirement as t
print(f"2.{t.MIN_MINOR} 2.{t.MAX_MINOR}")')}; do
  if [[ -z ${VERSIONS:-} && ! -e build/pytorch-$version && $("$python" scripts/newest_torch.py "${version#2.}") != *+cpu ]]; then
    echo "left out: PyTorch $version, of which pip finds no CPU build (VERSIONS=$version takes any)"
  else
    versions+=("$version")
  fi
done
((${#versions[@]})) || exit 0

libtorchs=()
for version in "${versions[@]}"; do
  scripts/setup.sh version "$version"
  libtorchs+=("$("build/pytorch-$version/bin/python" -c 'import importlib.util as u, pathlib as p
print(p.Path(u.find_spec("torch").origin).parent)')")
done
build=build/versions
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPLANISH_TARGETS=native -DPLANISH_LAB=OFF -DPLANISH_TESTS=OFF \
  -DPLANISH_EXAMPLES=OFF "-DPLANISH_LIBTORCHS=$(IFS=';'; echo "${libtorchs[*]}")" >/dev/null
cmake --build "$build" --target planish_python
rm -rf "$build/python"
cmake --install "$build" --component python --prefix "$build/python" >/dev/null
for version in "${versions[@]}"; do
  printf '== PyTorch %s\n' "$version"
  OMP_NUM_THREADS=1 PYTHONPATH=$PWD/$build/python "build/pytorch-$version/bin/python" -m pytest -n auto -m "not wheel" torch/python/tests
done
