"""Gradients before and after each norm of a model (Xu et al. 2019, Theorem 1)."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from . import _rows

__all__ = ["GradientStatistics", "NormGradients", "gradient_statistics"]


@dataclass
class NormGradients:
    """Averages over the rows of a norm, over all backward passes so far.

    A row is the group of elements that the norm normalizes together; in BatchNorm, a channel of the
    batch. "mean" is the absolute mean over the row, "variance" the biased variance. The symbols:

    - g = dL/dxhat, the gradient of the normalized elements: gain * dL/dy, where AdaNorm's factor
      replaces the gain;
    - dx = dL/dx, the gradient that the norm passes on;
    - sigma, the standard deviation.

    Xu et al. 2019, Theorem 1 holds for each row, and thus for these averages:

    ==================  ============================  ======================================
    norm                mean_after                    variance_after
    ==================  ============================  ======================================
    DetachNorm          mean_detached                 variance_detached
    only mean detached  mean_detached                 at most variance_detached
    only std detached   0                             variance_detached
    LayerNorm, others   0                             at most variance_detached
    ==================  ============================  ======================================
    """

    name: str  #: of the module
    kind: str  #: its class
    rows: int = 0  #: rows seen; 0: there was no gradient
    rows_after: int = 0  #: rows seen whose x needed a gradient
    sigma: float = math.nan  #: NaN if unknown, as for OnlineLayerNorm
    mean_before: float = math.nan  #: |mean(g)|
    variance_before: float = math.nan  #: var(g)
    mean_detached: float = math.nan  #: |mean(g)| / sigma: both statistics detached
    variance_detached: float = math.nan  #: var(g) / sigma^2: both statistics detached
    mean_after: float = math.nan  #: |mean(dx)|
    variance_after: float = math.nan  #: var(dx)

    def _average(self, field: str, seen: int, new: Tensor) -> None:
        old = getattr(self, field)
        total = float(new.sum()) + (0.0 if seen == 0 else old * seen)
        setattr(self, field, total / (seen + new.numel()))


@dataclass
class GradientStatistics:
    """The result of ``gradient_statistics``, in the order of ``model.named_modules()``."""

    layers: list[NormGradients] = field(default_factory=list)

    def __str__(self) -> str:
        head = ("", "before: g", "both detached: g/sigma", "after: dL/dx")
        width = max([len("norm"), *(len(layer.name) for layer in self.layers)])
        kinds = max([len("class"), *(len(layer.kind) for layer in self.layers)])
        first = f"{'norm':{width}}  {'class':{kinds}}  {'rows':>8}  {'sigma':>8}"
        lines = [
            " " * len(first) + "".join(f"  {title:^21}" for title in head[1:]),
            first + "  |mean|     variance " * 3,
        ]
        for layer in self.layers:
            columns = [
                (layer.mean_before, layer.variance_before),
                (layer.mean_detached, layer.variance_detached),
                (layer.mean_after, layer.variance_after),
            ]
            lines.append(
                f"{layer.name:{width}}  {layer.kind:{kinds}}  {layer.rows:>8}  {layer.sigma:>8.3g}"
                + "".join(f"  {mean:<9.3g}  {variance:<10.3g}" for mean, variance in columns)
            )
        return "\n".join(line.rstrip() for line in lines)

    __repr__ = __str__


@contextmanager
def gradient_statistics(
    model: nn.Module, filter: Callable[[str, nn.Module], bool] | None = None
) -> Iterator[GradientStatistics]:
    """Collects gradients before and after each norm of model in a ``with`` block.

    The norms are LayerNorm, RMSNorm and the BatchNorms of ``torch.nn``, Planish's norms, and
    derived classes. ``filter`` ``(name, module) -> bool`` selects other modules instead; for
    unknown classes, rows are along the last dimension, g is dL/dy, and sigma is unknown. Statistics
    are taken in float64 from the first tensor argument of a norm and from its output.

    The model does not change: outputs, gradients and random numbers are the same. The hooks are
    removed at the end of the block; the statistics stay. Compiled code can skip hooks: use the
    model that is not compiled.

    >>> from planish.nn import LayerNorm
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), LayerNorm(8), torch.nn.Linear(8, 2))
    >>> with gradient_statistics(model) as statistics:
    ...     model(torch.randn(5, 8)).square().sum().backward()
    >>> layer = statistics.layers[0]
    >>> layer.name, layer.rows, layer.variance_after <= layer.variance_detached
    ('1', 5, True)
    """
    wanted = filter or (lambda _, module: _rows.is_known(module))
    statistics = GradientStatistics()
    handles = []
    for name, module in model.named_modules():
        if wanted(name, module):
            layer = NormGradients(name, type(module).__name__)
            statistics.layers.append(layer)
            watch = _Watch(layer)
            handles.append(module.register_forward_pre_hook(watch.before_forward, with_kwargs=True))
            handles.append(module.register_forward_hook(watch.after_forward))
    try:
        yield statistics
    finally:
        for handle in handles:
            handle.remove()


class _Watch:
    """Hooks of one norm."""

    def __init__(self, layer: NormGradients) -> None:
        self.layer = layer
        self.x: list[Tensor] = []  # of calls that have not returned

    def before_forward(
        self, norm: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        # An alias of x has only this norm's gradient, without that of a residual connection.
        for i, value in enumerate(args):
            if isinstance(value, Tensor):
                alias = self._alias(norm, value)
                return (*args[:i], alias, *args[i + 1 :]), kwargs
        for key, value in kwargs.items():
            if isinstance(value, Tensor):
                return args, {**kwargs, key: self._alias(norm, value)}
        return None

    def _alias(self, norm: nn.Module, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and x.requires_grad:
            dims = _rows.reduced(norm, x)
            x = x.view_as(x)
            x.register_hook(  # type: ignore[no-untyped-call]
                lambda dx: self._take_after(dx, dims)
            )
        self.x.append(x)
        return x

    def after_forward(self, norm: nn.Module, args: tuple[Any, ...], y: Any) -> None:
        if not self.x:
            return
        x = self.x.pop().detach()
        if isinstance(y, Tensor) and y.requires_grad:
            dims = _rows.reduced(norm, x)
            sigma = _rows.deviation(norm, x)
            slope = _rows.slope(norm, x, sigma)
            y.register_hook(  # type: ignore[no-untyped-call]
                lambda dy: self._take_before(dy, slope, sigma, dims)
            )

    @torch.no_grad()
    def _take_before(
        self, dy: Tensor, slope: Tensor | float, sigma: Tensor | None, dims: tuple[int, ...]
    ) -> None:
        g = dy.double() * slope
        mean = g.mean(dims, keepdim=True).abs()
        var = g.var(dims, correction=0, keepdim=True)
        layer = self.layer
        layer._average("mean_before", layer.rows, mean)
        layer._average("variance_before", layer.rows, var)
        if sigma is not None:
            layer._average("sigma", layer.rows, sigma.expand_as(mean))
            layer._average("mean_detached", layer.rows, mean / sigma)
            layer._average("variance_detached", layer.rows, var / sigma.square())
        layer.rows += mean.numel()

    @torch.no_grad()
    def _take_after(self, dx: Tensor, dims: tuple[int, ...]) -> None:
        dx = dx.double()
        mean, var = dx.mean(dims).abs(), dx.var(dims, correction=0)
        layer = self.layer
        layer._average("mean_after", layer.rows_after, mean)
        layer._average("variance_after", layer.rows_after, var)
        layer.rows_after += mean.numel()
