"""planish sample from the user's view."""

import json
import re

import pytest

SMOKE = ("--preset", "smoke", "--threads", 1, "--quiet")


@pytest.fixture(scope="module")
def runs(shared):
    """Finished runs of each task that writes text, trained on a file, and of one that does not."""
    text = shared.folder / "some.txt"
    text.write_bytes(b"round and round it goes\n" * 400)
    for arguments in (("char-lm", "--cell", "gru"), ("enwik8", "--norm", "none")):
        shared.ok("train", *arguments, *SMOKE, "--data", text, "--set", "epochs=1")
    shared.ok("train", "pi-mnist", *SMOKE, "--norm", "none", "--set", "epochs=1")
    return {
        name: next((shared.folder / "runs" / name).iterdir())
        for name in ("char-lm", "enwik8", "pi-mnist")
    }


@pytest.mark.parametrize("task", ["char-lm", "enwik8"])
def test_text_follows_the_prompt(shared, runs, task):
    def sample(*arguments):
        return shared.ok("sample", runs[task], "--threads", 1, "--length", 40, *arguments).stdout

    first = sample("--prompt", "and ro")
    assert first.startswith("and ro") and len(first) == 6 + 40 + 1
    assert set(first) <= set("round and it goes\n")
    assert sample("--prompt", "and ro") == first
    assert sample("--prompt", "and ro", "--seed", 2) != first
    assert len(sample("--temperature", 0.2)) == 40 + 1
    # Trained on a file that still exists, or found with --data.
    copy = shared.folder / "copy.txt"
    copy.write_bytes((shared.folder / "some.txt").read_bytes())
    assert sample("--prompt", "and ro", "--data", copy) == first


@pytest.mark.parametrize(
    "run, arguments, status, part",
    [
        ("none", (), 3, "no such file or folder: none\n"),
        ("pi-mnist", (), 2, "a task that writes text or draws images, got task pi-mnist"),
        ("enwik8", ("--prompt", "aXY\u00e9"), 2, '--prompt has what the training text does not have: "X", "Y", byte 0xc3, byte 0xa9'),
        ("enwik8", ("--temperature", 0), 2, "--temperature must be a number from 0.01"),
        ("enwik8", ("--length", 0), 2, "--length must be a whole number from 1"),
        ("enwik8", ("--data", "gone.txt"), 3, "no such file: gone.txt"),
        ("enwik8", ("--data", "other.txt"), 1, "this is not the data"),
    ],
)
def test_invalid_requests_are_refused(shared, runs, run, arguments, status, part):
    (shared.folder / "other.txt").write_bytes(b"another text\n" * 800)
    result = shared("sample", runs.get(run, run), *arguments)
    assert result.returncode == status, result.stderr
    assert re.fullmatch(r"planish: [^\n]+\n", result.stderr), result.stderr
    assert part in result.stderr
    assert result.stdout == ""


def test_a_run_that_has_not_ended(shared, runs, tmp_path):
    folder = tmp_path / "unfinished"
    folder.mkdir()
    (folder / "config.json").write_text((runs["char-lm"] / "config.json").read_text())
    (folder / "metrics.jsonl").write_text((runs["char-lm"] / "metrics.jsonl").read_text())
    result = shared("sample", folder)
    assert result.returncode == 1
    assert "is an unfinished run" in result.stderr


def test_bits_are_of_the_test_once(runs):
    result = json.loads((runs["enwik8"] / "result.json").read_text())
    assert "test_bits" in result["best"]["values"]
    assert "test_bits" not in result["final"]
