"""Which network a command gets: by a rule all listed hosts, once approved those it names."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from skillhouse import net
from skillhouse.permission import (
    CommandMeaning,
    CommandVerdict,
    Effect,
    Permission,
    command_resource,
    read_command,
)
from skillhouse.tools.call import PermissionRequest
from skillhouse.tools.tool import Session

if TYPE_CHECKING:
    from skillhouse.net import Target

NO_NETWORK_HERE = "no network: without bubblewrap nothing bounds where a command reaches"
HOSTS_NAMED_MAX = 8
"""Hosts that one question names; a command with more gets none."""
_SENDS = ("--data", "--form", "--json", "--post-", "--body-")
_METHODS = {"--head": "HEAD", "--upload-file": "PUT", "--spider": "HEAD"}


class NamedRequest(Struct, frozen=True, kw_only=True):
    """What a command says it will ask for; `CONNECT` for https, whose inside is not seen."""

    method: str
    target: Target

    @property
    def resource(self) -> str:
        return f"{self.method} {self.target.origin}"


WayOut = Callable[
    [Session, str, tuple[NamedRequest, ...], float], AbstractAsyncContextManager[Path]
]
"""Opens a filtering proxy for one command of a conversation and gives the socket. The text is the
command, for the log; the number is how many seconds it may run, and be silent. With requests the
proxy lets through these alone, else what the list of hosts allows."""


class CommandNetwork(Struct, frozen=True, kw_only=True):
    """What a command reaches, known before anyone is asked."""

    is_open: bool = False
    withheld: str = ""
    """Why not, where a rule or a name would have granted it."""
    named: tuple[NamedRequest, ...] = ()
    """With these it reaches nothing else, and each needs approval."""
    is_refused: bool = False
    """Whether a rule denies them, in a run that no sandbox bounds."""
    unread: str = ""
    """The command that such a run has, and whose addresses are not understood."""

    @property
    def word(self) -> str:
        """How the log calls it; there is no other network."""
        return "proxy" if self.is_open else "none"

    @property
    def fact(self) -> tuple[str, str]:
        """What a person who is asked sees of it."""
        only = ", ".join(request.resource for request in self.named)
        return ("network", self.withheld or (f"only {only}" if only else self.word))

    def needs(self) -> Iterator[PermissionRequest]:
        for request in self.named:
            yield PermissionRequest(
                permission=Permission(action="fetch", resource=request.resource),
                default=Effect.DENY if self.is_refused else Effect.ASK,
                why="a rule denies the command the network"
                if self.is_refused
                else "no rule grants the command the network; it names this host",
            )
        if self.unread:
            yield PermissionRequest(
                permission=Permission(action="exec-once", resource=self.unread),
                default=Effect.ASK,
                why=f"where `{self.unread[:80]}` reaches is not understood",
                may_last=False,
            )


def network_of(
    programs: Sequence[tuple[str, ...]],
    effects: Sequence[Effect],
    verdict: CommandVerdict,
    policy: Callable[[], net.NetPolicy],
    *,
    has_namespaces: bool,
) -> CommandNetwork:
    """Return a command's network.

    Args:
        programs: The argv of each program of the command.
        effects: What the rules about `network` say of each; `ASK` where none is about it.
        verdict: Of the whole command.
        policy: Gives the hosts and private networks; called only where a host is named.
        has_namespaces: Whether the sandbox gives it a network of its own.
    """
    granted = [effect is Effect.ALLOW for effect in effects]
    unbound = unbound_programs(verdict)
    if all(granted):
        if not has_namespaces:
            return CommandNetwork(withheld=NO_NETWORK_HERE)
        return CommandNetwork(is_open=not unbound, withheld=unbound)
    named = _named_requests(verdict, policy) if Effect.DENY not in effects else ()
    if not has_namespaces:
        return CommandNetwork(withheld=NO_NETWORK_HERE if named or any(granted) else "")
    if named and not unbound and not any(granted):
        return CommandNetwork(is_open=True, named=named)
    return CommandNetwork(withheld=unbound or withheld_network(programs, granted))


def unbounded_network(
    verdict: CommandVerdict, effects: Sequence[Effect], policy: Callable[[], net.NetPolicy]
) -> CommandNetwork:
    """Return what a command names where it reaches anything: but this machine, and, where a rule
    grants it the network, what that would let through."""
    is_granted = all(effect is Effect.ALLOW for effect in effects)
    found: dict[str, NamedRequest] = {}
    unread = ""
    for judged in verdict.commands:
        requests = list(_requests(judged.argv, read_command(judged.argv)))
        if None in requests:
            unread = unread or command_resource(judged.argv)
        for request in filter(None, requests):
            target = request.target
            is_let_through = (
                is_granted
                and policy().allows(target, request.method)
                and _is_public(target, policy)
            )
            if not (_is_here(target) or is_let_through):
                found[request.resource] = request
    return CommandNetwork(
        is_open=bool(found),
        named=tuple(found.values()),
        is_refused=Effect.DENY in effects,
        unread=unread,
    )


def _is_here(target: Target) -> bool:
    if not target.is_address:
        return target.host == "localhost" or target.host.endswith(".localhost")
    address = ipaddress.ip_address(target.host)
    return address.is_loopback or address.is_unspecified


def withheld_network(programs: Sequence[tuple[str, ...]], granted: Sequence[bool]) -> str:
    if all(granted) or not any(granted):
        return ""
    named: dict[bool, list[str]] = {True: [], False: []}
    for argv, may in zip(programs, granted, strict=True):
        if (name := f"`{argv[0]}`") not in named[may]:
            named[may].append(name)
    yes, no = ", ".join(named[True]), ", ".join(named[False])
    return f"network withheld: rules grant it to {yes} and not to {no}; run each by itself"


def unbound_programs(verdict: CommandVerdict) -> str:
    """Return that programs which run any code of the workspace have no network, or ""."""
    # A program of the workspace that goes by its name loads what is beside it there.
    loading = (judged for judged in verdict.commands if judged.unbound or judged.is_own)
    names = dict.fromkeys(f"`{judged.argv[0]}`" for judged in loading)
    if not names:
        return ""
    return f"no network: {', '.join(names)} runs whatever code the workspace holds"


def _named_requests(
    verdict: CommandVerdict, policy: Callable[[], net.NetPolicy]
) -> tuple[NamedRequest, ...]:
    """Return what the commands name that could be reached at all; nothing if it is too much."""
    found: dict[str, NamedRequest] = {}
    for judged in verdict.commands:
        if judged.is_own:
            continue
        for request in named_by(judged.argv):
            if _is_public(request.target, policy):
                found.setdefault(request.resource, request)
    return tuple(found.values()) if len(found) <= HOSTS_NAMED_MAX else ()


def named_by(argv: tuple[str, ...]) -> Iterator[NamedRequest]:
    """Yield what a program's words name by its grammar: curl, wget and their like.

    >>> [request.resource for request in named_by(("curl", "-s", "wttr.in/Tokyo?format=3"))]
    ['GET http://wttr.in']
    >>> [request.resource for request in named_by(("curl", "-d", "a=1", "https://a.example"))]
    ['CONNECT https://a.example']
    """
    meaning = read_command(argv)
    if not meaning.unknown and _method(meaning) in net.METHODS:
        # The program would be refused by the proxy, which says why.
        yield from filter(None, _requests(argv, meaning))


def _requests(argv: tuple[str, ...], meaning: CommandMeaning) -> Iterator[NamedRequest | None]:
    """Yield what each address asks for; None for one that cannot be read."""
    kinds = zip(meaning.operands, meaning.kinds, strict=False)
    words = [argv[place] for place, kind in kinds if kind == "web"]
    words += filter(None, (o.value for o in meaning.options if (o.twin or o.name) == "--url"))
    method = _method(meaning)
    for word in words:
        try:
            target = net.parse_url(word if "://" in word else f"http://{word}")
        except net.NetError:
            yield None
            continue
        is_hidden = target.scheme == "https"
        yield NamedRequest(method="CONNECT" if is_hidden else method, target=target)


def _method(meaning: CommandMeaning) -> str:
    """Return the method of curl's or wget's first request, by the long names of their options."""
    options = {option.twin or option.name: option.value for option in meaning.options}
    given = options.get("--request") or options.get("--method")
    if given:
        return given.upper()
    if "--get" in options:
        return "GET"
    for name, method in _METHODS.items():
        if name in options:
            return method
    return "POST" if any(name.startswith(_SENDS) for name in options) else "GET"


def _is_public(target: Target, policy: Callable[[], net.NetPolicy]) -> bool:
    """Whether it could be reached once approved: a name's addresses are judged when it is used."""
    if not target.is_address:
        return target.host != "localhost" and not target.host.endswith(".localhost")
    try:
        policy().check_addresses(target.host, (target.host,))
    except net.NetError:
        return False
    return True
