"""Gives real clients exported skills and our server, offline, and says what their models see.

    unshare -rn python tests/interop/exported.py --interop DIR --agents node_modules/.bin

DIR holds `fakellm.py`, a fake model on loopback; `--agents` the clients' commands. For each client,
in a fresh home: `skillhouse export` writes one skill as a copy and links another, `skillhouse mcp
install` adds the server, and the client is asked something. Then the requests to the model say
whether both descriptions were listed, and the answer whether our tool was called. `--control` does
the same without the exports, where nothing may be listed. A client that is not installed is skipped
with its reason. Exit code 1 when one of them failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

COPIED = "Counts owls in barns, marker copy-owl42."
LINKED = "Counts bats in caves, marker link-bat43."
BODY = "wttr.in"
"""What only the body of the built-in skill holds."""
PORT = 8917
SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """How a client is run against the fake model."""

    name: str
    command: tuple[str, ...]
    tool: str
    """What it calls our skill tool."""
    environment: Mapping[str, str]


CLIENTS = (
    Client(
        name="claude-code",
        command=(
            *("claude", "-p", "weather", "--model", "claude-sonnet-4-5"),
            *("--allowedTools", "mcp__skills__skill"),
        ),
        tool="mcp__skills__skill",
        environment={
            "IS_SANDBOX": "1",
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{PORT}",
            "ANTHROPIC_API_KEY": "k",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "MCP_CONNECTION_NONBLOCKING": "0",
            "CLAUDE_CODE_MAX_RETRIES": "1",
        },
    ),
    Client(
        name="codex",
        command=("codex", "exec", "--skip-git-repo-check", "--sandbox", "read-only", "weather"),
        tool="skills::skill",
        environment={"FAKE_KEY": "x"},
    ),
    Client(
        name="gemini-cli",
        command=("gemini", "-m", "gemini-2.5-flash", "--yolo", "--skip-trust", "-p", "weather"),
        tool="mcp_skills_skill",
        environment={"GEMINI_API_KEY": "f", "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{PORT}"},
    ),
    Client(
        name="opencode",
        command=("opencode", "run", "weather"),
        tool="skills_skill",
        environment={"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
    ),
)


def main() -> int:
    """Run the clients and print a line for each."""
    parser = argparse.ArgumentParser(description="Export to real clients, offline.")
    parser.add_argument("--interop", type=Path, required=True)
    parser.add_argument("--agents", type=Path, required=True)
    parser.add_argument("--control", action="store_true", help="export nothing: none may be listed")
    parser.add_argument("clients", nargs="*", help="only these")
    options = parser.parse_args()
    # The new network namespace has a loopback that is down.
    subprocess.run(["ip", "link", "set", "lo", "up"], check=False, stderr=subprocess.DEVNULL)
    failed = 0
    for client in CLIENTS:
        if options.clients and client.name not in options.clients:
            continue
        program = options.agents.resolve() / client.command[0]
        if not program.exists():
            print(f"{client.name:12} skipped: no {program}")
            continue
        base = Path(tempfile.mkdtemp(prefix=f"exported-{client.name}-"))
        with model(options.interop / "fakellm.py", client.tool, base / "requests.jsonl"):
            failed += run(client, program, base, control=options.control)
    return min(failed, 1)


@contextlib.contextmanager
def model(script: Path, tool: str, log: Path) -> Iterator[None]:
    """Hold the fake model; it is ready when the block begins."""
    words = [sys.executable, str(script), "--port", str(PORT), "--match", tool, "--log", str(log)]
    started = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", PORT)) == 0:
                    break
            time.sleep(0.1)
        yield
    finally:
        started.terminate()
        started.wait()


def run(client: Client, program: Path, base: Path, *, control: bool) -> int:
    """Run one client; 1 when something is not as it should be."""
    home, project = base / "home", base / "project"
    home.mkdir()
    (project / ".git").mkdir(parents=True)
    environment = {
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    prepare(client, home, project)
    for name, description in (("owls", COPIED), ("bats", LINKED)):
        directory = home / ".config/skillhouse/skills" / name
        directory.mkdir(parents=True)
        text = f"---\nname: {name}\ndescription: {description}\n---\nCount them.\n"
        (directory / "SKILL.md").write_text(text)
    house = [sys.executable, "-m", "skillhouse"]
    exports = [
        ["export", "owls", "--to", client.name],
        ["export", "bats", "--to", client.name, "--link"],
    ]
    rest = [
        # Else our own server would list them too, and the model would see them without an export.
        ["disable", "user:owls"],
        ["disable", "user:bats"],
        ["mcp", "install", client.name],
    ]
    for words in rest if control else exports + rest:
        subprocess.run([*house, *words], cwd=project, env=environment, check=True, stdout=2)
    approve(home)
    done = subprocess.run(
        [str(program), *client.command[1:]],
        cwd=project,
        env={**environment, **client.environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    (base / "answer.txt").write_text(done.stdout + done.stderr)
    log = base / "requests.jsonl"
    requests = log.read_text() if log.exists() else ""
    found = {
        "copy listed": "copy-owl42" in requests,
        "link listed": "link-bat43" in requests,
        "server called": BODY in done.stdout,
    }
    print(f"{client.name:12}", ", ".join(f"{what}: {is_so}" for what, is_so in found.items()), base)
    expected = [not control, not control, True]
    return 0 if list(found.values()) == expected else 1


def prepare(client: Client, home: Path, project: Path) -> None:
    """Write what the client needs to know of the fake model."""
    url = f"http://127.0.0.1:{PORT}"
    if client.name == "opencode":
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": f"{url}/v1", "apiKey": "x"},
            "models": {"fake": {"name": "fake", "limit": {"context": 100000, "output": 4000}}},
        }
        config = {
            "autoupdate": False,
            "share": "disabled",
            "model": "fake/fake",
            "small_model": "fake/fake",
            "provider": {"fake": provider},
            "permission": {"*": "allow"},
        }
        (project / "opencode.json").write_text(json.dumps(config))
    elif client.name == "codex":
        (home / ".codex").mkdir()
        (home / ".codex/config.toml").write_text(
            'model = "fake" # a comment\nmodel_provider = "fake"\n'
            "check_for_update_on_startup = false\n\n[analytics]\nenabled = false\n\n"
            f'[model_providers.fake]\nname = "Fake"\nbase_url = "{url}/v1"\n'
            'wire_api = "responses"\nenv_key = "FAKE_KEY"\nrequires_openai_auth = false\n'
        )
    elif client.name == "gemini-cli":
        (home / ".gemini").mkdir()
        (home / ".gemini/settings.json").write_text(
            "{\n  // a comment\n"
            '  "security": {\n    "auth": {"selectedType": "gemini-api-key"},\n'
            '    "folderTrust": {"enabled": false}\n  },\n'
            '  "privacy": {"usageStatisticsEnabled": false},\n'
            '  "telemetry": {"enabled": false}\n}\n'
        )


def approve(home: Path) -> None:
    """Let Codex call our tools without asking, which a person who runs `codex exec` has to."""
    file = home / ".codex/config.toml"
    if file.exists():
        file.write_text(file.read_text() + 'default_tools_approval_mode = "approve"\n')


if __name__ == "__main__":
    sys.exit(main())
