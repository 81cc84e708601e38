"""Shared parts of the comparisons' drivers: programs that read cases, and the machine's load."""

import argparse
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import time

DISTURBED = 0.1  # cores that other programs may use during a case
RETRIES = 2  # of cases with more load than that


class BenchError(Exception):
    pass


class Progress:
    """A live line on a terminal, or a line every ten seconds elsewhere."""

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
    """Feeds `lines` to a program. Calls `each` with the program's answer to each line and the number
    of cores that other programs used meanwhile."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)  # fmt: skip
    try:
        foreign = Foreign(process.pid)
        for line in lines:
            process.stdin.write(line + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            if not answer:  # the reason is on stderr
                raise BenchError(f"{command[0]} ended with status {process.wait()} at: {line}")
            each(json.loads(answer), foreign.cores())
        process.stdin.close()
        if process.wait() != 0:
            raise BenchError(f"{command[0]} ended with status {process.returncode}")
    finally:
        process.kill()


def caches():
    """Returns 'L1d 32K, L2 512K, L3 32768K' for the first core."""
    found = []
    for index in sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            found.append(f"L{level} {size}")
    return ", ".join(found) or "unknown"


class Foreign:
    """Cores that other programs use. With several threads, a contestant then waits for threads that
    do not run, and ratios are meaningless."""

    def __init__(self, *pids):
        self.pids, self.last = pids, None
        self.cores()

    def cores(self):
        """Returns the mean since the last call, without this program and the processes `pids`."""
        ticks = os.sysconf("SC_CLK_TCK")
        user, nice, system, _, _, irq, softirq, steal = map(
            int, pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:9])  # fmt: skip
        own = os.times()
        busy = (user + nice + system + irq + softirq + steal) / ticks - own.user - own.system
        for pid in self.pids:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            busy -= sum(map(int, fields[11:15])) / ticks  # with child processes, such as torch.compile's g++
        now = time.monotonic()
        before, self.last = self.last, (now, busy)
        return max(0.0, (busy - before[1]) / (now - before[0])) if before else None


def settle(some, run_cases, progress):
    """Returns the result of `run_cases`, {case: result}. Repeats cases that were disturbed by
    other programs, and keeps the least disturbed result of each."""
    best = run_cases(some)
    disturbed = [case for case in some if best[case]["foreign cores"] > DISTURBED]
    if len(disturbed) <= len(some) / 4:  # else the machine is never idle
        for _ in range(RETRIES):
            progress.total += len(disturbed)
            again = run_cases(disturbed)
            for case, result in again.items():
                best[case] = min(best[case], result, key=lambda r: r["foreign cores"])
            disturbed = [case for case in disturbed if best[case]["foreign cores"] > DISTURBED]
    return best


def warn_if_busy():
    idle = Foreign()
    time.sleep(1)
    if (cores := idle.cores()) > DISTURBED:
        print(f"bench: warning: other programs keep {cores:.1f} cores busy: with several threads the "
              "results will mean nothing", file=sys.stderr)  # fmt: skip


def importable(names):
    """Returns None, or the reason why one of the modules cannot be imported."""
    test = subprocess.run(
        [sys.executable, "-c", "import " + ",".join(names)], capture_output=True, text=True)  # fmt: skip
    return test.stderr.strip().splitlines()[-1] if test.returncode else None


def version_in_python(package):
    """Returns the package's version, or None."""
    version = subprocess.run(
        [sys.executable, "-c", f"from importlib.metadata import version as v; print(v({package!r}))"],
        capture_output=True, text=True)  # fmt: skip
    return version.stdout.strip() or None


def arguments(name, doc, *, quick, example, seconds):
    """Returns a parser with the common options of comparisons, for check_arguments. `example` is a
    case that --filter can match, `seconds` the minimum length of a block."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--build", default="build/release", help="CMake's build folder")
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--threads", default="1,2" if len(os.sched_getaffinity(0)) > 1 else "1",
                        help="numbers of threads (default: %(default)s)")  # fmt: skip
    parser.add_argument("--filter", default="", metavar="REGEX", help=f"cases that match, as '{example}'")
    parser.add_argument("--seconds", type=float, default=seconds,
                        help="length of a block, of at least one call (default: %(default)s)")  # fmt: skip
    parser.add_argument("--out", help=f"file for the results (default: BUILD/bench/{name}/results.json)")
    parser.add_argument("--docs", help="folder whose performance.md and charts are written")
    parser.set_defaults(name=name)
    return parser


def add_blocks(parser, blocks, quick_blocks, option="--blocks"):
    parser.add_argument(option, type=int, dest="blocks",
                        help=f"of each contestant (default: {blocks}, quick: {quick_blocks})")  # fmt: skip
    parser.set_defaults(usual_blocks=(blocks, quick_blocks))


def add_max_seconds(parser, seconds):
    parser.add_argument("--max-seconds", type=float, default=seconds,
                        help="maximum seconds of all blocks of a contestant, which has at least 3 "
                        "(default: %(default)s)")  # fmt: skip


def check_arguments(parser):
    args = parser.parse_args()
    try:
        args.threads = [int(t) for t in args.threads.split(",")]
        re.compile(args.filter)
    except (ValueError, re.error):
        parser.error("--threads must be numbers and --filter a regular expression")
    args.blocks = args.usual_blocks[args.quick] if args.blocks is None else args.blocks
    numbers = [*args.threads, args.blocks, args.seconds, getattr(args, "max_seconds", 1)]
    if not min(numbers) > 0:
        parser.error("threads, blocks, seconds and max-seconds must be above 0")
    args.out = args.out or f"{args.build}/bench/{args.name}/results.json"
    return args


def about(args, program):
    """Returns the program's description of itself, the machine and its libraries."""
    path = pathlib.Path(args.build) / "bench" / program
    if not path.exists():
        raise BenchError(f"{path} does not exist: run make bench-{args.name}, and see "
                         "what CMake says of bench/norm")  # fmt: skip
    description = json.loads(subprocess.run([path, "--about"], check=True, capture_output=True).stdout)
    warn_if_busy()
    return description | {"caches": caches(), "python": platform.python_version()}


def finish(args, document, report):
    """Stores and prints the results; `report` is the comparison's module."""
    pathlib.Path(args.out).write_text(json.dumps(document, indent=1) + "\n")
    print(report.markdown(document))
    if args.docs:
        report.write(document, pathlib.Path(args.docs))
    if wrong := report.wrong_planish(document):
        raise BenchError(f"Planish is wrong: {wrong}")


def run_main(main):
    try:
        main()
    except BenchError as error:
        sys.exit(f"bench: {error}")
    except KeyboardInterrupt:
        sys.exit("\nbench: stopped")
