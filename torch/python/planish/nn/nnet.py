"""The ``nnet`` constructor of the blog post that introduced online layer normalization."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from .norms import OnlineLayerNorm

__all__ = ["NNet", "nnet"]

_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "identity": nn.Identity,
    "logistic": nn.Sigmoid,
    "relu": nn.ReLU,
    "softplus": nn.Softplus,
    "softsign": nn.Softsign,
    "tanh": nn.Tanh,
}


def _layer_line(layer: nn.Module, width: int) -> str:
    if isinstance(layer, nn.Linear):
        kind = "Linear" if layer.bias is None else "Affine"
        return f"{kind}{{{layer.in_features}-->{layer.out_features}}}"
    if isinstance(layer, OnlineLayerNorm):
        return f"LayerNorm{{n={layer.num_features}, mu={layer.mu}, sigma={layer.sigma}}}"
    for name, module in _ACTIVATIONS.items():
        if type(layer) is module:
            return f"{name}{{{width}}}"
    return f"{type(layer).__name__}{{{width}}}"


class NNet(nn.Sequential):
    """A Sequential that prints one line for each layer, as in the post."""

    def __repr__(self) -> str:
        lines, width, dtype = [], 0, torch.get_default_dtype()
        for layer in self:
            if isinstance(layer, nn.Linear):
                width, dtype = layer.out_features, layer.weight.dtype
            lines.append("   " + _layer_line(layer, width))
        return f"Chain{{{str(dtype).removeprefix('torch.')}}}(\n" + "\n".join(lines) + "\n)"


def nnet(
    nin: int,
    nout: int,
    hidden: int | Sequence[int],
    inner: str | Callable[[], nn.Module] = "relu",
    output: str | Callable[[], nn.Module] = "identity",
    layernorm: bool = True,
    *,
    alpha: float = 0.1,
    device: Any = None,
    dtype: Any = None,
    schedule: str = "constant",
) -> NNet:
    """Returns a multi-layer perceptron with online layer normalization on every layer.

    This is the constructor of T. Breloff's post "Online Layer Normalization" (2016). Each width in
    ``[*hidden, nout]`` adds a linear map without bias, OnlineLayerNorm(width, alpha, schedule=...)
    and the activation ``inner``; the last layer has ``output`` instead. With ``layernorm=False``
    there are no norms, and the linear maps have a bias. Activations are "identity", "logistic",
    "relu", "softplus", "softsign", "tanh", or a callable that returns a module.

    Shape: x [..., nin], y [..., nout]. Raises ValueError for a width below 1 (below 2 with
    layernorm), an unknown activation or schedule, and alpha outside (0, 1].

    The network prints one line for each layer; a norm shows its state, as in the post.

    >>> nnet(3, 5, [4, 5, 4], "relu", "logistic", layernorm=True)
    Chain{float32}(
       Linear{3-->4}
       LayerNorm{n=4, mu=0.0, sigma=1.0}
       relu{4}
       Linear{4-->5}
       LayerNorm{n=5, mu=0.0, sigma=1.0}
       relu{5}
       Linear{5-->4}
       LayerNorm{n=4, mu=0.0, sigma=1.0}
       relu{4}
       Linear{4-->5}
       LayerNorm{n=5, mu=0.0, sigma=1.0}
       logistic{5}
    )
    """
    widths = [nin, *([hidden] if isinstance(hidden, int) else hidden), nout]
    minimum = 2 if layernorm else 1
    for argument, width in zip(["nin"] + ["hidden"] * (len(widths) - 2) + ["nout"], widths):
        if width < (1 if argument == "nin" else minimum):
            raise ValueError(
                f"[nnet] {argument} must be at least {1 if argument == 'nin' else minimum}, "
                f"got {width}"
            )
    for argument, activation in (("inner", inner), ("output", output)):
        if not callable(activation) and activation not in _ACTIVATIONS:
            raise ValueError(
                f"[nnet] {argument} must be a callable or one of {', '.join(_ACTIVATIONS)}, "
                f"got {activation!r}"
            )
    net = NNet()
    for i, (before, width) in enumerate(zip(widths, widths[1:])):
        net.append(nn.Linear(before, width, bias=not layernorm, device=device, dtype=dtype))
        if layernorm:
            net.append(OnlineLayerNorm(width, alpha, True, device, dtype, schedule))
        activation = output if i + 2 == len(widths) else inner
        net.append(activation() if callable(activation) else _ACTIVATIONS[activation]())
    return net
