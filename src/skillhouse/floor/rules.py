"""The parts of rules: the effect, and the pattern with `*` and `?`."""

from __future__ import annotations

import enum
import itertools
import re
from collections.abc import Iterable

from msgspec import Struct


class Effect(enum.StrEnum):
    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


STRICTNESS = (Effect.ALLOW, Effect.ASK, Effect.DENY)
"""The effects, mildest first."""


def strictest(effects: Iterable[Effect]) -> Effect:
    """Return the strictest of some effects; allow when there is none."""
    return max(effects, key=STRICTNESS.index, default=Effect.ALLOW)


ONE_TIME = frozenset({"shell", "exec-once", "script"})
"""Actions that a person allows once, each time: no rule and no standing approval allows one.
`shell` is a line that only a shell can run; `exec-once` a command that a rule with a wildcard
covers in words but not in meaning; `script` the bytes of a script that a rule lets run."""


class Dialect(Struct, frozen=True, kw_only=True):
    """What designs mean by a pattern, where they differ; the defaults are ours."""

    case_sensitive: bool = True
    slash_stops: bool = False
    """Whether `*` and `?` stand for no `/`; two stars are one."""
    optional_tail: bool = False
    """Whether `git *` also matches `git`."""


OURS = Dialect()


def matches_in(dialect: Dialect, pattern: str, text: str) -> bool:
    """Whether `pattern` matches the whole of `text` in a dialect.

    >>> matches_in(Dialect(slash_stops=True), "a/*", "a/b/c")
    False
    >>> matches_in(Dialect(optional_tail=True, case_sensitive=False), "Git *", "git")
    True
    """
    if dialect == OURS:
        return matches(pattern, text)
    if not dialect.case_sensitive:
        pattern, text = pattern.casefold(), text.casefold()
    forms = [pattern]
    if dialect.optional_tail and pattern.endswith(" *"):
        forms.append(pattern[:-2])
    if not dialect.slash_stops:
        return any(matches(form, text) for form in forms)
    parts = text.split("/")
    return any(
        form.count("/") == len(parts) - 1 and all(map(matches, form.split("/"), parts))
        for form in forms
    )


_TRIES_MAX = 1_024
"""Texts that `covers` tries at most."""


def matches(pattern: str, text: str) -> bool:
    """Whether `pattern` matches the whole of `text`; case counts.

    `*` is any run of characters, also none and also with `/` or newlines; `?` is exactly one
    character; every other character is itself (vectors/README.md, decisions rule 1). Each part
    between two stars takes its first place after the part before, which is never wrong, so
    neither 10,000 stars nor one long part can keep us busy.

    >>> matches("git *", "git status"), matches("git *", "git")
    (True, False)
    """
    first = pattern.find("*")
    if first < 0:
        return _fits(pattern, text)
    if first == len(pattern) - 1 and "?" not in pattern:
        # Most rules have this form.
        return text.startswith(pattern[:-1])
    head, *parts, tail = pattern.split("*")
    at, end = len(head), len(text) - len(tail)
    if at > end or not _fits(head, text[:at]) or not _fits(tail, text[end:]):
        return False
    for part in parts:
        place = _find(part, text, at, end)
        if place < 0:
            return False
        at = place + len(part)
    return True


def _fits(part: str, text: str) -> bool:
    """Whether `part`, which has no star, matches the whole of `text`."""
    return part == text or (
        "?" in part
        and len(part) == len(text)
        and all(wanted in ("?", character) for wanted, character in zip(part, text, strict=True))
    )


def _find(part: str, text: str, at: int, end: int) -> int:
    """Return the first place of `part` in `text[at:end]`, or -1."""
    if "?" not in part:
        return text.find(part, at, end)
    match = re.compile(".".join(map(re.escape, part.split("?"))), re.DOTALL).search(text, at, end)
    return -1 if match is None else match.start()


def covers(wide: str, narrow: str) -> bool:
    """Whether `wide` matches every text that `narrow` matches.

    A True is sure; a False may only mean that there was too much to try.

    >>> covers("git *", "git log *"), covers("git *", "git*")
    (True, False)
    """
    # A character that is in neither pattern replaces each wildcard of `narrow`, so that only a
    # wildcard of `wide` can match it.
    sign = next((c for c in "\ue000\ue001\ue002" if c not in wide + narrow), None)
    if wide == narrow or sign is None:
        return wide == narrow
    head, *parts = narrow.replace("?", sign).split("*")
    # Without `?` in `wide` a star takes the sign, and then any run. With some, runs of other
    # lengths may fall to them, so each length is tried until a star must take part.
    lengths = range(wide.count("?") + 2) if "?" in wide else (1,)
    if len(lengths) ** len(parts) > _TRIES_MAX:
        return False
    return all(
        matches(wide, head + "".join(sign * n + part for n, part in zip(tried, parts, strict=True)))
        for tried in itertools.product(lengths, repeat=len(parts))
    )
