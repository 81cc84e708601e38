"""enwik8 in PyTorch: Transformer-XL with attention in einsums, like the paper's code."""

import math

import torch
from torch import nn
from torch.nn import functional

import mirrors

UNIT = "bytes"
SETTINGS = {}
CHECK = {"dropout": "0", "attention_dropout": "0"}


def shifted(scores):
    """Converts scores [B, H, T, K] from distances, farthest first, to positions: row t moves left
    by T - 1 - t."""
    b, h, t, k = scores.shape
    return functional.pad(scores, (1, 0)).view(b, h, k + 1, t)[:, :, 1:].view(b, h, t, k)


class Layer(nn.Module):
    def __init__(self, settings):
        super().__init__()
        width, self.heads, self.head_width = settings["width"], settings["heads"], settings["head_width"]
        inside = self.heads * self.head_width
        self.query = nn.Linear(width, inside, bias=False)
        self.key_value = nn.Linear(width, 2 * inside, bias=False)
        self.position = nn.Linear(width, inside, bias=False)
        self.attended = nn.Linear(inside, width, bias=False)
        self.inner, self.outer = nn.Linear(width, settings["inner"]), nn.Linear(settings["inner"], width)
        self.attention_norm, self.feedforward_norm = (mirrors.norm(settings, width) for _ in range(2))
        self.pre = settings["norm_position"] == "pre"
        self.dropout = nn.Dropout(settings["dropout"])
        self.attention_dropout = nn.Dropout(settings["attention_dropout"])

    def heads_of(self, x):
        return x.unflatten(-1, (self.heads, self.head_width))

    def attention(self, x, everything, sinusoids, content_bias, position_bias, hidden):
        q = self.heads_of(self.query(x))
        k, v = map(self.heads_of, self.key_value(everything).chunk(2, -1))
        r = self.heads_of(self.position(sinusoids))
        content = torch.einsum("bthd,bkhd->bhtk", q + self.heads_of(content_bias), k)
        position = torch.einsum("bthd,khd->bhtk", q + self.heads_of(position_bias), r)
        scores = (content + shifted(position)) / math.sqrt(self.head_width)
        p = self.attention_dropout(scores.masked_fill(hidden, -math.inf).softmax(-1))
        return self.attended(torch.einsum("bhtk,bkhd->bthd", p, v).flatten(2))

    def forward(self, x, memory, *rest):
        everything = x if memory is None else torch.cat([memory, x], 1)
        if self.pre:
            everything = self.attention_norm(everything)
        read = everything[:, -x.size(1) :]
        x = x + self.dropout(self.attention(read, everything, *rest))
        if not self.pre:
            x = self.attention_norm(x)
        read = self.feedforward_norm(x) if self.pre else x
        x = x + self.dropout(self.outer(self.dropout(functional.relu(self.inner(read)))))
        return x if self.pre else self.feedforward_norm(x)


class TransformerXl(nn.Module):
    def __init__(self, settings, symbols):
        super().__init__()
        width, inside = settings["width"], settings["heads"] * settings["head_width"]
        self.longest, self.memory = settings["memory"], None
        self.embedding = nn.Embedding(symbols, width)
        self.output_bias = nn.Parameter(torch.zeros(symbols))
        self.content_bias, self.position_bias = (nn.Parameter(torch.zeros(inside)) for _ in range(2))
        self.layers = nn.ModuleList(Layer(settings) for _ in range(settings["layers"]))
        self.dropout = nn.Dropout(settings["dropout"])
        self.register_buffer("frequencies", 10000 ** -(torch.arange(0, width, 2) / width), persistent=False)

    def forward(self, x, begins):
        if begins:
            self.memory = None
        y = self.dropout(self.embedding(x) * math.sqrt(self.embedding.embedding_dim))
        length, remembered = x.size(1), 0 if self.memory is None else self.memory[0].size(1)
        distances = torch.arange(remembered + length - 1, -1, -1, dtype=self.frequencies.dtype)
        angles = torch.outer(distances, self.frequencies)
        sinusoids = self.dropout(torch.cat([angles.sin(), angles.cos()], 1))
        hidden = torch.ones(length, remembered + length, dtype=torch.bool).triu(remembered + 1)
        memory = []
        for i, layer in enumerate(self.layers):
            before = None if self.memory is None else self.memory[i]
            now = y.detach()
            if self.longest:
                memory.append((now if before is None else torch.cat([before, now], 1))[:, -self.longest :])
            y = layer(y, before, sinusoids, self.content_bias, self.position_bias, hidden)
        self.memory = memory or None
        return functional.linear(self.dropout(y).flatten(0, 1), self.embedding.weight, self.output_bias)


def model(settings, start):
    return TransformerXl(settings, len(start["output_bias"]))


def weight(name, weights):
    return weights[mirrors.renamed(name, {"_norm.": "_norm.norm."})]


def loss(transformer, batch):
    symbols, following, begins = batch
    return functional.cross_entropy(transformer(symbols, begins), following)


def size(batch):
    return batch[1].numel()
