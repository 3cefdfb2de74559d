"""Tests of skills over MCP, server side, with the SDK's client in memory."""

from __future__ import annotations

import base64
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, BlobResourceContents, Request, TextResourceContents
from pydantic import TypeAdapter

from skillhouse.approval import Answer
from skillhouse.audit import read_records
from skillhouse.floor import digest
from skillhouse.frontends.mcp.server import SkillhouseServer
from skillhouse.frontends.mcp.skill_resources import (
    FILES_MAX,
    PAGE_MAX,
    Manifests,
    SkillResources,
    paged,
)
from skillhouse.frontends.mcp.skills import EXTENSION, NOT_APPROVED
from skillhouse.frontends.mcp.tasks import EXTENSION as TASKS
from skillhouse.frontends.mcp.tool_list import ToolListing
from skillhouse.house import Skillhouse, configured
from skillhouse.skill import SKILL_FILE, Skill, parse
from tests.house.places import make_places, write_skill

DENY_OURS = "".join(
    f'[[rules]]\neffect = "deny"\naction = "skill"\npattern = "{name}"\n'
    for name in ("weather", "github", "web-search")
)
NOTES = "skill://user/notes"


class Asker:
    """A client that asks for what it likes."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def __call__(self, method: str, **params: Any) -> dict[str, Any]:
        request = Request[dict[str, Any], str](method=method, params=params)
        shape: TypeAdapter[Any] = TypeAdapter(dict[str, Any])
        answer: dict[str, Any] = await self.client.session.send_request(request, shape)
        assert answer.get("resultType") == "complete"
        return answer

    async def read(self, uri: str) -> bytes:
        """Return the bytes at an address."""
        [content] = (await self.client.read_resource(uri)).contents
        if isinstance(content, TextResourceContents):
            return content.text.encode()
        assert isinstance(content, BlobResourceContents)
        return base64.b64decode(content.blob)

    async def refused(self, method: str, **params: Any) -> MCPError:
        """Return the error of a request."""
        with pytest.raises(MCPError) as caught:
            await self(method, **params)
        return caught.value


class Place:
    """A home with skills, and the house made of it."""

    def __init__(self, base: Path) -> None:
        self.places = make_places(base)
        self.skills = self.places.home / ".agents/skills"
        self.rules(DENY_OURS)

    def rules(self, text: str) -> None:
        """Write the user's rules."""
        self.places.user_file.parent.mkdir(parents=True, exist_ok=True)
        self.places.user_file.write_text(text, encoding="utf-8")

    def house(self) -> Skillhouse:
        """Return the house as it is configured now."""
        return Skillhouse(configured(self.places))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@asynccontextmanager
async def asking(house: Skillhouse, **options: Any) -> AsyncIterator[Asker]:
    listing = ToolListing(house, "default")
    server = SkillhouseServer(house, listing, agent="default", user="local")
    async with Client(server.sdk, cache=None, **options) as client:
        yield Asker(client)


def talk(house: Skillhouse, work: Callable[[Asker], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with asking(house, **options) as origin_digest:
            await work(origin_digest)

    with house:
        anyio.run(main)


def rich_skill(place: Place) -> dict[str, bytes]:
    """Write a skill with files of all kinds, and return those that are served."""
    directory = write_skill(place.skills / "notes", "Takes notes.", body="# Notes\n")
    files = {
        "assets/logo.bin": bytes(range(256)),
        "references/ü ber%2f#.md": b"# A\r\n",
        "scripts/run.py": b"print()\n",
    }
    for relative, data in files.items():
        (directory / relative).parent.mkdir(exist_ok=True)
        (directory / relative).write_bytes(data)
    (directory / "empty").mkdir()
    return {SKILL_FILE: (directory / SKILL_FILE).read_bytes(), **files}


def test_an_entry_lists_every_file_with_digest_and_size(place: Place) -> None:
    files = rich_skill(place)

    async def work(ask: Asker) -> None:
        capabilities = ask.client.server_capabilities
        assert capabilities.extensions == {EXTENSION: {"directoryRead": True}, TASKS: {}}
        assert capabilities.resources is not None
        [entry] = (await ask("skills/list"))["skills"]
        assert entry["uri"] == f"{NOTES}/SKILL.md"
        assert entry["frontmatter"] == {"name": "notes", "description": "Takes notes."}
        found = {one["uri"]: (one["digest"], one["size"]) for one in entry["resources"]}
        assert sorted(found.values()) == sorted((digest(d), len(d)) for d in files.values())
        for uri, (hashed, size) in found.items():
            data = await ask.read(uri)
            assert (digest(data), len(data)) == (hashed, size)
        assert f"{NOTES}/references/%C3%BC%20ber%252f%23.md" in found
        answer = await ask("skills/get", uri=f"{NOTES}/SKILL.md")
        assert answer["skill"] == entry
        assert (answer["ttlMs"], answer["cacheScope"]) == (0, "private")

    talk(place.house(), work)


def test_resources_say_what_they_are(place: Place) -> None:
    directory = write_skill(place.skills / "notes", "Takes notes.")
    text = "---\nname: notes\ndescription: Takes notes.\nlicense: MIT\nversion: 1.0\n---\n"
    (directory / SKILL_FILE).write_text(text, encoding="utf-8")

    async def work(ask: Asker) -> None:
        [found] = (await ask("resources/list"))["resources"]
        meta = {"io.modelcontextprotocol.skills/license": "MIT"}
        assert found == {
            "uri": f"{NOTES}/SKILL.md",
            "name": "notes",
            "description": "Takes notes.",
            "mimeType": "text/markdown",
            "size": len(text),
            "_meta": meta,
        }
        [content] = (await ask("resources/read", uri=found["uri"]))["contents"]
        assert (content["mimeType"], content["_meta"]) == ("text/markdown", meta)
        [template] = (await ask("resources/templates/list"))["resourceTemplates"]
        assert template["uriTemplate"] == "skill://{+skill}/SKILL.md"

    talk(place.house(), work)


def test_directories_are_read_one_level_at_a_time(place: Place) -> None:
    rich_skill(place)

    async def work(ask: Asker) -> None:
        async def children(uri: str) -> list[tuple[str, str]]:
            found = (await ask("resources/directory/read", uri=uri))["resources"]
            return [(one["name"], one["mimeType"]) for one in found]

        kind = "inode/directory"
        assert await children(NOTES) == [
            ("notes", "text/markdown"),
            ("assets", kind),
            ("empty", kind),
            ("references", kind),
            ("scripts", kind),
        ]
        assert await children(f"{NOTES}/empty") == []
        assert await children(f"{NOTES}/scripts") == [("run.py", "text/x-python")]
        for uri in (f"{NOTES}/SKILL.md", f"{NOTES}/", f"{NOTES}/nothing", "skill://user", "x"):
            error = await ask.refused("resources/directory/read", uri=uri)
            assert (error.code, error.data) == (INVALID_PARAMS, {"uri": uri})

    talk(place.house(), work)


@pytest.mark.parametrize(
    "end",
    [
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/link.txt",
        "/.env",
        "/.git/config",
        "/linked/secret.txt",
        "/scripts",
        "",
        "/",
        "/skill.md",
        "/SKILL.md?x",
        "/./SKILL.md",
        "//SKILL.md",
    ],
)
def test_only_what_is_listed_can_be_read(place: Place, end: str) -> None:
    rich_skill(place)
    directory = place.skills / "notes"
    secret = place.skills / "secret.txt"
    secret.write_text("secret", encoding="utf-8")
    (directory / "link.txt").symlink_to(secret)
    (directory / "linked").symlink_to(place.skills)
    (directory / ".env").write_text("KEY=1", encoding="utf-8")
    (directory / ".git").mkdir()
    (directory / ".git/config").write_text("x", encoding="utf-8")
    os.mkfifo(directory / "pipe")

    async def work(ask: Asker) -> None:
        [entry] = (await ask("skills/list"))["skills"]
        assert len(entry["resources"]) == 4
        error = await ask.refused("resources/read", uri=f"{NOTES}{end}")
        assert error.code == INVALID_PARAMS

    talk(place.house(), work)


def test_what_an_agent_is_denied_is_not_there(place: Place) -> None:
    write_skill(place.skills / "notes")
    write_skill(place.skills / "off")
    place.rules(f'{DENY_OURS}[[rules]]\neffect = "deny"\naction = "skill"\npattern = "notes"\n')
    house = place.house()
    house.management.set_enabled("off", enabled=False)

    async def work(ask: Asker) -> None:
        assert (await ask("skills/list"))["skills"] == []
        assert (await ask("resources/list"))["resources"] == []
        for name in ("notes", "off"):
            uri = f"skill://user/{name}/SKILL.md"
            for method in ("skills/get", "resources/read"):
                assert (await ask.refused(method, uri=uri)).code == INVALID_PARAMS

    talk(house, work)


def test_a_skill_that_is_asked_about_is_listed_and_read_after_a_yes(place: Place) -> None:
    write_skill(place.skills / "notes")
    place.rules(f'{DENY_OURS}[[rules]]\neffect = "ask"\naction = "skill"\npattern = "notes"\n')
    house = place.house()
    uri = f"{NOTES}/SKILL.md"

    async def work(ask: Asker) -> None:
        assert len((await ask("skills/list"))["skills"]) == 1
        error = await ask.refused("resources/read", uri=uri)
        assert error.code == NOT_APPROVED
        assert isinstance(error.data, dict)
        assert error.data["status"] == "pending"
        waiting = house.approvals.get(error.data["approvalId"])
        house.approvals.answer(
            waiting.id, Answer.ONCE, by="local", channel="cli", nonce=waiting.request.nonce
        )
        assert (await ask.read(uri)).endswith(b"Body.\n")
        # Once was once.
        assert (await ask.refused("resources/read", uri=uri)).code == NOT_APPROVED

    talk(house, work)


def test_reads_stand_in_the_log_and_listing_does_not(place: Place) -> None:
    files = rich_skill(place)
    house = place.house()

    async def work(ask: Asker) -> None:
        await ask("skills/list")
        await ask("skills/get", uri=f"{NOTES}/SKILL.md")
        await ask.read(f"{NOTES}/scripts/run.py")

    talk(house, work)
    entries = read_records(house.audit_log.path, newest_first=False)
    [entry] = entries
    assert (entry.record.tool, entry.record.channel, entry.status) == ("skill_file", "mcp", "ok")
    assert entry.outcome is not None
    assert entry.outcome.detail == {
        "skill": "user:notes",
        "file": "scripts/run.py",
        "digest": digest(files["scripts/run.py"]),
    }


def test_a_changed_file_has_another_digest_at_once(place: Place) -> None:
    rich_skill(place)
    script = place.skills / "notes/scripts/run.py"

    async def work(ask: Asker) -> None:
        async def listed() -> str:
            [entry] = (await ask("skills/list"))["skills"]
            found = {one["uri"]: one["digest"] for one in entry["resources"]}
            return str(found[f"{NOTES}/scripts/run.py"])

        assert await listed() == digest(b"print()\n")
        info = script.stat()
        script.write_bytes(b"PRINT()\n")
        # As long as before, and with the same time.
        os.utime(script, ns=(info.st_atime_ns, info.st_mtime_ns))
        assert await listed() == digest(b"PRINT()\n")
        assert await ask.read(f"{NOTES}/scripts/run.py") == b"PRINT()\n"

    talk(place.house(), work)


def test_a_file_that_has_not_changed_is_hashed_once(tmp_path: Path) -> None:
    directory = write_skill(tmp_path / "notes")
    later = (directory / SKILL_FILE).stat().st_mtime + 60
    manifests = Manifests(clock=lambda: later)
    first = manifests.of(directory, tmp_path)
    assert manifests.of(directory, tmp_path).files[0] is first.files[0]
    # Within the grain of its times a file may change unseen, so it is hashed again.
    fresh = Manifests(clock=lambda: later - 60)
    assert fresh.of(directory, tmp_path).files[0] is not fresh.of(directory, tmp_path).files[0]


def broken_skills(place: Place) -> None:
    """Write skills that a host could not load."""
    write_skill(place.skills / "Big-Name")
    write_skill(place.skills / "long", "x" * 1025)
    repaired = write_skill(place.skills / "colon")
    head = "---\nname: colon\ndescription: Use when: asked\n---\n"
    (repaired / SKILL_FILE).write_text(head, encoding="utf-8")
    number = write_skill(place.skills / "number")
    head = "---\nname: number\ndescription: 2024\n---\n"
    (number / SKILL_FILE).write_text(head, encoding="utf-8")
    many = write_skill(place.skills / "many")
    for count in range(FILES_MAX):
        (many / f"f{count}").touch()
    heavy = write_skill(place.skills / "heavy")
    with open(heavy / "data.bin", "wb") as file:
        file.truncate(16 * 1024 * 1024)
    linked = write_skill(place.skills / "linked")
    (linked / SKILL_FILE).rename(place.skills / "text.md")
    (linked / SKILL_FILE).symlink_to(place.skills / "text.md")


@pytest.mark.slow
def test_a_skill_that_no_host_could_load_is_not_served_and_the_log_says_why(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    broken_skills(place)
    write_skill(place.skills / "good")
    house = place.house()
    seen = {skill.directory.name for skill in house.view().visible.skills}

    async def work(ask: Asker) -> None:
        for _ in range(2):
            found = (await ask("skills/list"))["skills"]
            assert [entry["frontmatter"]["name"] for entry in found] == ["good"]
        for name in seen - {"good"}:
            uri = f"skill://user/{name}/SKILL.md"
            assert (await ask.refused("resources/read", uri=uri)).code == INVALID_PARAMS

    with caplog.at_level(logging.WARNING):
        talk(house, work)
    said = [record.message for record in caplog.records if "not served" in record.message]
    # Our own tools have them all, and the log tells of each once.
    assert seen > {"colon", "heavy", "many", "number"}
    assert len(said) == len(seen) - 1


@pytest.mark.slow
def test_pages_hold_every_skill_once_while_skills_come_and_go(place: Place) -> None:
    for number in range(PAGE_MAX * 2 + 5):
        write_skill(place.skills / f"s{number:03}")
    house = place.house()

    async def work(ask: Asker) -> None:
        first = await ask("skills/list")
        assert len(first["skills"]) == PAGE_MAX
        # One that was listed goes, one comes before the cursor, one after it.
        (place.skills / "s000" / SKILL_FILE).unlink()
        write_skill(place.skills / "a-new")
        write_skill(place.skills / "z-new")
        house.refresh()
        names = [entry["frontmatter"]["name"] for entry in first["skills"]]
        cursor = first["nextCursor"]
        while cursor is not None:
            page = await ask("skills/list", cursor=cursor)
            names += [entry["frontmatter"]["name"] for entry in page["skills"]]
            cursor = page.get("nextCursor")
        assert names == [f"s{number:03}" for number in range(PAGE_MAX * 2 + 5)] + ["z-new"]
        for method in ("skills/list", "resources/list"):
            for wrong in ("5", "not base64!", "/w=="):
                error = await ask.refused(method, cursor=wrong)
                assert error.code == INVALID_PARAMS

    talk(house, work)


@given(
    items=st.lists(st.text(max_size=5), unique=True, max_size=30),
    size=st.integers(min_value=1, max_value=7),
)
def test_pages_put_together_are_the_whole(items: list[str], size: int) -> None:
    ordered = sorted(items)
    found: list[str] = []
    cursor: str | None = None
    for _ in range(len(items) + 1):
        page: Sequence[str]
        page, cursor = paged(ordered, cursor, key=str, size=size)
        found += page
        if cursor is None:
            break
    assert found == ordered


def test_a_cursor_of_nobody_is_refused() -> None:
    for cursor in ("", "a", "a b", "é"):
        if cursor:
            with pytest.raises(MCPError, match="expected a cursor of an earlier answer"):
                paged(["a"], cursor, key=str)


def test_skills_of_one_scope_and_name_have_addresses_of_their_own(tmp_path: Path) -> None:
    def found(directory: Path, scope: str, name: str) -> Skill:
        file = write_skill(directory) / SKILL_FILE
        skill = parse(file.read_bytes(), directory=directory.name, path=file).skill
        assert skill is not None
        return Skill(
            name=name,
            description=skill.description,
            scope=scope,
            file=skill.file,
            root=str(directory.parent),
            packed_fields=skill.packed_fields,
        )

    alone = found(tmp_path / "a/notes", "user", "notes")
    other = found(tmp_path / "b/notes", "project", "notes")
    twin = found(tmp_path / "c/notes", "project", "notes")
    plugin = found(tmp_path / "d/notes", "plugin", "acme:notes")
    offer = SkillResources(lambda: (alone, other, twin, plugin))
    entries, cursor = offer.page(None)
    assert cursor is None
    uris = [entry.uri for entry in entries]
    assert {uri for uri in uris if "project" not in uri} == {
        "skill://user/notes/SKILL.md",
        "skill://plugin/acme/notes/SKILL.md",
    }
    assert len({uri for uri in uris if uri.startswith("skill://project/")}) == 2
    assert "skill://project/notes/SKILL.md" not in uris
    for entry in entries:
        same = offer.entry(entry.uri)
        assert same is not None
        assert same.skill == entry.skill


def test_clients_of_the_handshake_read_skills_as_plain_resources(place: Place) -> None:
    write_skill(place.skills / "notes")

    async def work(ask: Asker) -> None:
        # These revisions have no place to declare an extension.
        assert ask.client.server_capabilities.extensions is None
        assert ask.client.server_capabilities.resources is not None
        [found] = (await ask.client.list_resources()).resources
        assert (await ask.read(found.uri)).endswith(b"Body.\n")

    talk(place.house(), work, mode="legacy")
