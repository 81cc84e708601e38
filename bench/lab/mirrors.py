"""What the tasks' models in PyTorch share. A task's module has
UNIT            what is counted in a batch: "cases", "tokens"
CHECK           settings of the comparison of the losses, such as no dropout, which draws other masks
model(settings) the model, an nn.Module, as a user of PyTorch writes it
weight(name, weights)  the start of its parameter of that name, from Planish's parameters and buffers
loss(model, batch)     from a batch's tensors as the task gathers them
size(batch)     how many UNITs it has
"""

import torch
from torch import nn

NORMS = {
    "none": lambda shape, eps: nn.Identity(),
    "layer": lambda shape, eps: nn.LayerNorm(shape, eps=eps),
    "layer-simple": lambda shape, eps: nn.LayerNorm(shape, eps=eps, elementwise_affine=False),
    "rms": lambda shape, eps: nn.RMSNorm(shape, eps=eps),
}


def norm(settings, shape):
    return NORMS[settings["norm"]](shape, settings["eps"])


class Weights(dict):
    """A dictionary that knows what has been read."""

    def __init__(self, items):
        super().__init__(items)
        self.unread = set(self)

    def __getitem__(self, name):
        self.unread.discard(name)
        return super().__getitem__(name)


def fill(model, weight, start):
    """Gives every parameter its start; ValueError where one of Planish's `start` goes nowhere."""
    weights = Weights(start)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weight(name, weights).view_as(parameter))
    if weights.unread:
        raise ValueError(f"every parameter must have its place in the model but {sorted(weights.unread)} have none")
