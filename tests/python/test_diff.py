"""planish diff against the files of the runs."""

import csv
import gzip
import io
import json
import shutil

import pytest
from run_files import read_run
from test_command import SMOKE, assert_one_line


@pytest.fixture(scope="module")
def trained(shared):
    one = ("--set", "epochs=1", "--quiet", "--out", "runs")
    shared.ok(*SMOKE, *one, "--batch-size", 64, "--norm", "none,layer")
    shared.ok("train", "rt", "--preset", "smoke", "--threads", 1, "--norm", "layer", *one)
    shared.runs = {str(p.parent): read_run(p.parent) for p in (shared.folder / "runs").rglob("config.json")}
    return shared


def test_diff_of_a_run_with_itself(trained):
    folder = next(iter(trained.runs))
    result = trained.ok("diff", folder, folder)
    assert "The runs have the same settings, data, curves, final values and predictions." in result.stdout
    assert "->" not in result.stdout


def test_a_repeated_run_is_the_same_except_for_the_machine(trained, tmp_path):
    trained.ok(*SMOKE, "--set", "epochs=1", "--batch-size", 64, "--norm", "layer", "--quiet", "--out", tmp_path)
    (again,) = (tmp_path / "pi-mnist").iterdir()
    first = trained.folder / "runs" / "pi-mnist" / again.name
    text = trained.ok("diff", first, again).stdout
    assert "The runs have the same" in text and "\n  seconds: " in text
    assert "curves\n" not in text and "results\n" not in text
    # One changed value of one evaluation.
    lines = [json.loads(line) for line in (again / "metrics.jsonl").read_text().splitlines()]
    name, step = "valid_error", lines[2]["step"]
    value = lines[2]["values"][name]
    lines[2]["values"][name] = value + 0.25
    (again / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = trained("diff", first, again)
    assert (result.returncode, result.stderr) == (1, "")
    changed = f"{value} -> {value + 0.25}"
    assert f"\ncurves\n  {name}: differs from step {step} ({changed}), at most by 0.25 at step {step} " in result.stdout
    assert "settings\n" not in result.stdout and "results\n" not in result.stdout


def test_diff_of_other_settings_and_tasks(trained):
    of = {
        (r["config"]["task"], r["config"]["settings"]["norm"], r["config"]["settings"]["batch_size"]): folder
        for folder, r in trained.runs.items() if r["config"]["seed"] == 1 and r["result"]
    }  # fmt: skip
    layer = of["pi-mnist", "layer", 64]
    none = of["pi-mnist", "none", 64]
    result = trained("diff", none, layer)
    assert result.returncode == 1
    assert "\nsettings\n  norm: none -> layer\n\ncurves\n" in result.stdout
    a, b = (trained.runs[folder]["metrics"] for folder in (none, layer))
    for name in a[0]["values"]:
        pairs = [(x["step"], x["values"][name], y["values"][name]) for x, y in zip(a, b, strict=True)]
        different = [pair for pair in pairs if pair[1] != pair[2]]
        line = next((line for line in result.stdout.splitlines() if line.startswith(f"  {name}: ")), None)
        assert (line is None) == (not different)
        if different:
            assert f"differs from step {different[0][0]} (" in line
            largest = max(different, key=lambda pair: abs(pair[1] - pair[2]))
            assert float(line.split("at most by ")[1].split()[0]) == abs(largest[1] - largest[2])
    answers = []
    for folder in (none, layer):
        text = gzip.decompress((trained.folder / folder / "predictions.csv.gz").read_bytes()).decode()
        answers.append([(row["label"], row["prediction"]) for row in csv.DictReader(io.StringIO(text))])
    differ = [(a, b) for a, b in zip(*answers, strict=True) if a != b]
    first = sum(label == answer for (label, answer), _ in differ)
    second = sum(label == answer for _, (label, answer) in differ)
    line = (f"  differ for {len(differ):,} of {len(answers[0]):,} test items: only the first run is right for {first}, "
            f"only the second for {second}, neither for {len(differ) - first - second}")  # fmt: skip
    assert f"\npredictions\n{line}\n" in result.stdout
    other = next(folder for folder, r in trained.runs.items() if r["config"]["task"] == "rt")
    result = trained("diff", layer, other)
    assert result.returncode == 1
    assert "\n  task: pi-mnist -> rt\n" in result.stdout and "\ndata\n  name: " in result.stdout


def test_diff_of_what_is_no_run(trained, tmp_path):
    folder = next(iter(trained.runs))
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    (broken / "config.json").write_text("{")
    assert_one_line(trained("diff", folder), 2, "SECOND is required")
    assert_one_line(trained("diff", folder, ""), 2, "[diff] SECOND is empty")
    assert_one_line(trained("diff", folder, folder, folder), 2, "unexpected argument")
    assert_one_line(trained("diff", folder, "/no/such"), 3, "no such file or folder: /no/such")
    assert_one_line(trained("diff", broken, folder), 3, "no run can be read: cannot read ", "config.json")
    assert_one_line(trained("diff", "runs", folder), 2, "must be one run each, got runs with 3 runs")
