"""attentive-reader in PyTorch: packed nn.LSTMs, or a loop with nn.LayerNorm; attention composed of
tensor operations."""

import math

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import rnn

import mirrors

UNIT = "words"
SETTINGS = {}
CHECK = {"dropout": "0"}


class LSTM(nn.Module):
    def __init__(self, inputs, hidden, settings):
        super().__init__()
        self.layer = nn.LSTM(inputs, hidden)

    def forward(self, x, lengths, h, c):
        packed = rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        y, (h, _) = self.layer(packed, (h.unsqueeze(0).contiguous(), c.unsqueeze(0).contiguous()))
        return rnn.pad_packed_sequence(y, total_length=len(x))[0], h[0]


class NormLSTM(nn.Module):
    """The paper's LN-LSTM, whose state does not change after the end of a sequence."""

    def __init__(self, inputs, hidden, settings):
        super().__init__()
        self.ih, self.hh = nn.Linear(inputs, 4 * hidden), nn.Linear(hidden, 4 * hidden, bias=False)
        self.norm_ih, self.norm_hh = (nn.LayerNorm(4 * hidden, eps=settings["eps"]) for _ in range(2))
        self.norm_c = nn.LayerNorm(hidden, eps=settings["eps"])

    def forward(self, x, lengths, h, c):
        active = (torch.arange(len(x)).unsqueeze(1) < lengths).unsqueeze(2)
        outputs = []
        for ax, has in zip(self.norm_ih(functional.linear(x, self.ih.weight)) + self.ih.bias, active):
            i, f, g, o = (ax + self.norm_hh(self.hh(h))).chunk(4, 1)
            next_c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            next_h = torch.sigmoid(o) * torch.tanh(self.norm_c(next_c))
            outputs.append(next_h * has)
            h, c = torch.where(has, next_h, h), torch.where(has, next_c, c)
        return torch.stack(outputs), h


class Encoder(nn.Module):
    def __init__(self, settings):
        super().__init__()
        hidden = settings["hidden"]
        self.lstm = (NormLSTM if settings["norm"] == "layer" else LSTM)(settings["words"], hidden, settings)
        self.h0, self.c0 = (nn.Parameter(torch.zeros(hidden)) for _ in range(2))

    def forward(self, x, lengths):
        first = (state.expand(x.size(1), -1) for state in (self.h0, self.c0))
        return self.lstm(x, lengths, *first)


class Reader(nn.Module):
    def __init__(self, settings, symbols, entities):
        super().__init__()
        hidden = settings["hidden"]
        self.embedding = nn.Embedding(symbols, settings["words"])
        self.dropout = nn.Dropout(settings["dropout"])
        self.passage, self.question = Encoder(settings), Encoder(settings)
        self.passage_attention = nn.Linear(hidden, hidden, bias=False)
        self.question_attention = nn.Linear(hidden, hidden)
        self.attention = nn.Linear(hidden, 1, bias=False)
        self.passage_output = nn.Linear(hidden, hidden, bias=False)
        self.question_output = nn.Linear(hidden, hidden)
        self.logits = nn.Linear(hidden, entities)
        self.released = settings["reader"] == "released"
        if self.released:
            self.similarity, self.mean_output = (nn.Linear(hidden, hidden, bias=False) for _ in range(2))

    def forward(self, passage, passage_lengths, question, question_lengths):
        y, _ = self.passage(self.dropout(self.embedding(passage)), passage_lengths)
        _, u = self.question(self.dropout(self.embedding(question)), question_lengths)
        m = self.passage_attention(y) + self.question_attention(u)
        if self.released:
            m = m + (self.similarity(y) * self.similarity(u)).sum(2, keepdim=True)
        padded = mirrors.padding(passage_lengths, len(y)).t()
        weights = self.attention(m.tanh()).squeeze(2).masked_fill(padded, -math.inf).softmax(0)
        total = self.passage_output((weights.unsqueeze(2) * y).sum(0)) + self.question_output(u)
        if self.released:
            total = total + self.mean_output(y.sum(0) / passage_lengths.unsqueeze(1))
        return self.logits(self.dropout(total.tanh()))


def model(settings, start):
    return Reader(settings, len(start["embedding"]), len(start["logits_bias"]))


OURS = {"embedding.weight": "embedding", "passage_attention.weight": "passage_attention",
        "question_attention.weight": "question_attention", "question_attention.bias": "attention_bias",
        "attention.weight": "attention_weight", "passage_output.weight": "passage_output",
        "question_output.weight": "question_output", "question_output.bias": "output_bias",
        "logits.weight": "logits_weight", "logits.bias": "logits_bias", "mean_output.weight": "mean_output"}  # fmt: skip
NORM_PARTS = {"ih.weight": "weight_ih", "ih.bias": "bias_ih", "hh.weight": "weight_hh",
              "norm_ih.weight": "ln_ih_weight", "norm_ih.bias": "ln_ih_bias", "norm_hh.weight": "ln_hh_weight",
              "norm_hh.bias": "ln_hh_bias", "norm_c.weight": "ln_c_weight", "norm_c.bias": "ln_c_bias"}  # fmt: skip


def weight(name, weights):
    if name in OURS:
        return weights[OURS[name]]
    if name == "similarity.weight":  # S' y, in PyTorch's layout of a linear layer
        return weights["similarity"].t()
    encoder, _, part = name.partition(".")
    if part in ("h0", "c0"):
        return weights[f"{encoder}_{part}"]
    part = part.removeprefix("lstm.")
    part = NORM_PARTS[part] + "_l0" if part in NORM_PARTS else part.removeprefix("layer.")
    return weights[f"{encoder}_lstm.layer.{part}"]


def loss(reader, batch):
    return functional.cross_entropy(reader(*batch[:4]), batch[4])


def size(batch):
    return (batch[1].sum() + batch[3].sum()).item()
