"""Attacks on a file with a secret that is beside other files, as in a home or in /tmp.

Each is first tried on a reader that asks only for the mode of the file, where it works.
"""

from __future__ import annotations

import grp
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from skillhouse.extensions.registry.hosting import open_repository
from skillhouse.floor import ConfigError
from skillhouse.house.config.secret_places import read_secret
from skillhouse.registry.passwords import SignerError
from skillhouse.registry.publisher_keys import PublisherKeys
from skillhouse.registry.trust import PublisherError
from skillhouse_signer import read_vault
from tests.harness import Need

OTHER = 12345
"""A user who is not the one that runs the tests."""


def naive(path: Path) -> str:
    """Read a secret that has the right mode and is no link, wherever it is."""
    info = os.lstat(path)
    assert stat.S_IMODE(info.st_mode) in (0o600, 0o400)
    assert not stat.S_ISLNK(info.st_mode)
    return path.read_text().strip()


def read(path: Path) -> str:
    return read_secret(f"file:{path}", "the token", {}, key="token")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home as Debian and macOS make it, with a secret."""

    def unknown(group_id: int) -> object:
        raise KeyError(group_id)

    # A group in which the user who runs the tests is alone is no one else.
    monkeypatch.setattr(grp, "getgrgid", unknown)
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o755)
    write(home / "token", "mine-1234567890")
    return home


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(f"{text}\n")
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o600, 0o400])
@pytest.mark.parametrize("of_home", [0o755, 0o751, 0o700, 0o555])
def test_a_secret_in_an_ordinary_home_is_read(home: Path, mode: int, of_home: int) -> None:
    (home / "token").chmod(mode)
    home.chmod(of_home)
    assert read(home / "token") == "mine-1234567890"


def test_a_secret_of_ones_own_in_a_sticky_directory_is_read(home: Path) -> None:
    home.chmod(0o1777)
    assert read(home / "token") == "mine-1234567890"


def _group_writes_the_directory(home: Path) -> Path:
    home.chmod(0o775)
    return home / "token"


def _others_write_above(home: Path) -> Path:
    (home / "a/b").mkdir(parents=True)
    (home / "a").chmod(0o777)
    return write(home / "a/b/token", "evil")


def _reached_through_a_link(home: Path) -> Path:
    """The directory with the link is another's to write: tomorrow it leads elsewhere."""
    (home / "shared").mkdir()
    (home / "shared").chmod(0o777)
    (home / "real").mkdir()
    write(home / "real/token", "evil")
    (home / "shared/keys").symlink_to(home / "real")
    return home / "shared/keys/token"


def _leads_into_a_shared_directory(home: Path) -> Path:
    (home / "shared").mkdir()
    (home / "shared").chmod(0o777)
    write(home / "shared/token", "evil")
    (home / "keys").symlink_to("shared")
    return home / "keys/token"


def _second_name(home: Path) -> Path:
    (home / "shared").mkdir()
    os.link(home / "token", home / "shared/name")
    return home / "token"


def _of_another_user(home: Path) -> Path:
    path = write(home / "theirs", "evil")
    os.chown(path, OTHER, -1)
    return path


def _planted_in_a_sticky_directory(home: Path) -> Path:
    home.chmod(0o1777)
    path = write(home / "planted", "evil")
    os.chown(path, OTHER, -1)
    return path


def _sticky_directory_of_another(home: Path) -> Path:
    """Who owns a sticky directory replaces each file in it."""
    home.chmod(0o1777)
    os.chown(home, OTHER, -1)
    return home / "token"


def _link_of_another(home: Path) -> Path:
    (home / "sticky").mkdir()
    (home / "sticky").chmod(0o1777)
    (home / "sticky/keys").symlink_to(home)
    os.chown(home / "sticky/keys", OTHER, -1, follow_symlinks=False)
    return home / "sticky/keys/token"


CASES: dict[Callable[[Path], Path], str] = {
    _group_writes_the_directory: "chmod go-w {home}`",
    _others_write_above: "chmod go-w {home}/a`",
    _reached_through_a_link: "chmod go-w {home}/shared`",
    _leads_into_a_shared_directory: "chmod go-w {home}/shared`",
    _second_name: "hard links",
    _of_another_user: 'sudo chown "$(id -u)" {home}/theirs`',
    _planted_in_a_sticky_directory: 'sudo chown "$(id -u)" {home}/planted`',
    _sticky_directory_of_another: 'sudo chown "$(id -u)" {home}`',
    _link_of_another: 'sudo chown "$(id -u)" {home}/sticky/keys`',
}


@pytest.mark.parametrize("attack", CASES, ids=lambda one: one.__name__.strip("_"))
def test_a_secret_that_another_could_replace_is_refused(
    home: Path, need: Need, attack: Callable[[Path], Path]
) -> None:
    said = CASES[attack].format(home=home)
    if "chown" in said:
        need(os.geteuid() == 0, "only root gives a file away")
    path = attack(home)
    assert naive(path) in ("evil", "mine-1234567890")
    with pytest.raises(ConfigError) as caught:
        read(path)
    assert said in str(caught.value)
    assert "-R" not in str(caught.value)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o666, 0o444])
def test_a_secret_that_others_read_is_refused_with_the_one_command(home: Path, mode: int) -> None:
    (home / "token").chmod(mode)
    with pytest.raises(ConfigError) as caught:
        read(home / "token")
    said = str(caught.value)
    assert f"; run `chmod go= {home}/token`" in said
    subprocess.run(said.split("`")[1], shell=True, check=True)
    assert read(home / "token") == "mine-1234567890"
    assert stat.S_IMODE(home.stat().st_mode) == 0o755


@pytest.mark.parametrize("target", ["other", "link"])
def test_a_swap_between_the_look_and_the_reading_gives_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """Another file is put there, or a link to one, after what is there was found to be right."""
    write(home / "other", "evil")
    before = os.open
    swaps: list[Path] = []

    def swapping(name: str | Path, *arguments: int, **options: int) -> int:
        if name == home / "token" and not swaps:
            (home / "token").unlink()
            swaps.append(home / "token")
            if target == "link":
                (home / "token").symlink_to("other")
            else:
                os.link(home / "other", home / "token")
        return before(name, *arguments, **options)

    looked = os.lstat(home / "token")
    assert (stat.S_IMODE(looked.st_mode), looked.st_nlink) == (0o600, 1)
    monkeypatch.setattr(os, "open", swapping)
    with pytest.raises(ConfigError, match="is not used"):
        read(home / "token")
    # What looks first and opens by name then reads the other file.
    monkeypatch.undo()
    assert (home / "token").read_text() == "evil\n"


def test_keystores_and_keys_of_publishers_are_held_to_the_same(home: Path) -> None:
    write(home / "keys.json", "{}")
    write(home / "mine.json", "{}")
    with pytest.raises(SignerError, match=r"damaged|version"):
        read_vault(home / "keys.json")
    home.chmod(0o775)
    with pytest.raises(SignerError, match=f"run `chmod go-w {home}`"):
        read_vault(home / "keys.json")
    with pytest.raises(PublisherError, match=f"run `chmod go-w {home}`"):
        PublisherKeys(home).get("mine")


@pytest.mark.parametrize("mode", [0o755, 0o700, 0o750])
def test_a_registry_is_made_in_a_directory_of_ordinary_modes(tmp_path: Path, mode: int) -> None:
    directory = tmp_path / "registry"
    directory.mkdir()
    directory.chmod(mode)
    before = os.umask(0)
    try:
        open_repository(directory).store.close()
    finally:
        os.umask(before)
    open_repository(directory).store.close()
    assert stat.S_IMODE(directory.stat().st_mode) == mode
    made = {str(one): stat.S_IMODE(one.stat().st_mode) & 0o077 for one in directory.iterdir()}
    assert set(made.values()) == {0}, made


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_registry_is_not_made_where_others_make_files(tmp_path: Path, mode: int) -> None:
    """SQLite opens a journal by its name: in a sticky directory it could be another's."""
    directory = tmp_path / "registry"
    directory.mkdir()
    directory.chmod(mode)
    with pytest.raises(Exception, match=f"run `chmod go-w {directory}`"):
        open_repository(directory)
    assert [one.name for one in directory.iterdir() if one.is_file()] == []
