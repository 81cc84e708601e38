"""The Python package's requirements, for scikit-build-core (pyproject.toml, tool.dynamic-metadata).

A wheel works with the minor versions of PyTorch that it was built with, so its metadata requires them. They are the
version of the installed PyTorch and those of the libtorchs in the environment variable PLANISH_LIBTORCHS.
PLANISH_LIBTORCH names another libtorch to build with, for another processor.
"""

import importlib.util
import os
import pathlib
import re

MIN_MINOR, MAX_MINOR = 11, 15  # of PyTorch 2, as in cmake/PlanishTorch.cmake
SUPPORTED = f"torch>=2.{MIN_MINOR},<2.{MAX_MINOR + 1}"


def installed_libtorch() -> pathlib.Path:
    """Returns the folder of the PyTorch that CMake will find. Does not import it, which takes seconds."""
    if named := os.environ.get("PLANISH_LIBTORCH"):
        return pathlib.Path(named)
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise RuntimeError(
            "Planish is built with PyTorch, which is not installed here: install torch first, or "
            "leave out --no-build-isolation"
        )
    return pathlib.Path(spec.origin).parent


def minor_of(libtorch: pathlib.Path) -> int:
    """Returns the minor version that a libtorch's headers state."""
    for header in ("torch/headeronly/version.h", "torch/csrc/api/include/torch/version.h"):
        path = libtorch / "include" / header
        match = path.is_file() and re.search(r"define TORCH_VERSION_MINOR (\d+)", path.read_text(encoding="utf-8"))
        if match:
            return int(match[1])
    raise RuntimeError(f"{libtorch} must be a libtorch, but its headers state no version")


def requirement(minors: list[int]) -> str:
    """Returns the requirement of exactly these minor versions of PyTorch 2."""
    minors = sorted(set(minors))
    if len(minors) == 1:
        return f"torch==2.{minors[0]}.*"
    missing = [minor for minor in range(minors[0], minors[-1]) if minor not in minors]
    return f"torch>=2.{minors[0]},<2.{minors[-1] + 1}" + "".join(f",!=2.{minor}.*" for minor in missing)


class Provider:
    """A provider of dynamic metadata: the settings' dependencies, and PyTorch."""

    def build_state(self, build_state):
        if build_state == "sdist":
            self._torch = SUPPORTED
            return
        named = [folder for folder in os.environ.get("PLANISH_LIBTORCHS", "").split(";") if folder]
        self._torch = requirement([minor_of(pathlib.Path(folder)) for folder in [installed_libtorch(), *named]])

    def dynamic_wheel(self, settings):
        return {"dependencies": True}

    def dynamic_metadata(self, settings, project):
        return {"dependencies": [*settings["dependencies"], self._torch]}
