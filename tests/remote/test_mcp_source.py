"""Tests of the host of MCP skills, against servers in memory over the SDK's real client."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.floor import ConfigError
from skillhouse.remote import McpCache, McpHost, McpServer, RemoteError, VerificationError
from skillhouse.remote.mcp_entry import frontmatter_difference, read_entry, shown_names
from skillhouse.skill import SKILL_FILE, load, typed_fields
from tests.remote.mcp_liar import Liar, entry_of, host_of, listed, skill_file

pytestmark = pytest.mark.slow

FILES = {
    SKILL_FILE: skill_file("pdf"),
    "references/FORMS.md": b"# Forms\r\n",
    "assets/logo.bin": bytes(range(256)),
}


async def test_listing_reads_no_file_and_loading_reads_one(tmp_path: Path) -> None:
    liar = Liar()
    liar.offer("skill://pdf", FILES)
    host = host_of(tmp_path, docs=liar)
    report = await host.refresh("docs")
    assert report.added == ("skill://pdf/SKILL.md",)
    [skill] = host.skills()
    assert liar.reads == []
    assert (skill.id, skill.scope) == ("remote:docs:pdf", "remote")
    assert skill.description == "[from MCP server docs] Does things."
    assert host.files(skill) == ("assets/logo.bin", "references/FORMS.md")
    assert await host.fetch(skill) == FILES[SKILL_FILE]
    assert liar.reads == ["skill://pdf/SKILL.md"]
    assert load(skill).body == "Body of pdf.\n"
    # Text with CRLF and bytes that are no text both come as they are.
    assert await host.fetch(skill, "references/FORMS.md") == FILES["references/FORMS.md"]
    assert await host.fetch(skill, "assets/logo.bin") == FILES["assets/logo.bin"]
    # From now on the cache answers.
    for relative in FILES:
        assert await host.fetch(skill, relative) == FILES[relative]
    assert len(liar.reads) == 3


async def test_what_was_listed_is_known_after_a_restart_and_still_of_its_server(
    tmp_path: Path,
) -> None:
    liar = Liar()
    liar.offer("skill://pdf", FILES)
    first = host_of(tmp_path, docs=liar)
    await first.refresh("docs")
    [before] = first.skills()
    await first.fetch(before)
    asked = list(liar.asked)
    again = host_of(tmp_path, docs=liar)
    [after] = again.skills()
    assert after == before
    assert "MCP server `docs`" in again.origin(after)
    assert await again.fetch(after) == FILES[SKILL_FILE]
    assert liar.asked == asked


async def test_a_skill_that_is_not_listed_is_had_by_its_address_and_stays(tmp_path: Path) -> None:
    liar = Liar()
    liar.unlisted["skill://deep/pdf/SKILL.md"] = entry_of("skill://deep/pdf", FILES)
    host = host_of(tmp_path, docs=liar)
    await host.refresh("docs")
    assert host.skills() == ()
    await host.add("docs", "skill://deep/pdf/SKILL.md")
    assert [skill.name for skill in host.skills()] == ["docs:pdf"]
    # An empty list is no proof that there are no skills.
    await host.refresh("docs")
    assert [skill.name for skill in host.skills()] == ["docs:pdf"]
    del liar.unlisted["skill://deep/pdf/SKILL.md"]
    report = await host.refresh("docs")
    assert report.removed == ("skill://deep/pdf/SKILL.md",)
    assert host.skills() == ()
    with pytest.raises(RemoteError, match="no such skill"):
        await host.add("docs", "skill://deep/pdf/SKILL.md")


async def test_pages_are_followed_to_their_end(tmp_path: Path) -> None:
    liar = Liar()
    entries = [entry_of(f"skill://{n}", {SKILL_FILE: skill_file(n)}) for n in ("a", "b", "c")]
    liar.pages = {None: (entries[:1], "1"), "1": ([], "2"), "2": (entries[1:], None)}
    host = host_of(tmp_path, docs=liar)
    report = await host.refresh("docs")
    assert len(report.added) == 3
    liar.pages["2"] = (entries[1:], "1")
    with pytest.raises(RemoteError, match="does not end"):
        await host.refresh("docs")
    assert len(host.skills()) == 3


async def test_a_bad_entry_costs_no_other_and_is_reported(tmp_path: Path) -> None:
    liar = Liar()
    liar.offer("skill://good", {SKILL_FILE: skill_file("good")})
    liar.entries += [
        "x",
        {**entry_of("skill://live", {SKILL_FILE: skill_file("live")}), "resources": "dynamic"},
    ]
    host = host_of(tmp_path, docs=liar)
    report = await host.refresh("docs")
    assert [skill.name for skill in host.skills()] == ["docs:good"]
    assert len(report.problems) == 2
    assert "made on demand" in report.problems[1]


async def test_a_server_without_the_extension_is_asked_nothing(tmp_path: Path) -> None:
    liar = Liar()
    liar.sdk.extensions.clear()
    host = host_of(tmp_path, docs=liar)
    with pytest.raises(RemoteError, match="does not offer skills"):
        await host.refresh("docs")
    assert liar.asked == []


def test_a_new_set_of_files_is_another_binding_and_another_place(tmp_path: Path) -> None:
    liar, host, before = listed(tmp_path, FILES)

    async def work() -> None:
        await host.fetch(before)
        liar.entries.clear()
        liar.offer("skill://pdf", {**FILES, "references/NEW.md": b"new"})
        report = await host.refresh("docs")
        assert report.changed == ("skill://pdf/SKILL.md",)
        [after] = host.skills()
        assert host.binding(before) != host.binding(after)
        assert before.directory != after.directory
        # Who acts on the old one goes by the entry it was loaded from.
        with pytest.raises(VerificationError, match="is no file of"):
            await host.fetch(before, "references/NEW.md")
        assert await host.fetch(after, "references/NEW.md") == b"new"

    anyio.run(work)


def test_what_a_server_no_longer_has_leaves_the_disk(tmp_path: Path) -> None:
    liar, host, skill = listed(tmp_path, FILES)

    async def work() -> None:
        await host.fetch(skill)
        assert skill.location.exists()
        liar.entries.clear()
        await host.refresh("docs")
        assert not skill.location.exists()
        host.forget("docs")
        assert not (tmp_path / "cache" / "docs").exists()

    anyio.run(work)


async def test_the_real_server_of_a_house_can_be_read(tmp_path: Path) -> None:
    """Our host, our server, and a process between them."""
    from tests.frontends.mcp_peer import Peer  # noqa: PLC0415 - only this test starts one.
    from tests.house.places import write_skill  # noqa: PLC0415

    peer = Peer(tmp_path)
    write_skill(peer.home / ".agents/skills/notes", "Takes notes.", body="# Notes\n")
    server = McpServer(label="house", command=tuple(peer.command()), environment=peer.environment)
    host = McpHost([server], McpCache(tmp_path / "cache"))
    report = await host.refresh("house")
    assert "skill://user/notes/SKILL.md" in report.added
    assert report.problems == ()
    skill = next(one for one in host.skills() if one.name == "house:notes")
    assert (await host.fetch(skill)).endswith(b"# Notes\n")


@pytest.mark.parametrize(
    ("server", "wrong"),
    [
        ({"label": "Docs", "url": "https://a.example/mcp"}, "label"),
        ({"label": "../docs", "url": "https://a.example/mcp"}, "label"),
        ({"label": "docs"}, "`url` or `command`"),
        ({"label": "docs", "url": "https://a.example/mcp", "command": ("x",)}, "`url` or `com"),
        ({"label": "docs", "url": "file:///etc/passwd"}, "https://host/path"),
        ({"label": "docs", "url": "https://user:pw@a.example/mcp"}, "https://host/path"),
    ],
)
def test_a_server_needs_a_plain_label_and_one_way_to_it(server: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong):
        McpServer(**server)


async def test_a_server_that_cannot_be_reached_is_an_error_of_ours(tmp_path: Path) -> None:
    servers = [
        McpServer(label="shut", url="http://127.0.0.1:9/mcp"),
        McpServer(label="gone", command=(str(tmp_path / "nothing"),)),
    ]
    host = McpHost(servers, McpCache(tmp_path / "cache"))
    for label in ("shut", "gone"):
        with pytest.raises(RemoteError, match=f"cannot reach `{label}`"):
            await host.refresh(label)


def test_names_of_one_server_that_collide_are_told_apart_by_their_paths() -> None:
    skills = [
        read_entry(label, entry_of(base, {SKILL_FILE: skill_file("refunds")}))
        for label, base in (
            ("acme", "skill://billing/refunds"),
            ("acme", "github://acme/support/refunds"),
            ("other", "skill://billing/refunds"),
        )
    ]
    assert list(shown_names(skills).values()) == [
        "acme:billing/refunds",
        "acme:acme/support/refunds",
        "other:refunds",
    ]
    assert len({skill.binding for skill in skills}) == 3


LEAVES = st.sampled_from(
    ["plain", "'1.0'", "1.0", "true", "yes", "no", "~", "2026-01-01", "0x1f", "1e3", "a: b", ""]
)


@given(values=st.lists(LEAVES, min_size=1, max_size=5))
def test_what_our_server_says_of_a_frontmatter_is_what_our_host_reads(values: list[str]) -> None:
    lines = "".join(f"  k{i}: {json.dumps(v) if ': ' in v else v}\n" for i, v in enumerate(values))
    data = f"---\nname: a\ndescription: b\nmetadata:\n{lines}---\n".encode()
    typed = typed_fields(data, directory="a")
    assert typed is not None
    # As it comes over the wire.
    over_the_wire = json.loads(json.dumps(typed))
    skill = read_entry("docs", entry_of("skill://a", {SKILL_FILE: data}, over_the_wire))
    assert frontmatter_difference(data, skill) == ""


@pytest.mark.parametrize(
    ("written", "told", "same"),
    [
        ("1.0", 1, True),
        ("1.0", "1.0", True),
        ("1.0", 1.1, False),
        ("yes", True, True),
        ("yes", False, False),
        ("1", True, False),
        ("true", 1, False),
        ("", None, True),
        ("x", None, False),
        ("[a, b]", ["a", "b"], True),
        ("[a, b]", ["b", "a"], False),
        ("{a: 1}", {"a": 1}, True),
        ("{a: 1}", {"a": 1, "b": 2}, False),
        ("a", ["a"], False),
    ],
)
def test_values_are_the_same_when_a_yaml_reader_says_so(
    written: str, told: object, *, same: bool
) -> None:
    data = f"---\nname: a\ndescription: b\nx: {written}\n---\n".encode()
    frontmatter = {"name": "a", "description": "b", "x": told}
    skill = read_entry("docs", entry_of("skill://a", {SKILL_FILE: data}, frontmatter))
    assert (frontmatter_difference(data, skill) == "") is same


def test_an_answer_that_is_not_one_content_of_that_address_is_refused(tmp_path: Path) -> None:
    uri = "skill://pdf/SKILL.md"
    text = types.TextResourceContents(uri=uri, text=skill_file("pdf").decode())
    other = types.TextResourceContents(uri="skill://x/SKILL.md", text="x")
    blob = types.BlobResourceContents(uri=uri, blob="not base64")
    liar, host, skill = listed(tmp_path, FILES)

    async def work() -> None:
        wrong: list[list[Any]] = [[], [text, text], [other], [blob]]
        for contents in wrong:
            liar.contents[uri] = types.ReadResourceResult(contents=contents)
            with pytest.raises(RemoteError):
                await host.fetch(skill)
            assert not skill.location.exists()

    anyio.run(work)


def test_the_cache_must_lie_outside_every_root(tmp_path: Path) -> None:
    cache = McpCache(tmp_path / "state/mcp")
    cache.refuse_roots([tmp_path / "skills"])
    os.symlink(tmp_path, tmp_path / "link")
    for root in (tmp_path, tmp_path / "link/state", tmp_path / "state/mcp/docs"):
        with pytest.raises(ConfigError, match="must be outside"):
            cache.refuse_roots([root])
