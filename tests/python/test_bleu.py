"""The C++ BLEU equals sacrebleu's."""

import os
import pathlib
import random
import subprocess

import pytest
import sacrebleu
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

# Built by CMake in lab/tasks; PLANISH_BUILD names the build folder.
TOOL = pathlib.Path(os.environ["PLANISH_BUILD"]) / "lab" / "tasks" / "bleu_tool"

WORDS = (
    "the a dog's cat runs, sees 3.5 1,000 10-fold well-known (so) U.S. e.g. «nun» Bücher über €5 50% "
    "&quot;ja&quot; &amp; <b> a/b x_y #1 no! why? ... -- 7. ,8 9-, tab\tbed nb\u00a0sp th\u2009in 日本 【x】 \u0085 "
    "\u001c quote'd \"said\" [1] {2} ~ ` ^ $ @ * + = | \\ ; :"
).split(" ")


def sentences(seed, count):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randrange(0, 25))) for _ in range(count)]


def worse(lines, seed, share):
    """Returns the lines with a fraction of the words exchanged, dropped or doubled."""
    draw = random.Random(seed)
    result = []
    for line in lines:
        words = []
        for word in line.split(" "):
            kind = draw.random() / share
            words += [word] if kind >= 1 else draw.choice([[], [word, word], [draw.choice(WORDS)]])
        result.append(" ".join(words))
    return result


def bleu(folder, hypotheses, references):
    files = folder / "hypotheses", folder / "references"
    for file, lines in zip(files, (hypotheses, references), strict=True):
        file.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")
    run = subprocess.run([TOOL, *files], check=True, capture_output=True, text=True)
    return float(run.stdout)


def test_tokens_match_sacrebleu(tmp_path):
    lines = sentences(1, 2000)
    (tmp_path / "lines").write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")
    run = subprocess.run([TOOL, "--tokens", tmp_path / "lines"], check=True, capture_output=True)
    tokenize = Tokenizer13a()
    # Text mode and splitlines would split at more than line feeds.
    for ours, line in zip(run.stdout.decode().split("\n"), lines, strict=False):
        assert ours == tokenize(line.rstrip())


# Good, middling, and bad enough to lack matches of some order; then much too short and too long.
@pytest.mark.parametrize("share, count", [(0.1, 500), (0.4, 500), (0.95, 12)])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_score_matches_sacrebleu(tmp_path, seed, share, count):
    references = sentences(seed, count)
    hypotheses = worse(references, seed + 100, share)
    expected = sacrebleu.corpus_bleu(hypotheses, [references]).score
    # Both in double, summed in the same order: some roundings of values up to 100.
    assert bleu(tmp_path, hypotheses, references) == pytest.approx(expected, abs=1e-8)


def test_length(tmp_path):
    references = sentences(5, 200)
    for hypotheses in ([line[: len(line) // 2] for line in references], [line + " " + line for line in references]):
        expected = sacrebleu.corpus_bleu(hypotheses, [references]).score
        assert bleu(tmp_path, hypotheses, references) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize(
    "hypotheses, references",
    [(["a b c d"], ["w x y z"]), ([""], ["a b"]), (["a b"], ["a b"]), (["one."], ["one."]), (["a"], [""])],
)
def test_nothing_in_common_or_too_short(tmp_path, hypotheses, references):
    expected = sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert bleu(tmp_path, hypotheses, references) == pytest.approx(expected, abs=1e-8)
