"""Tests of signer/keystore.py."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from skillhouse.floor.structs import replace
from skillhouse_signer import KeyInfo, KeyKind, SignerError, read_key_records, terms_from
from skillhouse_signer.keystore import new_keystore, open_keystore, reopen, save
from tests.signer.places import COST

pytestmark = pytest.mark.slow

SECRET = bytes(range(32))
KEY = KeyInfo(
    id="ed25519:ab",
    name="main",
    kind=KeyKind.ED25519,
    public_key="ab",
    created_ms=1,
    terms=terms_from(("eip155:1=1/100",)),
    account="ed25519:ab",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    store = new_keystore(b"password", "password", "id", cost=COST)
    store.secrets[KEY.id] = SECRET
    found = tmp_path / "deep" / "keys.json"
    save(found, _with_key(store))
    return found


def _with_key(store: Any) -> Any:
    return replace(store, records=replace(store.records, keys=(KEY,)))


def edited(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_keys_come_back_with_the_password_and_their_open_part_without(path: Path) -> None:
    assert read_key_records(path).keys == (KEY,)
    store = open_keystore(path, b"password")
    assert (store.records.keys, store.secrets) == ((KEY,), {KEY.id: SECRET})
    assert reopen(path, store) == store
    assert SECRET.hex() not in repr(store)


def test_the_file_is_its_owners_alone_and_shows_no_secret(path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert SECRET.hex() not in path.read_text()
    assert os.listdir(path.parent) == ["keys.json"]


@pytest.mark.parametrize(
    "change",
    [
        {"store_id": "other"},
        {"cost": 15},
        {"salt": "AAAAAAAAAAAAAAAAAAAAAA=="},
        {"nonce": "AAAAAAAAAAAAAAAA"},
        {"lock": "keyring"},
        {"keys": []},
        {"sealed": "AAAA"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_file_that_was_changed_does_not_open(path: Path, change: dict[str, Any]) -> None:
    edited(path, **change)
    with pytest.raises(SignerError) as caught:
        open_keystore(path, b"password")
    assert caught.value.code == "wrong-password"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "damaged"),
        (b"[]", "damaged"),
        (b"[" * 100_000, "damaged"),
        (b'{"version": 1}', "damaged"),
        (b'{"version": 2}', "use a newer skillhouse"),
        (b" " * 1_100_000, "more than 1048576 bytes"),
    ],
)
def test_a_damaged_or_newer_file_is_an_error_and_stays(
    path: Path, content: bytes, reason: str
) -> None:
    path.write_bytes(content)
    with pytest.raises(SignerError, match=reason):
        open_keystore(path, b"password")
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "change", [{"cost": 30}, {"cost": 1}, {"lock": "none"}, {"salt": "AA=="}, {"salt": "é"}]
)
def test_a_file_with_other_bounds_is_damaged(path: Path, change: dict[str, Any]) -> None:
    edited(path, **change)
    with pytest.raises(SignerError, match="damaged"):
        read_key_records(path)


def test_a_file_that_others_may_read_is_refused(path: Path) -> None:
    path.chmod(0o640)
    with pytest.raises(SignerError, match="run `chmod go= "):
        read_key_records(path)


def test_a_link_to_a_device_or_a_fifo_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "keys.json", 0o600)
    with pytest.raises(SignerError, match="expected a file"):
        read_key_records(tmp_path / "keys.json")


def test_an_absent_file_has_no_keys(tmp_path: Path) -> None:
    assert read_key_records(tmp_path / "keys.json").keys == ()
    with pytest.raises(SignerError, match="ask the user to make one"):
        read_key_records(tmp_path / "keys.json").get("main")


def test_a_write_that_fails_leaves_the_file_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()
    store = open_keystore(path, b"password")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        save(path, store)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["keys.json"]


def test_two_writes_share_no_nonce(path: Path) -> None:
    first = json.loads(path.read_text())["nonce"]
    save(path, open_keystore(path, b"password"))
    assert json.loads(path.read_text())["nonce"] != first
