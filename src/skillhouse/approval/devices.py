"""Paired devices, such as a companion app, which answer by signed messages, and one-time tokens."""

from __future__ import annotations

import base64
import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from msgspec import Struct

from skillhouse.approval.broker import ApprovalBroker
from skillhouse.approval.request import (
    CLOCK_BACK_SECONDS,
    OWNER,
    Answer,
    Approval,
    ApprovalError,
    ApprovalState,
)
from skillhouse.approval.webhook import (
    WINDOW_SECONDS,
    SignatureError,
    proved_id,
    secret_bytes,
    verified_id,
)
from skillhouse.floor import DecodeError, shaped
from skillhouse.floor.structs import PartialStruct
from skillhouse.store import (
    STATE,
    STATE_FILE,
    StateConflictError,
    pooled,
    state_clock,
    state_exists,
)

TOKEN_SECONDS = 600
"""How long a token holds: long enough to carry it to another window (NIST SP 800-63B, 5.1.3.2)."""
TOKEN_TRIES = 5
"""Wrong tokens for one question, after which the right one is gone as well."""
TOKEN_BYTES = 24
"""Randomness of a token: more than can be guessed (RFC 6749, 10.10)."""


class Issuer(Struct, frozen=True, kw_only=True):
    """Who had a token made, and so gives the answer."""

    user: str
    device: str = ""
    """Id of a paired device; empty for the page."""
    device_name: str = ""


class Tokens:
    """The state holds only a digest of each, and no listing shows one."""

    def __init__(self, state_directory: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._path = state_directory / STATE_FILE
        self._clock = state_clock(self._path, clock)

    def issue(self, question: Approval, issuer: Issuer) -> str:
        """Return a new token that approves this question once; an earlier one ends. Raises
        ApprovalError if it is closed, or decided on the page or a device only."""
        if question.state is not ApprovalState.OPEN:
            raise ApprovalError("answered", f"approval `{question.id}` is not open")
        if question.request.out_of_band_only:
            raise ApprovalError("not-offered", "such a call is decided on the page itself")
        token = secrets.token_hex(TOKEN_BYTES)
        now = int(self._clock() * 1000)
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute("DELETE FROM approval_token WHERE expires_ms <= ?", (now,))
            connection.execute(
                "INSERT INTO approval_token (approval, digest, user_name, device, device_name, "
                "expires_ms, tries) VALUES (?, ?, ?, ?, ?, ?, 0) ON CONFLICT (approval) DO UPDATE "
                "SET digest = excluded.digest, user_name = excluded.user_name, "
                "device = excluded.device, device_name = excluded.device_name, "
                "expires_ms = excluded.expires_ms, tries = 0",
                (
                    question.id,
                    _digest(question, token),
                    issuer.user,
                    issuer.device,
                    issuer.device_name,
                    now + TOKEN_SECONDS * 1000,
                ),
            )
        return token

    def take(self, question: Approval, token: str) -> Issuer:
        """Use up a token; ApprovalError for another question's, a used or an ended one."""
        issuer: Issuer | None = None
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            row = connection.execute(
                "SELECT digest, user_name, device, device_name, expires_ms, tries "
                "FROM approval_token WHERE approval = ?",
                (question.id,),
            ).fetchone()
            if row is not None:
                digest, user, device, device_name, expires_ms, tries = row
                is_right = hmac.compare_digest(digest, _digest(question, token))
                left_ms = expires_ms - self._clock() * 1000
                # More than it was issued for: the clock was set back.
                if is_right and 0 < left_ms <= (TOKEN_SECONDS + CLOCK_BACK_SECONDS) * 1000:
                    issuer = Issuer(user=user, device=device, device_name=device_name)
                # INVARIANT: a token is deleted in the transaction that finds it right, so that it
                # is used once, whatever comes of the answer.
                query = "UPDATE approval_token SET tries = tries + 1 WHERE approval = ?"
                if is_right or tries + 1 >= TOKEN_TRIES:
                    query = "DELETE FROM approval_token WHERE approval = ?"
                connection.execute(query, (question.id,))
        if issuer is None:
            raise ApprovalError("wrong-token", "the token is wrong, has ended or was used already")
        return issuer


def _digest(question: Approval, token: str) -> str:
    """It is bound to the question and its exact content."""
    request = question.request
    bound = f"{question.id}\n{request.nonce}\n{request.content_digest}".encode()
    return hmac.digest(bound, token.encode("utf-8", "replace"), "sha256").hex()


BODY_MAX = 16_384
"""Bytes of an answer."""
SECRET_BYTES = 32
APP_SIGNATURE = "p256"
"""Before the signature of an app: ECDSA with P-256 and SHA-256, r and s of 32 bytes each."""
REFUSED_SECONDS = 60
"""Refused messages are recorded once in this time, with their number: anyone may send them."""

Record = Callable[[str, "Device | None", str], None]
"""Records an event (`paired`, `unpaired`, `answered` or `refused`), the device, and details."""


class Device(PartialStruct, frozen=True, kw_only=True):
    """A paired device, such as a companion app."""

    SECRET = frozenset({"secret"})

    id: str
    name: str
    user: str
    """The user as whom it answers."""
    secret: str
    """`whsec_` and base64; shown once, when it is paired. Empty for an app with a key pair."""
    paired_ms: int
    public_key: str = ""
    """Of a companion app, in base64: a point of P-256, uncompressed. Its private half is in the
    app's browser, which does not give it out."""

    @property
    def is_app(self) -> bool:
        return bool(self.public_key)


class DeviceRevocation(Struct, frozen=True, kw_only=True):
    """The approvals that ended with a device."""

    device: Device
    approvals: int
    """Unused approvals."""
    grants: int
    """Standing approvals."""


class DeviceAnswer(Struct, frozen=True, kw_only=True):
    """What a device signs."""

    device: str
    approval: str
    nonce: str
    """That of the question it was sent."""
    content_digest: str
    """Digest of the call that it showed to the person."""
    answer: Answer
    message: str = ""


class Devices:
    def __init__(
        self,
        state_directory: Path,
        *,
        clock: Callable[[], float] = time.time,
        record: Record = lambda *_: None,
    ) -> None:
        self._path = state_directory / STATE_FILE
        self._clock = state_clock(self._path, clock)
        self._record = record
        self._tokens = Tokens(state_directory, clock=clock)
        # INVARIANT: held to change what follows; answers come on threads of their own.
        self._lock = threading.Lock()
        self._refused = 0
        self._recorded_at = -float("inf")

    def pair(self, name: str, *, user: str) -> Device:
        """Return a new device with a secret of its own; what cannot be recorded is not paired."""
        secret = "whsec_" + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
        return self._paired(name, user, secret, "")

    def pair_app(self, name: str, *, user: str, public_key: str) -> Device:
        """Return a new device that has the private half of this key (`Device.public_key`)."""
        return self._paired(name, user, "", public_key)

    def _paired(self, name: str, user: str, secret: str, public_key: str) -> Device:
        device = Device(
            id=secrets.token_hex(8),
            name=name,
            user=user,
            secret=secret,
            paired_ms=int(self._clock() * 1000),
            public_key=public_key,
        )
        self._record("paired", device, "an app with a key of its own" if public_key else "")
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                "INSERT INTO device (id, name, user_name, secret, paired_ms, public_key) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (device.id, name, user, secret, device.paired_ms, public_key),
            )
        return device

    def all(self) -> tuple[Device, ...]:
        if not state_exists(self._path):
            return ()
        with pooled(self._path, STATE) as store:
            rows = store.rows(
                "SELECT id, name, user_name, secret, paired_ms, public_key FROM device ORDER BY seq"
            )
        return tuple(
            Device(id=i, name=name, user=user, secret=secret, paired_ms=paired, public_key=key)
            for i, name, user, secret, paired, key in rows
        )

    def unpair(self, device_id: str) -> DeviceRevocation | None:
        """Forget a device with every approval of it that could still be used; None for no device.
        What it allowed for the rest of a conversation ends in every process (`session_grants`)."""
        device = next((device for device in self.all() if device.id == device_id), None)
        if device is None:
            return None
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute("DELETE FROM device WHERE id = ?", (device_id,))
            connection.execute("DELETE FROM approval_token WHERE device = ?", (device_id,))
            connection.execute("DELETE FROM push_subscription WHERE device = ?", (device_id,))
            # Of an app that is lost for good no sign of life is waited for (tiers).
            connection.execute(
                "DELETE FROM tier_mark WHERE name = 'companion' "
                "AND NOT EXISTS (SELECT 1 FROM device WHERE public_key <> '')"
            )
            # An answer of before devices were noted may be this one's.
            approvals = connection.execute(
                "UPDATE approval SET state = 'expired', message = 'the device was unpaired' "
                "WHERE state = 'approved' AND (device = ? "
                "OR device = '' AND answered_channel = 'device')",
                (device_id,),
            ).rowcount
            grants = connection.execute(
                "DELETE FROM lasting_grant WHERE device = ?", (device_id,)
            ).rowcount
            grants += connection.execute(
                "DELETE FROM approved_script WHERE device = ?", (device_id,)
            ).rowcount
            connection.execute("DELETE FROM session_grant WHERE device = ?", (device_id,))
        self._record(
            "unpaired", device, f"{approvals} unused and {grants} standing approvals ended"
        )
        return DeviceRevocation(device=device, approvals=approvals, grants=grants)

    def answer(self, broker: ApprovalBroker, headers: Mapping[str, str], body: bytes) -> Approval:
        """Take one signed answer: JSON of a `DeviceAnswer`, with lower-case header names. Raises
        SignatureError if it is not a paired device's, old, or came before; ApprovalError if it does
        not count."""
        device, given, question = self._proved(broker, headers, body)
        return self._given(broker, device, given, question)

    def answer_of_app(
        self, broker: ApprovalBroker, device: Device, given: DeviceAnswer
    ) -> Approval:
        """Take the answer in a message of which `sender_app` was this device."""
        return self._given(broker, device, given, _shown(broker, given))

    def _given(
        self, broker: ApprovalBroker, device: Device, given: DeviceAnswer, question: Approval
    ) -> Approval:
        answered = broker.answer(
            question.id,
            given.answer,
            by=device.user,
            channel="device",
            nonce=given.nonce,
            message=given.message,
            device=device.id,
            device_name=device.name,
        )
        self._record("answered", device, f"{given.answer.value} to approval {question.id}")
        return answered

    def sender_app(
        self,
        device_id: str,
        headers: Mapping[str, str],
        body: bytes,
        proves: Callable[[str, bytes, bytes], bool],
    ) -> Device:
        """Return the paired app that signed a message, which is taken once; SignatureError else.

        `proves` says whether a signature of some bytes is by the private half of a key.
        """
        device = next((d for d in self.all() if d.id == device_id and d.is_app), None)
        try:
            if device is None:
                # Said as a wrong signature is: which devices there are is nothing that is said.
                raise SignatureError("wrong", "the signature is not right")
            message_id = proved_id(
                headers,
                body,
                partial(proves, device.public_key),
                version=APP_SIGNATURE,
                now_seconds=self._clock(),
            )
            self._take_once(device.id, message_id)
        except SignatureError as error:
            self._note_refused(device_id, error)
            raise
        return device

    def token(self, broker: ApprovalBroker, headers: Mapping[str, str], body: bytes) -> str:
        """Return a one-time token to a device that answers with `once`; raises as `answer` does."""
        device, given, question = self._proved(broker, headers, body)
        if given.answer is not Answer.ONCE:
            raise ApprovalError("not-offered", "a token approves once, and nothing else")
        if not hmac.compare_digest(question.request.nonce.encode(), given.nonce.encode()):
            raise ApprovalError("wrong-nonce", "the answer is to another question")
        if device.user not in (OWNER, question.request.user):
            raise ApprovalError("not-allowed", "the question is one of another user's")
        issuer = Issuer(user=device.user, device=device.id, device_name=device.name)
        token = self._tokens.issue(question, issuer)
        self._record("answered", device, f"a one-time token for approval {question.id}")
        return token

    def _proved(
        self, broker: ApprovalBroker, headers: Mapping[str, str], body: bytes
    ) -> tuple[Device, DeviceAnswer, Approval]:
        given: DeviceAnswer | None = None
        try:
            given = _decoded(body)
            device = self._sender(given, headers, body)
        except SignatureError as error:
            self._note_refused(given.device if given else "", error)
            raise
        return device, given, _shown(broker, given)

    def _sender(self, given: DeviceAnswer, headers: Mapping[str, str], body: bytes) -> Device:
        device = next((d for d in self.all() if d.id == given.device and not d.is_app), None)
        # An unknown device takes as long, and says the same, as a wrong signature.
        secret = (
            secrets.token_bytes(SECRET_BYTES) if device is None else secret_bytes(device.secret)
        )
        message_id = verified_id(headers, body, secret=secret, now_seconds=self._clock())
        if device is None:
            raise SignatureError("wrong", "the signature is not right")
        self._take_once(device.id, message_id)
        return device

    def _note_refused(self, device_id: str, error: SignatureError) -> None:
        """Record the first refused message at once, the others by their number."""
        with self._lock:
            self._refused += 1
            now = self._clock()
            if now - self._recorded_at < REFUSED_SECONDS:
                return
            count, self._refused, self._recorded_at = self._refused, 0, now
        known = next((device for device in self.all() if device.id == device_id), None)
        who = "" if known else "; it names no paired device"
        self._record("refused", known, f"{error}{who} (messages refused since the last: {count})")

    def _take_once(self, device_id: str, message_id: str) -> None:
        now_ms = int(self._clock() * 1000)
        until_ms = now_ms + 2 * WINDOW_SECONDS * 1000
        try:
            with pooled(self._path, STATE) as store, store.transaction() as connection:
                connection.execute("DELETE FROM device_nonce WHERE expires_ms <= ?", (now_ms,))
                connection.execute(
                    "INSERT INTO device_nonce VALUES (?, ?, ?)", (device_id, message_id, until_ms)
                )
        except StateConflictError as error:
            raise SignatureError("repeated", "this message came before") from error


def _shown(broker: ApprovalBroker, given: DeviceAnswer) -> Approval:
    """Return the question of an answer; ApprovalError if the device showed another call."""
    question = broker.get(given.approval)
    if question.request.content_digest != given.content_digest:
        raise ApprovalError("another-call", "the device showed another call than this one")
    return question


def _decoded(body: bytes) -> DeviceAnswer:
    if len(body) > BODY_MAX:
        raise SignatureError("missing", f"expected at most {BODY_MAX} bytes")
    try:
        return shaped(json.loads(body), DeviceAnswer)
    except (ValueError, RecursionError, DecodeError) as error:
        raise SignatureError("missing", "expected the JSON of an answer") from error
