"""haste's LayerNormLSTM (github.com/lmnt-com/haste, `frameworks/pytorch/layer_norm_lstm.py`).

With gates in the order i, g, f, o, matrices applied to rows, and eps 1e-5 inside the root:

    (i, g, f, o) = gamma[0] * norm(x kernel) + gamma[1] * norm(h recurrent_kernel) + bias
    c' = s(f) * c + s(i) * tanh(g),   h' = s(o) * tanh(gamma_h * norm(c') + beta_h)

    kernel [I, 4H], recurrent_kernel [H, 4H], bias [4H], gamma [2, 4H], gamma_h [H], beta_h [H]

haste's `forget_bias` is the initial value of a part of `bias`. Zoneout and dropout are not
parameters and are ignored. In evaluation, a haste layer with zoneout returns `zoneout * h + (1 -
zoneout) * h'` as the next state, which no layer of Planish does.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from planish.converters._base import Converted, Source, Weights, contiguous, options, reorder

_LAYOUT = "haste"
_HASTE, _OURS = "igfo", "ifgo"


def load(source: Source, prefix: str = "") -> Converted:
    """Returns a `LayerNormLSTM` with `variant` `"haste"` from the state dict of haste's layer.

    Args:
        source: the state dict, or the path of an `.npz` file of its arrays.
        prefix: the prefix of the layer's keys, such as `"rnn."`.

    Raises:
        ValueError: a key is missing or unknown, or an array has a wrong size or type; or the
            weights are those of haste's LayerNormGRU. LayerNormGRU of haste has one norm over the
            3H sums of z, r and h of each matrix product. Planish and the paper have one norm over
            the 2H sums of z and r, and another over the H sums of the candidate. No weights make
            the layers equal.

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
    if "recurrent_bias" in weights:
        raise weights.error(
            f"{weights.key('recurrent_bias')} belongs to haste's LayerNormGRU, which has one norm "
            "over the sums of z, r and the candidate: planish.nn.LayerNormGRU, which has two, "
            "cannot be the same function"
        )
    inputs, _ = weights.matrix("kernel")
    hidden, _ = weights.matrix("recurrent_kernel")

    def take(name: str, *sizes: int) -> Tensor:
        return reorder(weights.take(name, *sizes, 4 * hidden), _HASTE, _OURS, dim=-1)

    gamma = take("gamma", 2)
    state = {
        "weight_ih_l0": take("kernel", inputs).T,
        "weight_hh_l0": take("recurrent_kernel", hidden).T,
        "bias_ih_l0": take("bias"),
        "ln_ih_weight_l0": gamma[0].clone(),
        "ln_hh_weight_l0": gamma[1].clone(),
        "ln_c_weight_l0": weights.take("gamma_h", hidden),
        "ln_c_bias_l0": weights.take("beta_h", hidden),
    }
    weights.finish("haste's LayerNormLSTM")
    return Converted("LayerNormLSTM", options(inputs, hidden, "haste", 1e-5), contiguous(state))


def save(state_dict: Mapping[str, Tensor], prefix: str = "") -> dict[str, Tensor]:
    """Returns haste's state dict of a one-layer `LayerNormLSTM` with `variant` `"haste"`.

    `save` inverts `load` bit for bit.

    Raises:
        ValueError: a key is missing or unknown, or an array has a wrong size or type.
    """
    state = Weights(_LAYOUT, state_dict)
    _, hidden = state.matrix("weight_hh_l0")
    _, inputs = state.matrix("weight_ih_l0")

    def take(key: str, *sizes: int) -> Tensor:
        return reorder(state.take(key, 4 * hidden, *sizes), _OURS, _HASTE)

    result = {
        "kernel": take("weight_ih_l0", inputs).T,
        "recurrent_kernel": take("weight_hh_l0", hidden).T,
        "bias": take("bias_ih_l0"),
        "gamma": torch.stack([take("ln_ih_weight_l0"), take("ln_hh_weight_l0")]),
        "gamma_h": state.take("ln_c_weight_l0", hidden),
        "beta_h": state.take("ln_c_bias_l0", hidden),
    }
    state.finish("a state dict of one layer of haste's")
    return {prefix + name: tensor for name, tensor in contiguous(result).items()}
