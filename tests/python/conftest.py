"""The planish command for the tests: PLANISH_BUILD names CMake's build folder."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile

import pytest

TIMEOUT = 300  # seconds


class Server:
    """Runs planish as children of one process, lab/testing/server.cc: they start in a tenth of the time."""

    def __init__(self, program, environment):
        self.program, self.environment, self.process = program, environment, None

    def run(self, arguments, folder, variables, text_input):
        if self.process is None:
            self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.process = subprocess.Popen([self.program], stdin=theirs, env=self.environment)
            theirs.close()
            self.socket.settimeout(TIMEOUT)
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            stdin.write(text_input.encode())
            stdin.seek(0)
            parts = [folder, len(arguments), *arguments, *(f"{key}={value}" for key, value in variables.items())]
            message = b"".join(os.fsencode(str(part)) + b"\0" for part in parts)
            streams = [stream.fileno() for stream in (stdin, stdout, stderr)]
            socket.send_fds(self.socket, [message], streams)
            try:
                status = self.socket.recv(4)
            except TimeoutError:
                self.close()
                raise subprocess.TimeoutExpired(arguments, TIMEOUT) from None
            assert len(status) == 4, "planish-server has ended"
            stdout.seek(0)
            stderr.seek(0)
            code = os.waitstatus_to_exitcode(int.from_bytes(status, sys.byteorder))
            return subprocess.CompletedProcess(arguments, code, stdout.read().decode(), stderr.read().decode())

    def close(self):
        if self.process is not None:
            self.socket.close()
            self.process.kill()
            self.process.wait()
            self.process = None


class Command:
    """Runs planish in its own folder, without the caller's settings."""

    def __init__(self, program, folder, server):
        self.program, self.folder, self.server = program, folder, server
        self.environment = server.environment | {"XDG_CACHE_HOME": str(folder / "cache")}

    def __call__(self, *arguments, **options):
        """Runs planish, in the server if nothing but its input differs from other calls."""
        variables = {key: value for key, value in self.environment.items() if self.server.environment.get(key) != value}
        if variables.keys() == {"XDG_CACHE_HOME"} and options.keys() <= {"input"}:
            return self.server.run([str(a) for a in arguments], self.folder, variables, options.get("input", ""))
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
        return subprocess.run(
            [self.program, *map(str, arguments)],
            cwd=self.folder, env=self.environment, timeout=TIMEOUT, check=False, **options,
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


@pytest.fixture(scope="session")
def server(program):
    unset = {"PLANISH_DATA", "NO_COLOR", "CI", "COLUMNS"}
    environment = {key: value for key, value in os.environ.items() if key not in unset}
    server = Server(program.with_name("planish-server"), environment)
    yield server
    server.close()


@pytest.fixture
def planish(program, tmp_path, server):
    return Command(program, tmp_path, server)


@pytest.fixture(scope="module")
def shared(program, tmp_path_factory, server):
    """Command whose folder the tests of a module share: they only read it."""
    return Command(program, tmp_path_factory.mktemp("shared"), server)
