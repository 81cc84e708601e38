"""Measurements of bench.py, and their targets."""

import dataclasses

# T, B, I, H: time, batch, inputs, hidden.
SHAPES = ("100x32x256x256", "100x8x400x400", "50x64x512x512", "500x8x400x400", "64x128x1024x256",
          "1000x1x128x128")  # fmt: skip
STEP_SHAPES = ("1x1x512x512",)
CELL_SHAPES = (SHAPES[0], SHAPES[1], SHAPES[5])  # the cheaper shapes, at which every cell is measured
QUICK_SHAPES = SHAPES[:2]
# A projection to half of the units, and heads, which have a part of a dense layer's multiply-adds.
RECURRENCES = ("100x32x256x256+p128", "100x8x400x400+p200", "100x32x256x256+h4", "100x8x400x400+h4",
               "50x64x512x512+h8")  # fmt: skip
# The heads of xLSTM, and one head.
SLSTM_SHAPES = ("100x32x256x256+h4", "100x8x400x400+h4", "50x64x512x512+h4", "1000x1x128x128+h4", "100x32x256x256")
# Shapes of the charts, all variations of the first shape.
SERIES = {
    "time": tuple(f"{t}x32x256x256" for t in (10, 25, 50, 100, 200, 400)),
    "batch": tuple(f"100x{b}x256x256" for b in (1, 2, 4, 8, 16, 32, 64, 128)),
    "hidden": tuple(f"100x32x{h}x{h}" for h in (64, 128, 192, 256, 384, 512, 768)),
}
CHARTED = ("planish:ln-lstm", "planish:lstm", "torch:lstm")
MODES = ("forward", "training")

LSTM = ("planish:ln-lstm", "planish:lstm", "torch:lstm", "onednn:lstm", "composed:ln-lstm", "products:lstm")
GRU = ("planish:ln-gru", "planish-packed:ln-gru", "planish:gru", "torch:gru", "onednn:gru",
       "composed:ln-gru", "products:gru")  # fmt: skip
IN_PYTHON = ("script:ln-lstm", "compile:ln-lstm")
FORWARD_ALONE = ("onednn", "planish-packed")  # not measured in training
ROUNDED = ("planish-bfloat16", "planish-int8")  # packed weights of smaller types, in a step
SLSTM = ("planish:slstm", "planish:lstm")
COMPOSED = ("composed:ln-lstm", *IN_PYTHON)
RECURRENT = ("planish:ln-lstm", "planish:lstm", "planish:ln-gru", "torch:lstm")
# Contestants that can be left out.
WHO = ("torch", "onednn", "composed", "products", "script", "compile", "xlstm")
TITLES = {"planish:ln-lstm": "LN-LSTM", "planish:lstm": "LSTM of Planish", "torch:lstm": "nn.LSTM",
          "composed:ln-lstm": "C++", "script:ln-lstm": "TorchScript", "compile:ln-lstm": "compiled cell"}  # fmt: skip


def batch_of(shape):
    return int(shape.split("x")[1])


def hidden_of(shape):
    return int(shape.split("x")[3].partition("+")[0])


# Maximum of times over another's, or minimum of another's over Planish's, by mode and shape.
def over_nn_lstm(mode, shape):
    narrow = hidden_of(shape) <= 400
    return {"forward": 0.95 if narrow else 1.0, "training": 0.92 if narrow else 0.95}[mode]


def over_nn_gru(mode, shape):
    return 1.0 if mode == "forward" else 0.80 if batch_of(shape) <= 32 else 0.95


OVER_ONEDNN_GRU = 1.0  # forward
OVER_PLAIN = 1.04  # the LN-LSTM's over the LSTM's of Planish
OVER_LN_LSTM = 1.10  # of other cells, per multiply-add
UNDER_XLSTM = 5.0  # xlstm's time over the sLSTM's


def under_composed(mode, shape):
    if mode == "forward":
        return 1.8 if batch_of(shape) <= 32 else 1.2
    return 2.2 if batch_of(shape) == 8 else 1.6 if shape == "100x32x256x256" else 1.15


# Targets of a step: nn.LSTM's time, that of PyTorch's best cell, and oneDNN's, over the LN-LSTM's.
STEP_TARGETS = (8.0, 2.0, 0.9)
# Of an LN-LSTM's step with packed weights in bfloat16 and int8: its time over that with float weights, and the time of
# PyTorch's best cell over its own. For processors with instructions for products of these types.
ROUNDED_STEP_TARGETS = ((0.58, 3.0), (0.36, 5.0))


@dataclasses.dataclass(frozen=True)
class Case:
    group: str  # the table that it is for: lstm, gru, slstm, cells, recurrences, step; or a chart: time, batch, hidden
    mode: str
    shape: str
    threads: int
    contestants: tuple

    def line(self):
        """Returns the case's line for rnn_bench and torch_cells.py."""
        return f"{self.mode} {self.shape} {self.threads} {','.join(self.contestants)}"

    def __str__(self):
        return f"{self.group} {self.mode} {self.shape} t{self.threads}"


def all_cases(threads, cells, who, quick):
    """Returns the cases of rnn_bench, and those of torch_cells.py; `cells` are all of Planish,
    `who` its competitors."""

    def taking_part(contestants, mode):
        kinds = [(name, name.partition(":")[0]) for name in contestants]
        return tuple(
            name for name, kind in kinds
            if (kind.startswith("planish") or kind.removesuffix("-cell") in who)
            and not (mode == "training" and kind in FORWARD_ALONE)
            and not (mode == "step" and kind == "planish-packed"))  # fmt: skip

    inside, python = [], []
    for t in threads:
        for shape in QUICK_SHAPES if quick else SHAPES:
            for mode in MODES:
                here = [f"planish:{c}" for c in cells if not (c.startswith("bn-") and batch_of(shape) == 1)]
                inside.append(Case("lstm", mode, shape, t, taking_part(LSTM, mode)))
                inside.append(Case("gru", mode, shape, t, taking_part(GRU, mode)))
                if shape in CELL_SHAPES:
                    inside.append(Case("cells", mode, shape, t, tuple(here)))
                python.append(Case("lstm", mode, shape, t, taking_part(("planish:ln-lstm", *IN_PYTHON), mode)))
        for shape in () if quick else RECURRENCES:
            inside += [Case("recurrences", mode, shape, t, taking_part(RECURRENT, mode)) for mode in MODES]
        for shape in () if quick else SLSTM_SHAPES:
            for mode in MODES:
                inside.append(Case("slstm", mode, shape, t, taking_part(SLSTM, mode)))
                python.append(Case("slstm", mode, shape, t, taking_part(("planish:slstm", "xlstm:slstm"), mode)))
        for shape in STEP_SHAPES:
            for kind, contestants in (("lstm", LSTM), ("gru", GRU)):
                contestants += (f"torch-cell:{kind}", *(f"{who}:ln-{kind}" for who in ROUNDED))
                inside.append(Case("step", "step", shape, t, taking_part(contestants, "step")))
            python.append(Case("step", "step", shape, t, taking_part(("planish:ln-lstm", *IN_PYTHON), "step")))
    if not quick:
        for chart, shapes in SERIES.items():
            for shape in shapes:
                inside += [Case(chart, mode, shape, max(threads), taking_part(CHARTED, mode)) for mode in MODES]
    return inside, [case for case in python if len(case.contestants) > 1]
