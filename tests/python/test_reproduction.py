"""The tables of docs/reproduction.md and docs/reproduction/ have the numbers of results/: scripts/reproduction.py."""

import importlib.util
import os
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [DOCS / "reproduction.md", *sorted((DOCS / "reproduction").glob("*.md"))]

spec = importlib.util.spec_from_file_location("reproduction", ROOT / "scripts" / "reproduction.py")
reproduction = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reproduction)


@pytest.fixture(scope="module")
def results():
    if "PLANISH_BUILD" not in os.environ:
        pytest.skip("PLANISH_BUILD is not set")
    return reproduction.Results(pathlib.Path(os.environ["PLANISH_BUILD"]).resolve() / "planish")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tables_are_those_of_the_results(page, results):
    text = page.read_text(encoding="utf-8")
    assert reproduction.filled(text, results) == text, "run scripts/reproduction.py"


def test_a_changed_number_is_found(results):
    page = DOCS / "reproduction" / "rt.md"
    text = page.read_text(encoding="utf-8")
    changed = text.replace("75.02", "75.03")
    assert changed != text
    assert reproduction.filled(changed, results) == text


def test_every_task_has_a_page_with_values_verdicts_and_a_command():
    tasks = {path.stem for path in (DOCS / "tasks").glob("*.md") if "(../reproduction/" in path.read_text(encoding="utf-8")}
    # They have no paper, but point to the page of rt.
    for task in tasks - {"char-lm", "sentences", "images"}:
        text = (DOCS / "reproduction" / f"{task}.md").read_text(encoding="utf-8")
        assert "<!-- table: values " in text
        assert "planish reproduce " in text
        assert task == "online-ln" or "<!-- table: verdicts " in text


def test_unknown_tables_are_named(results):
    with pytest.raises(ValueError, match="table must be one of claims, .*, got clams"):
        reproduction.filled("<!-- table: clams -->\n<!-- end of table -->", results)


def test_tables_without_results_are_errors(results):
    with pytest.raises(ValueError, match="no results for the table of settings, norm, test error"):
        reproduction.filled("<!-- table: runs ba2016; mnist; test_error -->\n<!-- end of table -->", results)


def test_marks_are_closed():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        begun = len(re.findall(r"<!-- table: ", text))
        assert begun == len(re.findall(r"<!-- end of table -->", text)) == len(reproduction.MARKS.findall(text)), page


@pytest.mark.parametrize(
    ("value", "text"),
    [({"mean": -1.5, "low": -2.25, "high": -0.75, "unit": "points", "seeds": 3}, "−1.50 ± 0.75 points"),
     ({"mean": 10, "low": -5, "high": 90, "unit": "s", "seeds": 3}, "+10 (−5 to 90) s"),
     ({"mean": 52, "low": 40, "high": 64, "unit": "steps", "seeds": 3}, "+52 ± 12 updates"),
     ({"mean": 2.5548, "low": None, "high": None, "unit": "nats", "seeds": 1}, "+2.55 nats (one seed)"),
     ({"mean": None, "low": None, "high": None, "unit": "nats", "seeds": 0}, "")],
)  # fmt: skip
def test_differences_have_their_intervals(value, text):
    assert reproduction.difference(value) == text


@pytest.mark.parametrize(
    ("row", "text"),
    [({"decided": True, "needed": 5, "more_minutes": None}, "decided"),
     ({"decided": False, "needed": None, "more_minutes": None}, "hopeless"),
     ({"decided": False, "needed": 5, "more_minutes": None}, "-"),
     ({"decided": False, "needed": 5, "more_minutes": 0}, "enough"),
     ({"decided": False, "needed": 5, "more_minutes": 15}, "0.25"),
     ({"decided": False, "needed": 5, "more_minutes": 90}, "1.5"),
     ({"decided": False, "needed": 5, "more_minutes": 720}, "12")],
)  # fmt: skip
def test_missing_hours_have_a_text(row, text):
    assert reproduction.Results.more_hours(row) == text
