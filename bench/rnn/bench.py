"""The speed of Planish's recurrent layers against PyTorch's, oneDNN's, xlstm's, composed ones and
only their GEMMs.

Results are compared with a computation in double before they are timed. Contestants alternate in
random order, in one process (rnn_bench); TorchScript, the compiled cell and xlstm run with Planish
in a Python process. Results are ratios of the fastest blocks. docs/performance.md explains the tables.
Results go to a JSON file, tables to standard output and, with --docs, with charts into the
documentation."""

import os
import pathlib
import re
import sys

import cases
import report

HERE = pathlib.Path(__file__).parent
sys.path.append(str(HERE.parent / "base"))
import harness  # noqa: E402
from harness import BenchError  # noqa: E402


def measure(args, about):
    """Returns the results of all cases: the programs' output, with the case's group."""
    inside, python = cases.all_cases(args.threads, about["cells"], args.only, args.quick)
    inside, python = ([c for c in some if re.search(args.filter, str(c))] for some in (inside, python))
    if not inside + python:
        raise BenchError(f"--filter must match a case, got {args.filter!r}")
    absent = {}
    if python and (reason := harness.importable(("torch", "numpy"))):
        absent["in Python"], python = reason, []
    progress = harness.Progress(len(inside) + len(python))
    results = []
    # Compiled code depends on the number of threads: a process, and a cache, for each.
    for process, some in [("rnn_bench", inside)] + [
            ("torch_cells", [c for c in python if c.threads == t]) for t in args.threads]:  # fmt: skip
        results += harness.settle(
            some, lambda those: run_cases(args, process, those, progress), progress).values()  # fmt: skip
    progress.close()
    return results, absent


def run_cases(args, process, some, progress):
    """Runs one of the programs. Returns {case: result}."""
    if not some:
        return {}
    folder = pathlib.Path(args.build) / "bench" / "rnn"
    effort = [str(args.blocks), str(args.seconds), str(args.max_seconds)]
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
    parser = harness.arguments(
        "rnn", __doc__, quick="two shapes and a step, few blocks, no charts, nothing compiled",
        example="lstm training 100x32x256x256 t2",
        seconds=0.03)  # fmt: skip
    parser.add_argument("--only", metavar="WHO",
                        help=f"contestants beside Planish, of {','.join(cases.WHO)}, or none")  # fmt: skip
    harness.add_blocks(parser, 8, 3)
    harness.add_max_seconds(parser, 1.0)
    args = harness.check_arguments(parser)
    everyone = [who for who in cases.WHO if not (args.quick and who == "compile")]
    args.only = everyone if args.only is None else [] if args.only == "none" else args.only.split(",")
    for who in args.only:
        if who not in cases.WHO:
            parser.error(f"--only must be of {','.join(cases.WHO)}, or none, got {who}")
    return args


def main():
    args = parse()
    about = harness.about(args, "rnn/rnn_bench")
    results, about["absent"] = measure(args, about)
    harness.finish(args, {"about": about, "results": results}, report)


if __name__ == "__main__":
    harness.run_main(main)
