"""The servers, registries and programs of others that a guide names, as loopback stand-ins."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from scripts.terminal import UV, Terminal

from skillhouse.registry import pack
from tests.extensions.cells.packages import npm_package, npm_registry, wheel
from tests.extensions.chat.providers import Request, provider
from tests.extensions.registry.hosting.servers import serving as serving_registry
from tests.frontends.test_cli_remote import Shop
from tests.harness import Need
from tests.loopback_http import QuietHandler, served, serving_http
from tests.registry.pki import TimestampAuthority
from tests.registry.sources import skill_text
from tests.remote.mcp_liar import Liar, serving, skill_file
from tests.remote.servers import text_of

Standin = Callable[[Terminal, Path, Need], AbstractContextManager[dict[str, str]]]
"""Starts what a page needs; gives the texts of the page that are others here."""

HUMANIZE = "def naturalsize(size):\n    return f'{size / 1e6:.1f} MB'\n"
SEMVER = (
    "const parts = (text) => text.split('.').map(Number);\n"
    "exports.gt = (a, b) => {\n"
    "  const [left, right] = [parts(a), parts(b)];\n"
    "  const at = left.findIndex((part, n) => part !== right[n]);\n"
    "  return at >= 0 && left[at] > right[at];\n"
    "};\n"
)
FILE = "humanize-4.0.0-py3-none-any.whl"
UV_LOCK = """version = 1
requires-python = ">=3.11"

[[package]]
name = "humanize"
version = "4.0.0"
source = {{ registry = "https://packages.invalid/simple" }}
wheels = [{{ url = "https://packages.invalid/{file}", hash = "sha256:{sha}" }}]

[[package]]
name = "sizes"
version = "0.1.0"
source = {{ virtual = "." }}
dependencies = [{{ name = "humanize" }}]

[package.metadata]
requires-dist = [{{ name = "humanize", specifier = ">=4" }}]
"""
PRIVATE = '\n[net]\nprivate = ["127.0.0.0/8"]\nhosts = ["http://127.0.0.1:{port}"]\n'
MODEL_SAYS = "Hello."
CLAUDE = """\
import asyncio, json, sys
from pathlib import Path
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

CALLS = {
    "Load the skill standup": ("skill", {"name": "standup"}),
    "Delete the branch draft": ("exec", {"command": "git", "params": ["branch", "-D", "draft"]}),
}


async def main(prompt: str) -> None:
    entry = json.loads((Path.home() / ".claude.json").read_text())["mcpServers"]["skills"]
    server = StdioServerParameters(command=entry["command"], args=entry["args"])
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        name, arguments = CALLS[prompt]
        result = await session.call_tool(name, arguments)
        print(result.content[0].text)


asyncio.run(main(sys.argv[sys.argv.index("-p") + 1]))
"""
"""In the place of Claude Code: starts the server of the entry that it has, and makes one call."""

WANTED = (
    ("skill", {"name": "standup"}),
    ("exec", {"command": "git", "params": ["log", "--since=yesterday", "--oneline"]}),
)
"""What the model of docs/guides/build-an-agent.md calls, one after the other."""


def program(directory: Path, name: str, script: str) -> None:
    """Write a program that comes before the system's own."""
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}", encoding="utf-8")
    path.chmod(0o755)


def answered(request: Request) -> None:
    """Answer as a model that says one thing."""
    request.stream()
    request.say(MODEL_SAYS)
    request.say("", "stop")
    request.wfile.write(b"data: [DONE]\n\n")


@contextmanager
def a_model(terminal: Terminal, place: Path, need: Need) -> Iterator[dict[str, str]]:
    """An OpenAI-compatible API on loopback."""
    with provider(answered) as made:
        yield {"http://127.0.0.1:11434/v1": made.url}
        assert made.requests


def calling(request: Request, sent: bytes) -> None:
    """Answer as a model that calls each of `WANTED` whose result it has not got, then ends."""
    messages = json.loads(sent)["messages"]
    done = sum(message["role"] == "tool" for message in messages)
    message: dict[str, object] = {"role": "assistant", "content": "Nothing yet."}
    if done < len(WANTED):
        name, arguments = WANTED[done]
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"id": f"call-{done}", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    reason = "tool_calls" if done < len(WANTED) else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason}
    whole = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}
    body = json.dumps({**whole, "choices": [choice]})
    request.status(200, **{"Content-Type": "application/json", "body": body})


@contextmanager
def a_calling_model(terminal: Terminal, place: Path, need: Need) -> Iterator[dict[str, str]]:
    """An OpenAI-compatible API on loopback whose model calls tools."""
    with provider(lambda request: calling(request, made.requests[-1][1])) as made:
        yield {"http://127.0.0.1:11434/v1": made.url}
        assert len(made.requests) == 2 * (len(WANTED) + 1)


@contextmanager
def claude_code(terminal: Terminal, place: Path, need: Need) -> Iterator[dict[str, str]]:
    """A program that is started as Claude Code is, and does one thing that it does."""
    code = place / "claude.py"
    code.write_text(CLAUDE, encoding="utf-8")
    program(place / "bin", "claude", f'exec {terminal.programs}/python -I {code} "$@"\n')
    terminal.path = (place / "bin",)
    yield {}


@contextmanager
def registries(terminal: Terminal, place: Path, need: Need) -> Iterator[dict[str, str]]:
    """One package for Python and one for npm; `uv lock` gives a lock that was made before."""
    npm = shutil.which("npm")
    need(npm, "no npm")
    assert npm is not None
    sha = wheel(place / "wheels", "humanize", "4.0.0", HUMANIZE)
    settings = place / "uv.toml"
    settings.write_text(f'no-index = true\noffline = true\nfind-links = ["{place}/wheels"]\n')
    (place / "uv.lock").write_text(UV_LOCK.format(sha=sha, file=FILE))
    lock = f'[ "$1" = lock ] && exec cp {place}/uv.lock .\nexec {UV} "$@"\n'
    program(place / "bin", "uv", lock)
    package = npm_package("semver", "7.0.0", SEMVER)
    with npm_registry({("semver", "7.0.0"): package}) as (address, asked):
        terminal.path = (place / "bin", Path(npm).parent)
        terminal.more = {
            "UV_CONFIG_FILE": str(settings),
            "UV_CACHE_DIR": str(place / "uv-cache"),
            "npm_config_registry": address,
            "npm_config_cache": str(place / "npm-cache"),
        }
        yield {}
        assert asked


@contextmanager
def skill_servers(terminal: Terminal, place: Path, need: Need) -> Iterator[dict[str, str]]:
    """A server with a skill behind each address of the page."""
    with serving_http(Shop()) as shop:
        shop.offer(weather=text_of("weather"))
        shop.pages["/skills/index.json"] = (
            b'{"skills": [{"name": "pdf-forms", "description": "x", "files": ["SKILL.md"]}]}'
        )
        shop.pages["/skills/pdf-forms/SKILL.md"] = text_of("pdf-forms")
        configuration = terminal.home / ".config/skillhouse/config.toml"
        configuration.parent.mkdir(parents=True)
        configuration.write_text(PRIVATE.format(port=shop.server_port))
        yield {"https://skills.example.com": shop.url, "https://example.com": shop.url}
        assert shop.asked


@contextmanager
def an_mcp_server(terminal: Terminal, place: Path, need: Need) -> Iterator[dict[str, str]]:
    """A server over HTTP, and a program that is one."""
    liar = Liar()
    liar.offer("skill://csv", {"SKILL.md": skill_file("csv")})
    liar.offer("skill://pdf", {"SKILL.md": skill_file("pdf")})
    liar.unlisted["skill://pdf/SKILL.md"] = liar.entries.pop()
    python = terminal.programs / "python"
    program(place / "bin", "tools-server", f"exec {python} -I -m skillhouse mcp\n")
    terminal.path = (place / "bin",)
    with serving(liar) as server:
        assert server.url is not None
        yield {
            'url = "https://docs.example/mcp"': f'url = "{server.url}"\nallow_private = true',
        }
        assert liar.asked


@contextmanager
def a_free_port(terminal: Terminal, place: Path, need: Need) -> Iterator[dict[str, str]]:
    """Not the usual port, which someone may use."""
    yield {"skillhouse worker ": "skillhouse worker --port 0 "}


@contextmanager
def a_registry_port(terminal: Terminal, place: Path, need: Need) -> Iterator[dict[str, str]]:
    """A free port of four digits, which the page names in several commands."""
    for port in range(9_200, 9_900):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            break
    yield {"8640": str(port)}


@contextmanager
def a_git_server(terminal: Terminal, place: Path, need: Need) -> Iterator[dict[str, str]]:
    """An empty repository, which git reaches as a directory."""
    # Its name is as long as the server's, so that lines break in the same places.
    with tempfile.TemporaryDirectory(prefix="git", dir="/tmp") as top:
        repository = Path(top, "skills.git")
        git = ["git", "init", "--quiet", "--bare", "--initial-branch=main"]
        subprocess.run([*git, repository], check=True)
        yield {"https://git.example.com": f"file://{top}"}


@contextmanager
def a_timestamp_authority(terminal: Terminal, place: Path, need: Need) -> Iterator[dict[str, str]]:
    """OpenSSL's, behind an address of loopback."""
    need(shutil.which("openssl"), "no openssl")
    authority = TimestampAuthority(place / "authority")
    asked: list[str] = []

    class Answer(QuietHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            answer = authority.answer(self.rfile.read(int(self.headers["Content-Length"])))
            self.answer(200, answer)

    shutil.copy(place / "authority/root.pem", terminal.cwd / "tsa.pem")
    configuration = terminal.home / ".config/skillhouse/config.toml"
    configuration.parent.mkdir(parents=True)
    configuration.write_text('[net]\nprivate = ["127.0.0.0/8"]\n')
    with served(Answer) as address:
        yield {"https://timestamps.example.com": address}
    assert asked == ["/tsr"]


@contextmanager
def a_repository(terminal: Terminal, place: Path, need: Need) -> Iterator[dict[str, str]]:
    """A registry on loopback with one skill, and a token that may publish."""
    text = skill_text("pdf", "Read it first.\n", version="1.2.0")
    about = "Extract and fill PDF forms. Use when a PDF has fields."
    (place / "made/pdf").mkdir(parents=True)
    said = text.replace("About pdf. Use it in tests.", about)
    (place / "made/pdf/SKILL.md").write_text(said, encoding="utf-8")
    with serving_registry(place / "served", "--name", "skills.example.com") as server:
        token = server.token("admin")
        archive = pack(place / "made/pdf").archive
        assert server.publish(archive, "pdf", "1.2.0", token).status == 201
        terminal.more = {"SKILLS_TOKEN": token}
        yield {"https://skills.example.com": server.url}


STANDINS: dict[str, Standin] = {
    "docs/guides/build-an-agent.md": a_calling_model,
    "docs/guides/with-claude-code.md": claude_code,
    "docs/guides/chat.md": a_model,
    "docs/guides/containers.md": a_free_port,
    "docs/guides/executable-skills.md": registries,
    "docs/guides/remote-skills.md": skill_servers,
    "docs/guides/install.md": a_git_server,
    "docs/guides/mcp-skills.md": an_mcp_server,
    "docs/guides/mirror.md": a_registry_port,
    "docs/guides/own-registry.md": a_registry_port,
    "docs/guides/repositories.md": a_repository,
    "docs/guides/sign-skills.md": a_timestamp_authority,
}
"""By page."""
