"""planish train by several processes, which share every batch."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
from test_command import assert_one_line, tensors_of, without_seconds

TRAIN = ("--preset", "smoke", "--threads", 1, "--quiet")
NONE = ("--norm", "none")
# Each with a norm or cell whose statistics or states depend on the batch, where a task has one.
TASKS = {
    "pi-mnist": ("--norm", "batch"),
    "mnist-cnn": ("--norm", "batch"),
    "convnet": ("--norm", "batch"),
    "char-lm": ("--cell", "ln-lstm"),
    "rt": NONE,
    "sst5": NONE,
    "sentences": NONE,
    "images": ("--norm", "batch"),
    "parser": NONE,
    "mt": ("--norm", "layer"),
    "enwik8": ("--norm", "layer"),
    "attentive-reader": ("--norm", "batch"),
    "handwriting": ("--norm", "layer"),
    "draw": NONE,
    "skip-thoughts": NONE,
}
WHOLE = ("order-embedding", "online-ln")  # tasks whose batches cannot be cut


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Group:
    """Processes that train one run, as torchrun would start them."""

    def __init__(self, planish, size, *arguments, variables=None, each=None, only_last=None, last_after=0):
        master = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(size)}
        self.processes = []
        for rank in range(size):
            environment = planish.environment | master | {"RANK": str(rank)} | (variables or {})
            if only_last and rank == size - 1:
                environment |= only_last
            more = each[rank] if each else ()
            if rank == size - 1:
                time.sleep(last_after)
            self.processes.append(subprocess.Popen(
                [planish.program, "train", *map(str, arguments), *map(str, more)], cwd=planish.folder,
                env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))  # fmt: skip

    def wait(self, timeout=120):
        """Returns (status, stdout, stderr) of each."""
        results = []
        for process in self.processes:
            out, err = process.communicate(timeout=timeout)
            results.append((process.returncode, out, err))
        return results


def together(planish, size, *arguments, **options):
    results = Group(planish, size, *arguments, **options).wait()
    assert [status for status, _, _ in results] == [0] * size, results
    assert all(out == "" for _, out, _ in results[1:])  # the first process prints for all
    return results


def run_in(folder):
    (run,) = folder.glob("*/*/config.json")
    return run.parent


def assert_same_run(one, other):
    assert without_seconds(one / "metrics.jsonl") == without_seconds(other / "metrics.jsonl")
    assert tensors_of(one) == tensors_of(other)
    results = [json.loads((run / "result.json").read_text()) for run in (one, other)]
    for result in results:
        for key in [key for key in result if "seconds" in key]:
            del result[key]
    assert results[0] == results[1]


def same_for_every_size(planish, task, *arguments):
    arguments = (task, *TRAIN, *arguments, "--set", "shards=4")
    planish.ok("train", *arguments, "--out", "one")
    for size in (2, 4):
        together(planish, size, *arguments, "--out", f"of{size}")
        assert_same_run(run_in(planish.folder / "one"), run_in(planish.folder / f"of{size}"))


@pytest.mark.parametrize("task", ["pi-mnist", "char-lm"])
def test_one_two_and_four_processes_give_the_same_bits(planish, task):
    same_for_every_size(planish, task, *TASKS[task])


def test_gradients_of_several_buckets_have_the_same_bits(planish):
    # 5 MB of gradients in buckets of 1 MB, with several shards in a process.
    same_for_every_size(planish, "pi-mnist", "--norm", "layer", "--set", "width=600", "--set", "depth=3", "--set", "epochs=1")


@pytest.mark.long
@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_the_same_bits_for_any_number_of_processes(planish, task):
    same_for_every_size(planish, task, *TASKS[task])


@pytest.mark.parametrize("task", ["char-lm", "parser"])
def test_the_loss_is_that_of_the_whole_batch(planish, task):
    """Without dropout and batch statistics, shards change the order of additions only."""
    dropout = ("--set", "dropout=0", *NONE) if task == "parser" else ()
    whole, parts = (planish.folder / name for name in ("whole", "parts"))
    planish.ok("train", task, *TRAIN, *dropout, "--out", "whole")
    together(planish, 3, task, *TRAIN, *dropout, "--out", "parts")
    expected, got = ([line["values"] for line in without_seconds(run_in(f) / "metrics.jsonl")] for f in (whole, parts))
    assert len(expected) == len(got)
    for one, other in zip(expected[:3], got[:3], strict=True):
        # Float32 rounding of the updates, which grows from update to update.
        assert one == pytest.approx(other, rel=2e-4)


def test_gradients_around_norms_are_those_of_the_whole_batch(planish):
    arguments = ("pi-mnist", *TRAIN, "--norm", "layer")
    planish.ok("train", *arguments, "--out", "whole")
    together(planish, 2, *arguments, "--out", "parts")
    whole, parts = (
        without_seconds(run_in(planish.folder / name) / "metrics.jsonl")[1]["gradients"] for name in ("whole", "parts"))  # fmt: skip
    names = [[gradient.pop("norm") for gradient in gradients] for gradients in (whole, parts)]
    assert names == [["norm0", "norm1", "norm2"]] * 2
    for one, other in zip(whole, parts, strict=True):
        # Float32 rounding of the gradients, of which these are means of magnitudes and variances.
        assert one == pytest.approx(other, rel=1e-4)


SYNC = ("--set", "sync_batch_norm=true")


@pytest.mark.parametrize("task", ["pi-mnist", *(
    pytest.param(task, marks=pytest.mark.long) for task in ("mnist-cnn", "convnet"))])  # fmt: skip
def test_synchronized_batch_norm_is_that_of_the_whole_batch(planish, task):
    arguments = (task, *TRAIN, *TASKS[task])
    planish.ok("train", *arguments, "--out", "whole")
    together(planish, 2, *arguments, *SYNC, "--out", "synchronized")
    together(planish, 2, *arguments, "--out", "local")
    # Losses only: rounding can move a case across the boundary between right and wrong.
    whole, synchronized, local = (
        [{name: value for name, value in line["values"].items() if "loss" in name or "nll" in name}
         for line in without_seconds(run_in(planish.folder / folder) / "metrics.jsonl")][:3]
        for folder in ("whole", "synchronized", "local"))  # fmt: skip
    for one, other in zip(whole, synchronized, strict=True):
        # Float32 rounding of the updates, which grows from update to update.
        assert one == pytest.approx(other, rel=2e-4)
    assert whole[2]["train_loss"] != pytest.approx(local[2]["train_loss"], rel=2e-4)


def test_synchronized_batch_norm_needs_a_shard_for_each_process(planish):
    for status, out, err in Group(planish, 2, "pi-mnist", *TRAIN, *NONE, *SYNC, "--set", "shards=4").wait():
        assert status == 2
        assert out == ""
        assert err == ("planish: [train] sync_batch_norm needs one shard for each process: shards must be the number of "
                       "processes (WORLD_SIZE), 2, got 4\n")  # fmt: skip


def test_batch_norm_of_each_time_step_cannot_be_synchronized(planish):
    for status, out, err in Group(planish, 2, "attentive-reader", *TRAIN, "--norm", "batch", *SYNC).wait():
        assert (status, out) == (2, "")
        assert err == ("planish: [train] sync_batch_norm must be false in attentive-reader, whose batch norm has statistics "
                       "for each time step, got true\n")  # fmt: skip


def test_synchronized_batch_norm_needs_a_case_for_each_process(planish):
    arguments = ("pi-mnist", *TRAIN, "--norm", "batch", *SYNC, "--batch-size", 2)
    for status, _, err in Group(planish, 3, *arguments).wait():
        assert status == 1
        assert err == ("planish: a batch of 2 cases has none for some of the 3 processes, but sync_batch_norm needs one for "
                       "each\n")  # fmt: skip


def test_accumulated_batches_and_one_smaller_than_the_shards(planish):
    same_for_every_size(planish, "pi-mnist", "--batch-size", 3, "--norm", "layer", "--set", "accumulate=2",
                        "--set", "clip=0.1", "--set", "epochs=1")  # fmt: skip


def test_the_number_of_shards_is_that_of_the_processes_unless_given(planish):
    together(planish, 2, "pi-mnist", *TRAIN, *NONE, "--out", "out")
    run = run_in(planish.folder / "out")
    assert run.name == "smoke-none-b128-shards=2-s1"
    assert json.loads((run / "config.json").read_text())["settings"]["shards"] == 2
    planish.ok("train", "pi-mnist", *TRAIN, *NONE, "--out", "alone")
    assert "shards" not in json.loads((run_in(planish.folder / "alone") / "config.json").read_text())["settings"]


def test_a_divergence_in_one_process_names_its_layer(planish):
    arguments = (*TRAIN, "--out", "out", "--norm", "none", "--set", "lr=1e6", "--set", "depth=8")
    together(planish, 2, "pi-mnist", *arguments, "--set", "evaluations_per_epoch=1", "--set", "train_cases=4096")
    result = json.loads((run_in(planish.folder / "out") / "result.json").read_text())
    assert result["status"] == "diverged"
    assert re.search(": the output of linear[5-6] was -?inf$", result["message"])


LONG = ("pi-mnist", *TRAIN, *NONE, "--set", "shards=2", "--set", "epochs=400", "--checkpoint-seconds", 0.05, "--out")


def checkpoint(folder):
    for _ in range(600):
        found = list(folder.glob("*/*/checkpoint/state.safetensors"))
        if found:
            return found[0]
        time.sleep(0.05)
    raise AssertionError("no checkpoint")


@pytest.fixture(scope="module")
def uninterrupted(shared):
    shared.ok("train", *LONG, "out")
    return run_in(shared.folder / "out")


@pytest.mark.parametrize("killed", [0, 1])
def test_the_others_end_when_one_is_killed_and_any_number_continues(planish, uninterrupted, killed):
    group = Group(planish, 2, *LONG, "out")
    checkpoint(planish.folder / "out")
    group.processes[killed].kill()
    start = time.monotonic()
    results = group.wait()
    assert time.monotonic() - start < 10
    status, out, err = results[1 - killed]
    assert status == 1
    assert out == ""
    assert err.startswith("planish: process ")
    assert err.count("\n") == 1
    assert "lost" in err
    planish.ok("train", *LONG, "out")  # alone
    assert_same_run(run_in(planish.folder / "out"), uninterrupted)


def test_a_stop_of_all_saves_and_continues(planish, uninterrupted):
    group = Group(planish, 2, *LONG[:-3], "--out", "out")  # no checkpoint but that of the stop
    time.sleep(1.5)
    for process in group.processes:
        process.send_signal(signal.SIGTERM)
    results = group.wait()
    assert {status for status, _, _ in results} == {143}, results
    assert checkpoint(planish.folder / "out").exists()
    together(planish, 2, *LONG, "out")
    assert_same_run(run_in(planish.folder / "out"), uninterrupted)


def test_a_stop_of_one_stops_all(planish, uninterrupted):
    group = Group(planish, 2, *LONG, "out")
    checkpoint(planish.folder / "out")
    group.processes[1].send_signal(signal.SIGTERM)
    (other, out, err), (stopped, *_) = group.wait()
    assert (stopped, other) == (143, 1)
    assert out == ""
    assert err.count("\n") == 1
    # The latter if it was stopped during its evaluation, which it does not wait for.
    assert "another process was stopped" in err or "lost another process" in err
    planish.ok("train", *LONG, "out")
    assert_same_run(run_in(planish.folder / "out"), uninterrupted)


def test_a_folder_that_is_not_shared_is_an_error(planish):
    group = Group(planish, 2, *LONG[:-1], each=[("--out", "out"), ("--out", "other")])
    checkpoint(planish.folder / "out")
    group.processes[0].kill()
    group.wait()
    results = Group(planish, 2, *LONG[:-1], each=[("--out", "out"), ("--out", "other")]).wait()
    assert [status for status, _, _ in results] == [1, 1]
    assert "process 1 finds step 0 in " in results[1][2]
    assert all(err.count("\n") == 1 for _, _, err in results)
    assert not list(planish.folder.glob("*/*/*/result.json"))


def test_a_finished_run_is_skipped_by_all(planish):
    arguments = ("pi-mnist", *TRAIN, *NONE, "--out", "out")
    together(planish, 2, *arguments)
    before = run_in(planish.folder / "out").stat().st_mtime_ns
    together(planish, 2, *arguments)
    assert run_in(planish.folder / "out").stat().st_mtime_ns == before


@pytest.mark.long
@pytest.mark.parametrize("hung", [0, 1])
def test_the_others_end_within_half_a_minute_when_one_hangs(planish, uninterrupted, hung):
    group = Group(planish, 2, *LONG, "out")
    checkpoint(planish.folder / "out")
    group.processes[hung].send_signal(signal.SIGSTOP)
    start = time.monotonic()
    other = group.processes[1 - hung]
    out, err = other.communicate(timeout=60)
    assert time.monotonic() - start < 30
    assert other.returncode == 1
    assert "has not answered" in err
    assert err.count("\n") == 1
    group.processes[hung].kill()
    group.processes[hung].wait()
    together(planish, 2, *LONG, "out")
    assert_same_run(run_in(planish.folder / "out"), uninterrupted)


@pytest.mark.long
def test_torchrun_restarts_a_killed_process(planish, uninterrupted):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc-per-node=2"]
    process = subprocess.Popen(
        [*torchrun, "--max-restarts=2", planish.program, "train", *map(str, LONG), "out"],
        cwd=planish.folder, env=planish.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    checkpoint(planish.folder / "out")
    pids = subprocess.run(["pgrep", "-P", str(process.pid)], text=True, capture_output=True, check=True).stdout.split()
    os.kill(int(pids[-1]), signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "resuming at step" in err or (run_in(planish.folder / "out") / "result.json").exists()
    assert_same_run(run_in(planish.folder / "out"), uninterrupted)


# Errors.


@pytest.mark.long
def test_a_process_that_ends_while_all_connect_ends_the_others(planish):
    start = time.monotonic()
    group = Group(planish, 2, "pi-mnist", *TRAIN, only_last={"GLOO_SOCKET_IFNAME": "no9"})
    (status, _, err), (_, _, other) = group.wait()
    assert time.monotonic() - start < 30
    assert status == 1
    assert err.count("\n") == other.count("\n") == 1
    assert "no9" in other


@pytest.mark.long
def test_a_kill_while_all_start_ends_the_others(planish, uninterrupted):
    # A process that is killed before the others meet it looks like one that starts late.
    cases = [(killed, after) for killed in (0, 1) for after in (0.05, 0.3, 0.6, 0.9)]
    groups = []
    for i, (killed, after) in enumerate(cases):
        groups.append(Group(planish, 2, *LONG, f"out{i}"))
        time.sleep(after)
        groups[-1].processes[killed].kill()
    start = time.monotonic()
    for group, (killed, _) in zip(groups, cases, strict=True):
        status, out, err = group.wait(180)[1 - killed]
        assert (status, out) == (1, "")
        assert err.count("\n") == 1
        assert "lost" in err or "cannot meet the others" in err
    assert time.monotonic() - start < 150
    for i in range(len(cases)):
        planish.ok("train", *LONG, f"out{i}")
        assert_same_run(run_in(planish.folder / f"out{i}"), uninterrupted)


@pytest.mark.long
def test_a_process_that_starts_late_is_not_lost(planish):
    # 25 s exceed the timeout of heartbeats, 20 s.
    results = Group(planish, 3, "pi-mnist", *TRAIN, last_after=25).wait()
    assert [status for status, _, _ in results] == [0, 0, 0], results


def test_a_host_that_does_not_exist_is_one_line(planish):
    planish.environment.update(WORLD_SIZE="2", RANK="1", MASTER_ADDR="no.such.host.invalid", MASTER_PORT="29999")
    assert_one_line(planish("train", "pi-mnist", *TRAIN), 1, "cannot find the host no.such.host.invalid (MASTER_ADDR)")


@pytest.mark.parametrize(
    "variables, parts",
    [
        ({"WORLD_SIZE": "2"}, ["WORLD_SIZE and RANK must be set together, got only WORLD_SIZE"]),
        ({"RANK": "0"}, ["WORLD_SIZE and RANK must be set together, got only RANK"]),
        ({"WORLD_SIZE": "2", "RANK": "2"}, ["RANK must be below WORLD_SIZE, got 2 and 2"]),
        ({"WORLD_SIZE": "two", "RANK": "0"}, ['WORLD_SIZE must be an integer from 1 to 65536, got "two"']),
        ({"WORLD_SIZE": "0", "RANK": "0"}, ["WORLD_SIZE must be"]),
        ({"WORLD_SIZE": "2", "RANK": "0"}, ["MASTER_ADDR and MASTER_PORT must name"]),
        ({"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "h", "MASTER_PORT": "0"}, ["MASTER_PORT must be"]),
    ],
)
def test_variables_that_do_not_fit_are_wrong_usage(planish, variables, parts):
    planish.environment.update(variables)
    assert_one_line(planish("train", "pi-mnist", *TRAIN), 2, "[train]", *parts)


def test_shards_that_the_processes_cannot_share_are_wrong_usage(planish):
    for status, out, err in Group(planish, 2, "pi-mnist", *TRAIN, "--set", "shards=3").wait():
        assert status == 2
        assert out == ""
        assert err == "planish: [train] shards must be a multiple of the 2 processes (WORLD_SIZE), got 3\n"
    assert not (planish.folder / "runs").exists()


@pytest.mark.parametrize("task", WHOLE)
def test_a_task_that_needs_whole_batches_says_why(planish, task):
    for status, _, err in Group(planish, 2, task, *TRAIN).wait():
        assert status == 2
        assert f"shards must be 1 in {task}, because " in err
        assert err.count("\n") == 1


def test_other_settings_in_one_process_are_an_error(planish):
    results = Group(planish, 2, "pi-mnist", *TRAIN, each=[(), ("--set", "lr=0.5")]).wait()
    assert [status for status, _, _ in results] == [1, 1]
    assert "process 1 has other settings or data than process 0: lr: 0.5 instead of 0.001" in results[1][2]
    assert all(err.count("\n") == 1 for _, _, err in results)


def test_an_interface_that_does_not_exist_is_named(planish):
    for status, _, err in Group(planish, 2, "pi-mnist", *TRAIN, variables={"GLOO_SOCKET_IFNAME": "nothing9"}).wait():
        assert status == 1
        assert "nothing9" in err
        assert err.count("\n") == 1


def test_a_run_that_another_program_trains_is_refused(planish):
    busy = planish.start("train", *LONG, "out")
    checkpoint(planish.folder / "out")
    results = Group(planish, 2, *LONG, "out").wait()
    busy.kill()
    busy.communicate()
    assert [status for status, _, _ in results] == [1, 1]
    assert "another process" in results[0][2]
    assert all(err.count("\n") == 1 for _, _, err in results)


@pytest.mark.long
def test_the_checkpoint_of_another_number_of_processes_is_accepted(planish, uninterrupted):
    arguments = [a if a != "shards=2" else "shards=4" for a in LONG]
    group = Group(planish, 4, *arguments, "out")
    checkpoint(planish.folder / "out")
    for process in group.processes:
        process.kill()
    group.wait()
    shutil.copytree(planish.folder / "out", planish.folder / "two")
    together(planish, 2, *arguments, "two")
    planish.ok("train", *arguments, "out")
    assert_same_run(run_in(planish.folder / "out"), run_in(planish.folder / "two"))
