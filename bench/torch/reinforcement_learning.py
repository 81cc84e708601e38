#!/usr/bin/env python3
"""Times the recurrent part of an update with planish.integrations against sb3-contrib and TorchRL.

    PYTHONPATH=BUILD/python build/integrations/bin/python bench/torch/reinforcement_learning.py [--threads N]

A case is forward and backward of the LSTM or GRU over a batch in which episodes end, cut and padded as each library
does it. All calls take the same weights and inputs; gradients are compared before they are timed. Calls alternate.
Prints a table in Markdown. Needs idle cores.
"""

import argparse
import pathlib
import statistics
import sys

import numpy as np
import torch
import torchrl.modules
from sb3_contrib.common.recurrent.buffers import create_sequencers
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from tensordict import TensorDict
from torchrl.modules import set_recurrent_mode

import planish
from planish.integrations import sb3
from planish.integrations import torchrl as ours

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "base"))
import turns

FEATURES = 64
# The LSTM of RecurrentPPO: size of a minibatch, steps of a rollout, mean length of an episode, hidden units. The first
# has sb3-contrib's default settings.
SB3 = [(128, 128, 100, 256), (512, 128, 30, 256), (2048, 256, 100, 256), (512, 128, 30, 64)]
# Rows, steps, mean length of an episode, hidden units.
TORCHRL = [(16, 128, 100, 256), (64, 128, 30, 256), (128, 64, 30, 128), (16, 1024, 100, 256)]


def sb3_case(size, steps, length, hidden):
    """A minibatch of rollouts of `steps` steps. sb3-contrib also cuts it where episodes start."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((size, FEATURES), np.float32)
    starts = (draw.random(size) < 1 / length).astype(np.float32)
    rollout = np.arange(size) % steps == 0

    def batch(cuts):
        first, pad, flat = create_sequencers(cuts, rollout, "cpu")
        zeros = (torch.zeros(1, len(first), hidden),) * 2
        return pad(x).flatten(0, 1), zeros, flat(starts), flat(np.ones(size, np.float32)).unsqueeze(1)

    def contestant(policy, lstm, cuts):
        features, states, resets, mask = batch(cuts)
        run = lambda: policy._process_sequence(features, states, resets, lstm)[0] * mask
        return lstm, run, f"{states[0].shape[1]} x {len(mask) // states[0].shape[1]}"

    theirs = torch.nn.LSTM(FEATURES, hidden)
    mine = {v: planish.nn.LayerNormLSTM(FEATURES, hidden, variant=v) for v in ("plain", "paper")}
    mine["plain"].load_state_dict(theirs.state_dict())
    contestants = {"peer": contestant(RecurrentActorCriticPolicy, theirs, starts)}
    whole = np.zeros_like(starts)
    return contestants | {v: contestant(sb3.MlpLstmPolicy, lstm, whole) for v, lstm in mine.items()}


def torchrl_case(kind, rows, steps, length, hidden):
    starts = torch.rand(rows, steps, 1) < 1 / length
    data = {"x": torch.randn(rows, steps, FEATURES), "is_init": starts}
    for key in ("recurrent_state_h", "recurrent_state_c", "recurrent_state"):
        data[key] = torch.zeros(rows, steps, 1, hidden)
    data = TensorDict(data, [rows, steps])
    keys = {"in_key": "x", "out_key": "y", "default_recurrent_mode": True}
    theirs = getattr(torchrl.modules, kind + "Module")(FEATURES, hidden, **keys)
    mine = {v: getattr(ours, kind + "Module")(FEATURES, hidden, variant=v, **keys) for v in ("plain", "paper")}
    mine["plain"].load_state_dict(theirs.state_dict())
    call = lambda module: lambda: module(data.clone(recurse=False))["y"]
    modules = {"peer": theirs, **mine}
    return {name: (module, call(module), f"{rows} x {steps}") for name, module in modules.items()}


def measure(contestants, options):
    """Returns the cells of a row."""
    calls, gradients = {}, {}
    for name, (module, run, _) in contestants.items():

        def step(module=module, run=run):
            module.zero_grad()
            run().sum().backward()

        step()
        calls[name], gradients[name] = step, [p.grad.clone() for p in module.parameters()]
    for a, b in zip(gradients["peer"], gradients["plain"], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)  # sums over thousands of steps
    block_of = lambda name, n: turns.seconds_of(calls[name], n)
    seconds = turns.measure(block_of, calls, options.repetitions, options.block)
    ms = {name: 1e3 * statistics.median(times) for name, times in seconds.items()}
    shapes = [contestants[name][2] for name in ("peer", "plain")]
    ratios = [f"{ms['peer'] / ms[name]:.1f}" for name in ("plain", "paper")]
    return [*shapes, *(f"{ms[name]:.1f}" for name in ("peer", "plain", "paper")), *ratios]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--block", type=float, default=0.3, help="seconds of a block of calls")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    print(f"PyTorch {torch.__version__}, {options.threads} threads; ms for forward and backward\n")
    columns = ["peer", "hidden units", "steps of an episode", "peer's batch", "Planish's batch", "peer", "plain", "with LN",
               "peer over plain", "peer over LN"]  # fmt: skip
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")
    cases = [("sb3-contrib, LSTM", sb3_case, case) for case in SB3]
    cases += [(f"TorchRL, {kind}", lambda *c, k=kind: torchrl_case(k, *c), case)
              for kind in ("LSTM", "GRU") for case in TORCHRL]  # fmt: skip
    with set_recurrent_mode(True):
        for peer, make, (size, steps, length, hidden) in cases:
            row = measure(make(size, steps, length, hidden), options)
            print("| " + " | ".join([peer, str(hidden), str(length), *row]) + " |", flush=True)


if __name__ == "__main__":
    main()
