"""planish downstream from the user's view, and its regressions and correlations against other
libraries."""

import json
import os
import pathlib
import re
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

TOOL = pathlib.Path(os.environ["PLANISH_BUILD"]) / "lab" / "downstream" / "downstream_tool"
HEAD = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
WIDTH = 6


def row_order(rows):
    """Returns the order of the folds: by splitmix64's output of the seeds 0 .. rows - 1."""

    def hashed(seed):
        z = (seed + 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return z ^ (z >> 31)

    return np.array(sorted(range(rows), key=hashed))


@pytest.fixture(scope="module")
def sets(shared):
    """Returns small sets with synthetic vectors, which are also in a file."""
    draw = np.random.default_rng(3)
    folder = shared.folder / "sets"
    (folder / "sick").mkdir(parents=True)
    shared.vectors, shared.scores, shared.labels = {}, {}, {}
    for file, part, rows in (("train", "train", 90), ("trial", "trial", 40), ("test_annotated", "test", 50)):
        a, b = draw.normal(size=(2, rows, WIDTH))
        cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
        scores = np.round(3 + 2 * cosine, 1)
        lines = [f"{i}\tA dog {i}.\tA cat {i}.\t{score}\tNEUTRAL\n" for i, score in enumerate(scores)]
        (folder / f"sick/SICK_{file}.txt").write_text(HEAD + "".join(lines))
        shared.vectors |= {f"sick.{part}.a": a, f"sick.{part}.b": b}
        shared.scores[part] = scores
    x = draw.normal(size=(83, WIDTH))
    y = (x[:, 0] + 0.7 * draw.normal(size=len(x)) > 0.2).astype(int)
    (folder / "custrev.all").write_text("".join(f"{label} word {i}\n" for i, label in enumerate(y)))
    shared.vectors["cr"] = x.astype(np.float32)
    shared.labels["cr"] = y
    save_file(shared.vectors, shared.folder / "vectors.safetensors")
    shared.sets = folder
    return shared


def judge(planish, *arguments):
    result = planish.ok("downstream", *arguments, "--threads", 1, "--json")
    assert result.stderr == ""
    return [json.loads(line) for line in result.stdout.splitlines()]


def unit(x):
    x = np.asarray(x, dtype=np.float64)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_accuracy_is_scikit_learns(sets):
    linear_model = pytest.importorskip("sklearn.linear_model", reason="scikit-learn is not installed")
    folds, inner = 4, 3
    (found,) = judge(sets, "vectors.safetensors", "--data", sets.sets, "--folds", folds, "--inner", inner)
    x, y = unit(sets.vectors["cr"]), sets.labels["cr"]

    def score(train, test, c):
        # Tolerances small enough not to affect the accuracy.
        model = linear_model.LogisticRegression(C=c, tol=1e-10, max_iter=100_000)
        return model.fit(x[train], y[train]).score(x[test], y[test])

    def parts(rows, count):
        part = np.arange(len(rows)) * count // len(rows)
        return [(rows[part != i], rows[part == i]) for i in range(count)]

    outer = []
    for rest, test in parts(row_order(len(x)), folds):
        choices = 2.0 ** np.arange(9)
        means = [round(np.mean([score(*pair, c) for pair in parts(rest, inner)]), 12) for c in choices]
        outer.append(score(rest, test, choices[np.argmax(means)]))
    assert found["cr"] == pytest.approx(np.mean(outer), abs=1e-12)


@pytest.fixture(scope="module")
def regressions(tmp_path_factory):
    """Returns the tool's results for known vectors."""
    draw = np.random.default_rng(5)
    x = draw.normal(size=(120, 4))
    x[:, 1] = np.round(x[:, 1] + 0.5 * x[:, 0], 1)  # with ties
    z = x @ [1.0, -2.0, 0.5, 0.0] + draw.normal(size=len(x))
    classes = np.digitize(z, [-2, -0.5, 0.5, 2])
    known = {"x": x, "labels": (z > 0.3).astype(np.float64), "targets": np.eye(5)[classes], "c": np.array([0.5, 64.0])}
    file = tmp_path_factory.mktemp("tool") / "x.safetensors"
    save_file({name: np.ascontiguousarray(value) for name, value in known.items()}, file)
    run = subprocess.run([TOOL, file], check=True, capture_output=True, text=True)
    return known | {"classes": classes}, json.loads(run.stdout)


def test_coefficients_are_scikit_learns(regressions):
    linear_model = pytest.importorskip("sklearn.linear_model", reason="scikit-learn is not installed")
    known, found = regressions
    two = np.reshape(found["logistic"], (5, 2))
    five = np.reshape(found["softmax"], (5, 2, 5))
    for i, c in enumerate(known["c"]):
        options = {"C": c, "tol": 1e-10, "max_iter": 100_000}
        theirs = linear_model.LogisticRegression(**options).fit(known["x"], known["labels"])
        # Derivatives of 1e-9, over a curvature of at least 1 / (64 * 120).
        assert two[:4, i] == pytest.approx(theirs.coef_[0], abs=2e-5)
        assert two[4, i] == pytest.approx(theirs.intercept_[0], abs=2e-5)
        theirs = linear_model.LogisticRegression(**options).fit(known["x"], known["classes"])
        assert five[:4, i].T == pytest.approx(theirs.coef_, abs=2e-5)
        # The penalty does not determine a common part of all intercepts.
        ours, others = five[4, i], theirs.intercept_
        assert ours - ours.mean() == pytest.approx(others - others.mean(), abs=2e-5)


def test_correlations_are_scipys(regressions):
    stats = pytest.importorskip("scipy.stats", reason="SciPy is not installed")
    known, found = regressions
    a, b = known["x"][:, 0], known["x"][:, 1]
    assert found["pearson"] == pytest.approx(stats.pearsonr(a, b).statistic, abs=1e-13)
    assert found["spearman"] == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-13)


def test_relatedness(sets):
    (found,) = judge(sets, "vectors.safetensors", "--data", sets.sets, "--folds", 2, "--inner", 2)
    assert set(found) == {"source", "sick_r", "sick_rho", "sick_mse", "cr"}
    # Scores are the cosine: only the features a * b must be summed.
    assert found["sick_r"] > 0.9 and found["sick_rho"] > 0.9
    assert found["sick_mse"] < 0.25 * np.var(sets.scores["test"])


def test_the_table(sets):
    result = sets.ok("downstream", "vectors.safetensors", "vectors.safetensors", "--data", sets.sets, "--folds", 2,
                     "--inner", 2)  # fmt: skip
    head, first, second = result.stdout.splitlines()
    assert head.split() == "SICK r rho MSE MR % CR % SUBJ % MPQA %".split()
    assert first == second
    assert re.fullmatch(r" *0\.\d{4} *0\.\d{4} *\d\.\d{4} *- *\d\d\.\d\d *- *-  vectors.safetensors", first)


@pytest.fixture(scope="module")
def trained(sets):
    sets.ok("train", "skip-thoughts", "--preset", "smoke", "--norm", "layer", "--threads", 1, "--set", "epochs=1")
    (sets.run,) = (sets.folder / "runs/skip-thoughts").iterdir()
    return sets


def test_a_run_and_its_vectors(trained):
    result = json.loads((trained.run / "result.json").read_text())
    assert result["status"] == "finished"
    assert set(result["best"]["values"]) >= {"valid_nats", "synthetic", "test_synthetic"}
    small = ("--data", trained.sets, "--folds", 3, "--inner", 2)
    (found,) = judge(trained, trained.run, *small, "--write", "run.safetensors")
    vectors = load_file(trained.folder / "run.safetensors")
    assert vectors["cr"].shape == (83, 16) and vectors["sick.trial.b"].shape == (40, 16)
    (again,) = judge(trained, "run.safetensors", *small)
    assert found.pop("source") != again.pop("source")
    assert again == found


def write(planish, vectors):
    save_file(vectors, planish.folder / "bad.safetensors")
    return "bad.safetensors"


def bad(planish, status, part, *arguments):
    result = planish("downstream", *arguments)
    assert result.returncode == status, result.stderr
    assert re.fullmatch(r"planish: [^\n]+\n", result.stderr), result.stderr
    assert part in result.stderr
    return result


def test_vectors_that_do_not_fit(sets):
    data = ("--data", sets.sets)
    cr = sets.vectors["cr"]
    bad(sets, 3, "one for each of the 83 sentences was expected", write(sets, {"cr": cr[:-1]}), *data)
    bad(sets, 3, "cr is F32 with 1 dimension; F32 or F64", write(sets, {"cr": cr[0]}), *data)
    bad(sets, 3, "cr is I32 with 2 dimensions; F32 or F64", write(sets, {"cr": cr.astype(np.int32)}), *data)
    bad(sets, 3, "cr has elements that are not finite", write(sets, {"cr": np.where(cr > 2, np.nan, cr)}), *data)
    bad(sets, 3, "it has no vectors of the sets", write(sets, {"mr": cr, "other": cr}), *data)
    sick = {"sick.train.a": sets.vectors["sick.train.a"]}
    bad(sets, 3, "it has no tensor sick.train.b", write(sets, sick), *data)
    (sets.folder / "text.safetensors").write_text("no vectors")
    bad(sets, 3, "text.safetensors", "text.safetensors", *data)
    bad(sets, 3, "nothing.safetensors", "nothing.safetensors", *data)


def test_sets_that_are_not_there(trained):
    bad(trained, 2, "--data must name the folder", "vectors.safetensors")
    bad(trained, 2, "--data must name the folder", trained.run)
    bad(trained, 3, "has none of the sets sick, mr, cr, subj and mpqa", "vectors.safetensors", "--data", trained.folder)
    (trained.folder / "broken").mkdir()
    (trained.folder / "broken/custrev.all").write_text("1 a\n2 b\n")
    bad(trained, 3, "custrev.all, line 2", "vectors.safetensors", "--data", trained.folder / "broken")


def test_wrong_usage(trained):
    data = ("--data", trained.sets)
    bad(trained, 2, "--folds", "vectors.safetensors", *data, "--folds", 1)
    bad(trained, 2, "folds of 2 must have a sentence each", "vectors.safetensors", *data, "--folds", 100, "--inner", 2)
    bad(trained, 2, "--write must go with one run", "vectors.safetensors", *data, "--write", "x.safetensors")
    trained.ok("train", "pi-mnist", "--preset", "smoke", "--norm", "none", "--threads", 1)
    (other,) = (trained.folder / "runs/pi-mnist").iterdir()
    bad(trained, 2, "must be of a task that gives sentences vectors, got task pi-mnist", other, *data)
    (trained.folder / "empty").mkdir()
    bad(trained, 1, "config.json", trained.folder / "empty", *data)


def test_books_that_cannot_be_read(planish):
    (planish.folder / "books").mkdir()
    (planish.folder / "books/a.txt").write_text("One. Two. Three.\n")
    train = ("train", "skip-thoughts", "--preset", "smoke", "--data", planish.folder)
    result = planish(*train)
    assert result.returncode == 3
    assert "has 1 book (*.txt or *.txt.gz)" in result.stderr
    (planish.folder / "books/b.txt").write_bytes(b"One.\nb\xfcse\n")
    result = planish(*train)
    assert result.returncode == 3
    assert "b.txt, line 2: byte 0xfc at column 2 is not UTF-8" in result.stderr
