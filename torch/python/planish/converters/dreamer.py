"""The GRU of DreamerV3 in PyTorch ports: sheeprl and dreamerv3-torch.

With one matrix over the concatenated input and state, one norm over all 3H sums, gates in the order
reset, candidate, update, and eps 1e-3 inside the root:

    (r, a, u) = norm(W [h; x]) * gain + bias
    n = tanh(s(r) * a),   h' = s(u - 1) * n + (1 - s(u - 1)) * h

- sheeprl (`LayerNormGRUCell`, `sheeprl/models/models.py`): `linear.weight` [3H, H + I], h first;
  `layer_norm.weight` and `layer_norm.bias` [3H].
- dreamerv3-torch (`GRUCell`, `networks.py`): `layers.GRU_linear.weight` [3H, I + H], x first;
  `layers.GRU_norm.weight` and `layers.GRU_norm.bias` [3H].

Planish's z is `1 - s(u - 1) = s(1 - u)`: its gain has the other sign, and its bias is 1 - bias.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from planish.converters._base import Converted, Source, Weights, options, reorder

_LAYOUT = "dreamer"
_DREAMER, _OURS = "rnz", "rzn"


def load_sheeprl(source: Source, prefix: str = "", eps: float = 1e-3) -> Converted:
    """Returns a `LayerNormGRU` with `variant` `"dreamer"` from the state dict of sheeprl's cell.

    Args:
        source: the state dict, or the path of an `.npz` file of its arrays.
        prefix: the prefix of the cell's keys, such as `"rssm.recurrent_model.rnn."`.
        eps: eps of the norm.

    Raises:
        ValueError: a key is missing or unknown, or an array has a wrong size or type; or the cell
            has `linear.bias`, which is added before the norm. Planish has no bias there.

    >>> import torch
    >>> from planish.converters import dreamer
    >>> norm = {"layer_norm.weight": torch.ones(6), "layer_norm.bias": torch.zeros(6)}
    >>> dreamer.load_sheeprl({"linear.weight": torch.ones(6, 5), **norm}).options
    {'input_size': 3, 'hidden_size': 2, 'variant': 'dreamer', 'eps': 0.001}
    """
    return _load(source, prefix, eps, "linear.", "layer_norm.", state_first=True)


def save_sheeprl(state_dict: Mapping[str, Tensor], prefix: str = "") -> dict[str, Tensor]:
    """Returns sheeprl's state dict of a one-layer `LayerNormGRU` with `variant` `"dreamer"`.

    `save_sheeprl` inverts `load_sheeprl` up to the rounding of `1 - bias` of the update gate.

    Raises:
        ValueError: a key is missing or unknown, or an array has a wrong size or type.
    """
    return _save(state_dict, prefix, "linear.", "layer_norm.", state_first=True)


def load_dreamerv3_torch(source: Source, prefix: str = "", eps: float = 1e-3) -> Converted:
    """Like `load_sheeprl`, from the state dict of dreamerv3-torch's cell."""
    return _load(source, prefix, eps, "layers.GRU_linear.", "layers.GRU_norm.", state_first=False)


def save_dreamerv3_torch(state_dict: Mapping[str, Tensor], prefix: str = "") -> dict[str, Tensor]:
    """Like `save_sheeprl`, for dreamerv3-torch's cell."""
    return _save(state_dict, prefix, "layers.GRU_linear.", "layers.GRU_norm.", state_first=False)


def _load(
    source: Source, prefix: str, eps: float, linear: str, norm: str, *, state_first: bool
) -> Converted:
    weights = Weights(_LAYOUT, source, prefix)
    if linear + "bias" in weights:
        raise weights.error(
            f"{weights.key(linear + 'bias')} is added before the norm: planish.nn.LayerNormGRU, "
            "which has no bias there, cannot be the same function"
        )
    rows, columns = weights.matrix(linear + "weight")
    hidden, inputs = rows // 3, columns - rows // 3
    if rows % 3 != 0 or inputs < 1:
        raise weights.error(
            f"{weights.key(linear + 'weight')} must have [3H, H + I], got {[rows, columns]}"
        )
    both = weights.take(linear + "weight", rows, columns)
    sizes = [hidden, inputs] if state_first else [inputs, hidden]
    first, second = torch.split(reorder(both, _DREAMER, _OURS), sizes, 1)
    of_state, of_x = (first, second) if state_first else (second, first)
    state = {
        "weight_ih_l0": of_x.contiguous(),
        "weight_hh_l0": of_state.contiguous(),
        "ln_weight_l0": reorder(weights.take(norm + "weight", rows), _DREAMER, _OURS),
        "ln_bias_l0": reorder(weights.take(norm + "bias", rows), _DREAMER, _OURS),
    }
    _exchange_update_gate(state, hidden)
    weights.finish("a GRU cell of DreamerV3")
    return Converted("LayerNormGRU", options(inputs, hidden, "dreamer", eps), state)


def _save(
    state_dict: Mapping[str, Tensor], prefix: str, linear: str, norm: str, *, state_first: bool
) -> dict[str, Tensor]:
    state = Weights(_LAYOUT, state_dict)
    rows, hidden = state.matrix("weight_hh_l0")
    inputs = state.matrix("weight_ih_l0")[1]
    of_x = state.take("weight_ih_l0", 3 * hidden, inputs)
    of_state = state.take("weight_hh_l0", 3 * hidden, hidden)
    own = {name: state.take(name, 3 * hidden) for name in ("ln_weight_l0", "ln_bias_l0")}
    state.finish("a state dict of one layer of DreamerV3's")
    _exchange_update_gate(own, hidden)
    both = torch.cat([of_state, of_x] if state_first else [of_x, of_state], 1)
    return {
        prefix + linear + "weight": reorder(both, _OURS, _DREAMER),
        prefix + norm + "weight": reorder(own["ln_weight_l0"], _OURS, _DREAMER),
        prefix + norm + "bias": reorder(own["ln_bias_l0"], _OURS, _DREAMER),
    }


def _exchange_update_gate(state: dict[str, Tensor], hidden: int) -> None:
    """Converts gain and bias between s(u - 1) and z = s(1 - u), in place."""
    gate = slice(hidden, 2 * hidden)
    state["ln_weight_l0"][gate].neg_()
    state["ln_bias_l0"][gate] = 1 - state["ln_bias_l0"][gate]
