"""Tests of floor/trees.py and what trees make of it: what is a leftover, and what is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillhouse.floor import (
    Tree,
    TreeFile,
    is_leftover_name,
    leftover_unit,
    matching_tree,
    persons_leftovers,
    read_tree,
    tree_of,
    unread_paths,
)

LEFT = (
    *(".DS_Store", "._SKILL.md", "a/.DS_Store", "Thumbs.db", "thumbs.db", "ehthumbs.db"),
    *("desktop.ini", "Desktop.ini", ".SKILL.md.swp", ".a.swo", ".a.swn", "a~", "a/b.py~"),
    *("#a#", ".#a", ".a.kate-swp", ".~lock.a.odt#", "4913", "a/4913"),
    *("__pycache__/a.pyc", "__pycache__/a.cpython-312.opt-1.pyc", "a/__pycache__/b.pyo"),
    "__pycache__/a.cpython-312.pyc.139814",
    *(".mypy_cache/.gitignore", ".mypy_cache/3.12/a/b.meta.json", ".mypy_cache/missing_stubs"),
    *(".mypy_cache/3.12/cache.db", ".mypy_cache/3.12/a.data.ff"),
    *(".pytest_cache/README.md", ".pytest_cache/v/cache/lastfailed", ".pytest_cache/CACHEDIR.TAG"),
    *(".ruff_cache/0.5.1/1234", ".ruff_cache/CACHEDIR.TAG"),
    *(".ipynb_checkpoints/a-checkpoint.ipynb", "a/.ipynb_checkpoints/run-checkpoint.py"),
)
EDITS = (
    *("x.pyc", "x.pyo", "a.swp", ".swp", "DS_Store", "desktop.ini.md", "thumbs.db.py", "~", "._"),
    *("#a", "a#", "49130", "4913/a", ".DS_Store/a", "__pycache__/a.py", "__pycache__/a/b.pyc"),
    *("__pycache__/a.pyc/b", "__pycache__/.pyc", "__pycache__/a.pyc.x", "__PYCACHE__/a.pyc"),
    *(".mypy_cache/a.py", ".mypy_cache/3.12/a.so", ".mypy_cache/.hidden.sh", ".pytest_cache/a.md"),
    *(".ruff_cache/a.toml", ".ipynb_checkpoints/a.py", ".ipynb_checkpoints/a/b-checkpoint.py"),
    *(".venv/a.py", ".tox/a", ".idea/workspace.xml", ".env", "node_modules/a.json"),
)


@pytest.mark.parametrize("name", LEFT)
def test_what_programs_leave_is_no_part_of_a_tree(tmp_path: Path, name: str) -> None:
    (tmp_path / "SKILL.md").write_text("text")
    before = read_tree(tmp_path)
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("")
    after = read_tree(tmp_path)
    assert (after.digest, after.left) == (before.digest, (name,))
    assert [one.path for one in read_tree(tmp_path, whole=True).files] == sorted([name, "SKILL.md"])
    assert is_leftover_name(name)


@pytest.mark.parametrize("name", EDITS)
def test_anything_else_counts(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("")
    found = read_tree(tmp_path)
    assert ([one.path for one in found.files], found.left) == ([name], ())


@pytest.mark.parametrize("target", ["me@host.4711", "me@host.example.4711:1700000000"])
def test_the_lock_of_emacs_is_a_link_to_nothing(tmp_path: Path, target: str) -> None:
    os.symlink(target, tmp_path / ".#a")
    assert read_tree(tmp_path).left == (".#a",)


@pytest.mark.parametrize("target", ["SKILL.md", "../a@b.1", "/etc/passwd", "a@b.c", "me@host.1:x"])
def test_any_other_link_is_refused_as_before(tmp_path: Path, target: str) -> None:
    os.symlink(target, tmp_path / ".#a")
    with pytest.raises(Exception, match="a symbolic link in a skill"):
        read_tree(tmp_path)


def test_special_files_of_such_names_are_refused_as_before(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".DS_Store")
    with pytest.raises(Exception, match="a special file in a skill"):
        read_tree(tmp_path)


def test_thousands_of_cached_files_are_not_too_many(tmp_path: Path) -> None:
    cache = tmp_path / ".mypy_cache/3.12"
    cache.mkdir(parents=True)
    for number in range(1_200):
        (cache / f"{number}.data.json").touch()
    assert len(read_tree(tmp_path).left) == 1_200


def test_a_package_with_such_files_matches_whatever_became_of_them(tmp_path: Path) -> None:
    (tmp_path / "SKILL.md").write_text("text")
    (tmp_path / ".DS_Store").write_text("packed")
    packed = read_tree(tmp_path, whole=True)

    def matched(*, is_known: bool) -> bool:
        def kept(digest: str) -> Tree | None:
            return packed if is_known and digest == packed.digest else None

        return matching_tree(tmp_path, (packed.digest,), kept).digest == packed.digest

    assert (matched(is_known=True), matched(is_known=False)) == (True, True)
    (tmp_path / ".DS_Store").write_text("changed")
    (tmp_path / "a~").write_text("")
    assert (matched(is_known=True), matched(is_known=False)) == (True, False)
    (tmp_path / ".DS_Store").unlink()
    assert (matched(is_known=True), matched(is_known=False)) == (True, False)
    (tmp_path / "SKILL.md").write_text("other")
    assert (matched(is_known=True), matched(is_known=False)) == (False, False)
    assert tree_of([TreeFile(path="a", mode="100644", size=0, sha256="")]) != packed


def test_what_a_person_wrote_and_what_is_shown_as_one() -> None:
    left = ("a~", ".a.swp", "#a#", ".DS_Store", "__pycache__/a.pyc", ".ipynb_checkpoints/a")
    assert list(persons_leftovers(left)) == ["a~", ".a.swp", "#a#", ".ipynb_checkpoints/a"]
    units = [leftover_unit(name) for name in left]
    assert units == ["a~", ".a.swp", "#a#", ".DS_Store", "__pycache__/", ".ipynb_checkpoints/"]


def test_what_no_command_sees(tmp_path: Path) -> None:
    for name in ("a.py", "b.pyc", "sub/c.pyo", "sub/d.txt", ".DS_Store", "sub/__pycache__/e.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    found = {os.path.relpath(path, tmp_path): kind for path, kind in unread_paths(str(tmp_path))}
    hidden = {"b.pyc": False, ".DS_Store": False, "sub/c.pyo": False, "sub/__pycache__": True}
    assert found == hidden
    assert list(unread_paths(str(tmp_path / "none"))) == []
