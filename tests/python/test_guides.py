"""The documents: their commands and programs run, their links and paths exist, their constants are in the sources."""

import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
IGNORED = {"build", "build-docs", "dist", "runs", ".venv", ".venv-docs"}
# scripts/site/ has pages only of the documentation site, which are checked when it is built.
PAGES = sorted(page for page in ROOT.rglob("*.md")
               if page.relative_to(ROOT).parts[0] not in IGNORED and page.parent.name != "site")  # fmt: skip
# Their blocks run from the first to the last, in one folder.
RUN = sorted([ROOT / "README.md", ROOT / "docs" / "lab.md", *(ROOT / "docs").glob("guides/*.md"), *(ROOT / "docs").glob("tasks/*.md")])
# Blocks of commands that tests do not run, by page and first line, and the reasons.
BUILDS = "builds the repository, or changes the system it runs on"
NETWORK = "needs the network; installs into the Python in use"
NOT_RUN = {
    ("README.md", "make demo"): BUILDS,
    ("docs/guides/add-a-norm.md", "cmake --build --preset release"): BUILDS,
    ("docs/guides/install.md", "pip install --no-build-isolation ."): NETWORK,
    ("docs/guides/install.md", "pip install scikit-build-core==1.1.2"): NETWORK,
    ("docs/guides/install.md", "pip install ."): NETWORK,
    ("docs/guides/install.md", "make wheel"): BUILDS,
    ("docs/guides/install.md", "make core && cmake --install build/core --prefix PREFIX"): BUILDS,
    ("docs/guides/other-languages.md", "cc -std=c99 main.c $(pkg-config --cflags --libs planish) -o main"):
        "needs an installed library; tests/install/pkg_config.cmake compiles with pkg-config",
    ("docs/guides/reproduce.md", "planish reproduce xu2019 --data DIR"): "takes hours, and the papers' data",
    ("docs/guides/reproduce.md", "planish reproduce xu2019 --data DIR --until-decided --hours 12"):
        "takes hours, and the papers' data",
}  # fmt: skip
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
PATH = re.compile(r"(?:bench|cmake|docs|examples|include|lab|scripts|src|tests|torch)/[\w./+-]*\w")


def named(page):
    return str(page.relative_to(ROOT))


def blocks(page, language):
    return [body for tag, body in FENCE.findall(page.read_text()) if tag == language]


def having(language):
    """Pages with programs in a language. Those of single tasks, which are alike, take long."""
    pages = [page for page in RUN if blocks(page, language)]
    marks = {page: [pytest.mark.long] if page.parent.name == "tasks" else [] for page in pages}
    return pytest.mark.parametrize("page", [pytest.param(p, id=named(p), marks=marks[p]) for p in pages])


def prose(page):
    return FENCE.sub("", page.read_text())


def anchors(page):
    """The anchors of the headings, as GitHub and MkDocs name them."""
    found, counts = set(), collections.Counter()
    for title in re.findall(r"^#+ (.*)$", prose(page), re.M):
        slug = re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
        found.add(slug + (f"-{counts[slug]}" if counts[slug] else ""))
        counts[slug] += 1
    return found


def build_folder():
    if "PLANISH_BUILD" not in os.environ:
        pytest.skip("PLANISH_BUILD is not set")
    return pathlib.Path(os.environ["PLANISH_BUILD"]).resolve()


def test_blocks_of_guides_run_or_are_listed():
    pages = [page for page in RUN if page.parent.name == "guides" or page.name == "README.md"]
    first = [(named(page), re.split(r"\n|  +", body)[0]) for page in pages for body in blocks(page, "text")]
    assert sorted(first) == sorted(NOT_RUN)
    tags = {tag for page in pages for tag, _ in FENCE.findall(page.read_text())}
    assert tags <= {"c", "cpp", "python", "sh", "text"}


@having("sh")
def test_commands_run(page, planish):
    environment = planish.environment | {
        "PATH": f"{planish.program.parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}  # fmt: skip
    for block in blocks(page, "sh"):
        result = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block], cwd=planish.folder, env=environment,
            capture_output=True, text=True, timeout=600, check=False)  # fmt: skip
        assert result.returncode == 0, block + result.stdout + result.stderr


@having("python")
def test_python_programs_run(page, tmp_path):
    package = build_folder() / "python"
    environment = os.environ | {"PYTHONPATH": str(package), "OMP_NUM_THREADS": "1"}
    probe = subprocess.run([sys.executable, "-c", "import planish"], env=environment, capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip("planish cannot be imported: " + probe.stderr.strip().splitlines()[-1])
    result = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks(page, "python"))], cwd=tmp_path, env=environment,
        capture_output=True, text=True, timeout=600, check=False)  # fmt: skip
    assert result.returncode == 0, result.stderr


@having("cpp")
def test_cpp_programs_run(page, tmp_path):
    build = build_folder()
    libraries = [build / "src" / "libplanish.a"]
    compiler = shutil.which("g++")
    if not compiler or not all(library.exists() for library in libraries):
        pytest.skip("there is no g++ or no built core")
    for block in blocks(page, "cpp"):
        (tmp_path / "main.cc").write_text(block)
        subprocess.run(
            [compiler, "-std=c++20", f"-I{ROOT}/include", f"-I{build}/include", "main.cc", *libraries, "-lhwy", "-pthread",
             "-o", "main"], cwd=tmp_path, check=True, timeout=600)  # fmt: skip
        printed = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True, timeout=60).stdout
        for expected in re.findall(r"printf\(.*\);  // (.*)$", block, re.M):
            assert printed.split() == expected.split()


@having("c")
def test_c_programs_run(page, tmp_path):
    build = build_folder()
    library, compiler = build / "src" / "libplanish.so", shutil.which("gcc")
    if not compiler or not library.exists():
        pytest.skip("there is no gcc or no built shared library")
    for block in blocks(page, "c"):
        (tmp_path / "main.c").write_text(block)
        subprocess.run(
            [compiler, "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include", f"-I{build}/include", "main.c",
             library, f"-Wl,-rpath,{library.parent}", "-o", "main"], cwd=tmp_path, check=True, timeout=60)  # fmt: skip
        printed = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True, timeout=60).stdout
        expected = re.findall(r"printf\(.*\);  // (.*)$", block, re.M)
        assert expected and printed.split() == " ".join(expected).split()


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_resolve(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        to = (page.parent / path).resolve() if path else page
        assert to.exists(), target
        if anchor and to.suffix == ".md":
            assert anchor in anchors(to), target


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=named)
def test_paths_exist(page):
    for text in re.findall(r"`([^`\n]+)`", prose(page)):
        if PATH.fullmatch(text.rstrip("/")):
            assert (ROOT / text).exists(), text


def test_constants_are_in_the_files_that_tuning_names():
    rows = [line.split("|") for line in (ROOT / "docs" / "tuning.md").read_text().splitlines() if line.startswith("| `")]
    assert rows
    for row in rows:
        source = "".join((ROOT / file).read_text() for file in re.findall(r"`([^`]+)`", row[2]))
        for name in re.findall(r"`([^`]+)`", row[1]):
            assert re.search(rf"\b{name.rpartition('::')[2]}\b", source), name


def test_names_of_functions_in_design_are_in_the_sources():
    sources = [path for folder in ("include", "src", "torch", "lab") for path in (ROOT / folder).rglob("*")
               if path.suffix in {".h", ".cc", ".cu", ".py"}]  # fmt: skip
    known = set(re.findall(r"\w+", "\n".join(path.read_text() for path in sources)))
    for page in ("design.md", "design-lab.md", "cuda.md", "tuning.md"):
        for text in re.findall(r"`([A-Za-z_]\w*(?:::\w+)*)`", prose(ROOT / "docs" / page)):
            name = text.rpartition("::")[2]
            if re.fullmatch(r"k?[A-Z][a-z]\w*[A-Z]\w*", name):  # CamelCase: one of ours
                assert name in known, text
