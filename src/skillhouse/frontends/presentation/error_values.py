"""An error as a JSON value: the code that programs compare, the message, and what to do."""

from __future__ import annotations

import re
from typing import Any

from skillhouse.floor import SkillhouseError

NOT_DONE = "not-done"
"""The code of a verb that did not do its work and raised nothing, such as after the answer no."""
OS_ERROR = "os-error"
_CODE = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def error_value(error: BaseException | None, text: str, *, exit_code: int) -> dict[str, Any]:
    """Return what `--json` prints for an error whose line for people is `text`.

    `code` is stable; `message` and `hint` are for people and may become better.
    """
    message, hint = split_advice(text)
    return {
        "error": {
            "code": error_code(error),
            "message": message or "nothing was done",
            **hint_value(hint),
            "exit_code": exit_code,
        }
    }


def hint_value(text: str) -> dict[str, str | None]:
    """Return what to do, or null, as `hint` and under its name before 0.2, which goes with 0.3."""
    return {"hint": text or None, "mend": text or None}


def error_code(error: BaseException | None) -> str:
    """Return the stable code of an error: its own, or else that of its class.

    >>> from skillhouse.floor import ConfigError
    >>> error_code(ConfigError("unknown key"))
    'config'
    """
    if error is None:
        return NOT_DONE
    own = getattr(error, "code", None)
    if isinstance(own, str) and _CODE.fullmatch(own):
        return own
    if isinstance(error, OSError) and not isinstance(error, SkillhouseError):
        return OS_ERROR
    return class_code(type(error))


def class_code(kind: type[BaseException]) -> str:
    """Return the code of a class of errors: its name in small letters, or that of its base."""
    public = next(one for one in kind.__mro__ if not one.__name__.startswith("_"))
    return _WORDS.sub("-", public.__name__.removesuffix("Error")).lower()


def split_advice(text: str) -> tuple[str, str]:
    """Return the message of an error's line, and what it says to do.

    A line is `message; what to do`. A semicolon in backquotes belongs to a name.

    >>> split_advice("no skill `a; b`; nearest: `ab`")
    ('no skill `a; b`', 'nearest: `ab`')
    """
    quoted = False
    for place, sign in enumerate(text):
        if sign == "`":
            quoted = not quoted
        elif sign == ";" and not quoted and text[place + 1 : place + 2] == " ":
            return text[:place], text[place + 2 :]
    return text, ""
