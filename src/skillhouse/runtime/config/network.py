"""What an operator writes of the network, and what of it is refused when the file is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from skillhouse import net
from skillhouse.approval import ApprovalSettings
from skillhouse.floor import ConfigError, SkillhouseError
from skillhouse.remote import RemoteSource

REMOTES_MAX = 50
"""Servers of one configuration: each is a root that is scanned."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretSettings:
    """One secret: a variable of this process, and the hosts that may get its value."""

    name: str
    """What `{{secret:NAME}}` in a header says."""
    env: str
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetSettings:
    """The table `[net]`; without it every request needs an approval."""

    hosts: tuple[str, ...] = ()
    """Rules as `net.host_rule` reads them."""
    private: tuple[str, ...] = ()
    """Networks that are not public and may be reached all the same."""
    secrets: tuple[SecretSettings, ...] = ()
    brave_key_env: str = ""
    """Variable that holds a key of Brave's search."""
    searxng_url: str = ""
    """A SearXNG of the user's own; it comes before Brave."""


NET_KEYS = frozenset(found.name for found in fields(NetSettings))
SECRET_KEYS = frozenset(found.name for found in fields(SecretSettings))
REMOTE_KEYS = frozenset(found.name for found in fields(RemoteSource))


def tables_of(table: Mapping[str, Any]) -> tuple[tuple[str, frozenset[str], Any], ...]:
    """Return the lists of tables in a file about the network: what each is called, its known
    keys, and the value, whatever it is."""
    found = table.get("net")
    secrets = found.get("secrets") if isinstance(found, Mapping) else None
    return (
        ("net.secrets key", SECRET_KEYS, secrets),
        ("remotes key", REMOTE_KEYS, table.get("remotes")),
    )


def secret_variables(settings: NetSettings, approvals: ApprovalSettings | None) -> frozenset[str]:
    """Return the variables of this process that hold a secret of the configuration."""
    named = (secret.env for secret in settings.secrets)
    webhook = approvals.webhook_secret_env if approvals is not None else ""
    return frozenset(filter(None, (*named, settings.brave_key_env, webhook)))


def check_net(settings: NetSettings, path: Path | None) -> None:
    """Refuse rules that cannot be read, so that no typing error opens or closes a way unseen.

    Raises:
        ConfigError: a host, a network, a secret or a URL is none.
    """
    names = [secret.name for secret in settings.secrets]
    if len(set(names)) < len(names):
        raise ConfigError("two secrets have one name", path=path, key="net.secrets")
    for secret in settings.secrets:
        if not secret.env or not secret.hosts:
            message = f"expected a variable and at least one host for the secret `{secret.name}`"
            raise ConfigError(message, path=path, key="net.secrets")
    try:
        for host in settings.hosts:
            net.host_rule(host)
        # The names and hosts are what is checked; the values are looked up when they are needed.
        stand_ins = (
            net.SecretBinding(name=secret.name, value="x" * 32, hosts=secret.hosts)
            for secret in settings.secrets
        )
        net.NetPolicy(private=settings.private, secrets=tuple(stand_ins))
        if settings.searxng_url:
            net.parse_url(settings.searxng_url)
    except net.NetError as error:
        raise ConfigError(f"wrong value: {error}", path=path, key="net") from error


def check_remotes(remotes: tuple[RemoteSource, ...], path: Path | None) -> None:
    """Refuse servers that are no sources.

    Raises:
        ConfigError: there are too many, one is listed twice, or is reached without encryption.
    """
    if len(remotes) > REMOTES_MAX:
        message = f"expected at most {REMOTES_MAX} remotes, got {len(remotes)}"
        raise ConfigError(message, path=path, key="remotes")
    if len(set(remotes)) < len(remotes):
        raise ConfigError("a remote is listed twice", path=path, key="remotes")
    for source in remotes:
        parts = urlsplit(source.url)
        if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            message = f"expected https, or http on this machine, got `{source.url}`"
            raise ConfigError(message, path=path, key="remotes")
        try:
            net.parse_url(source.url)
        except SkillhouseError as error:
            raise ConfigError(f"wrong value: {error}", path=path, key="remotes") from error
