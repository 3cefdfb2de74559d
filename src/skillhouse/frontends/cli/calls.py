"""`skillhouse call`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import anyio

from skillhouse.frontends.cli.answering import answer
from skillhouse.frontends.cli.options import UsageError, add_json, add_place, house_of
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.cli.terminal_channel import TerminalChannel
from skillhouse.frontends.presentation.text import shown
from skillhouse.runtime import Skillhouse
from skillhouse.tools import Progress, ToolResult, UnknownToolError

EXAMPLES = """examples:
  skillhouse call read --args '{"path": "README.md"}'
  skillhouse call exec --args '{"command": "git", "params": ["status"]}'
  skillhouse call skill --args '{"name": "weather"}' --json

What needs a yes is asked about on the terminal: y once, s for this session, p in
this project, a always, anything else is no. Without a terminal the question waits:
answer it with `skillhouse approvals` and repeat the call.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("tool", help="the tool's name")
    parser.add_argument(
        "--args", default="{}", metavar="JSON", help="the arguments as one JSON object, or @FILE"
    )
    parser.add_argument("--agent", default="default", metavar="NAME", help="call as this agent")
    parser.add_argument(
        "--approval", default="", metavar="ID", help="use this approval, once it is answered"
    )
    add_json(parser)
    add_place(parser)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Make one gated call; 1 when it was refused or failed."""
    arguments = _arguments(options.args)
    with house_of(options, channel=TerminalChannel(sys.stdin, terminal)) as house:
        try:
            result = anyio.run(_called, house, options, arguments, terminal)
        except UnknownToolError as error:
            raise UsageError(str(error)) from error
    return answer(result, terminal, as_json=options.json)


async def _called(
    house: Skillhouse, options: argparse.Namespace, arguments: dict[str, Any], terminal: Terminal
) -> ToolResult:
    async def tell(progress: Progress) -> None:
        share = progress.progress / progress.total if progress.total else 0.0
        terminal.note(f"{share:.0%} {shown(progress.message)}".rstrip())

    try:
        return await house.call(
            options.tool,
            arguments,
            agent=options.agent,
            channel="cli",
            approval_id=options.approval,
            listener=tell,
        )
    finally:
        await house.release_loop()


def _arguments(text: str) -> dict[str, Any]:
    if text.startswith("@"):
        text = Path(text[1:]).read_text(encoding="utf-8")
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError(f"expected JSON after --args: {error}") from error
    if not isinstance(value, dict):
        raise UsageError('expected a JSON object after --args, such as {"path": "README.md"}')
    return value
