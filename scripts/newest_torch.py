"""Prints what pip is to install as PyTorch: the newest version that Planish supports, of the CPU builds if there are any.

    newest_torch.py [MINOR]

CPU builds take a tenth of the space. MINOR restricts the choice to PyTorch 2.MINOR. PIP_ARGS has more arguments for
pip: an index of CPU-only wheels, a mirror.
"""

import os
import re
import shlex
import subprocess
import sys

import torch_requirement


def choose(versions: list[str], requirement: str) -> str:
    """Returns a requirement of the newest of the versions that is a CPU build, or ``requirement`` if none is."""
    match = re.fullmatch(r"torch==2\.(\d+)\.\*", requirement)
    minors = [int(match[1])] if match else range(torch_requirement.MIN_MINOR, torch_requirement.MAX_MINOR + 1)
    found = [re.fullmatch(r"2\.(\d+)\.(\d+)\+cpu", version) for version in versions]
    builds = [(int(build[1]), int(build[2])) for build in found if build and int(build[1]) in minors]
    if not builds:
        return requirement
    return "torch==2.{}.{}+cpu".format(*max(builds))


def available() -> list[str]:
    """Returns the versions that pip finds: none without a network, which installing then reports."""
    command = [sys.executable, "-m", "pip", "index", "versions", "torch", "--disable-pip-version-check",
               *shlex.split(os.environ.get("PIP_ARGS", ""))]  # fmt: skip
    listed = subprocess.run(command, check=False, capture_output=True, text=True).stdout
    match = re.search(r"^Available versions: (.*)$", listed, re.MULTILINE)
    return match[1].split(", ") if match else []


def main() -> None:
    requirement = f"torch==2.{int(sys.argv[1])}.*" if len(sys.argv) > 1 else torch_requirement.SUPPORTED
    print(choose(available(), requirement))


if __name__ == "__main__":
    main()
