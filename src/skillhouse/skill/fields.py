"""Stage 4: the mapping of a frontmatter to a name and a description, with all findings at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from skillhouse.floor.regex import regex
from skillhouse.skill.hidden import find_hidden
from skillhouse.skill.model import DEFAULT_POLICY, ParsePolicy
from skillhouse.skill.source import Finding, name_findings
from skillhouse.skill.yaml_text import key_line

DESCRIPTION_MAX = 1_024
"""Code points of a description (specification, `description`)."""
COMPATIBILITY_MAX = 500
"""Code points of `compatibility` (specification)."""

_BRACKETED = regex(r"\([^()]*\)")


class _Problem(NamedTuple):
    """A finding about a field, before the field has a line."""

    field: str
    code: str
    message: str
    fatal: bool = False
    hint: str = ""


def read_fields(
    fields: Mapping[str, Any],
    directory: str,
    block: str,
    findings: list[Finding],
    policy: ParsePolicy = DEFAULT_POLICY,
    body: Callable[[], str] = str,
) -> tuple[str, str]:
    """Return name and description; what is wrong with any field is added to `findings`.

    A fatal finding means that the skill cannot be used; the texts are then as good as they get.
    `body` gives the body, for a description that is missing; asked only then.
    """
    problems: list[_Problem] = []
    cased = _in_other_case(fields, policy, problems)
    name = _name(cased.get("name"), directory, policy, problems)
    description = _description(cased.get("description"), policy, body, problems)
    for key in _OPTIONAL:
        if key not in fields or (key == "allowed-tools" and policy.tools_form == "free"):
            continue
        code, fault = _OPTIONAL[key]
        if message := fault(fields[key]):
            problems.append(_Problem(key, code, message))
    for field, code, message, fatal, hint in problems:
        # What is not there is reported at the opening line.
        line = (key_line(block, field) or 1) if field in fields else 1
        findings.append(Finding(code, message, line, fatal, field, hint))
    return name, description


def _in_other_case(
    fields: Mapping[str, Any], policy: ParsePolicy, problems: list[_Problem]
) -> Mapping[str, Any]:
    """Return name and description, of keys in another case too where other clients load them.

    They would take the body's first line for the description of such a skill.
    """
    found = dict(fields)
    for wanted in ("name", "description"):
        if wanted in fields or policy.missing_description != "prose":
            continue
        for key in fields:
            if key.casefold() == wanted and wanted not in found:
                found[wanted] = fields[key]
                message = f"`{key[:NAME_SHOWN]}`: expected `{wanted}`, in small letters"
                problems.append(_Problem(key, "key-case", message))
    return found


NAME_SHOWN = 64
"""Characters of a key that a message has."""


def _name(value: Any, directory: str, policy: ParsePolicy, problems: list[_Problem]) -> str:
    if not isinstance(value, str) or not value:
        fatal = policy.missing_name == "skip"
        message = "no `name`" if fatal else f"no `name`; the directory's is used: {directory!r}"
        problems.append(_Problem("name", "name-missing", message, fatal))
        return directory
    name = value
    if policy.replaced_characters:
        name = value.translate(dict.fromkeys(map(ord, policy.replaced_characters), "-"))
    name_faults = name_findings(name, directory)
    if not name_faults:
        return name
    for fault in name_faults:
        is_mismatch = fault.code == "name-mismatch"
        treatment = policy.name_mismatch if is_mismatch else policy.bad_name
        if treatment != "free":
            is_fatal = treatment == "skip"
            problems.append(_Problem("name", fault.code, fault.message, is_fatal, fault.hint))
    if find_hidden(value) is not None:
        message = f"`name`: a hidden character in {value!r}"
        problems.append(_Problem("name", "hidden-characters", message, fatal=True))
    return directory if policy.name_from == "directory" else name


def _description(
    value: Any, policy: ParsePolicy, body: Callable[[], str], problems: list[_Problem]
) -> str:
    if value is not None and not isinstance(value, str):
        message = f"`description`: expected text, got {_kind(value)}"
        problems.append(_Problem("description", "description-type", message, fatal=True))
        return ""
    text = (value or "").strip() or _missing_description(policy, body, problems)
    if len(text) > DESCRIPTION_MAX and policy.long_description == "cut":
        text = text[:DESCRIPTION_MAX]
    elif len(text) > DESCRIPTION_MAX:
        message = f"`description`: expected at most {DESCRIPTION_MAX} characters, got {len(text)}"
        fatal = policy.long_description == "skip"
        problems.append(_Problem("description", "description-too-long", message, fatal))
    if not text.isascii() and find_hidden(text) is not None:
        message = "`description`: a hidden character in it"
        problems.append(_Problem("description", "hidden-characters", message, fatal=True))
    return text


def _missing_description(
    policy: ParsePolicy, body: Callable[[], str], problems: list[_Problem]
) -> str:
    text = ""
    if policy.missing_description == "body":
        text = next((line.strip() for line in body().split("\n") if line.strip()), "")
    elif policy.missing_description == "prose":
        text = _first_prose(body())
    is_fatal = policy.missing_description == "skip" or (
        # There is nothing by which a model could choose it, nor anything to load.
        policy.missing_description == "prose" and not text
    )
    message = "no `description`"
    if not is_fatal:
        message += "; the first line of the body is used" if text else "; it is listed without"
    problems.append(_Problem("description", "description-missing", message, is_fatal))
    return text


PROSE_MAX = 200
"""Characters of the body's first line that stand for a description."""
_MARKS = regex(r"(?:#+|>|[-*+]|\d+\.)[ \t]+")


def _first_prose(body: str) -> str:
    """Return the first line of a body with a letter or digit, without the signs before it.

    >>> _first_prose("---\\n\\n# Notes\\n")
    'Notes'
    """
    for line in body.split("\n"):
        text = _MARKS.sub("", line.strip(), count=1)
        if any(character.isalnum() for character in text):
            return text if len(text) <= PROSE_MAX else f"{text[: PROSE_MAX - 1].rstrip()}…"
    return ""


def _metadata_fault(value: Any) -> str | None:
    if not isinstance(value, dict):
        return f"`metadata`: expected a map of text to text, got {_kind(value)}"
    # A loop: a generator costs half as much as all other checks of a frontmatter.
    for key, item in value.items():
        if not isinstance(item, str):
            return f"`metadata`: expected text for {key!r}, got {_kind(item)}"
    return None


def _tools_fault(value: Any) -> str | None:
    if isinstance(value, str) and ("," not in value or "," not in _BRACKETED.sub("", value)):
        return None
    got = "commas between them" if isinstance(value, str) else _kind(value)
    return f"`allowed-tools`: expected text with spaces between the tools, got {got}"


def _compatibility_fault(value: Any) -> str | None:
    # A block scalar ends in a newline that is not part of the text as written.
    if isinstance(value, str) and 0 < len(value.rstrip("\n")) <= COMPATIBILITY_MAX:
        return None
    got = f"{len(value)} characters" if isinstance(value, str) else _kind(value)
    return f"`compatibility`: expected text of 1-{COMPATIBILITY_MAX} characters, got {got}"


def _kind(value: Any) -> str:
    return "a list" if isinstance(value, list) else "a map" if isinstance(value, dict) else "text"


_OPTIONAL: Mapping[str, tuple[str, Callable[[Any], str | None]]] = {
    "metadata": ("metadata-type", _metadata_fault),
    "allowed-tools": ("allowed-tools-form", _tools_fault),
    "compatibility": ("compatibility-length", _compatibility_fault),
}
