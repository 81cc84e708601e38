"""The report of runs whose names and texts contain markup, as a browser shows it."""

import html
import json
import os
import re
import shutil
import subprocess

import pytest
from test_report import Page

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
MARK = "document.title='ran'"
SCRIPT = f"<script>{MARK}</script>"
# Texts, attributes in either quotes, comments, raw text elements, links, templates.
HOSTILE = (
    SCRIPT + f"\"'`> <img src=x onerror=\"{MARK}\"> <svg onload=\"{MARK}\"></svg> "
    + "--> ]]> </style></title></svg></textarea>" + SCRIPT + f" javascript:{MARK} &lt;b&gt; &#60;i&#62; ${{{MARK}}} {{{{x}}}} é 层 \u202e \U0001f600"
)  # fmt: skip
# Keys of values that other values refer to, or that decide how they are read.
STRUCTURE = {"format", "name", "compare", "baseline", "panel", "curves", "headline", "metric", "status", "by", "svg",
             "started", "task", "choose_by", "norm", "cell", "unit", "kind", "sha256"}  # fmt: skip


def spoiled(value, key=None):
    """Appends HOSTILE to every text that is free, also in lists and below names."""
    if isinstance(value, dict):
        return {name: spoiled(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [spoiled(each, key) for each in value]
    return value + HOSTILE if isinstance(value, str) and key not in STRUCTURE else value


def rewrite(path, change):
    path.write_text(json.dumps(change(json.loads(path.read_text())), ensure_ascii=False), encoding="utf-8")


def show(page, folder):
    """Returns the document after its scripts have run in a browser."""
    if CHROMIUM is None:
        pytest.skip("there is no chromium or google-chrome")
    profile = folder / "chromium"
    result = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
         "--virtual-time-budget=5000", "--dump-dom", page.resolve().as_uri()],
        capture_output=True, timeout=200, check=True, env=os.environ | {"HOME": str(folder)},
    )  # fmt: skip
    return result.stdout.decode()


@pytest.fixture(scope="module")
def hostile(shared):
    """Runs of two tasks, of which one has samples, below a folder whose path is a script."""
    out = f"{SCRIPT} \"quoted\" 'and' & é 层"  # a folder in a folder, because of the slash
    smoke = ("--preset", "smoke", "--quiet", "--out", out)
    shared.ok("train", "pi-mnist", *smoke, "--norm", "none,layer", "--seeds", 2)
    shared.ok("train", "pi-mnist", *smoke, "--norm", "none", "--set", "depth=8,9", "--set", "lr=1e6")
    shared.ok("train", "char-lm", *smoke, "--cell", "lstm")
    shared.runs = shared.folder / out
    for path in shared.runs.glob("*/*/*.json"):
        rewrite(path, spoiled)
    for config in shared.runs.glob("*/*/config.json"):
        rewrite(config, lambda c: c | {key: c[key] | {HOSTILE: HOSTILE} for key in ("stamps", "settings")})
        metrics = config.with_name("metrics.jsonl")
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        for line in lines:
            for gradients in line.get("gradients", []):
                gradients["norm"] += HOSTILE
        metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
        # The name of a file cannot have a slash.
        config.parent.rename(config.parent.with_name(config.parent.name + HOSTILE.replace("/", "")[:150]))
    shared.page = shared.folder / 'report <b>"of" \'names\'.html'
    shared.ok("report", shared.runs, "-o", shared.page)
    return shared


def test_names_and_texts_stay_text(hostile):
    text = hostile.page.read_text(encoding="utf-8")
    page = Page(text)
    assert page.errors == []
    assert len(page.all("script")) == 1  # our own
    assert MARK not in page.script + page.style
    assert page.all("img") == []
    assert page.text.count(SCRIPT) > 20
    assert text.count(html.escape(MARK).replace("&#x27;", "&#39;")) == text.count("document.title")
    for tag, attributes, _ in page.elements:
        assert not any(name.startswith("on") for name in attributes), tag
        assert not any(value and value.startswith("javascript:") for value in attributes.values()), tag


def test_no_script_runs_in_a_browser(hostile, tmp_path):
    before = Page(hostile.page.read_text(encoding="utf-8"))
    shown = show(hostile.page, tmp_path)
    dom = Page(shown)
    titles = [re.findall(r"<title>(.*?)</title>", text, re.S)[0]
              for text in (hostile.page.read_text(encoding="utf-8"), shown)]  # fmt: skip
    assert html.unescape(titles[0]) == html.unescape(titles[1])
    assert len(dom.all("script")) == 1
    assert dom.all("img") == []
    # Our script, which the page's policy permits, adds a place for values to each chart.
    places = [attributes for attributes in dom.all("div") if attributes.get("class") == "readout"]
    assert len(places) > 0
    assert len(dom.elements) == len(before.elements) + len(places)


def test_the_browser_would_run_them(hostile, tmp_path):
    """Without escapes, and without the page's policy, the title changes."""
    text = html.unescape(hostile.page.read_text(encoding="utf-8"))
    page = tmp_path / "raw.html"
    page.write_text(re.sub(r"<meta http-equiv[^>]*>", "", text), encoding="utf-8")
    assert "<title>ran</title>" in show(page, tmp_path)


def test_the_policy_stops_a_script_that_was_not_escaped(hostile, tmp_path):
    text = html.unescape(hostile.page.read_text(encoding="utf-8"))
    page = tmp_path / "raw.html"
    page.write_text(text, encoding="utf-8")
    assert "<title>ran</title>" not in show(page, tmp_path)


@pytest.mark.parametrize("command", ["show", "report"])
def test_the_terminal_shows_names_without_control_characters(hostile, tmp_path, command):
    more = ("-o", tmp_path / "page.html") if command == "report" else ()
    result = hostile.ok(command, hostile.runs, *more)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", result.stdout + result.stderr)
