"""The format's own library reads the files of the C++ code, and vice versa."""

import os
import pathlib
import subprocess
import zlib

import numpy as np
import pytest
import safetensors
import safetensors.numpy as safetensors_numpy

# Built by CMake in lab/run; PLANISH_BUILD names the build folder.
TOOL = pathlib.Path(os.environ["PLANISH_BUILD"]) / "lab" / "run" / "safetensors_tool"


def run(*arguments):
    return subprocess.run([TOOL, *arguments], capture_output=True, text=True)


def read(path):
    """Returns the C++ reader's result: {name: (dtype, shape, crc)}, metadata."""
    result = run("read", path)
    assert result.returncode == 0, result.stderr
    tensors, metadata = {}, {}
    for line in result.stdout.splitlines():
        if "=" in line:
            key, value = line.split("=", 1)
            metadata[key] = value
        else:
            name, dtype, shape, crc = line.rsplit(" ", 3)
            tensors[name] = (dtype, shape, int(crc, 16))
    return tensors, metadata


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "written.safetensors"
    result = run("write", path)
    assert result.returncode == 0, result.stderr
    return path


def test_library_reads_what_is_written(written):
    expected = {
        "u8": np.array([0, 255, 1], np.uint8),
        "bool": np.array([True, False]),
        "i8": np.array([[-128], [127]], np.int8),
        "i16": np.array([-300], np.int16),
        "i32": np.array([-7, 7], np.int32),
        "i64": np.array(-(1 << 62), np.int64),
        "f16": np.array([1, -2], np.float16),
        'f32 "weight" \u00e9': np.array([[1, 2, 3], [4, 5, 6]], np.float32),
        "f64": np.array([0.1, -1e300], np.float64),
        "empty": np.zeros((0, 5), np.float32),
    }
    with safetensors.safe_open(written, "np") as file:
        assert set(file.keys()) == set(expected) | {"bf16"}
        for name, value in expected.items():
            tensor = file.get_tensor(name)
            assert tensor.dtype == value.dtype and tensor.shape == value.shape, name
            assert tensor.tobytes() == value.tobytes(), name
        metadata = file.metadata()
    assert metadata["step"] == "12"
    assert set(metadata) == {"step", "planish.crc32"}


def test_library_reads_bfloat16(written):
    torch = pytest.importorskip("torch")
    with safetensors.safe_open(written, "pt") as file:
        tensor = file.get_tensor("bf16")
    assert tensor.dtype == torch.bfloat16
    assert tensor.tolist() == [1, -2]


def test_checksum_is_that_of_zlib(written):
    data = written.read_bytes()
    with safetensors.safe_open(written, "np") as file:
        digits = file.metadata()["planish.crc32"].encode()
    assert data.count(digits) == 1
    assert zlib.crc32(data.replace(digits, b"0" * 8)) == int(digits, 16)


def test_what_is_written_has_the_librarys_layout(written, tmp_path):
    """Tensors in the library's order, widest elements first, each at a multiple of its width."""
    again = tmp_path / "again.safetensors"
    with safetensors.safe_open(written, "np") as file:
        tensors = {n: file.get_tensor(n) for n in file.keys() if n != "bf16"}
    safetensors_numpy.save_file(tensors, again)
    widths = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2}
    for path in (written, again):
        shown = run("read", path).stdout.splitlines()
        order = [widths.get(line.rsplit(" ", 3)[1], 1) for line in shown if "=" not in line]
        assert order == sorted(order, reverse=True)


def test_reads_what_the_library_writes(tmp_path):
    path = tmp_path / "library.safetensors"
    random = np.random.default_rng(0)
    dtypes = {
        "F64": np.float64, "F32": np.float32, "F16": np.float16, "I64": np.int64,
        "I32": np.int32, "I16": np.int16, "I8": np.int8, "U8": np.uint8, "BOOL": np.bool_,
    }  # fmt: skip
    tensors = {
        f"layer.{name}": random.integers(0, 100, (3, 5)).astype(dtype)
        for name, dtype in dtypes.items()
    }
    tensors["scalar"] = np.array(2.5, np.float32)
    tensors["empty"] = np.zeros((2, 0), np.float64)
    safetensors_numpy.save_file(tensors, path, metadata={"format": "np", "note": "a b"})
    shown, metadata = read(path)
    assert metadata == {"format": "np", "note": "a b"}
    for dtype in dtypes:
        value = tensors[f"layer.{dtype}"]
        assert shown[f"layer.{dtype}"] == (dtype, "[3,5]", zlib.crc32(value.tobytes()))
    assert shown["scalar"] == ("F32", "[]", zlib.crc32(tensors["scalar"].tobytes()))
    assert shown["empty"] == ("F64", "[2,0]", 0)
    assert len(shown) == len(tensors)


def test_reads_no_tensors(tmp_path):
    path = tmp_path / "none.safetensors"
    safetensors_numpy.save_file({}, path)
    assert read(path) == ({}, {})


def test_reads_bfloat16_of_the_library(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    path = tmp_path / "torch.safetensors"
    value = torch.linspace(-3, 3, 8).to(torch.bfloat16).reshape(2, 4)
    save_file({"bf16": value, "f32": torch.arange(3.0)}, path)
    shown, _ = read(path)
    data = value.view(torch.int16).numpy().tobytes()
    assert shown["bf16"] == ("BF16", "[2,4]", zlib.crc32(data))
    assert shown["f32"] == ("F32", "[3]", zlib.crc32(np.arange(3, dtype=np.float32).tobytes()))


def test_refuses_an_altered_file(written):
    data = bytearray(written.read_bytes())
    data[-1] ^= 1
    written.write_bytes(data)
    result = run("read", written)
    assert result.returncode == 1
    assert "damaged or altered" in result.stderr
