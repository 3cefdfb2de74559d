"""Tests of remote/cache_sync.py."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from pathlib import Path

import anyio
import pytest

from skillhouse.discovery import Root, discover
from skillhouse.remote import Fetched, RemoteError, RemoteSource, skills_place, sync
from tests.remote.servers import (
    BASE,
    WELL_KNOWN,
    Server,
    entry,
    synced,
    tar_of,
    text_of,
    zip_of,
)

SOURCE = RemoteSource(url=BASE)
OPENCODE = RemoteSource(url=f"{BASE}/repo", kind="opencode")


def found(cache: Path, source: RemoteSource = SOURCE) -> dict[str, str]:
    """Return what discovery finds: names and bodies."""
    index = discover([Root(skills_place(cache, source), "remote")])
    return {skill.name: skill.location.read_text() for skill in index.skills}


def test_single_files_and_both_archives_arrive_as_skills(tmp_path: Path) -> None:
    server = Server()
    files = {"SKILL.md": text_of("b"), "scripts/run.py": b"print()\n"}
    server.offer(
        entry(server, "a", text_of("a")),
        entry(server, "b", tar_of(files), kind="archive"),
        entry(server, "c", zip_of({**files, "SKILL.md": text_of("c")}), kind="archive"),
    )
    report = synced(SOURCE, tmp_path, server)
    assert (report.added, report.problems) == (("a", "b", "c"), ())
    assert list(found(tmp_path)) == ["a", "b", "c"]
    assert (skills_place(tmp_path, SOURCE) / "b/scripts/run.py").read_bytes() == b"print()\n"


def test_an_opencode_index_gives_files_below_the_skills_name(tmp_path: Path) -> None:
    index = {"skills": [{"name": "a", "files": ["SKILL.md", "ref/x.md"], "version": "1"}]}
    server = Server(
        {
            f"{BASE}/repo/index.json": json.dumps(index).encode(),
            f"{BASE}/repo/a/SKILL.md": text_of("a"),
            f"{BASE}/repo/a/ref/x.md": b"x",
        }
    )
    assert synced(OPENCODE, tmp_path, server).added == ("a",)
    assert (skills_place(tmp_path, OPENCODE) / "a/ref/x.md").read_bytes() == b"x"
    server.asked.clear()
    assert synced(OPENCODE, tmp_path, server).kept == ("a",)
    assert server.asked == [f"{BASE}/repo/index.json"]


def test_without_a_version_a_skill_is_fetched_again_and_its_change_seen(tmp_path: Path) -> None:
    index = {"skills": [{"name": "a", "files": ["SKILL.md"]}]}
    server = Server(
        {
            f"{BASE}/repo/index.json": json.dumps(index).encode(),
            f"{BASE}/repo/a/SKILL.md": text_of("a"),
        }
    )
    synced(OPENCODE, tmp_path, server)
    assert synced(OPENCODE, tmp_path, server).kept == ("a",)
    server.pages[f"{BASE}/repo/a/SKILL.md"] = text_of("a", "New.")
    assert synced(OPENCODE, tmp_path, server).changed == ("a",)
    assert "New." in found(tmp_path, OPENCODE)["a"]


def test_a_wrong_digest_keeps_the_old_skill_and_writes_nothing_of_the_new(tmp_path: Path) -> None:
    server = Server()
    server.offer(entry(server, "a", text_of("a", "Old.")))
    synced(SOURCE, tmp_path, server)
    server.offer({**entry(server, "a", text_of("a", "Evil.")), "digest": f"sha256:{'0' * 64}"})
    report = synced(SOURCE, tmp_path, server)
    assert report.kept == ("a",)
    assert "expected sha256:000" in report.problems[0]
    assert "Old." in found(tmp_path)["a"]
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and b"Evil." in p.read_bytes()]


def test_one_bad_skill_costs_no_other(tmp_path: Path) -> None:
    server = Server()
    server.offer(
        {**entry(server, "bad", text_of("bad")), "url": "/missing"},
        entry(server, "good", text_of("good")),
        entry(server, "empty", tar_of({"README.md": b"x"}), kind="archive"),
    )
    report = synced(SOURCE, tmp_path, server)
    assert report.added == ("good",)
    assert [problem.split("`")[1] for problem in sorted(report.problems)] == ["bad", "empty"]


def test_what_the_source_lists_no_more_is_gone(tmp_path: Path) -> None:
    server = Server()
    server.offer(entry(server, "a", text_of("a")), entry(server, "b", text_of("b")))
    synced(SOURCE, tmp_path, server)
    server.offer(entry(server, "b", text_of("b")))
    assert synced(SOURCE, tmp_path, server).removed == ("a",)
    assert list(found(tmp_path)) == ["b"]


@pytest.mark.parametrize("answer", [None, b"<html>", b"[]", b'{"skills": 1}'])
def test_a_source_that_is_down_or_talks_nonsense_changes_nothing(
    tmp_path: Path, answer: bytes | None
) -> None:
    server = Server()
    server.offer(entry(server, "a", text_of("a")))
    synced(SOURCE, tmp_path, server)
    if answer is None:
        server.is_down = True
    else:
        server.pages[WELL_KNOWN] = answer
    with pytest.raises(RemoteError):
        synced(SOURCE, tmp_path, server)
    assert list(found(tmp_path)) == ["a"]


def test_the_older_place_of_the_index_is_asked_second(tmp_path: Path) -> None:
    index = {"skills": [{"name": "a", "files": ["SKILL.md"]}]}
    server = Server(
        {
            f"{BASE}/.well-known/skills/index.json": json.dumps(index).encode(),
            f"{BASE}/.well-known/skills/a/SKILL.md": text_of("a"),
        }
    )
    assert synced(SOURCE, tmp_path, server).added == ("a",)


def test_two_sources_never_share_a_place(tmp_path: Path) -> None:
    """Trap 16: with one place for all, one server's skill became another's."""
    other = RemoteSource(url="https://other.test")
    places = {skills_place(tmp_path, source) for source in (SOURCE, OPENCODE, other)}
    assert len(places) == 3


def test_readers_see_the_old_skills_or_the_new_and_never_a_mixture(tmp_path: Path) -> None:
    server = Server()
    seen: list[set[str]] = []

    async def spying(url: str, limit: int) -> Fetched:
        if skills_place(tmp_path, SOURCE).exists():
            seen.append({text.split("---\n")[2] for text in found(tmp_path).values()})
        return await server.fetch(url, limit)

    for body in ("One.", "Two.", "Three."):
        server.offer(*(entry(server, name, text_of(name, body)) for name in ("a", "b")))
        anyio.run(sync, SOURCE, tmp_path, spying)
        assert {text.split("---\n")[2] for text in found(tmp_path).values()} == {f"{body}\n"}
    assert len(seen) > 4
    assert all(len(bodies) == 1 for bodies in seen)


def _sync_slowly(cache: Path, server: Server) -> None:
    async def slow(url: str, limit: int) -> Fetched:
        if url.endswith("/files/b"):
            (cache / "half").touch()
            await anyio.sleep(60)
        return await server.fetch(url, limit)

    anyio.run(sync, SOURCE, cache, slow)


@pytest.mark.slow
def test_a_killed_sync_leaves_the_old_skills_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    server = Server()
    server.offer(entry(server, "a", text_of("a", "Old.")))
    synced(SOURCE, tmp_path, server)
    server.offer(entry(server, "a", text_of("a", "New.")), entry(server, "b", text_of("b", "New.")))
    process = multiprocessing.get_context("fork").Process(
        target=_sync_slowly, args=(tmp_path, server)
    )
    process.start()
    while not (tmp_path / "half").exists():
        time.sleep(0.01)
    with pytest.raises(RemoteError, match="another process"):
        synced(SOURCE, tmp_path, server)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    (tmp_path / "half").unlink()
    assert {name: "Old." in text for name, text in found(tmp_path).items()} == {"a": True}
    assert synced(SOURCE, tmp_path, server).added == ("b",)
    place = skills_place(tmp_path, SOURCE).parent.parent
    assert len(list(place.iterdir())) == 3  # lock, current, and what it points to
