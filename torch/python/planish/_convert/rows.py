"""Replacements of norms."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from planish._checks import is_eps
from planish._convert.checks import check_class, check_instance, check_parameters
from planish._convert.heads import replace_heads
from planish._convert.report import Unfit
from planish._convert.unknown import Verdicts
from planish._convert.weight_typed import WeightTypedRMSNorm
from planish.nn import groups, norms, pointwise

__all__ = ["Options", "is_of_this_library", "replace_norm"]


@dataclass
class Options:
    """The arguments of ``convert`` that a replacement needs."""

    to: str
    eps: float | None = None
    C: float = 1.0
    k: float = 0.1
    variant: str | None = None
    keep_rounding: bool = False
    like: Tensor = field(default_factory=lambda: torch.empty(0))  # type and device of new tensors
    verdicts: Verdicts = field(default_factory=Verdicts)


@dataclass
class _Row:
    """A norm over rows: shape, eps and tensors."""

    shape: tuple[int, ...]
    eps: float | None
    affine: bool  # a norm with parameters in its place has a weight
    biased: bool  # and a bias
    weight: Tensor | None = None
    bias: Tensor | None = None
    is_rms: bool = False
    offset: float = 0.0  # added to the weight
    is_weight_typed: bool = False  # results have the type of a 16-bit weight
    cast: bool = False  # rounds before the product with the weight


_BATCH = (nn.BatchNorm1d, nn.BatchNorm2d, norms.BatchNorm1d, norms.BatchNorm2d)
_CHANNEL = (norms.LayerNorm1d, norms.LayerNorm2d)
_BARE = (norms.LayerNormSimple, norms.DetachNorm, norms.AdaNorm)  # without parameters
_GROUPS = {
    getattr(nn, name): getattr(groups, name) for name in groups.__all__
}  # of torch.nn: of this library
_POINTWISE = {"dyt": pointwise.DyT, "derf": pointwise.Derf}
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def is_of_this_library(kind: type) -> bool:
    return kind.__module__.split(".")[0] == "planish"


def replace_norm(module: nn.Module, options: Options) -> nn.Module:
    """Returns the norm that ``options.to`` puts in the place of module. Raises Unfit if none."""
    check_instance(module)
    kind, to = type(module), options.to
    if to == "planish" and is_of_this_library(kind):
        raise Unfit("it is this library's already")
    if kind in _BATCH + _CHANNEL:
        return _channels(module, options)
    over_heads = replace_heads(module, to, options.eps)
    if over_heads is not None:
        return over_heads
    if kind in _GROUPS or kind in _GROUPS.values():
        return _groups(module, options)
    row = _row_of(module, options)
    if to == "none":
        return nn.Identity()
    if to == "planish":
        return _rms(row, options) if row.is_rms else _layer(row, options)
    if to == "torch":
        if kind in (norms.DetachNorm, norms.AdaNorm):
            raise Unfit(f"torch.nn has no {kind.__name__}")
        if kind is norms.LayerNormSimple:
            row.affine = row.biased = False
        return _rms(row, options, nn.RMSNorm) if row.is_rms else _layer(row, options, nn.LayerNorm)
    if to == "layer":
        result: nn.Module = _layer(row, options)
    elif to == "rms":
        result = _rms(row, options)
    elif to in _POINTWISE:
        result = _pointwise(row, options)
    else:
        result = _bare(row, options)
    if kind is type(result) and module.extra_repr() == result.extra_repr():
        raise Unfit("it is one already")
    return result


def _bare(row: _Row, options: Options) -> nn.Module:
    to, eps = options.to, _eps(row.eps, options, 1e-5)
    if to == "simple":
        return norms.LayerNormSimple(row.shape, eps)
    if to.startswith("detach"):
        return norms.DetachNorm(row.shape, to != "detach_std", to != "detach_mean", eps)
    if to == "ada_as_coded" and math.prod(row.shape) < 2:
        raise Unfit("rows of one element have no unbiased deviation")
    return norms.AdaNorm(row.shape, options.C, options.k, to == "ada_as_coded", eps)


def _row_of(module: Any, options: Options) -> _Row:
    kind = type(module)
    if kind in (nn.LayerNorm, norms.LayerNorm):
        check_class(kind)
        check_parameters(module, ("weight", "bias"))
        weight, bias = module.weight, module.bias
        if weight is None and bias is not None:
            raise Unfit("it has a bias but no weight")
        shape = _shape_of(module, weight, bias)
        offset = _offset_of(module)
        affine, biased = weight is not None, bias is not None
        return _Row(shape, _eps_of(module), affine, biased, weight, bias, offset=offset)
    if kind in (nn.RMSNorm, norms.RMSNorm, WeightTypedRMSNorm):
        if options.to == "torch" and kind is WeightTypedRMSNorm:
            raise Unfit("torch.nn's RMSNorm has results of another type")
        check_class(kind)
        check_parameters(module, ("weight",))
        weight = module.weight
        affine = weight is not None
        eps = None if module.eps is None else _eps_of(module)
        shape, offset = _shape_of(module, weight), _offset_of(module)
        typed = kind is WeightTypedRMSNorm
        return _Row(
            shape, eps, affine, affine, weight, is_rms=True, offset=offset, is_weight_typed=typed
        )
    if kind in _BARE:
        check_class(kind)
        check_parameters(module, ())
        return _Row(_shape_of(module), _eps_of(module), affine=True, biased=True)
    if kind in _POINTWISE.values() and options.to != "torch":
        check_class(kind)
        scalars = ("alpha", "shift") if kind is pointwise.Derf else ("alpha",)
        check_parameters(module, (*scalars, "weight", "bias"))
        weight, bias = module.weight, module.bias
        affine, biased = weight is not None, bias is not None
        return _Row(_shape_of(module, weight, bias), None, affine, biased, weight, bias)
    if is_of_this_library(kind) and options.to == "torch":
        raise Unfit(f"torch.nn has no {kind.__name__}")
    if is_of_this_library(kind) or kind.__module__.startswith("torch."):
        raise Unfit(f"there is no replacement for {kind.__name__}")
    for base, name in (
        (nn.LayerNorm, "LayerNorm"),
        (nn.RMSNorm, "RMSNorm"),
        (nn.modules.batchnorm._BatchNorm, "BatchNorm"),
    ):
        if isinstance(module, base):
            raise Unfit(f"it is a {name} of another class")
    if options.to == "torch":
        raise Unfit(f"torch.nn has no {kind.__name__}")
    found = options.verdicts.rms(module)
    return _Row(
        (found.weight.numel(),),
        found.eps,
        True,
        True,
        found.weight,
        is_rms=True,
        offset=found.offset,
        is_weight_typed=found.is_weight_typed,
        cast=found.casts and options.keep_rounding,
    )


def _shape_of(module: Any, *parameters: Tensor | None) -> tuple[int, ...]:
    shape = tuple(module.normalized_shape)
    if (groups := getattr(module, "groups", 1)) != 1:
        raise Unfit(f"it has {groups} groups")
    if not getattr(module, "norm_before_gate", True):
        raise Unfit("it has norm_before_gate=False")
    if getattr(module, "cast_before_weight", False):
        raise Unfit("it has cast_before_weight=True")
    for parameter in parameters:
        if parameter is not None and tuple(parameter.shape) != shape:
            raise Unfit(
                f"its normalized_shape is {list(shape)}, its parameters have "
                f"{list(parameter.shape)}"
            )
    return shape


def _offset_of(module: Any) -> float:
    offset = getattr(module, "weight_offset", 0.0)
    if not isinstance(offset, (int, float)) or not math.isfinite(offset):
        raise Unfit(f"its weight_offset is {offset}")
    return float(offset)


def _eps_of(module: Any) -> float:
    eps = module.eps
    if not isinstance(eps, (int, float)) or not is_eps(eps):
        raise Unfit(f"its eps is {eps}")
    return float(eps)


def _eps(own: float | None, options: Options, default: float) -> float:
    if options.eps is not None:
        return options.eps
    return default if own is None else own


def _offset_for(row: _Row, kind: type[nn.Module]) -> dict[str, float]:
    """Returns the argument weight_offset of a norm of this class, if it needs one."""
    if row.offset == 0 or row.weight is None:
        return {}
    if not is_of_this_library(kind):
        raise Unfit(f"torch.nn's {kind.__name__} has no weight_offset")
    return {"weight_offset": row.offset}


def _vector(row: _Row, fill: float, options: Options) -> nn.Parameter:
    like = options.like if row.weight is None else row.weight
    return nn.Parameter(torch.full(row.shape, fill, dtype=like.dtype, device=like.device))


def _put(module: nn.Module, **tensors: Tensor | None) -> None:
    """Replaces tensors of module on the meta device by these, which are not copied."""
    for name, tensor in tensors.items():
        if isinstance(tensor, nn.Parameter):
            module._parameters[name] = tensor
        else:
            module._buffers[name] = tensor


def _layer(row: _Row, options: Options, kind: type[nn.LayerNorm] = norms.LayerNorm) -> nn.Module:
    eps = _eps(row.eps, options, 1e-5)
    offset: Any = _offset_for(row, kind)
    after = kind(list(row.shape), eps, row.affine, row.biased, device="meta", **offset)
    if row.affine:
        _put(after, weight=_vector(row, 1, options) if row.weight is None else row.weight)
    if row.affine and row.biased:
        _put(after, bias=_vector(row, 0, options) if row.bias is None else row.bias)
    return after


def _rms(row: _Row, options: Options, kind: type[nn.RMSNorm] | None = None) -> nn.Module:
    if kind is None:
        kind = WeightTypedRMSNorm if row.is_weight_typed else norms.RMSNorm
    eps = row.eps if options.eps is None else options.eps
    further: Any = _offset_for(row, kind)
    if row.cast:
        further["cast_before_weight"] = True
    after = kind(list(row.shape), eps, row.affine, device="meta", **further)
    if row.affine:
        _put(after, weight=_vector(row, 1, options) if row.weight is None else row.weight)
    return after


def _pointwise(row: _Row, options: Options) -> nn.Module:
    kind = _POINTWISE[options.to]
    if row.offset != 0 and row.weight is not None:
        raise Unfit(f"{kind.__name__} has no weight_offset")
    like = options.like if row.weight is None else row.weight
    # Only scalars have memory of their own.
    after = kind(row.shape, elementwise_affine=False, device=like.device, dtype=like.dtype)
    after.elementwise_affine = row.affine
    if row.affine:
        _put(after, weight=_vector(row, 1, options) if row.weight is None else row.weight)
    if row.affine and row.biased:
        _put(after, bias=_vector(row, 0, options) if row.bias is None else row.bias)
    return after


def _groups(module: Any, options: Options) -> nn.Module:
    to, kind = options.to, type(module)
    check_class(kind)
    is_group = isinstance(module, nn.GroupNorm)
    check_parameters(module, ("weight", "bias"), () if is_group else _STATISTICS)
    if to == "none":
        return nn.Identity()
    if to not in ("planish", "torch"):
        raise Unfit(f'it normalizes channels, "{to}" normalizes rows')
    channels = module.num_channels if is_group else module.num_features
    for name in ("weight", "bias", "running_mean", "running_var"):
        tensor = getattr(module, name, None)
        if tensor is not None and tensor.shape != (channels,):
            raise Unfit(f"it has {channels} channels, its {name} has {list(tensor.shape)}")
    if module.weight is None and module.bias is not None:
        raise Unfit("it has a bias but no weight")
    eps, affine = _eps(_eps_of(module), options, 1e-5), module.weight is not None
    after: nn.Module
    if is_group:
        if not isinstance(module.num_groups, int) or module.num_groups < 1:
            raise Unfit(f"its num_groups is {module.num_groups}")
        if channels % module.num_groups != 0:
            raise Unfit(f"its num_groups, {module.num_groups}, does not divide {channels}")
        group: Any = groups.GroupNorm if to == "planish" else nn.GroupNorm
        after = group(module.num_groups, channels, eps, affine, device="meta")
    else:
        if (module.running_mean is None) != (not module.track_running_stats):
            raise Unfit("its track_running_stats does not agree with its buffers")
        if module.momentum is None or not 0 <= module.momentum <= 1:
            raise Unfit(f"its momentum is {module.momentum}")
        table = _GROUPS if to == "planish" else {ours: theirs for theirs, ours in _GROUPS.items()}
        after = table[kind](
            channels, eps, module.momentum, affine, module.track_running_stats, device="meta"
        )
        _put(after, **{name: module._buffers.get(name) for name in _STATISTICS})
        after._non_persistent_buffers_set = set(module._non_persistent_buffers_set)
    if affine:
        _put(after, weight=module.weight)
        after._parameters["bias"] = module.bias
    return after


def _channels(module: Any, options: Options) -> nn.Module:
    to, kind = options.to, type(module)
    check_class(kind)
    if kind in _CHANNEL:
        check_parameters(module, ("weight", "bias"))
        if to == "torch":
            raise Unfit(f"torch.nn has no {kind.__name__}")
        if to == "layer":
            raise Unfit("it is one already")
    else:
        _check_batch_norm(module)
    if to == "none":
        return nn.Identity()
    if to not in ("planish", "layer", "torch"):
        raise Unfit(f'it normalizes channels, "{to}" normalizes rows')
    if to == "torch" and module.unbiased:
        raise Unfit(f"torch.nn has no {kind.__name__} with unbiased=True")
    eps = _eps(_eps_of(module), options, 1e-5)
    affine, biased = module.weight is not None, module.bias is not None
    flat = isinstance(module, nn.BatchNorm1d)
    after: nn.Module
    if to == "layer":
        layer = norms.LayerNorm1d if flat else norms.LayerNorm2d
        after = layer(module.num_features, eps, affine, biased, device="meta")
    else:
        here = norms if to == "planish" else nn
        batch: Any = here.BatchNorm1d if flat else here.BatchNorm2d
        after = batch(
            module.num_features,
            eps,
            module.momentum,
            affine,
            module.track_running_stats,
            device="meta",
        )
        _put(after, **{name: module._buffers.get(name) for name in _STATISTICS})
        after._non_persistent_buffers_set = set(module._non_persistent_buffers_set)
    if affine:
        _put(after, weight=module.weight)
        after._parameters["bias"] = module.bias
    return after


def _check_batch_norm(module: Any) -> None:
    check_parameters(module, ("weight", "bias"), _STATISTICS)
    size = (module.num_features,)
    for name in ("weight", "bias", "running_mean", "running_var"):
        tensor = getattr(module, name)
        if tensor is not None and tensor.shape != size:
            raise Unfit(f"its num_features is {size[0]}, its {name} has {list(tensor.shape)}")
    if module.weight is None and module.bias is not None:
        raise Unfit("it has a bias but no weight")
    mean, var = module.running_mean, module.running_var
    if len({mean is None, var is None, not module.track_running_stats}) > 1:
        raise Unfit("its track_running_stats does not agree with its buffers")
    if mean is not None and var is not None and mean.dtype != var.dtype:
        raise Unfit("its buffers have two types")
    momentum = module.momentum
    if momentum is not None and not 0 <= momentum <= 1:
        raise Unfit(f"its momentum is {momentum}")
