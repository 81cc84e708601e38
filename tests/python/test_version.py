"""One version: CMake's project, the built libraries, the command and the documents."""

import os
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
BUILD = pathlib.Path(os.environ.get("PLANISH_BUILD", "build/release"))


def first(pattern, path):
    return re.search(pattern, pathlib.Path(path).read_text())[1]


# pyproject.toml and the CMake package read this line.
VERSION = first(r"project\(planish VERSION ([0-9.]+)", ROOT / "CMakeLists.txt")
MAJOR, MINOR, PATCH = VERSION.split(".")


def test_python_package_reads_the_version_of_cmake():
    assert first(r"regex = '(.*)'", ROOT / "pyproject.toml") == r"project\(planish VERSION (?P<value>[0-9.]+)"


def test_header_has_the_version():
    header = BUILD / "include/planish/version.h"
    assert first(r'define PLANISH_VERSION "(.*)"', header) == VERSION
    parts = [first(rf"define PLANISH_VERSION_{part} (\d+)", header) for part in ("MAJOR", "MINOR", "PATCH")]
    assert parts == [MAJOR, MINOR, PATCH]
    assert first(r"define PLANISH_API \\\n +(\w+)", header) == f"v{MAJOR}_{MINOR}"


def test_command_has_the_version(shared):
    assert f"planish {VERSION}" in shared.ok("--version").stdout


def test_packages_have_the_version():
    assert first(r"(?m)^  version: (\S+)", ROOT / "packaging/conda/recipe.yaml") == VERSION
    assert first(r'"version": "(.*)"', ROOT / "packaging/vcpkg/vcpkg.json") == VERSION


def test_changelog_begins_with_the_version():
    """A section of unreleased changes can come first."""
    assert first(r"(?m)^## (?!Unreleased)(\S+)", ROOT / "CHANGELOG.md") == VERSION


def test_readme_finds_the_minor_version():
    assert first(r"find_package\(planish ([0-9.]+) REQUIRED", ROOT / "README.md") == f"{MAJOR}.{MINOR}"
