"""Frontmatter that is nearly one: with text before it, between other fences, or in another syntax.

Taken as a file without frontmatter, its first line, such as `name: pdf`, would be the description.
"""

from __future__ import annotations

from typing import NamedTuple

from skillhouse.floor.regex import regex
from skillhouse.skill.source import FRONTMATTER_MAX, FileRefusedError, SourceHead, decoded

NEAR_MAX = 4_096
"""Bytes in which such a block has to end; a listing reads no more of a file without frontmatter."""
LOOKED_LINES = 60
"""Lines before which it has to begin."""

_KEY = regex(rb"""(?i)[ \t]*["']?(?:name|description)["']?[ \t]*[:=]""")
_FENCE = regex(rb"---[ \t]*")
_CODE = regex(rb"(?:```+|~~~+)[ \t]*[A-Za-z0-9_-]*[ \t]*")
_ODD = regex(rb"-{2,}.{0,32}|[+*=_;~#<>\xe2\x80\x90-\x95 -]{2,32}")
"""Another line in the place of `---`: more or fewer hyphens, `---yaml`, the fences of TOML."""
_JSON_KEY = regex(rb"""["'](?:name|description)["'][ \t]*:""")

_FIELDS_LOOKED = 8
"""Lines of a block in which `name` or `description` is looked for."""


class NearHead(NamedTuple):
    """The block that was meant as frontmatter."""

    head: SourceHead | None
    """None where it does not end."""
    message: str
    line: int


def near_frontmatter(data: bytes) -> NearHead | None:
    """Return what is nearly the frontmatter of normalised bytes that do not begin with `---`.

    The block has blank lines before it, so that its lines are those of the file.
    """
    lines = data[:NEAR_MAX].split(b"\n")
    first = next((at for at, line in enumerate(lines) if line.strip()), None)
    if first is None:
        return None
    if _KEY.match(lines[first]):
        return _near(data, lines, first, _is_end, "no `---` before the first field")
    if first and _FENCE.fullmatch(lines[first]):
        return _near(data, lines, first + 1, _is_end, "blank lines before the first `---`")
    if _begins_fields(lines, first + 1):
        got = decoded(lines[first][:40].strip())
        if _CODE.fullmatch(lines[first]):
            message = f"expected `---` as the first line, got a block of code, `{got}`"
            return _near(data, lines, first + 1, _closes(lines[first]), message)
        if _ODD.fullmatch(lines[first]):
            message = f"expected `---` as the first line, got `{got}`"
            return _near(data, lines, first + 1, _closes(lines[first]), message)
    if lines[first].lstrip().startswith(b"{"):
        looked = b"\n".join(lines[first : first + _FIELDS_LOOKED])
        if _JSON_KEY.search(looked):
            return NearHead(None, "expected `---` as the first line, got `{`", first + 1)
    for at in range(first + 1, min(len(lines), first + LOOKED_LINES)):
        if _FENCE.fullmatch(lines[at]) and _begins_fields(lines, at + 1):
            closes = any(map(_is_end, lines[at + 1 :]))
            # Else it is a rule between paragraphs, of which one has a word and a colon.
            message = "text before the first `---`, which is left out"
            return _near(data, lines, at + 1, _is_end, message) if closes else None
    return None


class _Closing(NamedTuple):
    mark: bytes

    def __call__(self, line: bytes) -> bool:
        return line.strip() in (self.mark, b"---")


def _is_end(line: bytes) -> bool:
    return _FENCE.fullmatch(line) is not None


def _closes(opening: bytes) -> _Closing:
    """Return what ends a block that a line begins: the same sign as often, without words."""
    bare = opening.strip()
    sign = bare[:1]
    return _Closing(sign * (len(bare) - len(bare.lstrip(sign))))


def _begins_fields(lines: list[bytes], at: int) -> bool:
    """Whether a field of a skill is on one of the next lines, without a blank one before it."""
    for line in lines[at : at + _FIELDS_LOOKED]:
        if _KEY.match(line):
            return True
        if not line.strip():
            return False
    return False


def _near(data: bytes, lines: list[bytes], start: int, is_end: object, message: str) -> NearHead:
    """Return the block from a line up to the one that ends it, or to the first blank line."""
    ends = is_end if callable(is_end) else _is_end
    end = next((at for at in range(start, len(lines)) if ends(lines[at])), None)
    body = None if end is None else end + 1
    if end is None:
        end = body = next((at for at in range(start, len(lines)) if not lines[at].strip()), None)
    if end is None or body is None:
        return NearHead(None, message, start)
    block = b"\n" * max(0, start - 1) + b"\n".join(lines[start:end]) + b"\n"
    size = sum(len(line) + 1 for line in lines[:body])
    if len(block) > FRONTMATTER_MAX:
        return NearHead(None, message, start)
    try:
        return NearHead(SourceHead(decoded(block, 2), min(size, len(data))), message, start)
    except FileRefusedError:
        return NearHead(None, message, start)
