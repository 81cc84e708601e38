"""Errors of recurrent layers with packed weights in bfloat16 and int8, as a table in Markdown.

Needs the Python package, and for the trained model results/models and tinyshakespeare in
PLANISH_DATA.
"""

import json
import math
import os
import pathlib
import struct

import numpy
import torch

import planish

MODEL = pathlib.Path(__file__).parents[2] / "results/models/char-lm.safetensors"
STEPS = 1000
SEQUENCES = 8
TYPES = ("full", "bfloat16", "int8")
NUMPY_TYPES = {"F16": numpy.float16, "U8": numpy.uint8}


def ln_lstm(hidden):
    """Returns an LN-LSTM whose gains on h are 0.2: with 1 it is chaotic, and so are the errors."""
    layer = planish.nn.LayerNormLSTM(hidden, hidden)
    torch.nn.init.constant_(layer.ln_hh_weight_l0, 0.2)
    return layer


RANDOM_LAYERS = [
    ("LN-LSTM", 128, ln_lstm),
    ("LN-LSTM", 512, ln_lstm),
    ("LN-GRU", 512, lambda h: planish.nn.LayerNormGRU(h, h)),
    ("DreamerV3's GRU", 512, lambda h: planish.nn.LayerNormGRU(h, h, variant="dreamer")),
    ("LSTM", 512, lambda h: planish.nn.LayerNormLSTM(h, h, variant="plain")),
]


def read_model(path):
    """Returns the tensors of a safetensors file, and its settings."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    settings = json.loads(header.pop("__metadata__")["config"])
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        values = numpy.frombuffer(content[begin:end], NUMPY_TYPES[entry["dtype"]])
        tensors[name] = torch.tensor(values.reshape(entry["shape"]).astype(numpy.float32))
    return tensors, settings


def trained():
    """Returns the layer of the character model, and a function that returns its inputs and bits
    per character."""
    tensors, settings = read_model(MODEL)
    layer = planish.nn.LayerNormLSTM(64, 256).eval()
    prefix = "model.recurrent.layer."
    layer.load_state_dict(
        {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
    )
    text = numpy.fromfile(
        pathlib.Path(os.environ["PLANISH_DATA"]) / "tinyshakespeare/input.txt", numpy.uint8
    )[-settings["data"]["sizes"]["test"] :]
    index = {int(byte): i for i, byte in enumerate(tensors["data.vocabulary"])}
    characters = torch.tensor([index[byte] for byte in text.tolist()])
    inputs = tensors["model.embedding.weight"][characters].unsqueeze(1)

    def bits(y):
        logits = y[:-1, 0] @ tensors["model.output.weight"].T + tensors["model.output.bias"]
        loss = torch.nn.functional.cross_entropy(logits.double(), characters[1:])
        return loss.item() / math.log(2)

    return layer, inputs, bits


def errors(layer, x):
    """Returns, for each type, the root mean square and the largest error of the outputs of the last
    100 of STEPS steps, by the layer in double."""
    exact = type(layer)(
        layer.input_size, layer.hidden_size, variant=layer.variant, dtype=torch.float64
    ).eval()
    exact.load_state_dict({name: p.double() for name, p in layer.state_dict().items()})
    expected = exact(x.double())[0][-100:]
    found = []
    for weight_type in TYPES:
        difference = layer.quantize_(weight_type)(x)[0][-100:] - expected
        found.append((difference.square().mean().sqrt().item(), difference.abs().max().item()))
    return found


def line(cells):
    return "| " + " | ".join(cells) + " |"


def main():
    torch.manual_seed(1)
    names = {"full": "float", "bfloat16": "bfloat16", "int8": "int8"}
    print(line(["layer", *(names[weight_type] for weight_type in TYPES)]))
    print("|---" * (len(TYPES) + 1) + "|")

    def row(name, found):
        print(line([name, *(f"{mean:.0e}, {largest:.0e}" for mean, largest in found)]))

    with torch.no_grad():
        for name, hidden, make in RANDOM_LAYERS:
            layer = make(hidden).eval()
            row(f"{name}, {hidden}", errors(layer, torch.randn(STEPS, SEQUENCES, hidden)))
        layer, inputs, bits = trained()
        row("character model, 256", errors(layer, inputs[:STEPS]))
        lost = [bits(layer.quantize_(weight_type)(inputs)[0]) for weight_type in TYPES]
    print(line(["its bits per character", *(f"{value:.4f}" for value in lost)]))


if __name__ == "__main__":
    main()
