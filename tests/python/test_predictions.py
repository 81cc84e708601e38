"""predictions.csv.gz of trained runs: they reproduce the test metrics, and archives, reports and tables use them."""

import csv
import gzip
import io
import json
import math
import shutil

import pytest
from test_command import assert_one_line

TASKS = {
    "rt": ("test_accuracy", "label,prediction"),
    "sst5": ("test_accuracy", "label,prediction"),
    "pi-mnist": ("test_error", "label,prediction"),
    "parser": ("test_uas", "words,heads,labelled_heads"),
    "mt": ("test_bleu", "reference_tokens,total_1,total_2,total_3,total_4,correct_1,correct_2,correct_3,correct_4"),
}
SMOKE = ("--preset", "smoke", "--threads", 1, "--quiet")


def table_of(folder):
    """The columns of a run's predictions."""
    with gzip.open(folder / "predictions.csv.gz", "rt", encoding="ascii", newline="") as file:
        rows = list(csv.reader(file))
    return {name: [int(row[i]) for row in rows[1:]] for i, name in enumerate(rows[0])}


def metric_of(name, table):
    """The metric that the definition in docs/files.md gives."""
    if name == "test_bleu":
        total, correct = ([sum(table[f"{part}_{n}"]) for n in range(1, 5)] for part in ("total", "correct"))
        if not any(correct) or not all(total):
            return 0
        logs, smoothing = 0.0, 1
        for n in range(4):
            smoothing *= 2 if correct[n] == 0 else 1
            logs += math.log((correct[n] or 1 / smoothing) / total[n])
        reference = sum(table["reference_tokens"])
        return 100 * min(1, math.exp(1 - reference / total[0])) * math.exp(logs / 4)
    if name in ("test_uas", "test_las"):
        return sum(table["heads" if name == "test_uas" else "labelled_heads"]) / sum(table["words"])
    right = sum(a == b for a, b in zip(table["label"], table["prediction"], strict=True))
    count = len(table["label"])
    return right / count if name == "test_accuracy" else (count - right) / count


@pytest.fixture(scope="module")
def trained(shared):
    """A smoke run of each task in out/, and three seeds of two norms of sst5 in seeds/."""
    for task in TASKS:
        shared.ok("train", task, *SMOKE, "--norm", "layer", "--out", "out")
    shared.ok("train", "sst5", *SMOKE, "--norm", "layer,none", "--seeds", 3, "--out", "seeds")
    return shared


def run_of(trained, task):
    (folder,) = (trained.folder / "out" / task).iterdir()
    return folder


@pytest.mark.parametrize("task", TASKS)
def test_predictions_give_the_metric_of_the_run(trained, task):
    metric, columns = TASKS[task]
    folder = run_of(trained, task)
    table = table_of(folder)
    assert ",".join(table) == columns
    values = json.loads((folder / "result.json").read_text())["best"]["values"]
    # Equal bits, but for the logarithms of BLEU.
    assert metric_of(metric, table) == pytest.approx(values[metric], rel=1e-12 if task == "mt" else 0, abs=0)
    if task == "parser":
        assert metric_of("test_las", table) == values["test_las"]
    sizes = json.loads((folder / "config.json").read_text())["data"]["sizes"]
    if task != "parser":  # whose sizes are transitions
        assert len(next(iter(table.values()))) == sizes["test"]
    assert (folder / "predictions.csv.gz").stat().st_size < 40_000


def test_a_task_without_item_metrics_has_none(trained):
    trained.ok("train", "char-lm", *SMOKE, "--cell", "gru", "--out", "char")
    (folder,) = (trained.folder / "char" / "char-lm").iterdir()
    assert not (folder / "predictions.csv.gz").exists()


def test_thin_keeps_them(trained, tmp_path):
    trained.ok("thin", "out", tmp_path / "archives")
    trained.ok("thin", "--folders", tmp_path / "archives", tmp_path / "folders")
    for task in TASKS:
        (folder,) = (tmp_path / "folders" / task).iterdir()
        same = run_of(trained, task)
        assert folder.name == same.name
        assert (folder / "predictions.csv.gz").read_bytes() == (same / "predictions.csv.gz").read_bytes()


def test_the_report_has_intervals_over_seeds_and_items(trained, tmp_path):
    trained.ok("report", "seeds", "-o", tmp_path / "page.html", "--json", tmp_path / "page.json")
    (row,) = json.loads((tmp_path / "page.json").read_text())["differences"]
    interval = row["difference"]["seeds_and_items"]
    assert interval["low"] <= row["difference"]["mean"] <= interval["high"]
    assert interval["left_out"] == ""
    assert interval["items"] == 400
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "over seeds and test items" in page
    assert "without predictions" not in page
    (group, _) = json.loads(trained.ok("show", "seeds", "--json").stdout)["groups"]
    best = group["metrics"]["test_accuracy"]["best"]
    assert best["seeds_and_items"]["low"] <= best["mean"] <= best["seeds_and_items"]["high"]
    assert "seeds_and_items" not in group["metrics"]["valid_accuracy"]["best"]
    rows = list(csv.DictReader(io.StringIO(trained.ok("show", "seeds", "--csv").stdout, newline="")))
    assert rows[0]["metrics.test_accuracy.best.seeds_and_items.items"] == "400"
    again = tmp_path / "again.json"
    trained.ok("report", "seeds", "-o", tmp_path / "again.html", "--json", again)
    assert again.read_bytes() == (tmp_path / "page.json").read_bytes()
    assert (tmp_path / "again.html").read_bytes() == (tmp_path / "page.html").read_bytes()


def damage(folder, name):
    """Damages the predictions of one run; returns a part of the reason."""
    path = folder / "predictions.csv.gz"
    if name == "missing":
        path.unlink()
        return "1 run without predictions for the test items, of 6:"
    if name == "truncated":
        path.write_bytes(path.read_bytes()[:50])
        return "its predictions cannot be read (it is truncated)"
    if name == "no table":
        path.write_bytes(gzip.compress(b"label\nx\n"))
        return "its predictions cannot be read (line 2: the fields must be whole numbers"
    if name == "other columns":
        path.write_bytes(gzip.compress(b"words\n3\n"))
        return "its predictions cannot be used (the column label is missing)"
    assert name == "fewer items"
    table = table_of(folder)
    text = "label,prediction\n" + "".join(f"{a},{b}\n" for a, b in list(zip(*table.values()))[:7])
    path.write_bytes(gzip.compress(text.encode()))
    return "its predictions give a test accuracy of"


@pytest.mark.parametrize("name", ["missing", "truncated", "no table", "other columns", "fewer items"])
def test_the_report_says_which_predictions_it_leaves_out(trained, tmp_path, name):
    shutil.copytree(trained.folder / "seeds", tmp_path / "seeds")
    folder = next((tmp_path / "seeds" / "sst5").glob("*-none-*-s2"))
    reason = damage(folder, name)
    result = trained.ok("report", tmp_path / "seeds", "-o", tmp_path / "page.html", "--json", tmp_path / "page.json")
    if name in ("truncated", "no table"):
        assert_one_line_of(result.stderr, f"warning: left out: cannot read {folder}/predictions.csv.gz: ")
    else:
        assert result.stderr == ""
    (row,) = json.loads((tmp_path / "page.json").read_text())["differences"]
    interval = row["difference"]["seeds_and_items"]
    assert interval["low"] is None
    assert interval["left_out"] == "1 of 6 runs have no usable predictions"
    assert row["difference"]["low"] is not None
    assert reason in (tmp_path / "page.html").read_text(encoding="utf-8")


def assert_one_line_of(text, start):
    assert [line.startswith(start) for line in text.splitlines()] == [True]


# ---- Splits of rt


@pytest.fixture(scope="module")
def reviews(shared, tmp_path_factory):
    """Runs of rt on 400 sentences: two norms and two seeds, with splits by the seed and without."""
    data = tmp_path_factory.mktemp("reviews") / "mr"
    data.mkdir()
    for name, word in (("pos", "good"), ("neg", "bad")):
        lines = [f"a {word} film number{i % 7} and {i}" for i in range(200)]
        (data / f"rt-polarity.{name}").write_text("\n".join(lines) + "\n")
    for split in ("true", "false"):
        shared.ok("train", "rt", *SMOKE, "--norm", "layer,none", "--seeds", 2, "--data", data, "--out", split,
                  "--set", f"split_by_seed={split}")  # fmt: skip
    return shared


def items_of(reviews, split, norm, seed):
    (folder,) = (reviews.folder / split / "rt").glob(f"smoke-{norm}-*s{seed}")
    return table_of(folder)


def test_seeds_split_rt_differently(reviews):
    first, second = (items_of(reviews, "true", "layer", seed)["item"] for seed in (1, 2))
    assert len(first) == len(second) == 400 * 1089 // 10661
    assert first == sorted(set(first))
    assert max(first) < 400
    assert first != second
    # All norms of a seed have its split, and the items their classes: the positive ones are first.
    for seed, items in ((1, first), (2, second)):
        for norm in ("layer", "none"):
            table = items_of(reviews, "true", norm, seed)
            assert table["item"] == items
            assert table["label"] == [int(item < 200) for item in items]
    fixed = [items_of(reviews, "false", norm, seed)["item"] for norm in ("layer", "none") for seed in (1, 2)]
    assert all(items == fixed[0] for items in fixed)


def test_the_split_is_part_of_the_run(reviews):
    folders = sorted(path.name for path in (reviews.folder / "false" / "rt").iterdir())
    assert "split_by_seed=false" in folders[0]
    (folder,) = (reviews.folder / "true" / "rt").glob("smoke-layer-*s2")
    config = json.loads((folder / "config.json").read_text())
    assert config["settings"]["split_by_seed"] is True
    assert config["settings"]["split"] == 1
    # Both kinds are groups of their own.
    groups = json.loads(reviews.ok("show", "true", "false", "--json").stdout)["groups"]
    assert sorted((group["value"], group["settings"]["split_by_seed"]) for group in groups) == [
        ("layer", False), ("layer", True), ("none", False), ("none", True)]  # fmt: skip
    assert all(group["seeds"]["total"] == 2 for group in groups)


def test_jobs_have_the_split_of_their_seed(reviews, tmp_path):
    (folder,) = (reviews.folder / "true" / "rt").glob("smoke-layer-*s1")
    data = json.loads((folder / "config.json").read_text())["data"]["description"].split(" read from ")[1].split(",")[0]
    reviews.ok("train", "rt", *SMOKE, "--norm", "layer,none", "--seeds", 2, "--data", data, "--out", tmp_path,
               "--jobs", 2)  # fmt: skip
    for path in (tmp_path / "rt").iterdir():
        same = reviews.folder / "true" / "rt" / path.name / "predictions.csv.gz"
        assert (path / "predictions.csv.gz").read_bytes() == same.read_bytes(), path.name


def test_a_former_run_is_not_continued(reviews, tmp_path):
    shutil.copytree(reviews.folder / "false", tmp_path / "old")
    (folder,) = (tmp_path / "old" / "rt").glob("smoke-layer-*s1")
    config = json.loads((folder / "config.json").read_text())
    del config["settings"]["split_by_seed"]  # as earlier versions wrote it
    new = folder.with_name(folder.name.replace("-split_by_seed=false", ""))
    (folder / "config.json").write_text(json.dumps(config))
    folder.rename(new)
    data = config["data"]["description"].split(" read from ")[1].split(",")[0]
    result = reviews("train", "rt", *SMOKE, "--norm", "layer", "--data", data, "--out", tmp_path / "old")
    assert_one_line(result, 1, "contains another run: split_by_seed: true instead of false")
    groups = json.loads(reviews.ok("show", tmp_path / "old", "--json").stdout)["groups"]
    layer = next(group for group in groups if group["value"] == "layer")
    assert layer["seeds"]["total"] == 2  # the old run belongs to those with a fixed split
