"""The files that the comparisons' reports write: CSV tables, and sections of docs/performance.md and its pages."""

import csv
import importlib.util
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench" / "base"))
import tables  # noqa: E402

MARKS = "<!-- from -->", "<!-- to -->"
REPORT = """The machine.

#### LayerNorm, 1 thread: share

|    width | time |             ratio |
| -------: | ---: | ----------------: |
|    1,024 |  .97 | **.81** (>= 1.00) |
| 8, 8, 16 |    - |   **1.2** (<= 1) (.5) |

#### It's another

|  a |
| -: |
|  1 |

1 of 2 figures with a target reach it. Missed:
- LayerNorm, 1,024: .81 for 1.00"""


@pytest.fixture
def docs(tmp_path):
    (tmp_path / "performance").mkdir()
    marks = "\n".join([*MARKS, "<!-- cuda norms: made by bench/cuda -->", "<!-- cuda norms: end -->",
                       "<!-- cuda recurrent layers: made by bench/cuda -->", "<!-- cuda recurrent layers: end -->"])  # fmt: skip
    for page in ("performance.md", "performance/some.md", "performance/cuda.md"):
        (tmp_path / page).write_text(f"before\n{marks}\nafter\n")
    return tmp_path


def rows(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def test_tables_become_csv_files_without_emphasis_targets_and_commas(docs):
    (docs / "performance" / "some-stale.csv").write_text("a\n")
    tables.publish(docs, "some", MARKS, REPORT, lambda found: f"{len(found)} tables")
    first = docs / "performance" / "some-layernorm-1-thread-share.csv"
    assert rows(first) == [["width", "time", "ratio"], ["1024", ".97", ".81"], ["8, 8, 16", "", "1.2 (.5)"]]
    assert rows(docs / "performance" / "some-its-another.csv") == [["a"], ["1"]]
    assert not (docs / "performance" / "some-stale.csv").exists()


def test_pages_get_links_missed_figures_and_the_summary(docs):
    tables.publish(docs, "some", MARKS, REPORT, lambda found: f"{len(found)} tables")
    page = (docs / "performance" / "some.md").read_text()
    assert page.startswith(f"before\n{MARKS[0]}\nThe machine.\n\n- [LayerNorm, 1 thread: share](some-layernorm")
    assert "Missed:\n\n- LayerNorm, 1,024: .81 for 1.00\n<!-- to -->" in page
    summary = (docs / "performance.md").read_text()
    assert "2 tables\n\n1 of 2 figures with a target reach it. [Both tables](performance/some.md).\n<!-- to -->" in summary


def test_report_of_the_gpu_fills_both_sections(docs):
    spec = importlib.util.spec_from_file_location("cuda_report", ROOT / "bench" / "cuda" / "report.py")
    report = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(report)
    about = {"gpu": "a GPU", "multiprocessors": 1, "torch": "2", "cuda": "12", "planish": "c"}
    norm = {"norm": "layer", "mode": "forward", "type": "float", "rows": 4, "cols": 8, "bytes": 1e6, "wrong": {},
            "seconds": {"planish": 2e-6, "copy": 1e-6, "eager": 4e-6}}  # fmt: skip
    layer = {"cell": "ln_lstm", "mode": "forward", "type": "float", "shape": [1024, 16, 768], "wrong": {},
             "seconds": {"planish": 1e-2, "composed": 1e-1}}  # fmt: skip
    report.write({"about": about, "results": [norm, {**norm, "rows": 8}, layer]}, docs)
    text = re.sub(" +", " ", (docs / "performance.md").read_text())
    assert "| layer, forward, float | .50 | 2.00 |" in text
    assert "ln_lstm" not in text
    page = re.sub(" +", " ", (docs / "performance" / "cuda.md").read_text())
    assert "| ln_lstm, forward | 1024 x 16 x 768 | float |" in page
    found = rows(docs / "performance" / "cuda-norms-layer-forward-float.csv")
    assert [row[0] for row in found] == ["shape", "4 x 8", "8 x 8"]
    assert (docs / "performance" / "cuda-recurrent-ln-lstm-forward.csv").exists()
