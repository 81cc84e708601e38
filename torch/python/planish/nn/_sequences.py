"""Operators that check the values of ``resets`` and ``mask``.

They are operators so that ``torch.compile`` and ``torch.export`` record one node for a check whose
outcome depends on data, instead of breaking the graph.
"""

from typing import Any

import torch
from torch import Tensor

__all__: list[str] = []


@torch.library.custom_op("planish::reset_flags", mutates_args=())
def reset_flags(resets: Tensor, module: str) -> Tensor:
    """Returns resets, 0 or 1 of any real type, as bool. Throws for any other value."""
    flags = resets != 0
    wrong = flags & (resets != 1)  # NaN is neither 0 nor 1
    if bool(wrong.any()):
        value = resets[wrong][0].item()
        raise ValueError(f"[{module}] resets must be 0 or 1 but has {value:g}")
    return flags


@reset_flags.register_fake
def _(resets: Tensor, module: str) -> Tensor:
    return torch.empty_like(resets, dtype=torch.bool)


@reset_flags.register_vmap
def _(info: Any, in_dims: tuple[int | None, None], resets: Tensor, module: str) -> Any:
    return reset_flags(resets, module), in_dims[0]


@torch.library.custom_op("planish::mask_lengths", mutates_args=())
def mask_lengths(mask: Tensor, module: str) -> Tensor:
    """Returns the lengths [...] of a bool mask [T, ...] that is True before the end of a sequence.

    Throws if a sequence has no step, or if it continues after a step that is False.
    """
    lengths = mask.sum(0)
    if not bool(mask[:1].any(0).all()):
        what = "mask must be True at the first step of each sequence"
        raise ValueError(f"[{module}] {what} but has False")
    if bool((mask[1:] & ~mask[:-1]).any()):
        what = "mask must be True up to the end of a sequence and False after it"
        raise ValueError(f"[{module}] {what} but has True after False")
    return lengths


@mask_lengths.register_fake
def _(mask: Tensor, module: str) -> Tensor:
    return mask.new_empty(mask.shape[1:], dtype=torch.int64)


@mask_lengths.register_vmap
def _(info: Any, in_dims: tuple[int | None, None], mask: Tensor, module: str) -> Any:
    assert in_dims[0] is not None
    return mask_lengths(mask.movedim(in_dims[0], -1), module), mask.dim() - 2
