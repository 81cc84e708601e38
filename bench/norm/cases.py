"""Measurements of bench.py, and their targets."""

import dataclasses

LIMITS = {
    "forward": ["copy", "copy-non-temporal"],
    "backward": ["three-streams", "three-streams-non-temporal"],
}
IN_PROCESS = ("planish", "aten", "onednn")  # contestants of norm_bench
BARE_COLUMNS = ("batch", "layer-channels")  # the norms over channels with a bare loop
BARE = "bare"  # lower bound of a norm: arithmetic, and inputs that must be read twice
IN_PYTHON = ("compile", "onnxruntime")  # each in a separate process
TITLES = {"planish": "Planish", "bare": "bare loop", "aten": "PyTorch", "onednn": "oneDNN", "compile": "torch.compile",
          "onnxruntime": "ONNX Runtime"}  # fmt: skip
SIZES = {"float": 4, "double": 8, "bfloat16": 2, "float16": 2}
MB = 1 << 20

# Shapes of the comparison with other libraries. Arrays range from the size of a core's cache to 64 MB.
# Rows have from 7 to 65,536 elements. Widths are aligned and unaligned.
PEER_SHAPES = (
    (32, 1024), (512, 1024), (4096, 256), (4096, 1024), (16384, 768), (65536, 128), (4096, 4096),
    (64, 65536), (599186, 7), (127100, 33), (33026, 127), (5454, 769), (4194, 1000), (1024, 4095),
)  # fmt: skip
QUICK_PEER_SHAPES = ((512, 1024), (16384, 768), (127100, 33))

# Size of all arrays of a case: memory, L3 cache, a core's own cache.
WORKING_SETS = (256, 16, 1)
WIDTHS = {
    ("forward", "float"): (7, 33, 127, 256, 512, 768, 769, 1000, 1024, 4096, 65536),
    ("backward", "float"): (256, 768, 1024, 4096, 65536),
    ("forward", "bfloat16"): (768, 1024, 2048, 4096),
}
QUICK_WIDTHS = (7, 768, 4096)
METHOD_SHAPES = ((128, 1024), (2048, 1024), (32768, 1024))
CAST = "rms-cast"  # rounds between the norm and the product with the gain, 16-bit types only
# Norms over channels: 1, 16 and 256 MB of x and y, rows of features and images; small images.
COLUMN_SHAPES = ((128, 1024, 1), (2048, 1024, 1), (32768, 1024, 1),
                 (4, 32, 1024), (32, 64, 1024), (64, 256, 2048), (32, 2048, 512),
                 (16, 512, 49), (64, 256, 16), (32, 256, 196))  # fmt: skip

# Target fractions of the limit with two threads, for the working sets in order.
_ALIGNED, _UNALIGNED = (0.97, 0.75, 0.72), (0.93, 0.72, 0.65)
SHARES = {
    ("forward", "float"): {
        7: (0.54, 0.35, 0.34), 33: (0.60, 0.45, 0.45), 127: (0.65, 0.62, 0.60), 256: _ALIGNED,
        512: _ALIGNED, 768: _ALIGNED, 769: _UNALIGNED, 1000: _UNALIGNED, 1024: _ALIGNED,
        4096: (0.80, 0.65, 0.60), 65536: (0.62, 0.52, None),
    },
    ("backward", "float"): {
        256: (0.85, 0.75, 0.70), 768: (0.80, 0.70, 0.65), 1024: (0.80, 0.70, 0.65),
        4096: (0.70, 0.60, None), 65536: (0.60, 0.40, None),
    },
    ("forward", "bfloat16"): dict.fromkeys((768, 1024, 2048, 4096), (0.55, 0.35, 0.35)),
}  # fmt: skip
# Target speed relative to the best peer, at every shape and in the geometric mean; and relative to
# PyTorch's kernel at the two narrowest widths. In float, with two threads.
PEER_FACTOR = {"forward": (1.3, 1.8), "backward": (1.5, 2.2)}
NARROW, NARROW_FACTOR = (7, 33), 4.0
# Maximum of Planish's time over the bare loop's, the cost of exactness: geometric mean over the
# widths, for the working sets in order. Two equal runs differ by up to 2%.
BARE_FACTORS = (1.02, 1.08, 1.08)
METHOD_FACTOR = 1.10  # maximum of LayerNorm's time for the same bytes, for every norm
COLUMN_SHARE = 0.70  # of the limit, for norms over channels, from memory


@dataclasses.dataclass(frozen=True)
class Case:
    group: str  # the table that it is for: shares, peers, methods
    direction: str
    type: str
    rows: int
    cols: int
    threads: int
    contestants: tuple  # "aten:layer"; the limits are added
    spatial: int = 1  # elements of a channel (a column) in a sample (a row)

    def line(self, contestants):
        """Returns the case's line for norm_bench and the peers in Python."""
        names = ",".join([*LIMITS[self.direction], *contestants])
        return f"{self.direction} {self.type} {self.shape} {self.threads} {names}"

    @property
    def shape(self):
        return f"{self.rows}x{self.cols}" + (f"x{self.spatial}" if self.spatial != 1 else "")

    def __str__(self):
        return f"{self.group} {self.direction} {self.type} {self.shape} t{self.threads}"


def working_set(direction, dtype, rows, cols):
    """Returns the bytes of x and y, or x, dy and dx."""
    return (2 if direction == "forward" else 3) * rows * cols * SIZES[dtype]


def all_cases(threads, methods, column_methods, aten, quick):
    """Returns every case, grouped by type, so that arrays are filled once. `aten` are the norms that PyTorch has."""

    def with_peer(names):
        return tuple(f"{who}:{name}" for name in names for who in ("planish", "aten") if who == "planish" or name in aten)

    cases = []
    layer = tuple(f"{who}:layer" for who in IN_PROCESS)
    everyone = layer + tuple(f"{who}:layer" for who in IN_PYTHON)
    for dtype in ("float", "bfloat16"):
        for t in threads:
            for (direction, of), widths in WIDTHS.items():
                for mb in WORKING_SETS if of == dtype else ():
                    for cols in widths:
                        rows = mb * MB // working_set(direction, dtype, 1, cols)
                        if rows >= 4 and (not quick or cols in QUICK_WIDTHS):
                            who = (*layer, f"{BARE}:layer")
                            cases.append(Case("shares", direction, dtype, rows, cols, t, who))
            for direction in ("forward", "backward"):
                for rows, cols in QUICK_PEER_SHAPES if quick else PEER_SHAPES:
                    who = everyone if dtype == "float" else layer
                    cases.append(Case("peers", direction, dtype, rows, cols, t, who))
                for rows, cols in METHOD_SHAPES:
                    who = with_peer(m for m in methods if dtype != "float" or m != CAST)
                    cases.append(Case("methods", direction, dtype, rows, cols, t, who))
                for rows, cols, spatial in COLUMN_SHAPES:
                    # With one element per channel, other norms over channels equal norms over rows.
                    names = [m for m in column_methods if spatial > 1 or m == "batch"]
                    bare = tuple(f"{BARE}:{m}" for m in names if dtype == "float" and m in BARE_COLUMNS)
                    who = ("planish:layer", *with_peer(names), *bare)
                    cases.append(Case("columns", direction, dtype, rows, cols, t, who, spatial))
    return cases
