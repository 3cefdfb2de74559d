"""The bytes of a SKILL.md to a skill and everything that was found on the way.

Frontmatter that is nearly one is found too: with text before it, between other fences, or in
another syntax.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from skillhouse.floor import Diagnostic, SkillError, encode
from skillhouse.floor.regex import regex
from skillhouse.skill.fields import read_fields
from skillhouse.skill.hidden import find_hidden, hidden_text
from skillhouse.skill.model import (
    DEFAULT_POLICY,
    SKILL_FILE,
    ParsePolicy,
    ParseResult,
    Skill,
)
from skillhouse.skill.source import (
    FRONTMATTER_MAX,
    SKILL_FILE_LARGE,
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
    validate_name,
)
from skillhouse.skill.yaml_text import (
    Repair,
    comment_cut,
    field_at,
    indented_field,
    opens_bracket,
    read_mapping,
    read_typed_mapping,
    repaired,
)

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


FIELDS_NAMED_MAX = 5
FIELD_SHOWN_MAX = 64
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
    """Read the bytes of a SKILL.md in a directory of that name; never raises for what they hold.

    The skill is None when a finding is an error (vectors/frontmatter.jsonl).
    """
    findings: list[Finding] = []
    if policy.reader != "specified":
        return _parse_as_client(data, directory, path, policy)
    skill, text, body = None, "", ""
    try:
        check_size(len(data), findings)
        data = normalise(data, findings)
        text = decoded(data)
        block, end = head_of(data, policy, findings)
        body = data[end:].decode()
        metadata = read_block(block, directory, policy, findings, lambda: body)
        findings += _hidden_findings(text, len(text) - len(body), findings)
        if policy.trim_body:
            body = body.strip()
    except FileRefusedError as refusal:
        findings.append(refusal.finding)
    else:
        if not any(finding.fatal for finding in findings):
            skill = _skill_of(metadata, directory, path, policy)
    return ParseResult(skill=skill, diagnostics=placed(findings, path), text=text, body=body)


def _skill_of(metadata: Metadata, directory: str, path: Path | None, policy: ParsePolicy) -> Skill:
    file = (path if path is not None else Path(directory, SKILL_FILE)).absolute()
    return Skill(
        name=metadata.name,
        description=metadata.description,
        scope="explicit",
        file=str(file),
        root=str(file.parent),
        packed_fields=encode(metadata.fields),
        policy=policy,
    )


def _parse_as_client(
    data: bytes, directory: str, path: Path | None, policy: ParsePolicy
) -> ParseResult:
    findings: list[Finding] = []
    text = data[:SKILL_FILE_MAX].decode("utf-8", "replace").removeprefix("\ufeff")
    try:
        read = _client_readers().read_as_client(data, directory, policy, findings)
    except FileRefusedError as refusal:
        diagnostics = placed([*findings, refusal.finding], path)
        return ParseResult(skill=None, diagnostics=diagnostics, text=text)
    metadata = Metadata(read.name, read.description, read.fields)
    skill = _skill_of(metadata, directory, path, policy)
    return ParseResult(skill=skill, diagnostics=placed(findings, path), text=text, body=read.body)


def _client_readers() -> ModuleType:
    """Return the readings of other clients, loaded when a profile of one is used: with PyYAML."""
    from skillhouse.skill import client_readers  # noqa: PLC0415 - see above.

    return client_readers


def typed_fields(data: bytes, *, directory: str) -> Mapping[str, Any] | None:
    """Return the frontmatter of a SKILL.md as JSON values; None where it is no skill.

    >>> text = b"---\\nname: a\\ndescription: b\\nmetadata:\\n  n: 1.50\\n  t: '1'\\n---\\n"
    >>> typed_fields(text, directory="a")
    {'name': 'a', 'description': 'b', 'metadata': {'n': 1.5, 't': '1'}}
    """
    # Another program makes no repairs of ours.
    result = parse(data, directory=directory, policy=ParsePolicy(yaml_repair=False))
    if result.skill is None:
        return None
    return read_typed_mapping(split_head(result.text.encode()).block)


def _hidden_findings(text: str, body_at: int, findings: list[Finding]) -> list[Finding]:
    """Return the first hidden character of the body, and of the fields unless they were refused."""
    hidden_findings = []
    parts = [("body", body_at, len(text))]
    if not any(finding.code == "hidden-characters" for finding in findings):
        parts.insert(0, ("frontmatter", 0, body_at))
    for part, start, end in parts:
        at = find_hidden(text[start:end])
        hidden = hidden_text(text[start:end], is_part=start > 0) if at is None else None
        if at is not None:
            line = text.count("\n", 0, start + at) + 1
            said = f"hidden U+{ord(text[start + at]):04X} in the {part}"
        elif hidden is not None and hidden.asks:
            line = text.count("\n", 0, start) + hidden.line
            said = f"hidden {hidden.example} in the {part}"
        else:
            continue
        hidden_findings.append(Finding("hidden-characters", said, line))
    return hidden_findings


def head_of(
    data: bytes, policy: ParsePolicy, findings: list[Finding]
) -> SourceHead | tuple[None, int]:
    """Return the frontmatter of normalised `data` and where it ends; None where none is needed."""
    try:
        return split_head(data)
    except FileRefusedError as refusal:
        if policy.no_frontmatter == "skip" or refusal.finding.code not in _NO_BLOCK:
            raise
        repaired, found = None, refusal.finding
        if policy.no_frontmatter == "mend" and found.code == "frontmatter-unclosed":
            repaired = _closed_at_blank_line(data, policy)
            if repaired is None:
                raise
        elif policy.no_frontmatter == "mend" and (near := near_frontmatter(data)):
            found = found._replace(message=near.message, line=near.line or 1)
            repaired = near.head
            if repaired is None or not _describes(repaired.block, policy):
                # INVARIANT: what was meant as a field is never taken for the text of a skill.
                raise FileRefusedError(found.code, found.message, found.line) from None
        findings.append(found._replace(fatal=False))
        return repaired or (None, 0)


def _closed_at_blank_line(data: bytes, policy: ParsePolicy) -> SourceHead | None:
    """Return the block up to the first blank line or the end, if it holds a description."""
    start = data.find(b"\n") + 1
    end = data.find(b"\n\n", start)
    end = len(data) if end < 0 else end + 1
    if not start or end - start > FRONTMATTER_MAX:
        return None
    try:
        block = decoded(data[start:end], 2)
    except FileRefusedError:
        return None
    return SourceHead(block, end) if _describes(block, policy) else None


def _describes(block: str, policy: ParsePolicy) -> bool:
    """Whether a block that is no proper frontmatter has a description."""
    try:
        fields, _ = _mapping(block, policy, [])
    except FileRefusedError:
        return False
    return any(key.casefold() == "description" for key in fields)


def read_block(
    block: str | None,
    directory: str,
    policy: ParsePolicy,
    findings: list[Finding],
    body: Callable[[], str],
) -> Metadata:
    """Return what the frontmatter says, adding to `findings`; a block of None says nothing."""
    fields, block = _mapping(block, policy, findings) if block is not None else ({}, "")
    if "#" in block and (cut := comment_cut(block, fields)):
        findings.append(cut)
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
    repair = repaired(block, tabs=policy.tabs_mended) if policy.yaml_repair else None
    if repair is None:
        raise first
    try:
        fields = read_mapping(repair.block, fast=False)
    except FileRefusedError as second:
        raise (_named(second, block) if second.finding.code == "yaml-error" else second) from None
    findings.append(_repair_finding(repair, block))
    return fields, repair.block


def _named(refusal: FileRefusedError, block: str) -> FileRefusedError:
    found = refusal.finding
    field = None if found.line is None else field_at(block, found.line)
    return FileRefusedError(
        found.code,
        f"{_code(field)}: {found.message}" if field else found.message,
        found.line,
        field=field or "",
        hint=found.hint,
        detail=found.detail,
    )


def _code(field: str) -> str:
    return f"`{field[:FIELD_SHOWN_MAX]}`"


def _repair_finding(repair: Repair, block: str) -> Finding:
    named = ", ".join(
        f"{_code(name)} (line {line})" if at else _code(name)
        for at, (name, line, _) in enumerate(repair.fields[:FIELDS_NAMED_MAX])
    )
    if len(repair.fields) > FIELDS_NAMED_MAX:
        named += f" and {len(repair.fields) - FIELDS_NAMED_MAX} more"
    tab = next((one for one in repair.fields if one.by_tab), None)
    if tab is not None and len(repair.fields) == 1:
        message = f"{_code(tab.name)}: a tab in the indentation, read as spaces"
        return Finding("yaml-repaired", message, tab.line, field=tab.name, hint="write spaces")
    first = next(one for one in repair.fields if not one.by_tab)
    inside = indented_field(block, first)
    if inside is not None:
        message = f"{_code(inside.name)}: indented, so it is read as part of {_code(first.name)}"
        hint = "begin each field at the start of its line"
        return Finding("yaml-repaired", message, inside.line, field=inside.name, hint=hint)
    if len(repair.fields) == 1 and opens_bracket(block, first):
        message = f"{_code(first.name)}: a bracket that is not closed, read as text"
        hint = "close the bracket"
        return Finding("yaml-repaired", message, first.line, field=first.name, hint=hint)
    message = f"{named}: not YAML without quotes, read as text"
    return Finding("yaml-repaired", message, first.line, field=first.name)


def placed(findings: list[Finding], path: Path | None) -> tuple[Diagnostic, ...]:
    return tuple(finding.diagnostic(path) for finding in findings)


HEAD_BYTES = 4_096
"""Bytes of the first read; 99 in 100 published frontmatters end before it (standard.md 7.3)."""


def read_metadata(
    handle: int, size: int, directory: str, policy: ParsePolicy, head: bytes | None = None
) -> tuple[Metadata | None, list[Finding]]:
    """Return what the frontmatter of an open regular file says, and what was found in the head.

    The head ends with the closing line; what follows it is neither read nor judged, except
    that no more than `HEAD_BYTES` bytes are looked at for one when there is no frontmatter, and
    that a policy may take a missing description from the body. The metadata is None when a finding
    is fatal. `head` is what a first read of `HEAD_BYTES` bytes gave, where that was done before.
    """
    findings: list[Finding] = []
    try:
        if policy.reader != "specified":
            whole = (head or b"") + _rest(handle)
            read = _client_readers().read_as_client(whole, directory, policy, findings)
            return Metadata(read.name, read.description, read.fields), findings
        if size > SKILL_FILE_LARGE:
            check_size(size, findings)
        data = os.read(handle, HEAD_BYTES) if head is None else head
        complete = len(data) < HEAD_BYTES
        try:
            block = _block(data, policy, findings, complete=complete)
        except IncompleteError:
            data, complete = data + _rest(handle), True
            block = _block(data, policy, findings, complete=True)
        metadata = read_block(
            block,
            directory,
            policy,
            findings,
            # Asked only for a missing description, by a policy that takes it from there.
            lambda: _body(handle, data, policy, complete=complete),
        )
    except FileRefusedError as refusal:
        findings.append(refusal.finding)
        return None, findings
    if findings and any(finding.fatal for finding in findings):
        return None, findings
    return metadata, findings


def _block(
    data: bytes, policy: ParsePolicy, findings: list[Finding], *, complete: bool
) -> str | None:
    """Return the text between the fences; None where there are none and need not be."""
    fence = data.find(b"\n---", 3) if data.startswith(b"---\n") else -1
    if fence >= 0 and data[fence + 4 : fence + 5] == b"\n":
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

    SkillError: the name or description breaks the specification, or would not read back as given.
    """
    for finding in validate_name(name, directory=name):
        raise SkillError(finding.code, _place(name), finding.message)
    # JSON text is YAML text: every escape of the one is an escape of the other.
    for written in (description, json.dumps(description, ensure_ascii=False)):
        text = _TEMPLATE.format(
            name=name, description=written, instructions=instructions.rstrip("\n")
        )
        result = parse(text.encode("utf-8", "surrogatepass"), directory=name)
        read: Skill | None = result.skill
        if read is not None and read.description == description.strip() and not result.diagnostics:
            return text
    worst = max(result.diagnostics, key=lambda finding: finding.severity == "error", default=None)
    if worst is None:
        message = "the description does not read back as it was given"
        raise SkillError("description-unwritable", _place(name), message)
    raise SkillError(worst.code, _place(name), worst.message)


def _place(name: str) -> Path:
    return Path(name, SKILL_FILE)
