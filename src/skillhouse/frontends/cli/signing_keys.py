"""`skillhouse keys`."""

from __future__ import annotations

import argparse
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from skillhouse.approval import OWNER
from skillhouse.floor import nearest
from skillhouse.frontends.cli.options import UsageError, Verb, add_common, house_of
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.cli.publisher_keys import (
    add_removal_options,
    is_of_publisher,
    print_publishers,
    publisher_values,
)
from skillhouse.frontends.cli.publisher_verbs import (
    add_publisher_options,
    add_publisher_verbs,
    run_publisher_verb,
)
from skillhouse.frontends.presentation.text import counted, shown
from skillhouse.signer import (
    KEYSTORE_FILE,
    STATE_FILE,
    KeyKind,
    PasswordSource,
    SessionKeys,
    SignerProcess,
    limit_text,
    read_vault,
    terms_from,
)

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import Skillhouse
    from skillhouse.signer import KeyInfo, Terms

_EXAMPLES = """examples:
  skillhouse keys new main --kind ed25519
  skillhouse keys import wallet --kind secp256k1 --limit eip155:1=0.5/1
  skillhouse keys import wallet --kind secp256k1 --from 3 3< key.hex
  skillhouse keys session new bot --ttl 24h --limit eip155:8453=0.01/0.05
  skillhouse keys list
  skillhouse keys limit main --limit message=1/10
  skillhouse keys remove main
  skillhouse keys accept                            after the clock was set back, or a copy put back
  skillhouse keys session list
  skillhouse keys session rotate bot
  skillhouse keys session revoke --all
  skillhouse keys log

Publishers of skills (docs/guides/sign-skills.md):
  skillhouse keys new root --for root --registry skills.example.com
  skillhouse keys new acme --for skills
  skillhouse keys request acme
  skillhouse keys issue acme.csr --by root
  skillhouse keys certify developer-acme.crt
  skillhouse keys trust root.crt
  skillhouse keys revoke developer-acme.crt --by root --reason "key lost"
  skillhouse keys remove acme                       asks for its name; keeps an encrypted copy

A limit is CURRENCY=EACH/DAY: the most at once and in 24 hours, fees included. The currency is
`eip155:CHAIN` for a chain's own coin, `eip155:CHAIN/erc20:0xADDRESS` for a token (in base units),
or `message`. The password is asked at the terminal; `--password fd:3`, `env:NAME` or `keyring`
says where it is instead. It is never an argument.
"""

_PUBLISHER_VERBS = ("request", "issue", "certify", "revoke", "trust")

UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
TTL_DEFAULT = "24h"
"""The published design gives a session key 24 hours."""


def _configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    _verb(verbs, "list", "list the keys and what they may do")
    _verb(verbs, "log", "show when keys were made, ended and replaced")
    new = _verb(verbs, "new", "make a key", is_locked=True)
    _add_kind(new, KeyKind.ED25519)
    _add_terms(new)
    add_publisher_options(new)
    add_publisher_verbs(_verb, verbs)
    imported = _verb(verbs, "import", "import a private key", is_locked=True)
    _add_kind(imported, KeyKind.SECP256K1)
    imported.add_argument(
        "--from", dest="source", type=int, metavar="FD", help="read it from a descriptor"
    )
    _add_terms(imported)
    limit = _verb(verbs, "limit", "put other limits on a key, or none", is_locked=True)
    _add_terms(limit)
    remove = _verb(verbs, "remove", "forget a key for good", is_locked=True)
    remove.add_argument("--yes", action="store_true", help="really; do not ask")
    add_removal_options(remove)
    _verb(verbs, "accept", "believe the clock and the counters as they are", is_locked=True)
    session = verbs.add_parser("session", help="keys that sign by themselves within limits")
    _configure_session(session.add_subparsers(dest="session", required=True, metavar="VERB"))
    for name in ("new", "import", "limit", "remove"):
        verbs.choices[name].add_argument("name", metavar="NAME", help="lowercase, a-z 0-9 -")


def _run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Do what the words say; 1 when there was nothing to revoke."""
    with house_of(options) as house:
        state = house.config.state_directory
        verb = options.verb if options.verb != "session" else f"session {options.session}"
        if verb == "list":
            publishers = publisher_values(house, datetime.now(UTC))
            return _list(state, publishers, options, terminal)
        if verb == "log":
            return _log(state, options, terminal)
        if verb == "session list":
            return _list_sessions(state, options, terminal)
        if verb == "session revoke":
            return _revoke(house, options, terminal)
        if _is_of_publisher(verb, house, options):
            return run_publisher_verb(verb, house, options, terminal)
        if verb == "remove" and not options.yes:
            raise UsageError("`keys remove` forgets the key for good; add --yes if that is meant")
        return _change(verb, house, options, terminal)


def _is_of_publisher(verb: str, house: Skillhouse, options: argparse.Namespace) -> bool:
    if verb == "remove":
        return is_of_publisher(house, options)
    return verb in _PUBLISHER_VERBS or getattr(options, "use", "transactions") != "transactions"


def seconds_from(text: str) -> int:
    """Return a length of time such as 90s, 30m, 24h or 7d, for argparse."""
    if not re.fullmatch(r"[1-9][0-9]{0,8}[smhd]", text):
        raise argparse.ArgumentTypeError(f"expected a time such as 30m or 24h, got `{text}`")
    return int(text[:-1]) * UNITS[text[-1]]


def _configure_session(verbs: Any) -> None:
    new = _verb(verbs, "new", "make a session key", is_locked=True)
    _add_kind(new, KeyKind.SECP256K1)
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


def _verb(verbs: Any, name: str, text: str, *, is_locked: bool = False) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=text)
    add_common(parser)
    if is_locked:
        parser.add_argument(
            "--password",
            type=PasswordSource.parse,
            default=PasswordSource(),
            metavar="PLACE",
            help="terminal, keyring, fd:NUMBER or env:NAME",
        )
    return parser


def _add_kind(parser: argparse.ArgumentParser, default: KeyKind) -> None:
    parser.add_argument(
        "--kind", choices=[str(kind) for kind in KeyKind], default=str(default), help=str(default)
    )


def _add_terms(parser: argparse.ArgumentParser) -> None:
    for option, text in (
        ("--limit", "CURRENCY=EACH/DAY; may be repeated"),
        ("--recipient", "an address that may be paid; may be repeated"),
        ("--contract", "a contract that may be called; may be repeated"),
    ):
        parser.add_argument(option, action="append", default=[], metavar="WHAT", help=text)


def _terms(options: argparse.Namespace) -> Terms:
    return terms_from(tuple(options.limit), tuple(options.recipient), tuple(options.contract))


def _change(verb: str, house: Skillhouse, options: argparse.Namespace, terminal: Terminal) -> int:
    """Do what needs the opened keystore, and record it."""
    refuse_agents(f"keys {verb}")
    state = house.config.state_directory
    signer = SignerProcess(
        state / KEYSTORE_FILE,
        state / STATE_FILE,
        password=options.password,
        imported=getattr(options, "source", None),
        environment=os.environ,
    )
    try:
        key = anyio.run(_work, verb, signer, options)
    finally:
        signer.close()
    name, identity = (key.name, key.id) if key else ("", "")
    house.services.enforcement.noted(
        "key", user=OWNER, reason=f"{verb} {name}".strip(), key=identity
    )
    if key is None:
        text = "the clock and the counters are taken as they are"
        terminal.answer({"accepted": True}, text, as_json=options.json)
    else:
        text = f"{_DONE[verb]} {key.name}: {key.id}"
        terminal.answer(_value(key), text, as_json=options.json)
    return 0


_DONE = {
    "new": "made",
    "import": "imported",
    "limit": "changed",
    "remove": "forgot",
    "session new": "made session key",
    "session rotate": "rotated session key",
}


async def _work(verb: str, signer: SignerProcess, options: argparse.Namespace) -> KeyInfo | None:
    if verb in ("new", "import"):
        kind, is_import = KeyKind(options.kind), verb == "import"
        return await signer.new_key(options.name, kind, terms=_terms(options), is_import=is_import)
    if verb == "session new":
        return await signer.new_session(
            options.name, KeyKind(options.kind), terms=_terms(options), seconds=options.ttl
        )
    if verb == "limit":
        return await signer.set_terms(options.name, _terms(options))
    if verb == "session rotate":
        return await signer.rotate_session(options.name)
    if verb == "remove":
        return await signer.remove_key(options.name)
    await signer.accept()
    return None


def _list(
    state: Path,
    publishers: list[dict[str, Any]],
    options: argparse.Namespace,
    terminal: Terminal,
) -> int:
    keys = read_vault(state / KEYSTORE_FILE).keys
    states = {session.key_id: session.state for session in _sessions(state).all()}
    if options.json:
        found = [_value(key) | {"session": states.get(key.id, "")} for key in keys]
        terminal.json_list("keys", [*found, *publishers])
        return 0
    if not keys and not publishers:
        terminal.note("no keys yet; `skillhouse keys new NAME` makes one")
    for key in keys:
        what = str(key.kind)
        if key.is_session:
            what += f", session key, {states.get(key.id, 'missing')}, ends {_time(key.expires_ms)}"
        terminal.rows([(shown(key.name), what)])
        # Never cut: people compare it character by character.
        terminal.line(f"    {shown(key.id)}")
        for limit in key.terms.limits:
            terminal.rows([("", f"at most {limit_text(limit)}")], indent=4)
    print_publishers(publishers, terminal)
    return 0


def _with_session_list(words: list[str]) -> list[str]:
    """Return `session list` for `session` alone, as other groups do."""
    bare = words[:1] == ["session"] and (len(words) == 1 or words[1] in ("--json", "-C"))
    return ["session", "list", *words[1:]] if bare else words


def _list_sessions(state: Path, options: argparse.Namespace, terminal: Terminal) -> int:
    found = _sessions(state).all()
    if options.json:
        terminal.json_list(
            "sessions",
            [
                {
                    "name": s.name,
                    "id": s.key_id,
                    "state": s.state,
                    "expires": _time(s.expires_ms),
                    "reason": s.reason,
                }
                for s in found
            ],
        )
        return 0
    for session in found:
        why = f" ({session.reason})" if session.reason else ""
        text = f"{session.state}{why}, ends {_time(session.expires_ms)}"
        terminal.rows([(shown(session.name), shown(text))])
        terminal.line(f"    {shown(session.key_id)}")
    return 0


def _revoke(house: Skillhouse, options: argparse.Namespace, terminal: Terminal) -> int:
    if bool(options.name) == options.all:
        raise UsageError("expected a session key's name, or --all")
    sessions = _sessions(house.config.state_directory)
    if options.all:
        count = sessions.revoke_all(options.reason)
    else:
        count = sessions.revoke(options.name, options.reason)
    if count:
        which = options.name or "all"
        house.services.enforcement.noted(
            "session-key-revoked", user=OWNER, reason=options.reason, key=which
        )
    text = f"revoked {counted(count, 'session key')}"
    terminal.answer({"revoked": count}, text, as_json=options.json)
    if not count and options.name:
        close = nearest(options.name, [s.name for s in sessions.all() if s.state == "active"])
        terminal.note(f"did you mean `{close[0]}`" if close else "no such session key is active")
    return 0 if count or options.all else 1


def _log(state: Path, options: argparse.Namespace, terminal: Terminal) -> int:
    events = _sessions(state).events()
    if options.json:
        terminal.json_list(
            "events",
            [
                {
                    "seq": e.seq,
                    "at": _time(e.at_ms),
                    "event": e.event,
                    "name": e.name,
                    "id": e.key_id,
                    "detail": e.detail,
                }
                for e in events
            ],
        )
        return 0
    for event in events:
        words = " ".join(part for part in (event.event, event.name, event.detail) if part)
        terminal.rows([(_time(event.at_ms), shown(words))])
    return 0


def _sessions(state: Path) -> SessionKeys:
    return SessionKeys(state / STATE_FILE)


def _value(key: KeyInfo) -> dict[str, Any]:
    return {
        "name": key.name,
        "id": key.id,
        "kind": str(key.kind),
        "public_key": key.public_key,
        "created": _time(key.created_ms),
        "expires": _time(key.expires_ms) if key.is_session else "",
        # As texts: amounts have more digits than a JSON number is sure to keep.
        "limits": [
            {
                "currency": limit.currency,
                "each": str(limit.per_transaction),
                "day": str(limit.per_day),
            }
            for limit in key.terms.limits
        ],
        "recipients": list(key.terms.recipients),
        "contracts": list(key.terms.contracts),
    }


def _time(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S}Z"


VERBS = {"keys": Verb(_EXAMPLES, _configure, _run, without="list", adapt=_with_session_list)}
