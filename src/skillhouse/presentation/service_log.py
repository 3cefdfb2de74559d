"""What a service says in its log: lines for a person at a terminal, JSON for a collector.

The packages use the standard `logging`; this module formats their records, for `up` and a worker
alone. Texts lose their secrets last of all, as in the audit log, and each line names
the trace that it belongs to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any, TextIO

from skillhouse.audit import troubles
from skillhouse.floor import MissingExtraError, tracing
from skillhouse.presentation.text import shown

if TYPE_CHECKING:
    from skillhouse.audit import AuditLog, Trouble

Event = MutableMapping[str, Any]

_OURS = "skillhouse"


def service_logging(stream: TextIO, clean: Callable[[str], str]) -> logging.Handler:
    """Send this process's log records to a stream, ours from INFO on, others' from WARNING on.

    JSON lines go to it, unless it is a terminal. `clean` takes secrets out of a text. The caller
    removes the handler when the service ends.

    Raises:
        MissingExtraError: the packages of the extra `server` are not installed.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_formatter(clean, for_people=stream.isatty()))
    logging.getLogger().addHandler(handler)
    logging.getLogger(_OURS).setLevel(logging.INFO)
    return handler


def _formatter(clean: Callable[[str], str], *, for_people: bool) -> logging.Formatter:
    try:
        import structlog  # noqa: PLC0415 - an extra, and slow to load.
    except ModuleNotFoundError as error:
        raise MissingExtraError("server", "structlog") from error

    def cleaned(_: Any, __: str, event: Event) -> Event:
        kept = {name: clean(v) if isinstance(v, str) else v for name, v in event.items()}
        return _for_terminal(kept) if for_people else kept

    plain = structlog.dev.plain_traceback
    last: Any = (
        structlog.dev.ConsoleRenderer(exception_formatter=plain)
        if for_people
        else structlog.processors.JSONRenderer(ensure_ascii=True)
    )
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _traced,
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            # INVARIANT: nothing is added after this but the form, which is ASCII for a collector.
            cleaned,
            last,
        ],
    )


def _for_terminal(event: Event) -> Event:
    """Return texts safe to show, each in its one line: clients, servers and skills write them."""
    found = {name: shown(v) if isinstance(v, str) else v for name, v in event.items()}
    if isinstance(event.get("exception"), str):
        # Set in, so that no line of it passes for a record.
        lines = event["exception"].splitlines()
        found["exception"] = "\n".join(f"  {shown(line)}" for line in lines)
    return found


def _traced(_: Any, __: str, event: Event) -> Event:
    parts = tracing.current().split("-")
    if len(parts) == 4:
        event["trace_id"], event["span_id"] = parts[1:3]
    return event


logger = logging.getLogger(__name__)


class AuditNews:
    def __init__(self, log: AuditLog) -> None:
        self._log = log
        self._said: frozenset[str] = frozenset()

    def look(self) -> tuple[Trouble, ...]:
        """Return what is wrong now; what was not wrong at the last look goes to the log."""
        found = troubles(self._log)
        for trouble in found:
            if trouble.code not in self._said:
                logger.warning("audit: %s [%s]", trouble.message, trouble.code)
        if self._said and not found:
            logger.info("audit: all is well again")
        self._said = frozenset(trouble.code for trouble in found)
        return found
