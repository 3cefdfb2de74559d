"""Reads a SKILL.md as another client does: its fences, its repair, its YAML library, its types.

Each reader is named after its YAML library and is held against the program itself, file by file
(tests/interop/lens, docs/interop.md). What it says is for people who ask what a client sees; a
hidden character in a name or description is shown as an escape, which the client does not do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from skillhouse.floor.regex import regex
from skillhouse.skill.client_reads import (
    JS_SPACE,
    NULLS,
    PARTS,
    ClientRead,
    ClientSource,
    read_core,
    read_gray_matter,
    read_lines,
    read_serde_strict,
    read_strict,
    read_trimmed,
)
from skillhouse.skill.client_yaml import CONTROLS, ClientMapping, YamlRules, read_as
from skillhouse.skill.hidden import hidden_text, revealed
from skillhouse.skill.model import ParsePolicy
from skillhouse.skill.source import NAME_MAX, SKILL_FILE_MAX, FileRefusedError, Finding


def read_as_client(
    data: bytes, directory: str, policy: ParsePolicy, findings: list[Finding]
) -> ClientRead:
    """Return what the client of `policy.reader` lists, adding to `findings`.

    FileRefusedError: the client does not list the file.
    """
    cut = data[:SKILL_FILE_MAX]
    if policy.file_max and len(data) > policy.file_max:
        raise FileRefusedError("too-large", f"more than {policy.file_max} bytes")
    read = READERS[policy.reader](ClientSource(cut, directory, policy, findings))
    return read._replace(
        name=_shown(read.name, "name", findings),
        description=_shown(read.description, "description", findings),
    )


_NO_MAPPING = ClientMapping({}, frozenset(), {})


def _shown(text: str, part: str, findings: list[Finding]) -> str:
    if text.isascii() and text.isprintable():
        return text
    hidden = hidden_text(text, is_part=True)
    if hidden is None:
        return text
    findings.append(Finding("hidden-characters", f"hidden {hidden.example} in the {part}", 1))
    return revealed(text)


# --- Claude Code: Bun's YAML, a repair by signs, and never a refusal

_GREEDY_FENCES = regex(rf"---{JS_SPACE}*\n(?P<block>.*?)---{JS_SPACE}*\n?", re.DOTALL)
_SPECIAL = regex(r"[{}\[\]*&#!|>%@`]|: ")
_PLAIN_FIELD = regex(rf"(?P<key>[a-zA-Z_-]+):{JS_SPACE}+(?P<value>\S.*)")
_HEADING = regex(r"#+\s+(\S.*)")
_BUN = YamlRules(taken=CONTROLS, indents=True, commas=True)
FIRST_LINE_MAX = 100
"""Characters of the body's first line that Claude Code takes for a description."""


def _read_bun(source: ClientSource) -> ClientRead:
    text = source.data.decode("utf-8", "replace").removeprefix("\ufeff")
    found = _GREEDY_FENCES.match(text)
    mapping = _NO_MAPPING
    body = text
    if found is None:
        message = "no frontmatter for this client: the whole file is the body"
        source.findings.append(Finding(_why_no_block(source.data, text), message, 1))
    else:
        body = text[found.end() :]
        mapping = _bun_mapping(found["block"], source.findings)
        if not found["block"].endswith("\n") and found["block"]:
            line = text.count("\n", 0, found.end()) + 1
            message = "`---` within a line ends the frontmatter for this client"
            source.findings.append(Finding("frontmatter-cut", message, line))
    value = mapping.fields.get("description")
    if isinstance(value, dict | list):
        message = "a list or map is no description for this client"
        line = mapping.lines["description"]
        source.findings.append(Finding("description-ignored", message, line))
        value = None
    is_null = "description" in mapping.plain and value in NULLS
    description = "" if value is None or is_null else value.strip()
    if not description:
        description = _first_line(body)
        message = "no description: the first line of the body is used"
        source.findings.append(Finding("description-missing", message, 1))
    elif "description" in mapping.plain:
        description = _number_text(description)
    return ClientRead(source.directory, description, mapping.fields, body)


def _why_no_block(data: bytes, text: str) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "encoding"
    is_open = text.startswith("---") and "---" not in text[3:]
    return "frontmatter-unclosed" if is_open else "frontmatter-missing"


def _bun_mapping(block: str, findings: list[Finding]) -> ClientMapping:
    try:
        return read_as(block, _BUN)
    except FileRefusedError as refusal:
        first = refusal.finding
    lines = [_quoted_by_signs(line) for line in block.split("\n")]
    try:
        mapping = read_as("\n".join(lines), _BUN._replace(tabs="indent"))
    except FileRefusedError:
        message = f"this client passes over the frontmatter ({first.message})"
        findings.append(Finding("frontmatter-ignored", message, first.line))
        return _NO_MAPPING
    findings.append(Finding("yaml-repaired", "this client repairs the frontmatter", first.line))
    return mapping


def _quoted_by_signs(line: str) -> str:
    found = _PLAIN_FIELD.fullmatch(line)
    if found is None or not _SPECIAL.search(found["value"]):
        return line
    value = found["value"]
    if value[0] == value[-1] and value[0] in "\"'" and len(value) > 1:
        return line
    if value.startswith("[") and value.endswith("]") and _is_list(value):
        return line
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{found["key"]}: "{escaped}"'


def _is_list(value: str) -> bool:
    try:
        return isinstance(read_as(f"k: {value}", _BUN).fields.get("k"), list)
    except FileRefusedError:
        return False


def _first_line(body: str) -> str:
    line = next((stripped for line in body.split("\n") if (stripped := line.strip())), "")
    heading = _HEADING.fullmatch(line)
    text = heading[1] if heading else line
    if len(text) > FIRST_LINE_MAX:
        return text[: FIRST_LINE_MAX - 3] + "..."
    return text or "Skill"


def _number_text(text: str) -> str:
    """Return a number that YAML writes in another base as JavaScript prints it."""
    if re.fullmatch(r"0o[0-7]+|0x[0-9a-fA-F]+", text):
        return str(int(text, 0))
    return text


# --- Codex: libyaml, a repair of lines, and typed fields

_SERDE = YamlRules(duplicates="refuse-read")
_ANY_FIELD = regex(
    r"(?P<head>[ \t]*(?:- +)?[^\s#:\[{\"'][^:]*:|[ \t]*\"[^\"]*\":)[ \t]+(?P<value>\S.*)"
)
_BLOCK_HEADER = regex(r"[|>][-+0-9]*(?:[ \t]+#.*)?")
_COMMENT = regex(r"[ \t]+#.*")
DESCRIPTION_MAX = 1_024


def _read_serde(source: ClientSource) -> ClientRead:
    try:
        text = source.data.decode()
    except UnicodeDecodeError:
        raise FileRefusedError("encoding", "not UTF-8", 1) from None
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if lines[0].strip() != "---":
        code = "bom" if text.startswith("\ufeff---") else "frontmatter-missing"
        raise FileRefusedError(code, "expected `---` as the first line", 1)
    end = next((at for at, line in enumerate(lines[1:], 1) if line.strip() == "---"), 0)
    if end == 0:
        raise FileRefusedError("frontmatter-unclosed", "no closing line `---`", 1)
    if end == 1:
        raise FileRefusedError("frontmatter-missing", "an empty frontmatter", 1)
    block = "\n".join(lines[1:end])
    body = "\n".join(lines[end + 1 :])
    name, description, fields = _serde_fields(block, source.findings)
    name = name or " ".join(source.directory.split())
    if len(name) > NAME_MAX:
        raise FileRefusedError("name-long", f"expected at most {NAME_MAX} characters of name", 1)
    if not description:
        raise FileRefusedError("description-missing", "no description", 1)
    return ClientRead(name, description, fields, body)


def _serde_fields(block: str, findings: list[Finding]) -> tuple[str, str, dict[str, Any]]:
    try:
        return _typed(read_as(block, _SERDE))
    except FileRefusedError as refusal:
        first = refusal
    try:
        fields = _typed(read_as("\n".join(_serde_repaired(block)), _SERDE))
    except FileRefusedError:
        raise first from None
    findings.append(Finding("yaml-repaired", "this client repairs the frontmatter", 1))
    return fields


def _typed(mapping: ClientMapping) -> tuple[str, str, dict[str, Any]]:
    if not mapping.single:
        raise FileRefusedError("frontmatter-not-mapping", "expected `key: value` lines", 2)
    texts = []
    for key in PARTS:
        value = mapping.fields.get(key, "")
        if not isinstance(value, str):
            line = mapping.lines[key]
            raise FileRefusedError(f"{key}-type", f"expected a text as `{key}`", line)
        is_null = key in mapping.plain and value in NULLS
        texts.append("" if is_null else " ".join(value.split()))
    _check_metadata(mapping)
    return texts[0], texts[1], mapping.fields


def _check_metadata(mapping: ClientMapping) -> None:
    value = mapping.fields.get("metadata", {})
    is_empty = value == "" and "metadata" in mapping.plain
    if isinstance(value, dict):
        if isinstance(value.get("short-description", ""), str):
            return
    elif is_empty:
        return
    line = mapping.lines["metadata"]
    raise FileRefusedError("metadata-typed", "expected a map as `metadata`", line)


def _serde_repaired(block: str) -> list[str]:
    """Return the lines, with values quoted that look like text; those of block texts stay."""
    lines = []
    inside = -1
    for line in block.split("\n"):
        indent = len(line) - len(line.lstrip(" "))
        if inside >= 0 and (indent > inside or not line.strip()):
            lines.append(line)
            continue
        inside = -1
        found = _ANY_FIELD.fullmatch(line)
        if found and _BLOCK_HEADER.fullmatch(found["value"]):
            inside = indent
        lines.append(_serde_quoted(found["head"], found["value"]) if found else line)
    return lines


def _serde_quoted(head: str, value: str) -> str:
    plain = _COMMENT.sub("", value).rstrip()
    closing = {"[": "]", "{": "}"}.get(plain[:1])
    is_odd = closing is not None and not plain.endswith(closing)
    is_text = is_odd or plain[:1] in ("@", "`") or re.search(r":[ \t]", plain)
    if not is_text or plain[:1] in ('"', "'", "|", ">", ""):
        return f"{head} {value}"
    return f"{head} '{plain.replace(chr(39), chr(39) * 2)}'"


READERS: Mapping[str, Callable[[ClientSource], ClientRead]] = {
    "bun-yaml": _read_bun,
    "serde-yaml": _read_serde,
    "gray-matter": read_gray_matter,
    "js-yaml-lines": read_lines,
    "js-yaml-trimmed": read_trimmed,
    "core-yaml": read_core,
    "core-yaml-strict": read_strict,
    "serde-strict": read_serde_strict,
}
