"""Operators that check the values of ``resets`` and ``mask``.

Being operators, each is one node for ``torch.compile`` and ``torch.export``, although its outcome
depends on data; Python code would break the graph.
"""

from typing import Any

import torch
from torch import Tensor

__all__: list[str] = []

_api: Any = torch.library  # without type hints
_library = _api.Library("planish", "FRAGMENT")


def _reset_flags(resets: Tensor, module: str) -> Tensor:
    flags = resets != 0
    wrong = flags & (resets != 1)  # NaN is neither 0 nor 1
    if bool(wrong.any()):
        value = resets[wrong][0].item()
        raise ValueError(f"[{module}] resets must be 0 or 1, got {value:g}")
    return flags


def _mask_lengths(mask: Tensor, module: str) -> Tensor:
    if not bool(mask[:1].any(0).all()):
        what = "mask must be True at the first step of each sequence"
        raise ValueError(f"[{module}] {what}, got False")
    if bool((mask[1:] & ~mask[:-1]).any()):
        what = "mask must be True up to the end of a sequence and False after it"
        raise ValueError(f"[{module}] {what}, got True after False")
    return mask.sum(0)


def _fake_reset_flags(resets: Tensor, module: str) -> Tensor:
    return torch.empty_like(resets, dtype=torch.bool)


def _fake_mask_lengths(mask: Tensor, module: str) -> Tensor:
    return mask.new_empty(mask.shape[1:], dtype=torch.int64)


def _vmap_reset_flags(info: Any, in_dims: Any, resets: Tensor, module: str) -> Any:
    return reset_flags(resets, module), in_dims[0]


def _vmap_mask_lengths(info: Any, in_dims: Any, mask: Tensor, module: str) -> Any:
    return mask_lengths(mask.movedim(in_dims[0], -1), module), mask.dim() - 2


def _define(schema: str, kernel: Any, fake: Any, vmap: Any) -> Any:
    name = kernel.__name__.removeprefix("_")
    _library.define(name + schema)
    _library.impl(name, kernel, "CompositeExplicitAutograd")
    _api.register_fake(f"planish::{name}", fake, lib=_library)
    _api.register_vmap(f"planish::{name}", vmap, lib=_library)
    return getattr(torch.ops.planish, name).default


#: Returns resets, 0 or 1 of any real type, as bool. Raises for any other value.
reset_flags = _define(
    "(Tensor resets, str module) -> Tensor", _reset_flags, _fake_reset_flags, _vmap_reset_flags
)
#: Returns the lengths [...] of a bool mask [T, ...] that is True before the end of each sequence.
#: Raises if a sequence has no step, or has True after False.
mask_lengths = _define(
    "(Tensor mask, str module) -> Tensor", _mask_lengths, _fake_mask_lengths, _vmap_mask_lengths
)
