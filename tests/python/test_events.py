"""TensorBoard reads the event files that the C++ writes."""

import os
import pathlib
import subprocess

import pytest
from tensorboard.backend.event_processing import event_accumulator, event_file_loader, plugin_event_accumulator

# Built by CMake in lab/run; PLANISH_BUILD names the build folder.
TOOL = pathlib.Path(os.environ["PLANISH_BUILD"]) / "lab" / "run" / "events_tool"


@pytest.fixture
def folder(tmp_path):
    subprocess.run([TOOL, tmp_path], check=True)
    return tmp_path


def test_tensorboard_reads_one_file(folder):
    first, _ = sorted(folder.iterdir())
    accumulator = event_accumulator.EventAccumulator(str(first)).Reload()
    assert sorted(accumulator.Tags()["scalars"]) == ["test/error", "train/loss"]
    assert [(e.step, e.value) for e in accumulator.Scalars("test/error")] == [
        (10, 0.5), (20, 0.25), (30, 0.125),
    ]  # fmt: skip
    # The clock's second and later readings; the first one is in the file's name.
    assert [e.wall_time for e in accumulator.Scalars("test/error")] == [
        1_700_000_001, 1_700_000_001.5, 1_700_000_002,
    ]  # fmt: skip
    assert [(e.step, e.value) for e in accumulator.Scalars("train/loss")] == [(10, 2.25)]
    assert ".tfevents.1700000000." in first.name


def test_records_have_valid_checksums(folder):
    for path in folder.iterdir():
        events = list(event_file_loader.RawEventFileLoader(str(path)).Load())
        assert len(events) == (5 if path == min(folder.iterdir()) else 3)
        # The reader detects a wrong checksum; otherwise the line above would prove nothing.
        damaged = bytearray(path.read_bytes())
        damaged[-5] ^= 1
        path.write_bytes(damaged)
        fewer = list(event_file_loader.RawEventFileLoader(str(path)).Load())
        assert len(fewer) == len(events) - 1


def test_points_after_a_resumption_replace_the_old_ones(folder):
    accumulator = event_accumulator.EventAccumulator(str(folder)).Reload()
    assert [(e.step, e.value) for e in accumulator.Scalars("test/error")] == [(10, 0.5), (20, 0.375)]
    assert [(e.step, e.value) for e in accumulator.Scalars("train/loss")] == [(10, 2.25)]


def test_the_servers_accumulator_agrees(folder):
    accumulator = plugin_event_accumulator.EventAccumulator(str(folder)).Reload()
    points = [(e.step, e.tensor_proto.float_val[0]) for e in accumulator.Tensors("test/error")]
    assert points == [(10, 0.5), (20, 0.375)]
