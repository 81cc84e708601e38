"""The speed of Planish's norms against memory bandwidth and other libraries.

Every result is compared with a reference in double before it is timed. Contestants alternate with
a copy in random order. PyTorch's kernel and oneDNN run in one process, torch.compile and ONNX Runtime
in one process each. Results are ratios of the fastest repetitions. docs/performance.md explains the
tables. Results go to a JSON file, tables to standard output and,
with --docs, with charts into the documentation."""

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

MODULES = {"compile": ("torch",), "onnxruntime": ("onnx", "onnxruntime")}  # of the peers in Python


def measure(args, about):
    """Returns the results of all cases: the programs' output, with the case's group and process.
    """
    chosen = cases.all_cases(args.threads, about["methods"], about["column_methods"], about["aten"],
                             args.quick)
    chosen = [case for case in chosen if re.search(args.filter, str(case))]
    if not chosen:
        raise BenchError(f"--filter must match a case, got {args.filter!r}")
    plan = []  # (process, cases, their contestants)
    if inside := [who for who in cases.IN_PROCESS if who in args.only]:
        plan.append(("norm_bench", chosen, [*inside, cases.BARE]))
    absent = {}
    for who in cases.IN_PYTHON:
        if who in args.only:
            with_peer = [c for c in chosen if f"{who}:layer" in c.contestants]
            if who == "onnxruntime":
                with_peer = [c for c in with_peer if c.direction == "forward"]
            if with_peer and (reason := harness.importable(MODULES[who])):
                absent[who] = reason
            else:
                for threads in args.threads:
                    some = [c for c in with_peer if c.threads == threads]
                    plan.append((who, some, ["planish", who]))
    progress = harness.Progress(sum(len(some) for _, some, _ in plan))
    results = []
    for process, some, contestants in plan:
        best = harness.settle(
            some, lambda those: run_cases(args, process, those, contestants, progress), progress)  # fmt: skip
        results += best.values()
    progress.close()
    return results, absent


def run_cases(args, process, some, contestants, progress):
    """Runs one of the programs. Returns {case: result}."""
    if not some:
        return {}
    folder = pathlib.Path(args.build) / "bench" / "norm"
    effort = [str(args.blocks), str(args.seconds)]
    if process == "norm_bench":
        command = [folder / "norm_bench", *effort]
    else:
        script = {"compile": "torch_compile.py", "onnxruntime": "onnx_runtime.py"}[process]
        command = [sys.executable, HERE / script, folder / "libnorm_bench_c.so", *effort]
    # torch.compile's code depends on the number of threads.
    cache = (folder / f"inductor-{some[0].threads}").resolve()
    environment = {"OMP_NUM_THREADS": str(max(args.threads)), **os.environ,
                   "TORCHINDUCTOR_CACHE_DIR": str(cache)}  # fmt: skip
    lines = [case.line([n for n in case.contestants if n.partition(":")[0] in contestants])
             for case in some]  # fmt: skip
    results, remaining = {}, iter(some)

    def each(result, foreign):
        case = next(remaining)
        results[case] = {"group": case.group, "process": process, **result, "foreign cores": foreign}
        progress.step(f"{process} {case}")

    harness.run(command, lines, environment, each)
    return results


def parse():
    parser = harness.arguments("norm", __doc__, quick="about a minute: few shapes, few repetitions",
                               example="shares forward float 4096x1024 t2", seconds=0.005)  # fmt: skip
    everyone = [*cases.IN_PROCESS, *cases.IN_PYTHON]
    parser.add_argument("--only", default=",".join(everyone),
                        help=f"contestants, of {', '.join(everyone)} (default: all)")  # fmt: skip
    harness.add_blocks(parser, 12, 4, "--repetitions")
    args = harness.check_arguments(parser)
    args.only = args.only.split(",")
    for who in args.only:
        if who not in everyone:
            parser.error(f"--only must be of {', '.join(everyone)}, got {who}")
    return args


def main():
    args = parse()
    about = harness.about(args, "norm/norm_bench")
    results, about["absent"] = measure(args, about)
    for who in ("torch", "onnxruntime"):
        about[f"{who} in Python"] = harness.version_in_python(who)
    harness.finish(args, {"about": about, "results": results}, report)


if __name__ == "__main__":
    harness.run_main(main)
