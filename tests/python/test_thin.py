"""planish thin, and archives of runs as every command reads them, also as tar and Python know them."""

import gzip
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile

import pytest
from conftest import Command
from test_command import assert_one_line, lines_of
from test_report import write_run
from test_reproduce import FEW, FOLDERS

ARCHIVES = ["smoke-b128-epochs=20.runs.tar.gz", "smoke-b4-epochs=4-evaluations_per_epoch=4.runs.tar.gz"]
FILES = ("config.json", "metrics.jsonl", "result.json", "predictions.csv.gz")


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def contents_below(folder):
    return {name: (folder / name).read_bytes() for name in files_below(folder)}


@pytest.fixture(scope="module")
def done(shared):
    """Four runs of two columns in out/, archived in thin/ and as folders in folders/."""
    shared.ok(*FEW)
    shared.thin = shared.ok("thin", "out", "thin")
    shared.ok("thin", "--folders", "out", "folders")
    return shared


@pytest.fixture(scope="module")
def two_runs(program, tmp_path_factory, server):
    """Folder of two runs of a column, in in/, and their archive, runs/small-b4.runs.tar.gz."""
    planish = Command(program, tmp_path_factory.mktemp("two runs"), server)
    for norm, error in (("none", 0.2), ("layer", 0.1)):
        write_run(planish.folder / "in" / f"small-{norm}-b4-s0", norm, 0, [0.9, error])
    planish.ok("thin", "in", "runs")
    return planish.folder


@pytest.fixture
def archive(planish, two_runs):
    """A copy of two_runs in the test's folder: the archive."""
    shutil.copytree(two_runs, planish.folder, dirs_exist_ok=True)
    return planish.folder / "runs" / "small-b4.runs.tar.gz"


# ---- Contents of archives


def test_an_archive_for_each_column(done):
    assert done.thin.stdout == f"4 runs: {done.folder / 'thin'}\n"
    assert done.thin.stderr == ""
    assert files_below(done.folder / "thin" / "pi-mnist") == ARCHIVES
    for archive in ARCHIVES:
        with tarfile.open(done.folder / "thin" / "pi-mnist" / archive) as tar:
            members = tar.getmembers()
        column = archive.removeprefix("smoke-").removesuffix(".runs.tar.gz")
        runs = [f"smoke-{norm}-{column}-s1" for norm in ("layer", "none")]
        assert [member.name for member in members] == [f"{run}/{file}" for run in runs for file in FILES]
        assert all(member.isreg() and member.mode == 0o644 and member.mtime == 0 for member in members)


def test_folders_have_what_the_report_needs(done):
    folders = done.folder / "folders"
    assert files_below(folders) == sorted(f"pi-mnist/{folder}/{name}" for folder in FOLDERS for name in FILES)
    for path in folders.rglob("*.json*"):
        text = path.read_text(encoding="utf-8")
        assert str(done.folder) not in text
        assert not re.search(r'["\s]/\w+/', text), path
    # Neither gradients before the last nor metrics that are not drawn.
    folder = f"pi-mnist/{FOLDERS[0]}"
    lines = lines_of(folders / folder / "metrics.jsonl")
    assert "train_error" in lines_of(done.folder / "out" / folder / "metrics.jsonl")[-1]["values"]
    assert all("train_error" not in line["values"] for line in lines)
    assert all("gradients" not in line for line in lines[:-1])
    one, other = (json.loads((done.folder / root / folder / "config.json").read_text()) for root in ("out", "folders"))
    assert one == other


def test_archives_folders_and_tar_have_the_same_bytes(done, tmp_path):
    done.ok("thin", "--folders", "thin", tmp_path / "again")
    folders = contents_below(done.folder / "folders")
    assert contents_below(tmp_path / "again") == folders
    for archive in ARCHIVES:
        (tmp_path / "tar" / "pi-mnist").mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "-xzf", done.folder / "thin" / "pi-mnist" / archive],
                       cwd=tmp_path / "tar" / "pi-mnist", check=True)  # fmt: skip
    assert contents_below(tmp_path / "tar") == folders


def test_equal_runs_give_equal_archives(done, tmp_path):
    archives = contents_below(done.folder / "thin")
    for source in ("out", "folders", "thin"):
        done.ok("thin", source, tmp_path / source)
        assert contents_below(tmp_path / source) == archives, source
    # Neither does the order of additions matter, nor how often a run is added.
    for folder in sorted((done.folder / "out" / "pi-mnist").iterdir(), reverse=True) * 2:
        done.ok("thin", folder, tmp_path / "one by one" / "pi-mnist")
    assert contents_below(tmp_path / "one by one") == archives


# Every reader.


@pytest.mark.parametrize("command", ["show", "report"])
def test_archives_give_the_same_output_as_folders(done, tmp_path, command):
    page = tmp_path / "page.html"
    flags = ("-o", page) if command == "report" else ()
    outputs = []
    for roots in (
        ("folders",),
        ("thin",),
        tuple(f"thin/pi-mnist/{archive}" for archive in ARCHIVES),
        (f"thin/pi-mnist/{ARCHIVES[1]}", f"folders/pi-mnist/{FOLDERS[0]}", f"folders/pi-mnist/{FOLDERS[2]}"),
    ):
        result = done.ok(command, *roots, *flags)
        assert result.stderr == ""
        outputs.append((result.stdout, page.read_bytes() if flags else b""))
    assert outputs == outputs[:1] * 4


def test_reproduce_counts_archived_runs_as_done(done, tmp_path):
    shutil.copytree(done.folder / "thin", tmp_path / "out")
    (tmp_path / "out" / "pi-mnist" / ARCHIVES[1]).unlink()
    plan = [tmp_path / "out" if argument == "out" else argument for argument in FEW]
    result = done.ok(*plan, "--dry-run")
    assert "2 of 4 runs to do" in result.stdout


# Updates.


def test_a_new_seed_is_added_and_the_same_seed_replaced(archive, planish):
    runs = planish.folder / "in"
    before = contents_below(archive.parent)
    shutil.rmtree(runs)
    write_run(runs / "small-none-b4-s1", "none", 1, [0.9, 0.3])
    write_run(runs / "small-layer-b4-s0", "layer", 0, [0.9, 0.05])
    assert planish.ok("thin", "in", "runs").stdout.startswith("2 runs: ")
    with tarfile.open(archive) as tar:
        runs = sorted({name.split("/")[0] for name in tar.getnames()})
        assert runs == ["small-layer-b4-s0", "small-none-b4-s0", "small-none-b4-s1"]
        assert b"0.05" in tar.extractfile("small-layer-b4-s0/metrics.jsonl").read()
    assert list(contents_below(archive.parent)) == list(before)  # one file, and no temporary one


def test_an_unfinished_run_does_not_replace_a_finished_one(archive, planish):
    before = archive.read_bytes()
    shutil.rmtree(planish.folder / "in")
    write_run(planish.folder / "in" / "small-none-b4-s0", "none", 0, [0.9], status=None)
    result = planish("thin", "in", "runs")
    assert result.returncode == 0
    assert result.stdout.startswith("0 runs: ")
    assert result.stderr == (
        "warning: small-none-b4-s0 has no result: runs/small-b4.runs.tar.gz keeps the finished run of this name\n")  # fmt: skip
    assert archive.read_bytes() == before


def test_a_failed_update_leaves_the_archive(archive, planish):
    before = archive.read_bytes()
    write_run(planish.folder / "in" / "small-none-b4-s7", "none", 7, [0.9, 0.3])
    blocked = archive.with_name(f".{archive.name}.tmp")
    blocked.mkdir()  # in place of the temporary file
    assert_one_line(planish("thin", "in", "runs"), 1, blocked.name)
    assert archive.read_bytes() == before


def test_a_broken_archive_is_not_replaced(archive, planish):
    archive.write_bytes(b"no archive")
    assert_one_line(planish("thin", "in", "runs"), 3, f"cannot read runs/{archive.name}: it is not a gzip file")
    assert archive.read_bytes() == b"no archive"


def test_folders_do_not_replace_other_runs(archive, planish):
    shutil.rmtree(planish.folder / "in/small-layer-b4-s0")
    write_run(planish.folder / "in" / "small-layer-b4-s0", "layer", 0, [0.9, 0.05])
    before = contents_below(planish.folder)
    assert_one_line(planish("thin", "--folders", "runs", "in"), 1, "in/small-layer-b4-s0", "it contains another run")
    assert contents_below(planish.folder) == before


def test_wrong_usage(done):
    assert_one_line(done("thin", "out", "out/thin"), 1, "is inside")
    assert_one_line(done("thin", "nowhere", "thin"), 3, "nowhere")
    assert_one_line(done("thin", "nowhere.runs.tar.gz", "thin"), 3, "nowhere.runs.tar.gz")
    assert_one_line(done("thin", "out"), 2, "TO")


# Hostile archives.


def packed(*members, **options):
    """Returns an archive of (name, content, change of the header)."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz", **options) as tar:
        for name, content, *change in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for key, value in (change[0] if change else {}).items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(content))
    return data.getvalue()


CONFIG = ("run/config.json", b"{}")
USTAR = {"format": tarfile.USTAR_FORMAT}
LINK = {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}
HOSTILE = {
    "empty": (lambda good: b"", "it is truncated"),
    "text": (lambda good: b"{}\n" * 100, "it is not a gzip file"),
    "zip": (lambda good: b"PK\3\4" + bytes(100), "it is not a gzip file"),
    "half": (lambda good: good[: len(good) // 2], "it is truncated"),
    "without its end": (lambda good: good[:-30], "it is truncated"),
    "damaged": (lambda good: good[:200] + bytes(8) + good[208:], "damaged"),
    "more behind it": (lambda good: good + b"more", "damaged"),
    "an empty tar": (lambda good: packed(**USTAR), "it contains no run"),
    "a truncated tar": (lambda good: gzip.compress(gzip.decompress(good)[:700]), "it is truncated"),
    "a tar of GNU": (lambda good: packed(CONFIG, format=tarfile.GNU_FORMAT), "header at byte 0 is malformed"),
    "a path upwards": (lambda good: packed(("../config.json", b"{}"), **USTAR), "../config.json is not RUN/"),
    "two steps upwards": (lambda good: packed(("a/../../config.json", b"{}"), **USTAR), "is not RUN/"),
    "an absolute path": (lambda good: packed(("/tmp/config.json", b"{}"), **USTAR), "/tmp/config.json is not RUN/"),
    "other files": (lambda good: packed(CONFIG, ("run/checkpoint", b""), **USTAR), "run/checkpoint is not RUN/"),
    "a symbolic link": (lambda good: packed(("run/config.json", b"", LINK), **USTAR), "is not a regular file"),
    "a hard link": (
        lambda good: packed(("run/config.json", b"", LINK | {"type": tarfile.LNKTYPE}), **USTAR),
        "is not a regular file",
    ),
    "a folder": (lambda good: packed(("run", b"", {"type": tarfile.DIRTYPE}), **USTAR), "is not a regular file"),
    "a device": (lambda good: packed(("run/config.json", b"", {"type": tarfile.CHRTYPE}), **USTAR), "is not a regular"),
    "a long name": (
        lambda good: packed(("n" * 300 + "/config.json", b"{}"), format=tarfile.PAX_FORMAT),
        "is not a regular file",
    ),
    "a name twice": (lambda good: packed(CONFIG, CONFIG, **USTAR), "run/config.json is in it twice"),
    "no config": (lambda good: packed(("run/result.json", b"{}"), **USTAR), "run has no config.json"),
    "control characters": (lambda good: packed(("a\x1b[31m\nb/c", b"{}"), **USTAR), "a\\x1b[31m\\x0ab/c is not RUN/"),
    "too much": (
        lambda good: b"".join([gzip.compress(bytes(1 << 25), 9)] * 9),
        "it unpacks to more than 268435456 bytes",
    ),
    "a size beyond the file": (
        lambda good: gzip.compress(packed_header(8_000_000_000)),
        "it is truncated",
    ),
}  # fmt: skip


def packed_header(size):
    info = tarfile.TarInfo("run/config.json")
    info.size = size
    return info.tobuf(tarfile.USTAR_FORMAT) + bytes(4096)


@pytest.mark.long
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_one_line_and_status_3(archive, planish, name):
    make, text = HOSTILE[name]
    good = archive.read_bytes()
    hostile = archive.with_name("b.runs.tar.gz")
    hostile.write_bytes(make(good))
    path = os.path.realpath(hostile)
    assert_one_line(planish("show", hostile), 3, f"no run can be read: cannot read {path}: ", text)
    # Beside a good one it is named and left out.
    result = planish("show", "runs")
    assert result.returncode == 0, result.stderr
    assert re.fullmatch(rf"warning: left out: cannot read {re.escape(path)}: [^\n]*\n", result.stderr), result.stderr


def test_every_command_refuses_a_hostile_archive(archive, planish):
    hostile = archive.with_name("b.runs.tar.gz")
    hostile.write_bytes(HOSTILE["a path upwards"][0](b""))
    for command in (("report", "{}"), ("thin", "{}", "out"), ("thin", "--folders", "{}", "out")):
        assert_one_line(planish(*(part.format(hostile) for part in command)), 3, "../config.json is not RUN/")
        result = planish(*(part.format("runs") for part in command))
        assert result.returncode == 0, result.stderr
        assert re.fullmatch(r"warning: left out: [^\n]*b\.runs\.tar\.gz: [^\n]*\n", result.stderr), result.stderr
    assert files_below(planish.folder / "out") == sorted(
        [archive.name, *(f"small-{norm}-b4-s0/{file}" for norm in ("layer", "none") for file in FILES[:3])])  # fmt: skip
    assert not (planish.folder / "config.json").exists()


def test_hostile_files_are_not_read(archive, planish):
    pipe = archive.with_name("pipe.runs.tar.gz")
    os.mkfifo(pipe)
    zeros = archive.with_name("zeros.runs.tar.gz")
    zeros.symlink_to("/dev/zero")
    large = archive.with_name("large.runs.tar.gz")
    large.touch()
    os.truncate(large, 1 << 40)
    result = planish("show", "runs")
    assert result.returncode == 0
    assert result.stderr.count("\n") == 3
    for path in (pipe, zeros, large):
        assert f"warning: left out: cannot read {path.parent.resolve() / path.name}: " in result.stderr


def test_a_broken_run_in_an_archive_is_named_and_left_out(archive, planish):
    with tarfile.open(archive) as tar:
        members = [(name, tar.extractfile(name).read()) for name in tar.getnames()]
    members[1] = (members[1][0], b"{}\n")
    archive.write_bytes(packed(*members, **USTAR))
    place = pathlib.Path(os.path.realpath(archive)) / "small-layer-b4-s0" / "metrics.jsonl"
    result = planish("report", "runs")
    assert result.returncode == 0
    assert re.fullmatch(rf"warning: left out: cannot read {re.escape(str(place))} line 1: [^\n]*\n", result.stderr)
    assert "none" in result.stdout
