"""Learning curves as an SVG file, without a plotting library."""

import math
import pathlib
from collections.abc import Mapping, Sequence

Curve = Sequence[tuple[float, float]]
Panel = Mapping[str, Sequence[Curve]]  # for each name, one curve a seed

WIDTH, HEIGHT, LEFT, TOP, GAP = 400, 260, 58, 84, 84
# On light and dark pages; the first two are those of lstm and ln-lstm in the lab's reports.
COLOURS = (("#353535", "#f6f6f6"), ("#dd6819", "#ee854c"), ("#3a6cb3", "#67b2e7"))


def ticks(low: float, high: float, max_count: int) -> list[float]:
    """Returns at most `max_count` round values from low to high, low < high."""
    step = 10.0 ** math.floor(math.log10((high - low) / max_count))
    step *= next(f for f in (1, 2, 5, 10) if (high - low) / (step * f) <= max_count)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def mean_of(curves: Sequence[Curve]) -> Curve:
    """Returns the mean over curves at each point, of both coordinates."""
    return [
        (sum(x for x, _ in points) / len(points), sum(y for _, y in points) / len(points))
        for points in zip(*curves, strict=True)
    ]


def style_of(names: Sequence[str]) -> str:
    light = " ".join(f".{n} {{ stroke: {c} }}" for n, (c, _) in zip(names, COLOURS, strict=False))
    dark = " ".join(f".{n} {{ stroke: {c} }}" for n, (_, c) in zip(names, COLOURS, strict=False))
    return f"""
  .page {{ fill: #ffffff }} text {{ fill: #24292f; font: 13px system-ui, sans-serif }}
  .title {{ font-size: 15px; font-weight: 600 }} .small {{ font-size: 12px; fill: #57606a }}
  .grid {{ stroke: #d0d7de }} polyline {{ fill: none; stroke-width: 2.5 }}
  .seed {{ stroke-width: 1; opacity: .4 }} {light}
  @media (prefers-color-scheme: dark) {{
    .page {{ fill: #0d1117 }} text {{ fill: #e6edf3 }} .small {{ fill: #9198a1 }}
    .grid {{ stroke: #30363d }} {dark}
  }}"""


def write_svg(file: pathlib.Path, title: str, y_label: str, panels: Mapping[str, Panel]) -> None:
    """Writes panels side by side, labelled by their x axes, with at most three names in each.

    Each seed is a thin line and their mean a thick one. The first tenth of the points can be above
    the visible range.
    """
    names = list(next(iter(panels.values())))
    all_curves = [curve for panel in panels.values() for of in panel.values() for curve in of]
    heights = [y for curve in all_curves for _, y in curve[len(curve) // 10 :]]
    low, high = min(heights), max(heights)
    high = max(high, low + 0.01)  # flat curves need a range, too
    low -= 0.05 * (high - low)
    size = (LEFT + len(panels) * (WIDTH + GAP), TOP + HEIGHT + 46)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" role="img">',
        f"<title>{title}</title><style>{style_of(names)}</style>",
        '<rect class="page" width="100%" height="100%"/>',
        f'<text class="title" x="{LEFT}" y="24">{title}</text>',
    ]
    for index, name in enumerate(names):
        x = LEFT + 150 * index
        out.append(f'<polyline class="{name}" points="{x},46 {x + 24},46"/>')
        out.append(f'<text x="{x + 32}" y="50">{name}</text>')
    for index, (label, panel) in enumerate(panels.items()):
        left = LEFT + index * (WIDTH + GAP)
        end = max(curve[-1][0] for curves in panel.values() for curve in curves)
        out.append(f'<clipPath id="panel{index}">')
        out.append(f'<rect x="{left}" y="{TOP}" width="{WIDTH + 2}" height="{HEIGHT}"/></clipPath>')
        out.append(f'<text class="small" x="{left}" y="{TOP - 10}">{y_label}</text>')
        for tick in ticks(low, high, 8):
            height = TOP + HEIGHT * (high - tick) / (high - low)
            out.append(f'<path class="grid" d="M{left} {height:.1f}h{WIDTH}"/>')
            out.append(
                f'<text class="small" text-anchor="end" x="{left - 6}" y="{height + 4:.1f}">'
                f"{tick:g}</text>"
            )
        for tick in ticks(0, end, 6):
            out.append(
                f'<text class="small" text-anchor="middle" x="{left + WIDTH * tick / end:.1f}" '
                f'y="{TOP + HEIGHT + 18}">{tick:g}</text>'
            )
        out.append(f'<text x="{left}" y="{TOP + HEIGHT + 38}">{label}</text>')
        for name, curves in panel.items():
            lines = [(curve, f"{name} seed") for curve in curves if len(curves) > 1]
            for curve, kind in [*lines, (mean_of(curves), name)]:
                line = " ".join(
                    f"{left + WIDTH * x / end:.1f},{TOP + HEIGHT * (high - y) / (high - low):.1f}"
                    for x, y in curve
                )
                clip = f'clip-path="url(#panel{index})"'
                out.append(f'<polyline class="{kind}" {clip} points="{line}"/>')
    file.write_text("\n".join([*out, "</svg>\n"]), encoding="utf-8")
