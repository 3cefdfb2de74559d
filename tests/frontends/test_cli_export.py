"""Tests of `skillhouse export` and of what `skillhouse mcp` does besides serving."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from skillhouse.clients import known_clients
from skillhouse.skill import load_profile, profile_names
from tests.frontends.conftest import Run
from tests.house.places import write_skill

Typing = Run


@pytest.fixture
def source(place: Path) -> Path:
    return write_skill(place / "home/.config/skillhouse/skills/notes", "Takes notes.")


@pytest.mark.slow
def test_export_says_where_it_writes_and_who_else_reads_it(
    run: Run, place: Path, source: Path
) -> None:
    code, out, _ = run("export", "notes", "--to", "codex, claude-code")
    profiles = [load_profile(name) for name in profile_names()]
    reading, claude = (
        [one.name for one in profiles if one.client and folder in [r.path for r in one.roots]]
        for folder in ("~/.agents/skills", "~/.claude/skills")
    )
    assert {"amp", "copilot-vscode", "crush"} < {*claude}
    assert {"codex", "amp", "copilot-cli", "copilot-vscode"} < {*reading}
    lines = [
        "user:notes: written  ~/.claude/skills/notes  (claude-code)",
        f"    also read by amp, copilot-vscode, crush and {len(claude) - 3} more",
        "user:notes: written  ~/.agents/skills/notes  (codex)",
        f"    also read by amp, copilot-cli, copilot-vscode and {len(reading) - 4} more",
    ]
    assert (code, out.splitlines()) == (0, lines)
    assert (place / "home/.agents/skills/notes/SKILL.md").is_file()
    lines = [
        "user:notes: in-sync  ~/.agents/skills/notes  (codex)",
        "user:notes: in-sync  ~/.claude/skills/notes  (claude-code)",
    ]
    code, out, _ = run("export", "--status")
    assert (code, out.splitlines()) == (0, lines)


@pytest.mark.slow
def test_a_dry_run_and_a_difference_change_nothing(run: Run, place: Path, source: Path) -> None:
    code, out, err = run("export", "notes", "--to", "codex", "--dry-run")
    assert (code, "would be written" in out, "nothing was changed" in err) == (0, True, True)
    run("export", "notes", "--to", "codex")
    copy = place / "home/.agents/skills/notes/SKILL.md"
    (source / "SKILL.md").write_text(copy.read_text() + "More \x1b[31m.\n")
    code, out, _ = run("export", "notes", "--to", "codex", "--diff")
    assert (code, "  +More \\x1b[31m." in out.splitlines()) == (0, True)
    assert "More" not in copy.read_text()
    assert run("export", "--status")[0] == 1
    assert "brought up to date" in run("export", "--sync")[1]
    assert run("export", "--status")[0] == 0


@pytest.mark.slow
def test_what_was_changed_there_needs_force_and_says_so(
    run: Run, place: Path, source: Path
) -> None:
    run("export", "notes", "--to", "codex")
    copy = place / "home/.agents/skills/notes/SKILL.md"
    copy.write_text(copy.read_text() + "Mine.\n")
    code, out, _ = run("export", "notes", "--to", "codex", "--diff")
    assert (code, "changed-there" in out, "  -Mine." in out.splitlines()) == (1, True, True)
    assert run("export", "notes", "--remove")[0] == 1
    assert copy.exists()
    assert run("export", "notes", "--remove", "--force")[0] == 0
    assert not (place / "home/.agents").exists()
    assert run("export", "--status")[1] == "nothing is exported\n"


@pytest.mark.slow
def test_the_json_form_has_everything(run: Run, place: Path, source: Path) -> None:
    (found,) = json.loads(run("export", "notes", "--to", "codex", "--diff", "--json")[1])["exports"]
    also = found.pop("also")
    assert {"amp", "copilot-cli", "gemini-cli", "opencode-cli"} <= set(also)
    assert set(also) <= set(known_clients())
    assert found == {
        "skill": "user:notes",
        "source": str(source),
        "clients": ["codex"],
        "target": str(place / "home/.agents/skills/notes"),
        "form": "copy",
        "state": "missing",
        "action": "write",
        "done": False,
        "reason": "",
        "warnings": [],
        "difference": [],
    }


@pytest.mark.slow
def test_a_link_and_a_project(run: Run, place: Path, source: Path) -> None:
    assert "a link" in run("export", "notes", "--to", "codex", "--link")[1]
    assert (place / "home/.agents/skills/notes").is_symlink()
    assert run("export", "notes", "--to", "codex", "--project")[0] == 0
    assert (place / "project/.agents/skills/notes/SKILL.md").is_file()


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("notes",),
        ("--all",),
        ("notes", "--all", "--to", "codex"),
        ("--status", "notes"),
        ("--sync", "--to", "codex"),
        ("--status", "--sync"),
        ("notes", "--to", "codx"),
    ],
)
def test_words_that_do_not_fit_are_a_usage_error(
    run: Run, source: Path, words: tuple[str, ...]
) -> None:
    assert run("export", *words)[0] == 2


@pytest.mark.slow
def test_mcp_install_status_and_uninstall(run: Run, place: Path) -> None:
    code, out, _ = run("mcp", "install", "codex", "--dry-run")
    assert (code, "  +[mcp_servers.skills]" in out.splitlines()) == (0, True)
    assert not (place / "home/.codex").exists()
    code, out, _ = run("mcp", "install", "codex", "opencode", "--tools=all", "--agent", "reviewer")
    assert (code, out.count(": installed  ")) == (0, 2)
    assert '"--agent", "reviewer"' in (place / "home/.codex/config.toml").read_text()
    run("mcp", "install", "codex", "opencode", "--tools", "all")
    status = json.loads(run("mcp", "status", "--json")[1])["clients"]
    assert [found["client"] for found in status if found["standing"] == "installed"] == [
        "codex",
        "opencode-cli",
    ]
    assert "codex" in run("mcp", "status")[1]
    assert run("mcp", "uninstall", "codex", "opencode")[0] == 0
    assert not (place / "home/.codex/config.toml").exists()
    code, out, _ = run("mcp", "uninstall", "codex")
    assert (code, "there is no such entry" in out) == (1, True)


def test_mcp_install_into_a_project_names_the_whole_program(run: Run, place: Path) -> None:
    assert run("mcp", "install", "claude-code", "--project", "--tools", "all")[0] == 0
    words = [sys.executable, "-I", "-m", "skillhouse", "mcp"]
    assert json.loads((place / "project/.mcp.json").read_text()) == {
        "mcpServers": {
            "skills": {
                "type": "stdio",
                "alwaysLoad": True,
                "command": words[0],
                "args": [*words[1:], "--tools", "all"],
            }
        }
    }


@pytest.mark.slow
def test_mcp_status_finds_unsafe_entries_and_mends_them(run: Run, place: Path) -> None:
    file = place / "home/.gemini/settings.json"
    file.parent.mkdir()
    entry = {"command": sys.executable, "args": ["-m", "skillhouse", "mcp"], "timeout": 5}
    file.write_text(json.dumps({"mcpServers": {"house": entry}}))
    code, out, err = run("mcp", "status")
    assert (code, "as `house`" in out, "unsafe: Python imports" in out) == (1, True, True)
    assert "mcp status --fix" in err
    code, out, _ = run("mcp", "status", "--json")
    assert [one["name"] for one in json.loads(out)["clients"] if one["fault"]] == ["house"]
    assert code == 1
    code, out, _ = run("mcp", "status", "--fix", "--dry-run")
    assert (code, "would be fixed" in out) == (1, True)
    code, out, _ = run("mcp", "status", "--fix")
    assert (code, "gemini-cli: fixed" in out) == (0, True)
    now = json.loads(file.read_text())["mcpServers"]["house"]
    assert now == {**entry, "args": ["-I", "-m", "skillhouse", "mcp"]}
    assert run("mcp", "status")[0] == 0
    assert run("mcp", "install", "codex", "--fix")[0] == 2


def test_what_cannot_be_edited_is_shown_to_be_pasted(run: Run, place: Path) -> None:
    (place / "project/.mcp.json").write_text("{ // mine\n}")
    code, out, _ = run("mcp", "install", "claude-code", "--project", "--tools=all")
    assert (code, "comments" in out, '  "mcpServers": {' in out) == (1, True, True)
    assert (place / "project/.mcp.json").read_text() == "{ // mine\n}"


def test_mcp_words_that_do_not_fit_are_a_usage_error(run: Run) -> None:
    for words in (("install",), ("status", "codex"), ("instal", "codex"), ("install", "codx")):
        assert run("mcp", *words)[0] == 2


@pytest.mark.slow
def test_an_entry_names_the_tools_that_were_chosen_and_keeps_them(run: Run, place: Path) -> None:
    file = place / "home/.codex/config.toml"
    code, _, err = run("mcp", "install", "codex", "--tools", "skills")
    assert (code, err.splitlines()[0]) == (
        0,
        "tools: skills. What the client does with its own shell and files is not guarded",
    )
    assert '"mcp", "--tools", "skills"]' in file.read_text(encoding="utf-8")
    # Without the flag an entry keeps what it offers.
    assert run("mcp", "install", "codex")[0] == 0
    assert '"mcp", "--tools", "skills"]' in file.read_text(encoding="utf-8")
    run("mcp", "install", "codex", "--tools", "all")
    assert '"mcp", "--tools", "all"]' in file.read_text(encoding="utf-8")
    assert run("mcp", "uninstall", "codex")[0] == 0
    code, _, err = run("mcp", "install", "codex")
    assert (code, "use `--tools skills` or `--tools all`" in err) == (2, True)
    assert not file.exists()
    assert "tools: all." in run("mcp", "install", "codex", "--tools", "all")[2]
    assert run("mcp", "install", "codex", "--tools", "skil")[0] in (2, 3)


@pytest.mark.parametrize(
    ("typed", "written"),
    [("skills", '"--tools", "skills"'), ("", '"--tools", "all"'), ("what\nall", '"all"')],
)
def test_at_a_terminal_install_asks_which_tools(
    typing: Typing, place: Path, typed: str, written: str
) -> None:
    code, _, err = typing(typed, "mcp", "install", "codex", "--no-hooks", "--no-decide-alone")
    assert code == 0
    assert "which tools should the client get?" in err
    assert written in (place / "home/.codex/config.toml").read_text(encoding="utf-8")


def test_an_unknown_client_among_others_is_refused_before_anything_is_asked(
    typing: Typing, place: Path
) -> None:
    for more in (("nosuch",), ("--project", "codex", "windsurf")):
        code, _, err = typing("all", "mcp", "install", "claude-code", *more)
        assert (code, "which tools" in err) == (2, False), err
    assert not (place / "home/.claude.json").exists()


@pytest.mark.parametrize(("typed", "is_alone"), [("y", True), ("n", False), ("", False)])
def test_at_a_terminal_install_asks_once_whether_skillhouse_decides_alone(
    typing: Typing, run: Run, place: Path, typed: str, is_alone: bool
) -> None:
    words = ("mcp", "install", "codex", "claude-code", "--tools=all", "--no-hooks")
    code, _, err = typing(typed, *words)
    assert (code, err.count("let skillhouse decide alone?")) == (0, 1)
    assert "codex, claude-code can call our tools without asking you" in err
    text = (place / "home/.codex/config.toml").read_text(encoding="utf-8")
    assert ("required = true" in text) is is_alone
    assert (place / "home/.claude/settings.json").exists() is is_alone
    found = json.loads(run("mcp", "status", "--json")[1])["clients"]
    alone = {one["client"] for one in found if one["decides_alone"]}
    assert alone == ({"codex", "claude-code"} if is_alone else set())
    # What is there is not asked about.
    assert "decide alone?" not in typing("", *words)[2]


def test_without_a_terminal_nothing_is_decided_alone_and_a_flag_says_it(
    run: Run, place: Path
) -> None:
    code, _, err = run("mcp", "install", "codex", "copilot-cli", "--tools=all")
    assert code == 0
    assert "codex: asks about our tools too" in err
    assert "copilot-cli also needs: --allow-tool=skills" in err
    file = place / "home/.codex/config.toml"
    assert "approve" not in file.read_text(encoding="utf-8")
    assert run("mcp", "install", "codex", "--decide-alone")[0] == 0
    assert "approve" in file.read_text(encoding="utf-8")
    assert run("mcp", "install", "codex", "--no-decide-alone")[0] == 0
    assert "approve" not in file.read_text(encoding="utf-8")
    assert run("mcp", "status", "--decide-alone")[0] == 2
    assert run("mcp", "install", "codex", "--project", "--tools=all", "--decide-alone")[0] != 0


def test_status_says_where_a_client_lists_our_skills_itself(run: Run, place: Path) -> None:
    folder = place / "home/.agents/skills/bats"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: bats\ndescription: Counts bats.\n---\nx\n")
    assert run("mcp", "install", "gemini-cli", "claude-code", "--tools=all")[0] == 0
    out = " ".join(run("mcp", "status")[1].split())
    assert "gemini-cli reads these folders itself: 1 skill appears twice" in out
    assert "`skillhouse mcp install gemini-cli --tools read,list,write," in out
    assert '"skills": {"enabled": false}' in out
    # Claude Code reads no folder that others share.
    assert "claude-code reads" not in out
    found = json.loads(run("mcp", "status", "--json")[1])["clients"]
    assert {one["client"] for one in found if one["listed_twice"]} == {"gemini-cli"}
    run("mcp", "install", "gemini-cli", "--tools", "read,exec")
    assert "twice" not in run("mcp", "status")[1]
