"""The caches of tools: of one workspace, bounded, and nothing in them that acts later."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from skillhouse.sandbox import tool_finder
from skillhouse.sandbox.profile import Caches
from skillhouse.sandbox.tool_finder import ToolFinder, caches_for


def made(base: Path, *programs: str, workspace: str = "ws", now: float = 0) -> Caches:
    place = base / workspace
    place.mkdir(exist_ok=True)
    which = {name: f"/usr/bin/{name}" for name in programs}.get
    caches, _, problem = caches_for(place, base / "caches", which, now=now)
    assert problem == ""
    assert caches is not None
    return caches


def test_each_tool_that_is_there_gets_its_variables(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws/mvnw").touch()
    _, variables, _ = caches_for(
        tmp_path / "ws", tmp_path / "caches", {"go": "/usr/bin/go"}.get, now=0
    )
    place = next((tmp_path / "caches").iterdir())
    assert variables == {
        "GOMODCACHE": f"{place}/go/mod",
        "GOCACHE": f"{place}/go/build",
        "MAVEN_ARGS": f"-Dmaven.repo.local={place}/maven",
        "XDG_CACHE_HOME": f"{place}/other",
    }


def test_what_acts_later_is_removed_and_what_is_kept_stays(tmp_path: Path) -> None:
    place = made(tmp_path, "cargo").directory / "cargo"
    (place / "registry/crate").write_text("kept")
    (place / "config.toml").write_text('[build]\nrustc-wrapper = "evil"\n')
    (place / "bin").mkdir()
    (place / "bin/cargo").write_text("evil")
    (place / "git").rmdir()
    (place / "git").symlink_to(tmp_path)
    caches = made(tmp_path, "cargo")
    assert {path.name for path in place.iterdir()} == {"registry", "git"}
    assert (place / "registry/crate").read_text() == "kept"
    assert not (place / "git").is_symlink()
    assert caches.closed == (place,)
    assert {*caches.opened} == {place / "registry", place / "git"}


@pytest.mark.parametrize("change", ["file", "link", "rights", "gone", "row"])
def test_caches_that_changed_are_looked_at_again(tmp_path: Path, change: str) -> None:
    place = tmp_path / "ws"
    place.mkdir()
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "cargo").touch(mode=0o755)
    finder = ToolFinder({"PATH": str(programs)}, tmp_path / "home", tmp_path / "caches")
    for _ in range(3):
        caches = finder.find(place).caches
        time.sleep(0.06)
    assert caches is not None
    cargo = caches.directory / "cargo"
    assert finder.find(place).caches is caches
    if change == "file":
        (cargo / "config.toml").touch()
    elif change == "link":
        (cargo / "git").rmdir()
        (cargo / "git").symlink_to(tmp_path)
    elif change == "rights":
        caches.directory.chmod(0o777)
    elif change == "gone":
        shutil.rmtree(caches.directory)
    else:
        (place / "mvnw").touch()
    again = finder.find(place)
    if change == "rights":
        assert again.caches is None
        return
    assert again.caches is not None
    assert {path.name for path in cargo.iterdir()} == {"registry", "git"}
    assert not (cargo / "git").is_symlink()
    assert ("MAVEN_ARGS" in again.environment) or change != "row"


def test_a_cache_of_which_the_path_is_remembered_is_seen_at_the_persons_own(tmp_path: Path) -> None:
    place, home = tmp_path / "ws", tmp_path / "home"
    place.mkdir()
    home.mkdir()
    program = tmp_path / "tools/pnpm"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)

    def found(**environment: str) -> tuple[Mapping[str, Path], str]:
        own = {"PATH": str(program.parent), **environment}
        tools = ToolFinder(own, home, tmp_path / "caches").find(place)
        assert tools.caches is not None
        return tools.caches.shown, tools.environment["npm_config_store_dir"]

    usual = str(home / ".local/share/pnpm/store")
    shown, said = found()
    assert (list(shown), said) == ([usual], usual)
    assert shown[usual].is_relative_to(tmp_path / "caches")
    assert found(PNPM_HOME=f"{home}/pn")[1] == f"{home}/pn/store"
    # Not in the person's home, in the workspace, or around it.
    for elsewhere in ("/etc", f"{home}/../x", str(place)):
        assert found(PNPM_HOME=elsewhere)[0] == {}


def test_a_cache_that_is_too_large_is_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = made(tmp_path, "go").directory
    locked = directory / "go/mod/module"
    locked.mkdir()
    (locked / "file").write_bytes(b"x" * 10_000)
    locked.chmod(0o500)
    monkeypatch.setattr(tool_finder, "BYTES_MAX", 8_000)
    made(tmp_path, "go", now=1)
    assert locked.exists(), "measured a moment ago"
    made(tmp_path, "go", now=1_000)
    assert not locked.exists()


def test_workspaces_that_were_not_used_for_longest_lose_theirs(tmp_path: Path) -> None:
    first = made(tmp_path, workspace="w0").directory
    for number in range(1, 17):
        made(tmp_path, workspace=f"w{number}", now=number)
    assert not first.exists()
    assert len([*(tmp_path / "caches").iterdir()]) == 16


def test_a_directory_that_others_write_is_none(tmp_path: Path) -> None:
    directory = made(tmp_path).directory
    directory.chmod(0o777)
    found, _, problem = caches_for(tmp_path / "ws", tmp_path / "caches", lambda name: None)
    assert found is None
    assert "other users can use the directory" in problem
