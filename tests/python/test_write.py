"""planish train handwriting and planish write from the user's view."""

import json
import re
import xml.etree.ElementTree as etree

import pytest

SVG = "{http://www.w3.org/2000/svg}"
SMOKE = ("--preset", "smoke", "--threads", 1, "--quiet", "--set", "epochs=1")


@pytest.fixture(scope="module")
def runs(shared):
    """Finished runs of handwriting, and of a task that does not write."""
    shared.ok("train", "handwriting", *SMOKE, "--norm", "layer")
    shared.ok("train", "pi-mnist", *SMOKE, "--norm", "none")
    return {name: next((shared.folder / "runs" / name).iterdir()) for name in ("handwriting", "pi-mnist")}


def path_of(svg):
    root = etree.fromstring(svg)
    assert root.tag == SVG + "svg"
    return root.find(SVG + "title").text, root.find(SVG + "path").get("d")


def test_a_run_says_what_it_is(runs):
    result = json.loads((runs["handwriting"] / "result.json").read_text())
    assert result["status"] == "finished"
    assert set(result["best"]["values"]) >= {"valid_nats", "valid_point_nats", "test_nats", "test_point_nats"}
    assert "test_nats" not in result["final"]
    assert len(result["samples"]) == 2
    for sample in result["samples"]:
        path_of(sample["svg"])
    config = json.loads((runs["handwriting"] / "config.json").read_text())
    assert config["data"]["name"] == "synthetic strokes"
    assert "64 training, 8 validation and 8 test lines" in config["data"]["description"]


def test_a_run_writes_the_text(shared, runs):
    def write(*arguments):
        return shared.ok("write", runs["handwriting"], "a stone", "--threads", 1, "--steps", 30, *arguments)

    first = write()
    title, path = path_of(first.stdout)
    assert title == "a stone"
    points = re.findall(r"[ML]-?[\d.]+ -?[\d.]+", path)
    assert 1 < len(points) <= 31
    assert write().stdout == first.stdout
    assert write("--seed", 2).stdout != first.stdout
    assert write("--bias", 3).stdout != first.stdout
    assert write("--prime-case", 1).stdout != first.stdout
    to_file = write("-o", "a.svg")
    assert to_file.stdout == ""
    assert (shared.folder / "a.svg").read_text() == first.stdout


def test_a_text_that_was_cut_off_is_warned_of(shared, runs):
    one = shared.ok("write", runs["handwriting"], "a stone", "--steps", 1)
    assert "warning: the pen stopped before the text's last character" in one.stderr
    path_of(one.stdout)


def test_the_report_shows_handwriting(shared, runs):
    shared.ok("report", runs["handwriting"], "-o", "report.html")
    page = (shared.folder / "report.html").read_text()
    assert "data:image/svg+xml;base64," in page
    assert "by the model, bias 0.5" in page


@pytest.mark.parametrize(
    "run, arguments, status, part",
    [
        ("none", ("tea",), 3, "no such file or folder: none\n"),
        ("pi-mnist", ("tea",), 2, "a task that writes by hand, got task pi-mnist"),
        ("handwriting", ("",), 2, "TEXT must have a character other than blanks"),
        ("handwriting", ("  ",), 2, "TEXT must have a character other than blanks"),
        ("handwriting", ("a" * 1001,), 2, "TEXT must have at most 1000 bytes, got 1001"),
        # The byte 0xff.
        ("handwriting", ("t\udcff",), 2, "TEXT must be UTF-8, got byte 0xff at position 2"),
        ("handwriting", ("f\u00f6x?f",), 2, 'characters that the model has not learned: "f", "\u00f6", "x", "?"\n'),
        ("handwriting", ("tea", "--bias", -1), 2, "--bias must be a number from 0 to 100"),
        ("handwriting", ("tea", "--steps", 0), 2, "--steps must be a whole number from 1"),
        ("handwriting", ("tea", "--prime-case", 8), 2, "--prime-case must be below 8"),
        ("handwriting", ("tea", "--prime-case", "x"), 2, "--prime-case must be a whole number"),
        ("handwriting", ("tea", "-o", "nowhere/a.svg"), 1, "nowhere/a.svg"),
        ("handwriting", ("tea", "--data", "empty"), 3, "empty has neither IAM-OnDB's lineStrokes"),
    ],
)
def test_invalid_requests_are_refused(shared, runs, run, arguments, status, part):
    (shared.folder / "empty").mkdir(exist_ok=True)
    result = shared("write", runs.get(run, run), *arguments)
    assert result.returncode == status, result.stderr
    assert re.fullmatch(r"planish: [^\n]+\n", result.stderr), result.stderr
    assert part in result.stderr
    assert result.stdout == ""


def stroke(points):
    return "<Stroke>" + "".join(f'<Point x="{x}" y="{y}" time="0"/>' for x, y in points) + "</Stroke>"


def write_iam(folder, forms=10):
    for i in range(forms):
        below = f"a01/a01-{i:03}"
        for part in ("lineStrokes", "ascii"):
            (folder / part / below).mkdir(parents=True, exist_ok=True)
        form = f"a01-{i:03}u"
        (folder / "ascii" / below / f"{form}.txt").write_text("OCR:\n\nab\n\nCSR:\n\nA line, of 7.\nand more\n")
        for line in (1, 2):
            points = [(10 * k + k * k % 7 + i, (k * k * 7 + i * line) % 50) for k in range(20)]
            xml = f"<StrokeSet>{stroke(points[:9])}{stroke(points[9:])}</StrokeSet>"
            file = folder / "lineStrokes" / below / f"{form}-{line:02}.xml"
            file.write_text(f"<WhiteboardCaptureSession>{xml}</WhiteboardCaptureSession>")
    return folder / "lineStrokes/a01"


def test_handwriting_trains_on_iam_ondb(planish):
    data = planish.folder / "data"
    files = write_iam(data / "iam")
    train = ("train", "handwriting", *SMOKE, "--norm", "none", "--data", data)
    planish.ok(*train)
    (run,) = (planish.folder / "runs/handwriting").iterdir()
    config = json.loads((run / "config.json").read_text())
    assert config["data"]["name"] == "iam-ondb"
    description = config["data"]["description"]
    assert "16 training, 2 validation and 2 test lines of 20, parts by every tenth form" in description
    assert planish.ok("write", run, "A, of", "--steps", 5).stdout.endswith("</svg>\n")
    # A training line has a "7", but one symbol represents all digits and marks: none is learned.
    refused = planish("write", run, "A7, of", "--steps", 5)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert 'not learned: "7"' in refused.stderr

    bad = files / "a01-003/a01-003u-02.xml"
    bad.write_text(re.sub(r'x="\d+"', 'x="1e7"', bad.read_text(), count=1))
    result = planish(*train, "--out", "other")
    assert result.returncode == 3
    assert re.fullmatch(
        r'planish: \S+a01-003u-02.xml, Point at byte \d+: x is "1e7"; a number from -100000 to 100000 was expected\n',
        result.stderr,
    )


def test_some_symbols_and_writers_are_learned(planish):
    """Files of DigiLeTs with a few of its characters, as of somebody who recorded only digits."""
    folder = planish.folder / "digilets"
    folder.mkdir()
    for writer in range(1, 7):
        lines = []
        for symbol in (1, 4, 7, 12):  # 1, 4, 7 and c
            lines.append(f"0.2 0.5 1 1 0 0.{3 + writer} 0.7 1 0 0.1 0.9 0.{writer} 1 0 0.2")
            lines.append(" ".join("1.0" if i == symbol else "0.0" for i in range(62)))
        (folder / f"{writer:03}.txt").write_text("\n".join(lines) + "\n")
    train = ("train", "handwriting", *SMOKE, "--norm", "none", "--data", "digilets", "--set", "alphabet=digits")
    planish.ok(*train, "--set", "symbols=147", "--set", "writers=1-4 6")
    (run,) = (planish.folder / "runs/handwriting").iterdir()
    description = json.loads((run / "config.json").read_text())["data"]["description"]
    assert 'the characters "147" of 3, 1 and 1 writers' in description
    assert path_of(planish.ok("write", run, "741 17", "--steps", 20).stdout)[0] == "741 17"
    result = planish("write", run, "7c")
    assert result.returncode == 2 and 'has not learned: "c"' in result.stderr
    for sets, message in (
        (("symbols=1c%",), "[handwriting] symbols must be digits and letters"),
        (("writers=1-",), '[handwriting] writers must be numbers and ranges such as "1-20 33", got "1-"'),
        (("writers=7-9",), '[handwriting] writers must be numbers of writers in the data, unlike 7-9, got "7-9"'),
    ):
        result = planish(*train, *(flag for s in sets for flag in ("--set", s)))
        assert result.returncode == 2 and message in result.stderr, result.stderr
    result = planish(*train, "--set", "writers=1-2")
    assert result.returncode == 3 and "has the files of 2 writers; at least 3 are needed" in result.stderr
