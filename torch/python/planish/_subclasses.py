"""Rules for the norms of PyTorch's tensor subclasses: jagged nested tensors and DTensor."""

import importlib.abc
import importlib.machinery
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

__all__ = ["register"]

_DTENSOR = "torch.distributed.tensor"
_ROWS, _CHANNELS, _BATCH = 0, 1, 2  # the argument `over` of the operators


def register() -> None:
    """Registers all rules; those of DTensor when the program imports DTensor."""
    _register_jagged()
    if _DTENSOR in sys.modules:
        _register_dtensor()
    elif torch.distributed.is_available():
        sys.meta_path.insert(0, _DTensorFinder())


# Jagged nested tensors: a norm over rows normalizes the rows of their values.

# The results of operators that are nested like x.
_PER_VALUE = ("y", "sum", "quantized", "scale", "dx", "dgate")


def _register_jagged() -> None:
    try:
        from torch.nested._internal.nested_tensor import NestedTensor
    except ImportError:  # PyTorch reports the missing rule at the call
        return

    def on_values(
        cls: type, func: Any, types: Sequence[type], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        from torch.nested._internal.ops import extract_kwargs  # slow to import

        arguments = {a.name: value for a, value in zip(func._schema.arguments, args)}
        nested = [value for value in args if isinstance(value, NestedTensor)]
        like = nested[0]
        if arguments.get("over", _ROWS) != _ROWS or like._ragged_idx == like.dim() - 1:
            raise ValueError(
                f"[{func._schema.name.removeprefix('planish::')}] x must be dense or have its "
                f"ragged dimension outside the normalized ones, got a nested tensor of shape "
                f"{tuple(like.shape)}"
            )
        if any(value.shape != like.shape for value in nested):
            shapes = ", ".join(str(tuple(value.shape)) for value in nested)
            raise ValueError(f"nested tensors must have the same offsets, got shapes {shapes}")
        masked = [r.name for r, on in zip(func._schema.returns, arguments.get("mask", ())) if on]
        if like._lengths is not None and ("dweight" in masked or "dbias" in masked):
            raise ValueError(
                "[norm_backward] x must be contiguous for gradients of weight and bias, got a "
                "nested tensor with gaps between its sequences: call contiguous()"
            )
        results = func(*(v._values if isinstance(v, NestedTensor) else v for v in args), **kwargs)
        structure = extract_kwargs(like)  # type: ignore[no-untyped-call]
        if isinstance(results, torch.Tensor):
            return NestedTensor(results, **structure)
        return tuple(
            NestedTensor(result, **structure)
            if output.name in _PER_VALUE and result is not None
            else result
            for output, result in zip(func._schema.returns, results)
        )

    for name in (
        "norm_forward",
        "add_norm_forward",
        "norm_backward",
        "gated_norm_forward",
        "gated_norm_backward",
        "quantized_norm_forward",
        "pointwise_norm_forward",
        "pointwise_norm_backward",
    ):
        torch.library.register_torch_dispatch(f"planish::{name}", NestedTensor, on_values)


# DTensor: a norm can be sharded over every dimension that it does not reduce.


class _DTensorFinder(importlib.abc.MetaPathFinder):
    """Registers the sharding rules when DTensor is imported, because importing it is slow."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _DTENSOR:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            execute = self._then_register(spec.loader.exec_module)
            spec.loader.exec_module = execute  # type: ignore[assignment, method-assign]
        return spec

    def _then_register(
        self, exec_module: Callable[[types.ModuleType], None]
    ) -> Callable[[types.ModuleType], None]:
        def execute(module: types.ModuleType) -> None:
            exec_module(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                _register_dtensor()

        return execute


def _register_dtensor() -> None:
    try:
        _register_sharding()
    except Exception as error:  # must not break an import of PyTorch
        warnings.warn(
            f"Planish's norms do not take DTensors with PyTorch {torch.__version__}: {error}",
            stacklevel=2,
        )


def _register_sharding() -> None:
    from torch.distributed.tensor import Partial, Replicate, Shard
    from torch.distributed.tensor.experimental import register_sharding

    def placements(x: Any, weight: Any, over: int) -> Iterator[tuple[Any, Any, Any, Any]]:
        """Yields placements of x, its statistics, the parameters and the parameters' gradients."""
        yield Replicate(), Replicate(), Replicate(), Replicate()
        if over == _BATCH:
            yield Shard(1), Shard(1), Shard(0), Shard(0)
            return
        feature = x.ndim - 1 if over == _ROWS else 1
        for dim in range(x.ndim):
            if dim != feature:
                statistics = Shard(dim + 1 if dim < feature else dim)
                gains = dim - x.ndim + weight.ndim if weight is not None and over == _ROWS else -1
                if gains >= 0 and weight.shape[gains] != 1:  # a gain for each index of dim
                    yield Shard(dim), statistics, Shard(gains), Shard(gains)
                else:
                    yield Shard(dim), statistics, Replicate(), Partial()

    def where(given: object, placement: Any) -> Any:
        return placement if given else None

    def forward(x: Any, weight: Any, bias: Any, norm: str, over: int, *settings: Any) -> list[Any]:
        save = settings[-1]
        return [
            (
                [rows, where(save, statistics)],
                [rows, where(weight is not None, parameter), where(bias is not None, parameter)]
                + [None] * (2 + len(settings)),
            )
            for rows, statistics, parameter, _ in placements(x, weight, over)
        ]

    def add_forward(
        x: Any, residual: Any, weight: Any, bias: Any, norm: str, over: int, eps: float, save: bool
    ) -> list[Any]:
        return [
            (
                [rows, rows, where(save, statistics)],
                [rows, rows, where(weight is not None, parameter)]
                + [where(bias is not None, parameter)]
                + [None] * 4,
            )
            for rows, statistics, parameter, _ in placements(x, weight, over)
        ]

    def backward(
        dy: Any, dsum: Any, x: Any, statistics: Any, weight: Any, norm: str, over: int, *settings: Any
    ) -> list[Any]:
        mask = settings[-1]
        return [
            (
                [where(mask[0], rows), where(mask[1], gradient), where(mask[2], gradient)],
                [rows, where(dsum is not None, rows), rows, statistics]
                + [where(weight is not None, parameter)]
                + [None] * (2 + len(settings)),
            )
            for rows, statistics, parameter, gradient in placements(x, weight, over)
        ]

    def gated_forward(
        x: Any, gate: Any, weight: Any, bias: Any, norm: str, over: int, *settings: Any
    ) -> list[Any]:
        save = settings[-1]
        return [
            (
                [rows, where(save, statistics)],
                [rows, where(gate is not None, rows), where(weight is not None, parameter)]
                + [where(bias is not None, parameter)]
                + [None] * (2 + len(settings)),
            )
            for rows, statistics, parameter, _ in placements(x, weight, over)
        ]

    def quantized_forward(
        x: Any, residual: Any, gate: Any, weight: Any, bias: Any, norm: str, over: int, *settings: Any
    ) -> list[Any]:
        return [
            (
                [rows, rows, where(residual is not None, rows)],
                [rows, where(residual is not None, rows), where(gate is not None, rows)]
                + [where(weight is not None, parameter), where(bias is not None, parameter)]
                + [None] * (2 + len(settings)),
            )
            for rows, _, parameter, _ in placements(x, weight, over)
        ]

    def gated_backward(
        dy: Any,
        x: Any,
        gate: Any,
        statistics: Any,
        weight: Any,
        bias: Any,
        norm: str,
        over: int,
        *settings: Any,
    ) -> list[Any]:
        mask = settings[-1]
        return [
            (
                [where(mask[0], rows), where(mask[1], rows)]
                + [where(mask[2], gradient), where(mask[3], gradient)],
                [rows, rows, rows, statistics, where(weight is not None, parameter)]
                + [where(bias is not None, parameter)]
                + [None] * (2 + len(settings)),
            )
            for rows, statistics, parameter, gradient in placements(x, weight, over)
        ]

    def pointwise_placements(x: Any) -> Iterator[tuple[Any, Any]]:
        """Yields placements of x and the parameters' gradients. Parameters are replicated."""
        yield Replicate(), Replicate()
        for dim in range(x.ndim - 1):
            yield Shard(dim), Partial()

    def group_forward(
        x: Any, weight: Any, bias: Any, groups: int, eps: float, save: bool
    ) -> list[Any]:
        return [
            ([rows, where(save, statistics)], [rows, *parameters(weight, bias), None, None, None])
            for rows, statistics in ((Replicate(), Replicate()), (Shard(0), Shard(1)))
        ]

    def group_backward(
        dy: Any, x: Any, statistics: Any, weight: Any, groups: int, eps: float, mask: Sequence[bool]
    ) -> list[Any]:
        return [
            (
                [where(mask[0], rows), where(mask[1], gradient), where(mask[2], gradient)],
                [rows, rows, saved, *parameters(weight), None, None, None],
            )
            for rows, saved, gradient in (
                (Replicate(), Replicate(), Replicate()),
                (Shard(0), Shard(1), Partial()),
            )
        ]

    def parameters(*given: Any) -> list[Any]:
        return [where(parameter is not None, Replicate()) for parameter in given]

    def pointwise_forward(
        x: Any, alpha: Any, shift: Any, weight: Any, bias: Any, function: str
    ) -> list[Any]:
        return [
            ([rows], [rows, *parameters(alpha, shift, weight, bias), None])
            for rows, _ in pointwise_placements(x)
        ]

    def pointwise_backward(
        dy: Any, x: Any, alpha: Any, shift: Any, weight: Any, function: str, mask: Sequence[bool]
    ) -> list[Any]:
        return [
            (
                [where(mask[0], rows), *(where(needed, gradient) for needed in mask[1:])],
                [rows, rows, *parameters(alpha, shift, weight), None, None],
            )
            for rows, gradient in pointwise_placements(x)
        ]

    ops = torch.ops.planish
    register_sharding(ops.gated_norm_forward.default)(gated_forward)
    register_sharding(ops.gated_norm_backward.default)(gated_backward)
    register_sharding(ops.quantized_norm_forward.default)(quantized_forward)
    register_sharding(ops.norm_forward.default)(forward)
    register_sharding(ops.add_norm_forward.default)(add_forward)
    register_sharding(ops.norm_backward.default)(backward)
    register_sharding(ops.group_norm_forward.default)(group_forward)
    register_sharding(ops.group_norm_backward.default)(group_backward)
    register_sharding(ops.pointwise_norm_forward.default)(pointwise_forward)
    register_sharding(ops.pointwise_norm_backward.default)(pointwise_backward)
