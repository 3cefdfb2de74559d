"""What a client's own rules say of a command: rather too much than too little."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skillhouse.frontends.hooks.client_rules import OwnRules, UnreadRulesError
from skillhouse.frontends.hooks.hook_clients import hook_client


def reason(tmp_path: Path, client: str, command: str, *words: str, record: object = None) -> str:
    rewrite = hook_client(client).rewrite
    assert rewrite is not None
    rules = OwnRules(rewrite.rules, tmp_path / "home", str(tmp_path / "project/below"))
    return rules.reason(command, words, record)


CASES = [
    ("Bash(rm *)", "rm x", True),
    ("Bash(rm *)", "ls && rm x", True),
    ("Bash(rm *)", "FOO=1 timeout 3 rm x", True),
    ("Bash(rm *)", "r'm' x", True),
    ("Bash(rm *)", "sh -c 'rm x'", True),
    ("Bash(rm *)", "charm x", False),
    ("Bash(git push:*)", "git   push -f", True),
    ("Bash(git push:*)", "git pull", False),
    ("Bash(git * main)", "git push origin main", True),
    ("Bash(*)", "ls", True),
    ("Bash", "ls", True),
    ("*", "ls", True),
    ("B*", "ls", True),
    ("Read(./.env)", "cat .env", True),
    ("Read(./secrets/**)", "cd secrets; cat a", True),
    ("Read(//etc/**)", "cat /etc/passwd", True),
    ("Read(**)", "ls", True),
    ("Edit", "ls", True),
    ("Read(./.env)", "ls", False),
    ("WebFetch(domain:x.org)", "curl x.org", False),
    ("mcp__shop__*", "ls", False),
]


@pytest.mark.parametrize(("rule", "command", "is_left"), CASES)
def test_a_rule_of_claude_code(tmp_path: Path, rule: str, command: str, *, is_left: bool) -> None:
    for place in ("home/settings.json", "project/.claude/settings.json"):
        file = tmp_path / place
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"permissions": {"ask": [rule]}}))
        assert bool(reason(tmp_path, "claude-code", command)) is is_left
        file.unlink()


def test_options_of_the_client_that_change_its_rules(tmp_path: Path) -> None:
    words = ("claude", "-p", "x", "--disallowedTools", "Bash(rm *)")
    assert "--disallowedTools" in reason(tmp_path, "claude-code", "ls", *words)
    assert "--settings" in reason(tmp_path, "claude-code", "ls", "claude", "--settings={}")
    assert not reason(tmp_path, "claude-code", "ls", "claude", "-p", "settings")


PREFIXES = [
    ('prefix_rule(pattern=["rm"], decision="forbidden")', "rm x", True),
    ('prefix_rule(pattern=["git", ["push", "fetch"]], decision="prompt")', "git fetch", True),
    ('prefix_rule(pattern=["git", ["push", "fetch"]], decision="prompt")', "git status", False),
    ('prefix_rule(pattern=["rm"], decision="allow")', "rm x", False),
    ('# a note\n\nprefix_rule(pattern=["rm"])\n', "rm x", False),
]


@pytest.mark.parametrize(("text", "command", "is_left"), PREFIXES)
def test_a_rule_of_codex(tmp_path: Path, text: str, command: str, *, is_left: bool) -> None:
    (tmp_path / "home/rules").mkdir(parents=True)
    (tmp_path / "home/rules/default.rules").write_text(text)
    record = session(tmp_path, "workspace-write")
    assert bool(reason(tmp_path, "codex", command, record=record)) is is_left


def session(tmp_path: Path, kind: str) -> str:
    lines = [
        {"type": "turn_context", "payload": {"sandbox_policy": {"type": "danger-full-access"}}},
        {"type": "turn_context", "payload": {"sandbox_policy": {"type": kind}}},
        {"type": "message", "payload": {"text": '"turn_context"'}},
    ]
    file = tmp_path / "rollout.jsonl"
    file.write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    return str(file)


@pytest.mark.parametrize(
    "text",
    [
        "prefix_rule(",
        "x = 1",
        "host_executable(name='git')",
        "prefix_rule(['rm'], decision='forbidden')",
        "prefix_rule(pattern='rm', decision='forbidden')",
        "prefix_rule(pattern=['rm'], decision='deny')",
        "prefix_rule(pattern=names, decision='forbidden')",
        "for x in [1]:\n    prefix_rule(pattern=['rm'], decision='forbidden')",
        "prefix_rule(pattern=[1], decision='forbidden')",
        "(" * 5_000,
        "\0",
    ],
)
def test_a_file_of_codex_that_is_not_understood(tmp_path: Path, text: str) -> None:
    (tmp_path / "home/rules").mkdir(parents=True)
    (tmp_path / "home/rules/default.rules").write_text(text)
    with pytest.raises(UnreadRulesError):
        reason(tmp_path, "codex", "ls", record=session(tmp_path, "workspace-write"))


def test_codex_that_may_write_nothing_is_left_alone(tmp_path: Path) -> None:
    record = session(tmp_path, "read-only")
    assert (
        reason(tmp_path, "codex", "ls", record=record) == "the client runs commands as `read-only`"
    )
    for one in (None, "relative", str(tmp_path / "missing"), str(tmp_path)):
        with pytest.raises(UnreadRulesError):
            reason(tmp_path, "codex", "ls", record=one)
    (tmp_path / "rollout.jsonl").write_text('{"type": "message"}\n')
    with pytest.raises(UnreadRulesError):
        reason(tmp_path, "codex", "ls", record=record)


@pytest.mark.parametrize("name", ["policies/a.toml", "settings.json"])
def test_what_is_not_understood_of_gemini_cli(tmp_path: Path, name: str) -> None:
    file = tmp_path / "home" / name
    file.parent.mkdir(parents=True)
    file.write_text('{"tools": {"exclude": ["run_shell_command(rm)"]}}')
    with pytest.raises(UnreadRulesError):
        reason(tmp_path, "gemini-cli", "ls")
    file.write_text("")
    if name == "settings.json":
        assert not reason(tmp_path, "gemini-cli", "ls")


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"permissions": {"deny": [7]}}', '{"permissions": 7}']
)
def test_settings_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/settings.json").write_text(text)
    with pytest.raises(UnreadRulesError):
        reason(tmp_path, "claude-code", "ls")
    (tmp_path / "home/settings.json").write_bytes(b"\xff")
    with pytest.raises(UnreadRulesError):
        reason(tmp_path, "claude-code", "ls")
    (tmp_path / "home/settings.json").write_bytes(b" " * (1024 * 1024 + 1))
    with pytest.raises(UnreadRulesError):
        reason(tmp_path, "claude-code", "ls")
