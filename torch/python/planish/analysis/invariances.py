"""Table 1 of Ba, Kiros & Hinton (2016), measured on a module."""

import copy
import fnmatch
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

__all__ = ["TRANSFORMATIONS", "Invariances", "Measured", "Row", "invariances"]

WEIGHT_TRANSFORMATIONS = ("W re-scale", "W re-centre", "w_i re-scale")
DATA_TRANSFORMATIONS = ("data re-scale", "data re-centre", "one case re-scale")
#: The columns of the table. Weights: W -> dW, W -> W + 1 gamma^T, w_i -> d w_i of one unit i.
#: Data: x -> d x and x -> x + gamma of all cases, x -> d x of one case.
TRANSFORMATIONS = WEIGHT_TRANSFORMATIONS + DATA_TRANSFORMATIONS

_FACTORS = (2.0, 0.5, 3.0)  # d: not near 1, and not so small that eps dominates
_LINEAR = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class Measured:
    """The effect of one transformation."""

    deviation: float  #: the largest |y' - y| divided by the largest |y|
    invariant: bool  #: whether the deviation is at most the threshold


@dataclass(frozen=True)
class Row:
    """One row of the table: the weight of a linear layer, or the module's input."""

    name: str
    measured: dict[str, Measured]  #: by transformation


@dataclass
class Invariances:
    """The result of ``invariances``; prints as the paper's table."""

    rows: list[Row]
    threshold: float
    notes: list[str] = field(default_factory=list)

    def __getitem__(self, transformation: str) -> Measured:
        """Returns the largest deviation over all rows."""
        rows = [row.measured for row in self.rows]
        found = [measured[transformation] for measured in rows if transformation in measured]
        if not found:
            raise KeyError(transformation)
        return max(found, key=lambda measured: measured.deviation)

    def __str__(self) -> str:
        names = max(len(row.name) for row in self.rows)
        widths = [max(len(title), 11) for title in TRANSFORMATIONS]
        lines = [
            "Invariance of the output (Ba, Kiros & Hinton 2016, Table 1)",
            " " * names + "".join(f"  {t:{w}}" for t, w in zip(TRANSFORMATIONS, widths)),
        ]
        for row in self.rows:
            line = f"{row.name:{names}}"
            for title, width in zip(TRANSFORMATIONS, widths):
                measured = row.measured.get(title)
                cell = "-"
                if measured is not None:
                    cell = f"{'yes' if measured.invariant else 'no':3} {measured.deviation:.1e}"
                line += f"  {cell:{width}}"
            lines.append(line)
        lines.append(
            f"yes: outputs change by at most {self.threshold:g} of the largest; exact with eps = 0"
        )
        lines.extend(f"note: {note}" for note in self.notes)
        return "\n".join(line.rstrip() for line in lines)

    __repr__ = __str__


def invariances(
    module: nn.Module | tuple[nn.Module, nn.Module],
    x: Tensor | tuple[Any, ...] | None = None,
    *,
    weights: str = "*",
    eps: float | None = None,
    threshold: float = 1e-3,
) -> Invariances:
    """Measures under which transformations of weights and data the output is invariant.

    The transformations are the six of Ba, Kiros & Hinton (2016), Table 1, each with several factors
    d and random vectors gamma:

    - W -> dW, W -> W + 1 gamma^T and w_i -> d w_i. W is the weight of every linear layer (Linear,
      Conv1d to Conv3d) whose name matches the glob ``weights``. In a layer with WeightNorm, W is
      the direction v, because w is computed.
    - x -> d x and x -> x + gamma of all cases, and x -> d x of one case.

    Args:
        module: the module, or a pair (linear, norm), which means linear followed by norm.
        x: the input, or a tuple of arguments whose first is the data. The first dimension is the
            cases. Data that are not floating-point are not transformed. By default 32 random
            cases, if the first layer is a Linear.
        weights: a glob for the names of linear layers.
        eps: replaces the eps of all norms, if given. The invariances are exact only with eps = 0.
            Otherwise the deviation is near eps / variance.
        threshold: the table says "yes" if the output changed by at most this fraction of its
            largest element.

    A copy of the module is measured, in float64 and training mode, so batch norms use the batch's
    statistics, and with dropout off. The module and the random number generators do not change.
    Table 1 has no bias before the norm: a linear layer's bias stays as it is, with a note.

    Raises:
        ValueError: there is no linear layer, or x is missing and cannot be generated.

    ``copy.deepcopy`` can raise for a module that it cannot copy, such as one with the deprecated
    ``torch.nn.utils.weight_norm``; ``torch.nn.utils.parametrizations.weight_norm`` works.

    >>> from planish.nn import LayerNorm
    >>> table = invariances((torch.nn.Linear(20, 50, bias=False), LayerNorm(50)))
    >>> [table[transformation].invariant for transformation in TRANSFORMATIONS]
    [True, True, False, True, False, True]
    """
    if isinstance(module, tuple):
        module = nn.Sequential(OrderedDict(zip(("linear", "norm"), module)))
    probe = _Probe(module, x, weights, eps)
    device = probe.data.device if isinstance(probe.data, Tensor) else torch.device("cpu")
    with torch.no_grad(), torch.random.fork_rng([device] if device.type == "cuda" else []):
        plain = probe.output()
        largest = plain.abs().max()

        def measure(run: Callable[[float, torch.Generator], Tensor]) -> Measured:
            generator = torch.Generator().manual_seed(0)
            worst = 0.0
            for factor in _FACTORS:
                change = float((run(factor, generator) - plain).abs().max() / largest)
                worst = max(worst, change if change == change else float("inf"))
            return Measured(worst, worst <= threshold)

        rows = []
        for name, weight in probe.weights.items():
            rows.append(
                Row(name, {t: measure(probe.weight_run(t, weight)) for t in WEIGHT_TRANSFORMATIONS})
            )
        if probe.data.is_floating_point():
            of_data = {t: measure(probe.data_run(t)) for t in DATA_TRANSFORMATIONS}
            if len(rows) == 1:
                rows[0].measured.update(of_data)
            else:
                rows.append(Row("input", of_data))
    return Invariances(rows, threshold, probe.notes)


def _direction(layer: nn.Module) -> tuple[str, Tensor] | None:
    """Returns the parameter that acts as W, and a word for its kind; None if it is unknown."""
    if not parametrize.is_parametrized(layer, "weight"):
        return "", layer.weight  # type: ignore[return-value]
    originals: Any = layer.parametrizations["weight"]  # type: ignore[index]
    kinds = [type(parametrization).__name__.lstrip("_") for parametrization in originals]
    if kinds == ["WeightNorm"]:
        return " (v)", originals.original1
    return None


class _Probe:
    """A copy of a module, its input and its weights, all in float64."""

    def __init__(
        self, module: nn.Module, x: Tensor | tuple[Any, ...] | None, pattern: str, eps: float | None
    ) -> None:
        self.module = copy.deepcopy(module).double().train()
        self.notes: list[str] = []
        self.weights: dict[str, Tensor] = {}
        first: nn.Module | None = None
        for name, layer in self.module.named_modules():
            if isinstance(layer, nn.modules.dropout._DropoutNd):
                layer.eval()
            if eps is not None and isinstance(getattr(layer, "eps", None), float):
                layer.eps = eps
            if isinstance(layer, _LINEAR):
                first = first or layer
                if fnmatch.fnmatchcase(name, pattern):
                    self._add(name, layer)
        if not self.weights:
            raise ValueError(
                f"[invariances] module must contain a linear layer that matches {pattern!r}, "
                f"got {type(module).__name__}"
            )
        self.features = -1 if isinstance(first, nn.Linear) else 1
        if x is None:
            if not isinstance(first, nn.Linear):
                raise ValueError(
                    "[invariances] x must be given if the first linear layer is a "
                    f"{type(first).__name__}, got None"
                )
            generator = torch.Generator().manual_seed(1)
            x = torch.randn(32, first.in_features, generator=generator, dtype=torch.float64)
            x = x.to(first.weight.device)
        arguments = x if isinstance(x, tuple) else (x,)
        self.data: Tensor = arguments[0].detach()
        if self.data.is_floating_point():
            self.data = self.data.double()
        self.rest = arguments[1:]
        self.buffers = [(buffer, buffer.clone()) for buffer in self.module.buffers()]

    def _add(self, name: str, layer: nn.Module) -> None:
        found = _direction(layer)
        label = f"{name}.weight" if name else "weight"
        if found is None:
            self.notes.append(f"{label} is parametrized, but not by WeightNorm: skipped")
            return
        self.weights[label + found[0]] = found[1]
        bias = layer.bias
        if isinstance(bias, Tensor) and bool(bias.detach().count_nonzero()):
            self.notes.append(f"{label} has a bias; Table 1 has none before the norm")

    def output(self, data: Tensor | None = None) -> Tensor:
        for buffer, before in self.buffers:  # running estimates, the state of OnlineLayerNorm
            buffer.copy_(before)
        torch.manual_seed(0)
        return _first_tensor(self.module(self.data if data is None else data, *self.rest)).clone()

    def weight_run(
        self, transformation: str, weight: Tensor
    ) -> Callable[[float, torch.Generator], Tensor]:
        def run(factor: float, generator: torch.Generator) -> Tensor:
            before = weight.clone()
            if transformation == "W re-scale":
                weight.mul_(factor)
            elif transformation == "W re-centre":
                gamma = torch.randn(weight.shape[1:], generator=generator, dtype=torch.float64)
                weight.add_(gamma.to(weight.device) * before.std())
            else:
                unit = int(torch.randint(weight.shape[0], (), generator=generator))
                weight[unit].mul_(factor)
            try:
                return self.output()
            finally:
                weight.copy_(before)

        return run

    def data_run(self, transformation: str) -> Callable[[float, torch.Generator], Tensor]:
        def run(factor: float, generator: torch.Generator) -> Tensor:
            data = self.data.clone()
            if transformation == "data re-scale":
                data.mul_(factor)
            elif transformation == "data re-centre":
                size = data.shape[self.features]
                gamma = torch.randn(size, generator=generator, dtype=torch.float64).to(data.device)
                positions = 0 if self.features == -1 else data.dim() - 2
                data.add_(gamma.reshape(-1, *([1] * positions)))
            else:
                data[int(torch.randint(data.shape[0], (), generator=generator))].mul_(factor)
            return self.output(data)

        return run


def _first_tensor(output: Any) -> Tensor:
    if isinstance(output, Tensor):
        return output
    values = output.values() if isinstance(output, dict) else output
    for value in values:
        if isinstance(value, Tensor) and value.is_floating_point():
            return value
    raise ValueError(
        f"[invariances] module must return a tensor or a container with a tensor, "
        f"got {type(output).__name__}"
    )
