"""Folders and files that this user must not write, or that another user could have written."""

import os
import pathlib
import shutil
import stat
import subprocess
import tempfile

import pytest
from test_command import ONE, assert_one_line

NOBODY = 65534
RUN = "runs/pi-mnist/smoke-none-b128-s1"


class User:
    """Runs planish in a folder of its own as a user whom permissions bind: nobody if the tests run as root."""

    def __init__(self, planish, folder):
        self.folder, self.planish = folder, planish
        self.options = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}

    def __call__(self, *arguments):
        places = {"HOME": str(self.folder), "XDG_CACHE_HOME": str(self.folder / "cache")}
        environment = self.planish.environment | places
        return subprocess.run(
            [self.planish.program, *map(str, arguments)], cwd=self.folder, env=environment, timeout=300,
            capture_output=True, text=True, check=False, **self.options,
        )  # fmt: skip


@pytest.fixture
def user(planish):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="planish-permissions-"))
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    user = User(planish, folder)
    try:
        if user("--version").returncode != 0:
            pytest.skip("nobody must not run the command here")
    except PermissionError:
        pytest.skip("nobody must not run the command here")
    yield user
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(folder)


def read_only(path):
    path.chmod(0o555 if path.is_dir() else 0o444)


@pytest.mark.parametrize(
    ("made", "refused"),
    [
        (["runs"], "runs/pi-mnist"),
        (["runs", "runs/pi-mnist"], RUN),
        (["runs", "runs/pi-mnist", RUN], f"{RUN}/.lock"),
    ],
)
def test_a_new_run_where_nothing_can_be_written(user, made, refused):
    for name in made:
        (user.folder / name).mkdir()
    read_only(user.folder / made[-1])
    assert_one_line(user(*ONE, "--quiet"), 1, f"cannot write {refused}: Permission denied")
    assert sorted(str(p.relative_to(user.folder)) for p in user.folder.rglob("runs/**/*")) == made[1:]


@pytest.mark.parametrize("part", ["", ".lock", "checkpoint"])
def test_a_run_that_cannot_be_continued_stays_as_it_is(user, part):
    assert user(*ONE, "--checkpoint-seconds", 0).returncode == 0
    run = user.folder / RUN
    (run / "result.json").unlink()
    read_only(run / part)
    kept = {name: (run / name).read_bytes() for name in ("config.json", "checkpoint/state.safetensors")}
    result = user(*ONE, "--quiet", "--checkpoint-seconds", 0)
    assert_one_line(result, 1, f"cannot write {RUN}/{part}", "Permission denied")
    assert {name: (run / name).read_bytes() for name in kept} == kept
    assert not (run / "result.json").exists()


def test_a_finished_run_in_a_folder_that_is_read_only_is_skipped_and_reported(user):
    assert user(*ONE).returncode == 0
    read_only(user.folder / RUN)
    again = user(*ONE)
    assert (again.returncode, "1 of 1 runs had been done before" in again.stderr) == (0, True)
    assert user("show", RUN).returncode == 0
    assert user("report", "runs", "-o", "report.html").returncode == 0


def damage_owner(path):
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    os.chown(path, 65533, 65533)


def damage_mode(path):
    path.chmod(0o666)


def damage_link(path):
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to("../elsewhere")


def damage_pipe(path):
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("damage", [damage_owner, damage_mode, damage_link, damage_pipe])
def test_a_vocabulary_that_another_user_could_have_written_is_not_read(planish, damage):
    arguments = ("train", "mt", "--preset", "smoke", "--norm", "layer", "--quiet", "--json")
    planish.ok(*arguments, "--out", "one")
    (path,) = (planish.folder / "cache/planish").iterdir()
    kept = path.read_bytes()
    damage(path)
    planish.ok(*arguments, "--out", "two")
    metrics = [next(planish.folder.glob(f"{out}/*/*/metrics.jsonl")) for out in ("one", "two")]
    values = [[line.split('"values"')[1] for line in file.read_text().splitlines()] for file in metrics]
    assert values[0] == values[1]
    status = path.lstat()
    if damage is damage_pipe:
        assert stat.S_ISFIFO(status.st_mode)
        return
    assert stat.S_ISREG(status.st_mode)
    assert (status.st_uid, status.st_mode & 0o002) == (os.geteuid(), 0)
    assert path.read_bytes() == kept
