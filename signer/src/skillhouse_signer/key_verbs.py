"""What `skillhouse signer keys` does with the keys that sign messages and transactions."""

from __future__ import annotations

import argparse
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from msgspec import UNSET, UnsetType

from skillhouse.answers.json_form import JsonAnswer, copied
from skillhouse.approval import OWNER
from skillhouse.floor import nearest, structs
from skillhouse.frontends.cli.options import UsageError
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.cli.publisher_keys import print_publishers
from skillhouse.presentation.text import counted, shown
from skillhouse_signer import (
    KEYSTORE_FILE,
    STATE_FILE,
    KeyKind,
    SessionKeys,
    SignerProcess,
    limit_text,
    read_key_records,
    terms_from,
)

if TYPE_CHECKING:
    from skillhouse.answers.signatures import PublisherKeyAnswer
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import Skillhouse
    from skillhouse_signer import KeyInfo, Terms


class LimitAnswer(JsonAnswer, frozen=True, kw_only=True):
    """As texts: amounts have more digits than a JSON number is sure to keep."""

    currency: str
    each: str
    day: str


class KeyAnswer(JsonAnswer, frozen=True, kw_only=True):
    name: str
    id: str
    kind: str
    public_key: str
    created: str
    expires: str
    limits: list[LimitAnswer]
    recipients: tuple[str, ...]
    contracts: tuple[str, ...]
    session: str | UnsetType = UNSET
    """In a list, the state of a session key."""


class SessionAnswer(JsonAnswer, frozen=True, kw_only=True):
    name: str
    id: str
    state: str
    expires: str
    reason: str


class KeyEventAnswer(JsonAnswer, frozen=True, kw_only=True):
    seq: int
    at: str
    event: str
    name: str
    id: str
    detail: str


class AcceptedKeysAnswer(JsonAnswer, frozen=True, kw_only=True):
    accepted: bool = True


class RevokedSessionsAnswer(JsonAnswer, frozen=True, kw_only=True):
    revoked: int


def run(verb: str, house: Skillhouse, options: argparse.Namespace, terminal: Terminal) -> int:
    """Do what the words say; 1 when there was nothing to revoke."""
    state = house.config.state_directory
    if verb == "log":
        return _log(state, options, terminal)
    if verb == "session list":
        return _list_sessions(state, options, terminal)
    if verb == "session revoke":
        return _revoke(house, options, terminal)
    return _change(verb, house, options, terminal)


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
        terminal.answer(AcceptedKeysAnswer(), text, as_json=options.json)
    else:
        text = f"{_DONE[verb]} {key.name}: {key.id}"
        terminal.answer(_answer(key), text, as_json=options.json)
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


def list_keys(
    state: Path,
    publishers: list[PublisherKeyAnswer],
    options: argparse.Namespace,
    terminal: Terminal,
) -> int:
    keys = read_key_records(state / KEYSTORE_FILE).keys
    states = {session.key_id: session.state for session in _sessions(state).all()}
    if options.json:
        found = [structs.replace(_answer(key), session=states.get(key.id, "")) for key in keys]
        terminal.json_list("keys", [*found, *publishers])
        return 0
    if not keys and not publishers:
        terminal.note("no keys yet; `skillhouse signer keys new NAME` makes one")
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


def _list_sessions(state: Path, options: argparse.Namespace, terminal: Terminal) -> int:
    found = _sessions(state).all()
    if options.json:
        shown_sessions = [
            SessionAnswer(
                name=s.name,
                id=s.key_id,
                state=s.state,
                expires=_time(s.expires_ms),
                reason=s.reason,
            )
            for s in found
        ]
        terminal.json_list("sessions", shown_sessions)
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
    terminal.answer(RevokedSessionsAnswer(revoked=count), text, as_json=options.json)
    if not count and options.name:
        close = nearest(options.name, [s.name for s in sessions.all() if s.state == "active"])
        terminal.note(f"did you mean `{close[0]}`" if close else "no such session key is active")
    return 0 if count or options.all else 1


def _log(state: Path, options: argparse.Namespace, terminal: Terminal) -> int:
    events = _sessions(state).events()
    if options.json:
        shown_events = [copied(KeyEventAnswer, e, at=_time(e.at_ms), id=e.key_id) for e in events]
        terminal.json_list("events", shown_events)
        return 0
    for event in events:
        words = " ".join(part for part in (event.event, event.name, event.detail) if part)
        terminal.rows([(_time(event.at_ms), shown(words))])
    return 0


def _sessions(state: Path) -> SessionKeys:
    return SessionKeys(state / STATE_FILE)


def _answer(key: KeyInfo) -> KeyAnswer:
    return KeyAnswer(
        name=key.name,
        id=key.id,
        kind=str(key.kind),
        public_key=key.public_key,
        created=_time(key.created_ms),
        expires=_time(key.expires_ms) if key.is_session else "",
        limits=[
            LimitAnswer(
                currency=limit.currency, each=str(limit.per_transaction), day=str(limit.per_day)
            )
            for limit in key.terms.limits
        ],
        recipients=tuple(key.terms.recipients),
        contracts=tuple(key.terms.contracts),
    )


def _time(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S}Z"
