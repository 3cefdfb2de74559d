"""Tests of registry/passwords.py, and of the signer that asks by it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from skillhouse.registry import passwords as unlock
from skillhouse.registry.passwords import PASSWORD_MAX, checked_keyring, read_descriptor
from skillhouse_signer import KeyKind, SignerError
from skillhouse_signer.keys import Terms
from skillhouse_signer.request import NewKey, Opening
from skillhouse_signer.service import Service
from tests.signer.places import COST, FakeClock, filled


class Ring:
    """A keyring in memory whose backend claims to be of a given module."""

    def __init__(self, module: str) -> None:
        self.backend = type("Keyring", (), {"__module__": module})()
        self.kept: dict[tuple[str, str], str] = {}

    def get_keyring(self) -> Any:
        return self.backend

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password


@pytest.mark.parametrize(
    ("text", "password"), [("secret", b"secret"), ("secret\n", b"secret"), ("a\nb\r\n", b"a\nb")]
)
def test_a_descriptor_is_read_to_its_end_without_the_last_break(text: str, password: bytes) -> None:
    descriptor = filled(text)
    assert read_descriptor(descriptor) == password
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


@pytest.mark.parametrize("text", ["", "\n", "x" * (PASSWORD_MAX + 1)])
def test_a_descriptor_with_nothing_or_too_much_is_refused(text: str) -> None:
    with pytest.raises(SignerError, match="expected 1 to 4096 bytes"):
        read_descriptor(filled(text))


@pytest.mark.parametrize(
    "module", ["keyring.backends.fail", "keyring.backends.null", "keyrings.alt.file"]
)
def test_a_keyring_that_is_not_the_systems_is_refused(module: str) -> None:
    with pytest.raises(SignerError, match="use a password"):
        checked_keyring(Ring(module))


def test_the_installed_library_is_refused_where_the_system_has_no_keyring(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keyring = pytest.importorskip("keyring")
    fail = pytest.importorskip("keyring.backends.fail")
    monkeypatch.setattr(keyring.core, "_keyring_backend", fail.Keyring())
    with pytest.raises(SignerError, match=r"got `keyring.backends.fail`"):
        unlock.system_keyring()


@pytest.mark.slow
def test_a_keystore_opens_with_the_systems_keyring_and_not_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = Ring("keyring.backends.SecretService")
    monkeypatch.setattr(unlock, "system_keyring", lambda: checked_keyring(ring))
    opening = Opening(
        keystore=str(tmp_path / "keys.json"),
        state=str(tmp_path / "state.sqlite3"),
        source="keyring",
        cost=COST,
    )
    first = Service(clock=FakeClock())
    assert first.open(opening).keys == ()
    made = first.new(NewKey(name="main", kind=KeyKind.ED25519, terms=Terms()))
    second = Service(clock=FakeClock())
    assert second.open(opening) == made
    (secret,) = ring.kept.values()
    assert len(secret) == 64
    assert secret not in (tmp_path / "keys.json").read_text()
    ring.kept.clear()
    with pytest.raises(SignerError, match="has no secret for this keystore"):
        Service(clock=FakeClock()).open(opening)
