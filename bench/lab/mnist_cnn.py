"""mnist-cnn in PyTorch: channels first, as in its documentation."""

from torch import nn
from torch.nn import functional

import mirrors

UNIT = "cases"
SETTINGS = {}
CHECK = {}


class Network(nn.Module):
    def __init__(self, settings):
        super().__init__()
        everywhere = settings["norm_at"] == "all"

        def convolution_norm(*shape):
            return mirrors.norm(settings, shape) if everywhere else nn.Identity()

        self.convolution0 = nn.Conv2d(1, 20, 5)
        self.convolution0_norm = convolution_norm(20, 24, 24)
        self.convolution1 = nn.Conv2d(20, 50, 5)
        self.convolution1_norm = convolution_norm(50, 8, 8)
        self.hidden = nn.Linear(50 * 4 * 4, settings["hidden"])
        self.hidden_norm = mirrors.norm(settings, settings["hidden"])
        self.output = nn.Linear(settings["hidden"], 10)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.convolution0_norm(self.convolution0(x))), 2)
        x = functional.max_pool2d(functional.relu(self.convolution1_norm(self.convolution1(x))), 2)
        x = functional.relu(self.hidden_norm(self.hidden(x.flatten(1))))
        return self.output(x)


def model(settings, start):
    return Network(settings)


def weight(name, weights):
    """Planish's channels are last in the norms of the convolutions and in the linear layer's
    inputs."""
    layer, _, kind = name.rpartition(".")
    value = weights[f"{layer}.norm.{kind}" if layer.endswith("_norm") else name]
    if layer.startswith("convolution") and layer.endswith("_norm"):
        return value.permute(2, 0, 1)
    if name == "hidden.weight":
        return value.view(-1, 4, 4, 50).permute(0, 3, 1, 2).reshape(value.shape)
    return value


def loss(network, batch):
    x, labels = batch
    return functional.cross_entropy(network(x.view(-1, 1, 28, 28)), labels)


def size(batch):
    return len(batch[1])
