"""The signer itself: keeps the keys and signs requests that pass every check, in its own process.

It trusts nothing that it can check itself: it decodes the transaction again and compares it with
the approved content, the sealed terms, the session, the clock and the counters.
"""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from skillhouse.floor import Clock, structs, system_clock
from skillhouse.registry import passwords as unlock
from skillhouse.registry.passwords import SignerError
from skillhouse.store import STATE, Store
from skillhouse_signer import key_state, keystore
from skillhouse_signer.crypto import (
    key_id,
    new_secret,
    public_key,
    secret_from,
    sign_message,
    sign_transaction,
)
from skillhouse_signer.key_state import accept_clock, check_terms, count, gather_future, trusted_now
from skillhouse_signer.keys import (
    KeyInfo,
    KeyKind,
    TransactionEffect,
    checked_name,
    message_movement,
    movement_of,
)
from skillhouse_signer.keystore import OpenKeystore
from skillhouse_signer.request import (
    KeyList,
    Named,
    NewKey,
    Opening,
    Signature,
    SignRequest,
    check_request,
    message_text,
)
from skillhouse_signer.transaction import Transaction, decode_transaction

SESSION_SECONDS_MAX = 7 * 86_400
"""Longest life of a session key; the design has one day."""
FOREVER_MS = 1 << 62

Checked = tuple[TransactionEffect, Transaction | str]


class Descriptors(Struct, frozen=True, kw_only=True):
    """Descriptors from which secrets are read once; None for the terminal."""

    password: int | None = None
    imported: int | None = None


class Service:
    """One opened keystore."""

    def __init__(
        self, descriptors: Descriptors | None = None, *, clock: Clock = system_clock
    ) -> None:
        self._descriptors = descriptors or Descriptors()
        self._clock = clock
        self._path = Path()
        self._state = Path()
        self._source = ""
        self._cost = keystore.COST
        self._store: OpenKeystore | None = None

    def open(self, opening: Opening) -> KeyList:
        """Open the keystore, unless there is none yet."""
        self._path, self._state = Path(opening.keystore), Path(opening.state)
        self._source, self._cost = opening.source, opening.cost
        if opening.cost not in keystore.COSTS:
            raise SignerError("keystore", "the cost of the password's hash is out of bounds")
        if self._path.exists():
            lock, store_id = keystore.lock_of(self._path)
            self._store = keystore.open_keystore(self._path, self._secret(lock, store_id))
        return self._keys()

    def new(self, wanted: NewKey) -> KeyList:
        """Make or import a key, and the keystore when it is the first."""
        name = checked_name(wanted.name)
        if wanted.session_seconds:
            if wanted.session_seconds not in range(1, SESSION_SECONDS_MAX + 1):
                raise SignerError("limit", f"expected a life of 1 to {SESSION_SECONDS_MAX} seconds")
            if not wanted.terms.limits:
                raise SignerError(
                    "limit", "a session key needs a limit; without one it signs nothing"
                )
        secret = self._imported(wanted.kind) if wanted.is_import else new_secret(wanted.kind)
        with self._changing() as (store, connection, _):
            now_ms = trusted_now(connection, store.records.store_id, self._clock())
            made = self._key(wanted, secret, now_ms)
            for key in store.records.keys:
                if key.name == name or key.id == made.id:
                    raise SignerError("name-taken", f"the key is there already: `{key.name}`")
            self._keep(store, (*store.records.keys, made), {made.id: secret})
            key_state.log_event(
                connection, now_ms, (made.id, name), "imported" if wanted.is_import else "created"
            )
            if made.is_session:
                key_state.begin_session(connection, made)
        return KeyList(keys=(made,))

    def remove(self, named: Named) -> KeyList:
        with self._changing() as (store, connection, now_ms):
            key = store.records.get(named.name)
            key_state.end_session(connection, key.id, now_ms, "removed")
            key_state.log_event(connection, now_ms, (key.id, key.name), "removed")
            self._keep(store, tuple(k for k in store.records.keys if k.id != key.id), {})
        return KeyList(keys=(key,))

    def terms(self, named: Named) -> KeyList:
        if named.terms is None:
            raise SignerError("limit", "expected the new terms")
        with self._changing() as (store, connection, now_ms):
            key = store.records.get(named.name)
            if key.is_session and not named.terms.limits:
                raise SignerError("limit", "a session key needs a limit")
            changed = structs.replace(key, terms=named.terms)
            keys = tuple(changed if k.id == key.id else k for k in store.records.keys)
            key_state.log_event(connection, now_ms, (key.id, key.name), "terms", str(named.terms))
            self._keep(store, keys, {})
        return KeyList(keys=(changed,))

    def rotate(self, named: Named) -> KeyList:
        """Put a new session key in a session key's place: same terms, same count, whole life."""
        with self._changing() as (store, connection, _):
            now_ms = trusted_now(connection, store.records.store_id, self._clock())
            old = store.records.get(named.name)
            if not old.is_session:
                raise SignerError("wrong-key", f"`{old.name}` is no session key; make a new key")
            secret = new_secret(old.kind)
            wanted = NewKey(
                name=old.name, kind=old.kind, terms=old.terms, session_seconds=old.session_seconds
            )
            # INVARIANT: the account stays, so that rotating is no way to a fresh allowance.
            made = structs.replace(self._key(wanted, secret, now_ms), account=old.account)
            keys = tuple(made if key.id == old.id else key for key in store.records.keys)
            key_state.end_session(connection, old.id, now_ms, "rotated")
            key_state.begin_session(connection, made)
            key_state.log_event(connection, now_ms, (old.id, old.name), "rotated", f"to {made.id}")
            key_state.log_event(connection, now_ms, (made.id, made.name), "created", "by rotation")
            self._keep(store, keys, {made.id: secret})
        return KeyList(keys=(made,))

    def accept(self, named: Named) -> KeyList:
        """Accept the clock and the counters as they are; a person has checked them."""
        store = self._opened()
        moment = self._clock()
        with Store(self._state, STATE) as state, state.transaction() as connection:
            accept_clock(connection, store.records.store_id, moment)
            gather_future(connection, moment.wall_ms)
            key_state.log_event(connection, moment.wall_ms, ("", ""), "accepted", "clock, counters")
        return self._keys()

    def sign(self, request: SignRequest) -> Signature:
        """Sign one request; SignerError: a check failed, and nothing was signed or counted."""
        check_request(request)
        self._store = store = keystore.reopen(self._path, self._opened())
        key = store.records.get(request.key)
        if key.id != request.key_id:
            raise SignerError(
                "binding", f"`{key.name}` is another key than was agreed to; ask again"
            )
        if not key.is_session and not request.approval:
            raise SignerError(
                "needs-person",
                f"`{key.name}` signs only what a person agreed to on a transaction page; "
                "a session key may sign within its limits",
            )
        movement, content = _checked_content(key, request)
        check_terms(key, movement)
        with Store(self._state, STATE) as state, state.transaction() as connection:
            now_ms = trusted_now(connection, store.records.store_id, self._clock())
            if now_ms >= request.expires_ms:
                raise SignerError("expired", "the request is too old; ask again")
            key_state.check_session(connection, key, now_ms)
            _use(connection, request, now_ms)
            count(connection, key, movement.totals(), now_ms)
            # INVARIANT: the block's end makes the count durable before the signature leaves this
            # process: a crash in between counts too much, never too little.
            return _signed(key, store.secrets[key.id], content)

    def _key(self, wanted: NewKey, secret: bytes, now_ms: int) -> KeyInfo:
        identity = key_id(wanted.kind, secret)
        return KeyInfo(
            id=identity,
            name=wanted.name,
            kind=wanted.kind,
            public_key=public_key(wanted.kind, secret).hex(),
            created_ms=now_ms,
            terms=wanted.terms,
            account=identity,
            session_seconds=wanted.session_seconds,
        )

    @contextlib.contextmanager
    def _changing(self) -> Iterator[tuple[OpenKeystore, sqlite3.Connection, int]]:
        """Hold the state's write lock, under which the keystore is read and written too."""
        # Before the lock: a person may have to type.
        made = self._made() if self._store is None else None
        with Store(self._state, STATE) as state, state.transaction() as connection:
            moment = self._clock()
            if made is not None and self._path.exists():
                raise SignerError("keystore", "another process made the keystore; start again")
            if made is not None:
                accept_clock(connection, made.records.store_id, moment)
            store = made or keystore.reopen(self._path, self._opened())
            yield store, connection, moment.wall_ms

    def _keep(
        self, store: OpenKeystore, keys: tuple[KeyInfo, ...], added: dict[str, bytes]
    ) -> None:
        if len(keys) > keystore.KEYS_MAX:
            raise SignerError("keystore", f"expected at most {keystore.KEYS_MAX} keys; remove some")
        known = store.secrets | added
        changed = structs.replace(
            store,
            records=structs.replace(store.records, keys=keys),
            secrets={key.id: known[key.id] for key in keys},
        )
        keystore.save(self._path, changed)
        self._store = changed

    def _made(self) -> OpenKeystore:
        store_id = secrets.token_hex(16)
        if self._source == "keyring":
            ring = unlock.system_keyring()
            secret = unlock.keyring_secret(ring, store_id, create=True)
            return keystore.new_keystore(secret, "keyring", store_id, cost=self._cost)
        if self._source == "descriptor":
            secret = self._secret("password", store_id)
            unlock.check_new(secret)
        else:
            secret = unlock.new_password()
        return keystore.new_keystore(secret, "password", store_id, cost=self._cost)

    def _secret(self, lock: str, store_id: str) -> bytes:
        if lock == "keyring":
            return unlock.keyring_secret(unlock.system_keyring(), store_id)
        if self._descriptors.password is not None:
            descriptor, self._descriptors = (
                self._descriptors.password,
                structs.replace(self._descriptors, password=None),
            )
            return unlock.read_descriptor(descriptor)
        if self._source == "terminal":
            return unlock.ask_password("password of the keystore: ")
        raise SignerError("no-password", "no password was given; name a descriptor or a variable")

    def _imported(self, kind: KeyKind) -> bytes:
        descriptor = self._descriptors.imported
        if descriptor is None:
            asked = unlock.ask_password(
                "private key, 64 hex digits: ", instead="use --from with a descriptor"
            )
            return secret_from(kind, asked)
        self._descriptors = structs.replace(self._descriptors, imported=None)
        return secret_from(kind, unlock.read_descriptor(descriptor))

    def _opened(self) -> OpenKeystore:
        if self._store is None:
            raise SignerError("unknown-key", "there is no key yet: ask the user to make one")
        return self._store

    def _keys(self) -> KeyList:
        return KeyList(keys=self._store.records.keys if self._store else ())


def _checked_content(key: KeyInfo, request: SignRequest) -> Checked:
    """Return what a request moves and what is signed, decoded here and now."""
    if request.type == "message":
        return message_movement(), message_text(request.payload)
    if key.kind is not KeyKind.SECP256K1:
        raise SignerError("wrong-key", f"`{key.name}` ({key.kind}) signs messages, no transactions")
    transaction = decode_transaction(request.payload)
    return movement_of(transaction), transaction


def _signed(key: KeyInfo, secret: bytes, content: Transaction | str) -> Signature:
    if isinstance(content, str):
        scheme = "ed25519" if key.kind is KeyKind.ED25519 else "eip191"
        signature = sign_message(key.kind, secret, content)
        return Signature(
            key_id=key.id, public_key=key.public_key, scheme=scheme, signature=signature
        )
    signature, raw, hashed = sign_transaction(secret, content)
    return Signature(
        key_id=key.id,
        public_key=key.public_key,
        scheme="transaction",
        signature=signature,
        transaction=raw,
        transaction_hash=hashed,
    )


def _use(connection: sqlite3.Connection, request: SignRequest, now_ms: int) -> None:
    """Take the request and its approval, each of which is good for one signature."""
    tokens = [(f"request:{request.id}", request.expires_ms)]
    if request.approval:
        # Kept for good: an approval has no life that could be read from it.
        tokens.append((f"approval:{request.approval}", FOREVER_MS))
    connection.execute("DELETE FROM sign_used WHERE until_ms < ?", (now_ms,))
    for token, until_ms in tokens:
        used = connection.execute("SELECT 1 FROM sign_used WHERE token = ?", (token,)).fetchone()
        if used:
            raise SignerError("replayed", "already signed; a new approval is needed")
        connection.execute("INSERT INTO sign_used VALUES (?, ?)", (token, until_ms))
