"""planish train with several runs: the norms of a task, --jobs, a second process, failures, progress on a terminal."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest
from conftest import TIMEOUT
from run_files import assert_same_results, results_of
from test_command import SMOKE, assert_one_line

NORMS = "none,layer,rms"
SWEEP = (*SMOKE, "--norm", NORMS, "--seeds", 2)
NAMES = sorted(f"smoke-{norm}-b128-s{seed}" for norm in NORMS.split(",") for seed in (1, 2))
ABLATIONS = {"detach", "detach-mean", "detach-std", "ada-as-coded"}
# Some seconds a run, with an evaluation every few milliseconds.
LONG = (*SMOKE, "--norm", NORMS, "--batch-size", 4, "--set", "epochs=120", "--checkpoint-seconds", 1000)


def finished(folder):
    return sorted(path.parent.name for path in folder.glob("*/result.json"))


def wait_for(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.01)


# The norms of a task.


def choices_of(shared, task):
    return re.search(r"^  norm +\S+ +.*\((\S+\|\S+)\)$", shared.ok("list", task).stdout, re.M).group(1).split("|")


def test_all_norms_but_ablations_are_trained_unless_some_are_named(planish):
    planish.ok(*SMOKE, "--set", "epochs=1", "--quiet")
    expected = sorted(f"smoke-{norm}-b128-epochs=1-s1" for norm in choices_of(planish, "pi-mnist") if norm not in ABLATIONS)
    assert len(expected) == 10
    assert finished(planish.folder / "runs/pi-mnist") == expected


@pytest.mark.parametrize("task", ["rt", "online-ln", "handwriting", "char-lm"])
def test_list_with_a_preset_shows_the_runs_of_train(shared, task):
    text = shared.ok("list", task, "--preset", "smoke").stdout
    runs = re.findall(r"^  (?:norm|cell) (\S+) +(smoke-\S+-s1)$", text, re.M)
    names = {"rt": [norm for norm in choices_of(shared, "rt") if norm not in ABLATIONS],
             "online-ln": choices_of(shared, "online-ln"), "handwriting": ["layer", "none"], "char-lm": ["lstm"]}[task]  # fmt: skip
    assert [name for name, _ in runs] == names
    assert all(folder.startswith(f"smoke-{name}-b") for name, folder in runs)
    settings = json.loads(shared.ok("train", task, "--preset", "smoke", "--set", "epochs=1", "--threads", 1, "--json",
                                    "--quiet", "--cell" if task == "char-lm" else "--norm", names[0]).stdout)["settings"]  # fmt: skip
    shown = dict(re.findall(r"^  (\w+) +(\S+) +", text[text.index("settings (") :], re.M))
    for name in ("batch_size", "lr"):
        assert float(shown[name]) == settings[name]


def test_list_of_a_preset_needs_a_task_and_a_known_preset(shared):
    assert_one_line(shared("list", "--preset", "smoke"), 2, "--preset must be given with a TASK")
    assert_one_line(shared("list", "rt", "--preset", "tiny"), 2, 'preset must be one of', 'got "tiny"')
    assert_one_line(shared("list", "rt", "--preset", ""), 2, "--preset is empty")


def test_help_says_which_norms_run(shared):
    assert "all that the task" in shared.ok("train", "--help").stdout


# --jobs.


@pytest.fixture(scope="module")
def alone(shared):
    shared.result = shared.ok(*SWEEP)
    return shared


@pytest.mark.parametrize("jobs", [2, 5])
def test_jobs_give_the_bits_of_one_after_the_other(planish, alone, jobs):
    result = planish.ok(*SWEEP, "--jobs", jobs)
    for name in NAMES:
        assert_same_results(planish.folder / "runs/pi-mnist" / name, results_of(alone.folder / "runs/pi-mnist" / name))

    def table(text):
        # Without the times, which other programs can disturb.
        lines = [line for line in text.replace(" †", "").splitlines() if not line.startswith("†: ")]
        return [line.split()[:-1] for line in lines]

    assert table(result.stdout) == table(alone.result.stdout)
    # In the order in which the runs end.
    lines = [sorted(re.findall(r"^run \d/6 \S+  test error \S+ after 2 epochs", r.stderr, re.M)) for r in (result, alone.result)]
    assert lines[0] == lines[1] and len(lines[0]) == 6
    again = planish.ok(*SWEEP, "--jobs", jobs)
    assert again.stderr.count("done before: test error") == 6
    assert "6 of 6 runs had been done before\n" in again.stderr


def test_json_has_the_runs_in_the_order_of_the_sweep(planish):
    lines = [json.loads(line) for line in planish.ok(*SWEEP, "--jobs", 3, "--json", "--quiet").stdout.splitlines()]
    assert [(line["settings"]["norm"], line["seed"]) for line in lines] == [
        (norm, seed) for seed in (1, 2) for norm in NORMS.split(",")
    ]  # fmt: skip


def test_jobs_divide_the_threads(planish):
    arguments = [a for a in SWEEP if a not in ("--threads", 1)]
    planish.ok(*arguments, "--jobs", 2, "--quiet")
    for name in NAMES:
        config = json.loads((planish.folder / "runs/pi-mnist" / name / "config.json").read_text())
        assert config["stamps"]["threads"] == str(max(1, os.cpu_count() // 2))


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_that_fails_is_named_and_the_others_are_trained(planish, jobs):
    broken = planish.folder / "runs/pi-mnist" / NAMES[0]
    broken.mkdir(parents=True)
    (broken / "config.json").write_text("{")
    result = planish(*SWEEP, "--jobs", jobs, "--quiet")
    assert result.returncode == 1
    assert re.fullmatch(rf"{NAMES[0]} failed \(status 1\): [^\n]*config.json[^\n]*\n1 of 6 runs failed\n", result.stderr)
    assert finished(broken.parent) == NAMES[1:]
    assert "norm none" not in result.stdout and re.search(r"^  \S rms +2 ", result.stdout, re.M)


@pytest.mark.parametrize("jobs", [1, 2])
def test_errors_of_the_sweep_come_before_its_first_run(planish, jobs):
    for more, part in [(("--batch-size", 513), "512 training cases"), (("--set", "lr=x"), "lr must be"),
                       (("--norm", "x"), "norm must be one of"), (("--jobs", 0), "--jobs"),
                       (("--device", "tpu"), "cpu")]:  # fmt: skip
        norm = () if "--norm" in more else ("--norm", NORMS)
        number = () if "--jobs" in more else ("--jobs", jobs)
        assert_one_line(planish(*SMOKE, *norm, *number, *more, "--quiet"), 2, part)
    assert_one_line(planish(*SWEEP, "--jobs", jobs, "--data", "/no/such"), 3, "/no/such")
    assert not (planish.folder / "runs").exists()


def test_runs_of_other_data_are_not_taken_for_done(planish):
    planish.ok(*SWEEP, "--quiet")
    config = planish.folder / "runs/pi-mnist" / NAMES[0] / "config.json"
    config.write_text(config.read_text().replace('"sha256": "', '"sha256": "0'))
    result = planish(*SWEEP, "--jobs", 2, "--quiet")
    assert result.returncode == 1
    assert "data sha256" in result.stderr and "1 of 6 runs failed" in result.stderr


def test_jobs_are_not_for_several_processes(planish):
    planish.environment |= {"WORLD_SIZE": "2", "RANK": "0"}
    assert_one_line(planish(*SWEEP, "--jobs", 2), 2, "[train] WORLD_SIZE must not be set")


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_saves_all_jobs_which_go_on(planish, number, status):
    process = planish.start(*LONG, "--jobs", 2, "--quiet")
    runs = planish.folder / "runs/pi-mnist"
    wait_for(lambda: sum(path.read_bytes().count(b"\n") >= 10 for path in runs.glob("*/metrics.jsonl")) >= 2)
    process.send_signal(number)
    out, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == status
    assert out == ""
    assert re.fullmatch(r"stopped: \d of 3 runs done. Run the same command again to continue.\n", err)
    stopped = [path.parent for path in runs.glob("*/metrics.jsonl") if not (path.parent / "result.json").exists()]
    assert stopped
    for run in stopped:
        assert (run / "checkpoint/state.safetensors").exists(), run
    if number == signal.SIGINT:
        assert planish.ok(*LONG, "--jobs", 2, "--quiet").returncode == 0
        planish.ok(*LONG, "--out", "whole", "--quiet")
        for run in stopped:
            assert_same_results(run, results_of(planish.folder / "whole/pi-mnist" / run.name))


# A second process.


@pytest.mark.parametrize("jobs", [1, 2])
def test_two_processes_train_every_run_once(planish, jobs):
    arguments = (*SMOKE, "--norm", NORMS, "--set", "epochs=40", "--seeds", 3, "--jobs", jobs)
    both = [planish.start(*arguments) for _ in range(2)]
    results = [(*process.communicate(timeout=TIMEOUT), process.returncode) for process in both]
    assert len(finished(planish.folder / "runs/pi-mnist")) == 9
    trained = []
    for out, err, status in results:
        assert status == 0 and "failed" not in err, err
        trained += re.findall(r"^run \d/9 (\S+)  test error ", err, re.M)
        others = re.findall(r"^run \d/9 (\S+)  (?:trained by another process|done before): test error ", err, re.M)
        left = re.findall(r"^(\d) of 9 runs left to another process, which is training (?:it|them): (.*)$", err, re.M)
        names = [name for _, text in left for name in text.split(", ")]
        own = re.findall(r"^run \d/9 (\S+)  test error ", err, re.M)
        assert len(own) + len(others) + len(names) == 9, err
        assert set(own) | set(others) | set(names) == set(finished(planish.folder / "runs/pi-mnist"))
        for count, text in left:
            assert int(count) == len(text.split(", "))
    if jobs == 1:  # the process of a job that finds its run finished counts it as its own
        assert sorted(trained) == finished(planish.folder / "runs/pi-mnist")
    # An events file for each time that a run was trained.
    for run in (planish.folder / "runs/pi-mnist").iterdir():
        assert len(list(run.glob("events.out.tfevents.*"))) == 1, run


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_of_another_process_is_left_or_taken_up(planish, jobs):
    run = planish.folder / "runs/pi-mnist" / NAMES[0]
    run.mkdir(parents=True)
    with (run / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = planish.ok(*SWEEP, "--jobs", jobs, "--quiet")
        assert result.stderr == (
            f"1 of 6 runs left to another process, which is training it: {NAMES[0]}\n"
            "warning: the table lacks 1 of 6 runs; the same command completes it\n"
        )
        assert finished(run.parent) == NAMES[1:]
    assert planish.ok(*SWEEP, "--jobs", jobs, "--quiet").stderr == ""
    assert finished(run.parent) == NAMES


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_abandoned_run_is_taken_up_by_the_same_command(planish, jobs):
    run = planish.folder / "runs/pi-mnist/smoke-none-b4-epochs=120-s1"
    run.mkdir(parents=True)
    with (run / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = planish.start(*LONG, "--jobs", jobs, "--quiet")
        wait_for(lambda: (run.parent / "smoke-layer-b4-epochs=120-s1/metrics.jsonl").exists())
    assert process.communicate(timeout=TIMEOUT)[1] == ""
    assert process.returncode == 0
    assert len(finished(run.parent)) == 3


# The line on a terminal.


def on_a_terminal(planish, widths, is_enough, *arguments):
    """Returns the lines that the command has drawn, as (width, line). The width changes, and at the end the command is
    interrupted, when the lines of the last width are enough."""
    ours, theirs = pty.openpty()
    shown = []
    try:
        for width in widths[:1]:
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, width, 0, 0))
        process = subprocess.Popen([planish.program, *map(str, arguments)], cwd=planish.folder,
                                   env=planish.environment | {"TERM": "xterm"}, stdout=subprocess.DEVNULL, stderr=theirs)
        for width in widths:
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, width, 0, 0))
            if width != widths[0]:
                time.sleep(0.3)
                while select.select([ours], [], [], 0)[0]:  # drawn before, or while the width changed
                    os.read(ours, 65536)
            text, drawn = b"", []
            while process.poll() is None and not is_enough(drawn):
                if select.select([ours], [], [], 0.05)[0]:
                    text += os.read(ours, 65536)
                    *lines, text = text.split(b"\x1b[K")
                    drawn += [line.decode().rsplit("\r", 1)[-1] for line in lines]
            # Notes above the line have line ends.
            shown += [(width, line) for line in drawn[1 if width != widths[0] else 0 :] if line and "\n" not in line]
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=TIMEOUT) in (0, 130)
    finally:
        os.close(ours)
        os.close(theirs)
    return shown


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_line_fits_every_width_without_cut_words(planish, jobs):
    widths, seeds = (80, 20, 40, 200, 20), 3 * jobs  # enough runs to be interrupted before the last one
    shown = on_a_terminal(planish, widths, lambda drawn: sum("run " in line or "done" in line for line in drawn) > 8,
                          *LONG, "--seeds", seeds, "--jobs", jobs)
    run = r"smoke-\w+-b4-epochs=120-s\d+"
    field = "|".join([rf"run \d+/{3 * seeds}", rf"\d+/{3 * seeds} done", r"\d+:\d\d left", run, rf"{run} (?:\d+%|evaluating|testing)", r"epoch \d+\.\d/120",
                      r"loss \d\.\d+(?:e-\d+)?", r"test error \d+\.\d\d%", r"[\d,.]+ cases/s", "evaluating", "testing", "loading data"])  # fmt: skip
    for width, line in shown:
        assert len(line) < width, (width, line)
        assert re.fullmatch(rf"(?:{field})(?:  (?:{field}))*", line), (width, line)
    longest = {width: max((len(line) for w, line in shown if w == width), default=0) for width in widths}
    assert longest[20] >= 8 and longest[40] >= longest[20] and longest[200] > longest[80] > 40, longest


def test_the_time_left_is_that_of_all_runs(planish):
    """Three similar runs: in the middle of the first one, two and a half are left."""
    result = planish.folder / "runs/pi-mnist/smoke-none-b4-epochs=120-s1/result.json"
    shown = on_a_terminal(planish, (200,), lambda _: result.exists(), *LONG)
    seconds = []
    for _, line in shown:
        match = re.match(r"run 1/3  (\d+):(\d\d) left  .*epoch (\d+\.\d)/120", line)
        if match and float(match.group(3)) > 30:
            minutes, rest, epoch = match.groups()
            seconds.append((int(minutes) * 60 + int(rest), float(epoch)))
    first = json.loads(result.read_text())
    run = first["seconds"] + first["evaluation_seconds"]
    assert seconds
    left, epoch = seconds[-1]
    expected = run * (3 - epoch / 120)
    # The first run's own speed, as measured up to then, which other programs can change; and rounding to a second.
    assert 0.5 * expected - 1 < left < 2 * expected + 1, (left, expected)


def test_phases_are_named(planish):
    run = ("train", "skip-thoughts", "--preset", "smoke", "--norm", "layer", "--threads", 1, "--set", "test_folds=10")
    shown = on_a_terminal(planish, (120,), lambda drawn: False, *run)
    assert any(line.endswith("  testing on 1 sentence set") for _, line in shown), shown
    assert any(line.endswith("  evaluating") for _, line in shown), shown
