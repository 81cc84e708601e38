"""What the drivers of the comparisons share: programs that are fed cases, and how busy the machine is."""

import json
import os
import pathlib
import subprocess
import sys
import time

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


def settle(some, run_cases, progress):
    """What `run_cases` gives, {case: result}, where cases during which others took the cores are measured
    again; of each the least disturbed."""
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
    """None, or why one of the modules cannot be imported."""
    test = subprocess.run(
        [sys.executable, "-c", "import " + ",".join(names)], capture_output=True, text=True)  # fmt: skip
    return test.stderr.strip().splitlines()[-1] if test.returncode else None


def version_in_python(package):
    """Its version, or None."""
    version = subprocess.run(
        [sys.executable, "-c", f"from importlib.metadata import version as v; print(v({package!r}))"],
        capture_output=True, text=True)  # fmt: skip
    return version.stdout.strip() or None
