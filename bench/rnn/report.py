"""Tables and charts from bench.py's results; `report.py RESULTS [DOCS]` makes them again.

A time is that of the fastest block. Ratios are of times of one case in one process. TorchScript, the
compiled cell and xlstm are compared with Planish's cell in the same process."""

import math
import pathlib
import re
import sys

import cases

sys.path.append(str(pathlib.Path(__file__).parent.parent / "base"))
from tables import (  # noqa: E402
    STYLE, count, judged, marker, number, publish, run_report, summary, table, wrong, wrong_planish,
)

__all__ = ["markdown", "write", "wrong_planish"]
BEGIN, END = "<!-- make bench-rnn writes from here -->", "<!-- to here -->"
LN_LSTM, LN_GRU = "planish:ln-lstm", "planish:ln-gru"


class Results:
    def __init__(self, document):
        self.all = document["results"]
        self.threads = sorted({r["threads"] for r in self.all})

    def shapes(self, group, mode, threads):
        return list(dict.fromkeys(r["shape"] for r in self.all
                                  if (r["group"], r["mode"], r["threads"]) == (group, mode, threads)))  # fmt: skip

    def ratio(self, group, mode, shape, threads, one, other):
        """Returns `one`'s time over `other`'s, from a case in which both took part, or None."""
        return next((r["seconds"][one] / r["seconds"][other]
                     for r in self.of(group, mode, shape, threads) if {one, other} <= r["seconds"].keys()), None)  # fmt: skip

    def of(self, group, mode, shape, threads):
        return [r for r in self.all
                if (r["group"], r["mode"], r["shape"], r["threads"]) == (group, mode, shape, threads)]  # fmt: skip

    def first(self, group, mode, shape, threads, name):
        """Returns a result with that contestant."""
        found = self.of(group, mode, shape, threads)
        return next((r for r in found if name in r["seconds"]), None)


def shape_text(shape):
    return ", ".join(shape.split("x"))


def speed_cells(result, name):
    """Returns milliseconds and GFLOP/s of a contestant."""
    if not result:
        return ["-", "-"]
    seconds = result["seconds"][name]
    return [number(1e3 * seconds), f"{2 * result['multiply-adds'][name] / seconds / 1e9:.0f}"]


def best(values):
    """Returns the minimum of the values that exist."""
    return min((v for v in values if v), default=None)


def only_products(ratio):
    """Returns the bound of a ratio: that of only the GEMMs, as text."""
    return f" (only the products {number(ratio)})" if ratio else ""


def quotient(one, other):
    return one / other if one and other else None


def lstm_table(results, misses, mode, threads):
    rows = []
    for shape in results.shapes("lstm", mode, threads):
        key = ("lstm", mode, shape, threads)
        what = f"LN-LSTM {mode}, {shape_text(shape)}, {count(threads)}"

        def over(name):
            return results.ratio(*key, LN_LSTM, name)

        composed = [results.ratio(*key, name, LN_LSTM) for name in cases.COMPOSED]
        products = over("products:lstm")
        row = [shape_text(shape), *speed_cells(results.first(*key, LN_LSTM), LN_LSTM),
               judged(over("torch:lstm"), cases.over_nn_lstm(mode, shape), misses,
                      f"{what}, over nn.LSTM" + only_products(quotient(over("torch:lstm"), products)), at_most=True),
               *([number(over("onednn:lstm"))] if mode == "forward" else []),
               judged(over("planish:lstm"), cases.OVER_PLAIN, misses, f"{what}, over Planish's LSTM", at_most=True),
               number(products),
               judged(best(composed), cases.under_composed(mode, shape), misses, f"{what}, best composed over Planish"
                      + (only_products(best(composed) * products) if products and best(composed) else "")),
               *map(number, composed)]  # fmt: skip
        rows.append(row)
    if rows:
        head = ["T, B, I, H", "LN-LSTM, ms", "GFLOP/s", "over nn.LSTM",
                *(["over oneDNN's LSTM"] if mode == "forward" else []), "over Planish's LSTM",
                "over the products", "best composed over Planish",
                *(cases.TITLES[name] for name in cases.COMPOSED)]  # fmt: skip
        yield f"#### LN-LSTM, {mode}, {count(threads)}\n\n" + table(head, rows)


def gru_table(results, misses, mode, threads):
    rows = []
    for shape in results.shapes("gru", mode, threads):
        key = ("gru", mode, shape, threads)
        what = f"LN-GRU {mode}, {shape_text(shape)}, {count(threads)}"

        def over(name, own=LN_GRU):
            return results.ratio(*key, own, name)

        row = [shape_text(shape), *speed_cells(results.first(*key, LN_GRU), LN_GRU),
               judged(over("torch:gru"), cases.over_nn_gru(mode, shape), misses, f"{what}, over nn.GRU", at_most=True)]  # fmt: skip
        if mode == "forward":
            packed = over("onednn:gru", "planish-packed:ln-gru")
            row += [judged(packed, cases.OVER_ONEDNN_GRU, misses, f"{what}, over oneDNN's GRU"
                           + only_products(quotient(packed, over("products:gru", "planish-packed:ln-gru"))),
                           at_most=True),
                    number(over("onednn:gru"))]  # fmt: skip
        row += [number(over("planish:gru")), number(over("products:gru")),
                number(results.ratio(*key, "composed:ln-gru", LN_GRU))]  # fmt: skip
        rows.append(row)
    if rows:
        head = ["T, B, I, H", "LN-GRU, ms", "GFLOP/s", "over nn.GRU"]
        if mode == "forward":
            head += ["over oneDNN's GRU, both packed", "packing counted"]
        head += ["over Planish's GRU", "over the products", "composed in C++ over Planish"]
        yield f"#### LN-GRU, {mode}, {count(threads)}\n\n" + table(head, rows)


def measured_steps(results, shape):
    """Yields the key, kind, own contestant and result of each step of the shape that was measured."""
    for threads in results.threads:
        key = ("step", "step", shape, threads)
        for kind, own in (("lstm", LN_LSTM), ("gru", LN_GRU)):
            if result := results.first(*key, own):
                yield key, kind, own, result


def step_shapes(results):
    return dict.fromkeys(r["shape"] for r in results.all if r["group"] == "step")


def first_cells(key, kind, own, result):
    """Returns threads, cell and time of a step, the first columns of its tables."""
    return [str(key[-1]), f"LN-{kind.upper()}", f"{1e6 * result['seconds'][own]:.0f}"]


def step_tables(results, misses):
    for shape in step_shapes(results):
        rows = []
        for key, kind, own, result in measured_steps(results, shape):

            def under(name):
                return results.ratio(*key, name, own)

            composed = [under(f"{who}:ln-{kind}") for who in ("composed", "script", "compile")]
            cell = under(f"torch-cell:{kind}")
            what = f"LN-LSTM step, {shape_text(shape)}, {count(key[-1])}"
            products = under(f"products:{kind}")
            targets = cases.STEP_TARGETS if kind == "lstm" else (None,) * 3
            values = (under(f"torch:{kind}"), best([cell, *composed]), under(f"onednn:{kind}"))
            texts = ("nn.LSTM over Planish", "PyTorch's best cell over Planish", "oneDNN over Planish")
            rows.append([*first_cells(key, kind, own, result),
                         *(judged(value, target, misses,
                                  f"{what}, {text}" + only_products(quotient(value, products)))
                           for value, target, text in zip(values, targets, texts)),
                         number(cell), *map(number, composed), number(under(f"planish:{kind}")),
                         number(products)])  # fmt: skip
        if rows:
            head = ["threads", "cell", "µs", "nn.LSTM, nn.GRU", "PyTorch's best cell", "oneDNN",
                    "nn.LSTMCell, GRUCell", "composed in C++", "TorchScript", "compiled", "Planish's plain cell",
                    "products"]  # fmt: skip
            yield f"#### A step, {shape_text(shape)}: the other's time over Planish's\n\n" + table(head, rows)


def rounded_step_tables(results, misses):
    """Returns tables of steps with packed weights of smaller types."""
    for shape in step_shapes(results):
        rows = []
        for key, kind, own, result in measured_steps(results, shape):
            peers = [f"torch-cell:{kind}", *(f"{who}:ln-{kind}" for who in ("composed", "script", "compile"))]
            cell = best([results.ratio(*key, peer, own) for peer in peers])
            row = first_cells(key, kind, own, result)
            for who, targets in zip(cases.ROUNDED, cases.ROUNDED_STEP_TARGETS):
                over, peer = targets if kind == "lstm" else (None, None)
                what = f"LN-LSTM step, {shape_text(shape)}, {count(key[-1])}, {who.partition('-')[2]} weights"
                mine = results.ratio(*key, f"{who}:ln-{kind}", own)
                row.append(judged(mine, over, misses, f"{what}, over float", at_most=True))
                row.append(judged(quotient(cell, mine), peer, misses, f"{what}, PyTorch's best cell over it"))
            rows.append(row)
        if rows:
            head = ["threads", "cell", "float weights, µs", "bfloat16 over float", "PyTorch's best cell over bfloat16",
                    "int8 over float", "PyTorch's best cell over int8"]  # fmt: skip
            yield f"#### A step with rounded weights, {shape_text(shape)}\n\n" + table(head, rows)


def cell_table(results, misses, mode, threads):
    shapes = results.shapes("cells", mode, threads)
    names = dict.fromkeys(n for shape in shapes for r in results.of("cells", mode, shape, threads)
                          for n in r["seconds"])  # fmt: skip
    rows = []
    for name in names:
        if name == LN_LSTM:
            continue
        row = [name.partition(":")[2]]
        for shape in shapes:
            result = results.first("cells", mode, shape, threads, name)
            value = None
            if result and LN_LSTM in result["seconds"]:
                own, base = (result["seconds"][n] / result["multiply-adds"][n] for n in (name, LN_LSTM))
                value = own / base
            what = f"{row[0]} {mode}, {shape_text(shape)}, {count(threads)}, over the LN-LSTM by multiply-add"
            row.append(judged(value, cases.OVER_LN_LSTM, misses, what, at_most=True))
        rows.append(row)
    if rows:
        yield (f"#### Other cells, {mode}, {count(threads)}: time of a multiply-add over the LN-LSTM's\n\n"
               + table(["cell", *map(shape_text, shapes)], rows))  # fmt: skip


def recurrence_table(results, mode, threads):
    """Times of layers with a projection or heads. A multiply-add of the dense LN-LSTM is that of the
    case "lstm" of the same sizes, which another process measured."""
    rows = []
    for shape in results.shapes("recurrences", mode, threads):
        dense = results.first("lstm", mode, shape.partition("+")[0], threads, LN_LSTM)
        for name in cases.RECURRENT:
            result = results.first("recurrences", mode, shape, threads, name)
            if not result or not name.startswith("planish"):
                continue
            over = None
            if dense:
                own, base = (r["seconds"][n] / r["multiply-adds"][n] for r, n in ((result, name), (dense, LN_LSTM)))
                over = own / base
            torch = results.ratio("recurrences", mode, shape, threads, "torch:lstm", name)
            rows.append([shape_text(shape), name.partition(":")[2], *speed_cells(result, name), number(over),
                         number(torch)])  # fmt: skip
    if rows:
        head = ["T, B, I, H", "cell", "ms", "GFLOP/s", "a multiply-add, over the dense LN-LSTM's",
                "nn.LSTM with the projection, over Planish"]  # fmt: skip
        yield f"#### Projections (+p) and heads (+h), {mode}, {count(threads)}\n\n" + table(head, rows)


def slstm_table(results, misses, mode, threads):
    rows = []
    for shape in results.shapes("slstm", mode, threads):
        key = ("slstm", mode, shape, threads)
        what = f"sLSTM {mode}, {shape_text(shape)}, {count(threads)}, xlstm over Planish"
        xlstm = results.ratio(*key, "xlstm:slstm", "planish:slstm")
        rows.append([shape_text(shape), *speed_cells(results.first(*key, "planish:lstm"), "planish:slstm"),
                     number(results.ratio(*key, "planish:slstm", "planish:lstm")),
                     judged(xlstm, cases.UNDER_XLSTM, misses, what)])  # fmt: skip
    if rows:
        head = ["T, B, I, H", "sLSTM, ms", "GFLOP/s", "over Planish's LSTM", "xlstm over Planish"]
        yield f"#### sLSTM, {mode}, {count(threads)}\n\n" + table(head, rows)


def markdown(document):
    about, results = document["about"], Results(document)
    misses = [0, []]  # count of judged figures, missed figures
    layers = (lstm_table, gru_table, slstm_table)
    tables = [text for one in layers for mode in cases.MODES for threads in results.threads
              for text in one(results, misses, mode, threads)]  # fmt: skip
    tables += step_tables(results, misses)
    tables += rounded_step_tables(results, misses)
    tables += [text for mode in cases.MODES for threads in results.threads
               for text in cell_table(results, misses, mode, threads)]  # fmt: skip
    tables += [text for mode in cases.MODES for threads in results.threads
               for text in recurrence_table(results, mode, threads)]  # fmt: skip
    disturbed = sum(r["foreign cores"] > 0.1 for r in document["results"])
    head = (f"{about['cpu']}, {about['cpu features']}, caches {about['caches']}; PyTorch {about['torch']}, "
            f"{about['onednn']}; Planish {about['commit']}. While {disturbed} of {len(document['results'])} cases "
            "were measured, other programs took more than a tenth of a core.")  # fmt: skip
    notes = [f"Left out: what is composed {who} ({reason})." for who, reason in about["absent"].items()]
    absent = {(name, text) for r in document["results"] for name, text in r["absent"].items()}
    notes += [f"Left out: {name} ({text})." for name, text in sorted(absent)]
    notes += [f"Wrong, and not timed: {text}." for text in wrong(document)]
    notes += summary(misses)
    return head + "\n\n" + "\n\n".join(tables) + "\n\n" + "\n".join(notes)


def summarize(tables):
    """The layers with most threads, forward and training."""
    layers = [(one, *one.title.split(", ")) for one in tables
              if re.fullmatch(r"LN-(LSTM|GRU), (forward|training), \d+ threads?", one.title)]  # fmt: skip
    most_threads = max((threads for *_, threads in layers), key=lambda text: int(text.split()[0]), default=None)
    rows = []
    for one, cell, mode, threads in layers:
        kind = cell.removeprefix("LN-")
        composed = "best composed over Planish" if kind == "LSTM" else "composed in C++ over Planish"
        if threads == most_threads:
            names = ("T, B, I, H", f"{cell}, ms", f"over nn.{kind}", f"over Planish's {kind}", "over the products", composed)
            rows += [[cell, mode, *(one.cell(row, name) for name in names)] for row in one.rows]
    head = ["layer", f"mode, {most_threads}", "T, B, I, H", "ms", "over PyTorch's plain layer", "over Planish's plain layer",
            "over the products", "composed over Planish"]  # fmt: skip
    return table(head, rows) if rows else ""


CHART_TITLES = {
    "time": "steps of time, T, with B = 32, I = H = 256",
    "batch": "sequences, B, with T = 100, I = H = 256",
    "hidden": "inputs and hidden units, I = H, with T = 100, B = 32",
}
CHART_AXIS = {"time": 0, "batch": 1, "hidden": 3}  # of a shape
CLASSES = {"planish:ln-lstm": "planish", "planish:lstm": "onednn", "torch:lstm": "aten"}  # of STYLE
PANEL, HEIGHT, BELOW, LEFT, TOP, GAP = 380, 200, 120, 66, 84, 60


class Panel:
    """A rectangle of a chart: sizes horizontally, logarithmic; values vertically between `low` and
    `high`, on `scale`."""

    def __init__(self, left, top, height, sizes, low, high, scale):
        self.left, self.top, self.height, self.sizes = left, top, height, sizes
        self.low, self.high, self.scale = scale(low), scale(high), scale

    def x(self, size):
        span = math.log(self.sizes[-1] / self.sizes[0]) or 1.0
        return self.left + 14 + (PANEL - 28) * math.log(size / self.sizes[0]) / span

    def y(self, value):
        return self.top + self.height * (self.high - self.scale(value)) / (self.high - self.low)

    def grid(self, ticks, title, limit=None):
        yield f'<text x="{self.left}" y="{self.top - 10}">{title}</text>'
        for tick in ticks:
            y, kind = self.y(tick), "limit" if tick == limit else "grid"
            yield f'<line class="{kind}" x1="{self.left}" x2="{self.left + PANEL}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text class="small" text-anchor="end" x="{self.left - 6}" y="{y + 4:.1f}">{tick:g}</text>'

    def line(self, name, points):
        places = [(self.x(size), self.y(value)) for size, value in points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'<polyline class="{CLASSES[name]}" points="{line}"/>'
        yield from (marker(CLASSES[name], x, y) for x, y in places)


def steps(low, high):
    """Returns 1, 2, 5, 10 and so on, from the last that is at most `low` to the first that is at
    least `high`."""
    exponents = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    ticks = [digit * 10.0**exponent for exponent in exponents for digit in (1, 2, 5)]
    first = max(t for t in ticks if t <= low)
    return [t for t in ticks if t >= first and (t < high or t == min(u for u in ticks if u >= high))]


def chart(document, series):
    """Returns charts of the time of a call by size, with the ratio to nn.LSTM's below, a column
    for each mode; None without results."""
    threads = max(Results(document).threads)
    found = [r for r in document["results"] if r["group"] == series]
    if not found or any("torch:lstm" not in r["seconds"] for r in found):
        return None

    def points(mode, value):
        """Returns (size, value) of the results that have one."""
        return sorted((int(r["shape"].split("x")[CHART_AXIS[series]]), value(r["seconds"]))
                      for r in found if r["mode"] == mode)  # fmt: skip

    sizes = [size for size, _ in points(found[0]["mode"], len)]
    times = [1e3 * s for r in found for s in r["seconds"].values()]
    ratios = [s / r["seconds"]["torch:lstm"] for r in found for s in r["seconds"].values()]
    low, high = (math.floor(5 * min(ratios)) / 5, math.ceil(5 * max(*ratios, 1.01)) / 5)
    total, bottom = LEFT + 2 * PANEL + GAP + 16, TOP + HEIGHT + 50 + BELOW
    title = f"Time of a call against {CHART_TITLES[series]}; float, {count(threads)}"
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {bottom + 50}" '
             f'role="img" aria-label="{title}">', f"<title>{title}</title><style>{STYLE}</style>",
             '<rect class="page" width="100%" height="100%"/>',
             f'<text class="title" x="{LEFT}" y="24">{title}</text>']  # fmt: skip
    x = LEFT
    for name in cases.CHARTED:
        parts += [marker(CLASSES[name], x + 5, 44), f'<text x="{x + 16}" y="48">{cases.TITLES[name]}</text>']
        x += 50 + 8 * len(cases.TITLES[name])
    for i, mode in enumerate(cases.MODES):
        left = LEFT + i * (PANEL + GAP)
        ticks = steps(min(times), max(times))
        upper = Panel(left, TOP, HEIGHT, sizes, ticks[0], ticks[-1], math.log)
        parts += upper.grid(ticks, "forward, ms" if mode == "forward" else "training, ms")
        lower = Panel(left, TOP + HEIGHT + 50, BELOW, sizes, low, high, float)
        parts += lower.grid([n / 5 for n in range(round(5 * low), round(5 * high) + 1)], "over nn.LSTM", 1)
        for size in sizes:
            parts.append(f'<text class="small" text-anchor="middle" x="{upper.x(size):.1f}" '
                         f'y="{bottom + 18}">{size}</text>')  # fmt: skip
        for name in reversed(cases.CHARTED):  # Planish above the others
            parts += upper.line(name, points(mode, lambda seconds: 1e3 * seconds[name]))
            if name != "torch:lstm":
                parts += lower.line(name, points(mode, lambda seconds: seconds[name] / seconds["torch:lstm"]))
    parts.append(f'<text class="small" text-anchor="middle" x="{LEFT + PANEL + GAP / 2}" '
                 f'y="{bottom + 42}">{CHART_TITLES[series]}</text></svg>')  # fmt: skip
    return "\n".join(parts) + "\n"


def write(document, docs):
    """Writes the charts, the CSV files and the sections of the pages."""
    charts = []
    for series in cases.SERIES:
        if svg := chart(document, series):
            (docs / f"rnn-{series}.svg").write_text(svg)
            charts.append((f"Time against {CHART_TITLES[series]}", f"rnn-{series}.svg"))
    publish(docs, "rnn", (BEGIN, END), markdown(document), summarize, charts=charts)


if __name__ == "__main__":
    run_report(markdown, write)
