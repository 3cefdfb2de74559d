"""The caches of tools: of one workspace, bounded, and nothing in them that acts later."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.sandbox import tool_caches
from skillhouse.sandbox.tool_caches import caches_for
from skillhouse.sandbox.toolset import Caches


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


def test_a_cache_that_is_too_large_is_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = made(tmp_path, "go").directory
    locked = directory / "go/mod/module"
    locked.mkdir()
    (locked / "file").write_bytes(b"x" * 10_000)
    locked.chmod(0o500)
    monkeypatch.setattr(tool_caches, "BYTES_MAX", 8_000)
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
