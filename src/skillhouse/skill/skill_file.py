"""The bytes of a SKILL.md to a skill and everything that was found on the way."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from skillhouse.floor import Diagnostic, Severity, SkillError, encode
from skillhouse.skill.fields import read_fields
from skillhouse.skill.hidden import find_hidden, hidden_text
from skillhouse.skill.model import (
    DEFAULT_POLICY,
    SKILL_FILE,
    ParsePolicy,
    ParseResult,
    Skill,
)
from skillhouse.skill.names import validate_name
from skillhouse.skill.repair import Repair, field_at, repaired
from skillhouse.skill.source import (
    FRONTMATTER_MAX,
    SKILL_FILE_MAX,
    FileRefusedError,
    Finding,
    IncompleteError,
    SourceHead,
    check_size,
    cut_head,
    decoded,
    normalise,
    split_head,
)
from skillhouse.skill.yaml_text import read_mapping

FIELDS_NAMED_MAX = 5
"""Repaired fields that a finding names."""
FIELD_SHOWN_MAX = 64
"""Characters of a field's name in a finding."""
_NO_BLOCK = frozenset({"frontmatter-missing", "frontmatter-unclosed"})


class Metadata(NamedTuple):
    """The metadata in the head of a file; with a fatal finding it is not a skill."""

    name: str
    description: str
    fields: dict[str, Any]


def parse(
    data: bytes,
    *,
    directory: str,
    path: Path | None = None,
    policy: ParsePolicy = DEFAULT_POLICY,
) -> ParseResult:
    """Read the bytes of a SKILL.md; never raises for what the bytes hold.

    Args:
        directory: Name of the directory that holds the file.

    Returns:
        The skill, or None when a finding is an error (vectors/frontmatter.jsonl).
    """
    findings: list[Finding] = []
    skill, text, body = None, "", ""
    try:
        check_size(len(data), findings)
        data = normalise(data, findings)
        text = decoded(data)
        block, end = head_of(data, policy, findings)
        body = data[end:].decode()
        found = read_block(block, directory, policy, findings, lambda: body)
        findings += _hidden_findings(text, len(text) - len(body), findings)
        if policy.trim_body:
            body = body.strip()
    except FileRefusedError as refusal:
        findings.append(refusal.finding)
    else:
        if not any(finding.fatal for finding in findings):
            file = (path if path is not None else Path(directory, SKILL_FILE)).absolute()
            skill = Skill(
                name=found.name,
                description=found.description,
                scope="explicit",
                file=str(file),
                root=str(file.parent),
                packed_fields=encode(found.fields),
                policy=policy,
            )
    return ParseResult(skill=skill, diagnostics=placed(findings, path), text=text, body=body)


def _hidden_findings(text: str, body_at: int, findings: list[Finding]) -> list[Finding]:
    """Return a finding for the first hidden character of the body, and of the fields before it.

    A name or description with one is refused already.
    """
    found = []
    parts = [("body", body_at, len(text))]
    if not any(finding.code == "hidden-characters" for finding in findings):
        parts.insert(0, ("frontmatter", 0, body_at))
    for part, start, end in parts:
        at = find_hidden(text[start:end])
        hidden = hidden_text(text[start:end]) if at is None else None
        if at is not None:
            line = text.count("\n", 0, start + at) + 1
            said = f"hidden U+{ord(text[start + at]):04X} in the {part}"
        elif hidden is not None and hidden.asks:
            line = text.count("\n", 0, start) + hidden.line
            said = f"hidden {hidden.example} in the {part}"
        else:
            continue
        found.append(Finding("hidden-characters", said, line))
    return found


def head_of(
    data: bytes, policy: ParsePolicy, findings: list[Finding]
) -> SourceHead | tuple[None, int]:
    """Return the frontmatter of normalised `data` and where it ends; None where it has none.

    Raises:
        RefusedError: there is none, and the policy asks for one, or it cannot be read.
    """
    try:
        return split_head(data)
    except FileRefusedError as refusal:
        if policy.no_frontmatter == "skip" or refusal.finding.code not in _NO_BLOCK:
            raise
        findings.append(refusal.finding._replace(fatal=False))
        return None, 0


def read_block(
    block: str | None,
    directory: str,
    policy: ParsePolicy,
    findings: list[Finding],
    body: Callable[[], str],
) -> Metadata:
    """Return what the frontmatter says, adding to `findings`; `body` is asked if need be.

    A block of None says nothing.

    Raises:
        RefusedError: the block is not a mapping that we take.
    """
    fields, block = _mapping(block, policy, findings) if block is not None else ({}, "")
    name, description = read_fields(fields, directory, block, findings, policy, body)
    return Metadata(name, description, fields)


def _mapping(
    block: str, policy: ParsePolicy, findings: list[Finding]
) -> tuple[dict[str, Any], str]:
    """Return the mapping, and the block as it was read: with the same lines, perhaps repaired."""
    try:
        return read_mapping(block, fast=policy.yaml_fast_path), block
    except FileRefusedError as refusal:
        if refusal.finding.code != "yaml-error":
            raise
        first = _named(refusal, block)
    repair = repaired(block) if policy.yaml_repair else None
    if repair is None:
        raise first
    try:
        fields = read_mapping(repair.block, fast=False)
    except FileRefusedError as second:
        raise (_named(second, block) if second.finding.code == "yaml-error" else second) from None
    findings.append(_repair_finding(repair))
    return fields, repair.block


def _named(refusal: FileRefusedError, block: str) -> FileRefusedError:
    code, message, line, _ = refusal.finding
    field = None if line is None else field_at(block, line)
    return FileRefusedError(code, f"{_code(field)}: {message}" if field else message, line)


def _code(field: str) -> str:
    return f"`{field[:FIELD_SHOWN_MAX]}`"


def _repair_finding(repair: Repair) -> Finding:
    named = ", ".join(
        f"{_code(name)} (line {line})" if at else _code(name)
        for at, (name, line) in enumerate(repair.fields[:FIELDS_NAMED_MAX])
    )
    if len(repair.fields) > FIELDS_NAMED_MAX:
        named += f" and {len(repair.fields) - FIELDS_NAMED_MAX} more"
    message = f"{named}: not YAML without quotes, read as text; put the value in quotes"
    return Finding("yaml-repaired", message, repair.fields[0].line)


def placed(findings: list[Finding], path: Path | None) -> tuple[Diagnostic, ...]:
    return tuple(
        Diagnostic(
            code=finding.code,
            severity=Severity.ERROR if finding.fatal else Severity.WARNING,
            message=finding.message,
            path=path,
            line=finding.line,
        )
        for finding in findings
    )


HEAD_BYTES = 4_096
"""Bytes of the first read; 99 in 100 published frontmatters end before it (standard.md 7.3)."""


def read_metadata(
    handle: int, size: int, directory: str, policy: ParsePolicy
) -> tuple[Metadata | None, list[Finding]]:
    """Return what the frontmatter of an open regular file says, and what was found in the head.

    The head ends with the closing line; what follows it is neither read nor judged, except
    that no more than `HEAD_BYTES` bytes are looked at for one when there is no frontmatter, and
    that a policy may take a missing description from the body.

    Args:
        directory: Name of the directory that holds the file.

    Returns:
        None in place of the metadata when a finding is fatal.
    """
    findings: list[Finding] = []
    try:
        check_size(size, findings)
        data = os.read(handle, HEAD_BYTES)
        complete = len(data) < HEAD_BYTES
        try:
            block = _block(data, policy, findings, complete=complete)
        except IncompleteError:
            data, complete = data + _rest(handle), True
            block = _block(data, policy, findings, complete=True)
        body: Callable[[], str] = str
        if policy.missing_description == "body":
            body = partial(_body, handle, data, policy, complete=complete)
        found = read_block(block, directory, policy, findings, body)
    except FileRefusedError as refusal:
        findings.append(refusal.finding)
        return None, findings
    if findings and any(finding.fatal for finding in findings):
        return None, findings
    return found, findings


def _block(
    data: bytes, policy: ParsePolicy, findings: list[Finding], *, complete: bool
) -> str | None:
    """Return the text between the fences; None where there are none and need not be."""
    fence = data.find(b"\n---\n", 3) if data.startswith(b"---\n") else -1
    if fence == data.find(b"\n---", 3) and fence >= 0:
        raw = data[4 : fence + 1]
        if raw.isascii() and b"\r" not in raw and b"\0" not in raw and fence <= FRONTMATTER_MAX:
            # The common case in one go: plain fences around ASCII with LF.
            return raw.decode()
    return head_of(normalise(cut_head(data, complete=complete), findings), policy, findings)[0]


def _body(handle: int, data: bytes, policy: ParsePolicy, *, complete: bool) -> str:
    """Return the text after the fences, the rest of the file read if `data` is not complete."""
    whole = normalise(data if complete else data + _rest(handle), [])
    return decoded(whole[head_of(whole, policy, [])[1] :])


def _rest(handle: int) -> bytes:
    """Return what follows the first read, never much more than a SKILL.md may hold."""
    chunks = []
    left = SKILL_FILE_MAX
    while left > 0 and (chunk := os.read(handle, left)):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)


_TEMPLATE = "---\nname: {name}\ndescription: {description}\n---\n\n{instructions}\n"
"""As published (S004-74); a description that YAML would read otherwise is quoted."""


def skill_text(name: str, description: str, instructions: str) -> str:
    """Return the text of a SKILL.md with these fields and this body.

    Raises:
        SkillError: the name or description breaks the specification, or the text would not read
            back as it was given.
    """
    for found in validate_name(name, directory=name):
        raise SkillError(found.code, _place(name), found.message)
    # JSON text is YAML text: every escape of the one is an escape of the other.
    for written in (description, json.dumps(description, ensure_ascii=False)):
        text = _TEMPLATE.format(
            name=name, description=written, instructions=instructions.rstrip("\n")
        )
        result = parse(text.encode("utf-8", "surrogatepass"), directory=name)
        read: Skill | None = result.skill
        if read is not None and read.description == description.strip() and not result.diagnostics:
            return text
    worst = max(result.diagnostics, key=lambda found: found.severity == "error", default=None)
    if worst is None:
        message = "the description does not read back as it was given"
        raise SkillError("description-unwritable", _place(name), message)
    raise SkillError(worst.code, _place(name), worst.message)


def _place(name: str) -> Path:
    return Path(name, SKILL_FILE)
