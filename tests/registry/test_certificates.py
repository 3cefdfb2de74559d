"""Tests of what certificates are issued, and of roots that take each other's place."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from skillhouse.registry import (
    PublisherError,
    TrustAnchors,
    issue,
    load_certificates,
    new_request,
    new_root,
    pem_of,
    publisher_name,
    read_request,
    sign_tree,
    verify_signature,
)
from skillhouse.registry.certificate_issue import request_pem
from tests.registry.pki import IDENTITY, NOW, Party, Traits, forged, issued, make_root, make_world
from tests.registry.publisher_skill import REGISTRY


def refusal(issuer: Party, handle: str = "acme", *, registry: str = REGISTRY, days: int = 0) -> str:
    """Return why an issuer may not issue a certificate."""
    name = publisher_name(registry, handle)
    request = new_request(ec.generate_private_key(ec.SECP256R1()), name)
    with pytest.raises(PublisherError) as caught:
        issue(request, name, issuer=issuer.chain, key=issuer.key, now=NOW, days=days)
    return str(caught.value)


def test_who_may_issue_what() -> None:
    root = make_root()
    middle = issued(root, "")
    assert refusal(middle, "").startswith("issuer: an intermediate issues certificates of dev")
    assert refusal(issued(root)).startswith("purpose: the intermediate certificate must issue")
    assert refusal(root, registry="other.example.com").startswith("issuer: is of the registry")
    assert refusal(Party(middle.key, root.chain)).startswith("issuer: the key does not belong")
    assert refusal(make_root(days=100)).startswith("issuer: expires on ")
    assert refusal(root, days=398) == (
        "validity: a developer certificate is valid for 1 to 397 days, not 398"
    )


def test_nothing_of_a_request_counts_but_its_key() -> None:
    root = make_root()
    key = ec.generate_private_key(ec.SECP256R1())
    wish = x509.BasicConstraints(ca=True, path_length=5)
    uri = x509.UniformResourceIdentifier(f"skill://{REGISTRY}/publisher/globex")
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "root")]))
        .add_extension(wish, critical=True)
        .add_extension(x509.SubjectAlternativeName([uri]), critical=False)
        .sign(key, hashes.SHA256())
    )
    read, asked = read_request(request_pem(request))
    assert asked.handle == "globex"
    name = publisher_name(REGISTRY, "acme")
    (made,) = issue(read, name, issuer=root.chain, key=root.key, now=NOW)
    basic = made.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert not basic.ca
    assert made.subject.rfc4514_string() == f"CN=acme,O={REGISTRY}"
    found = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [one.value for one in found] == [name.uri]


def test_a_request_over_the_key_of_another_is_refused() -> None:
    name = publisher_name(REGISTRY, "acme")
    own = new_request(ec.generate_private_key(ec.SECP256R1()), name)
    other = new_request(ec.generate_private_key(ec.SECP256R1()), name)
    der = own.public_bytes(Encoding.DER).replace(_point(own), _point(other))
    pem = x509.load_der_x509_csr(der).public_bytes(Encoding.PEM)
    with pytest.raises(PublisherError, match=r"^request: is not signed with the key"):
        read_request(pem)


def _point(request: x509.CertificateSigningRequest) -> bytes:
    key = request.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    numbers = key.public_numbers()
    return numbers.x.to_bytes(32) + numbers.y.to_bytes(32)


@pytest.mark.slow
def test_what_is_no_request_or_certificate_is_refused() -> None:
    key = rsa.generate_private_key(65_537, 2_048)
    uri = x509.UniformResourceIdentifier(f"skill://{REGISTRY}/publisher/acme")
    weak = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([]))
        .add_extension(x509.SubjectAlternativeName([uri]), critical=False)
        .sign(key, hashes.SHA256())
    )
    for data in (b"", b"x" * 9_000, pem_of(make_root().chain), request_pem(weak)):
        with pytest.raises(PublisherError, match=r"^(request|algorithm): "):
            read_request(data)
    for data in (b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        with pytest.raises(PublisherError, match=r"^certificate: expected a certificate in PEM"):
            load_certificates(data)
    with pytest.raises(PublisherError, match=r"^certificate: expected at most"):
        load_certificates(b"x" * 70_000)


@pytest.mark.parametrize(
    ("registry", "handle"),
    [
        ("", ""),
        ("Skills.example.com", ""),
        ("skills..com", ""),
        ("skills.example.com/publisher", ""),
        ("a--b", ""),
        ("skills.example.com", "Acme"),
        ("skills.example.com", "a--b"),
        ("skills.example.com", "acme-"),
        ("skills.example.com", "a/b"),
        ("skills.example.com", "a" * 65),
    ],
)
def test_a_name_is_of_the_plain_alphabet(registry: str, handle: str) -> None:
    with pytest.raises(PublisherError, match=r"^name: expected a "):
        publisher_name(registry, handle)


def test_a_new_root_of_the_same_name_takes_over_beside_the_old(tmp_path: Path) -> None:
    old = make_world(tmp_path)
    key = ec.generate_private_key(ec.SECP384R1())
    root = Party(key, (new_root(key, REGISTRY, NOW + timedelta(days=30)),))
    assert root.certificate.subject == old.root.certificate.subject
    later = NOW + timedelta(days=60)
    renewed = issued(root, now=later)
    both = TrustAnchors(roots=(old.root.certificate, root.certificate))
    for signature in (old.signature(), old.signature(renewed, now=later)):
        verify_signature(old.tree, signature, IDENTITY, anchors=both, now=later)
    only = TrustAnchors(roots=(root.certificate,))
    with pytest.raises(PublisherError, match=r"^chain: a certificate was not signed by"):
        verify_signature(old.tree, old.signature(), IDENTITY, anchors=only, now=later)
    foreign = old.signature(issued(make_root()))
    with pytest.raises(PublisherError, match=r"^chain: no trusted root issued"):
        verify_signature(old.tree, foreign, IDENTITY, anchors=both, now=later)


def test_signing_takes_the_key_of_the_certificate_and_no_long_chain(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    other = forged(Traits(), world.root)
    with pytest.raises(PublisherError, match=r"^certificate: does not belong to the key"):
        sign_tree(world.tree, IDENTITY, key=other.key, chain=world.developer.chain, now=NOW)
    with pytest.raises(PublisherError, match=r"^certificate: expected at most 2"):
        sign_tree(world.tree, IDENTITY, key=other.key, chain=other.chain * 3, now=NOW)
