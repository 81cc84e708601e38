"""planish make cloze and training on its files, from the user's view."""

import hashlib
import json
import re

import pytest


def story(a, b, sentences=60):
    names = ((a, b), (b, a))
    return " ".join(f"Then {names[i % 2][0]} said to {names[i % 2][1]} it was number {i}." for i in range(sentences))


@pytest.fixture
def books(planish):
    folder = planish.folder / "books"
    folder.mkdir()
    for name, a, b in (("one", "Anna", "Bertha"), ("two", "Carl", "Dora"), ("three", "Emil", "Frida")):
        (folder / f"{name}.txt").write_text(story(a, b) + "\n")
    return folder


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_the_same_files_for_the_same_seed(planish, books):
    made = planish.ok("make", "cloze", books, "-o", "a", "--train", 40, "--held-out", 10).stdout
    assert re.match(r"40 training, 10 validation and 10 test questions of 1 \+ 1 \+ 1 books", made)
    planish.ok("make", "cloze", "books/..", "--output", "b", "--train", 40, "--held-out", 10)
    planish.ok("make", "cloze", books, "-o", "c", "--train", 40, "--held-out", 10, "--seed", 2)
    a, b, c = (contents(planish.folder / name) for name in "abc")
    assert len(a) == 60 and a == b != c
    text = a["questions/training/0000000.question"].decode()
    source, passage, question, answer, names = text.split("\n\n")
    assert source.startswith("book ") and passage.count(answer) == 4 and "@placeholder" in question
    assert answer in [line.partition(":")[0] for line in names.splitlines()]
    # The printed checksum is that of passages, questions and answers.
    digest = hashlib.sha256()
    for part in ("training", "validation", "test"):
        for name in sorted(n for n in a if n.startswith(f"questions/{part}/")):
            digest.update("".join(f"{line}\n" for line in a[name].decode().split("\n\n")[1:4]).encode())
    assert f"sha256 {digest.hexdigest()}: {planish.folder / 'a'}\n" in made


def test_training_on_questions_and_on_books_is_the_same(planish, books):
    planish.ok("make", "cloze", books, "-o", "questions", "--train", 40, "--held-out", 10, "--entities", 8)
    results = []
    for data in ("questions", "books"):
        planish.ok("train", "attentive-reader", "--preset", "smoke", "--threads", 1, "--quiet", "--data", data,
                   "--norm", "batch", "--set", "epochs=1", "--set", "train_cases=40", "--set", "eval_cases=10",
                   "--set", "entities=8", "--out", f"runs-{data}")  # fmt: skip
        (run,) = (planish.folder / f"runs-{data}/attentive-reader").iterdir()
        config = json.loads((run / "config.json").read_text())
        assert config["data"]["name"] == "books"
        results.append((config["data"]["sha256"], json.loads((run / "result.json").read_text())["best"]))
    assert results[0] == results[1]
    assert set(results[0][1]["values"]) >= {"valid_error", "test_error", "test_passage_error"}


@pytest.mark.parametrize(
    "arguments, status, part",
    [
        (("make",), 2, "[make]"),
        (("make", "cloze"), 2, "[make cloze]"),
        (("make", "cloze", "books"), 2, "--output is required"),
        (("make", "cloze", "nothing", "-o", "x"), 3, "no such folder: nothing"),
        (("make", "cloze", "books", "-o", "x", "--train", "0"), 2, "--train must be a whole number from 1"),
        (("make", "cloze", "books", "-o", "x", "--least-entities", "3"), 3, "gives no "),
        (("make", "cloze", "books", "-o", "books/one.txt"), 1, "cannot create "),
    ],
)
def test_invalid_requests_are_refused(planish, books, arguments, status, part):
    result = planish(*arguments)
    assert result.returncode == status, result.stderr
    assert part in result.stderr
    assert re.fullmatch(r"planish: [^\n]+\n", result.stderr), result.stderr


def test_questions_are_not_mixed(planish, books):
    planish.ok("make", "cloze", books, "-o", "made", "--train", 10)
    again = planish("make", "cloze", books, "-o", "made", "--train", 10)
    assert again.returncode == 1
    assert "cannot write made/questions: it exists and is not empty" in again.stderr


QUESTION = "url\n\n@entity1 met @entity2 .\n\n@placeholder met @entity2\n\n@entity1\n\n@entity1:A\n@entity2:B\n"


@pytest.mark.parametrize(
    "content, part",
    [
        (QUESTION.replace("@placeholder", "who"), "broken.question, line 5: the question has no @placeholder"),
        (QUESTION.split("\n\n@entity1\n")[0] + "\n", "broken.question, line 6: it is the end of the file"),
        (QUESTION.replace("\n@entity2:B", "\n@entity2"), 'line 10: it is "@entity2"; the name of an entity'),
        (QUESTION.replace("\n\n@entity1\n\n", "\n\n@entity7\n\n"), 'line 7: the answer "@entity7" is not among'),
    ],
)
def test_questions_that_cannot_be_read(planish, content, part):
    for name in ("training", "validation", "test"):
        folder = planish.folder / "cnn/questions" / name
        folder.mkdir(parents=True)
        (folder / "a.question").write_text(QUESTION)
    (planish.folder / "cnn/questions/validation/broken.question").write_text(content)
    result = planish("train", "attentive-reader", "--preset", "smoke", "--data", ".", "--quiet")
    assert result.returncode == 3
    assert part in result.stderr
    assert re.fullmatch(r"planish: [^\n]+\n", result.stderr), result.stderr


def test_a_folder_without_either(planish):
    result = planish("train", "attentive-reader", "--preset", "smoke", "--data", ".", "--quiet")
    assert result.returncode == 3
    assert "has neither questions" in result.stderr and "nor books" in result.stderr


@pytest.mark.parametrize(
    "sets, part",
    [
        ("gain=2", "gain must be one of paper, 1, 0.1"),
        ("norm=rms", "norm must be one of layer, none, batch, batch-everywhere"),
        ("cell=slow", "cell must be one of fused, composed"),
        ("batch_size=301", "batch_size must be at most the 300 training cases"),
    ],
)
def test_wrong_settings(planish, sets, part):
    result = planish("train", "attentive-reader", "--preset", "smoke", "--quiet", "--set", sets)
    assert result.returncode == 2, result.stderr
    assert part in result.stderr
