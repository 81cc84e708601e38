"""Training speed of pi-mnist's network: Planish against plain PyTorch, alternating in one run.

Both train 784-1000-1000-10 from the same weights on the same batches. First their losses are
compared; nothing is timed unless they agree. docs/performance.md explains the columns."""

import argparse
import contextlib
import json
import math
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from safetensors.torch import load_file
from torch import nn

sys.path.append(str(pathlib.Path(__file__).parent.parent / "base"))
from harness import BenchError, run_main  # noqa: E402
from updates import PAUSE, best, compare, measure, nudge, nudges, ratio_text  # noqa: E402

PROGRAM = pathlib.Path("bench") / "pi_mnist_steps"
NORMS = {
    "none": lambda width: nn.Identity(),
    "batch": nn.BatchNorm1d,
    "layer": nn.LayerNorm,
    "layer-simple": lambda width: nn.LayerNorm(width, elementwise_affine=False),
}
CHECKED_UPDATES = 8
PLANISH, NOT_KEPT, DEFAULT, FUSED = "Planish", "memory not kept", "PyTorch", "PyTorch, fused"


class PyTorch:
    """The model, data and optimizer as a user of PyTorch writes them."""

    def __init__(self, norm, batch, data, start, *, fused=None, dtype=torch.float32, generator=None):
        layers = []
        for inputs, outputs in ((784, 1000), (1000, 1000), (1000, 10)):
            layers.append(nn.Linear(inputs, outputs))
            # As in Planish: batch norm on every layer, the others on the hidden layers.
            if norm == "batch" or outputs != 10:
                layers.append(NORMS[norm](outputs))
            layers.append(nn.ReLU())
        self.model = nn.Sequential(*layers[:-1])
        linears = [layer for layer in self.model if isinstance(layer, nn.Linear)]
        for i, linear in enumerate(linears):
            linear.load_state_dict({k: start[f"linear{i}.{k}"] for k in ("weight", "bias")})
            if generator is not None:
                for weight in linear.parameters():
                    nudge(weight, generator)
        self.model.to(dtype)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=fused)
        self.x = data[0] if dtype == torch.float32 else data[0].to(dtype)
        self.labels, self.order = data[1], start["order"]
        self.batch, self.batches, self.next = batch, len(start["order"]) // batch, 0

    def update(self):
        cases = self.order[self.next * self.batch : (self.next + 1) * self.batch]
        self.next = (self.next + 1) % self.batches
        self.optimiser.zero_grad()
        outputs = self.model(self.x.index_select(0, cases))
        loss = nn.functional.cross_entropy(outputs, self.labels.index_select(0, cases))
        value = loss.item()  # Planish reads every loss, too
        loss.backward()
        self.optimiser.step()
        return value

    def losses(self, count):
        return [self.update() for _ in range(count)]

    def steps(self, count):
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        start = time.perf_counter()
        for _ in range(count):
            self.update()
        seconds = time.perf_counter() - start
        return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults


class Planish:
    """bench/pi-mnist/planish_steps.cc in a separate process."""

    def __init__(self, build, threads, data, *, keep_memory=True):
        program = pathlib.Path(build) / PROGRAM
        if not program.exists():
            raise BenchError(f"{program} does not exist: run make build")
        environment = dict(os.environ, PLANISH_KEEP_MEMORY="1" if keep_memory else "0")
        self.process = subprocess.Popen(
            [program, str(threads), *([data] if data else [])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        self.stamps = json.loads(self.answer())

    def answer(self):
        line = self.process.stdout.readline()
        if not line:  # the reason is on stderr
            raise BenchError(f"{PROGRAM.name} ended with status {self.process.wait()}")
        return line

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.answer().split()

    def losses(self, count):
        return [float(word) for word in self.ask(f"losses {count}")]

    def steps(self, count):
        seconds, faults = self.ask(f"steps {count}")
        return float(seconds), int(faults)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def check(what, competitors, norm, batch, data, start):
    """Raises BenchError unless every competitor's losses match."""
    exact = PyTorch(norm, batch, data, start, dtype=torch.float64).losses(CHECKED_UPDATES)
    floats = [PyTorch(norm, batch, data, start, generator=n).losses(CHECKED_UPDATES) for n in nudges(5)]
    losses = {name: c.losses(CHECKED_UPDATES) for name, c in competitors.items()}
    wrong, distances = compare(losses, exact, floats)
    for name, text in wrong.items():
        raise BenchError(f"{what}: {name}: {text}")
    print(f"{what}: losses agree within {distances}", file=sys.stderr)


def faults(result):
    return f"{statistics.median(f for _, f in result):.0f}"


def show(title, header, rows, markdown):
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    edge, between = ("| ", " | ") if markdown else ("", "  ")
    lines = [header, *rows]
    if markdown:
        lines.insert(1, ["-" * (w - 1) + ":" for w in widths])
    print(f"\n{title}\n" if markdown else f"\n{title}")
    for line in lines:
        cells = between.join(cell.rjust(width) for cell, width in zip(line, widths))
        print(f"{edge}{cells}{edge[::-1]}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build/release", help="CMake's build folder")
    parser.add_argument("--data", default=os.environ.get("PLANISH_DATA"),
                        help="folder with MNIST (default: $PLANISH_DATA, else drawn digits)")  # fmt: skip
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)),
                        help="threads of every competitor (default: all cores)")  # fmt: skip
    parser.add_argument("--norms", default=",".join(NORMS), help="default: all")
    parser.add_argument("--batch-sizes", default="128,4", help="default: 128,4")
    parser.add_argument("--rounds", type=int, default=12, help="blocks of each competitor")
    parser.add_argument("--block", type=float, default=0.4,
                        help="seconds of the slowest competitor's block")  # fmt: skip
    parser.add_argument("--check", action="store_true", help="compare the losses, time nothing")
    parser.add_argument("--markdown", action="store_true", help="tables for docs/performance.md")
    args = parser.parse_args()
    args.norms = args.norms.split(",")
    for norm in args.norms:
        if norm not in NORMS:
            parser.error(f"--norms must be of {', '.join(NORMS)}, got {norm}")
    try:
        args.batch_sizes = [int(size) for size in args.batch_sizes.split(",")]
    except ValueError:
        parser.error(f"--batch-sizes must be numbers, got {args.batch_sizes}")
    if min(args.batch_sizes) < 2 or args.threads < 1 or args.rounds < 1 or not args.block > 0:
        parser.error("batch sizes must be 2 or more; threads, rounds and block above 0")
    return args


def main():
    args = parse()
    torch.set_num_threads(args.threads)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        planish = Planish(args.build, args.threads, args.data)
        stack.callback(planish.close)
        not_kept = Planish(args.build, args.threads, args.data, keep_memory=False)
        stack.callback(not_kept.close)
        stamps = planish.stamps
        if stamps["torch"].split("+")[0] != torch.__version__.split("+")[0]:
            raise BenchError(f"both sides must use the same PyTorch, got {stamps['torch']} "
                             f"and {torch.__version__}")  # fmt: skip
        planish.ask(f"data {folder}/data")
        stored = load_file(folder / "data")
        data = stored["images"].float().div_(255), stored["labels"]
        speed, memory, parts = [], [], []
        for norm in args.norms:
            for batch in args.batch_sizes:
                what = f"{norm}, batch size {batch}"
                for process in (planish, not_kept):
                    process.ask(f"setup {norm} {batch} {folder}/start")
                start = load_file(folder / "start")
                competitors = {
                    PLANISH: planish,
                    NOT_KEPT: not_kept,
                    DEFAULT: PyTorch(norm, batch, data, start),
                    FUSED: PyTorch(norm, batch, data, start, fused=True),
                }
                check(what, competitors, norm, batch, data, start)
                if args.check:
                    continue
                results = measure(competitors, args.rounds, args.block)
                row = [norm, str(batch)]
                speed.append(
                    row
                    + [f"{batch / best(results[name]):,.0f}" for name in (PLANISH, DEFAULT, FUSED)]
                    + [ratio_text(results[name], results[PLANISH]) for name in (DEFAULT, FUSED)]
                )
                memory.append(
                    row
                    + [ratio_text(results[NOT_KEPT], results[PLANISH])]
                    + [faults(results[name]) for name in (PLANISH, NOT_KEPT, DEFAULT, FUSED)]
                )
                time.sleep(PAUSE)
                update = best(results[PLANISH])
                needed = [float(s) for s in planish.ask(f"parts {math.ceil(0.5 / update)}")]
                rest = update - needed[0] - needed[1]
                parts.append(row + [f"{1e3 * s:.2f}" for s in (update, *needed, rest)])
        if args.check:
            return
    print(f"{stamps['cpu']}, {args.threads} threads, {stamps['cpu features']}; "
          f"PyTorch {torch.__version__}, Python {platform.python_version()}, "
          f"{stamps['compiler']}; {'MNIST' if args.data else 'drawn digits'}")  # fmt: skip
    show("Training cases a second, and the other's time over Planish's: of the fastest blocks (median "
         "of the rounds, first to last decile)",
         ["norm", "batch", PLANISH, DEFAULT, FUSED, f"over {DEFAULT}", f"over {FUSED}"],
         speed, args.markdown)  # fmt: skip
    show("What keeping freed memory brings: time without over time with, and page faults an update",
         ["norm", "batch", "time", PLANISH, NOT_KEPT, DEFAULT, FUSED], memory, args.markdown)  # fmt: skip
    show("Where an update's time goes, ms, each part alone",
         ["norm", "batch", "update", "products", "Adam", "Adam's traffic", "rest"],
         parts, args.markdown)  # fmt: skip


if __name__ == "__main__":
    run_main(main)
