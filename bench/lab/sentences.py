"""rt and sst5 in PyTorch: nn.TransformerEncoder on a batch of padded sentences."""

from torch import nn
from torch.nn import functional

import mirrors

UNIT = "words"
SETTINGS = {}
CHECK = {"dropout": "0", "attention_dropout": "0", "activation_dropout": "0"}


class Classifier(nn.Module):
    def __init__(self, settings, words, classes):
        super().__init__()
        width = settings["width"]
        self.words = mirrors.Embedding(words, width, settings["longest"], settings["dropout"])
        self.encoder = mirrors.transformer(
            settings, nn.TransformerEncoderLayer, settings["layers"], nn.TransformerEncoder, settings["norm"])
        self.output = nn.Linear(width, classes)

    def forward(self, words, lengths):
        padded = mirrors.padding(lengths, words.size(1))
        y = self.encoder(self.words(words), src_key_padding_mask=padded)
        mean = y.masked_fill(padded.unsqueeze(2), 0).sum(1) / lengths.unsqueeze(1)
        return self.output(mean)


def model(settings, start):
    return Classifier(settings, len(start["embedding"]), len(start["output.bias"]))


def weight(name, weights):
    if name == "words.embedding.weight":
        return weights["embedding"]
    return mirrors.transformer_weight(name, weights) if name.startswith("encoder.") else weights[name]


def loss(classifier, batch):
    words, lengths, labels = batch
    return functional.cross_entropy(classifier(words, lengths), labels)


def size(batch):
    return batch[1].sum().item()
