"""Entries in clients' files: written beside what is there, and removed without a trace."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from skillhouse.answers.hook_changes import HookStanding
from skillhouse.clients.config_file import ConfigFileError
from skillhouse.floor import ConfigError
from skillhouse.floor.structs import replace
from skillhouse.frontends.hooks import entries as entries_module
from skillhouse.frontends.hooks.entries import HookEntries
from skillhouse.frontends.hooks.hook_clients import DATA, hook_client
from tests.frontends.hooks.hooked_home import HookedHome
from tests.house.places import make_places

CLIENTS = sorted(file.stem for file in DATA.glob("*.toml"))
FOREIGN = """{
    "model": "m",
    "hooks": {
        "PreToolUse": [
            {"matcher": "Bash", "hooks": [{"type": "command", "command": "mine"}]}
        ],
        "Stop": []
    },
    "tools": {"x": 1}
}
"""


@pytest.fixture
def entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HookEntries:
    def program(project: Path) -> tuple[str, ...]:
        del project
        return ("/opt/a python", "-I", "-m", "skillhouse")

    monkeypatch.setattr(entries_module, "own_program", program)
    return HookedHome(tmp_path).entries()


@pytest.mark.parametrize("where", ["user", "project"])
@pytest.mark.parametrize("client", CLIENTS)
def test_entries_come_and_go_without_a_trace(
    entries: HookEntries, tmp_path: Path, client: str, where: str
) -> None:
    before = {file: file.is_dir() or file.read_bytes() for file in _files(tmp_path)}
    change = entries.install(client, where=where, mode="enforce", dry_run=True)
    assert (change.action, change.done) == ("install", False)
    assert {file: file.is_dir() or file.read_bytes() for file in _files(tmp_path)} == before
    assert entries.install(client, where=where, mode="enforce").done
    (found,) = [one for one in entries.status([client]) if one.where == where]
    assert (found.standing, found.mode) == (HookStanding.INSTALLED, "enforce")
    text = Path(found.file).read_text()
    assert text.count("exit 2") == sum(m == "before" for m in hook_client(client).events.values())
    assert not entries.install(client, where=where, mode="enforce").action
    assert entries.install(client, where=where, mode="watch").done
    assert "exit 2" not in Path(found.file).read_text()
    assert entries.remove(client, where=where).done
    assert {file: file.is_dir() or file.read_bytes() for file in _files(tmp_path)} == before
    assert entries.remove(client, where=where).reason == "there is no entry of ours"


def _files(base: Path) -> list[Path]:
    ours = base / "home/.local"
    return sorted(one for one in base.rglob("*") if not one.is_relative_to(ours))


@pytest.mark.parametrize(
    "client", [one for one in CLIENTS if hook_client(one).configuration.kind == "json"]
)
def test_foreign_entries_stay_as_they_are(
    entries: HookEntries, tmp_path: Path, client: str
) -> None:
    path = hook_client(client).configuration.path(
        make_places(tmp_path), tmp_path / "project", "user"
    )
    path.parent.mkdir(parents=True)
    path.write_text(FOREIGN)
    path.chmod(0o640)
    entries.install(client, where="user", mode="enforce")
    found = json.loads(path.read_text())
    assert found["hooks"]["PreToolUse"][0] == json.loads(FOREIGN)["hooks"]["PreToolUse"][0]
    assert path.stat().st_mode & 0o777 == 0o640
    entries.remove(client, where="user")
    assert path.read_text() == FOREIGN
    # What came since stays, and only ours goes.
    entries.install(client, where="user", mode="enforce")
    path.write_text(path.read_text().replace('"model": "m"', '"model": "other"'))
    entries.remove(client, where="user")
    left = json.loads(path.read_text())
    assert left["model"] == "other"
    assert left["hooks"]["PreToolUse"] == json.loads(FOREIGN)["hooks"]["PreToolUse"]
    assert "hook_client.py" not in path.read_text()


def test_comments_stay_where_the_client_reads_them(entries: HookEntries, tmp_path: Path) -> None:
    text = '{\n  // first\n  "model": "m", /* second */\n}\n'
    for client, is_read in (("gemini-cli", True), ("claude-code", False)):
        path = hook_client(client).configuration.path(
            make_places(tmp_path), tmp_path / "project", "user"
        )
        path.parent.mkdir(parents=True)
        path.write_text(text)
        change = entries.install(client, where="user", mode="enforce")
        assert change.done == is_read
        if not is_read:
            assert "not known to read comments" in change.reason
        entries.remove(client, where="user")
        assert path.read_text() == text


def test_an_entry_that_was_changed_or_taken_away_is_found(
    entries: HookEntries, tmp_path: Path
) -> None:
    entries.install("claude-code", where="user", mode="enforce")
    path = tmp_path / "home/.claude/settings.json"
    text = path.read_text()
    for changed in (
        text.replace("exit 2", "exit 0"),
        text.replace('"PreToolUse"', '"PreToolUsed"'),
        "{}",
        '{"hooks": {}}',
        text.replace('"matcher": "*"', '"matcher": "None"', 1),
        text.replace('"timeout": 30', '"timeout": 1', 1),
    ):
        path.write_text(changed)
        found = entries.status(["claude-code"])[0]
        assert found.standing is HookStanding.CHANGED
        assert "changed or gone" in found.reason
    path.write_text(text.replace("{", '{"disableAllHooks": true,', 1))
    found = entries.status(["claude-code"])[0]
    assert (found.standing, found.reason) == (
        HookStanding.CHANGED,
        "`disableAllHooks` is true: no hook runs",
    )
    path.write_text("{")
    assert entries.status(["claude-code"])[0].standing is HookStanding.UNREADABLE
    path.unlink()
    assert entries.status(["claude-code"])[0].standing is HookStanding.CHANGED
    assert entries.install("claude-code", where="user", mode="enforce").done
    assert entries.status(["claude-code"])[0].standing is HookStanding.INSTALLED


def test_a_mode_that_is_not_there_says_so(entries: HookEntries) -> None:
    with pytest.raises(ConfigError, match="the commands of Cursor cannot be rewritten"):
        entries.install("cursor", where="user", mode="sandbox")
    with pytest.raises(ConfigError, match="expected a mode"):
        entries.install("claude-code", where="user", mode="other")


OWN_SANDBOX = """{
  "sandbox": {
    "enabled": true,
    "excludedCommands": ["docker *"]
  }
}
"""


@pytest.mark.parametrize("before", ["", "{}\n", OWN_SANDBOX, '{"sandbox": {}}\n'])
def test_the_exception_for_the_runner_comes_and_goes_without_a_trace(
    entries: HookEntries, tmp_path: Path, before: str
) -> None:
    path = tmp_path / "home/.claude/settings.json"
    if before:
        path.parent.mkdir()
        path.write_text(before)
    planned = entries.install("claude-code", where="user", mode="sandbox", dry_run=True)
    assert any("hook_runner.py" in line and line[0] == "+" for line in planned.difference)
    done = entries.install("claude-code", where="user", mode="sandbox")
    assert (done.done, done.sandboxed) == (True, ("Bash",))
    found = json.loads(path.read_text())["sandbox"]
    assert [one for one in found["excludedCommands"] if "hook_runner.py" in one]
    assert found.get("enabled") == (True if before == OWN_SANDBOX else None)
    assert entries.status(["claude-code"])[0].standing is HookStanding.INSTALLED
    assert not entries.install("claude-code", where="user", mode="sandbox").action
    path.write_text(path.read_text().replace("hook_runner.py", "other.py"))
    assert "exception for our runner is gone" in entries.status(["claude-code"])[0].reason
    path.write_text(path.read_text().replace("other.py", "hook_runner.py"))
    # Another mode takes it away again, and so does the end.
    entries.install("claude-code", where="user", mode="enforce")
    assert "hook_runner.py" not in path.read_text()
    entries.install("claude-code", where="user", mode="sandbox")
    entries.remove("claude-code", where="user")
    assert (path.read_text() if path.exists() else "") == before


def test_the_rule_of_codex_is_a_file_of_its_own(entries: HookEntries, tmp_path: Path) -> None:
    rules = tmp_path / "home/.codex/rules/skillhouse.rules"
    planned = entries.install("codex", where="user", mode="sandbox", dry_run=True)
    assert any("prefix_rule" in line for line in planned.difference)
    assert not rules.exists()
    assert entries.install("codex", where="user", mode="sandbox").done
    assert entries.install("codex", where="project", mode="sandbox").done
    assert 'decision="allow"' in rules.read_text()
    rules.write_text(rules.read_text() + "# more\n")
    assert "exception for our runner is gone" in entries.status(["codex"])[0].reason
    assert entries.install("codex", where="user", mode="sandbox").done
    entries.remove("codex", where="user")
    assert rules.exists()  # The project's entries need it.
    entries.remove("codex", where="project")
    assert not (tmp_path / "home/.codex").exists()
    rules.parent.mkdir(parents=True)
    rules.write_text("# mine\n")
    change = entries.install("codex", where="user", mode="sandbox")
    assert (change.done, "is not ours" in change.reason) == (False, True)
    assert rules.read_text() == "# mine\n"


def test_a_value_that_says_otherwise_is_not_overwritten(
    entries: HookEntries, tmp_path: Path
) -> None:
    path = tmp_path / "home/.gemini/settings.json"
    path.parent.mkdir()
    path.write_text('{"tools": {"enableHooks": false}}')
    change = entries.install("gemini-cli", where="user", mode="enforce")
    assert "`tools.enableHooks` is set to another value" in change.reason
    assert path.read_text() == '{"tools": {"enableHooks": false}}'


def test_the_plugin_is_a_program_that_node_reads(
    entries: HookEntries, tmp_path: Path, need: Callable[[object, str], None]
) -> None:
    need(shutil.which("node"), "node")
    entries.install("opencode", where="user", mode="enforce")
    path = tmp_path / "home/.config/opencode/plugins/skillhouse.js"
    module = tmp_path / "plugin.mjs"
    module.write_text(path.read_text())
    done = subprocess.run(["node", "--check", str(module)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_can_be_removed_is_here_or_named(entries: HookEntries, tmp_path: Path) -> None:
    assert entries.removable() == ()
    entries.install("claude-code", where="user", mode="enforce")
    entries.install("codex", where="project", mode="watch")
    (tmp_path / "other").mkdir()
    other = HookEntries(
        places=make_places(tmp_path),
        project=tmp_path / "other",
        state_directory=make_places(tmp_path).state(),
        audit=None,
    )
    assert [(one.client, one.action) for one in entries.removable()] == [
        ("claude-code", "remove"),
        ("codex", "remove"),
    ]
    found = [(one.client, one.action, bool(one.reason)) for one in other.removable()]
    assert found == [("claude-code", "remove", False), ("codex", "", True)]


def test_an_install_over_an_older_one_shows_and_adds_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = HookedHome(tmp_path)
    known = hook_client("claude-code")
    events = {e: m for e, m in known.events.items() if m not in ("prompt", "start")}
    with monkeypatch.context() as patch:
        patch.setattr(entries_module, "hook_client", lambda _: replace(known, events=events))
        home.entries().install("claude-code", where="user", mode="enforce")
    change = home.entries().install("claude-code", where="user", mode="enforce", dry_run=True)
    assert change.standing is HookStanding.CHANGED
    assert change.reason.startswith("2 of 8 entries are changed or gone")
    added = [line for line in change.difference if line.startswith("+")]
    assert any('"UserPromptSubmit"' in line for line in added)
    assert not any('"PreToolUse"' in line for line in change.difference if line[:1] in "+-")
    home.entries().install("claude-code", where="user", mode="enforce")
    assert home.entries().status(["claude-code"])[0].standing is HookStanding.INSTALLED
    home.entries().remove("claude-code", where="user")
    assert not (home.places.home / ".claude").exists()


@pytest.mark.parametrize("is_first", [True, False])
def test_a_plan_that_is_refused_changes_nothing(
    entries: HookEntries, tmp_path: Path, *, is_first: bool
) -> None:
    """A person has time to answer, and edits the file meanwhile."""
    file = tmp_path / "home/.claude/settings.json"
    if not is_first:
        assert entries.install("claude-code", where="user", mode="watch").done
    plan = entries.plan_install("claude-code", where="user", mode="enforce")
    file.parent.mkdir(parents=True, exist_ok=True)
    edited = "{}\n" if is_first else file.read_text().rstrip("\n") + "\n\n"
    file.write_text(edited)
    ours = {one: one.read_bytes() for one in (tmp_path / "home/.local").rglob("hooks/*")}
    with pytest.raises(ConfigFileError, match="changed meanwhile"):
        entries.apply(plan)
    assert {one: one.read_bytes() for one in (tmp_path / "home/.local").rglob("hooks/*")} == ours
    (found,) = [one for one in entries.status(["claude-code"]) if one.where == "user"]
    wanted = (HookStanding.MISSING, "") if is_first else (HookStanding.INSTALLED, "watch")
    assert (found.standing, found.mode) == wanted
    # A record of a file that we never made would have it removed.
    entries.remove("claude-code", where="user")
    assert file.exists() is is_first
