"""What the code of a skill reaches by libraries of its own, and what is said where it cannot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from skillhouse.net import EgressProxy, HostRule
    from skillhouse.sandbox.code_call import CellResult, Language
    from skillhouse.skill import SkillManifest


class CodeReach(Struct, frozen=True, kw_only=True):
    """What the code of a skill reaches by the proxy of its calls, before any call is made."""

    hosts: tuple[HostRule, ...] = ()
    """Those of the operator that the manifest names; with none its cells have no network."""
    refusal: str = ""
    """Why a call is refused: a secret among its variables could go elsewhere."""


class CodeNetwork(Protocol):
    """The way out of one call, and what came of it."""

    @property
    def proxy(self) -> EgressProxy: ...

    @property
    def refused(self) -> str:
        """The reason of the first request that was refused, "" where none was."""

    @property
    def connections(self) -> Sequence[str]:
        """Each connection in a line: method, host, port, bytes."""


BY_CONTEXT = "use `context.fetch`"


def no_network(declared: Sequence[str], language: Language) -> str:
    """Return what to write so that code without a network gets one.

    >>> no_network(["api.example.com"], "python")[:51]
    'the code of a skill has no network but `context.fet'
    """
    table = "[tool.skillhouse]" if language == "python" else "owliabot"
    host = declared[0] if declared else "api.example.com"
    allowed = host if host.startswith("http://") else f"CONNECT {host}"
    manifest = "" if declared else f'`requires.hosts = ["{host}"]` of {table} in the manifest and '
    return (
        f"the code of a skill has no network but `context.fetch`; for an SDK write {manifest}"
        f'`hosts = ["{allowed}"]` below `[net]` in the configuration'
    )


def uses_proxy(version: str) -> bool:
    """Whether a Node's own `fetch` uses the proxy by `NODE_USE_ENV_PROXY` (22.21, 24.0).

    >>> uses_proxy("22.21.0"), uses_proxy("20.20.2"), uses_proxy("23.11.0")
    (True, False, False)
    """
    major, minor = map(int, version.split(".")[:2])
    return major >= 24 or (major == 22 and minor >= 21)


def network_hint(manifest: SkillManifest, result: CellResult, network: CodeNetwork | None) -> str:
    """Return what to write where a call failed at a host, "" where it did at something else."""
    if network is not None and result.has_way and result.kind == "error" and network.refused:
        return network.refused
    if not result.unreached:
        return ""
    if network is None:
        return no_network(manifest.hosts, manifest.language)
    if not result.has_way:
        return f"this sandbox gives the code of skills no network; {BY_CONTEXT}"
    name, _, version = result.unreached.partition(" ")
    if name == "node" and not uses_proxy(version):
        return (
            f"Node {version} does not use the proxy by itself, 22.21 and 24 do; give `fetch` of "
            f"undici its EnvHttpProxyAgent, or {BY_CONTEXT}"
        )
    return f"only what uses the proxy of HTTPS_PROXY reaches a host; {BY_CONTEXT}"
