"""`skillhouse hooks`: what it writes, asks and says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from skillhouse.floor import Locations
from skillhouse.frontends.cli import main
from skillhouse.frontends.cli.hooks import note_faults
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.hooks import entries
from skillhouse.house import Skillhouse, configured
from tests.frontends.conftest import Run


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place, project = tmp_path / "home", tmp_path / "project"
    place.mkdir()
    (project / ".git").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.chdir(project)
    words = ("/opt/python", "-I", "-m", "skillhouse")
    monkeypatch.setattr(entries, "own_program", lambda project: words)
    return place


def test_it_installs_shows_and_removes(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hooks", "install", "claude-code", "--dry-run"]) == 0
    assert "would be installed (enforce)" in capsys.readouterr().out
    assert not (home / ".claude").exists()
    assert main(["hooks", "install", "claude-code", "--yes"]) == 0
    said = capsys.readouterr().out
    assert "claude-code: installed (enforce)" in said
    assert '+            "command": "/bin/sh -c \'/opt/python -I -S' in said
    assert main(["hooks", "status", "claude-code"]) == 0
    assert "judged: Bash, Edit" in capsys.readouterr().out
    assert main(["hooks", "status", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["clients"]
    assert {one["client"] for one in found if one["standing"] == "installed"} == {"claude-code"}
    assert main(["hooks", "remove", "claude-code", "--yes"]) == 0
    assert not (home / ".claude").exists()
    assert main(["hooks", "remove", "claude-code", "--yes"]) == 1
    assert "there is no entry of ours" in capsys.readouterr().out


def test_it_asks_before_it_writes(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hooks", "install", "claude-code"]) == 2
    assert "use --yes" in capsys.readouterr().err
    assert not (home / ".claude").exists()


def test_what_cannot_be_and_what_is_not_run_is_said(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["hooks", "install", "cursor", "--mode", "sandbox", "--yes"]) == 2
    assert "cannot be rewritten: use `--mode enforce`" in capsys.readouterr().err
    assert main(["hooks", "install", "cursor", "--yes"]) == 0
    assert "Cursor was not run with this" in capsys.readouterr().err
    assert main(["hooks", "install", "codex", "--yes"]) == 0
    assert "type `/hooks`" in capsys.readouterr().err
    assert main(["hooks", "install", "codx", "--yes"]) == 2
    assert "did you mean `codex`" in capsys.readouterr().err


def test_doctor_names_an_entry_that_was_changed(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor"]) == 0
    assert "no client asks skillhouse about its own tools" in capsys.readouterr().out
    main(["hooks", "install", "claude-code", "--yes"])
    capsys.readouterr()
    assert main(["doctor"]) == 0
    assert "hooks of claude-code (user): enforce" in capsys.readouterr().out
    file = home / ".claude/settings.json"
    file.write_text(file.read_text().replace("exit 2", "exit 0"))
    assert main(["doctor"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "hooks of claude-code (user): changed: 1 of 8 entries are changed or gone" in said
    assert main(["doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["hooks"][0]["standing"] == "changed"


def test_mcp_install_asks_once_about_hooks_and_a_flag_answers(
    run: Run, typing: Run, place: Path
) -> None:
    settings, codex = place / "home/.claude/settings.json", place / "home/.codex/hooks.json"
    code, _, said = typing("n\nn", "mcp", "install", "claude-code", "codex", "--tools=skills")
    assert (code, said.count("(y, n)")) == (0, 2)
    assert "the own shell and file tools of claude-code, codex" in " ".join(said.split())
    assert not settings.exists()
    assert not codex.exists()
    code, out, said = typing("y", "mcp", "install", "claude-code", "codex", "--tools=skills")
    assert code == 0, said
    assert "claude-code: installed (enforce)" in out
    assert "hook_client.py" in settings.read_text()
    assert "hook_client.py" in codex.read_text()
    # What is there is not asked about, and nothing is asked without a terminal or with a flag.
    assert "(y, n)" not in typing("y", "mcp", "install", "codex", "--tools=skills")[2]
    run("hooks", "remove", "codex", "--yes")
    assert run("mcp", "install", "codex", "--tools=skills")[0] == 0
    assert typing("y", "mcp", "install", "codex", "--tools=skills", "--no-hooks")[0] == 0
    assert not codex.exists()
    assert run("mcp", "install", "codex", "--tools=skills", "--hooks", "--dry-run")[0] == 0
    assert not codex.exists()
    assert run("mcp", "install", "codex", "--tools=skills", "--hooks")[0] == 0
    assert codex.exists()
    assert run("mcp", "uninstall", "codex", "--hooks")[0] == 2


def test_up_says_which_entries_were_changed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hooks", "install", "claude-code", "--yes"]) == 0
    capsys.readouterr()
    with Skillhouse(configured(Locations.here())) as house:
        note_faults(house, Terminal(sys.stdout, sys.stderr, {}))
        assert capsys.readouterr().err == ""
        (home / ".claude/settings.json").write_text("{}")
        note_faults(house, Terminal(sys.stdout, sys.stderr, {}))
        said = " ".join(capsys.readouterr().err.split())
    assert said == (
        "The hooks of Claude Code are changed: a person should run `skillhouse hooks install "
        "claude-code`."
    )
