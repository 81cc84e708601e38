"""The package finds its library, rejects one of another PyTorch, and reports errors."""

import doctest
import importlib
import importlib.util
import os
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
    module.name
    for module in pkgutil.walk_packages(planish.__path__, "planish.")
    if not module.name.startswith("planish.integrations.")  # tests/integrations imports these
]


def version_of_the_project(root):
    return re.search(r"project\(planish VERSION ([\d.]+)", (root / "CMakeLists.txt").read_text())[1]


MINOR = _library._minor(torch.__version__)
NAME = f"libplanish_torch-{MINOR}.so"


def package_with(folder, *names):
    """Makes a package's folder with libraries that cannot be loaded."""
    (folder / "lib").mkdir(parents=True)
    for name in names:
        (folder / "lib" / name).write_bytes(b"not a library")
    return str(folder)


def test_is_imported_from_any_folder(python, root):
    result = python(
        "import planish, torch; print(planish.__version__, torch.ops.planish.rnn_forward)"
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [version_of_the_project(root), "planish.rnn_forward"]


def test_refuses_the_libraries_of_other_pytorchs_before_loading_them(tmp_path, monkeypatch):
    monkeypatch.delenv("PLANISH_LIBRARY", raising=False)
    package = package_with(tmp_path, "libplanish_torch-2.9.so", "libplanish_torch-2.10.so")
    with pytest.raises(ImportError) as caught:
        _library.load([package])
    assert str(caught.value) == (
        f"[planish] this Planish was built for PyTorch 2.9, 2.10, but PyTorch {torch.__version__} is "
        f"installed: install torch==2.10.*, or build Planish with the installed PyTorch, in its "
        f"repository: pip install --no-build-isolation ."
    )


def test_a_library_of_another_pytorch_is_refused_by_its_name(python, tmp_path):
    other = tmp_path / "libplanish_torch-3.1.so"
    shutil.copy(LIBRARY, other)
    result = python("import planish", PLANISH_LIBRARY=str(other))
    assert result.stderr.splitlines()[-1].startswith(
        f"ImportError: [planish] this Planish was built for PyTorch 3.1, but PyTorch "
        f"{torch.__version__} is installed: install torch==3.1.*, or build Planish "
    )


def test_chooses_the_library_of_the_pytorch_in_use(tmp_path, monkeypatch):
    monkeypatch.delenv("PLANISH_LIBRARY", raising=False)
    package = package_with(
        tmp_path, "libplanish_torch-2.9.so", NAME, "libplanish.so.0.2", "libplanish_torch.so"
    )
    assert _library._find([package]) == tmp_path / "lib" / NAME
    assert list(_library.libraries([package])) == ["2.9", MINOR]


@pytest.fixture
def requirement(root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "scripts"))
    return importlib.import_module("torch_requirement")


def libtorch(folder, minor):
    """Makes a folder with the part of a libtorch that states its version."""
    header = folder / "include" / "torch" / "headeronly" / "version.h"
    header.parent.mkdir(parents=True)
    header.write_text(f"#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR {minor}\n")
    return str(folder)


@pytest.mark.parametrize("state", ["wheel", "editable", "metadata_wheel", "metadata_editable"])
def test_a_build_requires_the_minor_version_that_import_accepts(requirement, state, monkeypatch):
    monkeypatch.delenv("PLANISH_LIBTORCHS", raising=False)
    provider = requirement.Provider()
    provider.build_state(state)
    assert provider.dynamic_metadata({"dependencies": ["numpy>=1.26"]}, {}) == {
        "dependencies": ["numpy>=1.26", f"torch=={MINOR}.*"]
    }


def test_a_build_for_several_versions_requires_these(requirement, monkeypatch, tmp_path):
    minor = int(MINOR.partition(".")[2])
    folders = [libtorch(tmp_path / str(other), other) for other in (minor + 2, minor - 1)]
    monkeypatch.setenv("PLANISH_LIBTORCHS", ";".join(folders))
    provider = requirement.Provider()
    provider.build_state("wheel")
    required = provider.dynamic_metadata({"dependencies": []}, {})["dependencies"]
    assert required == [f"torch>=2.{minor - 1},<2.{minor + 3},!=2.{minor + 1}.*"]
    assert requirement.requirement([15, 11, 12, 14, 13]) == requirement.SUPPORTED


def test_a_folder_without_libtorch_is_refused(requirement, monkeypatch, tmp_path):
    monkeypatch.setenv("PLANISH_LIBTORCHS", str(tmp_path))
    with pytest.raises(RuntimeError, match="must be a libtorch, but its headers state no version"):
        requirement.Provider().build_state("wheel")


def test_sources_require_the_versions_that_cmake_accepts(requirement, root):
    provider = requirement.Provider()
    provider.build_state("sdist")
    required = provider.dynamic_metadata({"dependencies": []}, {})["dependencies"]
    cmake = (root / "cmake" / "PlanishTorch.cmake").read_text()
    least, above = re.findall(r"\(.*version VERSION_GREATER_EQUAL ([\d.]+)\)", cmake)
    assert required == [f"torch>={least},<{above}"]
    for name in ("pyproject.toml", "scripts/requirements-build.txt"):
        assert re.findall(r"torch[=<>][^\"\n]*", (root / name).read_text()) == required


@pytest.mark.parametrize(
    "versions, minor, chosen",
    [
        (["2.16.0+cpu", "2.15.0", "2.13.0+cpu", "2.13.1+cpu", "2.11.2+cpu"], None, "==2.13.1+cpu"),
        (["2.15.0", "2.13.0+cpu", "2.11.2+cpu"], 11, "==2.11.2+cpu"),
        (["2.15.0", "2.13.0+cpu", "2.11.0"], 11, "==2.11.*"),
        (["2.15.0+cu132", "2.10.0+cpu", "2.14.0a0+cpu"], None, ">=2.11,<2.16"),
        ([], None, ">=2.11,<2.16"),
    ],
)
def test_setup_takes_the_newest_build_for_cpus(requirement, versions, minor, chosen):
    newest = importlib.import_module("newest_torch")
    wanted = f"torch==2.{minor}.*" if minor else requirement.SUPPORTED
    assert newest.choose(versions, wanted) == f"torch{chosen}"


def test_a_build_without_pytorch_says_so(requirement, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="built with PyTorch, which is not installed here"):
        requirement.Provider().build_state("wheel")


def test_takes_operators_that_are_loaded_already(python, tmp_path):
    shutil.copy(LIBRARY, tmp_path / NAME)  # loading a second copy would abort
    result = python(
        f"import torch; torch.ops.load_library({str(LIBRARY)!r}); import planish; print('done')",
        PLANISH_LIBRARY=str(tmp_path / NAME),
    )
    assert result.stdout == "done\n", result.stderr


@pytest.mark.parametrize("name", ["none/" + NAME, "libplanish_torch.so"])
def test_says_that_the_library_named_is_missing(python, tmp_path, name):
    (tmp_path / "libplanish_torch.so").touch()  # a name without the version
    named = str(tmp_path / name)
    result = python("import planish", PLANISH_LIBRARY=named)
    assert result.stderr.splitlines()[-1] == (
        f"ImportError: [planish] PLANISH_LIBRARY must be the path of {NAME}, got {named}"
    )


def test_says_that_the_package_has_no_library(tmp_path, monkeypatch):
    monkeypatch.delenv("PLANISH_LIBRARY", raising=False)
    with pytest.raises(ImportError) as caught:
        _library.load([str(tmp_path / "first"), str(tmp_path / "second")])
    assert str(caught.value) == (
        f"[planish] cannot find {NAME} in {tmp_path}/first/lib, {tmp_path}/second/lib: install "
        f"Planish again, or set PLANISH_LIBRARY to the path of the library"
    )


def test_says_that_a_library_cannot_be_loaded(python, tmp_path):
    library = tmp_path / NAME
    library.write_bytes(b"not a library")
    message = python("import planish", PLANISH_LIBRARY=str(library)).stderr.splitlines()[-1]
    assert message.startswith(f"ImportError: [planish] {library} cannot be loaded (")
    assert message.endswith(
        "): install the Planish for this processor and system, or build Planish with the installed "
        "PyTorch, in its repository: pip install --no-build-isolation ."
    )


def test_looks_in_every_folder_of_the_package(tmp_path, monkeypatch):
    monkeypatch.delenv("PLANISH_LIBRARY", raising=False)
    folders = [str(tmp_path / "first"), package_with(tmp_path / "second", NAME)]
    assert _library._find(folders) == tmp_path / "second" / "lib" / NAME


def test_version_info_states_the_build_and_what_is_in_use(root):
    info = planish.version_info()
    assert info["version"] == planish.__version__ == version_of_the_project(root)
    assert re.match(r"(gcc|clang) \d+", info["compiler"])
    assert info["target"] in info["targets"].split()
    assert re.fullmatch(r"none|\d+\.\d+", info["cuda"])
    assert re.match(r"l1_bytes=\d+,l2_bytes=\d+,l3_bytes=\d+,l3_cores=\d+,slow_l3=[01]", info["tuning"])
    assert info["torch"] == torch.__version__
    assert MINOR in info["torch_served"].split()
    lines = str(info).splitlines()
    assert [line.split(maxsplit=1) for line in lines] == [list(fact) for fact in info.items()]


@pytest.mark.long
def test_version_info_follows_the_environment(python):
    program = "import planish; print(planish.version_info())"
    result = python(program, PLANISH_TARGET="SCALAR", PLANISH_TUNING="l2_bytes=3145728")
    assert re.search(r"^target +SCALAR$", result.stdout, re.M), result.stderr
    assert re.search(r"^tuning +.*\bl2_bytes=3145728,", result.stdout, re.M)
    result = python(program, PLANISH_TARGET="AVX7")  # importing planish raises no error
    assert result.stderr.splitlines()[-1].startswith("ValueError: [PLANISH_TARGET] target must be ")


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


@pytest.mark.long
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
    environment = {name: value for name, value in os.environ.items() if name != "PLANISH_LIBTORCHS"}
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps",
         "--wheel-dir", str(tmp_path), str(root)],
        env=environment, check=True,
    )  # fmt: skip
    version = version_of_the_project(root)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"planish-{version}-py3-none-linux_")
    check_wheel(root, wheel, [MINOR], [f"=={MINOR}.*"])


@pytest.mark.wheel
def test_the_wheel_for_all_versions_serves_them(root, tmp_path):
    version = version_of_the_project(root)
    wheels = list((root / "dist").glob(f"planish-{version}-py3-none-manylinux_2_28_*.whl"))
    if not wheels:
        pytest.skip("make wheel-all has built no wheel of this version")
    check_wheel(
        root, wheels[0], ["2.11", "2.12", "2.13", "2.14", "2.15"], [">=2.11", "<2.16"],
        {f"planish/lib/libplanish.so.{version.rpartition('.')[0]}"},
    )  # fmt: skip


def check_wheel(root, wheel, minors, requirement, others=frozenset()):
    """Checks the files and the requirements of a wheel, and what its libraries need of the system."""
    with zipfile.ZipFile(wheel) as archive:
        files = {file for file in archive.namelist() if not file.endswith("/")}
        (metadata,) = [archive.read(file).decode() for file in files if file.endswith("/METADATA")]
        libraries = {file: archive.read(file) for file in files if ".so" in file}
    sources = root / "torch" / "python"
    expected = {
        str(path.relative_to(sources))
        for path in (sources / "planish").rglob("*")
        if path.suffix == ".py" or path.name == "py.typed"
    }
    expected |= {f"planish/lib/libplanish_torch-{minor}.so" for minor in minors} | others
    highway = {"planish/lib/libhwy.so.1", "planish/lib/HIGHWAY-COPYRIGHT"}  # a shared libhwy is included
    assert {file for file in files if ".dist-info/" not in file} in (expected, expected | highway)
    lines = metadata.splitlines()
    assert f"Version: {version_of_the_project(root)}" in lines
    (required,) = [line for line in lines if line.startswith("Requires-Dist: torch")]
    assert set(required.removeprefix("Requires-Dist: torch").split(",")) == set(requirement)
    # manylinux_2_28, as PyTorch's own wheels.
    newest = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11)}
    for file, library in libraries.items():
        for name, version in re.findall(rb"\0(GLIBC|GLIBCXX|CXXABI)_([0-9.]+)(?=\0)", library):
            needed = tuple(int(part) for part in version.decode().split("."))
            assert needed <= newest[name.decode()], f"{file} needs {name.decode()}_{version.decode()}"


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
