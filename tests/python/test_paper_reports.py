"""The reports of results/: length, first screen, wording, and agreement with docs/reproduction.md."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest
from test_report import TOOL, Page

ROOT = pathlib.Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
PAPERS = ("ba2016", "xu2019")
MAX_PAGES = 20  # a paper's report, printed without its appendix

# Wording of former templates, and of sentences that leave the reader asking.
FORBIDDEN = (
    r"It is said of", r"printed values have it", r"\b1 of 1\b", r"at least 1 of", r"other data\.? Holds",
    r"zero width", r"not significant", r"\b1 seeds\b", r"\b1 claims\b",
    r"\bin 1 columns\b", r"from 0 to 0\b", r"± 0\.0+ points\b", r"\bnan\b", r"\binf\b", r"=(?:pre|post|none|cosine)\b",
)  # fmt: skip
MEASURE = """<script>addEventListener('load', () => {
  const first = [...document.querySelectorAll('figure svg')].find((e) => e.getBoundingClientRect().height > 40);
  const box = first.getBoundingClientRect();
  const outside = [...document.querySelectorAll('main *')].filter((e) => {
    const b = e.getBoundingClientRect();
    return b.width && b.right > innerWidth + 1 && !e.closest('.scroll');
  });
  const hinted = [...document.querySelectorAll('.scroll')].every((e) =>
    getComputedStyle(e).overflowX === 'auto' && getComputedStyle(e).backgroundAttachment.includes('local'));
  document.title = ['measured', Math.round(box.top), Math.round(box.bottom), outside.length, hinted].join(' ');
});</script>"""


@pytest.fixture(scope="module", params=PAPERS)
def paper(request):
    return request.param


@pytest.fixture(scope="module")
def report(paper, tmp_path_factory):
    """The committed report of a paper, made again."""
    page = tmp_path_factory.mktemp("paper") / "report.html"
    subprocess.run([TOOL, ROOT / "results" / paper, page], check=True, capture_output=True)
    return page


@pytest.fixture(scope="module")
def main_text(report):
    """The text of the report without its appendix."""
    return Page(report.read_text(encoding="utf-8").split('<section id="appendix"')[0] + "</main></div></body></html>").text


def chromium(page, folder, *arguments):
    if CHROMIUM is None:
        pytest.skip("there is no chromium or google-chrome: pages and positions are not measured")
    return subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}/chromium",
         "--allow-file-access-from-files", "--virtual-time-budget=5000", *arguments, page.resolve().as_uri()],
        capture_output=True, timeout=250, check=True, env=os.environ | {"HOME": str(folder)},
    ).stdout.decode()  # fmt: skip


def test_is_the_committed_report(report, paper):
    """planish report results/PAPER -o results/PAPER/report.html makes it."""
    assert report.read_bytes() == (ROOT / "results" / paper / "report.html").read_bytes()


def test_fits_on_a_few_printed_pages(report, tmp_path):
    pdf = tmp_path / "report.pdf"
    chromium(report, tmp_path, "--no-pdf-header-footer", f"--print-to-pdf={pdf}")
    pages = len(re.findall(rb"/Type\s*/Page[^s]", pdf.read_bytes()))
    assert 5 < pages <= MAX_PAGES


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_the_first_screen_has_the_chart(report, tmp_path, width, height):
    text = re.sub(r"<meta http-equiv[^>]*>", "", report.read_text(encoding="utf-8")).replace("</body>", MEASURE + "</body>")
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    # A window can be no narrower than 500 pixels, a frame can.
    frame = tmp_path / "frame.html"
    frame.write_text(f"<iframe src='page.html' style='width:{width}px;height:{height}px;border:0'></iframe><script>"
                     "const frame = document.querySelector('iframe');"
                     "frame.addEventListener('load', () => setTimeout(() => { document.title ="
                     " frame.contentDocument.title; }, 500));</script>", encoding="utf-8")  # fmt: skip
    dom = chromium(frame, tmp_path, f"--window-size={max(width, 500) + 40},{height + 40}", "--dump-dom")
    found = re.search(r"<title>measured (\d+) (\d+) (\d+) (true|false)</title>", dom)
    assert found, "the page was not measured"
    top, _, outside, hinted = found.groups()
    assert int(top) < 0.75 * height
    assert outside == "0"
    assert hinted == "true"


def test_the_first_screen_has_three_sentences_a_chart_and_counts(report, paper):
    page = report.read_text(encoding="utf-8")
    first = page[page.index("<main>") : page.index("</figure>")]
    assert re.findall(r"<p>(Asked|Found|How sure): ", first) == ["Asked", "Found", "How sure"]
    assert first.count("<svg") == 1
    assert "<table" not in first
    assert "<details" not in first
    tiles = page[page.index('<ul class="tiles">') : page.index("</ul>", page.index('<ul class="tiles">'))]
    words = re.findall(r'<span class="word">([^<]*)</span>', tiles)
    assert words == ["agrees", "agrees on other data", "differs", "differs on other data", "equivalent", "open"]
    counts = [int(count) for count in re.findall(r'<span class="count">(\d+)</span>', tiles)]
    claims = page[page.index(f'id="paper-{paper}-claims"') : page.index(f'id="paper-{paper}-tables"')]
    badges = re.findall(r'<li><span class="badge [^"]*">([^<]*)</span>', claims)
    assert counts == [badges.count(word) for word in words]


def test_contents_have_two_levels_and_lead_somewhere(report):
    page = Page(report.read_text(encoding="utf-8"))
    ids = {attributes["id"] for _, attributes, _ in page.elements if "id" in attributes}
    links = [attributes["href"] for attributes in page.all("a")]
    assert set(links) <= {f"#{name}" for name in ids}
    depths = {stack.count("ul") for tag, attributes, stack in page.elements if tag == "a" and "nav" in stack}
    assert depths == {1, 2}
    assert links.count("#top") > 5


def test_the_appendix_does_not_print(report):
    page = Page(report.read_text(encoding="utf-8"))
    print_rules = page.style[page.style.index("@media print") :]
    assert re.search(r"\.appendix[^{]*\{ display: none; \}", print_rules)
    assert "body:has(#print-appendix:checked) .appendix { display: block; }" in print_rules


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_texts_contrast_with_their_backgrounds(report):
    """WCAG 2.1, 1.4.3: text has a contrast of 4.5."""
    style = Page(report.read_text(encoding="utf-8")).style
    screen = style[: style.index("@media print")]
    colours = {"light": {}, "dark": {}}
    for name, value in re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", screen):
        colours["dark" if name in colours["light"] else "light"][name] = value
    for scheme, of in colours.items():
        pairs = [(text, back) for text in ("text", "muted", "link", "good", "bad") for back in ("page",)]
        pairs += [("good", "good-box"), ("bad", "bad-box"), ("even", "even-box"), ("text", "even-box"), ("text", "box")]
        for text, back in pairs:
            low, high = sorted((luminance(of[text]), luminance(of[back])))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (scheme, text, back)


def test_no_sentence_is_in_the_former_dialect(main_text):
    for pattern in FORBIDDEN:
        assert not re.search(pattern, main_text), pattern


def test_numbers_have_units(main_text):
    unit = r"(?:points|nats|bits|steps|s\b|BLEU|R@)"
    intervals = re.findall(r"\(95% interval (?:from )?[^()]*\)", main_text)
    assert len(intervals) > 40
    # Correlations have no unit.
    bare = [interval for interval in intervals if not re.search(unit, interval)]
    assert len(bare) <= 0.1 * len(intervals), bare
    claims = main_text[main_text.index("1. ") : main_text.index("How a verdict is made")]
    values = re.findall(r"[+−][\d.,]*\d ± [\d.,]*\d ?([^;.\s]*)", claims)
    assert len(values) > 9
    assert sum(not re.match(unit, value) for value in values) <= 0.1 * len(values), values


def verdicts_of_document(paper):
    """The verdicts of docs/reproduction.md in the order of its table of claims."""
    text = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    short = {"ba2016": "Ba", "xu2019": "Xu"}[paper]
    return re.findall(rf"(?m)^\| {short} \d+ \|[^|]*\| \*\*([a-z ]+)\*\* \|", text)


def test_the_document_has_the_verdicts_of_the_report(report, paper):
    page = report.read_text(encoding="utf-8")
    claims = page[page.index(f'id="paper-{paper}-claims"') : page.index(f'id="paper-{paper}-tables"')]
    badges = re.findall(r'<li><span class="badge [^"]*">([^<]*)</span>', claims)
    assert len(badges) >= 7
    assert badges == verdicts_of_document(paper)


def test_the_document_shows_the_styles_of_the_report(tmp_path):
    subprocess.run([TOOL, tmp_path / "styles.svg"], check=True, capture_output=True)
    assert (tmp_path / "styles.svg").read_bytes() == (ROOT / "docs" / "norm-styles.svg").read_bytes()


def test_every_norm_and_cell_has_a_style(program):
    styles = set(re.findall(r">([\w.-]+)</text>", (ROOT / "docs" / "norm-styles.svg").read_text(encoding="utf-8")))
    names = set()
    for task, setting in [("pi-mnist", "norm"), ("convnet", "norm"), ("online-ln", "norm"), ("draw", "norm"),
                          ("attentive-reader", "norm"), ("char-lm", "cell")]:  # fmt: skip
        listed = subprocess.run([program, "list", task], check=True, capture_output=True, text=True).stdout
        names |= set(re.search(rf"^  {setting} .*\(([^()]*)\)$", listed, re.M).group(1).split("|"))
    assert len(names) > 30
    assert names <= styles
