"""Usage errors, completion in shells, and the manual page: all from the commands' own definitions."""

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


# Prints what each shell offers for the last of the words "$@", one a line. zsh's own functions need a terminal:
# compadd and _files stand in for them, with the prefix that zsh would filter by.
DRIVERS = {
    "bash": (
        ("--norc",),
        '. ./planish.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _planish; '
        '[[ ${#COMPREPLY[@]} == 0 ]] || printf "%s\\n" "${COMPREPLY[@]}"',
    ),
    "zsh": (
        ("-f",),
        "compdef() {}; compset() {}; . ./planish.zsh; "
        'compadd() { local w; shift; for w; do [[ $w == "$cur"* ]] && print -r -- $w; done; :; }; '
        '_files() { local w; for w in *(N); do [[ $w == "$cur"* ]] && print -r -- $w; done; :; }; '
        'words=("$@"); CURRENT=$#; _planish',
    ),
    "fish": (("--no-config",), "source planish.fish; complete -C (string join ' ' -- $argv)"),
}


@pytest.fixture(scope="module", params=DRIVERS)
def complete(request, shared):
    name = request.param
    shell = shutil.which(name) or pytest.skip(f"{name} is not installed")
    (shared.folder / "files").mkdir(exist_ok=True)
    (shared.folder / "files/a folder").mkdir(exist_ok=True)
    (shared.folder / "files/afile").touch()
    (shared.folder / "files" / f"planish.{name}").write_text(shared.ok("completion", name).stdout)
    options, script = DRIVERS[name]

    def completions(*words):
        """Returns what the shell offers for the last of the words."""
        zeroth = () if name == "fish" else (name,)  # $0
        result = subprocess.run(
            [shell, *options, "-c", script, *zeroth, "planish", *words],
            cwd=shared.folder / "files", capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert result.stderr == ""
        return [line.split("\t")[0] for line in result.stdout.splitlines()]

    completions.shell = name
    return completions


def commands_of(shared):
    return re.findall(r"^  ([a-z]+) {2,}\S", shared.ok("--help").stdout.split("Subcommands:")[1], re.M)


def options_of(shared, *command):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", re.search(
        r"^(?:Options|OPTIONS):\n(.*?)(?:^\S|\Z)", shared.ok(*command, "--help").stdout, re.M | re.S
    ).group(1)))  # fmt: skip


def test_other_shells_are_refused(shared):
    assert_one_line(shared("completion", "csh"), 2, '[completion] SHELL must be one of bash, zsh, fish, got "csh"')
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
    assert set(complete("train", "")) == set(tasks)
    assert complete("list", "pi") == ["pi-mnist"]
    assert complete("reproduce", "x") == ["xu2019"]
    assert complete("train", "rt", "--device", "cu") == ["cuda"]
    assert complete("train", "rt", "--seeds", "") == []
    folder = "a folder/" if complete.shell == "fish" else "a folder"
    assert complete("train", "rt", "--data", "a") == complete("show", "a") == [folder, "afile"]
    if complete.shell == "bash":  # bash splits --data=a at the sign
        assert complete("train", "rt", "--data", "=", "a") == ["a folder", "afile"]
        assert complete("train", "rt", "--data", "=") == complete("train", "rt", "--data", "")
    else:
        found = complete("train", "rt", "--data=a")
        assert [name.removeprefix("--data=") for name in found] == [folder, "afile"]


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
