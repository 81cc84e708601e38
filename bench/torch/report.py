"""Tables from bench.py's results; `report.py RESULTS [DOCS]` makes them again.

A time is the fastest block's; ratios are of times from one case, in one process."""

import pathlib
import sys

import cases

sys.path.append(str(pathlib.Path(__file__).parent.parent / "base"))
from tables import (  # noqa: E402
    count, geometric_mean, judged, number, publish, run_report, summary, table, wrong, wrong_planish,
)

__all__ = ["markdown", "write", "wrong_planish"]
BEGIN, END = "<!-- make bench-torch writes from here -->", "<!-- to here -->"
TITLES = {"layer_norm": "LayerNorm", "rms_norm": "RMSNorm", "add_layer_norm": "sum and LayerNorm",
          "norm_then_gate": "RMSNorm(x) * silu(z)", "gate_then_norm": "RMSNorm(x * silu(z))",
          "layer_norm_bfloat16": "LayerNorm in bfloat16", "channel_layer_norm": "LayerNorm over channels",
          "batch_norm_2d": "BatchNorm2d", "group_norm_2d": "GroupNorm of 8 groups",
          "instance_norm_2d": "InstanceNorm2d", "dyt": "DyT", "derf": "Derf"}  # fmt: skip
RATIOS = [f"{mode}: {who} over Planish" for mode in cases.MODES for who in ("eager", "compiled")]


def microseconds(seconds):
    return f"{1e6 * seconds:,.1f}" if seconds < 1e-4 else f"{1e6 * seconds:,.0f}"


def speed_table(results, norm, threads, misses):
    """Yields Planish's time, and the others' over Planish's, for both modes."""
    shapes = list(dict.fromkeys(r["shape"] for r in results if (r["norm"], r["threads"]) == (norm, threads)))
    rows, ratios = [], {}
    for shape in shapes:
        row = [shape]
        for mode in cases.MODES:
            seconds = next((r["seconds"] for r in results if (r["norm"], r["mode"], r["shape"], r["threads"])
                            == (norm, mode, shape, threads)), {})  # fmt: skip
            own = seconds.get("planish")
            row.append(microseconds(own) if own else "-")
            for who in ("eager", "compile"):
                ratio = seconds[who] / own if own and who in seconds else None
                what = f"{TITLES[norm]} {mode}, {shape}, {count(threads)}, eager over Planish"
                row.append(judged(ratio, cases.LEAST if who == "eager" else None, misses, what))
                if ratio:
                    ratios.setdefault((mode, who), []).append(ratio)
        rows.append(row)
    if not rows:
        return
    means = [number(geometric_mean(ratios.get((mode, who), []))) for mode in cases.MODES for who in ("eager", "compile")]
    rows.append(["geometric mean", "", *means[:2], "", *means[2:]])
    head = ["shape", "forward, µs", *RATIOS[:2], "training, µs", *RATIOS[2:]]
    yield f"#### {TITLES[norm]}, {count(threads)}\n\n" + table(head, rows)


def overhead_table(document, misses):
    rows = []
    for result in document["overhead"]:
        seconds = result["seconds"]
        own, core = seconds["planish"], seconds["core"]
        what = f"binding over the core, {result['shape']}, µs"
        rows.append([result["shape"], number(1e6 * core), number(1e6 * own),
                     judged(1e6 * (own - core), 1e6 * cases.MAX_OVERHEAD, misses, what, at_most=True),
                     number(1e6 * seconds["eager"])])  # fmt: skip
    if rows:
        head = ["shape", "core", "operator from Python", "difference", "F.layer_norm"]
        yield "#### A call of layer norm, forward, 1 thread: µs\n\n" + table(head, rows)


def memory_table(document, misses):
    rows = []
    for result in document["memory"]:
        row = [TITLES[result["norm"]], result["shape"]]
        for what, max_ratio in (("step", cases.MAX_MEMORY), ("call", None)):
            own, theirs = result["bytes"][what]["planish"], result["bytes"][what]["eager"]
            figure = f"peak memory of a training step of {TITLES[result['norm']]}, {result['shape']}, over eager"
            row += [f"{own / 1e6:.1f}", f"{theirs / 1e6:.1f}",
                    judged(own / theirs, max_ratio, misses, figure, at_most=True, digits=3)]  # fmt: skip
        rows.append(row)
    if rows:
        head = ["norm", "shape", "step, Planish, MB", "eager, MB", "over eager",
                "call, Planish, MB", "eager, MB", "over eager"]  # fmt: skip
        yield "#### Peak memory of a training step, beyond inputs, targets and parameters\n\n" + table(head, rows)


def markdown(document):
    about, results = document["about"], document["results"]
    misses = [0, []]  # count of judged figures, missed figures
    tables = [text for norm in TITLES for threads in sorted({r["threads"] for r in results})
              for text in speed_table(results, norm, threads, misses)]  # fmt: skip
    tables += [*overhead_table(document, misses), *memory_table(document, misses)]
    disturbed = sum(r["foreign cores"] > 0.1 for r in results)
    head = (f"{about['cpu']}, {about['cpu features']}, caches {about['caches']}; PyTorch {about['torch']}, Python "
            f"{about['python']}; Planish {about['commit']}. While {disturbed} of {len(results)} cases were measured, "
            "other programs took more than a tenth of a core.")  # fmt: skip
    notes = [f"Wrong, and not timed: {text}." for text in wrong(document)]
    notes += summary(misses)
    return head + "\n\n" + "\n\n".join(tables) + "\n\n" + "\n".join(notes)


def summarize(tables):
    """The geometric means of the tables of speed."""
    rows = [[one.title, row[2], row[3], row[5], row[6]]
            for one in tables for row in one.rows[-1:] if row[0] == "geometric mean"]  # fmt: skip
    return table(["geometric mean over shapes", *RATIOS], rows) if rows else ""


def write(document, docs):
    publish(docs, "torch", (BEGIN, END), markdown(document), summarize)


if __name__ == "__main__":
    run_report(markdown, write)
