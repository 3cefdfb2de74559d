"""The bytes of a SKILL.md with those faults mended that can be without changing what it says."""

from __future__ import annotations

from typing import NamedTuple

from skillhouse.floor import Diagnostic
from skillhouse.floor.regex import regex
from skillhouse.skill.model import ParsePolicy, Skill
from skillhouse.skill.skill_file import parse
from skillhouse.skill.source import FileRefusedError, normalise, split_head, validate_name
from skillhouse.skill.yaml_text import key_lines, repaired

MENDED = ("bom", "line-endings", "yaml-repaired", "name-missing", "allowed-tools-form")
"""Codes of the findings that are mended; for every other one a person has to choose."""

_OPENING = regex(r"---[ \t]*\n")
_LIST_LINE = regex(r"(?P<head>allowed-tools[ \t]*:[ \t]*)(?P<value>[^\s#].*)")


class Mended(NamedTuple):
    before: str
    after: str
    """What to write, encoded as UTF-8."""
    codes: tuple[str, ...]
    """Of the findings that are gone."""


def mended(data: bytes, *, directory: str) -> Mended | None:
    """Return a mended SKILL.md; None where nothing can be mended safely.

    INVARIANT: it reads as it did: same name, description, fields and body, but for a name that was
    missing and the form of `allowed-tools`.
    """
    policy = ParsePolicy()
    before = parse(data, directory=directory, policy=policy)
    if before.skill is None:
        return None
    codes = {found.code for found in before.diagnostics}
    text = normalise(data, []).decode()
    crlf = b"\r\n" in data and b"\n" not in data.replace(b"\r\n", b"")
    try:
        block = split_head(text.encode()).block
    except FileRefusedError:
        return None
    made = _mended_block(block, codes, directory)
    opening = _OPENING.match(text)
    if opening is None or not text[opening.end() :].startswith(block):
        return None
    result = text[: opening.end()] + made + text[opening.end() + len(block) :]
    if crlf:
        result = result.replace("\n", "\r\n")
    after = parse(result.encode(), directory=directory, policy=policy)
    if after.skill is None or not _is_same(before.skill, after.skill) or before.body != after.body:
        return None
    gone = tuple(code for code in MENDED if code in codes - _codes(after.diagnostics))
    return Mended(data.decode(), result, gone) if gone else None


def _codes(diagnostics: tuple[Diagnostic, ...]) -> set[str]:
    return {found.code for found in diagnostics}


def _mended_block(block: str, codes: set[str], directory: str) -> str:
    if "yaml-repaired" in codes:
        repair = repaired(block)
        block = repair.block if repair else block
    if "name-missing" in codes and not validate_name(directory, directory=directory):
        lines = block.split("\n")
        at = key_lines(block).get("name")
        if at is None:
            lines.insert(0, f"name: {directory}")
        else:
            lines[at - 2] = f"name: {directory}"
        block = "\n".join(lines)
    return _with_spaces(block) if "allowed-tools-form" in codes else block


def _with_spaces(block: str) -> str:
    """Return a block whose `allowed-tools`, a list in one line, is text with spaces."""
    lines = block.split("\n")
    for at, line in enumerate(lines):
        match = _LIST_LINE.fullmatch(line)
        is_continued = at + 1 < len(lines) and lines[at + 1][:1] in (" ", "\t", "-")
        if match is None or is_continued:
            continue
        tools = _tools(line)
        made = match["head"] + " ".join(tools)
        if tools and _tools(made) == tools:
            lines[at] = made
    return "\n".join(lines)


def _tools(line: str) -> tuple[str, ...]:
    """Return the tools of a line; none where the line needs a repair."""
    policy = ParsePolicy(yaml_repair=False)
    text = f"---\ndescription: x\n{line}\n---\n"
    skill = parse(text.encode(), directory="x", policy=policy).skill
    return skill.frontmatter.allowed_tools if skill else ()


def _is_same(before: Skill, after: Skill) -> bool:
    left, right = before.frontmatter, after.frontmatter
    changed = {"name", "allowed-tools"}
    return (
        (before.name, before.description) == (after.name, after.description)
        and left.allowed_tools == right.allowed_tools
        and {key: value for key, value in left.fields.items() if key not in changed}
        == {key: value for key, value in right.fields.items() if key not in changed}
    )
