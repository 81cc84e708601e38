"""The speed of Planish's norms in Python beside torch.nn's, eager and compiled.

Results are compared with a computation in double before they are timed. Contestants alternate, in an
order drawn at random, in one process for each number of threads; what is reported are ratios of the
fastest blocks. Every call makes new outputs, as it does for a user: from some MB on much of the time
of both goes into pages of memory that the system hands out (docs/performance.md). Results go to a
file of JSON, tables to standard output and, with --docs, into the documentation.
"""

import argparse
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

import cases
import report

HERE = pathlib.Path(__file__).parent
sys.path.append(str(HERE.parent / "base"))
import harness  # noqa: E402
from harness import BenchError  # noqa: E402

# Shapes whose training step is measured for its peak of memory: 64 MB an array.
MEMORY_CASES = (("layer_norm", "16384x1024"), ("rms_norm", "16384x1024"), ("add_layer_norm", "16384x1024"))


def environment(args, threads):
    """The package of the build, and a cache of compiled code for each number of threads."""
    package = (pathlib.Path(args.build) / "python").resolve()
    cache = (pathlib.Path(args.out).parent / f"inductor-{threads}").resolve()
    return {**os.environ, "PYTHONPATH": str(package), "OMP_NUM_THREADS": str(threads),
            "TORCHINDUCTOR_CACHE_DIR": str(cache)}  # fmt: skip


def measure(args):
    some = [case for case in cases.all_cases(args.threads, args.quick) if re.search(args.filter, str(case))]
    if not some:
        raise BenchError(f"--filter must match a case but has {args.filter!r}")
    progress = harness.Progress(len(some))
    results = []
    for threads in args.threads:
        own = [case for case in some if case.threads == threads]
        results += harness.settle(own, lambda those: run_cases(args, those, progress), progress).values()
    progress.close()
    return results


def run_cases(args, some, progress):
    """{case: result}"""
    if not some:
        return {}
    command = [sys.executable, HERE / "worker.py", ",".join(args.contestants), str(args.blocks), str(args.seconds),
               str(args.most)]  # fmt: skip
    results, remaining = {}, iter(some)

    def each(result, foreign):
        case = next(remaining)
        seconds = {who: min(blocks) for who, blocks in result["seconds"].items()}
        results[case] = {**result, "seconds": seconds, "foreign cores": foreign}
        progress.step(str(case))

    harness.run(command, [case.line() for case in some], environment(args, some[0].threads), each)
    return results


def output(args, *command):
    """What a program of this folder prints."""
    return subprocess.run([sys.executable, HERE / command[0], *command[1:]], check=True, capture_output=True,
                          text=True, env=environment(args, 1)).stdout  # fmt: skip


def peak_memory(args):
    found = []
    for norm, shape in MEMORY_CASES:
        peaks = {who: int(output(args, "memory.py", who, norm, shape)) for who in ("planish", "eager")}
        found.append({"norm": norm, "shape": shape, "bytes": peaks})
    return found


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build/release", help="CMake's build folder")
    parser.add_argument("--quick", action="store_true", help="three shapes of layer norm, few blocks, nothing compiled")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--threads", default="1,2" if cores > 1 else "1", help="numbers of threads (default: %(default)s)")
    parser.add_argument("--filter", default="", metavar="REGEX",
                        help="cases that match, as 'layer_norm training 512x1024 t2'")  # fmt: skip
    parser.add_argument("--blocks", type=int, help="of each contestant (default: 12, quick: 5)")
    parser.add_argument("--seconds", type=float, default=0.01,
                        help="length of a block, of at least one call (default: %(default)s)")  # fmt: skip
    parser.add_argument("--most", type=float, default=0.6,
                        help="seconds of a contestant's blocks together, but for the first 3 (default: %(default)s)")  # fmt: skip
    parser.add_argument("--out", help="file for the results (default: BUILD/bench/torch/results.json)")
    parser.add_argument("--docs", help="folder whose performance.md is written")
    args = parser.parse_args()
    try:
        args.threads = [int(t) for t in args.threads.split(",")]
        re.compile(args.filter)
    except (ValueError, re.error):
        parser.error("--threads must be numbers and --filter a regular expression")
    args.blocks = args.blocks if args.blocks is not None else 5 if args.quick else 12
    if min(args.threads) < 1 or args.blocks < 1 or not min(args.seconds, args.most) > 0:
        parser.error("threads, blocks, seconds and most must be above 0")
    args.contestants = [who for who in cases.CONTESTANTS if not (args.quick and who == "compile")]
    args.out = args.out or f"{args.build}/bench/torch/results.json"
    return args


def main():
    args = parse()
    folder = pathlib.Path(args.build) / "bench" / "norm"
    if not (folder / "norm_bench").exists():
        raise BenchError(f"{folder / 'norm_bench'} must have been built but has not: run make bench-torch")
    pathlib.Path(args.out).parent.mkdir(parents=True, exist_ok=True)
    about = json.loads(subprocess.run([folder / "norm_bench", "--about"], check=True, capture_output=True).stdout)
    harness.warn_if_busy()
    about |= {"caches": harness.caches(), "python": platform.python_version()}
    document = {"about": about, "overhead": json.loads(output(args, "overhead.py", folder / "libnorm_bench_c.so")),
                "memory": peak_memory(args), "results": measure(args)}  # fmt: skip
    pathlib.Path(args.out).write_text(json.dumps(document, indent=1) + "\n")
    print(report.markdown(document))
    if args.docs:
        report.write(document, pathlib.Path(args.docs))
    if wrong := report.wrong_planish(document):
        raise BenchError(f"Planish is wrong: {wrong}")


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(f"bench: {error}")
    except KeyboardInterrupt:
        sys.exit("\nbench: stopped")
