"""Tests of the cryptography of Web Push: by the RFC's example, and by another implementation."""

from __future__ import annotations

import json

import http_ece
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from skillhouse.extensions.server.companion.web_push import (
    CURVE,
    decoded,
    encoded,
    encrypted,
    new_key,
    point_of,
    read_key,
    vapid,
)

SECRET = bytes(range(16))


def test_the_example_of_rfc_8291_comes_out() -> None:
    """RFC 8291, section 5 and appendix A."""
    sender = ec.derive_private_key(
        int.from_bytes(decoded("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw")), CURVE
    )
    receiver = (
        "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
    )
    made = encrypted(
        b"When I grow up, I want to be a watermelon",
        decoded(receiver),
        decoded("BTBZMqHH6r4Tts7J_aSIgg"),
        sender=sender,
        salt=decoded("DGv6ra1nlYgDCS1FRnbzlw"),
    )
    assert encoded(made) == (
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27ml"
        "mlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPT"
        "pK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )


@pytest.mark.parametrize("size", [0, 1, 300, 4_079])
def test_another_implementation_reads_it(size: int) -> None:
    key = ec.generate_private_key(CURVE)
    content = bytes(size)
    made = encrypted(content, point_of(key.public_key()), SECRET)
    read = http_ece.decrypt(made, private_key=key, auth_secret=SECRET, version="aes128gcm")
    assert read == content
    assert made != encrypted(content, point_of(key.public_key()), SECRET)


@pytest.mark.parametrize(("size", "receiver"), [(4_080, None), (1, b"\x04" + bytes(64)), (1, b"")])
def test_what_cannot_be_read_is_not_made(size: int, receiver: bytes | None) -> None:
    if receiver is None:
        receiver = point_of(ec.generate_private_key(CURVE).public_key())
    with pytest.raises(ValueError, match=r".+"):
        encrypted(bytes(size), receiver, SECRET)


def test_the_sender_is_known_by_a_signature_over_its_claims() -> None:
    key = read_key(new_key())
    scheme, token, point = vapid({"aud": "https://push.example", "exp": 5}, key).split()
    assert (scheme, point) == ("vapid", f"k={encoded(point_of(key.public_key()))}")
    head, claims, signature = token.removeprefix("t=").removesuffix(",").split(".")
    assert json.loads(decoded(head)) == {"typ": "JWT", "alg": "ES256"}
    assert json.loads(decoded(claims)) == {"aud": "https://push.example", "exp": 5}
    raw = decoded(signature)
    assert len(raw) == 64
    der = encode_dss_signature(int.from_bytes(raw[:32]), int.from_bytes(raw[32:]))
    rule = ec.ECDSA(hashes.SHA256())
    key.public_key().verify(der, f"{head}.{claims}".encode(), rule)
    with pytest.raises(InvalidSignature):
        key.public_key().verify(der, f"{head}.{claims}A".encode(), rule)


def test_a_key_of_another_curve_is_not_read() -> None:
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - of this alone.
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    other = ec.generate_private_key(ec.SECP384R1())
    pem = other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with pytest.raises(ValueError, match="P-256"):
        read_key(pem)
