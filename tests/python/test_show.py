"""planish show --json and --csv against the files of the runs."""

import csv
import io
import json
import math

import pytest
from run_files import read_run
from test_command import SMOKE, assert_one_line

SWEEP = (*SMOKE, "--set", "epochs=1", "--batch-size", "64,128", "--norm", "none,layer", "--seeds", 3, "--quiet")


@pytest.fixture(scope="module")
def trained(shared):
    shared.ok(*SWEEP, "--out", "runs")
    shared.ok("train", "rt", "--preset", "smoke", "--threads", 1, "--norm", "layer", "--quiet", "--out", "runs")
    # A run that has not ended, and one with a name that CSV quotes.
    tasks = shared.folder / "runs" / "pi-mnist"
    names = sorted(path.name for path in tasks.iterdir())
    (tasks / names[0] / "result.json").unlink()
    (tasks / names[-1]).rename(tasks / 'a "name", with\nlines, é')
    shared.runs = {str(p.parent): read_run(p.parent) for p in (shared.folder / "runs").rglob("config.json")}
    return shared


def csv_of(planish, *arguments):
    """Returns the rows of CSV, whose lines must all end in CR LF and have the same number of fields."""
    # The server's client reads stdout without a change of line ends.
    text = planish.ok("show", "--csv", *arguments).stdout
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    head, *rows = reader
    assert text.endswith("\r\n") and len(set(head)) == len(head)
    assert {len(row) for row in rows} == {len(head)}
    return [dict(zip(head, row, strict=True)) for row in rows]


def flat(value, prefix=""):
    """Returns column -> field for a row of the JSON."""
    if isinstance(value, dict):
        return {k: v for key, part in value.items() for k, v in flat(part, f"{prefix}{key}.").items()}
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value)
    return {prefix[:-1]: text}


def assert_csv_has_the_json(planish, rows, *arguments):
    table = csv_of(planish, *arguments)
    assert len(table) == len(rows)
    for fields, row in zip(table, rows, strict=True):
        expected = flat(row)
        for column, field in fields.items():
            value = expected.pop(column, "")
            # Numbers can be written in several ways; their doubles must have the same bits.
            assert field == value or float(field) == float(value), column
        assert expected == {}


def test_runs_have_the_values_of_their_files(trained):
    document = json.loads(trained.ok("show", "--json", "--runs", "runs").stdout)
    assert document["format"] == "planish-runs/1"
    rows = {row["folder"]: row for row in document["runs"]}
    assert rows.keys() == trained.runs.keys()
    for folder, row in rows.items():
        config, result, metrics = (trained.runs[folder][key] for key in ("config", "result", "metrics"))
        assert (row["task"], row["seed"]) == (config["task"], config["seed"])
        assert row["settings"] == config["settings"] | {"preset": config["preset"]}
        assert list(row["settings"])[:-1] == list(config["settings"])
        assert row["data"] == {key: config["data"][key] for key in ("name", "sha256")}
        names = [metric["name"] for metric in config["metrics"]]
        assert list(row["final"]) == list(row["best"]) == names
        if result is None:
            assert row["status"] == "unfinished" and row["steps"] == metrics[-1]["step"]
            assert set(row["final"].values()) | set(row["best"].values()) == {None}
            assert row["best_step"] is row["parameters"] is None
            continue
        assert row["status"] == result["status"] == "finished"
        for key in ("steps", "seconds", "parameters"):
            assert row[key] == result[key]
        assert (row["best_by"], row["best_step"]) == (result["best"]["by"], result["best"]["step"])
        for name in names:
            assert row["final"][name] == metrics[-1]["values"].get(name)
            assert row["best"][name] == result["best"]["values"].get(name)
    assert_csv_has_the_json(trained, document["runs"], "--runs", "runs")


def test_groups_have_means_and_intervals(trained):
    stats = pytest.importorskip("scipy.stats")
    document = json.loads(trained.ok("show", "--json", "runs").stdout)
    assert document["format"] == "planish-groups/1"
    groups = document["groups"]
    assert [(g["task"], g["settings"].get("batch_size"), g["value"]) for g in groups] == [
        ("pi-mnist", 64, "none"), ("pi-mnist", 64, "layer"), ("pi-mnist", 128, "none"), ("pi-mnist", 128, "layer"),
        ("rt", None, "layer"),
    ]  # fmt: skip
    for group in groups:
        assert group["compared"] == "norm"
        settings = (group["settings"] | {"norm": group["value"]}).items()
        runs = [
            run for run in trained.runs.values()
            if run["config"]["task"] == group["task"] and settings <= run["config"]["settings"].items()
        ]  # fmt: skip
        finished = [run["result"] for run in runs if run["result"]]
        assert group["seeds"] == {"total": len(runs), "finished": len(finished), "diverged": 0}

        def check(estimate, values):
            if not values:
                assert estimate == {"mean": None, "half_width": None}
                return
            # The sums of a few doubles are in another order: an error of some 1e-16 of the values.
            assert math.isclose(estimate["mean"], math.fsum(values) / len(values), rel_tol=1e-14, abs_tol=1e-16)
            if len(values) < 2:
                assert estimate["half_width"] is None
                return
            t = stats.t.ppf(0.975, len(values) - 1)
            # StudentT inverts the distribution to about 1e-12; equal values have a spread of rounding errors.
            expected = t * stats.sem(values)
            assert math.isclose(estimate["half_width"], expected, rel_tol=1e-9, abs_tol=1e-14)

        for name, estimates in group["metrics"].items():
            check(estimates["final"], [r["final"][name] for r in finished if name in r["final"]])
            check(estimates["best"], [r["best"]["values"][name] for r in finished if name in r["best"]["values"]])
        check(group["seconds"], [r["seconds"] for r in finished])
    assert_csv_has_the_json(trained, groups, "runs")


def test_export_options_are_checked(trained):
    assert_one_line(trained("show", "--json", "--csv", "runs"), 2, "--json or --csv, got both")
    assert_one_line(trained("show", "--runs", "runs"), 2, "--runs must come with --json or --csv")
    assert_one_line(trained("show", "--csv", "/no/such"), 3, "no such file or folder: /no/such")
    assert_one_line(trained("show", "--cvs", "runs"), 2, "unknown option --cvs; did you mean --csv?")
