"""Attacks by files and listings that are no such: pipes, devices, odd names, long pages (E7)."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.floor import ConfigError, read_regular
from skillhouse.house import Skillhouse, configured, load_config
from skillhouse.house.conversation import agent_skills
from skillhouse.permission import Effect, Permission
from skillhouse.remote import McpCache, McpHost, RemoteError, RemoteSource, mcp_source
from skillhouse.remote.mcp_entry import read_entry
from skillhouse.remote.source import read_listing
from skillhouse.skill import SKILL_FILE, load_profile
from tests.house.places import make_places
from tests.remote.mcp_liar import Liar, entry_of, serving, skill_file

NAMES = [
    ".git/config",
    "sub/.git/hooks/pre-commit",
    ".GIT/config",
    "git~1/config",
    ".g\u200cit/config",
    "../x.md",
    "/etc/passwd",
    "con",
    "docs/COM1.txt",
    "a.",
    "b ",
    "a:b",
    "a\x1b[31m.md",
    "a\u202e.md",
    "x" * 300,
    "/".join("abcdefghijklmnopqrst"),
]


def fifo(path: Path) -> None:
    os.mkfifo(path)


def zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def bound(path: Path) -> None:
    # By a short way: the address of a socket has 108 bytes (unix(7)).
    place = os.open(path.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{place}/{path.name}")
    os.close(place)


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 30)


NO_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "fifo": (fifo, "expected a regular file, got a FIFO"),
    "zero": (zero, "expected a regular file, got a device"),
    "directory": (Path.mkdir, "expected a regular file, got a directory"),
    "socket": (bound, "expected a regular file, got a socket"),
    "large": (large, "expected at most"),
}


@pytest.fixture(params=sorted(NO_FILES))
def odd(request: pytest.FixtureRequest) -> tuple[Callable[[Path], object], str]:
    return NO_FILES[request.param]


def test_an_operators_file_that_is_none_is_an_error_that_names_it(
    tmp_path: Path, odd: tuple[Callable[[Path], object], str]
) -> None:
    make, wrong = odd
    place = tmp_path / "config.toml"
    make(place)
    with pytest.raises(ConfigError, match=wrong) as caught:
        read_regular(place, 1_000)
    assert str(place) in str(caught.value)
    # Agents' files and profiles are read by the same function.
    with pytest.raises(ConfigError, match=wrong):
        agent_skills(place)
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    make(profiles / "mine.toml")
    with pytest.raises(ConfigError, match=wrong):
        load_profile("mine", profiles)


def test_a_users_file_that_is_none_is_an_error_at_once(
    tmp_path: Path, odd: tuple[Callable[[Path], object], str]
) -> None:
    make, wrong = odd
    places = make_places(tmp_path)
    places.user_file.parent.mkdir(parents=True, exist_ok=True)
    make(places.user_file)
    with pytest.raises(ConfigError, match=wrong):
        load_config(places)


def test_a_policy_that_is_none_stops_effects_and_hangs_nothing(
    tmp_path: Path, odd: tuple[Callable[[Path], object], str]
) -> None:
    make, wrong = odd
    places = make_places(tmp_path)
    places.policy_file.parent.mkdir(parents=True, exist_ok=True)
    make(places.policy_file)
    (places.start / "a.txt").write_text("text")
    with Skillhouse(configured(places)) as house:
        assert wrong in house.services.enforcement.policy.fault
        assert house.call_sync("read", {"path": "a.txt"}).status == "ok"
        refused = house.call_sync("write", {"path": "a.txt", "content": "x"})
        assert refused.status != "ok"
    assert (places.start / "a.txt").read_text() == "text"


DENY = '[[rules]]\naction = "read"\npattern = "*/secret.txt"\neffect = "deny"\n'


def project_house(base: Path, make: Callable[[Path], object]) -> Skillhouse:
    """Return the house of a trusted project whose file is what `make` makes."""
    places = make_places(base)
    make(places.start / "skillhouse.toml")
    (places.start / "secret.txt").write_text("secret")
    (places.start / "a.txt").write_text("text")
    with Skillhouse(configured(places)) as house:
        house.project_trust.trust()
    return Skillhouse(configured(places))


def read(house: Skillhouse, name: str) -> str:
    return house.call_sync("read", {"path": name}).status


@pytest.mark.parametrize(
    "extra", ["colour = 1\n", "roots = ['/']\n", "catalog_budget_tokens = 'x'\n"]
)
def test_a_bad_key_of_a_project_stops_no_call_and_its_rules_hold(
    tmp_path: Path, extra: str
) -> None:
    with project_house(tmp_path, lambda path: path.write_text(extra + DENY)) as house:
        assert (read(house, "a.txt"), read(house, "secret.txt")) == ("ok", "denied")
        (found,) = [d for d in house.index.diagnostics if d.code == "project-config"]
        assert extra.partition(" ")[0] in found.message or "wrong value" in found.message
        assert str(found.path).endswith("skillhouse.toml")


@pytest.mark.parametrize(
    "text",
    ["[[rules]\n", DENY + "patern = 1\n", DENY.replace("deny", "dney"), "\0", "a = " + "[" * 5_000],
)
def test_rules_of_a_project_that_cannot_be_read_have_everything_asked(
    tmp_path: Path, text: str
) -> None:
    with project_house(tmp_path, lambda path: path.write_text(text)) as house:
        found = house.policy.explain(Permission(action="read", resource="/x"), default=Effect.ALLOW)
        assert found.decision.effect is Effect.ASK
        assert "the rules of this project cannot be read" in found.reason
        refused = house.call_sync("read", {"path": "secret.txt"})
        assert refused.status == "pending"
        assert "skillhouse.toml" in refused.content
        assert [d.code for d in house.index.diagnostics].count("project-config") == 1


def test_what_an_agent_may_is_asked_about_while_a_projects_rules_cannot_be_read(
    tmp_path: Path,
) -> None:
    """An agent breaks the file that denies it something; what it may elsewhere does not help."""

    def make(path: Path, text: str) -> None:
        path.write_text(text)
        user_file = make_places(tmp_path).user_file
        user_file.parent.mkdir(parents=True, exist_ok=True)
        allow = '[[agents.default.rules]]\neffect = "allow"\naction = "*"\npattern = "*"\n'
        user_file.write_text(allow)

    for text, effect in ((DENY, "denied"), (DENY + "[[", "pending")):
        with project_house(tmp_path, lambda path, text=text: make(path, text)) as house:  # type: ignore[misc]
            assert read(house, "secret.txt") == effect


def test_a_projects_file_that_is_none_hangs_nothing(
    tmp_path: Path, odd: tuple[Callable[[Path], object], str]
) -> None:
    make, wrong = odd
    with project_house(tmp_path, make) as house:
        refused = house.call_sync("read", {"path": "a.txt"})
        assert refused.status == "pending"
        assert wrong in refused.content


@pytest.mark.parametrize("pages", [[5_000], [600, 600], [1_001]])
def test_a_page_over_the_limit_is_an_error_of_that_server(pages: list[int]) -> None:
    class Client:
        server_capabilities = type("C", (), {"extensions": {mcp_source.EXTENSION: {}}})()

        def __init__(self) -> None:
            self.session = self
            self.asked = 0

        async def send_request(self, *_: Any) -> dict[str, Any]:
            count, self.asked = pages[self.asked], self.asked + 1
            more = {"nextCursor": str(self.asked)} if self.asked < len(pages) else {}
            return {"skills": [{}] * count, **more}

    peer = mcp_source._SdkPeer(type("S", (), {"label": "docs"})(), Client())  # noqa: SLF001
    with pytest.raises(RemoteError, match="more than 1000 skills"):
        anyio.run(peer.list_skills)


def test_a_server_with_a_page_of_thousands_costs_itself_only(tmp_path: Path) -> None:
    liar = Liar()
    for number in range(mcp_source.SKILLS_MAX + 1):
        liar.offer(f"skill://s{number}", {SKILL_FILE: skill_file(f"s{number}")})
    with serving(liar) as server:
        host = McpHost([server], McpCache(tmp_path))
        with pytest.raises(RemoteError, match="more than 1000 skills"):
            anyio.run(host.refresh, "docs")
    assert host.skills() == ()


@pytest.mark.parametrize("name", NAMES)
def test_an_odd_name_costs_its_skill_and_no_other(name: str) -> None:
    source = RemoteSource(url="https://a.example/skills/", kind="opencode")
    entries = [
        {"name": "odd", "description": "d", "files": [SKILL_FILE, name]},
        {"name": "good", "description": "d", "files": [SKILL_FILE, "docs/a.md", ".gitignore"]},
    ]
    listing = read_listing(source, json.dumps({"skills": entries}).encode(), source.url)
    assert [skill.name for skill in listing.skills] == ["good"]
    assert len(listing.problems) == 1
    entry = entry_of("skill://pdf", {SKILL_FILE: skill_file("pdf")})
    entry["resources"].append({**entry["resources"][0], "uri": f"skill://pdf/{name}"})
    with pytest.raises(RemoteError):
        read_entry("docs", entry)


@pytest.mark.parametrize("files", [["a.md", "A.MD"], ["a", "a/b"], ["\u017f.md", "s.md"]])
def test_two_names_of_one_place_are_refused(files: list[str]) -> None:
    source = RemoteSource(url="https://a.example/skills/", kind="opencode")
    entries = [{"name": "odd", "description": "d", "files": [SKILL_FILE, *files]}]
    listing = read_listing(source, json.dumps({"skills": entries}).encode(), source.url)
    assert "one place" in listing.problems[0]
