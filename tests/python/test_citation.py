"""CITATION.cff is valid as far as its readers need, and has the project's version, license and authors."""

import pathlib
import re

import pytest
from test_version import VERSION

yaml = pytest.importorskip("yaml")
ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def citation():
    return yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def test_has_the_keys_that_the_format_requires(citation):
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= citation.keys()
    for reference in citation["references"]:
        assert {"authors", "title", "type"} <= reference.keys()


def test_agrees_with_the_project(citation):
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert citation["version"] == VERSION
    assert citation["license"] == re.search(r'(?m)^license = "(.*)"', project)[1]
    assert [author["name"] for author in citation["authors"]] == re.findall(r'authors = \[\{ name = "(.*?)" \}\]', project)


def test_cites_both_papers(citation):
    names = [[author["family-names"] for author in reference["authors"]] for reference in citation["references"]]
    assert names == [["Ba", "Kiros", "Hinton"], ["Xu", "Sun", "Zhang", "Zhao", "Lin"]]
    assert [reference["year"] for reference in citation["references"]] == [2016, 2019]
