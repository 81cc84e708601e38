"""Tables from bench.py's results; `report.py RESULTS [DOCS]` makes them again."""

import pathlib
import re
import sys

import cases

sys.path.append(str(pathlib.Path(__file__).parent.parent / "base"))
from tables import (  # noqa: E402
    count, judged, publish, run_report, summary, table, wrong, wrong_planish,
)

__all__ = ["markdown", "write", "wrong_planish"]
BEGIN, END = "<!-- make bench-lab writes from here -->", "<!-- to here -->"


def spread(over):
    return "{1:.2f}, {2:.2f}-{3:.2f}".format(*over)


def label(result):
    """Returns the task, with the batch size if several are measured: "pi-mnist, batch 4"."""
    size = result.get("batch size")
    return f"{result['task']}, batch {size}" if size else result["task"]


def speed_table(results, threads, misses):
    rows = []
    for r in results:
        if r["threads"] != threads or "seconds" not in r:
            continue
        what = f"{label(r)}, {r['norm']}, {count(threads)}"
        seconds, over = r["seconds"], r["over"]
        rows.append([label(r), r["norm"], r["unit"],
                     *(f"{r['units'] / seconds[who]:,.0f}" for who in ("planish", "pytorch", "fused")),
                     judged(over["pytorch"][0], cases.TASKS[r["task"]].min_ratio, misses, f"{what}, over PyTorch"),
                     spread(over["pytorch"]), f"{over['fused'][0]:.2f}", spread(over["fused"]),
                     f"{1e3 * seconds['planish']:.2f}", *over_none(r, misses, what),
                     share(r["input share"], misses, what)])  # fmt: skip
    if rows:
        head = ["task", "norm", "unit", "Planish", "PyTorch", "PyTorch, fused", "over PyTorch", "rounds",
                "over fused", "rounds", "update, ms", "over none", "rounds", "input"]  # fmt: skip
        yield f"#### The lab's tasks, {count(threads)}: units a second\n\n" + table(head, rows)


def memory_table(results, threads):
    """Yields what keeping freed memory does to the time of an update and its page faults."""
    rows = [[label(r), r["norm"], "{0:.2f}".format(*r["lean over"]), spread(r["lean over"]),
             *(f"{r['faults'][who]:.0f}" for who in ("planish", "lean", "pytorch", "fused"))]
            for r in results if r["threads"] == threads and r.get("lean over")]  # fmt: skip
    if rows:
        head = ["task", "norm", "time without", "rounds", "faults, Planish", "memory not kept", "PyTorch",
                "PyTorch, fused"]  # fmt: skip
        yield f"#### Keeping freed memory, {count(threads)}: time without it over time with it\n\n" + table(head, rows)


def over_none(result, misses, what):
    """Returns Planish's time with the norm over its time without one, in the same rounds."""
    if not (over := result.get("over none")):
        return "", ""
    return judged(over[0], cases.MAX_OVER_NONE, misses, f"{what}, over none", at_most=True), spread(over)


def share(value, misses, what):
    """Returns the percentage of an update, in bold if it is too large."""
    text = judged(100 * value, 100 * cases.MAX_INPUT, misses, f"{what}, input pipeline, %", at_most=True)
    return f"{text}%"


def markdown(document):
    about, results = document["about"], document["results"]
    misses = [0, []]  # count of judged figures, missed figures
    counts = sorted({r["threads"] for r in results})
    tables = [text for threads in counts for text in speed_table(results, threads, misses)]
    tables += [text for threads in counts for text in memory_table(results, threads)]
    disturbed = sum(r["foreign cores"] > 0.1 for r in results)
    head = (f"{about['cpu']}, {about['cpu features']}, caches {about['caches']}; PyTorch {about['torch']}, Python "
            f"{about['python']}; Planish {about['commit']}; preset {about['preset']}, {about['device']}. While {disturbed} of "
            f"{len(results)} cases were measured, other programs took more than a tenth of a core.")  # fmt: skip
    notes = [f"Wrong, and not timed: {text}." for text in wrong(document)]
    data = {r["task"]: r["data"] for r in results if "data" in r}
    # Other machines have other paths.
    notes += [f"- {task}: {re.sub(r'(?<=read from )/[^ ]*/', '', text)}" for task, text in data.items()]
    notes += summary(misses)
    return "\n\n".join([head, *tables, "\n".join(notes)])


def summarize(tables):
    """The updates with LayerNorm, a row a task, the numbers of threads side by side."""
    head, rows = ["task", "unit"], {}
    for one in tables:
        if "units a second" not in one.title:
            continue
        threads = one.title.partition(", ")[2].partition(":")[0]
        head += [f"{threads}: units a second", "over PyTorch", "over fused"]
        for row in one.rows:
            if one.cell(row, "norm") == "layer":
                line = rows.setdefault(one.cell(row, "task"), [one.cell(row, "task"), one.cell(row, "unit")])
                line += [one.cell(row, name) for name in ("Planish", "over PyTorch", "over fused")]
    rows = [row + ["-"] * (len(head) - len(row)) for row in rows.values()]
    return table(head, rows) if rows else ""


def write(document, docs):
    publish(docs, "lab", (BEGIN, END), markdown(document), summarize)


if __name__ == "__main__":
    run_report(markdown, write)
