"""Checks of arguments, with the texts of the operators' checks."""

import math

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

__all__ = ["check_eps", "check_finite", "check_offset", "is_eps", "with_offset"]


def is_eps(eps: float) -> bool:
    """Returns whether eps is finite and at least 0."""
    return math.isfinite(eps) and eps >= 0


def check_eps(function: str, eps: float) -> float:
    """Returns eps. Raises ValueError unless it is finite and at least 0."""
    if not is_eps(eps):
        raise ValueError(f"[{function}] eps must be finite and at least 0, got {eps:g}")
    return eps


def check_finite(function: str, argument: str, value: float) -> float:
    """Returns value. Raises ValueError unless it is finite."""
    if not math.isfinite(value):
        raise ValueError(f"[{function}] {argument} must be finite, got {value:g}")
    return value


def check_offset(function: str, offset: float, has_weight: bool) -> float:
    """Returns offset. Raises ValueError if it is not finite, or not 0 without a weight."""
    check_finite(function, "weight_offset", offset)
    if offset != 0 and not has_weight:
        raise ValueError(f"[{function}] weight_offset must be 0 without a weight, got {offset:g}")
    return float(offset)


def with_offset(function: str, x: Tensor, weight: Tensor | None, offset: float) -> Tensor | None:
    """Returns weight + offset, in float32, or in float64 if x or weight is float64.

    Returns a weight that is not floating-point unchanged: the norm raises its own error.
    """
    if not is_dynamo_compiling():  # a float attribute can be symbolic
        check_offset(function, offset, weight is not None)
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        return weight
    is_double = torch.float64 in (x.dtype, weight.dtype)
    return weight.to(torch.float64 if is_double else torch.float32) + offset
