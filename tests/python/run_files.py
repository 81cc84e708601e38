"""The files of a run folder (docs/files.md), read without planish."""

import json
import re
import zlib

CHECKPOINT = "checkpoint/state.safetensors"
PREDICTIONS = "predictions.csv.gz"
TEMPORARY = {".config.json.tmp", ".metrics.jsonl.tmp", ".result.json.tmp", f".{PREDICTIONS}.tmp",
             "checkpoint/.state.safetensors.tmp"}  # fmt: skip
CLOCK = ("seconds", "cpu_seconds", "input_seconds", "evaluation_seconds")


def read_checkpoint(run):
    """Returns the tensors by name, as (type, shape, bytes), and the training state. Checks the checksum."""
    data = (run / CHECKPOINT).read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    metadata = header.pop("__metadata__")
    crc = metadata["planish.crc32"]
    field = b'"planish.crc32":"%s"'
    zeroed = data[:begin].replace(field % crc.encode(), field % b"00000000")
    assert f"{zlib.crc32(data[begin:], zlib.crc32(zeroed)):08x}" == crc, f"{run}: wrong checksum"
    tensors = {}
    for name, entry in header.items():
        first, last = (begin + offset for offset in entry["data_offsets"])
        assert last <= len(data), f"{run}: {name} is truncated"
        tensors[name] = (entry["dtype"], entry["shape"], data[first:last])
    return tensors, json.loads(metadata["state"])


def read_metrics(run):
    """Returns the complete lines of metrics.jsonl, without the times. A killed process can leave a partial line."""
    path = run / "metrics.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [without_times(json.loads(line)) for line in lines]


def read_run(folder):
    """Returns the contents of the JSON files of a run; the result is None if it has none."""
    result = folder / "result.json"
    return {
        "config": json.loads((folder / "config.json").read_text()),
        "result": json.loads(result.read_text()) if result.exists() else None,
        "metrics": read_metrics(folder),
    }


def without_times(values):
    return {key: value for key, value in values.items() if key not in CLOCK}


def results_of(run):
    """Returns everything of a finished run that does not depend on the clock."""
    tensors, _ = read_checkpoint(run)
    return {
        "tensors": tensors,
        "metrics": read_metrics(run),
        "result": without_times(json.loads((run / "result.json").read_text())),
    }


def assert_same_results(run, expected):
    results = results_of(run)
    assert results["metrics"] == expected["metrics"]
    assert results["result"] == expected["result"]
    different = [name for name, tensor in expected["tensors"].items() if results["tensors"].get(name) != tensor]
    assert different == [] and len(results["tensors"]) == len(expected["tensors"])


def unexpected_files(run):
    """Returns the names in a run folder that docs/files.md does not list. Temporary files are in the list."""
    listed = {".lock", "config.json", "metrics.jsonl", "result.json", PREDICTIONS, "checkpoint", CHECKPOINT} | TEMPORARY
    names = {str(path.relative_to(run)) for path in run.rglob("*")}
    return sorted(name for name in names - listed if not re.fullmatch(r"events\.out\.tfevents\.[^/]+", name))


def temporary_files(folder):
    return sorted(str(path) for path in folder.rglob(".*.tmp"))
