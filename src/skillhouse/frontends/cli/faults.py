"""The edge of a command: an unforeseen fault becomes one line and a report, no traceback."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from skillhouse.floor import InternalFaultError
from skillhouse.floor.faults import logger as fault_logger
from skillhouse.presentation.text import one_line


class FaultReports(logging.Handler):
    """Writes a report of each fault that is logged, and remembers where."""

    def __init__(
        self,
        verb: str,
        words: Sequence[str],
        environment: Mapping[str, str],
        say: Callable[[str], None],
    ) -> None:
        """No report holds any of the command line's `words`; `say` writes a line for a person."""
        super().__init__(logging.WARNING)
        self.paths: dict[str, Path | None] = {}
        """Of each report by its number; None for one that could not be written."""
        self._verb = verb
        self._words = words
        self._environment = environment
        self._say = say

    def written(self, fault: InternalFaultError) -> Path | None:
        """Return the report of a fault, which is written now if it is not yet there."""
        # Not loaded before there is a fault: every command would start later.
        from skillhouse.presentation.fault_report import (
            known_secrets,
            report_directories,
            report_text,
            write_report,
        )

        if fault.report not in self.paths:
            known = known_secrets(self._words, self._environment)
            text = report_text(fault, verb=self._verb, known=known)
            self.paths[fault.report] = write_report(text, fault.report, report_directories())
        return self.paths[fault.report]

    def line(self, fault: InternalFaultError) -> str:
        """Return the line for a person about a fault that ended a command."""
        kind = type(fault.__cause__).__name__
        failed = f"`{self._verb}` failed by a fault of skillhouse ({kind})"
        path = self.written(fault)
        if path is None:
            return f"{failed}; its report could not be written"
        return f"{failed}; add the report to what you send us: `{path}`"

    def emit(self, record: logging.LogRecord) -> None:
        fault = record.__dict__.get("fault")
        if isinstance(fault, InternalFaultError):
            self.written(fault)

    def last_resort(self, record: logging.LogRecord) -> None:
        """Say in one line what no log takes; Python would write a traceback to stderr."""
        from skillhouse.audit.redaction import without_secrets

        said = one_line(without_secrets(record.getMessage()))
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            fault = InternalFaultError(error)
            said += f" ({type(error).__name__}; report: `{self.written(fault)}`)"
        self._say(f"skillhouse: {said}")

    def of_thread(self, found: threading.ExceptHookArgs) -> None:
        """Say what ended a thread."""
        if isinstance(found.exc_value, Exception):
            self._say(f"skillhouse: {one_line(self.line(InternalFaultError(found.exc_value)))}")


class _LastResort(logging.Handler):
    def __init__(self, reports: FaultReports) -> None:
        super().__init__(logging.WARNING)
        self._reports = reports

    def emit(self, record: logging.LogRecord) -> None:
        self._reports.last_resort(record)


@contextlib.contextmanager
def fault_reports(
    verb: str, words: Sequence[str], environment: Mapping[str, str], say: Callable[[str], None]
) -> Iterator[FaultReports]:
    """Have reports written of all faults within the block, and no traceback on stderr."""
    reports = FaultReports(verb, words, environment, say)
    last, hook = logging.lastResort, threading.excepthook
    fault_logger.addHandler(reports)
    logging.lastResort, threading.excepthook = _LastResort(reports), reports.of_thread
    try:
        yield reports
    finally:
        logging.lastResort, threading.excepthook = last, hook
        fault_logger.removeHandler(reports)
