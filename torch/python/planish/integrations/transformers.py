"""Norms on the CPU for models of transformers, through the package ``kernels``.

``kernels`` replaces the forward pass of layers whose classes name a kernel. transformers maps these
names to kernels for GPUs; ``register`` maps them to Planish for the CPU.

    planish.integrations.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, use_kernels=True)
"""

import dataclasses
from typing import Any

import kernels
import torch
from torch import Tensor, nn

import planish.functional as ours

__all__ = ["LAYERS", "LayerNorm", "RMSNorm", "RMSNormGated", "register"]

_SILU = ("silu", "swish")


# The package kernels sets forward of an object to that of a class below, in which it allows no
# constructor and no other members. type(self) is the model's own class.


class RMSNorm(nn.Module):
    """``weight * x / sqrt(mean(x^2) + variance_epsilon)``, as in Llama.

    Rounds to the type of x once, after the product with weight; Llama's also rounds before it. If
    weight and x have different types, the model's own forward runs, because models differ in the
    type of the result.
    """

    can_torch_compile = True
    weight: Tensor
    variance_epsilon: float

    def forward(self, hidden_states: Tensor) -> Tensor:
        weight = self.weight
        if weight.dtype != hidden_states.dtype:
            return type(self).forward(self, hidden_states)
        return ours.rms_norm(hidden_states, weight.shape, weight, self.variance_epsilon)


class RMSNormGated(nn.Module):
    """RMSNorm times a function of ``gate``: ``silu`` or ``sigmoid``, the attribute ``activation``.

    The norm comes before the gate, as in Qwen3-Next, and rounds to the type of x once; for other
    activations the model's own forward runs, as it does if the types of x and gate differ.
    """

    can_torch_compile = True
    weight: Tensor
    variance_epsilon: float
    activation: str

    def forward(self, hidden_states: Tensor, gate: Tensor) -> Tensor:
        x, weight = hidden_states, self.weight
        if self.activation in _SILU and x.dtype == gate.dtype and x.shape == gate.shape:
            return ours.rms_norm(x, weight.shape, weight, self.variance_epsilon, gate=gate)
        if self.activation != "sigmoid":
            return type(self).forward(self, x, gate)
        y = ours.rms_norm(x.float(), weight.shape, weight, self.variance_epsilon)
        return (y * torch.sigmoid(gate.float())).to(x.dtype)


class LayerNorm(nn.Module):
    """``torch.nn.LayerNorm``."""

    can_torch_compile = True
    weight: Tensor | None
    bias: Tensor | None
    normalized_shape: tuple[int, ...]
    eps: float

    def forward(self, input: Tensor) -> Tensor:
        return ours.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


LAYERS: dict[str, type[nn.Module]] = {
    "LayerNorm": LayerNorm,
    "RMSNorm": RMSNorm,
    "RMSNormGated": RMSNormGated,
}


@dataclasses.dataclass(frozen=True)
class _Repository:
    """A layer of this module, in the interface of the repositories of ``kernels``."""

    layer_name: str

    def load(self) -> type[nn.Module]:
        return LAYERS[self.layer_name]


def register(*, layer_norm: bool = False) -> None:
    """Maps the names in LAYERS to these layers, on the CPU, for inference and training.

    Args:
        layer_norm: Also lets ``kernelize`` replace the forward pass of ``torch.nn.LayerNorm`` in
            every model. Subclasses that override it keep their own.
    """
    mapping: Any = {name: {"cpu": _Repository(name)} for name in LAYERS}
    kernels.register_kernel_mapping(mapping)
    if layer_norm:
        own = nn.LayerNorm.forward  # subclasses inherit the kernel's name
        kernels.replace_kernel_forward_from_hub(
            nn.LayerNorm, "LayerNorm", lambda module: type(module).forward is own
        )
