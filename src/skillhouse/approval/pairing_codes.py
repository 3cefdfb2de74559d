"""Codes that pair an app: short-lived, used once, and gone after a few wrong guesses."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from skillhouse.approval.request import CLOCK_BACK_SECONDS, ApprovalError
from skillhouse.store import STATE, STATE_FILE, pooled, state_clock

CODE_SECONDS = 600
CODE_TRIES = 5
"""Wrong guesses at one code, after which it is gone."""
OPEN_MAX = 20
"""Codes that are open at once; the oldest go first."""
_LETTERS = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
"""Without those that look alike: five bits each."""
_GROUP = 4


class PairingCode(Struct, frozen=True, kw_only=True):
    """What a code was made for."""

    device_name: str
    user: str


class PairingCodes:
    """A code is a name of four letters, by which guesses are counted, and a secret of eight. The
    state holds a digest of the secret."""

    def __init__(self, state_directory: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._path = state_directory / STATE_FILE
        self._clock = state_clock(self._path, clock)

    def issue(self, device_name: str, *, user: str) -> str:
        """Return a new code such as `7KQ2-9FWD-X3MP`."""
        code = "".join(secrets.choice(_LETTERS) for _ in range(3 * _GROUP))
        now = int(self._clock() * 1000)
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute("DELETE FROM pairing_code WHERE expires_ms <= ?", (now,))
            connection.execute(
                "DELETE FROM pairing_code WHERE name NOT IN "
                "(SELECT name FROM pairing_code ORDER BY expires_ms DESC LIMIT ?)",
                (OPEN_MAX - 1,),
            )
            connection.execute("DELETE FROM pairing_code WHERE name = ?", (code[:_GROUP],))
            connection.execute(
                "INSERT INTO pairing_code VALUES (?, ?, ?, ?, ?, 0)",
                (code[:_GROUP], _digest(code), device_name, user, now + CODE_SECONDS * 1000),
            )
        return "-".join(code[at : at + _GROUP] for at in range(0, 3 * _GROUP, _GROUP))

    def take(self, given: str) -> PairingCode:
        """Use up a code; ApprovalError for a wrong, used or ended one."""
        code = "".join(one for one in given.upper()[:64] if one in _LETTERS)
        found: PairingCode | None = None
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            row = connection.execute(
                "SELECT digest, device_name, user_name, expires_ms, tries FROM pairing_code "
                "WHERE name = ?",
                (code[:_GROUP],),
            ).fetchone()
            if row is not None:
                digest, device_name, user, expires_ms, tries = row
                is_right = hmac.compare_digest(digest, _digest(code))
                left_ms = expires_ms - self._clock() * 1000
                # More than it was issued for: the clock was set back.
                if is_right and 0 < left_ms <= (CODE_SECONDS + CLOCK_BACK_SECONDS) * 1000:
                    found = PairingCode(device_name=device_name, user=user)
                # INVARIANT: deleted in the transaction that finds it right, so it is used once.
                query = "UPDATE pairing_code SET tries = tries + 1 WHERE name = ?"
                if is_right or tries + 1 >= CODE_TRIES:
                    query = "DELETE FROM pairing_code WHERE name = ?"
                connection.execute(query, (code[:_GROUP],))
        if found is None:
            raise ApprovalError("wrong-code", "the code is wrong, has ended or was used already")
        return found


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()
