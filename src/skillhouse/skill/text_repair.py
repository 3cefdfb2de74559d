"""Fixes the text of a SKILL.md where that takes no author: signs and fences, never words."""

from __future__ import annotations

from typing import NamedTuple

from skillhouse.floor.regex import regex
from skillhouse.skill.model import LOADING_POLICY, ParsePolicy, ParseResult, Skill
from skillhouse.skill.skill_file import parse
from skillhouse.skill.source import FileRefusedError, normalise, split_head, validate_name
from skillhouse.skill.yaml_text import key_lines, repaired, without_cut

REPAIRED = (
    "bom",
    "line-endings",
    "frontmatter-missing",
    "frontmatter-unclosed",
    "yaml-error",
    "yaml-repaired",
    "comment-cut",
    "name-missing",
    "allowed-tools-form",
)
"""Codes of the findings that are fixed; for every other one a person has to choose."""

_OPENING = regex(r"\s*---[ \t]*\n")
_CLOSING = regex(r"(?m)^---[ \t]*$")
_LIST_LINE = regex(r"(?P<head>allowed-tools[ \t]*:[ \t]*)(?P<value>[^\s#].*)")
_NO_TEXT = regex(
    r"(?m)^(?P<key>name|description):[ \t]+"
    r"(?P<value>[-+]?[0-9][0-9_.:xo-]*|true|false|null|~)[ \t]*$"
)


class Repaired(NamedTuple):
    before: str
    after: str
    """What to write, encoded as UTF-8."""
    codes: tuple[str, ...]
    """Of the findings that are gone."""


def repaired_file(data: bytes, *, directory: str, for_clients: bool = False) -> Repaired | None:
    """Return a fixed SKILL.md; None where nothing can be fixed safely.

    `for_clients` also fixes what no finding of ours names, and some client misreads: a number as
    the description, blanks behind the first `---`.

    INVARIANT: it reads as it did, or at all: same name, description, fields and body, but for a
    name that was missing, the form of `allowed-tools`, and a description of which YAML had lost
    the end.
    """
    before = parse(data, directory=directory)
    try:
        text = _with_fences(normalise(data, []).decode())
        block = split_head(text.encode()).block
    except FileRefusedError:
        return None
    codes = _codes(parse(text.encode(), directory=directory))
    if not text.startswith(f"---\n{block}"):
        return None
    made = _repaired_block(block, codes, directory)
    if for_clients:
        made = _NO_TEXT.sub(lambda field: f"{field['key']}: '{field['value']}'", made)
    result = f"---\n{made}{text[4 + len(block) :]}"
    if b"\r\n" in data and b"\n" not in data.replace(b"\r\n", b""):
        result = result.replace("\n", "\r\n")
    after = parse(result.encode(), directory=directory)
    gone = _codes(before) - _codes(after)
    is_better = bool(gone & set(REPAIRED)) or (for_clients and result.encode() != data)
    if not is_better or not _is_same(data, before, after, directory):
        return None
    return Repaired(data.decode(), result, tuple(code for code in REPAIRED if code in gone))


def with_name(data: bytes, name: str, *, directory: str) -> str | None:
    """Return a SKILL.md with another `name` and nothing else changed; None where it has none."""
    try:
        text = data.decode()
        block = split_head(normalise(data, [])).block
    except (FileRefusedError, UnicodeDecodeError):
        return None
    before = parse(data, directory=directory).skill
    at = key_lines(block).get("name")
    if at is None or before is None:
        return None
    lines = text.split("\n")
    end = "\r" if lines[at - 1].endswith("\r") else ""
    lines[at - 1] = f"name: {name}{end}"
    result = "\n".join(lines)
    after = parse(result.encode(), directory=name).skill
    is_same = after is not None and (after.name, *_facts(before)[1:]) == (name, *_facts(after)[1:])
    return result if is_same else None


def _codes(result: ParseResult) -> set[str]:
    return {found.code for found in result.diagnostics}


def _with_fences(text: str) -> str:
    """Return a text that begins with `---`; an open frontmatter ends at its first blank line."""
    opening = _OPENING.match(text)
    if opening is None:
        return text
    rest = text[opening.end() :]
    if not _CLOSING.search(rest):
        head, blank, body = rest.partition("\n\n")
        rest = f"{head}\n---\n\n{body}" if blank else f"{rest.rstrip()}\n---\n"
    return f"---\n{rest}"


def _repaired_block(block: str, codes: set[str], directory: str) -> str:
    if codes & {"yaml-repaired", "yaml-error"}:
        repair = repaired(block, tabs="yaml-error" in codes)
        block = repair.block if repair else block
    if "comment-cut" in codes:
        block = without_cut(block)
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


def _is_same(data: bytes, before: ParseResult, after: ParseResult, directory: str) -> bool:
    """Whether a file that was read reads as it did, and one that was not is read now."""
    if after.skill is None:
        return False
    if before.skill is not None:
        if "comment-cut" in _codes(before):
            return before.body == after.body and _is_whole(before.skill, after.skill)
        return before.body == after.body and _facts(before.skill) == _facts(after.skill)
    loaded = parse(data, directory=directory, policy=LOADING_POLICY).skill
    if loaded is None or "description" not in loaded.frontmatter.fields:
        return True
    return (loaded.name, loaded.description) == (after.skill.name, after.skill.description)


def _is_whole(before: Skill, after: Skill) -> bool:
    """Whether a skill is the same but for a longer description."""
    was, now = _facts(before), _facts(after)
    fields = [{**kept, "description": ""} for kept in (was[3], now[3])]  # type: ignore[dict-item]
    is_longer = after.description.startswith(before.description)
    return is_longer and (was[0], was[2], fields[0]) == (now[0], now[2], fields[1])


def _facts(skill: Skill) -> tuple[object, ...]:
    fields = skill.frontmatter.fields
    kept = {key: value for key, value in fields.items() if key not in ("name", "allowed-tools")}
    return skill.name, skill.description, skill.frontmatter.allowed_tools, kept
