"""mt in PyTorch: nn.TransformerEncoder and nn.TransformerDecoder, with one shared embedding."""

from torch import nn
from torch.nn import functional

import mirrors

UNIT = "target pieces"
SETTINGS = {"lr": "0.0001"}  # without warm-up
CHECK = {"lr": "0.00001", "dropout": "0", "attention_dropout": "0", "activation_dropout": "0"}
CHECK_NONE = {"layers": "2"}  # without norms, rounding errors grow with each layer: too much with 12
PADDING = 0


class Translator(nn.Module):
    def __init__(self, settings, pieces):
        super().__init__()
        self.pieces = mirrors.Embedding(
            pieces, settings["width"], settings["max_length"], settings["dropout"], PADDING)
        inner = settings["norm"] if settings["wiring"] == "paper" else "layer"
        self.encoder = mirrors.transformer(
            settings, nn.TransformerEncoderLayer, settings["layers"], nn.TransformerEncoder, inner)
        self.decoder = mirrors.transformer(
            settings, nn.TransformerDecoderLayer, settings["layers"], nn.TransformerDecoder, inner)

    def forward(self, source, lengths, target, positions):
        padded = mirrors.padding(lengths, source.size(1))
        memory = self.encoder(self.pieces(source), src_key_padding_mask=padded)
        mask = nn.Transformer.generate_square_subsequent_mask(target.size(1), dtype=memory.dtype)
        y = self.decoder(self.pieces(target), memory, tgt_mask=mask, tgt_is_causal=True,
                         memory_key_padding_mask=padded)  # fmt: skip
        return functional.linear(y.flatten(0, 1)[positions], self.pieces.embedding.weight)


class Loss(nn.Module):
    """The translator with the settings that its loss needs."""

    def __init__(self, settings, pieces):
        super().__init__()
        self.translator, self.smoothing = Translator(settings, pieces), settings["label_smoothing"]

    def forward(self, source, lengths, target, positions, wanted):
        logits = self.translator(source, lengths, target, positions)
        return functional.cross_entropy(logits, wanted, label_smoothing=self.smoothing)


def model(settings, start):
    return Loss(settings, len(start["embedding"]))


def weight(name, weights):
    name = name.removeprefix("translator.")
    return weights["embedding"] if name == "pieces.embedding.weight" else mirrors.transformer_weight(name, weights)


def loss(with_loss, batch):
    return with_loss(*batch)


def size(batch):
    return len(batch[4])
