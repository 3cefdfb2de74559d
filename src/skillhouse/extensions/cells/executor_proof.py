"""What an executor elsewhere must show before it gets code: that two calls of a small skill find
nothing of it, of its network, and of each other.

It is a sample by the executor's own word and hands: one that means to lie can know this skill. It
finds one that is configured wrongly, or that runs code in its own process and says otherwise.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from skillhouse.extensions.cells.code_archive import CodeArchive, archive_of
from skillhouse.floor import tree_digest
from skillhouse.sandbox import SandboxError

MANIFEST = """[project]
name = "proof"
version = "1"
description = "Tries what code in an executor may not do."

[[tool.skillhouse.tools]]
name = "tries"
description = "Tries it."
security = { level = "read" }
parameters = { type = "object" }
"""
SOURCE = """
import os, socket, sys

LEFT = []


def worked(name, attempt, found):
    try:
        if attempt():
            found.append(name)
    except OSError:
        pass


def connect(host, port):
    socket.create_connection((host, port), timeout=1).close()
    return True


def environ(number):
    with open(f"/proc/{number}/environ", "rb") as file:
        return b"PATH=" in file.read() and number != os.getpid()


def write(path, word):
    with open(path, "x") as file:
        file.write(word)


def tries(params, context):
    found = []
    if LEFT:
        found.append("the memory of an earlier call")
    LEFT.append(params["word"])
    places = ["/tmp", "/dev/shm", "/var/tmp", os.getcwd(), os.path.dirname(__file__)]
    paths = [os.path.join(place, params["word"]) for place in places]
    # All before any is written: two of them may be one place, as where /tmp is a call's own.
    if any(map(os.path.exists, paths)):
        found.append("files of an earlier call")
    for place, path in zip(places, paths):
        try:
            write(path, params["word"])
        except OSError:
            continue
        if place == places[-1]:
            found.append("its own code, for writing")
    for host in params["hosts"]:
        worked("the network", lambda: connect(host, params["port"]), found)
    for number in (1, os.getppid()):
        worked("variables of another process", lambda: environ(number), found)
    return {"word": params["word"], "found": sorted(set(found))}


tools = {"tries": tries}
"""
Ask = Callable[[str, Mapping[str, Any], CodeArchive], Awaitable[Any]]
"""Makes a request at the executor in question, with the archive of its code."""


async def check_isolation(ask: Ask, hosts: tuple[str, ...], port: int) -> None:
    """Have an executor run the skill twice.

    Args:
        hosts: Where the executor itself listens, as it and the core see it.

    Raises:
        SandboxError: "executor-unproved", the code reached what it may not, or was not run.
        RpcError: the executor did not run it, or gave no answer.
    """
    word = f"proof-{secrets.token_hex(8)}"
    with tempfile.TemporaryDirectory(prefix="skillhouse-proof-") as made:
        tree = Path(made)
        # Text of its own each time: an executor cannot know the digest.
        (tree / "pyproject.toml").write_text(MANIFEST, encoding="utf-8")
        (tree / "main.py").write_text(f"# {word}\n{SOURCE}", encoding="utf-8")
        context = {"digest": tree_digest(tree)}
        archive = archive_of(tree)
        for _ in range(2):
            arguments = {"word": word, "hosts": list(hosts), "port": port}
            params = {"tool": "proof:tries", "args": arguments, "context": context}
            said = await ask("tool.execute", params, archive)
            result = said.get("data") if isinstance(said, dict) else None
            if not isinstance(result, dict) or result.get("word") != word:
                message = f"it did not run what it was asked to: {str(said)[:200]}"
                raise SandboxError("executor-unproved", message)
            if found := result.get("found"):
                reached = ", ".join(map(str, found))[:300]
                raise SandboxError("executor-unproved", f"code in it reached {reached}")
