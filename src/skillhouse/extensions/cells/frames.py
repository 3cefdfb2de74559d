"""The places in a skill's own code that an exception passed through, checked against its files.

The process that reports them runs the skill's code, so each one is a claim: it counts only if it
names a line of a file that the skill has. Nothing of it is a text that the skill can choose freely.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from skillhouse.floor import PathError, is_utf8, read_beneath
from skillhouse.floor.regex import regex
from skillhouse.sandbox.code_call import CodeFrame

FRAMES_MAX = 16
"""Frames that are kept of one exception, the innermost: recursion has a thousand."""
CLAIMS_MAX = 64
"""Claims that are looked at; the cells send fewer."""
FILE_MAX = 1 << 20
"""Bytes of a file whose lines are counted; a longer one has no frames."""
_PATH_MAX = 256
_FUNCTION = regex(r"[\w.<>$#]+(?: [\w.<>$#]+){0,3}")
_FUNCTION_MAX = 80


def own_frames(claims: object, *, place: str, tree: Path) -> tuple[CodeFrame, ...]:
    """Return the claims that are true of a skill's files, the outermost first.

    Args:
        claims: From the cell: a list of [path, line, function].
        place: Where the code saw the skill; paths elsewhere are not the skill's own.
        tree: Where the skill's files are here.
    """
    if not isinstance(claims, list):
        return ()
    lengths: dict[str, int] = {}
    found = []
    for claim in claims[-CLAIMS_MAX:]:
        frame = _frame(claim, place.rstrip("/") + "/")
        if frame is None:
            continue
        if frame.file not in lengths:
            lengths[frame.file] = _lines(tree, frame.file)
        if frame.line <= lengths[frame.file]:
            found.append(frame)
    return tuple(found[-FRAMES_MAX:])


def _frame(claim: object, place: str) -> CodeFrame | None:
    if not isinstance(claim, list) or len(claim) != 3:
        return None
    path, line, function = claim
    if not isinstance(path, str) or type(line) is not int or line < 1:
        return None
    if not path.startswith(place) or len(path) > len(place) + _PATH_MAX or not path.isprintable():
        return None
    is_name = isinstance(function, str) and len(function) <= _FUNCTION_MAX
    name = function if is_name and _FUNCTION.fullmatch(function) else ""
    return CodeFrame(file=path[len(place) :], line=line, function=name)


def _lines(tree: Path, file: str) -> int:
    """Return how many lines a file of the skill has; 0 for what is none."""
    try:
        # INVARIANT: opened beneath the directory without links, so `..` is no file of the skill.
        data = read_beneath(tree, file, max_bytes=FILE_MAX) if is_utf8(file) else b""
    except (PathError, OSError, ValueError):
        return 0
    return 0 if len(data) > FILE_MAX else data.count(b"\n") + 1


def claims_of(error: BaseException) -> list[list[Any]]:
    """Return the claims about an exception of code that ran in this process."""
    found = [[*_place(step)] for step in _steps(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        found.append([error.filename, error.lineno, ""])
    return found[-CLAIMS_MAX:]


def _steps(step: TracebackType | None) -> Iterable[TracebackType]:
    while step is not None:
        yield step
        step = step.tb_next


def _place(step: TracebackType) -> tuple[str, int, str]:
    code = step.tb_frame.f_code
    return os.path.realpath(code.co_filename), step.tb_lineno, code.co_name
