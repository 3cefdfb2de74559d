"""Attacks by an MCP server whose skill is installed: a refusal, and nothing on the disk.

A naive installer tries each first: it writes what the server gives to where the address points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import anyio
import pytest

from skillhouse.remote import McpServer, connected
from skillhouse.skill import SKILL_FILE
from tests.attacks.test_install_attacks import refused
from tests.frontends.conftest import Run, place, run
from tests.frontends.test_cli_mcp_servers import configure, table
from tests.remote.mcp_liar import Liar, serving, skill_file

__all__ = ["place", "run"]
pytestmark = pytest.mark.slow

BASE = "skill://pdf"
FILES = {SKILL_FILE: skill_file("pdf"), "run.py": b"print(1)\n"}
Attack = Callable[[Liar, dict[str, Any]], object]


@pytest.fixture
def liar() -> Liar:
    return Liar()


@pytest.fixture
def server(liar: Liar, place: Path) -> Iterator[McpServer]:
    with serving(liar) as server:
        configure(place, table(server))
        yield server


async def naive(server: McpServer, target: Path) -> None:
    """Install as one does who trusts the list."""
    async with connected(server) as peer:
        for entry in await peer.list_skills():
            listed = entry["resources"]
            for file in listed if isinstance(listed, list) else []:
                path = target / "pdf" / unquote(file["uri"].removeprefix(f"{BASE}/"))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(await peer.read(file["uri"]))


def other_bytes(liar: Liar, _: dict[str, Any]) -> None:
    liar.contents[f"{BASE}/run.py"] = b"owned()\n"


def other_size(liar: Liar, entry: dict[str, Any]) -> None:
    entry["resources"][1]["size"] = 3


def other_frontmatter(_: Liar, entry: dict[str, Any]) -> None:
    entry["frontmatter"]["description"] = "Harmless."


def way_out(liar: Liar, entry: dict[str, Any]) -> None:
    uri = f"{BASE}/%2e%2e/owned.py"
    liar.contents[uri] = FILES["run.py"]
    entry["resources"][1]["uri"] = uri


def file_of_another_skill(liar: Liar, entry: dict[str, Any]) -> None:
    liar.contents["skill://secrets/key"] = FILES["run.py"]
    entry["resources"][1]["uri"] = "skill://secrets/key"


def two_names_for_one_place(liar: Liar, entry: dict[str, Any]) -> None:
    uri = f"{BASE}/RUN.py"
    liar.contents[uri] = FILES["run.py"]
    entry["resources"].append({**entry["resources"][1], "uri": uri})


def made_on_demand(_: Liar, entry: dict[str, Any]) -> None:
    entry["resources"] = "dynamic"


def git_directory(liar: Liar, entry: dict[str, Any]) -> None:
    uri = f"{BASE}/.git/hooks/post-checkout"
    liar.contents[uri] = FILES["run.py"]
    entry["resources"][1]["uri"] = uri


def another_name(_: Liar, entry: dict[str, Any]) -> None:
    entry["frontmatter"]["name"] = "../owned"


def hidden_text(_: Liar, entry: dict[str, Any]) -> None:
    entry["frontmatter"]["description"] = "Does things.\U000e0061"


ATTACKS: list[tuple[Attack, str]] = [
    (other_bytes, "expected 9 bytes"),
    (other_size, "expected 3 bytes"),
    (other_frontmatter, "frontmatter"),
    (way_out, "refused file"),
    (file_of_another_skill, "a file outside it"),
    (two_names_for_one_place, "one place"),
    (made_on_demand, "without digests"),
    (git_directory, ""),
    (another_name, "refused name"),
    (hidden_text, "hidden characters"),
]


@pytest.mark.parametrize(("attack", "why"), ATTACKS)
def test_what_a_server_cannot_be_held_to_is_not_installed(
    run: Run, place: Path, liar: Liar, server: McpServer, attack: Attack, why: str
) -> None:
    attack(liar, liar.offer(BASE, FILES))
    anyio.run(naive, server, place / "naive/skills")
    if attack is not made_on_demand:
        assert [one for one in (place / "naive").rglob("*") if one.is_file()]
    said = refused(run, place, "mcp:docs/pdf")
    assert why in said
    assert "source: " in said or "archive: " in said


def test_a_list_without_end_ends(run: Run, place: Path, liar: Liar, server: McpServer) -> None:
    liar.pages = {None: ([], "x"), "x": ([], "x")}
    assert "does not end" in refused(run, place, "mcp:docs/pdf")


def test_a_name_with_codes_for_the_terminal_only_shows_them(
    run: Run, liar: Liar, server: McpServer
) -> None:
    entry = liar.offer(BASE, FILES)
    entry["uri"] = "skill://\x1b[2J/pdf/SKILL.md"
    code, out, err = run("install", "mcp:docs", "--list")
    assert (code, out) == (0, "")
    assert "\x1b" not in err
    assert "\\x1b[2J" in err
