"""The words of the tools about skills: those of a profile, or ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skillhouse.floor.regex import regex

DEFAULT_MESSAGES: Mapping[str, str] = {
    "skill_description": (
        "Load the instructions of a skill, which guide through a task step by step, and follow "
        "them. Use it when the task fits the description of a skill."
    ),
    "list_follows": "These are the skills:",
    "search_description": "Find skills for a task; gives names and descriptions, best first.",
    "asset_description": (
        "Read a text file of a skill, such as a template or a specification that its "
        "instructions name."
    ),
    "script_path_description": (
        "Get the absolute path of a script of a skill, to run it with another tool."
    ),
    "assets_description": "List the files of a skill that can be read or run.",
    "none": "none",
    "search_empty": "no skill fits{hint}",
    "search_weak": "weak matches, none of which is sure to fit; the nearest:",
    "search_none": "nothing fits well{hint}; the nearest:",
    "search_hint": "; try other words, or English",
    "search_reason": " ({reason}{alike})",
    "search_alike": "; also: {ids}",
    "search_partial": (
        "(found by names and descriptions alone: the index of the skills' texts is being built; "
        "search again in a moment for all)"
    ),
    "skill_unknown": "no skill `{name}`; there are: {available}",
    "skill_ambiguous": "{reason}",
    "skill_denied": "",
    "skill_unreadable": "{reason}; it may have been removed since",
    "skill_invalid": "the file of skill `{name}` cannot be used: {reason}",
    "unknown_title": "Skill not found",
    "denied_title": "Access denied",
    "pending_title": "Waiting for approval",
    "failed_title": "Skill cannot be loaded",
    "loaded_title": "Loaded skill: {name}",
    "skill_held": (
        "skill `{name}` is loaded already, and has not changed: its instructions stand above in "
        "this conversation"
    ),
    "question_title": "",
    "asset_missing": "skill `{name}` has no file `{path}`; list its files first",
    "asset_not_a_file": "`{path}` of skill `{name}` is not a regular file",
    "asset_not_allowed": "`{path}`: files of a skill lie in {directories}, named without `..`",
    "asset_escape": "`{path}` is a link that leads out of skill `{name}`",
    "asset_not_text": "`{path}` is not a text file: {reason}",
    "asset_too_large": "`{path}` is larger than {limit} bytes",
    "asset_unreadable": "`{path}` of skill `{name}` cannot be read",
    "script_missing": "skill `{name}` has no script `{script}`; list its files first",
    "script_name": "expected the name of a file in scripts/, got `{script}`",
}
"""By what is said; a profile's `messages` replace them. An empty `skill_denied` gives a denied
skill the answer of an unknown one, and an empty `question_title` leaves it to the gate."""

_PLACE = regex(r"\{(\w+)\}")


def render(messages: Mapping[str, str], key: str, **values: Any) -> str:
    """Return the words for `key` with the values in their places; other braces stay as they are.

    >>> render({}, "loaded_title", name="{pdf}")
    'Loaded skill: {pdf}'
    """
    words = messages.get(key, DEFAULT_MESSAGES[key])
    return _PLACE.sub(lambda found: str(values.get(found[1], found[0])), words)


def list_room(messages: Mapping[str, str], chars: int | None) -> int | None:
    return None if chars is None else max(0, chars - len(before_list(messages)))


def before_list(messages: Mapping[str, str]) -> str:
    return f"{render(messages, 'skill_description')} {render(messages, 'list_follows')}\n"
