"""LayerNormLSTMCell of PyTorch's fastrnns benchmark (`benchmarks/fastrnns/custom_lstms.py`).

With gates in PyTorch's order i, f, g, o:

    (i, f, g, o) = layernorm_i(weight_ih x) + layernorm_h(weight_hh h)
    c' = layernorm_c(s(f) * c + s(i) * tanh(g)),   h' = s(o) * tanh(c')

weight_ih is [4H, I], weight_hh [4H, H]; `weight` and `bias` of layernorm_i and layernorm_h are
[4H], those of layernorm_c [H]. The cell state c is the normalized one. There is no other bias.

NeMo's `ln_lstm` (`nemo/collections/common/parts/rnn.py`), a stack of LayerNormLSTMCell, has the
same equations and keys. Its forget gate's bias is the initial value of a part of `layernorm_h.bias`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from torch import Tensor

from planish.converters._base import Converted, Source, Weights, lstm_sizes, options

_LAYOUT = "fastrnns"
_KEYS = {
    "weight_ih": "weight_ih",
    "weight_hh": "weight_hh",
    "layernorm_i.weight": "ln_ih_weight",
    "layernorm_i.bias": "ln_ih_bias",
    "layernorm_h.weight": "ln_hh_weight",
    "layernorm_h.bias": "ln_hh_bias",
    "layernorm_c.weight": "ln_c_weight",
    "layernorm_c.bias": "ln_c_bias",
}

Container = Literal["cell", "layer", "stack"]


def load(source: Source, prefix: str = "", eps: float = 1e-5) -> Converted:
    """Returns a `LayerNormLSTM` with `variant` `"fastrnns"` from the benchmark's state dict.

    The state dict is that of a cell, of a layer (`LSTMLayer`, `BidirLSTMLayer`) or of the result of
    `script_lnlstm` (`StackedLSTM`, `StackedLSTM2`), or of NeMo's `ln_lstm`.

    Args:
        source: the state dict, or the path of an `.npz` file of its arrays.
        prefix: the prefix of its keys, such as `"rnn."`.
        eps: eps of the norms. The default is that of `torch.nn.LayerNorm`; with
            `decompose_layernorm=True` the benchmark uses 0.

    Raises:
        ValueError: a key is missing or unknown, or an array has a wrong size or type.

    >>> import torch
    >>> from planish.converters import fastrnns
    >>> cell = {"weight_ih": torch.ones(8, 3), "weight_hh": torch.ones(8, 2)}
    >>> for norm, size in (("i", 8), ("h", 8), ("c", 2)):
    ...     cell[f"layernorm_{norm}.weight"] = torch.ones(size)
    ...     cell[f"layernorm_{norm}.bias"] = torch.zeros(size)
    >>> fastrnns.load({"layers.0.cell." + key: value for key, value in cell.items()}).options
    {'input_size': 3, 'hidden_size': 2, 'variant': 'fastrnns', 'eps': 1e-05}
    """
    weights = Weights(_LAYOUT, source, prefix)
    names = weights.names()
    layers = {int(match[1]) for name in names if (match := re.match(r"layers\.(\d+)\.", name))}
    bidirectional = any(re.match(r"(layers\.\d+\.)?directions\.", name) for name in names)
    in_layer = bidirectional or bool(layers) or any(name.startswith("cell.") for name in names)
    container: Container = "stack" if layers else "layer" if in_layer else "cell"
    num_layers = max(layers, default=0) + 1
    directions = 2 if bidirectional else 1
    first = _path(0, 0, container, directions)
    inputs = weights.matrix(first + "weight_ih")[1]
    hidden = weights.matrix(first + "weight_hh")[1]
    state = {}
    for layer in range(num_layers):
        for direction in range(directions):
            columns = inputs if layer == 0 else directions * hidden
            path = _path(layer, direction, container, directions)
            for name, key in _KEYS.items():
                tensor = weights.take(path + name, *lstm_sizes(key, columns, hidden))
                state[key + _suffix(layer, direction)] = tensor
    weights.finish("a LayerNormLSTMCell")
    arguments = options(inputs, hidden, "fastrnns", eps)
    if num_layers > 1:
        arguments["num_layers"] = num_layers
    if bidirectional:
        arguments["bidirectional"] = True
    return Converted("LayerNormLSTM", arguments, state)


def save(
    state_dict: Mapping[str, Tensor], prefix: str = "", container: Container = "stack"
) -> dict[str, Tensor]:
    """Returns the benchmark's state dict of a `LayerNormLSTM` with `variant` `"fastrnns"`.

    `save` inverts `load` bit for bit.

    Args:
        state_dict: the state dict of the module.
        prefix: the prefix of the keys.
        container: the owner of the keys: the result of `script_lnlstm`, a layer, or a cell.

    Raises:
        ValueError: a key is missing or unknown, or an array has a wrong size or type; the container
            is unknown or cannot hold as many layers or directions.
    """
    state = Weights(_LAYOUT, state_dict)
    found = [re.fullmatch(r"weight_ih_l(\d+)(_reverse)?", name) for name in state.names()]
    num_layers = max((int(match[1]) for match in found if match), default=0) + 1
    directions = 2 if any(match and match[2] for match in found) else 1
    if container not in ("cell", "layer", "stack"):
        raise state.error(f"container must be cell, layer or stack, got {container}")
    if (num_layers > 1 and container != "stack") or (directions > 1 and container == "cell"):
        raise state.error(
            f"container must hold {num_layers} layers of {directions} directions, got "
            f"{container}"
        )
    inputs = state.matrix("weight_ih_l0")[1]
    hidden = state.matrix("weight_hh_l0")[1]
    result = {}
    for layer in range(num_layers):
        for direction in range(directions):
            columns = inputs if layer == 0 else directions * hidden
            path = prefix + _path(layer, direction, container, directions)
            for name, key in _KEYS.items():
                full = key + _suffix(layer, direction)
                result[path + name] = state.take(full, *lstm_sizes(key, columns, hidden))
    state.finish("a state dict of fastrnns'")
    return result


def _path(layer: int, direction: int, container: Container, directions: int) -> str:
    if container == "cell":
        return ""
    stack = f"layers.{layer}." if container == "stack" else ""
    return stack + (f"directions.{direction}.cell." if directions == 2 else "cell.")


def _suffix(layer: int, direction: int) -> str:
    return f"_l{layer}" + ("_reverse" if direction == 1 else "")
