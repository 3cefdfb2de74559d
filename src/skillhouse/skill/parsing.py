"""The bytes of a SKILL.md to a skill and everything that was found on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from skillhouse.floor import Diagnostic, Severity, encode
from skillhouse.skill.fields import read_fields
from skillhouse.skill.hidden import find_hidden
from skillhouse.skill.model import (
    DEFAULT_POLICY,
    SKILL_FILE,
    ParsePolicy,
    ParseResult,
    Skill,
)
from skillhouse.skill.repair import repaired
from skillhouse.skill.source import (
    SKILL_FILE_MAX,
    Finding,
    Head,
    RefusedError,
    decoded,
    normalise,
    split_head,
    too_large,
)
from skillhouse.skill.yaml_text import read_mapping

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
        if len(data) > SKILL_FILE_MAX:
            raise too_large(len(data))
        data = normalise(data, findings)
        text = decoded(data)
        block, end = head_of(data, policy, findings)
        body = data[end:].decode()
        found = read_block(block, directory, policy, findings, lambda: body)
        hidden = find_hidden(body)
        if hidden is not None:
            line = text.count("\n", 0, len(text) - len(body) + hidden) + 1
            findings.append(
                Finding("hidden-characters", f"hidden U+{ord(body[hidden]):04X} in the body", line)
            )
        if policy.trim_body:
            body = body.strip()
    except RefusedError as refusal:
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


def head_of(data: bytes, policy: ParsePolicy, findings: list[Finding]) -> Head | tuple[None, int]:
    """Return the frontmatter of normalised `data` and where it ends; None where it has none.

    Raises:
        RefusedError: there is none, and the policy asks for one, or it cannot be read.
    """
    try:
        return split_head(data)
    except RefusedError as refusal:
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
    except RefusedError as refusal:
        mended = repaired(block) if policy.yaml_repair else None
        if refusal.finding.code != "yaml-error" or mended is None:
            raise
        first = refusal.finding
        try:
            fields = read_mapping(mended, fast=False)
        except RefusedError as second:
            raise (refusal if second.finding.code == "yaml-error" else second) from None
        findings.append(
            Finding("yaml-repaired", f"{first.message}; the value was read as text", first.line)
        )
        return fields, mended


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
