"""Times and ids of records."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from functools import lru_cache

DAY_MILLISECONDS = 86_400_000
MAX_MILLISECONDS = 253_402_300_799_999
"""The last moment of the year 9999, beyond which a time has no text of this form."""

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = tuple(one + two for one in _ALPHABET for two in _ALPHABET)
_VALUES = {character: value for value, character in enumerate(_ALPHABET)}
_FOLLOWING = dict(itertools.pairwise(_ALPHABET))
_RANDOM_BITS = 80


def ulid(milliseconds: int, random: bytes, *, after: str = "") -> str:
    """Return a ULID of this moment, greater than the ULID `after`.

    Where the clock stands still or goes back, it is the one that follows `after`, as the ULID
    specification says under "Monotonicity", so that ids sort as the lines of the log do.

    Raises:
        ValueError: a moment before 1970 or after 9999.

    >>> ulid(1469918176385, bytes(10))
    '01ARYZ6S410000000000000000'
    >>> ulid(0, bytes(10), after="01ARYZ6S410000000000000000")
    '01ARYZ6S410000000000000001'
    """
    begin = _begin(milliseconds)
    if begin > after[:10]:
        return begin + _encoded(int.from_bytes(random[:10]))
    # A text comparison is enough, as the alphabet is in the order of its values.
    following = _FOLLOWING.get(after[-1])
    if following is not None:
        return after[:-1] + following
    value = 0
    for character in after:
        value = value << 5 | _VALUES[character]
    value += 1
    return _begin_of(value >> _RANDOM_BITS) + _encoded(value & (1 << _RANDOM_BITS) - 1)


@lru_cache(maxsize=16)
def _begin(milliseconds: int) -> str:
    return _begin_of(_checked(milliseconds))


def _begin_of(milliseconds: int) -> str:
    return "".join(_PAIRS[milliseconds >> shift & 1023] for shift in (40, 30, 20, 10, 0))


def _encoded(value: int) -> str:
    return "".join([_PAIRS[value >> shift & 1023] for shift in (70, 60, 50, 40, 30, 20, 10, 0)])


def timestamp(milliseconds: int) -> str:
    """Return milliseconds since 1970 as UTC text.

    Raises:
        ValueError: a moment before 1970 or after 9999.

    >>> timestamp(1469918176385)
    '2016-07-30T22:36:16.385Z'
    """
    return f"{_second(_checked(milliseconds) // 1000)}.{milliseconds % 1000:03}Z"


def day_of(milliseconds: int) -> str:
    """Return the UTC day of a moment.

    >>> day_of(1469918176385)
    '2016-07-30'
    """
    return timestamp(milliseconds)[:10]


def day_number(day: str) -> int:
    """Return the days from 1970 to a day.

    Raises:
        ValueError: the text is no day.

    >>> day_number("1970-02-01")
    31
    """
    return (datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC) - _EPOCH).days


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=16)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def _checked(milliseconds: int) -> int:
    if 0 <= milliseconds <= MAX_MILLISECONDS:
        return milliseconds
    raise ValueError(f"no time of a record: {milliseconds}")
