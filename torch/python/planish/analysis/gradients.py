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
    """Averages over the rows of a norm, of all backward passes so far.

    A row is what the norm normalises together: of BatchNorm a channel of the batch. Of a row,
    g = dL/dxhat is the gradient that reaches the normalised numbers (gain * dL/dy; AdaNorm: its
    factor for the gain), and dx = dL/dx is what the norm passes on, sigma its deviation. "mean" is
    the size of the mean over the row, "variance" the biased variance over the row.

    Xu et al. 2019, Theorem 1 holds row by row, so of these averages, too:

    ==================  ============================  ======================================
    norm                mean_after                    variance_after
    ==================  ============================  ======================================
    DetachNorm          mean_detached                 variance_detached
    its mean alone      mean_detached                 at most variance_detached
    its std alone       0                             variance_detached
    LayerNorm and such  0                             at most variance_detached
    ==================  ============================  ======================================
    """

    name: str  #: of the module
    kind: str  #: its class
    rows: int = 0  #: rows seen; 0: no gradient has come through
    rows_after: int = 0  #: of these, those whose x needed a gradient
    sigma: float = math.nan  #: sigma; NaN where it is not known, as of OnlineLayerNorm
    mean_before: float = math.nan  #: |mean(g)|
    variance_before: float = math.nan  #: var(g)
    mean_detached: float = math.nan  #: |mean(g)| / sigma: with both moments detached
    variance_detached: float = math.nan  #: var(g) / sigma^2: with both moments detached
    mean_after: float = math.nan  #: |mean(dx)|
    variance_after: float = math.nan  #: var(dx)

    def _average(self, field: str, seen: int, new: Tensor) -> None:
        old = getattr(self, field)
        total = float(new.sum()) + (0.0 if seen == 0 else old * seen)
        setattr(self, field, total / (seen + new.numel()))


@dataclass
class GradientStatistics:
    """What ``gradient_statistics`` collects, in the order of ``model.named_modules()``."""

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
            numbers = [
                (layer.mean_before, layer.variance_before),
                (layer.mean_detached, layer.variance_detached),
                (layer.mean_after, layer.variance_after),
            ]
            lines.append(
                f"{layer.name:{width}}  {layer.kind:{kinds}}  {layer.rows:>8}  {layer.sigma:>8.3g}"
                + "".join(f"  {mean:<9.3g}  {variance:<10.3g}" for mean, variance in numbers)
            )
        return "\n".join(line.rstrip() for line in lines)

    __repr__ = __str__


@contextmanager
def gradient_statistics(
    model: nn.Module, filter: Callable[[str, nn.Module], bool] | None = None
) -> Iterator[GradientStatistics]:
    """Collects gradients before and after each norm of model in every backward pass within.

    Norms are ``torch.nn``'s LayerNorm, RMSNorm and BatchNorms, this library's, and what derives
    from them; ``filter`` ``(name, module) -> bool`` names other modules instead (of a class that is
    none of these rows are along the last dimension, g is dL/dy, and sigma is not known). Statistics
    are taken in float64 from the first tensor that a norm is called with and from its output.

    Nothing of the model is changed: outputs, gradients and random numbers are the same, and the
    hooks go with the context, after which the statistics remain. Compiled code may skip hooks:
    collect from the model that is not compiled.

    >>> from planish.nn import LayerNorm
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), LayerNorm(8), torch.nn.Linear(8, 2))
    >>> with gradient_statistics(model) as statistics:
    ...     model(torch.randn(5, 8)).square().sum().backward()
    >>> layer = statistics.layers[0]
    >>> layer.name, layer.rows, layer.variance_after <= layer.variance_detached
    ('1', 5, True)
    """
    wanted = filter or (lambda _, module: isinstance(module, _rows.KNOWN))
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
    """The hooks of one norm."""

    def __init__(self, layer: NormGradients) -> None:
        self.layer = layer
        self.x: list[Tensor] = []  # of calls that have begun

    def before_forward(
        self, norm: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        # An alias of x, so that its gradient is this norm's alone, without that of a residual.
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
