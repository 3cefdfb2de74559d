"""Unforeseen faults cost one of many, and never pass for an answer."""

from __future__ import annotations

import asyncio
import logging

import pytest

from skillhouse.floor import ConfigError, InternalFaultError, SkillhouseError, as_error, isolated
from skillhouse.floor.faults import SystemRefusalError, fault_place


def raise_in_our_code() -> None:
    # It is given no text, which is what it does not look for.
    as_error.__globals__["package_path"](None)


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(3), asyncio.CancelledError(), BrokenPipeError(32, "")]
)
def test_what_ends_a_program_passes_through(error: BaseException) -> None:
    with pytest.raises(type(error)), isolated():
        raise error


def test_what_fails_while_an_interrupt_unwinds_does_not_hide_it() -> None:
    def unwinds() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise ValueError("what was open could not be closed")

    with pytest.raises(KeyboardInterrupt), isolated():
        unwinds()


def test_what_is_about_all_of_them_passes_through() -> None:
    with pytest.raises(LookupError), isolated(passing=(LookupError,)):
        raise KeyError("a")


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (ConfigError("unknown key"), ConfigError, "unknown key"),
        (FileNotFoundError(2, "No such file", "a"), SystemRefusalError, "no such file: `a`"),
        (FileNotFoundError(2, "No such file", b"\xff"), SystemRefusalError, "`\udcff`"),
        (OSError(), SystemRefusalError, "oserror"),
        (
            RecursionError("deep"),
            InternalFaultError,
            "an unexpected fault of skillhouse, RecursionError",
        ),
        (MemoryError(), InternalFaultError, "MemoryError"),
        (ExceptionGroup("g", [ValueError("a")]), InternalFaultError, "ExceptionGroup"),
    ],
)
def test_any_exception_becomes_an_error_of_ours(
    error: Exception, kind: type[SkillhouseError], text: str
) -> None:
    with isolated() as failed:
        raise error
    assert type(failed[0]) is kind
    assert text in str(failed[0])


def test_a_fault_names_our_line_and_its_report_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR), isolated() as failed:
        raise_in_our_code()
    (fault,) = failed
    assert isinstance(fault, InternalFaultError)
    assert "TypeError at floor/faults.py:" in str(fault)
    assert f"report `{fault.report}`" in str(fault)
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.__dict__["fault"] is fault
    # What is caught again on its way is the same fault.
    assert as_error(fault) is fault
    assert len(caplog.records) == 1


def test_a_fault_without_a_traceback_has_no_place() -> None:
    assert fault_place(None) == ""
    assert " at " not in str(InternalFaultError(ValueError("a")))
