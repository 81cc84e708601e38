"""haste's LayerNormLSTM and LayerNormGRU (github.com/lmnt-com/haste, `frameworks/pytorch`).

Matrices are applied to rows, and eps is 1e-5 inside the root. LayerNormLSTM, with gates in the
order i, g, f, o:

    (i, g, f, o) = gamma[0] * norm(x kernel) + gamma[1] * norm(h recurrent_kernel) + bias
    c' = s(f) * c + s(i) * tanh(g),   h' = s(o) * tanh(gamma_h * norm(c') + beta_h)

    kernel [I, 4H], recurrent_kernel [H, 4H], bias [4H], gamma [2, 4H], gamma_h [H], beta_h [H]

LayerNormGRU, with gates in the order z, r, n:

    ax = gamma[0] * norm(x kernel) + bias,   ah = gamma[1] * norm(h recurrent_kernel) + recurrent_bias
    n = tanh(ax_n + s(ax_r + ah_r) * ah_n),   z = s(ax_z + ah_z),   h' = z * h + (1 - z) * n

    kernel [I, 3H], recurrent_kernel [H, 3H], bias [3H], recurrent_bias [3H], gamma [2, 3H]

haste's `forget_bias` is the initial value of a part of `bias`. Zoneout and dropout are not
parameters and are ignored. In evaluation, a haste layer with zoneout returns `zoneout * h + (1 -
zoneout) * h'` as the next state, which no layer of Planish does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from planish.converters._base import Converted, Source, Weights, contiguous, options, reorder

_LAYOUT = "haste"


@dataclass(frozen=True)
class _Layer:
    """A layer of haste: its name, its order of gates, Planish's order, and its other arrays.

    `biases` are arrays with an element for each unit of each gate, `units` with one for each unit;
    both map haste's key to Planish's.
    """

    name: str
    theirs: str
    ours: str
    biases: dict[str, str]
    units: dict[str, str]


_LSTM = _Layer(
    "LayerNormLSTM",
    "igfo",
    "ifgo",
    {"bias": "bias_ih_l0"},
    {"gamma_h": "ln_c_weight_l0", "beta_h": "ln_c_bias_l0"},
)
_GRU = _Layer(
    "LayerNormGRU", "zrn", "rzn", {"bias": "bias_ih_l0", "recurrent_bias": "bias_hh_l0"}, {}
)


def _layer_of(sums: int, hidden: int) -> _Layer:
    return _GRU if sums == 3 * hidden else _LSTM


def load(source: Source, prefix: str = "") -> Converted:
    """Returns a module with `variant` `"haste"` from the state dict of haste's layer.

    It is a `LayerNormGRU` if `recurrent_kernel` is [H, 3H], else a `LayerNormLSTM`.

    Args:
        source: the state dict, or the path of an `.npz` file of its arrays.
        prefix: the prefix of the layer's keys, such as `"rnn."`.

    Raises:
        ValueError: a key is missing or unknown, or an array has a wrong size or type.

    >>> import torch
    >>> from planish.converters import haste
    >>> shapes = {"kernel": (3, 8), "recurrent_kernel": (2, 8), "bias": (8,), "gamma": (2, 8)}
    >>> weights = {key: torch.ones(shape) for key, shape in shapes.items()}
    >>> haste.load({**weights, "gamma_h": torch.ones(2), "beta_h": torch.zeros(2)}).options
    {'input_size': 3, 'hidden_size': 2, 'variant': 'haste', 'eps': 1e-05}
    >>> haste.load({**weights, "gamma_h": torch.ones(2), "beta_h": torch.zeros(3)})
    Traceback (most recent call last):
        ...
    ValueError: [converters.haste] beta_h must have [2], got [3]
    """
    weights = Weights(_LAYOUT, source, prefix)
    inputs, _ = weights.matrix("kernel")
    hidden, sums = weights.matrix("recurrent_kernel")
    layer = _layer_of(sums, hidden)

    def take(name: str, *sizes: int) -> Tensor:
        tensor = weights.take(name, *sizes, len(layer.ours) * hidden)
        return reorder(tensor, layer.theirs, layer.ours, dim=-1)

    gamma = take("gamma", 2)
    state = {
        "weight_ih_l0": take("kernel", inputs).T,
        "weight_hh_l0": take("recurrent_kernel", hidden).T,
        **{ours: take(name) for name, ours in layer.biases.items()},
        "ln_ih_weight_l0": gamma[0].clone(),
        "ln_hh_weight_l0": gamma[1].clone(),
        **{ours: weights.take(name, hidden) for name, ours in layer.units.items()},
    }
    weights.finish(f"haste's {layer.name}")
    return Converted(layer.name, options(inputs, hidden, "haste", 1e-5), contiguous(state))


def save(state_dict: Mapping[str, Tensor], prefix: str = "") -> dict[str, Tensor]:
    """Returns haste's state dict of a one-layer module with `variant` `"haste"`.

    `save` inverts `load` bit for bit. If `weight_hh_l0` is [3H, H], the module is a `LayerNormGRU`.

    Raises:
        ValueError: a key is missing or unknown, or an array has a wrong size or type.
    """
    state = Weights(_LAYOUT, state_dict)
    sums, hidden = state.matrix("weight_hh_l0")
    layer = _layer_of(sums, hidden)
    _, inputs = state.matrix("weight_ih_l0")

    def take(key: str, *sizes: int) -> Tensor:
        tensor = state.take(key, len(layer.ours) * hidden, *sizes)
        return reorder(tensor, layer.ours, layer.theirs)

    result = {
        "kernel": take("weight_ih_l0", inputs).T,
        "recurrent_kernel": take("weight_hh_l0", hidden).T,
        **{name: take(ours) for name, ours in layer.biases.items()},
        "gamma": torch.stack([take("ln_ih_weight_l0"), take("ln_hh_weight_l0")]),
        **{name: state.take(ours, hidden) for name, ours in layer.units.items()},
    }
    state.finish("a state dict of one layer of haste's")
    return {prefix + name: tensor for name, tensor in contiguous(result).items()}
