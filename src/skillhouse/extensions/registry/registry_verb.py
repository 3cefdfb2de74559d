"""`skillhouse registry`."""

from __future__ import annotations

import argparse
import ipaddress
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillhouse.extensions.registry.hosting import (
    DIRECTORY,
    HostedRepository,
    HostingError,
    ReleaseToken,
    checked_scope,
    new_token,
    open_repository,
    utc_text,
)
from skillhouse.extensions.registry.hosting.sqlite_store import DATABASE
from skillhouse.extensions.registry.mirror_verb import configure_mirror, run_mirror
from skillhouse.floor.structs import asdict
from skillhouse.frontends.cli.options import (
    UsageError,
    Verb,
    add_common,
    address,
    house_of,
    natural,
    port,
    positive,
)
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.cli.publish import CHANGES, add_changes, change
from skillhouse.frontends.presentation.text import shown

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal

PORT = 8640
_EXAMPLES = """examples:
  skillhouse registry serve
  skillhouse registry serve /srv/skills --name skills.example.com --host 0.0.0.0 --port 8640
  skillhouse registry serve --private            reading needs a token, too
  skillhouse registry token new --scope publish:pdf --days 90
  skillhouse registry token new --scope 'publish:acme/*' --scope 'yank:acme/*' --note ci
  skillhouse registry token list
  skillhouse registry token revoke 3f2a9c81d0b4
  skillhouse registry trust root.crt             packages that it vouches for are taken
  skillhouse registry mirror https://skills.example.com /srv/mirror
  skillhouse registry mirror https://skills.example.com ./mirror --skill pdf --skill @acme/csv
  skillhouse registry yank pdf@1.2.0 --repository official --reason "drops pages"
  skillhouse registry unyank pdf@1.2.0
  skillhouse registry revoke @acme/pdf@1.2.0 --reason "steals keys"
  skillhouse registry channel pdf@2.0.0-rc.1 beta
  skillhouse registry push-revocations revocations.json --repository official

Serves packages of skills from one directory, to publish to and to install from
(docs/guides/own-registry.md). It listens on this machine unless --host says otherwise; it has no
TLS, so put a server that has it in front of what the network reaches, and name it with --proxy.

Scopes: read, admin, publish:NAMESPACE/NAME and yank:NAMESPACE/NAME, where NAME may be `*` and
publish:NAME is in the namespace `default`. A token is shown once and is kept nowhere.
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    serve = verbs.add_parser("serve", help="serve a registry until Ctrl-C")
    _configure_serve(serve)
    tokens = verbs.add_parser("token", help="make, list and revoke tokens")
    below = tokens.add_subparsers(dest="token_verb", required=True, metavar="VERB")
    new = below.add_parser("new", help="make a token, which is shown once")
    new.add_argument("--scope", dest="scopes", action="append", required=True, metavar="SCOPE",
                     help="read, admin, publish:NS/NAME or yank:NS/NAME; repeatable")  # fmt: skip
    new.add_argument("--days", type=natural, default=0, metavar="N", help="its life (no end)")
    new.add_argument("--note", default="", metavar="TEXT", help="what it is for, for the list")
    listed = below.add_parser("list", help="list the tokens, without their secrets")
    revoke = below.add_parser("revoke", help="end a token at once")
    revoke.add_argument("id", metavar="ID", help="as `token list` shows it")
    configure_mirror(verbs.add_parser("mirror", help="copy a repository into a directory of files"))
    trust = verbs.add_parser("trust", help="trust a root certificate of publishers")
    trust.add_argument("file", metavar="FILE", help="such as root.crt")
    add_changes(verbs)
    for one in (new, listed, revoke, trust):
        one.add_argument("--directory", metavar="DIR", help="the registry's (in the user's state)")
        add_common(one)


def _configure_serve(serve: argparse.ArgumentParser) -> None:
    add = serve.add_argument
    add("directory", nargs="?", metavar="DIRECTORY", help="its files (in the user's state)")
    add("--host", type=address, default="127.0.0.1", metavar="ADDR",
        help="listen on this address (127.0.0.1)")  # fmt: skip
    add("--port", type=port, default=PORT, metavar="N", help=f"port ({PORT}; 0 takes a free one)")
    add("--name", default="", metavar="NAME", help="what certificates call the registry (local)")
    add("--require-signatures", action="store_true", help="take signed packages only")
    add("--private", action="store_true", help="demand a token with `read` for reading, too")
    add("--proxy", type=address, metavar="ADDR",
        help="believe the X-Forwarded-For of the proxy at this address")  # fmt: skip
    add("--reads-per-minute", type=positive, default=6_000, metavar="N",
        help="requests of one address or token (6000)")  # fmt: skip
    add("--writes-per-minute", type=positive, default=600, metavar="N",
        help="packages and changes of one token (600)")  # fmt: skip
    add_common(serve)


def _run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Do what the words say; 1 when there was no such token."""
    if options.verb == "serve":
        return _serve(options, terminal)
    if options.verb == "mirror":
        return run_mirror(options, terminal)
    if options.verb in CHANGES:
        return change(options, terminal)
    work = {"new": _new, "list": _list, "revoke": _revoke}
    verb = work[options.token_verb] if options.verb == "token" else _trust
    if verb is not _list:
        refuse_agents(f"registry {options.verb}")
    directory = _directory(options)
    if verb in (_list, _revoke) and not (directory / DATABASE).is_file():
        # Who looks makes nothing.
        if verb is _list and not options.directory:
            return _print([], options, terminal)
        raise UsageError(f"no registry is in `{directory}`; `skillhouse registry serve` makes one")
    repository = open_repository(directory)
    try:
        return verb(repository, options, terminal)
    except HostingError as error:
        if error.code == "bad-request":
            raise UsageError(str(error)) from None
        raise
    finally:
        repository.store.close()


def _directory(options: argparse.Namespace) -> Path:
    if options.directory:
        return Path(options.start or ".", options.directory).absolute()
    with house_of(options) as house:
        return house.config.state_directory / DIRECTORY


def _serve(options: argparse.Namespace, terminal: Terminal) -> int:
    from skillhouse.extensions import registry as service
    from skillhouse.extensions.registry.access import AccessPolicy

    repository = open_repository(
        _directory(options), name=options.name, requires_signature=options.require_signatures
    )

    def announce(url: str) -> None:
        if options.json:
            terminal.json({"address": url, "name": repository.name})
        else:
            terminal.line(f"registry `{repository.name}` serves at {url}")
        sys.stdout.flush()

    if not ipaddress.ip_address(options.host).is_loopback:
        terminal.note(f"listening on {options.host}: the network reaches it; it has no TLS")
    policy = AccessPolicy(
        is_private=options.private,
        reads_per_minute=options.reads_per_minute,
        writes_per_minute=options.writes_per_minute,
        proxy=options.proxy or "",
    )
    try:
        return service.serve_registry(
            repository, host=options.host, port=options.port, announce=announce, policy=policy
        )
    finally:
        repository.store.close()


def _new(repository: HostedRepository, options: argparse.Namespace, terminal: Terminal) -> int:
    secret, token = new_token(
        repository.store,
        tuple(map(checked_scope, options.scopes)),
        datetime.now(UTC),
        days=options.days,
        note=options.note,
    )
    if options.json:
        terminal.json({**_value(token), "token": secret})
        return 0
    terminal.line(secret)
    terminal.note(f"token {token.id} may {', '.join(token.scopes)}; it is not shown again")
    return 0


def _list(repository: HostedRepository, options: argparse.Namespace, terminal: Terminal) -> int:
    return _print(repository.store.tokens(), options, terminal)


def _print(tokens: Sequence[ReleaseToken], options: argparse.Namespace, terminal: Terminal) -> int:
    return terminal.listing(
        tokens,
        _value,
        _line,
        name="tokens",
        as_json=options.json,
        nothing="no tokens yet; make one with `skillhouse registry token new --scope …`",
    )


def _revoke(repository: HostedRepository, options: argparse.Namespace, terminal: Terminal) -> int:
    is_done = repository.store.revoke_token(options.id, utc_text(datetime.now(UTC)))
    text = "revoked" if is_done else "no such token in use"
    terminal.answer({"id": options.id, "revoked": is_done}, text, as_json=options.json)
    return 0 if is_done else 1


def _trust(repository: HostedRepository, options: argparse.Namespace, terminal: Terminal) -> int:
    name = repository.trust_root(Path(options.start or ".", options.file).read_bytes())
    text = f"packages of publishers of `{shown(name)}` are taken now"
    terminal.answer({"registry": name}, text, as_json=options.json)
    return 0


def _value(token: ReleaseToken) -> dict[str, Any]:
    value = asdict(token)
    del value["digest"]
    return value


def _line(token: ReleaseToken) -> str:
    end = f"until {token.expires_at}" if token.expires_at else "without an end"
    state = f"revoked {token.revoked_at}" if token.revoked_at else end
    note = f"  {shown(token.note)}" if token.note else ""
    return f"{token.id}  {', '.join(token.scopes)}  {state}{note}"


VERBS = {"registry": Verb(_EXAMPLES, _configure, _run)}
