"""Usage errors."""

import re

import pytest
from test_command import assert_one_line


def test_planish_alone_prints_the_usage(shared):
    assert shared.ok().stdout == shared.ok("--help").stdout
    assert shared().stderr == ""


@pytest.mark.parametrize(
    "arguments, text",
    [
        (("trian",), 'got "trian"; did you mean train? (see planish --help)'),
        (("xyzzy",), 'got "xyzzy" (see planish --help)'),
        (("make", "clozee"), 'got "clozee"; did you mean cloze? (see planish make --help)'),
        (("--versoin",), "[planish] unknown option --versoin; did you mean --version? (see planish --help)"),
        (("train", "rt", "--batchsize=4"), "[train] unknown option --batchsize=4; did you mean --batch-size? (see"),
        (("train", "rt", "--check"), "unknown option --check; did you mean --checkpoint-seconds?"),
        (("train", "--nrom", "layer"), "[train] unknown option --nrom; did you mean --norm?"),
        (("train", "rt", "--zz", "--sedes", "1", "x"), "unexpected arguments --zz --sedes 1 x; did you mean --seeds?"),
        (("train", "rt", "x", "y"), "[train] unexpected arguments x y (see planish train --help)"),
        (("train", "rt", "x"), "[train] unexpected argument x (see planish train --help)"),
        (("train", "rt", "--norm"), "[train] --norm must have a value (see"),
        (("train", "rt", "--preset", "a", "--preset", "b"), "[train] --preset must be given once, got 2 values"),
        (("train", "rt", "--" + "a" * 10000), "unknown option --aaa"),
    ],
)
def test_usage_errors_are_plain_and_suggest(shared, arguments, text):
    result = shared(*arguments)
    assert_one_line(result, 2, text)
    assert not re.search(r"CLI|std::|exception|required TEXT|At Most", result.stderr)
