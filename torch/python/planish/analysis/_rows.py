"""Rows that a norm normalizes, their standard deviation, and the gain."""

import torch
from torch import Tensor, nn

from ..nn import norms

#: Norms of torch.nn and Planish; derived classes are known, too.
KNOWN = (
    nn.LayerNorm,
    nn.RMSNorm,
    nn.modules.batchnorm._BatchNorm,
    norms.LayerNormSimple,
    norms.DetachNorm,
    norms.AdaNorm,
    norms.RowNorm,
    norms.OnlineLayerNorm,
    norms.LayerNorm1d,
    norms.LayerNorm2d,
)

BatchNorm = nn.modules.batchnorm._BatchNorm
_CHANNELS_FIRST = (BatchNorm, norms.LayerNorm1d, norms.LayerNorm2d)


def is_known(norm: nn.Module) -> bool:
    """Returns whether norm is of a known class and normalizes whole rows."""
    return isinstance(norm, KNOWN) and getattr(norm, "groups", 1) == 1


def reduced(norm: nn.Module, x: Tensor) -> tuple[int, ...]:
    """Returns the dimensions of x over which norm takes statistics; the last of unknown classes."""
    if isinstance(norm, BatchNorm):
        return tuple(d for d in range(x.dim()) if d != 1)
    if isinstance(norm, _CHANNELS_FIRST):
        return (1,)
    shape = getattr(norm, "normalized_shape", None)
    return tuple(range(x.dim() - (1 if shape is None else len(shape)), x.dim()))


def deviation(norm: nn.Module, x: Tensor) -> Tensor | None:
    """Returns sigma of each row of x, including eps, in float64; None if it is unknown."""
    if getattr(norm, "groups", 1) != 1:
        return None
    dims, eps = reduced(norm, x), getattr(norm, "eps", 0.0)
    if eps is None:  # RMSNorm's default
        eps = torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps
    x = x.double()
    recipe = norms.RowNormRecipe.of(norm.norm) if isinstance(norm, norms.RowNorm) else None
    if isinstance(norm, nn.RMSNorm) or (recipe and not recipe.centered):
        return (x.square().mean(dims, keepdim=True) + eps).sqrt()
    if isinstance(norm, BatchNorm) and not norm.training and norm.running_var is not None:
        var = norm.running_var.double()
        return (var + eps).sqrt().reshape(1, -1, *([1] * (x.dim() - 2)))
    if (recipe and recipe.unbiased) or (isinstance(norm, norms.AdaNorm) and norm.as_coded):
        return x.std(dims, keepdim=True) + eps
    unbiased = isinstance(norm, norms.BatchNorm1d | norms.BatchNorm2d) and norm.unbiased
    if isinstance(norm, KNOWN) and not isinstance(norm, norms.OnlineLayerNorm):
        return (x.var(dims, correction=int(unbiased), keepdim=True) + eps).sqrt()
    return None


def slope(norm: nn.Module, x: Tensor, sigma: Tensor | None) -> Tensor | float:
    """Returns dL/dxhat divided by dL/dy: the gain, or AdaNorm's factor; 1 if it is unknown."""
    if isinstance(norm, norms.AdaNorm) or (
        isinstance(norm, norms.RowNorm) and norms.RowNormRecipe.of(norm.norm).adaptive
    ):
        assert sigma is not None
        x = x.double()
        xhat = (x - x.mean(reduced(norm, x), keepdim=True)) / sigma
        return norm.C * (1 - norm.k * xhat)
    weight = getattr(norm, "weight", None)
    if not (isinstance(norm, KNOWN) and isinstance(weight, Tensor)):
        return 1.0
    gain = weight.detach().double() + getattr(norm, "weight_offset", 0.0)
    if isinstance(norm, _CHANNELS_FIRST):
        return gain.reshape(1, -1, *([1] * (x.dim() - 2)))
    return gain
