"""A character language model with torch.nn.LSTM and with planish.nn.LayerNormLSTM.

    python char_lstm.py                                     both cells, on Python's help texts
    python char_lstm.py --text FILE --updates 3000 --seeds 1 2 3
    python char_lstm.py --cell ln-lstm --sample 500         one cell, and a text that it writes

Trains a model for each cell and seed, alternating between the cells, and measures bits per
character on the last tenth of the text, which is not used for training.
"""

import argparse
import csv
import math
import os
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch
from arguments import above_zero, at_least_one
from curves import write_svg
from torch import Tensor, nn
from torch.nn import functional

import planish

EMBEDDING = 64


class CharModel(nn.Module):
    """Computes logits of the next characters [T, B, characters] from indices [T, B]."""

    def __init__(self, cell: str, characters: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, EMBEDDING)
        if cell == "lstm":
            self.lstm: nn.Module = nn.LSTM(EMBEDDING, hidden)
        else:
            self.lstm = planish.nn.LayerNormLSTM(EMBEDDING, hidden)  # the one line that differs
        self.output = nn.Linear(hidden, characters)

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        y, state = self.lstm(self.embedding(x), state)
        return self.output(y), state


def batches(text: Tensor, streams: int, steps: int) -> list[tuple[Tensor, Tensor]]:
    """Returns pairs of characters and their successors, each [steps, streams].

    The text is cut into streams of equal length, read in parallel. A batch continues where the
    previous one ended, and so does the state.
    """
    length = (len(text) - 1) // streams // steps * steps
    x, following = (text[i : i + streams * length].view(streams, length).t() for i in (0, 1))
    return list(zip(torch.split(x, steps), torch.split(following, steps), strict=True))


def loss_of(logits: Tensor, following: Tensor) -> Tensor:
    """Returns the mean negative log likelihood, in nats."""
    return functional.cross_entropy(logits.flatten(0, 1), following.flatten())


class Run:
    """The training of one model, and its validation curve."""

    def __init__(self, cell: str, seed: int, characters: int, options: argparse.Namespace) -> None:
        torch.manual_seed(seed)
        self.cell, self.seed, self.clip = cell, seed, options.clip
        self.model = CharModel(cell, characters, options.hidden)
        self.adam = torch.optim.Adam(self.model.parameters(), lr=options.lr)
        self.state: Any = None
        self.updates, self.seconds = 0, 0.0
        self.curve: list[tuple[int, float, float]] = []  # updates, seconds, bits per character

    def train(self, text: Sequence[tuple[Tensor, Tensor]], updates: int) -> None:
        begin = time.perf_counter()
        self.model.train()
        for _ in range(updates):
            x, following = text[self.updates % len(text)]
            if self.updates % len(text) == 0:
                self.state = None
            logits, state = self.model(x, self.state)
            # Truncated backpropagation: keeps the state's value, but not its gradient.
            self.state = tuple(part.detach() for part in state)
            self.adam.zero_grad()
            loss_of(logits, following).backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
            self.adam.step()
            self.updates += 1
        self.seconds += time.perf_counter() - begin

    @torch.no_grad()
    def validate(self, text: Sequence[tuple[Tensor, Tensor]]) -> None:
        self.model.eval()
        state, nats = None, 0.0
        for x, following in text:
            logits, state = self.model(x, state)
            nats += loss_of(logits, following).item()
        self.curve.append((self.updates, self.seconds, nats / len(text) / math.log(2)))

    @torch.no_grad()
    def write(self, alphabet: Sequence[str], length: int) -> str:
        """Returns a text sampled from the model, one step a character."""
        self.model.eval()
        text, state, x = "", None, torch.zeros(1, 1, dtype=torch.long)
        for _ in range(length):
            logits, state = self.model(x, state)
            x = torch.multinomial((logits.flatten() / 0.8).softmax(0), 1).view(1, 1)
            text += alphabet[int(x)]
        return text


def read_text(file: pathlib.Path | None) -> tuple[str, str]:
    """Returns the text and its name."""
    folder = os.environ.get("PLANISH_DATA")
    if file is None and folder:
        tiny = pathlib.Path(folder, "tinyshakespeare", "input.txt")
        file = tiny if tiny.exists() else None
    if file is not None:
        try:
            return file.read_text(encoding="utf-8", errors="replace"), str(file)
        except OSError as error:
            sys.exit(f"char_lstm.py: cannot read {file}: {error.strerror}")
    try:
        from pydoc_data.topics import topics
    except ImportError:
        sys.exit("char_lstm.py: this Python comes without its help texts: give a text with --text")
    return "\n".join(topics[name] for name in sorted(topics)), "the help texts of Python"


def table_of(runs: Sequence[Run], cells: Sequence[str]) -> str:
    """Returns a table of bits per character at 1/4, 1/2 and all updates: mean, range of seeds."""
    last = len(runs[0].curve) - 1
    points = sorted({math.ceil(last / 4), math.ceil(last / 2), last})
    lines = [["cell", *(f"{runs[0].curve[p][0]} updates" for p in points), "lowest", "seconds"]]
    for cell in cells:
        of_cell = [run for run in runs if run.cell == cell]
        bits = [[run.curve[point][2] for run in of_cell] for point in points]
        bits.append([min(bits for _, _, bits in run.curve) for run in of_cell])
        means = [f"{sum(b) / len(b):.3f}" for b in bits]
        if len(of_cell) > 1:
            ranges = (f" ({min(b):.3f} to {max(b):.3f})" for b in bits)
            means = list(map("".join, zip(means, ranges, strict=True)))
        lines.append([cell, *means, f"{sum(run.seconds for run in of_cell) / len(of_cell):.1f}"])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def save_curves(svg: pathlib.Path, runs: Sequence[Run], cells: Sequence[str], title: str) -> None:
    """Draws the curves, and writes their values to a .csv file beside the picture."""
    panels = {
        label: {
            cell: [[(p[axis], p[2]) for p in run.curve] for run in runs if run.cell == cell]
            for cell in cells
        }
        for axis, label in enumerate(("updates", "seconds of training"))
    }
    write_svg(svg, title, "bits per character, validation", panels)
    with svg.with_suffix(".csv").open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(["cell", "seed", "updates", "seconds", "bits_per_character"])
        for run in runs:
            for updates, seconds, bits in run.curve:
                lines.writerow([run.cell, run.seed, updates, f"{seconds:.3f}", f"{bits:.4f}"])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="A character language model with torch.nn.LSTM and with LayerNormLSTM."
    )
    add, usual = parser.add_argument, "; %(default)s by default"
    # fmt: off
    add("--text", type=pathlib.Path, metavar="FILE",
        help="what to learn, in UTF-8; by default $PLANISH_DATA/tinyshakespeare/input.txt where "
        "there is one, else the help texts of Python")
    add("--cell", choices=["lstm", "ln-lstm", "both"], default="both",
        help="lstm is torch.nn.LSTM" + usual)
    add("--updates", type=at_least_one, default=1000, metavar="N",
        help="batches to learn from" + usual)
    add("--every", type=at_least_one, metavar="N",
        help="updates from a validation to the next; a twentieth of all by default")
    add("--seeds", type=at_least_one, nargs="+", default=[1], metavar="SEED",
        help="a run for each; 1 by default")
    add("--hidden", type=at_least_one, default=128, metavar="H",
        help="units of the LSTM" + usual)
    add("--batch", type=at_least_one, default=32, metavar="B",
        help="streams that are read side by side" + usual)
    add("--steps", type=at_least_one, default=64, metavar="T",
        help="characters of each stream in a batch" + usual)
    add("--lr", type=above_zero, default=3e-3, metavar="RATE",
        help="Adam's learning rate" + usual)
    add("--clip", type=above_zero, default=1.0, metavar="NORM",
        help="the largest norm that the gradient may have" + usual)
    add("--sample", type=at_least_one, metavar="N",
        help="characters that each model writes at the end; none by default")
    add("--svg", type=pathlib.Path, default="char-lstm.svg", metavar="FILE",
        help="picture of the curves, whose numbers go to a .csv beside it" + usual)
    # fmt: on
    options = parser.parse_args()
    if options.svg.suffix != ".svg" or not options.svg.parent.is_dir():
        parser.error(
            f"argument --svg: must be a .svg file in a folder that exists, got {options.svg}"
        )
    options.every = options.every or max(1, options.updates // 20)
    return options


def main() -> None:
    options = parse()
    cells = ["lstm", "ln-lstm"] if options.cell == "both" else [options.cell]
    text, name = read_text(options.text)
    held_out, minimum = len(text) // 10, options.batch * options.steps + 1
    if held_out < minimum:
        sys.exit(
            f"char_lstm.py: --text must have at least {10 * minimum} characters, for a batch of "
            f"{options.batch} times {options.steps} in its last tenth, got {len(text)}"
        )
    alphabet = sorted(set(text))
    number = {character: i for i, character in enumerate(alphabet)}
    characters = torch.tensor([number[character] for character in text])
    training = batches(characters[:-held_out], options.batch, options.steps)
    validation = batches(characters[-held_out:], options.batch, options.steps)
    print(f"{len(text)} characters of {name}")
    print(f"{len(alphabet)} different ones: {math.log2(len(alphabet)):.3f} bits without learning")

    runs: list[Run] = []
    live = sys.stderr.isatty()
    for seed in options.seeds:
        pair = [Run(cell, seed, len(alphabet), options) for cell in cells]
        runs += pair
        for updates in (*range(0, options.updates, options.every), options.updates):
            for run in pair:
                run.train(training, updates - run.updates)
                run.validate(validation)
            bits = ", ".join(f"{run.cell} {run.curve[-1][2]:.3f}" for run in pair)
            line = f"seed {seed}: {updates} of {options.updates} updates, {bits} bits per character"
            print(f"\r{line}\033[K" if live else f"{line}\n", end="", file=sys.stderr, flush=True)
    if live:
        print(file=sys.stderr)

    print("\n" + table_of(runs, cells))
    title = f"Character models of {options.hidden} units, {options.batch} x {options.steps} a batch"
    save_curves(options.svg, runs, cells, title)
    for run in runs if options.sample else ():
        print(f"\n{run.cell}, seed {run.seed}:\n{run.write(alphabet, options.sample)}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)  # the exit status after SIGINT
