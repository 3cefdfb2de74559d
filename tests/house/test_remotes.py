"""Tests of house/remotes.py; the command line's tests sync from a real server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.approval import Answer
from skillhouse.audit import read_records
from skillhouse.discovery import Root
from skillhouse.floor import ConfigError, SkillError, structs
from skillhouse.house import Config, Network, Skillhouse, configured
from skillhouse.house.house_snapshot import with_remotes
from skillhouse.net import Route
from skillhouse.remote import RemoteSource, skills_place
from skillhouse.skill import DEFAULT_PROFILE
from tests.house.places import make_places, write_skill
from tests.remote.servers import BASE, Server, entry, synced, text_of

SOURCE = RemoteSource(url=BASE)


def config_at(base: Path) -> Config:
    return structs.replace(configured(make_places(base)), remotes=(SOURCE,))


def filled(base: Path, **skills: str) -> Config:
    """Return a configuration whose cache holds these skills, with their bodies."""
    config = config_at(base)
    server = Server()
    server.offer(*(entry(server, name, text_of(name, body)) for name, body in skills.items()))
    config.remote_directory.mkdir(parents=True)
    synced(SOURCE, config.remote_directory, server)
    return config


@pytest.mark.parametrize(
    ("changed", "order"),
    [
        ({}, ["user", "remote", "builtin"]),
        ({"root_order": "written"}, ["user", "builtin", "remote"]),
        ({"duplicates": "last"}, ["remote", "user", "builtin"]),
        ({"scopes": tuple(s for s in DEFAULT_PROFILE.scopes if s.name != "remote")}, None),
    ],
)
def test_the_roots_of_servers_are_weaker_than_those_of_this_machine(
    tmp_path: Path, changed: dict[str, Any], order: list[str] | None
) -> None:
    profile = structs.replace(DEFAULT_PROFILE, **changed)
    roots = (Root(tmp_path / "user", "user"), Root(tmp_path / "builtin", "builtin"))
    found = with_remotes(config_at(tmp_path), profile, roots)
    assert [root.scope for root in found] == (order or ["user", "builtin"])


def test_a_remote_skill_takes_no_name_from_a_users(tmp_path: Path) -> None:
    config = filled(tmp_path, notes="Evil.", weather="Theirs.")
    write_skill(config.places.home / ".agents/skills/notes", body="Mine.\n")
    with Skillhouse(config) as house:
        assert house.load("notes").body == "Mine.\n"
        assert house.load("remote:notes").body == "Evil.\n"
        assert "remote:notes" in {skill.id for skill in house.index.shadowed}
        assert any(found.code == "shadowed" for found in house.index.diagnostics)


@pytest.mark.slow
@pytest.mark.req("S001-72")
def test_a_body_that_was_not_loaded_is_reached_by_no_other_tool(tmp_path: Path) -> None:
    config = filled(tmp_path, alpha="The-body-of-alpha.")
    with Skillhouse(config) as house:
        skill = house.index.get("alpha")
        calls: list[tuple[str, dict[str, Any]]] = [
            ("skill", {"name": "alpha"}),
            ("search_skills", {"query": "The-body-of-alpha"}),
            ("read", {"path": skill.file}),
            ("list", {"path": str(skill.directory)}),
            ("fetch", {"url": f"file://{skill.file}"}),
            ("edit", {"path": skill.file, "old": "The", "new": "A"}),
        ]
        assert {name for name, _ in calls} <= {tool.name for tool in house.tools()}
        results = [house.call_sync(name, arguments) for name, arguments in calls]
        assert not [r for r in results if "The-body-of-alpha" in r.content + str(r.data)]
        assert "The-body-of-alpha" not in house.system_prompt() + house.catalog().text
        asked = next(a for a in house.approvals.pending() if a.request.title.startswith("skill"))
        house.approvals.answer(
            asked.id, Answer.ONCE, by="local", channel="cli", nonce=asked.request.nonce
        )
        assert "The-body-of-alpha." in house.call_sync("skill", {"name": "alpha"}).content


def test_a_cache_in_a_scanned_place_is_refused_also_when_no_remote_is_left(tmp_path: Path) -> None:
    config = filled(tmp_path, alpha="Evil.")
    above = config.remote_directory.parent
    naive = Root(above, "explicit")
    for remotes in ((SOURCE,), ()):
        inside = structs.replace(config, remotes=remotes, roots=(above,))
        with pytest.raises(ConfigError, match="is below"):
            _ = Skillhouse(inside).index
    # Without the check it would be one of the user's own, which nobody is asked about.
    found = Skillhouse(structs.replace(config, remotes=())).policy.profile.scope(naive.scope)
    assert found.default_effect == "allow"
    link = tmp_path / "link"
    link.symlink_to(above)
    with pytest.raises(ConfigError, match="is below"):
        _ = Skillhouse(structs.replace(config, roots=(link,))).index


def test_a_sync_without_a_log_fetches_nothing(tmp_path: Path) -> None:
    with Skillhouse(config_at(tmp_path)) as house:
        house.audit_log.path.mkdir(parents=True)
        told: list[str] = []
        with pytest.raises(Exception, match="audit"):
            anyio.run(lambda: house.remotes.sync(progress=told.append))
        assert told == []


def test_one_server_that_fails_costs_no_other(tmp_path: Path) -> None:
    other = RemoteSource(url="https://other.test")
    config = structs.replace(config_at(tmp_path), remotes=(SOURCE, other))

    async def nowhere(host: str, port: int) -> list[str]:
        await anyio.lowlevel.checkpoint()
        raise OSError("no such name")

    with Skillhouse(config) as house:
        house.services.network = Network(config, route=Route(resolve=nowhere))
        done = anyio.run(house.remotes.sync)
        assert [(found.source, found.is_whole) for found in done] == [
            (SOURCE, False),
            (other, False),
        ]
        assert all("cannot reach" in found.error for found in done)
        assert [e.status for e in read_records(house.audit_log.path, limit=5)] == ["error"] * 2
        assert not skills_place(config.remote_directory, SOURCE).exists()


def tamper(config: Config, name: str, relative: str = "SKILL.md") -> Path:
    """Change one byte of a cached file, its size and dates kept."""
    file = skills_place(config.remote_directory, SOURCE) / name / relative
    info = file.stat()
    file.write_bytes(file.read_bytes().replace(b"The", b"Xhe"))
    os.utime(file, ns=(info.st_atime_ns, info.st_mtime_ns))
    return file


def test_a_changed_byte_of_the_cache_is_not_loaded(tmp_path: Path) -> None:
    config = filled(tmp_path, alpha="The body.", beta="The other.")
    tamper(config, "alpha")
    with Skillhouse(config) as house:
        result = house.call_sync("skill", {"name": "alpha"})
        assert result.status == "denied"
        assert "its files are not those that were synced" in result.content
        assert "skillhouse remote sync" in result.content
        assert house.approvals.pending() == ()
        assert house.call_sync("skill", {"name": "beta"}).status == "pending"
        with pytest.raises(SkillError, match="not those that were synced"):
            house.load("alpha")
        assert house.load("beta").body == "The other.\n"


def test_a_cache_of_which_nothing_is_known_is_not_loaded(tmp_path: Path) -> None:
    config = filled(tmp_path, alpha="The body.")
    (skills_place(config.remote_directory, SOURCE).parent / "digests").unlink()
    with Skillhouse(config) as house, pytest.raises(SkillError, match="not known which files"):
        house.load("alpha")


def test_a_file_that_was_added_to_the_cache_is_noticed(tmp_path: Path) -> None:
    config = filled(tmp_path, alpha="The body.")
    (skills_place(config.remote_directory, SOURCE) / "alpha/run.py").write_text("evil")
    with Skillhouse(config) as house:
        assert house.call_sync("skill", {"name": "alpha"}).status == "denied"


def test_the_next_sync_repairs_the_cache_and_says_so(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    server = Server()
    server.offer(*(entry(server, name, text_of(name, "The body.")) for name in ("alpha", "beta")))
    config.remote_directory.mkdir(parents=True)
    assert synced(SOURCE, config.remote_directory, server).added == ("alpha", "beta")
    file = tamper(config, "alpha")
    report = synced(SOURCE, config.remote_directory, server)
    assert (report.repaired, report.kept, report.changed) == (("alpha",), ("beta",), ())
    assert (
        b"The body."
        in (skills_place(config.remote_directory, SOURCE) / "alpha/SKILL.md").read_bytes()
    )
    assert not file.exists() or b"The body." in file.read_bytes()
    with Skillhouse(config) as house:
        assert house.load("alpha").body == "The body.\n"
    assert synced(SOURCE, config.remote_directory, server).repaired == ()


def test_what_cannot_be_fetched_again_stays_refused(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    server = Server()
    offered = entry(server, "alpha", text_of("alpha", "The body."))
    server.offer(offered)
    config.remote_directory.mkdir(parents=True)
    synced(SOURCE, config.remote_directory, server)
    tamper(config, "alpha")
    del server.pages[f"{BASE}/files/alpha"]
    report = synced(SOURCE, config.remote_directory, server)
    assert report.repaired == ()
    assert "`alpha` not taken" in report.problems[0]
    with Skillhouse(config) as house, pytest.raises(SkillError, match="not those"):
        house.load("alpha")


def approved(house: Skillhouse, name: str) -> str:
    """Load a skill, with an answer to the question about it, and return the result."""
    assert house.call_sync("skill", {"name": name}).status == "pending"
    (asked,) = house.approvals.pending()
    house.approvals.answer(
        asked.id, Answer.ONCE, by="local", channel="cli", nonce=asked.request.nonce
    )
    return house.call_sync("skill", {"name": name}).content


@pytest.mark.slow
def test_the_question_about_a_changed_skill_says_so_and_shows_the_difference(
    tmp_path: Path,
) -> None:
    config = config_at(tmp_path)
    server = Server()
    server.offer(entry(server, "alpha", text_of("alpha", "Be kind.")))
    config.remote_directory.mkdir(parents=True)
    synced(SOURCE, config.remote_directory, server)
    with Skillhouse(config) as house:
        assert "Be kind." in approved(house, "alpha")
    server.offer(entry(server, "alpha", text_of("alpha", "Be evil.")))
    assert synced(SOURCE, config.remote_directory, server).changed == ("alpha",)
    with Skillhouse(config) as house:
        assert house.call_sync("skill", {"name": "alpha"}).status == "pending"
        (asked,) = house.approvals.pending()
        facts = dict(asked.request.found)
        assert facts["changed"] == "changed: SKILL.md"
        assert "-Be kind.\n+Be evil.\n" in facts["difference"]
        assert any("it has changed since it was last loaded" in r for r in asked.request.reasons)
        # The answer is about these bytes, and the next question is about what came after them.
        house.approvals.answer(
            asked.id, Answer.ONCE, by="local", channel="cli", nonce=asked.request.nonce
        )
        assert "Be evil." in house.call_sync("skill", {"name": "alpha"}).content
        assert house.call_sync("skill", {"name": "alpha"}).status == "pending"
        (asked,) = house.approvals.pending()
        assert "difference" not in dict(asked.request.found)
        assert not any("changed" in reason for reason in asked.request.reasons)


def test_what_was_never_loaded_has_no_difference(tmp_path: Path) -> None:
    with Skillhouse(filled(tmp_path, alpha="The body.")) as house:
        house.call_sync("skill", {"name": "alpha"})
        (asked,) = house.approvals.pending()
        assert {"changed", "difference"}.isdisjoint(dict(asked.request.found))
    seen = tmp_path / "home/.local/state/skillhouse/seen-skills"
    assert not seen.exists()
