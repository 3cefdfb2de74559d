"""Tests of the files of publishers' keys."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from skillhouse.registry import PublisherError, PublisherKeys, new_publisher_key, new_request
from skillhouse.registry.certificates import publisher_name
from skillhouse.registry.publisher_keys import PublisherKey, open_key, seal_key
from tests.registry.pki import issued, make_root

pytestmark = pytest.mark.slow

PASSWORD = b"correct horse"
PEM = serialization.Encoding.PEM
PKCS8 = serialization.PrivateFormat.PKCS8


@pytest.fixture
def keys(tmp_path: Path) -> PublisherKeys:
    return PublisherKeys(tmp_path / "keys")


def made(name: str = "acme", role: str = "developer") -> PublisherKey:
    return new_publisher_key(name, role, registry="", lock="password")


def test_a_key_comes_back_with_its_password_only(keys: PublisherKeys, tmp_path: Path) -> None:
    assert keys.all() == ()
    private = keys.add(made(), PASSWORD)
    (key,) = keys.all()
    assert keys.open(key, PASSWORD).private_numbers() == private.private_numbers()
    with pytest.raises(PublisherError, match=r"^key: does not open: another password"):
        keys.open(key, b"wrong horse")
    for path in (tmp_path / "keys").iterdir():
        assert path.stat().st_mode & 0o077 == 0
        assert private.private_numbers().private_value.to_bytes(32) not in path.read_bytes()


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not here")
def test_openssl_opens_it_too(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP384R1())
    file = tmp_path / "key.pem"
    file.write_bytes(seal_key(key, PASSWORD))
    done = subprocess.run(
        ["openssl", "pkey", "-in", file, "-passin", f"pass:{PASSWORD.decode()}", "-pubout"],
        check=True,
        capture_output=True,
    )
    assert serialization.load_pem_public_key(done.stdout) == key.public_key()


def test_what_is_no_encrypted_key_of_ours_is_refused() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    plain = key.private_bytes(PEM, PKCS8, serialization.NoEncryption())
    sealed = serialization.BestAvailableEncryption(PASSWORD)
    other = rsa.generate_private_key(65_537, 2_048).private_bytes(PEM, PKCS8, sealed)
    small = ec.generate_private_key(ec.SECP224R1()).private_bytes(PEM, PKCS8, sealed)
    for pem in (b"", plain, other, small, seal_key(key, PASSWORD)[:-60], b"x" * 10_000):
        with pytest.raises(PublisherError, match=r"^key: "):
            open_key(pem, PASSWORD)


def test_a_name_is_taken_once_and_is_a_name_of_a_file(keys: PublisherKeys, tmp_path: Path) -> None:
    keys.add(made(), PASSWORD)
    with pytest.raises(PublisherError, match="there is a publisher key `acme` already"):
        keys.add(made(), PASSWORD)
    for name in ("../acme", "Acme", "", ".", "a/b", "a" * 65):
        with pytest.raises(PublisherError, match="expected a name of a-z"):
            keys.add(made(name), PASSWORD)
        with pytest.raises(PublisherError, match="expected a name of a-z"):
            keys.get(name)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["acme.json", "acme.key", "keys"]
    with pytest.raises(PublisherError, match="no publisher key `globex`; there are `acme`"):
        keys.get("globex")


def test_a_key_that_others_can_read_or_write_is_not_used(
    keys: PublisherKeys, tmp_path: Path
) -> None:
    key = made()
    keys.add(key, PASSWORD)
    path = tmp_path / "keys" / "acme.key"
    path.chmod(0o644)
    with pytest.raises(PublisherError, match=r"^key: is not used: "):
        keys.open(key, PASSWORD)
    path.unlink()
    with pytest.raises(PublisherError, match=r"^key: the file of the key is missing"):
        keys.open(key, PASSWORD)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"role": "admin"},
        {"name": "globex"},
        {"lock": 1},
        None,
    ],
)
def test_facts_that_are_damaged_are_refused(
    keys: PublisherKeys, tmp_path: Path, change: dict[str, object] | None
) -> None:
    keys.add(made(), PASSWORD)
    path = tmp_path / "keys" / "acme.json"
    value = json.loads(path.read_text())
    path.write_text("{" if change is None else json.dumps(value | change))
    with pytest.raises(PublisherError, match=r"^key: is damaged"):
        keys.all()


def test_a_certificate_finds_the_key_that_requested_it(keys: PublisherKeys) -> None:
    private = keys.add(made(), PASSWORD)
    request = new_request(private, publisher_name("local", "acme"))
    keys.keep_request("acme", request.public_bytes(PEM))
    root = make_root()
    assert keys.of_certificate(issued(root).certificate) == ""
    assert keys.certificates("acme") == ()
