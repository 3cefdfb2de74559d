"""The bytes of a SKILL.md to a skill and everything that was found on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from skillhouse.floor import Diagnostic, Severity, encode
from skillhouse.skill.fields import read_fields
from skillhouse.skill.hidden import find_hidden, hidden_text
from skillhouse.skill.model import (
    DEFAULT_POLICY,
    SKILL_FILE,
    ParsePolicy,
    ParseResult,
    Skill,
)
from skillhouse.skill.repair import Repair, field_at, repaired
from skillhouse.skill.source import (
    FileRefusedError,
    Finding,
    SourceHead,
    check_size,
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
    """What the head of a file says; `findings` with a fatal one mean that it is no skill."""

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
        data: The whole file.
        directory: Name of the directory the file lies in.
        path: The file, for the skill and the diagnostics.
        policy: What designs and clients differ on.

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
    """Return the refusal of a block with the field that it is about."""
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
    """Return the findings as diagnostics of the file at `path`."""
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
