"""Shared parts of the comparisons' reports: numbers with their targets, tables, charts' colours.
"""

import json
import math
import pathlib
import sys


def number(value, digits=2):
    """Returns '.97', '1.03' or '12.3'; a dash for None."""
    if value is None:
        return "-"
    text = f"{value:.{digits}f}"
    return text[1:] if text.startswith("0.") else text


def judged(value, target, misses, what, *, most=False, digits=2):
    """Returns a number, in bold with its target if it misses that."""
    if value is None or target is None:
        return number(value, digits)
    missed = value > target if most else value < target
    misses[0] += 1
    if not missed:
        return number(value, digits)
    misses[1].append(f"{what}: {number(value, digits)} for {number(target, digits)}")
    return f"**{number(value, digits)}** ({'<=' if most else '>='} {number(target, digits)})"


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
    keys = ("task", "norm", "cell", "mode", "direction", "type", "shape", "rows", "cols")
    return dict.fromkeys(
        " ".join([name, *(str(r[key]) for key in keys if key in r)]) + f": {text}"
        for r in document["results"] for name, text in r["wrong"].items())  # fmt: skip


def wrong_planish(document):
    return "; ".join(text for text in wrong(document) if text.startswith("planish"))


def summary(misses):
    """Returns lines with the numbers from `judged` that miss their targets."""
    if not misses[0]:
        return []
    reached = f"Of {misses[0]} figures with a target, {misses[0] - len(misses[1])} reach it"
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
    """Replaces the page's text between two marks."""
    before, found, rest = page.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{page} must have the marks {begin} and {end}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}")


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
