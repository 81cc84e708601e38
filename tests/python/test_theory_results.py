"""docs/reproduction.md lists every statement of results/theory with its verdict."""

import json
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
PAPERS = ("Ba, Kiros & Hinton 2016", "Xu et al. 2019")


def rows(paper):
    """The rows of a paper's table, in the order of the files."""
    lines = []
    for path in sorted((ROOT / "results" / "theory").glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        run = result["settings"].get("run")
        name = result["analysis"] + (f", {run}" if run else "")
        for statement in result["statements"]:
            assert statement["source"].startswith(tuple(f"{name}, " for name in PAPERS))
            if not statement["source"].startswith(paper):
                continue
            where = statement["source"].removeprefix(f"{paper}, ")
            cells = (statement["text"], where, f"**{statement['verdict']}**", name)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines


def test_the_document_lists_every_statement():
    text = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    theory = text[text.index("## The theory") :]
    found = re.findall(r"^\| .*\| \*\*.*$", theory[: theory.index("\n## ")], re.MULTILINE)
    expected = [row for paper in PAPERS for row in rows(paper)]
    assert len(expected) > 60
    assert found == expected
