"""planish train char-lm from the user's view: texts, samples, errors."""

import gzip
import html
import json
import re

import pytest
from test_command import assert_one_line

SMOKE = ("train", "char-lm", "--preset", "smoke", "--threads", 1)


def result_of(planish, name):
    return json.loads((planish.folder / "runs/char-lm" / name / "result.json").read_text())


def test_a_text_of_the_user_is_trained_on(planish):
    text = planish.folder / "some.txt"
    text.write_bytes(b"round and round and \xc3\xa9 \xff round\n" * 100)
    planish.ok(*SMOKE, "--data", text, "--cell", "lstm,gru", "--set", "temperature=2", "--set", "unit=byte")
    folder = "smoke-{}-b8-unit=byte-temperature=2.0-s1"
    config = json.loads((planish.folder / "runs/char-lm" / folder.format("gru") / "config.json").read_text())
    assert config["data"]["name"] == "some.txt"
    assert config["data"]["sizes"] == {"train": 2790, "valid": 155, "test": 155}
    planish.ok("report", "runs")
    page = (planish.folder / "report.html").read_text()
    for cell in ("lstm", "gru"):
        sample = result_of(planish, folder.format(cell))["samples"][0]
        assert sample["title"] == "60 characters at temperature 2"
        # Bytes of the text; invalid UTF-8 is shown as U+FFFD.
        assert set(sample["text"]) <= set("round and \n\u00e9\ufffd"), sample["text"]
        assert html.escape(sample["text"]) in page


def test_bytes_and_characters_have_their_own_units(planish):
    """Also in runs of versions that wrote bits/char for both."""
    (planish.folder / "plain.txt").write_text("round and round the ragged rock\n" * 100)
    trained = planish.ok(*SMOKE, "--data", "plain.txt", "--unit", "character,byte", "--cell", "lstm,gru")

    def test_losses(text):
        """Returns the units of the losses in the lines of runs."""
        return re.findall(r"test loss [\d.]+ (\S+)", text)

    assert sorted(test_losses(trained.stderr)) == ["bits/byte"] * 2 + ["bits/char"] * 2
    configs = {file.parent.name: json.loads(file.read_text()) for file in planish.folder.glob("runs/*/*/config.json")}
    for name, config in configs.items():
        unit = "byte" if "unit=byte" in name else "char"
        assert [metric["unit"] for metric in config["metrics"]] == [f"nats/{unit}"] + [f"bits/{unit}"] * 3, name
    # The data are the same, but no table or chart has both.
    assert len({config["data"]["sha256"] for config in configs.values()}) == 1
    shown = planish.ok("show", "runs").stdout
    planish.ok("report", "runs")
    page = (planish.folder / "report.html").read_text()
    for text in (trained.stdout, shown):
        headings = re.findall(r"^char-lm: .*$", text, re.M)
        assert headings == [f"char-lm: Character model (plain.txt, bits/{unit})" for unit in ("byte", "char")]
        of_bytes, of_characters = (part.replace("\n", " ") for part in re.split(r"^char-lm: ", text, flags=re.M)[1:])
        assert "unit byte" in of_bytes and "unit character" in of_characters
        assert "(bits/byte)" in of_bytes and "(bits/char)" not in of_bytes
        assert "(bits/char)" in of_characters and "(bits/byte)" not in of_characters
    titles = set(re.findall(r"Character model \([^<]*\)", page))
    assert titles == {"Character model (plain.txt, bits/byte)", "Character model (plain.txt, bits/char)"}
    for file in planish.folder.glob("runs/*/*/config.json"):
        file.write_text(file.read_text().replace("/byte", "/char"))
    assert planish.ok("show", "runs").stdout == shown
    alone = planish.ok("show", "runs/char-lm/smoke-lstm-b8-unit=byte-s1").stdout
    assert alone.startswith("char-lm: Character model (plain.txt)\n") and "(bits/byte)" in alone


def test_rates_of_bytes_and_characters_are_in_tables_of_their_own(planish):
    (planish.folder / "plain.txt").write_text("round and round\n" * 100)
    arguments = ("--data", "plain.txt", "--lr", "1e-3..1e-2", "--points", 2, "--threads", 1, "--set", "epochs=1")
    text = planish.ok("tune", "char-lm", "--preset", "smoke", "--unit", "byte,character", *arguments).stdout
    of_bytes, of_characters = re.split(r"^char-lm, preset", text, flags=re.M)[1:]
    assert "validation loss (bits/byte)" in of_bytes and "character" not in of_bytes.split("*: chosen")[0]
    assert "validation loss (bits/char)" in of_characters and "unit=byte" not in of_characters.split("*: chosen")[0]
    assert text.count("Train with these rates:") == 1


NOVEL = "« Où est-il ? » — “Là-bas”, dit Élise, 你好。\n"


@pytest.mark.parametrize("packed", [False, True])
def test_characters_of_utf8_are_counted(planish, packed):
    """The sizes are those of Python's str, so that bits per character are."""
    text = planish.folder / ("novel.txt.gz" if packed else "novel.txt")
    content = ("\ufeff" + NOVEL * 20).encode()
    text.write_bytes(gzip.compress(content) if packed else content)
    planish.ok(*SMOKE, "--data", text, "--set", "unit=character,byte", "--set", "characters=100000")
    for unit, name, size in (
        ("character", "smoke-lstm-b8-characters=100000-s1", len(NOVEL) * 20),
        ("byte", "smoke-lstm-b8-unit=byte-characters=100000-s1", len(NOVEL.encode()) * 20),
    ):
        config = json.loads((planish.folder / "runs/char-lm" / name / "config.json").read_text())
        assert sum(config["data"]["sizes"].values()) == size
        count = len(set(NOVEL if unit == "character" else NOVEL.encode()))
        assert f"{size:,} {unit}s read from" in config["data"]["description"]
        assert f"; {count} different {unit}s" in config["data"]["description"]
    run = planish.folder / "runs/char-lm/smoke-lstm-b8-characters=100000-s1"
    written = planish.ok("sample", run, "--prompt", "“Là", "--length", 50, "--threads", 1).stdout
    assert set(written.rstrip("\n")) <= set(NOVEL)
    assert_one_line(planish("sample", run, "--prompt", "ß", "--threads", 1), 2, "does not have: \"ß\"")


def test_mixed_encodings_are_refused_with_their_line(planish):
    (planish.folder / "some.txt").write_bytes("Où\n".encode() * 100 + "Où\n".encode("latin-1") * 100)
    result = planish(*SMOKE, "--quiet", "--data", "some.txt")
    assert_one_line(result, 3, "some.txt, line 101: byte 0xf9 at column 2 is not UTF-8: convert the text first")
    planish.ok(*SMOKE, "--quiet", "--data", "some.txt", "--set", "unit=byte", "--set", "window=8")


def test_the_default_preset_is_small(shared):
    task = shared.ok("list", "char-lm").stdout
    presets = re.search(r"presets.*?\n\n", task, re.S)[0]
    assert re.findall(r"^  (\w+)", presets, re.M) == ["small", "shakespeare", "smoke"]


@pytest.mark.parametrize(
    "content, status, part",
    [
        (None, 3, "no such file: some.txt"),
        (b"", 3, "some.txt: it is empty"),
        (b"abc" * 100, 3, "some.txt has 300 characters; char-lm needs at least 340"),
        (b"a" * 400, 3, "two different characters"),
        (b"ab" * 200, 2, "(batch_size + 1) * window = 900 characters, got 360"),
    ],
)
def test_texts_that_cannot_be_used(planish, content, status, part):
    if content is not None:
        (planish.folder / "some.txt").write_bytes(content)
    result = planish(*SMOKE, "--quiet", "--data", "some.txt", "--set", "window=100")
    assert result.returncode == status, result.stderr
    assert re.fullmatch(r"planish: [^\n]+\n", result.stderr), result.stderr
    assert part in result.stderr
    assert not list(planish.folder.glob("runs/char-lm/*/config.json"))


def test_wrong_usage(planish):
    for arguments, part in (
        (("--cell", "ltsm"), "ln-lstm"),
        (("--norm", "layer"), "cell"),
        (("--set", "temperature=0"), "at least 0.01"),
        (("--set", "heads=0"), "at least 1"),
        (("--cell", "slstm", "--set", "heads=3"), "heads must divide the 16 units, got 3"),
        (("--cell", "slstm,torch-gru", "--set", "heads=4"), 'heads must be 1 for "torch-gru", got 4'),
    ):
        result = planish(*SMOKE, "--quiet", *arguments)
        assert result.returncode == 2
        assert part in result.stderr
        assert re.fullmatch(r"planish: [^\n]+\n", result.stderr), result.stderr
    assert not list(planish.folder.glob("runs/char-lm/*/config.json"))  # not even for slstm


def test_slstm_with_heads(planish):
    planish.ok(*SMOKE, "--cell", "lstm,slstm", "--set", "heads=1,4")
    for cell in ("lstm", "slstm"):
        one, four = (result_of(planish, f"smoke-{cell}-b8-{heads}s1")["parameters"] for heads in ("", "heads=4-"))
        assert one - four == 4 * 16 * 12  # three quarters of four matrices of 16 columns
    run = "runs/char-lm/smoke-slstm-b8-heads=4-s1"
    assert len(planish.ok("sample", run, "--length", 20, "--threads", 1).stdout.rstrip("\n")) >= 19


def test_settings_of_your_data_are_options(shared):
    assert_one_line(shared("train", "rt", "--unit", "byte"), 2, "[train] --unit must go with another task: rt has no "
                    "setting unit; tasks with it: char-lm")
    assert_one_line(shared("train", "char-lm", "--unit", "word"), 2, "unit must be one of character, byte")
    assert_one_line(shared("train", "char-lm", "--unit", "byte", "--set", "unit=byte"), 2, "unit must be given once")
    assert "--unit character|byte" in shared.ok("tune", "--help").stdout
