"""planish export, and the commands that take an exported model in place of a run."""

import json
import pathlib
import re
import shutil
import subprocess
import time

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ROOT / "results/models"
TASKS = ("char-lm", "enwik8", "mt", "handwriting", "draw", "skip-thoughts")
# What a command prints with a model of the task: the same with the run and with the file.
USES = {
    "char-lm": ("sample", "{}", "--prompt", "The ", "--length", "50"),
    "enwik8": ("sample", "{}", "--length", "20"),
    "mt": ("translate", "{}", "--beam", "2"),
    "handwriting": ("write", "{}", "a", "--steps", "40"),
    "draw": ("sample", "{}", "--count", "2"),
    "skip-thoughts": ("search", "{}", "a dog sees a ball", "--in", "text", "-n", "3"),
}
LINES = "the red dog sees the ball\n\na cat\nnothing that it knows: \u0436\n"


@pytest.fixture(scope="module")
def trained(shared):
    (shared.folder / "text").write_text(LINES)
    shared.runs = {}
    for task in (*TASKS, "pi-mnist", "order-embedding"):
        norm = () if task == "char-lm" else ("--norm", "layer")
        shared.ok("train", task, "--preset", "smoke", *norm, "--set", "epochs=1", "--threads", 1, "--quiet")
        (shared.runs[task],) = (shared.folder / "runs" / task).iterdir()
    return shared


def error_of(result, status):
    assert result.returncode == status, result.stderr
    assert re.fullmatch(r"planish: [^\n]+\n", result.stderr), result.stderr
    return result.stderr


@pytest.mark.parametrize("task", TASKS)
def test_a_file_does_what_its_run_does_without_data(trained, task, tmp_path):
    file = tmp_path / "model.safetensors"
    result = trained.ok("export", trained.runs[task], "-o", file)
    assert result.stdout == result.stderr == ""
    command = [part.format(trained.runs[task]) for part in USES[task]]
    expected = trained(*command, input=LINES).stdout
    assert expected
    command = [part.format(file) for part in USES[task]]
    assert trained(*command, input=LINES).stdout == expected
    half = tmp_path / "half.safetensors"
    trained.ok("export", trained.runs[task], "-o", half, "--dtype", "float16")
    command = [part.format(half) for part in USES[task]]
    assert trained(*command, input=LINES).returncode == 0


def test_a_file_has_the_best_weights_and_no_paths(trained, tmp_path):
    file = tmp_path / "model.safetensors"
    trained.ok("export", trained.runs["char-lm"], "-o", file, "--dtype", "float16")
    with (
        safe_open(file, "np") as model,
        safe_open(trained.runs["char-lm"] / "checkpoint/state.safetensors", "np") as state,
    ):
        metadata = model.metadata()
        assert metadata["format"] == "planish-model/1"
        assert json.loads(metadata["config"])["task"] == "char-lm"
        result = json.loads((trained.runs["char-lm"] / "result.json").read_text())
        assert json.loads(metadata["values"]) == result["best"]["values"]
        assert not re.search(r'["\s]/\w+/', "".join(metadata.values()))
        names = {name for name in state.keys() if name.startswith("best.")}  # noqa: SIM118
        assert {name.replace("best.", "model.", 1) for name in names} == set(model.keys()) - {"data.vocabulary"}
        for name in names:
            expected = state.get_tensor(name).astype(np.float16)
            np.testing.assert_array_equal(model.get_tensor(name.replace("best.", "model.", 1)), expected)


def test_vectors_of_a_file_are_those_of_its_run(trained, tmp_path):
    (tmp_path / "mr").mkdir()
    for name in ("pos", "neg"):
        lines = "".join(f"a {name} film number {i}\n" for i in range(20))
        (tmp_path / f"mr/rt-polarity.{name}").write_text(lines)
    file = tmp_path / "model.safetensors"
    trained.ok("export", trained.runs["skip-thoughts"], "-o", file)
    arguments = ("--data", tmp_path, "--folds", 2, "--inner", 2, "--json")
    of_run, of_file = (
        json.loads(trained.ok("downstream", source, *arguments).stdout)
        for source in (trained.runs["skip-thoughts"], file)
    )
    assert of_run.pop("source") != of_file.pop("source")
    assert of_run == of_file
    assert "mr" in of_run


@pytest.mark.parametrize(
    "task, arguments, part",
    [
        ("pi-mnist", (), "must be of a task whose models work without data, got task pi-mnist"),
        ("order-embedding", (), "got task order-embedding"),
        ("char-lm", ("--dtype", "int8"), '--dtype must be float32 or float16, got "int8"'),
        ("char-lm", ("--out", ""), "--out is empty"),
    ],
)
def test_what_cannot_be_exported(trained, tmp_path, task, arguments, part):
    file = tmp_path / "model.safetensors"
    out = () if "--out" in arguments else ("-o", file)
    assert part in error_of(trained("export", trained.runs[task], *out, *arguments), 2)
    assert not file.exists()


def test_what_a_file_cannot_do(trained, tmp_path):
    file = tmp_path / "model.safetensors"
    trained.ok("export", trained.runs["handwriting"], "-o", file)
    assert "must be of a task that writes text or draws images" in error_of(trained("sample", file), 2)
    assert "--prime-case must go with a run" in error_of(trained("write", file, "a", "--prime-case", 0), 2)
    assert "--data must go with a run" in error_of(trained("write", file, "a", "--data", tmp_path), 2)
    trained.ok("export", trained.runs["draw"], "-o", file)
    assert "--prompt must go with another task" in error_of(trained("sample", file, "--prompt", "a"), 2)
    trained.ok("export", trained.runs["char-lm"], "-o", file)
    assert "--count must go with another task" in error_of(trained("sample", file, "--count", 2), 2)
    trained.ok("export", trained.runs["skip-thoughts"], "-o", file)
    assert "--in must name the text" in error_of(trained("search", file, "a dog"), 2)
    assert "cannot read nothing: No such file" in error_of(trained("search", file, "a dog", "--in", "nothing"), 3)
    (tmp_path / "blank").write_text("\n \n")
    assert "no line to search" in error_of(trained("search", file, "a", "--in", tmp_path / "blank"), 3)
    assert "got task skip-thoughts" in error_of(trained("translate", file), 2)


def test_damaged_files_are_named(trained, tmp_path):
    file = tmp_path / "model.safetensors"
    trained.ok("export", trained.runs["char-lm"], "-o", file)
    whole = file.read_bytes()
    for damaged in (whole[:-1], whole[:5], b"", whole.replace(b"planish-model/1", b"planish-model/9")):
        file.write_bytes(damaged)
        assert str(file) in error_of(trained("sample", file), 1)
    text = tmp_path / "some.txt"
    text.write_text(LINES)
    assert str(text) in error_of(trained("sample", text), 1)


def rewritten(file, out, changes):
    """Writes an exported model whose settings are changed, without a checksum."""
    with safe_open(file, "np") as model:
        metadata = {key: value for key, value in model.metadata().items() if key != "planish.crc32"}
        tensors = {name: model.get_tensor(name) for name in model.keys()}  # noqa: SIM118
    config = json.loads(metadata["config"])
    config["settings"].update(changes)
    metadata["config"] = json.dumps(config)
    save_file(tensors, out, metadata)


# Settings that give models of at least 16 GB; some would take longer than the test's limit to draw.
HUGE = {
    "char-lm": {"hidden": 65536, "embedding": 65536},
    "enwik8": {"width": 65536, "inner": 1 << 20, "head_width": 65536, "memory": 1 << 20},
    "mt": {"width": 65536, "ffn": 1 << 20},
    "handwriting": {"hidden": 65536},
    "draw": {"hidden": 65536, "latents": 65536},
    "skip-thoughts": {"hidden": 65536, "words": 65536},
}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("use", ["file", "run"])
def test_settings_of_absurd_sizes_are_named_before_a_model_is_built(trained, task, use, tmp_path):
    source = trained.runs[task]
    for name, value in HUGE[task].items():
        if use == "file":
            changed = named = tmp_path / "huge.safetensors"
            trained.ok("export", source, "-o", tmp_path / "model.safetensors")
            rewritten(tmp_path / "model.safetensors", changed, {name: value})
        else:
            changed = tmp_path / name
            shutil.copytree(source, changed)
            named = changed / "config.json"
            config = json.loads(named.read_text())
            config["settings"][name] = value
            named.write_text(json.dumps(config))
        command = [part.format(changed) for part in USES[task]]
        start = time.monotonic()
        error = error_of(trained(*command, input=LINES), 3)
        assert time.monotonic() - start < 30, name
        assert re.search(rf"cannot read {named}: its settings give a larger model than the [\d,]+ weights that are "
                         rf"stored: {name} is {value}\n", error), error  # fmt: skip


def test_settings_that_fit_no_weights_are_named(trained, tmp_path):
    trained.ok("export", trained.runs["char-lm"], "-o", tmp_path / "model.safetensors")
    changed = tmp_path / "changed.safetensors"
    rewritten(tmp_path / "model.safetensors", changed, {})
    trained.ok("sample", changed, "--length", 3)
    rewritten(tmp_path / "model.safetensors", changed, {"hidden": 17})
    assert "must have type F32 and shape" in error_of(trained("sample", changed), 1)
    rewritten(tmp_path / "model.safetensors", changed, {"hidden": 10**9})
    assert "hidden must be " in error_of(trained("sample", changed), 1)


# The models of results/models. README.md there has their values.


@pytest.fixture
def models(planish):
    shutil.copytree(MODELS, planish.folder / "models")
    return planish


def test_the_model_of_characters_writes_words(models):
    text = models.ok("sample", "models/char-lm.safetensors", "--length", 1000, "--prompt", "KING:").stdout
    words = re.findall(r"\b[a-z]{4,}\b", text)
    known = {"that", "with", "have", "this", "shall", "your", "what", "thou", "they", "will", "from", "thee", "good"}
    assert len(words) > 60
    assert sum(word in known for word in words) > 5, text


def test_the_model_of_translation_translates(models):
    german = "Ein Mann spielt Gitarre.\nZwei Hunde laufen am Strand.\n"
    first, second = models("translate", "models/mt.safetensors", input=german).stdout.splitlines()
    assert "man" in first and "guitar" in first, first
    assert "dogs" in second and "beach" in second, second


def test_the_model_of_handwriting_writes(models):
    result = models.ok("write", "models/handwriting.safetensors", "hello", "--bias", 1)
    assert result.stderr == ""  # the pen has passed the text's last character
    assert result.stdout.startswith("<svg ")


def test_the_model_of_digits_draws_ink(models):
    assert models.ok("sample", "models/draw.safetensors", "--count", 3).stdout.startswith("<svg ")


def test_the_model_of_sentences_finds_a_sentence_itself(models):
    lines = ["He went home.", "The ship sank in the storm.", "She was very happy.", "It rained all day long."]
    (models.folder / "text").write_text("\n".join(lines))
    found = models.ok("search", "models/skip-thoughts.safetensors", lines[2], "--in", "text", "-n", 1).stdout
    assert found == f"1.0000\t3\t{lines[2]}\n"


@pytest.mark.long
def test_the_program_of_make_demo_uses_the_models(models):
    program = models.program.with_name("planish-models")
    files = {file.stem for file in MODELS.glob("*.safetensors")}
    assert files == USES.keys() - {"enwik8"}
    (models.folder / "text").write_text(LINES)
    for task in files:
        arguments = [argument.format(f"models/{task}.safetensors") for argument in USES[task]]
        german = "Ein Mann spielt Gitarre.\n" if task == "mt" else ""
        expected = models(*arguments, input=german)
        used = subprocess.run([program, *arguments], cwd=models.folder, text=True, input=german, capture_output=True)
        assert (used.returncode, used.stdout) == (0, expected.stdout), used.stderr


def test_the_models_are_small(models):
    sizes = [file.stat().st_size for file in MODELS.glob("*.safetensors")]
    assert len(sizes) == 5
    assert sum(sizes) < 8e6
