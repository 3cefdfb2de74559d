"""`skillhouse registry`."""

from __future__ import annotations

import argparse
import ipaddress
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from msgspec import UNSET, UnsetType

from skillhouse.answers.json_form import JsonAnswer, copied
from skillhouse.extensions.registry.backup_verb import configure_backup, run_backup
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
from skillhouse.extensions.registry.hosting.backup import served
from skillhouse.extensions.registry.hosting.sqlite_store import DATABASE
from skillhouse.extensions.registry.mirror_verb import configure_mirror, run_mirror
from skillhouse.extensions.registry.root_verb import configure_root, run_root, sign_elsewhere
from skillhouse.floor import needs_extra, structs
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
from skillhouse.house import Skillhouse
from skillhouse.house.config import is_place, read_secret
from skillhouse.presentation.text import shown

if TYPE_CHECKING:
    from skillhouse.extensions.registry.change_webhook import ChangeWebhook
    from skillhouse.extensions.registry.oidc import TokenExchange
    from skillhouse.extensions.registry.operations import ServerParts
    from skillhouse.frontends.cli.terminal import Terminal


class ServedAnswer(JsonAnswer, frozen=True, kw_only=True):
    address: str
    name: str


class ReleaseTokenAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A token; its secret is answered once, when it is made."""

    id: str
    scopes: tuple[str, ...]
    note: str
    created_at: str
    expires_at: str
    revoked_at: str
    token: str | UnsetType = UNSET


class RevokedReleaseTokenAnswer(JsonAnswer, frozen=True, kw_only=True):
    id: str
    revoked: bool


class TrustedRegistryAnswer(JsonAnswer, frozen=True, kw_only=True):
    registry: str


PORT = 8640
LOG_NAME = "requests.jsonl"
_EXAMPLES = """examples:
  skillhouse registry serve
  skillhouse registry serve /srv/skills --name skills.example.com --host 0.0.0.0 --port 8640
  skillhouse registry serve --private            reading needs a token, too
  skillhouse registry token new --scope publish:pdf --days 90
  skillhouse registry token new --scope 'publish:acme/*' --scope 'yank:acme/*' --note ci
  skillhouse registry token list
  skillhouse registry token revoke 3f2a9c81d0b4
  skillhouse registry backup /backup/skills.tar
  skillhouse registry restore /backup/skills.tar
  skillhouse registry trust root.crt             packages that it vouches for are taken
  skillhouse registry root init --key a.pem --key b.pem --key c.pem --threshold 2
  skillhouse registry root owners pdf=acme @ops=ops-team
  skillhouse registry root sign --key a.pem --key b.pem
  skillhouse registry root rotate --add d.pem --remove 3f2a9c81d0b4
  skillhouse registry root status
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

Scopes: read, metrics, admin, publish:NAMESPACE/NAME and yank:NAMESPACE/NAME, where NAME may be `*`
and publish:NAME is in the namespace `default`. A token is shown once and is kept nowhere.
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    serve = verbs.add_parser("serve", help="serve a registry until Ctrl-C")
    _configure_serve(serve)
    tokens = verbs.add_parser("token", help="make, list and revoke tokens")
    below = tokens.add_subparsers(dest="token_verb", required=True, metavar="VERB")
    new = below.add_parser("new", help="make a token, which is shown once")
    new.add_argument("--scope", dest="scopes", action="append", required=True, metavar="SCOPE",
                     help="such as read or publish:NS/NAME; may be repeated")  # fmt: skip
    new.add_argument("--days", type=natural, default=0, metavar="N", help="its life (no end)")
    new.add_argument("--note", default="", metavar="TEXT", help="what it is for, for the list")
    listed = below.add_parser("list", help="list the tokens, without their secrets")
    revoke = below.add_parser("revoke", help="end a token at once")
    revoke.add_argument("id", metavar="ID", help="as `token list` shows it")
    configure_mirror(verbs.add_parser("mirror", help="copy a repository into a directory of files"))
    trust = verbs.add_parser("trust", help="trust a root certificate of publishers")
    trust.add_argument("file", metavar="FILE", help="such as root.crt")
    configure_backup(verbs)
    configure_root(verbs.add_parser("root", help="sign what is current and whose a name is"))
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
    add("--log", metavar="FILE",
        help="the log, a line a request (requests.jsonl in DIRECTORY; - is stderr)")  # fmt: skip
    add("--oidc", metavar="FILE", help="whose tokens of identity providers publish which name")
    add("--webhook", default="", metavar="URL", help="each change is sent there, signed")
    add("--webhook-secret", default="", metavar="PLACE",
        help="env:NAME or file:PATH of what signs it, in base64")  # fmt: skip
    add_common(serve)


def _run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Do what the words say; 1 when there was no such token."""
    if options.verb == "serve":
        return _serve(options, terminal)
    if options.verb == "mirror":
        return run_mirror(options, terminal)
    if options.verb in CHANGES:
        return change(options, terminal)
    if options.verb == "root" and getattr(options, "pending", None):
        refuse_agents("registry root")
        return sign_elsewhere(options, terminal)
    work = {"new": _new, "list": _list, "revoke": _revoke}
    others = {"root": run_root}
    verb = work[options.token_verb] if options.verb == "token" else others.get(options.verb, _trust)
    if verb is not _list:
        refuse_agents(f"registry {options.verb}")
    directory = _directory(options)
    if options.verb == "restore":
        return run_backup(directory, options, terminal)
    looks = verb in (_list, _revoke) or options.verb == "backup"
    if looks and not (directory / DATABASE).is_file():
        # Who looks makes nothing.
        if verb is _list and not options.directory:
            return _print([], options, terminal)
        raise UsageError(f"no registry is in `{directory}`; `skillhouse registry serve` makes one")
    if options.verb == "backup":
        return run_backup(directory, options, terminal)
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

    directory = _directory(options)
    repository = open_repository(
        directory, name=options.name, requires_signature=options.require_signatures
    )

    def announce(url: str) -> None:
        if options.json:
            terminal.json(ServedAnswer(address=url, name=repository.name))
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
        with served(directory), _parts(repository, directory, options) as parts:
            return service.serve_registry(
                repository,
                host=options.host,
                port=options.port,
                announce=announce,
                policy=policy,
                parts=parts,
                problem=terminal.note,
            )
    finally:
        repository.store.close()


@contextmanager
def _parts(
    repository: HostedRepository, directory: Path, options: argparse.Namespace
) -> Iterator[ServerParts]:
    """Give the log and the webhook of a server while it runs."""
    from skillhouse.extensions.registry.operations import LogFile, ServerParts

    named = Path(options.start or ".", options.log).absolute() if options.log else None
    log = LogFile(None if options.log == "-" else named or directory / LOG_NAME)
    with ExitStack() as stack:
        stack.callback(log.close)
        house = stack.enter_context(house_of(options))
        webhook = _webhook(repository, house, options)
        yield ServerParts(
            log=log,
            webhook=None if webhook is None else stack.enter_context(webhook),
            exchange=_exchange(repository, house, options),
        )


def _exchange(
    repository: HostedRepository, house: Skillhouse, options: argparse.Namespace
) -> TokenExchange | None:
    if not options.oidc:
        return None
    with needs_extra("registry"):
        from skillhouse.extensions.registry import oidc
        from skillhouse.house.issuer_tokens import fetch_by

    rules = oidc.read_rules(Path(options.start or ".", options.oidc).absolute())
    return oidc.TokenExchange(repository, rules, fetch_by(house.services.network))


def _webhook(
    repository: HostedRepository, house: Skillhouse, options: argparse.Namespace
) -> ChangeWebhook | None:
    from skillhouse.approval import SignatureError
    from skillhouse.extensions.registry.change_webhook import ChangeWebhook

    if not options.webhook:
        return None
    if not is_place(options.webhook_secret):
        raise UsageError("expected --webhook-secret env:NAME or file:PATH beside --webhook")
    environment = house.config.places.environment
    what = "the secret of the webhook"
    secret = read_secret(options.webhook_secret, what, environment, key="--webhook-secret")

    def post(url: str, headers: Mapping[str, str], body: bytes) -> int:
        return anyio.run(house.services.network.post, url, headers, body)

    try:
        return ChangeWebhook(repository, options.webhook, secret, post)
    except SignatureError as error:
        raise UsageError(f"--webhook-secret: {error}") from error


def _new(repository: HostedRepository, options: argparse.Namespace, terminal: Terminal) -> int:
    secret, token = new_token(
        repository.store,
        tuple(map(checked_scope, options.scopes)),
        datetime.now(UTC),
        days=options.days,
        note=options.note,
    )
    if options.json:
        terminal.json(structs.replace(_answer(token), token=secret))
        return 0
    terminal.line(secret)
    terminal.note(f"token {token.id} may {', '.join(token.scopes)}; it is not shown again")
    return 0


def _list(repository: HostedRepository, options: argparse.Namespace, terminal: Terminal) -> int:
    return _print(repository.store.tokens(), options, terminal)


def _print(tokens: Sequence[ReleaseToken], options: argparse.Namespace, terminal: Terminal) -> int:
    return terminal.listing(
        tokens,
        _answer,
        _line,
        name="tokens",
        as_json=options.json,
        nothing="no tokens yet; make one with `skillhouse registry token new --scope …`",
    )


def _revoke(repository: HostedRepository, options: argparse.Namespace, terminal: Terminal) -> int:
    is_done = repository.store.revoke_token(options.id, utc_text(datetime.now(UTC)))
    text = "revoked" if is_done else "no such token in use"
    terminal.answer(
        RevokedReleaseTokenAnswer(id=options.id, revoked=is_done), text, as_json=options.json
    )
    return 0 if is_done else 1


def _trust(repository: HostedRepository, options: argparse.Namespace, terminal: Terminal) -> int:
    name = repository.trust_root(Path(options.start or ".", options.file).read_bytes())
    text = f"packages of publishers of `{shown(name)}` are taken now"
    terminal.answer(TrustedRegistryAnswer(registry=name), text, as_json=options.json)
    return 0


def _answer(token: ReleaseToken) -> ReleaseTokenAnswer:
    return copied(ReleaseTokenAnswer, token)


def _line(token: ReleaseToken) -> str:
    end = f"until {token.expires_at}" if token.expires_at else "without an end"
    state = f"revoked {token.revoked_at}" if token.revoked_at else end
    note = f"  {shown(token.note)}" if token.note else ""
    return f"{token.id}  {', '.join(token.scopes)}  {state}{note}"


VERBS = {"registry": Verb(_EXAMPLES, _configure, _run)}
