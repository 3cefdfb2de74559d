"""What an operator writes of the signer."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from skillhouse.floor import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class SignerSettings:
    """The table `[signer]`."""

    password: str = "terminal"  # noqa: S105 - a place, and never the password.
    """Where the keystore's password is: terminal, keyring, fd:NUMBER or env:NAME; never itself."""


SIGNER_KEYS = frozenset(found.name for found in fields(SignerSettings))


def check_signer(settings: SignerSettings, path: Path | None) -> None:
    """Refuse a place of the password that is none.

    Raises:
        ConfigError: it is none.
    """
    # Not loaded with every configuration: few verbs sign, and the signer's process is much to load.
    from skillhouse.signer import PasswordSource, SignerError  # noqa: PLC0415

    try:
        PasswordSource.parse(settings.password)
    except SignerError:
        # What was written may be the password itself, so it is not repeated.
        message = "expected `terminal`, `keyring`, `fd:NUMBER` (from 3) or `env:NAME`"
        raise ConfigError(message, path=path, key="signer.password") from None
