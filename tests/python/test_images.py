"""planish train images: folders of PNG files and arrays of the user, from the files to the report."""

import gzip
import hashlib
import json
import os
import re
import struct
import zlib

import numpy as np
import pytest
from test_command import assert_one_line

TRAIN = ("train", "images", "--preset", "smoke", "--norm", "layer", "--threads", 1, "--quiet")
GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
CHANNELS = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGBA: 4}
# First row and column, and steps, of the seven passes of Adam7 (ISO/IEC 15948, 8.2).
ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))


def png(samples, kind=GREY, depth=8, interlaced=False, palette=b""):
    """Returns a PNG file of samples [height, width, channels], written from the standard's text."""
    samples = np.asarray(samples, int).reshape(*np.shape(samples)[:2], CHANNELS[kind])
    height, width = samples.shape[:2]

    def rows(part):
        data = b""
        for row in part.reshape(part.shape[0], -1):
            if depth == 16:
                line = row.astype(">u2").tobytes()
            else:
                bits = "".join(f"{value:0{depth}b}" for value in row)
                bits += "0" * (-len(bits) % 8)
                line = bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))
            data += b"\0" + line  # no filter
        return data

    parts = [samples[y::dy, x::dx] for y, x, dy, dx in ADAM7] if interlaced else [samples]
    pixels = b"".join(rows(part) for part in parts if part.size)
    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, interlaced)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(pixels)), (b"IEND", b"")]
    if palette:
        chunks.insert(1, (b"PLTE", palette))
    body = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


def draw(rng, label, size=(18, 20), channels=3):
    """Returns noise with a bright block, whose place and color depend on the class."""
    image = rng.integers(0, 60, (*size, channels), dtype=np.uint8)
    image[3 * label : 3 * label + 8, 2:14, label % channels] = 255
    return image


def write_classes(folder, names=("cat", "a dog", "bird"), count=24, encode=lambda image, i: png(image, RGB)):
    rng = np.random.default_rng(1)
    for label, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            (folder / name / f"{i}.png").write_bytes(encode(draw(rng, label), i))


def run_of(planish, runs="runs"):
    (folder,) = planish.folder.glob(f"{runs}/images/*")
    return [json.loads((folder / name).read_text()) for name in ("config.json", "result.json")]


@pytest.mark.parametrize("model", ["cnn", "mlp"])
def test_trains_on_folders_and_reports(planish, model):
    write_classes(planish.folder / "pets")
    planish.ok(*TRAIN, "--data", "pets/", "--set", f"model={model}", "--set", "epochs=20")
    config, result = run_of(planish)
    data = config["data"]
    assert data["name"] == "pets"
    assert data["sizes"] == {"train": 58, "valid": 7, "test": 7}
    assert '3 classes: "a dog" (24), "bird" (24), "cat" (24)' in data["description"]
    assert "72 color images of 18 x 20 pixels" in data["description"]
    assert result["best"]["values"]["test_accuracy"] > 0.7  # a guess has 1/3
    planish.ok("report", "runs", "-o", "report.html")
    report = (planish.folder / "report.html").read_text()
    assert "Images (pets)</h2>" in report and "your own classes" in report


def test_the_checksum_is_of_the_pixels(planish):
    """Computed here from the arrays: every kind of PNG file gives its pixels, however it is packed."""
    rng = np.random.default_rng(2)
    sha = hashlib.sha256(b"5 x 7 3\n")
    index = 0
    for name in ("a", "b"):
        (planish.folder / "set" / name).mkdir(parents=True)
        for i in range(8):
            interlaced, pixels = i % 2 == 1, rng.integers(0, 256, (5, 7, 3))
            if i // 2 == 0:
                file = png(pixels, RGB, interlaced=interlaced)
            elif i // 2 == 1:  # palette of 4 bits
                colors, indices = rng.integers(0, 256, (16, 3)), rng.integers(0, 16, (5, 7))
                file, pixels = png(indices, PALETTE, 4, interlaced, bytes(colors.astype(np.uint8))), colors[indices]
            elif i // 2 == 2:  # 16 bits, with an alpha channel
                wide = rng.integers(0, 65536, (5, 7, 4))
                file, pixels = png(wide, RGBA, 16, interlaced), np.round(wide[..., :3] / 257).astype(int)
            else:  # grey of 2 bits, repeated as red, green and blue
                grey = rng.integers(0, 4, (5, 7))
                file, pixels = png(grey, GREY, 2, interlaced), np.repeat(85 * grey[..., None], 3, axis=2)
            (planish.folder / "set" / name / f"{i}.png").write_bytes(file)
            sha.update(f"0 {name}\n".encode() + pixels.astype(np.uint8).tobytes())
            index += 1
    text = planish.ok("data", "check", "set", "images").stdout
    assert f"sha256 {sha.hexdigest()}\n" in text
    assert "; 4 images converted to color" in text


def write_npz(file, save=np.savez_compressed, seed=1, names=("x_train", "y_train", "x_test", "y_test"), **more):
    """Writes 60 images for training and 12 for the test, as Keras' mnist.npz has them. Returns the arrays."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for (images, labels), count in zip((names[:2], names[2:]), (60, 12), strict=True):
        arrays[labels] = np.arange(count) % 3
        arrays[images] = np.stack([draw(rng, label, (18, 20), 1)[..., 0] for label in arrays[labels]])
    save(file, **arrays | more)
    return arrays


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_files_are_read(planish, save):
    (planish.folder / "mnist").mkdir()
    arrays = write_npz(planish.folder / "mnist/mnist.npz", save)
    planish.ok(*TRAIN, "--data", "mnist/mnist.npz", "--set", "epochs=20", "--set", "valid_share=.2")
    config, result = run_of(planish)
    assert config["data"]["sizes"] == {"train": 48, "valid": 12, "test": 12}
    assert config["data"]["name"] == "mnist.npz"
    assert result["best"]["values"]["test_accuracy"] > 0.7  # a guess has 1/3
    sha = hashlib.sha256(b"18 x 20 1\n")
    for role, name in ((0, "train"), (2, "test")):
        for image, label in zip(arrays[f"x_{name}"], arrays[f"y_{name}"], strict=True):
            sha.update(f"{role} {label}\n".encode() + image.tobytes())
    for path in ("mnist", "mnist/mnist.npz"):
        assert f"sha256 {sha.hexdigest()}\n" in planish.ok("data", "check", path, "images").stdout
    write_npz(planish.folder / "mnist/mnist.npz", save, names=("X_train", "y_train", "val_images", "val_labels"))
    assert "train 54, valid 12, test 6" in planish.ok("data", "check", "mnist", "images").stdout
    # One array of all images; floats, labels in a column, colors.
    rng = np.random.default_rng(1)
    labels = np.arange(40, dtype=np.uint8) % 2
    images = np.stack([draw(rng, label) for label in labels]).astype(np.float16)
    save(planish.folder / "mnist/mnist.npz", images=images / 255, labels=labels[:, None])
    found = planish.ok("data", "check", "mnist", "images").stdout
    assert "40 color images of 18 x 20 pixels" in found and '2 classes: "0" (20), "1" (20)' in found


def changed(data, at, value):
    return data[:at] + value + data[at + len(value) :]


def encrypted(data):
    """Sets the flag of all members in the directory."""
    for at in [match.start() for match in re.finditer(b"PK\1\2", data)]:
        data = changed(data, at + 8, b"\1\0")
    return data


def of_absurd_size(data):
    """States 4 GB for all members in the directory."""
    for at in [match.start() for match in re.finditer(b"PK\1\2", data)]:
        data = changed(data, at + 24, struct.pack("<I", 2**32 - 2))
    return data


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda data: data[:-1], "d/a.npz: it does not end with the directory of a zip archive: it is truncated"),
        (lambda data: data[: len(data) // 2], "d/a.npz: it does not end with the directory of a zip archive"),
        (lambda data: b"no archive", "d/a.npz: it does not end with the directory of a zip archive: it is damaged, or"),
        (lambda data: b"", "d/a.npz: it does not end with the directory of a zip archive"),
        (lambda data: changed(data, 200, bytes(1000)), "d/a.npz/x_train.npy: its deflate stream is damaged ("),
        (encrypted, "d/a.npz/x_train.npy: it is encrypted: save it without a password"),
        (of_absurd_size, "d/a.npz/x_train.npy: it unpacks to 4,294,967,294 bytes, more than 200 times its size"),
    ],
)
def test_damaged_npz_files(planish, change, message):
    (planish.folder / "d").mkdir()
    file = planish.folder / "d/a.npz"
    write_npz(file)
    file.write_bytes(change(file.read_bytes()))
    for path in ("d", "d/a.npz"):
        assert_one_line(planish(*TRAIN, "--data", path), 3, message)


@pytest.mark.parametrize(
    "arrays, message",
    [
        ({}, "d/a.npz: it has no arrays of images and labels, such as x_train and y_train, or images and labels; its "
         "keys are none"),
        ({"data": 1, "target": 2}, 'or images and labels; its keys are "data", "target"'),
        ({"x_train": np.zeros((4, 2, 2), np.uint8), "Y": 0}, 'it has x_train but no y_train; its keys are "Y", "x_t'),
        ({"x_test": np.zeros((4, 2, 2), np.uint8), "y_test": np.arange(4)},
         "d/a.npz/x_test.npy: there are no training images beside it"),
        ({"x": np.zeros((4, 2, 2), np.int32), "y": np.arange(4)},
         'd/a.npz/x.npy: its elements have the type "<i4"; |u1, <f4, <f8 or <f2 was expected'),
        ({"x": np.zeros((4, 2, 2), np.uint8), "y": np.ones(4)}, 'd/a.npz/y.npy: its elements have the type "<f8"'),
        ({"x": np.array([[1], [2, 3]], object), "y": np.arange(2)},
         'd/a.npz/x.npy: its elements have the type "|O"'),
        ({"x": np.zeros((4, 2, 2), np.uint8), "y": np.arange(5)},
         "d/a.npz/y.npy: it has 5 labels for the 4 images of x.npy"),
        ({"x": np.zeros((4, 4), np.uint8), "y": np.arange(4)}, "d/a.npz/x.npy: its shape is (4, 4); (images, height"),
        ({"x": np.full((4, 2, 2), np.nan), "y": np.arange(4)}, "d/a.npz/x.npy: its element [0, 0, 0] is nan"),
        ({"x_train": np.zeros((4, 2, 2), np.uint8), "y_train": np.arange(4) % 2, "x_test": np.zeros((2, 3, 2), np.uint8),
          "y_test": np.arange(2)}, "d/a.npz/x_test.npy: it has 3 x 2 pixels, but d/a.npz/x_train.npy has 2 x 2"),
    ],
)  # fmt: skip
def test_wrong_arrays_of_npz_files(planish, arrays, message):
    (planish.folder / "d").mkdir()
    np.savez(planish.folder / "d/a.npz", **arrays)
    assert_one_line(planish(*TRAIN, "--data", "d"), 3, message)


def test_sets_in_folders_are_kept(planish):
    for name, count in (("train", 12), ("val", 3), ("test", 5)):
        write_classes(planish.folder / "set" / name, count=count)
    planish.ok(*TRAIN, "--data", "set")
    data = run_of(planish)[0]["data"]
    assert data["sizes"] == {"train": 36, "valid": 9, "test": 15}
    assert data["description"].endswith("; sets by folders")


def write_idx(folder, prefix, images, labels, packed=False):
    for name, array in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
        data = struct.pack(f">I{array.ndim}I", 0x800 + array.ndim, *array.shape) + array.astype(np.uint8).tobytes()
        file = folder / (prefix + name + (".gz" if packed else ""))
        file.write_bytes(gzip.compress(data) if packed else data)


def test_idx_and_npy_are_the_same_data_as_png(planish):
    rng = np.random.default_rng(3)
    labels = np.arange(60) % 4 * 50
    images = np.stack([draw(rng, label // 50, channels=1)[..., 0] for label in labels])
    for name in ("png", "idx", "npy"):
        (planish.folder / name).mkdir()
    for label in np.unique(labels):
        (planish.folder / "png" / str(label)).mkdir()
    for i, (image, label) in enumerate(zip(images, labels)):
        (planish.folder / "png" / str(label) / f"{i:02}.png").write_bytes(png(image))
    write_idx(planish.folder / "idx", "letters-train-", images, labels, packed=True)
    np.save(planish.folder / "npy" / "images.npy", images)
    np.save(planish.folder / "npy" / "labels.npy", labels.astype(np.int32))
    found = [planish.ok("data", "check", name, "images").stdout for name in ("idx", "npy")]
    assert found[0].split("sha256")[1] == found[1].split("sha256")[1]
    for name in ("png", "idx", "npy"):
        planish.ok(*TRAIN, "--data", name, "--out", name + "-runs", "--set", "epochs=20")
        config, result = run_of(planish, name + "-runs")
        assert '4 classes: "0" (15), "50" (15), "100" (15), "150" (15)' in config["data"]["description"]
        assert result["best"]["values"]["test_accuracy"] > 0.5  # a guess has 1/4


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("cat/x.png", png(np.zeros((18, 21))), "pets/cat/x.png: it has 18 x 21 pixels, but pets/a dog/0.png has 18 x"),
        ("cat/x.png", png(np.zeros((18, 20)))[:50], "pets/cat/x.png: its PNG data is truncated"),
        ("cat/x.png", b"\xff\xd8\xff\xe0JFIF", "pets/cat/x.png: it is a JPEG image, not PNG"),
        ("cat/x.png", b"", "pets/cat/x.png: it is empty"),
        ("cat/x.png", b"text", "pets/cat/x.png: it is not a PNG image"),
        ("cat/x.PNG", b"PK\3\4", "pets/cat/x.PNG: it is a zip archive"),
        ("cat/x.gif", b"", "pets/cat/x.gif: only PNG and JPEG images are read: convert it first"),
        ("cat/x.jpeg", b"\xff\xd8\xff", "pets/cat/x.jpeg: "),
        ("emu/x.png", png(np.zeros((18, 20))), 'pets/emu/x.png: only one image has the class "emu"'),
        ("emu/x.txt", b"", "pets/emu: it has no PNG or JPEG files; each folder here must be that of a class"),
        ("cat/more/x.png", b"", "pets/cat/more: it is a folder within the folder of a class"),
    ],
)
def test_wrong_images(planish, name, content, message):
    write_classes(planish.folder / "pets", count=3)
    file = planish.folder / "pets" / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    assert_one_line(planish(*TRAIN, "--data", "pets"), 3, message)
    assert not list(planish.folder.glob("runs/*/*/config.json"))


def test_wrong_folders(planish):
    (planish.folder / "file").write_text("text")
    (planish.folder / "empty").mkdir()
    assert_one_line(planish(*TRAIN, "--data", "file"), 3, "cannot read file: it is not a folder with images")
    assert_one_line(planish(*TRAIN, "--data", "empty"), 3, "empty has no images, itself or in a folder images")
    write_classes(planish.folder / "one", names=("cat",), count=3)
    assert_one_line(planish(*TRAIN, "--data", "one"), 3, 'one: all images have the class "cat"')
    os.mkfifo(planish.folder / "one/cat/pipe.png")
    assert_one_line(planish(*TRAIN, "--data", "one"), 3, "pipe.png: it is a device or pipe")
    write_classes(planish.folder / "sets/train", count=3)
    write_classes(planish.folder / "sets/test", names=("cat", "emu"), count=2)
    assert_one_line(planish(*TRAIN, "--data", "sets"), 3, 'no training image has the class "emu"')


def test_wrong_settings(planish):
    write_classes(planish.folder / "pets", count=4)
    assert_one_line(planish(*TRAIN, "--set", "model=rnn"), 2, "model must be one of cnn, mlp")
    assert_one_line(planish(*TRAIN, "--set", "color=red"), 2, "color must be one of auto, grey, color")
    small = planish.folder / "small"
    write_classes(small, count=16, encode=lambda image, i: png(image[:15, :15], RGB))
    assert_one_line(planish(*TRAIN, "--data", "small"), 2, "model must be mlp for images of 15 x 15 pixels, got cnn")
    planish.ok(*TRAIN, "--data", "small", "--set", "model=mlp", "--set", "color=grey")
    assert "grey images" in run_of(planish)[0]["data"]["description"]
    assert_one_line(planish(*TRAIN, "--data", "pets"), 2, "batch_size must be at most the 10 training cases, got 32")
