"""Marks at the beginning of prompts, by which a history says what is not the user's own text.

The library of the models is not imported here: a stored history is read before it is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from skillhouse.floor.regex import regex

SUMMARY = "[summary of the conversation before this]"
"""Begins the message that replaces older ones."""
STARTED = "person-"
"""Begins the mark of a prompt with a skill that the user started."""
ATTACHED = "attached-"
"""Begins the mark of skills' texts that were attached again."""
_MARK = regex(rf"\[((?:{STARTED}|{ATTACHED})[0-9a-f]{{16}})\] ")


def marked(mark: str, text: str) -> str:
    return f"[{mark}] {text}"


def mark_of(content: object) -> str:
    """Return the mark of a prompt's content; empty if it has none."""
    match = _MARK.match(content) if isinstance(content, str) else None
    return match[1] if match else ""


def last_prompt(contents: Sequence[object]) -> str:
    """Return the user's last prompt of the prompts' contents; of a started skill, what was typed.

    >>> last_prompt(["hello", "[attached-0123456789abcdef] A skill."])
    'hello'
    """
    for content in reversed(contents):
        if not isinstance(content, str):
            continue
        if content.startswith(SUMMARY):
            return ""
        mark = mark_of(content)
        if not mark:
            return content
        if not mark.startswith(ATTACHED):
            return content.removeprefix(f"[{mark}] ").partition("\n\n")[0]
    return ""


def stored_prompts(messages: Sequence[Mapping[str, Any]]) -> list[object]:
    """Return the contents of a stored history's prompts."""
    parts = [part for one in messages for part in one.get("parts") or () if isinstance(part, dict)]
    return [part.get("content") for part in parts if part.get("part_kind") == "user-prompt"]


def is_cut(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the last answer of a stored history is marked as not whole."""
    states = [one.get("state") for one in messages if one.get("kind") == "response"]
    return states[-1:] == ["interrupted"]
