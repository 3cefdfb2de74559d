"""Unforeseen faults: each gets a number, goes to the log once, and costs one thing alone.

A loop over skills, sources, clients or repositories gives each of them an `isolated` block, or
hands what it catches to `as_error`: what goes wrong with one is said with its name, and the rest
goes on. What was to be decided is not decided then: the caller refuses the skill, and never takes a
fault for an allow.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path, PurePath
from traceback import walk_tb
from types import TracebackType

from skillhouse.floor.errors import Diagnostic, Severity, SkillhouseError

logger = logging.getLogger(__name__)

_PACKAGE = "skillhouse"


class InternalFaultError(SkillhouseError):
    """Something here went wrong that no code foresaw; `__cause__` is what was raised."""

    code = "internal-fault"

    def __init__(self, error: BaseException) -> None:
        self.report = os.urandom(4).hex()
        """What the fault is called in the log, and in the name of its report."""
        place = fault_place(error.__traceback__)
        where = f" at {place}" if place else ""
        super().__init__(
            f"an unexpected fault of skillhouse, {type(error).__name__}{where}: "
            f"report `{self.report}`"
        )
        self.__cause__ = error


class SystemRefusalError(SkillhouseError):
    """The operating system refused a file, a directory or a program of one of many."""


def as_error(error: Exception) -> SkillhouseError:
    """Return an error of ours for any exception; an unforeseen one goes to the log.

    >>> str(as_error(SkillhouseError("no skill is there")))
    'no skill is there'
    >>> str(as_error(FileNotFoundError(2, "No such file or directory", "a.md")))
    'no such file or directory: `a.md`'
    """
    if isinstance(error, SkillhouseError):
        return error
    if isinstance(error, OSError):
        return _refusal(error)
    fault = InternalFaultError(error)
    logger.error("fault %s: %s", fault.report, fault, exc_info=error, extra={"fault": fault})
    return fault


class Isolation:
    """The block of one of many, as of `isolated`."""

    def __init__(self, passing: tuple[type[Exception], ...]) -> None:
        self._passing: tuple[type[Exception], ...] = (BrokenPipeError, *passing)
        self._failed: list[SkillhouseError] = []

    def __enter__(self) -> list[SkillhouseError]:
        return self._failed

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if not isinstance(error, Exception) or isinstance(error, self._passing):
            return False
        if is_of_interrupt(error):
            raise KeyboardInterrupt from error
        self._failed.append(as_error(error))
        return True


def is_of_interrupt(error: BaseException) -> bool:
    """Whether an exception only came of a Ctrl-C: while that unwound what was open."""
    seen: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in seen:
        if isinstance(one, KeyboardInterrupt):
            return True
        seen.append(one)
        one = one.__cause__ or one.__context__
    return False


def isolated(*, passing: tuple[type[Exception], ...] = ()) -> Isolation:
    """Give a list that gets what goes wrong with one of many, and go on after the block.

    What ends a program passes through: an interrupt, an exit, a cancelled task, and an output that
    is closed. So do the exceptions in `passing`, which are about all of the many.

    >>> for text in ("1", "one", "2"):
    ...     with isolated() as failed:
    ...         print(int(text))
    ...     for error in failed:
    ...         print(type(error.__cause__).__name__)
    1
    ValueError
    2
    """
    return Isolation(passing)


def fault_finding(error: SkillhouseError, path: Path | None) -> Diagnostic:
    """Return as a finding what went wrong with one of many."""
    code = getattr(error, "code", "") or "unreadable"
    return Diagnostic(code=code, severity=Severity.ERROR, message=str(error), path=path)


def fault_place(traceback: TracebackType | None) -> str:
    """Return the innermost line of this package that a traceback has, as `house/house.py:12`."""
    place = ""
    for frame, line in walk_tb(traceback):
        name = package_path(frame.f_code.co_filename)
        if name:
            place = f"{name}:{line}"
    return place


def package_path(file: str) -> str:
    """Return a source file's path within this package; empty for one of another."""
    parts = PurePath(file).parts
    if _PACKAGE not in parts:
        return ""
    after = len(parts) - parts[::-1].index(_PACKAGE)
    return "/".join(parts[after:])


def _refusal(error: OSError) -> SystemRefusalError:
    text = (error.strerror or str(error) or type(error).__name__).lower()
    name = error.filename
    if isinstance(name, bytes):
        name = name.decode("utf-8", "surrogateescape")
    found = SystemRefusalError(f"{text}: `{name}`" if isinstance(name, str) else text)
    found.__cause__ = error
    return found
