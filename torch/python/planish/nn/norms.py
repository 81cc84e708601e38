"""Norms as modules. Those that ``torch.nn`` has, too, share its constructor and state dict."""

import math
import numbers
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling
from torch.nn.utils import parametrize

from planish._checks import check_eps, check_finite, check_offset, with_offset
from planish._operators import (
    _ada_norm,
    _affine_layer_norm,
    _affine_layer_norm_op,
    _affine_rms_norm,
    _affine_rms_norm_op,
    _batch_norm,
    _channel_layer_norm,
    _detach_norm,
    _gated_layer_norm,
    _gated_rms_norm,
    _layer_norm,
    _layer_norm_simple,
    _online_alphas,
    _online_layer_norm,
    _quantized_layer_norm,
    _quantized_rms_norm,
    _rms_norm,
    _row_norm,
    _row_norm_names,
    _row_norm_recipe,
    _weight_norm,
)
from planish.nn._recomputation import next_state, start_state
from planish.nn._tracing import leaf

__all__ = [
    "AdaNorm",
    "BatchNorm1d",
    "BatchNorm2d",
    "DetachNorm",
    "LayerNorm",
    "LayerNorm1d",
    "LayerNorm2d",
    "LayerNormSimple",
    "OnlineLayerNorm",
    "RMSNorm",
    "RecurrentBatchNorm",
    "RowNorm",
    "WeightNorm",
    "weight_norm",
]


def _check_shape(name: str, normalized_shape: Any) -> tuple[int, ...]:
    several = isinstance(normalized_shape, Iterable)
    sizes: tuple[Any, ...] = tuple(normalized_shape) if several else (normalized_shape,)
    if not sizes or any(not isinstance(size, numbers.Integral) or size < 0 for size in sizes):
        raise ValueError(
            f"[{name}] normalized_shape must be one or more sizes, each at least 0, "
            f"got {normalized_shape}"
        )
    return sizes


class RowNormRecipe(NamedTuple):
    """The properties of a norm in the core's table (``src/norm/recipe.h``)."""

    affine: bool  # y = gain * xhat + bias
    centered: bool  # the mean is subtracted
    adaptive: bool  # y = C * (1 - k * xhat) * xhat
    unbiased: bool  # xhat = (x - mean) / (std + eps), with the unbiased deviation

    @staticmethod
    def of(norm: str) -> "RowNormRecipe":
        return RowNormRecipe(*_row_norm_recipe(norm))


def _check_count(name: str, argument: str, count: int, minimum: int) -> int:
    if not isinstance(count, numbers.Integral) or count < minimum:
        raise ValueError(f"[{name}] {argument} must be at least {minimum}, got {count}")
    return count


def _check_unbiased(name: str, normalized_shape: int | Sequence[int], norm: str) -> None:
    if math.prod(_check_shape(name, normalized_shape)) < 2:
        raise ValueError(
            f"[{name}] normalized_shape must have at least 2 elements with {norm}, "
            f"got {normalized_shape}"
        )


class RowNorm(nn.Module):
    """The norm with a name of ``planish.functional.row_norm_names()``: "layer", "detach_mean" ...

    ``include/planish/norm.h`` has the equations. C and k are AdaNorm's; other norms ignore them.
    elementwise_affine=False leaves weight and bias out; norms without gain and bias have none. By
    default norms that subtract the mean have a bias, as in ``torch.nn``.

    Shape: x [..., *normalized_shape], y the same. State dict: weight and bias, if the norm has them.

    >>> RowNorm(4, "rms")
    RowNorm((4,), norm='rms', eps=1e-05, weight=True, bias=False)
    """

    normalized_shape: tuple[int, ...]
    norm: str
    eps: float
    C: float
    k: float
    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        norm: str,
        eps: float = 1e-5,
        C: float = 1.0,
        k: float = 0.1,
        elementwise_affine: bool = True,
        bias: bool | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.normalized_shape = _check_shape(name, normalized_shape)
        names = _row_norm_names()
        if norm not in names:
            raise ValueError(f"[{name}] norm must be one of {', '.join(names)}, got {norm}")
        self.norm = norm
        self.eps = check_eps(name, eps)
        self.C = check_finite(name, "C", C)
        self.k = check_finite(name, "k", k)
        recipe = RowNormRecipe.of(norm)
        if recipe.unbiased:
            _check_unbiased(name, normalized_shape, norm)
        has_weight = elementwise_affine and recipe.affine
        has_bias = has_weight and (recipe.centered if bias is None else bias)

        def parameter(exists: bool, value: float) -> nn.Parameter | None:
            if not exists:
                return None
            return nn.Parameter(
                torch.full(self.normalized_shape, value, device=device, dtype=dtype)
            )

        self.register_parameter("weight", parameter(has_weight, 1.0))
        self.register_parameter("bias", parameter(has_bias, 0.0))

    def reset_parameters(self) -> None:
        if self.weight is not None:
            nn.init.ones_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return _row_norm(  # type: ignore[no-any-return]
            x, self.normalized_shape, self.norm, self.weight, self.bias, self.eps, self.C, self.k
        )

    def extra_repr(self) -> str:
        ada = f", C={self.C}, k={self.k}" if RowNormRecipe.of(self.norm).adaptive else ""
        return (
            f"{self.normalized_shape}, norm={self.norm!r}, eps={self.eps}{ada}, "
            f"weight={self.weight is not None}, bias={self.bias is not None}"
        )


class _WithOptions(nn.Module):
    """Mixin that adds options and a gate to torch.nn.LayerNorm and torch.nn.RMSNorm."""

    # Class attributes, so that modules pickled by an earlier version have these defaults.
    weight_offset: float = 0.0
    groups: int = 1
    norm_before_gate: bool = True
    cast_before_weight: bool = False
    normalized_shape: tuple[int, ...]

    @property
    def _group_size(self) -> int:
        return self.normalized_shape[0] // self.groups

    @property
    def _gate_options(self) -> tuple[bool, bool]:
        return self.norm_before_gate, self.cast_before_weight

    def _split(self, x: Tensor, *parameters: Tensor | None) -> list[Tensor | None]:
        """Returns x [..., C] and parameters [C] as [..., groups, C / groups]."""
        tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        if not (tracing or isinstance(x, torch.fx.Proxy)):
            if x.is_nested and x.layout == torch.strided:
                raise ValueError(
                    f"[{type(self).__name__}] x must be a dense tensor or a nested tensor with "
                    "layout=torch.jagged, got a nested tensor with layout=torch.strided"
                )
            if x.dim() == 0 or x.shape[-1:] != torch.Size(self.normalized_shape):
                raise ValueError(
                    f"[{type(self).__name__}] x must be [..., {self.normalized_shape[0]}], "
                    f"got {list(x.shape)}"
                )
        sizes = (self.groups, self._group_size)
        return [
            None if t is None else t.unflatten(-1, sizes)  # type: ignore[no-untyped-call]
            for t in (x, *parameters)
        ]

    def _check_gate(self, x: Tensor, gate: Tensor | None) -> None:
        """Checks the gate before x and gate are split into groups."""
        if gate is not None and not isinstance(x, torch.fx.Proxy) and gate.shape != x.shape:
            raise ValueError(
                f"[{type(self).__name__}] gate must have x's sizes, {list(x.shape)}, "
                f"got {list(gate.shape)}"
            )

    def reset_parameters(self) -> None:
        super().reset_parameters()  # type: ignore[misc]
        if self.weight_offset != 0:
            nn.init.constant_(self.weight, 1 - self.weight_offset)  # type: ignore[arg-type]

    def extra_repr(self) -> str:
        offset = f", weight_offset={self.weight_offset}" if self.weight_offset != 0 else ""
        groups = f", groups={self.groups}" if self.groups != 1 else ""
        before = "" if self.norm_before_gate else ", norm_before_gate=False"
        cast = ", cast_before_weight=True" if self.cast_before_weight else ""
        return super().extra_repr() + offset + groups + before + cast


def _check_groups(name: str, groups: int, normalized_shape: tuple[int, ...]) -> int:
    _check_count(name, "groups", groups, 1)
    if groups > 1 and len(normalized_shape) != 1:
        raise ValueError(
            f"[{name}] normalized_shape must be one size with {groups} groups, "
            f"got {list(normalized_shape)}"
        )
    if normalized_shape[-1] % groups != 0:
        raise ValueError(
            f"[{name}] groups must divide normalized_shape, {normalized_shape[-1]}, got {groups}"
        )
    return groups


class LayerNorm(_WithOptions, nn.LayerNorm):
    """``torch.nn.LayerNorm`` on Planish's kernels (Ba, Kiros & Hinton 2016, Eq. 3).

    ``y = weight * (x - mean) / sqrt(var + eps) + bias`` over the last dimensions of x, which must
    equal normalized_shape, with the biased variance. Arguments, parameters and state dict are those
    of ``torch.nn.LayerNorm``, the base class. The other options and the gate are those of
    ``RMSNorm``.

    Shape: x [..., *normalized_shape], y and gate the same.

    >>> norm = LayerNorm(4)
    >>> norm.load_state_dict(torch.nn.LayerNorm(4).state_dict())
    <All keys matched successfully>
    >>> norm(torch.tensor([1.0, 1.0, 3.0, 3.0])).detach().round(decimals=2)
    tensor([-1., -1.,  1.,  1.])
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        weight_offset: float = 0.0,
        groups: int = 1,
        norm_before_gate: bool = True,
        cast_before_weight: bool = False,
    ) -> None:
        name = type(self).__name__
        self.weight_offset = check_offset(name, weight_offset, elementwise_affine)
        shape = _check_shape(name, normalized_shape)
        self.groups = _check_groups(name, groups, shape)
        self.norm_before_gate = bool(norm_before_gate)
        self.cast_before_weight = bool(cast_before_weight)
        super().__init__(
            list(shape),
            check_eps(name, eps),
            elementwise_affine,
            bias,
            device,
            dtype,
        )

    def forward(self, input: Tensor, gate: Tensor | None = None) -> Tensor:
        weight: Tensor | None = self.weight
        if self.weight_offset != 0:
            weight = with_offset(type(self).__name__, input, weight, self.weight_offset)
        if gate is not None or self.cast_before_weight:
            return self._gated(input, gate, weight)
        if self.groups != 1:
            x, weight, bias = self._split(input, weight, self.bias)
            y: Tensor = _layer_norm(x, (self._group_size,), weight, bias, self.eps)
            return y.flatten(-2)
        if weight is None:
            y = _layer_norm(input, self.normalized_shape, None, None, self.eps)
            return y
        bias, eps = self.bias, self.eps
        if is_dynamo_compiling():
            return _affine_layer_norm(input, weight, bias, eps)  # type: ignore[no-any-return]
        return _affine_layer_norm_op(input, weight, bias, eps)  # type: ignore[no-any-return]

    def _gated(self, x: Tensor | None, gate: Tensor | None, weight: Tensor | None) -> Tensor:
        shape, bias = self.normalized_shape, self.bias
        options = (self.eps, *self._gate_options)
        if self.groups == 1:
            y: Tensor = _gated_layer_norm(x, gate, shape, weight, bias, *options)
            return y
        self._check_gate(x, gate)  # type: ignore[arg-type]
        x, gate, weight, bias = self._split(x, gate, weight, bias)  # type: ignore[arg-type, assignment]
        y = _gated_layer_norm(x, gate, (self._group_size,), weight, bias, *options)
        return y.flatten(-2)

    def quantized(self, x: Tensor, gate: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns forward(x, gate) quantized to int8, and the scale of each row, without gradients.

        ``planish.functional.quantized_layer_norm`` has the equation. The scales have size 1 along
        normalized_shape; with groups, [..., groups].
        """
        weight: Tensor | None = self.weight
        if self.weight_offset != 0:
            weight = with_offset(type(self).__name__, x, weight, self.weight_offset)
        if self.groups == 1:
            return _quantized_layer_norm(  # type: ignore[no-any-return]
                x, self.normalized_shape, weight, self.bias, self.eps, gate, *self._gate_options
            )
        self._check_gate(x, gate)
        parts, gate, weight, bias = self._split(x, gate, weight, self.bias)
        q, scale = _quantized_layer_norm(
            parts, (self._group_size,), weight, bias, self.eps, gate, *self._gate_options
        )
        return q.flatten(-2), scale.squeeze(-1)


class RMSNorm(_WithOptions, nn.RMSNorm):
    """``torch.nn.RMSNorm`` on Planish's kernels (Zhang & Sennrich 2019).

    ``y = weight * x / sqrt(mean(x^2) + eps)`` over the last dimensions of x, which must equal
    normalized_shape. With ``eps=None``, eps is ``torch.finfo(type).eps`` of the arithmetic's type
    (float32 for 16 bits). Arguments, parameters and state dict are those of ``torch.nn.RMSNorm``,
    the base class.

    weight_offset is added to the weight, without rounding to 16 bits, and the weight starts at 1 -
    weight_offset. Gemma, Qwen3-Next and Transformer Engine's ``zero_centered_gamma`` have 1.

    groups divides the elements of a row into this many groups, each normalized by itself, as in
    the norms of Mamba-2, and in those of the heads of xLSTM and RWKV. normalized_shape is then one
    size.

    ``forward(x, gate)`` multiplies by ``silu(gate)`` in the same pass: the output if
    norm_before_gate, as in Qwen3-Next, else x, as in Mamba-2. cast_before_weight rounds the
    normalized x to x's type before the product with weight, as Llama, T5, Qwen3-Next and Mamba-2 do
    in ``transformers``; ``planish.functional.rms_norm`` has the details of both.

    Shape: x [..., *normalized_shape], y and gate the same.

    >>> RMSNorm(4)
    RMSNorm((4,), eps=None, elementwise_affine=True)
    >>> RMSNorm(2, weight_offset=1.0).weight
    Parameter containing:
    tensor([0., 0.], requires_grad=True)
    >>> RMSNorm(4, eps=0.0, groups=2)(torch.tensor([1.0, 7.0, 10.0, 70.0])).detach()
    tensor([0.2000, 1.4000, 0.2000, 1.4000])
    >>> RMSNorm(2, eps=0.0)(torch.tensor([1.0, 7.0]), torch.tensor([0.0, 50.0])).detach()
    tensor([ 0., 70.])
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        weight_offset: float = 0.0,
        groups: int = 1,
        norm_before_gate: bool = True,
        cast_before_weight: bool = False,
    ) -> None:
        name = type(self).__name__
        self.weight_offset = check_offset(name, weight_offset, elementwise_affine)
        shape = _check_shape(name, normalized_shape)
        self.groups = _check_groups(name, groups, shape)
        self.norm_before_gate = bool(norm_before_gate)
        self.cast_before_weight = bool(cast_before_weight)
        super().__init__(
            list(shape),
            None if eps is None else check_eps(name, eps),
            elementwise_affine,
            device,
            dtype,
        )

    def forward(self, x: Tensor, gate: Tensor | None = None) -> Tensor:
        weight: Tensor | None = self.weight
        if self.weight_offset != 0:
            weight = with_offset(type(self).__name__, x, weight, self.weight_offset)
        if gate is not None or self.cast_before_weight:
            return self._gated(x, gate, weight)
        if self.groups != 1:
            parts, weight = self._split(x, weight)
            y: Tensor = _rms_norm(parts, (self._group_size,), weight, self.eps)
            return y.flatten(-2)
        if weight is None:
            y = _rms_norm(x, self.normalized_shape, None, self.eps)
            return y
        call = _affine_rms_norm if is_dynamo_compiling() else _affine_rms_norm_op
        return call(x, weight, self.eps)  # type: ignore[no-any-return]

    def _gated(self, x: Tensor | None, gate: Tensor | None, weight: Tensor | None) -> Tensor:
        options = (self.eps, *self._gate_options)
        if self.groups == 1:
            y: Tensor = _gated_rms_norm(x, gate, self.normalized_shape, weight, *options)
            return y
        self._check_gate(x, gate)  # type: ignore[arg-type]
        x, gate, weight = self._split(x, gate, weight)  # type: ignore[arg-type]
        y = _gated_rms_norm(x, gate, (self._group_size,), weight, *options)
        return y.flatten(-2)

    def quantized(self, x: Tensor, gate: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns forward(x, gate) quantized to int8, and the scale of each row, without gradients.

        ``planish.functional.quantized_layer_norm`` has the equation. The scales have size 1 along
        normalized_shape; with groups, [..., groups].

        >>> RMSNorm(2, eps=0.0).quantized(torch.tensor([1.0, 7.0]))
        (tensor([ 18, 127], dtype=torch.int8), tensor([0.0110]))
        """
        weight: Tensor | None = self.weight
        if self.weight_offset != 0:
            weight = with_offset(type(self).__name__, x, weight, self.weight_offset)
        if self.groups == 1:
            return _quantized_rms_norm(  # type: ignore[no-any-return]
                x, self.normalized_shape, weight, self.eps, gate, *self._gate_options
            )
        self._check_gate(x, gate)
        parts, gate, weight = self._split(x, gate, weight)
        q, scale = _quantized_rms_norm(
            parts, (self._group_size,), weight, self.eps, gate, *self._gate_options
        )
        return q.flatten(-2), scale.squeeze(-1)


class LayerNormSimple(nn.Module):
    """LayerNorm-simple (Xu et al. 2019, section 3.1): LayerNorm without weight and bias.

    Shape: x [..., *normalized_shape], y the same. The state dict is empty.

    >>> LayerNormSimple(4)
    LayerNormSimple((4,), eps=1e-05)
    """

    normalized_shape: tuple[int, ...]
    eps: float

    def __init__(self, normalized_shape: int | Sequence[int], eps: float = 1e-5) -> None:
        super().__init__()
        name = type(self).__name__
        self.normalized_shape = _check_shape(name, normalized_shape)
        self.eps = check_eps(name, eps)

    def forward(self, x: Tensor) -> Tensor:
        return _layer_norm_simple(x, self.normalized_shape, self.eps)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}"


class DetachNorm(nn.Module):
    """DetachNorm (Xu et al. 2019, Eq. 4): LayerNorm-simple with ``dx = rstd * dy`` in backward.

    mean and std say which of the mean and the standard deviation are constants in backward. Xu,
    Table 3 tests each separately, std under the name "detach variance". With both False this is
    LayerNorm-simple.

    Shape: x [..., *normalized_shape], y the same. The state dict is empty.

    >>> DetachNorm(4, mean=False)
    DetachNorm((4,), mean=False, std=True, eps=1e-05)
    """

    normalized_shape: tuple[int, ...]
    mean: bool
    std: bool
    eps: float

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        mean: bool = True,
        std: bool = True,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.normalized_shape = _check_shape(name, normalized_shape)
        self.mean = bool(mean)
        self.std = bool(std)
        self.eps = check_eps(name, eps)

    def forward(self, x: Tensor) -> Tensor:
        return _detach_norm(  # type: ignore[no-any-return]
            x, self.normalized_shape, self.mean, self.std, self.eps
        )

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, mean={self.mean}, std={self.std}, eps={self.eps}"


class AdaNorm(nn.Module):
    """AdaNorm (Xu et al. 2019, Eq. 9): ``y = C * (1 - k * xhat) * xhat``.

    Here xhat is the output of LayerNorm-simple. The factor before the last xhat is a constant in
    backward. With ``as_coded``, xhat is that of the authors' code, ``(x - mean) / (std + eps)``
    with the unbiased deviation; rows must have at least 2 elements. The paper sets k = 1/10 and
    tunes C.

    Shape: x [..., *normalized_shape], y the same. The state dict is empty.

    >>> AdaNorm(4, C=2.0)
    AdaNorm((4,), C=2.0, k=0.1, as_coded=False, eps=1e-05)
    """

    normalized_shape: tuple[int, ...]
    C: float
    k: float
    as_coded: bool
    eps: float

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        C: float = 1.0,
        k: float = 0.1,
        as_coded: bool = False,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.normalized_shape = _check_shape(name, normalized_shape)
        self.C = check_finite(name, "C", C)
        self.k = check_finite(name, "k", k)
        self.as_coded = bool(as_coded)
        self.eps = check_eps(name, eps)
        if self.as_coded:
            _check_unbiased(name, normalized_shape, "as_coded")

    def forward(self, x: Tensor) -> Tensor:
        return _ada_norm(  # type: ignore[no-any-return]
            x, self.normalized_shape, self.C, self.k, self.as_coded, self.eps
        )

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, C={self.C}, k={self.k}, as_coded={self.as_coded}, "
            f"eps={self.eps}"
        )


class _AffineNorm(nn.Module):
    """Base of norms that can have a weight and a bias with one element for each feature."""

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def _add_parameters(
        self, size: int, weight: bool, bias: bool, device: Any, dtype: Any
    ) -> None:
        for name, exists in (("weight", weight), ("bias", bias)):
            data = torch.empty(size, device=device, dtype=dtype)
            self.register_parameter(name, nn.Parameter(data) if exists else None)

    def reset_parameters(self) -> None:
        """Sets weight 1, bias 0."""
        if self.weight is not None:
            nn.init.ones_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


#: The schedules of OnlineLayerNorm, with the size of its state.
_STATE_SIZES = {"constant": 2, "inverse": 3, "warmup": 3}


class OnlineLayerNorm(_AffineNorm):
    """Online LayerNorm (T. Breloff, "Online Layer Normalization", 2016).

    The layer keeps a running mean mu and deviation sigma, initially 0 and 1. Each case x
    [num_features] first updates them and is then normalized by them::

        mu_t    = alpha_t * mean(x) + (1 - alpha_t) * mu
        s       = sqrt(sum((x - mu_t)^2) / (num_features - 1))
        sigma_t = alpha_t * s + (1 - alpha_t) * sigma
        y       = weight * (x - mu_t) / sigma_t + bias

    alpha is in (0, 1] and can be set between calls; 1 is LayerNorm with the unbiased deviation and
    no eps. No gradient passes to the state before a case. ``schedule`` gives alpha_t of case
    t = 1, 2, ...::

        "constant"  alpha
        "inverse"   1 / t, the average over all cases; alpha has no effect
        "warmup"    max(alpha, 1 / t)

    In training, the rows of x are cases in order, starting from the state after the last call, and
    the state is updated. In evaluation, the state stays as it is, and each row is normalized as if
    it were the next case. ``forward(x, advance=...)`` selects one of the two in either mode.

    ``torch.utils.checkpoint`` runs forward a second time. The second run starts from the same state
    as the first and does not update it. If that state is unknown, for example because two calls in
    one checkpointed region have the same input, forward raises RuntimeError.

    Shape: x [..., num_features], num_features at least 2, y the same. State dict: ``weight`` and
    ``bias`` [num_features], if affine; ``state`` [2], mu and sigma, which stays float64 if the
    module is cast. With the schedules "inverse" and "warmup" ``state`` is [3]: the last element is
    the number of cases so far, from which a loaded module continues.

    >>> norm = OnlineLayerNorm(4, alpha=0.5)
    >>> norm
    OnlineLayerNorm(4, alpha=0.5, affine=True, mu=0.0, sigma=1.0)
    >>> _ = norm(torch.tensor([[1.0, 1.0, 3.0, 3.0]]))
    >>> norm.mu
    1.0
    """

    num_features: int
    alpha: float
    affine: bool
    schedule: str
    state: Tensor

    def __init__(
        self,
        num_features: int,
        alpha: float = 0.1,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        schedule: str = "constant",
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.num_features = _check_count(name, "num_features", num_features, 2)
        if not 0 < alpha <= 1:
            raise ValueError(f"[{name}] alpha must be above 0 and at most 1, got {alpha}")
        if schedule not in _STATE_SIZES:
            raise ValueError(
                f"[{name}] schedule must be one of {', '.join(_STATE_SIZES)}, got {schedule}"
            )
        self.alpha = alpha
        self.affine = affine
        self.schedule = schedule
        self._add_parameters(num_features, affine, affine, device, dtype)
        state = torch.empty(_STATE_SIZES[schedule], device=device, dtype=torch.float64)
        self.register_buffer("state", state)
        self.reset_parameters()

    @property
    def mu(self) -> float:
        """The mean before the next case."""
        return float(self.state[0])

    @property
    def sigma(self) -> float:
        """The deviation before the next case."""
        return float(self.state[1])

    def reset_state(self) -> None:
        """Sets mu = 0, sigma = 1, and the number of cases to 0."""
        with torch.no_grad():
            self.state.zero_()
            self.state[1] = 1

    def reset_parameters(self) -> None:
        """Sets weight 1, bias 0, mu = 0 and sigma = 1."""
        self.reset_state()
        super().reset_parameters()

    @leaf
    def forward(self, x: Tensor, advance: bool | None = None) -> Tensor:
        """Returns y; updates the state if advance, which by default is ``self.training``."""
        if x.dim() < 1 or x.shape[-1] != self.num_features:
            raise ValueError(
                "[OnlineLayerNorm] x must have "
                f"{self.num_features} elements in its last dimension, "
                f"got {list(x.shape)}"
            )
        if self.training if advance is None else advance:
            y: Tensor
            start = start_state(self.state, x)
            y, after = _online_layer_norm(
                x, start, self.weight, self.bias, self.alpha, self.schedule
            )
            with torch.no_grad():
                self.state.copy_(next_state(self.state, after))
            return y
        return self._from_one_state(x)

    def _from_one_state(self, x: Tensor) -> Tensor:
        wide = x.double()  # the state is in double
        mu, sigma, *seen = self.state.unbind()
        alpha: float | Tensor = self.alpha
        if seen:
            alpha = _online_alphas(seen[0], 1, self.alpha, self.schedule)
        mu = alpha * wide.mean(-1, keepdim=True) + (1 - alpha) * mu
        centred = wide - mu
        s = (centred.square().sum(-1, keepdim=True) / (self.num_features - 1)).sqrt()
        y = centred / (alpha * s + (1 - alpha) * sigma)
        if self.weight is not None:
            y = y * self.weight
        if self.bias is not None:
            y = y + self.bias
        return y.to(x.dtype)

    def _apply(self, fn: Any, recurse: bool = True) -> "OnlineLayerNorm":
        before = self.state
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.state.dtype != torch.float64:  # the module was cast: restore the state's bits
            kept = self.state if before.is_meta else before
            self.state = kept.to(self.state.device, torch.float64)
        return self

    def extra_repr(self) -> str:
        state = "" if self.state.is_meta else f", mu={self.mu}, sigma={self.sigma}"
        schedule = "" if self.schedule == "constant" else f", schedule={self.schedule}"
        return f"{self.num_features}, alpha={self.alpha}{schedule}, affine={self.affine}{state}"


class _ChannelLayerNorm(_AffineNorm):
    dims: tuple[int, ...]
    shapes: str
    num_channels: int
    eps: float
    affine: bool

    def __init__(
        self,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.num_channels = _check_count(name, "num_channels", num_channels, 0)
        self.eps = check_eps(name, eps)
        self.affine = affine
        self._add_parameters(num_channels, affine, affine and bias, device, dtype)
        self.reset_parameters()

    @leaf
    def forward(self, x: Tensor) -> Tensor:
        if x.dim() not in self.dims or x.shape[1] != self.num_channels:
            raise ValueError(
                f"[{type(self).__name__}] x must be {self.shapes} with C = {self.num_channels}, "
                f"got {list(x.shape)}"
            )
        return _channel_layer_norm(  # type: ignore[no-any-return]
            x, self.weight, self.bias, self.eps
        )

    def extra_repr(self) -> str:
        return (
            f"{self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class LayerNorm1d(_ChannelLayerNorm):
    """LayerNorm over the channels of x [N, C] or [N, C, L], separately at each position.

    Equals LayerNorm(C) of x [N, L, C], without a permuted copy. State dict: ``weight`` and ``bias``
    [C], as in LayerNorm(C).

    >>> LayerNorm1d(3)(torch.randn(2, 3, 5)).shape
    torch.Size([2, 3, 5])
    """

    dims = (2, 3)
    shapes = "[N, C] or [N, C, L]"


class LayerNorm2d(_ChannelLayerNorm):
    """LayerNorm over the channels of x [N, C, H, W], separately at each position.

    Equals LayerNorm(C) of x [N, H, W, C], without a permuted copy. State dict: ``weight`` and
    ``bias`` [C], as in LayerNorm(C).

    >>> LayerNorm2d(3)
    LayerNorm2d(3, eps=1e-05, affine=True, bias=True)
    """

    dims = (4,)
    shapes = "[N, C, H, W]"


class _BatchNorm(nn.modules.batchnorm._BatchNorm):
    dims: tuple[int, ...]
    shapes: str

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
        unbiased: bool = False,
    ) -> None:
        name = type(self).__name__
        if momentum is not None and not 0 <= momentum <= 1:
            raise ValueError(f"[{name}] momentum must be from 0 to 1, or None, got {momentum}")
        super().__init__(
            _check_count(name, "num_features", num_features, 0),
            check_eps(name, eps),
            momentum,
            affine,
            track_running_stats,
            device,
            dtype,
        )
        if not bias:  # older versions of torch.nn have no argument for it
            self.register_parameter("bias", None)
        self.unbiased = bool(unbiased)

    @leaf
    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in self.dims or input.shape[1] != self.num_features:
            raise ValueError(
                f"[{type(self).__name__}] x must be {self.shapes} with C = {self.num_features}, "
                f"got {list(input.shape)}"
            )
        mean, var, momentum = self.running_mean, self.running_var, self.momentum
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
        return _batch_norm(  # type: ignore[no-any-return]
            input,
            self.weight,
            self.bias,
            mean,
            var,
            self.training or mean is None,
            0.0 if momentum is None else momentum,
            self.eps,
            self.unbiased,
        )

    def extra_repr(self) -> str:
        usual: str = super().extra_repr()  # type: ignore[no-untyped-call]
        return usual + (", unbiased=True" if self.unbiased else "")


class BatchNorm1d(_BatchNorm, nn.BatchNorm1d):
    """``torch.nn.BatchNorm1d`` on Planish's kernels (Ioffe & Szegedy 2015; Ba, Eq. 2).

    Arguments, parameters, buffers and state dict are those of ``torch.nn.BatchNorm1d``, the base
    class. With ``momentum=None``, running estimates are averages over all batches. With
    ``unbiased=True``, training normalizes by the unbiased variance (Ba, section 6.6, with batches
    of 4). The unbiased variance updates ``running_var`` in either case.

    Shape: x [N, C] or [N, C, L], y the same.

    >>> BatchNorm1d(4, unbiased=True).extra_repr().endswith("unbiased=True")
    True
    """

    dims = (2, 3)
    shapes = "[N, C] or [N, C, L]"


class BatchNorm2d(_BatchNorm, nn.BatchNorm2d):
    """``torch.nn.BatchNorm2d`` on Planish's kernels; see BatchNorm1d.

    Shape: x [N, C, H, W], y the same.
    """

    dims = (4,)
    shapes = "[N, C, H, W]"


class RecurrentBatchNorm(_AffineNorm):
    """BatchNorm for recurrent layers (Cooijmans et al. 2016), with statistics for each time step.

    In training, a step is normalized over the sequences of the batch, and the running estimates of
    that step are updated as in BatchNorm. Weight and bias are shared by all steps; the weight is
    initially 0.1, because with 1 gradients vanish (section 4).

    In evaluation, step t uses the estimates of step t. Steps past the longest sequence seen in
    training use the estimates of that sequence's last step (section 3). Steps from max_length on
    are normalized in training, but have no estimates.

    All sequences of a batch count at every step, padding included. unbiased: see BatchNorm1d.

    Shape: x [T, B, C], steps step .. step + T - 1 of B sequences, or x [B, C], the single step
    ``step``; y the same. In training, B must be at least 2. State dict: ``weight`` and ``bias``
    [C]; ``running_mean`` and ``running_var`` [max_length, C]; ``num_batches_tracked`` [max_length].

    >>> norm = RecurrentBatchNorm(4, max_length=10)
    >>> x = torch.randn(3, 2, 4)
    >>> steps = torch.stack([norm(x[t], step=t) for t in range(3)])
    >>> torch.equal(steps, norm(x))
    True
    """

    num_features: int
    max_length: int
    eps: float
    momentum: float
    affine: bool
    unbiased: bool
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(
        self,
        num_features: int,
        max_length: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        initial_weight: float = 0.1,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
        unbiased: bool = False,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.num_features = _check_count(name, "num_features", num_features, 1)
        self.max_length = _check_count(name, "max_length", max_length, 1)
        self.eps = check_eps(name, eps)
        if momentum is None or not 0 <= momentum <= 1:  # None is for BatchNorm only
            raise ValueError(f"[{name}] momentum must be from 0 to 1, got {momentum}")
        self.momentum = momentum
        self.affine = affine
        self.initial_weight = check_finite(name, "initial_weight", initial_weight)
        self.unbiased = bool(unbiased)
        factory = {"device": device, "dtype": dtype}
        self._add_parameters(num_features, affine, affine and bias, device, dtype)
        self.register_buffer("running_mean", torch.empty(max_length, num_features, **factory))
        self.register_buffer("running_var", torch.empty(max_length, num_features, **factory))
        self.register_buffer(
            "num_batches_tracked", torch.empty(max_length, device=device, dtype=torch.long)
        )
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Sets all means to 0, variances to 1 and counts of batches to 0."""
        self.running_mean.zero_()
        self.running_var.fill_(1)
        self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Sets weight initial_weight and bias 0, and calls reset_running_stats()."""
        super().reset_parameters()
        if self.weight is not None:
            nn.init.constant_(self.weight, self.initial_weight)
        self.reset_running_stats()

    @leaf
    def forward(self, x: Tensor, step: int = 0) -> Tensor:
        """Returns y for x [T, B, C] or [B, C]; step is the index of the first step."""
        if x.dim() not in (2, 3) or x.shape[-1] != self.num_features:
            raise ValueError(
                f"[RecurrentBatchNorm] x must be [T, B, C] or [B, C] with C = {self.num_features}, "
                f"got {list(x.shape)}"
            )
        if step < 0:
            raise ValueError(f"[RecurrentBatchNorm] step must be at least 0, got {step}")
        if x.dim() == 2:
            return self._steps(x.unsqueeze(0), step).squeeze(0)
        return self._steps(x, step)

    def _steps(self, x: Tensor, first: int) -> Tensor:
        if not self.training:
            steps = torch.arange(first, first + x.shape[0], device=x.device)
            longest = (self.num_batches_tracked > 0).sum()
            steps = torch.minimum(steps, (longest - 1).clamp(min=0))
            return self._normalize(x, self.running_mean[steps], self.running_var[steps])
        if x.shape[1] < 2:
            raise ValueError(
                "[RecurrentBatchNorm] x must have at least 2 sequences in training, got "
                f"{list(x.shape)}"
            )
        tracked = max(0, min(x.shape[0], self.max_length - first))
        kept = slice(first, first + tracked)
        parts = []
        if tracked > 0:
            self.num_batches_tracked[kept] += 1
            mean, var = self.running_mean[kept], self.running_var[kept]
            parts.append(self._normalize(x[:tracked], mean, var))
        if tracked < x.shape[0]:
            parts.append(self._normalize(x[tracked:], None, None))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _normalize(self, x: Tensor, mean: Tensor | None, var: Tensor | None) -> Tensor:
        # Each (step, channel) is one channel of the operator: one call for all steps.
        time, batch, channels = x.shape

        def each_step(vector: Tensor | None) -> Tensor | None:
            return None if vector is None else vector.repeat(time)

        y: Tensor = _batch_norm(
            x.transpose(0, 1).reshape(batch, time * channels),
            each_step(self.weight),
            each_step(self.bias),
            None if mean is None else mean.view(-1),
            None if var is None else var.view(-1),
            self.training,
            self.momentum,
            self.eps,
            self.unbiased,
        )
        return y.view(batch, time, channels).transpose(0, 1)

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, max_length={self.max_length}, eps={self.eps}, "
            f"momentum={self.momentum}, affine={self.affine}, bias={self.bias is not None}"
            + (", unbiased=True" if self.unbiased else "")
        )


class WeightNorm(nn.Module):
    """WeightNorm (Salimans & Kingma 2016; Ba, Eq. 5) as a parametrization: ``w = g * v / ||v||``.

    There is one norm for each slice of v along ``dim``, or one for all of v with ``dim=-1``. With
    ``dim=0``, a Linear has one norm for the weights of each unit. Register it with ``weight_norm``,
    or with ``torch.nn.utils.parametrize``.
    """

    dim: int

    def __init__(self, dim: int = 0) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, g: Tensor, v: Tensor) -> Tensor:
        """Returns w for v and g; g has v's size in dim and 1 in all other dimensions."""
        return _weight_norm(v, g, self.dim)  # type: ignore[no-any-return]

    def right_inverse(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Returns g = ||w|| and v = w, from which forward computes w."""
        return torch.norm_except_dim(w, 2, self.dim), w

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


def weight_norm(module: nn.Module, name: str = "weight", dim: int = 0) -> nn.Module:
    """Registers WeightNorm(dim) as the parametrization of module's parameter ``name``.

    Returns module. Its weight keeps its value. Keys are those of
    ``torch.nn.utils.parametrizations.weight_norm``, so checkpoints load both ways:
    ``parametrizations.weight.original0`` is g, ``parametrizations.weight.original1`` is v.
    ``torch.nn.utils.parametrize.remove_parametrizations`` removes it. Raises ValueError if module
    has no such parameter, or dim is not one of its dimensions.

    >>> linear = weight_norm(torch.nn.Linear(3, 2, bias=False))
    >>> sorted(linear.state_dict())
    ['parametrizations.weight.original0', 'parametrizations.weight.original1']
    """
    parameter = getattr(module, name, None)
    if not isinstance(parameter, Tensor):
        raise ValueError(
            f"[weight_norm] name must be a parameter of {type(module).__name__}, got {name!r}"
        )
    if not -1 <= dim < parameter.dim():
        raise ValueError(
            f"[weight_norm] dim must be from -1 to {parameter.dim() - 1} for {name} "
            f"{list(parameter.shape)}, got {dim}"
        )
    parametrize.register_parametrization(module, name, WeightNorm(dim), unsafe=True)
    return module
