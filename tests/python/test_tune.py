"""planish tune, and planish train --tuned: a learning rate for each norm."""

import json
import re
import shlex
import shutil

import pytest
from run_files import read_run
from test_command import assert_one_line

SMOKE = ("pi-mnist", "--preset", "smoke", "--threads", 1)
NORMS = ("--norms", "none,layer")
TUNE = ("tune", *SMOKE, *NORMS, "--lr", "1e-4..1e-2", "--points", 3)
RATES = ["0.0001", "0.001", "0.01"]


def runs_of(planish, out="runs"):
    """Returns (norm, rate, seed) -> the run's files."""
    runs = {}
    for folder in (planish.folder / out / "pi-mnist").iterdir():
        run = read_run(folder)
        settings = run["config"]["settings"]
        runs[settings["norm"], settings["lr"], run["config"]["seed"]] = run
    return runs


def validation(run):
    return run["result"]["best"]["values"]["valid_error"]


@pytest.fixture(scope="module")
def tuned(shared):
    shared.result = shared.ok(*TUNE, "--seeds", 2, "--jobs", 2)
    return shared


def best(runs, norm):
    means = {rate: sum(validation(runs[norm, rate, 1_000_001 + i]) for i in (0, 1)) / 2 for rate in map(float, RATES)}
    return min(means, key=lambda rate: (means[rate], rate)), means


def test_the_grid_is_trained_as_runs_with_seeds_of_their_own(tuned):
    runs = runs_of(tuned)
    assert set(runs) == {(norm, float(rate), 1_000_001 + i) for norm in ("none", "layer") for rate in RATES for i in (0, 1)}
    assert all(run["result"]["status"] == "finished" for run in runs.values())


def test_the_table_has_the_validation_metric_with_the_best_marked(tuned):
    text = tuned.result.stdout
    assert " ".join(text.split()).startswith(
        "pi-mnist, preset smoke: validation error (%) at each learning rate, mean of 2 seeds norm ")  # fmt: skip
    assert re.search(r"^  norm +" + " +".join(map(re.escape, RATES)) + "$", text, re.M)
    runs = runs_of(tuned)
    for norm in ("none", "layer"):
        chosen, means = best(runs, norm)
        cells = re.search(rf"^  {norm} +(.*)$", text, re.M).group(1).split()
        for rate, cell in zip(RATES, cells, strict=True):
            assert cell.startswith("*") == (float(rate) == chosen)
            # Two decimals of a percentage.
            assert float(cell.lstrip("*")) == pytest.approx(100 * means[float(rate)], abs=0.00501)
    assert max(map(len, text.split("Train with")[0].splitlines())) <= 80
    for line in re.findall(r"^run \d+/12 (\S+)  validation error ", tuned.result.stderr, re.M):
        assert "-s100000" in line


def test_json_has_the_trials_and_the_chosen_rates(tuned):
    result = tuned.ok(*TUNE, "--seeds", 2, "--json", "--quiet")
    data = json.loads(result.stdout)
    assert (data["task"], data["preset"], data["metric"], data["lower_is_better"]) == ("pi-mnist", "smoke", "valid_error", True)
    runs = runs_of(tuned)
    for entry, norm in zip(data["entries"], ("none", "layer"), strict=True):
        chosen, means = best(runs, norm)
        assert entry["settings"] == {"norm": norm}
        assert entry["lr"] == chosen
        assert entry["is_at_the_edge"] == (chosen in (0.0001, 0.01))
        assert [(t["lr"], t["runs"], t["diverged"]) for t in entry["trials"]] == [(float(rate), 2, 0) for rate in RATES]
        assert [t["mean"] for t in entry["trials"]] == pytest.approx(list(means.values()), rel=1e-12)


def test_a_rate_at_the_edge_gives_a_warning(tuned):
    result = tuned.ok(*TUNE, "--seeds", 2, "--quiet")
    edges = [norm for norm in ("none", "layer") if best(runs_of(tuned), norm)[0] in (0.0001, 0.01)]
    warnings = re.findall(r"^warning: (\w+) is best at (\S+), the (?:lowest|highest) rate of the grid", result.stderr, re.M)
    assert [norm for norm, _ in warnings] == edges
    assert edges  # at the smoke preset's few updates the highest of these rates is best


def test_the_printed_command_trains_with_the_chosen_rates(tuned, tmp_path):
    text = tuned.ok(*TUNE, "--seeds", 2, "--quiet").stdout
    program, *arguments = shlex.split(text.split("Train with these rates:\n")[1])
    assert program == "planish" and arguments[-2:] == ["--seeds", "5"]
    assert arguments[arguments.index("--tuned") + 1] == "runs"
    before = runs_of(tuned)
    result = tuned.ok(*arguments[:-1], 2, "--threads", 1, "--out", tmp_path)
    runs, errors = {}, {"none": [], "layer": []}
    for folder in (tmp_path / "pi-mnist").iterdir():
        run = read_run(folder)
        settings = run["config"]["settings"]
        runs[settings["norm"], run["config"]["seed"]] = settings["lr"]
        errors[settings["norm"]].append(run["result"]["best"]["values"]["test_error"])
    assert runs == {(norm, seed): best(before, norm)[0] for norm in ("none", "layer") for seed in (1, 2)}
    for norm in ("none", "layer"):
        assert f"norm {norm}: lr {best(before, norm)[0]:g}, chosen from 3 rates" in result.stderr
    first = min(errors, key=lambda norm: sum(errors[norm]))
    ranking = result.stdout.split("Each at its own learning rate:\n")[1]
    values, norm = re.search(r"test error \(%\) (\S+ and \S+) is the best mean, with (\w+)", ranking).groups()
    assert norm == first
    assert sorted(values.split(" and ")) == sorted(f"{100 * error:.2f}" for error in errors[first])
    shown = tuned.ok("show", "runs", tmp_path).stdout  # without the tuning runs
    assert ranking.strip() in shown and re.search(r"^  \S none +2 ", shown, re.M), shown
    tuned.ok("report", "runs", tmp_path, "-o", tmp_path / "report.html")
    assert "Norms at equal tuning: task pi-mnist, preset smoke." in (tmp_path / "report.html").read_text()


def test_a_wider_grid_trains_only_new_rates(tuned, tmp_path):
    shutil.copytree(tuned.folder / "runs", tmp_path / "runs")
    result = tuned.ok("tune", *SMOKE, *NORMS, "--lr", "1e-4..1", "--points", 5, "--seeds", 2, "--out", tmp_path / "runs")
    assert "12 of 20 runs had been done before" in result.stderr


def test_rates_must_be_those_of_the_same_settings(tuned):
    train = ("train", *SMOKE, "--out", "other", "--quiet", "--tuned")
    assert_one_line(tuned(*train, "runs", "--norm", "none,rms"), 2,
                    "[train] --tuned must have a chosen rate for norm rms with these settings, but there are no tuning runs in runs")  # fmt: skip
    assert_one_line(tuned(*train, "runs", *NORMS, "--set", "width=16"), 2, "there are no tuning runs")
    assert_one_line(tuned(*train, "runs", *NORMS, "--set", "lr=1"), 2, "--tuned and --set lr must not be given together")
    assert_one_line(tuned(*train, "no-such", *NORMS), 3, "no-such")
    assert not (tuned.folder / "other").exists()


def test_unfinished_tuning_has_no_rate(tuned, tmp_path):
    runs = tmp_path / "runs"
    shutil.copytree(tuned.folder / "runs", runs)
    (runs / "pi-mnist/smoke-layer-b128-lr=0.01-s1000002/result.json").unlink()
    result = tuned("train", *SMOKE, *NORMS, "--tuned", runs, "--out", tmp_path / "out", "--quiet")
    assert_one_line(result, 2, "for norm layer with these settings, but tuning runs are unfinished")


def test_a_rate_at_which_a_run_diverges_is_not_chosen(planish):
    settings = ("--norm", "none", "--set", "depth=8", "--lr", "1e-3..1e6", "--points", 2)
    result = planish.ok("tune", *SMOKE, *settings)
    assert re.search(r"^  none +\*\d+\.\d\d +diverged$", result.stdout, re.M), result.stdout
    assert "warning: 1 of 2 runs diverged\n" in result.stderr
    data = json.loads(planish.ok("tune", *SMOKE, *settings, "--json", "--quiet").stdout)
    assert data["entries"][0]["trials"][1] == {"lr": 1e6, "runs": 1, "diverged": 1, "mean": None}
    # All diverge: no rate, and no command.
    result = planish.ok("tune", *SMOKE, "--norm", "none", "--set", "depth=8", "--lr", "1e5..1e6", "--points", 2, "--quiet")
    assert "*:" in result.stdout and "Train with" not in result.stdout


def test_several_settings_have_a_row_each(planish):
    result = planish.ok("tune", *SMOKE, "--norm", "layer", "--batch-size", "64,128", "--lr", "1e-3..1e-2", "--points", 2, "--quiet")
    assert re.findall(r"^  (layer, batch_size=\d+) ", result.stdout, re.M) == ["layer, batch_size=64", "layer, batch_size=128"]
    assert "--set batch_size=64,128" in result.stdout


def test_a_wide_grid_is_printed_in_blocks(planish):
    text = planish.ok("tune", *SMOKE, "--norm", "layer", "--set", "epochs=1", "--lr", "1e-4..1e-1", "--points", 16, "--quiet").stdout
    table = text.split("Train with")[0]
    assert max(map(len, table.splitlines())) <= 80
    heads = re.findall(r"^  norm +(.*)$", table, re.M)
    rates = [rate for head in heads for rate in head.split()]
    assert len(heads) > 1 and len(rates) == 16 and (rates[0], rates[5], rates[-1]) == ("0.0001", "0.001", "0.1")
    cells = [cell for row in re.findall(r"^  layer +(.*)$", table, re.M) for cell in row.split()]
    assert len(cells) == 16 and sum(cell.startswith("*") for cell in cells) == 1


def test_char_lm_tunes_cells(planish):
    result = planish.ok("tune", "char-lm", "--preset", "smoke", "--cells", "lstm,ln-lstm", "--lr", "1e-3..1e-2", "--points", 2,
                        "--set", "epochs=1", "--threads", 1, "--jobs", 2, "--quiet")  # fmt: skip
    assert re.search(r"^  lstm ", result.stdout, re.M) and re.search(r"^  ln-lstm ", result.stdout, re.M)
    assert "--cell lstm,ln-lstm" in result.stdout


@pytest.mark.parametrize(
    "arguments, part",
    [
        (("--lr", "1e-2..1e-4"), '--lr must be a range LOW..HIGH with 0 < LOW < HIGH, such as 1e-4..1e-2, got "1e-2..1e-4"'),
        (("--lr", "1e-2..1e-2"), "0 < LOW < HIGH"),
        (("--lr", "0..1e-2"), "0 < LOW < HIGH"),
        (("--lr", "-1..1"), "0 < LOW < HIGH"),
        (("--lr", "nan..1"), "0 < LOW < HIGH"),
        (("--lr", "1e-3..inf"), "0 < LOW < HIGH"),
        (("--lr", "1e-3"), "0 < LOW < HIGH"),
        (("--lr", "1e-3..1e-2x"), "0 < LOW < HIGH"),
        (("--lr", "..1"), "0 < LOW < HIGH"),
        (("--lr", ""), "0 < LOW < HIGH"),
        (("--lr", "1..1e30"), "lr must be"),
        ((), '--lr must be a range LOW..HIGH with 0 < LOW < HIGH, such as 1e-4..1e-2, got ""'),
        (("--lr", "1e-3..1e-2", "--points", 1), "--points must be a whole number from 2 to 100"),
        (("--lr", "1e-3..1e-2", "--seeds", 0), "--seeds"),
        (("--lr", "1e-3..1e-2", "--seeds", 1000), "--seeds must be a whole number from 1 to 999"),
        (("--lr", "1e-3..1e-2", "--set", "lr=1"), "learning rates must be given by --lr"),
        (("--lr", "1e-3..1e-2", "--norms", "x"), "norm must be one of"),
        (("--lr", "1e-3..1e-2", "--norms", "layer,layer"), "layer twice"),
        (("--lr", "1e-3..1e-2", "--out", ""), "--out"),
        (("--lr", "1e-3..1e-2", "--jobs", 0), "--jobs"),
    ],
)
def test_wrong_usage(planish, arguments, part):
    assert_one_line(planish("tune", *SMOKE, "--quiet", *arguments), 2, part)
    assert not (planish.folder / "runs").exists()


def test_help_completion_and_man_have_the_command(shared):
    text = shared.ok("tune", "--help").stdout
    for word in ("--lr", "--points", "--norm", "--seeds", "--jobs", "--json", "1000001"):
        assert word in text
    assert max(map(len, text.splitlines())) <= 100
    assert "'tune --lr'" in shared.ok("completion", "bash").stdout
    assert ".SS planish tune\n" in shared.ok("man").stdout
