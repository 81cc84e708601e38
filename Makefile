# make demo    installs missing packages, builds, trains on drawn digits, writes a report; then builds planish-models
# make test    installs missing packages, builds, runs the tests
# make help    lists all targets
SHELL := /bin/bash
PREFIX ?= /usr/local
DEMO ?= runs/demo
BUILD := build/release
CONFIGURE := $(if $(CMAKE_PREFIX_PATH),-DCMAKE_PREFIX_PATH=$(CMAKE_PREFIX_PATH))
PYTHON := $(if $(wildcard .venv/bin/python),.venv/bin/python,python3)
export CMAKE_PREFIX_PATH PIP_ARGS

MAKEFLAGS += --no-print-directory
.NOTPARALLEL:  # what it calls uses all cores
.DELETE_ON_ERROR:

.PHONY: help setup setup-core setup-build setup-fuzz setup-arm64 setup-integrations setup-notebook test-arm test-arm-short build demo test test-all test-long test-versions test-integrations test-notebook torture fuzz python wheel wheel-all wheel-arm64 deb dev asan tsan core install uninstall accuracy bench-norm bench-rnn bench-torch bench-lab cuda kernels test-cuda sanitize-cuda bench-cuda docs format tidy clean

help:
	@echo 'make demo              install what is missing, build, train on drawn digits, write a report'
	@echo 'make test              install what is missing, build, run the tests, with kernels for this processor'
	@echo 'make test-all          also what takes long: kernels of every SIMD target, emulated GPU, installations, bits'
	@echo 'make test-versions     Python tests with the oldest and newest PyTorch (VERSIONS="2.11 2.12": with those)'
	@echo 'make test-integrations Python modules with sb3-contrib, TorchRL, rsl_rl, xlstm, which go into build/integrations'
	@echo 'make torture           kill training runs 1,000 times (KILLS=N, SEED=N), let each system call fail, fill a disk'
	@echo 'make build             build everything into $(BUILD)'
	@echo 'make install           install the command, the libraries and headers (PREFIX=$(PREFIX))'
	@echo 'make uninstall         remove them again'
	@echo 'make wheel             build the Python package into dist/'
	@echo 'make wheel-all         one wheel for PyTorch 2.11 to 2.15, which it downloads (gigabytes)'
	@echo 'make wheel-arm64       the same wheel for ARM64, by a cross compiler'
	@echo 'make deb               a Debian package of the core, libplanish-dev, in dist/'
	@echo 'make fuzz              damaged files for each reader, by libFuzzer and sanitizers (FUZZ_SECONDS=30 each)'
	@echo 'make python            the same for PYTHONPATH=$(BUILD)/python, from the build that is there'
	@echo 'make core              build and test the core alone, without PyTorch'
	@echo 'make test-arm          build the core for ARM64 and run its tests in QEMU, which takes hours'
	@echo 'make test-arm-short    the same without the longest tests: ten minutes'
	@echo 'make dev               build with warnings as errors, each file by itself, into build/dev'
	@echo 'make asan              build and test under the address and undefined-behaviour sanitizers'
	@echo 'make tsan              build and test the core'"'"'s threads under the thread sanitizer'
	@echo 'make test-notebook     executes examples/lab.ipynb, with Jupyter in build/notebook'
	@echo 'make accuracy          measure errors, also of what else is installed, into docs/accuracy.md'
	@echo 'make bench-norm        norms against copies, PyTorch, oneDNN ...; writes docs/performance.md'
	@echo '                       (eight minutes when idle; BENCH_ARGS=--quick: one; BENCH_ARGS=--help)'
	@echo 'make bench-rnn         recurrent layers against PyTorch, oneDNN ...; writes docs/performance.md'
	@echo '                       (ten minutes when idle; BENCH_ARGS=--quick: one; BENCH_ARGS=--help)'
	@echo 'make bench-torch       norms from Python against torch.nn, eager and compiled; writes docs/performance.md'
	@echo 'make bench-lab         training speed of the lab'"'"'s tasks against PyTorch; writes docs/performance.md'
	@echo 'make kernels           compile the kernels for GPUs with nvcc, which needs no GPU: three minutes'
	@echo 'make test-cuda         build and test what runs on a GPU, on a machine with one (installs nothing)'
	@echo 'make sanitize-cuda     the tests of kernels under compute-sanitizer, which takes long'
	@echo 'make bench-cuda        norms and recurrent layers on a GPU against a copy, PyTorch ...'
	@echo 'make docs              build the documentation site in build-docs/site (installs MkDocs into .venv-docs)'
	@echo 'make format            format the sources;   make tidy  run clang-tidy'
	@echo 'variables              PIP_ARGS, CMAKE_PREFIX_PATH, PREFIX, PLANISH_DATA, BENCH_ARGS, TORTURE_ARGS, FUZZ_SECONDS'

setup:
	@scripts/setup.sh

setup-core setup-build setup-fuzz setup-integrations setup-notebook: setup-%:
	@scripts/setup.sh $*

setup-arm64:
	@scripts/setup.sh arm64
	@scripts/arm64_root.sh

# Configures a preset once; ninja re-runs CMake itself where a list changes.
build/%/build.ninja: | setup-build
	cmake --preset $* $(CONFIGURE) >/dev/null

# The core is compiled while PyTorch, which it does not need, is installed.
SETUP := build
test test-long: SETUP := all
build/release/build.ninja: | setup-core
	@scripts/setup.sh $(SETUP) & setup=$$!; \
	cmake --preset release -DPLANISH_TORCH=OFF -DPLANISH_LAB=OFF $(CONFIGURE) >/dev/null && \
	  cmake --build --preset release --target planish_core; wait $$setup
	cmake --preset release -DPLANISH_TORCH=ON -DPLANISH_LAB=ON $(CONFIGURE) >/dev/null

build: build/release/build.ninja setup-build
	cmake --build --preset release

# Limits the spinning of waiting OpenMP threads, which costs milliseconds when other programs use the cores. (ctest
# runs one test per core at a time, most of them on one thread.)
demo test test-long: export GOMP_SPINCOUNT := 10000

# Trains one run per core at a time, long runs first. A second thread would not speed up matrices of this size.
# The report comes first; then planish-models is built, which uses the trained models.
demo: build/release/build.ninja setup-build
	cmake --build --preset release --target planish_demo
	@for batch in 4 128; do for norm in layer batch none; do echo "$$norm $$batch"; done; done | \
	  xargs -P "$$(nproc)" -L 1 sh -c 'exec $(BUILD)/planish-demo train pi-mnist --preset small --norm "$$0" \
	    --batch-size "$$1" --seeds 3 --threads 1 --out $(DEMO) >/dev/null'
	@$(BUILD)/planish-demo report $(DEMO) -o $(DEMO)/report.html
	@echo 'building $(BUILD)/planish-models, the commands for trained models'
	@cmake --build --preset release --target planish_models -- --quiet
	@echo 'try: $(BUILD)/planish-models sample results/models/char-lm.safetensors (more in results/models/README.md)'

# $(call pytest,BUILD,OPTIONS): runs the Python tests with the programs of a build folder and the package of
# build/release. pytest runs one process per core, each with one thread.
define pytest
	OMP_NUM_THREADS=1 PLANISH_BUILD=$(1) .venv/bin/python -m pytest -n auto $(2) tests/python
	@if .venv/bin/python -c 'import torch.nn' 2>/dev/null; then set -x; \
	  OMP_NUM_THREADS=1 PYTHONPATH=$(CURDIR)/$(BUILD)/python .venv/bin/python -m pytest -n auto $(2) torch/python/tests; \
	else echo 'left out: torch/python/tests, since .venv has no PyTorch (CMAKE_PREFIX_PATH names a libtorch)'; fi
endef

test: build setup python
	ctest --preset release
	$(call pytest,$(BUILD))

test-all: test test-long test-notebook

test-long: build setup python build/full/build.ninja
	cmake --build --preset full
	ctest --preset full
	ctest --preset release-long
	$(call pytest,build/full,-m long)

# Uses one build of the package, and a virtual environment for each version: gigabytes.
test-versions: setup
	@scripts/test_versions.sh

test-integrations: setup-integrations python
	OMP_NUM_THREADS=1 PYTHONPATH=$(CURDIR)/$(BUILD)/python build/integrations/bin/python -m pytest -n auto tests/integrations

# Executes a copy: the committed notebook keeps its outputs.
test-notebook: setup-notebook build
	PLANISH=$(CURDIR)/$(BUILD)/planish build/notebook/bin/python tests/notebook.py examples/lab.ipynb

# The full form of tests/python/test_kills.py, test_faults.py and test_full_disk.py (docs/reliability.md).
KILLS ?= 1000
torture: build/release/build.ninja setup
	cmake --build --preset release --target planish planish_server planish_faults
	OMP_NUM_THREADS=1 PLANISH_BUILD=$(BUILD) .venv/bin/python tests/torture/torture.py --kills $(KILLS) \
	  $(if $(SEED),--seed $(SEED)) $(TORTURE_ARGS)

# READERS="npy gzip": only these.
fuzz: setup-fuzz
	@scripts/fuzz.sh $(or $(FUZZ_SECONDS),30) $(READERS)

# Empties the folder first, to remove modules that are no longer in the sources.
python: build/release/build.ninja
	cmake --build --preset release --target planish_python
	rm -rf $(BUILD)/python
	cmake --install $(BUILD) --component python --prefix $(BUILD)/python >/dev/null

# For all versions of PyTorch, which are downloaded into build/libtorch: gigabytes, unless PIP_ARGS names an index
# of CPU-only wheels.
wheel-all: setup
	@scripts/wheel_all.sh

wheel-arm64: setup setup-arm64
	@scripts/wheel_all.sh aarch64

wheel: setup
	.venv/bin/python -m pip wheel --no-build-isolation --no-deps --wheel-dir dist .

dev: build/dev/build.ninja
	cmake --build --preset dev

# The package's static library is built by this system's compiler.
deb: build/core/build.ninja
	cmake --build --preset core --target planish_core
	cpack --config build/core/CPackConfig.cmake -B build/core/deb >/dev/null
	mkdir -p dist && cp build/core/deb/*.deb dist/

asan: build/asan/build.ninja
	cmake --build --preset asan
	ctest --preset asan

build/core/build.ninja build/tsan/build.ninja: build/%/build.ninja: | setup-core
	cmake --preset $* $(CONFIGURE) >/dev/null

build/arm64/build.ninja: | setup-arm64
	cmake --preset arm64 >/dev/null

test-arm: build/arm64/build.ninja
	cmake --build --preset arm64
	ctest --preset arm64 --timeout 7200

# Without the programs that QEMU runs for many minutes each, and with a few kinds of recurrent layers.
test-arm-short: build/arm64/build.ninja
	cmake --build --preset arm64
	PLANISH_SHORT_TESTS=1 ctest --preset arm64 --timeout 3600 \
	  -E '^(norm_test|(norm_peers|norm_gate|batch_norm|group_norm|channel_norm|online_norm)_test.*)$$'

tsan: build/tsan/build.ninja
	cmake --build --preset tsan
	ctest --preset tsan

core: build/core/build.ninja
	cmake --build --preset core
	ctest --preset core

install: build/full/build.ninja
	cmake --build --preset full --target planish planish_torch planish_shell_files
	cmake --install build/full --prefix $(PREFIX) >/dev/null

# Needs no build. lib* is lib, or lib64 where the system has that.
uninstall:
	rm -rf $(PREFIX)/bin/planish $(PREFIX)/include/planish $(PREFIX)/lib*/planish $(PREFIX)/lib*/cmake/planish
	rm -f $(PREFIX)/share/man/man1/planish.1 $(PREFIX)/share/bash-completion/completions/planish
	rm -f $(PREFIX)/share/zsh/site-functions/_planish $(PREFIX)/share/fish/vendor_completions.d/planish.fish
	rm -f $(PREFIX)/lib*/libplanish.a $(PREFIX)/lib*/libplanish_torch-*.so $(PREFIX)/lib*/pkgconfig/planish.pc

accuracy: build/full/build.ninja
	cmake --build --preset full --target planish_accuracy planish_python
	rm -rf build/full/python
	cmake --install build/full --component python --prefix build/full/python >/dev/null
	.venv/bin/python tests/accuracy/accuracy.py --build build/full --document docs/accuracy.md

# CMake runs again to find what setup.sh has installed.
bench-norm: build/release/build.ninja
	@bench/base/setup.sh
	cmake --preset release $(CONFIGURE) >/dev/null
	cmake --build --preset release --target norm_bench norm_bench_c
	.venv/bin/python bench/norm/bench.py --build $(BUILD) --docs docs $(BENCH_ARGS)

bench-rnn: build/release/build.ninja
	@bench/base/setup.sh
	cmake --preset release $(CONFIGURE) >/dev/null
	cmake --build --preset release --target rnn_bench rnn_bench_c
	.venv/bin/python bench/rnn/bench.py --build $(BUILD) --docs docs $(BENCH_ARGS)

bench-torch: build/release/build.ninja python
	@bench/base/setup.sh
	cmake --preset release $(CONFIGURE) >/dev/null
	cmake --build --preset release --target norm_bench norm_bench_c
	.venv/bin/python bench/torch/bench.py --build $(BUILD) --docs docs $(BENCH_ARGS)

bench-lab: build/release/build.ninja
	cmake --build --preset release --target lab_steps
	.venv/bin/python bench/lab/bench.py --build $(BUILD) --docs docs $(BENCH_ARGS)

# Runs on a machine with a GPU. Installs nothing, and builds only what runs there, because machines with a GPU are
# often available for minutes only. CMake names a missing package.
CUDA_TESTS := $(foreach what,norm batch_norm channel_norm weight_norm online_norm group_norm pointwise_norm rnn,$(what)_cuda_test)

# OFF leaves out the lab and the packages that it needs.
CUDA_LAB ?= ON

cuda:
	@nvidia-smi -L || { echo 'make: a GPU must be there for this'; exit 1; }
	cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=native -DPLANISH_LAB=$(CUDA_LAB) $(CONFIGURE) >/dev/null
	cmake --build --preset cuda --target $(CUDA_TESTS) planish_torch $(if $(CUDA_LAB:OFF=),planish planish_server lab_steps)
	rm -rf build/cuda/python
	cmake --install build/cuda --component python --prefix build/cuda/python >/dev/null

test-cuda: cuda
	for test in $(CUDA_TESTS); do build/cuda/src/*/$$test --gtest_brief=1 || exit 1; done
	PYTHONPATH=$(CURDIR)/build/cuda/python $(PYTHON) -m pytest -q torch/python/tests/test_cuda.py
ifneq ($(CUDA_LAB),OFF)
	PLANISH_BUILD=build/cuda PLANISH_TEST_GPU=1 $(PYTHON) -m pytest -q -o addopts= tests/python/test_devices.py
endif

# The emulation compiles the same sources as C++, which accepts what nvcc does not.
kernels:
	@command -v nvcc >/dev/null || { echo 'make: nvcc must be installed for this'; exit 1; }
	cmake -S . -B build/kernels -G Ninja -DCMAKE_BUILD_TYPE=Release -DPLANISH_CUDA=ON -DPLANISH_TESTS=OFF \
	  -DCMAKE_CUDA_ARCHITECTURES=90 $(CONFIGURE) >/dev/null
	cmake --build build/kernels --target planish_kernels

# Finds errors that the emulation cannot show: races of warps that run at the same time.
sanitize-cuda: cuda
	for tool in memcheck racecheck synccheck; do for test in $(CUDA_TESTS); do \
	  compute-sanitizer --tool $$tool --error-exitcode 1 build/cuda/src/*/$$test --gtest_brief=1 || exit 1; done; done

bench-cuda: cuda
	PYTHONPATH=$(CURDIR)/build/cuda/python $(PYTHON) bench/cuda/bench.py --out build/cuda/bench/results.json --docs docs $(BENCH_ARGS)

# Broken links fail.
docs:
	@scripts/docs.sh

# The output differs between versions: 19 if it is installed, else the default.
format:
	git ls-files '*.h' '*.cc' '*.cu' | xargs $$(command -v clang-format-19 || echo clang-format) -i

# The preset full has the sources for GPUs too, which its emulation compiles.
tidy: build/full/build.ninja
	cmake --build --preset full
	scripts/tidy.py build/full

clean:
	rm -rf build
