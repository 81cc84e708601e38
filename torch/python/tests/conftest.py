"""What the tests of the package share. They run against the planish that is found: installed, or in
the folder that PYTHONPATH names."""

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
    """The repository."""
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
