"""Tests of `skillhouse mcp servers`, against a real MCP server on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skillhouse.audit import read_records
from skillhouse.house import Skillhouse
from skillhouse.remote import McpServer
from skillhouse.skill import SKILL_FILE
from tests.frontends.conftest import Run
from tests.remote.mcp_liar import Liar, entry_of, serving, skill_file

pytestmark = pytest.mark.slow

PDF, CSV = "skill://pdf/SKILL.md", "skill://csv/SKILL.md"

NOBODY = McpServer(label="nobody", url="http://127.0.0.1:9/mcp")


@pytest.fixture
def liar() -> Liar:
    liar = Liar()
    liar.offer("skill://pdf", {SKILL_FILE: skill_file("pdf")})
    return liar


@pytest.fixture
def server(liar: Liar) -> Iterator[McpServer]:
    with serving(liar) as server:
        yield server


def configure(place: Path, *servers: str) -> None:
    file = place / "home/.config/skillhouse/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(f"[[mcp_servers]]\n{text}" for text in servers))


def table(server: McpServer, label: str = "docs") -> str:
    return f'label = "{label}"\nurl = "{server.url}?key=secret1"\nallow_private = true\n'


def changes(place: Path) -> list[tuple[str, Any, str]]:
    """Return what the log holds of servers, oldest first: the change, the label, how it ended."""
    found = read_records(place / "home/.local/state/skillhouse/audit.jsonl", limit=20)
    return [
        (entry.record.tool.removeprefix("manage:"), entry.record.arguments["label"], entry.status)
        for entry in reversed(list(found))
        if entry.record.tool.startswith("manage:mcp-")
    ]


def listed(run: Run) -> list[str]:
    skills = json.loads(run("list", "--json")[1])["skills"]
    return [skill["name"] for skill in skills if skill["scope"] == "remote"]


def test_skills_of_a_server_appear_when_it_is_asked_and_go_when_it_is_forgotten(
    run: Run, place: Path, liar: Liar, server: McpServer
) -> None:
    configure(place, table(server))
    code, out, _ = run("mcp", "servers")
    assert (code, "never" in out, listed(run)) == (0, True, [])
    # What is only looked at asks nobody; and a query may hold a key.
    assert (liar.asked, "secret1" in out) == ([], False)

    code, out, err = run("mcp", "servers", "refresh")
    assert (code, out.splitlines()[0], err) == (0, "docs: 1 added", "")
    assert listed(run) == ["docs:pdf"]
    assert liar.reads == []
    assert run("mcp", "servers", "refresh", "docs")[1] == "docs: nothing is different\n"

    liar.entries[:] = [entry_of("skill://pdf", {SKILL_FILE: skill_file("pdf") + b"More.\n"})]
    assert "docs: 1 changed" in run("mcp", "servers", "refresh")[1]
    [state] = json.loads(run("mcp", "servers", "list", "--json")[1])["servers"]
    assert (state["label"], state["skills"]) == ("docs", [PDF])
    assert state["asked_at"]

    assert run("mcp", "servers", "forget", "docs")[1] == "docs: 1 skill forgotten\n"
    assert listed(run) == []
    assert changes(place) == [
        *[("mcp-refresh", "docs", "ok")] * 3,
        ("mcp-forget", "docs", "ok"),
    ]


def test_a_house_that_is_open_sees_what_another_process_asked_for(
    run: Run, place: Path, server: McpServer
) -> None:
    configure(place, table(server))
    with Skillhouse() as house:
        seen = [[skill.name for skill in house.view("default").visible.skills]]
        run("mcp", "servers", "refresh")
        assert house.refresh() is True
        seen.append([skill.name for skill in house.view("default").visible.skills])
    assert ["docs:pdf" in names for names in seen] == [False, True]


def test_a_skill_that_is_not_listed_is_added_by_its_address(
    run: Run, place: Path, liar: Liar, server: McpServer
) -> None:
    configure(place, table(server))
    liar.entries.clear()
    liar.unlisted[CSV] = entry_of("skill://csv", {SKILL_FILE: skill_file("csv")})
    assert "nothing is different" in run("mcp", "servers", "refresh")[1]
    assert run("mcp", "servers", "add", "docs", CSV)[1].startswith("docs: 1 added")
    assert run("mcp", "servers", "add", "docs", CSV)[1] == "docs: nothing is different\n"
    assert listed(run) == ["docs:csv"]
    code, out, err = run("mcp", "servers", "add", "docs", "skill://none/SKILL.md")
    assert (code, "not asked" in out, "skills/get" in err) == (1, True, True)
    assert listed(run) == ["docs:csv"]


def test_a_server_that_cannot_be_asked_costs_no_other(
    run: Run, place: Path, server: McpServer
) -> None:
    configure(place, table(NOBODY, "gone"), table(server))
    code, out, err = run("mcp", "servers", "refresh", "--json")
    first, second = json.loads(out)["servers"]
    assert (code, err) == (1, "")
    assert first["error"].startswith("cannot reach `gone`")
    assert second["added"] == [PDF]
    assert changes(place) == [("mcp-refresh", "gone", "error"), ("mcp-refresh", "docs", "ok")]


def test_what_cannot_be_used_is_said_and_costs_no_other_skill(
    run: Run, place: Path, liar: Liar, server: McpServer
) -> None:
    configure(place, table(server))
    liar.entries.append({"uri": CSV, "frontmatter": {}, "resources": []})
    code, out, err = run("mcp", "servers", "refresh")
    assert (code, "1 added" in out, "skill://csv" in err) == (1, True, True)
    assert listed(run) == ["docs:pdf"]


def test_what_is_stored_of_a_server_that_was_taken_out_is_shown_and_can_be_forgotten(
    run: Run, place: Path, server: McpServer
) -> None:
    configure(place, table(server))
    run("mcp", "servers", "refresh")
    configure(place)
    assert listed(run) == []
    assert "docs  configured no longer" in run("mcp", "servers", "list")[1]
    assert run("mcp", "servers", "forget", "docs")[0] == 0
    assert run("mcp", "servers", "list")[1].startswith("no MCP servers are configured")


@pytest.mark.parametrize("label", ["..", ".", "", "docs/..", "/", "../mcp", "docz"])
def test_a_label_is_no_path(run: Run, place: Path, server: McpServer, label: str) -> None:
    configure(place, table(server))
    run("mcp", "servers", "refresh")
    before = sorted(place.rglob("*"))
    code, _, err = run("mcp", "servers", "forget", label)
    assert (code, "nothing is stored" in err) == (2, True)
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("renew",), "expected `mcp servers`"),
        (("add", "docs"), "expected `mcp servers`"),
        (("list", "docs"), "expected `mcp servers`"),
        (("forget",), "expected `mcp servers`"),
        (("refresh", "docz"), "did you mean `docs`"),
        (("add", "docz", PDF), "no MCP server is called `docz`"),
    ],
)
def test_words_that_say_nothing_are_errors(
    run: Run, place: Path, words: tuple[str, ...], said: str
) -> None:
    configure(place, table(NOBODY))
    code, _, err = run("mcp", "servers", *words)
    assert (code, said in " ".join(err.split())) == (2, True)


def test_a_house_without_servers_says_how_to_name_one(run: Run, place: Path) -> None:
    code, _, err = run("mcp", "servers", "refresh")
    assert (code, "add `[[mcp_servers]]`" in err) == (2, True)


@pytest.mark.parametrize(
    ("source", "is_allowed"), [("mcp:docs", True), ("mcp:other", False), ("official", False)]
)
def test_a_server_that_the_operator_does_not_allow_has_no_skills_here(
    run: Run, place: Path, liar: Liar, server: McpServer, source: str, is_allowed: bool
) -> None:
    configure(place, table(server))
    run("mcp", "servers", "refresh")
    assert listed(run) == ["docs:pdf"], "it works where no rule forbids it"
    asked = len(liar.asked)
    file = place / "home/.config/skillhouse/config.toml"
    file.write_text(f'{file.read_text()}\n[[registry.sources]]\nsource = "{source}"\n')
    assert listed(run) == ["docs:pdf"] * is_allowed
    code, out, err = run("mcp", "servers", "refresh")
    assert (code, "is not among the sources" in out + err) == (int(not is_allowed), not is_allowed)
    code, out, err = run("mcp", "servers", "add", "docs", CSV)
    assert ("is not among the sources" in out + err) is not is_allowed
    assert (len(liar.asked) > asked) is is_allowed
