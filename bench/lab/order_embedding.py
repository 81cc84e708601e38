"""order-embedding in PyTorch: nn.GRU of packed captions; with layer normalization, which nn.GRU
lacks, a GRU composed of tensor operations and nn.LayerNorm, step by step."""

import torch
from torch import nn
from torch.nn import functional

UNIT = "captions"
SETTINGS = {}
CHECK = {"lr": "0.0001"}  # Adam scales up gradients that are only rounding errors
MARGINS = {"order": 0.05, "symmetric": 0.2}


class PackedGRU(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.layer = nn.GRU(inputs, hidden)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        return self.layer(packed)[1][0]


class LayerNormGRU(nn.Module):
    """Ba, Kiros & Hinton 2016, Eq. 26-28, in PyTorch's order of gates: r, z, n."""

    def __init__(self, inputs, hidden, eps):
        super().__init__()
        self.weight_ih = nn.Parameter(torch.empty(3 * hidden, inputs))
        self.weight_hh = nn.Parameter(torch.empty(3 * hidden, hidden))
        self.gates_ih, self.new_ih = nn.LayerNorm(2 * hidden, eps), nn.LayerNorm(hidden, eps)
        self.gates_hh, self.new_hh = nn.LayerNorm(2 * hidden, eps), nn.LayerNorm(hidden, eps)

    def forward(self, x, lengths):
        hidden = self.weight_hh.size(1)
        h = x.new_zeros(x.size(1), hidden)
        sums = functional.linear(x, self.weight_ih)
        gates_x, new_x = self.gates_ih(sums[..., : 2 * hidden]), self.new_ih(sums[..., 2 * hidden :])
        for t in range(len(x)):
            sums = functional.linear(h, self.weight_hh)
            r, z = (gates_x[t] + self.gates_hh(sums[:, : 2 * hidden])).sigmoid().chunk(2, 1)
            new = (new_x[t] + r * self.new_hh(sums[:, 2 * hidden :])).tanh()
            h = torch.where((t < lengths).unsqueeze(1), (1 - z) * new + z * h, h)
        return h


class OrderEmbedding(nn.Module):
    def __init__(self, settings, words, features):
        super().__init__()
        inputs, hidden = settings["word_size"], settings["hidden"]
        self.order = settings["score"] == "order"
        self.margin = settings["margin"] or MARGINS[settings["score"]]
        self.words = nn.Embedding(words, inputs)
        plain = settings["norm"] == "none"
        self.recurrent = PackedGRU(inputs, hidden) if plain else LayerNormGRU(inputs, hidden, settings["eps"])
        self.image = nn.Linear(features, hidden)

    def place(self, x):
        y = functional.normalize(x)
        return y.abs() if self.order else y

    def forward(self, captions, lengths, features):
        u = self.place(self.recurrent(self.words(captions), lengths))
        v = self.place(self.image(features))
        errors = (u.unsqueeze(1) - v).clamp(min=0).square().sum(2) if self.order else -u @ v.t()
        right = errors.diagonal()
        costs = (self.margin - errors + right.unsqueeze(1)).clamp(min=0)
        costs = costs + (self.margin - errors + right).clamp(min=0)
        return costs.masked_fill(torch.eye(len(errors), dtype=torch.bool), 0).sum()


def model(settings, start):
    return OrderEmbedding(settings, len(start["words"]), start["image.weight"].size(1))


def weight(name, weights):
    if name == "words.weight":
        return weights["words"]
    if name in ("recurrent.weight_ih", "recurrent.weight_hh"):
        return weights[f"recurrent.layer.{name.partition('.')[2]}_l0"]
    part, _, place = name.removeprefix("recurrent.").partition(".")
    if not part.startswith(("gates_", "new_")):
        return weights[name]
    kind, _, sums = part.partition("_")
    values = weights[f"recurrent.layer.ln_{sums}_{place}_l0"]
    hidden = len(values) // 3
    return values[: 2 * hidden] if kind == "gates" else values[2 * hidden :]


def loss(embedding, batch):
    return embedding(*batch)


def size(batch):
    return len(batch[1])
