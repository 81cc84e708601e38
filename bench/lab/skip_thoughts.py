"""skip-thoughts in PyTorch: the GRU composed of tensor operations, with nn.LayerNorm for norms."""

import torch
from torch import nn
from torch.nn import functional

import mirrors

UNIT = "triples"
SETTINGS = {}
CHECK = {"softmax": "full"}  # Planish draws other words in each update


class Gru(nn.Module):
    """Ba et al. 2016, Eq. 23-28, with PyTorch's z: 1 - z is the paper's."""

    def __init__(self, settings, inputs):
        super().__init__()
        self.hidden = hidden = settings["hidden"]
        self.has_norms = settings["norm"] == "layer"
        self.of_input = nn.Linear(inputs, 3 * hidden, bias=not self.has_norms)
        self.of_state = nn.Linear(hidden, 3 * hidden, bias=not self.has_norms)
        if self.has_norms:
            self.norms = nn.ModuleList(nn.LayerNorm(n * hidden, eps=settings["eps"]) for n in (2, 1, 2, 1))

    def sums(self, linear, x, gates, new):
        """Returns the sums for r and z together, and for n."""
        rz, n = linear(x).split([2 * self.hidden, self.hidden], -1)
        return (gates(rz), new(n)) if self.has_norms else (rz, n)

    def forward(self, x, h, lengths):
        norms = self.norms if self.has_norms else (None,) * 4
        rz_x, n_x = self.sums(self.of_input, x, *norms[:2])
        states, ends = [], lengths.unsqueeze(1)
        for t in range(len(x)):
            rz_h, n_h = self.sums(self.of_state, h, *norms[2:])
            r, z = torch.sigmoid(rz_x[t] + rz_h).chunk(2, -1)
            n = torch.tanh(n_x[t] + r * n_h)
            h = torch.where(t < ends, (1 - z) * n + z * h, h)
            states.append(h)
        return torch.stack(states), h


class SkipThoughts(nn.Module):
    def __init__(self, settings, vocabulary):
        super().__init__()
        words, self.hidden = settings["words"], settings["hidden"]
        self.steps = settings["condition"] == "steps"
        self.embedding = nn.Embedding(vocabulary, words)
        self.output = nn.Linear(self.hidden, vocabulary)
        self.encoder = Gru(settings, words)
        self.previous, self.next = (Gru(settings, words + self.hidden * self.steps) for _ in range(2))
        ranks = torch.arange(vocabulary, dtype=torch.float64)
        log_q = torch.log(torch.log((ranks + 2) / (ranks + 1)) / torch.log(torch.tensor(vocabulary + 1.0)).double())
        self.register_buffer("log_q", log_q, persistent=False)

    def encode(self, words, lengths):
        zeros = torch.zeros(words.shape[1], self.hidden, dtype=self.output.weight.dtype)
        return self.encoder(self.embedding(words), zeros, lengths)[1]

    def decode(self, decoder, words, lengths, vectors):
        x = functional.pad(self.embedding(words[:-1]), (0, 0, 0, 0, 1, 0))
        if not self.steps:
            return decoder(x, vectors, lengths)[0]
        return decoder(torch.cat([x, vectors.expand(len(x), -1, -1)], 2), torch.zeros_like(vectors), lengths)[0]

    def loss(self, states, targets, drawn):
        if drawn is None:
            return functional.cross_entropy(self.output(states), targets, reduction="sum")
        bias = self.output.bias - (self.log_q + torch.log(torch.tensor(float(len(drawn))))).to(states)
        others = functional.linear(states, self.output.weight[drawn], bias[drawn])
        others = others.masked_fill(targets.unsqueeze(1) == drawn, float("-inf"))
        target = (states * self.output.weight[targets]).sum(1) + bias[targets]
        return (torch.cat([target.unsqueeze(1), others], 1).logsumexp(1) - target).sum()


def model(settings, start):
    return SkipThoughts(settings, len(start["output.bias"]))


PLACES = {".of_input.weight": "weight_ih_l0", ".of_state.weight": "weight_hh_l0",
          ".of_input.bias": "bias_ih_l0", ".of_state.bias": "bias_hh_l0"}  # fmt: skip


def weight(name, weights):
    if name == "embedding.weight":
        return weights["embedding"]
    if name.startswith("output."):
        return weights[name]
    layer, _, rest = name.partition(".")
    if not rest.startswith("norms."):
        return weights[f"{layer}.layer.{PLACES['.' + rest]}"]
    # Planish has the gains of r, z and n in one array.
    _, number, kind = rest.split(".")
    whole = weights[f"{layer}.layer.ln_{'ih' if number in '01' else 'hh'}_{kind}_l0"]
    gates = 2 * len(whole) // 3
    return whole[:gates] if number in "02" else whole[gates:]


def loss(skip_thoughts, batch):
    words, lengths, *neighbours, targets = batch[:9]
    vectors = skip_thoughts.encode(words, lengths)
    states = []
    for decoder, (inputs, ends, places) in zip((skip_thoughts.previous, skip_thoughts.next),
                                               (neighbours[:3], neighbours[3:]), strict=True):  # fmt: skip
        states.append(skip_thoughts.decode(decoder, inputs, ends, vectors).flatten(0, 1)[places])
    return skip_thoughts.loss(torch.cat(states), targets, batch[9] if len(batch) > 9 else None)


def size(batch):
    return batch[0].shape[1]
