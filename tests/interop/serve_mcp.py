"""Serves a house made of sample skills over streamable HTTP: `python -m tests.interop.serve_mcp`.

The conformance suite and other programs' clients connect to it. It prints its address, listens on
127.0.0.1 only, and asks for no key: for tests, and nothing else.
"""

from __future__ import annotations

import argparse
import logging
import socket
import tempfile
from pathlib import Path

import anyio
import uvicorn

from skillhouse.frontends.mcp import server as mcp_server
from skillhouse.frontends.mcp.server import SkillhouseServer
from skillhouse.frontends.mcp.tool_list import ToolListing
from skillhouse.house import Config, Skillhouse, configured
from skillhouse.tools import ReportProgress, Tool
from skillhouse.tools.function_tool import tool
from tests.house.places import make_places

PDF = """\
---
name: pdf-processing
description: "Extract, fill and assemble PDF documents: for forms and invoices."
license: Apache-2.0
metadata:
  version: "2.1"
  rating: 4.50
  draft: false
---
# PDF processing

Choose a template of `templates/`, and read `references/FORMS.md` first.
"""

FILES = {
    "pdf-processing/SKILL.md": PDF.encode(),
    "pdf-processing/references/FORMS.md": b"# Forms\r\n\r\nWith CRLF.\r\n",
    "pdf-processing/scripts/extract.py": b"print('extract')\n",
    "pdf-processing/templates/regional/eu invoice.md": "Rechnung für Käufer\n".encode(),
    "pdf-processing/assets/logo.bin": bytes(range(256)),
    "git-workflow/SKILL.md": (
        b"---\nname: git-workflow\ndescription: This team's conventions for git.\n---\nCommit.\n"
    ),
    "git-workflow/references/messages.md": b"Say why.\n",
}
"""One with directories, a name that is quoted in an address, CRLF and bytes that are no text."""

PROMPTS = {
    "test_simple_prompt": "---\nname: test_simple_prompt\ndescription: A prompt.\n---\nHello.\n",
    "test_prompt_with_arguments": (
        "---\nname: test_prompt_with_arguments\ndescription: A prompt with arguments.\n"
        "arguments: [arg1, arg2]\nargument-hint: '[test|testing] [more]'\n---\n$arg1 and $arg2\n"
    ),
}
"""Those that the suite asks for by name; such names are no skill's for a host of SEP-2640."""


def suite_tools(root: Path) -> list[Tool]:
    """Return the tools that the suite calls by name, as a program brings them."""

    @tool(level="read")
    def test_simple_text() -> str:
        """Return a text."""
        return "This is a simple text response for testing."

    @tool(level="read")
    def test_error_handling() -> str:
        """Fail."""
        raise ValueError("This tool intentionally returns an error for testing")

    @tool(level="read")
    async def test_tool_with_progress(progress: ReportProgress) -> str:
        """Report how far it is."""
        for done in (0.0, 0.5, 1.0):
            progress(done, "")
            # The reports between two of these are one: at most ten a second are sent.
            await anyio.sleep(0.3)
        return "done"

    @tool(level="read")
    def test_logging_tool() -> str:
        """Log, which no client asked for."""
        logging.getLogger(__name__).info("called")
        return "logged"

    @tool(level="write", default="ask")
    def test_streaming_elicitation() -> str:
        """Ask a person first."""
        return "answered"

    def added() -> str:
        name = f"added-{len(list(root.iterdir()))}"
        (root / name).mkdir()
        text = f"---\nname: {name}\ndescription: Came later.\n---\nRead.\n"
        (root / name / "SKILL.md").write_text(text, encoding="utf-8")
        return name

    @tool(level="read")
    def test_trigger_tool_change() -> str:
        """Change the list of tools: those about skills name every skill."""
        return added()

    @tool(level="read")
    def test_trigger_prompt_change() -> str:
        """Change the list of prompts."""
        return added()

    return [
        test_simple_text,
        test_error_handling,
        test_tool_with_progress,
        test_logging_tool,
        test_streaming_elicitation,
        test_trigger_tool_change,
        test_trigger_prompt_change,
    ]


RULES = "".join(
    f'[[rules]]\neffect = "deny"\naction = "skill"\npattern = "{name}"\n'
    for name in ("weather", "github", "web-search")
)
"""What comes with the house is denied, so that just the samples are served."""


@tool(level="read")
async def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


@tool(level="read")
async def slow_compute(seconds: float, label: str = "") -> str:
    """Take some time."""
    await anyio.sleep(seconds)
    return f"computed {label}"


@tool(level="read")
async def failing_job() -> str:
    """Fail after a while."""
    await anyio.sleep(2 * AFTER_SECONDS)
    raise ValueError("this job fails")


@tool
async def confirm_delete(filename: str) -> str:
    """Delete nothing, once a person approves."""
    return f"deleted {filename}"


AFTER_SECONDS = 0.5
"""After which a call becomes a task here: the suite's tools are called such as these."""


def sample_house(base: Path) -> Skillhouse:
    """Return a house below `base` whose only root holds the sample skills."""
    root = base / "skills"
    for relative, data in FILES.items():
        file = root / relative
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    for name, text in PROMPTS.items():
        (root / name).mkdir()
        (root / name / "SKILL.md").write_text(text, encoding="utf-8")
    places = make_places(base)
    rules = places.home / ".config/skillhouse/config.toml"
    rules.parent.mkdir(parents=True, exist_ok=True)
    rules.write_text(RULES, encoding="utf-8")
    config: Config = configured(places)
    asked: list[Tool] = [greet, slow_compute, failing_job, confirm_delete]
    return Skillhouse(config, roots=[root], tools=[*asked, *suite_tools(root)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    port = parser.parse_args().port
    # The suite listens for half a second.
    mcp_server.POLL_SECONDS = 0.1
    with tempfile.TemporaryDirectory() as directory, sample_house(Path(directory)) as house:
        server = SkillhouseServer(
            house, ToolListing(house, "default"), agent="default", user="local"
        )
        server.tasks.after_seconds = AFTER_SECONDS
        listener = socket.create_server(("127.0.0.1", port))
        print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
        config = uvicorn.Config(server.sdk.streamable_http_app(), log_level="warning")
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
