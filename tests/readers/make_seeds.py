"""Writes the binary files of seeds/, except checkpoint/, bpe/ and jpeg/ (their names say what they are).

Needs numpy. Usage: make_seeds.py
"""

import gzip
import io
import json
import pathlib
import struct
import tarfile
import zlib

import numpy

SEEDS = pathlib.Path(__file__).parent / "seeds"


def write(name, content):
    path = SEEDS / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def npy(array, version=None):
    out = io.BytesIO()
    numpy.lib.format.write_array(out, array, version)
    return out.getvalue()


def idx(magic, sizes, content):
    return struct.pack(f">{len(sizes) + 1}I", magic, *sizes) + bytes(content)


def png(samples, kind, depth=8, palette=b""):
    """A PNG file of packed rows; kind: 0 grey, 2 red, green and blue, 3 palette."""
    rows = b"".join(b"\0" + bytes(row) for row in samples)
    per_pixel = {0: 1, 2: 3, 3: 1}[kind] * depth
    header = struct.pack(">IIBBBBB", len(samples[0]) * 8 // per_pixel, len(samples), depth, kind, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"PLTE", palette), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks if data or name == b"IEND")  # fmt: skip


def archive(files):
    """A tar archive as lab/run/archive.cc writes it: plain files of a fixed time and owner."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(out.getvalue(), mtime=0)


write("npy/rows.npy", npy(numpy.arange(6, dtype=numpy.float32).reshape(2, 3)))
write("npy/doubles.npy", npy(numpy.arange(3, dtype=numpy.float64), (2, 0)))
write("npy/halves.npy", npy(numpy.float16(1.5).reshape(1, 1), (3, 0)))
write("npy/packed.npy", gzip.compress(npy(numpy.ones((2, 2), numpy.float32)), mtime=0))
write("npy-pixels/images.npy", npy(numpy.arange(12, dtype=numpy.uint8).reshape(2, 2, 3)))
write("npy-pixels/floats.npy", npy(numpy.linspace(0, 1, 8, dtype=numpy.float32).reshape(2, 2, 2)))
write("npy-integers/labels.npy", npy(numpy.array([3, -1, 3], numpy.int32)))
write("npy-integers/column.npy", npy(numpy.array([[3], [250]], numpy.uint8)))
arrays = {"x_train": numpy.arange(20, dtype=numpy.uint8).reshape(20, 1, 1), "y_train": numpy.arange(20) % 2}
for name, save in (("plain", numpy.savez), ("packed", numpy.savez_compressed)):
    out = io.BytesIO()
    save(out, **arrays)
    write(f"npz/{name}.npz", out.getvalue())
write("png/grey.png", png([[1, 2, 255], [0, 7, 9]], 0))
write("png/wide.png", png([[1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]], 2, 16))
write("png/palette.png", png([[0b00011011], [0b11100100]], 3, 2, bytes(range(12))))
write("idx-images-of-any-size/two.idx", idx(0x803, [2, 3, 4], range(24)))
write("characters/mixed.txt", "Où est-il ?\n你好 \U0001f600\n")
write("pair-table/pairs.tsv", "".join(f"one {i}\teins {i}{note}\n" for i in range(20) for note in ("", "\tby me")))
write("table-csv/quotes.csv", 'text,label\n"so, ""good""\nfilm",1\nbad,0\n')
write("table-jsonl/two.jsonl", '{"text": "good", "label": 1}\n\n{"label": null, "other": [1]}\n')
write("idx-images/one.idx", idx(0x803, [1, 28, 28], [i % 251 for i in range(784)]))
write("binary-images/one.idx", idx(0x803, [1, 28, 28], [i % 3 % 2 for i in range(784)]))
write("idx-labels/five.idx", idx(0x801, [5], [0, 1, 9, 3, 4]))
write("idx-labels/packed.idx", gzip.compress(idx(0x801, [3], [7, 0, 9]), mtime=0))
write("gzip/two.gz", gzip.compress(b"one line\nanother\n", mtime=0))
write("gzip/members.gz", gzip.compress(b"one ", mtime=0) + gzip.compress(b"line\n", mtime=0) + bytes(20))
tensors = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
    "b": {"dtype": "I64", "shape": [], "data_offsets": [8, 16]},
    "c": {"dtype": "BF16", "shape": [0, 3], "data_offsets": [16, 16]},
}
header = json.dumps(tensors).encode()
header += b" " * (-len(header) % 8)
write("run-predictions/two.csv.gz", gzip.compress(b"label,prediction\n7,7\n0,12\n", mtime=0))
write("run-predictions/items.csv.gz", gzip.compress(b"item,words,heads\n3,9,8\n90,0,0\n", mtime=0))
write("safetensors/small.safetensors", struct.pack("<Q", len(header)) + header + bytes(range(16)))
run = {f"small-layer-b4-s1/{file}": (SEEDS / seed).read_bytes() for file, seed in (
    ("config.json", "run-config/small.json"),
    ("metrics.jsonl", "run-metrics/small.jsonl"),
    ("result.json", "run-result/small.json"))}
write("archive/small.runs.tar.gz", archive(run))
characters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
lines = []
for i in range(len(characters)):
    lines.append("0.1 0.2 0.5 1 0 0.3 0.4 0.5 0 0.01")
    lines.append(" ".join("1" if i == j else "0" for j in range(len(characters))))
write("digilets/one.txt", "\n".join(lines) + "\n")
