"""parser in PyTorch: concatenated embeddings and linear layers."""

from torch import nn
from torch.nn import functional

import mirrors

UNIT = "transitions"
SETTINGS = {}
CHECK = {"dropout": "0"}
ACTIVATIONS = {"relu": functional.relu, "cube": lambda x: x**3, "tanh": lambda x: x.tanh()}


class Parser(nn.Module):
    def __init__(self, settings, tokens, features, outputs):
        super().__init__()
        hidden, layers = settings["hidden"], settings["hidden_layers"]
        self.activation = ACTIVATIONS[settings["activation"]]
        self.embedding = nn.Embedding(tokens, settings["embedding"])
        sizes = [features * settings["embedding"]] + [hidden] * layers
        self.linears = nn.ModuleList(nn.Linear(*pair) for pair in zip(sizes, sizes[1:]))
        self.norms = nn.ModuleList(mirrors.norm(settings, hidden) for _ in self.linears)
        self.dropout = nn.Dropout(settings["dropout"])
        self.output = nn.Linear(hidden, outputs)

    def forward(self, tokens):
        x = self.embedding(tokens).flatten(1)
        for linear, norm in zip(self.linears, self.norms):
            x = self.dropout(self.activation(norm(linear(x))))
        return self.output(x)


def model(settings, start):
    return Parser(settings, len(start["input.embedding"]), len(start["input.weight"]), len(start["output.bias"]))


def weight(name, weights):
    if name == "embedding.weight":
        return weights["input.embedding"]
    if name == "linears.0.weight":
        return weights["input.weight"].flatten(0, 1).t()
    kind, _, place = name.partition(".")
    if kind == "output":
        return weights[name]
    layer, _, place = place.partition(".")
    ours = "input" if layer == "0" else f"hidden{layer}"
    return weights[f"{ours}_norm.norm.{place}" if kind == "norms" else f"{ours}.{place}"]


def loss(parser, batch):
    features, mask, transitions = batch  # the mask is -inf for forbidden transitions
    return functional.cross_entropy(parser(features) + mask, transitions)


def size(batch):
    return len(batch[2])
