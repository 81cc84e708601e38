"""Parts shared by the reports of the comparisons: values beside their targets, tables, files, chart colours."""

import csv
import json
import math
import pathlib
import re
import sys
import typing


def number(value, digits=2):
    """Returns '.97', '1.03' or '12.3'; a dash for None."""
    if value is None:
        return "-"
    text = f"{value:.{digits}f}"
    return text[1:] if text.startswith("0.") else text


def judged(value, target, misses, what, *, at_most=False, digits=2):
    """Returns a number, in bold with its target if it misses that."""
    if value is None or target is None:
        return number(value, digits)
    missed = value > target if at_most else value < target
    misses[0] += 1
    if not missed:
        return number(value, digits)
    misses[1].append(f"{what}: {number(value, digits)} for {number(target, digits)}")
    return f"**{number(value, digits)}** ({'<=' if at_most else '>='} {number(target, digits)})"


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def table(header, rows):
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [header, ["-" * (w - 1) + ":" for w in widths], *rows]
    return "\n".join("| " + " | ".join(c.rjust(w) for c, w in zip(line, widths)) + " |" for line in lines)


def count(threads):
    return "1 thread" if threads == 1 else f"{threads} threads"


def wrong(document):
    """Returns texts like 'planish:ln-lstm forward 100x32x256x256: y is off by ...' for all wrong
    results."""
    keys = ("task", "batch size", "norm", "cell", "mode", "direction", "type", "shape", "rows", "cols")
    return dict.fromkeys(
        " ".join([name, *(str(r[key]) for key in keys if key in r)]) + f": {text}"
        for r in document["results"] for name, text in r["wrong"].items())  # fmt: skip


def wrong_planish(document):
    return "; ".join(text for text in wrong(document) if text.startswith("planish"))


def summary(misses):
    """Returns lines with the figures from `judged` that miss their targets."""
    if not misses[0]:
        return []
    reached = f"{misses[0] - len(misses[1])} of {misses[0]} figures with a target reach it"
    return [reached + (". Missed:" if misses[1] else "."), *(f"- {text}" for text in misses[1])]


def run_report(markdown, write):
    """Runs `report.py RESULTS.json [DOCS]`."""
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: report.py RESULTS.json [DOCS]")
    document = json.loads(pathlib.Path(sys.argv[1]).read_text())
    print(markdown(document))
    if len(sys.argv) == 3:
        write(document, pathlib.Path(sys.argv[2]))


def write_section(page, begin, end, text):
    """Replaces the text of the page between two marks."""
    before, found, rest = page.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{page} must have the marks {begin} and {end}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}")


class Table(typing.NamedTuple):
    """A table of a report; cells are text without Markdown."""

    title: str
    header: list
    rows: list

    def column(self, name):
        """The index of the first column with that heading, or None."""
        return self.header.index(name) if name in self.header else None

    def cell(self, row, name):
        """The text of a row in that column, or a dash."""
        at = self.column(name)
        return "-" if at is None else row[at]


def read_tables(text):
    """Returns the text before the first table of `markdown`'s result, the tables, and the text after the last one."""
    head, *sections = re.split(r"^#### ", text, flags=re.M)
    tables, after = [], ""
    for section in sections:
        title, _, rest = section.partition("\n")
        lines = rest.strip("\n").split("\n")
        count = next((i for i, line in enumerate(lines) if not line.startswith("|")), len(lines))
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:count]]
        tables.append(Table(title.strip(), cells[0], cells[2:]))
        after = "\n".join(lines[count:]).strip("\n")
    return head.strip("\n"), tables, after


def csv_cell(text):
    """Removes emphasis, targets (the list of missed figures has them), thousands' commas and dashes."""
    text = re.sub(r"\*\*(.*?)\*\*( \([<>]= [^)]*\))?", r"\1", text)
    if re.fullmatch(r"\d{1,3}(,\d{3})+(\.\d+)?", text):
        return text.replace(",", "")
    return "" if text == "-" else text


def slug(title):
    return re.sub(r"[^a-z0-9]+", "-", title.lower().replace("'", "")).strip("-")


def publish(docs, bench, marks, text, summarize, *, page=None, charts=(), overview=True):
    """Writes a report's tables, their list and the summary into the documentation.

    The tables become docs/performance/<bench>-*.csv. The list of tables and missed figures is written between the
    marks of docs/performance/<page>.md, the summary between those of docs/performance.md. Without `overview` the
    summary is on that page, too. `text` is the result of `markdown`. `summarize` returns the summary's Markdown for a
    list of Table.
    """
    head, tables, notes = read_tables(text)
    folder = docs / "performance"
    for old in folder.glob(f"{bench}-*.csv"):
        old.unlink()
    links = []
    for one in tables:
        name = f"{bench}-{slug(one.title)}.csv"
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows([[csv_cell(cell) for cell in row] for row in [one.header, *one.rows]])
        links.append(f"- [{one.title}]({name})")
    page = page or bench
    images = [f"![{what}](../{name})" for what, name in charts]
    # MkDocs begins and ends a list only at an empty line.
    listed = re.sub(r"(?m)^(- .*)\n(?!- )", r"\1\n\n", re.sub(r"(?m)^(?!- )(.+)\n(?=- )", r"\1\n\n", notes))
    parts = [head, "\n".join(images), "" if overview else summarize(tables), "\n".join(links), listed]
    write_section(folder / f"{page}.md", *marks, "\n\n".join(part for part in parts if part))
    if not overview:
        return
    reached = re.search(r"^\d+ of \d+ figures with a target reach it", notes, flags=re.M)
    count = {1: "The table", 2: "Both tables"}.get(len(tables), f"All {len(tables)} tables")
    all_tables = f"[{count}](performance/{page}.md)."
    parts = [head, summarize(tables), f"{reached.group()}. {all_tables}" if reached else all_tables]
    write_section(docs / "performance.md", *marks, "\n\n".join(part for part in parts if part))


# Both themes: the page shows the chart as an image, which uses the reader's system theme.
STYLE = """
  .page { fill: #ffffff } text { fill: #24292f; font: 13px system-ui, sans-serif }
  .title { font-size: 15px; font-weight: 600 } .small { font-size: 12px; fill: #57606a }
  .grid { stroke: #d0d7de } .limit { stroke: #57606a; stroke-dasharray: 4 3 }
  .planish { stroke: #0969da; fill: #0969da } .aten { stroke: #bc4c00; fill: #bc4c00 }
  .onednn { stroke: #1a7f37; fill: #1a7f37 }
  polyline { fill: none !important; stroke-width: 2.5 } .mark { stroke: none }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } text { fill: #e6edf3 } .small { fill: #9198a1 }
    .grid { stroke: #30363d } .limit { stroke: #9198a1 }
    .planish { stroke: #58a6ff; fill: #58a6ff } .aten { stroke: #f0883e; fill: #f0883e }
    .onednn { stroke: #3fb950; fill: #3fb950 }
  }"""


def marker(who, x, y):
    """Shapes in addition to colours, for colour-blind readers and monochrome print."""
    if who == "planish":
        return f'<circle class="{who} mark" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
    if who == "aten":
        return f'<rect class="{who} mark" x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7"/>'
    return f'<path class="{who} mark" d="M{x:.1f} {y - 4.5:.1f}l4.5 8h-9z"/>'
