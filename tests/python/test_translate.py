"""planish train mt and planish translate from the user's view: data, cache, lines, errors."""

import gzip
import json
import re

import pytest

SMOKE = ("train", "mt", "--preset", "smoke", "--threads", 1, "--set", "epochs=1")


@pytest.fixture(scope="module")
def trained(shared):
    shared.ok(*SMOKE, "--set", "direction=en-de")
    (shared.run,) = (shared.folder / "runs/mt").iterdir()
    return shared


def test_a_run_says_what_it_is(trained):
    result = json.loads((trained.run / "result.json").read_text())
    assert result["status"] == "finished"
    assert set(result["best"]["values"]) >= {"valid_nats", "valid_bleu", "test_nats", "test_bleu"}
    assert len(result["samples"]) == 5
    config = json.loads((trained.run / "config.json").read_text())
    assert config["data"]["name"] == "made en-de"
    assert re.search(r"made en to de, made by planish: 300 training pairs of 4,000", config["data"]["description"])
    (vocabulary,) = (trained.folder / "cache/planish").iterdir()
    assert re.fullmatch(r"bpe-200-nfkc3-[0-9a-f]{32}\.model", vocabulary.name)


def test_a_line_for_each_line(trained):
    lines = ["A dog sleeps.", "", "The cats must see a \u0436 bird.", "x" * 300, "A dog sleeps."]
    both = trained("translate", trained.run, "--threads", 1, input="\n".join(lines) + "\n")
    assert both.returncode == 0, both.stderr
    assert both.stderr == ""
    ours = both.stdout.split("\n")
    assert len(ours) == 6 and ours[5] == ""
    assert ours[0] == ours[4] != "" and ours[1] == ""
    # Without a last line feed, and with Windows' line ends.
    other = trained("translate", trained.run, "--threads", 1, input="\r\n".join(lines))
    assert other.stdout == both.stdout
    assert trained("translate", trained.run, input="").stdout == ""


def test_search_can_be_changed(trained):
    lines = "A dog sleeps.\nThe cats must see a bird in the garden.\n"
    greedy = trained("translate", trained.run, "--beam", 1, "--length-penalty", 0, input=lines)
    assert greedy.returncode == 0, greedy.stderr
    assert greedy.stdout.count("\n") == 2


@pytest.mark.parametrize(
    "arguments, lines, status, part",
    [
        ((), b"fine\nb\xfcse\n", 3, "[translate] input must be UTF-8, got other bytes on line 2"),
        (("--beam", 0), b"", 2, "--beam"),
        (("--length-penalty", -1), b"", 2, "--length-penalty"),
    ],
)
def test_what_cannot_be_translated(trained, arguments, lines, status, part):
    result = trained("translate", trained.run, *arguments, input=lines, text=False)
    assert result.returncode == status, result.stderr
    assert part in result.stderr.decode()


def test_runs_that_do_not_translate(planish):
    planish.ok("train", "pi-mnist", "--preset", "smoke", "--norm", "none", "--threads", 1)
    (run,) = (planish.folder / "runs/pi-mnist").iterdir()
    result = planish("translate", run, input="a\n")
    assert result.returncode == 2
    assert "must be of a task that translates, got task pi-mnist" in result.stderr
    result = planish("translate", run, "--beam", 2, input="a\n")
    assert result.returncode == 2
    assert "must be of a task with the setting beam" in result.stderr
    result = planish("translate", "nothing", input="a\n")
    assert result.returncode == 1
    assert re.fullmatch(r"planish: [^\n]+\n", result.stderr), result.stderr


def write_files(folder, train=40):
    folder.mkdir()
    for split, count in (("train", train), ("valid", 5), ("test", 5)):
        for language, words in (("aa", "one two three four"), ("bb", "eins zwei drei vier")):
            lines = [f"{words} {i}" for i in range(count)]
            (folder / f"{split}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")


FILES = ("--set", "data=files", "--set", "direction=aa-bb", "--set", "vocabulary=60", "--quiet")


def test_files_of_ones_own(planish):
    folder = planish.folder / "pairs"
    write_files(folder)
    lines = (folder / "train.bb").read_bytes()
    (folder / "train.bb").unlink()
    (folder / "train.bb.gz").write_bytes(gzip.compress(lines))
    (folder / "valid.aa").write_text("one\n\nthree\nfour\n" + "five " * 100 + "\n")
    planish.ok(*SMOKE, "--data", folder, *FILES)
    (run,) = (planish.folder / "runs/mt").iterdir()
    data = json.loads((run / "config.json").read_text())["data"]
    assert data["name"] == "files aa-bb"
    assert data["sizes"] == {"train": 40, "valid": 3, "test": 5}
    assert "; 1 pair with an empty side left out" in data["description"]
    assert "; 1 pair of more than 64 pieces left out of training and validation" in data["description"]
    # Its data is found again, unless it has changed.
    assert planish("translate", run, input="one\n").stdout.count("\n") == 1
    (folder / "test.aa").write_text("else\n" * 5)
    changed = planish("translate", run, input="one\n")
    assert changed.returncode == 1
    assert "this is not the data" in changed.stderr


@pytest.mark.parametrize(
    "file, content, status, part",
    [
        ("train.bb", b"one line\n", 3, "must have the 40 lines of train.aa, got 1"),
        ("train.aa", b"a\nb\xff\n", 3, "must be UTF-8, got byte 0xff at column 2 of line 2"),
        ("valid.aa", b"\n" * 5, 3, "has no validation pairs"),
        ("test.bb", None, 3, "must hold test.aa and test.bb, got only test.aa"),
    ],
)
def test_files_that_cannot_be_used(planish, file, content, status, part):
    folder = planish.folder / "pairs"
    write_files(folder)
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)
    result = planish(*SMOKE, "--data", folder, *FILES)
    assert result.returncode == status, result.stderr
    assert re.fullmatch(r"planish: [^\n]+\n", result.stderr), result.stderr
    assert part in result.stderr


@pytest.mark.parametrize(
    "sets, part",
    [
        (("direction=en",), "direction must be two languages"),
        (("direction=en-fr",), "direction must be en-de or de-en for data=made"),
        (("data=tatoeba",), "data=tatoeba needs a folder"),
        (("vocabulary=20",), "vocabulary must hold at least every character"),
        (("batch_size=4",), "batch_size must be at least"),
        (("heads=3",), "heads must divide the width"),
    ],
)
def test_wrong_settings(planish, sets, part):
    flags = [flag for key in sets for flag in ("--set", key)]
    result = planish(*SMOKE, "--quiet", *flags)
    assert result.returncode == 2, result.stderr
    assert part in result.stderr
