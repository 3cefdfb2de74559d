"""The other program's half: a client of FastMCP, or a server of it. Only FastMCP is imported here.

It is in another environment, so it is imported late: pytest opens every file for its examples.
`client URL` prints what it reads, as JSON; `server DIRECTORY PORT` serves a directory of skills.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from pathlib import Path
from typing import Any


def fastmcp(name: str = "") -> Any:
    return importlib.import_module(f"fastmcp{name}")


async def read(url: str) -> None:
    extensions = [fastmcp(".skills").SkillsClientExtension()]
    async with fastmcp().Client(url, extensions=extensions) as client:
        found = {}
        for listed in await client.list_skills():
            same = await client.get_skill(listed.uri)
            # It verifies every digest, every size and the frontmatter, and raises otherwise.
            skill = await client.read_skill(listed.uri)
            files = {}
            for resource in listed.resources:
                relative = resource.uri[len(listed.uri) - len("SKILL.md") :]
                [content] = await client.read_resource(resource.uri)
                is_text = getattr(content, "text", None) is not None
                files[relative] = "text" if is_text else "blob"
            found[listed.uri] = {
                "alike": same == listed,
                "type": type(skill).__name__,
                "frontmatter": listed.frontmatter.model_dump(
                    mode="json", by_alias=True, exclude_none=True
                ),
                "files": files,
            }
    print(json.dumps(found))


def serve(directory: Path, port: int) -> None:
    server = fastmcp().FastMCP("peer")
    server.add_provider(fastmcp(".skills.provider").SkillsDirectoryProvider(directory))
    server.run(transport="http", host="127.0.0.1", port=port, show_banner=False)


if __name__ == "__main__":
    if sys.argv[1] == "client":
        asyncio.run(read(sys.argv[2]))
    else:
        serve(Path(sys.argv[2]), int(sys.argv[3]))
