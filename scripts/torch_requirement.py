"""Tells scikit-build-core what the Python package requires (pyproject.toml, tool.dynamic-metadata).

A wheel works with the minor version of PyTorch that it was built with, so its metadata requires that one.
"""

import importlib.util
import pathlib
import re

SUPPORTED = "torch>=2.11,<2.16"


def installed_version() -> str:
    """Returns the version of the PyTorch that CMake will find. Does not import it, which takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise RuntimeError(
            "Planish is built with PyTorch, which is not installed here: install torch first, or "
            "leave out --no-build-isolation"
        )
    text = pathlib.Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    match = re.search(r"^__version__ = '(\d+\.\d+)\.", text, re.MULTILINE)
    if match is None:
        raise RuntimeError(f"torch/version.py must state a version, got: {text}")
    return match[1]


class Provider:
    """A provider of dynamic metadata: the settings' dependencies, and PyTorch."""

    def build_state(self, build_state):
        self._torch = SUPPORTED if build_state == "sdist" else f"torch=={installed_version()}.*"

    def dynamic_wheel(self, settings):
        return {"dependencies": True}

    def dynamic_metadata(self, settings, project):
        return {"dependencies": [*settings["dependencies"], self._torch]}
