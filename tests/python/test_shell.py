"""Usage errors, completion in shells, and the manual page: all from the commands' own definitions."""

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import termios
import time

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


# Shells on a terminal: the script is where the shell looks for it, and planish prints its arguments, one a line.
PRINTS = 'planish() { printf "%s\\n" "$@" > arguments.part; mv arguments.part arguments; }; '
TERMINALS = {
    "bash": ("planish.bash", ("--norc", "-i"), f". ./planish.bash; {PRINTS} PS1='ready> '"),
    "zsh": (
        "functions/_planish",
        ("-f", "-i"),
        f"fpath=($PWD/functions $fpath); autoload -Uz compinit; compinit -u -d dump; {PRINTS} PS1='ready> '",
    ),
    "zsh, sourced": (
        "planish.zsh",
        ("-f", "-i"),
        f"autoload -Uz compinit; compinit -u -d dump; . ./planish.zsh; {PRINTS} PS1='ready> '",
    ),
    "fish": (
        "fish/completions/planish.fish",
        ("--private", "-i"),
        "set -g fish_autosuggestion_enabled 0; function planish; printf '%s\\n' $argv > arguments.part; mv arguments.part arguments; end; "
        "function fish_prompt; echo 'ready> '; end",
    ),
}


class Terminal:
    """An interactive shell in `folder`, with its own configuration."""

    def __init__(self, folder, shell, options, start):
        self.folder, self.output = folder, b""
        environment = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "XDG_DATA_HOME": str(folder),
                       "PATH": os.environ["PATH"], "TERM": "xterm", "LC_ALL": "C.UTF-8"}  # fmt: skip
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execve(shell, [shell, *options], environment)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        self.type(start + "\r")
        # The prompt, which is not what was typed.
        self.wait(lambda: re.search(rb"(?m)(?<!')ready> (?!')", self.output))

    def type(self, keys):
        os.write(self.terminal, keys.encode())

    def wait(self, condition):
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, self.output.decode(errors="replace")
            if select.select([self.terminal], [], [], 0.05)[0]:
                self.output += os.read(self.terminal, 65536)

    def arguments(self, keys):
        """Types keys and Return. Returns the arguments that planish gets."""
        file = self.folder / "arguments"
        file.unlink(missing_ok=True)
        self.type(f"planish {keys}\r")
        self.wait(file.exists)
        return file.read_text().splitlines()

    def offers(self, keys, words):
        """Types keys and Tab twice. Returns what the terminal shows, without escapes, once it has the words."""
        before = len(self.output)

        def shown():
            return re.sub(r"\x1b[\[(][0-9;?]*[A-Za-z]", "", self.output[before:].decode(errors="replace"))

        self.type(f"planish {keys}\t\t")
        self.wait(lambda: all(word in shown() for word in words))
        self.type("\x15")  # Ctrl-U removes the line
        return shown()

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


@pytest.fixture(scope="module", params=TERMINALS)
def terminal(request, shared):
    name = request.param.split(",")[0]
    shell = shutil.which(name) or pytest.skip(f"{name} is not installed")
    script, options, start = TERMINALS[request.param]
    folder = shared.folder / f"terminal {request.param}"
    (folder / script).parent.mkdir(parents=True)
    (folder / script).write_text(shared.ok("completion", name).stdout)
    (folder / "a folder").mkdir()
    (folder / "onefile").touch()
    (folder / "other").touch()
    (folder / "one more").touch()
    terminal = Terminal(folder, shell, options, start)
    yield terminal
    terminal.close()


@pytest.mark.parametrize(
    "keys, arguments",
    [
        ("compl\t", ["completion"]),
        ("trai\trt --batch\t4 --dev\tcu\t", ["train", "rt", "--batch-size", "4", "--device", "cuda"]),
        ("list pi\t", ["list", "pi-mnist"]),
        ("make c\t", ["make", "cloze"]),
        ("reproduce x\t", ["reproduce", "xu2019"]),
        ("show onef\t", ["show", "onefile"]),
        ("show a\t", ["show", "a folder"]),
        ("train rt --data onef\t", ["train", "rt", "--data", "onefile"]),
        ("train rt --data=onef\t", ["train", "rt", "--data=onefile"]),
    ],
)
def test_a_shell_on_a_terminal_completes(terminal, keys, arguments):
    # zsh removes the slash of a folder again.
    assert [argument.removesuffix("/") for argument in terminal.arguments(keys)] == arguments


def test_a_shell_on_a_terminal_lists_completions(terminal, shared):
    of_s = [command for command in commands_of(shared) if command.startswith("s")]
    # fish draws earlier lines again.
    assert "downstream" not in terminal.offers("s", of_s)
    assert "other" not in terminal.offers("train rt --data one", ["onefile", "more"])


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
