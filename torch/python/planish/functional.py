"""Norms as functions: thin, typed wrappers of ``torch.ops.planish.*``.

The input x is float32, float64, bfloat16 or float16, on the CPU or a GPU. Outputs have x's shape
and type. weight and bias can have another of these types. Statistics are computed in float32, and
for float64 in float64. All functions are differentiable any number of times, and can be called from
several threads.

Invalid arguments raise ValueError or RuntimeError naming the function, the argument and its value.
``docs/math.md`` and ``docs/math-channels.md`` derive every equation. Ba is Ba, Kiros & Hinton 2016;
Xu is Xu et al. 2019.
"""

from collections.abc import Sequence

import torch  # noqa: F401  (the examples use it)
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from planish._checks import with_offset
from planish._operators import (
    _ada_norm,
    _add_layer_norm,
    _add_quantized_layer_norm,
    _add_quantized_rms_norm,
    _add_rms_norm,
    _affine_layer_norm,
    _affine_layer_norm_op,
    _affine_rms_norm,
    _affine_rms_norm_op,
    _batch_norm,
    _channel_layer_norm,
    _derf,
    _detach_norm,
    _dropout_add_layer_norm,
    _dropout_add_rms_norm,
    _dyt,
    _gated_layer_norm,
    _gated_rms_norm,
    _group_norm,
    _instance_norm,
    _layer_norm,
    _layer_norm_simple,
    _online_layer_norm,
    _quantized_layer_norm,
    _quantized_rms_norm,
    _rms_norm,
    _row_norm,
    _row_norm_names,
    _weight_norm,
)

__all__ = [
    "ada_norm",
    "add_layer_norm",
    "add_quantized_layer_norm",
    "add_quantized_rms_norm",
    "add_rms_norm",
    "batch_norm",
    "channel_layer_norm",
    "derf",
    "detach_norm",
    "dropout_add_layer_norm",
    "dropout_add_rms_norm",
    "dyt",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "layer_norm_simple",
    "online_layer_norm",
    "quantized_layer_norm",
    "quantized_rms_norm",
    "rms_norm",
    "row_norm",
    "row_norm_names",
    "weight_norm",
]


def row_norm_names() -> list[str]:
    """Returns the names that row_norm knows, those of ``planish::Norm`` in C++.

    >>> row_norm_names()[:3]
    ['layer', 'layer_simple', 'rms']
    """
    return _row_norm_names()  # type: ignore[no-any-return]


def row_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    norm: str,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    C: float = 1.0,
    k: float = 0.1,
) -> Tensor:
    """The norm with a name of row_norm_names; ``include/planish/norm.h`` has the equations.

    x is [..., *normalized_shape]; weight and bias have shape normalized_shape, and norms without
    gain and bias take none. C and k are AdaNorm's; other norms ignore them.

    >>> row_norm(torch.tensor([[1.0, 3.0]]), [2], "ada", eps=0.0)
    tensor([[-1.1000,  0.9000]])
    """
    return _row_norm(  # type: ignore[no-any-return]
        x, normalized_shape, norm, weight, bias, eps, C, k
    )


def layer_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    weight_offset: float = 0.0,
    gate: Tensor | None = None,
    norm_before_gate: bool = True,
    cast_before_weight: bool = False,
) -> Tensor:
    """LayerNorm (Ba, Eq. 3): ``weight * (x - mean) / sqrt(var + eps) + bias``, var biased.

    x is [..., *normalized_shape]; weight and bias have shape normalized_shape. weight_offset is
    added to the weight, and gate, norm_before_gate and cast_before_weight are those of ``rms_norm``.

    >>> layer_norm(torch.tensor([[1.0, 3.0]]), [2], eps=0.0)
    tensor([[-1.,  1.]])
    """
    if weight_offset != 0:
        weight = with_offset("layer_norm", x, weight, weight_offset)
    if gate is not None or cast_before_weight:
        return _gated_layer_norm(  # type: ignore[no-any-return]
            x, gate, normalized_shape, weight, bias, eps, norm_before_gate, cast_before_weight
        )
    if isinstance(weight, Tensor) and weight.shape == normalized_shape:
        if is_dynamo_compiling():
            return _affine_layer_norm(x, weight, bias, eps)  # type: ignore[no-any-return]
        return _affine_layer_norm_op(x, weight, bias, eps)  # type: ignore[no-any-return]
    return _layer_norm(x, normalized_shape, weight, bias, eps)  # type: ignore[no-any-return]


def rms_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    *,
    weight_offset: float = 0.0,
    gate: Tensor | None = None,
    norm_before_gate: bool = True,
    cast_before_weight: bool = False,
) -> Tensor:
    """RMSNorm (Zhang & Sennrich 2019): ``weight * x / sqrt(mean(x^2) + eps)``.

    x is [..., *normalized_shape]; weight has shape normalized_shape. With ``eps=None``, eps is
    ``torch.finfo(type).eps`` of the arithmetic's type (float32 for 16 bits), as in PyTorch.
    weight_offset is added to the weight without rounding to 16 bits: 1 for weights around 0, as in
    Gemma and Qwen3-Next (``1 + w``), or Transformer Engine's ``zero_centered_gamma``.

    gate has x's shape and type. It multiplies by ``silu(gate) = gate / (1 + exp(-gate))`` in the
    same pass over memory::

        y = rms_norm(x) * silu(gate)    with norm_before_gate (gated DeltaNet, Qwen3-Next)
        y = rms_norm(x * silu(gate))    without (Mamba-2)

    All arithmetic is in float32 and 16-bit types are rounded once, at the end. cast_before_weight
    rounds as Llama, T5 and Mamba-2 do in ``transformers``: the normalized x to x's type, before the
    product with the weight; then, with norm_before_gate, the product before the gate, as in
    Qwen3-Next. Gradients are those without this rounding.

    >>> rms_norm(torch.tensor([[1.0, 7.0]]), [2], eps=0.0)
    tensor([[0.2000, 1.4000]])
    >>> rms_norm(torch.tensor([[1.0, 7.0]]), [2], torch.tensor([4.0, 0.0]), 0.0, weight_offset=1)
    tensor([[1.0000, 1.4000]])
    >>> rms_norm(torch.tensor([[1.0, 7.0]]), [2], eps=0.0, gate=torch.tensor([[0.0, 50.0]]))
    tensor([[ 0., 70.]])
    """
    if weight_offset != 0:
        weight = with_offset("rms_norm", x, weight, weight_offset)
    if gate is not None or cast_before_weight:
        return _gated_rms_norm(  # type: ignore[no-any-return]
            x, gate, normalized_shape, weight, eps, norm_before_gate, cast_before_weight
        )
    if isinstance(weight, Tensor) and weight.shape == normalized_shape:
        call = _affine_rms_norm if is_dynamo_compiling() else _affine_rms_norm_op
        return call(x, weight, eps)  # type: ignore[no-any-return]
    return _rms_norm(x, normalized_shape, weight, eps)  # type: ignore[no-any-return]


def layer_norm_simple(x: Tensor, normalized_shape: Sequence[int], eps: float = 1e-5) -> Tensor:
    """LayerNorm-simple (Xu, section 3.1): LayerNorm without weight and bias.

    >>> layer_norm_simple(torch.tensor([[1.0, 3.0]]), [2], eps=0.0)
    tensor([[-1.,  1.]])
    """
    return _layer_norm_simple(x, normalized_shape, eps)  # type: ignore[no-any-return]


def detach_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    mean: bool = True,
    std: bool = True,
    eps: float = 1e-5,
) -> Tensor:
    """DetachNorm (Xu, Eq. 4): LayerNorm-simple whose statistics are constants in backward.

    mean and std say which of the mean and the standard deviation are constants (Xu, Table 3 tests
    each separately). With both False this is LayerNorm-simple.

    >>> x = torch.tensor([[1.0, 3.0]], requires_grad=True)
    >>> detach_norm(x, [2], eps=0.0).backward(torch.tensor([[5.0, 5.0]]))
    >>> x.grad
    tensor([[5., 5.]])
    """
    return _detach_norm(x, normalized_shape, mean, std, eps)  # type: ignore[no-any-return]


def ada_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    C: float = 1.0,
    k: float = 0.1,
    as_coded: bool = False,
    eps: float = 1e-5,
) -> Tensor:
    """AdaNorm (Xu, Eq. 9): ``C * (1 - k * xhat) * xhat``; the factor is a constant in backward.

    Here xhat is the output of LayerNorm-simple. With ``as_coded``, it is that of the authors' code,
    ``(x - mean) / (std + eps)`` with the unbiased deviation; rows must have at least 2 elements.

    >>> ada_norm(torch.tensor([[1.0, 3.0]]), [2], eps=0.0)
    tensor([[-1.1000,  0.9000]])
    """
    return _ada_norm(x, normalized_shape, C, k, as_coded, eps)  # type: ignore[no-any-return]


def add_layer_norm(
    x: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """Returns ``(layer_norm(sum), sum)`` with ``sum = x + residual``, in one pass over memory.

    x and residual are [..., *normalized_shape]. A pre-norm Transformer needs both: the normalized
    sum for its next block, and the sum as the next residual.

    >>> y, s = add_layer_norm(torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 2.0]]), [2], eps=0.0)
    >>> y, s
    (tensor([[-1.,  1.]]), tensor([[1., 3.]]))
    """
    return _add_layer_norm(  # type: ignore[no-any-return]
        x, residual, normalized_shape, weight, bias, eps
    )


def add_rms_norm(
    x: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns ``(rms_norm(sum), sum)`` with ``sum = x + residual``, in one pass over memory.

    >>> y, s = add_rms_norm(torch.tensor([[0.0, 5.0]]), torch.tensor([[1.0, 2.0]]), [2], eps=0.0)
    >>> y, s
    (tensor([[0.2000, 1.4000]]), tensor([[1., 7.]]))
    """
    return _add_rms_norm(x, residual, normalized_shape, weight, eps)  # type: ignore[no-any-return]


def dropout_add_layer_norm(
    x: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    p: float = 0.5,
    training: bool = True,
    eps: float = 1e-5,
    *,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns ``(layer_norm(sum), sum)`` with ``sum = dropout(x) + residual``.

    Takes one pass over memory on the CPU. Without ``training`` or with p = 0 this is
    ``add_layer_norm``. Dropout keeps an element with the probability 1 - p, rounded to a multiple
    of 2^-16, and divides it by that. The mask depends on a seed, which is drawn from ``generator``
    or the global one, and on the element's position. It is repeated in backward, not stored.

    x and residual are [..., *normalized_shape], weight and bias normalized_shape. Cases of
    ``torch.vmap`` have the same mask, so it needs ``randomness="same"``.

    >>> x, residual = torch.ones(2, 4), torch.zeros(2, 4)
    >>> y, s = dropout_add_layer_norm(x, residual, [4], p=0.5)
    >>> set(s.flatten().tolist()) <= {0.0, 2.0}
    True
    """
    if not training or p == 0:
        return add_layer_norm(x, residual, normalized_shape, weight, bias, eps)
    return _dropout_add_layer_norm(  # type: ignore[no-any-return]
        x, residual, normalized_shape, weight, bias, _dropout_seed(generator), p, eps
    )


def dropout_add_rms_norm(
    x: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    p: float = 0.5,
    training: bool = True,
    eps: float | None = None,
    *,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns ``(rms_norm(sum), sum)`` with ``sum = dropout(x) + residual``.

    See ``dropout_add_layer_norm``.

    >>> y, s = dropout_add_rms_norm(torch.ones(2, 4), torch.zeros(2, 4), [4], p=0.5)
    >>> set(s.flatten().tolist()) <= {0.0, 2.0}
    True
    """
    if not training or p == 0:
        return add_rms_norm(x, residual, normalized_shape, weight, eps)
    return _dropout_add_rms_norm(  # type: ignore[no-any-return]
        x, residual, normalized_shape, weight, _dropout_seed(generator), p, eps
    )


def _dropout_seed(generator: torch.Generator | None) -> Tensor:
    """Returns a new seed, drawn on the CPU."""
    return torch.randint(torch.iinfo(torch.int64).max, (), generator=generator, device="cpu")


def quantized_layer_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    weight_offset: float = 0.0,
    gate: Tensor | None = None,
    norm_before_gate: bool = True,
    cast_before_weight: bool = False,
) -> tuple[Tensor, Tensor]:
    """Returns ``layer_norm(x)`` quantized to int8, and its scales, in one pass over memory.

    For y = ``layer_norm(x)`` each row, which spans normalized_shape, has a symmetric scale::

        scale = max(|y|) / 127
        quantized = round(y * (127 / max(|y|)))

    quantized is int8 in x's shape, in [-127, 127]; ties round to even. scale is float32, or float64
    for float64, and its sizes along normalized_shape are 1. So ``quantized * scale`` is y up to
    scale / 2. y is not rounded to x's type before. If y has a NaN or infinite element, scale is NaN
    and quantized is 0; below 128 times the least normal number both are 0.

    Arguments are those of ``layer_norm``. The outputs have no gradients.

    >>> quantized_layer_norm(torch.tensor([[1.0, 3.0]]), [2], torch.tensor([254.0, 127.0]), eps=0.0)
    (tensor([[-127,   64]], dtype=torch.int8), tensor([[2.]]))
    """
    if weight_offset != 0:
        weight = with_offset("quantized_layer_norm", x, weight, weight_offset)
    options = (gate, norm_before_gate, cast_before_weight)
    return _quantized_layer_norm(  # type: ignore[no-any-return]
        x, normalized_shape, weight, bias, eps, *options
    )


def quantized_rms_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    *,
    weight_offset: float = 0.0,
    gate: Tensor | None = None,
    norm_before_gate: bool = True,
    cast_before_weight: bool = False,
) -> tuple[Tensor, Tensor]:
    """Returns ``rms_norm(x)`` quantized to int8, and its scales: see ``quantized_layer_norm``.

    >>> quantized_rms_norm(torch.tensor([[1.0, 7.0]]), [2], torch.tensor([635.0, 0.0]), 0.0)
    (tensor([[127,   0]], dtype=torch.int8), tensor([[1.]]))
    """
    if weight_offset != 0:
        weight = with_offset("quantized_rms_norm", x, weight, weight_offset)
    options = (gate, norm_before_gate, cast_before_weight)
    return _quantized_rms_norm(  # type: ignore[no-any-return]
        x, normalized_shape, weight, eps, *options
    )


def add_quantized_layer_norm(
    x: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns ``(*quantized_layer_norm(sum), sum)`` with ``sum = x + residual``.

    Arguments are those of ``add_layer_norm``. Only the sum has gradients.

    >>> x, residual = torch.tensor([[1.0, 1.0]]), torch.tensor([[0.0, 2.0]])
    >>> add_quantized_layer_norm(x, residual, [2], torch.tensor([127.0, 0.0]), eps=0.0)
    (tensor([[-127,    0]], dtype=torch.int8), tensor([[1.]]), tensor([[1., 3.]]))
    """
    return _add_quantized_layer_norm(  # type: ignore[no-any-return]
        x, residual, normalized_shape, weight, bias, eps
    )


def add_quantized_rms_norm(
    x: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns ``(*quantized_rms_norm(sum), sum)`` with ``sum = x + residual``.

    Arguments are those of ``add_rms_norm``. Only the sum has gradients.

    >>> x, residual = torch.tensor([[1.0, 3.0]]), torch.tensor([[0.0, 4.0]])
    >>> add_quantized_rms_norm(x, residual, [2], torch.tensor([635.0, 0.0]), 0.0)
    (tensor([[127,   0]], dtype=torch.int8), tensor([[1.]]), tensor([[1., 7.]]))
    """
    return _add_quantized_rms_norm(  # type: ignore[no-any-return]
        x, residual, normalized_shape, weight, eps
    )


def channel_layer_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """LayerNorm over the channels C of x [N, C, ...], separately at each position.

    weight and bias are [C]. Equals ``layer_norm`` of x [N, ..., C], without a permuted copy.

    >>> channel_layer_norm(torch.tensor([[[1.0, 5.0], [3.0, 5.5]]]), eps=0.0)
    tensor([[[-1., -1.],
             [ 1.,  1.]]])
    """
    return _channel_layer_norm(x, weight, bias, eps)  # type: ignore[no-any-return]


def batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float = 0.1,
    eps: float = 1e-5,
    unbiased: bool = False,
) -> Tensor:
    """BatchNorm (Ioffe & Szegedy 2015; Ba, Eq. 2) of x [N, C, ...], normalized by channel.

    In training, uses the statistics of this batch, and updates running_mean and running_var [C], if
    given, in place: ``running = (1 - momentum) * running + momentum * batch``. In evaluation, uses
    running_mean and running_var. unbiased normalizes by the unbiased variance in training (for
    small batches: Ba, section 6.6).

    >>> batch_norm(torch.tensor([[1.0], [3.0]]), None, None, None, None, True, eps=0.0)
    tensor([[-1.],
            [ 1.]])
    """
    return _batch_norm(  # type: ignore[no-any-return]
        x, weight, bias, running_mean, running_var, training, momentum, eps, unbiased
    )


def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """GroupNorm (Wu & He 2018) of x [N, C, ...]: ``torch.nn.functional.group_norm``.

    Each of num_groups groups of adjacent channels of a sample is normalized by its own mean and
    biased variance. num_groups divides C; weight and bias are [C].

    >>> group_norm(torch.tensor([[1.0, 3.0, 10.0, 30.0]]), 2, eps=0.0)
    tensor([[-1.,  1., -1.,  1.]])
    """
    return _group_norm(x, num_groups, weight, bias, eps)  # type: ignore[no-any-return]


def instance_norm(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """InstanceNorm (Ulyanov et al. 2016) of x [N, C, ...]: ``torch.nn.functional.instance_norm``.

    Each channel of a sample is normalized by its own mean and biased variance, of at least 2 spatial
    elements. Running estimates [C] that are given are updated by the means of the statistics over
    the samples. With use_input_stats=False, x is normalized by the running estimates.

    >>> instance_norm(torch.tensor([[[1.0, 3.0], [10.0, 30.0]]]), eps=0.0)
    tensor([[[-1.,  1.],
             [-1.,  1.]]])
    """
    return _instance_norm(  # type: ignore[no-any-return]
        x, weight, bias, running_mean, running_var, use_input_stats, momentum, eps
    )


def online_layer_norm(
    x: Tensor,
    state: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    alpha: float = 0.1,
    schedule: str = "constant",
) -> tuple[Tensor, Tensor]:
    """Online LayerNorm (T. Breloff's post of 2016) of x [..., D], whose rows are cases in order.

    Returns y and the state after the last case::

        mu_t    = alpha_t * mean(x) + (1 - alpha_t) * mu
        s       = sqrt(sum((x - mu_t)^2) / (D - 1))
        sigma_t = alpha_t * s + (1 - alpha_t) * sigma
        y       = weight * (x - mu_t) / sigma_t + bias

    state is (mu, sigma), float64 [2], initially (0, 1). The state before a case is a constant in
    backward. 0 < alpha <= 1; D is at least 2.

    schedule gives alpha_t of case t = 1, 2, ...: "constant" is alpha, "inverse" 1/t, "warmup"
    max(alpha, 1/t). With the last two state is (mu, sigma, number of earlier cases), float64 [3],
    initially (0, 1, 0).

    >>> start = torch.tensor([0.0, 1.0], dtype=torch.float64)
    >>> y, state = online_layer_norm(torch.tensor([[2.0, 4.0]]), start, alpha=0.5)
    >>> [round(value, 6) for value in state.tolist()]
    [1.5, 1.774755]
    """
    return _online_layer_norm(  # type: ignore[no-any-return]
        x, state, weight, bias, alpha, schedule
    )


def dyt(
    x: Tensor,
    normalized_shape: Sequence[int],
    alpha: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """DyT (Zhu et al. 2025, "Transformers without Normalization"), a function in place of a norm:
    ``weight * tanh(alpha * x) + bias``.

    x is [..., *normalized_shape]; alpha has one element, weight and bias have normalized_shape.

    >>> dyt(torch.tensor([[-1.0, 0.0, 8.0]]), [3], torch.tensor([0.5]))
    tensor([[-0.4621,  0.0000,  0.9993]])
    """
    return _dyt(x, normalized_shape, alpha, weight, bias)  # type: ignore[no-any-return]


def derf(
    x: Tensor,
    normalized_shape: Sequence[int],
    alpha: Tensor,
    shift: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Derf (Chen et al. 2025, "Stronger Normalization-Free Transformers"), a function in place of a
    norm: ``weight * erf(alpha * x + shift) + bias``.

    x is [..., *normalized_shape]; alpha and shift have one element, weight and bias have
    normalized_shape.

    >>> derf(torch.tensor([[-1.0, 0.0, 8.0]]), [3], torch.tensor([0.5]), torch.tensor([0.5]))
    tensor([[0.0000, 0.5205, 1.0000]])
    """
    return _derf(x, normalized_shape, alpha, shift, weight, bias)  # type: ignore[no-any-return]


def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """WeightNorm (Salimans & Kingma 2016; Ba, Eq. 5): ``w = g * v / ||v||``.

    There is one norm for each slice of v along ``dim``, or one norm of all of v with ``dim=-1``.
    The shape of g is that of v with 1 in all other dimensions. If a norm is zero, the result is NaN.

    >>> weight_norm(torch.tensor([[3.0, 4.0]]), torch.tensor([[10.0]]))
    tensor([[6., 8.]])
    """
    return _weight_norm(v, g, dim)  # type: ignore[no-any-return]
