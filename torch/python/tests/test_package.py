"""The package finds its library, rejects one of another PyTorch, and reports errors."""

import doctest
import importlib
import importlib.util
import json
import pathlib
import pkgutil
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
import torch

import planish
from planish import _library

LIBRARY = _library._find(planish.__path__)
MODULES = ["planish"] + [
    module.name for module in pkgutil.walk_packages(planish.__path__, "planish.")
]


def version_of_the_project(root):
    return re.search(r"project\(planish VERSION ([\d.]+)", (root / "CMakeLists.txt").read_text())[1]


def folder_with(tmp_path, library=b"", build=None):
    """Makes a folder with a library that cannot be loaded, and the file that describes it."""
    (tmp_path / "libplanish_torch.so").write_bytes(library)
    if build is not None:
        (tmp_path / "libplanish_torch.json").write_text(build)
    return str(tmp_path / "libplanish_torch.so")


def test_is_imported_from_any_folder(python, root):
    result = python(
        "import planish, torch; print(planish.__version__, torch.ops.planish.rnn_forward)"
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [version_of_the_project(root), "planish.rnn_forward"]


@pytest.mark.parametrize("version", ["2.9.1", "3.13.0"])
def test_refuses_the_library_of_another_pytorch_before_loading_it(python, tmp_path, version):
    # The library is empty: loading it would raise another error.
    build = json.dumps({"planish": "0.1.0", "torch": version})
    result = python("import planish", PLANISH_LIBRARY=folder_with(tmp_path, build=build))
    minor = version.rpartition(".")[0]
    assert result.stderr.splitlines()[-1] == (
        f"ImportError: [planish] Planish 0.1.0 was built with PyTorch {minor}, but PyTorch "
        f"{torch.__version__} is installed: install torch=={minor}.*, or build Planish with the "
        f"installed PyTorch, in its repository: pip install --no-build-isolation ."
    )


def test_takes_another_patch_of_the_same_pytorch(python, tmp_path):
    shutil.copy(LIBRARY, tmp_path / "libplanish_torch.so")
    minor = ".".join(torch.__version__.split(".")[:2])
    build = {"planish": "9.9", "torch": f"{minor}.99+other"}
    (tmp_path / "libplanish_torch.json").write_text(json.dumps(build))
    result = python(
        "import planish; print(planish.__version__)",
        PLANISH_LIBRARY=str(tmp_path / "libplanish_torch.so"),
    )
    assert result.stdout == "9.9\n", result.stderr


@pytest.fixture
def requirement(root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "scripts"))
    return importlib.import_module("torch_requirement").Provider()


@pytest.mark.parametrize("state", ["wheel", "editable", "metadata_wheel", "metadata_editable"])
def test_a_build_requires_the_minor_version_that_import_accepts(requirement, state):
    requirement.build_state(state)
    assert requirement.dynamic_metadata({"dependencies": ["numpy>=1.26"]}, {}) == {
        "dependencies": ["numpy>=1.26", f"torch=={_library._minor(torch.__version__)}.*"]
    }


def test_sources_require_the_versions_that_cmake_accepts(requirement, root):
    requirement.build_state("sdist")
    required = requirement.dynamic_metadata({"dependencies": []}, {})["dependencies"]
    cmake = (root / "cmake" / "PlanishTorch.cmake").read_text()
    least, above = re.findall(r"PLANISH_LIBTORCH_VERSION VERSION_GREATER_EQUAL ([\d.]+)", cmake)
    assert required == [f"torch>={least},<{above}"]


def test_a_build_without_pytorch_says_so(requirement, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="built with PyTorch, which is not installed here"):
        requirement.build_state("wheel")


def test_takes_operators_that_are_loaded_already(python, tmp_path):
    shutil.copy(LIBRARY, tmp_path / "libplanish_torch.so")  # loading a second copy would abort
    shutil.copy(LIBRARY.with_suffix(".json"), tmp_path / "libplanish_torch.json")
    result = python(
        f"import torch; torch.ops.load_library({str(LIBRARY)!r}); import planish; print('done')",
        PLANISH_LIBRARY=str(tmp_path / "libplanish_torch.so"),
    )
    assert result.stdout == "done\n", result.stderr


def test_says_that_the_library_named_is_missing(python, tmp_path):
    missing = str(tmp_path / "none.so")
    result = python("import planish", PLANISH_LIBRARY=missing)
    assert result.stderr.splitlines()[-1] == (
        f"ImportError: [planish] cannot find libplanish_torch.so at "
        f"{missing}: PLANISH_LIBRARY must be the path of the library"
    )


def test_says_that_the_package_has_no_library(tmp_path, monkeypatch):
    monkeypatch.delenv("PLANISH_LIBRARY", raising=False)
    with pytest.raises(ImportError) as caught:
        _library.load([str(tmp_path / "first"), str(tmp_path / "second")])
    assert str(caught.value) == (
        f"[planish] cannot find libplanish_torch.so at "
        f"{tmp_path}/first/lib/libplanish_torch.so, {tmp_path}/second/lib/libplanish_torch.so: "
        f"install Planish again, or set PLANISH_LIBRARY to the path of the library"
    )


@pytest.mark.parametrize("build", [None, "", "{}", "[]", '{"torch": "2.13.0"}'])
def test_a_library_without_its_description_is_refused(python, tmp_path, build):
    library = folder_with(tmp_path, build=build)
    result = python("import planish", PLANISH_LIBRARY=library)
    message = result.stderr.splitlines()[-1]
    assert message.startswith(
        f"ImportError: [planish] cannot read {library.removesuffix('.so')}.json, which contains "
        f"the PyTorch version that the library was built with ("
    )
    assert message.endswith("): build Planish again")


def test_says_that_a_library_cannot_be_loaded(python, tmp_path):
    build = json.dumps({"planish": "0.1.0", "torch": str(torch.__version__)})
    library = folder_with(tmp_path, b"not a library", build)
    result = python("import planish", PLANISH_LIBRARY=library)
    message = result.stderr.splitlines()[-1]
    assert message.startswith(f"ImportError: [planish] {library} cannot be loaded: ")


def test_looks_in_every_folder_of_the_package(tmp_path, monkeypatch):
    monkeypatch.delenv("PLANISH_LIBRARY", raising=False)
    (tmp_path / "second" / "lib").mkdir(parents=True)
    library = folder_with(tmp_path / "second" / "lib")
    folders = [str(tmp_path / "first"), str(tmp_path / "second")]
    assert _library._find(folders) == pathlib.Path(library)


def test_names_in_all_exist():
    for name in MODULES:
        module = importlib.import_module(name)
        for offered in getattr(module, "__all__", []):
            assert hasattr(module, offered), f"{name}.{offered}"


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_docstrings_run(name):
    module = importlib.import_module(name)
    failures, _ = doctest.testmod(module)
    assert failures == 0


def test_examples_of_the_documentation_run(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (root / "docs" / "python.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    names = {}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)


def test_type_hints_hold_and_are_seen_by_users(root, mypy_errors, tmp_path):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    assert (root / "torch/python/planish/py.typed").exists()
    user = tmp_path / "user.py"
    user.write_text(
        "from typing_extensions import assert_type\n"
        "import planish\n"
        "from torch import Tensor, ones, zeros\n"
        "from torch.nn.utils.rnn import PackedSequence\n"
        "lstm = planish.nn.LayerNormLSTM(3, 4, variant='haste')\n"
        "packed = PackedSequence(zeros(1, 3), ones(1))\n"
        "states = (zeros(1, 1, 4), zeros(1, 1, 4))\n"
        "assert_type(lstm.forward(zeros(1, 2, 3)), tuple[Tensor, tuple[Tensor, Tensor]])\n"
        "assert_type(lstm.forward(packed, states), tuple[PackedSequence, tuple[Tensor, Tensor]])\n"
        "assert_type(planish.nn.LayerNormGRUCell(3, 4).forward(zeros(3)), Tensor)\n"
        "planish.nn.LayerNormGRU(3, 4, checkpoints=True)\n"
    )
    errors = mypy_errors("torch/python/planish", user)
    assert len(errors) == 1, errors
    assert 'user.py:11: error: Unexpected keyword argument "checkpoints"' in errors[0]


@pytest.mark.wheel
def test_a_wheel_has_the_package_and_its_library(root, tmp_path):
    if importlib.util.find_spec("scikit_build_core") is None:
        pytest.skip("scikit-build-core is not installed")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps",
         "--wheel-dir", str(tmp_path), str(root)],
        check=True,
    )  # fmt: skip
    version = version_of_the_project(root)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"planish-{version}-py3-none-linux_")
    with zipfile.ZipFile(wheel) as archive:
        files = set(archive.namelist())
        metadata = archive.read(f"planish-{version}.dist-info/METADATA").decode()
        build = json.loads(archive.read("planish/lib/libplanish_torch.json"))
    sources = root / "torch" / "python"
    expected = {
        str(path.relative_to(sources))
        for path in (sources / "planish").rglob("*")
        if path.suffix == ".py" or path.name == "py.typed"
    }
    expected |= {"planish/lib/libplanish_torch.so", "planish/lib/libplanish_torch.json"}
    highway = {"planish/lib/libhwy.so.1", "planish/lib/HIGHWAY-COPYRIGHT"}  # a shared libhwy is included
    assert {file for file in files if ".dist-info/" not in file} in (expected, expected | highway)
    assert build == {"planish": version, "torch": torch.__version__.partition("+")[0]}
    lines = metadata.splitlines()
    assert f"Version: {version}" in lines
    minor = _library._minor(torch.__version__)
    assert [line for line in lines if "torch" in line and line.startswith("Requires-Dist: ")] == [
        f"Requires-Dist: torch=={minor}.*"
    ]


def test_freed_memory_is_kept(python):
    program = """
import resource, torch, planish
norm, x = planish.nn.LayerNorm(1024), torch.randn(4096, 1024)
def faults():
    norm(x).sum().item()  # y is 16 MB, 4096 pages
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5): norm(x)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
with torch.no_grad():
    torch.set_num_threads(1)
    by_default, _ = faults(), planish.keep_freed_memory()
    print(by_default, min(faults() for _ in range(3)))
"""
    result = python(program)
    assert result.returncode == 0, result.stderr
    by_default, kept = map(int, result.stdout.split())
    # Five times 4,096 faults if memory is returned to the system. The minimum of three tries is
    # compared, because a system that is short of memory takes pages from any process. Huge pages
    # can make the first count small.
    assert kept < 100 or kept <= by_default
