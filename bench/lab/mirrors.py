"""Shared parts of the tasks' models in PyTorch. The module of a task has these members:

- UNIT: the unit of a batch, "cases" or "tokens".
- SETTINGS: changes of the preset's settings, such as a learning rate that needs no warm-up.
- CHECK: further changes for comparing losses, such as no dropout, whose masks would differ.
- CHECK_NONE: further changes for the model without norms; optional.
- model(settings, start): returns the model, an nn.Module, as a user of PyTorch writes it. `start` has
  Planish's parameters, for their sizes.
- weight(name, weights): returns the initial value of the model's parameter `name`. `weights` are
  Planish's parameters.
- loss(model, batch): returns the loss of a batch's tensors, as the task gathers them.
- size(batch): returns the number of units in a batch."""

import math

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
    """Dictionary that records which items were read."""

    def __init__(self, items):
        super().__init__(items)
        self.unread = set(self)

    def __getitem__(self, name):
        self.unread.discard(name)
        return super().__getitem__(name)


def fill(model, weight, start):
    """Initializes every parameter. Raises ValueError if one of Planish's parameters `start` is
    unused."""
    weights = Weights(start)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weight(name, weights).view_as(parameter))
    if weights.unread:
        raise ValueError(f"parameters without a place in the model: {sorted(weights.unread)}")


def renamed(name, parts):
    """Returns `name` with each part that is a key replaced."""
    for old, new in parts.items():
        name = name.replace(old, new)
    return name


def sinusoids(length, width):
    """Returns positions [length, width] as in Vaswani et al. 2017, 3.5."""
    angles = torch.arange(length).double().unsqueeze(1) * 1e-4 ** (torch.arange(0, width, 2).double() / width)
    return torch.stack([angles.sin(), angles.cos()], 2).flatten(1).float()


class Embedding(nn.Module):
    """Embeddings times sqrt(width), plus sinusoids, with dropout."""

    def __init__(self, symbols, width, longest, dropout, padding=None):
        super().__init__()
        self.embedding = nn.Embedding(symbols, width, padding_idx=padding)
        self.register_buffer("positions", sinusoids(longest, width), persistent=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        y = self.embedding(x) * math.sqrt(self.embedding.embedding_dim)
        return self.dropout(y + self.positions[: x.size(1)])


def transformer(settings, layer, layers, stack, inner_norm):
    """Returns a stack of PyTorch's own layers with the settings' norms instead of theirs."""
    width = settings["width"]
    one = layer(width, settings["heads"], settings["ffn"], settings["dropout"], batch_first=True, norm_first=True)
    one.dropout = nn.Dropout(settings["activation_dropout"])
    for attention in (one.self_attn, getattr(one, "multihead_attn", one.self_attn)):
        attention.dropout = settings["attention_dropout"]
    for name in ("norm1", "norm2", "norm3"):
        if hasattr(one, name):
            setattr(one, name, NORMS[inner_norm](width, settings["eps"]))
    options = {"enable_nested_tensor": False} if stack is nn.TransformerEncoder else {}
    return stack(one, layers, norm=norm(settings, width), **options)


ENCODER = {"layers.": "", ".self_attn.in_proj_": ".attention.qkv.", ".self_attn.out_proj.": ".attention.out.",
           ".linear1.": ".ffn.hidden.", ".linear2.": ".ffn.out.", ".norm1.": ".attention_norm.norm."}  # fmt: skip


def transformer_weight(name, weights):
    """Returns the weight of a stack called encoder or decoder."""
    final = {"encoder.norm.": "encoder.final_norm.norm.", "decoder.norm.": "decoder.final_norm.norm."}
    if name.startswith("encoder."):
        return weights[renamed(name, final | ENCODER | {".norm2.": ".ffn_norm.norm."})]
    if ".multihead_attn.in_proj_" in name:  # PyTorch fuses queries, keys and values
        layer, _, kind = renamed(name, ENCODER).partition(".multihead_attn.in_proj_")
        return torch.cat([weights[f"{layer}.cross.query.{kind}"], weights[f"{layer}.cross.kv.{kind}"]])
    cross = {".multihead_attn.out_proj.": ".cross.out.", ".norm2.": ".cross_norm.norm.", ".norm3.": ".ffn_norm.norm."}
    return weights[renamed(name, final | ENCODER | cross)]


def padding(lengths, longest):
    """Returns True [B, longest] after the ends of the sequences."""
    return torch.arange(longest) >= lengths.unsqueeze(1)
