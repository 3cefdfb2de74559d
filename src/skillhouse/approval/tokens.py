"""One-time tokens of the page or a device, by which a script passes on a person's approval."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from skillhouse.approval.request import CLOCK_BACK_SECONDS, Approval, ApprovalError, ApprovalState
from skillhouse.store import STATE, STATE_FILE, pooled

TOKEN_SECONDS = 600
"""How long a token holds: long enough to carry it to another window (NIST SP 800-63B, 5.1.3.2)."""
TOKEN_TRIES = 5
"""Wrong tokens for one question, after which the right one is gone as well."""
TOKEN_BYTES = 24
"""Randomness of a token: more than can be guessed (RFC 6749, 10.10)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """Who had a token made, and so gives the answer."""

    user: str
    device: str = ""
    """Id of a paired device; empty for the page."""
    device_name: str = ""


class Tokens:
    """The tokens of a house; the state holds a digest of each, and no listing shows one."""

    def __init__(self, state_directory: Path, *, clock: Callable[[], float] = time.time) -> None:
        """Take where state is kept, and a clock of seconds since 1970."""
        self._path = state_directory / STATE_FILE
        self._clock = clock

    def issue(self, question: Approval, issuer: Issuer) -> str:
        """Return a new token that approves this question once; an earlier one ends.

        Raises:
            ApprovalError: the question is closed, or is decided on the page or a device only.
        """
        if question.state is not ApprovalState.OPEN:
            raise ApprovalError("answered", f"approval `{question.id}` is not open")
        if question.request.out_of_band_only:
            raise ApprovalError("not-offered", "such a call is decided on the page itself")
        token = secrets.token_hex(TOKEN_BYTES)
        now = int(self._clock() * 1000)
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute("DELETE FROM approval_token WHERE expires_ms <= ?", (now,))
            connection.execute(
                "INSERT OR REPLACE INTO approval_token (approval, digest, user, device, "
                "device_name, expires_ms) VALUES (?, ?, ?, ?, ?, ?)",
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
        """Use up a token and return who gave it.

        Raises:
            ApprovalError: it is not the question's token, has ended or was used.
        """
        issuer: Issuer | None = None
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            row = connection.execute(
                "SELECT digest, user, device, device_name, expires_ms, tries FROM approval_token "
                "WHERE approval = ?",
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
    """Return what is kept of a token: it is bound to the question and its exact content."""
    request = question.request
    bound = f"{question.id}\n{request.nonce}\n{request.content_digest}".encode()
    return hmac.digest(bound, token.encode("utf-8", "replace"), "sha256").hex()
