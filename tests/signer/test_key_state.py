"""Laws of signer/key_state.py: counters and the clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from sqlite3 import Connection
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.floor.structs import replace
from skillhouse.store import STATE, Store
from skillhouse_signer import STATE_FILE, KeyInfo, KeyKind, SignerError, terms_from
from skillhouse_signer.key_state import (
    TOLERANCE_MS,
    accept_clock,
    count,
    gather_future,
    spent_in_window,
    trusted_now,
)
from tests.signer.places import DAY_MS, NOW_MS, FakeClock

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000
CAP = 100
KEY = KeyInfo(
    id="k",
    name="k",
    kind=KeyKind.ED25519,
    public_key="",
    created_ms=0,
    terms=terms_from((f"message={CAP}/{CAP}",)),
    account="k",
)


@contextmanager
def state() -> Iterator[Connection]:
    with (
        TemporaryDirectory() as base,
        Store(Path(base, STATE_FILE), STATE) as store,
        store.transaction() as connection,
    ):
        yield connection


STEPS = st.lists(st.tuples(st.integers(0, 30 * HOUR_MS), st.integers(0, CAP + 5)), max_size=40)


@given(steps=STEPS)
def test_no_24_hours_see_more_than_the_cap(steps: list[tuple[int, int]]) -> None:
    now_ms, signed = NOW_MS, []
    with state() as connection:
        for passed_ms, amount in steps:
            now_ms += passed_ms
            with suppress(SignerError):
                count(connection, KEY, {"message": amount}, now_ms)
                signed.append((now_ms, amount))
    for start_ms, _ in signed:
        inside = [amount for at, amount in signed if start_ms <= at < start_ms + DAY_MS]
        assert sum(inside) <= CAP


@given(amounts=st.lists(st.integers(0, 2**256 - 1), min_size=1, max_size=5))
def test_great_amounts_are_counted_exactly(amounts: list[int]) -> None:
    free = replace(KEY, terms=terms_from(()))
    with state() as connection:
        for amount in amounts:
            count(connection, free, {"message": amount}, NOW_MS)
        assert spent_in_window(connection, "k", "message", NOW_MS) == sum(amounts)


CLOCK_STEPS = st.lists(
    st.tuples(st.sampled_from(["passes", "is_set", "reboots"]), st.integers(-40, 40)), max_size=30
)


@given(steps=CLOCK_STEPS)
def test_the_time_of_limits_never_goes_back_nor_ahead_of_one_boot(
    steps: list[tuple[str, int]],
) -> None:
    clock, last = FakeClock(), 0
    with state() as connection:
        accept_clock(connection, "s", clock())
        anchor = clock()
        for what, minutes in steps:
            ms = minutes * 60_000
            if what == "reboots":
                clock.reboots(abs(ms))
            elif what == "passes":
                clock.passes(abs(ms))
            else:
                clock.is_set(ms)
            try:
                now_ms = trusted_now(connection, "s", clock())
            except SignerError:
                continue
            assert now_ms >= last
            last = now_ms
            if clock().boot == anchor.boot:
                passed = clock().running_ms - anchor.running_ms
                assert now_ms <= anchor.wall_ms + passed + TOLERANCE_MS


def test_what_was_spent_in_the_future_is_spent_now() -> None:
    with state() as connection:
        count(connection, KEY, {"message": 60}, NOW_MS)
        count(connection, KEY, {"message": 30}, NOW_MS + 5 * DAY_MS)
        gather_future(connection, NOW_MS)
        assert spent_in_window(connection, "k", "message", NOW_MS) == 90
        assert spent_in_window(connection, "k", "message", NOW_MS + 2 * DAY_MS) == 0
