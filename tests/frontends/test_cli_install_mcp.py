"""Installing skills of MCP servers (SEP-2640), against a real server on loopback."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp_types import ReadResourceRequestParams

from skillhouse.remote import McpServer
from skillhouse.skill import SKILL_FILE
from tests.frontends.conftest import Run
from tests.frontends.terminals import Seat
from tests.frontends.test_cli_mcp_servers import configure, table
from tests.remote.mcp_liar import Liar, entry_of, serving, skill_file

# Left out of the fast part: it starts servers.
pytestmark = pytest.mark.slow

AGREED = ("--yes", "--allow-unsigned")
FILES = {SKILL_FILE: skill_file("pdf"), "scripts/run.py": b"print(1)\n", "assets/a.bin": b"\xff\0"}


@pytest.fixture
def liar() -> Liar:
    liar = Liar()
    liar.offer("skill://pdf", FILES)
    liar.offer("skill://team/csv", {SKILL_FILE: skill_file("csv")})
    return liar


@pytest.fixture
def server(liar: Liar, place: Path) -> Iterator[McpServer]:
    with serving(liar) as server:
        configure(place, table(server))
        yield server


def skills_of(place: Path) -> Path:
    return place / "home/.agents/skills"


def entry(place: Path, name: str = "pdf") -> dict[str, Any]:
    lock = json.loads((place / "home/.config/skillhouse/skills.lock").read_text())
    found: dict[str, Any] = lock["skills"][name]
    return found


def test_what_a_server_offers_is_listed_and_no_file_is_read(
    run: Run, liar: Liar, server: McpServer
) -> None:
    assert run("install", "mcp:docs", "--list")[:2] == (0, "pdf\nteam/csv\n")
    assert liar.reads == []


def test_a_skill_is_installed_with_the_files_of_its_entry(
    run: Run, place: Path, liar: Liar, server: McpServer
) -> None:
    code, out, err = run("install", "mcp:docs/pdf", *AGREED)
    assert code == 0, err
    assert "fetching mcp:docs/pdf" in err
    assert "secret1" not in out + err + json.dumps(entry(place))
    found = {
        one.relative_to(skills_of(place) / "pdf").as_posix(): one.read_bytes()
        for one in skills_of(place).rglob("*")
        if one.is_file()
    }
    assert found == FILES
    assert (entry(place)["resolved"], entry(place)["requested"]) == ("mcp:docs/pdf", "mcp:docs/pdf")
    assert entry(place)["repository"] == f"mcp:docs at {server.url}"
    assert run("verify", "pdf")[0] == 0
    # Already listed ones of the same server stay as they are: nothing was asked for them.
    assert not [uri for uri in liar.reads if "csv" in uri]


def test_a_name_a_path_and_an_address_name_a_skill(
    run: Run, place: Path, liar: Liar, server: McpServer
) -> None:
    hidden = entry_of("skill://hidden", {SKILL_FILE: skill_file("hidden")})
    liar.unlisted["skill://hidden/SKILL.md"] = hidden
    liar.contents["skill://hidden/SKILL.md"] = skill_file("hidden")
    for text in ("mcp:docs/csv", "mcp:docs/team/csv", "mcp:docs/skill://team/csv/SKILL.md"):
        assert run("install", text, *AGREED)[0] == 0
        assert entry(place, "csv")["requested"] == "mcp:docs/csv"
    assert run("install", "mcp:docs/skill://hidden/SKILL.md", *AGREED)[0] == 0
    assert run("outdated")[0] == 0
    assert run("install", "mcp:docs", "--skill", "pdf", *AGREED)[0] == 0


def test_an_update_shows_and_takes_what_the_server_has_now(
    run: Run, place: Path, liar: Liar, server: McpServer
) -> None:
    assert run("install", "mcp:docs/pdf", *AGREED)[0] == 0
    assert run("outdated")[0] == 0
    liar.entries.clear()
    liar.offer("skill://pdf", {**FILES, "scripts/run.py": b"print(2)\n"})
    assert run("outdated")[0] == 1
    code, out, _ = run("update", "pdf", *AGREED)
    assert (code, "+print(2)" in out) == (0, True)
    assert (skills_of(place) / "pdf/scripts/run.py").read_bytes() == b"print(2)\n"
    assert run("rollback", "pdf", *AGREED)[0] == 0
    assert (skills_of(place) / "pdf/scripts/run.py").read_bytes() == b"print(1)\n"


def test_a_frozen_install_takes_the_locked_files_or_nothing(
    run: Run, place: Path, liar: Liar, server: McpServer
) -> None:
    assert run("install", "mcp:docs/pdf", *AGREED)[0] == 0
    shutil.rmtree(skills_of(place) / "pdf")
    shutil.rmtree(place / "home/.local/state/skillhouse/installs")
    assert run("install", "--frozen", "--allow-unsigned")[0] == 0
    shutil.rmtree(skills_of(place) / "pdf")
    shutil.rmtree(place / "home/.local/state/skillhouse/installs")
    liar.entries.clear()
    liar.offer("skill://pdf", {**FILES, "scripts/run.py": b"print(2)\n"})
    code, _, err = run("install", "--frozen", "--allow-unsigned")
    assert (code, "digest: `pdf`: expected skilltree1:" in err) == (1, True)
    assert not (skills_of(place) / "pdf").exists()


def test_a_label_that_is_given_to_another_server_changes_no_installed_skill(
    run: Run, place: Path, server: McpServer
) -> None:
    assert run("install", "mcp:docs/pdf", *AGREED)[0] == 0
    other = Liar()
    other.offer("skill://pdf", {**FILES, "scripts/run.py": b"owned()\n"})
    with serving(other) as theirs:
        configure(place, table(theirs))
        for verb in (("update",), ("install", "mcp:docs/pdf")):
            code, _, err = run(*verb, *AGREED)
            assert (code, f"is locked to mcp:docs at {server.url}" in err) == (1, True)
    assert (skills_of(place) / "pdf/scripts/run.py").read_bytes() == b"print(1)\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("mcp:dosc/pdf", "did you mean `docs`"),
        ("mcp:docs/xyz", "expected one skill `xyz` at `docs`, got none"),
        ("mcp:", "mcp:LABEL/SKILL"),
        ("mcp:A B/pdf", "mcp:LABEL/SKILL"),
        ("mcp:../x", "mcp:LABEL/SKILL"),
        ("mcp:docs/skill://none/SKILL.md", "no such skill"),
    ],
)
def test_what_is_not_there_is_said(run: Run, server: McpServer, text: str, why: str) -> None:
    code, _, err = run("install", text, *AGREED)
    assert code == 1
    assert why in err


def test_a_digest_is_for_archives(run: Run, server: McpServer) -> None:
    code, _, err = run("install", "mcp:docs/pdf", "--digest", f"sha256:{'0' * 64}", *AGREED)
    assert (code, "only an archive has a digest" in err) == (1, True)


def test_names_that_two_skills_share_are_told_apart_by_path(
    run: Run, place: Path, liar: Liar, server: McpServer
) -> None:
    liar.offer("skill://other/pdf", {SKILL_FILE: skill_file("pdf") + b"Other.\n"})
    liar.offer("file://team/csv", {SKILL_FILE: skill_file("csv")})
    code, out, err = run("install", "mcp:docs", "--list")
    assert (code, out) == (0, "other/pdf\npdf\nteam/csv\n")
    assert "`skill://team/csv/SKILL.md` passed over" in err
    assert run("install", "mcp:docs/other/pdf", *AGREED)[0] == 0
    assert b"Other." in (skills_of(place) / "pdf/SKILL.md").read_bytes()
    code, _, err = run("install", "mcp:docs", "--skill", "csv", "--dry-run")
    assert code == 0, err


def test_ctrl_c_while_a_server_says_nothing_ends_at_once(
    place: Path, liar: Liar, server: McpServer
) -> None:
    asked, go = threading.Event(), threading.Event()
    read = liar.sdk

    async def held(_: Any, params: Any) -> Any:
        asked.set()
        await anyio.to_thread.run_sync(go.wait, abandon_on_cancel=True)

    read.add_request_handler("resources/read", ReadResourceRequestParams, held)
    seat = Seat(place, "install", "mcp:docs/pdf", *AGREED)
    seat.until("fetching mcp:docs/pdf")
    assert asked.wait(60)
    seat.type("\x03")
    assert seat.end() == 130
    go.set()
    assert "stopped" in seat.text
    assert not skills_of(place).exists()
    assert list((place / "home").glob(".agents/.skillhouse-*")) == []
