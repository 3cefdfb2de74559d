"""Tests of skill/manifest.py: when a manifest is read again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from skillhouse.skill import ManifestCache, find_manifests
from tests.house.deferred import write_kinds


class Look:
    """Looks at a root with one cache, and notes which directories were read."""

    def __init__(self, root: Path) -> None:
        self.root, self.cache = root, ManifestCache()
        self.read: list[str] = []

    def names(self) -> list[str]:
        self.read.clear()
        found = find_manifests(self.root, on_step=self.note, look=self.cache.read)
        return [
            f"{one.manifest.name}:{tool.name}"
            for one in found
            if one.manifest is not None
            for tool in one.manifest.tools
        ]

    def note(self, directory: Path, step: str) -> None:
        if step == "parsed":
            self.read.append(directory.name)


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Look:
    # The status of a file cannot be given another date.
    monkeypatch.setattr("skillhouse.floor.ownership.SETTLED_NS", -(10**18))
    return Look(write_kinds(tmp_path, 3))


def test_what_has_not_changed_is_not_read_again(look: Look) -> None:
    first = look.names()
    assert len(look.read) == 3
    assert look.names() == first
    assert look.read == []
    look.cache.clear()
    assert look.names() == first
    assert len(look.read) == 3


def other_text(root: Path) -> None:
    file = root / "kind-1/pyproject.toml"
    file.write_text(file.read_text().replace('"add"', '"bad"'))


def other_file_of_the_same_date(root: Path) -> None:
    file = root / "kind-1/pyproject.toml"
    text, info = file.read_text().replace('"add"', '"bad"'), file.stat()
    new = file.with_name("new")
    new.write_text(text)
    os.utime(new, ns=(info.st_atime_ns, info.st_mtime_ns))
    new.replace(file)


def no_entry(root: Path) -> None:
    (root / "kind-1/main.py").unlink()


def entry_that_is_a_link(root: Path) -> None:
    entry = root / "kind-1/main.py"
    entry.rename(entry.with_name("other.py"))
    entry.symlink_to("other.py")


def another_manifest(root: Path) -> None:
    (root / "kind-1/package.json").write_text('{"name": "kind-1", "owliabot": {}}')


@pytest.mark.parametrize(
    "change",
    [other_text, other_file_of_the_same_date, no_entry, entry_that_is_a_link, another_manifest],
)
def test_what_has_changed_is_read_again(look: Look, change: Callable[[Path], None]) -> None:
    assert look.names() == ["kind-0:add", "kind-1:add", "kind-2:add"]
    change(look.root)
    assert "kind-1:add" not in look.names()


def test_what_was_written_a_moment_ago_is_read_each_time(tmp_path: Path) -> None:
    look = Look(write_kinds(tmp_path, 1))
    look.names()
    look.names()
    assert look.read == ["kind-0"]


def test_a_manifest_that_cannot_be_used_is_read_each_time(look: Look) -> None:
    (look.root / "kind-1/main.py").unlink()
    look.names()
    look.names()
    assert look.read == ["kind-1"]
    (look.root / "kind-1/main.py").write_text("tools = {}\n")
    assert "kind-1:add" in look.names()


def test_a_directory_that_becomes_a_skill_is_found(look: Look) -> None:
    (look.root / "later").mkdir()
    assert len(look.names()) == 3
    write_kinds(look.root / "more", 1)
    (look.root / "more/kind-0").rename(look.root / "later/x")
    (look.root / "later/x/pyproject.toml").rename(look.root / "later/pyproject.toml")
    (look.root / "later/x/main.py").rename(look.root / "later/main.py")
    text = (look.root / "later/pyproject.toml").read_text().replace("kind-0", "later")
    (look.root / "later/pyproject.toml").write_text(text)
    assert "later:add" in look.names()
