"""Attacks on the file of a signature."""

from __future__ import annotations

import base64
import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from skillhouse.registry.trust import SIGNATURE_MAX
from tests.attacks.signed_case import Case, attack, by_edited, edited, with_other_key

# The signature and its file.


@attack("signature", naively=False)
def _payload_changed_after_signing(case: Case) -> None:
    def change(value: dict[str, Any]) -> None:
        payload = base64.b64decode(value["dsseEnvelope"]["payload"])
        payload = payload.replace(b"acme", b"evil").replace(b"1.2.0", b"1.3.0")
        value["dsseEnvelope"]["payload"] = base64.b64encode(payload).decode()

    edited(case, change)


@attack("signature", naively=False)
def _certificate_of_another_developer(case: Case) -> None:
    with_other_key(case, ec.generate_private_key(ec.SECP256R1()))


@attack("signature", naively=False)
def _empty_signature(case: Case) -> None:
    edited(case, lambda value: value["dsseEnvelope"]["signatures"][0].update(sig=""))


@attack("bundle", naively=True)
def _duplicate_keys(case: Case) -> None:
    case.signature = case.signature.replace(b'{"mediaType"', b'{"mediaType":"x","mediaType"', 1)


@attack("bundle", naively=False)
def _trailing_data(case: Case) -> None:
    case.signature += b'{"mediaType":1}'


@attack("bundle", naively=False)
def _public_key_instead_of_a_certificate(case: Case) -> None:
    def change(value: dict[str, Any]) -> None:
        value["verificationMaterial"] = {"publicKey": {"hint": ""}}

    edited(case, change)


@attack("bundle", naively=True)
def _base64_in_two_spellings(case: Case) -> None:
    def change(value: dict[str, Any]) -> None:
        # Two bits of the last digit but one say nothing.
        sig = value["dsseEnvelope"]["signatures"][0]["sig"]
        digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
        kept = sig.rstrip("=")
        padding = sig[len(kept) :]
        if padding:
            last = digits[digits.index(kept[-1]) + 1]
            value["dsseEnvelope"]["signatures"][0]["sig"] = kept[:-1] + last + padding

    while not json.loads(case.signature)["dsseEnvelope"]["signatures"][0]["sig"].endswith("="):
        case.signature = case.world.signature()
    edited(case, change)


@attack("size", naively=True)
def _oversize_file(case: Case) -> None:
    case.signature += b" " * SIGNATURE_MAX


@attack("bundle", naively=False)
def _deep_nesting(case: Case) -> None:
    def change(value: dict[str, Any]) -> None:
        deep: Any = []
        for _ in range(100):
            deep = [deep]
        value["verificationMaterial"]["x509CertificateChain"] = deep

    edited(case, change)


by_edited(
    "bundle",
    naively=True,
    two_signatures=lambda v: v["dsseEnvelope"]["signatures"].append({"sig": "", "keyid": ""}),
    unknown_key=lambda value: value.update(more=1),
    algorithm_in_the_envelope=lambda value: value["dsseEnvelope"]["signatures"][0].update(
        alg="none"
    ),
    log_entry_that_cannot_be_checked=lambda v: v["verificationMaterial"].update(
        tlogEntries=[{"logIndex": "1"}]
    ),
    another_media_type=lambda value: value.update(mediaType="application/json"),
)
by_edited(
    "bundle",
    naively=False,
    no_signatures=lambda value: value["dsseEnvelope"]["signatures"].clear(),
    another_payload_type=lambda value: value["dsseEnvelope"].update(payloadType="text/plain"),
)
