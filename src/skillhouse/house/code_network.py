"""What the code of skills may reach by libraries of its own, and the record of each connection."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from skillhouse import net
from skillhouse import tools as toolbox
from skillhouse.audit import AuditError, AuditLog
from skillhouse.floor.structs import replace
from skillhouse.house.config import NetSettings
from skillhouse.house.network import EgressReport, Network
from skillhouse.permission import Decision

CONNECTIONS_KEPT = 64
"""Connections that the record of a call names; each has records of its own."""

logger = logging.getLogger(__name__)


def reach_of(
    declared: Sequence[str],
    settings: NetSettings,
    handed: Mapping[str, str],
    environment: Mapping[str, str],
) -> toolbox.CodeReach:
    """Return what a skill reaches: what its manifest names and `[net]` allows, both.

    INVARIANT: a secret is a variable of its code only where each host that the code reaches is one
    of the secret's: what goes through TLS cannot be looked at.

    Args:
        declared: The hosts of the manifest.
        handed: The variables that the skill gets.
        environment: Those of this process, which has the secrets.
    """
    try:
        hosts = net.granted_by(
            map(net.host_rule, settings.hosts), [rule for one in declared for rule in _rules(one)]
        )
    except net.NetError:
        # The network itself cannot be used then, and says so.
        return toolbox.CodeReach()
    if not hosts:
        return toolbox.CodeReach()
    for secret in settings.secrets:
        value = environment.get(secret.env, "")
        holding = [name for name, text in handed.items() if value and value in text]
        if not holding:
            continue
        own = [rule for one in secret.hosts for rule in _rules(one)]
        for rule in hosts:
            if not any(net.within(rule, one) for one in own):
                return toolbox.CodeReach(
                    hosts=hosts, refusal=_refusal(holding[0], secret.name, rule)
                )
    return toolbox.CodeReach(hosts=hosts)


def host_states(declared: Sequence[str], settings: NetSettings) -> dict[str, str]:
    """Return what `[net]` grants of each host that a manifest names."""
    found = {}
    for one in declared:
        granted = reach_of((one,), replace(settings, secrets=()), {}, {}).hosts
        said = ", ".join(map(str, granted))
        found[one] = f"granted as {said}" if said else "not granted: not named below [net] hosts"
    return found


def _rules(text: str) -> tuple[net.HostRule, ...]:
    """Return the rule of a host; none for what is no host, which is never granted."""
    try:
        return (net.host_rule(text),)
    except net.NetError:
        return ()


def _refusal(variable: str, secret: str, rule: net.HostRule) -> str:
    place = str(rule).partition(" ")[2]
    return (
        f"the variable `{variable}` holds the secret `{secret}`, and the skill may also reach "
        f"{place}, which is none of the secret's hosts: take that host out of the manifest, or the "
        f"variable out of `[skill_code] env` and use `context.fetch` with a header that says "
        f"`{{{{secret:{secret}}}}}`"
    )


class CodeWayOut:
    """The proxy of one call of a skill's code, and what it did: a `tools.CodeNetwork`."""

    def __init__(
        self,
        network: Network,
        hosts: Sequence[net.HostRule],
        session: toolbox.Session,
        decide: Callable[[toolbox.PermissionRequest, toolbox.Session], tuple[Decision, str]],
        audit: AuditLog,
        *,
        call: str,
        tool: str,
    ) -> None:
        """Make it for the call of an id; `hosts` are all that it lets through."""
        self._audit = audit
        self._report = EgressReport("", session, decide, audit, tool=tool, arguments={"call": call})
        self._connections: list[str] = []
        self._left_out = 0
        self._refused = ""
        self.proxy = net.EgressProxy(
            replace(network.policy, hosts=tuple(hosts)),
            report=self._reported,
            ended=self._ended,
            route=network.route,
            never=net.METADATA,
        )

    @property
    def refused(self) -> str:
        """The first refusal with what to write; it names what the code asked for."""
        return self._refused

    @property
    def connections(self) -> tuple[str, ...]:
        """Each connection that has ended in a line, the first of them."""
        more = (f"and {self._left_out} more",) if self._left_out else ()
        return (*self._connections, *more)

    def _reported(self, decision: net.EgressDecision) -> None:
        try:
            self._report(decision)
        except net.NetError as error:
            self._note(decision, str(error))
            raise
        if not decision.allowed:
            self._note(decision, decision.reason)

    def _note(self, decision: net.EgressDecision, reason: str) -> None:
        self._refused = self._refused or (
            f"{reason}; what an SDK may reach is in `requires.hosts` of the manifest and in "
            f"`hosts` below `[net]`, both; or {toolbox.BY_CONTEXT}"
        )

    def _ended(self, done: net.EgressConnection) -> None:
        line = f"{done.method} {done.host}:{done.port} sent {done.sent} received {done.received}"
        if len(self._connections) < CONNECTIONS_KEPT:
            self._connections.append(line)
        else:
            self._left_out += 1
        detail = {
            "event": "egress_end",
            "method": done.method,
            "host": done.host,
            "port": done.port,
            "sent": done.sent,
            "received": done.received,
        }
        try:
            self._audit.append_or_keep(self._report.draft("ok", detail))
        except (AuditError, OSError):
            # That it was opened is in the log; the call's own record fails for itself.
            logger.exception("the end of a connection is not in the audit log")
