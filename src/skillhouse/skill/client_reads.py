"""Reads a SKILL.md as single clients do, by the rules of their YAML libraries.

opencode, Gemini CLI and Kimi Code CLI have js-yaml; Copilot CLI, Amp and Zed YAML 1.2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from skillhouse.floor.regex import regex
from skillhouse.skill.client_yaml import CONTROLS, LINE_ENDS, ClientMapping, YamlRules, read_as
from skillhouse.skill.model import ParsePolicy
from skillhouse.skill.source import NAME_MAX, FileRefusedError, Finding

JS_SPACE = "[\\t\\n\\v\\f\\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]"
"""What `\\s` is in JavaScript, for a pattern."""
NULLS = frozenset({"", "~", "null", "Null", "NULL"})
"""Plain scalars that are no text but nothing."""
PARTS = ("name", "description")


class ClientRead(NamedTuple):
    """What a client makes of a file."""

    name: str
    description: str
    fields: dict[str, Any]
    body: str


class ClientSource(NamedTuple):
    """A file, the name of its directory, and where findings go."""

    data: bytes
    directory: str
    policy: ParsePolicy
    findings: list[Finding]


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


# --- Kimi Code CLI: js-yaml 4, and blanks around everything

_JS_TRIM = regex(rf"\A{JS_SPACE}+|{JS_SPACE}+\Z")
_KIMI = YamlRules(tags="refuse", duplicates="refuse", taken=LINE_ENDS)
_JS4_OCTAL = regex(r"[-+]?0o[0-7_]+")
_KIMI_TYPES = ("prompt", "inline")
"""What a model is shown; `flow` and `reference` are for people and other skills."""


def read_trimmed(source: ClientSource) -> ClientRead:
    lines = re.split(r"\r?\n", source.data.decode("utf-8", "replace"))
    fences = [at for at, line in enumerate(lines) if _JS_TRIM.sub("", line) == "---"]
    if not fences or fences[0]:
        raise FileRefusedError("frontmatter-missing", "expected `---` as the first line", 1)
    if len(fences) == 1:
        raise FileRefusedError("frontmatter-unclosed", "no closing line `---`", 1)
    block = _JS_TRIM.sub("", "\n".join(lines[1 : fences[1]]))
    if not block:
        raise FileRefusedError("name-missing", "no name", 1)
    mapping = read_as(block, _KIMI)
    if not mapping.single:
        raise FileRefusedError("frontmatter-not-mapping", "expected `key: value` lines", 2)
    if mapping.fields.get("type", "prompt") not in _KIMI_TYPES:
        message = "`type` is another one than this client lists"
        raise FileRefusedError("field-type", message, mapping.lines["type"])
    for key in PARTS:
        if key in mapping.plain and _JS4_OCTAL.fullmatch(mapping.fields.get(key, "")):
            raise FileRefusedError("not-text", f"`{key}` is a number in YAML", mapping.lines[key])
    name, description = (_JS_TRIM.sub("", _js_text(mapping, key)) for key in PARTS)
    for key, text in zip(PARTS, (name, description), strict=True):
        if not text:
            raise FileRefusedError(f"{key}-missing", f"no {key}", mapping.lines[key])
    body = _JS_TRIM.sub("", "\n".join(lines[fences[1] + 1 :]))
    return ClientRead(name, description, mapping.fields, body)


_FENCES = re.compile(
    r"---[ \t]*\r?\n(?P<block>(?:.*?\n)??)---[ \t]*(?:\r?\n(?P<body>.*)|\Z)", re.DOTALL
)
_CORE_NUMBER = re.compile(
    r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
    r"|[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)


def _parts(source: ClientSource, rules: YamlRules) -> tuple[ClientMapping, str]:
    text = source.data.decode("utf-8", "replace").removeprefix("\ufeff")
    found = _FENCES.match(text)
    if found is None:
        is_open = re.match(r"---[ \t]*\r?\n", text)
        code = "frontmatter-unclosed" if is_open else "frontmatter-missing"
        raise FileRefusedError(code, "expected `---` lines around the fields", 1)
    mapping = read_as(found["block"].replace("\r\n", "\n"), rules)
    return mapping, found["body"] or ""


def _is_text(mapping: ClientMapping, key: str) -> bool:
    value = mapping.fields.get(key)
    if not isinstance(value, str) or key not in mapping.plain:
        return isinstance(value, str)
    return not (value in NULLS or value in _TRUTHS or _CORE_NUMBER.fullmatch(value))


# --- GitHub Copilot CLI

_COPILOT = YamlRules(duplicates="refuse")
_COPILOT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._:-]*")
_COPILOT_LINES = 3
"""Lines of the body that take the place of a missing description."""
DESCRIPTION_UNITS = 1_024
"""UTF-16 units of a description, as JavaScript counts them."""


def read_core(source: ClientSource) -> ClientRead:
    mapping, body = _parts(source, _COPILOT)
    fields = mapping.fields
    for key in ("name", "description"):
        if key in fields and not _is_text(mapping, key):
            message = f"`{key}` is no text in YAML"
            raise FileRefusedError("not-text", message, mapping.lines[key])
    _check_types(mapping)
    name = fields.get("name", source.directory).strip()
    if not _COPILOT_NAME.fullmatch(name):
        message = "expected a name of ASCII letters, digits, spaces and `-_.:`"
        raise FileRefusedError("name-invalid", message, mapping.lines.get("name", 1))
    name = re.sub(r" +", "-", name)
    if len(name) > NAME_MAX:
        message = f"expected at most {NAME_MAX} characters of name"
        raise FileRefusedError("name-long", message, mapping.lines.get("name", 1))
    description = fields.get("description")
    if description is None:
        lines = (line.strip() for line in body.splitlines())
        words = [line for line in lines if line and not line.startswith("#")]
        description = " ".join(words[:_COPILOT_LINES])[:DESCRIPTION_UNITS]
    elif len(description.encode("utf-16-le", "replace")) > 2 * DESCRIPTION_UNITS:
        message = f"expected at most {DESCRIPTION_UNITS} characters of description"
        raise FileRefusedError("description-too-long", message, mapping.lines["description"])
    return ClientRead(name, description, fields, body)


def _check_types(mapping: ClientMapping) -> None:
    """Refuse a field that is read and is not of its type; null is none but for a hint."""
    for key in ("argument-hint", "allowed-tools", "user-invocable", "disable-model-invocation"):
        value = mapping.fields.get(key)
        is_plain = key in mapping.plain
        if value is None or (key == "argument-hint" and is_plain and value in NULLS):
            continue
        if key in ("user-invocable", "disable-model-invocation"):
            is_right = is_plain and value in _TRUTHS
        elif key == "allowed-tools" and isinstance(value, list):
            is_right = all(isinstance(tool, str) for tool in value)
        else:
            is_right = _is_text(mapping, key)
        if not is_right:
            message = f"`{key}` is of another type than this client reads"
            raise FileRefusedError("field-type", message, mapping.lines[key])


# --- Amp

_AMP = YamlRules(duplicates="refuse", taken=CONTROLS, indents=True)
_AMP_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_FALSE = frozenset({"false", "False", "FALSE", "0", "-0", "+0", "0.0"})


def read_strict(source: ClientSource) -> ClientRead:
    mapping, body = _parts(source, _AMP)
    fields = mapping.fields
    for key in ("name", "description"):
        value = fields.get(key)
        is_nothing = key in mapping.plain and (value in NULLS or value in _FALSE)
        if is_nothing or value in (None, ""):
            line = mapping.lines.get(key, 1)
            raise FileRefusedError(f"{key}-missing", f"no {key}", line)
    if not _is_text(mapping, "name"):
        # Beside other skills it costs the client its whole list.
        raise FileRefusedError("not-text", "`name` is no text in YAML", mapping.lines["name"])
    name = fields["name"]
    if not _AMP_NAME.fullmatch(name) or len(name) > NAME_MAX:
        code = "name-long" if len(name) > NAME_MAX else "name-invalid"
        message = f"expected at most {NAME_MAX} of a-z, 0-9 and single hyphens"
        raise FileRefusedError(code, message, mapping.lines["name"])
    return ClientRead(name, _written(fields), fields, body)


def _written(fields: Mapping[str, Any]) -> str:
    """Return the description; one that is a list or map, as the client hands it over."""
    value = fields["description"]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# --- Zed: serde_yaml, no repair, and a closing line that is sought until the fields can be read

_SERDE = YamlRules(duplicates="refuse-read")
_ZED_NAME = re.compile(r"(?!-)[a-z0-9-]+(?<!-)")
_CLOSING = re.compile(r"(?m)^---\r?$")


def read_serde_strict(source: ClientSource) -> ClientRead:
    start = len(source.data) - len(source.data.lstrip())
    text = source.data[start:].decode("utf-8", "replace").lstrip()
    if not text.startswith("---"):
        code = "bom" if text.startswith("\ufeff---") else "frontmatter-missing"
        raise FileRefusedError(code, "expected `---` first", 1)
    first = FileRefusedError("frontmatter-unclosed", "no closing line `---`", 1)
    for number, closing in enumerate(_CLOSING.finditer(text, text.find("\n") + 1)):
        try:
            mapping = read_as(text[3 : closing.start()].replace("\r\n", "\n").lstrip("\n"), _SERDE)
            name, description = (_strict_text(mapping, key) for key in ("name", "description"))
        except FileRefusedError as refusal:
            first = first if number else refusal
            continue
        if "\ufffd" in text[: closing.start()]:
            raise FileRefusedError("encoding", "not UTF-8", 1)
        if not _ZED_NAME.fullmatch(name) or len(name) > NAME_MAX:
            code = "name-long" if len(name) > NAME_MAX else "name-invalid"
            message = f"expected at most {NAME_MAX} of a-z, 0-9 and hyphens, none at an end"
            raise FileRefusedError(code, message, mapping.lines["name"])
        if not description.strip():
            raise FileRefusedError("description-missing", "no description", 1)
        return ClientRead(name, description, mapping.fields, text[closing.end() :].strip())
    raise first


def _strict_text(mapping: ClientMapping, key: str) -> str:
    if key not in mapping.fields:
        raise FileRefusedError(f"{key}-missing", f"no {key}", 1)
    if not _is_text(mapping, key):
        raise FileRefusedError("not-text", f"`{key}` is no text in YAML", mapping.lines[key])
    return str(mapping.fields[key])
