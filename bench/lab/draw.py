"""draw in PyTorch: DRAW with selective attention, one step at a time; layer norm as nn.LayerNorm.
"""

import torch
from torch import nn
from torch.nn import functional

UNIT = "cases"
SETTINGS = {}
CHECK = {}
SIDE = 28


class NormLSTMCell(nn.Module):
    """LSTM with a norm on c at its output; with `full` also on its two products."""

    def __init__(self, inputs, hidden, settings, full):
        super().__init__()
        eps = settings["eps"]
        self.ih, self.hh = nn.Linear(inputs, 4 * hidden), nn.Linear(hidden, 4 * hidden, bias=not full)
        self.norm_ih, self.norm_hh = (nn.LayerNorm(4 * hidden, eps=eps) if full else nn.Identity() for _ in range(2))
        self.norm_c = nn.LayerNorm(hidden, eps=eps)
        self.full = full

    def forward(self, x, state):
        h, c = state
        if self.full:  # the bias follows the norm
            a = self.norm_ih(functional.linear(x, self.ih.weight)) + self.norm_hh(self.hh(h)) + self.ih.bias
        else:
            a = self.ih(x) + self.hh(h)
        i, f, g, o = a.chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(self.norm_c(c)), c


def lstm(inputs, settings):
    if settings["norm"] == "none":
        return nn.LSTMCell(inputs, settings["hidden"])
    return NormLSTMCell(inputs, settings["hidden"], settings, settings["norm"] == "layer-full")


def filterbank(g, log_delta, log_variance, count):
    """Returns filters [B, count, 28] around centres g [B] of -1 to 1."""
    pixels = torch.arange(1, SIDE + 1, dtype=g.dtype)
    offsets = torch.arange(1, count + 1, dtype=g.dtype) - count / 2 - 0.5
    delta = (SIDE - 1) / max(count - 1, 1) * torch.exp(log_delta)
    mu = (SIDE + 1) / 2 * (g + 1).unsqueeze(1) + offsets * delta.unsqueeze(1)
    variance = torch.exp(log_variance).view(-1, 1, 1)
    # Divided by their sums, including filters outside the image.
    return torch.softmax(-((pixels - mu.unsqueeze(2)) ** 2) / (2 * variance), 2)


class Attention(nn.Module):
    """Filters of a grid, and the logarithm of its gain, from the decoder's output."""

    def __init__(self, hidden, count):
        super().__init__()
        self.parameters_of = nn.Linear(hidden, 5)
        self.count = count

    def forward(self, h):
        gx, gy, log_delta, log_variance, log_gamma = self.parameters_of(h).unbind(1)
        fx = filterbank(gx, log_delta, log_variance, self.count)
        fy = filterbank(gy, log_delta, log_variance, self.count)
        return fx, fy, torch.exp(log_gamma).view(-1, 1, 1)


class Draw(nn.Module):
    def __init__(self, settings):
        super().__init__()
        hidden, latents, self.write_size = settings["hidden"], settings["latents"], settings["write"]
        self.encoder = lstm(2 * settings["read"] ** 2 + hidden, settings)
        self.decoder = lstm(latents, settings)
        self.mean, self.log_sigma = nn.Linear(hidden, latents), nn.Linear(hidden, latents)
        self.reading, self.writing = Attention(hidden, settings["read"]), Attention(hidden, settings["write"])
        self.patch = nn.Linear(hidden, settings["write"] ** 2)
        self.encoder_start, self.decoder_start = (nn.Parameter(torch.zeros(2, hidden)) for _ in range(2))
        self.canvas_start = nn.Parameter(torch.zeros(SIDE, SIDE))

    def read(self, x, error, h):
        fx, fy, gamma = self.reading(h)
        return torch.cat([(gamma * (fy @ image @ fx.mT)).flatten(1) for image in (x, error)], 1)

    def write(self, h):
        fx, fy, gamma = self.writing(h)
        return fy.mT @ self.patch(h).view(-1, self.write_size, self.write_size) @ fx / gamma

    def forward(self, images, noise):
        """Returns the bound of each image [B, 784]; noise [T, B, Z]."""
        x, batch = images.view(-1, SIDE, SIDE), len(images)
        e, h = ([row.expand(batch, -1) for row in start] for start in (self.encoder_start, self.decoder_start))
        canvas, kl = self.canvas_start.expand(batch, -1, -1), 0
        for now in noise:
            glimpse = self.read(x, x - torch.sigmoid(canvas), h[0])
            e = self.encoder(torch.cat([glimpse, h[0]], 1), e)
            mean, log_sigma = self.mean(e[0]), self.log_sigma(e[0])
            sigma = torch.exp(log_sigma)
            kl = kl + 0.5 * (mean**2 + sigma**2 - 2 * log_sigma - 1).sum(1)
            h = self.decoder(mean + sigma * now, h)
            canvas = canvas + self.write(h[0])
        pixels = functional.binary_cross_entropy_with_logits(canvas, x, reduction="none").sum((1, 2))
        return pixels + kl


def model(settings, start):
    return Draw(settings)


# Rows of Planish's head with g_x, g_y, log delta, log variance and log gamma.
ROWS = {"reading": [0, 1, 4, 6, 8], "writing": [2, 3, 5, 7, 9]}


def weight(name, weights):
    """Planish fuses the linear layers of one input."""
    layer, _, kind = name.rpartition(".")
    if name.startswith(("mean", "log_sigma")):
        return weights[f"posterior.{kind}"].chunk(2)[layer == "log_sigma"]
    if layer == "patch":
        return weights[f"head.{kind}"][10:]
    if layer.endswith("parameters_of"):
        return weights[f"head.{kind}"][ROWS[layer.partition(".")[0]]]
    if layer in ("encoder", "decoder"):  # nn.LSTMCell
        return weights[f"{layer}.layer.{kind}"]
    if ".ih" in layer or ".hh" in layer:
        cell, _, product = layer.partition(".")
        return weights[f"{cell}.layer.{kind}_{product}"]
    if ".norm" in layer:
        cell, _, norm = layer.partition(".norm_")
        return weights[f"{cell}.layer.ln_{norm}_{kind}"]
    return weights[name]


def loss(draw, batch):
    return draw(*batch).mean()


def size(batch):
    return len(batch[0])
