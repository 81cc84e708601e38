"""Tables and charts from bench.py's results; `report.py RESULTS [DOCS]` makes them again.

A time is that of the fastest repetition. The limit of a case is the fastest memory loop. Forward, the
loops copy; backward, they read two arrays and write one. They alternate with the contestants.
"""

import itertools
import pathlib
import sys

import cases

sys.path.append(str(pathlib.Path(__file__).parent.parent / "base"))
from tables import (  # noqa: E402
    STYLE, count, geometric_mean, judged, marker, number, publish, run_report, summary, table, wrong, wrong_planish,
)

__all__ = ["markdown", "write", "wrong_planish"]
BEGIN, END = "<!-- make bench-norm writes from here -->", "<!-- to here -->"


def fastest(result, name):
    seconds = result["seconds"].get(name)
    return min(seconds) if seconds else None


def limit(result):
    return min(min(result["seconds"][name]) for name in cases.LIMITS[result["direction"]])


def share(result, name):
    time = fastest(result, name)
    return limit(result) / time if time else None


class Results:
    def __init__(self, document):
        self.all = document["results"]
        self.arrays = document["about"].get("arrays", {})
        self.threads = sorted({r["threads"] for r in self.all})

    def of(self, group, direction, dtype, threads, process="norm_bench"):
        return [r for r in self.all
                if (r["group"], r["direction"], r["type"], r["threads"], r["process"])
                == (group, direction, dtype, threads, process)]  # fmt: skip


    def bytes_of(self, result, name):
        """Returns the bytes that a norm moves, over those that the limit and LayerNorm move."""
        arrays = self.arrays.get(name.partition(":")[2])
        return arrays[result["direction"]] / self.arrays["layer"][result["direction"]] if arrays else 1

    def over_layer(self, result, name):
        """Returns a norm's time over LayerNorm's time for the same bytes."""
        own, layer = fastest(result, name), fastest(result, "planish:layer")
        return own / layer / self.bytes_of(result, name) if own and layer else None

    def share(self, result, name):
        """Returns the limit's time for the bytes of a norm over the norm's time."""
        value = share(result, name)
        return value and value * self.bytes_of(result, name)


def share_tables(results, misses):
    for (direction, dtype), widths in cases.WIDTHS.items():
        for threads in results.threads:
            of = results.of("shares", direction, dtype, threads)
            if not of:
                continue
            rows = []
            for cols in widths:
                row = [f"{cols:,}"]
                for i, mb in enumerate(cases.WORKING_SETS):
                    found = [r for r in of if r["cols"] == cols and near(r, mb)]
                    value = share(found[0], "planish:layer") if found else None
                    target = cases.SHARES[direction, dtype].get(cols, (None,) * 3)[i]
                    what = f"{direction} {dtype}, width {cols:,}, {mb} MB"
                    bare = share(found[0], f"{cases.BARE}:layer") if found else None
                    if bare:
                        what += f" (bare loop {number(bare)})"
                    row.append(judged(value, target if threads == 2 else None, misses, what))
                    row += [number(share(found[0], f"{who}:layer") if found else None)
                            for who in (cases.BARE, "aten", "onednn")]  # fmt: skip
                if any(cell != "-" for cell in row[1:]):
                    rows.append(row)
            head = ["width"]
            for mb in cases.WORKING_SETS:
                head += [f"{mb} MB: Planish", "bare loop", "PyTorch", "oneDNN"]
            bound = "copy" if direction == "forward" else "two reads and a write"
            yield (f"#### {direction.capitalize()}, {dtype}, {count(threads)}: share of the {bound}\n\n"
                   + table(head, rows))  # fmt: skip


def bare_table(results, misses):
    """Planish's time over the bare loop's, for rows of whole vectors, where the difference is the
    cost of exactness, strides and options."""
    rows = []
    for direction, dtype in cases.WIDTHS:
        for threads in results.threads:
            row = [f"{direction}, {dtype}", str(threads)]
            for i, mb in enumerate(cases.WORKING_SETS):
                ratios = [fastest(r, "planish:layer") / fastest(r, f"{cases.BARE}:layer")
                          for r in results.of("shares", direction, dtype, threads)
                          if near(r, mb) and r["cols"] % 16 == 0 and fastest(r, f"{cases.BARE}:layer")]  # fmt: skip
                target = cases.BARE_FACTORS[i] if (direction, dtype, threads) == ("forward", "float", 2) else None
                what = f"{direction} {dtype}, {mb} MB, time over the bare loop's"
                row.append(judged(geometric_mean(ratios), target, misses, what, at_most=True)
                           + (f" ({number(min(ratios))} to {number(max(ratios))})" if ratios else ""))  # fmt: skip
            if any(cell != "-" for cell in row[2:]):
                rows.append(row)
    if rows:
        yield ("#### What care costs: Planish's time over the bare loop's, geometric mean over the widths\n\n"
               + table(["", "threads", *(f"{mb} MB" for mb in cases.WORKING_SETS)], rows))  # fmt: skip


def near(result, mb):
    return 0.5 < working_set_of(result) / (mb * cases.MB) <= 1


def peer_tables(results, misses):
    for dtype in ("float", "bfloat16"):
        for threads in results.threads:
            for direction in ("forward", "backward"):
                text = peer_table(results, misses, dtype, threads, direction)
                if text:
                    yield text


def peer_table(results, misses, dtype, threads, direction):
    whose = [*cases.IN_PROCESS[1:], *(cases.IN_PYTHON if dtype == "float" else ())]
    if direction == "backward" and "onnxruntime" in whose:
        whose.remove("onnxruntime")
    sources = {who: results.of("peers", direction, dtype, threads,
                               who if who in cases.IN_PYTHON else "norm_bench") for who in whose}  # fmt: skip
    whose = [who for who in whose if any(fastest(r, f"{who}:layer") for r in sources[who])]
    judge = dtype == "float" and threads == 2
    factor, mean_factor = cases.PEER_FACTOR[direction] if judge else (None, None)
    rows, best_ratios, bounds, sums = [], [], [], {who: [] for who in whose}
    shapes = dict.fromkeys((r["rows"], r["cols"]) for who in sources for r in sources[who])
    for shape in shapes:
        found = {who: [r for r in sources[who] if (r["rows"], r["cols"]) == shape] for who in whose}
        ours = next((r for r in results.of("peers", direction, dtype, threads)
                     if (r["rows"], r["cols"]) == shape), None)  # fmt: skip
        what = f"{direction} {dtype}, {shape[0]}x{shape[1]}"
        time = ours and fastest(ours, "planish:layer")
        row = [f"{shape[0]:,} x {shape[1]:,}", number(time and 1e6 * time, 1),
               number(share(ours, "planish:layer") if ours else None)]  # fmt: skip
        ratios, bound = {}, {}
        for who in whose:
            for r in found[who]:
                theirs, own = fastest(r, f"{who}:layer"), fastest(r, "planish:layer")
                if theirs and own:
                    ratios[who] = theirs / own
                    bound[who] = theirs / limit(r)
                    sums[who].append(ratios[who])
            narrow = judge and who == "aten" and shape[1] in cases.NARROW
            row.append(judged(ratios.get(who), cases.NARROW_FACTOR if narrow else None, misses,
                              f"{what}, against PyTorch (the limit against it {number(bound.get(who))})"))  # fmt: skip
        if not ratios:
            continue
        best = min(ratios, key=ratios.get)
        best_ratios.append(ratios[best])
        bounds.append(bound[best])
        row += [judged(ratios[best], factor, misses,
                       f"{what}, against the best peer (the limit against it {number(bound[best])})"),
                number(bound[best])]  # fmt: skip
        rows.append(row)
    if not rows:
        return None
    rows.append(["geometric mean", "", "", *(number(geometric_mean(sums[who])) for who in whose),
                 judged(geometric_mean(best_ratios), mean_factor, misses,
                        f"{direction} {dtype}, geometric mean against the best peer "
                        f"(the limit against it {number(geometric_mean(bounds))})"),
                 number(geometric_mean(bounds))])  # fmt: skip
    head = ["rows x cols", "Planish, µs", "share of limit", *(cases.TITLES[w] for w in whose), "best peer",
            "best peer's time over the limit's"]
    return (f"#### {direction.capitalize()}, {dtype}, {count(threads)}: the peer's time over Planish's\n\n"
            + table(head, rows))  # fmt: skip


def method_tables(results, misses):
    for dtype, threads in itertools.product(("float", "bfloat16"), results.threads):
        of = {d: results.of("methods", d, dtype, threads) for d in ("forward", "backward")}
        found = [r for d in of for r in of[d]]
        names = dict.fromkeys(n for r in found for n in r["seconds"] if n.startswith("planish:"))
        rows, peers = [], []
        for name in names:
            norm = name.partition(":")[2]
            row, peer = [norm], [norm]
            for r in found:
                what = f"{norm} {r['direction']} {dtype} {r['rows']}x{r['cols']}, time over layer norm's"
                target = cases.METHOD_FACTOR if threads == 2 else None
                row.append(judged(results.over_layer(r, name), target, misses, what, at_most=True)
                           + f" ({number(results.share(r, name))})")  # fmt: skip
                peer.append(number(over(r, f"aten:{norm}", name)))
            rows.append(row)
            if any(cell != "-" for cell in peer[1:]):
                peers.append(peer)
        head = ["norm", *(f"{r['direction']} {r['rows']:,} x {r['cols']:,}" for r in found)]
        for title, cells in (("time over LayerNorm's for the same bytes (share of the limit)", rows),
                             ("PyTorch's time over Planish's", peers)):  # fmt: skip
            if cells:
                yield f"#### Norms, {dtype}, {count(threads)}: {title}\n\n" + table(head, cells)


def over(result, name, other):
    """Returns the time of one contestant over that of another."""
    own, others = fastest(result, name), fastest(result, other)
    return own / others if own and others else None


def column_tables(results, misses):
    """Norms over channels, each with the limit of its own arrays."""
    for dtype, threads in itertools.product(("float", "bfloat16"), results.threads):
        of = {d: results.of("columns", d, dtype, threads) for d in ("forward", "backward")}
        names = dict.fromkeys(n for r in of["forward"] + of["backward"] for n in r["seconds"]
                              if n.startswith("planish:") and n != "planish:layer")  # fmt: skip
        rows = []
        for name in names:
            norm = name.partition(":")[2]
            for result in of["forward"] or of["backward"]:
                if name not in result["seconds"]:
                    continue
                shape = [result[key] for key in ("rows", "cols", "spatial")]
                row = [norm, " x ".join(f"{n:,}" for n in shape)]
                for direction, found in of.items():
                    r = next((r for r in found if [r["rows"], r["cols"], r["spatial"]] == shape), None)
                    memory = r and dtype == "float" and working_set_of(r) >= 128 * cases.MB
                    target = cases.COLUMN_SHARE if memory and threads == 2 else None
                    bare = share(r, f"{cases.BARE}:{norm}") if r else None
                    what = f"{row[0]} {direction}, {row[1]}" + (f" (bare loop {number(bare)})" if bare else "")
                    row += [judged(share(r, name) if r else None, target, misses, what), number(bare),
                            number(results.over_layer(r, name) if r else None),
                            number(over(r, f"aten:{norm}", name) if r else None)]  # fmt: skip
                rows.append(row)
        if rows:
            head = ["norm", "samples x channels x elements"]
            for direction in of:
                head += [f"{direction}: share", "bare loop", "time over LayerNorm's", "PyTorch's time over Planish's"]
            yield (f"#### Norms over channels, {dtype}, {count(threads)}: share of the limit\n\n"
                   + table(head, rows))  # fmt: skip


def working_set_of(result):
    rows, spatial = result["rows"], result["spatial"]
    return cases.working_set(result["direction"], result["type"], rows * spatial, result["cols"])


def limit_table(results):
    """Returns the limits at width 1,024."""
    rows = []
    for threads in results.threads:
        for direction in ("forward", "backward"):
            of = results.of("shares", direction, "float", threads)
            for mb in cases.WORKING_SETS:
                for r in [r for r in of if r["cols"] in (768, 1024) and near(r, mb)][-1:]:
                    for name in cases.LIMITS[direction]:
                        rows.append([str(threads), f"{mb} MB", name,
                                     f"{working_set_of(r) / fastest(r, name) / 1e9:.0f}"])  # fmt: skip
    if rows:
        yield "#### The limits, GB/s read and written\n\n" + table(["threads", "arrays", "loop", "GB/s"], rows)


def disturbed(document):
    return sum(r["foreign cores"] > 0.1 for r in document["results"])


def markdown(document):
    about, results = document["about"], Results(document)
    misses = [0, []]  # count of judged figures, missed figures
    tables = [*share_tables(results, misses), *peer_tables(results, misses),
              *bare_table(results, misses),
              *method_tables(results, misses), *column_tables(results, misses),
              *limit_table(results)]  # fmt: skip
    there = [f"PyTorch {about['torch']}", about["onednn"]]
    if about.get("onnxruntime in Python"):
        there.append(f"ONNX Runtime {about['onnxruntime in Python']}")
    notes = [f"{about['cpu']}, {about['cpu features']}, caches {about['caches']}; {', '.join(there)}; "
             f"Planish {about['commit']}. While {disturbed(document)} of {len(document['results'])} cases were "
             f"measured, other programs took more than a tenth of a core."]  # fmt: skip
    for who, reason in about["absent"].items():
        notes.append(f"Left out: {cases.TITLES[who]} ({reason}).")
    absent = {(name.partition(":")[0], r["type"], text)
              for r in document["results"] for name, text in r["absent"].items()
              if not name.startswith(cases.BARE)}  # fmt: skip
    notes += [f"Left out: {cases.TITLES[who]} in {dtype} ({text})." for who, dtype, text in sorted(absent)]
    notes += [f"Wrong, and not timed: {text}." for text in wrong(document)]
    notes += summary(misses)
    return "\n".join(notes[:1]) + "\n\n" + "\n\n".join(tables) + "\n\n" + "\n".join(notes[1:])


PANEL, HEIGHT, LEFT, TOP, GAP = 290, 220, 58, 84, 24


def chart(document, direction, threads):
    """Returns the fraction of the limit by width, a panel for each working set; None without
    results."""
    found = Results(document).of("shares", direction, "float", threads)
    widths = [w for w in cases.WIDTHS[direction, "float"] if any(r["cols"] == w for r in found)]
    if not widths:
        return None
    whose = [w for w in cases.IN_PROCESS if any(fastest(r, f"{w}:layer") for r in found)]
    shares = {(w, mb, r["cols"]): share(r, f"{w}:layer")
              for w in whose for mb in cases.WORKING_SETS for r in found if near(r, mb)}  # fmt: skip
    top = max(1.1, max(v for v in shares.values() if v) + 0.05)
    total = LEFT + 3 * PANEL + 2 * GAP + 16
    limit_name = "a copy of the same bytes" if direction == "forward" else "reading x and dy and writing dx"
    title = f"Layer norm {direction}, float, {count(threads)}: share of {limit_name}"
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {TOP + HEIGHT + 62}" '
             f'role="img" aria-label="{title}">', f"<title>{title}</title><style>{STYLE}</style>",
             '<rect class="page" width="100%" height="100%"/>',
             f'<text class="title" x="{LEFT}" y="24">{title}</text>']  # fmt: skip
    x = LEFT
    for who in whose:
        parts += [marker(who, x + 5, 44), f'<text x="{x + 16}" y="48">{cases.TITLES[who]}</text>']
        x += 50 + 8 * len(cases.TITLES[who])
    for i, mb in enumerate(cases.WORKING_SETS):
        left = LEFT + i * (PANEL + GAP)
        step = PANEL / len(widths)

        def at(share_value):
            return TOP + HEIGHT * (1 - share_value / top)

        parts.append(f'<text x="{left}" y="{TOP - 10}">{mb} MB of arrays</text>')
        for tick in (0, 0.25, 0.5, 0.75, 1):
            y = at(tick)
            parts.append(f'<line class="{"limit" if tick == 1 else "grid"}" x1="{left}" '
                         f'x2="{left + PANEL}" y1="{y:.1f}" y2="{y:.1f}"/>')  # fmt: skip
            if i == 0:
                label = "1 (limit)" if tick == 1 else number(tick) if tick else "0"
                parts.append(f'<text class="small" text-anchor="end" x="{left - 6}" y="{y + 4:.1f}">{label}</text>')
        for j, cols in enumerate(widths):
            x, y = left + (j + 0.5) * step, TOP + HEIGHT + 14
            parts.append(f'<text class="small" text-anchor="end" '
                         f'transform="translate({x + 4:.1f} {y}) rotate(-45)">{cols}</text>')  # fmt: skip
        for who in reversed(whose):  # Planish above the others
            points = [(left + (j + 0.5) * step, at(v)) for j, cols in enumerate(widths)
                      if (v := shares.get((who, mb, cols)))]  # fmt: skip
            line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            parts.append(f'<polyline class="{who}" points="{line}"/>')
            parts += [marker(who, x, y) for x, y in points]
    middle = LEFT + (3 * PANEL + 2 * GAP) / 2
    parts.append(f'<text class="small" text-anchor="middle" x="{middle}" y="{TOP + HEIGHT + 56}">'
                 "width of a row</text></svg>")  # fmt: skip
    return "\n".join(parts) + "\n"


def summarize(tables):
    """The geometric means of the tables against peers."""
    columns = ["PyTorch", "oneDNN", "torch.compile", "ONNX Runtime", "best peer", "best peer's time over the limit's"]
    rows = []
    for one in tables:
        what, _, kind = one.title.partition(": ")
        if kind == "the peer's time over Planish's":
            rows.append([what, *(one.cell(one.rows[-1], name) for name in columns)])
    return table(["geometric mean over shapes", *columns], rows) if rows else ""


def write(document, docs):
    """Writes the charts, the CSV files and the sections of the pages."""
    threads = max(r["threads"] for r in document["results"])
    charts = []
    for direction in ("forward", "backward"):
        if svg := chart(document, direction, threads):
            (docs / f"norm-{direction}.svg").write_text(svg)
            charts.append((f"Share of the limit by width, {direction}", f"norm-{direction}.svg"))
    publish(docs, "norm", (BEGIN, END), markdown(document), summarize, charts=charts)


if __name__ == "__main__":
    run_report(markdown, write)
