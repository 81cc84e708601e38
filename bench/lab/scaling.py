#!/usr/bin/env python3
"""Measures what several processes gain in training, beside a model, for docs/scaling.md. Prints tables in Markdown.

    scaling.py BUILD [--data DIR] [--repeats N]

Needs as many idle cores as processes. Updates of 1 and 2 processes are measured alternately, with one thread each and the
same shards, so they compute the same bits. The exchange is measured by itself, with the same library (Gloo).
"""

import argparse
import json
import math
import os
import pathlib
import socket
import statistics
import subprocess
import tempfile
import time

import torch
import torch.distributed as dist

# Task and settings: a few hundred updates after the first evaluation.
RUNS = {
    "pi-mnist, 3 x 1,000 units, batch 128": ("pi-mnist", "--norm", "layer", "--set", "width=1000", "--set", "depth=3",
                                            "--batch-size", 128, "--set", "epochs=1", "--set", "train_cases=12800", "--set",
                                            "valid_cases=100", "--set", "test_cases=100"),
    "rt, Transformer, batch 64": ("rt", "--preset", "small", "--norm", "layer", "--set", "epochs=1"),
    "char-lm, LN-LSTM, batch 32": ("char-lm", "--preset", "small", "--cell", "ln-lstm", "--set", "epochs=1"),
}  # fmt: skip
SIZES = [1 << 10, 1 << 16, 1 << 20, 1 << 22, 1 << 24]  # bytes of an exchange


def environments(size):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    base = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(size)}
    return [base | {"RANK": str(rank)} for rank in range(size)]


def seconds_an_update(program, size, arguments, data):
    """Returns the seconds of an update and the number of parameters."""
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "train", *map(str, arguments), "--set", "shards=2", "--threads", "1", "--quiet", "--out", folder]
        if data:
            command += ["--data", data]
        processes = [subprocess.Popen(command, env=e, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for e in environments(size)]
        if any(process.wait() for process in processes):
            raise SystemExit(f"scaling.py: {' '.join(map(str, command))} failed")
        (run,) = pathlib.Path(folder).glob("*/*/metrics.jsonl")
        lines = [json.loads(line) for line in run.read_text().splitlines()]
        result = json.loads((run.parent / "result.json").read_text())
        first, last = lines[1], lines[-1]  # after the warm-up
        return (last["seconds"] - first["seconds"]) / (last["step"] - first["step"]), result["parameters"]


def exchange(rank, environment, sizes, results):
    os.environ.update(environment)
    dist.init_process_group("gloo")
    for size in sizes:
        values, received = torch.ones(size // 4), torch.empty(size // 4)
        times = []
        for _ in range(50):
            dist.barrier()
            start = time.perf_counter()
            sent = dist.isend(values, 1 - rank)
            dist.recv(received, 1 - rank)
            sent.wait()
            values.add_(received)
            times.append(time.perf_counter() - start)
        if rank == 0:
            results.put((size, statistics.median(times)))
    dist.destroy_process_group()


def exchanges():
    context = torch.multiprocessing.get_context("spawn")
    results = context.Queue()
    pair = [context.Process(target=exchange, args=(r, e, SIZES, results)) for r, e in enumerate(environments(2))]
    for process in pair:
        process.start()
    measured = [results.get() for _ in SIZES]
    for process in pair:
        process.join()
    return measured


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--data")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    program = (options.build / "planish").resolve()

    measured = exchanges()
    latency = measured[0][1]
    bandwidth = (measured[-1][0] - measured[0][0]) / (measured[-1][1] - measured[0][1])
    print("| bytes | exchange of two processes, ms | GB/s |\n|---|---|---|")
    for size, seconds in measured:
        print(f"| {size:,} | {seconds * 1e3:.3f} | {size / seconds / 1e9:.2f} |")
    print(f"\nlatency {latency * 1e6:.0f} us, bandwidth {bandwidth / 1e9:.2f} GB/s\n")

    print("| task | parameters | bytes an update | 1 process, ms | 2 processes, ms | speed-up | predicted |")
    print("|---|---|---|---|---|---|---|")
    rows = []
    for name, arguments in RUNS.items():
        times = {1: [], 2: []}
        for _ in range(options.repeats):
            for size in (1, 2):
                seconds, parameters = seconds_an_update(program, size, arguments, options.data)
                times[size].append(seconds)
        one, two = (statistics.median(times[size]) for size in (1, 2))
        sent = 4 * parameters
        predicted = one / (one / 2 + 2 * latency + sent / bandwidth)
        rows.append((name, one, sent))
        print(f"| {name} | {parameters:,} | {sent:,} | {one * 1e3:.2f} | {two * 1e3:.2f} | {one / two:.2f} | {predicted:.2f} |")

    print("\n| processes | " + " | ".join(name for name, _, _ in rows) + " |\n|---" * 1 + "|---" * len(rows) + "|")
    for size in (2, 8, 64, 1024):
        rounds = math.log2(size)
        cells = [f"{size * one / (one + rounds * (2 * latency + sent / bandwidth)):.1f}" for _, one, sent in rows]
        print(f"| {size:,} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
