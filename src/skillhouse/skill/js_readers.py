"""Reads a SKILL.md as opencode and Gemini CLI do, with js-yaml."""

from __future__ import annotations

import re
from typing import Any

from skillhouse.floor.regex import regex
from skillhouse.skill.client_reads import JS_SPACE, NULLS, PARTS, ClientRead, ClientSource
from skillhouse.skill.client_yaml import LINE_ENDS, ClientMapping, YamlRules, read_as
from skillhouse.skill.source import FileRefusedError, Finding

_TRUTHS = frozenset({"true", "True", "TRUE", "false", "False", "FALSE"})
_JS_NUMBER = regex(
    r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]+|[0-9][0-9_]*(?::[0-5]?[0-9])*"
    r"|[0-9][0-9_]*(?::[0-5]?[0-9])*\.[0-9_]*|(?:[0-9][0-9_]*)?\.?[0-9_]+(?:[eE][-+]?[0-9]+)?"
    r"|\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))"
)
_DATE = regex(
    r"\d{4}-\d\d-\d\d|\d{4}-\d\d?-\d\d?(?:[Tt]|[ \t]+)\d\d?:\d\d:\d\d(?:\.\d*)?"
    r"(?:[ \t]*(?:Z|[-+]\d\d?(?::?\d\d)?))?"
)

# --- opencode: gray-matter and js-yaml 3, a repair of colons

_JS = YamlRules(tags="refuse", duplicates="refuse", taken=LINE_ENDS, tabs="skip", joined=True)
_LINED_FENCES = regex(r"---\r?\n(?P<block>.*?)\r?\n---", re.DOTALL)
_COLON_FIELD = regex(rf"(?P<key>[a-zA-Z_][a-zA-Z0-9_]*){JS_SPACE}*:{JS_SPACE}*(?P<value>.*)")


def read_gray_matter(source: ClientSource) -> ClientRead:
    text = source.data.decode("utf-8", "replace").removeprefix("\ufeff")
    if not text.startswith("---") or text[3:4] == "-":
        raise FileRefusedError("frontmatter-missing", "expected `---` as the first line", 1)
    try:
        mapping, body = _gray_parts(text)
    except FileRefusedError as refusal:
        repaired = _colons_kept(text)
        if repaired == text:
            raise
        try:
            mapping, body = _gray_parts(repaired)
        except FileRefusedError:
            raise refusal from None
        source.findings.append(Finding("yaml-repaired", "this client repairs the frontmatter", 1))
    name, description = (_js_text(mapping, key) for key in PARTS)
    if not name:
        raise FileRefusedError("name-missing", "no name", 1)
    return ClientRead(name, description, mapping.fields, body)


def _gray_parts(text: str) -> tuple[ClientMapping, str]:
    head = text[3:].split("\n", 1)[0].strip()
    if head:
        raise FileRefusedError("frontmatter-missing", f"`{head[:40]}` after the first `---`", 1)
    close = text.find("\n---", 3)
    block = text[3:] if close < 0 else text[3:close]
    body = "" if close < 0 else text[close + 4 :].removeprefix("\r").removeprefix("\n")
    mapping = read_as(block.replace("\r\n", "\n").removeprefix("\n"), _JS)
    if not mapping.single:
        raise FileRefusedError("frontmatter-not-mapping", "expected `key: value` lines", 2)
    return mapping, body


def _colons_kept(text: str) -> str:
    found = _LINED_FENCES.match(text)
    if found is None:
        return text
    lines = []
    for line in re.split(r"\r?\n", found["block"]):
        field = _COLON_FIELD.fullmatch(line)
        value = field["value"].strip() if field else ""
        if field is None or value in ("", ">", "|") or value[0] in "\"'" or ":" not in value:
            lines.append(line)
        else:
            lines += [f"{field['key']}: |-", f"  {value}"]
    start, end = found.span("block")
    return text[:start] + "\n".join(lines) + text[end:]


def _js_text(mapping: ClientMapping, key: str) -> str:
    """Return a field that js-yaml reads as text, or refuse."""
    value = mapping.fields.get(key)
    if value is None:
        raise FileRefusedError(f"{key}-missing", f"no {key}", 1)
    if not isinstance(value, str):
        raise FileRefusedError(f"{key}-type", f"expected a text as `{key}`", mapping.lines[key])
    if key in mapping.plain and _is_no_js_text(value):
        code = f"{key}-missing" if value in NULLS else "not-text"
        message = f"`{key}` is `{value[:40]}`, which is no text in YAML"
        raise FileRefusedError(code, message, mapping.lines[key])
    return value


def _is_no_js_text(value: str) -> bool:
    return (
        value in NULLS
        or value in _TRUTHS
        or bool(_JS_NUMBER.fullmatch(value) or _DATE.fullmatch(value))
    )


# --- Gemini CLI: js-yaml 4, then a reading line by line

_GEMINI_FENCES = regex(r"---\r?\n(?P<block>.*?)\r?\n---(?:\r?\n(?P<body>.*))?", re.DOTALL)
_JS4 = YamlRules(tags="refuse", duplicates="refuse", taken=LINE_ENDS, tabs="skip")
_NAME_LINE = regex(rf"{JS_SPACE}*name:{JS_SPACE}*(.*)")
_DESCRIPTION_LINE = regex(rf"{JS_SPACE}*description:{JS_SPACE}*(.*)")


def read_lines(source: ClientSource) -> ClientRead:
    text = source.data.decode("utf-8", "replace")
    found = _GEMINI_FENCES.match(text)
    if found is None:
        raise FileRefusedError(_why_no_fences(text), "expected `---` lines around the fields", 1)
    fields: dict[str, Any] = {}
    name = description = None
    try:
        mapping = read_as(found["block"].replace("\r\n", "\n"), _JS4)
        fields = mapping.fields
        name, description = (_js_text(mapping, key) for key in PARTS)
    except FileRefusedError as refusal:
        name, description = _by_lines(found["block"])
        if name is None or description is None:
            code = refusal.finding.code
            if code == "yaml-error":
                raise
            missing = "name" if name is None else "description"
            raise FileRefusedError(f"{missing}-missing", f"no {missing}", 1) from None
        message = "this client reads the frontmatter line by line"
        source.findings.append(Finding("read-by-lines", message, refusal.finding.line))
    name = re.sub(r'[:\\/<>*?"|]', "-", name)
    return ClientRead(name, description, fields, (found["body"] or "").strip())


def _why_no_fences(text: str) -> str:
    if text.startswith("\ufeff---"):
        return "bom"
    first, _, rest = text.partition("\n")
    if first != "---" and first.rstrip() == "---" and first.rstrip("\r") != "---":
        return "fence-blanks"
    is_open = first.rstrip("\r") == "---" and "\n---" not in rest
    return "frontmatter-unclosed" if is_open else "frontmatter-missing"


def _by_lines(block: str) -> tuple[str | None, str | None]:
    name: str | None = None
    description: str | None = None
    lines = re.split(r"\r?\n", block)
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if found := _NAME_LINE.fullmatch(line):
            name = found[1].strip()
        elif found := _DESCRIPTION_LINE.fullmatch(line):
            parts = [found[1].strip()]
            while at < len(lines) and re.match(r"[ \t]+\S", lines[at]):
                parts.append(lines[at].strip())
                at += 1
            description = " ".join(part for part in parts if part)
    return name, description
