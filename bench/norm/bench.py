"""The speed of Planish's norms beside what memory allows and beside other libraries.

Every result is compared with a reference in double before it is timed. Contestants alternate, in an
order drawn at random, in one process (PyTorch's kernel, oneDNN) or in one process each (torch.compile,
ONNX Runtime), always beside the same copy; what is reported are ratios of the fastest repetitions.
docs/performance.md explains the tables. Results go to a file of JSON, tables to standard output and,
with --docs, with charts into the documentation.
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

MODULES = {"compile": ("torch",), "onnxruntime": ("onnx", "onnxruntime")}  # of the peers in Python


def measure(args, about):
    """The results of all cases: what the programs print, with the case's group and process."""
    chosen = cases.all_cases(args.threads, about["methods"], about["column_methods"], args.quick)
    chosen = [case for case in chosen if re.search(args.filter, str(case))]
    if not chosen:
        raise BenchError(f"--filter must match a case but has {args.filter!r}")
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
    """{case: result}, of one of the programs."""
    if not some:
        return {}
    folder = pathlib.Path(args.build) / "bench" / "norm"
    effort = [str(args.repetitions), str(args.seconds)]
    if process == "norm_bench":
        command = [folder / "norm_bench", *effort]
    else:
        script = {"compile": "torch_compile.py", "onnxruntime": "onnx_runtime.py"}[process]
        command = [sys.executable, HERE / script, folder / "libnorm_bench_c.so", *effort]
    # torch.compile's code knows its number of threads.
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
    parser = argparse.ArgumentParser(description=__doc__)
    everyone = [*cases.IN_PROCESS, *cases.IN_PYTHON]
    parser.add_argument("--build", default="build/release", help="CMake's build folder")
    parser.add_argument("--quick", action="store_true",
                        help="about a minute: few shapes, few repetitions")  # fmt: skip
    parser.add_argument("--only", default=",".join(everyone),
                        help=f"contestants, of {', '.join(everyone)} (default: all)")  # fmt: skip
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--threads", default="1,2" if cores > 1 else "1",
                        help="numbers of threads (default: %(default)s)")  # fmt: skip
    parser.add_argument("--filter", default="", metavar="REGEX",
                        help="cases that match, as 'shares forward float 4096x1024 t2'")  # fmt: skip
    parser.add_argument("--repetitions", type=int, help="of each contestant (default: 12, quick: 4)")
    parser.add_argument("--seconds", type=float, default=0.005,
                        help="least length of a repetition (default: %(default)s)")  # fmt: skip
    parser.add_argument("--out", help="file for the results (default: BUILD/bench/norm/results.json)")
    parser.add_argument("--docs", help="folder whose performance.md and charts are written")
    args = parser.parse_args()
    args.only = args.only.split(",")
    for who in args.only:
        if who not in everyone:
            parser.error(f"--only must be of {', '.join(everyone)} but has {who}")
    try:
        args.threads = [int(t) for t in args.threads.split(",")]
        re.compile(args.filter)
    except (ValueError, re.error):
        parser.error("--threads must be numbers and --filter a regular expression")
    args.repetitions = args.repetitions or (4 if args.quick else 12)
    if min(args.threads) < 1 or args.repetitions < 1 or not args.seconds > 0:
        parser.error("threads, repetitions and seconds must be above 0")
    args.out = args.out or f"{args.build}/bench/norm/results.json"
    return args


def main():
    args = parse()
    program = pathlib.Path(args.build) / "bench" / "norm" / "norm_bench"
    if not program.exists():
        raise BenchError(f"{program} must have been built but has not: run make bench-norm, and see "
                         "what CMake says of bench/norm")  # fmt: skip
    about = json.loads(subprocess.run([program, "--about"], check=True, capture_output=True).stdout)
    harness.warn_if_busy()
    results, absent = measure(args, about)
    about["caches"] = harness.caches()
    about["python"] = platform.python_version()
    about["absent"] = absent
    for who in ("torch", "onnxruntime"):
        about[f"{who} in Python"] = harness.version_in_python(who)
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
