"""planish bench: what it prints, and its errors."""

import json
import re

import pytest

pytestmark = pytest.mark.long  # planish-bench and its kernels are built for the long tests only

BENCH = ("bench", "--threads", 1, "--shapes", "8x64,3x1", "--methods", "layer,detach", "--quiet")


@pytest.mark.parametrize("dtype", ["float", "double", "bfloat16", "float16"])
def test_bench_as_json(shared, dtype):
    lines = [json.loads(line) for line in shared.ok(*BENCH, "--type", dtype, "--json").stdout.splitlines()]
    assert [(r["rows"], r["cols"], r["direction"], r["norm"]) for r in lines] == [
        (*shape, direction, norm)
        for shape in ((8, 64), (3, 1)) for direction in ("forward", "backward") for norm in ("layer", "detach")
    ]  # fmt: skip
    size = {"float": 4, "double": 8}.get(dtype, 2)
    for r in lines:
        moved = (2 if r["direction"] == "forward" else 3) * r["rows"] * r["cols"] * size
        assert r["seconds"] > 0 and r["limit_seconds"] > 0 and r["type"] == dtype and r["threads"] == 1
        assert r["gigabytes_per_second"] == pytest.approx(moved / r["seconds"] / 1e9)
        assert r["share_of_limit"] == pytest.approx(r["limit_seconds"] / r["seconds"])
        assert (r["pytorch_seconds"] is None) == (r["norm"] == "detach" or r["cols"] == 1 and wrong_in_torch(r))


def wrong_in_torch(result):
    """PyTorch's dgain of rows of one element is not 0, but a rounding error."""
    return result["direction"] == "backward"


def test_bench_as_a_table(shared):
    result = shared.ok(*BENCH)
    assert result.stderr == ""
    number = r" +\d+\.\d+"
    images = shared.ok("bench", "--methods", "batch", "--shapes", "4x8x16", "--quiet").stdout
    assert re.search(rf"^batch +4x8x16{number * 2} +-{number * 2} +-$", images, re.M), images
    row = rf"^layer +8x64{number * 6}$"
    assert re.search(row, result.stdout, re.M), result.stdout
    assert re.search(rf"^detach +8x64{number * 2} +-{number * 2} +-$", result.stdout, re.M), result.stdout
    assert max(map(len, result.stdout.splitlines()[2:])) <= 100


@pytest.mark.parametrize(
    "arguments, part",
    [
        (("bench", "--methods", "lyaer"), "layer"),
        (("bench", "--methods", "layer,layer"), "repetitions"),
        (("bench", "--shapes", "4096"), "ROWSxCOLS"),
        (("bench", "--shapes", "0x5"), "ROWSxCOLS"),
        (("bench", "--shapes", "9999999999x9999999999"), "at most"),
        (("bench", "--shapes", "8x64x3"), "for layer"),
        (("bench", "--type", "half"), "bfloat16"),
        (("bench", "--threads", "0"), "from 1 to 1024"),
    ],
)
def test_wrong_usage(shared, arguments, part):
    result = shared(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("planish: [bench] ") and part in result.stderr
    assert result.stderr.count("\n") == 1


def test_help(shared):
    text = shared.ok("bench", "--help").stdout
    assert re.search(r"^Example:\n  planish bench", text, re.M)
    assert max(map(len, text.splitlines())) <= 100
