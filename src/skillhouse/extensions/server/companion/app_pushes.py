"""Web Push (RFC 8030): wakes an app where its person switched that on.

A browser names the address, so it is as untrusted as any: it is reached through net's rules, and
gets an encrypted note of which tool a question is about.
"""

from __future__ import annotations

import binascii
import contextlib
import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric import ec
from msgspec import Struct

from skillhouse.extensions.server.companion.app_messages import POINT_BYTES
from skillhouse.extensions.server.companion.web_push import (
    decoded,
    encoded,
    encrypted,
    new_key,
    point_of,
    read_key,
    vapid,
)
from skillhouse.floor import SkillhouseError, StateError, write_atomically
from skillhouse.floor.lock import once
from skillhouse.house.access_tokens import shared_key
from skillhouse.store import STATE, STATE_FILE, pooled, state_exists, state_server

KEY_FILE = "push-key.pem"
"""Below the state directory: the key by which push services know this installation (VAPID). Where
the state is on a server, the first one of its servers puts its key there: a subscription is good
for one key alone."""
SENT = "companion push"
"""The channel of the messages that say which notes were sent."""
SENDING_MS = 60_000
"""After which a note that a server began to send, and did not end, is sent by another one."""
SENT_KEEP_MS = 48 * 3_600_000
ENDPOINT_MAX = 1_024
AUTH_BYTES = 16
TTL_SECONDS = 600
"""How long a push service keeps a note for a device that is off."""
BACK_OFF_SECONDS = 15
BACK_OFF_MAX = 3_600
FAILURES_MAX = 12
"""After so many failures in a row a subscription is deleted."""
CONTACT = "mailto:companion@skillhouse.invalid"
"""Push services want one (RFC 8292, 2.1); the address of a person is not given away."""

FORGET = "DELETE FROM channel_message"

Post = Callable[[str, Mapping[str, str], bytes], Awaitable[int]]
"""Sends a body to an address that a browser named, and returns the status."""

logger = logging.getLogger(__name__)


class PushError(SkillhouseError):
    """A subscription is none that notes can be sent to."""


class Subscription(Struct, frozen=True, kw_only=True):
    device: str
    endpoint: str
    public_key: str
    secret: str
    failures: int


class Pushes:
    """The subscriptions of paired apps, at most one each."""

    def __init__(
        self, state_directory: Path, post: Post, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._path = state_directory / STATE_FILE
        self._key_file = state_directory / KEY_FILE
        self._post = post
        self._clock = clock
        self._lock = threading.Lock()

    @once
    def public_key(self) -> str:
        """With which browsers subscribe."""
        return encoded(point_of(self._key().public_key()))

    def _key(self) -> ec.EllipticCurvePrivateKey:
        """Return the key, which is made when it is first needed."""
        if state_server(self._path) is None:
            return read_key(self._own_key())
        key = shared_key(self._path, KEY_FILE, lambda: self._own_key().decode())
        return read_key(key.encode())

    def _own_key(self) -> bytes:
        with self._lock:
            if not self._key_file.exists():
                whole = self._key_file.with_name(f".{secrets.token_hex(8)}")
                with write_atomically(whole, durable=True) as file:
                    file.write(new_key())
                # Another process may have made one since; none sees a part of one.
                with contextlib.suppress(FileExistsError):
                    os.link(whole, self._key_file)
                whole.unlink()
            return self._key_file.read_bytes()

    def subscribe(self, device: str, endpoint: str, p256dh: str, auth: str) -> None:
        """Keep where notes for a device go; PushError for what is no subscription."""
        _check(endpoint, p256dh, auth)
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute("DELETE FROM push_subscription WHERE device = ?", (device,))
            # INVARIANT: a device that was unpaired meanwhile gets none.
            connection.execute(
                "INSERT INTO push_subscription SELECT ?, ?, ?, ?, 0, 0 "
                "WHERE EXISTS (SELECT 1 FROM device WHERE id = ?)",
                (device, endpoint, p256dh, auth, device),
            )

    def unsubscribe(self, device: str) -> None:
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute("DELETE FROM push_subscription WHERE device = ?", (device,))

    def has(self, device: str) -> bool:
        with pooled(self._path, STATE) as store:
            query = "SELECT 1 FROM push_subscription WHERE device = ?"
            return bool(store.rows(query, (device,)))

    def due(self) -> tuple[Subscription, ...]:
        """Return the subscriptions to which something may be sent now."""
        if not state_exists(self._path):
            return ()
        with pooled(self._path, STATE) as store:
            rows = store.rows(
                "SELECT device, endpoint, public_key, secret, failures FROM push_subscription "
                "WHERE next_ms <= ?",
                (int(self._clock() * 1000),),
            )
        return tuple(
            Subscription(
                device=device, endpoint=endpoint, public_key=key, secret=secret, failures=failures
            )
            for device, endpoint, key, secret, failures in rows
        )

    def take(self, device: str, note: str) -> Literal["taken", "sent", "busy"]:
        """Take a note, to send it; `sent` if it was sent, `busy` if another server is at it.

        INVARIANT: of all servers of a state one sends it.
        """
        now = int(self._clock() * 1000)
        key = f"{device}:{note}"
        with pooled(self._path, STATE) as store:
            known = store.rows(
                "SELECT state, at_ms FROM channel_message WHERE channel = ? AND key = ?",
                (SENT, key),
            )
        for state, at_ms in known:
            if state == "sent":
                return "sent"
            if at_ms >= now - SENDING_MS:
                return "busy"
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                "DELETE FROM channel_message WHERE channel = ? AND at_ms < ?",
                (SENT, now - SENT_KEEP_MS),
            )
            changed = connection.execute(
                "INSERT INTO channel_message (channel, key, chat, sender, content, state, at_ms) "
                "VALUES (?, ?, '', '', '', 'sending', ?) ON CONFLICT (channel, key) DO UPDATE "
                "SET at_ms = excluded.at_ms WHERE channel_message.state = 'sending' "
                "AND channel_message.at_ms < ?",
                (SENT, key, now, now - SENDING_MS),
            ).rowcount
        return "taken" if changed else "busy"

    def note_sent(self, device: str, note: str, *, is_sent: bool) -> None:
        """Keep that a note was sent, or give it back so that it is sent later."""
        end = "UPDATE channel_message SET state = 'sent'" if is_sent else FORGET
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(f"{end} WHERE channel = ? AND key = ?", (SENT, f"{device}:{note}"))

    def forget(self, note: str) -> None:
        """Have a note sent again to each device when it is due the next time."""
        if not state_exists(self._path):
            return
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            where = "WHERE channel = ? AND key IN (SELECT device || ? FROM push_subscription)"
            connection.execute(f"{FORGET} {where}", (SENT, f":{note}"))

    async def send(self, to: Subscription, note: Mapping[str, str]) -> bool:
        """Send a note; return whether the push service took it. A failure is tried later."""
        try:
            headers, body = self._encrypted(to, note)
            status = await self._post(to.endpoint, headers, body)
        except (SkillhouseError, OSError) as error:
            logger.warning("a push service cannot be reached: %s", error)
            status = 0
        try:
            self._note(to, status)
        except StateError:
            logger.exception("what became of a push is not kept")
        return 200 <= status < 300

    def _encrypted(self, to: Subscription, note: Mapping[str, str]) -> tuple[dict[str, str], bytes]:
        body = encrypted(
            json.dumps(dict(note)).encode(), decoded(to.public_key), decoded(to.secret)
        )
        parts = urlsplit(to.endpoint)
        expires = int(self._clock()) + 12 * 3_600
        claims = {"aud": f"{parts.scheme}://{parts.netloc}", "exp": expires, "sub": CONTACT}
        headers = {
            "authorization": vapid(claims, self._key()),
            "content-type": "application/octet-stream",
            "content-encoding": "aes128gcm",
            "ttl": str(TTL_SECONDS),
            "urgency": "high",
        }
        return headers, body

    def _note(self, to: Subscription, status: int) -> None:
        failures = 0 if 200 <= status < 300 else to.failures + 1
        # Gone for good (RFC 8030, 7.3), or never there.
        is_gone = status in (404, 410) or failures >= FAILURES_MAX
        wait = min(BACK_OFF_SECONDS * 2**failures, BACK_OFF_MAX) if failures else 0
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            where = (to.device, to.endpoint)
            if is_gone:
                connection.execute(
                    "DELETE FROM push_subscription WHERE device = ? AND endpoint = ?", where
                )
            elif failures or to.failures:
                connection.execute(
                    "UPDATE push_subscription SET failures = ?, next_ms = ? "
                    "WHERE device = ? AND endpoint = ?",
                    (failures, int((self._clock() + wait) * 1000), *where),
                )


def _check(endpoint: str, p256dh: str, auth: str) -> None:
    try:
        parts = urlsplit(endpoint)
        host, user, _ = parts.hostname or "", parts.username, parts.port
        key, secret = decoded(p256dh), decoded(auth)
    except (ValueError, binascii.Error) as error:
        raise PushError("expected a subscription of a browser") from error
    # Whether it may be reached is for the network's rules to say, each time something is sent.
    is_secure = parts.scheme == "https" or (
        parts.scheme == "http" and host in ("127.0.0.1", "localhost")
    )
    is_plain = endpoint.isascii() and endpoint.isprintable() and " " not in endpoint
    if not (is_secure and is_plain and host and user is None and len(endpoint) <= ENDPOINT_MAX):
        raise PushError("expected the https address of a push service")
    if len(key) != POINT_BYTES or len(secret) != AUTH_BYTES:
        raise PushError("expected the keys of a subscription")
    try:
        ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), key)
    except ValueError as error:
        raise PushError("expected the keys of a subscription") from error
