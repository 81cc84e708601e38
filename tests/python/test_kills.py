"""Training survives kill -9 at random moments (docs/reliability.md)."""

import os
import random
import re
import shutil
import signal
import time

import pytest
from conftest import TIMEOUT
from run_files import (
    CHECKPOINT, assert_same_results, read_checkpoint, read_metrics, results_of, temporary_files, unexpected_files,
)  # fmt: skip
from test_processes import Group

KILLS = int(os.environ.get("PLANISH_KILLS", "21"))  # of all tests together
KILLS_OF_TWO = KILLS // 7  # of a run that two processes train
SEED = os.environ.get("PLANISH_KILL_SEED") or str(random.randrange(10**9))
# Each saves a checkpoint and evaluates after every update. They have different state beside weights: statistics of
# batch norm; the state carried between batches; memory, and random numbers of dropout.
RUNS = {
    "pi-mnist": ("--norm", "batch", "--set", "epochs=12", "--set", "evaluations_per_epoch=4"),
    "char-lm": ("--cell", "ln-lstm", "--set", "epochs=1", "--set", "evaluations_per_epoch=70"),
    "enwik8": ("--norm", "layer", "--set", "epochs=1", "--set", "evaluations_per_epoch=35", "--set", "eval_bytes=300"),
}  # fmt: skip
TASKS = list(RUNS)
TWO_PROCESSES = ("--set", "shards=2")  # of pi-mnist
KILLED = -signal.SIGKILL
# The fraction of kills that are timed from the start of the process, which first loads libtorch and data.
EARLY = 0.05
SURVIVOR_SECONDS = 30  # in which a process ends when the other one is killed


def command(task, *more):
    smoke = ("--preset", "smoke", "--threads", 1, "--checkpoint-seconds", 0, "--out", "runs")
    return ("train", task, *smoke, *RUNS[task], *more)


def has_lock(run, pid):
    try:
        return (run / ".lock").read_text() == str(pid)
    except FileNotFoundError:
        return False


class Lives:
    """Processes of one training command, which are killed at random moments."""

    early = EARLY
    lacks = (0, 1)  # updates by which a checkpoint can be behind metrics.jsonl: one process saves after an evaluation

    def __init__(self, planish, command, run, seconds):
        self.planish, self.command, self.run = planish, command, run
        self.seconds = seconds  # maximum time between using the run folder and the kill
        self.random = random.Random(f"{SEED} {command}")
        self.kills = self.kills_while_writing = self.resumptions = self.runs = 0

    def start(self):
        """Starts the command. Returns its processes; the first one writes the run."""
        return [self.planish.start(*self.command)]

    def kill(self, processes):
        """Kills processes, and waits for the others, which must end."""
        processes[0].kill()

    def live(self, kill):
        """Runs the command, and kills it if `kill`. Returns True if it has trained the run to the end."""
        saved = saved_step(self.run)
        early = self.random.random() < self.early
        moment = self.random.random() * self.seconds
        processes = self.start()
        first = processes[0]
        try:
            deadline = time.monotonic() + TIMEOUT
            while kill and not early and first.poll() is None and not has_lock(self.run, first.pid):
                assert time.monotonic() < deadline, "the process does not use the run folder"
                time.sleep(0.0002)
            if kill:
                time.sleep(moment)
                self.kill(processes)
            output = [process.communicate(timeout=TIMEOUT)[1] for process in processes]
        finally:
            for process in processes:
                process.kill()
        statuses = [process.returncode for process in processes]
        killed = KILLED in statuses
        for status, stderr in zip(statuses, output, strict=True):
            assert status in ((0, 1, KILLED) if killed else (0,)), stderr
            # A process that has lost another one ends with one line.
            assert len(re.findall(r"^planish: ", stderr, re.M)) == (status == 1), stderr
        assert all(re.fullmatch(r"(planish: [^\n]+\n)?", stderr) for stderr in output[1:]), output
        resumed = re.search(r"resuming at step (\d+)\n", output[0])
        if resumed:
            assert int(resumed[1]) == saved
            self.resumptions += 1
        if killed:
            self.kills += 1
            self.kills_while_writing += temporary_files(self.run) != []
            self.check(saved)
        return not killed

    def check(self, saved):
        """Checks the run folder after a kill. The checkpoint before it was of the step `saved`, or None."""
        show = self.planish("show", "runs")
        if not (self.run / "config.json").exists():  # killed before the run began
            assert show.returncode == 3 and not (self.run / CHECKPOINT).exists()
            return
        assert (show.returncode, show.stderr) == (0, ""), show.stderr
        assert unexpected_files(self.run) == []
        step = saved_step(self.run)
        evaluated = [line["step"] for line in read_metrics(self.run)]
        # The updates are 1, 2, 3 ...: all are in metrics.jsonl.
        assert evaluated == list(range(len(evaluated)))
        if step is None:
            assert saved is None and evaluated in ([], [0], [0, 1])
        else:
            assert step >= (saved or 0) and evaluated[-1] - step in self.lacks

    def end(self, expected):
        assert_same_results(self.run, expected)
        assert unexpected_files(self.run) == [] and temporary_files(self.run) == []
        self.runs += 1


class LivesOfTwo(Lives):
    """Two processes train a run together. One or both are killed."""

    early = 0  # a process that is killed before both are connected leaves the other waiting
    lacks = (-1, 0)  # several processes also save before an evaluation

    def start(self):
        return Group(self.planish, 2, *self.command[1:]).processes

    def kill(self, processes):
        victims = self.random.choice([(0,), (1,), (0, 1), (1, 0)])
        for victim in victims:
            processes[victim].kill()
            time.sleep(self.random.choice([0, self.random.random() * 0.01]))
        deadline = time.monotonic() + SURVIVOR_SECONDS
        for process in processes:
            # The lines that they write fit into a pipe.
            process.wait(timeout=max(0, deadline - time.monotonic()))


def saved_step(run):
    return read_checkpoint(run)[1]["step"] if (run / CHECKPOINT).exists() else None


def train_once(planish, arguments):
    """Trains without a kill, and removes the run. Returns its folder, its results and the seconds that it was used."""
    planish.ok(*arguments, "--quiet")
    (run,) = (planish.folder / "runs" / arguments[1]).iterdir()
    seconds = (run / "result.json").stat().st_mtime - (run / "config.json").stat().st_mtime
    expected = results_of(run)
    shutil.rmtree(run)
    return run, expected, seconds


@pytest.mark.parametrize("task", TASKS)
def test_a_killed_run_loses_one_checkpoint_interval_at_most(planish, task, record_property):
    print(f"PLANISH_KILL_SEED={SEED}")
    run, expected, seconds = train_once(planish, command(task))
    kills = len(range(TASKS.index(task), KILLS - KILLS_OF_TWO, len(TASKS)))
    survive(Lives(planish, command(task), run, seconds / 4), kills, expected, record_property)


def test_a_run_of_two_processes_survives_kills_of_one_or_both(planish, record_property):
    """The results are those of a process by itself."""
    print(f"PLANISH_KILL_SEED={SEED}")
    run, expected, seconds = train_once(planish, command("pi-mnist", *TWO_PROCESSES))
    lives = LivesOfTwo(planish, command("pi-mnist", *TWO_PROCESSES), run, seconds / 2)
    survive(lives, KILLS_OF_TWO, expected, record_property)
    record_property("kills_of_two", lives.kills)


def survive(lives, kills, expected, record_property):
    """Kills processes until there were `kills`, and trains the run to its end."""
    while lives.kills < kills:
        if lives.live(kill=True):
            lives.end(expected)
            shutil.rmtree(lives.run)
    if lives.run.exists() or lives.runs == 0:
        assert lives.live(kill=False)
        lives.end(expected)
    for name in ("kills", "kills_while_writing", "resumptions", "runs"):
        record_property(name, getattr(lives, name))
