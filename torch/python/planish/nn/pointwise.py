"""Functions of single elements that replace a norm, as modules with LayerNorm's interface."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from planish._checks import check_finite
from planish._operators import _derf, _dyt
from planish.nn.norms import _check_shape

__all__ = ["Derf", "DyT"]


class _Pointwise(nn.Module):
    """Base of DyT and Derf."""

    normalized_shape: tuple[int, ...]
    alpha_init: float
    elementwise_affine: bool
    alpha: nn.Parameter
    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        alpha_init: float = 0.5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.normalized_shape = _check_shape(name, normalized_shape)
        self.alpha_init = check_finite(name, "alpha_init", alpha_init)
        self.elementwise_affine = bool(elementwise_affine)

        def empty(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, device=device, dtype=dtype))

        self.alpha = empty(1)
        has_bias = self.elementwise_affine and bias
        for parameter, exists in (("weight", self.elementwise_affine), ("bias", has_bias)):
            self.register_parameter(parameter, empty(*self.normalized_shape) if exists else None)
        self._add_parameters(empty)
        self.reset_parameters()

    def _add_parameters(self, empty: Any) -> None:
        """Adds parameters that only one of the functions has; empty(1) is a scalar."""

    def reset_parameters(self) -> None:
        """Sets alpha to alpha_init, shift 0, weight 1 and bias 0."""
        nn.init.constant_(self.alpha, self.alpha_init)
        if self.weight is not None:
            nn.init.ones_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, alpha_init={self.alpha_init}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class DyT(_Pointwise):
    """DyT (Zhu et al. 2025, "Transformers without Normalization", Algorithm 1).

    ``y = weight * tanh(alpha * x) + bias`` with a learnable scalar alpha, initially alpha_init.
    elementwise_affine=False leaves weight and bias out.

    Shape: x [..., *normalized_shape], y the same. State dict: alpha [1]; weight and bias
    [*normalized_shape], if there are any.

    >>> DyT(4)
    DyT((4,), alpha_init=0.5, elementwise_affine=True, bias=True)
    >>> DyT(2)(torch.tensor([1.0, -8.0])).detach()
    tensor([ 0.4621, -0.9993])
    """

    def forward(self, x: Tensor) -> Tensor:
        return _dyt(  # type: ignore[no-any-return]
            x, self.normalized_shape, self.alpha, self.weight, self.bias
        )


class Derf(_Pointwise):
    """Derf (Chen et al. 2025, "Stronger Normalization-Free Transformers").

    ``y = weight * erf(alpha * x + shift) + bias`` with learnable scalars alpha, initially
    alpha_init, and shift, initially 0. elementwise_affine=False leaves weight and bias out.

    Shape: x [..., *normalized_shape], y the same. State dict: alpha [1] and shift [1]; weight and
    bias [*normalized_shape], if there are any.

    >>> Derf(2)(torch.tensor([1.0, -8.0])).detach()
    tensor([ 0.5205, -1.0000])
    """

    shift: nn.Parameter

    def _add_parameters(self, empty: Any) -> None:
        self.shift = empty(1)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.zeros_(self.shift)

    def forward(self, x: Tensor) -> Tensor:
        return _derf(  # type: ignore[no-any-return]
            x, self.normalized_shape, self.alpha, self.shift, self.weight, self.bias
        )
