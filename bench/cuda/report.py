"""The tables of bench.py's results: `report.py RESULTS.json [DOCS]`."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "base"))
from tables import judged, number, run_report, summary, table, wrong, write_section  # noqa: E402

BEGIN, END = "<!-- cuda norms: made by bench/cuda -->", "<!-- cuda norms: end -->"
PEERS = ("eager", "compile", "triton", "quack")


def least(mode, cols):
    """Of a copy's bandwidth, what is to be reached."""
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
                     judged(copy / own, least(mode, r["cols"]), misses, f"{what} over a copy"),
                     judged(best, 1.0, misses, f"{what} over the best peer"),
                     *(number(peers.get(who)) for who in PEERS)])  # fmt: skip
    if rows:
        head = ["shape", "TB/s", "of a copy", "over the best", *(f"over {who}" for who in PEERS)]
        yield f"#### {norm}, {mode}, {dtype}\n\n" + table(head, rows)


def markdown(document):
    about, results = document["about"], document["results"]
    misses = [0, []]
    kinds = dict.fromkeys((r["norm"], r["mode"], r["type"]) for r in results)
    tables = [text for kind in kinds for text in case_table(results, *kind, misses)]
    head = (f"{about['gpu']}, {about['multiprocessors']} multiprocessors; PyTorch {about['torch']}, CUDA "
            f"{about['cuda']}; Planish {about['planish']}. Medians by the device's clock, by turns in one process. "
            "Backward is timed alone, with dgain and dbias.")  # fmt: skip
    notes = [f"Not timed: {text}." for text in wrong(document)]
    return head + "\n\n" + "\n\n".join(tables) + "\n\n" + "\n".join([*notes, *summary(misses)])


def write(document, docs):
    write_section(docs / "performance.md", BEGIN, END, markdown(document))


if __name__ == "__main__":
    run_report(markdown, write)
