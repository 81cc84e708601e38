"""Tables are read as Python's csv and json read them."""

import csv
import gzip
import io
import json
import os
import pathlib
import random
import subprocess

import pytest

# Built by CMake in lab/data; PLANISH_BUILD names the build folder.
TOOL = pathlib.Path(os.environ["PLANISH_BUILD"]) / "lab" / "data" / "table_tool"
PIECES = (
    "a", "film", " ", '"', '""', ",", "\t", "\n", "\r\n", "é", "日本", "\u00a0", "\u0085", "\u2028", "0", "-1.5", "\\",
    "'",
)  # fmt: skip
# A tab or line end cannot be in a field of TSV.
TSV_PIECES = tuple(piece for piece in PIECES if not set(piece) & set("\t\n\r"))


def read(file, header=True):
    """Returns the columns, the rows' lines and the rows."""
    result = subprocess.run([TOOL, file, str(int(header))], capture_output=True, text=True, check=True)
    columns, *rows = (json.loads(line) for line in result.stdout.split("\n")[:-1])
    return columns, [line for line, _ in rows], [fields for _, fields in rows]


def field(draw, pieces):
    return "".join(draw.choices(pieces, k=draw.randrange(0, 8)))


def write(file, text, draw):
    """Writes a text with or without a byte order mark, plain or gzip."""
    data = (draw.choice(["", "\ufeff"]) + text).encode()
    file.write_bytes(gzip.compress(data) if file.suffix == ".gz" else data)


@pytest.mark.parametrize("seed", range(30))
def test_csv(tmp_path, seed):
    draw = random.Random(seed)
    width, end = draw.randrange(2, 6), draw.choice(["\n", "\r\n"])
    out = io.StringIO(newline="")
    quoting = draw.choice([csv.QUOTE_ALL, csv.QUOTE_MINIMAL])
    writer = csv.writer(out, lineterminator=end, quoting=quoting)
    columns = [f"{i}{field(draw, PIECES)}" for i in range(width)]
    rows = [[field(draw, PIECES) for _ in range(width)] for _ in range(draw.randrange(1, 30))]
    writer.writerow(columns)
    for row in rows:
        out.write(end * draw.choice([0, 0, 1, 2]))  # empty lines
        writer.writerow(row)
    text = out.getvalue()
    file = tmp_path / draw.choice(["a.csv", "a.csv.gz", "A.CSV"])
    write(file, text, draw)
    reader = csv.reader(io.StringIO(text, newline=""))
    expected = [row for row in reader if row]
    assert expected == [columns, *rows]
    assert read(file)[::2] == (columns, rows)
    assert read(file, header=False)[::2] == ([str(i + 1) for i in range(width)], expected)


def test_quotes_within_a_field_are_characters(tmp_path):
    """As in csv.reader, which is not strict."""
    text = 'a,b\n5" pipe,x"y"\n "no quote" , z\n'
    (tmp_path / "a.csv").write_text(text)
    assert read(tmp_path / "a.csv")[2] == list(csv.reader(io.StringIO(text)))[1:]


@pytest.mark.parametrize("seed", range(10))
def test_tsv(tmp_path, seed):
    draw = random.Random(seed)
    width, end = draw.randrange(2, 6), draw.choice(["\n", "\r\n"])
    columns = [f"{i}{field(draw, TSV_PIECES)}" for i in range(width)]
    rows = [[field(draw, TSV_PIECES) for _ in range(width)] for _ in range(draw.randrange(1, 30))]
    text = end.join("\t".join(row) for row in [columns, *rows]) + end
    file = tmp_path / draw.choice(["a.tsv", "a.tsv.gz"])
    write(file, text, draw)
    assert read(file)[::2] == (columns, rows)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter="\t", quoting=csv.QUOTE_NONE)
    assert list(reader) == [columns, *rows]


@pytest.mark.parametrize("seed", range(10))
def test_json_lines(tmp_path, seed):
    draw = random.Random(seed)
    keys = [f"{i}{field(draw, PIECES)}" for i in range(4)]
    values = ["", "film", 0, -3, 12345678901234567, 1.5, True, False, None, [1], {"a": 1}]
    objects = []
    for _ in range(draw.randrange(1, 30)):
        chosen = draw.sample(keys, k=draw.randrange(1, 5))
        objects.append({key: draw.choice([*values, field(draw, PIECES)]) for key in chosen})
    end = draw.choice(["\n", "\r\n"])
    lines = [json.dumps(o, ensure_ascii=draw.choice([True, False])) for o in objects]
    text = "".join(line + end + draw.choice(["", end]) for line in lines)
    file = tmp_path / draw.choice(["a.jsonl", "a.jsonl.gz"])
    write(file, text, draw)
    columns, _, rows = read(file)
    assert columns == list(dict.fromkeys(key for o in objects for key in o))

    def text_of(value):
        return value if isinstance(value, str) else json.dumps(value) if isinstance(value, (bool, int, float)) else None

    assert rows == [[text_of(o.get(column)) for column in columns] for o in objects]


def test_rows_have_the_number_of_their_first_line(tmp_path):
    (tmp_path / "a.csv").write_bytes(b'\r\na,b\r\n\r\n1,"x\r\ny\n\nz"\r\n2,y\r\n\n3,z')
    assert read(tmp_path / "a.csv")[1:] == ([4, 8, 10], [["1", "x\r\ny\n\nz"], ["2", "y"], ["3", "z"]])
