"""Makes sure that a person loosens things, and not the program that waits for it.

This closes the ways that a coding agent with a shell takes by itself. It is no boundary: a program
with the user's rights can change the state's files as well (docs/decisions/0164-who-answers.md).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from skillhouse.floor import SkillhouseError


@dataclass(frozen=True, slots=True)
class CodingAgent:
    """One agent; looked up on 2026-11-22."""

    name: str
    variables: tuple[str, ...]
    """Set, and neither empty nor `0` nor `false`, in the commands that it runs."""
    programs: tuple[str, ...]
    """What its process is called."""
    source: str


CODING_AGENTS = (
    CodingAgent(
        "Claude Code",
        ("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT"),
        ("claude",),
        "https://code.claude.com/docs/en/env-vars; anthropics/claude-code issue 24838",
    ),
    CodingAgent(
        "Codex",
        ("CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED", "CODEX_THREAD_ID", "CODEX_CI"),
        ("codex",),
        "openai/codex codex-rs/core/src/spawn.rs, pull 10096; aws/aws-cdk-cli pull 1855",
    ),
    CodingAgent(
        "Gemini CLI",
        ("GEMINI_CLI",),
        ("gemini",),
        "https://google-gemini.github.io/gemini-cli/docs/tools/shell.html#environment-variables",
    ),
    CodingAgent(
        "opencode",
        ("OPENCODE",),
        ("opencode",),
        "anomalyco/opencode packages/opencode/src/index.ts",
    ),
    CodingAgent(
        "Cursor's agent",
        ("CURSOR_AGENT",),
        ("cursor-agent",),
        "https://cursor.com/docs/agent/tools/terminal",
    ),
    CodingAgent(
        "GitHub Copilot",
        ("COPILOT_CLI",),
        ("copilot",),
        "github/copilot-cli changelog.md; microsoft/vscode pull 327433 (AI_AGENT)",
    ),
    CodingAgent(
        "Goose",
        ("GOOSE_TERMINAL",),
        ("goose", "goosed"),
        "aaif-goose/goose pull 7017",
    ),
    CodingAgent(
        "Cline",
        ("CLINE_ACTIVE",),
        (),
        "https://github.com/cline/cline/discussions/5366",
    ),
    CodingAgent(
        "Augment",
        ("AUGMENT_AGENT",),
        ("auggie",),
        "https://docs.augmentcode.com/cli/reference#shell-environment",
    ),
    CodingAgent(
        "Qwen Code",
        ("QWEN_CODE",),
        ("qwen",),
        "QwenLM/qwen-code; aws/aws-cdk-cli pull 1855",
    ),
    CodingAgent(
        "Antigravity",
        ("ANTIGRAVITY_AGENT",),
        (),
        "vercel/vercel packages/detect-agent, pull 15413",
    ),
    CodingAgent(
        "Crush",
        ("CRUSH",),
        ("crush",),
        "charmbracelet/crush internal/shell/shell.go",
    ),
    CodingAgent(
        # Amp, Crush, Goose, opencode, Claude Code and VS Code set one of these, whoever comes next.
        "a coding agent",
        ("AI_AGENT", "AGENT"),
        ("amp", "aider"),
        "https://github.com/agentsmd/agents.md/issues/136; vercel/vercel packages/detect-agent",
    ),
)


PROC = Path("/proc")
"""Where the system shows processes (Linux); elsewhere only our own environment is looked at."""
ANCESTORS_MAX = 64
"""Parents that are looked at; the chain of a login has about ten."""
ENVIRONMENT_MAX = 2 * 1_048_576
"""Bytes of a process's environment (Linux: a quarter of the stack's limit, 2 MiB by default)."""

_OFF = frozenset({"", "0", "false"})
_RUNNERS = ("node", "bun", "deno", "python")
"""Programs that are called by their script's name."""


class NotAPersonError(SkillhouseError):
    """A coding agent, or no terminal: nothing was changed."""


def refuse_agents(what: str) -> None:
    """Refuse a command that loosens something, where a coding agent runs it.

    Args:
        what: The command, such as `trust`.

    Raises:
        NotAPersonError: this process, or one that it comes from, belongs to a coding agent.
    """
    found = coding_agent(os.environ)
    if found:
        raise NotAPersonError(
            f"`{what}` is for a person, and {found}: nothing was changed. Do it in a terminal of "
            "your own; questions can also be answered on the page or on a paired device"
        )


def coding_agent(environment: Mapping[str, str]) -> str:
    """Return which coding agent runs this process and how that shows; nothing when none does.

    The processes that it comes from are looked at too: `env -i` and `script` hide nothing.
    """
    for variables, programs in ((environment, ()), *_ancestors()):
        for agent in CODING_AGENTS:
            for name in agent.variables:
                if variables.get(name, "").lower() not in _OFF:
                    return f"{agent.name} runs this (the variable {name} is set)"
            if agent.programs and any(program in agent.programs for program in programs):
                return f"{agent.name} runs this"
    return ""


def _ancestors() -> Iterator[tuple[Mapping[str, str], tuple[str, ...]]]:
    """Yield the environment and the names of each process that this one comes from.

    What another user's process holds (login, sudo, init) cannot be read and is left out.
    """
    pid = os.getppid()
    for _ in range(ANCESTORS_MAX):
        if pid <= 1:
            return
        try:
            # The name in brackets may hold anything, also brackets.
            before, _, after = (PROC / str(pid) / "stat").read_bytes().rpartition(b")")
            parent = int(after.split()[1])
        except (OSError, ValueError, IndexError):
            return
        name = before.partition(b"(")[2].decode("utf-8", "replace")
        words = _fields(pid, "cmdline")[:2]
        variables = (field.partition("=") for field in _fields(pid, "environ"))
        yield {key: value for key, _, value in variables}, (name, *_called(words))
        pid = parent


def _fields(pid: int, name: str) -> list[str]:
    try:
        with (PROC / str(pid) / name).open("rb") as file:
            return file.read(ENVIRONMENT_MAX).decode("utf-8", "replace").split("\0")
    except OSError:
        return []


def _called(words: list[str]) -> Iterator[str]:
    """Yield what a program is called: its own name, and that of a script that it runs."""
    for place, word in enumerate(words):
        name = word.rpartition("/")[2]
        yield name.removesuffix(".js")
        if place == 0 and not name.startswith(_RUNNERS):
            return
