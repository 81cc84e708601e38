"""Checks of arguments, with the texts of the operators' checks."""

import math

__all__ = ["check_eps", "check_finite", "is_eps"]


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
