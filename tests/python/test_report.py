"""The report as a browser's parser sees it."""

import base64
import csv
import html.parser
import io
import json
import os
import pathlib
import re
import subprocess

import pytest
from test_command import SMOKE, assert_one_line

# Built by CMake in lab/report; PLANISH_BUILD names the build folder.
TOOL = pathlib.Path(os.environ["PLANISH_BUILD"]) / "lab" / "report" / "report_page"

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
HOSTILE = "<script>alert('x')</script> & \"é\" 层 </style> -->"


class Page(html.parser.HTMLParser):
    """Checks that tags nest; keeps elements, ids, links, scripts and text."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.stack, self.elements, self.script, self.style, self.text = [], [], "", "", ""
        self.errors = []
        self.feed(text)
        self.close()
        if self.stack:
            self.errors.append(f"never closed: {self.stack}")

    def handle_starttag(self, tag, attributes):
        names = [name for name, _ in attributes]
        if len(names) != len(set(names)):
            self.errors.append(f"<{tag}> repeats an attribute")
        self.elements.append((tag, dict(attributes), list(self.stack)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.errors.append(f"<{tag}/> closes itself")

    def handle_endtag(self, tag):
        if not self.stack or self.stack[-1] != tag:
            self.errors.append(f"</{tag}> within {self.stack}")
        else:
            self.stack.pop()

    def handle_data(self, data):
        if self.stack and self.stack[-1] == "script":
            self.script += data
        elif self.stack and self.stack[-1] == "style":
            self.style += data
        else:
            self.text += data

    def all(self, tag):
        return [attributes for name, attributes, _ in self.elements if name == tag]


def write_run(folder, norm, seed, errors, status="finished", note="plain"):
    folder.mkdir(parents=True)
    metric = {"name": "test_error", "label": "test error", "unit": "%", "lower_is_better": True}
    report = {
        "title": note, "source": "a paper", "compare": "norm", "baseline": "none", "panel": "batch_size",
        "curves": ["test_error"], "headline": "test_error",
        "targets": [{"metric": "test_error", "values": [0.1]}],
    }
    config = {
        "format": "planish-run/1", "task": "digits", "preset": "small",
        "settings": {"norm": norm, "batch_size": 4, "note": note}, "seed": seed,
        "data": {"name": "mnist", "source": "files", "description": note, "sha256": "00",
                 "sizes": {"train": 100, "test": 1000}},
        "stamps": {"cpu": note, "started": "2026-01-01T00:00:00Z"}, "metrics": [metric], "report": report,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    lines = [{"step": 10 * (i + 1), "epoch": i + 1, "cases": 40 * (i + 1), "seconds": float(i + 1),
              "values": {"test_error": error}} for i, error in enumerate(errors)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if status is not None:
        last = lines[-1]
        result = {"status": status, "message": note, "steps": last["step"], "epochs": last["epoch"],
                  "seconds": last["seconds"], "evaluation_seconds": 0.1, "parameters": 7, "final": last["values"]}
        (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")


@pytest.fixture
def sample(tmp_path):
    """Writes runs with known results, with `note` wherever a run can contain text."""

    def write(note="plain"):
        runs = tmp_path / "runs"
        for seed, (none, layer) in enumerate([(0.20, 0.10), (0.21, 0.12), (0.22, 0.11)]):
            write_run(runs / f"none-{seed}", "none", seed, [0.9, 0.4, none], note=note)
            write_run(runs / f"layer-{seed}", "layer", seed, [0.8, 0.3, layer], note=note)
        write_run(runs / "diverged", "batch", 0, [0.9, 5.0], status="diverged", note=note)
        write_run(runs / "started", "batch", 1, [], status=None, note=note)
        return runs

    return write


def render(runs):
    page = runs.parent / "report.html"
    subprocess.run([TOOL, runs, page], check=True, capture_output=True)
    return page.read_text(encoding="utf-8")


def test_tags_nest(sample):
    assert Page(render(sample())).errors == []


def test_hostile_names_stay_text(sample):
    page = Page(render(sample(HOSTILE)))
    assert page.errors == []
    assert len(page.all("script")) == 1  # our own
    assert HOSTILE in page.text
    assert "alert" not in page.script


def test_nothing_comes_from_elsewhere(sample):
    text = render(sample())
    page = Page(text)
    for tag, attributes, _ in page.elements:
        for name, value in attributes.items():
            assert name not in {"src", "srcset", "data", "xlink:href", "onclick", "onload"}, tag
            if name == "href":
                assert value.startswith("#"), value
    assert not re.search(r"@import|url\(", page.style)
    assert not re.search(r"fetch|XMLHttpRequest|import\b", page.script)
    assert set(re.findall(r"https?://[^\s'\"<]*", text)) == {"http://www.w3.org/2000/svg"}


def test_pictures_are_images_that_hold_all_they_need(sample):
    runs = sample()
    svg = '<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(2)</script></svg>'
    result = json.loads((runs / "layer-0" / "result.json").read_text())
    result["samples"] = [{"title": HOSTILE, "text": "", "svg": svg}]
    (runs / "layer-0" / "result.json").write_text(json.dumps(result), encoding="utf-8")
    page = Page(render(runs))
    assert page.errors == []
    assert len(page.all("script")) == 1
    (image,) = page.all("img")
    assert set(image) == {"class", "alt", "src"}
    assert image["alt"] == "layer, seed 0: " + HOSTILE
    kind, _, data = image["src"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert base64.b64decode(data, validate=True).decode() == svg
    (policy,) = [meta["content"] for meta in page.all("meta") if meta.get("http-equiv")]
    assert "img-src data:;" in policy and "default-src 'none'" in policy


def test_every_drawing_has_a_text_alternative(sample):
    page = Page(render(sample()))
    ids = {attributes["id"] for _, attributes, _ in page.elements if "id" in attributes}
    charts = 0
    for drawing in page.all("svg"):
        if drawing.get("aria-hidden") == "true":
            continue
        charts += 1
        assert drawing["role"] == "img"
        assert drawing["aria-label"]
        assert drawing["aria-describedby"] in ids
    assert charts == 3  # the overview, and the metric against steps and seconds


def test_ids_are_unique(sample):
    ids = [attributes["id"] for _, attributes, _ in Page(render(sample())).elements if "id" in attributes]
    assert ids
    assert len(ids) == len(set(ids))


def test_own_script_is_small(sample):
    script = Page(render(sample())).script
    assert 0 < len(script.encode()) <= 5 * 1024


def test_numbers_agree_with_scipy(sample):
    # scipy.stats.ttest_rel([.10, .12, .11], [.20, .21, .22]): -0.1 +- 0.0248414
    assert ("Norm layer reached 11.00% test error (mean of 3 seeds), 10.00 points lower than norm none "
            "(95% interval 7.52 to 12.48 points).") in Page(render(sample())).text


def test_same_runs_same_bytes(sample):
    runs = sample()
    assert render(runs) == render(runs)


def test_writes_its_numbers(planish):
    planish.ok(*SMOKE, "--set", "epochs=1", "--norm", "none,layer", "--seeds", 2, "--quiet", "--out", "runs")
    planish.ok("report", "runs", "--json", "numbers.json", "--csv", "a/numbers")
    numbers = json.loads((planish.folder / "numbers.json").read_text())
    assert numbers.pop("format") == "planish-report/1"
    assert numbers["groups"] == json.loads(planish.ok("show", "runs", "--json").stdout)["groups"]
    assert {file.stem for file in (planish.folder / "a/numbers").iterdir()} == numbers.keys()
    for name, rows in numbers.items():
        text = (planish.folder / "a/numbers" / f"{name}.csv").read_bytes().decode()
        assert len(list(csv.reader(io.StringIO(text, newline=""), strict=True))) == len(rows) + 1
    (difference,) = numbers["differences"]
    means = {group["value"]: group["metrics"][difference["metric"]]["best"]["mean"] for group in numbers["groups"]}
    assert difference["difference"]["mean"] == pytest.approx(100 * (means["layer"] - means["none"]))
    config = next((planish.folder / "runs").rglob("config.json"))
    for option in ("--json", "--output"):
        assert_one_line(planish("report", "runs", option, config), 2, "must not be one of a run")
    assert_one_line(planish("report", "runs", "--csv", ""), 2)
    (planish.folder / "file").write_text("")
    assert_one_line(planish("report", "runs", "--csv", "file/in"), 1, "file/in")
