"""Tables of bench.py's results: `report.py RESULTS.json [DOCS]`."""

import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "base"))
from tables import geometric_mean, judged, number, publish, run_report, summary, table, wrong  # noqa: E402

NORMS = "<!-- cuda norms: made by bench/cuda -->", "<!-- cuda norms: end -->"
RECURRENT = "<!-- cuda recurrent layers: made by bench/cuda -->", "<!-- cuda recurrent layers: end -->"
# Shape of the targets.
AT = [1024, 16, 768]
PEERS = ("eager", "compile", "triton", "liger", "quack")


def min_ratio(mode, cols):
    """Returns the target as a fraction of a copy's bandwidth."""
    if cols % 8:
        return 0.85
    return 0.88 if mode == "backward" else 0.85 if cols <= 256 else 0.92


def case_table(results, norm, mode, dtype, misses):
    rows = []
    for r in (r for r in results if (r["norm"], r["mode"], r["type"]) == (norm, mode, dtype)):
        times = r["seconds"]
        own, copy = times.get("planish"), times.get("copy")
        if own is None or copy is None:
            continue
        what = f"{norm} {mode} {dtype} {r['rows']}x{r['cols']}"
        peers = {who: times[who] / own for who in PEERS if who in times}
        best = min(peers.values(), default=None)
        rows.append([f"{r['rows']} x {r['cols']}", number(r["bytes"] / own / 1e12),
                     judged(copy / own, min_ratio(mode, r["cols"]), misses, f"{what} over a copy"),
                     judged(best, 1.0, misses, f"{what} over the best peer"),
                     *(number(peers.get(who)) for who in PEERS)])  # fmt: skip
    if rows:
        head = ["shape", "TB/s", "of a copy", "over the best", *(f"over {who}" for who in PEERS)]
        yield f"#### {norm}, {mode}, {dtype}\n\n" + table(head, rows)


def recurrent_table(results, cell, mode, misses):
    rows = []
    for r in (r for r in results if (r.get("cell"), r["mode"]) == (cell, mode)):
        own = r["seconds"].get("planish")
        if own is None:
            continue
        named = r["shape"] == AT and cell == "ln_lstm"
        what = f"{cell} {mode} {r['type']} {'x'.join(map(str, r['shape']))}"
        over = {who: seconds / own for who, seconds in r["seconds"].items()}
        times = 1 / over["cudnn"] if "cudnn" in over else None
        forward = mode == "forward"
        rows.append([" x ".join(map(str, r["shape"])), r["type"],
                     judged(1e6 * own / r["shape"][0], 10 if named and forward and r["type"] == "bfloat16" else None,
                            misses, f"{what}, µs a step", at_most=True),
                     number(1e6 * own * over["graph"] / r["shape"][0] if "graph" in over else None),
                     judged(times, 1.5 if named and forward else None, misses, f"{what}, of cuDNN's time", at_most=True),
                     judged(over.get("composed"), (20 if forward else 15) if named else None, misses,
                            f"{what}, composed over Planish"),
                     number(1 / over["products"] if "products" in over else None)])  # fmt: skip
    if rows:
        head = ["T, B, H", "type", "µs a step", "in a graph", "of cuDNN's plain layer", "composed over Planish", "of the products"]
        yield f"#### {cell}, {mode}\n\n" + table(head, rows)


def heading(about):
    return (f"{about['gpu']}, {about['multiprocessors']} multiprocessors; PyTorch {about['torch']}, CUDA "
            f"{about['cuda']}; Planish {about['planish']}. Medians by the device's clock, by turns in one process. ")  # fmt: skip


def section(document, results, tables, misses, text):
    notes = [f"Not timed: {text}." for text in wrong({**document, "results": results})]
    return heading(document["about"]) + text + "\n\n" + "\n\n".join(tables) + "\n\n" + "\n".join([*notes, *summary(misses)])


def recurrent_markdown(document):
    results = [r for r in document["results"] if "cell" in r]
    misses = [0, []]
    tables = [text for kind in dict.fromkeys((r["cell"], r["mode"]) for r in results)
              for text in recurrent_table(results, *kind, misses)]  # fmt: skip
    return section(document, results, tables, misses, "As many inputs as units; training is forward and backward.")


def norm_markdown(document):
    results = [r for r in document["results"] if "norm" in r]
    misses = [0, []]
    kinds = dict.fromkeys((r["norm"], r["mode"], r["type"]) for r in results)
    tables = [text for kind in kinds for text in case_table(results, *kind, misses)]
    return section(document, results, tables, misses, "Backward is timed without forward, with dgain and dbias.")


def sections(document):
    """Yields the markers and the text of the sections whose parts were run."""
    if any("norm" in r for r in document["results"]):
        yield NORMS, norm_markdown(document)
    if any("cell" in r for r in document["results"]):
        yield RECURRENT, recurrent_markdown(document)


def markdown(document):
    return "\n\n".join(text for _, text in sections(document))


def plain(text):
    """The number of a cell, which can be in bold and beside its target; None for a dash."""
    found = re.search(r"\d*\.?\d+", text)
    return float(found.group()) if found else None


def summarize_norms(tables):
    """The geometric mean over the shapes, a row a table."""
    columns = ("of a copy", *(f"over {who}" for who in PEERS))
    rows = []
    for one in tables:
        cells = [[plain(one.cell(row, name)) for row in one.rows] for name in columns]
        rows.append([one.title, *(number(geometric_mean([v for v in values if v])) for values in cells)])
    return table(["geometric mean over shapes", *columns], rows) if rows else ""


def summarize_recurrent(tables):
    """The shape that the targets name, a row a cell, mode and type."""
    rows = [[one.title, *row] for one in tables for row in one.rows if row[0] == " x ".join(map(str, AT))]
    return table(["layer", *tables[0].header], rows) if rows else ""


def write(document, docs):
    for marks, text in sections(document):
        kind, summarize = ("norms", summarize_norms) if marks == NORMS else ("recurrent", summarize_recurrent)
        publish(docs, f"cuda-{kind}", marks, text, summarize, page="cuda", overview=marks == NORMS)


if __name__ == "__main__":
    run_report(markdown, write)
