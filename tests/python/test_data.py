"""Data that planish must refuse, or read correctly, in whatever form: exit statuses and messages.
"""

import bz2
import gzip
import json
import lzma
import os
import resource
import zipfile

import numpy as np
import pytest

TEXT = b"round and round the ragged rock\n" * 100
SENTENCES = ("train", "rt", "--preset", "smoke", "--norm", "none", "--threads", 1, "--quiet")
CHARACTERS = ("train", "char-lm", "--preset", "smoke", "--threads", 1, "--quiet")
BYTES = ("train", "enwik8", "--preset", "smoke", "--norm", "layer", "--threads", 1, "--quiet")
CONLLU = (
    "# sent_id = 1\n# text = Cats sleep .\n1\tCats\tcat\tNOUN\tNNS\t_\t2\tnsubj\t_\t_\n"
    "2\tsleep\tsleep\tVERB\tVBP\t_\t0\troot\t_\t_\n3\t.\t.\tPUNCT\t.\t_\t2\tpunct\t_\t_\n\n"
)


def assert_refused(planish, arguments, *parts):
    result = planish(*arguments)
    assert result.returncode == 3, result.stderr
    assert result.stderr.startswith("planish: ") and result.stderr.count("\n") == 1, result.stderr
    for part in parts:
        assert part in result.stderr, result.stderr
    assert result.stderr.isprintable() or result.stderr[:-1].isprintable(), ascii(result.stderr)
    assert not list(planish.folder.glob("runs/*/*/config.json"))


def data_of(planish):
    """Returns the data of the only run's config, and removes the run."""
    (config,) = planish.folder.glob("runs/*/*/config.json")
    data = json.loads(config.read_text())["data"]
    for file in sorted(config.parent.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    config.parent.rmdir()
    return data


def write_packed(folder):
    folder.mkdir()
    with zipfile.ZipFile(folder / "enwik8.zip", "w") as archive:
        archive.writestr("enwik8", TEXT)
    (folder / "enwik8.bz2").write_bytes(bz2.compress(TEXT))
    (folder / "enwik8.xz").write_bytes(lzma.compress(TEXT))
    (folder / "enwik8.md5").write_text("a1fa5ffddb56f4953e226637dabbb36a  enwik8\n")


@pytest.mark.parametrize(
    "name, what",
    [
        ("enwik8.zip", "a zip archive"),
        ("enwik8.bz2", "a bzip2 file"),
        ("enwik8.xz", "an xz file"),
        ("enwik8.md5", "name it with --data"),
    ],
)
def test_a_folder_with_an_archive_alone_is_not_trained_on(planish, name, what):
    write_packed(planish.folder / "packed")
    (planish.folder / "alone").mkdir()
    (planish.folder / "packed" / name).rename(planish.folder / "alone" / name)
    assert_refused(planish, (*BYTES, "--data", "alone"), "alone has no file enwik8", name, what)


@pytest.mark.parametrize("task", [BYTES, CHARACTERS])
@pytest.mark.parametrize(
    "name, what", [("enwik8.zip", "a zip archive"), ("enwik8.bz2", "a bzip2 file"), ("enwik8.xz", "an xz file")]
)
def test_an_archive_is_refused_whatever_its_name(planish, task, name, what):
    write_packed(planish.folder / "packed")
    for path in (planish.folder / "packed" / name, planish.folder / "text"):
        assert_refused(planish, (*task, "--data", path), f"{path}: it is {what}", "unpack it first")
        path.rename(planish.folder / "text")


@pytest.mark.parametrize("task", [BYTES, CHARACTERS])
def test_gzip_is_read_under_any_name(planish, task):
    packed = gzip.compress(TEXT)
    hashes = set()
    for name, content in (("a", TEXT), ("b", packed), ("c.txt.gz", packed), ("d", packed + bytes(512))):
        (planish.folder / name).write_bytes(content)
        planish.ok(*task, "--data", name)
        hashes.add(data_of(planish)["sha256"])
    assert len(hashes) == 1
    (planish.folder / "e.gz").write_bytes(b"\x1e" + packed[1:])
    assert_refused(planish, (*task, "--data", "e.gz"), "e.gz: its name is that of a gzip file")


def test_a_byte_order_mark_is_no_word(planish):
    """The parser and the reviews read the same content with and without it."""
    lines = {"pos": "good film .\n" * 20, "neg": "bad film .\n" * 20}
    for mark in ("", "\ufeff"):
        folder = planish.folder / f"data{len(mark)}"
        folder.mkdir()
        for name, text in lines.items():
            (folder / f"rt-polarity.{name}").write_text(mark + text, encoding="utf-8")
        for part in ("train", "dev", "test"):
            (folder / f"x-{part}.conllu").write_text(mark + 20 * CONLLU, encoding="utf-8")
    for task in ("rt", "parser"):
        seen = []
        for folder in ("data0", "data1"):
            planish.ok("train", task, "--preset", "smoke", "--norm", "none", "--threads", 1, "--quiet", "--data", folder)
            data = data_of(planish)
            seen.append((data["sha256"], data["sizes"], data["description"].replace(folder, "")))
        assert seen[0] == seen[1]


def test_other_encodings_are_refused(planish):
    for encoding in ("utf-16", "utf-32"):
        for name in ("rt-polarity.pos", "rt-polarity.neg", "text"):
            (planish.folder / name).write_bytes("good film\n".encode(encoding) * 100)
        what = f"it is in {encoding.upper()}: convert it to UTF-8"
        assert_refused(planish, (*SENTENCES, "--data", "."), "rt-polarity.pos", what)
        assert_refused(planish, (*CHARACTERS, "--data", "text"), "text", what)


@pytest.mark.parametrize("task", [BYTES, CHARACTERS, SENTENCES, ("train", "pi-mnist", "--quiet")])
def test_devices_and_pipes_are_refused(planish, task):
    os.mkfifo(planish.folder / "pipe")
    for path in ("/dev/zero", "pipe"):
        result = planish(*task, "--data", path)
        assert result.returncode == 3, result.stderr
        assert path in result.stderr


def test_pipes_in_a_data_folder_are_refused(planish):
    os.mkfifo(planish.folder / "rt-polarity.pos")
    (planish.folder / "rt-polarity.neg").write_text("bad\n")
    assert_refused(planish, (*SENTENCES, "--data", "."), "rt-polarity.pos: it is a device or pipe")


def test_a_data_path_that_is_not_utf8_is_refused(planish):
    folder = os.fsencode(planish.folder) + b"/d\xff"
    os.mkdir(folder)
    with open(folder + b"/input.txt", "wb") as file:
        file.write(TEXT)
    assert_refused(planish, (*CHARACTERS, "--data", os.fsdecode(folder)), "d\\xff", "UTF-8")
    planish.environment["PLANISH_DATA"] = os.fsdecode(folder)
    assert_refused(planish, CHARACTERS, "d\\xff", "UTF-8")


def test_quoted_data_are_escaped(planish):
    (planish.folder / "stsa.fine.train").write_bytes(b"\x1b[31mred\x07 film\n")
    for part in ("dev", "test"):
        (planish.folder / f"stsa.fine.{part}").write_bytes(b"0 bad\n")
    task = ("train", "sst5", "--preset", "smoke", "--quiet", "--data", ".")
    assert_refused(planish, task, './stsa.fine.train, line 1: ', '"\\x1b[31mred\\x07"')
    assert_refused(planish, (*CHARACTERS, "--data", "\x1b[31m"), "\\x1b[31m")


def test_a_line_of_200_megabytes_is_refused_in_little_memory(planish):
    with gzip.open(planish.folder / "rt-polarity.pos", "wb", compresslevel=1) as file:
        for _ in range(200):
            file.write(b"x" * 1_000_000)
    (planish.folder / "rt-polarity.neg").write_text("bad\n")
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert_refused(planish, (*SENTENCES, "--data", "."), "line 1 is longer than 16,777,216 bytes")
    # Kilobytes; the program with libtorch alone takes up to 300 MB.
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < max(before, 500_000)


def test_too_little_memory_for_the_data_names_the_file(planish):
    with open(planish.folder / "text", "wb") as file:
        file.truncate(3 << 30)
    limit = lambda: resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))
    result = planish(*BYTES, "--data", "text", "--set", "bytes=4000000000", preexec_fn=limit)
    assert result.returncode == 3, result.stderr
    assert result.stderr == "planish: cannot read text: not enough memory\n"


def test_other_dtypes_beside_the_wanted_tensor_are_skipped(planish):
    safetensors = pytest.importorskip("safetensors.torch")
    torch = pytest.importorskip("torch")
    (planish.folder / "custrev.all").write_text("".join(f"{i % 2} word {i}\n" for i in range(40)))
    vectors = torch.from_numpy(np.random.default_rng(1).normal(size=(40, 4)).astype(np.float32))
    judge = ("downstream", "vectors.safetensors", "--data", ".", "--folds", 2, "--inner", 2, "--json")
    file = planish.folder / "vectors.safetensors"
    safetensors.save_file({"cr": vectors}, file)
    expected = planish.ok(*judge).stdout
    others = {
        "u16": torch.zeros(3, dtype=torch.uint16),
        "u64": torch.zeros(3, dtype=torch.uint64),
        "f8": torch.zeros(5, dtype=torch.float8_e4m3fn),
        "f8_5": torch.zeros(5, dtype=torch.float8_e5m2),
    }
    safetensors.save_file({"cr": vectors} | others, file)
    assert planish.ok(*judge).stdout == expected
    safetensors.save_file({"cr": vectors.to(torch.uint16)} | others, file)
    assert_refused(planish, judge, "vectors.safetensors", "cr is U16 with 2 dimensions; F32 or F64")


@pytest.mark.parametrize(
    "task", ["rt", "pi-mnist", "parser", "handwriting", "skip-thoughts", "order-embedding", "images"]
)
def test_archives_and_pipes_are_refused_by_tasks_that_read_folders(planish, task):
    train = ("train", task, "--preset", "smoke", "--threads", 1, "--quiet")
    with zipfile.ZipFile(planish.folder / "data.zip", "w") as archive:
        archive.writestr("text", TEXT)
    assert_refused(planish, (*train, "--data", "data.zip"), "data.zip: it is a zip archive", "unpack it first (unzip)")
    (planish.folder / "data.xz").write_bytes(lzma.compress(TEXT))
    assert_refused(planish, (*train, "--data", "data.xz"), "data.xz: it is an xz file")
    os.mkfifo(planish.folder / "pipe")
    assert_refused(planish, (*train, "--data", "pipe"), "pipe: it is a device or pipe, not a regular file")
    (planish.folder / "file").write_bytes(TEXT)
    assert_refused(planish, (*train, "--data", "file"), "file")
