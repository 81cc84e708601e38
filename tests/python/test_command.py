"""The planish command from the user's view: its output, files and exit status."""

import fcntl
import gzip
import json
import os
import pty
import re
import resource
import shutil
import signal
import stat
import struct
import termios
import time

import pytest
from conftest import Command

# One thread: the runs are too small for more, and the tests compare bits.
SMOKE = ("train", "pi-mnist", "--preset", "smoke", "--threads", 1)
ONE = (*SMOKE, "--norm", "none")  # one run
# Two seconds of training: long enough to be stopped halfway.
LONG = (*SMOKE, "--norm", "layer", "--batch-size", 4, "--set", "epochs=120", "--out", "runs")
LONG_FOLDER = "runs/pi-mnist/smoke-layer-b4-epochs=120-s1"
SWEEP = (*SMOKE, "--norm", "none,layer", "--batch-size", "64,128", "--seeds", 2, "--out", "runs")
SWEEP_NAMES = [
    f"smoke-{norm}-b{batch}-s{seed}"
    for seed in (1, 2) for norm in ("none", "layer") for batch in (64, 128)
]  # fmt: skip


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def without_seconds(path):
    """Returns everything of metrics.jsonl that does not depend on the clock."""
    lines = lines_of(path)
    for line in lines:
        del line["seconds"]
    return lines


def tensors_of(folder):
    numpy = pytest.importorskip("safetensors.numpy")
    tensors = numpy.load_file(folder / "checkpoint" / "state.safetensors")
    return {name: (t.dtype, t.shape, t.tobytes()) for name, t in tensors.items()}


def assert_one_line(result, status, *parts):
    """Asserts the form of every error: one line on stderr, nothing on stdout."""
    assert result.returncode == status, (result.returncode, result.stderr)
    assert re.fullmatch(r"planish: [^\n]+\n", result.stderr), result.stderr
    assert result.stdout == ""
    for part in parts:
        assert str(part) in result.stderr


@pytest.fixture(scope="module")
def sweep(shared):
    shared.result = shared.ok(*SWEEP)
    return shared


# Help and version.


def test_list(shared):
    assert re.match(r"pi-mnist +permutation-invariant MNIST", shared.ok("list").stdout)
    task = shared.ok("list", "pi-mnist").stdout
    for word in ("paper", "small", "smoke", "batch_size", "epochs", "lr", "layer", "train_cases"):
        assert re.search(rf"\b{word}\b", task), word


def test_version(shared):
    text = shared.ok("--version").stdout
    assert re.match(r"planish \d+\.\d+\.\d+", text)
    for name in ("compiler", "targets", "target", "cuda", "tuning", "torch", "cpu", "features", "threads"):
        assert re.search(rf"^{name} +\S", text, re.M), text


@pytest.mark.parametrize("command", [(), ("train",), ("report",), ("show",), ("diff",), ("list",), ("completion",), ("man",)])
def test_help(shared, command):
    text = shared.ok(*command, "--help").stdout
    assert "Usage: planish" in text
    assert re.search(r"^Example:\n  planish \w+", text, re.M)
    assert max(map(len, text.splitlines())) <= 100


def test_help_documents_the_exit_statuses(shared):
    for command in ((), ("train",)):
        text = shared.ok(*command, "--help").stdout
        for status in (0, 1, 2, 3, 129, 130, 143):
            assert re.search(rf"\b{status}\b", text[text.index("Exit status") :])


# A sweep.


def test_sweep_writes_a_folder_for_each_run(sweep):
    task = sweep.folder / "runs" / "pi-mnist"
    assert sorted(path.name for path in task.iterdir()) == sorted(SWEEP_NAMES)
    for folder in task.iterdir():
        names = [re.sub(r"tfevents\..*", "tfevents", path.name) for path in folder.iterdir()]
        assert sorted(names) == [
            ".lock", "checkpoint", "config.json", "events.out.tfevents", "metrics.jsonl", "predictions.csv.gz",
            "result.json",
        ]  # fmt: skip
        assert [path.name for path in (folder / "checkpoint").iterdir()] == ["state.safetensors"]


def test_config_says_what_decides_the_run_and_where_it_was_made(sweep):
    config = json.loads((sweep.folder / "runs/pi-mnist/smoke-layer-b64-s2/config.json").read_text())
    assert (config["task"], config["preset"], config["seed"]) == ("pi-mnist", "smoke", 2)
    assert config["settings"]["norm"] == "layer"
    assert config["settings"]["batch_size"] == 64
    assert re.fullmatch(r"[0-9a-f]{64}", config["data"]["sha256"])
    assert config["data"]["sizes"] == {"train": 512, "valid": 128, "test": 128}
    stamps = config["stamps"]
    for name in ("version", "commit", "compiler", "torch", "cpu", "cpu features"):
        assert stamps[name].strip(), name
    assert stamps["threads"] == "1"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", stamps["started"])


def test_metrics_and_result_agree(sweep):
    folder = sweep.folder / "runs/pi-mnist/smoke-layer-b64-s1"
    lines = lines_of(folder / "metrics.jsonl")
    result = json.loads((folder / "result.json").read_text())
    # 512 cases in batches of 64 are 8 steps an epoch. Metrics are written before training, at the end of
    # each epoch, and after 1/8, 1/4 and 1/2 of the first (1/16 is half a step).
    assert [line["step"] for line in lines] == [0, 1, 2, 4, 8, 16]
    assert [line["cases"] for line in lines] == [64 * line["step"] for line in lines]
    assert result["status"] == "finished"
    assert (result["steps"], result["epochs"]) == (16, 2)
    assert result["final"] == lines[-1]["values"]
    assert result["best"]["values"] == min(lines, key=lambda l: l["values"]["valid_error"])["values"]
    # One thread has at most a whole CPU; the clocks differ by a few milliseconds.
    assert 0 < result["cpu_seconds"] <= result["seconds"] + 0.02
    # 784-32-32-10 with gain and bias on the two hidden layers.
    assert result["parameters"] == (784 + 1 + 2) * 32 + (32 + 1 + 2) * 32 + (32 + 1) * 10


def test_final_table(sweep):
    text = sweep.result.stdout
    assert "pi-mnist: Permutation-invariant MNIST (drawn digits)" in text
    for batch in (64, 128):
        assert f"\nbatch size {batch}\n" in text
    assert re.findall(r"^  \S (none|layer) +2 ", text, re.M) == ["none", "layer"] * 2
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert sweep.ok("show", "runs").stdout == text


def test_progress_on_a_pipe_is_plain_lines(sweep):
    text = sweep.result.stderr
    assert "\r" not in text and "\x1b" not in text
    assert re.match(r"data: digits drawn by planish \(not MNIST\)", text)
    ends = re.findall(r"^run (\d)/8 (\S+)  test error [\d.]+% after 2 epochs, ", text, re.M)
    assert ends == [(str(i + 1), name) for i, name in enumerate(SWEEP_NAMES)]


def test_the_same_command_again_skips(sweep):
    before = {p: p.read_bytes() for p in (sweep.folder / "runs").rglob("*") if p.is_file()}
    again = sweep.ok(*SWEEP)
    assert "8 of 8 runs had been done before" in again.stderr
    assert again.stderr.count("done before: test error") == 8
    assert again.stdout == sweep.result.stdout
    after = {p: p.read_bytes() for p in (sweep.folder / "runs").rglob("*") if p.is_file()}
    lock = {p for p in before if p.name == ".lock"}  # contains the number of the last process
    assert {p: b for p, b in after.items() if p not in lock} == {
        p: b for p, b in before.items() if p not in lock
    }


def test_json_is_a_line_for_each_run_and_quiet_is_silent(sweep):
    result = sweep.ok(*SWEEP, "--json", "--quiet")
    assert result.stderr == ""
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["folder"] for line in lines] == [f"runs/pi-mnist/{name}" for name in SWEEP_NAMES]
    for line in lines:
        on_disk = json.loads((sweep.folder / line["folder"] / "result.json").read_text())
        assert on_disk.items() <= line.items()
        assert line["task"] == "pi-mnist" and line["preset"] == "smoke"
        assert f"-{line['settings']['norm']}-b{line['settings']['batch_size']}-s{line['seed']}" in line["folder"]


def test_all_norms_start_from_the_same_order_and_the_seed_decides(sweep):
    task = sweep.folder / "runs/pi-mnist"
    first = {name: lines_of(task / name / "metrics.jsonl")[0]["values"] for name in SWEEP_NAMES}
    assert first["smoke-none-b64-s1"] == first["smoke-none-b128-s1"]
    assert first["smoke-none-b64-s1"] != first["smoke-none-b64-s2"]


def test_checkpoint_is_readable_elsewhere(sweep):
    numpy = pytest.importorskip("safetensors.numpy")
    folder = sweep.folder / "runs/pi-mnist/smoke-layer-b64-s1"
    tensors = numpy.load_file(folder / "checkpoint" / "state.safetensors")
    result = json.loads((folder / "result.json").read_text())
    # Each parameter, at the end and at the best evaluation, and its two statistics in Adam.
    numbers = sum(t.size for t in tensors.values() if t.dtype == "float32" and t.ndim > 0)
    assert numbers == 4 * result["parameters"]


def test_events_are_those_of_metrics(sweep):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    numpy = pytest.importorskip("numpy")
    folder = sweep.folder / "runs/pi-mnist/smoke-layer-b128-s1"
    events = accumulator.EventAccumulator(str(folder)).Reload()
    lines = lines_of(folder / "metrics.jsonl")
    names = {name for line in lines for name in line["values"]}
    assert set(events.Tags()["scalars"]) == names
    for name in names:
        expected = [
            (line["step"], float(numpy.float32(line["values"][name])))  # TensorBoard's files store floats
            for line in lines if name in line["values"]
        ]  # fmt: skip
        assert [(event.step, event.value) for event in events.Scalars(name)] == expected


# Stopping and continuing.


@pytest.fixture(scope="module")
def uninterrupted(program, tmp_path_factory, server):
    planish = Command(program, tmp_path_factory.mktemp("uninterrupted"), server)
    planish.ok(*LONG)
    return planish.folder / LONG_FOLDER


def stop(planish, number, *arguments):
    """Starts the long run, sends the signal after some evaluations, and returns the ended process.
    """
    process = planish.start(*LONG, *arguments)
    metrics = planish.folder / LONG_FOLDER / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if metrics.exists() and metrics.read_bytes().count(b"\n") >= 10:
            break
        time.sleep(0.001)
    process.send_signal(number)
    process.out, process.err = process.communicate(timeout=120)
    assert not (planish.folder / LONG_FOLDER / "result.json").exists(), "it ended before the signal"
    return process


def assert_goes_on(planish, uninterrupted):
    again = planish.ok(*LONG)
    assert re.search(r"resuming at step [1-9]\d*\n", again.stderr)
    folder = planish.folder / LONG_FOLDER
    assert without_seconds(folder / "metrics.jsonl") == without_seconds(uninterrupted / "metrics.jsonl")
    assert tensors_of(folder) == tensors_of(uninterrupted)


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_saves_and_the_run_goes_on(planish, uninterrupted, number, status):
    process = stop(planish, number)
    assert process.returncode == status
    assert process.out == ""
    assert process.err.endswith("stopped: 0 of 1 runs done. Run the same command again to continue.\n")
    assert_goes_on(planish, uninterrupted)


def test_quiet_still_says_how_to_go_on(planish):
    process = stop(planish, signal.SIGINT, "--quiet")
    assert process.returncode == 130
    assert process.err == "stopped: 0 of 1 runs done. Run the same command again to continue.\n"


def test_a_killed_run_goes_on(planish, uninterrupted):
    process = stop(planish, signal.SIGKILL, "--checkpoint-seconds", 0.02)
    assert process.returncode == -signal.SIGKILL
    assert (planish.folder / LONG_FOLDER / "checkpoint" / "state.safetensors").exists()
    assert_goes_on(planish, uninterrupted)


def test_a_killed_run_without_a_checkpoint_begins_again(planish, uninterrupted):
    stop(planish, signal.SIGKILL)
    again = planish.ok(*LONG)
    assert "resuming" not in again.stderr
    folder = planish.folder / LONG_FOLDER
    assert without_seconds(folder / "metrics.jsonl") == without_seconds(uninterrupted / "metrics.jsonl")
    assert tensors_of(folder) == tensors_of(uninterrupted)


def test_a_damaged_checkpoint_is_refused(planish):
    stop(planish, signal.SIGINT)
    path = planish.folder / LONG_FOLDER / "checkpoint" / "state.safetensors"
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    assert_one_line(planish(*LONG, "--quiet"), 1, "state.safetensors")
    path.write_bytes(data[: len(data) // 2])
    assert_one_line(planish(*LONG, "--quiet"), 1, "state.safetensors")


def test_other_threads_are_warned_of_even_when_quiet(planish):
    stop(planish, signal.SIGINT)
    at = LONG.index("--threads")
    # A complete run would take minutes if other programs used the second core.
    process = planish.start(*LONG[:at], "--threads", 2, *LONG[at + 2 :], "--quiet")
    warning = process.stderr.readline()
    process.kill()
    process.communicate()
    assert re.fullmatch(
        r"warning: \S+: the checkpoint was made with 1 threads and continues with 2: [^\n]+\n", warning
    )


def test_two_processes_do_not_share_a_run(planish):
    process = planish.start(*LONG, "--set", "width=256")
    folder = planish.folder / "runs/pi-mnist/smoke-layer-b4-epochs=120-width=256-s1"
    deadline = time.monotonic() + 120
    while not (folder / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    second = planish(*LONG, "--set", "width=256", "--quiet")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130
    assert_one_line(second, 1, "another process", process.pid)


# Divergence is a result.


def test_a_diverged_run_is_a_result_and_the_sweep_goes_on(planish):
    # Without a norm the outputs grow by the learning rate with each of eight layers, to infinity.
    arguments = (*SMOKE, "--norm", "none,layer", "--set", "lr=1e6", "--set", "depth=8")
    result = planish.ok(*arguments)
    runs = {}
    for norm in ("none", "layer"):
        folder = planish.folder / f"runs/pi-mnist/smoke-{norm}-b128-lr=1000000.0-depth=8-s1"
        runs[norm] = json.loads((folder / "result.json").read_text())
    assert runs["none"]["status"] == "diverged"
    # Each layer multiplies by at least 1e6 and at most 3.2e7, so float overflows in one of these.
    layer = "the output of linear[5-6] was -?inf"
    assert re.match(r"\w+ was nan at step \d+: " + layer + "$", runs["none"]["message"])
    assert f"diverged: {runs['none']['message']}\n" in result.stderr
    assert runs["layer"]["status"] == "finished"
    assert "warning: 1 of 2 runs diverged\n" in result.stderr
    assert re.search(r"norm none, seed 1: diverged at step \d+ \(.*" + layer, " ".join(result.stdout.split()))
    planish.ok("report", "runs", "-o", "runs/report.html")
    assert re.search(layer, (planish.folder / "runs/report.html").read_text())
    again = planish.ok(*arguments, "--quiet", "--json")
    assert again.stderr == "warning: 1 of 2 runs diverged\n"
    assert [json.loads(line)["status"] for line in again.stdout.splitlines()] == ["diverged", "finished"]


def test_a_diverged_run_names_a_parameter_that_is_not_finite(planish):
    # The gradients of pixels that are 0 in every image are 0, and Adam divides them by their root.
    arguments = (*SMOKE, "--norm", "none", "--set", "adam_eps=0", "--json", "--quiet")
    (line,) = planish.ok(*arguments).stdout.splitlines()
    parameter = "the parameter linear0.weight was nan, the first of "
    assert re.fullmatch(rf"\w+ was nan at step 1: {parameter}\d", json.loads(line)["message"])


# Errors.


@pytest.mark.parametrize(
    "arguments, part",
    [
        (
            ("trian",),
            "must be one of train, tune, reproduce, sweep, report, thin, show, diff, list, export, sample, translate, search, "
            'write, data, make, downstream, analyze, bench, completion, man, got "trian"; did you mean train? (see',
        ),
        (("train",), "TASK"),
        (("train", "pi-mnits"), "pi-mnist"),
        (("list", "nothing"), "pi-mnist"),
        ((*SMOKE, "extra"), "extra"),
        ((*SMOKE, "--bogus"), "--bogus"),
        ((*SMOKE, "--norm"), "--norm"),
        ((*SMOKE, "--norm", "lyaer"), "layer"),
        ((*SMOKE, "--norm", ""), "--norm"),
        ((*SMOKE, "--norm", "layer,"), "--norm"),
        ((*SMOKE, "--norm", "layer,layer"), "layer twice"),
        ((*SMOKE, "--batch-size", "4,x"), '"x"'),
        ((*SMOKE, "--batch-size", "0"), "batch_size"),
        ((*SMOKE, "--batch-size", "513"), "512 training cases"),
        ((*SMOKE, "--batch-size", "128,513"), "512 training cases"),
        (("train", "pi-mnist", "--preset", "tiny"), "smoke"),
        ((*SMOKE, "--set", "lr"), "key=value"),
        ((*SMOKE, "--set", "=1"), "key=value"),
        ((*SMOKE, "--set", "leraning=1"), "lr"),
        ((*SMOKE, "--set", "lr=fast"), "fast"),
        ((*SMOKE, "--set", "lr=nan"), "nan"),
        ((*SMOKE, "--set", "lr=1e30"), "at most"),
        ((*SMOKE, "--set", "lr=0.1", "--set", "lr=0.2"), "lr=A,B"),
        ((*SMOKE, "--seeds", "3", "--seed", "3"), "--seeds"),
        ((*SMOKE, "--seeds", "0"), "from 1 to 1000"),
        ((*SMOKE, "--seeds", "two"), '"two"'),
        ((*SMOKE, "--seed", "-1"), "--seed"),
        (("train", "pi-mnist", "--threads", "9999"), "from 1 to 1024"),
        ((*SMOKE, "--checkpoint-seconds", "-1"), "--checkpoint-seconds"),
        ((*SMOKE, "--device", "tpu"), "cpu"),
        ((*SMOKE, "--out", ""), "--out"),
        (("report",), "FOLDER"),
        (("show",), "FOLDER"),
        (("report", "x", "--quiet"), "--quiet"),
    ],
)
def test_wrong_usage(planish, arguments, part):
    # A note on the data precedes an error that is found later, unless --quiet.
    quiet = ("--quiet",) if "train" in arguments and len(arguments) > 2 else ()
    assert_one_line(planish(*arguments[:1], *quiet, *arguments[1:]), 2, part)
    assert not (planish.folder / "runs").exists()


def write_idx(folder, train=640, test=128):
    """Writes small versions of the four files of MNIST."""
    folder.mkdir()
    for split, count in (("train", train), ("t10k", test)):
        pixels = bytes((7 * i) % 256 for i in range(28 * 28)) * count
        images = struct.pack(">4I", 0x803, count, 28, 28) + pixels
        labels = struct.pack(">2I", 0x801, count) + bytes(i % 10 for i in range(count))
        (folder / f"{split}-images-idx3-ubyte").write_bytes(images)
        (folder / f"{split}-labels-idx1-ubyte").write_bytes(labels)


def test_data_from_a_folder(planish):
    write_idx(planish.folder / "data")
    result = planish.ok(*ONE, "--data", "data", "--json")
    assert json.loads(result.stdout)["status"] == "finished"
    planish.environment["PLANISH_DATA"] = "data"
    assert "1 of 1 runs had been done before" in planish.ok(*ONE).stderr


def test_a_folder_of_another_configuration_is_refused(planish):
    write_idx(planish.folder / "data")
    planish.ok(*ONE)
    result = planish(*ONE, "--data", "data", "--quiet")
    assert_one_line(result, 1, "data sha256", "drawn digits", "--out", "smoke-none-b128-s1")


def damage_magic(folder):
    path = folder / "train-images-idx3-ubyte"
    path.write_bytes(b"\x01" + path.read_bytes()[1:])


def damage_length(folder):
    path = folder / "t10k-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1])


def damage_gzip(folder):
    path = folder / "train-labels-idx1-ubyte"
    packed = gzip.compress(path.read_bytes())
    path.unlink()
    path.with_suffix(".gz").write_bytes(packed[:-5])


def damage_absence(folder):
    (folder / "t10k-labels-idx1-ubyte").unlink()


def damage_all(folder):
    shutil.rmtree(folder)


def damage_kind(folder):
    shutil.rmtree(folder)
    folder.write_text("a file")


@pytest.mark.parametrize(
    "damage", [damage_magic, damage_length, damage_gzip, damage_absence, damage_all, damage_kind]
)
def test_wrong_data(planish, damage):
    write_idx(planish.folder / "data")
    damage(planish.folder / "data")
    assert_one_line(planish(*SMOKE, "--data", "data"), 3, "data")
    assert not (planish.folder / "runs").exists()


def test_wrong_folders_for_runs(planish):
    (planish.folder / "file").write_text("")
    assert_one_line(planish(*ONE, "--out", "file", "--quiet"), 1, "cannot write file: Not a directory")
    (planish.folder / "broken/pi-mnist/smoke-none-b128-s1").mkdir(parents=True)
    (planish.folder / "broken/pi-mnist/smoke-none-b128-s1/config.json").write_text('{"format": 3}')
    assert_one_line(planish(*ONE, "--out", "broken", "--quiet"), 1, "config.json")


@pytest.mark.parametrize(
    "command",
    [
        (*SWEEP, "--quiet"),
        (*SWEEP, "--quiet", "--json"),
        ("show", "runs"),
        ("report", "runs", "-o", "full.html"),
        ("list",),
        ("--help",),
        ("--version",),
        ("train", "--help"),
    ],
)
def test_stdout_that_takes_nothing_is_an_error(sweep, command):
    with open("/dev/full", "w") as full:
        result = sweep(*command, stdout=full)
    assert result.returncode == 1
    assert re.fullmatch(r"planish: cannot write stdout: No space left on device\n", result.stderr)


def test_a_closed_stdout_is_an_error(sweep):
    result = sweep("show", "runs", preexec_fn=lambda: os.close(1))
    assert result.returncode == 1
    assert re.fullmatch(r"planish: cannot write stdout: [^\n]*\n", result.stderr)


def test_a_reader_that_leaves_ends_the_command_in_silence(sweep):
    read, write = os.pipe()
    os.close(read)
    result = sweep("show", "runs", stdout=write)
    os.close(write)
    assert result.returncode == -signal.SIGPIPE
    assert result.stderr == ""


def test_too_little_memory(planish):
    limit = lambda: resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))
    # 20,000 x 20,000 weights of 4 bytes.
    result = planish(*ONE, "--set", "width=20000", "--quiet", preexec_fn=limit)
    assert_one_line(result, 1, "memory")


# The report.


def test_report(sweep):
    result = sweep.ok("report", "runs", "-o", "out.html")
    *findings, last = result.stdout.splitlines()
    page = sweep.folder / "out.html"
    assert last == f"report: {page}"
    assert len(findings) == 2
    for line, batch in zip(findings, (64, 128)):
        assert line.startswith(f"With batch size {batch}, test error (mean of 2 seeds) was ")
        assert re.search(r"% with norm none, [\d.]+% with layer \(", line)
        assert len(line) <= 160
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert result.stderr == ""


def test_report_over_two_folders(planish, sweep):
    planish.ok(*SMOKE, "--norm", "batch", "--batch-size", 64, "--seeds", 2)
    result = planish.ok("report", "runs", sweep.folder / "runs")
    first = result.stdout.splitlines()[0]
    assert "with norm none" in first and "with layer" in first and "with batch" in first
    assert (planish.folder / "report.html").exists()
    shown = planish.ok("show", "runs", sweep.folder / "runs").stdout
    assert re.findall(r"^  \S (none|layer|batch) +2 ", shown, re.M) == ["none", "batch", "layer", "none", "layer"]


def test_json_of_a_folder_whose_name_is_not_utf8(planish):
    result = planish.ok(*ONE, "--out", os.fsdecode(b"r\xffns"), "--json")
    line = json.loads(result.stdout.splitlines()[0])
    assert line["folder"].startswith("r\ufffdns/pi-mnist/")


def test_wrong_reports(planish):
    (planish.folder / "empty").mkdir()
    planish.ok(*ONE)
    assert_one_line(planish("report", "absent"), 3, "absent")
    assert_one_line(planish("show", "absent"), 3, "absent")
    assert_one_line(planish("report", "empty"), 3, "empty")
    assert_one_line(planish("report", "runs", "empty"), 3, "empty")
    assert_one_line(planish("report", "runs", "-o", "absent/report.html"), 1, "absent/report.html")
    assert_one_line(planish("report", "runs", "-o", "empty"), 1, "empty")
    config = next((planish.folder / "runs").rglob("config.json"))
    config.write_text('{"format": "planish-run/1", ')
    assert_one_line(planish("report", "runs"), 3, config.name, "JSON")
    assert not (planish.folder / "report.html").exists()


DEEP = "[" * 100_000 + "]" * 100_000


def break_with_pipe(path):
    path.unlink()
    os.mkfifo(path)


def break_with_zeros(path):
    path.unlink()
    path.symlink_to("/dev/zero")


def break_with_folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.long
@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "result.json"])
@pytest.mark.parametrize(
    "break_file",
    [
        lambda path: path.write_text(""),
        lambda path: path.write_text("{\n"),
        lambda path: path.write_text(DEEP + "\n"),
        lambda path: path.write_text('{"deep": ' + DEEP + "}\n"),
        break_with_pipe,
        break_with_zeros,
        break_with_folder,
    ],
    ids=["empty", "half", "deep", "deep in a key", "pipe", "zeros", "folder"],
)
def test_a_broken_run_is_named_and_left_out(sweep, tmp_path, name, break_file):
    runs = tmp_path / "runs"
    shutil.copytree(sweep.folder / "runs", runs)
    broken = runs / "pi-mnist" / SWEEP_NAMES[0] / name
    break_file(broken)
    for arguments, left in [
        (("show", runs), "none"),
        (("report", runs, "-o", tmp_path / "page.html"), "report:"),
        (("thin", runs, tmp_path / "thin"), "7 runs"),
    ]:
        result = sweep(*arguments)
        assert result.returncode == 0, result.stderr
        assert re.fullmatch(rf"warning: left out: [^\n]*{re.escape(str(broken))}[^\n]*\n", result.stderr)
        assert left in result.stdout
    # Without another run there is nothing to show.
    assert_one_line(sweep("show", broken.parent), 3, broken)


def test_reports_go_where_a_link_or_a_pipe_leads(sweep, tmp_path):
    link, page, pipe = tmp_path / "link", tmp_path / "page.html", tmp_path / "pipe"
    link.symlink_to(page)
    sweep.ok("report", "runs", "-o", link)
    assert link.is_symlink() and page.read_text().startswith("<!DOCTYPE html>")
    os.mkfifo(pipe)
    process = sweep.start("report", "runs", "-o", pipe)
    assert pipe.read_text() == page.read_text()
    process.communicate(timeout=60)
    assert process.returncode == 0 and pipe.is_fifo()


def test_a_report_does_not_replace_a_device(sweep, tmp_path):
    null = tmp_path / "null"  # never the system's own
    try:
        os.mknod(null, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        null.write_text("")
    except PermissionError:
        pytest.skip("a device can only be made by the administrator")
    sweep.ok("report", "runs", "-o", null)
    assert null.is_char_device()


def test_a_run_stops_once_its_folder_is_gone(planish):
    process = planish.start(*LONG, "--set", "width=256", "--quiet")
    folder = planish.folder / "runs/pi-mnist/smoke-layer-b4-epochs=120-width=256-s1"
    deadline = time.monotonic() + 120
    while not (folder / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    folder.rename(planish.folder / "elsewhere")
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 1
    assert re.fullmatch(rf"planish: cannot write [^\n]*{folder.name}[^\n]*\n", stderr), stderr
    assert not folder.exists()


# The terminal.


def on_a_terminal(planish, *arguments):
    """Returns the command's output if stdout and stderr are a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
        result = planish(*arguments, stdout=theirs, stderr=theirs, text=False)
        assert result.returncode == 0
        os.set_blocking(ours, False)
        text = b""
        try:
            while data := os.read(ours, 65536):
                text += data
        except BlockingIOError:
            pass
        return text.decode()
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize(
    "environment, live",
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "dumb"}, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
    ],
)
def test_terminals(planish, environment, live):
    planish.environment |= environment
    text = on_a_terminal(planish, *ONE)
    lines = text.replace("\r\n", "\n")
    assert ("\x1b[K" in lines) == live
    assert ("\r" in lines) == live
    assert ("\x1b[1mpi-mnist" in lines) == live
    assert re.search(r"run 1/1 smoke-none-b128-s1  test error [\d.]+% after 2 epochs, ", lines)
    table = re.sub(r"\x1b\[\d+m", "", lines[lines.rindex("of training\n") :])
    assert max(map(len, table.splitlines())) <= 80


def test_placements_are_settings(planish):
    args = ("train", "rt", "--preset", "smoke", "--norm", "rms", "--quiet")
    assert_one_line(planish(*args, "--set", "placement=mid"), 2,
                    'placement must be one of pre, post, peri, sandwich, deepnorm, got "mid"')  # fmt: skip
    assert_one_line(planish(*args, "--set", "qk_norm=layer"), 2, 'qk_norm must be true or false, got "layer"')
    assert_one_line(planish("train", "rt", "--norm", "weight"), 2, 'norm must be one of none, layer,')
    assert_one_line(planish("train", "pi-mnist", "--set", "placement=pre"), 2, "name must be one of")
    assert "placement" in planish.ok("list", "rt").stdout
    planish.ok(*args, "--set", "placement=peri", "--set", "qk_norm=true", "--out", "out")
    run = planish.folder / "out/rt/smoke-rms-b512-placement=peri-qk_norm=true-s1"
    settings = json.loads((run / "config.json").read_text())["settings"]
    assert settings["placement"] == "peri" and settings["qk_norm"] is True


def test_former_settings_are_accepted(planish):
    """Runs of versions that called enwik8's placement norm_position are continued and sampled."""
    args = ("train", "enwik8", "--preset", "smoke", "--norm", "layer", "--quiet", "--out", "out")
    planish.ok(*args, "--set", "norm_position=pre")
    planish.ok(*args)
    new = planish.folder / "out/enwik8/smoke-layer-b8-placement=pre-no-final-s1"
    usual = planish.folder / "out/enwik8/smoke-layer-b8-s1"
    for run, position in ((new, "pre"), (usual, "post")):
        config = json.loads((run / "config.json").read_text())
        settings = {"norm_position" if name == "placement" else name: value
                    for name, value in config["settings"].items() if name != "qk_norm"}  # fmt: skip
        config["settings"] = settings | {"norm_position": position}
        config["report"]["panel"] = "norm_position"
        sample = planish.ok("sample", run, "--length", 20).stdout
        (run / "config.json").write_text(json.dumps(config))
        assert planish.ok("sample", run, "--length", 20).stdout == sample
    assert planish.ok(*args).stderr == ""
    shown = planish.ok("show", "out").stdout
    assert "placement" in shown and "norm_position" not in shown
