"""Lists and loads what an MCP server offers, as our host does: `-m tests.interop.use_mcp URL`.

The conformance suite appends the address and names the scenario in an environment variable. Prints
one JSON line for each skill; the exit code is 1 when anything fails verification.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import anyio

from skillhouse.floor import SkillhouseError
from skillhouse.remote import McpCache, McpHost, McpServer

LIST_ONLY = ("sep-2640-client-no-prefetch",)
"""Scenarios in which nobody loads anything, so nothing may be read."""


async def use(url: str, *, loads: bool) -> int:
    with tempfile.TemporaryDirectory() as directory:
        host = McpHost(
            [McpServer(label="peer", url=url, allow_private=True)],
            McpCache(Path(directory) / "cache"),
        )
        report = await host.refresh("peer")
        failed = 0
        for skill in host.skills():
            line: dict[str, object] = {"name": skill.name, "binding": host.binding(skill)}
            if loads:
                try:
                    # As a model does it: first the instructions, then the files they name.
                    line["SKILL.md"] = len(await host.fetch(skill))
                    for relative in host.files(skill) or ():
                        line[relative] = len(await host.fetch(skill, relative))
                except SkillhouseError as error:
                    failed = 1
                    line["refused"] = str(error)
            print(json.dumps(line))
        for problem in report.problems:
            print(json.dumps({"problem": problem}))
    return failed


def main() -> int:
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    return anyio.run(lambda: use(sys.argv[-1], loads=scenario not in LIST_ONLY))


if __name__ == "__main__":
    sys.exit(main())
