"""What the tests of the package share. They run against the planish that is found: installed, or in
the folder that PYTHONPATH names."""

import importlib.metadata
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]


def pytest_sessionstart():
    # A build may have had a libtorch of one's own. The repository has a folder torch, too.
    try:
        importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        pytest.exit("PyTorch is not installed: the Python package is not tested", returncode=0)


@pytest.fixture(scope="session")
def root():
    """The repository."""
    return ROOT


@pytest.fixture(autouse=True)
def seed():
    import torch  # not above: see pytest_sessionstart

    torch.manual_seed(1)


@pytest.fixture
def python(tmp_path):
    """Runs a program in an interpreter of its own, in a folder that is not the repository's."""

    def run(program, **environment):
        places = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        path = os.pathsep.join(os.path.abspath(place) for place in places if place)
        return subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path, env=os.environ | {"PYTHONPATH": path} | environment,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    return run
