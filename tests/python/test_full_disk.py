"""Training on a disk that becomes full: a small tmpfs (docs/reliability.md). Mounting one needs root."""

import os
import re
import shutil
import subprocess

import pytest
from run_files import (
    CHECKPOINT, assert_same_results, read_checkpoint, read_metrics, results_of, temporary_files, unexpected_files,
)  # fmt: skip

PAGE = os.sysconf("SC_PAGE_SIZE")
STRIDE = int(os.environ.get("PLANISH_FAULT_STRIDE", "10"))  # tries each STRIDE-th number of free pages; 1: all
TRAIN = (
    "train", "pi-mnist", "--preset", "smoke", "--norm", "layer", "--set", "epochs=1", "--set", "depth=1",
    "--threads", 1, "--checkpoint-seconds", 0, "--quiet",
)  # fmt: skip


@pytest.fixture
def disk(tmp_path):
    """Returns an empty file system of 2 MiB in memory."""
    folder = tmp_path.resolve() / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no command mount")
    if mounted.returncode != 0:
        pytest.skip(f"a tmpfs cannot be mounted: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(disk, free_pages):
    """Writes a file that leaves `free_pages` pages free. Returns the file."""
    file = disk / "other"
    with file.open("wb") as out:
        left = os.statvfs(disk).f_bavail - free_pages
        assert left > 0
        out.write(b"\1" * (left * PAGE))
    assert os.statvfs(disk).f_bavail == free_pages
    return file


def test_training_ends_with_one_line_and_goes_on_when_there_is_space(planish, disk, record_property):
    """Every amount of free space, from none to what the run needs."""
    arguments = (*TRAIN, "--out", disk / "runs")
    planish.ok(*arguments)
    (run,) = (disk / "runs/pi-mnist").iterdir()
    expected = results_of(run)
    full = with_checkpoint = 0
    for free in range(0, 2000, STRIDE):
        shutil.rmtree(disk / "runs")
        filler = fill(disk, free)
        result = planish(*arguments)
        if result.returncode == 0:
            assert_same_results(run, expected)
            break
        full += 1
        reason = re.fullmatch(r"planish: cannot write ([^\n]+): No space left on device\n", result.stderr)
        assert result.returncode == 1 and reason and reason[1].startswith(str(disk / "runs")), result.stderr
        assert temporary_files(disk) == [] and (not run.exists() or unexpected_files(run) == [])
        if (run / CHECKPOINT).exists():
            with_checkpoint += 1
            step = read_checkpoint(run)[1]["step"]
            assert read_metrics(run)[-1]["step"] <= step + 1
            show = planish.ok("show", disk / "runs")
            assert show.stderr == ""
        filler.unlink()
        planish.ok(*arguments)
        assert_same_results(run, expected)
        assert unexpected_files(run) == [] and temporary_files(disk) == []
    assert result.returncode == 0 and full > with_checkpoint > 0
    record_property("full_disks", full)
