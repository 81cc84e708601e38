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

KILLS = int(os.environ.get("PLANISH_KILLS", "21"))  # of all tasks together
SEED = os.environ.get("PLANISH_KILL_SEED") or str(random.randrange(10**9))
# Each saves a checkpoint and evaluates after every update. They have different state beside weights: statistics of
# batch norm; the state carried between batches; memory, and random numbers of dropout.
RUNS = {
    "pi-mnist": ("--norm", "batch", "--set", "epochs=12", "--set", "evaluations_per_epoch=4"),
    "char-lm": ("--cell", "ln-lstm", "--set", "epochs=1", "--set", "evaluations_per_epoch=70"),
    "enwik8": ("--set", "epochs=1", "--set", "evaluations_per_epoch=35", "--set", "eval_bytes=300"),
}  # fmt: skip
TASKS = list(RUNS)
KILLED = -signal.SIGKILL
# The fraction of kills that are timed from the start of the process, which first loads libtorch and data.
EARLY = 0.05


def command(task):
    smoke = ("--preset", "smoke", "--threads", 1, "--checkpoint-seconds", 0, "--out", "runs")
    return ("train", task, *smoke, *RUNS[task])


def has_lock(run, pid):
    try:
        return (run / ".lock").read_text() == str(pid)
    except FileNotFoundError:
        return False


class Lives:
    """Processes of one training command, which are killed at random moments."""

    def __init__(self, planish, task, run, seconds):
        self.planish, self.command, self.run = planish, command(task), run
        self.seconds = seconds  # maximum time between using the run folder and the kill
        self.random = random.Random(f"{SEED} {task}")
        self.kills = self.kills_while_writing = self.resumptions = self.runs = 0

    def live(self, kill):
        """Runs the command, and kills it if `kill`. Returns the exit status."""
        saved = saved_step(self.run)
        early = self.random.random() < EARLY
        moment = self.random.random() * self.seconds
        process = self.planish.start(*self.command)
        try:
            deadline = time.monotonic() + TIMEOUT
            while kill and not early and process.poll() is None and not has_lock(self.run, process.pid):
                assert time.monotonic() < deadline, "the process does not use the run folder"
                time.sleep(0.0002)
            if kill:
                time.sleep(moment)
                process.kill()
            stderr = process.communicate(timeout=TIMEOUT)[1]
        finally:
            process.kill()
        assert process.returncode in (0, KILLED), stderr
        resumed = re.search(r"resuming at step (\d+)\n", stderr)
        if resumed:
            assert int(resumed[1]) == saved
            self.resumptions += 1
        if process.returncode == KILLED:
            self.kills += 1
            self.kills_while_writing += temporary_files(self.run) != []
            self.check(saved)
        return process.returncode

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
        # The updates are 1, 2, 3 ...: all are in metrics.jsonl, and the checkpoint lacks one at most.
        assert evaluated == list(range(len(evaluated)))
        if step is None:
            assert saved is None and evaluated in ([], [0], [0, 1])
        else:
            assert step >= (saved or 0) and evaluated[-1] - step in (0, 1)

    def end(self, expected):
        assert_same_results(self.run, expected)
        assert unexpected_files(self.run) == [] and temporary_files(self.run) == []
        self.runs += 1


def saved_step(run):
    return read_checkpoint(run)[1]["step"] if (run / CHECKPOINT).exists() else None


def train_once(planish, task):
    """Trains without a kill, and removes the run. Returns its folder, its results and the seconds that it was used."""
    planish.ok(*command(task), "--quiet")
    (run,) = (planish.folder / "runs" / task).iterdir()
    seconds = (run / "result.json").stat().st_mtime - (run / "config.json").stat().st_mtime
    expected = results_of(run)
    shutil.rmtree(run)
    return run, expected, seconds


@pytest.mark.parametrize("task", TASKS)
def test_a_killed_run_loses_one_checkpoint_interval_at_most(planish, task, record_property):
    print(f"PLANISH_KILL_SEED={SEED}")
    run, expected, seconds = train_once(planish, task)
    kills = [len(range(i, KILLS, len(TASKS))) for i in range(len(TASKS))][TASKS.index(task)]
    lives = Lives(planish, task, run, seconds / 4)
    while lives.kills < kills:
        if lives.live(kill=True) == 0:
            lives.end(expected)
            shutil.rmtree(run)
    if run.exists() or lives.runs == 0:
        assert lives.live(kill=False) == 0
        lives.end(expected)
    for name in ("kills", "kills_while_writing", "resumptions", "runs"):
        record_property(name, getattr(lives, name))
