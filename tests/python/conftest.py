"""The planish command for the tests: PLANISH_BUILD names CMake's build folder."""

import os
import pathlib
import signal
import subprocess

import pytest


class Command:
    """Runs planish in its own folder, without the caller's settings."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        unset = {"PLANISH_DATA", "NO_COLOR", "CI", "COLUMNS"}
        self.environment = {key: value for key, value in os.environ.items() if key not in unset}
        self.environment["XDG_CACHE_HOME"] = str(folder / "cache")

    def __call__(self, *arguments, **options):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
        return subprocess.run(
            [self.program, *map(str, arguments)],
            cwd=self.folder, env=self.environment, timeout=300, check=False, **options,
        )  # fmt: skip

    def start(self, *arguments):
        """Starts planish and returns the process; its output is not read before it has ended."""
        return subprocess.Popen(
            [self.program, *map(str, arguments)],
            cwd=self.folder, env=self.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            # A shell's background jobs, or nohup, and their children would ignore these signals.
            preexec_fn=lambda: [signal.signal(s, signal.SIG_DFL) for s in (signal.SIGINT, signal.SIGHUP)],
        )  # fmt: skip

    def ok(self, *arguments):
        result = self(*arguments)
        assert result.returncode == 0, result.stderr
        return result


@pytest.fixture(scope="session")
def program():
    if "PLANISH_BUILD" not in os.environ:
        pytest.skip("PLANISH_BUILD is not set")
    return (pathlib.Path(os.environ["PLANISH_BUILD"]) / "planish").resolve()


@pytest.fixture
def planish(program, tmp_path):
    return Command(program, tmp_path)


@pytest.fixture(scope="module")
def shared(program, tmp_path_factory):
    """Command whose folder the tests of a module share: they only read it."""
    return Command(program, tmp_path_factory.mktemp("shared"))
