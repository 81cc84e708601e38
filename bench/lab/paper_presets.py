#!/usr/bin/env python3
"""Measures memory and time of the preset `paper` of every task that has one. Prints a table in Markdown.

    paper_presets.py BUILD [--tasks TASK,...] [--device NAME] [--threads N] [--updates N] [--seconds S]

Trains each task on the data in PLANISH_DATA for N updates or S seconds, whichever ends first.
Needs Linux, and idle cores.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import tempfile
import time


def peak_bytes(pid):
    """Returns the largest resident memory of a process so far."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


def state_of(folder):
    """Returns the metadata of the run's checkpoint, or None."""
    for file in folder.glob("*/*/checkpoint/state.safetensors"):
        with file.open("rb") as f:
            (size,) = struct.unpack("<Q", f.read(8))
            header = json.loads(f.read(size))
        tensors = {name: one["shape"] for name, one in header.items() if name != "__metadata__"}
        return json.loads(header["__metadata__"]["state"]), tensors
    return None


def elements(shape):
    count = 1
    for size in shape:
        count *= size
    return count


def measure(program, task, options):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        command = [program, "train", task, "--preset", "paper", "--threads", str(options.threads), "--quiet"]
        norm = re.search(r"^  norm +(\S+)", subprocess.check_output([program, "list", task], text=True), re.M)
        command += ["--norm", norm.group(1)] if norm else []  # one run, with the task's default
        command += ["--device", options.device, "--checkpoint-seconds", "5", "--out", folder]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        end, peak, asked = time.monotonic() + options.seconds, 0, False
        while process.poll() is None:
            peak = max(peak, peak_bytes(process.pid))
            found = state_of(folder) if not asked else None
            if not asked and (time.monotonic() > end or (found and found[0]["step"] >= options.updates)):
                process.send_signal(signal.SIGTERM)
                asked = True
            time.sleep(0.2)
        found = state_of(folder)
        if found is None or found[0]["step"] == 0:
            error = process.stderr.read().strip().splitlines()
            if error and "preset must be one of" in error[-1]:
                return None
            if not asked:
                return [task, "", "", error[-1] if error else "no update"]
            return [task, "", f"{peak / 2**20:,.0f} MiB", "no update"]
        state, tensors = found
        parameters = sum(elements(shape) for key, shape in tensors.items() if key.startswith("model."))
        milliseconds = 1e3 * state["seconds"] / state["step"]
        return [task, f"{parameters:,}", f"{peak / 2**20:,.0f} MiB", f"{milliseconds:,.1f} ms"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--tasks")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=300)
    options = parser.parse_args()
    program = (options.build / "planish").resolve()
    listed = subprocess.run([program, "list"], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    tasks = options.tasks.split(",") if options.tasks else [line.split()[0] for line in listed if line.strip()]
    if not tasks:
        raise SystemExit("paper_presets.py: no task to measure")
    print("| task | elements of the model | peak memory | an update |\n|---|---|---|---|")
    for task in tasks:
        row = measure(program, task, options)
        if row:
            print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
