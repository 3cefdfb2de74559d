"""Untrusted text made safe to show and fitted into columns."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from skillhouse.floor.errors import first_of
from skillhouse.floor.regex import regex
from skillhouse.skill import is_demanded


def shown(text: str) -> str:
    """Return untrusted text so that a terminal only shows it: controls and hidden ones as escapes.

    Joiners stay where emoji and the spelling of a script have them.

    >>> shown("a\\x1b[31mb\\u202ec")
    'a\\\\x1b[31mb\\\\u202ec'
    """
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or (character > "\u2000" and is_demanded(text, at))
        else character.encode("unicode_escape").decode()
        for at, character in enumerate(text)
    )


def one_line(text: str) -> str:
    """Return text with runs of white space folded to one blank, safe to show."""
    return shown(" ".join(text.split()))


def counted(number: int, noun: str, nouns: str = "") -> str:
    """Return a number with its noun, or with `nouns` for several.

    >>> counted(1, "skill"), counted(2, "skill"), counted(2, "entry", "entries")
    ('1 skill', '2 skills', '2 entries')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {nouns or f'{noun}s'}"


def some_names(names: Sequence[str], most: int) -> str:
    """Return the first of many names, safe to show, and how many there are besides.

    >>> some_names(["a", "b", "c"], 3), some_names(["a", "b", "c"], 2)
    ('a, b, c', 'a, b and 1 more')
    """
    return first_of([*map(shown, names[:most]), *names[most:]], most)


def moment(seconds: float | None) -> str:
    """Return a time since 1970 as RFC 3339; nothing for none.

    >>> moment(0.5), moment(None)
    ('1970-01-01T00:00:00Z', '')
    """
    if seconds is None:
        return ""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


TIME_FORMS = "a time such as 2026-01-31, 2026-01-31T12:00 or 2026-01-31T12:00:00.5+02:00"
_TIME = regex(
    r"(\d{4}(?:-\d\d(?:-\d\d(?:[Tt ]\d\d(?::\d\d(?::\d\d(?:\.\d+)?)?)?)?)?)?)"
    r"(?:[Zz]|([-+ ])(\d\d):(\d\d))?"
)
_WHOLE = "0001-01-01T00:00:00.000"


def read_time(text: str) -> str:
    """Return a time of RFC 3339, or the beginning of a UTC time, in UTC as records have it.

    It has the parts that were given and no `Z`, so that it means all that begins so; of a
    fraction it has milliseconds. A `+` that came as a blank, as in a query, is one too.

    >>> read_time("2026-01"), read_time("2026-01-31T01:30:00.123456+02:00")
    ('2026-01', '2026-01-30T23:30:00.123')

    Raises:
        ValueError: it is none; the message says what is.
    """
    match = _TIME.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        given, sign, hours, minutes = match.groups()
        given = given[: len(_WHOLE)]
        when = datetime.fromisoformat(given + _WHOLE[len(given) :])
        if sign:
            if len(given) < len("2026-01-31T12:00") or int(hours) > 23 or int(minutes) > 59:
                raise ValueError
            offset = timedelta(hours=int(hours), minutes=int(minutes))
            when = when + offset if sign == "-" else when - offset
    except (ValueError, OverflowError):
        raise ValueError(f"expected {TIME_FORMS}, got `{one_line(text[:80])}`") from None
    return when.isoformat(timespec="milliseconds")[: len(given)]


_JOINERS = "\u200b\u200c\u200d"
"""What `shown` lets through between characters, and takes no column."""


def width_of(text: str) -> int:
    """Return the columns a text takes; Chinese, Japanese and Korean take two a character."""
    if text.isascii():
        return len(text)
    return sum(
        0
        if unicodedata.combining(c) or c in _JOINERS
        else 2
        if unicodedata.east_asian_width(c) in "WF"
        else 1
        for c in text
    )


def cut(text: str, columns: int) -> str:
    """Return a text that fits, its end marked with an ellipsis if something was cut."""
    if width_of(text) <= columns:
        return text
    if text.isascii():
        return text[: max(columns - 1, 0)].rstrip() + "…"
    kept = ""
    used = 0
    for character in text:
        used += width_of(character)
        if used > columns - 1:
            break
        kept += character
    return kept.rstrip().rstrip(_JOINERS) + "…"


def cut_middle(text: str, columns: int) -> str:
    """Return a text that fits, both of its ends kept: of a path both say most.

    >>> cut_middle("~/src/some-project/.agents/skills/pdf", 20)
    '~/src/som…skills/pdf'
    """
    if width_of(text) <= columns:
        return text
    tail = columns // 2
    kept = ""
    used = 0
    for character in reversed(text):
        used += width_of(character)
        if used > tail:
            break
        kept = character + kept
    head = cut(text, columns - width_of(kept))
    return head + kept


_DIGEST_LEAST = 40
"""Digits of a digest; most texts have no word of so many signs, which is seen sooner."""
_DIGEST = regex(r"\b([0-9a-f]{8})[0-9a-f]{32,}\b")


def fitted(text: str, columns: int) -> str:
    """Return a text that fits: digests are cut first, then paths lose their beginnings.

    >>> fitted("install: pdf, at /home/me/.agents/skills/pdf", 30)
    'install: pdf, at …/skills/pdf'
    """
    if width_of(text) <= columns:
        return text
    if max(map(len, text.split()), default=0) >= _DIGEST_LEAST:
        text = _DIGEST.sub(r"\1…", text)
    if text.count("/") < 2:
        # Most texts have no path.
        return cut(text, columns)
    over = width_of(text) - columns
    words = text.split(" ")
    # The longest first: it has most that does not matter.
    for place in sorted(range(len(words)), key=lambda at: len(words[at]), reverse=True):
        parts = words[place].split("/")
        if over <= 0 or not 3 <= len(parts) <= PARTS_MAX or "://" in words[place]:
            continue
        kept = [f"…/{'/'.join(parts[first:])}" for first in range(1, len(parts)) if parts[first]]
        if not kept:
            # Nothing is behind the slashes.
            continue
        before = width_of(words[place])
        wanted = before - over
        shorter = next((word for word in kept if width_of(word) <= wanted), kept[-1])
        if width_of(shorter) < before:
            words[place] = shorter
            over -= before - width_of(shorter)
    return cut(" ".join(words), columns)


PARTS_MAX = 100
"""Names of a path whose beginning can be left out."""


def is_copied(word: str) -> bool:
    """Whether a word is a path, an address or a digest, of a length that people copy.

    >>> is_copied("~/a"), is_copied("sha256:00"), is_copied("word")
    (True, True, False)
    """
    return len(word) <= COPIED_MAX and ("/" in word or ":" in word[:-1])


COPIED_MAX = 300
"""Characters of a word that is not broken over lines."""


def wrapped(
    text: str, columns: int, *, whole: Callable[[str], bool] = lambda _: False
) -> list[str]:
    """Return the lines of a text, broken at blanks, or anywhere where a word does not fit.

    The lines of a broken line keep its indentation. A word that is `whole` may be longer.
    """
    lines: list[str] = []
    for line in text.split("\n"):
        words = line.lstrip(" ")
        margin = " " * min(len(line) - len(words), columns // 2)
        lines += [margin + piece for piece in _broken(words, columns - len(margin), whole)]
    return lines


def _broken(line: str, columns: int, whole: Callable[[str], bool]) -> list[str]:
    lines: list[str] = []
    current = ""
    for word in line.split(" "):
        joined = f"{current} {word}" if current else word
        if width_of(joined) <= columns:
            current = joined
            continue
        if current:
            lines.append(current)
        while width_of(word) > columns and not whole(word):
            piece = word[: _fitting(word, columns)]
            lines.append(piece)
            word = word[len(piece) :]
        current = word
    return [*lines, current]


def _fitting(word: str, columns: int) -> int:
    used = 0
    for count, character in enumerate(word):
        used += width_of(character)
        if used > columns:
            return max(count, 1)
    return len(word)
