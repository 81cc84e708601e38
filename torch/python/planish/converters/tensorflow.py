"""LN-LSTMs of TensorFlow: LayerNormLSTMCell of Addons and LayerNormBasicLSTMCell of contrib.

Matrices are applied to rows. TensorFlow is not needed: weights are arrays by key, or an `.npz` file
of them. A `:0` at the end of a key, from names of TensorFlow variables, is ignored.

**Addons** (github.com/tensorflow/addons, `tensorflow_addons/rnn/layer_norm_lstm_cell.py`), with
Keras' gate order i, f, c, o and eps 1e-3:

    (i, f, g, o) = kernel_norm(x kernel) + recurrent_norm(h recurrent_kernel) + bias
    c' = state_norm(s(f) * c + s(i) * tanh(g)),   h' = s(o) * tanh(c')

**contrib** (TensorFlow 1, `tensorflow/contrib/rnn/python/ops/rnn_cell.py`), with gate order i, j,
f, o and eps 1e-12. There is one matrix for x and h, and a separate norm for each gate:

    (i, j, f, o) = [x, h] kernel
    c' = state(c * s(forget(f) + forget_bias) + s(input(i)) * tanh(transform(j)))
    h' = s(output(o)) * tanh(c')

In both, the cell state is the normalized c. Activations other than tanh and s() have no
counterpart. Dropout is not a parameter and is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from planish.converters._base import (
    Converted,
    Source,
    Weights,
    contiguous,
    options,
    reorder,
    to_numpy,
)

_LAYOUT = "tensorflow"
_CONTRIB, _OURS = "igfo", "ifgo"  # contrib's j is g
_NORMS = ("input", "transform", "forget", "output")  # in contrib's order
_FORGET = 2


def load_tfa(source: Source, prefix: str = "", eps: float = 1e-3) -> Converted:
    """Returns a `LayerNormLSTM` with `variant` `"tfa"` from the weights of Addons' cell.

    Args:
        source: arrays by key, such as `{w.name: w.numpy() for w in cell.weights}`, or the path of
            an `.npz` file: `kernel` [I, 4H], `recurrent_kernel` [H, 4H], `bias` [4H] (not with
            `use_bias=False`), `gamma` and `beta` under `kernel_norm/` and `recurrent_norm/` [4H]
            and `state_norm/` [H].
        prefix: the prefix of the keys, such as `"layer_norm_lstm_cell/"`.
        eps: the cell's `norm_epsilon`.

    Raises:
        ValueError: a key is missing or unknown, or an array has a wrong size or type.

    >>> import numpy as np
    >>> from planish.converters import tensorflow
    >>> cell = {"kernel": np.zeros((3, 8)), "recurrent_kernel": np.zeros((2, 8))}
    >>> for norm, size in (("kernel_norm", 8), ("recurrent_norm", 8), ("state_norm", 2)):
    ...     cell[f"{norm}/gamma"], cell[f"{norm}/beta"] = np.ones(size), np.zeros(size)
    >>> tensorflow.load_tfa(cell).options
    {'input_size': 3, 'hidden_size': 2, 'variant': 'tfa', 'eps': 0.001, 'bias': False}
    """
    weights = Weights(_LAYOUT, source, prefix, end=":0")
    inputs, _ = weights.matrix("kernel")
    hidden, _ = weights.matrix("recurrent_kernel")
    rows = 4 * hidden
    state = {
        "weight_ih_l0": weights.take("kernel", inputs, rows).T,
        "weight_hh_l0": weights.take("recurrent_kernel", hidden, rows).T,
    }
    arguments = options(inputs, hidden, "tfa", eps)
    if "bias" in weights:
        state["bias_ih_l0"] = weights.take("bias", rows)
    else:
        arguments["bias"] = False
    for norm, key, size in _tfa_norms(hidden):
        state[f"{key}_weight_l0"] = weights.take(f"{norm}/gamma", size)
        state[f"{key}_bias_l0"] = weights.take(f"{norm}/beta", size)
    weights.finish("Addons' LayerNormLSTMCell")
    return Converted("LayerNormLSTM", arguments, contiguous(state))


def save_tfa(
    state_dict: Mapping[str, Tensor], prefix: str = ""
) -> dict[str, np.ndarray[Any, Any]]:
    """Returns the weights of Addons' cell of a one-layer `LayerNormLSTM` with `variant` `"tfa"`.

    They have the order of `cell.weights`, for `cell.set_weights(list(result.values()))`. `save_tfa`
    inverts `load_tfa` bit for bit.

    Raises:
        ValueError: a key is missing or unknown, or an array has a wrong size or type.
    """
    state = Weights(_LAYOUT, state_dict)
    _, inputs = state.matrix("weight_ih_l0")
    _, hidden = state.matrix("weight_hh_l0")
    rows = 4 * hidden
    result = {
        "kernel": state.take("weight_ih_l0", rows, inputs).T,
        "recurrent_kernel": state.take("weight_hh_l0", rows, hidden).T,
    }
    if "bias_ih_l0" in state:
        result["bias"] = state.take("bias_ih_l0", rows)
    for norm, key, size in _tfa_norms(hidden):
        result[f"{norm}/gamma"] = state.take(f"{key}_weight_l0", size)
        result[f"{norm}/beta"] = state.take(f"{key}_bias_l0", size)
    state.finish("a state dict of one layer of Addons'")
    return to_numpy(_LAYOUT, {prefix + name: tensor for name, tensor in result.items()})


def load_contrib(source: Source, prefix: str = "", forget_bias: float = 1.0) -> Converted:
    """Returns a `LayerNormLSTM` with `variant` `"contrib"` from the variables of contrib's cell.

    Args:
        source: arrays by key, or the path of an `.npz` file: `kernel` [I + H, 4H], and `gamma` and
            `beta` [H] under `input/`, `transform/`, `forget/`, `output/` and `state/`.
        prefix: the prefix of the keys, such as `"rnn/layer_norm_basic_lstm_cell/"`.
        forget_bias: the cell's constant, which is not a variable; it is added to `ln_bias_l0`.

    Raises:
        ValueError: a key is missing or unknown (such as an optimizer's `kernel/Adam`), or an array
            has a wrong size or type.

    >>> import numpy as np
    >>> from planish.converters import tensorflow
    >>> cell = {"kernel": np.zeros((5, 8))}
    >>> for norm in ("input", "transform", "forget", "output", "state"):
    ...     cell[f"{norm}/gamma"], cell[f"{norm}/beta"] = np.ones(2), np.zeros(2)
    >>> converted = tensorflow.load_contrib(cell)
    >>> converted.options
    {'input_size': 3, 'hidden_size': 2, 'variant': 'contrib', 'eps': 1e-12}
    >>> converted.state_dict["ln_bias_l0"].tolist()
    [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    """
    weights = Weights(_LAYOUT, source, prefix, end=":0")
    both, columns = weights.matrix("kernel")
    hidden = columns // 4
    inputs = both - hidden
    if columns % 4 or inputs < 1:
        raise weights.error(
            f"{weights.key('kernel')} must have [I + H, 4H] with I of 1 or more, got "
            f"{[both, columns]}"
        )
    kernel = weights.take("kernel", both, columns)
    gamma = torch.cat([weights.take(f"{norm}/gamma", hidden) for norm in _NORMS])
    betas = [weights.take(f"{norm}/beta", hidden) for norm in _NORMS]
    betas[_FORGET] += forget_bias
    state = {
        "weight_ih_l0": reorder(kernel[:inputs].T, _CONTRIB, _OURS),
        "weight_hh_l0": reorder(kernel[inputs:].T, _CONTRIB, _OURS),
        "ln_weight_l0": reorder(gamma, _CONTRIB, _OURS),
        "ln_bias_l0": reorder(torch.cat(betas), _CONTRIB, _OURS),
        "ln_c_weight_l0": weights.take("state/gamma", hidden),
        "ln_c_bias_l0": weights.take("state/beta", hidden),
    }
    weights.finish("contrib's LayerNormBasicLSTMCell")
    arguments = options(inputs, hidden, "contrib", 1e-12)
    return Converted("LayerNormLSTM", arguments, contiguous(state))


def save_contrib(
    state_dict: Mapping[str, Tensor], prefix: str = "", forget_bias: float = 1.0
) -> dict[str, np.ndarray[Any, Any]]:
    """Returns the variables of contrib's cell of a one-layer `LayerNormLSTM`, variant `"contrib"`.

    `save_contrib` inverts `load_contrib` bit for bit, except `forget/beta`. The saved value is
    `ln_bias_l0 - forget_bias`. Unless `forget_bias` is 0, it can differ in the last bits, because
    `ln_bias_l0` was rounded. Loading it again gives the same `ln_bias_l0`.

    Raises:
        ValueError: a key is missing or unknown, or an array has a wrong size or type.
    """
    state = Weights(_LAYOUT, state_dict)
    _, inputs = state.matrix("weight_ih_l0")
    _, hidden = state.matrix("weight_hh_l0")

    def take(key: str, *sizes: int) -> Tensor:
        return reorder(state.take(key, 4 * hidden, *sizes), _OURS, _CONTRIB)

    result = {
        "kernel": torch.cat([take("weight_ih_l0", inputs).T, take("weight_hh_l0", hidden).T])
    }
    gammas, betas = take("ln_weight_l0").chunk(4), list(take("ln_bias_l0").chunk(4))
    betas[_FORGET] = betas[_FORGET] - forget_bias
    for norm, gamma, beta in zip(_NORMS, gammas, betas, strict=True):
        result[f"{norm}/gamma"], result[f"{norm}/beta"] = gamma, beta
    result["state/gamma"] = state.take("ln_c_weight_l0", hidden)
    result["state/beta"] = state.take("ln_c_bias_l0", hidden)
    state.finish("a state dict of one layer of contrib's")
    return to_numpy(_LAYOUT, {prefix + name: tensor for name, tensor in result.items()})


def _tfa_norms(hidden: int) -> tuple[tuple[str, str, int], ...]:
    return (
        ("kernel_norm", "ln_ih", 4 * hidden),
        ("recurrent_norm", "ln_hh", 4 * hidden),
        ("state_norm", "ln_c", hidden),
    )
