"""Errors: the code that programs compare, the message, and what to do."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any

from msgspec import UNSET, UnsetType

from skillhouse.answers.findings import DiagnosticAnswer
from skillhouse.answers.json_form import HintAnswer, JsonAnswer, hinted
from skillhouse.floor import SkillhouseError

NOT_DONE = "not-done"
"""The code of a verb that did not do its work and raised nothing, such as after the answer no."""
OS_ERROR = "os-error"
_CODE = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


PROBLEM_TYPE = "urn:skillhouse:problem:"


class ErrorAnswer(JsonAnswer, frozen=True, kw_only=True):
    """`code` is stable; `message` and `hint` are for people and may become better."""

    flat_members = ("advice",)
    code: str
    message: str
    advice: HintAnswer
    exit_code: int


class FailureAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What `--json` prints where a verb did not do its work."""

    error: ErrorAnswer


class ProblemAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A problem of the API (RFC 9457), whose last members are there where its `code` has them."""

    flat_members = ("advice",)
    type: str
    title: str
    status: int
    detail: str
    code: str
    advice: HintAnswer
    report: str | UnsetType = UNSET
    candidates: list[str] | UnsetType = UNSET
    scope: str | UnsetType = UNSET
    diagnostics: list[DiagnosticAnswer] | UnsetType = UNSET


class RefusalAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Why a skill of several was not changed."""

    code: str
    message: str


class UnservedAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Why an address outside the API gives nothing; `nearest` are similar references."""

    code: str
    message: str
    nearest: tuple[str, ...] | UnsetType


class UnservedErrorAnswer(JsonAnswer, frozen=True, kw_only=True):
    error: UnservedAnswer


def error_answer(error: BaseException | None, text: str, *, exit_code: int) -> FailureAnswer:
    """Return what `--json` prints for an error whose line for people is `text`."""
    message, hint = split_advice(text)
    return FailureAnswer(
        error=ErrorAnswer(
            code=error_code(error),
            message=message or "nothing was done",
            advice=hinted(hint),
            exit_code=exit_code,
        )
    )


def problem_answer(
    status: int, code: str, detail: str, *, hint: str | None = None, **more: Any
) -> ProblemAnswer:
    """Return a problem; what to do about it is apart from what is wrong, without `hint` too.

    >>> problem_answer(404, "unknown-skill", "no skill `a`; nearest: `b`").advice.hint
    'nearest: `b`'
    """
    detail, hint = split_advice(detail) if hint is None else (detail, hint)
    return ProblemAnswer(
        type=PROBLEM_TYPE + code,
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        code=code,
        advice=hinted(hint),
        **more,
    )


def unserved(
    code: str, message: str, nearest: tuple[str, ...] | UnsetType = ()
) -> UnservedErrorAnswer:
    return UnservedErrorAnswer(error=UnservedAnswer(code=code, message=message, nearest=nearest))


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
