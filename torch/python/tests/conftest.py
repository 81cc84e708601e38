"""Common parts of the package's tests, which test the planish that Python finds.

PYTHONPATH selects another one.
"""

import hashlib
import os
import pathlib
import subprocess
import sys

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def root():
    """The root folder of the repository."""
    return ROOT


@pytest.fixture(scope="session", autouse=True)
def compiled_anew():
    """Keeps PyTorch from loading code that it compiled for another build of the operators."""
    import planish

    library = planish._library._find(planish.__path__).read_bytes()
    torch.compiler.config.cache_key_tag = hashlib.sha256(library).hexdigest()


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


@pytest.fixture
def python(tmp_path):
    """Runs a program in a new interpreter, outside of the repository."""

    def run(program, **environment):
        places = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        path = os.pathsep.join(os.path.abspath(place) for place in places if place)
        return subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path, env=os.environ | {"PYTHONPATH": path} | environment,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    return run


@pytest.fixture
def mypy_errors(root, tmp_path):
    """Returns the errors that mypy finds in paths of the repository or of programs."""

    def run(*paths):
        result = subprocess.run(
            [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path), "--no-pretty",
             *map(str, paths)],
            cwd=root, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        return [line for line in result.stdout.splitlines() if ": error: " in line]

    return run
