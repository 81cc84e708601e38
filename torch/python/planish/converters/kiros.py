"""Ryan Kiros' `.npz` files: layer-norm, order embeddings and skip-thoughts (Theano).

The equations are those of `layers.py` in github.com/ryankiros/layer-norm (`param_init_lngru`,
`lngru_layer`, `param_init_lnlstm`, `lnlstm_layer`, `gru`, `lstm`). The names and the way of saving
are those of github.com/ryankiros/skip-thoughts (`skipthoughts.py`, `training/model.py`,
`training/utils.py`) and github.com/ivendrov/order-embedding (`model.py`, `train.py`).

A key is the layer's prefix, an underscore and the parameter, such as `encoder_W`. A bidirectional
encoder (`bi_skip.npz`) has a second layer that reads backwards, `encoder_r_W`.

LN is the norm with gain s, bias b and eps 1e-5 inside the root; W is applied to rows (`x W`):

    GRU     (r, u) = s1-norm(x W + b) + s3-norm(h U)           W [I, 2H], U [H, 2H], b [2H]
            n = tanh(s2-norm(x Wx + bx) + s(r) * s4-norm(h Ux))   Wx [I, H], Ux [H, H], bx [H]
            h' = s(u) * h + (1 - s(u)) * n
    LSTM    (i, f, o, g) = s1-norm(x W + b) + s2-norm(h U) + b   W [I, 4H], U [H, 4H], b [4H]
            c' = s(f) * c + s(i) * tanh(g),   h' = s(o) * tanh(s3-norm(c'))

The layers without norms have the same equations without the norms, so the plain LSTM adds b twice.
The update gate is PyTorch's, which is 1 minus that of the paper's Eq. 28, so its sign stays;
`converters.paper` converts the paper's gate.

**b inside the norm.** The code adds b (and bx) to the matrix product before the norm. Unless all
its elements are equal, that differs from a bias after the norm, and Planish has no bias before it.
It is equivalent to the weights of an input that is always 1. With `bias_column=True`, b becomes the
last column of `weight_ih_l0`, `input_size` is I + 1, and the module's input must be
`torch.nn.functional.pad(x, (0, 1), value=1)`. Otherwise b must be zero, its initial value.
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
    open_npz,
    options,
    reorder,
    to_numpy,
)

_LAYOUT = "kiros"
_EPS = 1e-5
_LSTM, _OURS = "ifog", "ifgo"


def load(source: Source, prefix: str = "encoder", bias_column: bool = False) -> Converted:
    """Returns a GRU, LN-GRU, LSTM or LN-LSTM from a file.

    The keys determine which of them, and whether it is bidirectional. Arrays with other prefixes
    are not read.

    Args:
        source: the path of an `.npz` file, or its arrays by key. Pickled arrays are not read. The
            files of skip-thoughts and order embeddings have none under these keys, and their `.pkl`
            files (options, words) are not needed. If a file has pickled arrays under these keys,
            unpickle them with a program that you trust and save them as float32 arrays.
        prefix: the prefix of the layer: `encoder`, `decoder_f`, `decoder_b`.
        bias_column: whether b inside a norm becomes a column of `weight_ih_l0`.

    Returns:
        `LayerNormGRU` or `LayerNormLSTM` with `variant` `"paper"`, or `"plain"` without norms.

    Raises:
        ValueError: a key is missing or unknown; an array has a wrong size or type; b inside a norm
            is not 0 and `bias_column` is False; or `bias_column` is True and there is no norm.

    >>> import numpy as np
    >>> from planish.converters import kiros
    >>> shapes = {"W": (3, 4), "U": (2, 4), "b": 4, "Wx": (3, 2), "Ux": (2, 2), "bx": 2}
    >>> gru = {f"encoder_{name}": np.zeros(shape, "float32") for name, shape in shapes.items()}
    >>> converted = kiros.load({"Wemb": np.zeros((9, 3), "float32"), **gru})
    >>> converted.module, converted.options["variant"], list(converted.state_dict)
    ('LayerNormGRU', 'plain', ['weight_ih_l0', 'weight_hh_l0', 'bias_ih_l0', 'bias_hh_l0'])
    """
    arrays = source if isinstance(source, Mapping) else open_npz(_LAYOUT, source)
    backward = f"{prefix}_r_"
    forward = Weights(_LAYOUT, arrays, f"{prefix}_", other_prefix=backward)
    is_gru = any(name in forward for name in ("Wx", "Ux", "bx"))
    has_norms = any(name[:1] in "bs" and name[1:].isdigit() for name in forward.names())
    if bias_column and not has_norms:
        raise forward.error("bias_column must be False for a layer without norms, got True")
    inputs, _ = forward.matrix("W")
    hidden, _ = forward.matrix("Ux" if is_gru else "U")
    state = {}
    bidirectional = any(key.startswith(backward) for key in arrays)
    for suffix in ("_l0", "_l0_reverse") if bidirectional else ("_l0",):
        weights = Weights(_LAYOUT, arrays, backward) if "_reverse" in suffix else forward
        take = _take_gru if is_gru else _take_lstm
        taken = contiguous(take(weights, inputs, hidden, has_norms, bias_column))
        state.update({key + suffix: tensor for key, tensor in taken.items()})
        weights.finish("this layer")
    arguments = options(inputs + bias_column, hidden, "paper" if has_norms else "plain", _EPS)
    if bidirectional:
        arguments["bidirectional"] = True
    return Converted("LayerNormGRU" if is_gru else "LayerNormLSTM", arguments, state)


def save(
    state_dict: Mapping[str, Tensor], prefix: str = "encoder", bias_column: bool = False
) -> dict[str, np.ndarray[Any, Any]]:
    """Returns the arrays of a layer, for `numpy.savez(path, **arrays)`.

    `save` inverts `load` bit for bit. The file has one b where a module can have two. In an
    LN-LSTM, the difference of `bias_ih_l0` and the column is added to b1, which is equivalent. In a
    plain LSTM, b is the mean of the two biases.

    Args:
        state_dict: the state dict of a one-layer `LayerNormGRU` or `LayerNormLSTM` with `variant`
            `"paper"` or `"plain"`. The keys do not show the variant; those of `"tfa"` equal those of `"paper"`.
        prefix: the prefix of the keys.
        bias_column: whether the last column of `weight_ih_l0` is b; otherwise b inside norms is 0.

    Raises:
        ValueError: a key is missing or unknown, or an array has a wrong size; or the last third of
            a plain GRU's `bias_hh_l0` is not 0. These files have no key for it.
    """
    state = Weights(_LAYOUT, state_dict)
    rows, hidden = state.matrix("weight_hh_l0")
    is_gru = rows == 3 * hidden
    has_norms = any(name.startswith("ln_") for name in state.names())
    if bias_column and not has_norms:
        raise state.error("bias_column must be False for a layer without norms, got True")
    inputs = state.matrix("weight_ih_l0")[1]
    result = {}
    bidirectional = any(name.endswith("_reverse") for name in state.names())
    for suffix in ("_l0", "_l0_reverse") if bidirectional else ("_l0",):
        start = f"{prefix}_r_" if "_reverse" in suffix else f"{prefix}_"
        give = _give_gru if is_gru else _give_lstm
        given = give(state, suffix, inputs, hidden, has_norms, bias_column)
        result.update({start + name: tensor for name, tensor in given.items()})
    state.finish("a state dict of one layer")
    return to_numpy(_LAYOUT, result)


def _with_bias(
    weights: Weights, matrix: Tensor, biases: dict[str, Tensor], bias_column: bool
) -> Tensor:
    """Returns weight_ih [G, I], with one extra column for a bias inside the norm."""
    if bias_column:
        return torch.cat([matrix, torch.cat(list(biases.values())).unsqueeze(1)], 1)
    for name, bias in biases.items():
        if bias.count_nonzero():
            raise weights.error(
                f"{weights.key(name)} must be 0, because Planish has no bias inside the norm, "
                f"got values up to {bias.abs().max().item():.3g}: pass bias_column=True to make it "
                "a column of weight_ih_l0 for an input that is always 1"
            )
    return matrix


def _without_bias(matrix: Tensor, bias_column: bool) -> tuple[Tensor, Tensor]:
    """Returns weight_ih [G, I] and the bias inside the norm [G]."""
    if bias_column:
        return matrix[:, :-1], matrix[:, -1]
    return matrix, matrix.new_zeros(matrix.shape[0])


def _take_gru(
    weights: Weights, inputs: int, hidden: int, has_norms: bool, bias_column: bool
) -> dict[str, Tensor]:
    both = 2 * hidden
    w, wx = weights.take("W", inputs, both), weights.take("Wx", inputs, hidden)
    u, ux = weights.take("U", hidden, both), weights.take("Ux", hidden, hidden)
    biases = {"b": weights.take("b", both), "bx": weights.take("bx", hidden)}
    weight_ih, weight_hh = torch.cat([w, wx], 1).T, torch.cat([u, ux], 1).T
    if not has_norms:
        bias = torch.cat(list(biases.values()))
        return {
            "weight_ih": weight_ih,
            "weight_hh": weight_hh,
            "bias_ih": bias,
            "bias_hh": torch.zeros_like(bias),
        }
    result = {
        "weight_ih": _with_bias(weights, weight_ih, biases, bias_column),
        "weight_hh": weight_hh,
    }
    for key, of_both, of_n in (("ln_ih", "1", "2"), ("ln_hh", "3", "4")):
        for name, kind in (("s", "weight"), ("b", "bias")):
            parts = [weights.take(name + of_both, both), weights.take(name + of_n, hidden)]
            result[f"{key}_{kind}"] = torch.cat(parts)
    return result


def _give_gru(
    state: Weights, suffix: str, inputs: int, hidden: int, has_norms: bool, bias_column: bool
) -> dict[str, Tensor]:
    both, rows = 2 * hidden, 3 * hidden
    weight_ih = state.take("weight_ih" + suffix, rows, inputs)
    weight_hh = state.take("weight_hh" + suffix, rows, hidden)
    if has_norms:
        weight_ih, bias = _without_bias(weight_ih, bias_column)
    else:
        bias_ih, bias_hh = (state.take(f"bias_{of}{suffix}", rows) for of in ("ih", "hh"))
        if bias_hh[both:].count_nonzero():
            raise state.error(
                f"bias_hh{suffix} must be 0 in its last {hidden} elements, which have no key in "
                f"the file, got values up to {bias_hh[both:].abs().max().item():.3g}"
            )
        bias = bias_ih + bias_hh if bias_hh.count_nonzero() else bias_ih
    result = {
        "W": weight_ih[:both].T,
        "b": bias[:both],
        "U": weight_hh[:both].T,
        "Wx": weight_ih[both:].T,
        "Ux": weight_hh[both:].T,
        "bx": bias[both:],
    }
    if has_norms:
        for key, of_both, of_n in (("ln_ih", "1", "2"), ("ln_hh", "3", "4")):
            for name, kind in (("s", "weight"), ("b", "bias")):
                tensor = state.take(f"{key}_{kind}{suffix}", rows)
                result[name + of_both], result[name + of_n] = tensor[:both], tensor[both:]
    return result


def _take_lstm(
    weights: Weights, inputs: int, hidden: int, has_norms: bool, bias_column: bool
) -> dict[str, Tensor]:
    rows = 4 * hidden
    weight_hh = reorder(weights.take("U", hidden, rows).T, _LSTM, _OURS)
    weight_ih = reorder(weights.take("W", inputs, rows).T, _LSTM, _OURS)
    bias = reorder(weights.take("b", rows), _LSTM, _OURS)
    if has_norms:
        weight_ih = _with_bias(weights, weight_ih, {"b": bias}, bias_column)
    result = {"weight_ih": weight_ih, "weight_hh": weight_hh, "bias_ih": bias}
    if not has_norms:
        return {**result, "bias_hh": bias}
    for key, index in (("ln_ih", "1"), ("ln_hh", "2")):
        result[f"{key}_weight"] = reorder(weights.take("s" + index, rows), _LSTM, _OURS)
        result[f"{key}_bias"] = reorder(weights.take("b" + index, rows), _LSTM, _OURS)
    result["ln_c_weight"] = weights.take("s3", hidden)
    result["ln_c_bias"] = weights.take("b3", hidden)
    return result


def _give_lstm(
    state: Weights, suffix: str, inputs: int, hidden: int, has_norms: bool, bias_column: bool
) -> dict[str, Tensor]:
    rows = 4 * hidden

    def take(key: str, *sizes: int) -> Tensor:
        return reorder(state.take(key + suffix, rows, *sizes), _OURS, _LSTM)

    weight_ih, weight_hh = take("weight_ih", inputs), take("weight_hh", hidden)
    bias_ih = take("bias_ih")
    if not has_norms:
        return {"W": weight_ih.T, "U": weight_hh.T, "b": (bias_ih + take("bias_hh")) / 2}
    weight_ih, bias = _without_bias(weight_ih, bias_column)
    result = {"W": weight_ih.T, "U": weight_hh.T, "b": bias}
    for key, index in (("ln_ih", "1"), ("ln_hh", "2")):
        result["b" + index] = take(key + "_bias")
        result["s" + index] = take(key + "_weight")
    if not torch.equal(bias_ih, bias):
        result["b1"] = result["b1"] + (bias_ih - bias)
    result["b3"] = state.take("ln_c_bias" + suffix, hidden)
    result["s3"] = state.take("ln_c_weight" + suffix, hidden)
    return result
