"""Decomposition of exported programs into PyTorch's operators, for ONNX and other backends.

``torch.export`` keeps each operator of this library as one node, which only this library can run.
``decompose`` replaces these nodes by PyTorch's operators. A recurrent layer becomes a loop over
time steps (``torch.ops.higher_order.scan``; ``Scan`` in ONNX), so their number can be dynamic.

>>> import planish
>>> model = planish.nn.LayerNormLSTM(3, 4).eval()
>>> program = planish.export.decompose(torch.export.export(model, (torch.randn(5, 2, 3),)))
>>> {"scan" in str(node.target) for node in program.graph.nodes}
{False, True}
>>> file = torch.onnx.export(program, (), "model.onnx")  # doctest: +SKIP
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["decompose", "decompositions"]

_ops = torch.ops.planish
_ROWS = 0  # of the argument `over` of norm_forward


def decompose(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Returns the program in PyTorch's core operators, for inference.

    Its parameters share memory with those of ``program``, and require no gradients. Results equal
    this library's up to rounding, except where PyTorch's norms are less accurate: for large means,
    and for values near the ends of the type's range. The program does not check the values of
    ``resets``, ``mask`` and ``lengths``.

    Raises ``TypeError`` if program is not an ``ExportedProgram``.
    """
    if not isinstance(program, torch.export.ExportedProgram):
        raise TypeError(
            "[decompose] program must be a torch.export.ExportedProgram, got "
            f"{type(program).__name__}"
        )
    table: Any = torch.export.default_decompositions()
    table.update(decompositions())
    decomposed: torch.export.ExportedProgram = program.run_decompositions(table)
    # Converters trace the program again. A loop whose inputs require gradients fails there.
    for name, tensor in decomposed.state_dict.items():
        if isinstance(tensor, torch.nn.Parameter):
            decomposed.state_dict[name] = torch.nn.Parameter(tensor.detach(), requires_grad=False)
    for node in decomposed.graph.find_nodes(op="placeholder"):
        if isinstance(node.meta.get("val"), Tensor):
            node.meta["val"] = node.meta["val"].detach()
    return decomposed


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Returns the decompositions of this library's operators, for ``run_decompositions``."""
    return {
        _ops.norm_forward.default: _norm,
        _ops.add_norm_forward.default: _add_norm,
        _ops.gated_norm_forward.default: _gated_norm,
        _ops.quantized_norm_forward.default: _ops.quantized_norm_composed,
        _ops.batch_norm_evaluate.default: _batch_norm_evaluate,
        _ops.online_norm_forward.default: _online_norm,
        _ops.group_norm_forward.default: _group_norm,
        _ops.pointwise_norm_forward.default: _pointwise_norm,
        _ops.weight_norm_forward.default: _weight_norm,
        _ops.rnn_forward.default: _rnn,
        _ops.rnn_step.default: _rnn_step,
        _ops.reset_flags.default: lambda resets, module: resets != 0,
        _ops.mask_lengths.default: lambda mask, module: mask.sum(0),
    }


def _wide(t: Tensor) -> Tensor:
    """Returns t in the type of the arithmetic."""
    return t.float() if t.dtype.itemsize == 2 else t


def _affine(
    xhat: Tensor, weight: Tensor | None, bias: Tensor | None, shape: list[int]
) -> Tensor:
    """Returns weight * xhat + bias, with parameters in a shape that broadcasts to xhat's."""
    y = xhat if weight is None else xhat * weight.to(xhat.dtype).reshape(shape)
    return y if bias is None else y + bias.to(xhat.dtype).reshape(shape)


def _norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    norm: str,
    over: int,
    eps: float,
    scale: float,
    slope: float,
    unbiased: bool,
    save: bool,
) -> tuple[Tensor, Tensor | None]:
    if norm == "layer" and over == _ROWS and not save:  # one operator in most backends
        wide = _wide(x)
        gain, shift = (None if p is None else p.to(wide.dtype) for p in (weight, bias))
        if gain is not None and gain.dim() > 1:  # several gains
            y = torch.nn.functional.layer_norm(wide, x.shape[-1:], None, None, eps) * gain
            y = y if shift is None else y + shift
        else:
            y = torch.nn.functional.layer_norm(wide, x.shape[-1:], gain, shift, eps)
        return y.to(x.dtype), None
    y, statistics = _ops.norm_composed(
        x, weight, bias, norm, over, eps, scale, slope, unbiased
    )
    return y, statistics if save else None


def _add_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    norm: str,
    over: int,
    eps: float,
    save: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    total = x + residual
    y, statistics = _norm(total, weight, bias, norm, over, eps, 1.0, 0.1, False, save)
    return y, total, statistics


def _gated_norm(
    x: Tensor,
    gate: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    norm: str,
    over: int,
    eps: float,
    gate_before_norm: bool,
    cast_before_weight: bool,
    save: bool,
) -> tuple[Tensor, Tensor | None]:
    y, statistics = _ops.gated_norm_composed(
        x, gate, weight, bias, norm, over, eps, gate_before_norm, cast_before_weight
    )
    return y, statistics if save else None


def _batch_norm_evaluate(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float
) -> Tensor:
    shape = [1, -1] + [1] * (x.dim() - 2)
    wide = _wide(x)
    centred = wide - mean.to(wide.dtype).reshape(shape)
    xhat = centred * (var.to(wide.dtype) + eps).rsqrt().reshape(shape)
    return _affine(xhat, weight, bias, shape).to(x.dtype)


def _group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float, save: bool
) -> tuple[Tensor, Tensor | None]:
    wide = _wide(x)
    count = groups or x.shape[1]
    rows = wide.reshape(x.shape[0], count, x.shape[1] // count, *x.shape[2:]).flatten(2)
    mean = rows.mean(-1)
    # Backends subtract a large mean with a large error, which the second mean takes away.
    centred = (rows - mean.unsqueeze(-1)).reshape(x.shape)
    gain, shift = (None if p is None else p.to(wide.dtype) for p in (weight, bias))
    y = torch.nn.functional.group_norm(centred, count, gain, shift, eps).to(x.dtype)
    if not save:
        return y, None
    rstd = (rows.var(-1, correction=0) + eps).rsqrt()
    return y, torch.stack([mean, torch.zeros_like(mean), rstd])


def _pointwise_norm(
    x: Tensor,
    alpha: Tensor,
    shift: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    function: str,
) -> Tensor:
    wide = _wide(x)
    z = _affine(wide, alpha, shift, [-1])
    y = z.tanh() if function == "tanh" else z.erf()
    return _affine(y, weight, bias, [-1]).to(x.dtype)


def _weight_norm(v: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    norm = torch.linalg.vector_norm(_wide(v), dim=1)
    w = _wide(v) * (_wide(g) / norm).unsqueeze(1)
    return w.to(v.dtype), norm


def _online_norm(
    x: Tensor,
    state: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    alpha: float,
    alphas: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    cases = _wide(x).double().reshape(-1, x.shape[-1])
    if alphas is None:
        alphas = torch.full_like(cases[:, 0], alpha)

    def step(mu: Tensor, sigma: Tensor, case: Tensor, alpha: Tensor) -> tuple[Tensor, ...]:
        own = case.mean()
        mu = alpha * own + (1 - alpha) * mu
        deviation = ((case - mu).square().sum() / (x.shape[-1] - 1)).sqrt()
        sigma = alpha * deviation + (1 - alpha) * sigma
        statistics = torch.stack([mu, torch.zeros_like(mu), 1 / sigma, own - mu, deviation])
        return mu, sigma, (case - mu) / sigma, statistics

    mu, sigma, xhat, statistics = _scan(step, [state[0], state[1]], [cases, alphas], [])
    y = _affine(xhat.reshape(x.shape), weight, bias, [-1])
    return y.to(x.dtype), torch.stack([mu, sigma]), statistics.t().to(_wide(x).dtype)


def _scan(
    step: Callable[..., tuple[Tensor, ...]],
    states: list[Tensor],
    inputs: list[Tensor],
    constants: list[Tensor],
) -> list[Tensor]:
    """Calls ``step(*states, *inputs[t], *constants)`` for each t.

    ``step`` returns the next states, then its outputs. Returns the last states, then the outputs of
    all steps.
    """

    def body(*arguments: Tensor) -> list[Tensor]:
        # scan does not allow outputs that alias inputs or other outputs.
        return [t.clone() for t in step(*arguments)]

    # scan does not allow one tensor as two arguments (tied weights).
    arguments = [*states, *inputs, *constants]
    for i, t in enumerate(arguments):
        if any(t is other for other in arguments[:i]):
            arguments[i] = t.clone()
    s, x = len(states), len(states) + len(inputs)
    results: list[Tensor] = torch.ops.higher_order.scan(
        body, arguments[:s], arguments[s:x], tuple(arguments[x:])
    )
    return results


def _bind(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a call by name."""
    parameters = operator._schema.arguments
    given = dict(zip((parameter.name for parameter in parameters), args)) | kwargs
    return {p.name: given.get(p.name, p.default_value) for p in parameters}


def _is_lstm(cell: str) -> bool:
    return "lstm" in cell


def _rnn(*args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
    call = _bind(_ops.rnn_forward.default, args, kwargs)
    cell, dtype = call["cell"], call["x"].dtype
    tensors = {
        name: _wide(value) if value.is_floating_point() else value
        for name, value in call.items()
        if isinstance(value, Tensor)
    }
    for name in ("h0", "c0", "h_reset", "c_reset"):  # scan allows no views of one tensor
        if name in tensors:
            tensors[name] = tensors[name].clone()
    x, resets, lengths = (tensors.pop(name, None) for name in ("x", "resets", "lengths"))
    assert x is not None
    sequences = {"x": x}
    if lengths is not None:  # 1 or 0: the length of each sequence in a loop of one step
        steps = torch.arange(x.shape[0], device=x.device)
        sequences["lengths"] = (steps.unsqueeze(1) < lengths).long()
    if resets is not None:
        sequences["resets"] = resets
    if call["reverse"]:
        sequences = {name: t.flip(0) for name, t in sequences.items()}
    hidden = tensors["weight_hh"].shape[0] // (4 if _is_lstm(cell) else 3 if "gru" in cell else 1)
    widths = {"h0": tensors["weight_hr"].shape[0] if "weight_hr" in tensors else hidden}
    if _is_lstm(cell):
        widths["c0"] = hidden
    states = {
        name: tensors[name] if name in tensors else x.new_zeros(x.shape[1], width)
        for name, width in widths.items()
    }
    if cell == "slstm" and "c0" not in tensors:  # log(n) is -infinity
        empty = x.new_full((x.shape[1], hidden), -torch.inf)
        states["c0"] = torch.cat([states["c0"], empty], -1)
    tensors = {name: tensor for name, tensor in tensors.items() if name not in states}
    names = [*states, *sequences, *tensors]

    def step(*values: Tensor) -> tuple[Tensor, ...]:
        one = dict(zip(names, values, strict=True))
        for name in ("x", "resets"):
            if name in one:
                one[name] = one[name].unsqueeze(0)
        y, *last = _ops.rnn_composed(cell, **one, eps=call["eps"])
        return *last[: len(states)], y.squeeze(0)

    *last, y = _scan(step, [*states.values()], [*sequences.values()], [*tensors.values()])
    if call["reverse"]:
        y = y.flip(0)
    h, c = (*last, x.new_empty(0))[:2]
    return y.to(dtype), h.to(dtype), c.to(dtype), x.new_empty(0)


def _rnn_step(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    call = _bind(_ops.rnn_step.default, args, kwargs)
    tensors = {name: value for name, value in call.items() if isinstance(value, Tensor)}
    tensors["x"] = tensors["x"].unsqueeze(0)
    _, h, c = _ops.rnn_composed(call["cell"], **tensors, eps=call["eps"])
    return h, c
