"""docs/reinforcement-learning.md: its examples, and the recipes for CleanRL and rsl_rl."""

import pathlib
import re
import types

import pytest
import torch
from rsl_rl.modules.rnn import RNN
from rsl_rl.utils import split_and_pad_trajectories
from torch import nn

import planish

# Sums of float in other orders.
TOLERANCES = {"rtol": 1e-5, "atol": 1e-6}


def cleanrl_states(lstm, hidden, lstm_state, done):
    """What `get_states` of CleanRL's ppo_atari_lstm.py computes, from its description."""
    outputs = []
    for x, d in zip(hidden, done, strict=True):
        keep = (1.0 - d).view(1, -1, 1)
        y, lstm_state = lstm(x.unsqueeze(0), (keep * lstm_state[0], keep * lstm_state[1]))
        outputs.append(y)
    return torch.cat(outputs).flatten(0, 1), lstm_state


def examples():
    """Runs the document's blocks, and returns what they define."""
    page = pathlib.Path(__file__).resolve().parents[2] / "docs" / "reinforcement-learning.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(blocks) == 4
    names = {}
    for block in blocks:
        exec(compile(block, page.name, "exec"), names)
    return names


def test_examples_run_and_cleanrl_has_the_states_of_its_loop():
    names = examples()
    assert names["features"].shape == (64,)
    assert isinstance(names["actor"].rnn, planish.nn.LayerNormLSTM)

    theirs = nn.LSTM(6, 8)
    ours = planish.nn.LayerNormLSTM(6, 8, variant="plain")
    ours.load_state_dict(theirs.state_dict())
    network = nn.Linear(3, 6)
    agent = types.SimpleNamespace(network=network, lstm=ours)
    x, done = torch.rand(80, 3) * 255, (torch.rand(80) < 0.2).float()  # 20 steps of 4 environments
    states = torch.randn(2, 1, 4, 8).unbind()
    hidden = network(x / 255.0).reshape(-1, 4, 6)
    expected, last = cleanrl_states(theirs, hidden, states, done.reshape(-1, 4))
    y, found = names["get_states"](agent, x, states, done)
    torch.testing.assert_close(y, expected, **TOLERANCES)
    for a, b in zip(found, last, strict=True):
        torch.testing.assert_close(a, b, **TOLERANCES)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_rsl_rl(kind):
    theirs = RNN(6, 8, num_layers=2, type=kind)
    ours = RNN(6, 8, num_layers=2, type=kind)
    report = planish.convert(ours, "layer_norm_rnn", variant="plain")
    assert len(report.changed) == 1
    ours.load_state_dict(theirs.state_dict())
    x, done = torch.randn(12, 4, 6), torch.rand(12, 4) < 0.2
    padded, masks = split_and_pad_trajectories(x, done)
    states = [torch.zeros(2, padded.shape[1], 8) for _ in range(2)]
    hidden = states[0] if kind == "gru" else tuple(states)
    torch.testing.assert_close(ours(padded, masks, hidden), theirs(padded, masks, hidden), **TOLERANCES)
    with torch.no_grad():
        for t in range(3):
            torch.testing.assert_close(ours(x[t]), theirs(x[t]), **TOLERANCES)
            for module in (theirs, ours):
                module.reset(done[t])


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_rsl_rl_with_layer_normalization(kind):
    module = RNN(6, 8, type=kind)
    planish.convert(module, "layer_norm_rnn")
    masks = torch.ones(5, 3, dtype=torch.bool)
    states = [torch.zeros(1, 3, 8) for _ in range(2)]
    y = module(torch.randn(5, 3, 6), masks, states[0] if kind == "gru" else tuple(states))
    y.sum().backward()
    assert y.shape[-1] == 8
    assert all(p.grad is not None for p in module.parameters())
