"""planish train sentences: tables of the user, from the file to the report."""

import csv
import gzip
import json
import random

import pytest
from test_command import assert_one_line

TRAIN = ("train", "sentences", "--preset", "smoke", "--norm", "none", "--threads", 1, "--quiet")
CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")  # as in TREC's questions


def questions(count=240, seed=1):
    """Returns questions of six classes, each with words of its class."""
    draw = random.Random(seed)
    rows = []
    for i in range(count):
        words = [f"{CLASSES[i % 6].lower()}{draw.randrange(3)}" for _ in range(draw.randrange(2, 6))]
        rows.append((f"what , \"said\" {' '.join(words)} ?", CLASSES[i % 6]))
    return rows


def write(folder, name, rows, columns=("question", "kind")):
    table = [columns, *rows] if columns else rows
    if ".jsonl" in name:
        text = "".join(json.dumps(dict(zip(columns, row))) + "\n" for row in rows)
    elif ".tsv" in name:
        text = "".join("\t".join(row) + "\n" for row in table)
    else:
        (folder / name).parent.mkdir(exist_ok=True)
        with open(folder / name, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(table)
        return
    (folder / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())


def run_of(planish):
    """Returns the config and the result of the only run."""
    (folder,) = planish.folder.glob("runs/sentences/*")
    return [json.loads((folder / name).read_text()) for name in ("config.json", "result.json")]


@pytest.mark.parametrize("name", ["q.tsv", "q.csv", "q.jsonl.gz"])
def test_trains_on_a_table_and_reports(planish, name):
    write(planish.folder, name, questions())
    planish.ok(*TRAIN, "--data", name, "--set", "text=question", "--set", "label=kind", "--set", "epochs=4",
               "--set", "lr=5e-3")  # fmt: skip
    config, result = run_of(planish)
    assert config["data"]["name"] == "q"
    assert config["data"]["sizes"] == {"train": 192, "valid": 24, "test": 24}
    assert "6 classes: " + ", ".join(f'"{c}" (40)' for c in CLASSES) in config["data"]["description"]
    assert result["best"]["values"]["test_accuracy"] > 0.5  # a guess has 1/6
    assert result["best"]["values"]["test_loss"] > 0
    planish.ok("report", "runs", "-o", "report.html")
    report = (planish.folder / "report.html").read_text()
    assert "Sentences (q)</h2>" in report and "your own classes" in report
    assert "test accuracy" in report


def test_every_format_is_the_same_data(planish):
    """The split depends on the rows, not on their format, and the columns are found."""
    losses = set()
    for name in ("a.tsv", "b.csv", "c.jsonl.gz", "d.jsonl"):
        write(planish.folder, name, questions())
        planish.ok(*TRAIN, "--data", name, "--out", f"runs-{name}")
        (folder,) = planish.folder.glob(f"runs-{name}/sentences/*")
        losses.add(json.loads((folder / "result.json").read_text())["best"]["values"]["valid_loss"])
        description = json.loads((folder / "config.json").read_text())["data"]["description"]
        assert 'texts of column "question" (by its contents)' in description
    assert len(losses) == 1


def test_files_of_sets(planish):
    (planish.folder / "set").mkdir()
    for name, count in (("train.csv", 120), ("dev.jsonl", 24), ("test.tsv.gz", 36)):
        write(planish.folder / "set", name, questions(count))
    planish.ok(*TRAIN, "--data", "set")
    config, _ = run_of(planish)
    assert config["data"]["sizes"] == {"train": 120, "valid": 24, "test": 36}
    assert config["data"]["name"] == "set"
    assert config["data"]["description"].split("; ")[2] == "sets by files"


def test_a_table_without_a_header(planish):
    write(planish.folder, "q.tsv", questions(), None)
    planish.ok(*TRAIN, "--data", "q.tsv", "--set", "header=false", "--set", "text=1", "--set", "label=2")
    assert run_of(planish)[0]["data"]["sizes"]["train"] == 192


def test_columns_need_data(planish):
    assert_one_line(planish(*TRAIN, "--set", "text=a"), 2, "[sentences] text must be empty without --data")
    assert_one_line(planish(*TRAIN, "--set", "test_share=.5"), 2, "test_share must be at least 0.01 and at most 0.45")


GOOD = b"text,label\na,x\nb,y\nc,x\nd,y\n"


@pytest.mark.parametrize(
    "content, message",
    [
        (GOOD + b"e,z\n", 'q.csv, line 6: no other row has the label "z"; each must be in two rows or more'),
        (GOOD + b",y\n", 'q.csv, line 6: the text in column "text" is empty'),
        (b"text,label\na,\nb,\n", 'q.csv, line 2: the label in column "label" is empty'),
        (GOOD + b"e,y,z\n", "q.csv, line 6: it has 3 fields; line 1 has 2"),
        (GOOD + "é,x\n".encode() + "é,y\n".encode("latin-1"), "q.csv, line 7: byte 0xe9 at column 1 is not UTF-8"),
        (GOOD.decode().encode("utf-16"), "q.csv: it is in UTF-16"),
        (GOOD + b'"e\nf,y\n', "q.csv, line 6: a quote is not closed"),
        (b"text,label\na,x\nb,x\n", 'q.csv: all rows have the label "x"'),
        (b"one,two\na,x\nb,y\n", "q.csv: the column of the texts is not clear: choose one with --set text="),
        (b"", "q.csv: it has no rows"),
        (b"text,label\n", "q.csv: it has no rows"),
    ],
)
def test_wrong_tables(planish, content, message):
    (planish.folder / "q.csv").write_bytes(content)
    assert_one_line(planish(*TRAIN, "--data", "q.csv"), 3, message)
    assert not list(planish.folder.glob("runs/*/*/config.json"))


def test_wrong_files(planish):
    (planish.folder / "q.txt").write_bytes(GOOD)
    assert_one_line(planish(*TRAIN, "--data", "q.txt"), 3, "q.txt: its name must end in .tsv, .csv or .jsonl")
    assert_one_line(planish(*TRAIN, "--data", "."), 3, " has no file that ends in .tsv, .csv or .jsonl")
    (planish.folder / "q.csv.gz").write_bytes(GOOD)
    assert_one_line(planish(*TRAIN, "--data", "q.csv.gz"), 3, "q.csv.gz: its name is that of a gzip file")
