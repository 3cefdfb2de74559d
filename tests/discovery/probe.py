"""Discovers in a process of its own and prints what it found and which files it touched.

Run by `trees.probe` with one argument, a JSON object: `roots` as [path, scope], `cache`, and
optionally `trusted`, `nested`, `uid` (to give up the rights of root), `shuffled` (a seed: every
directory is listed in an order by it), `doomed` (to die by SIGKILL in the middle of writing the
index), `waits` (to begin when standard input ends), `unwatched` (to note no files, which takes
memory) and `swap`, with which a path is turned into a link the moment another is opened.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

opened: list[str] = []
listed: list[str] = []
swaps: list[dict[str, str]] = []


def main() -> None:
    wanted = json.loads(sys.argv[1])
    from skillhouse.discovery import Root, discover  # noqa: PLC0415 - before rights are given up.
    from skillhouse.skill import Profile, read_metadata, yaml_events  # noqa: F401, PLC0415

    if "uid" in wanted:
        os.setgid(wanted["uid"])
        os.setuid(wanted["uid"])
    if "shuffled" in wanted:
        list_in_order_of(wanted["shuffled"])
    if "swap" in wanted:
        swaps.append(wanted["swap"])
    if "doomed" in wanted:
        connect = sqlite3.connect
        sqlite3.connect = lambda path, **rest: connect(path, factory=Doomed, **rest)  # type: ignore[assignment]
    if "waits" in wanted:
        sys.stdin.read()
    cache = None if wanted["cache"] is None else Path(wanted["cache"])
    if not wanted.get("unwatched"):
        sys.addaudithook(watch)
    index = discover(
        [Root(Path(path), scope) for path, scope in wanted["roots"]],
        profile=Profile(nested_skills=wanted.get("nested", False)),
        trusted=wanted.get("trusted", True),
        cache=cache,
    )
    assert isinstance(index.skills, tuple)  # Looking at it decodes it.
    peak = peak_mib()
    found = {
        "skills": [skill.name for skill in index.skills],
        "findings": [
            [d.severity, d.code, None if d.path is None else str(d.path)] for d in index.diagnostics
        ],
        "everything": [
            *(repr((s, s.packed_fields)) for s in (*index.skills, *index.shadowed)),
            *map(repr, index.diagnostics),
        ],
    }
    print(json.dumps({**found, "opened": opened, "listed": listed, "peak_mib": peak}))


def peak_mib() -> float:
    """Return the largest resident set of this process since it began."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        # Elsewhere than on Linux, where this would count the process that started us as well.
        unit = 1 << (20 if sys.platform == "darwin" else 10)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


class Doomed(sqlite3.Connection):
    """A connection whose process dies when a snapshot is partly on the disk."""

    def execute(self, statement: str, values: Any = (), /) -> sqlite3.Cursor:
        cursor = super().execute(statement, values)
        if statement.startswith("INSERT INTO snapshot"):
            os.kill(os.getpid(), signal.SIGKILL)
        return cursor


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Note files that are opened and directories that are listed (an audit hook)."""
    if event == "open" and isinstance(arguments[0], str | bytes):
        path = os.fsdecode(arguments[0])
        opened.append(path)
        if swaps and path == swaps[0]["when"]:
            swap = swaps.pop()
            os.rename(swap["path"], swap["path"] + ".before")
            os.symlink(swap["to"], swap["path"])
    elif event == "os.scandir":
        listed.append(os.fsdecode(arguments[0]))


def list_in_order_of(seed: int) -> None:
    """Give the entries of every directory in an order of their own."""
    real = os.scandir
    chance = random.Random(seed)

    @contextmanager
    def shuffled(path: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        with real(path) as entries:
            found = list(entries)
        chance.shuffle(found)
        yield iter(found)

    os.scandir = shuffled  # type: ignore[assignment]


if __name__ == "__main__":
    main()
