"""Tests of keys in a token, which SoftHSM is."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from skillhouse.registry import (
    PublisherError,
    new_publisher_key,
    new_request,
    new_root,
    publisher_name,
)
from skillhouse.registry.certificate_issue import issue
from skillhouse.registry.certificates import check_root
from skillhouse.registry.publisher_keys import PublisherKey
from skillhouse_signer.token_keys import make_token_key, open_token_key, token_parts
from tests.registry.pki import NOW
from tests.registry.publisher_skill import REGISTRY

MODULE = next(
    (
        str(path)
        for folder in ("/usr/lib", "/usr/lib64", "/usr/local/lib")
        if (path := Path(folder, "softhsm", "libsofthsm2.so")).exists()
    ),
    "",
)
PIN = b"1234"
URI = f"pkcs11:token=acme;object=root?module-path={MODULE}"

with_token = pytest.mark.skipif(
    not (MODULE and shutil.which("softhsm2-util")), reason="softhsm2 is not here"
)


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A token for all tests of this file: the module reads its configuration once a process."""
    place = tmp_path_factory.mktemp("tokens")
    file = place / "softhsm.conf"
    file.write_text(f"directories.tokendir = {place}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOFTHSM2_CONF", str(file))
        command = "softhsm2-util --init-token --free --label acme --so-pin 5678 --pin 1234"
        subprocess.run(command.split(), check=True, capture_output=True)
        yield


def key_of(uri: str = URI, role: str = "root") -> PublisherKey:
    return new_publisher_key("root", role, registry=REGISTRY, lock="pkcs11", token=uri)


@pytest.mark.slow
@with_token
@pytest.mark.usefixtures("token")
def test_a_root_in_a_token_issues_certificates() -> None:
    key = key_of()
    private = make_token_key(key, PIN)
    root = new_root(private, REGISTRY, NOW)
    assert check_root(root).registry == REGISTRY
    developer = ec.generate_private_key(ec.SECP256R1())
    name = publisher_name(REGISTRY, "acme")
    again = open_token_key(key, PIN)
    (made,) = issue(new_request(developer, name), name, issuer=[root], key=again, now=NOW)
    made.verify_directly_issued_by(root)
    with pytest.raises(PublisherError, match="has an object `root` already"):
        make_token_key(key, PIN)
    for attempt in (
        private.private_numbers,
        lambda: private.private_bytes(
            serialization.Encoding.DER,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        lambda: private.exchange(ec.ECDH(), developer.public_key()),
        lambda: private.sign(b"x", ec.ECDSA(hashes.SHA256())),
    ):
        with pytest.raises(PublisherError, match=r"^token: "):
            attempt()


@with_token
@pytest.mark.usefixtures("token")
def test_what_the_token_refuses_is_said_without_the_pin() -> None:
    with pytest.raises(PublisherError, match=r"^token: `acme` answers ") as caught:
        open_token_key(key_of(), b"98765")
    assert "98765" not in str(caught.value)
    for uri in (URI.replace("acme", "other"), URI.replace("object=root", "object=none")):
        with pytest.raises(PublisherError, match=r"^token: "):
            open_token_key(key_of(uri), PIN)


def test_a_module_that_is_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "module.so"
    file.write_bytes(b"no module")
    for path in (file, tmp_path / "missing.so"):
        uri = f"pkcs11:token=acme;object=root?module-path={path}"
        with pytest.raises(PublisherError, match=r"^token: "):
            open_token_key(key_of(uri), PIN)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "file:///root.key",
        "pkcs11:token=acme",
        "pkcs11:token=acme;object=root",
        "pkcs11:object=root?module-path=/x.so",
        "pkcs11:token=acme;object=root?module-path=/x.so&pin-value=1234",
    ],
)
def test_a_uri_names_token_object_and_module_and_no_pin(uri: str) -> None:
    with pytest.raises(PublisherError, match=r"^token: ") as caught:
        token_parts(uri)
    assert "1234" not in str(caught.value)
