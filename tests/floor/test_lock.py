"""Tests of values that are made once, of floor/lock.py."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from skillhouse.floor.lock import Lazy


def test_of_many_threads_one_makes_the_value_and_all_get_it() -> None:
    made: list[object] = []
    together = Barrier(8)

    def make() -> object:
        made.append(object())
        return made[-1]

    part = Lazy(make)

    def get(_: int) -> object:
        together.wait()
        return part.get()

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(get, range(8))) == {made[0]}
    assert len(made) == 1


def test_what_could_not_be_made_is_tried_again() -> None:
    answers = iter([None, "made"])

    def make() -> str:
        if (answer := next(answers)) is None:
            raise OSError("not yet")
        return answer

    part = Lazy(make)
    with pytest.raises(OSError, match="not yet"):
        part.get()
    assert not part.made
    assert (part.get(), part.made) == ("made", True)


def test_a_value_that_is_put_there_is_not_made() -> None:
    part: Lazy[str] = Lazy(lambda: pytest.fail("it is made"))
    part.put("given")
    assert (part.made, part.get()) == (True, "given")
