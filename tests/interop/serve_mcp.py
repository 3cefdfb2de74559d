"""Serves a house made of sample skills over streamable HTTP: `python -m tests.interop.serve_mcp`.

The conformance suite and other programs' clients connect to it. It prints its address, listens on
127.0.0.1 only, and asks for no key: for tests, and nothing else.
"""

from __future__ import annotations

import argparse
import socket
import tempfile
from pathlib import Path

import anyio
import uvicorn

from skillhouse import Tool, tool
from skillhouse.frontends.mcp.server import SkillhouseServer
from skillhouse.frontends.mcp.tool_list import ToolListing
from skillhouse.house import Config, Skillhouse, configured
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
    places = make_places(base)
    rules = places.home / ".config/skillhouse/config.toml"
    rules.parent.mkdir(parents=True, exist_ok=True)
    rules.write_text(RULES, encoding="utf-8")
    config: Config = configured(places)
    tools: list[Tool] = [greet, slow_compute, failing_job, confirm_delete]
    return Skillhouse(config, roots=[root], tools=tools)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    port = parser.parse_args().port
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
