"""pi-mnist in PyTorch: 784-1000-1000-10, norms before ReLU, batch norm also on the logits."""

from torch import nn
from torch.nn import functional

import mirrors

UNIT = "cases"
SETTINGS = {"bn_variance": "biased"}  # like nn.BatchNorm1d, at any batch size
CHECK = {}
NORMS = mirrors.NORMS | {"batch": lambda width, eps: nn.BatchNorm1d(width, eps=eps)}
EPS = 1e-5


class Network(nn.Module):
    def __init__(self, settings):
        super().__init__()
        inputs, norm = 784, settings["norm"]
        self.depth = settings["depth"]
        for layer in range(self.depth + 1):
            is_output = layer == self.depth
            outputs = 10 if is_output else settings["width"]
            self.add_module(f"linear{layer}", nn.Linear(inputs, outputs))
            self.add_module(f"norm{layer}", NORMS["none" if is_output and norm != "batch" else norm](outputs, EPS))
            inputs = outputs

    def forward(self, x):
        for layer in range(self.depth + 1):
            x = getattr(self, f"norm{layer}")(getattr(self, f"linear{layer}")(x))
            if layer < self.depth:
                x = functional.relu(x)
        return x


def model(settings, start):
    return Network(settings)


def weight(name, weights):
    layer, _, kind = name.rpartition(".")
    return weights[f"{layer}.norm.{kind}" if layer.startswith("norm") else name]


def loss(network, batch):
    x, labels = batch
    return functional.cross_entropy(network(x), labels)


def size(batch):
    return len(batch[1])
