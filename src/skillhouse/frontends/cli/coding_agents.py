"""The coding agents that are known by what the commands they run inherit: data, with its sources.

Only what an agent sets for its own commands counts. What an editor sets for every terminal does not
(`CURSOR_TRACE_ID`, `VSCODE_*`, `TERM_PROGRAM`, `REPL_ID`), nor what people set themselves
(`CODEX_HOME`, `CLINE_API_KEY`, `GOOSE_PROVIDER`, `AIDER_*`): a person may sit there.
"""

from __future__ import annotations

from dataclasses import dataclass


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
