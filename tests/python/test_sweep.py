"""planish sweep: runs that a TOML file describes."""

import fcntl
import json
import re
import shlex
import shutil
import time

import pytest
from test_command import assert_one_line, tensors_of

FILE = """\
preset = "smoke"
seeds = 2

[[sweep]]
task = "pi-mnist"
norm = ["none", "layer"]
batch_size = 32

[[sweep]]
task = "char-lm"
cell = "lstm"
seeds = [7]
"""
FOLDERS = [f"pi-mnist/smoke-{norm}-b32-s{seed}" for norm in ("layer", "none") for seed in (1, 2)]
FOLDERS.append("char-lm/smoke-lstm-b8-s7")


def write(planish, text=FILE):
    (planish.folder / "a.toml").write_text(text)


def folders(root):
    return sorted(str(path.parent.relative_to(root)) for path in root.glob("*/*/result.json"))


def test_trains_every_run_and_reports(planish):
    write(planish)
    result = planish.ok("sweep", "a.toml", "--jobs", 2)
    assert "5 of 5 runs to do, 2 at once: 5 runs of unknown duration.\n" in result.stdout
    assert result.stdout.endswith(f"report: {planish.folder}/runs/a/report.html\n")
    assert folders(planish.folder / "runs/a") == sorted(FOLDERS)
    again = planish.ok("sweep", "a.toml", "--jobs", 2, "--quiet")
    assert "0 of 5 runs to do.\n" in again.stdout
    assert again.stderr == ""


def test_the_printed_commands_train_the_same_runs_which_one_report_takes(planish):
    """Two machines: each runs every second command in its own folder."""
    write(planish)
    planish.ok("sweep", "a.toml", "--jobs", 2, "--threads", 1, "--out", "whole", "--quiet")
    for machine in (0, 1):
        lines = planish.ok("sweep", "a.toml", "--print", "--threads", 1, "--out", f"m{machine}").stdout.splitlines()
        assert len(lines) == 5
        for line in lines[machine::2]:
            command, *arguments = shlex.split(line)
            assert command == "planish"
            planish.ok(*arguments, "--quiet")
    found = {machine: folders(planish.folder / machine) for machine in ("m0", "m1")}
    assert sorted(found["m0"] + found["m1"]) == sorted(FOLDERS)
    for machine, names in found.items():
        for name in names:
            one, other = (planish.folder / root / name for root in (machine, "whole"))
            assert tensors_of(one) == tensors_of(other), name
    planish.ok("report", "m0", "m1", "-o", "merged.html")
    lines = planish.ok("show", "m0", "m1").stdout
    assert "none" in lines and "layer" in lines and "lstm" in lines


def test_prints_also_finished_runs_and_nothing_else(planish):
    write(planish)
    before = planish.ok("sweep", "a.toml", "--print").stdout
    planish.ok("sweep", "a.toml", "--quiet")
    shutil.copy(planish.folder / "a.toml", planish.folder / "b c.toml")
    assert planish.ok("sweep", "a.toml", "--print").stdout == before
    assert "--out 'runs/b c'" in planish.ok("sweep", "b c.toml", "--print").stdout


def test_a_run_that_fails_does_not_stop_the_others(planish):
    write(planish)
    folder = planish.folder / "runs/a/pi-mnist/smoke-none-b32-s1"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{")
    result = planish("sweep", "a.toml", "--jobs", 2, "--quiet")
    assert result.returncode == 1
    assert "pi-mnist smoke-none-b32-s1 failed (status 1): " in result.stderr
    assert "1 of 5 runs failed" in result.stderr
    assert len(folders(planish.folder / "runs/a")) == 4


def test_print_refuses_what_does_not_fit_on_a_line(planish):
    write(planish)
    lines = planish("sweep", "a.toml", "--print", "--out", "a\nb")
    assert_one_line(lines, 2, '[sweep] --out must have no line break with --print, got "a\\x0ab"')
    (planish.folder / "d\ne").mkdir()
    assert_one_line(planish("sweep", "a.toml", "--print", "--data", "d\ne"), 2, '--data must have no line break')


def test_two_sweeps_divide_the_runs(planish):
    (planish.folder / "a.toml").write_text('[[sweep]]\ntask = "pi-mnist"\nnorm = "none"\npreset = "smoke"\nepochs = 40\nseeds = 6\n')
    sweeps = [planish.start("sweep", "a.toml", "--jobs", 1, "--threads", 1) for _ in range(2)]
    results = [(*sweep.communicate(timeout=120), sweep.returncode) for sweep in sweeps]
    runs = planish.folder / "runs/a"
    assert len(folders(runs)) == 6
    trained = []
    for stdout, stderr, status in results:
        assert status == 0 and "failed" not in stderr, stderr
        assert stdout.endswith("/runs/a/report.html\n")
        own, others = (re.findall(rf"^\d/6 pi-mnist smoke-\S+-s(\d)  {how}$", stderr, re.M)
                       for how in (r"\d+:\d\d", "trained by another process"))  # fmt: skip
        left = re.findall(r"^(\d) of 6 runs left to another process, which is training (?:it|them): .*$", stderr, re.M)
        assert len(own) + len(others) + sum(map(int, left)) == 6, stderr
        trained += own
    # A process that begins a run when another has just finished it counts it as its own.
    assert set(trained) == set("123456")
    assert planish.ok("sweep", "a.toml", "--quiet").stderr == ""


@pytest.mark.parametrize("limit", [(), ("--hours", 1)], ids=["", "hours"])
def test_a_run_that_another_process_trains_is_left_to_it(planish, limit):
    write(planish)
    run = planish.folder / "runs/a/pi-mnist/smoke-none-b32-s1"
    run.mkdir(parents=True)
    with (run / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = planish.ok("sweep", "a.toml", "--jobs", 2, "--quiet", *limit)
        assert result.stderr == "1 of 5 runs left to another process, which is training it: pi-mnist smoke-none-b32-s1\n"
        assert folders(planish.folder / "runs/a") == sorted(set(FOLDERS) - {"pi-mnist/smoke-none-b32-s1"})
    assert planish.ok("sweep", "a.toml", "--quiet").stderr == ""
    assert len(folders(planish.folder / "runs/a")) == 5


def test_a_run_that_another_process_stops_training_is_trained(planish):
    (planish.folder / "a.toml").write_text('[[sweep]]\ntask = "pi-mnist"\nnorm = "none"\npreset = "smoke"\nepochs = [1, 60]\n')
    run = planish.folder / "runs/a/pi-mnist/smoke-none-b128-epochs=1-s1"
    run.mkdir(parents=True)
    with (run / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sweep = planish.start("sweep", "a.toml", "--jobs", 1, "--quiet")
        deadline = time.monotonic() + 60
        while not list(run.parent.glob("*-epochs=60-s1/metrics.jsonl")) and time.monotonic() < deadline:
            time.sleep(0.01)
    assert sweep.communicate(timeout=120)[1] == ""
    assert sweep.returncode == 0
    assert len(folders(planish.folder / "runs/a")) == 2


@pytest.mark.parametrize(
    "text, status, parts",
    [
        ("", 2, ["a.toml, line 1: there must be at least one [[sweep]]"]),
        ("[[sweep]]\ntask = ", 3, ["a.toml, line 2: "]),
        ("[[sweep]]\ntask = 'x'\n", 2, ["a.toml, line 2: task must be one of "]),
        ("[[sweep]]\ntask = 'pi-mnist'\nnorm = 'x'\n", 2, ["a.toml, line 3: norm must be one of "]),
        ("[[sweep]]\ntask = 'pi-mnist'\nlr = -1\n", 2, ["a.toml, line 3: lr must be "]),
        ("[[sweep]]\ntask = '\x1b[2J'\n", 3, ["a.toml"]),
        ("\xff", 3, ["a.toml"]),
    ],
)
def test_a_mistake_in_the_file_is_one_line(planish, text, status, parts):
    (planish.folder / "a.toml").write_bytes(text.encode("latin-1"))
    assert_one_line(planish("sweep", "a.toml"), status, *parts)
    assert sorted(path.name for path in planish.folder.iterdir()) == ["a.toml"]


def test_a_missing_file_and_a_wrong_flag_are_one_line(planish):
    assert_one_line(planish("sweep", "b.toml"), 3, "b.toml")
    write(planish)
    assert_one_line(planish("sweep", "a.toml", "--out", ""), 2, "--out")
    assert_one_line(planish("sweep", "a.toml", "--jobs", 0), 2, "--jobs")
    assert_one_line(planish("sweep", "a.toml", "--data", "/no/such"), 3, "/no/such")


def test_the_time_left_is_of_the_whole_sweep(planish):
    write(planish)
    planish.ok("sweep", "a.toml", "--quiet")
    last = planish.folder / "runs/a/pi-mnist/smoke-layer-b32-s2"
    result = json.loads((last / "result.json").read_text())
    shutil.rmtree(last)
    plan = planish.ok("sweep", "a.toml", "--dry-run").stdout
    assert "1 of 5 runs to do" in plan
    assert "unknown" not in plan
    assert result["status"] == "finished"


def test_a_queue_is_not_for_several_processes(planish):
    write(planish)
    planish.environment |= {"WORLD_SIZE": "2", "RANK": "0"}
    assert_one_line(planish("sweep", "a.toml"), 2, "WORLD_SIZE must not be set")
    assert_one_line(planish("reproduce", "xu2019"), 2, "WORLD_SIZE must not be set")
    assert planish.ok("sweep", "a.toml", "--print").stdout


def test_a_killed_sweep_ends_its_runs_which_save(planish):
    (planish.folder / "a.toml").write_text('[[sweep]]\ntask = "pi-mnist"\nnorm = "none"\npreset = "smoke"\nepochs = 3000\nseeds = 2\n')
    sweep = planish.start("sweep", "a.toml", "--jobs", 2, "--quiet")
    runs = planish.folder / "runs/a/pi-mnist"
    deadline = time.monotonic() + 60
    while len(list(runs.glob("*/metrics.jsonl"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.3)
    sweep.kill()
    sweep.communicate()
    while len(list(runs.glob("*/checkpoint/state.safetensors"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(list(runs.glob("*/checkpoint/state.safetensors"))) == 2
    assert not list(runs.glob("*/result.json"))


def test_the_runs_after_one_that_diverges_are_trained(planish):
    settings = 'task = "pi-mnist"\nnorm = ["none", "layer"]\ndepth = 8\nlr = 1e6\n'
    write(planish, 'preset = "smoke"\nseeds = 2\n[[sweep]]\n' + settings)
    result = planish.ok("sweep", "a.toml", "--jobs", 1)
    results = {}
    for path in (planish.folder / "runs/a").glob("*/*/result.json"):
        results[path.parent.name] = json.loads(path.read_text())
    assert len(results) == 4
    for name, stored in results.items():
        assert stored["status"] == ("diverged" if "none" in name else "finished")
        if "none" in name:
            assert re.search(": the output of linear[5-6] was -?inf$", stored["message"])
            assert f"diverged: {stored['message']}\n" in result.stdout + result.stderr
