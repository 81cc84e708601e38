"""`_CustomLSTM` of torchaudio's RNN-T (`torchaudio/models/rnnt.py`), with `layer_norm=True`.

With gates in PyTorch's order i, f, g, o:

    (i, f, g, o) = g_norm(x2g x + p2g h)
    c' = c_norm(s(f) * c + s(i) * tanh(g)),   h' = s(o) * tanh(c')

`x2g.weight` is [4H, I], `p2g.weight` [4H, H]; `weight` and `bias` of g_norm are [4H], those of
c_norm [H]. The cell state c is the normalized one. eps is an argument there, 1e-5 by default; the
published RNN-T models use 1e-3.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from planish.converters._base import Converted, Source, Weights, lstm_sizes, options

_LAYOUT = "torchaudio"
_KEYS = {
    "x2g.weight": "weight_ih",
    "p2g.weight": "weight_hh",
    "g_norm.weight": "ln_weight",
    "g_norm.bias": "ln_bias",
    "c_norm.weight": "ln_c_weight",
    "c_norm.bias": "ln_c_bias",
}


def load(source: Source, prefix: str = "", eps: float = 1e-5) -> Converted:
    """Returns a `LayerNormLSTM` with `variant` `"torchaudio"` from the state dict of `_CustomLSTM`.

    Args:
        source: the state dict, or the path of an `.npz` file of its arrays.
        prefix: the prefix of the layer's keys, such as `"predictor.lstm_layers.0."`.
        eps: eps of the norms.

    Raises:
        ValueError: a key is missing or unknown, or an array has a wrong size or type.

    >>> import torch
    >>> from planish.converters import torchaudio
    >>> shapes = {"x2g.weight": (8, 3), "p2g.weight": (8, 2), "g_norm.weight": (8,)}
    >>> shapes |= {"g_norm.bias": (8,), "c_norm.weight": (2,), "c_norm.bias": (2,)}
    >>> torchaudio.load({key: torch.ones(shape) for key, shape in shapes.items()}).options
    {'input_size': 3, 'hidden_size': 2, 'variant': 'torchaudio', 'eps': 1e-05}
    """
    weights = Weights(_LAYOUT, source, prefix)
    inputs = weights.matrix("x2g.weight")[1]
    hidden = weights.matrix("p2g.weight")[1]
    state = {
        key + "_l0": weights.take(name, *lstm_sizes(key, inputs, hidden))
        for name, key in _KEYS.items()
    }
    weights.finish("a _CustomLSTM with layer_norm=True")
    return Converted("LayerNormLSTM", options(inputs, hidden, "torchaudio", eps), state)


def save(state_dict: Mapping[str, Tensor], prefix: str = "") -> dict[str, Tensor]:
    """Returns the state dict of a one-layer `LayerNormLSTM` with `variant` `"torchaudio"`.

    `save` inverts `load` bit for bit.

    Raises:
        ValueError: a key is missing or unknown, or an array has a wrong size or type.
    """
    state = Weights(_LAYOUT, state_dict)
    inputs = state.matrix("weight_ih_l0")[1]
    hidden = state.matrix("weight_hh_l0")[1]
    result = {
        prefix + name: state.take(key + "_l0", *lstm_sizes(key, inputs, hidden))
        for name, key in _KEYS.items()
    }
    state.finish("a state dict of one layer of torchaudio's")
    return result
