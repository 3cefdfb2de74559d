"""Where the secret comes from that opens a file of keys: of publishers, or of the signer."""

from __future__ import annotations

import os
from typing import Any, Protocol

from msgspec import Struct

from skillhouse.floor import MissingExtraError, SkillhouseError

PASSWORD_MAX = 4_096
"""Bytes of a password or an imported key read from a descriptor."""
PASSWORD_MIN = 8
"""Characters of a new password (NIST SP 800-63B, section 5.1.1.1)."""
SERVICE = "skillhouse signer"
"""The name under which the OS keyring keeps it."""

_SAFE_BACKENDS = (
    "keyring.backends.SecretService",
    "keyring.backends.libsecret",
    "keyring.backends.kwallet",
    "keyring.backends.macOS",
    "keyring.backends.Windows",
)
"""Backends that leave the secret to the operating system; others may write plain text."""


class SignerError(SkillhouseError):
    """A key was not opened or kept, or something was not signed; `code` says why.

    unreadable-message, unreadable-transaction, unknown-key, wrong-key, name-taken, wrong-password,
    no-password, no-terminal, keystore, binding, expired, replayed, needs-person, session-over,
    limit, uncountable, recipient, clock, counters, signer-gone, signer-failed.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class PasswordSource(Struct, frozen=True, kw_only=True):
    """Where the signer's password comes from; its text is in no argument of any process."""

    kind: str = "terminal"
    """terminal, descriptor, variable, or keyring."""
    descriptor: int = -1
    variable: str = ""

    @classmethod
    def parse(cls, text: str) -> PasswordSource:
        """Return a source from `terminal`, `keyring`, `fd:NUMBER` or `env:NAME`; else refuse it."""
        kind, _, value = text.partition(":")
        if text in ("terminal", "keyring"):
            return cls(kind=text)
        if kind == "fd" and value.isascii() and value.isdecimal() and int(value) > 2:
            return cls(kind="descriptor", descriptor=int(value))
        if kind == "env" and value:
            return cls(kind="variable", variable=value)
        raise SignerError(
            "no-password",
            "expected `terminal`, `keyring`, `fd:NUMBER` (from 3) or `env:NAME` as the place of "
            f"the password, got: {text[:64]}",
        )


class Keyring(Protocol):
    """What we use of the package `keyring`."""

    def get_keyring(self) -> Any: ...

    def get_password(self, service: str, username: str) -> str | None: ...

    def set_password(self, service: str, username: str, password: str) -> None: ...


def read_descriptor(descriptor: int) -> bytes:
    """Return what a descriptor holds until its end, without a last line break; it is closed.

    "no-password": nothing, or more than `PASSWORD_MAX`.
    """
    data = b""
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        while len(data) <= PASSWORD_MAX and (chunk := file.read(PASSWORD_MAX + 1 - len(data))):
            data += chunk
    secret = data.removesuffix(b"\n").removesuffix(b"\r")
    if not secret or len(data) > PASSWORD_MAX:
        raise SignerError("no-password", f"expected 1 to {PASSWORD_MAX} bytes on the descriptor")
    return secret


INSTEAD = "use --password with fd:NUMBER, env:NAME or keyring"


def ask_password(prompt: str, *, instead: str = INSTEAD) -> bytes:
    """Return what a person types at the terminal, unseen.

    "no-terminal" without one, with what to do `instead`; "no-password" if nothing is typed.
    """
    try:
        handle = os.open("/dev/tty", os.O_RDWR) if os.name == "posix" else -1
        if handle >= 0:
            os.close(handle)
        import getpass

        return getpass.getpass(prompt).encode()
    except EOFError:
        raise SignerError("no-password", "nothing was typed") from None
    except OSError:
        message = f"cannot ask without a terminal; {instead}"
        raise SignerError("no-terminal", message) from None


def new_password() -> bytes:
    """Return a new password that a person typed twice the same; else "no-password"."""
    first = ask_password("new password of the keystore: ")
    check_new(first)
    if ask_password("once more: ") != first:
        raise SignerError("no-password", "the two passwords differ; nothing was made")
    return first


def check_new(password: bytes) -> None:
    """Refuse ("no-password") a new password that is too short."""
    if len(password.decode("utf-8", "replace")) < PASSWORD_MIN:
        raise SignerError(
            "no-password", f"expected a password of {PASSWORD_MIN} characters or more"
        )


def system_keyring() -> Keyring:
    """Return the OS keyring; "no-password" if it does not keep secrets by itself."""
    try:
        import keyring
    except ImportError as error:
        raise MissingExtraError("registry", "keyring") from error
    return checked_keyring(keyring)


def checked_keyring(keyring: Keyring) -> Keyring:
    """Return a keyring if the operating system keeps its secrets; else "no-password"."""
    backend = keyring.get_keyring()
    # A chain of backends names several; the first is what is used.
    first = next(iter(getattr(backend, "backends", ())), backend)
    module = type(first).__module__
    if module not in _SAFE_BACKENDS:
        raise SignerError(
            "no-password",
            f"expected a keyring of the operating system, got `{module}`: use a password",
        )
    return keyring


def keyring_secret(keyring: Keyring, store_id: str, *, create: bool = False) -> bytes:
    """Return the random secret that the OS keyring keeps for a keystore, or "no-password"."""
    if create:
        keyring.set_password(SERVICE, store_id, os.urandom(32).hex())
    password = keyring.get_password(SERVICE, store_id)
    if not password:
        raise SignerError("no-password", "the OS keyring has no secret for this keystore")
    return password.encode()
