"""docs/tuning.md has a row for each tuning constant and each field of Tuning, and no others."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
BEGIN = "// --- Tuning constants (docs/tuning.md) ---\n"
END = "// --- End of tuning constants ---\n"


def constants(text):
    """The constants, and the constexpr functions, that are declared in the blocks of a source."""
    assert text.count(BEGIN) == text.count(END) <= 1
    if BEGIN not in text:
        return set()
    block = text[text.index(BEGIN) : text.index(END)]
    code = re.sub(r"//.*", "", block)
    return set(re.findall(r"\b(k[A-Z]\w*)\s*=[^=]", code)) | set(re.findall(r"^constexpr \w+ ([A-Z]\w*)\(", code, re.M))


def declared():
    found = {}
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix in {".h", ".cc", ".cu"}:
            names = constants(path.read_text())
            if names:
                found[str(path.relative_to(ROOT))] = names
    return found


def fields():
    text = (ROOT / "src/base/tuning.h").read_text()
    structs = re.findall(r"^struct (?:Caches|Tuning : Caches) {\n(.*?)^};", text, re.M | re.S)
    assert len(structs) == 2
    return {name for body in structs for name in re.findall(r"^  (?:int64_t|bool) (\w+)[ ;]", body, re.M)}


def rows():
    lines = (ROOT / "docs/tuning.md").read_text().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]


def test_a_file_has_at_most_ten_constants():
    files = declared()
    assert len(files) > 20
    for file, names in files.items():
        assert len(names) <= 10, (file, names)


def test_each_constant_and_field_has_one_row_and_each_row_one_of_them():
    expected = [(file, name) for file, names in declared().items() for name in names]
    expected += [("src/base/tuning.h", name) for name in fields()]
    documented = []
    for names, file, *_ in rows():
        documented += [(file.strip("`"), name) for name in re.findall(r"`(\w+)`", names)]
    assert sorted(documented) == sorted(expected)


def test_each_row_has_a_unit():
    for row in rows():
        assert len(row) == 5 and row[2] and row[3], row


def test_there_are_no_checks_of_a_vendor():
    for path in (ROOT / "src").rglob("*"):
        if path.suffix in {".h", ".cc"}:
            assert "__builtin_cpu_is" not in path.read_text(), path
