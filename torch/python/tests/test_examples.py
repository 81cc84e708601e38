"""Tests that the programs of examples/ learn, and that they print the right values."""

import argparse
import csv
import importlib
import itertools
import math
import os
import random
import re
import subprocess
import sys
import xml.etree.ElementTree

import pytest
import torch

CELLS = ("ln-gru", "plain-gru", "gru")


@pytest.fixture
def module(root, monkeypatch):
    """Imports an example."""
    monkeypatch.syspath_prepend(root / "examples")
    return importlib.import_module


@pytest.fixture
def one_thread():
    """Makes sums have one order, so that results repeat."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def main(module, one_thread, tmp_path, monkeypatch, capsys):
    """Runs an example in this process. Returns its exit status and output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PLANISH_DATA", raising=False)

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
        try:
            module(name).main()
        except SystemExit as end:
            if isinstance(end.code, str):  # the interpreter would print it
                print(end.code, file=sys.stderr)
            status = 1 if isinstance(end.code, str) else end.code
        else:
            status = 0
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def program(root, tmp_path):
    """Runs an example like its users, but with one thread. Returns its output."""

    def run(name, *arguments):
        places = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        path = os.pathsep.join(os.path.abspath(place) for place in places if place)
        result = subprocess.run(
            [sys.executable, root / "examples" / f"{name}.py", *map(str, arguments)],
            cwd=tmp_path, env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run


# Texts of words from WORDS, which all have the same probability. The minimum is log2(16) bits for
# the 6 characters of a word and its space. A model that knows only the frequencies of characters
# needs 4.4 bits for each character.
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ["".join(random.Random(i).choices(LETTERS, k=5)) for i in range(16)]
ENTROPY = math.log2(16) / 6


@pytest.fixture
def text(tmp_path):
    file = tmp_path / "words.txt"
    file.write_text(" ".join(random.Random(1).choices(WORDS, k=4000)), encoding="utf-8")
    return file


SMALL = ("--hidden", 32, "--batch", 8, "--steps", 16, "--lr", 0.01)


def lines_of(file):
    with file.open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.long
def test_char_lstm_learns(program, text, tmp_path):
    out = program("char_lstm", "--text", text, *SMALL, "--updates", 200, "--sample", 60)
    alphabet = len(set(text.read_text(encoding="utf-8")))
    assert f"{math.log2(alphabet):.3f} bits without learning" in out
    curves = {"lstm": [], "ln-lstm": []}
    for line in lines_of(tmp_path / "char-lstm.csv"):
        curves[line["cell"]].append((int(line["updates"]), float(line["bits_per_character"])))
    for cell, curve in curves.items():
        assert [updates for updates, _ in curve] == list(range(0, 201, 10))
        # The logits of a new model are small, but not 0: 32 units of at most 1 times weights of at
        # most 32^-1/2.
        assert curve[0][1] == pytest.approx(math.log2(alphabet), abs=0.3)
        # Words are not equally frequent among the 400 held-out ones, so a model can need slightly
        # less than ENTROPY. Three seeds ended below .71.
        assert ENTROPY - 0.02 < curve[-1][1] < 0.9
        (row,) = re.findall(rf"^{cell} .*", out, re.MULTILINE)
        lowest = min(bits for _, bits in curve)
        values = [curve[5][1], curve[10][1], curve[20][1], lowest]
        # The file has one extra digit.
        assert list(map(float, row.split()[1:5])) == pytest.approx(values, abs=6e-4)
        (sample,) = re.findall(rf"^{cell}, seed 1:\n(.*)", out, re.MULTILINE)
        # The sample consists of parts of words. One in 8 random pairs of characters is in a word.
        pairs = {pair for word in WORDS for pair in itertools.pairwise(f" {word} ")}
        found = [pair in pairs for pair in itertools.pairwise(sample)]
        assert len(sample) == 60
        assert sum(found) > 0.8 * len(found)


def test_char_lstm_draws_its_curves(main, text, tmp_path):
    svg = tmp_path / "picture.svg"
    seeds = ("--seeds", 1, 1, 2)
    status, _, progress = main(
        "char_lstm", "--text", text, *SMALL, "--updates", 20, "--every", 5, "--svg", svg, *seeds
    )
    assert status == 0
    assert len(progress.splitlines()) == 3 * 5
    drawing = xml.etree.ElementTree.parse(svg).getroot()
    assert len(lines_of(svg.with_suffix(".csv"))) == 2 * 3 * 5
    lines = [e for e in drawing.iter() if e.tag.endswith("polyline") and "clip-path" in e.attrib]
    for panel in ("url(#panel0)", "url(#panel1)"):
        kinds = [line.get("class") for line in lines if line.get("clip-path") == panel]
        assert kinds == ["lstm seed"] * 3 + ["lstm"] + ["ln-lstm seed"] * 3 + ["ln-lstm"]
    first, second, third, mean = (
        [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        for line in lines[:4]
    )
    # Equal seeds give equal curves, other seeds others.
    assert first == second
    assert first != third
    # Positions have one digit after the point.
    for points in zip(first, second, third, mean, strict=True):
        *of_seeds, of_mean = (y for _, y in points)
        assert of_mean == pytest.approx(sum(of_seeds) / 3, abs=0.11)
    assert [x for x, _ in mean] == [58, 158, 258, 358, 458]


@pytest.mark.parametrize(
    ("low", "high", "most"), [(0, 5000, 6), (1.83, 3.41, 8), (0, 0.037, 6), (2.0, 2.9, 3)]
)
def test_there_are_few_ticks_with_round_values(module, low, high, most):
    ticks = module("curves").ticks(low, high, most)
    assert 2 <= len(ticks) <= most
    assert all(low <= tick <= high for tick in ticks)
    assert all(len(f"{tick:g}") <= 5 for tick in ticks)


def test_flat_curves_are_drawn(module, tmp_path):
    file = tmp_path / "flat.svg"
    module("curves").write_svg(file, "flat", "y", {"x": {"a": [[(0, 2.0), (1, 2.0)]]}})
    elements = xml.etree.ElementTree.parse(file).iter()
    lines = [element.get("points") for element in elements if "points" in element.attrib]
    # A line from left to right at the height of the lowest point, a twentieth above the bottom.
    assert lines[-1] == f"58.0,{84 + 260 / 1.05:.1f} 458.0,{84 + 260 / 1.05:.1f}"


def test_char_lstm_carries_the_state_over_its_batches(module):
    char_lstm = module("char_lstm")
    text = torch.arange(103)
    batches = char_lstm.batches(text, streams=4, steps=5)
    x, following = (torch.cat(part) for part in zip(*batches, strict=True))
    assert [part.shape for part, _ in batches] == [(5, 4)] * 5
    assert torch.equal(following, x + 1)
    assert torch.equal(x.t().flatten(), torch.arange(100))

    options = argparse.Namespace(hidden=8, lr=0.01, clip=1.0)
    for cell in ("lstm", "ln-lstm"):
        run = char_lstm.Run(cell, 1, len(text), options)
        run.validate(batches)
        whole = char_lstm.loss_of(run.model(x)[0], following).item() / math.log(2)
        # The steps are the same; float32 sums of 100 values of about 7 have another order.
        assert run.curve[-1][2] == pytest.approx(whole, rel=1e-5)
        # A state of zeros for each batch gives another loss.
        apart = [char_lstm.loss_of(run.model(a)[0], b).item() / math.log(2) for a, b in batches]
        assert abs(sum(apart) / len(apart) - whole) > 1e-4


def rollouts(actor_critic, cell, count):
    options = argparse.Namespace(hidden=16, lr=0.001, batch=8, longest=4, steps=12)
    learner = actor_critic.Learner(cell, 1, options)
    return learner, [learner.act() for _ in range(count)]


@pytest.mark.parametrize("cell", CELLS)
def test_acting_and_learning_compute_the_same(module, cell):
    learner, (_, rollout) = rollouts(module("actor_critic"), cell, 2)
    starts = rollout.starts
    # Some episodes start in the middle of the rollout, others continue from the last one.
    assert starts[1:].sum() > 3
    assert not starts[0].all()
    assert (rollout.h0 != 0).any()
    learner.agent.train()
    logits, values, _ = learner.agent(rollout.observations, starts, rollout.h0)
    # The products are the same, in float32 and of matrices of other sizes: sums of 16 values below
    # 1.
    close = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(logits, rollout.logits, **close)
    torch.testing.assert_close(values, rollout.values, **close)
    logits, _, _ = learner.agent(rollout.observations, torch.zeros_like(starts), rollout.h0)
    assert (logits - rollout.logits).abs().max() > 1e-3


def test_one_call_with_resets_is_the_loop_over_steps(module):
    actor_critic = module("actor_critic")
    loop, (_, rollout) = rollouts(actor_critic, "gru", 2)
    one_call, _ = rollouts(actor_critic, "plain-gru", 1)
    one_call.agent.load_state_dict(loop.agent.state_dict())
    for learner in (loop, one_call):
        learner.learn(rollout)
    for (name, a), b in zip(
        loop.agent.named_parameters(), one_call.agent.parameters(), strict=True
    ):
        # Gradients below 1 are float32 sums over 96 steps in another order.
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-6, msg=name)


def test_corridors(module):
    actor_critic = module("actor_critic")
    corridors = actor_critic.Corridors(64, 5)
    ahead = actor_critic.DOORS
    sign = torch.full((64,), -1)
    ended = torch.ones(64, dtype=torch.bool)
    episodes = 0
    for _ in range(30):
        x = corridors.observe()
        assert x.shape == (64, actor_critic.OBSERVATION)
        # The sign is visible only at the start of an episode.
        assert torch.equal(x[:, :ahead].sum(1), ended.float())
        sign = torch.where(ended, x[:, :ahead].argmax(1), sign)
        at_doors = x[:, -1] == 1
        # An impossible action has a cost and changes nothing.
        reward, ended = corridors.step(torch.where(at_doors, ahead, sign))
        assert torch.equal(reward, torch.full((64,), -0.05))
        assert not ended.any()
        assert torch.equal(corridors.observe(), x)
        # An agent that remembers the sign is always right, one that takes the other door never.
        beside = torch.arange(64) % 2
        reward, ended = corridors.step(
            torch.where(at_doors, (sign + beside) % actor_critic.DOORS, ahead)
        )
        assert torch.equal(ended, at_doors)
        assert torch.equal(reward, (at_doors & (beside == 0)).float())
        episodes += int(ended.sum())
    # An episode has 1 to 5 steps and a door, 4 on average: 64 * 30 / 4 episodes, with a deviation
    # of about 4 %.
    assert 380 < episodes < 580


def test_advantages(module):
    actor_critic = module("actor_critic")
    _, (rollout,) = rollouts(actor_critic, "ln-gru", 1)
    gamma, decay = 0.9, 0.8
    advantages = actor_critic.advantages_of(rollout, gamma, decay)
    values = [*rollout.values, rollout.next_value]
    steps, batch = rollout.rewards.shape
    assert rollout.dones.any()
    for t, b in itertools.product(range(steps), range(batch)):
        expected = 0.0
        for k in range(t, steps):
            done = bool(rollout.dones[k, b])
            after = 0.0 if done else gamma * float(values[k + 1][b])
            delta = float(rollout.rewards[k, b]) + after - float(values[k][b])
            expected += (gamma * decay) ** (k - t) * delta
            if done:
                break
        # A dozen additions in float32 of numbers up to 1.
        assert float(advantages[t, b]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.long
def test_actor_critic_learns_to_remember(program):
    out = program(
        "actor_critic", "--cell", "ln-gru", "--longest", 2, "--steps", 8, "--lr", 0.01,
        "--updates", 150, "--every", 50,
    )  # fmt: skip
    (row,) = re.findall(r"^ln-gru .*", out, re.MULTILINE)
    # Without memory the rate is 1 in 4. Five seeds ended above .99.
    assert float(row.split()[2]) > 0.9


def test_actor_critic_compares_cells(main):
    status, out, _ = main("actor_critic", "--updates", 5, "--seeds", 1, 2, "--batch", 8)
    assert status == 0
    rows = [line.split() for line in out.splitlines() if line]
    assert [row[:2] for row in rows if row[0] in CELLS] == [
        [cell, seed] for seed in ("1", "2") for cell in CELLS
    ]
    of_updates = [row for row in rows if row[0].isdecimal()]
    assert [row[0] for row in of_updates] == ["1", "2", "3", "4", "5"] * 2
    # With the same seed, plain-gru starts like gru, and sees and does the same.
    assert all(row[2] == row[3] for row in of_updates)


WHOLE = "must be a whole number of at least 1, got"
ABOVE = "must be a number above 0, got"
FILE = "must be a .svg file in a folder that exists, got"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("char_lstm", "--updates", 0), f"argument --updates: {WHOLE} 0"),
        (("char_lstm", "--hidden", "x"), f"argument --hidden: {WHOLE} x"),
        (("char_lstm", "--lr", "nan"), f"argument --lr: {ABOVE} nan"),
        (("char_lstm", "--clip", "-1"), f"argument --clip: {ABOVE} -1"),
        (("char_lstm", "--cell", "gru"), "argument --cell: invalid choice: 'gru'"),
        (("char_lstm", "--svg", "no/a.svg"), f"argument --svg: {FILE} no/a.svg"),
        (("char_lstm", "--svg", "a.csv"), f"argument --svg: {FILE} a.csv"),
        (("actor_critic", "--longest", 0), f"argument --longest: {WHOLE} 0"),
        (("actor_critic", "--cell", "lstm"), "argument --cell: invalid choice: 'lstm'"),
    ],
    ids=lambda value: "".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_usage(main, arguments, message):
    status, out, error = main(*arguments)
    assert status == 2
    assert message in error
    assert not out


def test_char_lstm_names_an_unusable_text(main, text, tmp_path):
    assert main("char_lstm", "--text", "missing.txt") == (
        1, "", "char_lstm.py: cannot read missing.txt: No such file or directory\n"
    )  # fmt: skip
    status, _, error = main("char_lstm", "--text", text, "--batch", 100)
    assert status == 1
    assert "must have at least 64010 characters" in error
    assert "got 23999" in error
    assert not list(tmp_path.glob("*.svg"))


def test_default_text_and_text_of_planish_data(module, tmp_path, monkeypatch):
    pytest.importorskip("pydoc_data.topics")
    char_lstm = module("char_lstm")
    monkeypatch.setenv("PLANISH_DATA", str(tmp_path))
    text, name = char_lstm.read_text(None)
    # The interpreter's help texts have about 400,000 characters, enough for any reasonable batch.
    assert name == "the help texts of Python"
    assert len(text) > 200000
    (tmp_path / "tinyshakespeare").mkdir()
    file = tmp_path / "tinyshakespeare" / "input.txt"
    file.write_text("First Citizen", encoding="utf-8")
    assert char_lstm.read_text(None) == ("First Citizen", str(file))
