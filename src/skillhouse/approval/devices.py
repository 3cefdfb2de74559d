"""Paired devices, such as a companion app: who may answer by a signed message."""

from __future__ import annotations

import base64
import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from skillhouse.approval.broker import ApprovalBroker
from skillhouse.approval.grants import STATE_FILE
from skillhouse.approval.record import Approval
from skillhouse.approval.request import Answer, ApprovalError
from skillhouse.approval.signing import (
    WINDOW_SECONDS,
    SignatureError,
    secret_bytes,
    verified_id,
)
from skillhouse.floor import DecodeError, StateError, shaped
from skillhouse.store import STATE, Store

BODY_MAX = 16_384
"""Bytes of an answer."""
SECRET_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One paired device."""

    id: str
    name: str
    user: str
    """As whom it answers."""
    secret: str = field(repr=False)
    """`whsec_` and base64; shown once, when it is paired."""
    paired_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAnswer:
    """What a device sends."""

    device: str
    approval: str
    nonce: str
    """That of the question it was sent."""
    content_digest: str
    """What it showed to the person."""
    answer: Answer
    message: str = ""


class Devices:
    """The devices of a house, and their answers."""

    def __init__(self, state_directory: Path, *, clock: Callable[[], float] = time.time) -> None:
        """Take where state is kept, and a clock of seconds since 1970."""
        self._path = state_directory / STATE_FILE
        self._clock = clock

    def pair(self, name: str, *, user: str) -> Device:
        """Return a new device with a secret of its own."""
        device = Device(
            id=secrets.token_hex(8),
            name=name,
            user=user,
            secret="whsec_" + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode(),
            paired_ms=int(self._clock() * 1000),
        )
        with Store(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                "INSERT INTO device VALUES (?, ?, ?, ?, ?)",
                (device.id, device.name, device.user, device.secret, device.paired_ms),
            )
        return device

    def all(self) -> tuple[Device, ...]:
        """Return every device, oldest first."""
        if not self._path.exists():
            return ()
        with Store(self._path, STATE) as store:
            rows = store.rows("SELECT id, name, user, secret, paired_ms FROM device ORDER BY rowid")
        return tuple(
            Device(id=i, name=name, user=user, secret=secret, paired_ms=paired)
            for i, name, user, secret, paired in rows
        )

    def unpair(self, device_id: str) -> bool:
        """Forget a device; whether there was one."""
        with Store(self._path, STATE) as store, store.transaction() as connection:
            return connection.execute("DELETE FROM device WHERE id = ?", (device_id,)).rowcount == 1

    def answer(self, broker: ApprovalBroker, headers: Mapping[str, str], body: bytes) -> Approval:
        """Take one signed answer.

        Args:
            broker: Whose question is answered.
            headers: With lower-case names.
            body: JSON of a `DeviceAnswer`, as it came.

        Raises:
            SignatureError: the message is not that of a paired device, is old, or came before.
            ApprovalError: the answer does not count.
        """
        given = _decoded(body)
        device = next((d for d in self.all() if d.id == given.device), None)
        # An unknown device takes as long, and says the same, as a wrong signature.
        secret = (
            secrets.token_bytes(SECRET_BYTES) if device is None else secret_bytes(device.secret)
        )
        message_id = verified_id(headers, body, secret=secret, now_seconds=self._clock())
        if device is None:
            raise SignatureError("wrong", "the signature is not right")
        self._take_once(device.id, message_id)
        question = broker.get(given.approval)
        if question.request.content_digest != given.content_digest:
            raise ApprovalError("another-call", "the device showed another call than this one")
        return broker.answer(
            question.id,
            given.answer,
            by=device.user,
            channel="device",
            nonce=given.nonce,
            message=given.message,
        )

    def _take_once(self, device_id: str, message_id: str) -> None:
        now_ms = int(self._clock() * 1000)
        until_ms = now_ms + 2 * WINDOW_SECONDS * 1000
        try:
            with Store(self._path, STATE) as store, store.transaction() as connection:
                connection.execute("DELETE FROM device_nonce WHERE expires_ms <= ?", (now_ms,))
                connection.execute(
                    "INSERT INTO device_nonce VALUES (?, ?, ?)", (device_id, message_id, until_ms)
                )
        except StateError as error:
            if isinstance(error.__cause__, sqlite3.IntegrityError):
                raise SignatureError("repeated", "this message came before") from error
            raise


def _decoded(body: bytes) -> DeviceAnswer:
    if len(body) > BODY_MAX:
        raise SignatureError("missing", f"expected at most {BODY_MAX} bytes")
    try:
        return shaped(json.loads(body), DeviceAnswer)
    except (ValueError, RecursionError, DecodeError) as error:
        raise SignatureError("missing", "expected the JSON of an answer") from error
