"""The notation of Ba, Kiros & Hinton 2016, Eq. 4, 20-22 and 26-28.

This layout is for layers written from the paper. Gate orders are the paper's: f, i, o, g in the
LSTM and z, r in the GRU. The GRU's update gate has the paper's meaning. Keys are the paper's
letters. LN_k has the gain alpha_k and the bias beta_k, as in Eq. 15 (the text of the supplement
swaps them). Matrices are applied to columns:

    RNN     h' = tanh(LN(W_hh h + W_xh x; g, b))                        W_xh [H, I], W_hh [H, H]
    LSTM    (f, i, o, g) = LN_1(W_h h) + LN_2(W_x x) + b               W_x [4H, I], W_h [4H, H]
            c' = s(f) * c + s(i) * tanh(g),   h' = s(o) * tanh(LN_3(c'))
    GRU     (z, r) = LN_1(W_h h) + LN_2(W_x x)                         W_x [2H, I], W_h [2H, H]
            n = tanh(LN_3(W x) + s(r) * LN_4(U h))                     W [H, I],    U [H, H]
            h' = (1 - s(z)) * h + s(z) * n

`planish.nn.LayerNormGRU` has PyTorch's gate, which is s(z) = 1 - s(the paper's z). LN_1 and LN_2
compute statistics over z and r together. The conversion therefore changes the signs of the z rows
of alpha_1, beta_1, alpha_2 and beta_2, and leaves W_h and W_x unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from planish.converters._base import Converted, Source, Weights, contiguous, options, reorder

_LAYOUT = "paper"
_LSTM, _OURS = "fiog", "ifgo"


def load(source: Source, eps: float = 1e-5) -> Converted:
    """Returns a layer from the paper's letters. The keys determine its kind.

    Args:
        source: tensors or arrays by key, or the path of an `.npz` file of them.
        eps: added to the variances; the paper gives no value.

    Raises:
        ValueError: a key is missing or unknown, or an array has a wrong size or type.

    >>> import torch
    >>> from planish.converters import paper
    >>> weights = {"W_xh": torch.zeros(2, 3), "W_hh": torch.eye(2)}
    >>> paper.load({**weights, "g": torch.ones(2), "b": torch.zeros(2)}).options
    {'input_size': 3, 'hidden_size': 2, 'variant': 'paper', 'eps': 1e-05}
    """
    weights = Weights(_LAYOUT, source)
    if any(name in weights for name in ("W", "U", "alpha_4", "beta_4")):
        module, take = "LayerNormGRU", _take_gru
    elif "W_hh" in weights or "W_xh" in weights:
        module, take = "LayerNormRNN", _take_rnn
    else:
        module, take = "LayerNormLSTM", _take_lstm
    state = take(weights)
    weights.finish(f"an {module.removeprefix('LayerNorm')} of the paper")
    inputs, hidden = state["weight_ih"].shape[1], state["weight_hh"].shape[1]
    named = {key + "_l0": tensor for key, tensor in contiguous(state).items()}
    return Converted(module, options(inputs, hidden, "paper", eps), named)


def save(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the paper's letters of a one-layer module with `variant` `"paper"`.

    `save` inverts `load` bit for bit.

    Raises:
        ValueError: a key is missing or unknown, or an array has a wrong size or type.
    """
    state = Weights(_LAYOUT, state_dict)
    rows, hidden = state.matrix("weight_hh_l0")
    inputs = state.matrix("weight_ih_l0")[1]
    give = {1: _give_rnn, 3: _give_gru}.get(rows // hidden, _give_lstm)
    result = give(state, inputs, hidden)
    state.finish("a state dict of one layer of the paper")
    return contiguous(result)


def _take_rnn(weights: Weights) -> dict[str, Tensor]:
    hidden, _ = weights.matrix("W_hh")
    _, inputs = weights.matrix("W_xh")
    return {
        "weight_ih": weights.take("W_xh", hidden, inputs),
        "weight_hh": weights.take("W_hh", hidden, hidden),
        "ln_weight": weights.take("g", hidden),
        "ln_bias": weights.take("b", hidden),
    }


def _give_rnn(state: Weights, inputs: int, hidden: int) -> dict[str, Tensor]:
    return {
        "W_xh": state.take("weight_ih_l0", hidden, inputs),
        "W_hh": state.take("weight_hh_l0", hidden, hidden),
        "g": state.take("ln_weight_l0", hidden),
        "b": state.take("ln_bias_l0", hidden),
    }


def _take_lstm(weights: Weights) -> dict[str, Tensor]:
    _, hidden = weights.matrix("W_h")
    _, inputs = weights.matrix("W_x")

    def take(name: str, *sizes: int) -> Tensor:
        return reorder(weights.take(name, 4 * hidden, *sizes), _LSTM, _OURS)

    return {
        "weight_ih": take("W_x", inputs),
        "weight_hh": take("W_h", hidden),
        "bias_ih": take("b"),
        "ln_ih_weight": take("alpha_2"),
        "ln_ih_bias": take("beta_2"),
        "ln_hh_weight": take("alpha_1"),
        "ln_hh_bias": take("beta_1"),
        "ln_c_weight": weights.take("alpha_3", hidden),
        "ln_c_bias": weights.take("beta_3", hidden),
    }


def _give_lstm(state: Weights, inputs: int, hidden: int) -> dict[str, Tensor]:
    def take(key: str, *sizes: int) -> Tensor:
        return reorder(state.take(key + "_l0", 4 * hidden, *sizes), _OURS, _LSTM)

    return {
        "W_x": take("weight_ih", inputs),
        "W_h": take("weight_hh", hidden),
        "b": take("bias_ih"),
        "alpha_1": take("ln_hh_weight"),
        "beta_1": take("ln_hh_bias"),
        "alpha_2": take("ln_ih_weight"),
        "beta_2": take("ln_ih_bias"),
        "alpha_3": state.take("ln_c_weight_l0", hidden),
        "beta_3": state.take("ln_c_bias_l0", hidden),
    }


def _take_gru(weights: Weights) -> dict[str, Tensor]:
    hidden, _ = weights.matrix("U")
    _, inputs = weights.matrix("W")

    def of_norm(name: str, gates: int, candidate: int) -> Tensor:
        z, r = weights.take(f"{name}_{gates}", 2 * hidden).chunk(2)
        return torch.cat([r, -z, weights.take(f"{name}_{candidate}", hidden)])

    def matrix(gates: str, candidate: str, columns: int) -> Tensor:
        both = reorder(weights.take(gates, 2 * hidden, columns), "zr", "rz")
        return torch.cat([both, weights.take(candidate, hidden, columns)])

    return {
        "weight_ih": matrix("W_x", "W", inputs),
        "weight_hh": matrix("W_h", "U", hidden),
        "ln_ih_weight": of_norm("alpha", 2, 3),
        "ln_ih_bias": of_norm("beta", 2, 3),
        "ln_hh_weight": of_norm("alpha", 1, 4),
        "ln_hh_bias": of_norm("beta", 1, 4),
    }


def _give_gru(state: Weights, inputs: int, hidden: int) -> dict[str, Tensor]:
    result: dict[str, Tensor] = {}
    for key, both, candidate, columns in (
        ("weight_ih_l0", "W_x", "W", inputs),
        ("weight_hh_l0", "W_h", "U", hidden),
    ):
        r, z, n = state.take(key, 3 * hidden, columns).chunk(3)
        result[both], result[candidate] = torch.cat([z, r]), n
    for key, gates, candidate in (("ln_ih", "2", "3"), ("ln_hh", "1", "4")):
        for kind, name in (("weight", "alpha"), ("bias", "beta")):
            r, z, n = state.take(f"{key}_{kind}_l0", 3 * hidden).chunk(3)
            result[f"{name}_{gates}"] = torch.cat([-z, r])
            result[f"{name}_{candidate}"] = n
    return result
