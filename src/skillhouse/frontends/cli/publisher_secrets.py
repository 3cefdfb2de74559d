"""Opens the private keys of publishers: with a password, the keyring's secret or a token's PIN."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from skillhouse import registry
from skillhouse.extension import own_module
from skillhouse.floor import SkillhouseError
from skillhouse.registry import passwords

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey


def open_private(
    keys: registry.PublisherKeys, key: registry.PublisherKey, source: passwords.PasswordSource
) -> EllipticCurvePrivateKey:
    """Return the private key of a publisher; what does not open is refused."""
    password = password_for(key, source)
    if key.lock == "pkcs11":
        opened: EllipticCurvePrivateKey = own_module("signer", "token_keys").open_token_key(
            key, password
        )
        return opened
    return keys.open(key, password)


def add_password(parser: argparse.ArgumentParser) -> None:
    """Add `--password`, which says where the password of a key is."""
    parser.add_argument(
        "--password",
        type=passwords.PasswordSource.parse,
        default=passwords.PasswordSource(),
        metavar="PLACE",
        help="terminal, keyring, fd:NUMBER or env:NAME",
    )


def password_for(
    key: registry.PublisherKey, source: passwords.PasswordSource, *, is_new: bool = False
) -> bytes:
    """Return the password of a key, from where `--password` says; the keyring where it locks it."""
    if key.lock == "keyring":
        return passwords.keyring_secret(passwords.system_keyring(), key.id, create=is_new)
    if source.kind == "descriptor":
        password = passwords.read_descriptor(source.descriptor)
    elif source.kind == "variable":
        password = os.environ.get(source.variable, "").encode()
        if not password:
            message = f"the variable `{source.variable}` is empty"
            raise passwords.SignerError("no-password", message)
    elif key.lock == "pkcs11":
        return passwords.ask_password("PIN of the token: ")
    elif is_new:
        return passwords.new_password()
    elif source.kind == "keyring":
        raise SkillhouseError(f"the key `{key.name}` is not in the keyring: it has a password")
    else:
        return passwords.ask_password(f"password of `{key.name}`: ")
    if is_new and key.lock == "password":
        passwords.check_new(password)
    return password
