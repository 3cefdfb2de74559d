"""Tests of registry/installs.py: what is on the disk after a crash at any moment."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from skillhouse.floor import SkillError, StateError, encode, tree_digest
from skillhouse.floor.structs import replace
from skillhouse.registry import (
    InstallPlace,
    Installs,
    LocalEditsError,
    LockedSignature,
    LockEntry,
    StagedInstall,
    entry_value,
    read_lock,
)
from skillhouse.registry.installs import exchange
from tests.harness import ran
from tests.registry.sources import make_skill


def place_in(base: Path) -> InstallPlace:
    lock = base / "config/skills.lock"
    return InstallPlace(scope="user", base=base, root=base / ".agents/skills", lock=lock)


def staged(installs: Installs, place: InstallPlace, text: str) -> tuple[Path, LockEntry]:
    """Return files whose body is `text`, before a colon and the content of their signature."""
    staging = installs.stage(place.root)
    body, _, signature = text.partition(":")
    source = make_skill(staging / "notes", body)
    if signature:
        (source / "skill.sig").write_text(signature)
    directory = source.rename(staging / "new")
    entry = LockEntry(
        tree_digest=tree_digest(directory),
        repository="https://one.test",
        resolved="x",
        path=place.path_of("notes"),
        signature=LockedSignature(
            publisher="acme",
            cert_sha256="0" * 64,
            file_sha256=hashlib.sha256(signature.encode()).hexdigest(),
        )
        if signature
        else None,
    )
    return directory, entry


def install(base: Path, body: str) -> None:
    installs, place = Installs(base / "state"), place_in(base)
    directory, entry = staged(installs, place, body)
    installs.install(place, "notes", directory, entry)
    shutil.rmtree(directory.parent)


def install_three(base: Path, body: str) -> None:
    """Put three skills into place at once; `notes` is the second."""
    installs, place = Installs(base / "state"), place_in(base)
    wanted = []
    for name in ("before", "notes", "then"):
        directory, entry = staged(installs, place, body)
        entry = replace(entry, path=place.path_of(name))
        wanted.append(StagedInstall(name=name, directory=directory, entry=entry))
    assert installs.install_all(place, wanted) == (None, None, None)
    for one in wanted:
        shutil.rmtree(one.directory.parent)


def remove(base: Path) -> None:
    moved = Installs(base / "state").remove(place_in(base), "notes")
    assert moved is not None
    shutil.rmtree(moved.parent)


def body_of(base: Path, name: str = "notes") -> str:
    """Return the body of the skill in force, which the lock has, or "" for none of both."""
    place = place_in(base)
    entry = read_lock(place.lock).skills.get(name)
    target = place.target(name)
    if entry is None:
        assert not target.exists(), "in place, and not in the lock"
        return ""
    assert tree_digest(target) == entry.tree_digest, "another one than in the lock"
    body = (target / "SKILL.md").read_text().rstrip().rpartition("\n")[2]
    if entry.signature is None:
        return body
    signature = (target / "skill.sig").read_bytes()
    assert hashlib.sha256(signature).hexdigest() == entry.signature_file, "another signature"
    return f"{body}:{signature.decode()}"


ACTS: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "install": (lambda base: install(base, "New."), "", "New."),
    "update": (lambda base: install(base, "New."), "Old.", "New."),
    "three at once": (lambda base: install_three(base, "New."), "Old.", "New."),
    "remove": (remove, "Old.", ""),
    "sign again": (lambda base: install(base, "Old.:two"), "Old.:one", "Old.:two"),
}

TRIAL = """
import os, signal, sys
from pathlib import Path
from tests.registry import test_installs as tried
from skillhouse.registry import installs

act, before, after = tried.ACTS[sys.argv[1]]
fault, base = sys.argv[2], Path(sys.argv[3])
if "two renames" in fault:
    installs.exchange = lambda first, second: False
moment = ended = 0
while not ended:
    place = base / str(moment)
    if before:
        tried.install(place, before)
    child = os.fork()
    if child == 0:
        fired = tried.fail_at(moment, fault, place)
        act(place)
        os._exit(0 if fired() else tried.NOT_REACHED)
    _, status = os.waitpid(child, 0)
    ended = os.WIFEXITED(status) and os.WEXITSTATUS(status) == tried.NOT_REACHED
    print(moment, status, tried.judged(place, before, after), flush=True)
    moment += 1
"""


NOT_REACHED = 7
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def fail_at(moment: int, fault: str, base: Path) -> Callable[[], bool]:
    """Die, or find the disk full, at the call of that number that changes files.

    Python reports each of them before it is made (PEP 578). The function that is returned says
    whether that moment came.
    """
    seen = 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        touches = event.startswith(("os.", "shutil.")) or event == "open"
        reads = event in ("os.listdir", "os.scandir", "os.walk", "os.fwalk")
        if not touches or reads or (event == "open" and not int(str(arguments[2])) & WRITING):
            return
        # First, because the kill is such a call itself.
        seen += 1
        if seen - 1 == moment and "disk full" in fault:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(base))
        if seen - 1 == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    if "disk full" in fault:
        # The traceback of each would be a page.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 until the process ends
    return lambda: seen > moment


def judged(base: Path, before: str, after: str) -> str:
    """Return which of the two states is found, before and after the next process has looked."""
    Installs(base / "state").recover()
    found = body_of(base)
    assert found in (before, after), found
    others = [body_of(base, name) for name in ("before", "then")]
    assert set(others) <= {"", "New."}, others
    # And everything goes on from here; what was left is swept.
    install(base, "Next.")
    assert body_of(base) == "Next."
    assert [one.name for one in (base / ".agents").iterdir()] == ["skills"]
    remove(base)
    assert body_of(base) == ""
    return "after" if found == after else "before"


@pytest.mark.slow
@pytest.mark.req("S002-108")
@pytest.mark.parametrize("fault", ["killed", "killed, two renames", "disk full"])
@pytest.mark.parametrize("act", ACTS)
def test_a_crash_at_any_moment_leaves_one_whole_version(
    tmp_path: Path, act: str, fault: str
) -> None:
    done = ran(
        [sys.executable, "-c", TRIAL, act, fault, str(tmp_path)], cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3_000:]
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) > 12
    assert {line[2] for line in lines} == {"before", "after"}
    assert lines[-1][2] == "after"
    if "killed" in fault:
        assert {line[1] for line in lines[:-1]} == {str(int(signal.SIGKILL))}


def test_of_several_the_one_that_is_refused_is_left_out(tmp_path: Path) -> None:
    install(tmp_path, "Old.")
    (place_in(tmp_path).target("notes") / "SKILL.md").write_text("edited")
    installs, place = Installs(tmp_path / "state"), place_in(tmp_path)
    wanted = [
        StagedInstall(name=name, directory=directory, entry=entry)
        for name in ("one", "notes", "two")
        for directory, entry in [staged(installs, place, "New.")]
    ]
    faults = installs.install_all(place, wanted)
    assert [type(one) for one in faults] == [type(None), LocalEditsError, type(None)]
    assert [body_of(tmp_path, name) for name in ("one", "two")] == ["New.", "New."]
    assert (place.target("notes") / "SKILL.md").read_text() == "edited"


def test_many_files_wait_for_the_disk_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    each = os.fsync

    def counted(handle: int) -> None:
        waited.append(handle)
        each(handle)

    monkeypatch.setattr(os, "fsync", counted)
    installs, place = Installs(tmp_path / "state"), place_in(tmp_path)
    counts = []
    for number in (50, 100):
        wanted = [
            StagedInstall(name=f"s{number}-{one}", directory=directory, entry=entry)
            for one in range(number)
            for directory, entry in [staged(installs, place, "New.")]
        ]
        waited.clear()
        assert not any(installs.install_all(place, wanted))
        counts.append(len(waited))
    # The journal, the directory of the skills and the lock, whatever their number.
    assert counts[0] == counts[1] < 12


def test_what_an_older_version_began_is_ended(tmp_path: Path) -> None:
    install(tmp_path, "Old.")
    installs, place = Installs(tmp_path / "state"), place_in(tmp_path)
    directory, entry = staged(installs, place, "New.")
    begun = {
        "lock": str(place.lock),
        "name": "notes",
        "target": str(place.target("notes")),
        "staging": str(directory.parent),
        "before": read_lock(place.lock).skills["notes"].tree_digest,
        "after": entry.tree_digest,
        "entry": json.dumps(entry_value(entry)),
    }
    (tmp_path / "state/pending").write_bytes(encode(begun))
    assert body_of(tmp_path) == "Old."
    assert exchange(directory, place.target("notes"))
    installs.recover()
    assert body_of(tmp_path) == "New."
    assert not (tmp_path / "state/pending").exists()


def test_files_that_changed_while_a_person_looked_are_not_installed(tmp_path: Path) -> None:
    installs, place = Installs(tmp_path / "state"), place_in(tmp_path)
    directory, entry = staged(installs, place, "Shown.")
    (directory / "scripts/run.sh").write_text("swapped")
    with pytest.raises(SkillError) as caught:
        installs.install(place, "notes", directory, entry)
    assert caught.value.code == "tree-digest"
    assert not place.target("notes").exists()
    assert not place.lock.exists()


def test_what_became_a_link_or_a_file_is_not_replaced(tmp_path: Path) -> None:
    install(tmp_path, "Old.")
    installs, place = Installs(tmp_path / "state"), place_in(tmp_path)
    target = place.target("notes")
    target.rename(tmp_path / "elsewhere")
    target.symlink_to(tmp_path / "elsewhere")
    directory, entry = staged(installs, place, "New.")
    with pytest.raises(LocalEditsError):
        installs.install(place, "notes", directory, entry, force=True)
    assert "Old." in (tmp_path / "elsewhere/SKILL.md").read_text()
    (tmp_path / "elsewhere/link").symlink_to("/etc/passwd")
    target.unlink()
    (tmp_path / "elsewhere").rename(target)
    with pytest.raises(LocalEditsError, match="cannot be compared"):
        installs.remove(place, "notes", force=True)


def test_a_lock_or_a_journal_that_cannot_be_read_stops_everything(tmp_path: Path) -> None:
    install(tmp_path, "Old.")
    installs, place = Installs(tmp_path / "state"), place_in(tmp_path)
    before = place.lock.read_bytes()
    directory, entry = staged(installs, place, "New.")
    for text in (b"{", b"[]", before.replace(b'"lockfile_version": 1', b'"lockfile_version": 2')):
        place.lock.write_bytes(text)
        with pytest.raises(StateError):
            installs.install(place, "notes", directory, entry)
        assert place.lock.read_bytes() == text
    place.lock.write_bytes(before)
    (tmp_path / "state/pending").write_bytes(b"\xff")
    with pytest.raises(StateError):
        installs.install(place, "notes", directory, entry)
    assert body_of(tmp_path) == "Old."


def test_a_skill_that_only_the_lock_has_can_be_removed_and_installed(tmp_path: Path) -> None:
    install(tmp_path, "Old.")
    place = place_in(tmp_path)
    shutil.rmtree(place.target("notes"))
    assert Installs(tmp_path / "state").remove(place, "notes") is None
    install(tmp_path, "Old.")
    shutil.rmtree(place.target("notes"))
    install(tmp_path, "New.")
    assert body_of(tmp_path) == "New."
    with pytest.raises(SkillError, match=r"`other` is not in skills\.lock"):
        Installs(tmp_path / "state").remove(place, "other")
