"""planish train order-embedding and planish search from the user's view: files, lines, errors."""

import json
import re
import struct

import pytest

SMOKE = ("train", "order-embedding", "--preset", "smoke", "--threads", 1, "--set", "epochs=1", "--quiet")


@pytest.fixture(scope="module")
def trained(shared):
    shared.ok(*SMOKE, "--norm", "layer")
    (shared.run,) = (shared.folder / "runs/order-embedding").iterdir()
    return shared


def hits(text):
    """Returns (score, image, captions) of each line."""
    found = [line.split("\t") for line in text.splitlines()]
    return [(float(score), int(image), captions.split(" / ")) for score, image, captions in found]


def test_a_run_says_what_it_is(trained):
    result = json.loads((trained.run / "result.json").read_text())
    assert result["status"] == "finished"
    assert {"valid_sum", "test_sum", "test_image_r1", "test_caption_mean"} <= set(result["best"]["values"])
    assert len(result["samples"]) == 4
    config = json.loads((trained.run / "config.json").read_text())
    assert config["data"]["name"] == "synthetic scenes"
    assert config["settings"]["clip_each"] == 2


def test_the_best_images_come_first(trained):
    result = trained("search", trained.run, "a red dog in the park", "-n", 3)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    found = hits(result.stdout)
    assert len(found) == 3
    assert sorted(found, key=lambda hit: -hit[0]) == found
    assert all(len(captions) == 5 and 0 <= image < 200 for _, image, captions in found)
    assert len(hits(trained("search", trained.run, "dog").stdout)) == 5
    assert len(hits(trained("search", trained.run, "dog", "--count", 1000).stdout)) == 200


def test_a_caption_a_line(trained):
    lines = ["a red dog in the park", "", "The kid throws a ball, \u0436."]
    both = trained("search", trained.run, "-n", 2, input="\r\n".join(lines))
    assert both.returncode == 0, both.stderr
    each = [trained("search", trained.run, lines[i], "-n", 2).stdout for i in (0, 2)]
    assert both.stdout == each[0] + "\n" + "\n" + each[1] + "\n"
    assert trained("search", trained.run, input="").stdout == ""


@pytest.mark.parametrize(
    "arguments, lines, status, part",
    [
        (("xyzzy",), b"", 2, 'caption must have a word of the training captions, got "xyzzy"'),
        (("",), b"", 2, "QUERY must have a character other than blanks"),
        ((), b"a dog\nxyzzy\n", 3, ', got "xyzzy", on line 2 of stdin'),
        ((), b"a dog\nb\xfcse\n", 3, "stdin, line 2: byte 0xfc at column 2 is not UTF-8"),
        ((b"b\xfcse",), b"", 2, "QUERY must be UTF-8"),
        (("dog", "-n", 0), b"", 2, "--count"),
        (("dog", "cat"), b"", 2, "[search]"),
        (("dog", "--data", "nothing"), b"", 3, "no such folder: nothing"),
        (("dog", "--in", "text"), b"", 2, "--in must go with a run of skip-thoughts: RUN finds images"),
    ],
)
def test_invalid_searches_are_refused(trained, arguments, lines, status, part):
    arguments = [a.decode(errors="surrogateescape") if isinstance(a, bytes) else a for a in arguments]
    result = trained("search", trained.run, *arguments, input=lines, text=False)
    assert result.returncode == status, result.stderr
    error = result.stderr.decode()
    assert re.fullmatch(r"planish: [^\n]+\n", error), error
    assert part in error


def test_runs_that_find_nothing(planish):
    planish.ok("train", "pi-mnist", "--preset", "smoke", "--norm", "none", "--threads", 1)
    (run,) = (planish.folder / "runs/pi-mnist").iterdir()
    result = planish("search", run, "a dog")
    assert result.returncode == 2
    assert "must be of a task that finds images or gives sentences vectors, got task pi-mnist" in result.stderr
    assert planish("search", "nothing", "a dog").returncode == 3


def npy(rows, width, descr="<f4", order="False", numbers=None):
    header = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({rows}, {width}), }}"
    header = header.ljust(117) + "\n"
    numbers = [(i * 7) % 11 - 5 for i in range(rows * width)] if numbers is None else numbers
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header.encode() + struct.pack(f"<{len(numbers)}f", *numbers)


def write_files(folder):
    folder.mkdir()
    for split, images in (("train", 60), ("dev", 10), ("test", 8)):
        (folder / f"{split}_ims.npy").write_bytes(npy(images, 6))
        (folder / f"{split}_caps.txt").write_text("".join(f"a dog no.{i % 9} .\n" for i in range(5 * images)))


def test_features_of_the_user_are_trained_on(planish):
    folder = planish.folder / "coco_precomp"
    write_files(folder)
    planish.ok(*SMOKE, "--norm", "none", "--data", folder)
    (run,) = (planish.folder / "runs/order-embedding").iterdir()
    data = json.loads((run / "config.json").read_text())["data"]
    assert data["name"] == "coco"
    assert data["sizes"] == {"train": 60, "valid": 10, "test": 8}
    # Words are separated by blanks.
    assert len(hits(planish("search", run, "dog no.3").stdout)) == 5
    assert planish("search", run, "Dog").returncode == 2
    # Its data is found again, unless it has changed.
    (folder / "test_caps.txt").write_text("else\n" * 40)
    changed = planish("search", run, "dog")
    assert changed.returncode == 1
    assert "this is not the data" in changed.stderr


@pytest.mark.parametrize(
    "file, content, part",
    [
        ("train_ims.npy", b"not", "it begins with \\x6e\\x6f\\x74; NumPy's"),
        ("dev_ims.npy", npy(10, 6)[:-4], "it ends at byte 364; 240 bytes of elements for the shape (10, 6)"),
        ("dev_ims.npy", npy(10, 6) + b"x", "its array ends at byte 368, but more bytes follow"),
        ("test_ims.npy", npy(8, 6, descr=">f4"), 'its elements have the type ">f4"; <f4, <f8 or <f2 was expected'),
        ("test_ims.npy", npy(8, 6, order="True"), "its elements are in Fortran order"),
        ("test_ims.npy", npy(8, 5), "its rows have 5 elements, but those of train_ims.npy have 6"),
        ("test_caps.txt", b"a\n" * 39, "it has 39 lines; 40 were expected, 5 for each of the 8 images"),
        ("dev_caps.txt", None, "has no file dev_caps.txt or dev_caps.txt.gz"),
    ],
)
def test_files_that_cannot_be_used(planish, file, content, part):
    folder = planish.folder / "set"
    write_files(folder)
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)
    result = planish(*SMOKE, "--data", folder)
    assert result.returncode == 3, result.stderr
    assert re.fullmatch(r"planish: [^\n]+\n", result.stderr), result.stderr
    assert part in result.stderr


@pytest.mark.parametrize(
    "sets, part",
    [
        (("data=multi30k",), "data=multi30k needs a folder"),
        (("batch_size=500",), "batch_size must be at most the 400 training cases"),
        (("score=dot",), "score must be one of order, symmetric"),
        (("norm=rms",), "norm must be one of none, layer"),
    ],
)
def test_wrong_settings(planish, sets, part):
    flags = [flag for key in sets for flag in ("--set", key)]
    result = planish(*SMOKE, *flags)
    assert result.returncode == 2, result.stderr
    assert part in result.stderr
