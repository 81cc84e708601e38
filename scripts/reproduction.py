"""Fills the tables of docs/reproduction.md and docs/reproduction/ with the numbers of the committed results.

The numbers come from `planish report --json`. A table is between two marks:

    <!-- table: NAME ARGUMENT, ARGUMENT -->
    <!-- end of table -->

NAME is a function of TABLES below, which get the arguments. With --check nothing is written, and the exit status is 1 if
a table differs from the results.
"""

import argparse
import collections
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAPERS = {"ba2016": "Ba, Kiros & Hinton 2016", "xu2019": "Xu et al. 2019"}
FOLDERS = ("ba2016", "xu2019", "xu2019-enwik8-lr", "xu2019-as-coded", "arena", "theory")
MARKS = re.compile(r"(<!-- table: (\S+)(?: ([^\n]*?))?? -->\n).*?(<!-- end of table -->)", re.S)

# Units that the pages name otherwise than the report.
UNITS = {"steps": "updates"}
# The report has no number of seeds above this one.
MOST_SEEDS = 100_000
# Pages of the columns.
PAGES = [
    (r"Order", "order-embedding"), (r"Attentive", "attentive-reader"), (r"Skip", "skip-thoughts"), (r"DRAW", "draw"),
    (r"Handwriting", "handwriting"), (r"MNIST, batch", "pi-mnist"), (r"ConvNet", "convnet"), (r"Online", "online-ln"),
    (r"RT|SST5", "rt"), (r"MNIST", "mnist-cnn"), (r"PTB", "parser"), (r"En-De|De-En|En-Vi", "mt"), (r"Enwik8", "enwik8"),
]  # fmt: skip


def first_match(patterns, text):
    return next((value for pattern, value in patterns if re.search(pattern, text)), "")


def decimals_for(half_width):
    """Returns the number of decimals that shows two significant digits."""
    return max(0, 1 - math.floor(math.log10(half_width)))


def minus(text):
    return text.replace("-", "−")


def estimate(value, unit=""):
    """Returns '73.28 ± 0.81'; percentages have two decimals, others two significant digits of the half-width.

    Percentages are fractions in `value`, and have the unit of differences, 'points', or that of values, '%'.
    """
    mean, half = value["mean"], value["half_width"]
    percent = unit in ("points", "%")
    scale = 100 if percent else 1
    if mean is None:
        return ""
    if half is None:
        return minus(f"{mean * scale:.4g}")
    decimals = 2 if percent else decimals_for(half * scale) if half > 0 else 2
    return minus(f"{mean * scale:,.{decimals}f} ± {half * scale:,.{decimals}f}")


def difference(value):
    """Returns '+0.46 ± 0.24 nats', or '+15 (−215 to 248) updates' if the interval is not symmetric."""
    mean, low, high = value["mean"], value["low"], value["high"]
    if mean is None:
        return ""
    unit = UNITS.get(value["unit"], value["unit"])
    behind = f" {unit}" if unit else ""
    if low is None:
        return minus(f"{mean:+,.3g}") + behind + (" (one seed)" if value["seeds"] == 1 else "")
    half = (high - low) / 2
    decimals = 2 if unit == "points" else decimals_for(half) if half > 0 else 2
    if math.isclose(mean - low, high - mean, rel_tol=1e-6):
        return minus(f"{mean:+,.{decimals}f} ± {half:,.{decimals}f}") + behind
    return minus(f"{mean:+,.{decimals}f} ({low:,.{decimals}f} to {high:,.{decimals}f})") + behind


def sure_sign(value):
    """Returns 1 if the interval is below 0, -1 if it is above, else 0."""
    return (value["mean"] + value["half_width"] < 0) - (value["mean"] - value["half_width"] > 0)


def plain(number, signed=False):
    return "" if number is None else minus(f"{round(number, 4):{'+' if signed else ''}g}")


def table(header, rows):
    """Returns a Markdown table without the columns that are empty in every row."""
    if not rows:
        raise ValueError(f"no results for the table of {', '.join(filter(None, header))}")
    keep = [i for i in range(len(header)) if any(row[i] for row in rows)]
    lines = [[header[i] for i in keep], ["---"] * len(keep), *([row[i] for i in keep] for row in rows)]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


class Results:
    """The numbers of the committed results, and the tables made of them."""

    def __init__(self, program):
        self.reports, self.trained = {}, {}
        with tempfile.TemporaryDirectory() as folder:
            for name in FOLDERS:
                path = pathlib.Path(folder) / f"{name}.json"
                self.run(program, "report", ROOT / "results" / name, "--json", path, "-o", f"{folder}/report.html")
                self.reports[name] = json.loads(path.read_text(encoding="utf-8"))
                if name != "theory":
                    text = self.run(program, "show", ROOT / "results" / name, "--json", "--runs")
                    self.trained[name] = json.loads(text)["runs"]

    @staticmethod
    def run(program, *arguments):
        return subprocess.run([program, *map(str, arguments)], check=True, capture_output=True, text=True).stdout

    def claim_columns(self, paper, number):
        return [c for c in self.reports[paper]["paper_claim_columns"] if c["number"] == number]

    def unit_of(self, paper, task, metric):
        """Returns the unit of a metric's values: '%', 'nats'."""
        return next(m["unit"] for m in self.reports[paper]["metrics"] if (m["task"], m["metric"]) == (task, metric))

    def claims(self, base="reproduction/"):
        """One row a claim: verdict, effect with interval, seeds and data."""
        rows = []
        for paper in PAPERS:
            short = paper[:2].capitalize()
            for claim in self.reports[paper]["paper_claims"]:
                columns = self.claim_columns(paper, claim["number"])
                own = [c for c in columns if c["own_data"]]
                shown = own if own and len(columns) > 2 else columns
                names = {sign: [f"**{c['column']}**" if c["own_data"] else c["column"] for c in columns if c["sign"] == sign]
                         for sign in (1, -1)}  # fmt: skip
                effects = [f"[{c['column']}]({base}{first_match(PAGES, c['column'])}.md) {difference(c['difference'])}" for c in shown]
                seeds = sorted({c["difference"]["seeds"] for c in columns})
                rows.append([
                    f"{short} {claim['number']}", claim["claim"], f"**{claim['verdict']}**",
                    f"{claim['needed']} of {claim['of']}", ", ".join(names[1]), ", ".join(names[-1]), "; ".join(effects),
                    " or ".join(map(str, seeds)),
                    "the paper's" if len(own) == len(columns) else f"the paper's in {len(own)}" if own else "other",
                ])  # fmt: skip
            cells = self.reports[paper]["invariances"]
            if cells:
                same = sum(cell["invariant"] == cell["printed"] for cell in cells)
                verdict = "agrees" if same == len(cells) else "differs"
                rows.append([f"{short} T1", "Table 1: invariances of batch, weight and layer norm.", f"**{verdict}**", "all",
                             "", "", f"{same} of {len(cells)} cells as printed", "computed", "none needed"])  # fmt: skip
        return table(["", "claim", "verdict", "claimed for", "holds in", "the opposite holds in",
                      "effect, 95% interval", "seeds", "data"], rows)  # fmt: skip

    def claim_details(self, paper):
        """One row a claim and column."""
        rows = []
        for claim in self.reports[paper]["paper_claims"]:
            for c in self.claim_columns(paper, claim["number"]):
                p = c["difference"]["p"]
                rows.append([
                    f"{claim['number']}", f"**{c['column']}**" if c["own_data"] else c["column"], difference(c["difference"]),
                    {1: "as claimed", 0: "open", -1: "the opposite"}[c["sign"]] + (", equivalent" if c["equivalent"] else ""),
                    c["difference"]["seeds"], "" if p is None else f"{p:.2g}", c["difference"]["doubt"],
                ])  # fmt: skip
        return table(["claim", "column", "difference, 95% interval", "", "seeds", "p", "note"], rows)

    def values(self, paper, *columns):
        """Measured beside printed values of the columns whose labels begin with one of the arguments."""
        rows, seen, shown = [], set(), set()
        cells = [c for c in self.reports[paper]["paper_tables"] if c["column"].startswith(columns)]
        order = list(dict.fromkeys(c["column"] for c in cells))
        with_difference = {(c["column"], c["norm"]) for c in cells if c.get("against")}
        baselines = {(c["column"], c["norm"]) for c in cells if not c.get("against") and c["norm"] == "none"}
        for cell in sorted(cells, key=lambda c: order.index(c["column"])):
            key = (cell["column"], cell["norm"], cell.get("against"))
            mirrored = (cell["column"], cell.get("against"), cell["norm"])
            repeated = key in seen or (mirrored in seen and key[:2] in shown)
            if repeated or (not cell.get("against") and key[:2] in with_difference - baselines):
                continue
            seen.add(key)
            shown.add(key[:2])
            here = cell.get("here")
            if not here and cell["printed"] is None:
                continue
            rows.append([
                f"**{cell['column']}**" if cell["own_data"] else cell["column"], cell["norm"],
                estimate(here, cell["unit"]) if here else "not run", plain(cell["printed"]),
                cell.get("against", ""), difference(cell["difference"]) if cell.get("difference") else "",
                plain(cell.get("printed_difference"), signed=True),
                cell["verdict"] if cell.get("printed_difference") is not None else "", cell.get("finished", ""),
            ])  # fmt: skip
        if len(order) == 1:
            rows = [["", *row[1:]] for row in rows]
        return table(["column", "norm", "here", "printed", "minus", "difference", "printed difference", "verdict", "seeds"], rows)

    def runs(self, paper, task, *metrics):
        """Means of metrics over seeds, with training time. 'METRIC.final' is at the end, else as validation chose."""
        rows, shown = [], ("batch_size", "epochs", "length", "lr", "ada_c")
        for group in self.reports[paper]["groups"]:
            if group["task"] != task:
                continue
            settings = ", ".join(f"{k} {v}" for k, v in group["settings"].items() if k in shown)
            cells = []
            for metric in metrics:
                name, _, at = metric.partition(".")
                cells.append(estimate(group["metrics"][name][at or "best"], self.unit_of(paper, task, name)))
            seconds = group["seconds"]["mean"]
            rows.append([settings.replace("_", " "), group["value"], *cells, group["seeds"]["finished"], f"{seconds:,.0f}"])
        percent = {m["metric"] for m in self.reports[paper]["metrics"] if m["task"] == task and m["unit"] == "%"}
        heads = [metric.replace("_", " ").replace(".final", ", at the end") + (" (%)" if metric.partition(".")[0] in percent else "")
                 for metric in metrics]  # fmt: skip
        return table(["settings", "norm", *heads, "seeds", "seconds a run"], rows)

    def verdicts(self, paper, *tasks):
        """The claims about the runs of tasks."""
        rows = []
        several = len({(c["task"], c["panel"]) for c in self.reports[paper]["claims"] if c["task"] in tasks and c["panel"]}) > 1
        for claim in self.reports[paper]["claims"]:
            if claim["task"] not in tasks or not claim["panel"]:
                continue
            runs = f"{claim['data']}, {claim['panel']}" if several else ""
            where = re.sub(r"^(?:Ba, Kiros & Hinton 2016|Xu et al. 2019),? ?", "", claim["source"])
            effect = difference(claim["difference"])
            doubt = claim["difference"]["doubt"]
            rows.append([claim["claim"], where, runs, effect + (f" ({doubt})" if doubt else ""), claim["difference"]["seeds"],
                         f"**{claim['verdict']}**"])  # fmt: skip
        return table(["claim", "where", "runs", "difference, 95% interval", "seeds", "verdict"], rows)

    def power(self, paper, *columns):
        """Seeds that find a difference as large as the printed one, or exclude one above the margin, with probability .8."""
        rows = []
        for row in self.reports[paper]["power"]:
            if not row["column"].startswith(columns):
                continue
            needed = f"above {MOST_SEEDS:,}" if row["needed"] is None else f"{row['needed']:,}"
            effect = f"{row['printed_difference']:+.3g}" if row["margin"] is None else f"margin {row['margin']:.3g}"
            rows.append([
                f"{paper[:2].capitalize()} {row['number']}", row["column"], minus(effect),
                f"{row['deviation']:.3g}", row["seeds"], needed, self.more_hours(row),
            ])  # fmt: skip
        if len({row[1] for row in rows}) == 1:
            rows = [[row[0], "", *row[2:]] for row in rows]
        if not rows:
            return "The paper prints no difference from which a number of seeds follows."
        return table(["claim", "column", "to find", "deviation of pairs", "seeds", "needed", "more hours"], rows)

    @staticmethod
    def more_hours(row):
        """Returns the hours of training for the seeds that a row of the power analysis lacks."""
        if row["decided"]:
            return "decided"
        if row["needed"] is None:
            return "hopeless"
        if row["more_minutes"] is None:
            return "-"
        hours = row["more_minutes"] / 60
        return f"{hours:.{2 if hours < 1 else 1 if hours < 10 else 0}f}" if hours else "enough"

    def differences(self, paper, norms, *tasks):
        """The headline metric of `norms`, with commas between, minus that of the task's baseline."""
        rows = []
        for row in self.reports[paper]["differences"]:
            if row["task"] not in tasks or row["value"] not in norms.split(","):
                continue
            runs = f"{row['task']}, {row['data']}, {row['panel']}"
            group = next(g for g in self.reports[paper]["groups"] if self.belongs(g, row))
            here = estimate(group["metrics"][row["metric"]]["best"], row["difference"]["unit"])
            rows.append([runs, row["value"], here, row["baseline"], difference(row["difference"]), row["difference"]["seeds"]])
        if len({row[0] for row in rows}) == 1:
            rows = [["", *row[1:]] for row in rows]
        return table(["runs", "norm", "here", "minus", "difference, 95% interval", "seeds"], rows)

    @staticmethod
    def belongs(group, row):
        """Returns whether a row of the differences is about that group."""
        if (group["task"], group["data"]["name"], group["value"]) != (row["task"], row["data"], row["value"]):
            return False
        return all(row["settings"].get(k) == v for k, v in group["settings"].items() if k != group["compared"])

    def curve(self, paper, task, panel, metric, every):
        """A metric after each multiple of `every` updates."""
        rows = [c for c in self.reports[paper]["curves"]
                if (c["task"], c["panel"], c["metric"]) == (task, panel, metric) and c["mean"] is not None]  # fmt: skip
        values = list(dict.fromkeys(c["value"] for c in rows))
        steps = [s for s in sorted({c["step"] for c in rows}) if s and s % int(every) == 0]
        at = {(c["value"], c["step"]): c["mean"] for c in rows}
        lines = []
        for step in steps:
            means = [at.get((value, step)) for value in values]
            gap = minus(f"{means[1] - means[0]:+.1f}") if len(means) == 2 and None not in means else ""
            lines.append([f"{step:,}", *("" if m is None else f"{m:.1f}" for m in means), gap])
        return table(["updates", *values, f"{values[-1]} − {values[0]}"], lines)

    def compute(self):
        """Runs and training hours of everything in results/, on one core each."""
        rows, everything = [], []
        for name, runs in self.trained.items():
            rows.append([f"`{name}`", ", ".join(sorted({run["task"] for run in runs})), *self.cost(runs)])
            everything += runs
        return table(["results", "tasks", "runs", "hours of training"], [*rows, ["all", "", *self.cost(everything)]])

    @staticmethod
    def cost(runs):
        return [f"{len(runs)}", f"{sum(run['seconds'] for run in runs) / 3600:.1f}"]

    def trials(self):
        """Learning rates that the arena tried."""
        rows, trials = [], self.reports["arena"]["tuning"]
        for task in dict.fromkeys(t["task"] for t in trials):
            of = [t for t in trials if t["task"] == task]
            rates = sorted({t["lr"] for t in of})
            rows.append([task, len({t["entry"] for t in of}), f"{rates[0]:g} to {rates[-1]:g}", len(rates),
                         sum(t["runs"] for t in of), sum(t["diverged"] for t in of)])  # fmt: skip
        return table(["task", "norms and placements", "learning rates", "rates", "tuning runs", "diverged"], rows)

    def counts(self):
        """How many claims have each verdict."""
        words = ("agrees", "agrees on other data", "differs", "differs on other data", "equivalent", "open")
        rows = []
        for paper, title in PAPERS.items():
            of = collections.Counter(c["verdict"] for c in self.reports[paper]["paper_claims"])
            rows.append([title, *(of[word] for word in words)])
        return table(["paper", *words], [[str(cell) for cell in row] for row in rows])

    @staticmethod
    def theory(paper):
        """Every statement of results/theory about a paper, in the order of the files."""
        rows = []
        for path in sorted((ROOT / "results" / "theory").glob("*.json")):
            result = json.loads(path.read_text(encoding="utf-8"))
            run = result["settings"].get("run")
            name = result["analysis"] + (f", {run}" if run else "")
            for statement in result["statements"]:
                if not statement["source"].startswith(PAPERS[paper]):
                    assert statement["source"].startswith(tuple(PAPERS.values())), path
                    continue
                where = statement["source"].removeprefix(f"{PAPERS[paper]}, ")
                rows.append([statement["text"], where, f"**{statement['verdict']}**", name])
        return table(["statement", "where", "verdict", "analysis"], rows)

    @staticmethod
    def dynamics(name):
        """Growth of gradients in recurrent layers, from a file of `planish analyze stability` of several runs."""
        result = json.loads((ROOT / "results" / "theory" / f"{name}.json").read_text(encoding="utf-8"))
        cells, pairs = (
            {(row[0], row[1]): {"seeds": row[2], "mean": row[5], "half_width": row[6]} for row in of["rows"]}
            for of in result["tables"][:2]
        )
        against = {pair.split(" - ")[0]: pair for pair, _ in pairs}
        rows = []
        for cell in dict.fromkeys(cell for cell, _ in cells):
            gap = pairs.get((against.get(cell), "trained"))
            more = {1: "holds", -1: "does not hold", 0: "cannot tell"}[sure_sign(gap)] if gap else ""
            rows.append([cell, estimate(cells[cell, "initial"]), estimate(cells[cell, "trained"]), estimate(gap) if gap else "",
                         more, cells[cell, "trained"]["seeds"]])  # fmt: skip
        return table(["cell", "at initialization", "trained", "size against no norm, trained", "more stable", "seeds"], rows)


TABLES = ("claims", "claim_details", "values", "runs", "verdicts", "power", "differences", "curve", "compute", "trials",
          "counts", "theory", "dynamics")  # fmt: skip


def filled(text, results):
    """Returns the page with its tables made again."""

    def make(match):
        begin, name, arguments, end = match.groups()
        if name not in TABLES:
            raise ValueError(f"table must be one of {', '.join(TABLES)}, got {name}")
        return f"{begin}{getattr(results, name)(*re.split(r'; ', arguments) if arguments else ())}\n{end}"

    return MARKS.sub(make, text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", help="CMake's build folder")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a table is not up to date")
    options = parser.parse_args()
    results = Results(options.build / "planish")
    stale = []
    for page in [ROOT / "docs/reproduction.md", *sorted((ROOT / "docs/reproduction").glob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        made = filled(text, results)
        if made != text:
            stale.append(page)
            if not options.check:
                page.write_text(made, encoding="utf-8")
    for page in stale:
        print(f"{page.relative_to(ROOT)}: {'not up to date: run scripts/reproduction.py' if options.check else 'written'}")
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
