"""The words of the tools about skills: those of a profile, or ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from skillhouse.floor.regex import regex

DEFAULT_MESSAGES: Mapping[str, str] = {
    "skill_description": (
        "Load the instructions of a skill, which guide through a task step by step, and follow "
        "them. Use it when the task fits the description of a skill."
    ),
    "skill_opening": "Load a skill and do a task that fits it step by step as it says: {names}.",
    "list_follows": "These are the skills:",
    "search_description": "Find skills for a task; gives names and descriptions, best first.",
    "search_opening": "Find skills for a task, best first, with descriptions: {names}.",
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


OPENING_CHARS = len(DEFAULT_MESSAGES["skill_description"])
"""Characters of a description in which it names skills. A client that finds tools by search alone
shows a model their names and as few as 150 characters of each (Qwen Code 0.24)."""
OPENING_NAME = 64
"""Characters of the longest name there, those that the specification allows."""


def opening(messages: Mapping[str, str], tool: str, names: Sequence[str]) -> str:
    """Return the beginning of the description of `skill` or `search`, which names skills.

    Names with signs that could end it or the list are left out and counted. A profile with a
    description of its own means that.

    >>> opening({}, "search", ["pdf", "docx", "a, b"])
    'Find skills for a task, best first, with descriptions: pdf, docx, 1 more.'
    """
    if f"{tool}_description" in messages or not names:
        return render(messages, f"{tool}_description")
    plain = [one for one in names if one.isprintable() and _is_plain(one)]

    def text(count: int) -> str:
        left = len(names) - count
        more = [f"{left:,} more" if count else f"{left:,} skills"] if left else []
        return render(messages, f"{tool}_opening", names=", ".join([*plain[:count], *more]))

    fitting = (n for n in range(len(plain), 0, -1) if len(text(n)) <= OPENING_CHARS)
    return text(next(fitting, 0))


def _is_plain(name: str) -> bool:
    return 0 < len(name) <= OPENING_NAME and not set(name) & set(",.:;`")


def list_room(messages: Mapping[str, str], chars: int | None) -> int | None:
    """Return how many of a description's characters the list may take, whatever it names before."""
    if chars is None:
        return None
    before = len(render(messages, "skill_description")) + len(_list_follows(messages))
    return max(0, chars - before)


def before_list(messages: Mapping[str, str], names: Sequence[str]) -> str:
    return opening(messages, "skill", names) + _list_follows(messages)


def _list_follows(messages: Mapping[str, str]) -> str:
    return f" {render(messages, 'list_follows')}\n"
