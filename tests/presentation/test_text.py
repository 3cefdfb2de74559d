"""Text that fits a width, and times that are given as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.presentation.text import fitted, read_time, width_of


@pytest.mark.parametrize("word", ["x//", "////", "a" * 90 + "//", "/" * 5_000, "a/" * 5_000])
def test_slashes_with_nothing_behind_them_are_cut_like_any_text(word: str) -> None:
    assert width_of(fitted(f"at {word} and what follows it, which is long", 30)) <= 30


_FIRST, _LAST = map(datetime.fromisoformat, ("1970-01-02", "9999-12-30"))
_ZONES = st.integers(-14 * 60, 14 * 60).map(lambda one: timezone(timedelta(minutes=one)))


@given(
    when=st.datetimes(_FIRST, _LAST, timezones=_ZONES),
    separator=st.sampled_from("Tt "),
)
def test_what_isoformat_writes_is_read_in_utc(when: datetime, separator: str) -> None:
    text = when.isoformat(sep=separator)
    utc = when.astimezone(UTC).replace(tzinfo=None)
    wanted = utc.isoformat(timespec="milliseconds" if when.microsecond else "seconds")
    assert read_time(text) == wanted
    assert read_time(text.replace("+", " ")) == wanted
    assert read_time(f"{wanted}Z") == read_time(f"{wanted}z") == read_time(wanted) == wanted


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("2026", "2026"),
        ("2026-01", "2026-01"),
        ("2026-01-31", "2026-01-31"),
        ("2026-01-31Z", "2026-01-31"),
        ("2026-01-31 12", "2026-01-31T12"),
        ("2026-01-31T12:00", "2026-01-31T12:00"),
        ("2026-01-31T12:00+02:00", "2026-01-31T10:00"),
        ("2026-01-01T00:30:00-00:00", "2026-01-01T00:30:00"),
        ("2026-01-01T00:30:00.5+01:00", "2025-12-31T23:30:00.5"),
        ("2026-01-31T12:00:00.123456789Z", "2026-01-31T12:00:00.123"),
    ],
)
def test_the_beginning_of_a_time_keeps_its_parts(text: str, read: str) -> None:
    assert read_time(text) == read


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "7d",
        "2026-13",
        "2026-02-30",
        "0000",
        "2026-1-1",
        "2026-01T12",
        "2026-01-31T24:01",
        "2026-01-31T12:00:60",
        "2026-01-31T12+02:00",
        "2026-01-31+02:00",
        "2026-01-31T12:00+24:00",
        "2026-01-31T12:00+02:60",
        "2026-01-31T12:00:00.",
        "0001-01-01T00:00+01:00",
        "9999-12-31T23:30-01:00",
        "2026-01-31T12:00:00Z ",
        "\u0662\u0660\u0662\u0666",
        "x" * 5_000,
    ],
)
def test_a_text_that_is_no_time_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match=r"^expected a time such as 2026-01-31, ") as caught:
        read_time(text)
    assert len(str(caught.value)) < 250
