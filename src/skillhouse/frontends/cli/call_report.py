"""What the audit log keeps of a call of a skill's code, for a terminal and as plain values.

It is read back from the log: what a person sees here is what the log says, without secrets, and no
result for a model carries any of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skillhouse.audit import AuditError, Query, entries_of
from skillhouse.frontends.presentation.text import shown

if TYPE_CHECKING:
    from skillhouse.audit import AuditEntry, AuditLog
    from skillhouse.frontends.cli.terminal import Terminal

_LOOKED_AT = 500
"""Records, from the newest, among which a call that has just ended is looked for."""
_PARTS = (("frames", "at"), ("log", "log"), ("output", "output"))
"""The lists of a record's detail, with the words before them."""


def recorded_call(log: AuditLog, request: str) -> AuditEntry | None:
    """Return the newest entry of the call with that request id; None where none can be read."""
    try:
        entries = entries_of(log.path, Query(), key=log.key)
        newest = itertools.islice(entries, _LOOKED_AT)
        return next((entry for entry in newest if entry.record.request == request), None)
    except AuditError:
        # The call has its result, and `audit verify` says what is wrong with the log.
        return None


def detail_of(entry: AuditEntry | None) -> Mapping[str, object]:
    if entry is None:
        return {}
    return entry.record.detail if entry.outcome is None else entry.outcome.detail


def code_lists(detail: Mapping[str, object]) -> dict[str, list[str]]:
    """Return the frames, the log and the output of a call, each if there is any.

    >>> code_lists({"log": [], "output": ["hello"], "kind": "ok"})
    {'output': ['hello']}
    """
    found = {name: _texts(detail.get(name)) for name, _ in _PARTS}
    return {name: lines for name, lines in found.items() if lines}


def code_value(entry: AuditEntry | None) -> dict[str, Any]:
    """Return the same with the id of the record, for `--json`."""
    found: dict[str, Any] = dict.fromkeys(("frames", "log", "output"), [])
    return {
        "record": None if entry is None else entry.record.id,
        **found,
        **code_lists(detail_of(entry)),
    }


def print_code(
    detail: Mapping[str, object], terminal: Terminal, *, names: Sequence[str] = ()
) -> None:
    """Write the lists to stderr, each line behind a mark that no text of a skill can write.

    Args:
        names: Only these; all without.
    """
    found = code_lists(detail)
    for name, title in _PARTS:
        lines = found.get(name)
        if not lines or (names and name not in names):
            continue
        if name == "frames":
            # The innermost first, as a person looks for it.
            for line in reversed(lines):
                terminal.note(f"  {title} {shown(line)}")
            continue
        terminal.note(f"{title}:")
        for line in lines:
            terminal.note(f"  | {shown(line)}")


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        # Records of earlier versions have the log as one text.
        return value.splitlines()
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
