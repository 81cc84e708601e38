"""Downloads what linking needs of each PyTorch that Planish supports: headers, libtorch_cpu.so and libc10.so.

    libtorchs.py FOLDER [MACHINE]

Prints their folders (FOLDER/2.11, ...) separated by semicolons, without the version that is installed. With a MACHINE
such as aarch64 they are for that kind of processor, and complete. Folders that exist are not downloaded again. PIP_ARGS
has more arguments for pip: an index of CPU-only wheels, a mirror.
"""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile

import torch_requirement

LIBRARIES = ("torch/lib/libtorch_cpu.so", "torch/lib/libc10.so")


def download(minor: int, libtorch: pathlib.Path, machine: str | None) -> None:
    libtorch.parent.mkdir(parents=True, exist_ok=True)
    # Beside the result, because wheels are too large for some systems' /tmp.
    with tempfile.TemporaryDirectory(dir=libtorch.parent) as folder:
        # Any Python's wheel will do: a version of PyTorch need not have one for this Python.
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                   "--only-binary=:all:", "--python-version=3.12", "--dest", folder,
                   *([f"--platform=manylinux_2_28_{machine}"] if machine else []),
                   *shlex.split(os.environ.get("PIP_ARGS", "")), f"torch==2.{minor}.*"]  # fmt: skip
        if subprocess.run(command, check=False).returncode != 0:
            sys.exit(
                f"libtorchs.py: cannot download torch==2.{minor}.*: PIP_ARGS can name another index or a mirror; "
                f"or put a libtorch of that version into {libtorch}"
            )
        (wheel,) = pathlib.Path(folder).glob("torch-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.startswith("torch/include/") or name in LIBRARIES]
            archive.extractall(folder, names)
        shutil.move(pathlib.Path(folder) / "torch", libtorch)


def main() -> None:
    folder = pathlib.Path(sys.argv[1]).resolve()
    machine = sys.argv[2] if len(sys.argv) > 2 else None
    installed = None if machine else torch_requirement.minor_of(torch_requirement.installed_libtorch())
    supported = range(torch_requirement.MIN_MINOR, torch_requirement.MAX_MINOR + 1)
    libtorchs = {minor: folder / f"2.{minor}" for minor in supported if minor != installed}
    for minor, libtorch in libtorchs.items():
        if not libtorch.exists():
            print(f"libtorchs.py: downloading PyTorch 2.{minor}", file=sys.stderr)
            download(minor, libtorch, machine)
    print(";".join(map(str, libtorchs.values())))


if __name__ == "__main__":
    main()
