"""The seven clients: how each is started, and what it must be told of the fake model.

That our server is there, and may be called without a person, they learn from `skillhouse mcp
install --decide-alone` alone; what no file can say is the option that this verb names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from skillhouse.floor.structs import replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A coding agent's command line."""

    name: str
    """As `skillhouse export` and `mcp install` call it."""
    title: str
    package: str
    """What npm calls it, with the version that was seen last."""
    words: tuple[str, ...]
    """Its program, and what makes it answer once without a terminal."""
    prefix: str
    """What it puts before the names of our tools."""
    greeting: str
    """What it calls itself to a server."""
    environment: Callable[[str], Mapping[str, str]]
    """Takes the address of the model."""
    prepare: Callable[[Path, Path, str], None]
    """Takes home, project and the address, before our server is installed."""
    defers: bool = False
    """Whether our tools are named only as a group, until the model searches for them."""
    links: bool = True
    """Whether we know that it follows a linked skill."""


PROMPT = "Follow the script."


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnShell:
    """A client's own tool that runs a command, for a house that offers none."""

    tool: str
    arguments: Callable[[str], Mapping[str, str | bool]]
    """Takes the command."""
    words: tuple[str, ...]
    """How the client is started so that it may use it."""
    finish: Callable[[Path, Path], None] = lambda project, skills: None
    """Lets it run what is in the folder of skills; takes the project and that folder."""


def _claude_environment(url: str) -> Mapping[str, str]:
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "k",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "DISABLE_AUTOUPDATER": "1",
        # It would begin without a server that is not up yet.
        "MCP_CONNECTION_NONBLOCKING": "0",
        # Nor later than five seconds, where nothing is said (2.1.330).
        "MCP_CONNECT_TIMEOUT_MS": "60000",
        # Root may run it in a sandbox only.
        "IS_SANDBOX": "1",
    }


def _nothing(home: Path, project: Path, url: str) -> None:
    """The environment says it all."""


def _prepare_codex(home: Path, project: Path, url: str, *, model: str = "fake") -> None:
    del project
    (home / ".codex").mkdir(exist_ok=True)
    (home / ".codex/config.toml").write_text(
        f'model = "{model}" # a comment that stays\nmodel_provider = "fake"\n'
        # As for the models that it knows; for others it shows 10,000 bytes of a result.
        "tool_output_token_limit = 10000\n"
        "check_for_update_on_startup = false\n\n[analytics]\nenabled = false\n\n"
        f'[model_providers.fake]\nname = "Fake"\nbase_url = "{url}/v1"\n'
        'wire_api = "responses"\nenv_key = "FAKE_KEY"\nrequires_openai_auth = false\n'
    )


def _prepare_gemini(home: Path, project: Path, url: str) -> None:
    del project, url
    (home / ".gemini").mkdir(exist_ok=True)
    (home / ".gemini/settings.json").write_text(
        "{\n  // a comment that stays\n"
        '  "security": {"auth": {"selectedType": "gemini-api-key"}},\n'
        '  "privacy": {"usageStatisticsEnabled": false},\n'
        '  "general": {"enableAutoUpdate": false},\n'
        '  "telemetry": {"enabled": false}\n}\n'
    )


def _prepare_qwen(home: Path, project: Path, url: str) -> None:
    del project, url
    (home / ".qwen").mkdir(exist_ok=True)
    (home / ".qwen/settings.json").write_text(
        "{\n  // a comment that stays\n"
        '  "security": {"auth": {"selectedType": "openai"}},\n'
        '  "general": {"enableAutoUpdate": false},\n'
        '  "privacy": {"usageStatisticsEnabled": false}\n}\n'
    )


def _allow_opencode(project: Path, skills: Path) -> None:
    """Let opencode's shell use a folder outside of the project; it asks otherwise."""
    file = project / "opencode.json"
    allowed = {"external_directory": {f"{skills}/*": "allow"}}
    file.write_text(json.dumps({**json.loads(file.read_text()), "permission": allowed}))


def _prepare_opencode(home: Path, project: Path, url: str) -> None:
    del home
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": "x"},
        "models": {"fake": {"name": "fake", "limit": {"context": 100_000, "output": 4_000}}},
    }
    config = {
        "autoupdate": False,
        "share": "disabled",
        "model": "fake/fake",
        "small_model": "fake/fake",
        "provider": {"fake": provider},
    }
    (project / "opencode.json").write_text(json.dumps(config))


CLIENTS = (
    Client(
        name="claude-code",
        title="Claude Code",
        package="@anthropic-ai/claude-code@2.1.332",
        words=("claude", "-p", PROMPT, "--model", "sonnet"),
        prefix="mcp__skills__",
        greeting="claude-code",
        environment=_claude_environment,
        prepare=_nothing,
    ),
    Client(
        name="codex",
        title="Codex",
        package="@openai/codex@0.171.0",
        words=("codex", "exec", "--skip-git-repo-check", "--sandbox", "read-only", PROMPT),
        prefix="mcp__skills::",
        greeting="codex-mcp-client",
        environment=lambda url: {"FAKE_KEY": "x"},
        prepare=_prepare_codex,
    ),
    Client(
        name="gemini-cli",
        title="Gemini CLI",
        package="@google/gemini-cli@0.61.0",
        words=("gemini", "-m", "gemini-2.5-flash", "--skip-trust", "-p", PROMPT),
        prefix="mcp_skills_",
        greeting="gemini-cli-mcp-client",
        environment=lambda url: {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": url},
        prepare=_prepare_gemini,
    ),
    Client(
        name="opencode",
        title="opencode",
        package="opencode-ai@1.18.33",
        words=("opencode", "run", PROMPT),
        prefix="skills_",
        greeting="opencode",
        environment=lambda url: {
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            # Where there are plugins it installs a package first, and tries again for a minute.
            "NPM_CONFIG_FETCH_RETRIES": "0",
        },
        prepare=_prepare_opencode,
    ),
    Client(
        name="copilot-cli",
        title="Copilot CLI",
        package="@github/copilot@1.0.102",
        words=("copilot", "-p", PROMPT, "--allow-tool=skills"),
        prefix="skills-",
        greeting="github-copilot-developer",
        environment=lambda url: {
            "COPILOT_OFFLINE": "true",
            "COPILOT_AUTO_UPDATE": "false",
            "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
            "COPILOT_PROVIDER_API_KEY": "x",
            "COPILOT_MODEL": "fake",
        },
        prepare=_nothing,
    ),
    Client(
        name="qwen-code",
        title="Qwen Code",
        package="@qwen-code/qwen-code@0.24.4",
        words=("qwen", "-m", "fake", "-p", PROMPT),
        prefix="mcp__skills__",
        greeting="qwen-cli-mcp-client-skills",
        environment=lambda url: {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": f"{url}/v1"},
        prepare=_prepare_qwen,
    ),
    Client(
        name="kimi-code-cli",
        title="Kimi Code CLI",
        package="@moonshot-ai/kimi-code@2.1.0",
        words=("kimi", "-p", PROMPT),
        prefix="mcp__skills__",
        greeting="kimi-code",
        environment=lambda url: {
            "KIMI_MODEL_NAME": "fake",
            "KIMI_MODEL_API_KEY": "x",
            "KIMI_MODEL_BASE_URL": f"{url}/v1",
            "KIMI_MODEL_PROVIDER_TYPE": "openai",
            "KIMI_CODE_NO_AUTO_UPDATE": "1",
            "KIMI_DISABLE_TELEMETRY": "1",
        },
        prepare=_nothing,
        links=False,
    ),
)

SEARCHING = "gpt-5.5"
"""A model that Codex knows to search for tools; those after it write programs instead."""
VARIANTS = tuple(
    replace(
        client,
        title=f"{client.title}, as for {SEARCHING},",
        prepare=partial(_prepare_codex, model=SEARCHING),
        defers=True,
    )
    for client in CLIENTS
    if client.name == "codex"
)
"""Clients that treat some models in another way."""

OWN_SHELLS: Mapping[str, OwnShell] = {
    "claude-code": OwnShell(
        tool="Bash",
        arguments=lambda command: {"command": command, "description": "Run the script"},
        words=(
            *("claude", "-p", PROMPT, "--model", "sonnet"),
            *("--allowedTools", "Bash"),
        ),
    ),
    "codex": OwnShell(
        tool="exec_command",
        arguments=lambda command: {"cmd": command},
        words=("codex", "exec", "--skip-git-repo-check", "--sandbox", "workspace-write", PROMPT),
    ),
    "gemini-cli": OwnShell(
        tool="run_shell_command",
        arguments=lambda command: {"command": command, "description": "Run the script"},
        words=("gemini", "-m", "gemini-2.5-flash", "--yolo", "--skip-trust", "-p", PROMPT),
    ),
    "opencode": OwnShell(
        tool="bash",
        arguments=lambda command: {"command": command, "description": "Run the script"},
        words=("opencode", "run", PROMPT),
        finish=_allow_opencode,
    ),
    "copilot-cli": OwnShell(
        tool="bash",
        arguments=lambda command: {"command": command, "description": "Run the script"},
        # Redirections of a shell need all tools: `copilot help permissions`.
        words=("copilot", "-p", PROMPT, "--allow-all-tools", "--allow-all-paths"),
    ),
    "qwen-code": OwnShell(
        tool="run_shell_command",
        arguments=lambda command: {
            "command": command,
            "description": "Run the script",
            "is_background": False,
        },
        words=("qwen", "-m", "fake", "--yolo", "-p", PROMPT),
    ),
    "kimi-code-cli": OwnShell(
        tool="Bash",
        arguments=lambda command: {"command": command, "description": "Run the script"},
        words=("kimi", "-p", PROMPT),
    ),
}
"""By the client's name."""
