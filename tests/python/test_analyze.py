"""planish analyze: text, JSON and errors. lab_theory_test tests the values."""

import json

import pytest
from test_command import assert_one_line

FEW = {
    "gradients": ("--rows", 500),
    "theorem2": ("--elements", 500),
    "geometry": ("--largest", 6),
    "reparametrization": ("--cases", 4),
    "initialization": ("--cases", 4),
    "stability": ("--units", 8, "--steps", 20, "--seeds", 3),
}
# Of statements that hold for all random data.
EXACT = ("holds", "holds with a correction")
ANY = (*EXACT, "holds in part", "does not hold", "cannot tell")
# Statements that do not hold as printed.
FAILED = {"geometry": ["The Fisher matrix with LN has the blocks of Eq. 13."]}


def test_help_names_the_analyses(shared):
    text = shared.ok("analyze", "--help").stdout
    assert all(name in text for name in FEW)


@pytest.mark.parametrize("name", FEW)
def test_text_and_json(planish, name):
    text = planish.ok("analyze", name, *FEW[name], "--json", "result.json").stdout
    assert text == planish.ok("analyze", name, *FEW[name]).stdout
    result = json.loads((planish.folder / "result.json").read_text(encoding="utf-8"))
    assert list(result) == ["analysis", "title", "settings", "statements", "tables", "charts"]
    assert result["analysis"] == name and result["settings"]["seed"] == 1
    assert text.startswith(result["title"] + "\n")
    assert result["statements"]
    for statement in result["statements"]:
        expected = ANY if name == "stability" else EXACT
        if statement["text"] in FAILED.get(name, ()):
            expected = ("does not hold",)
        assert statement["verdict"] in expected
        assert f"\n  {statement['verdict']}\n" in text
    for table in result["tables"]:
        assert all(len(row) == len(table["head"]) for row in table["rows"])
    for chart in result["charts"]:
        assert all(len(point) == 2 for line in chart["lines"] for point in line["points"])
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    "arguments, text",
    [
        ((), "[analyze] the command must be one of gradients, theorem2, geometry, reparametrization, initialization, stability, got none"),
        (("theorem3",), "stability, got \"theorem3\" (see planish analyze --help)"),
        (("gradients", "--rows", 0), "[analyze gradients] --rows must be a whole number from 1 to 1000000000, got \"0\""),
        (("gradients", "--width", 1), "--width must be a whole number from 2 to 4096"),
        (("theorem2", "--k", "many"), "[analyze theorem2] --k must be a number, got \"many\""),
        (("theorem2", "--k", 20), "[analyze theorem2] k must be a number from 0.001 to 10, got 20"),
        (("theorem2", "--json", ""), "--json is empty"),
        (("geometry", "--inputs", 4096), "[analyze geometry] units, largest, inputs and cases must need at most 1073741824 bytes"),
        (("stability", "--sequences", 1), "--sequences must be a whole number from 4 to 64"),
        (("stability", "--input", 0), "[analyze stability] input must be a number from 0.001 to 1000, got 0"),
    ],
)
def test_wrong_usage(shared, arguments, text):
    assert_one_line(shared("analyze", *arguments), 2, text)


def test_a_file_that_cannot_be_written(shared):
    result = shared("analyze", "theorem2", "--elements", 500, "--json", "no/such/folder.json")
    assert_one_line(result, 1, "no/such/folder.json")


def test_results_are_a_section_of_the_report(planish):
    (planish.folder / "theory").mkdir()
    planish.ok("analyze", "theorem2", *FEW["theorem2"], "--json", "theory/theorem2.json")
    planish.ok("analyze", "initialization", *FEW["initialization"], "--json", "initialization.json")
    printed = planish.ok("report", "theory", "initialization.json", "-o", "page.html").stdout
    assert printed.startswith("Theory of the papers, measured: ")
    page = (planish.folder / "page.html").read_text(encoding="utf-8")
    for name in ("theorem2", "initialization"):
        folder = "theory/" if name == "theorem2" else ""
        result = json.loads((planish.folder / f"{folder}{name}.json").read_text(encoding="utf-8"))
        assert f"<h3>{result['title']}</h3>" in page
        assert page.count("<svg") >= len(result["charts"])
    (planish.folder / "theory" / "cut.json").write_text('{"analysis": "theorem2"', encoding="utf-8")
    result = planish("report", "theory", "-o", "page.html")
    assert result.returncode == 0 and "theory/cut.json is no result of planish analyze" in result.stderr


def test_a_report_of_nothing(shared, tmp_path):
    (tmp_path / "some.json").write_text("{}", encoding="utf-8")
    assert_one_line(shared("report", tmp_path, "-o", tmp_path / "page.html"), 3, "there is no run in")
