"""A system call that fails ends a command with one line, harms no file, and the command can be repeated.

The library planish_faults (tests/torture/faults.cc) lets the n-th call on the files below a folder fail. The tests
try n = 1, 2, 3 ... until a command meets no fault. docs/reliability.md describes them.
"""

import errno
import itertools
import os
import re
import shutil
import struct
from pathlib import Path

import pytest
from conftest import Server
from run_files import (
    CHECKPOINT, assert_same_results, read_checkpoint, read_metrics, results_of, temporary_files, unexpected_files,
)  # fmt: skip

STRIDE = int(os.environ.get("PLANISH_FAULT_STRIDE", "29"))  # tries each STRIDE-th call; 1: all
SHORT_STRIDE = min(STRIDE, 7)  # for commands with few calls
KINDS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "short-write": -1}
STATE = struct.Struct("<4q16s4080s")  # State in tests/torture/faults.cc


class Faults:
    """Runs planish with a fault in a call on the files below `folder`."""

    def __init__(self, server, root, kind):
        self.server, self.root, self.kind, self.tried = server, root, KINDS[kind], 0
        self.calls = 0  # of the last command, counted up to the fault
        self.folder = root / "files"
        self.folder.mkdir()

    def run(self, arguments, call=0):
        """Runs a command whose call number `call` fails, if not 0. Returns its result and the Fault, or None."""
        state = self.root / "state"
        state.write_bytes(STATE.pack(self.kind, call, 0, 0, b"", b""))
        variables = {
            "XDG_CACHE_HOME": str(self.root / "files/cache"),
            "PLANISH_FAULTS": str(state), "PLANISH_FAULTS_FOLDER": str(self.folder),
        }  # fmt: skip
        result = self.server.run([str(a) for a in arguments], self.root, variables, "")
        _, _, self.calls, _, name, path = STATE.unpack(state.read_bytes())
        name, path = (os.fsdecode(text.rstrip(b"\0")) for text in (name, path))
        assert bool(name) == (0 < call <= self.calls), "the state is not that of this command"
        self.tried += bool(name)
        return result, Fault(name, path, KINDS["ENOSPC"] if self.kind < 0 else self.kind) if name else None

    def ok(self, *arguments):
        result, _ = self.run(arguments)
        assert result.returncode == 0, result.stderr
        return result


class Fault:
    """A call that failed: its name ("read" also for opening to read), its file and errno."""

    def __init__(self, call, path, error):
        self.call, self.path, self.reason = call, path, os.strerror(error)

    def __repr__(self):
        return f"{self.call} of {self.path}: {self.reason}"

    def is_named(self, line):
        """Returns true if a line has the reason and the file. A temporary file counts as the file that it replaces,
        and for a folder the line has a file in it."""
        folder, name = os.path.split(self.path)
        replaced = re.fullmatch(r"\.(.+)\.tmp", name)
        path = os.path.join(folder, replaced[1]) if replaced else self.path
        return self.reason in line and (path in line or self.path in line)


@pytest.fixture(scope="module")
def faulty(program, server):
    """Server of commands that can have faults."""
    library = program.with_name("libplanish_faults.so")
    if not library.exists():
        pytest.skip(f"{library} is not built")
    faulty = Server(server.program, server.environment | {"LD_PRELOAD": str(library)})
    yield faulty
    faulty.close()


@pytest.fixture(params=KINDS)
def faults(request, faulty, tmp_path, record_property):
    faults = Faults(faulty, tmp_path.resolve(), request.param)
    yield faults
    record_property("faults", faults.tried)


def try_every_call(faults, arguments, prepare, check_fault, check_end, stride=STRIDE):
    """Runs a command with each fault, and again without.

    `prepare()` makes the files before it; `check_fault(result, fault)` checks them and the result after a fault, and
    `check_end()` the files when it has succeeded.
    """
    for call in itertools.count(1, stride):
        prepare()
        result, fault = faults.run(arguments, call)
        if fault is None:
            assert call > 1, "there was no call"
            assert (result.returncode, result.stderr) == (0, "")
            check_end()
            return
        try:
            if fault.call == "close":  # ignored: the file has been flushed, or is not needed later
                assert (result.returncode, result.stderr) == (0, "")
                check_end()
            else:
                check_fault(result, fault)
            assert temporary_files(faults.folder) == []
            faults.ok(*arguments)
            check_end()
        except AssertionError as error:
            raise AssertionError(f"call {call}, {fault}: {result.returncode} {result.stderr}") from error


def assert_error(result, fault):
    """Asserts the form of an error: status 1, and one line that names the file and the reason."""
    assert result.returncode == 1
    assert re.fullmatch(r"planish: [^\n]+\n", result.stderr)
    assert fault.is_named(result.stderr)


def assert_error_or_left_out(result, fault):
    """Like assert_error, but a run that cannot be read can be left out with a warning (docs/files.md#broken-runs)."""
    if fault.call != "read":
        assert_error(result, fault)
        return
    assert result.returncode in (0, 1, 3)
    start = "planish: " if result.returncode else "warning: left out: "
    assert re.fullmatch(rf"{start}[^\n]+\n", result.stderr)
    assert fault.is_named(result.stderr)


# Three updates, with a checkpoint after each.
TRAIN = (
    "train", "pi-mnist", "--preset", "smoke", "--norm", "layer", "--batch-size", 192, "--set", "epochs=1",
    "--set", "depth=1", "--threads", 1, "--checkpoint-seconds", 0, "--quiet",
)  # fmt: skip


@pytest.mark.parametrize("resumed", [False, True], ids=["new", "resumed"])
def test_train(faults, resumed):
    runs = faults.folder / "runs"
    arguments = (*TRAIN, "--out", runs)
    faults.ok(*arguments)
    (run,) = (runs / "pi-mnist").iterdir()
    expected = results_of(run)
    before = faults.root / "before"
    old = 0
    if resumed:
        half = faults.calls // 2
        shutil.rmtree(runs)
        faults.run(arguments, half)
        old = read_checkpoint(run)[1]["step"]
        assert not (run / "result.json").exists()
        runs.rename(before)

    def prepare():
        shutil.rmtree(runs, ignore_errors=True)
        if resumed:
            shutil.copytree(before, runs)

    def check_fault(result, fault):
        assert_error(result, fault)
        assert result.stdout == ""
        if (run / "config.json").exists():
            show = faults.ok("show", runs)
            assert show.stderr == ""
        if old or (run / CHECKPOINT).exists():
            assert read_checkpoint(run)[1]["step"] >= old
        read_metrics(run)
        assert unexpected_files(run) == []

    def check_end():
        assert_same_results(run, expected)
        assert unexpected_files(run) == []

    try_every_call(faults, arguments, prepare, check_fault, check_end)


def test_a_vocabulary_that_cannot_be_stored_is_no_failure(faults):
    """It only saves time (docs/files.md#other-files). The faults are in the cache only."""
    runs, cache = faults.root / "runs", faults.folder / "cache"
    small = ("--preset", "smoke", "--norm", "layer", "--set", "epochs=1", "--set", "train_pairs=40", "--threads", 1, "--quiet")
    arguments = ("train", "mt", *small, "--out", runs)
    faults.ok(*arguments)
    (run,) = (runs / "mt").iterdir()
    expected, stored = results_of(run), contents_below(cache)
    assert len(stored) == 1

    def prepare():
        shutil.rmtree(runs)
        shutil.rmtree(cache)

    def check_fault(result, fault):
        assert (result.returncode, result.stderr) == (0, "")
        assert_same_results(run, expected)
        assert contents_below(cache) in ({}, stored)
        shutil.rmtree(runs)

    def check_end():
        assert_same_results(run, expected)
        assert contents_below(cache) == stored

    faults.folder = cache
    try_every_call(faults, arguments, prepare, check_fault, check_end)


def contents_below(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def trained(shared):
    """Folder with two seeds of two norms, in a folder of each seed."""
    for seed in (1, 2):
        small = ("--preset", "smoke", "--norm", "none,layer", "--set", "epochs=1", "--threads", 1)
        shared.ok("train", "pi-mnist", *small, "--seed", seed, "--out", f"runs/{seed}", "--quiet")
    return shared.folder / "runs"


def test_thin(faults, trained):
    """Adds runs to an archive that has others."""
    shutil.copytree(trained, faults.folder / "runs")
    archives, old = faults.folder / "archives", faults.root / "old"
    faults.ok("thin", faults.folder / "runs/1", old)
    arguments = ("thin", faults.folder / "runs/2", archives)
    shutil.copytree(old, archives)
    faults.ok(*arguments)
    expected, runs = contents_below(archives), len(contents_below(faults.folder / "runs/2"))
    assert len(expected) == 1 and expected != contents_below(old) and runs > 0

    def prepare():
        shutil.rmtree(archives)
        shutil.copytree(old, archives)

    def check_fault(result, fault):
        assert_error_or_left_out(result, fault)
        assert faults.ok("show", archives).stderr == ""
        if fault.call != "read":
            assert contents_below(archives) in (contents_below(old), expected)

    def check_end():
        assert contents_below(archives) == expected

    try_every_call(faults, arguments, prepare, check_fault, check_end, SHORT_STRIDE)


def test_thin_to_folders(faults, trained):
    shutil.copytree(trained, faults.folder / "runs")
    folders = faults.folder / "folders"
    arguments = ("thin", "--folders", faults.folder / "runs", folders)
    faults.ok(*arguments)
    expected = contents_below(folders)

    def prepare():
        shutil.rmtree(folders, ignore_errors=True)

    def check_fault(result, fault):
        assert_error_or_left_out(result, fault)
        for path, content in contents_below(folders).items():
            assert content == expected[path]

    def check_end():
        assert contents_below(folders) == expected

    try_every_call(faults, arguments, prepare, check_fault, check_end, SHORT_STRIDE)


def test_report(faults, trained):
    """Replaces a report of other runs. It reads run folders and an archive."""
    runs, page = faults.folder / "runs", faults.folder / "report.html"
    shutil.copytree(trained, runs)
    faults.ok("thin", runs / "1", runs / "archives")
    shutil.rmtree(runs / "1")
    arguments = ("report", runs, "-o", page)
    faults.ok("report", runs / "2", "-o", page)
    old = page.read_bytes()
    faults.ok(*arguments)
    expected = page.read_bytes()
    assert old != expected

    def prepare():
        page.write_bytes(old)

    def check_fault(result, fault):
        assert_error_or_left_out(result, fault)
        if fault.call != "read":
            assert page.read_bytes() in (old, expected)
        assert page.read_bytes().rstrip().endswith(b"</html>")

    def check_end():
        assert page.read_bytes() == expected

    try_every_call(faults, arguments, prepare, check_fault, check_end, SHORT_STRIDE)


SWEEP = """\
preset = "smoke"

[[sweep]]
task = "pi-mnist"
norm = ["none", "layer"]
epochs = 1
depth = 1
"""


def test_sweep(faults):
    """Two runs one after the other. The calls are counted over all processes."""
    out, file = faults.folder / "runs", faults.folder / "two.toml"
    file.write_text(SWEEP)
    arguments = ("sweep", file, "--out", out, "--jobs", 1, "--threads", 1, "--quiet")
    faults.ok(*arguments)
    runs = sorted((out / "pi-mnist").iterdir())
    expected = [results_of(run) for run in runs]
    assert len(expected) == 2

    def prepare():
        shutil.rmtree(out)

    def check_fault(result, fault):
        lines = result.stderr.splitlines()
        if not lines:  # the queue takes a run that it cannot read for one to do; the report has it
            assert Path(fault.path).name in ("config.json", "metrics.jsonl", "result.json")
            assert result.returncode == 0
            check_end()
            return
        assert fault.is_named(lines[0])
        if len(lines) == 2:  # a run failed: its message, and how many runs did; the other run was trained
            assert result.returncode == 1
            assert re.fullmatch(r"pi-mnist \S+ failed \(status 1\): planish: [^\n]+", lines[0])
            assert lines[1] == "1 of 2 runs failed"
            assert any((run / "result.json").exists() for run in runs)
        elif fault.path == str(file):
            assert_data_error(result)
        else:
            assert_error_or_left_out(result, fault)

    def check_end():
        for run, results in zip(runs, expected, strict=True):
            assert_same_results(run, results)
            assert unexpected_files(run) == []
        assert (out / "report.html").read_bytes().rstrip().endswith(b"</html>")

    try_every_call(faults, arguments, prepare, check_fault, check_end)


def assert_data_error(result):
    assert result.returncode == 3
    assert re.fullmatch(r"planish: [^\n]+\n", result.stderr)
