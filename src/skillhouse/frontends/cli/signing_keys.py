"""`skillhouse keys` and `skillhouse signer keys`."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from skillhouse.extension import own_module
from skillhouse.floor import MissingExtraError
from skillhouse.floor.machine import seconds_of
from skillhouse.frontends.cli.options import UsageError, Verb, add_common, house_of
from skillhouse.frontends.cli.publisher_keys import (
    add_removal_options,
    is_of_publisher,
    print_publishers,
    publisher_keys,
)
from skillhouse.frontends.cli.publisher_secrets import add_password
from skillhouse.frontends.cli.publisher_verbs import (
    add_publisher_options,
    add_publisher_verbs,
    run_publisher_verb,
)
from skillhouse.house.own_files import KEYSTORE_FILE

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import Skillhouse

_EXAMPLES = """examples:
  skillhouse keys new root --for root --registry skills.example.com
  skillhouse keys new acme --for skills
  skillhouse keys list
  skillhouse keys request acme
  skillhouse keys issue acme.csr --by root
  skillhouse keys certify developer-acme.crt
  skillhouse keys trust root.crt
  skillhouse keys trust 1.root.json --repository team    shows its fingerprint and asks
  skillhouse keys revoke developer-acme.crt --by root --reason "key lost"
  skillhouse keys remove acme                       asks for its name; keeps an encrypted copy

These keys are for publishers of skills (docs/guides/sign-skills.md); those that sign messages and
transactions are under `skillhouse signer keys`. The password is asked at the terminal;
`--password fd:3`, `env:NAME` or `keyring` says where it is instead. It is never an argument.
"""
_SIGNER_EXAMPLES = """examples:
  skillhouse signer keys new main --kind ed25519
  skillhouse signer keys import wallet --kind secp256k1 --limit eip155:1=0.5/1
  skillhouse signer keys import wallet --kind secp256k1 --from 3 3< key.hex
  skillhouse signer keys session new bot --ttl 24h --limit eip155:8453=0.01/0.05
  skillhouse signer keys list
  skillhouse signer keys limit main --limit message=1/10
  skillhouse signer keys remove main --yes
  skillhouse signer keys accept              after the clock was set back, or a copy put back
  skillhouse signer keys session list
  skillhouse signer keys session rotate bot
  skillhouse signer keys session revoke --all
  skillhouse signer keys log

A limit is CURRENCY=EACH/DAY: the most at once and in 24 hours, fees included. The currency is
`eip155:CHAIN` for a chain's own coin, `eip155:CHAIN/erc20:0xADDRESS` for a token (in base units),
or `message`. The password is asked at the terminal; `--password fd:3`, `env:NAME` or `keyring`
says where it is instead. It is never an argument.
"""

_PUBLISHER_VERBS = ("request", "issue", "certify", "revoke", "trust")

KINDS = ("ed25519", "secp256k1")
"""Of keys that sign messages and transactions; those of the signer's `KeyKind`."""
TTL_DEFAULT = "24h"
"""The published design gives a session key 24 hours."""


def _configure(parser: argparse.ArgumentParser) -> None:
    """Add the verbs about publishers, and those of the signer, which the help leaves out."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    _verb(verbs, "list", "list the keys and what they may do")
    new = _verb(verbs, "new", "make a key", is_locked=True)
    _add_kind(new, "ed25519")
    _add_terms(new)
    add_publisher_options(new)
    add_publisher_verbs(_verb, verbs)
    remove = _verb(verbs, "remove", "forget a key for good", is_locked=True)
    remove.add_argument("--yes", action="store_true", help="really; do not ask")
    add_removal_options(remove)
    _add_names(verbs, "new", "remove")
    _add_signer_verbs(verbs, is_listed=False)


def _configure_signer(parser: argparse.ArgumentParser) -> None:
    groups = parser.add_subparsers(dest="group", required=True, metavar="GROUP")
    keys = groups.add_parser("keys", help="the keys that sign messages and transactions")
    verbs = keys.add_subparsers(dest="verb", required=True, metavar="VERB")
    _verb(verbs, "list", "list the keys and what they may do")
    new = _verb(verbs, "new", "make a key", is_locked=True)
    _add_kind(new, "ed25519")
    _add_terms(new)
    remove = _verb(verbs, "remove", "forget a key for good", is_locked=True)
    remove.add_argument("--yes", action="store_true", help="really; do not ask")
    _add_names(verbs, "new", "remove")
    _add_signer_verbs(verbs)


def _add_signer_verbs(verbs: Any, *, is_listed: bool = True) -> None:
    """Add the verbs that only keys of messages and transactions have."""
    _verb(verbs, "log", "show when keys were made, ended and replaced", is_listed=is_listed)
    imported = _verb(verbs, "import", "import a private key", is_locked=True, is_listed=is_listed)
    _add_kind(imported, "secp256k1")
    imported.add_argument(
        "--from", dest="source", type=int, metavar="FD", help="read it from a descriptor"
    )
    _add_terms(imported)
    text = "put other limits on a key, or none"
    _add_terms(_verb(verbs, "limit", text, is_locked=True, is_listed=is_listed))
    text = "believe the clock and the counters as they are"
    _verb(verbs, "accept", text, is_locked=True, is_listed=is_listed)
    session = _verb(verbs, "session", "keys that sign by themselves within limits",
                    is_group=True, is_listed=is_listed)  # fmt: skip
    _configure_session(session.add_subparsers(dest="session", required=True, metavar="VERB"))
    _add_names(verbs, "import", "limit")


def _add_names(verbs: Any, *names: str) -> None:
    for name in names:
        verbs.choices[name].add_argument("name", metavar="NAME", help="lowercase, a-z 0-9 -")


def _run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Do what the words say; 1 when there was nothing to revoke."""
    with house_of(options) as house:
        verb = options.verb if options.verb != "session" else f"session {options.session}"
        if verb == "list":
            return _list(house, options, terminal)
        if verb not in _OF_SIGNER and _is_of_publisher(verb, house, options):
            return run_publisher_verb(verb, house, options, terminal)
        terminal.note(f"`keys` is for publishers: use `skillhouse signer keys {verb}` for this key")
        return _run_signer(verb, house, options, terminal)


def _run_group(options: argparse.Namespace, terminal: Terminal) -> int:
    """Do what the words after `signer keys` say."""
    with house_of(options) as house:
        verb = options.verb if options.verb != "session" else f"session {options.session}"
        if verb == "list":
            found: int = own_module("signer", "key_verbs").list_keys(
                house.config.state_directory, [], options, terminal
            )
            return found
        return _run_signer(verb, house, options, terminal)


def _run_signer(
    verb: str, house: Skillhouse, options: argparse.Namespace, terminal: Terminal
) -> int:
    if verb == "remove" and not options.yes:
        raise UsageError("`keys remove` forgets the key for good; add --yes if that is meant")
    found: int = own_module("signer", "key_verbs").run(verb, house, options, terminal)
    return found


_OF_SIGNER = ("log", "session list", "session revoke")


def _list(house: Skillhouse, options: argparse.Namespace, terminal: Terminal) -> int:
    """List the keys of publishers, and with the signer those that sign transactions."""
    publishers = publisher_keys(house, datetime.now(UTC))
    try:
        signing = own_module("signer", "key_verbs")
    except MissingExtraError as error:
        if options.json:
            terminal.json_list("keys", publishers)
            return 0
        if (house.config.state_directory / KEYSTORE_FILE).exists():
            terminal.note(f"keys of transactions are not listed: {error}")
        elif not publishers:
            terminal.note("no keys yet; `skillhouse keys new NAME --for skills` makes one")
        print_publishers(publishers, terminal)
        return 0
    found: int = signing.list_keys(house.config.state_directory, publishers, options, terminal)
    return found


def _is_of_publisher(verb: str, house: Skillhouse, options: argparse.Namespace) -> bool:
    if verb == "remove":
        return is_of_publisher(house, options)
    return verb in _PUBLISHER_VERBS or getattr(options, "use", "transactions") != "transactions"


def seconds_from(text: str) -> int:
    """Return a length of time such as 90s, 30m, 24h or 7d, for argparse."""
    seconds = seconds_of(text, units="smhd", digits=9)
    if not seconds or text.startswith("0"):
        raise argparse.ArgumentTypeError(f"expected a time such as 30m or 24h, got `{text}`")
    return seconds


def _configure_session(verbs: Any) -> None:
    new = _verb(verbs, "new", "make a session key", is_locked=True)
    _add_kind(new, "secp256k1")
    new.add_argument(
        "--ttl", type=seconds_from, default=TTL_DEFAULT, metavar="TIME", help="life (24h)"
    )
    _add_terms(new)
    _verb(verbs, "list", "list the session keys, ended ones too")
    rotate = _verb(verbs, "rotate", "put a new key in its place", is_locked=True)
    revoke = _verb(verbs, "revoke", "end a session key at once; needs no password")
    revoke.add_argument("--all", action="store_true", help="end every one")
    revoke.add_argument("--reason", default="by the user", metavar="TEXT", help="for the log")
    revoke.add_argument("name", nargs="?", metavar="NAME")
    for parser in (new, rotate):
        parser.add_argument("name", metavar="NAME", help="lowercase, a-z 0-9 -")


def _verb(
    verbs: Any,
    name: str,
    text: str,
    *,
    is_locked: bool = False,
    is_group: bool = False,
    is_listed: bool = True,
) -> argparse.ArgumentParser:
    # What has no `help` is understood, and not listed.
    said = {"help": text} if is_listed else {"description": f"{text[:1].upper()}{text[1:]}."}
    parser: argparse.ArgumentParser = verbs.add_parser(name, **said)
    if is_group:
        return parser
    add_common(parser)
    if is_locked:
        add_password(parser)
    return parser


def _add_kind(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("--kind", choices=KINDS, default=default, help=default)


def _add_terms(parser: argparse.ArgumentParser) -> None:
    for option, text in (
        ("--limit", "CURRENCY=EACH/DAY; may be repeated"),
        ("--recipient", "an address that may be paid; may be repeated"),
        ("--contract", "a contract that may be called; may be repeated"),
    ):
        parser.add_argument(option, action="append", default=[], metavar="WHAT", help=text)


def _with_session_list(words: list[str]) -> list[str]:
    """Return `session list` for `session` alone, as other groups do."""
    bare = words[:1] == ["session"] and (len(words) == 1 or words[1] in ("--json", "-C"))
    return ["session", "list", *words[1:]] if bare else words


def _with_list(words: list[str]) -> list[str]:
    """Return `keys list` for `keys` alone; the same for what is below."""
    rest = words[1:]
    if not rest or rest[0] in ("--json", "-C"):
        return [*words[:1], "list", *rest]
    return [*words[:1], *_with_session_list(rest)]


VERBS = {
    "keys": Verb(_EXAMPLES, _configure, _run, without="list", adapt=_with_session_list),
    "signer": Verb(
        _SIGNER_EXAMPLES, _configure_signer, _run_group, without="keys", adapt=_with_list
    ),
}
