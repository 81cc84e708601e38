"""handwriting in PyTorch: PyTorch's own LSTM, or the LN-LSTM as a loop with nn.LayerNorm; window
and mixture composed of tensor operations."""

import math

import torch
from torch import nn
from torch.nn import functional

UNIT = "steps"
SETTINGS = {}
CHECK = {}


class NormLSTM(nn.Module):
    """The paper's LN-LSTM, one step at a time; the inputs' part can be computed ahead for all
    steps."""

    def __init__(self, inputs, hidden, settings):
        super().__init__()
        norms = (nn.LayerNorm(width, eps=settings["eps"]) for width in (4 * hidden, 4 * hidden, hidden))
        self.ih, self.hh = nn.Linear(inputs, 4 * hidden), nn.Linear(hidden, 4 * hidden, bias=False)
        self.norm_ih, self.norm_hh, self.norm_c = norms

    def ahead(self, x):
        return self.norm_ih(functional.linear(x, self.ih.weight)) + self.ih.bias

    def step(self, ax, state):
        h, c = state
        i, f, g, o = (ax + self.norm_hh(self.hh(h))).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(self.norm_c(c)), c

    def forward(self, x):
        state, outputs = (x.new_zeros(x.size(1), self.hh.in_features),) * 2, []
        for ax in self.ahead(x):
            state = self.step(ax, state)
            outputs.append(state[0])
        return torch.stack(outputs), state


class NormLSTMCell(NormLSTM):
    def forward(self, x, state):
        return self.step(self.ahead(x), state)


def clip_derivative(x, limit):
    """Clips derivatives with respect to x to `limit`."""
    if limit > 0:
        x.register_hook(lambda gradient: gradient.clamp(-limit, limit))


class Writer(nn.Module):
    def __init__(self, settings, alphabet):
        super().__init__()
        self.settings, self.alphabet = settings, alphabet
        hidden = settings["hidden"]
        has_norm = settings["norm"] == "layer"
        make = NormLSTM if has_norm else lambda inputs, hidden, settings: nn.LSTM(inputs, hidden)
        make_cell = NormLSTMCell if has_norm else lambda inputs, hidden, settings: nn.LSTMCell(inputs, hidden)
        self.first = make_cell(3 + alphabet, hidden, settings)
        self.second, self.third = (make(3 + alphabet + hidden, hidden, settings) for _ in range(2))
        self.window = nn.Linear(hidden, 3 * settings["window"])
        self.output = nn.Linear(3 * hidden, 1 + 6 * settings["mixture"])

    def forward(self, x, symbols):
        batch = x.size(1)
        limit = self.settings["clip_layers"] / batch
        text = functional.one_hot(symbols.clamp(min=0), self.alphabet) * (symbols >= 0).unsqueeze(2)
        text, places = text.to(x.dtype), torch.arange(1, symbols.size(1) + 1, dtype=x.dtype)
        state = (x.new_zeros(batch, self.settings["hidden"]),) * 2
        position, window = x.new_zeros(batch, self.settings["window"]), x.new_zeros(batch, self.alphabet)
        outputs, windows = [], []
        for point in x:
            state = self.first(torch.cat([point, window], 1), state)
            clip_derivative(state[0], limit)
            a, b, d = self.window(state[0]).exp().chunk(3, 1)
            position = position + d
            terms = a.unsqueeze(2) * torch.exp(-b.unsqueeze(2) * (position.unsqueeze(2) - places) ** 2)
            window = torch.bmm(terms.sum(1, keepdim=True), text).squeeze(1)
            outputs.append(state[0])
            windows.append(window)
        h1, w = torch.stack(outputs), torch.stack(windows)
        h2, _ = self.second(torch.cat([x, w, h1], 2))
        clip_derivative(h2, limit)
        h3, _ = self.third(torch.cat([x, w, h2], 2))
        clip_derivative(h3, limit)
        y = self.output(torch.cat([h1, h2, h3], 2))
        clip_derivative(y, self.settings["clip_outputs"] / batch)
        return y

    def nats(self, y, points):
        """Returns the nats of points [N, 3] in the mixtures y [N, 1 + 6M], computed in logarithms.
        """
        lift, rest = y[:, 0], y[:, 1:]
        weights, mean_x, mean_y, sigma_x, sigma_y, r = rest.chunk(6, 1)
        log_floor = torch.tensor(math.log(self.settings["floor"]), dtype=y.dtype)
        log_x, log_y = torch.logaddexp(sigma_x, log_floor), torch.logaddexp(sigma_y, log_floor)
        zx, zy = (points[:, :1] - mean_x) / log_x.exp(), (points[:, 1:2] - mean_y) / log_y.exp()
        r = r.clamp(-10, 10)
        log_root = math.log(2) - r - functional.softplus(-2 * r)
        exponent = ((zx - r.tanh() * zy) / log_root.exp()) ** 2 + zy**2
        log_density = -exponent / 2 - log_x - log_y - log_root - math.log(2 * math.pi)
        pen = functional.binary_cross_entropy_with_logits(lift, points[:, 2], reduction="none")
        return pen - torch.logsumexp(weights.log_softmax(1) + log_density, 1)


def model(settings, start):
    return Writer(settings, start["first.layer.weight_ih"].size(1) - 3)


NORM_PARTS = {"ih.weight": "weight_ih", "ih.bias": "bias_ih", "hh.weight": "weight_hh",
              "norm_ih.weight": "ln_ih_weight", "norm_ih.bias": "ln_ih_bias", "norm_hh.weight": "ln_hh_weight",
              "norm_hh.bias": "ln_hh_bias", "norm_c.weight": "ln_c_weight", "norm_c.bias": "ln_c_bias"}  # fmt: skip


def weight(name, weights):
    layer, _, part = name.partition(".")
    if layer in ("window", "output"):
        return weights[name]
    if part in NORM_PARTS:
        part = NORM_PARTS[part] + ("" if layer == "first" else "_l0")
    return weights[f"{layer}.layer.{part}"]


def loss(writer, batch):
    x, _, symbols, positions, points = batch
    y = writer(x, symbols).flatten(0, 1).index_select(0, positions)
    return writer.nats(y, points).sum() / x.size(1)


def size(batch):
    return len(batch[3])
