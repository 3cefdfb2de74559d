"""Tests of scripts/breaking_plugin.py: which failure of a test counts as proof."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from scripts.breaking_plugin import failed_assertion

from skillhouse.floor import digest

HERE = Path(__file__).parent


def wrong() -> None:
    assert digest(b"") == "none"


def raises_nothing() -> None:
    with pytest.raises(KeyError):
        digest(b"")


def crashes() -> None:
    digest("text")  # type: ignore[arg-type]


def in_a_group() -> None:
    parts: list[Exception] = []
    for function in (crashes, wrong):
        try:
            function()
        except (TypeError, AssertionError) as error:
            parts.append(error)
    raise ExceptionGroup("two tasks", parts)


def of_another_file() -> None:
    exec(compile("assert 1 == 2, 'of the package'", "/elsewhere/package.py", "exec"))


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (wrong, "assert 'sha256:"),
        (raises_nothing, "DID NOT RAISE"),
        (in_a_group, "assert 'sha256:"),
        (crashes, ""),
        (of_another_file, ""),
    ],
)
def test_only_a_failed_assertion_of_a_test_is_proof(
    function: Callable[[], None], found: str
) -> None:
    with pytest.raises((Exception, pytest.fail.Exception)) as caught:
        function()
    said = failed_assertion(caught.value, HERE)
    assert said.startswith(found)
    assert bool(said) is bool(found)
