"""The speed of Planish's recurrent layers beside PyTorch's, oneDNN's, composed ones and the products alone.

Results are compared with a computation in double before they are timed. Contestants alternate, in an
order drawn at random, in one process (rnn_bench), TorchScript and the compiled cell with Planish in a
process of Python's; what is reported are ratios of the fastest blocks. docs/performance.md explains the
tables. Results go to a file of JSON, tables to standard output and, with --docs, with charts into the
documentation.
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


def measure(args, about):
    """The results of all cases: what the programs print, with the case's group."""
    inside, python = cases.all_cases(args.threads, about["cells"], args.only, args.quick)
    inside, python = ([c for c in some if re.search(args.filter, str(c))] for some in (inside, python))
    if not inside + python:
        raise BenchError(f"--filter must match a case but has {args.filter!r}")
    absent = {}
    if python and (reason := harness.importable(("torch", "numpy"))):
        absent["in Python"], python = reason, []
    progress = harness.Progress(len(inside) + len(python))
    results = []
    # The compiled code knows its number of threads: a process, and a cache, for each.
    for process, some in [("rnn_bench", inside)] + [
            ("torch_cells", [c for c in python if c.threads == t]) for t in args.threads]:  # fmt: skip
        results += harness.settle(
            some, lambda those: run_cases(args, process, those, progress), progress).values()  # fmt: skip
    progress.close()
    return results, absent


def run_cases(args, process, some, progress):
    """{case: result}, of one of the programs."""
    if not some:
        return {}
    folder = pathlib.Path(args.build) / "bench" / "rnn"
    effort = [str(args.blocks), str(args.seconds), str(args.most)]
    if process == "rnn_bench":
        command = [folder / "rnn_bench", *effort]
    else:
        command = [sys.executable, HERE / "torch_cells.py", folder / "librnn_bench_c.so", *effort]
    cache = (folder / f"inductor-{some[0].threads}").resolve()
    environment = {"OMP_NUM_THREADS": str(max(args.threads)), **os.environ,
                   "TORCHINDUCTOR_CACHE_DIR": str(cache)}  # fmt: skip
    results, remaining = {}, iter(some)

    def each(result, foreign):
        case = next(remaining)
        results[case] = {"group": case.group, "process": process, **result, "foreign cores": foreign}
        progress.step(f"{process} {case}")

    harness.run(command, [case.line() for case in some], environment, each)
    return results


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build/release", help="CMake's build folder")
    parser.add_argument("--quick", action="store_true",
                        help="two shapes and a step, few blocks, no charts, nothing compiled")  # fmt: skip
    parser.add_argument("--only", metavar="WHO",
                        help=f"contestants beside Planish, of {','.join(cases.WHO)}, or none")  # fmt: skip
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--threads", default="1,2" if cores > 1 else "1",
                        help="numbers of threads (default: %(default)s)")  # fmt: skip
    parser.add_argument("--filter", default="", metavar="REGEX",
                        help="cases that match, as 'lstm training 100x32x256x256 t2'; groups are lstm, gru, "
                        "cells, step, time, batch, hidden")  # fmt: skip
    parser.add_argument("--blocks", type=int, help="of each contestant (default: 8, quick: 3)")
    parser.add_argument("--seconds", type=float, default=0.03,
                        help="length of a block, of at least one call (default: %(default)s)")  # fmt: skip
    parser.add_argument("--most", type=float, default=1.0,
                        help="seconds of a contestant's blocks together, but for the first 3 "
                        "(default: %(default)s)")  # fmt: skip
    parser.add_argument("--out", help="file for the results (default: BUILD/bench/rnn/results.json)")
    parser.add_argument("--docs", help="folder whose performance.md and charts are written")
    args = parser.parse_args()
    everyone = [who for who in cases.WHO if not (args.quick and who == "compile")]
    args.only = everyone if args.only is None else [] if args.only == "none" else args.only.split(",")
    for who in args.only:
        if who not in cases.WHO:
            parser.error(f"--only must be of {','.join(cases.WHO)}, or none, but has {who}")
    try:
        args.threads = [int(t) for t in args.threads.split(",")]
        re.compile(args.filter)
    except (ValueError, re.error):
        parser.error("--threads must be numbers and --filter a regular expression")
    args.blocks = args.blocks if args.blocks is not None else 3 if args.quick else 8
    if min(args.threads) < 1 or args.blocks < 1 or not min(args.seconds, args.most) > 0:
        parser.error("threads, blocks, seconds and most must be above 0")
    args.out = args.out or f"{args.build}/bench/rnn/results.json"
    return args


def main():
    args = parse()
    program = pathlib.Path(args.build) / "bench" / "rnn" / "rnn_bench"
    if not program.exists():
        raise BenchError(f"{program} must have been built but has not: run make bench-rnn")
    about = json.loads(subprocess.run([program, "--about"], check=True, capture_output=True).stdout)
    harness.warn_if_busy()
    results, absent = measure(args, about)
    about["caches"] = harness.caches()
    about["python"] = platform.python_version()
    about["absent"] = absent
    document = {"about": about, "results": results}
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
