"""Tests of sandbox/persistence.py: what a run made is found and undone, in whatever state it is."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skillhouse.floor import PersistentPaths
from skillhouse.sandbox.persistence import PersistentFileScan
from skillhouse.sandbox.profile import OpenedProtection
from skillhouse.sandbox.scratch import remove


def checked(
    workspace: Path, run: Callable[[], object], opened: OpenedProtection | None = None
) -> list[str]:
    """Return the notes of a scan around something that a run could do."""
    scan = PersistentFileScan(str(workspace), PersistentPaths(), opened or OpenedProtection())
    scan.take()
    run()
    scan.check()
    return scan.notes


def as_a_user(work: Callable[[], None]) -> None:
    """Do work in a process that is not the superuser's."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - a process edge.
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


def put(path: Path, text: str = "evil") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that every user may reach and write."""
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o777)
        yield Path(made)


MODES = [0o000, 0o111, 0o300, 0o311, 0o500, 0o555]


@pytest.mark.parametrize("mode", MODES)
def test_a_directory_that_its_owner_may_not_read_or_write_is_looked_at(
    open_place: Path, mode: int
) -> None:
    """Programs open what is in one by its path."""

    def run() -> None:
        put(open_place / "sub/.envrc")
        put(open_place / ".github/workflows/x.yml")
        put(open_place / "deep/er/.vscode/tasks.json").parent.chmod(mode)
        for name in ("sub", ".github", "deep/er", "deep"):
            (open_place / name).chmod(mode)

    def work() -> None:
        notes = checked(open_place, run)
        assert [note.partition("`")[0] for note in notes] == ["withheld: "] * 3, notes
        for path in ("sub/.envrc", ".github/workflows", "deep/er/.vscode"):
            assert not (open_place / path).exists()

    as_a_user(work)


@pytest.mark.parametrize("mode", MODES)
def test_a_repository_that_its_owner_may_not_read_or_write_is_disarmed(
    open_place: Path, mode: int
) -> None:
    git = open_place / "sub/.git"

    def run() -> None:
        put(git / "config", "[core]\n\tfsmonitor = evil\n").chmod(mode)
        put(git / "hooks/post-checkout").chmod(mode)
        put(git / "modules/m/HEAD", "ref: x")
        put(git / "modules/m/commondir", "../../evil")
        for name in ("hooks", "modules/m", "modules", "."):
            (git / name).chmod(mode)

    def work() -> None:
        notes = checked(open_place, run, OpenedProtection(repositories=True))
        assert len(notes) == 1, notes
        assert "evil" not in (git / "config").read_text()
        assert os.listdir(git / "hooks") == []
        assert not (git / "modules/m/commondir").exists()

    as_a_user(work)


@pytest.mark.slow
def test_a_tree_deeper_than_calls_may_nest_is_looked_at_whole(tmp_path: Path) -> None:
    def run() -> None:
        path = str(tmp_path)
        for _ in range(1_200):
            path += "/a"
            os.mkdir(path)
        put(tmp_path / "z/.envrc")
        with open(f"{path}/.envrc", "w") as file:
            file.write("evil")

    try:
        assert len(checked(tmp_path, run)) == 2
        assert not (tmp_path / "z/.envrc").exists()
    finally:
        remove(str(tmp_path / "a"))


def test_a_name_of_the_greatest_length_is_withheld_too(tmp_path: Path) -> None:
    name = f"{'é' * 120}.code-workspace"
    notes = checked(tmp_path, lambda: put(tmp_path / name))
    assert len(notes) == 1
    assert [n for n in os.listdir(tmp_path) if n.endswith(".code-workspace")] == []


def test_a_pipe_named_git_is_not_waited_for(tmp_path: Path) -> None:
    def run() -> None:
        (tmp_path / "sub").mkdir()
        os.mkfifo(tmp_path / "sub/.git")
        os.mkfifo(tmp_path / "sub/Makefile")

    assert len(checked(tmp_path, run)) == 2
    assert sorted(os.listdir(tmp_path / "sub")) == [".git.withheld", "Makefile.withheld"]


def test_what_is_moved_with_its_name_and_content_stays(tmp_path: Path) -> None:
    put(tmp_path / "pkg/Makefile")
    put(tmp_path / "one/CLAUDE.md")
    (tmp_path / "one/AGENTS.md").symlink_to("CLAUDE.md")
    (tmp_path / ".github").symlink_to("one")

    def run() -> None:
        (tmp_path / "pkg").rename(tmp_path / "other")
        (tmp_path / "one").rename(tmp_path / "two")

    assert checked(tmp_path, run) == []


def test_what_a_program_of_the_host_writes_in_place_stays(tmp_path: Path) -> None:
    """The mount keeps the run from it, so an editor was it."""
    kept = put(tmp_path / "AGENTS.md", "before")

    def run() -> None:
        put(tmp_path / "fresh", "after").rename(kept)

    assert checked(tmp_path, run) == []
    assert kept.read_text() == "after"
