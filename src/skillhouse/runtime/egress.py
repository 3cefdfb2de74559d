"""Judges and records what a confined command asks the proxy for."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from skillhouse import net
from skillhouse.audit import AuditDraft, DecidedPermission
from skillhouse.permission import Decision, Effect, Permission
from skillhouse.tools import PermissionRequest

if TYPE_CHECKING:
    from skillhouse.audit import AuditLog
    from skillhouse.tools import Session

REQUESTS_MAX = 1_000
"""Requests of one command that are recorded; further ones are refused, so that no command can fill
the log."""


class EgressReport:
    """Receives each decision of a command's proxy; refuses what a rule or the log refuses.

    The list of hosts says what can be reached; rules about `fetch` can only take away from it, as
    no person can be asked while a command runs.
    """

    def __init__(
        self,
        command: str,
        session: Session,
        decide: Callable[[PermissionRequest, Session], tuple[Decision, str]],
        audit: AuditLog,
    ) -> None:
        self._command = command
        self._session = session
        self._decide = decide
        self._audit = audit
        # Connections report on threads of their own; `next` counts each once.
        self._counter = itertools.count(1)

    def __call__(self, decision: net.EgressDecision) -> None:
        """Record a decision, durably where something is about to be sent.

        Raises:
            net.NetError: "host-refused", a rule is against it, or there were too many.
            AuditError: it cannot be recorded.
        """
        count = next(self._counter)
        if count > REQUESTS_MAX:
            raise net.NetError("host-refused", f"more than {REQUESTS_MAX} requests of one command")
        need = PermissionRequest(
            permission=Permission(action="fetch", resource=f"{decision.method} {decision.origin}"),
            default=Effect.ALLOW,
            why="the list of hosts allows it",
        )
        if decision.allowed:
            found, why = self._decide(need, self._session)
        else:
            found, why = Decision(effect=Effect.DENY, layer="default"), decision.reason
        allowed = found.effect is Effect.ALLOW
        reason = "" if allowed else f"denied: {why}"
        if count == REQUESTS_MAX:
            reason += f" (the last of {REQUESTS_MAX} requests; further ones are refused)"
        draft = AuditDraft(
            kind="event",
            tool="exec",
            agent=self._session.agent,
            user=self._session.user,
            channel=self._session.channel,
            arguments={"command": self._command},
            permissions=(
                DecidedPermission(
                    action="fetch",
                    resource=need.permission.resource,
                    effect=found.effect.value,
                    layer=found.layer,
                    rule_index=found.rule_index,
                ),
            ),
            status="ok" if allowed else "denied",
            reason=reason.strip(),
            detail={"event": "egress", "addresses": " ".join(decision.addresses)},
        )
        if not allowed:
            self._audit.append_read(draft)
            if decision.allowed:
                raise net.NetError("host-refused", reason)
            return
        self._audit.append(draft, durable=True)
