"""Reads a SKILL.md as GitHub Copilot CLI, Amp and Zed do, with YAML 1.2's core schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from skillhouse.skill.client_reads import NULLS, ClientRead, ClientSource
from skillhouse.skill.client_yaml import CONTROLS, ClientMapping, YamlRules, read_as
from skillhouse.skill.source import NAME_MAX, FileRefusedError

_FENCES = re.compile(
    r"---[ \t]*\r?\n(?P<block>(?:.*?\n)??)---[ \t]*(?:\r?\n(?P<body>.*)|\Z)", re.DOTALL
)
_CORE_NUMBER = re.compile(
    r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
    r"|[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_TRUTHS = frozenset({"true", "True", "TRUE", "false", "False", "FALSE"})


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
