"""Converters: each definition restated from its equations, in its own layout, against the operator.

The restatements below are the oracles. They take the weights in the layout, in float64, without
reordering gates or changing signs. They share no code with the converters.
"""

import doctest
import os
import pathlib
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType

import numpy as np
import planish
import pytest
import torch
from planish.converters import (
    Converted,
    dreamer,
    fastrnns,
    haste,
    kiros,
    paper,
    tensorflow,
    torchaudio,
)
from torch import Tensor

T, B, I, H = 6, 3, 4, 5

# Both sides are float64 sums of at most 4 H + I products of order 1, in different order, equal to a
# few ulps (2e-16). A norm divides by a deviation of order 1, and each of T steps multiplies the
# difference by a factor of order 1. Measured: at most 2e-15. A key whose values differ by 0.1
# changes results by 2e-2 and more (test_every_weight_affects_the_outputs).
TOLERANCE = 1e-12

Arrays = dict[str, Tensor]


def norm(z: Tensor, gain: Tensor | float, bias: Tensor | float, eps: float) -> Tensor:
    mean = z.sum(-1, keepdim=True) / z.shape[-1]
    variance = ((z - mean) ** 2).sum(-1, keepdim=True) / z.shape[-1]
    return gain * (z - mean) / torch.sqrt(variance + eps) + bias


def logistic(z: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-z))


def blocks(z: Tensor, count: int) -> tuple[Tensor, ...]:
    size = z.shape[-1] // count
    return tuple(z[..., k * size : (k + 1) * size] for k in range(count))


# Steps of the definitions: (weights, x, h, c) to (h, c), where c is the carried cell state.


def kiros_gru(w: Arrays, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    r, u = blocks(h @ w["U"] + (x @ w["W"] + w["b"]), 2)
    candidate = torch.tanh((h @ w["Ux"]) * logistic(r) + (x @ w["Wx"] + w["bx"]))
    u = logistic(u)
    return u * h + (1 - u) * candidate, c


def kiros_lngru(w: Arrays, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    def ln(z: Tensor, number: int) -> Tensor:
        return norm(z, w[f"s{number}"], w[f"b{number}"], 1e-5)

    r, u = blocks(ln(h @ w["U"], 3) + ln(x @ w["W"] + w["b"], 1), 2)
    of_x = ln(x @ w["Wx"] + w["bx"], 2)
    candidate = torch.tanh(ln(h @ w["Ux"], 4) * logistic(r) + of_x)
    u = logistic(u)
    return u * h + (1 - u) * candidate, c


def kiros_lstm(w: Arrays, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    i, f, o, new = blocks(h @ w["U"] + (x @ w["W"] + w["b"]) + w["b"], 4)
    c = logistic(f) * c + logistic(i) * torch.tanh(new)
    return logistic(o) * torch.tanh(c), c


def kiros_lnlstm(w: Arrays, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    of_x = norm(x @ w["W"] + w["b"], w["s1"], w["b1"], 1e-5)
    of_h = norm(h @ w["U"], w["s2"], w["b2"], 1e-5)
    i, f, o, new = blocks(of_h + of_x + w["b"], 4)
    c = logistic(f) * c + logistic(i) * torch.tanh(new)
    return logistic(o) * torch.tanh(norm(c, w["s3"], w["b3"], 1e-5)), c


def paper_rnn(w: Arrays, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:  # Eq. 4
    sums = h @ w["W_hh"].T + x @ w["W_xh"].T
    return torch.tanh(norm(sums, w["g"], w["b"], 1e-5)), c


def paper_norm(w: Arrays, z: Tensor, number: int) -> Tensor:
    return norm(z, w[f"alpha_{number}"], w[f"beta_{number}"], 1e-5)


def paper_lstm(w: Arrays, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:  # Eq. 20-22
    sums = paper_norm(w, h @ w["W_h"].T, 1) + paper_norm(w, x @ w["W_x"].T, 2) + w["b"]
    f, i, o, g = blocks(sums, 4)
    c = logistic(f) * c + logistic(i) * torch.tanh(g)
    return logistic(o) * torch.tanh(paper_norm(w, c, 3)), c


def paper_gru(w: Arrays, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:  # Eq. 26-28
    z, r = blocks(paper_norm(w, h @ w["W_h"].T, 1) + paper_norm(w, x @ w["W_x"].T, 2), 2)
    of_h = logistic(r) * paper_norm(w, h @ w["U"].T, 4)
    candidate = torch.tanh(paper_norm(w, x @ w["W"].T, 3) + of_h)
    return (1 - logistic(z)) * h + logistic(z) * candidate, c


def haste_lstm(w: Arrays, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    of_x = norm(x @ w["kernel"], w["gamma"][0], 0.0, 1e-5)
    of_h = norm(h @ w["recurrent_kernel"], w["gamma"][1], 0.0, 1e-5)
    i, g, f, o = blocks(of_x + of_h + w["bias"], 4)
    c = logistic(f) * c + logistic(i) * torch.tanh(g)
    return logistic(o) * torch.tanh(norm(c, w["gamma_h"], w["beta_h"], 1e-5)), c


def haste_gru(w: Arrays, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    of_x = norm(x @ w["kernel"], w["gamma"][0], 0.0, 1e-5) + w["bias"]
    of_h = norm(h @ w["recurrent_kernel"], w["gamma"][1], 0.0, 1e-5) + w["recurrent_bias"]
    x_z, x_r, x_g = blocks(of_x, 3)
    h_z, h_r, h_g = blocks(of_h, 3)
    z, r = logistic(x_z + h_z), logistic(x_r + h_r)
    return z * h + (1 - z) * torch.tanh(x_g + r * h_g), c


def dreamer_gates(sums: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    reset, candidate, update = blocks(sums, 3)
    candidate = torch.tanh(logistic(reset) * candidate)
    update = logistic(update - 1)
    return update * candidate + (1 - update) * h, c


def sheeprl_gru(w: Arrays, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    sums = torch.cat([h, x], 1) @ w["linear.weight"].T
    return dreamer_gates(norm(sums, w["layer_norm.weight"], w["layer_norm.bias"], 1e-3), h, c)


def dreamerv3_torch_gru(w: Arrays, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    sums = torch.cat([x, h], 1) @ w["layers.GRU_linear.weight"].T
    gain, bias = w["layers.GRU_norm.weight"], w["layers.GRU_norm.bias"]
    return dreamer_gates(norm(sums, gain, bias, 1e-3), h, c)


def torchaudio_lstm(w: Arrays, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    sums = x @ w["x2g.weight"].T + h @ w["p2g.weight"].T
    i, f, new, o = blocks(norm(sums, w["g_norm.weight"], w["g_norm.bias"], 1e-5), 4)
    c = logistic(f) * c + logistic(i) * torch.tanh(new)
    c = norm(c, w["c_norm.weight"], w["c_norm.bias"], 1e-5)
    return logistic(o) * torch.tanh(c), c


def fastrnns_cell(
    w: Arrays, x: Tensor, h: Tensor, c: Tensor, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    def layernorm(z: Tensor, name: str) -> Tensor:
        return norm(z, w[f"layernorm_{name}.weight"], w[f"layernorm_{name}.bias"], eps)

    sums = layernorm(x @ w["weight_ih"].T, "i") + layernorm(h @ w["weight_hh"].T, "h")
    i, f, new, o = blocks(sums, 4)
    c = layernorm(logistic(f) * c + logistic(i) * torch.tanh(new), "c")
    return logistic(o) * torch.tanh(c), c


def tfa_cell(
    w: Arrays, x: Tensor, h: Tensor, c: Tensor, eps: float = 1e-3
) -> tuple[Tensor, Tensor]:
    def layer_norm(z: Tensor, name: str) -> Tensor:
        return norm(z, w[f"{name}_norm/gamma"], w[f"{name}_norm/beta"], eps)

    z = layer_norm(x @ w["kernel"], "kernel")
    z = z + layer_norm(h @ w["recurrent_kernel"], "recurrent")
    z0, z1, z2, z3 = blocks(z + w["bias"] if "bias" in w else z, 4)
    c = layer_norm(logistic(z1) * c + logistic(z0) * torch.tanh(z2), "state")
    return logistic(z3) * torch.tanh(c), c


def contrib_cell(
    w: Arrays, x: Tensor, h: Tensor, c: Tensor, forget_bias: float = 1.0
) -> tuple[Tensor, Tensor]:
    def layer_norm(z: Tensor, name: str) -> Tensor:
        return norm(z, w[f"{name}/gamma"], w[f"{name}/beta"], 1e-12)

    i, j, f, o = blocks(torch.cat([x, h], 1) @ w["kernel"], 4)
    j, i = torch.tanh(layer_norm(j, "transform")), logistic(layer_norm(i, "input"))
    c = c * logistic(layer_norm(f, "forget") + forget_bias) + i * j
    c = layer_norm(c, "state")
    return torch.tanh(c) * logistic(layer_norm(o, "output")), c


# Shapes of the weights in each layout.

_GRU = {
    "W": (I, 2 * H),
    "b": (2 * H,),
    "U": (H, 2 * H),
    "Wx": (I, H),
    "Ux": (H, H),
    "bx": (H,),
}
_LNGRU = _GRU | {f"{n}{k}": ((2 if k in (1, 3) else 1) * H,) for n in "bs" for k in (1, 2, 3, 4)}
_LSTM = {"W": (I, 4 * H), "U": (H, 4 * H), "b": (4 * H,)}
_LNLSTM = _LSTM | {f"{n}{k}": ((1 if k == 3 else 4) * H,) for n in "bs" for k in (1, 2, 3)}
_PAPER_RNN = {"W_hh": (H, H), "W_xh": (H, I), "g": (H,), "b": (H,)}
_PAPER_LSTM = {"W_h": (4 * H, H), "W_x": (4 * H, I), "b": (4 * H,)} | {
    f"{n}_{k}": ((1 if k == 3 else 4) * H,) for n in ("alpha", "beta") for k in (1, 2, 3)
}
_PAPER_GRU = {"W_h": (2 * H, H), "W_x": (2 * H, I), "W": (H, I), "U": (H, H)} | {
    f"{n}_{k}": ((2 if k < 3 else 1) * H,) for n in ("alpha", "beta") for k in (1, 2, 3, 4)
}
_HASTE = {
    "kernel": (I, 4 * H),
    "recurrent_kernel": (H, 4 * H),
    "bias": (4 * H,),
    "gamma": (2, 4 * H),
    "gamma_h": (H,),
    "beta_h": (H,),
}
_HASTE_GRU = {
    "kernel": (I, 3 * H),
    "recurrent_kernel": (H, 3 * H),
    "bias": (3 * H,),
    "recurrent_bias": (3 * H,),
    "gamma": (2, 3 * H),
}
_SHEEPRL = {
    "linear.weight": (3 * H, H + I),
    "layer_norm.weight": (3 * H,),
    "layer_norm.bias": (3 * H,),
}
_DREAMERV3_TORCH = {
    "layers.GRU_linear.weight": (3 * H, I + H),
    "layers.GRU_norm.weight": (3 * H,),
    "layers.GRU_norm.bias": (3 * H,),
}
_TORCHAUDIO = {
    "x2g.weight": (4 * H, I),
    "p2g.weight": (4 * H, H),
    "g_norm.weight": (4 * H,),
    "g_norm.bias": (4 * H,),
    "c_norm.weight": (H,),
    "c_norm.bias": (H,),
}
_FASTRNNS = {"weight_ih": (4 * H, I), "weight_hh": (4 * H, H)} | {
    f"layernorm_{n}.{p}": (size,)
    for n, size in (("i", 4 * H), ("h", 4 * H), ("c", H))
    for p in ("weight", "bias")
}
_TFA_NO_BIAS = {"kernel": (I, 4 * H), "recurrent_kernel": (H, 4 * H)} | {
    f"{n}_norm/{p}": (size,)
    for n, size in (("kernel", 4 * H), ("recurrent", 4 * H), ("state", H))
    for p in ("gamma", "beta")
}
_TFA = _TFA_NO_BIAS | {"bias": (4 * H,)}
_CONTRIB = {"kernel": (I + H, 4 * H)} | {
    f"{n}/{p}": (H,)
    for n in ("input", "transform", "forget", "output", "state")
    for p in ("gamma", "beta")
}

Step = Callable[[Arrays, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass
class Definition:
    """A layout: its shapes, its step and its converters."""

    shapes: dict[str, tuple[int, ...]]
    step: Step
    load: Callable[..., Converted]
    save: Callable[..., dict]
    cell: str
    zero: tuple[str, ...] = ()  # weights that must be 0
    prefix: str = ""
    ones: bool = False  # whether x has a constant 1 as its last element


def _kiros(shapes: dict, step: Step, cell: str, **rest: object) -> Definition:
    column = {"bias_column": True} if rest.get("ones") else {}
    load, save = partial(kiros.load, **column), partial(kiros.save, **column)
    return Definition(shapes, step, load, save, cell, prefix="encoder_", **rest)


DEFINITIONS = {
    "kiros-gru": _kiros(_GRU, kiros_gru, "gru"),
    "kiros-lngru": _kiros(_LNGRU, kiros_lngru, "ln_gru", zero=("b", "bx")),
    "kiros-lngru-column": _kiros(_LNGRU, kiros_lngru, "ln_gru", ones=True),
    "kiros-lstm": _kiros(_LSTM, kiros_lstm, "lstm"),
    "kiros-lnlstm": _kiros(_LNLSTM, kiros_lnlstm, "ln_lstm", zero=("b",)),
    "kiros-lnlstm-column": _kiros(_LNLSTM, kiros_lnlstm, "ln_lstm", ones=True),
    "paper-rnn": Definition(_PAPER_RNN, paper_rnn, paper.load, paper.save, "ln_rnn"),
    "paper-lstm": Definition(_PAPER_LSTM, paper_lstm, paper.load, paper.save, "ln_lstm"),
    "paper-gru": Definition(_PAPER_GRU, paper_gru, paper.load, paper.save, "ln_gru"),
    "haste": Definition(_HASTE, haste_lstm, haste.load, haste.save, "ln_lstm_haste"),
    "haste-gru": Definition(_HASTE_GRU, haste_gru, haste.load, haste.save, "ln_gru_haste"),
    "dreamer-sheeprl": Definition(
        _SHEEPRL, sheeprl_gru, dreamer.load_sheeprl, dreamer.save_sheeprl, "ln_gru_dreamer"
    ),
    "dreamer-v3-torch": Definition(
        _DREAMERV3_TORCH,
        dreamerv3_torch_gru,
        dreamer.load_dreamerv3_torch,
        dreamer.save_dreamerv3_torch,
        "ln_gru_dreamer",
    ),
    "torchaudio": Definition(
        _TORCHAUDIO, torchaudio_lstm, torchaudio.load, torchaudio.save, "ln_lstm_torchaudio"
    ),
    "fastrnns": Definition(
        _FASTRNNS,
        fastrnns_cell,
        fastrnns.load,
        partial(fastrnns.save, container="cell"),
        "ln_lstm_fastrnns",
    ),
    "fastrnns-decomposed": Definition(
        _FASTRNNS,
        partial(fastrnns_cell, eps=0.0),
        partial(fastrnns.load, eps=0.0),
        partial(fastrnns.save, container="cell"),
        "ln_lstm_fastrnns",
    ),
    "tfa": Definition(_TFA, tfa_cell, tensorflow.load_tfa, tensorflow.save_tfa, "ln_lstm_tfa"),
    "tfa-no-bias": Definition(
        _TFA_NO_BIAS, tfa_cell, tensorflow.load_tfa, tensorflow.save_tfa, "ln_lstm_tfa"
    ),
    "contrib": Definition(
        _CONTRIB,
        contrib_cell,
        tensorflow.load_contrib,
        tensorflow.save_contrib,
        "ln_lstm_contrib",
    ),
    "contrib-forget-bias": Definition(
        _CONTRIB,
        partial(contrib_cell, forget_bias=0.0),
        partial(tensorflow.load_contrib, forget_bias=0.0),
        partial(tensorflow.save_contrib, forget_bias=0.0),
        "ln_lstm_contrib",
    ),
}
every_definition = pytest.mark.parametrize("name", DEFINITIONS)


def random_weights(definition: Definition, dtype: torch.dtype = torch.float64) -> Arrays:
    """Returns different weights, gains and biases of order 1."""
    torch.manual_seed(7)
    return {
        name: torch.zeros(shape, dtype=dtype)
        if name in definition.zero
        else torch.randn(shape, dtype=dtype)
        for name, shape in definition.shapes.items()
    }


def random_input() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(8)
    return tuple(torch.randn(*s, dtype=torch.float64) for s in ((T, B, I), (B, H), (B, H)))


def run_definition(definition: Definition, weights: Arrays) -> tuple[Tensor, Tensor, Tensor]:
    """Returns (y [T, B, H], h, c), computed by the definition's step."""
    x, h, c = random_input()
    y: list[Tensor] = []
    for t in range(T):
        h, c = definition.step(weights, x[t], h, c)
        y.append(h)
    return torch.stack(y), h, c


def with_prefix(definition: Definition, weights: Arrays) -> Arrays:
    return {definition.prefix + key: tensor for key, tensor in weights.items()}


def run_operator(
    definition: Definition, converted: Converted, state: Arrays | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Like run_definition, but computed by Planish's operator with the converted weights."""
    params = {key.removesuffix("_l0"): t for key, t in (state or converted.state_dict).items()}
    bias_ih, bias_hh = params.pop("bias_ih", None), params.pop("bias_hh", None)
    if definition.cell in ("gru", "ln_gru_haste"):
        params["bias_hn"] = bias_hh[2 * H :]
        bias_hh = torch.cat([bias_hh[: 2 * H], torch.zeros(H, dtype=bias_hh.dtype)])
    if bias_ih is not None:
        params["bias"] = bias_ih if bias_hh is None else bias_ih + bias_hh
    x, h0, c0 = random_input()
    if definition.ones:
        x = torch.nn.functional.pad(x, (0, 1), value=1)
    if "lstm" in definition.cell:
        params["c0"] = c0
    options = converted.options
    assert options["input_size"] == x.shape[-1] and options["hidden_size"] == H
    y, h_n, c_n, _ = torch.ops.planish.rnn_forward(
        definition.cell, x, h0=h0, eps=options["eps"], **params
    )
    return y, h_n, c_n if c_n.numel() else c0


def difference(got: tuple[Tensor, ...], want: tuple[Tensor, ...]) -> float:
    return max((g - w).abs().max().item() for g, w in zip(got, want, strict=True))


@every_definition
def test_converted_weights_give_the_definitions_outputs(name: str) -> None:
    definition = DEFINITIONS[name]
    weights = random_weights(definition)
    converted = definition.load(with_prefix(definition, weights))
    want = run_definition(definition, weights)
    assert difference(run_operator(definition, converted), want) < TOLERANCE


@every_definition
def test_every_weight_affects_the_outputs(name: str) -> None:
    # The test above detects a key that is converted to another place or left out: changing any
    # single key changes the definition's results.
    definition = DEFINITIONS[name]
    weights = random_weights(definition)
    got = run_operator(definition, definition.load(with_prefix(definition, weights)))
    for key in definition.shapes:
        changed = weights | {key: weights[key] + 0.1 * torch.randn_like(weights[key])}
        assert difference(got, run_definition(definition, changed)) > 1e-3, key


@pytest.mark.parametrize(
    "name, of_x, of_h",
    [
        ("kiros-lngru", "b1", "b3"),
        ("kiros-lnlstm", "b1", "b2"),
        ("paper-lstm", "beta_2", "beta_1"),
        ("fastrnns", "layernorm_i.bias", "layernorm_h.bias"),
        ("tfa", "kernel_norm/beta", "recurrent_norm/beta"),
    ],
)
def test_norms_keep_their_own_biases(name: str, of_x: str, of_h: str) -> None:
    # The biases of the two norms are added, so outputs cannot distinguish them.
    definition = DEFINITIONS[name]
    weights = random_weights(definition)
    state = definition.load(with_prefix(definition, weights)).state_dict
    for key, name_there in (("ln_ih_bias_l0", of_x), ("ln_hh_bias_l0", of_h)):
        there = weights[name_there]
        assert torch.equal(state[key][: len(there)].sort().values, there.sort().values)


@every_definition
def test_gates_are_not_interchangeable(name: str) -> None:
    # The test above also detects a wrong order of gates: exchanging any two blocks of an array
    # changes results.
    definition = DEFINITIONS[name]
    weights = random_weights(definition)
    got = run_operator(definition, definition.load(with_prefix(definition, weights)))
    for key, tensor in weights.items():
        count = max(tensor.shape) // H if max(tensor.shape) % H == 0 else 1
        if key in definition.zero or count < 2:
            continue
        dim = list(tensor.shape).index(count * H)
        gates = list(tensor.split(H, dim))
        gates[0], gates[1] = gates[1], gates[0]
        changed = weights | {key: torch.cat(gates, dim)}
        assert difference(got, run_definition(definition, changed)) > 1e-3, key


@pytest.mark.parametrize(
    "name, matrices, eps",
    [
        ("kiros-lngru", ("W", "U", "Wx", "Ux"), 1e-5),
        ("kiros-lnlstm", ("W", "U"), 1e-5),
        ("paper-rnn", ("W_hh", "W_xh"), 1e-5),
        ("paper-lstm", ("W_h", "W_x"), 1e-5),
        ("paper-gru", ("W_h", "W_x", "W", "U"), 1e-5),
        ("haste", ("kernel", "recurrent_kernel"), 1e-5),
        ("haste-gru", ("kernel", "recurrent_kernel"), 1e-5),
        ("dreamer-sheeprl", ("linear.weight",), 1e-3),
        ("dreamer-v3-torch", ("layers.GRU_linear.weight",), 1e-3),
        ("torchaudio", ("x2g.weight", "p2g.weight"), 1e-5),
        ("fastrnns", ("weight_ih", "weight_hh"), 1e-5),
        ("tfa", ("kernel", "recurrent_kernel"), 1e-3),
        ("contrib", ("kernel",), 1e-12),
    ],
)
def test_eps_is_that_of_the_definition(name: str, matrices: tuple[str, ...], eps: float) -> None:
    # If the sums are as small as the root of eps, results depend on the position and value of eps.
    definition = DEFINITIONS[name]
    weights = random_weights(definition)
    weights |= {key: weights[key] * eps**0.5 for key in matrices}
    converted = definition.load(with_prefix(definition, weights))
    assert converted.options["eps"] == eps
    want = run_definition(definition, weights)
    assert difference(run_operator(definition, converted), want) < TOLERANCE
    converted.options["eps"] = 1.1 * eps
    assert difference(run_operator(definition, converted), want) > 1e-3


@pytest.mark.parametrize(
    "name",
    [
        "paper-rnn",
        "paper-lstm",
        "paper-gru",
        "haste",
        "haste-gru",
        "torchaudio",
        "fastrnns",
        "tfa",
        "contrib-forget-bias",
        "kiros-lngru-column",
    ],
)
def test_converted_gradients_are_the_definitions_gradients(name: str) -> None:
    # These converters are permutations with signs, whose inverse is their transpose. The gradient
    # of the converted weights, saved in the layout, is therefore the gradient of the definition's
    # weights.
    definition = DEFINITIONS[name]
    weights = {key: w.requires_grad_() for key, w in random_weights(definition).items()}
    torch.manual_seed(9)
    weighting = [torch.randn(T, B, H), torch.randn(B, H), torch.randn(B, H)]
    weighting = [w.double() for w in weighting]

    def loss(outputs: tuple[Tensor, ...]) -> Tensor:
        return sum((w * o).sum() for w, o in zip(weighting, outputs, strict=True))

    loss(run_definition(definition, weights)).backward()
    converted = definition.load(with_prefix(definition, weights))
    state = {key: tensor.requires_grad_() for key, tensor in converted.state_dict.items()}
    loss(run_operator(definition, converted, state)).backward()
    got = definition.save({key: tensor.grad for key, tensor in state.items()})
    assert len(got) == len(weights)
    for key, weight in weights.items():
        gradient = torch.as_tensor(got[definition.prefix + key])
        scale = 1 + weight.grad.abs().max().item()
        # Like TOLERANCE, with T * B terms in each sum and the backward factors of T steps.
        assert (gradient - weight.grad).abs().max().item() < 1e-11 * scale, key


@every_definition
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_round_trip_keeps_the_bits(name: str, dtype: torch.dtype) -> None:
    definition = DEFINITIONS[name]
    weights = with_prefix(definition, random_weights(definition, dtype))
    converted = definition.load(weights)
    assert {t.dtype for t in converted.state_dict.values()} == {dtype}
    assert all(t.is_contiguous() for t in converted.state_dict.values())
    saved = definition.save(converted.state_dict)
    assert set(saved) == set(weights)
    for key, weight in weights.items():
        got = torch.as_tensor(saved[key])
        assert got.dtype == dtype and got.is_contiguous()
        if key in ("forget/beta", "layer_norm.bias", "layers.GRU_norm.bias"):
            # 1 was added and subtracted, which rounds sums below 4.
            assert (got - weight).abs().max() <= 2 * torch.finfo(dtype).eps
        else:
            assert torch.equal(got, weight), key
    again = definition.load(saved)
    assert again.options == converted.options and again.module == converted.module
    assert list(again.state_dict) == list(converted.state_dict)
    for key, tensor in converted.state_dict.items():
        assert torch.equal(again.state_dict[key], tensor), key


def test_loading_and_saving_copy() -> None:
    weights = random_weights(DEFINITIONS["fastrnns"])
    converted = fastrnns.load(weights)
    saved = fastrnns.save(converted.state_dict, container="cell")
    kept = {key: tensor.clone() for key, tensor in converted.state_dict.items()}
    for tensor in (*weights.values(), *saved.values()):
        tensor.zero_()
    assert all(torch.equal(converted.state_dict[key], kept[key]) for key in kept)


# Expected values of TensorFlow's own tests, for cells with all matrices 0.5 and x = 1.


def test_tensorflow_addons_own_numbers() -> None:
    # addons/tensorflow_addons/rnn/tests/layer_norm_lstm_cell_test.py, test_cell_output.
    for inputs in (2, 3):
        weights = {
            "kernel": torch.full((inputs, 8), 0.5),
            "recurrent_kernel": torch.full((2, 8), 0.5),
            "bias": torch.tensor([0.5, 0.5, 1, 1, 0.5, 0.5, 0.5, 0.5]),  # unit_forget_bias
        }
        for norm_name, size in (("kernel", 8), ("recurrent", 8), ("state", 2)):
            weights[f"{norm_name}_norm/gamma"] = torch.ones(size)
            weights[f"{norm_name}_norm/beta"] = torch.zeros(size)
        named = {f"layer_norm_lstm_cell/{key}:0": w.numpy() for key, w in weights.items()}
        converted = tensorflow.load_tfa(named, "layer_norm_lstm_cell/", eps=1e-12)
        p = {key.removesuffix("_l0"): w for key, w in converted.state_dict.items()}
        p["bias"] = p.pop("bias_ih")
        h, c = torch.ops.planish.rnn_step(
            "ln_lstm_tfa",
            torch.ones(1, inputs),
            h0=torch.tensor([[0.2, 0.3]]),
            c0=torch.tensor([[0.0, 0.1]]),
            eps=converted.options["eps"],
            **p,
        )
        # TensorFlow's test also compares float32 with 1e-5.
        torch.testing.assert_close(h, torch.tensor([[-0.47406167, 0.47406143]]), atol=1e-5, rtol=0)
        torch.testing.assert_close(c, torch.tensor([[-1.0, 1.0]]), atol=1e-5, rtol=0)


def test_tensorflow_contribs_own_numbers() -> None:
    # contrib/rnn/python/kernel_tests/rnn_cell_test.py, LayerNormBasicLSTMCellTest.
    for inputs in (2, 3):
        weights = {"kernel": np.full((inputs + 2, 8), 0.5, "float32")}
        for gate in ("input", "transform", "forget", "output", "state"):
            weights[f"{gate}/gamma"] = np.ones(2, "float32")
            weights[f"{gate}/beta"] = np.zeros(2, "float32")
        named = {f"rnn/layer_norm_basic_lstm_cell/{key}": w for key, w in weights.items()}
        converted = tensorflow.load_contrib(named, "rnn/layer_norm_basic_lstm_cell/")
        p = {key.removesuffix("_l0"): w for key, w in converted.state_dict.items()}
        h, c = torch.ops.planish.rnn_step(
            "ln_lstm_contrib",
            torch.ones(1, inputs),
            h0=torch.tensor([[0.2, 0.3]]),
            c0=torch.tensor([[0.0, 0.1]]),
            eps=converted.options["eps"],
            **p,
        )
        # TensorFlow's test also compares float32 with 1e-5.
        torch.testing.assert_close(h, torch.tensor([[-0.38079708, 0.38079708]]), atol=1e-5, rtol=0)
        torch.testing.assert_close(c, torch.tensor([[-1.0, 1.0]]), atol=1e-5, rtol=0)


# The update gate.


def to_paper(w: Arrays) -> Arrays:
    """Returns Kiros' LN-GRU weights under the paper's letters, in its order z, r, with the same
    signs."""

    def swap(tensor: Tensor) -> Tensor:
        return torch.cat([tensor[..., H:], tensor[..., :H]], -1)

    letters = {
        "W_h": swap(w["U"]).T,
        "W_x": swap(w["W"]).T,
        "W": w["Wx"].T,
        "U": w["Ux"].T,
    }
    for number, kiros_number in ((1, 3), (2, 1), (3, 2), (4, 4)):
        for letter, kiros_letter in (("alpha", "s"), ("beta", "b")):
            tensor = w[f"{kiros_letter}{kiros_number}"]
            letters[f"{letter}_{number}"] = swap(tensor) if number < 3 else tensor
    return letters


def test_update_gate_of_kiros_is_not_the_papers() -> None:
    # The code multiplies h by u, the paper by 1 - z. The code's weights, read as the paper's,
    # compute another function. With the signs of the z rows of the joint norms' gains and biases
    # changed, they compute the same.
    definition = DEFINITIONS["kiros-lngru"]
    weights = random_weights(definition)
    want = run_definition(definition, weights)
    letters = to_paper(weights)
    taken_for_papers = run_operator(definition, paper.load(letters))
    assert difference(taken_for_papers, want) > 0.1
    for name in ("alpha_1", "beta_1", "alpha_2", "beta_2"):
        letters[name] = torch.cat([-letters[name][:H], letters[name][H:]])
    assert difference(run_operator(definition, paper.load(letters)), want) < TOLERANCE
    kept = kiros.load(with_prefix(definition, weights)).state_dict
    turned = paper.load(letters).state_dict
    assert all(torch.equal(kept[key], turned[key]) for key in kept)


def test_update_gate_is_not_negated_in_the_matrices() -> None:
    # Changing the signs of the matrices' z rows is right for a plain GRU. Here it would give another
    # function, because z and r share the mean and the deviation.
    definition = DEFINITIONS["paper-gru"]
    weights = random_weights(definition)
    want = run_definition(definition, weights)
    turned = dict(weights)
    for name in ("W_h", "W_x", "beta_1", "beta_2"):
        turned[name] = torch.cat([-weights[name][:H], weights[name][H:]])
    state = paper.load(turned).state_dict
    for key in ("ln_ih_weight_l0", "ln_hh_weight_l0"):
        state[key] = torch.cat([state[key][:H], -state[key][H : 2 * H], state[key][2 * H :]])
    got = run_operator(definition, Converted("LayerNormGRU", paper.load(weights).options, state))
    assert difference(got, want) > 0.01


# Kiros' files.


def kiros_mask_run(w: Arrays, x: Tensor, lengths: list[int], step: Step) -> Tensor:
    """Returns the last state of the code's scan, which keeps the state where its mask is 0."""
    h = c = torch.zeros(x.shape[1], H, dtype=x.dtype)
    for t in range(T):
        mask = torch.tensor([[float(t < length)] for length in lengths], dtype=x.dtype)
        new_h, new_c = step(w, x[t], h, c)
        h, c = mask * new_h + (1 - mask) * h, mask * new_c + (1 - mask) * c
    return h


def test_bidirectional_encoder_with_masks() -> None:
    definition = DEFINITIONS["kiros-gru"]
    forward = random_weights(definition)
    backward = {key: torch.randn_like(tensor) for key, tensor in forward.items()}
    arrays = {f"encoder_{key}": t.numpy() for key, t in forward.items()}
    arrays |= {f"encoder_r_{key}": t.numpy() for key, t in backward.items()}
    arrays["Wemb"] = np.zeros((9, I))  # belongs to another part of the model
    converted = kiros.load(arrays)
    assert converted.options["bidirectional"] is True
    lengths = [T, 2, 4]
    x, _, _ = random_input()
    for suffix, weights, reverse in (("_l0", forward, False), ("_l0_reverse", backward, True)):
        # The code's backward direction starts with the padding, where the state stays 0.
        read = x.clone()
        if reverse:
            for b, length in enumerate(lengths):
                read[:length, b] = x[:length, b].flip(0)
        want = kiros_mask_run(weights, read, lengths, kiros_gru)
        p = {
            key.removesuffix(suffix): t
            for key, t in converted.state_dict.items()
            if key.endswith(suffix)
        }
        _, h_n, _, _ = torch.ops.planish.rnn_forward(
            "gru",
            x,
            p["weight_ih"],
            p["weight_hh"],
            p["bias_ih"],  # bias_hh is 0
            lengths=torch.tensor(lengths),
            reverse=reverse,
        )
        assert p["bias_hh"].count_nonzero() == 0
        assert (h_n - want).abs().max().item() < TOLERANCE
    saved = kiros.save(converted.state_dict)
    assert set(saved) == set(arrays) - {"Wemb"}
    assert all(np.array_equal(saved[key], arrays[key]) for key in saved)


def test_npz_file_and_back(tmp_path: pathlib.Path) -> None:
    # Files as skip-thoughts saves them: with other parts, an empty list of errors, and another byte
    # order.
    weights = random_weights(DEFINITIONS["kiros-gru"], torch.float32)
    arrays = {f"decoder_f_{key}": t.numpy().astype(">f4") for key, t in weights.items()}
    np.savez(tmp_path / "model.npz", history_errs=[], Wemb=np.zeros((9, I)), **arrays)
    converted = kiros.load(tmp_path / "model.npz", prefix="decoder_f")
    assert converted.module == "LayerNormGRU"
    assert converted.options == {
        "input_size": I,
        "hidden_size": H,
        "variant": "plain",
        "eps": 1e-5,
    }
    saved = kiros.save(converted.state_dict, prefix="decoder_f")
    assert all(np.array_equal(saved[key], arrays[key]) for key in arrays)
    np.savez(tmp_path / "saved.npz", **saved)
    again = kiros.load(str(tmp_path / "saved.npz"), prefix="decoder_f")
    for key, tensor in converted.state_dict.items():
        assert torch.equal(again.state_dict[key], tensor)


def test_npz_file_of_python_2(tmp_path: pathlib.Path) -> None:
    # The header has sizes as long integers: (4L, 10L).
    weights = random_weights(DEFINITIONS["kiros-gru"], torch.float32)
    with zipfile.ZipFile(tmp_path / "model.npz", "w") as archive:
        for key, tensor in weights.items():
            sizes = "".join(f"{size}L, " for size in tensor.shape)
            header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({sizes}), }}\n"
            start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
            archive.writestr(f"encoder_{key}.npy", start + tensor.numpy().astype("<f4").tobytes())
    with pytest.warns(UserWarning, match="Python 2"):
        converted = kiros.load(tmp_path / "model.npz")
    saved = kiros.save(converted.state_dict)
    assert all(np.array_equal(saved[f"encoder_{key}"], weights[key]) for key in weights)


def test_pickled_arrays_are_not_read(tmp_path: pathlib.Path) -> None:
    weights = random_weights(DEFINITIONS["kiros-gru"], torch.float32)
    arrays = {f"encoder_{key}": t.numpy() for key, t in weights.items()}
    pickled = np.array([{"a": 1}], dtype=object)
    np.savez(tmp_path / "other.npz", options=pickled, **arrays)  # not requested, so not read
    assert kiros.load(tmp_path / "other.npz").options["hidden_size"] == H
    np.savez(tmp_path / "own.npz", **(arrays | {"encoder_b": pickled}))
    with pytest.raises(ValueError, match=r"^\[converters.kiros\] encoder_b must be an array of"):
        kiros.load(tmp_path / "own.npz")
    for content in (b"", b"no archive", b"PK\x03\x04 cut short"):
        (tmp_path / "model.npz").write_bytes(content)
        with pytest.raises(ValueError, match=r"^\[converters.kiros\] .*model.npz must be an .npz"):
            kiros.load(tmp_path / "model.npz")
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"one.npy must be an .npz file, got another format$"):
        kiros.load(tmp_path / "one.npy")
    with pytest.raises(FileNotFoundError):
        kiros.load(tmp_path / "none.npz")


def test_kiros_bias_inside_the_norm() -> None:
    for name, key in (("kiros-lngru", "encoder_bx"), ("kiros-lnlstm", "encoder_b")):
        weights = with_prefix(DEFINITIONS[name], random_weights(DEFINITIONS[name]))
        weights[key][1] = -0.25
        message = f"{key} must be 0, because Planish has no bias inside the norm, "
        message += "got values up to 0.25: pass bias_column=True to make it a column"
        with pytest.raises(ValueError, match=message):
            kiros.load(weights)
        converted = kiros.load(weights, bias_column=True)
        assert converted.options["input_size"] == I + 1
    for name in ("kiros-gru", "kiros-lstm"):
        weights = with_prefix(DEFINITIONS[name], random_weights(DEFINITIONS[name]))
        message = "bias_column must be False for a layer without norms, got True"
        with pytest.raises(ValueError, match=message):
            kiros.load(weights, bias_column=True)
        with pytest.raises(ValueError, match=message):
            kiros.save(kiros.load(weights).state_dict, bias_column=True)


@pytest.mark.parametrize("name", ["kiros-lnlstm", "kiros-lnlstm-column", "kiros-lstm"])
def test_kiros_saves_two_different_biases(name: str) -> None:
    # The file has one b where the module has two. The saved weights are others, but the function is
    # the same.
    definition = DEFINITIONS[name]
    converted = definition.load(with_prefix(definition, random_weights(definition)))
    state = converted.state_dict
    state["bias_ih_l0"] += torch.randn_like(state["bias_ih_l0"])
    saved = definition.save(state)
    weights = {key.removeprefix("encoder_"): torch.as_tensor(a) for key, a in saved.items()}
    want = run_operator(definition, converted, state)
    assert difference(run_definition(definition, weights), want) < TOLERANCE


def test_kiros_gru_has_no_key_for_bias_hn() -> None:
    weights = with_prefix(DEFINITIONS["kiros-gru"], random_weights(DEFINITIONS["kiros-gru"]))
    state = kiros.load(weights).state_dict
    state["bias_hh_l0"][0] = 0.5
    saved = kiros.save(state)
    assert saved["encoder_b"][0] == weights["encoder_b"][0] + 0.5
    state["bias_hh_l0"][2 * H] = 0.5
    with pytest.raises(ValueError, match=r"\[converters.kiros\] bias_hh_l0 must be 0 in its last"):
        kiros.save(state)


# Fastrnns' containers.


@pytest.mark.parametrize("layers, directions", [(1, 1), (3, 1), (1, 2), (2, 2)])
def test_fastrnns_stack(layers: int, directions: int) -> None:
    torch.manual_seed(11)
    weights = {}
    for layer in range(layers):
        for direction in range(directions):
            path = f"layers.{layer}." + (f"directions.{direction}." if directions == 2 else "")
            for key, shape in _FASTRNNS.items():
                if key == "weight_ih" and layer > 0:
                    shape = (4 * H, directions * H)
                weights[f"rnn.{path}cell.{key}"] = torch.randn(shape, dtype=torch.float64)
    x, _, _ = random_input()
    want = x
    for layer in range(layers):
        sides = []
        for direction in range(directions):
            path = f"rnn.layers.{layer}." + (f"directions.{direction}." if directions == 2 else "")
            cell = {key: weights[f"{path}cell.{key}"] for key in _FASTRNNS}
            h = c = torch.zeros(B, H, dtype=torch.float64)
            y = [torch.empty(0)] * T
            for t in range(T)[:: -1 if direction else 1]:
                h, c = fastrnns_cell(cell, want[t], h, c)
                y[t] = h
            sides.append(torch.stack(y))
        want = torch.cat(sides, -1)
    converted = fastrnns.load({**weights, "head.weight": torch.zeros(2)}, prefix="rnn.")
    assert converted.options.get("num_layers", 1) == layers
    assert converted.options.get("bidirectional", False) == (directions == 2)
    got = x
    for layer in range(layers):
        sides = []
        for suffix in (f"_l{layer}", f"_l{layer}_reverse")[:directions]:
            p = {
                key.removesuffix(suffix): t
                for key, t in converted.state_dict.items()
                if key.endswith(suffix)
            }
            reverse = suffix.endswith("_reverse")
            outputs = torch.ops.planish.rnn_forward("ln_lstm_fastrnns", got, reverse=reverse, **p)
            sides.append(outputs[0])
        got = torch.cat(sides, -1)
    assert (got - want).abs().max().item() < TOLERANCE
    saved = fastrnns.save(converted.state_dict, prefix="rnn.")
    assert set(saved) == set(weights)
    assert all(torch.equal(saved[key], weights[key]) for key in weights)
    if layers == 1:
        one = fastrnns.save(converted.state_dict, container="layer")
        again = fastrnns.load(one).state_dict
        assert all(torch.equal(again[key], t) for key, t in converted.state_dict.items())
    else:
        with pytest.raises(ValueError, match=f"container must hold {layers} layers of"):
            fastrnns.save(converted.state_dict, container="layer")


def test_fastrnns_container_must_be_known() -> None:
    state = fastrnns.load(random_weights(DEFINITIONS["fastrnns"])).state_dict
    with pytest.raises(ValueError, match="container must be cell, layer or stack, got box"):
        fastrnns.save(state, container="box")  # type: ignore[arg-type]


# Bad input.


def layout_of(name: str) -> str:
    layout = name.split("-")[0]
    return "tensorflow" if layout in ("tfa", "contrib") else layout


@every_definition
def test_missing_extra_and_misshaped_keys_are_named(name: str) -> None:
    definition = DEFINITIONS[name]
    weights = with_prefix(definition, random_weights(definition))
    start = rf"^\[converters.{layout_of(name)}\] "
    optional = {"bias"} if name == "tfa" else set()
    for key in weights:
        if key not in optional:
            fewer = {k: w for k, w in weights.items() if k != key}
            with pytest.raises(ValueError, match=f"{start}the keys must include {key}, got ") as e:
                definition.load(fewer)
            assert sorted(fewer)[0] in str(e.value)
        # A shape that no other key can make valid, and no dimensions.
        for shape in ((7, 11, 13), ()):
            with pytest.raises(ValueError, match=rf"{start}\S+ must have .*, got \["):
                definition.load(weights | {key: torch.zeros(shape, dtype=torch.float64)})
    extra = definition.prefix + "more"
    with pytest.raises(ValueError, match=rf"{start}the keys must be those of .* got {extra}$"):
        definition.load(weights | {extra: torch.zeros(2, dtype=torch.float64)})
    state = definition.load(weights).state_dict
    for key in state:
        if key != "bias_ih_l0" or name == "haste-gru":  # without it, the keys are valid for another layer
            fewer = {k: w for k, w in state.items() if k != key}
            with pytest.raises(ValueError, match=rf"{start}.*(the keys must include {key}|, got )"):
                definition.save(fewer)
    with pytest.raises(ValueError, match=rf"{start}the keys must be those of .* got more$"):
        definition.save(state | {"more": torch.zeros(2, dtype=torch.float64)})


def test_error_texts() -> None:
    weights = random_weights(DEFINITIONS["haste"])

    def fails(text: str, **changed: object) -> None:
        with pytest.raises(ValueError) as error:
            haste.load({**weights, **changed})
        assert str(error.value) == f"[converters.haste] {text}"

    fails("gamma must have [2, 20], got [2, 16]", gamma=torch.zeros(2, 16).double())
    fails("recurrent_kernel must have [5, 20], got [5, 18]", recurrent_kernel=torch.zeros(5, 18))
    fails("kernel must have two sizes of 1 or more, got [4]", kernel=torch.zeros(4))
    fails("kernel must have two sizes of 1 or more, got [0, 20]", kernel=torch.zeros(0, 20))
    fails("bias must have the type of gamma, float64, got float32", bias=torch.zeros(20))
    fails(
        "beta_h must have floating-point elements of 16 to 64 bits, got int64",
        beta_h=np.zeros(H, "int64"),
    )
    fails(
        "beta_h must have floating-point elements of 16 to 64 bits, got bool",
        beta_h=torch.zeros(H, dtype=torch.bool),
    )
    fails("the keys must be those of haste's LayerNormLSTM, got beta", beta=torch.zeros(1))
    with pytest.raises(ValueError) as error:
        haste.load(weights, prefix="rnn.")
    text = "the keys must include rnn.kernel, got none that begins with 'rnn.'"
    assert str(error.value) == f"[converters.haste] {text}"
    with pytest.raises(ValueError) as error:
        tensorflow.load_contrib({"kernel": np.zeros((5, 20))})
    text = "kernel must have [I + H, 4H] with I of 1 or more, got [5, 20]"
    assert str(error.value) == f"[converters.tensorflow] {text}"
    half = tensorflow.load_tfa(random_weights(DEFINITIONS["tfa"], torch.bfloat16))
    with pytest.raises(ValueError, match="a type that NumPy supports, got bfloat16"):
        tensorflow.save_tfa(half.state_dict)


def test_two_layers_are_refused_by_layouts_of_one() -> None:
    state = haste.load(random_weights(DEFINITIONS["haste"])).state_dict
    state |= {key.replace("_l0", "_l1"): tensor for key, tensor in state.items()}
    with pytest.raises(ValueError, match="must be those of a state dict of one layer of haste's"):
        haste.save(state)


@pytest.mark.parametrize("name", ["dreamer-sheeprl", "dreamer-v3-torch"])
def test_dreamer_names_what_is_wrong(name: str) -> None:
    definition = DEFINITIONS[name]
    weights = random_weights(definition)
    linear = next(key for key in weights if "linear" in key)

    def fails(text: str, changed: Arrays) -> None:
        with pytest.raises(ValueError) as error:
            definition.load({"rnn." + key: w for key, w in changed.items()}, prefix="rnn.")
        assert str(error.value) == f"[converters.dreamer] {text}"

    bias = linear.replace("weight", "bias")
    fails(
        f"rnn.{bias} is added before the norm: planish.nn.LayerNormGRU, which has no bias there, "
        "cannot be the same function",
        weights | {bias: torch.zeros(3 * H, dtype=torch.float64)},
    )
    for rows, columns in ((3 * H + 1, H + I), (3 * H, H)):
        changed = weights | {linear: torch.zeros(rows, columns, dtype=torch.float64)}
        fails(f"rnn.{linear} must have [3H, H + I], got {[rows, columns]}", changed)


def test_a_new_dreamer_gru_starts_as_sheeprls() -> None:
    # A new cell there has gains of 1 and biases of 0, and keeps 1 - s(-1) of its state.
    gru = planish.nn.LayerNormGRU(I, H, variant="dreamer", eps=None)
    assert gru.eps == 1e-3
    saved = dreamer.save_sheeprl(gru.state_dict())
    assert torch.equal(saved["layer_norm.weight"].abs(), torch.ones(3 * H))
    assert torch.equal(saved["layer_norm.bias"], torch.zeros(3 * H))


# The package.


@pytest.mark.parametrize(
    "module", [dreamer, fastrnns, haste, kiros, paper, tensorflow, torchaudio]
)
def test_examples_of_the_docstrings(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0 and result.failed == 0


def test_examples_of_the_document(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = pathlib.Path(__file__).parents[3] / "docs" / "converters.md"
    examples = re.findall(r"```python\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) == 8
    monkeypatch.chdir(tmp_path)

    def write(path: str, name: str, *prefixes: str, end: str = "") -> None:
        weights = random_weights(DEFINITIONS[name], torch.float32)
        named = {p + key + end: w.numpy() for p in prefixes for key, w in weights.items()}
        np.savez(path, Wemb=np.ones((9, I), "float32"), **named)

    write("bi_skip.npz", "kiros-gru", "encoder_", "encoder_r_")
    write("lngru_order_add0.npz", "kiros-lngru-column", "encoder_")
    write("addons.npz", "tfa", "layer_norm_lstm_cell/", end=":0")
    write("contrib.npz", "contrib", "rnn/layer_norm_basic_lstm_cell/")
    paths = {"fastrnns": "rnn.layers.0.cell.", "torchaudio": "predictor.lstm_layers.0."}
    for name in ("haste", "fastrnns", "dreamer-sheeprl", "torchaudio"):
        path = paths.get(name, "rnn.")
        weights = random_weights(DEFINITIONS[name], torch.float32)
        torch.save({path + key: w for key, w in weights.items()}, f"{name.removeprefix('dreamer-')}.pt")
    for example in examples:
        exec(compile(example, str(document), "exec"), {})
    assert set(np.load("saved.npz")) == set(np.load("bi_skip.npz")) - {"Wemb"}
    assert sorted(os.listdir()) == sorted(
        "addons.npz bi_skip.npz contrib.npz fastrnns.pt haste.pt lngru_order_add0.npz "
        "saved.npz sheeprl.pt torchaudio.pt".split()
    )


@every_definition
def test_build_makes_the_module(name: str) -> None:
    definition = DEFINITIONS[name]
    weights = random_weights(definition)
    module = definition.load(with_prefix(definition, weights)).build()
    x, h, c = random_input()
    if definition.ones:
        x = torch.nn.functional.pad(x, (0, 1), value=1)
    has_c = type(module).__name__ == "LayerNormLSTM"
    state = (h[None], c[None]) if has_c else h[None]
    y, last = module(x, state)
    got = (y, last[0][0], last[1][0]) if has_c else (y, last[0], c)
    assert difference(got, run_definition(definition, weights)) < TOLERANCE
