"""planish analyze: text, JSON and errors. The tests in lab/theory test the values."""

import json

import pytest
from test_command import assert_one_line, on_a_terminal

TRAINING = ("--width", 8, "--cases", 60, "--batch", 12, "--steps", 5, "--seeds", 2, "--threads", 1)
FEW = {
    "gradients": ("--rows", 500),
    "theorem2": ("--elements", 500),
    "geometry": ("--largest", 6),
    "invariance": ("--units", 12, "--inputs", 6, "--cell", "lstm,ln_rnn,ln_lstm", "--steps", 4),
    "reparametrization": ("--cases", 4),
    "initialization": ("--cases", 4),
    "stability": ("--units", 8, "--steps", 20, "--seeds", 3),
    "implicit-lr": TRAINING,
    "shift": (*TRAINING, "--probe", 20),
}
# Whose statements depend on the sizes.
MEASURED = {"stability", "implicit-lr", "shift"}
# Of statements that hold for all random data.
EXACT = ("holds", "holds with a correction")
ANY = (*EXACT, "holds in part", "does not hold", "cannot tell")
# Statements that do not hold as printed, and their verdicts.
FAILED = {
    "The Fisher matrix with LN has the blocks of Eq. 13.": "does not hold",
    "All the normalization methods are invariant to re-scaling the dataset.": "holds in part",
    "Layer norm is invariant to per training-case feature shifting and scaling.": "holds in part",
}


def test_help_names_the_analyses(shared):
    text = shared.ok("analyze", "--help").stdout
    assert all(name in text for name in FEW)


@pytest.mark.parametrize("name", FEW)
def test_text_and_json(planish, name):
    text = planish.ok("analyze", name, *FEW[name], "--json", "result.json").stdout
    assert text == planish.ok("analyze", name, *FEW[name]).stdout
    result = json.loads((planish.folder / "result.json").read_text(encoding="utf-8"))
    assert list(result) == ["analysis", "title", "settings", "statements", "tables", "charts"]
    assert result["analysis"] == name and result["settings"]["seed"] == 1
    assert text.startswith(result["title"] + "\n")
    assert result["statements"]
    for statement in result["statements"]:
        expected = ANY if name in MEASURED else EXACT
        if statement["text"] in FAILED:
            expected = (FAILED[statement["text"]],)
        assert statement["verdict"] in expected
        assert f"\n  {statement['verdict']}\n" in text
    for table in result["tables"]:
        assert all(len(row) == len(table["head"]) for row in table["rows"])
    for chart in result["charts"]:
        assert all(len(point) == 2 for line in chart["lines"] for point in line["points"])
    assert max(map(len, text.splitlines())) <= 80


@pytest.fixture(scope="module")
def runs(shared):
    """Command with smoke runs of char-lm and pi-mnist; RUNS has their folders."""
    smoke = ("--preset", "smoke", "--threads", 1, "--out", "runs", "--quiet")
    shared.ok("train", "char-lm", *smoke, "--cell", "rnn,ln-lstm")
    shared.ok("train", "pi-mnist", *smoke, "--norm", "layer,none")
    (shared.folder / "text.txt").write_text("to be or not to be " * 30, encoding="utf-8")
    shared.ok("train", "char-lm", *smoke, "--cell", "gru", "--data", "text.txt")
    return shared


RUNS = {
    name: f"runs/{name.split()[0]}/smoke-{name.split()[1]}-s1"
    for name in ("char-lm rnn-b8", "char-lm ln-lstm-b8", "char-lm gru-b8", "pi-mnist layer-b128", "pi-mnist none-b128")
}


def analyzed(command, *arguments):
    """Returns the text and the JSON of an analysis."""
    text = command.ok("analyze", *arguments, "--threads", 1, "--json", "run.json").stdout
    assert max(map(len, text.splitlines())) <= 80
    return text, json.loads((command.folder / "run.json").read_text(encoding="utf-8"))


def test_gradients_of_a_run(runs):
    run = RUNS["pi-mnist layer-b128"]
    text, result = analyzed(runs, "gradients", run, "--batches", 3)
    assert result["settings"] == {
        "batches": 3,
        "seed": 1,
        "run": "pi-mnist, norm layer, seed 1",
        "data": result["settings"]["data"],
    }
    (statement,) = result["statements"]
    assert statement["verdict"] == "holds" and " 0 of 768 rows above the bound" in statement["measured"]
    means, theorem = result["tables"]
    assert [row[:2] for row in means["rows"]] == [["norm0", "384"], ["norm1", "384"], ["norm2", "384"]]
    for _, _, sigma, mean, variance, mean_dx, variance_dx in means["rows"][:2]:
        assert sigma > 0 and mean_dx < 1e-6 * mean and 0 < variance_dx < variance
    assert [row[4] for row in theorem["rows"]] == [0, 0, "-"]
    assert "norm0" in text
    assert analyzed(runs, "gradients", run, "--batches", 3)[1] == result
    assert analyzed(runs, "gradients", run, "--batches", 3, "--seed", 2)[1]["tables"] != result["tables"]


@pytest.mark.parametrize("cell", ["rnn", "ln-lstm"])
def test_stability_of_a_run(runs, cell):
    few = ("--steps", 24, "--groups", 3, "--sequences", 4)
    text, result = analyzed(runs, "stability", RUNS[f"char-lm {cell}-b8"], *few)
    assert result["settings"]["run"] == f"char-lm, cell {cell}, seed 1"
    assert "units" not in result["settings"] and result["settings"]["layer"] == 1
    says = "neither grow nor shrink" if cell == "ln-lstm" else "grow or shrink at every step"
    assert [statement["text"] for statement in result["statements"]][:2] == [
        f"In the {weights} {cell} layer, the summed inputs {says}." for weights in ("trained", "untrained")
    ]
    rates, sizes = result["tables"]
    assert [row[0] for row in rates["rows"]] == ["at initialization", "trained", "change of |rate|"]
    assert [row[0] for row in sizes["rows"]] == ["1", "2", "5", "10", "20", "24"]
    # The verdicts follow from the intervals.
    for statement, (row, column) in zip(result["statements"], ((1, 1), (0, 1), (1, 3), (0, 3)), strict=True):
        rate, half_width = rates["rows"][row][column : column + 2]
        is_steady = abs(rate) + half_width <= 0.01
        is_moving = abs(rate) - half_width > 0.01
        holds = is_steady if cell == "ln-lstm" else is_moving
        fails = is_moving if cell == "ln-lstm" else is_steady
        assert statement["verdict"] == ("holds" if holds else "does not hold" if fails else "cannot tell")
    for chart in result["charts"]:
        assert [len(line["points"]) for line in chart["lines"]] == [24, 24]
    assert cell in text


@pytest.fixture(scope="module")
def pairs(shared):
    """Command with smoke runs of char-lm by cell, two seeds each; a function returns the folders of cells and seeds."""
    smoke = ("--preset", "smoke", "--threads", 1, "--out", "pairs", "--quiet")
    shared.ok("train", "char-lm", *smoke, "--cell", "rnn,ln-rnn,bn-rnn", "--seeds", 2)
    shared.ok("train", "char-lm", *smoke, "--cell", "bn-rnn", "--set", "hidden=20", "--seeds", 1)
    return shared


def folders(cells, seeds=(1, 2)):
    return [f"pairs/char-lm/smoke-{cell}-b8-s{seed}" for seed in seeds for cell in cells]


def test_stability_of_pairs_of_runs(pairs):
    few = ("--steps", 24, "--groups", 2, "--sequences", 4)
    text, result = analyzed(pairs, "stability", *folders(["rnn", "ln-rnn", "bn-rnn"]), *few)
    settings = result["settings"]
    assert settings["run"] == "char-lm, 6 runs" and settings["seeds"] == [1, 2]
    assert settings["cells"] == ["rnn", "ln-rnn", "bn-rnn"]
    rates, differences = result["tables"]
    assert [row[:3] for row in rates["rows"][:2]] == [["rnn", "initial", "2"], ["rnn", "trained", "2"]]
    assert [row[0] for row in differences["rows"]] == ["ln-rnn - rnn"] * 2 + ["bn-rnn - rnn"] * 2
    # The verdicts follow from the intervals.
    assert len(result["statements"]) == 2
    for statement, row in zip(result["statements"], differences["rows"][1::2], strict=True):
        assert row[1] == "trained"
        expected = "cannot tell" if abs(row[5]) <= row[6] else "holds" if row[5] < 0 else "does not hold"
        assert statement["verdict"] == expected
    assert len(result["charts"]) == 4
    assert "no verdict" not in text
    assert text.count("  ln-rnn - rnn  ") == text.count("  bn-rnn - rnn  ") == 2
    # One seed has no interval, so no verdict.
    text, result = analyzed(pairs, "stability", *folders(["ln-rnn", "rnn"], [1]), *few)
    assert [statement["verdict"] for statement in result["statements"]] == ["cannot tell"]
    assert "no verdict: it needs at least 2 seeds with runs of ln-rnn and rnn, and there is 1" in " ".join(text.split())


@pytest.mark.parametrize(
    "runs, text",
    [
        (folders(["rnn"]), "RUN must be of a cell with norms and of the same cell without, got rnn"),
        (folders(["rnn", "rnn"], [1]), "RUN must be one for each cell and seed, got char-lm, cell rnn, seed 1 twice"),
        (
            [*folders(["rnn"], [1]), "pairs/char-lm/smoke-bn-rnn-b8-hidden=20-s1"],
            "[analyze stability] pairs/char-lm/smoke-bn-rnn-b8-hidden=20-s1 must have the setting hidden of "
            "pairs/char-lm/smoke-rnn-b8-s1, 16, got 20",
        ),
    ],
)
def test_runs_that_cannot_be_compared(pairs, runs, text):
    assert_one_line(pairs("analyze", "stability", *runs), 2, text)


def test_batch_norm_of_a_cell_needs_two_sequences(pairs):
    smoke = ("train", "char-lm", "--preset", "smoke", "--cell", "bn-rnn", "--out", "bad", "--quiet")
    result = pairs(*smoke, "--batch-size", 1)
    assert_one_line(result, 2, "[char-lm] batch_size must be at least 2 for batch norm, got 1")
    result = pairs(*smoke, "--set", "shards=8")
    assert_one_line(result, 2, "[char-lm] batch_size must be at least 16 for batch norm, got 8")


@pytest.mark.parametrize(
    "status, arguments, text",
    [
        (2, ("gradients", RUNS["pi-mnist none-b128"]), "RUN must have a norm of Theorem 1, which centres rows, in a layer, got pi-mnist, norm none, seed 1"),
        (2, ("gradients", RUNS["char-lm ln-lstm-b8"]), "in a layer, got char-lm, cell ln-lstm, seed 1"),
        (2, ("gradients", RUNS["pi-mnist layer-b128"], "--rows", 9), "[analyze gradients] --rows must not be given with a run, got 9"),
        (2, ("gradients", "--batches", 9), "[analyze gradients] --batches must not be given without a run, got 9"),
        (2, ("stability", RUNS["pi-mnist layer-b128"]), "[analyze stability] RUN must be of a task that reads long sequences with recurrent layers, got pi-mnist, norm layer, seed 1"),
        (2, ("stability", RUNS["char-lm rnn-b8"], "--layer", 2), "[analyze stability] --layer must be at most 1 for char-lm, cell rnn, seed 1, got 2"),
        (2, ("stability", RUNS["char-lm gru-b8"], "--steps", 514), "[analyze stability] --steps must be at most 513 for char-lm, cell gru, seed 1, got 514"),
        (2, ("stability", "--data", "text.txt"), "[analyze stability] reads no data without a run, got text.txt"),
        (2, ("stability", ""), "RUN is empty"),
        (3, ("stability", "no/such/run"), "no such file or folder: no/such/run\n"),
        (3, ("stability", RUNS["char-lm gru-b8"], "--data", "none.txt"), "no such file: none.txt"),
    ],
)  # fmt: skip
def test_runs_that_cannot_be_analyzed(runs, status, arguments, text):
    assert_one_line(runs("analyze", *arguments), status, text)


@pytest.mark.parametrize(
    "arguments, text",
    [
        ((), "[analyze] the command must be one of gradients, theorem2, geometry, invariance, reparametrization, initialization, stability, implicit-lr, shift, got none"),
        (("theorem3",), "shift, got \"theorem3\"; did you mean theorem2? (see planish analyze --help)"),
        (("gradients", "--rows", 0), "[analyze gradients] --rows must be a whole number from 1 to 1000000000, got \"0\""),
        (("gradients", "--width", 1), "--width must be a whole number from 2 to 4096"),
        (("theorem2", "--k", "many"), "[analyze theorem2] --k must be a number, got \"many\""),
        (("theorem2", "--k", 20), "[analyze theorem2] --k must be a number from 0.001 to 10, got 20"),
        (("theorem2", "--json", ""), "--json is empty"),
        (("geometry", "--inputs", 4096), "[analyze geometry] --units, --largest, --inputs and --cases must need at most 1073741824 bytes"),
        (("invariance", "--eps", -1), "[analyze invariance] --eps must be a number from 0 to 1, got -1"),
        (("invariance", "--norm", "layers"), "[analyze invariance] --norm must be names of none, batch, weight, layer"),
        (("invariance", "--cell", "lstm,lstn"), "slstm, got \"lstn\""),
        (("invariance", "--norm", "layer,rms,layer"), "[analyze invariance] --norm must have each name once, got layer,rms,layer"),
        (("invariance", "--data", "."), "[analyze invariance] reads no data without a run, got ."),
        (("stability", "--sequences", 1), "--sequences must be a whole number from 4 to 64"),
        (("implicit-lr", "--norm", "none,rms"), "[analyze implicit-lr] --norm must be names of none, weight, batch, layer, got \"rms\""),
        (("implicit-lr", "--optimizer", ""), "--optimizer is empty"),
        (("shift", "--norm", "none,,layer"), "[analyze shift] --norm must"),
        (("implicit-lr", "--batch", 65, "--cases", 64), "[analyze implicit-lr] --batch must be at most --cases, 64, got 65"),
        (("implicit-lr", "--seeds", 1), "--seeds must be a whole number from 2 to 100"),
        (("implicit-lr", "--sgd-lr", 0), "[analyze implicit-lr] --sgd-lr must be a number from 1e-06 to 1000, got 0"),
        (("implicit-lr", *TRAINING, "--norm", "weight", "--optimizer", "sgd", "--depth", 5, "--sgd-lr", 1000),
         "[analyze implicit-lr] --sgd-lr must be small enough for a finite loss with norm weight, got 1000"),
        (("shift", "--probe", 3), "--probe must be a whole number from 4 to 10000"),
        (("shift", "--depth", 0), "--depth must be a whole number from 1 to 16"),
        (("shift", "--data", ""), "--data is empty"),
        (("stability", "--input", 0), "[analyze stability] --input must be a number from 0.001 to 1000, got 0"),
    ],
)
def test_wrong_usage(shared, arguments, text):
    assert_one_line(shared("analyze", *arguments), 2, text)


@pytest.mark.parametrize("name", ["implicit-lr", "shift"])
def test_trainings(planish, name, tmp_path):
    result = tmp_path / "result.json"
    command = ("analyze", name, *FEW[name], "--norm", "none,layer", "--optimizer", "adam", "--json", result)
    planish.ok(*command)
    first = json.loads(result.read_text(encoding="utf-8"))
    settings = first["settings"]
    assert settings["norm"] == ["none", "layer"] and settings["optimizer"] == ["adam"]
    assert settings["data"] == "drawn digits"
    assert all(line["name"] in ("none", "layer") for chart in first["charts"] for line in chart["lines"])
    planish.ok(*command, "--seed", 9)
    assert json.loads(result.read_text(encoding="utf-8"))["tables"] != first["tables"]


def test_progress_is_for_terminals(planish):
    command = ("analyze", "implicit-lr", *FEW["implicit-lr"], "--norm", "none", "--optimizer", "sgd")
    assert planish.ok(*command).stderr == ""
    planish.environment |= {"TERM": "xterm", "CI": "", "NO_COLOR": ""}
    text = on_a_terminal(planish, *command)
    assert text.startswith("\rnone sgd, training 1 of 2")
    planish.environment["TERM"] = "dumb"
    assert "training 1 of 2" not in on_a_terminal(planish, *command)


@pytest.mark.parametrize("name", ["implicit-lr", "shift"])
def test_data_that_cannot_be_read(planish, name):
    assert_one_line(planish("analyze", name, "--data", "missing"), 3, "no such folder: missing")
    assert_one_line(planish("analyze", name, "--data", "."), 3)
    planish.environment["PLANISH_DATA"] = "missing"
    assert_one_line(planish("analyze", name), 3, "missing (from PLANISH_DATA)")


def test_a_file_that_cannot_be_written(shared):
    result = shared("analyze", "theorem2", "--elements", 500, "--json", "no/such/folder.json")
    assert_one_line(result, 1, "no/such/folder.json")


def test_results_are_a_section_of_the_report(planish):
    (planish.folder / "theory").mkdir()
    planish.ok("analyze", "theorem2", *FEW["theorem2"], "--json", "theory/theorem2.json")
    planish.ok("analyze", "initialization", *FEW["initialization"], "--json", "initialization.json")
    printed = planish.ok("report", "theory", "initialization.json", "-o", "page.html").stdout
    assert printed.startswith("Theory of the papers, measured: ")
    page = (planish.folder / "page.html").read_text(encoding="utf-8")
    for name in ("theorem2", "initialization"):
        folder = "theory/" if name == "theorem2" else ""
        result = json.loads((planish.folder / f"{folder}{name}.json").read_text(encoding="utf-8"))
        assert f"<h3>{result['title']}</h3>" in page
        assert page.count("<svg") >= len(result["charts"])
    (planish.folder / "theory" / "cut.json").write_text('{"analysis": "theorem2"', encoding="utf-8")
    result = planish("report", "theory", "-o", "page.html")
    assert result.returncode == 0 and "theory/cut.json is no result of planish analyze" in result.stderr


def test_files_are_not_overwritten(shared, analyzed_runs):
    run = run_of(analyzed_runs, "pi-mnist", "layer")
    few = ("analyze", "theorem2", *FEW["theorem2"], "--json")
    for name in ("config.json", "result.json"):
        before = (run / name).read_bytes()
        assert_one_line(shared(*few, run / name), 2, "--json must not be a file of a run")
        assert (run / name).read_bytes() == before
    shared.ok(*few, run / "theorem2.json")
    assert "Theory of the papers" in shared.ok("report", run, "-o", "of-a-run.html").stdout
    path = run / "theorem2.json"
    assert_one_line(shared("report", path, "-o", path), 2, "--output must not be a file that is read")
    path.unlink()


def test_a_report_of_nothing(shared, tmp_path):
    (tmp_path / "cut.json").write_text('{"analysis": "theorem2"', encoding="utf-8")
    result = shared("report", tmp_path / "cut.json", "-o", tmp_path / "page.html")
    assert result.returncode == 3 and not (tmp_path / "page.html").exists()
    assert result.stderr.splitlines()[-1].endswith("no result of planish analyze can be read")
    (tmp_path / "cut.json").unlink()
    (tmp_path / "some.json").write_text("{}", encoding="utf-8")
    assert_one_line(shared("report", tmp_path, "-o", tmp_path / "page.html"), 3, "there is no run in")


@pytest.fixture(scope="module")
def analyzed_runs(shared):
    """The folder of small runs of pi-mnist by norm, and of another task."""
    for norm in ("layer", "batch", "none"):
        shared.ok("train", "pi-mnist", "--preset", "smoke", "--norm", norm, "--seeds", 1, "--out", "analyzed")
    shared.ok("train", "mnist-cnn", "--preset", "smoke", "--norm", "layer", "--seeds", 1, "--out", "analyzed")
    return shared.folder / "analyzed"


def run_of(analyzed_runs, task, norm):
    return next(path.parent for path in sorted(analyzed_runs.glob(f"{task}/**/result.json")) if norm in str(path))


@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_invariance_of_a_run(shared, analyzed_runs, norm):
    run = run_of(analyzed_runs, "pi-mnist", norm)
    text = shared.ok("analyze", "invariance", run, "--cases", 16, "--json", "invariance.json").stdout
    assert max(map(len, text.splitlines())) <= 80
    result = json.loads((shared.folder / "invariance.json").read_text(encoding="utf-8"))
    assert result["settings"]["run"] == f"pi-mnist, norm {norm}, seed 1"
    assert result["settings"]["eps"] == 1e-5
    verdicts = {statement["text"]: statement["verdict"] for statement in result["statements"]}
    assert next(iter(verdicts.values())) == "holds"
    # Batch norm subtracts a bias before it with the mean of its unit.
    biases = "holds" if norm == "batch" else "holds in part"
    assert verdicts["The trained layers have these invariances with their biases before the norm."] == biases
    assert verdicts["The invariances to re-scaling are exact."] == "holds with a correction"
    if norm == "batch":
        assert verdicts["The invariances hold with the running estimates that evaluation uses."] == "does not hold"
    # Layers of pi-mnist with a norm: batch norm is also on the logits.
    heads = [table["head"][0] for table in result["tables"]]
    assert heads == ["linear0", "linear1", *(["linear2"] if norm == "batch" else []), "layer", "layer"]


def test_runs_that_invariance_refuses(shared, analyzed_runs):
    def refused(run, text, *arguments):
        assert_one_line(shared("analyze", "invariance", run, *arguments), 2, text)

    refused(run_of(analyzed_runs, "pi-mnist", "none"), "must have layers with a norm, got pi-mnist, norm none, seed 1")
    layer = run_of(analyzed_runs, "pi-mnist", "layer")
    refused(layer, "[analyze invariance] --eps must not be given with a run, got 0.1", "--eps", 0.1)
    refused(layer, "[analyze invariance] --cell must not be given with a run, got gru", "--cell", "gru")
    refused(run_of(analyzed_runs, "mnist-cnn", "layer"), "that has linear layers directly before norms, got task mnist-cnn")
    refused(run_of(analyzed_runs, "pi-mnist", "layer"), "--norm must have that of the run, layer, got rms", "--norm", "rms")
    assert_one_line(shared("analyze", "invariance", "no-such-run"), 3, "no such file or folder: no-such-run\n")
