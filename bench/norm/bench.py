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
import time

import cases
import report

HERE = pathlib.Path(__file__).parent
DISTURBED = 0.1  # cores that others may keep busy during a case
RETRIES = 2  # of the cases during which they took more


class BenchError(Exception):
    pass


class Progress:
    """A live line on a terminal, else a line every ten seconds."""

    def __init__(self, total):
        self.total, self.done, self.start, self.shown = total, 0, time.monotonic(), 0.0
        self.live = sys.stderr.isatty()

    def step(self, what):
        self.done += 1
        now = time.monotonic()
        if self.live or now - self.shown >= 10 or self.done == self.total:
            self.shown = now
            line = f"bench: {self.done}/{self.total} in {now - self.start:.0f} s  {what}"
            print(f"\r\033[K{line}" if self.live else line, end="" if self.live else "\n",
                  file=sys.stderr, flush=True)  # fmt: skip

    def close(self):
        if self.live:
            print(file=sys.stderr)


def run(command, lines, environment, each):
    """Feeds `lines` to a program, and what it prints for each, and how many cores others kept busy
    meanwhile, to `each`."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)  # fmt: skip
    try:
        foreign = Foreign(process.pid)
        for line in lines:
            process.stdin.write(line + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            if not answer:  # it has told why on stderr
                raise BenchError(f"{command[0]} ended with status {process.wait()} at: {line}")
            each(json.loads(answer), foreign.cores())
        process.stdin.close()
        if process.wait() != 0:
            raise BenchError(f"{command[0]} ended with status {process.returncode}")
    finally:
        process.kill()


def caches():
    """'L1d 32K, L2 512K, L3 32768K' of the first core."""
    found = []
    for index in sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            found.append(f"L{level} {size}")
    return ", ".join(found) or "unknown"


class Foreign:
    """Cores that other programs keep busy: with several threads, a contestant then waits for the one
    that does not run, and no ratio means anything."""

    def __init__(self, pid=None):
        self.pid, self.last = pid, None
        self.cores()

    def cores(self):
        """Since the last call; besides this program and the process `pid`."""
        ticks = os.sysconf("SC_CLK_TCK")
        user, nice, system, _, _, irq, softirq, steal = map(
            int, pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:9])  # fmt: skip
        own = os.times()
        busy = (user + nice + system + irq + softirq + steal) / ticks - own.user - own.system
        if self.pid:
            fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            busy -= sum(map(int, fields[11:15])) / ticks  # with its children's: torch.compile's g++
        now = time.monotonic()
        before, self.last = self.last, (now, busy)
        return max(0.0, (busy - before[1]) / (now - before[0])) if before else None


def importable(who):
    """None, or why the peer in Python is absent."""
    names = {"compile": ("torch",), "onnxruntime": ("onnx", "onnxruntime")}[who]
    test = subprocess.run(
        [sys.executable, "-c", "import " + ",".join(names)], capture_output=True, text=True)  # fmt: skip
    return test.stderr.strip().splitlines()[-1] if test.returncode else None


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
            if with_peer and (reason := importable(who)):
                absent[who] = reason
            else:
                for threads in args.threads:
                    some = [c for c in with_peer if c.threads == threads]
                    plan.append((who, some, ["planish", who]))
    progress = Progress(sum(len(some) for _, some, _ in plan))
    results = []
    for process, some, contestants in plan:
        best = run_cases(args, process, some, contestants, progress)
        disturbed = [case for case in some if best[case]["foreign cores"] > DISTURBED]
        if len(disturbed) <= len(some) / 4:  # else the machine is never idle
            for _ in range(RETRIES):
                progress.total += len(disturbed)
                again = run_cases(args, process, disturbed, contestants, progress)
                for case, result in again.items():
                    best[case] = min(best[case], result, key=lambda r: r["foreign cores"])
                disturbed = [case for case in disturbed if best[case]["foreign cores"] > DISTURBED]
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

    run(command, lines, environment, each)
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
    idle = Foreign()
    time.sleep(1)
    if (cores := idle.cores()) > DISTURBED:
        print(f"bench: warning: other programs keep {cores:.1f} cores busy: with several threads the "
              "results will mean nothing", file=sys.stderr)  # fmt: skip
    results, absent = measure(args, about)
    about["caches"] = caches()
    about["python"] = platform.python_version()
    about["absent"] = absent
    for who in ("torch", "onnxruntime"):
        version = subprocess.run(
            [sys.executable, "-c", f"from importlib.metadata import version as v; print(v({who!r}))"],
            capture_output=True, text=True)  # fmt: skip
        about[f"{who} in Python"] = version.stdout.strip() or None
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
