"""What a target and its skill differ in, as a unified diff."""

from __future__ import annotations

import difflib
import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from skillhouse.floor import PathError, digest, is_utf8, read_beneath
from skillhouse.floor.digests import TREE_MAX_BYTES, TREE_MAX_DEPTH, TREE_MAX_FILES

TEXT_MAX = 256 * 1024
"""Bytes of a file beyond which it is only said to differ, because comparing takes long."""
LINES_MAX = 2_000
"""Lines of one difference."""


def difference(target: Path, source: Path) -> list[str]:
    """Return what would turn what is at `target` into the skill at `source`, line by line.

    The text is as untrusted as the files. Links are named and not followed; what is binary, large
    or too much is named only.
    """
    if target.is_symlink():
        return [f"there: a link to {os.readlink(target)}"]
    if not target.is_dir():
        return ["there: no directory"]
    old, new = dict(_files(target)), dict(_files(source))
    lines: list[str] = []
    for name in sorted(old.keys() | new.keys()):
        lines += _of_file(name, target if name in old else None, source if name in new else None)
        if old.get(name, new.get(name)) != new.get(name, old.get(name)):
            lines.append(f"mode of {name} differs")
        if len(lines) > LINES_MAX:
            return [*lines[:LINES_MAX], f"… more than {LINES_MAX} lines"]
    return lines


def _of_file(name: str, target: Path | None, source: Path | None) -> list[str]:
    old, new = _text(target, name), _text(source, name)
    if isinstance(old, str) and isinstance(new, str):
        labels = (
            f"there/{name}" if target else "/dev/null",
            f"skill/{name}" if source else "/dev/null",
        )
        before, after = old.splitlines(), new.splitlines()
        return list(difflib.unified_diff(before, after, *labels, lineterm=""))
    return [] if old == new else [f"{name} differs, and is no text of at most {TEXT_MAX} bytes"]


def _text(base: Path | None, name: str) -> str | bytes:
    """Return a file's text; bytes when it is none."""
    if base is None:
        return ""
    try:
        data = read_beneath(base, name, max_bytes=TREE_MAX_BYTES)
        return digest(data).encode() if len(data) > TEXT_MAX else data.decode()
    except UnicodeDecodeError:
        return data
    except (PathError, OSError):
        return b"not readable"


def _files(directory: Path, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, bool]]:
    """Yield (relative path, whether the owner may execute it) of each file, up to the bound."""
    try:
        with os.scandir(directory) as found:
            items = sorted(itertools.islice(found, TREE_MAX_FILES + 1), key=lambda item: item.name)
    except OSError:
        return
    for item in items:
        if not is_utf8(item.name):
            continue
        mode = item.stat(follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode) and depth < TREE_MAX_DEPTH:
            yield from _files(Path(item.path), f"{prefix}{item.name}/", depth + 1)
        elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            yield prefix + item.name, bool(mode & stat.S_IXUSR)
