"""The speed of Planish's norms in Python against torch.nn's, eager and compiled.

Results are compared with a computation in double before they are timed. Contestants alternate in
random order, in one process for each number of threads; results are ratios of the fastest blocks.
Every call makes new outputs, as for a user: above some MB much of the time of both is page faults
(docs/performance.md). Results go to a JSON file, tables to standard output and, with --docs, into
the documentation."""

import json
import os
import pathlib
import re
import subprocess
import sys

import cases
import report

HERE = pathlib.Path(__file__).parent
sys.path.append(str(HERE.parent / "base"))
import harness  # noqa: E402
from harness import BenchError  # noqa: E402

# Shapes for the peak memory of a training step: 64 MB an array.
MEMORY_CASES = (("layer_norm", "16384x1024"), ("rms_norm", "16384x1024"), ("add_layer_norm", "16384x1024"))


def environment(args, threads):
    """Returns an environment with the build's package, and a cache of compiled code for each
    number of threads."""
    package = (pathlib.Path(args.build) / "python").resolve()
    cache = (pathlib.Path(args.out).parent / f"inductor-{threads}").resolve()
    return {**os.environ, "PYTHONPATH": str(package), "OMP_NUM_THREADS": str(threads),
            "TORCHINDUCTOR_CACHE_DIR": str(cache)}  # fmt: skip


def measure(args):
    some = [case for case in cases.all_cases(args.threads, args.quick) if re.search(args.filter, str(case))]
    if not some:
        raise BenchError(f"--filter must match a case, got {args.filter!r}")
    progress = harness.Progress(len(some))
    results = []
    for threads in args.threads:
        own = [case for case in some if case.threads == threads]
        results += harness.settle(own, lambda those: run_cases(args, those, progress), progress).values()
    progress.close()
    return results


def run_cases(args, some, progress):
    """Returns {case: result}."""
    if not some:
        return {}
    command = [sys.executable, HERE / "worker.py", ",".join(args.contestants), str(args.blocks), str(args.seconds),
               str(args.max_seconds)]  # fmt: skip
    results, remaining = {}, iter(some)

    def each(result, foreign):
        case = next(remaining)
        seconds = {who: min(blocks) for who, blocks in result["seconds"].items()}
        results[case] = {**result, "seconds": seconds, "foreign cores": foreign}
        progress.step(str(case))

    harness.run(command, [case.line() for case in some], environment(args, some[0].threads), each)
    return results


def output(args, *command):
    """Returns the output of a program of this folder."""
    return subprocess.run([sys.executable, HERE / command[0], *command[1:]], check=True, capture_output=True,
                          text=True, env=environment(args, 1)).stdout  # fmt: skip


def peak_memory(args):
    found = []
    for norm, shape in MEMORY_CASES:
        peaks = {what: {who: int(output(args, "memory.py", what, who, norm, shape)) for who in ("planish", "eager")}
                 for what in ("step", "call")}  # fmt: skip
        found.append({"norm": norm, "shape": shape, "bytes": peaks})
    return found


def parse():
    parser = harness.arguments("torch", __doc__, quick="three shapes of layer norm, few blocks, nothing compiled",
                               example="layer_norm training 512x1024 t2", seconds=0.01)  # fmt: skip
    harness.add_blocks(parser, 12, 5)
    harness.add_max_seconds(parser, 0.6)
    args = harness.check_arguments(parser)
    args.contestants = [who for who in cases.CONTESTANTS if not (args.quick and who == "compile")]
    return args


def main():
    args = parse()
    pathlib.Path(args.out).parent.mkdir(parents=True, exist_ok=True)
    about = harness.about(args, "norm/norm_bench")
    library = pathlib.Path(args.build) / "bench" / "norm" / "libnorm_bench_c.so"
    document = {"about": about, "overhead": json.loads(output(args, "overhead.py", library)),
                "memory": peak_memory(args), "results": measure(args)}  # fmt: skip
    harness.finish(args, document, report)


if __name__ == "__main__":
    harness.run_main(main)
