"""Mends the text of a SKILL.md where that takes no author: signs and fences, never words."""

from __future__ import annotations

import re

from skillhouse.floor.regex import regex
from skillhouse.skill.model import LOADING_POLICY
from skillhouse.skill.skill_file import parse
from skillhouse.skill.source import FileRefusedError, validate_name
from skillhouse.skill.yaml_text import read_mapping, repaired

_FENCED = regex(r"---\n(?P<block>.*?\n)---[ \t]*(?:\n|\Z)", re.DOTALL)
_NO_TEXT = regex(
    r"(?m)^(?P<key>name|description):[ \t]+"
    r"(?P<value>[-+]?[0-9][0-9_.:xo-]*|true|false|null|~)[ \t]*$"
)


def mended_text(text: str, *, directory: str) -> str | None:
    """Return a SKILL.md that every client reads alike; None when nothing can be mended so.

    >>> mended_text("---\\nname: a\\ndescription: > Folds.\\n---\\n", directory="a")
    "---\\nname: a\\ndescription: 'Folds.'\\n---\\n"
    """
    has_crlf = "\r\n" in text
    plain = text.replace("\r\n", "\n")
    if "\r" in plain:
        return None
    mended = _mended(plain.removeprefix("\ufeff"), directory)
    if mended is None or not _says_the_same(plain, mended, directory):
        return None
    mended = mended.replace("\n", "\r\n") if has_crlf else mended
    return mended if mended != text else None


def _mended(text: str, directory: str) -> str | None:
    text = re.sub(r"\A\s*\n(?=---[ \t]*\n)", "", text)
    text = re.sub(r"\A---[ \t]+\n", "---\n", text)
    if not text.startswith("---\n"):
        return None
    found = _FENCED.match(text)
    if found is None:
        text = _closed(text)
        found = _FENCED.match(text)
        if found is None:
            return None
    block = found["block"]
    try:
        read_mapping(block)
    except FileRefusedError:
        repair = repaired(block)
        if repair is None:
            return None
        block = repair.block
    block = _NO_TEXT.sub(lambda field: f"{field['key']}: '{field['value']}'", block)
    if not re.search(r"(?m)^name[ \t]*:", block) and not validate_name(
        directory, directory=directory
    ):
        block = f"name: {directory}\n{block}"
    start, end = found.span("block")
    return text[:start] + block + text[end:]


def _closed(text: str) -> str:
    """Return a text whose frontmatter ends at the first blank line, or at its end."""
    head, blank, body = text.partition("\n\n")
    return f"{head}\n---\n\n{body}" if blank else f"{text.rstrip()}\n---\n"


def _says_the_same(before: str, after: str, directory: str) -> bool:
    """Whether we read the same words of both, and no fault of the first one's signs is left."""
    new = parse(after.encode(), directory=directory).skill
    old = parse(before.encode(), directory=directory, policy=LOADING_POLICY).skill
    if new is None:
        return False
    if old is None or "description" not in old.frontmatter.fields:
        return True
    return (new.name, new.description) == (old.name, old.description)
