"""The one exception of this package."""

from __future__ import annotations

from skillhouse.floor import SkillhouseError


class SignerError(SkillhouseError):
    """Something was not signed, or a key was not kept; `code` says why.

    unreadable-message, unreadable-transaction, unknown-key, wrong-key, name-taken, wrong-password,
    no-password, no-terminal, keystore, binding, expired, replayed, needs-person, session-over,
    limit, uncountable, recipient, clock, counters, signer-gone, signer-failed.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
