"""Norms over the heads of xLSTM.

These classes take heads in a dimension of their own, so their shapes differ from LayerNorm's. They
are known by their code: a class is replaced if the source of its methods is one of those below.
"""

import hashlib
import inspect
import linecache
import re
import types
from typing import Any

from torch import Tensor, nn

from planish import functional
from planish._convert.checks import bases_of, check_parameters
from planish._convert.formula import Sources
from planish._convert.report import Unfit
from planish.nn import norms

__all__ = ["HeadsLayerNorm", "HeadsRMSNorm", "TransposedHeadsLayerNorm", "replace_heads"]


def _flat(x: Tensor, heads: int, size: int) -> Tensor:
    if x.dim() != 4 or x.shape[2:] != (heads, size):
        raise ValueError(
            f"[HeadsNorm] x must be [B, S, {heads}, {size}], heads of their width, "
            f"got {list(x.shape)}"
        )
    return x.flatten(-2)


class HeadsLayerNorm(norms.LayerNorm):
    """LayerNorm of each head: x [B, S, H, D] -> [B, S, H * D]."""

    def forward(self, input: Tensor) -> Tensor:  # type: ignore[override]  # no gate
        heads = self.groups
        return super().forward(_flat(input, heads, self.normalized_shape[0] // heads))


class HeadsRMSNorm(norms.RMSNorm):
    """RMSNorm of each head: x [B, S, H, D] -> [B, S, H * D]."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]  # no gate
        heads = self.groups
        return super().forward(_flat(x, heads, self.normalized_shape[0] // heads))


class TransposedHeadsLayerNorm(norms.LayerNorm):
    """LayerNorm of each head: x [B, H, S, D] -> [B, H, S, D], with any H that divides the weight."""

    def forward(self, input: Tensor) -> Tensor:  # type: ignore[override]  # no gate
        if input.dim() != 4 or input.shape[1] * input.shape[3] != self.normalized_shape[0]:
            raise ValueError(
                f"[HeadsNorm] x must be [B, H, S, D] with H * D = {self.normalized_shape[0]}, "
                f"got {list(input.shape)}"
            )
        x = input.transpose(1, 2)
        shape = x.shape[2:]
        weight, bias = (None if t is None else t.view(shape) for t in (self.weight, self.bias))
        offset = 0.0 if weight is None else self.weight_offset
        y = functional.layer_norm(x, shape[1:], weight, bias, self.eps, weight_offset=offset)
        return y.transpose(1, 2)


# Digests of the methods -> the replacement.
_KNOWN: dict[str, type[nn.Module]] = {
    "eb18eb61a9d4dced": HeadsLayerNorm,  # transformers 5.23, xLSTMMultiHeadLayerNorm
    "b7b6fd2b823ddc13": HeadsLayerNorm,  # xlstm 2.0.4 to 2.0.6, xlstm_large.components
    "20cdaacee0286520": HeadsRMSNorm,  # the same file
    "cb04316b21924432": TransposedHeadsLayerNorm,  # xlstm 1.0.8 to 2.0.6, components.ln
}
_DIGITS = 16
_NAMES = {"xLSTMMultiHeadLayerNorm", "MultiHeadLayerNorm", "MultiHeadRMSNorm"}
_IGNORED = {"__init__", "extra_repr", "reset_parameters"}


def replace_heads(module: nn.Module, to: str, eps: float | None) -> nn.Module | None:
    """Returns the replacement of a norm over heads, or None for another class. Raises Unfit."""
    kind = type(module)
    if kind.__name__ not in _NAMES:
        return None
    after = _KNOWN.get(_digest(kind))
    if after is None:
        raise Unfit(f"its code is not that of a known version of {kind.__name__}")
    if to != "planish":
        raise Unfit(f'"{to}" has no norm over heads')
    made: Any = module
    held = [name for name in ("weight", "bias") if name in module._parameters]
    check_parameters(module, held)
    weight, bias = (module._parameters.get(name) for name in ("weight", "bias"))
    for name in {"weight", "bias"} - set(held):
        if vars(module).get(name, 0) is not None:
            raise Unfit(f"its {name} is not a parameter: a hook or a wrapper computes it")
    if weight is None and bias is not None:
        raise Unfit("it has a bias but no weight")
    settings: dict[str, Any] = {"device": "meta", "elementwise_affine": weight is not None}
    if after is TransposedHeadsLayerNorm:
        size = int(made.ndim)
        if made.residual_weight and weight is not None:
            settings["weight_offset"] = 1.0
    else:
        size = int(made.num_heads) * int(made.head_dim)
        settings["groups"] = int(made.num_heads)
    if weight is not None and weight.shape != (size,):
        raise Unfit(f"its weight has {list(weight.shape)}, not [{size}]")
    if after is HeadsRMSNorm:
        if bias is not None:
            raise Unfit("it has a bias, which RMSNorm has not")
    else:
        settings["bias"] = bias is not None
    new: nn.Module = after(size, float(made.eps) if eps is None else eps, **settings)
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None:
            new._parameters[name] = parameter
    return new


def _digest(kind: type[nn.Module]) -> str:
    """Returns a digest of the methods of a class and its bases, without spaces and comments.

    Raises Unfit if their source is not that of their code.
    """
    sources = Sources()
    texts = []
    for base in bases_of(kind):
        if base.__module__ in ("abc", "typing"):
            continue
        for name, value in sorted(vars(base).items()):
            function = value.fget if isinstance(value, property) else value
            if name in _IGNORED or not isinstance(function, types.FunctionType):
                continue
            node = sources.of(function)
            file = inspect.getsourcefile(function) or ""
            lines = linecache.getlines(file)[node.lineno - 1 : node.end_lineno]
            text = "".join(re.sub(r"#.*", "", line) for line in lines)
            texts.append(f"{type(value).__name__} {name} " + re.sub(r"\s+", "", text))
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:_DIGITS]
