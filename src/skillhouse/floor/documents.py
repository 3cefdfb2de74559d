"""Reads JSON and TOML that others wrote: all of it at once, or one error with its line.

Both formats can say what no later step can use: text that is not Unicode, NUL, numbers that are
none, nesting that ends a recursive reader, and keys that two readers understand differently. Each
is refused here, so that no caller meets it in a file name, a database, a header or a terminal.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any, NoReturn

from skillhouse.floor.errors import DecodeError
from skillhouse.floor.regex import regex

DEPTH_MAX = 100
"""Nested lists and objects; deeper, what reads, converts or writes a value may run out of stack."""
KEY_PARTS_MAX = 16
"""Parts of a dotted key; `tomllib` needs time by their square, minutes for 200 KB of them."""


class DocumentError(DecodeError):
    """A text is no such document, or says what cannot be used; `line` where it is known."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(f"line {line}: {reason}" if line else reason)
        self.reason = reason
        self.line = line


def json_value(data: bytes | str, *, with_nul: bool = False) -> Any:
    r"""Return what a JSON text says.

    >>> json_value('{"a": [1, "\\ud83d\\ude00"]}')
    {'a': [1, '😀']}

    Args:
        with_nul: Whether a text may have a NUL, because the caller judges each text by itself.

    Raises:
        DocumentError: it is no JSON (RFC 8259) in UTF-8, has a key twice in one object, a lone
            surrogate, a NUL, a number that is not finite, or more than `DEPTH_MAX` levels.
    """
    # RFC 8259 section 8.1: a reader may pass over a mark, which editors of Windows write.
    text = _text(data, "JSON").removeprefix("\ufeff")
    try:
        value = json.loads(
            text, object_pairs_hook=unique_members, parse_float=finite, parse_constant=no_constant
        )
    except json.JSONDecodeError as error:
        raise DocumentError(f"not JSON: {_lowered(error.msg)}", error.lineno) from error
    except RecursionError as error:
        raise DocumentError(f"not JSON: nested deeper than {DEPTH_MAX} levels") from error
    except ValueError as error:
        raise DocumentError(f"not JSON: {error}") from error
    if "\\u" in text:
        _refuse_escapes(text, with_nul=with_nul)
    _refuse_depth(value, text.count("[") + text.count("{"))
    return value


def toml_table(data: bytes | str) -> dict[str, Any]:
    """Return what a TOML text says.

    >>> toml_table("a.b = [1, 2]")
    {'a': {'b': [1, 2]}}

    Raises:
        DocumentError: it is no TOML in UTF-8, has a NUL, a number that is not finite, a dotted key
            of more than `KEY_PARTS_MAX` parts, or more than `DEPTH_MAX` levels.
    """
    import tomllib  # noqa: PLC0415 - whoever has no configuration reads none.

    text = _text(data, "TOML")
    line = _line_of_long_key(text)
    if line is not None:
        raise DocumentError(f"expected at most {KEY_PARTS_MAX} parts between dots", line)
    try:
        table = tomllib.loads(text, parse_float=finite)
    except tomllib.TOMLDecodeError as error:
        at = _PLACE.search(str(error))
        line = int(at[1]) if at else _last(error, text)
        reason = _lowered(_PLACE.sub("", str(error)).strip())
        raise DocumentError(f"not TOML: {reason}", line) from error
    except RecursionError as error:
        raise DocumentError(f"not TOML: nested deeper than {DEPTH_MAX} levels") from error
    except ValueError as error:  # An integer of more digits than Python reads.
        raise DocumentError(f"not TOML: {error}") from error
    if "\\" in text:
        _refuse_nul(table)
    _refuse_depth(table, text.count("[") + text.count("{"))
    return table


_PLACE = regex(r"\s*\(at line (\d+), column \d+\)")
_TOKENS = regex(
    r"""
    (?P<comment> \#[^\n]*+ )
  | (?P<long> \"\"\"(?:[^\"\\]++|\\.|\"(?!\"\"))*+(?:\"\"\"|\Z)
            | '''(?:[^']++|'(?!''))*+(?:'''|\Z) )
  | (?P<part> [\w-]++ | \"(?:[^\"\\\n]++|\\.)*+\"? | '[^'\n]*+'? )
  | (?P<dot> [ \t]*+\.[ \t]*+ )
  | (?P<other> [^\w\-\"'.\#]++ )
    """,
    re.VERBOSE | re.DOTALL,
)
"""What is left of a text has no quotes to get lost in; each match goes on where the last ended."""
_ESCAPE = regex(
    r"\\(?:u[dD][89abAB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}|u([0-9A-Fa-f]{4})|.)", re.DOTALL
)
"""A pair, one code unit, or another escape, so that an escaped backslash begins none."""


def _text(data: bytes | str, name: str) -> str:
    if isinstance(data, str):
        return data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DocumentError(f"not {name}: expected UTF-8", line) from error


def _lowered(reason: str) -> str:
    return reason[:1].lower() + reason[1:]


def _last(error: Exception, text: str) -> int | None:
    return text.count("\n") + 1 if "at end of document" in str(error) else None


def unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON, as `object_pairs_hook`; ValueError for a key that is there twice.

    >>> unique_members([("a", 1)])
    {'a': 1}
    """
    table = dict(pairs)
    if len(table) < len(pairs):
        seen: set[str] = set()
        # mypy: `add` returns nothing, which is what makes the first one false.
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        # Two readers would disagree on which one counts.
        raise ValueError(f"a key is there twice: {twice[:80]!r}")
    return table


def finite(text: str) -> float:
    """Return a number, as `parse_float`; ValueError for one that is not finite.

    >>> finite("1e3")
    1000.0
    """
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is no number that can be used")
    return number


def no_constant(text: str) -> NoReturn:
    """Refuse `NaN` and `Infinity`, which are no JSON, as `parse_constant`."""
    raise ValueError(f"`{text}` is no JSON")


def _refuse_escapes(text: str, *, with_nul: bool) -> None:
    """Refuse escapes of JSON that are no character: half of a surrogate pair, and NUL."""
    for match in _ESCAPE.finditer(text):
        if match[1] is None:
            continue
        unit = int(match[1], 16)
        if (unit == 0 and not with_nul) or 0xD800 <= unit < 0xE000:
            what = "half of a surrogate pair" if unit else "a NUL"
            line = text.count("\n", 0, match.start()) + 1
            raise DocumentError(f"{what} in a text: `{match.group()}`", line)


def _refuse_nul(table: dict[str, Any]) -> None:
    level: list[Any] = [table]
    while level:
        if any(isinstance(one, str) and "\0" in one for one in level):
            raise DocumentError("a NUL in a text")
        level = [part for one in level for part in _parts(one)]


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return (*value, *value.values())
    return value if isinstance(value, list) else ()


def _refuse_depth(value: Any, openers: int) -> None:
    if openers <= DEPTH_MAX:
        return
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEPTH_MAX:
            raise DocumentError(f"nested deeper than {DEPTH_MAX} levels")
        level = [
            part
            for one in level
            for part in (one.values() if isinstance(one, dict) else one)
            if type(part) in (dict, list)
        ]


def _line_of_long_key(text: str) -> int | None:
    """Return the line of a dotted key with too many parts, in one pass; None when there is none."""
    if all(line.count(".") <= KEY_PARTS_MAX for line in text.splitlines()):
        return None
    dots, before = 0, ""
    for match in _TOKENS.finditer(text):
        kind = match.lastgroup or ""
        if kind == "dot":
            dots += before == "part"
        elif kind != "part" or before != "dot":
            dots = 0
        if dots > KEY_PARTS_MAX:
            return text.count("\n", 0, match.start()) + 1
        before = kind
    return None
