"""Logs that are the same in every run, and drafts to put into them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

from skillhouse.audit import AuditDraft, AuditLog, DecidedPermission
from skillhouse.audit.log_files import LogKeys, read_keys

START = 1_767_225_600
"""2026-01-01T00:00:00Z; every record is a second later than the one before."""


def log_at(path: Path) -> AuditLog:
    """Return a log with a clock and random bytes of its own."""
    seconds, numbers = count(START), count(1)
    return AuditLog(
        path,
        clock=lambda: float(next(seconds)),
        random_bytes=lambda size: next(numbers).to_bytes(size),
    )


def intent(tool: str = "exec", agent: str = "default", **arguments: object) -> AuditDraft:
    return AuditDraft(
        kind="intent",
        tool=tool,
        agent=agent,
        user="u1",
        channel="cli",
        arguments=arguments or {"command": "git status"},
        permissions=(
            DecidedPermission(
                action=tool, resource="git status", effect="allow", layer="user", rule_index=0
            ),
        ),
    )


def outcome(of: str, status: str = "ok", tool: str = "exec") -> AuditDraft:
    return AuditDraft(
        kind="outcome", tool=tool, intent=of, status=status, duration_ms=7, detail={"exit_code": 0}
    )


def refusal(tool: str = "write", reason: str = "denied by user policy") -> AuditDraft:
    return AuditDraft(kind="refusal", tool=tool, status="denied", reason=reason)


def small_log(path: Path) -> AuditLog:
    """Write an intent with its outcome, a refusal, and an intent that nothing came of."""
    log = log_at(path)
    first = log.append(intent(), durable=True)
    log.append(outcome(first.id), durable=True)
    log.append(refusal(), durable=True)
    log.append(intent("write", path="a.txt"), durable=True)
    return log


def in_process(script: str, *arguments: object) -> subprocess.Popen[str]:
    """Start Python on `script`, which sees the arguments as `sys.argv[1:]`."""
    head = "import sys\nsys.path[:0] = sys.argv.pop().split(':')\n"
    return subprocess.Popen(
        [sys.executable, "-c", head + script, *map(str, arguments), ":".join(sys.path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> str:
    """Return what the process printed; it must end well."""
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    return out


Change = Callable[[bytes], bytes]


def keys_of(path: Path) -> LogKeys:
    keys = read_keys(path, None)
    assert keys is not None
    return keys
