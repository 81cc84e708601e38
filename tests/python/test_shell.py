"""Usage errors, completion in bash, and the manual page: all from the commands' own definitions."""

import re
import shutil
import subprocess

import pytest
from test_command import assert_one_line


def test_planish_alone_prints_the_usage(shared):
    assert shared.ok().stdout == shared.ok("--help").stdout
    assert shared().stderr == ""


@pytest.mark.parametrize(
    "arguments, text",
    [
        (("trian",), 'got "trian"; did you mean train? (see planish --help)'),
        (("xyzzy",), 'got "xyzzy" (see planish --help)'),
        (("make", "clozee"), 'got "clozee"; did you mean cloze? (see planish make --help)'),
        (("--versoin",), "[planish] unknown option --versoin; did you mean --version? (see planish --help)"),
        (("train", "rt", "--batchsize=4"), "[train] unknown option --batchsize=4; did you mean --batch-size? (see"),
        (("train", "rt", "--check"), "unknown option --check; did you mean --checkpoint-seconds?"),
        (("train", "--nrom", "layer"), "[train] unknown option --nrom; did you mean --norm?"),
        (("train", "rt", "--zz", "--sedes", "1", "x"), "unexpected arguments --zz --sedes 1 x; did you mean --seeds?"),
        (("train", "rt", "x", "y"), "[train] unexpected arguments x y (see planish train --help)"),
        (("train", "rt", "x"), "[train] unexpected argument x (see planish train --help)"),
        (("train", "rt", "--norm"), "[train] --norm must have a value (see"),
        (("train", "rt", "--preset", "a", "--preset", "b"), "[train] --preset must be given once, got 2 values"),
        (("train", "rt", "--" + "a" * 10000), "unknown option --aaa"),
    ],
)
def test_usage_errors_are_plain_and_suggest(shared, arguments, text):
    result = shared(*arguments)
    assert_one_line(result, 2, text)
    assert not re.search(r"CLI|std::|exception|required TEXT|At Most", result.stderr)


# Completion.


@pytest.fixture(scope="module")
def complete(shared):
    bash = shutil.which("bash") or pytest.skip("bash is not installed")
    script = shared.folder / "planish.bash"
    script.write_text(shared.ok("completion", "bash").stdout)
    (shared.folder / "a folder").mkdir()
    (shared.folder / "afile").touch()

    def completions(*words):
        """Returns what bash offers for the last of the words."""
        text = (
            '. ./planish.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _planish; '
            '[[ ${#COMPREPLY[@]} == 0 ]] || printf "%s\\n" "${COMPREPLY[@]}"'
        )
        result = subprocess.run(
            [bash, "--norc", "-c", text, "bash", "planish", *words],
            cwd=shared.folder, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert result.stderr == ""
        return result.stdout.splitlines()

    completions.folder = shared.folder
    return completions


def commands_of(shared):
    return re.findall(r"^  ([a-z]+) {2,}\S", shared.ok("--help").stdout.split("Subcommands:")[1], re.M)


def options_of(shared, *command):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", re.search(
        r"^(?:Options|OPTIONS):\n(.*?)(?:^\S|\Z)", shared.ok(*command, "--help").stdout, re.M | re.S
    ).group(1)))  # fmt: skip


def test_bash_is_a_shell_and_others_are_refused(shared):
    assert_one_line(shared("completion", "fish"), 2, '[completion] SHELL must be bash, got "fish"')
    assert_one_line(shared("completion"), 2, "SHELL is required")


def test_commands_complete(complete, shared):
    commands = commands_of(shared)
    assert {"train", "show", "diff", "completion", "man"} <= set(commands)
    assert set(complete("")) == set(commands)
    assert set(complete("s")) == {c for c in commands if c.startswith("s")}
    assert complete("make", "c") == ["cloze"]
    assert complete("xyz") == []


def test_options_of_every_command_complete(complete, shared):
    for command in commands_of(shared):
        if command in ("bench", "make", "analyze"):  # bench is another program; the others have subcommands
            continue
        found = set(complete(command, "--"))
        assert {option for option in options_of(shared, command) if option != "--help"} <= found, command
        assert "--help" in found
    assert complete("train", "rt", "--batch") == ["--batch-size"]
    assert "--stride" in complete("make", "cloze", "--s")


def test_values_complete(complete, shared):
    tasks = re.findall(r"^([a-z][a-z0-9-]*) +\S", shared.ok("list").stdout, re.M)
    assert complete("train", "") == tasks
    assert complete("list", "pi") == ["pi-mnist"]
    assert complete("reproduce", "x") == ["xu2019"]
    assert complete("train", "rt", "--device", "cu") == ["cuda"]
    assert complete("train", "rt", "--seeds", "") == []
    assert complete("train", "rt", "--data", "a") == complete("show", "a") == ["a folder", "afile"]
    # bash splits --data=a at the sign.
    assert complete("train", "rt", "--data", "=", "a") == ["a folder", "afile"]
    assert complete("train", "rt", "--data", "=") == complete("train", "rt", "--data", "")


# Manual page.


def test_man_has_every_command_and_option(shared):
    text = shared.ok("man").stdout
    sections = re.findall(r"^\.SS planish\\? (.*)$", text, re.M)
    for command in commands_of(shared):
        assert command in sections
        section = text.split(f".SS planish {command}\n")[1].split("\n.S")[0].replace("\\-", "-")
        for option in options_of(shared, command) if command != "bench" else ():
            assert option in section, (command, option)
    assert "make cloze" in sections
    assert text.split(".SH EXIT STATUS")[1].count("\n  ") >= 6


def test_groff_formats_the_page_without_a_warning(shared):
    groff = shutil.which("groff") or pytest.skip("groff is not installed")
    page = shared.folder / "planish.1"
    page.write_text(shared.ok("man").stdout)
    result = subprocess.run([groff, "-man", "-Tutf8", "-ww", "-P-c", page], capture_output=True, text=True, check=True)
    assert result.stderr == ""
    text = re.sub(r".\x08", "", result.stdout)
    assert re.search(r"NAME\n +planish +- train and compare", text)
    assert "planish train pi-mnist --preset small" in text
    assert "'planish COMMAND --help' shows the options of a command." in text
