"""planish reproduce on the cheap experiments of Ba et al. 2016."""

import csv
import fcntl
import json
import math
import re
import shutil
import signal
import statistics
import time
from pathlib import Path

import pytest
from test_command import assert_one_line, tensors_of, without_seconds

ROOT = Path(__file__).resolve().parents[2]
SMOKE = ("reproduce", "ba2016", "--tasks", "pi-mnist", "--preset", "smoke", "--out", "out")
# Two columns, two norms and a seed: four runs of about a second.
FEW = (*SMOKE, "--norms", "none,layer", "--seeds", 1, "--jobs", 2)
TASK = "out/pi-mnist"
FOLDERS = [
    f"smoke-{norm}-{column}-s1"
    for norm in ("layer", "none")
    for column in ("b128-epochs=20", "b4-epochs=4-evaluations_per_epoch=4")
]


@pytest.fixture(scope="module")
def done(shared):
    shared.result = shared.ok(*FEW)
    return shared


def runs_of(planish):
    task = planish.folder / TASK
    return sorted(path.name for path in task.iterdir()) if task.is_dir() else []


def finished(planish):
    return [name for name in runs_of(planish) if (planish.folder / TASK / name / "result.json").exists()]


def test_dry_run_prints_the_plan_and_does_nothing(planish):
    result = planish.ok(
        "reproduce", "ba2016", "--tasks", "pi-mnist", "--out", "out", "--dry-run", "--data", ".", "--jobs", 1)  # fmt: skip
    assert result.stdout.startswith("Lei Ba, Kiros & Hinton 2016, Layer Normalization, preset small\n")
    assert re.search(r"^  mnist-4 +pi-mnist, preset paper +4 +3 +12 +0 +5\.0 +1\.00$", result.stdout, re.M)
    assert re.search(r"^  all +24 +0 +1\.50$", result.stdout, re.M)
    assert "24 of 24 runs to do, 1 at once: about 1.5 hours." in result.stdout
    assert result.stderr == ""
    assert not (planish.folder / "out").exists()


def test_dry_run_says_what_does_not_fit(planish):
    result = planish.ok(
        "reproduce", "ba2016", "--tasks", "mnist-4", "--dry-run", "--hours", 0.5, "--jobs", 2)  # fmt: skip
    assert "12 of 12 runs to do" in result.stdout
    result = planish.ok(
        "reproduce", "ba2016", "--tasks", "mnist-4", "--dry-run", "--hours", 0.5, "--jobs", 1)  # fmt: skip
    assert "6 of 12 runs to do, 1 at once: about 0.5 hours." in result.stdout
    assert "6 more do not fit into --hours 0.5." in result.stdout


def test_every_paper_has_a_plan(planish):
    assert "SST5" not in planish.ok("reproduce", "xu2019", "--dry-run", "--tasks", "mnist").stdout
    plan = planish.ok("reproduce", "xu2019", "--dry-run").stdout
    for column in ("en-de", "de-en", "en-vi", "enwik8", "rt", "sst5", "mnist", "ptb"):
        assert re.search(rf"^  {column} ", plan, re.M), column
    plan = planish.ok("reproduce", "ba2016", "--dry-run").stdout
    for column in ("order-embedding", "attentive-reader", "draw", "handwriting", "mnist-4", "convnet"):
        assert re.search(rf"^  {column} ", plan, re.M), column


def test_trains_every_cell_and_reports(done):
    assert runs_of(done) == sorted(FOLDERS)
    assert finished(done) == sorted(FOLDERS)
    assert "4 of 4 runs to do, 2 at once" in done.result.stdout
    assert "no --data" in done.result.stdout
    lines = done.result.stderr.splitlines()
    assert sum(bool(re.match(r"\d/4 pi-mnist smoke-\S+  \d+:\d\d$", line)) for line in lines) == 4
    report = done.folder / "out" / "report.html"
    assert done.result.stdout.endswith(f"report: {report.resolve()}\n")
    page = report.read_text(encoding="utf-8")
    # The cells of Table 1 need no runs: only they have verdicts.
    assert page.count("badge agrees") == 18
    for badge in ("differs", "better", "worse"):
        assert f"badge {badge}" not in page
    assert page.count("badge no-verdict") > 0
    verdicts = re.findall(r"^(agrees|differs) .*", done.result.stdout, re.M)
    assert verdicts == ["agrees"] and "computed for this report" in done.result.stdout
    assert "Permutation-invariant MNIST" in page
    for column in ("MNIST, batch 128", "MNIST, batch 4"):  # Figure 6: training and test
        assert f"{column}: training NLL" in page
        assert f"{column}: test error" in page
        assert f"{column}: validation" not in page


def test_runs_are_those_of_train(done, planish):
    planish.ok(
        "train", "pi-mnist", "--preset", "smoke", "--norm", "layer", "--set", "batch_size=128", "--set", "epochs=20",
        "--set", "evaluations_per_epoch=1", "--threads", 1, "--out", "out")  # fmt: skip
    name = "smoke-layer-b128-epochs=20-s1"
    assert without_seconds(planish.folder / TASK / name / "metrics.jsonl") == without_seconds(
        done.folder / TASK / name / "metrics.jsonl"
    )


def test_again_only_reports(done):
    before = {path: path.stat().st_mtime_ns for path in (done.folder / TASK).rglob("*.json*")}
    result = done.ok(*FEW)
    assert "0 of 4 runs to do" in result.stdout
    assert "report: " in result.stdout
    assert {path: path.stat().st_mtime_ns for path in (done.folder / TASK).rglob("*.json*")} == before


def test_estimates_come_from_finished_runs(done):
    plan = done.ok(*SMOKE, "--norms", "none,layer", "--seeds", 2, "--dry-run").stdout
    assert re.search(r"^  mnist-128 +pi-mnist +2 +2 +4 +2 +\d\.\d\d here +\d\.\d\d$", plan, re.M)


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_and_continued_is_uninterrupted(done, planish, signal_number):
    process = planish.start(*FEW)
    deadline = time.monotonic() + 60
    while not any((planish.folder / TASK / name / "metrics.jsonl").exists() for name in runs_of(planish)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal_number)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + signal_number, stderr
    assert re.search(r"stopped: \d of 4 runs done\. Run the same command again to continue\.", stderr)
    assert "report:" not in stdout
    assert len(finished(planish)) < 4
    planish.ok(*FEW)
    assert finished(planish) == sorted(FOLDERS)
    for name in FOLDERS:
        ours, theirs = planish.folder / TASK / name, done.folder / TASK / name
        assert without_seconds(ours / "metrics.jsonl") == without_seconds(theirs / "metrics.jsonl")
        assert tensors_of(ours) == tensors_of(theirs)


def break_config(folder):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{")


def put_a_file_in_its_place(folder):
    folder.parent.mkdir(parents=True)
    folder.write_text("a file where a folder must be")


@pytest.mark.parametrize(
    "spoil, message, warning",
    [
        (break_config, "[^\\n]*config.json", "warning: left out: "),
        (put_a_file_in_its_place, "planish: ", "1 of 4 runs failed"),
    ],
)
def test_a_run_that_fails_is_named_and_the_others_go_on(planish, spoil, message, warning):
    spoil(planish.folder / TASK / FOLDERS[0])
    result = planish(*FEW)
    assert result.returncode == 1
    assert re.search(rf"^pi-mnist {re.escape(FOLDERS[0])} failed \(status 1\): {message}", result.stderr, re.M)
    assert warning in result.stderr
    assert finished(planish) == sorted(FOLDERS[1:])
    assert "report: " in result.stdout


def test_a_run_that_another_process_trains_is_left_to_it(planish):
    run = planish.folder / TASK / FOLDERS[0]
    run.mkdir(parents=True)
    with (run / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = planish.ok(*FEW, "--quiet")
    assert result.stderr == f"1 of 4 runs left to another process, which is training it: pi-mnist {FOLDERS[0]}\n"
    assert finished(planish) == sorted(FOLDERS[1:])


def test_data_that_cannot_be_read_leaves_out_the_column(planish):
    (planish.folder / "empty").mkdir()
    result = planish(*SMOKE, "--norms", "none,layer", "--seeds", 3, "--jobs", 1, "--data", "empty")
    assert result.returncode == 3
    assert result.stderr.count("failed (status 3)") == 2  # one in each column
    assert "mnist-128: the other 5 runs with its data are left out" in result.stderr
    assert "12 of 12 runs failed" in result.stderr
    assert "report: " not in result.stdout


def test_reproduce_ends_when_its_time_is_up(planish):
    result = planish.ok(*SMOKE, "--norms", "none,layer", "--jobs", 1, "--hours", 0.0005)  # 1.8 s
    assert "runs done within --hours 0.0005. Run the same command again to continue." in result.stderr
    assert len(finished(planish)) < 12


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ((), ("PAPER",)),
        (("xu",), ("xu2019", "ba2016", '"xu"')),
        (("ba2016", "--tasks", "rt"), ("--tasks", "mnist-128", '"rt"')),
        (("ba2016", "--tasks", "mnist-4,"), ("--tasks",)),
        (("ba2016", "--norms", "x"), ("--norms must be of norms", '"x"')),
        (("ba2016", "--preset", "x"), ("preset must be one of", '"x"')),
        (("ba2016", "--seeds", "0"), ("--seeds", '"0"')),
        (("ba2016", "--hours", "0"), ("--hours", '"0"')),
        (("ba2016", "--hours", "soon"), ("--hours", '"soon"')),
        (("ba2016", "--jobs", "-1"), ("--jobs",)),
        (("ba2016", "--threads", "two"), ("--threads", '"two"')),
        (("ba2016", "--out", ""), ("--out",)),
        (("ba2016", "--nope"), ("--nope",)),
        (("arena", "--until-decided"), ("--until-decided must be given with a paper",)),
        (("ba2016", "--until-decided", "--power"), ("--power must not be given with --until-decided",)),
    ],
)
def test_wrong_usage(planish, arguments, parts):
    assert_one_line(planish("reproduce", *arguments), 2, *parts)


DECIDE = ("reproduce", "xu2019", "--tasks", "rt", "--norms", "none,layer", "--out", "rt", "--until-decided",
          "--jobs", 2)  # fmt: skip


def runs_of_rt(planish, seeds):
    """Makes runs of RT with the paper's data: layer is 1 point above none, with a deviation of 1 point."""
    planish.ok("thin", "--folders", ROOT / "results/xu2019/rt", "rt/rt")
    for norm in ("none", "layer"):
        name = f"small-{norm}-b4096-s1"
        for seed in range(1, seeds + 1):
            folder = planish.folder / "rt/rt" / name.replace("-s1", f"-s{seed}")
            if seed > 5:
                shutil.copytree(planish.folder / "rt/rt" / name, folder)
            config = json.loads((folder / "config.json").read_text())
            config["seed"] = seed
            (folder / "config.json").write_text(json.dumps(config))
            result = json.loads((folder / "result.json").read_text())
            difference = 1 + math.sqrt(2) * math.sin(2.4 * seed) if norm == "layer" else 0
            result["best"]["values"]["test_accuracy"] = 0.7 + difference / 100
            (folder / "result.json").write_text(json.dumps(result))


def looks_of(planish, looks):
    test = {"column": "rt", "contrast": {"layer": 1, "none": -1}, "planned_seeds": 24, "looks": looks}
    text = json.dumps({"format": "planish-looks/1", "paper": "xu2019", "tests": [test]})
    (planish.folder / "rt/looks.json").write_text(text)


def test_open_claims_are_planned_but_not_looked_at_in_a_dry_run(planish):
    runs_of_rt(planish, 5)
    plan = planish.ok(*DECIDE, "--dry-run").stdout
    row = re.search(r"^  1  RT +\+0\.36 +\S+ +5 +(\d+) +5 of (\d+), [\d.]+ h$", plan, re.M)
    needed, planned = int(row[1]), int(row[2])
    assert needed < planned < 1.06 * needed + 1
    assert f"{2 * (planned - 5)} of {2 * planned} runs to do" in plan
    assert "1  LayerNorm is better than no normalization" in plan
    assert re.search(r"^  7  RT .* not asked for$", plan, re.M)
    assert not (planish.folder / "rt/looks.json").exists()
    plan = planish.ok(*DECIDE, "--dry-run", "--hours", 0.01).stdout
    assert re.search(r"^  1  RT .* too long: [\d.]+ h$", plan, re.M)


def test_a_look_decides_and_the_report_goes_by_it(planish):
    first = {"seeds": 5, "p": 0.3, "level": 1e-12, "sign": 0}
    runs_of_rt(planish, 20)
    looks_of(planish, [first])
    report = ("report", "rt", "-o", "r.html", "--csv", "numbers")
    planish.ok(*report)
    columns = list(csv.DictReader((planish.folder / "numbers/paper_claim_columns.csv").open()))
    layer_against_none = next(row for row in columns if row["column"] == "RT" and row["number"] == "1")
    # The 95% interval excludes 0, but no look has decided.
    assert float(layer_against_none["difference.low"]) > 0
    assert "planned seeds were looked at" in layer_against_none["difference.doubt"]
    result = planish.ok(*DECIDE)
    line = r"^RT, layer - none: 20 of 24 planned seeds, p = 0\.000\d+, sure below 0\.0\d+: surely better$"
    assert re.search(line, result.stdout, re.M)
    looks = json.loads((planish.folder / "rt/looks.json").read_text())["tests"][0]["looks"]
    assert looks[0] == first
    assert looks[1]["seeds"] == 20
    assert looks[1]["sign"] == 1
    differences = [1 + math.sqrt(2) * math.sin(2.4 * seed) for seed in range(1, 21)]
    t = statistics.mean(differences) / statistics.stdev(differences) * math.sqrt(20)
    stats = pytest.importorskip("scipy.stats", reason="SciPy is not installed")
    assert 2 * stats.t.sf(t, 19) == pytest.approx(looks[1]["p"], rel=1e-9)
    planish.ok(*report)
    columns = list(csv.DictReader((planish.folder / "numbers/paper_claim_columns.csv").open()))
    layer_against_none = next(row for row in columns if row["column"] == "RT" and row["number"] == "1")
    assert (layer_against_none["sign"], layer_against_none["difference.doubt"]) == ("1", "")
    planish.ok("thin", "rt", "thin")
    assert json.loads((planish.folder / "thin/looks.json").read_text())["tests"][0]["looks"] == looks


def test_looks_that_cannot_be_read(planish):
    runs_of_rt(planish, 2)
    (planish.folder / "rt/looks.json").write_text("{")
    assert_one_line(planish(*DECIDE), 1, "rt/looks.json is no file of looks")
    result = planish.ok("report", "rt", "-o", "r.html")
    assert result.stderr.startswith("warning: rt/looks.json is no file of looks: ")
    looks_of(planish, [{"seeds": 5, "p": 0.3, "level": 0.4, "sign": 2}])
    assert_one_line(planish(*DECIDE), 1, "rt/looks.json is no file of looks", "sign")


ARENA = ("reproduce", "arena", "--preset", "smoke", "--tasks", "pi-mnist", "--norms", "none,weight",
         "--seeds", 2, "--out", "arena", "--jobs", 2)  # fmt: skip


def test_the_arena_has_a_plan(planish):
    plan = planish.ok("reproduce", "arena", "--dry-run", "--jobs", 2).stdout
    assert plan.startswith("Norms and placements at equal tuning\n")
    for task in ("pi-mnist", "rt", "mnist-cnn", "parser", "mt", "enwik8"):
        assert re.search(rf"^  {task} +small ", plan, re.M), task
    hours = float(re.search(r"2 at once: about (\d+\.\d) hours", plan)[1])
    assert hours <= 6
    assert not (planish.folder / "runs").exists()
    assert_one_line(planish("reproduce", "arena", "--tasks", "draw"), 2, "--tasks must be of pi-mnist, rt,")
    assert_one_line(planish("reproduce", "arena", "--norms", "detach"), 2, "got \"detach\"")
    assert_one_line(planish("reproduce", "arenas"), 2, "paper must be one of xu2019, ba2016, arena,")


def test_the_arena_tunes_compares_and_continues(planish):
    process = planish.start(*ARENA)
    deadline = time.monotonic() + 60
    task = planish.folder / "arena/pi-mnist"
    while len(list(task.glob("*/result.json"))) < 3:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    done = {path: path.stat().st_mtime_ns for path in task.glob("*/result.json")}
    result = planish.ok(*ARENA)
    assert {path: path.stat().st_mtime_ns for path in done} == done
    runs = [path.parent.name for path in task.glob("*/result.json")]
    tuning = [name for name in runs if re.search(r"-s10000\d\d$", name)]
    assert len(tuning) == 2 * 5 * 2 and len(runs) == len(tuning) + 2 * 2
    assert re.search(r"^Arena: Permutation-invariant MNIST \(drawn digits\): test error .* is (?:best|the best mean), with", result.stdout, re.M)
    page = (planish.folder / "arena/report.html").read_text(encoding="utf-8")
    assert "Tuning: validation error (%) by learning rate" in page
    assert "1000001" not in page
    again = planish.ok(*ARENA)
    assert "0 of 24 runs to do" in again.stdout
    # The rate of each norm is that of the lowest mean validation error.
    for norm in ("none", "weight"):
        means = {}
        for name in tuning:
            if not name.startswith(f"smoke-{norm}-"):
                continue
            config = json.loads((task / name / "config.json").read_text())
            best = json.loads((task / name / "result.json").read_text())["best"]["values"]
            means.setdefault(config["settings"]["lr"], []).append(best["valid_error"])
        assert len(means) == 5 and {len(values) for values in means.values()} == {2}
        chosen = min(means, key=lambda rate: (sum(means[rate]), rate))
        compared = [name for name in runs if name not in tuning and name.startswith(f"smoke-{norm}-")]
        rates = [json.loads((task / name / "config.json").read_text())["settings"]["lr"] for name in compared]
        assert rates == [chosen, chosen], means


def test_arena_runs_can_be_archived(planish):
    planish.ok(*ARENA)
    before = planish.ok("report", "arena", "-o", "page.html").stdout
    planish.ok("thin", "arena", "thinned")
    assert planish.ok("report", "thinned", "-o", "page.html").stdout == before
    assert "0 of 24 runs to do" in planish.ok(*ARENA[:-4], "--out", "thinned", "--jobs", 2).stdout
