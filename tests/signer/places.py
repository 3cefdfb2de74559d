"""Keystores of temporary directories, a clock that tests set, and transactions to sign."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from skillhouse.floor import ClockReading
from skillhouse.floor.structs import replace
from skillhouse_signer import (
    KEYSTORE_FILE,
    STATE_FILE,
    KeyInfo,
    KeyKind,
    PasswordSource,
    SessionKeys,
    Signature,
    SignerProcess,
    Transaction,
    new_request,
    terms_from,
    with_approval,
)
from skillhouse_signer.request import NewKey, Opening
from skillhouse_signer.service import Descriptors, Service

PASSWORD = "correct horse battery"
COST = 14
"""The least that a keystore may have, so that tests are quick."""
DAY_MS = 86_400_000
NOW_MS = 1_780_000_000_000
ALICE, BOB, MALLORY = ("0x" + digit * 40 for digit in "abc")
TOKEN = "0x" + "7" * 40
ETH, GWEI = 10**18, 10**9
FEE = 21_000 * GWEI
"""Fee bound of `payment`."""


class FakeClock:
    """Clocks of one boot; `wall` is set by whoever likes, `running` by time alone."""

    def __init__(self) -> None:
        self.now = ClockReading(wall_ms=NOW_MS, running_ms=5_000_000, boot="first")

    def __call__(self) -> ClockReading:
        return self.now

    def passes(self, ms: int) -> None:
        self.now = replace(
            self.now, wall_ms=self.now.wall_ms + ms, running_ms=self.now.running_ms + ms
        )

    def is_set(self, ms: int) -> None:
        self.now = replace(self.now, wall_ms=self.now.wall_ms + ms)

    def reboots(self, off_ms: int = 60_000) -> None:
        wall_ms, boot = self.now.wall_ms + off_ms, self.now.boot + "+"
        self.now = ClockReading(wall_ms=wall_ms, running_ms=9_000, boot=boot)


class Bench:
    """A service in this process with a keystore of its own."""

    def __init__(self, base: Path, clock: FakeClock | None = None) -> None:
        self.keystore, self.state = base / KEYSTORE_FILE, base / STATE_FILE
        self.clock = clock or FakeClock()
        self.sessions = SessionKeys(self.state, clock=self.clock)
        self.count = 0
        self.service = self.opened()

    def opened(self, password: str = PASSWORD) -> Service:
        """Return a service that has just been started."""
        service = Service(Descriptors(password=filled(password)), clock=self.clock)
        service.open(self.opening())
        return service

    def opening(self) -> Opening:
        return Opening(
            keystore=str(self.keystore), state=str(self.state), source="descriptor", cost=COST
        )

    def restart(self) -> None:
        self.service = self.opened()

    def key(
        self,
        name: str = "main",
        kind: KeyKind = KeyKind.SECP256K1,
        *limits: str,
        seconds: int = 0,
        **terms: Any,
    ) -> KeyInfo:
        wanted = NewKey(
            name=name, kind=kind, terms=terms_from(limits, **terms), session_seconds=seconds
        )
        return self.service.new(wanted).keys[0]

    def imported(self, secret: str, *limits: str, kind: KeyKind = KeyKind.SECP256K1) -> KeyInfo:
        """Import a private key as `in`, from a descriptor, with a service that stays open."""
        descriptors = Descriptors(password=filled(PASSWORD), imported=filled(secret))
        self.service = Service(descriptors, clock=self.clock)
        self.service.open(self.opening())
        wanted = NewKey(name="in", kind=kind, terms=terms_from(limits), is_import=True)
        return self.service.new(wanted).keys[0]

    def session(self, *limits: str, name: str = "bot", **terms: Any) -> KeyInfo:
        return self.key(name, KeyKind.SECP256K1, *limits, seconds=DAY_MS // 1000, **terms)

    def sign(self, key: KeyInfo, what: Transaction | str, *, approved: bool = True) -> Signature:
        """Sign with a fresh approval, or with none."""
        self.count += 1
        kind, payload = (
            ("message", what.encode())
            if isinstance(what, str)
            else ("transaction", what.unsigned())
        )
        request = new_request(key, kind, payload, self.clock.now.wall_ms)
        approval = f"yes-{self.count}" if approved else ""
        return self.service.sign(with_approval(request, request.binding, approval))


def filled(text: str) -> int:
    """Return the reading end of a pipe that holds `text`."""
    theirs, ours = os.pipe()
    os.write(ours, text.encode())
    os.close(ours)
    return theirs


def payment(value: int = ETH, to: str = ALICE, **changes: Any) -> Transaction:
    """Return a plain payment on chain 1."""
    values: dict[str, Any] = {
        "type": 2,
        "chain_id": 1,
        "nonce": 0,
        "to": bytes.fromhex(to[2:]),
        "value": value,
        "data": b"",
        "gas_limit": 21_000,
        "gas_price": GWEI,
        "priority_fee": 1,
    }
    return Transaction(**(values | changes))


def token_call(selector: str, *words: int | str, token: str = TOKEN, **changes: Any) -> Transaction:
    """Return a call of a token's contract; an address is a text."""
    data = bytes.fromhex(selector)
    for word in words:
        number = int(word, 16) if isinstance(word, str) else word
        data += number.to_bytes(32)
    return payment(to=token, data=data, **({"value": 0} | changes))


@contextmanager
def process(base: Path, *, cost: int = COST, **options: Any) -> Iterator[SignerProcess]:
    """Yield a signer in its own process, whose password lies in a variable."""
    signer = SignerProcess(
        base / KEYSTORE_FILE,
        base / STATE_FILE,
        password=PasswordSource.parse("env:SIGNER_TEST"),
        environment={"SIGNER_TEST": PASSWORD},
        cost=cost,
        **options,
    )
    try:
        yield signer
    finally:
        signer.close()
