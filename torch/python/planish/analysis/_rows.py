"""What the norms that are known here normalise: the rows of x, and what y is made of."""

import torch
from torch import Tensor, nn

from ..nn import norms

#: Norms of torch.nn and of this library, and whatever derives from them.
KNOWN = (
    nn.LayerNorm,
    nn.RMSNorm,
    nn.modules.batchnorm._BatchNorm,
    norms.LayerNormSimple,
    norms.DetachNorm,
    norms.AdaNorm,
    norms.OnlineLayerNorm,
    norms.LayerNorm1d,
    norms.LayerNorm2d,
)

BatchNorm = nn.modules.batchnorm._BatchNorm
_CHANNELS_FIRST = (BatchNorm, norms.LayerNorm1d, norms.LayerNorm2d)


def reduced(norm: nn.Module, x: Tensor) -> tuple[int, ...]:
    """The dimensions of x that norm takes moments over; of a class that is not known the last."""
    if isinstance(norm, BatchNorm):
        return tuple(d for d in range(x.dim()) if d != 1)
    if isinstance(norm, _CHANNELS_FIRST):
        return (1,)
    shape = getattr(norm, "normalized_shape", None)
    return tuple(range(x.dim() - (1 if shape is None else len(shape)), x.dim()))


def deviation(norm: nn.Module, x: Tensor) -> Tensor | None:
    """sigma of each row of x, eps in it, in float64, with x's dimensions; None: it is not known."""
    dims, eps = reduced(norm, x), getattr(norm, "eps", 0.0)
    if eps is None:  # RMSNorm's default
        eps = torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps
    x = x.double()
    if isinstance(norm, nn.RMSNorm):
        return (x.square().mean(dims, keepdim=True) + eps).sqrt()
    if isinstance(norm, BatchNorm) and not norm.training and norm.running_var is not None:
        var = norm.running_var.double()
        return (var + eps).sqrt().reshape(1, -1, *([1] * (x.dim() - 2)))
    if isinstance(norm, norms.AdaNorm) and norm.as_coded:
        return x.std(dims, keepdim=True) + eps
    unbiased = isinstance(norm, norms.BatchNorm1d | norms.BatchNorm2d) and norm.unbiased
    if isinstance(norm, KNOWN) and not isinstance(norm, norms.OnlineLayerNorm):
        return (x.var(dims, correction=int(unbiased), keepdim=True) + eps).sqrt()
    return None


def slope(norm: nn.Module, x: Tensor, sigma: Tensor | None) -> Tensor | float:
    """What dL/dy is multiplied with to give dL/dxhat: the gain, AdaNorm's factor; 1: not known."""
    if isinstance(norm, norms.AdaNorm):
        assert sigma is not None
        x = x.double()
        xhat = (x - x.mean(reduced(norm, x), keepdim=True)) / sigma
        return norm.C * (1 - norm.k * xhat)
    weight = getattr(norm, "weight", None)
    if not (isinstance(norm, KNOWN) and isinstance(weight, Tensor)):
        return 1.0
    gain = weight.detach().double()
    if isinstance(norm, _CHANNELS_FIRST):
        return gain.reshape(1, -1, *([1] * (x.dim() - 2)))
    return gain
