"""Where the state is, as a configuration says it: in a file, or on a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from skillhouse import extension
from skillhouse.floor import ConfigError
from skillhouse.floor.regex import regex
from skillhouse.house.config.secret_places import is_place, read_secret
from skillhouse.store import STATE_FILE, serve_state

SCHEMES = ("postgresql", "postgres")
_HOSTS = regex(r"[^:/?#,]+(?::[0-9]{1,5})?(?:,[^:/?#,]+(?::[0-9]{1,5})?)*/")


class StateSettings(Struct, frozen=True, kw_only=True):
    """Where trust, approvals and whatever else is kept are; no project says so."""

    url: str = ""
    """Address of a PostgreSQL database that has the state, postgresql://…, or its place, env:NAME
    or file:PATH, where it holds a password. Empty keeps the state in a file of this machine."""
    listen_url: str = ""
    """Address of the same database past a pooler such as PgBouncer, which delivers no notices;
    empty where `url` leads to the server itself."""

    def __post_init__(self) -> None:
        """Raise ConfigError for what is no address, or one with a password in it."""
        check_state_url(self.url, key="url")
        check_state_url(self.listen_url, key="listen_url")
        if self.listen_url and not self.url:
            raise ConfigError("expected `url` beside `listen_url`", key="listen_url")


def check_state_url(url: str, *, key: str) -> None:
    """Raise ConfigError for a value of `[state]` that is no address and no place of one."""
    if not url or is_place_of_address(url):
        return
    # What was written may hold the password, so it is not repeated.
    try:
        scheme = urlsplit(url).scheme
    except ValueError as error:
        raise ConfigError(f"expected an address in `{key}`: postgresql://…", key=key) from error
    if scheme not in SCHEMES:
        raise ConfigError(
            f"expected `postgresql://…`, `env:NAME` or `file:PATH` in `{key}`", key=key
        )
    if has_password(url):
        raise ConfigError(
            f"expected no password in `{key}`: put the address into a variable (`env:NAME`) or "
            "a file of your own (`file:PATH`)",
            key=key,
        )


def has_password(url: str) -> bool:
    """Whether an address of PostgreSQL may have a password in it.

    It is read as libpq does (PostgreSQL, "Connection URIs"): `#` and `?` are characters of a
    password as others, and names of parameters may be percent-encoded. So may be what is before an
    `@` if it is no list of hosts with their ports.

    >>> has_password("postgresql://me:a#b@host/db"), has_password("postgresql://me@host:1/db")
    (True, False)
    """
    query = unquote(url.partition("?")[2]).lower()
    before, at, _ = url.partition("://")[2].partition("@")
    _, _, password = before.partition(":")
    is_hosts = _HOSTS.match(before) is not None
    return "password=" in query or bool(at and password and not is_hosts)


def is_place_of_address(url: str) -> bool:
    return not url.startswith(tuple(f"{scheme}:" for scheme in SCHEMES)) and is_place(url)


def state_address(url: str, environment: Mapping[str, str], *, key: str) -> str:
    """Return an address that is written as itself or as its place.

    ConfigError: there is nothing at the place, or no address of PostgreSQL.
    """
    if not is_place_of_address(url):
        return url
    found = read_secret(url, "the address of the state", environment, key=f"state.{key}")
    if not found.startswith(tuple(f"{scheme}://" for scheme in SCHEMES)):
        raise ConfigError(f"expected `postgresql://…` at the place in `{key}`", key=f"state.{key}")
    return found


def settle_state(
    settings: StateSettings,
    state_directory: Path,
    environment: Mapping[str, str],
    *,
    is_dry: bool = False,
) -> None:
    """Have the state of a directory where the settings say, unless this process uses it already.

    Nothing is connected. A dry run leaves nothing there, nor on the server.

    MissingExtraError: what talks to a server is not installed.
    """
    if not settings.url:
        return
    path = state_directory / STATE_FILE

    def address() -> str:
        return state_address(settings.url, environment, key="url")

    def listen_address() -> str:
        return state_address(settings.listen_url, environment, key="listen_url")

    # Read once, so that a place that is empty is said with the configuration.
    address()
    module = extension.own_module("postgres", "state_server")
    serve_state(
        path,
        lambda: module.PostgresState(
            path, address, listen_address if settings.listen_url else None, is_dry=is_dry
        ),
    )
