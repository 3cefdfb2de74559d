"""Tests of floor/ownership.py: where a path leads, and who can change what it leads to."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from skillhouse.floor import (
    ExposedError,
    PathStateCache,
    StateError,
    check_private,
    directory_problem,
    file_problem,
    make_private,
    open_own,
    opened_problem,
    trail,
)
from tests.harness import Need, ran

USERS = [user for user in pwd.getpwall() if user.pw_uid]
"""All but root."""


def names(path: Path) -> list[str]:
    """Return what is passed below the directory of the test."""
    top = path.parent
    return [place[len(str(top)) + 1 :] for place, _ in trail(path).steps if str(top) + "/" in place]


def test_a_way_is_taken_as_the_kernel_takes_it(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "c/d").mkdir(parents=True)
    (tmp_path / "c/d/file").write_text("")
    (tmp_path / "a/b/link").symlink_to("../../c/d")
    (tmp_path / "start").symlink_to("a/./b/link/../d//file")
    assert trail(tmp_path / "start").real == str(tmp_path / "c/d/file")
    assert trail(tmp_path / "start").real == os.path.realpath(tmp_path / "start")
    assert names(tmp_path / "start") == [
        *("start", "a", "a/b", "a/b/link", "c", "c/d", "c/d", "c/d/file")
    ]


@pytest.mark.parametrize(
    "path", ["none", "none/below", "dangling", "file/below", "nul\0", "/", "/.."]
)
def test_what_is_not_there_leads_where_it_would_be(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to("sub/target")
    real = "sub/target" if path == "dangling" else path
    expected = "/" if path.startswith("/") else f"{tmp_path}/{real}"
    assert trail(os.path.join(tmp_path, path)).real == expected


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    assert len(trail(tmp_path / "one").steps) < 100
    assert file_problem(tmp_path / "one") == ""


@pytest.fixture
def shared_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every group one of others, also that of a user who is alone in it."""

    def unknown(group_id: int) -> object:
        raise KeyError(group_id)

    monkeypatch.setattr(grp, "getgrgid", unknown)


@pytest.mark.usefixtures("shared_group")
@pytest.mark.parametrize(
    ("mode", "plain", "secret"),
    [
        (0o600, "", ""),
        (0o400, "", ""),
        (0o644, "", "read or write it (mode 0644); run `chmod go= {}/file`"),
        (0o604, "", "read or write it (mode 0604); run `chmod go= {}/file`"),
        (0o620, "write it (mode 0620); run `chmod go-w {}/file`", "(mode 0620); run `chmod go= {}"),
        (0o602, "write it (mode 0602); run `chmod go-w {}/file`", "(mode 0602); run `chmod go= {}"),
    ],
)
def test_modes_of_a_file(tmp_path: Path, mode: int, plain: str, secret: str) -> None:
    path = tmp_path / "file"
    path.write_text("")
    path.chmod(mode)
    for found, expected in (
        (file_problem(path), plain),
        (file_problem(path, secret=True), secret),
        (opened_problem(path.stat(), path), plain),
    ):
        assert bool(found) is bool(expected)
        assert expected.format(tmp_path) in found


@pytest.mark.usefixtures("shared_group")
@pytest.mark.parametrize("above", [False, True], ids=["its own", "above"])
@pytest.mark.parametrize(
    ("mode", "plain", "secret"),
    [
        (0o700, True, (True, True)),
        (0o755, True, (False, True)),
        (0o1777, (False, True), (False, True)),
        (0o1770, (False, True), (False, True)),
        (0o777, (False, False), (False, False)),
        (0o770, (False, False), (False, False)),
    ],
)
def test_modes_of_directories(
    tmp_path: Path,
    mode: int,
    plain: bool | tuple[bool, bool],
    secret: tuple[bool, bool],
    above: bool,
) -> None:
    directory = tmp_path / "wide/deep" if above else tmp_path / "wide"
    make_private(directory)
    (directory / "file").write_text("")
    (directory / "file").chmod(0o600)
    (tmp_path / "wide").chmod(mode)
    fine = plain if isinstance(plain, bool) else plain[above]
    assert (file_problem(directory / "file") == "") is fine
    assert (directory_problem(directory) == "") is fine
    assert (directory_problem(directory, secret=True) == "") is secret[above]
    # A secret beside other files: no one else takes its place in a sticky directory.
    is_replaced = not mode & 0o1000 and mode & 0o022
    assert (file_problem(directory / "file", secret=True) == "") is not is_replaced
    assert (file_problem(directory / "none") == "") is fine
    # Where its directory is not there either, there is nothing to hold against it.
    assert file_problem(directory / "none/none") == ""


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o1777])
def test_the_modes_of_shared_directories_and_of_a_home_are_not_narrowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    tmp_path.chmod(mode)
    found = directory_problem(tmp_path, secret=True)
    assert ("chmod" in found, "mkdir -m 700 " in found) == (False, mode != 0o700)
    assert "`mkdir -m 700 /tmp/skillhouse`" in directory_problem(Path("/tmp"))


def test_what_is_opened_is_what_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    path.write_text("mine")
    path.chmod(0o600)
    with os.fdopen(open_own(path, secret=True)) as file:
        assert file.read() == "mine"
    with pytest.raises(FileNotFoundError):
        open_own(tmp_path / "none", secret=True)
    with pytest.raises(NotADirectoryError):
        open_own(path / "none")
    (tmp_path / "link").symlink_to("token")
    with os.fdopen(open_own(tmp_path / "link")) as file:
        assert file.read() == "mine"
    with pytest.raises(ExposedError, match="it is a link") as caught:
        open_own(tmp_path / "link", secret=True)
    assert caught.value.path == tmp_path / "link"
    before = os.open

    def swapped(name: Path, flags: int) -> int:
        handle = before(name, flags)
        path.unlink()
        path.write_text("other")
        path.chmod(0o600)
        return handle

    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(ExposedError, match="another file took its place"):
        open_own(path, secret=True)


def test_links_and_names(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    path.chmod(0o600)
    (tmp_path / "a link").symlink_to(path)
    assert file_problem(tmp_path / "a link") == ""
    found = file_problem(tmp_path / "a link", secret=True)
    assert found.startswith("it is a link; make it a file of its own: `cp -pL ")
    subprocess.run(found.split("`")[1], shell=True, check=True)
    assert file_problem(tmp_path / "a link", secret=True) == ""
    os.link(path, tmp_path / "other")
    found = file_problem(path)
    assert found.startswith("it has 2 names (hard links); ")
    subprocess.run(found.split("`")[1], shell=True, check=True)
    assert (file_problem(path), path.stat().st_nlink) == ("", 1)


def test_other_owners(tmp_path: Path, need: Need) -> None:
    need(os.geteuid() == 0, "only root gives a file away")
    make_private(tmp_path / "deep")
    path = tmp_path / "deep/file"
    path.write_text("")
    (tmp_path / "link").symlink_to("deep/file")
    for place in (path, path.parent, tmp_path / "link"):
        os.chown(place, 12345, -1, follow_symlinks=False)
        assert "belongs to user 12345" in file_problem(tmp_path / "link")
        os.chown(place, 0, -1, follow_symlinks=False)
    assert file_problem(tmp_path / "link") == ""


def test_a_group_of_ones_own_is_no_one_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, need: Need
) -> None:
    found = [
        user
        for user in USERS
        if any(group[0] == user.pw_name and group[2] == user.pw_gid for group in grp.getgrall())
    ]
    need(found, "a user with a group of the same name")
    need(os.geteuid() == 0, "only root gives a file away")
    path = tmp_path / "file"
    path.write_text("")
    path.chmod(0o664)
    os.chown(path, 0, found[0].pw_gid)
    assert "chmod go-w" in opened_problem(path.stat(), path)
    monkeypatch.setattr(os, "geteuid", lambda: found[0].pw_uid)
    assert opened_problem(path.stat(), path) == ""
    path.chmod(0o666)
    assert "chmod go-w" in opened_problem(path.stat(), path)
    path.chmod(0o664)
    os.chown(path, 0, 54321)
    assert "chmod go-w" in opened_problem(path.stat(), path)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert "chmod go-w" in opened_problem(path.stat(), path)


@pytest.mark.slow
def test_directories_of_a_root_that_a_namespace_does_not_know(tmp_path: Path, need: Need) -> None:
    unshare = ["unshare", "--user", "--map-user=1234"]
    tried = shutil.which("unshare") and subprocess.run([*unshare, "true"], check=False)
    need(tried and tried.returncode == 0, "no user namespaces")
    (tmp_path / "file").write_text("")
    source = (
        f"import sys\nsys.path[:0] = {sys.path!r}\n"
        "from pathlib import Path\nfrom skillhouse.floor import file_problem\n"
        f"print(file_problem(Path({str(tmp_path / 'file')!r})), file_problem(Path('/etc/passwd')))"
    )
    done = ran([*unshare, sys.executable, "-"], input=source, check=True)
    # Above a file they will do; a file that decides may lie in none of them. Root's are known here
    # where it is root who is mapped.
    wrong = "" if os.geteuid() == 0 else "the directory `/etc` belongs to user 65534; "
    assert done.stdout.startswith(f" {wrong}")


def test_directories_are_made_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_private(tmp_path / "a/b/c")
        make_private(tmp_path / "a/b/c")
    finally:
        os.umask(before)
    made = [stat.S_IMODE(found.stat().st_mode) for found in tmp_path.rglob("*")]
    assert made == [0o700] * 3
    check_private(tmp_path / "a/b/c")
    check_private(tmp_path / "none")
    (tmp_path / "a/b").chmod(0o777)
    with pytest.raises(StateError, match=f"chmod go-w {tmp_path}/a/b`"):
        check_private(tmp_path / "a/b/c")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError):
        make_private(tmp_path / "file")


def _relinked(path: Path) -> None:
    path.unlink()
    path.symlink_to("directory/other")


def _replaced(path: Path) -> None:
    path.with_name("new").write_text("")
    path.with_name("new").replace(path)


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        (lambda base: None, True),
        (lambda base: (base / "directory/beside").write_text(""), True),
        (lambda base: (base / "file").write_text("other"), True),
        (lambda base: (base / "directory").chmod(0o707), False),
        (lambda base: (base / "file").chmod(0o602), False),
        (lambda base: _replaced(base / "file"), False),
        (lambda base: os.link(base / "file", base / "second"), False),
        (lambda base: _relinked(base / "link"), False),
        (lambda base: (base / "missing").write_text(""), False),
        (lambda base: (base / "missing").symlink_to("file"), False),
        (lambda base: (base / "directory").rename(base / "moved"), False),
    ],
)
def test_looks_hold_until_something_that_counts_is_another(
    tmp_path: Path, change: Callable[[Path], object], *, holds: bool
) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("directory/file")
    states = PathStateCache()
    for name in ("file", "link", "missing", "directory/file"):
        trail(tmp_path / name, states)
        file_problem(tmp_path / name, states=states)
    assert states.hold()
    change(tmp_path)
    assert states.hold() is holds


def test_looks_never_hold_where_a_group_can_write(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o770)
    states = PathStateCache()
    directory_problem(tmp_path / "shared", states=states)
    assert not states.hold()


def made_below_nothing(place: Path) -> None:
    (place / "none/deep").mkdir(parents=True)
    (place / "none/deep/file").write_text("x")


def made_with_the_times_put_back(place: Path) -> None:
    info = place.stat()
    (place / "absent").write_text("x")
    os.utime(place, ns=(info.st_atime_ns, info.st_mtime_ns))


def made_by_a_link(place: Path) -> None:
    (place / "absent").symlink_to(place / "there")


def moved_there(place: Path) -> None:
    (place / "there").rename(place / "absent")


def swapped_for_another_directory(place: Path) -> None:
    info = place.stat()
    other = place.with_name("other")
    other.mkdir()
    (other / "absent").write_text("x")
    place.rename(place.with_name("aside"))
    other.rename(place)
    os.utime(place, ns=(info.st_atime_ns, info.st_mtime_ns))


@pytest.mark.parametrize(
    "make",
    [
        made_below_nothing,
        made_with_the_times_put_back,
        made_by_a_link,
        moved_there,
        swapped_for_another_directory,
    ],
)
def test_what_was_not_there_is_seen_when_it_comes_whatever_its_directory_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object]
) -> None:
    place = tmp_path.resolve() / "place"
    place.mkdir()
    (place / "there").mkdir()
    states = PathStateCache()
    trail(place / "absent", states)
    trail(place / "none/deep/file", states)
    trail(place / "there", states)
    # As if the directory had not been changed for a minute.
    now = time.time_ns
    monkeypatch.setattr("skillhouse.floor.ownership.time.time_ns", lambda: now() + 60 * 10**9)
    assert states.hold()
    make(place)
    assert not states.hold()


def test_a_directory_that_has_just_changed_is_no_proof_of_what_is_not_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path.resolve()
    states = PathStateCache()
    trail(place / "absent", states)
    # A clock that does not tick: all changes have the same times.
    real = os.lstat
    held = real(place)
    monkeypatch.setattr(
        "skillhouse.floor.ownership.os.lstat",
        lambda path: held if path == str(place) else real(path),
    )
    assert states.hold()
    (place / "absent").write_text("x")
    assert not states.hold()


def test_the_times_of_a_link_are_no_proof_of_what_is_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path.resolve()
    (place / "real").mkdir()
    (place / "link").symlink_to("real")
    states = PathStateCache()
    assert states.at(str(place / "link"))
    assert states.at(str(place / "link/absent")) is None
    now = time.time_ns
    monkeypatch.setattr("skillhouse.floor.ownership.time.time_ns", lambda: now() + 60 * 10**9)
    assert states.hold()
    (place / "real/absent").write_text("x")
    assert not states.hold()


def test_whole_seconds_are_no_proof_before_the_next_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAT keeps every second one: a change a second later may have the same times."""
    place = tmp_path.resolve()
    real, now = os.lstat, time.time_ns()
    second = now // 10**9 * 10**9

    def coarse(path: str) -> os.stat_result:
        info = real(path)
        fields = {"st_mtime_ns": second, "st_ctime_ns": second}
        return os.stat_result(tuple(info), fields) if str(path) == str(place) else info

    states = PathStateCache()
    trail(place / "absent", states)
    monkeypatch.setattr("skillhouse.floor.ownership.os.lstat", coarse)
    monkeypatch.setattr("skillhouse.floor.ownership.time.time_ns", lambda: second + 10**9)
    assert states.hold()
    (place / "absent").write_text("x")
    assert not states.hold()
