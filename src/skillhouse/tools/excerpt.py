"""Cuts a result to what a model gets of it: where, how the cut is said, and pages of a text.

Nothing here reads or writes a file: `result_files.py` keeps the whole, `delivery.py` puts the two
together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from skillhouse.floor import dataclass
from skillhouse.tools.call import OUTPUT_MAX, Excerpt

RESULT_MAX = 30_000
"""Characters of a result that a model gets, the notice included (issue 16; DESIGN, bounds)."""
NOTICE_MAX = 600
"""Characters that are left for a notice, besides the path in it."""
LINE_END_WITHIN = 1_000
"""How far from where a text would be cut a line's end is looked for."""
_CUT = "cut"
"""The key under which data that was cut says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFile:
    """Where the whole of a result is."""

    path: str
    size: int
    """Bytes."""


def ends_of(text: str, most: int, excerpt: Excerpt) -> tuple[str, str]:
    r"""Return the beginning and the end of a longer text, `most` characters together, cut at line
    ends where there are any.

    >>> ends_of("one\ntwo\nthree\nfour\n", 10, "ends")
    ('one\n', 'four\n')
    """
    first = most if excerpt != "ends" else most - most // 2
    last = most - first
    head, tail = text[:first], text[len(text) - last :]
    end = head.rfind("\n", max(0, first - LINE_END_WITHIN)) + 1
    start = tail.find("\n", 0, LINE_END_WITHIN) + 1
    return head[: end or first], tail[start if start < last else 0 :]


def bounded(text: str, excerpt: Excerpt = "head") -> str:
    """Return at most `OUTPUT_MAX` characters of a text, and a notice; nothing keeps the rest."""
    if len(text) <= OUTPUT_MAX:
        return text
    head, tail = ends_of(text, OUTPUT_MAX, excerpt)
    return joined(head, tail, len(text) - len(head) - len(tail))


def joined(head: str, tail: str, lost: int) -> str:
    """Return what is left of a text that lost so many characters between its ends for good."""
    if not lost:
        return head + tail
    if not tail:
        return f"{head}\n[cut: {lost} more characters; ask for a part of it]"
    return f"{head}\n[cut: {lost} characters, which are not kept; ask for a part of it]\n{tail}"


def excerpt_of(text: str, excerpt: Excerpt, kept: KeptFile | None, *, why: str = "") -> str:
    """Return what a model gets of a text longer than `RESULT_MAX`: at most that, notice included.

    `kept` is where all of it is; None where it is nowhere, for the reason `why`.
    """
    room = RESULT_MAX - NOTICE_MAX - (len(kept.path) if kept else 0)
    head, tail = ends_of(text, max(room, 0), excerpt)
    left = len(text) - len(head) - len(tail)
    if kept is None:
        rest = f"the rest is not kept ({why}): ask for a part of it"
    else:
        lines = len(text.splitlines())
        rest = (
            f"the whole result is in `{kept.path}` ({kept.size} bytes, {lines} lines): "
            f"`read` it with {position(head)}"
        )
    count = f"[cut: {left} of {len(text)} characters are left out here"
    before = "" if head.endswith("\n") or not head else "\n"
    if not tail:
        return f"{head}{before}{count}; {rest}]"
    # First, since clients cut again: Codex in the middle, opencode behind 2,000 lines.
    return f"[cut: {rest}]\n{head}{before}{count}]\n{tail}"


def position(before: str, *, line: int = 1, column: int = 1) -> str:
    r"""Return where a text goes on behind `before`, which began at a line and a column, as
    arguments of `read`.

    >>> position("one\ntwo\n"), position("one\ntw"), position("wo", line=2, column=2)
    ('`offset` 3', '`offset` 2 and `column` 3', '`offset` 2 and `column` 4')
    """
    lines = before.splitlines(keepends=True)
    if not lines:
        return f"`offset` {line}" + (f" and `column` {column}" if column > 1 else "")
    if lines[-1].splitlines()[0] != lines[-1]:
        return f"`offset` {line + len(lines)}"
    at = len(lines[-1]) + (column if len(lines) == 1 else 1)
    return f"`offset` {line + len(lines) - 1} and `column` {at}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Which part of a text is read."""

    line: int = 1
    """The first, from 1."""
    column: int = 1
    """The first character of that line, from 1."""
    limit: int | None = None
    """Most lines; None is all."""


def page_of(
    lines: Sequence[str], page: Page, most: int, *, shown: Callable[[str], str] = lambda part: part
) -> str:
    r"""Return a part of a text's lines, and where it is longer than `most`, a notice that says
    where to read on. `shown` is what a reader gets of a part, which may be longer.

    >>> page_of(["one\n", "two\n", "three\n"], Page(line=2, column=2, limit=1), 100)
    'wo\n'
    """
    first = page.line - 1
    last = len(lines) if page.limit is None else first + page.limit
    wanted = list(lines[first:last])
    if wanted:
        wanted[0] = wanted[0][page.column - 1 :]
    part = "".join(wanted)
    if len(part) <= most and len(shown(part)) <= most:
        return part
    room = count = most - NOTICE_MAX
    while (size := len(shown(part[:count]))) > room:
        # An escape is longer than its character.
        count = min(count - 1, count * room // size)
    part, _ = ends_of(part, count, "head")
    next_place = position(part, line=page.line, column=page.column)
    before = "" if part.endswith("\n") else "\n"
    return f"{part}{before}[cut: {len(lines)} lines in all; read on with {next_place}]"


def bounded_data(data: Mapping[str, Any], excerpt: Excerpt, kept: KeptFile | None) -> Any:
    """Return a result's data with at most about `RESULT_MAX` characters in it.

    Frameworks may give it to a model as well. Small values stay; the large ones share what is left,
    and `cut` says how many characters there were, and where the text is as a whole.
    """
    size = _size(data)
    if size <= RESULT_MAX:
        return data
    cut = {"characters": size, **({"path": kept.path} if kept else {})}
    return {_CUT: cut, **_smaller_mapping(data, RESULT_MAX, excerpt)}


def _size(value: Any) -> int:
    """Return about how many characters a value is as JSON."""
    if isinstance(value, str):
        return len(value) + 2
    if isinstance(value, Mapping):
        return 2 + sum(len(str(key)) + 4 + _size(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return 2 + sum(2 + _size(item) for item in value)
    # A number may have any number of digits.
    return len(repr(value))


def _smaller(value: Any, most: int, excerpt: Excerpt) -> Any:
    if _size(value) <= most:
        return value
    if isinstance(value, str):
        head, tail = ends_of(value, max(most - NOTICE_MAX // 10, 0), excerpt)
        return f"{head}[cut: {len(value) - len(head) - len(tail)} characters]{tail}"
    if isinstance(value, Mapping):
        return _smaller_mapping(value, most, excerpt)
    if isinstance(value, list | tuple):
        return _smaller_list(value, most, excerpt)
    return None


def _smaller_mapping(value: Mapping[str, Any], most: int, excerpt: Excerpt) -> dict[str, Any]:
    """Give each entry its share; what the small ones leave is for the large ones."""
    sizes = {key: len(str(key)) + 4 + _size(item) for key, item in value.items()}
    shares: dict[str, int] = {}
    left = most
    for place, (key, size) in enumerate(sorted(sizes.items(), key=lambda pair: pair[1])):
        shares[key] = min(size, left // (len(sizes) - place))
        left -= shares[key]
    smaller = {}
    for key, item in value.items():
        room = shares[key] - len(str(key)) - 4
        if room > 0:
            smaller[key] = _smaller(item, room, excerpt)
    return smaller


def _smaller_list(value: Sequence[Any], most: int, excerpt: Excerpt) -> list[Any]:
    smaller: list[Any] = []
    left = most
    for item in value:
        size = 2 + _size(item)
        if size > left:
            if not smaller:
                smaller.append(_smaller(item, left, excerpt))
            break
        smaller.append(item)
        left -= size
    return smaller
