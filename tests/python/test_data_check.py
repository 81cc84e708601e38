"""planish data check: what each task finds in a folder, and what it lacks."""

import json
import re

import numpy as np
import pytest
from test_command import assert_one_line
from test_images import write_idx

MNIST_TASKS = ("pi-mnist", "mnist-cnn", "convnet", "online-ln")


def sections(text):
    """Returns the first line of each task, after its name."""
    return dict(re.findall(r"^([a-z0-9-]+(?:, data=\w+)?): (.*)$", text, re.M))


def test_says_what_every_task_finds_and_lacks(planish):
    folder = planish.folder / "all"
    folder.mkdir()
    (folder / "input.txt").write_text("Où est-il ?\n" * 500)
    for part, lines in (("pos", "good film\n"), ("neg", "bad film\n")):
        (folder / f"rt-polarity.{part}").write_text(lines * 6000)
    result = planish("data", "check", "all")
    assert result.returncode == 0 and result.stderr == ""
    found = sections(result.stdout)
    assert found["char-lm"] == "found all"
    assert found["rt"] == "found labelled sentences"
    assert "  6,000 characters read from all/input.txt; 11 different characters\n" in result.stdout
    assert "  cases: train 5,400, valid 300, test 300\n" in result.stdout
    for task in MNIST_TASKS:
        assert found[task].startswith("no: all has none of the files of MNIST"), task
    assert found["sst5"].startswith("no: all has no file stsa.fine.train")
    assert found["mt"] == "no:"
    assert "\nmt: no:\n  data=multi30k: all has no files NAME.de" in result.stdout
    assert "\n  data=tatoeba: all has no file deu.txt" in result.stdout
    assert "data=synthetic" not in result.stdout
    names = {name.split(",")[0] for name in found}
    assert names == set(re.findall(r"^([a-z][a-z0-9-]*) +\S", planish.ok("list").stdout, re.M))
    assert not (planish.folder / "runs").exists()


def test_the_checksum_is_that_of_a_run(planish):
    (planish.folder / "a.txt").write_text("round and round\n" * 100)
    text = planish.ok("data", "check", "a.txt", "char-lm", "--set", "characters=1000").stdout
    planish.ok("train", "char-lm", "--preset", "smoke", "--quiet", "--threads", 1, "--data", "a.txt",
               "--set", "characters=1000", "--set", "epochs=1")  # fmt: skip
    (config,) = planish.folder.glob("runs/*/*/config.json")
    assert f"  sha256 {json.loads(config.read_text())['data']['sha256']}\n" in text
    assert "  no data set of a paper, or one whose checksum is not known\n" in text


def test_takes_a_preset(planish):
    (planish.folder / "a.txt").write_text("round and round\n" * 1000)
    assert "  16,000 characters read" in planish.ok("data", "check", "a.txt", "char-lm").stdout
    smoke = planish.ok("data", "check", "a.txt", "char-lm", "--preset", "smoke").stdout
    assert "10,000 characters" in smoke and "16,000" not in smoke
    assert_one_line(planish("data", "check", "a.txt", "char-lm", "--preset", "huge"), 2, "[data check] preset must be ")
    assert_one_line(planish("data", "check", "a.txt", "--preset", "smoke"), 2, "--preset needs a TASK")


def test_names_do_not_make_a_papers_data(planish):
    folder = planish.folder / "mnist"
    folder.mkdir()
    for name, count in (("train", 60000), ("t10k", 10000)):
        images = np.zeros((count, 28, 28), np.uint8)
        write_idx(folder, name + "-", images, np.arange(count) % 10)
    text = planish.ok("data", "check", "mnist", "pi-mnist").stdout
    assert text.startswith("pi-mnist: found idx images\n")
    assert "not MNIST itself" in text and "a paper's own data" not in text


def test_settings_of_a_task(planish):
    (planish.folder / "pairs").write_text("".join(f"one {i}\teins {i}\n" for i in range(60)))
    check = ("data", "check", "pairs", "mt")
    text = planish.ok(*check, "--set", "data=files", "--set", "direction=en-vi").stdout
    assert text.startswith("mt: found files en-vi\n") and "train 54, valid 3, test 3" in text
    assert not (planish.folder / "cache").exists()  # no vocabulary is trained
    assert sections(planish.ok(*check).stdout) == {"mt, data=files": "found files source-target"}
    # Nor does it say why they are not another data set.
    assert planish.ok(*check).stdout.startswith("mt, data=files: found files source-target\n")
    everything = planish.ok("data", "check", "pairs").stdout
    assert "mt, data=files: found" in everything and "mt: no" not in everything
    assert "iwslt14" not in everything


@pytest.mark.parametrize(
    "arguments, status, message",
    [
        (("/no/such",), 3, "no such folder: /no/such\n"),
        (("/no/such", "rt"), 3, "no such folder: /no/such\n"),
        (("empty", "rt"), 3, "empty has no file rt-polarity.pos or rt-polarity.pos.gz, itself"),
        (("empty", "char-ml"), 2, "char-lm"),
        (("",), 2, "[data check] DIR is empty"),
        (("empty", ""), 2, "[data check] TASK is empty"),
        (("empty", "--set", "a=b"), 2, "[data check] --set needs a TASK"),
        (("empty", "mt", "--set", "x"), 2, '[data check] --set must be KEY=VALUE, got "x"'),
        (("empty", "mt", "--set", "x=1"), 2, "x"),
        ((), 2, "DIR"),
    ],
)
def test_wrong_usage_and_missing_data(planish, arguments, status, message):
    (planish.folder / "empty").mkdir()
    assert_one_line(planish("data", "check", *arguments), status, message)


def test_a_folder_without_any_data(planish):
    (planish.folder / "empty").mkdir()
    result = planish("data", "check", "empty")
    assert result.returncode == 3
    assert result.stderr == "planish: empty has no data of any task\n"
    assert "found" not in result.stdout and result.stdout.count(": no:") >= 14
    result = planish("data", "check", "empty", "mt")
    assert result.returncode == 3 and result.stderr == "planish: empty has no data of mt\n"
    assert re.findall(r"^  data=(\w+): ", result.stdout, re.M) == ["multi30k", "tatoeba", "iwslt14", "files"]
    assert result.stdout.startswith("mt: no:\n") and result.stdout.count(": no:") == 1
