"""Tests of the level without bubblewrap: what a run may use, and what its result says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from skillhouse.floor import PersistentPaths
from skillhouse.sandbox import Launcher, SandboxError, SandboxLevel
from skillhouse.sandbox.landlock import GRANTS_MAX, grants_for
from skillhouse.sandbox.landlock_inside import CHANGE, LIST, WRITE
from skillhouse.sandbox.landlock_rules import READ
from skillhouse.sandbox.protected_mounts import MountCover
from tests.sandbox.places import launcher_at, listing, run, sh, workspace

pytestmark = pytest.mark.slow

__all__ = ["workspace"]


@pytest.fixture
def launcher(tmp_path: Path, need: Any) -> Launcher:
    return launcher_at(SandboxLevel.LANDLOCK, need, tmp_path / "state")


def test_a_program_changes_files_and_works_in_directories(launcher: Launcher, workspace: Path):
    (workspace / "src").mkdir()
    script = (
        "cat notes.txt; echo more >> notes.txt; mkdir src/a && echo x > src/a/b && mv src/a src/c;"
        "ln -s b src/c/link; rm src/c/b; echo said >&2; touch src/new; exit 3"
    )
    done = sh(launcher, workspace, script)
    assert (done.exit_code, done.signal, done.stdout, done.stderr, done.notes) == (
        3,
        None,
        b"notes\n",
        b"said\n",
        (),
    )
    assert (workspace / "notes.txt").read_text() == "notes\nmore\n"
    assert listing(workspace / "src") == {"c", "c/link", "new"}


def test_what_cannot_be_made_or_renamed_says_so(launcher: Launcher, workspace: Path):
    before = listing(workspace)
    for script in ("echo x > new", "mkdir made", "mv notes.txt other", "rm notes.txt", "mv .git g"):
        done = sh(launcher, workspace, script)
        assert done.exit_code != 0
        assert len(done.notes) == 1
        assert "nothing can be made, renamed or removed directly in `.`, `.git`" in done.notes[0]
    assert listing(workspace) == before
    assert sh(launcher, workspace, "false").notes == ()


def test_modes_and_times_cannot_be_set_and_the_result_says_so(launcher: Launcher, workspace: Path):
    done = sh(launcher, workspace, "chmod +x notes.txt")
    assert done.exit_code != 0
    assert "modes, owners and times of files cannot be set" in done.notes[0]
    assert sh(launcher, workspace, "touch notes.txt").exit_code == 0


def test_a_run_has_a_private_directory_that_is_gone_afterwards(
    launcher: Launcher, workspace: Path, tmp_path: Path
):
    script = 'cd "$HOME" && mkdir -p a/b && chmod 0 a 2>/dev/null; mkdir -m 0 c; pwd'
    done = sh(launcher, workspace, f"{script}; test $HOME = $TMPDIR && stat -c %a .")
    place, mode = done.stdout.decode().split()
    assert mode == "700"
    assert not Path(place).exists()


def test_the_environment_is_what_was_declared(launcher: Launcher, workspace: Path):
    given = {"NAME": "ä b", "PATH": "/evil", "HOME": "/", "TMPDIR": "/evil"}
    done = run(launcher, workspace, "env", environment=given)
    values = dict(line.split("=", 1) for line in done.stdout.decode().splitlines())
    assert values.pop("HOME") == values.pop("TMPDIR") != "/evil"
    assert {name: text for name, text in values.items() if not name.startswith("GIT_")} == {
        "LANG": "C.UTF-8",
        "NAME": "ä b",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
    }


def test_the_network_and_its_proxy_are_refused(launcher: Launcher, workspace: Path, tmp_path: Path):
    for more in ({"network": True}, {"proxy_socket": tmp_path / "socket"}):
        with pytest.raises(SandboxError, match="install bubblewrap") as caught:
            run(launcher, workspace, "true", **more)
        assert caught.value.code == "network-refused"


def test_a_readable_directory_around_the_workspace_is_refused(
    launcher: Launcher, workspace: Path, tmp_path: Path
):
    with pytest.raises(SandboxError, match="holds the workspace") as caught:
        run(launcher, workspace, "true", readable=(tmp_path,))
    assert caught.value.code == "place-refused"


def test_an_approved_file_is_compared_before_and_after_the_run(launcher: Launcher, workspace: Path):
    (workspace / "src").mkdir()
    script = workspace / "src" / "job.sh"
    script.write_text("echo approved\n")
    sealed = {str(script): b"echo approved\n"}
    done = run(launcher, workspace, "sh", "src/job.sh", sealed=sealed)
    assert (done.stdout, done.notes) == (b"approved\n", ())
    changing = "echo evil > src/job.sh; mv src/job.sh src/x; rm src/job.sh; mv src/job.sh /tmp"
    assert sh(launcher, workspace, changing, sealed=sealed).exit_code != 0
    assert script.read_text() == "echo approved\n"
    script.write_text("echo evil\n")
    with pytest.raises(SandboxError) as caught:
        run(launcher, workspace, "sh", "src/job.sh", sealed=sealed)
    assert caught.value.code == "seal-failed"


def test_a_file_that_acts_later_is_withheld_after_the_run(launcher: Launcher, workspace: Path):
    (workspace / "src").mkdir()
    done = sh(launcher, workspace, "echo x > src/Makefile", paths=PersistentPaths())
    assert any("withheld: `src/Makefile`" in note for note in done.notes)
    assert listing(workspace / "src") == {"Makefile.withheld"}


def test_a_read_only_run_changes_nothing(launcher: Launcher, workspace: Path):
    (workspace / "src").mkdir()
    script = "cat notes.txt; echo x >> notes.txt; touch src/x"
    done = sh(launcher, workspace, script, read_only=True)
    assert done.stdout == b"notes\n"
    assert done.exit_code != 0
    assert (listing(workspace / "src"), (workspace / "notes.txt").read_text()) == (set(), "notes\n")


def test_grants_go_entry_by_entry_beside_what_is_protected(tmp_path: Path):
    root = tmp_path / "w"
    for name in ("free/below", "mixed/inner", "hidden", "frozen/keys"):
        (root / name).mkdir(parents=True)
    for name in ("file", "mixed/file", "mixed/kept", "frozen/keys/one", "frozen/plain"):
        (root / name).write_text("x")
    os.link(root / "mixed/kept", root / "other-name")
    os.symlink("file", root / "link")
    covers = {
        f"{root}/mixed/kept": MountCover.READ_ONLY,
        f"{root}/missing": MountCover.EMPTY_DIRECTORY,
        f"{root}/hidden": MountCover.CLOSED_DIRECTORY,
        f"{root}/frozen": MountCover.READ_ONLY,
        f"{root}/frozen/keys": MountCover.CLOSED_DIRECTORY,
    }
    grants = grants_for(str(root), covers)
    assert grants.fixed == [".", "mixed"]
    assert grants.rules == [
        ("", LIST, True),
        ("file", CHANGE & ~LIST, False),
        ("free", WRITE, True),
        # A rule is about a file, whatever its name is.
        ("other-name", READ & ~LIST, False),
        ("frozen", LIST, True),
        ("frozen/plain", READ & ~LIST, False),
        ("mixed", READ, True),
        ("mixed/file", CHANGE & ~LIST, False),
        ("mixed/inner", WRITE, True),
    ]


def test_too_many_entries_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert GRANTS_MAX > 1_000
    monkeypatch.setattr("skillhouse.sandbox.landlock.GRANTS_MAX", 3)
    for number in range(4):
        (tmp_path / str(number)).touch()
    with pytest.raises(SandboxError, match="at most 3 entries"):
        grants_for(str(tmp_path), {f"{tmp_path}/x": MountCover.EMPTY_DIRECTORY})
