"""A Sigstore instance of tests: an authority, logs and timestamps, with keys of its own."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from skillhouse.registry.signature_bundle import PAYLOAD_TYPE, signed_bytes
from skillhouse.registry.signatures import timestamp_request
from tests.registry.pki import TimestampAuthority

ISSUER = "https://token.actions.githubusercontent.com"
REPOSITORY = "https://github.com/acme/skills"
RELEASE = ".github/workflows/release.yml"
COMMIT = "c0ffee" + "0" * 34
PROVENANCE = "https://slsa.dev/provenance/v1"
MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_SCT_LIST = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def statement(*digests: str, predicate_type: str = PROVENANCE) -> bytes:
    """Return an in-toto statement about archives (`sha256:…` each)."""
    subjects = [{"digest": {"sha256": one.removeprefix("sha256:")}} for one in digests]
    value = {"_type": "https://in-toto.io/Statement/v1", "subject": subjects,
             "predicateType": predicate_type, "predicate": {}}  # fmt: skip
    return json.dumps(value, separators=(",", ":")).encode()


def changed(bundle: bytes, **keys: Any) -> bytes:
    """Return a bundle with other keys of its own."""
    return json.dumps({**json.loads(bundle), **keys}).encode()


class BuildRoot:
    """What signs for workflows; with `stamps` it has timestamps in place of logs, as GitHub's."""

    def __init__(self, *, stamps: TimestampAuthority | None = None, age: timedelta = timedelta()):
        self.stamps = stamps
        self.now = datetime.now(UTC).replace(microsecond=0) - age
        self._key, self._log, self._ct = (ec.generate_private_key(ec.SECP256R1()) for _ in "abc")
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "builds of tests")])
        self.certificate = self._issued(self._key, self._authority_traits(), days=300)

    def _authority_traits(self) -> list[tuple[x509.ExtensionType, bool]]:
        return [
            (x509.BasicConstraints(ca=True, path_length=0), True),
            (_usage("key_cert_sign", "crl_sign"), True),
        ]

    def _issued(
        self,
        key: ec.EllipticCurvePrivateKey,
        traits: Sequence[tuple[x509.ExtensionType, bool]],
        *,
        days: int = 0,
        serial: int = 7,
        start: datetime | None = None,
    ) -> x509.Certificate:
        start = start or self.now - timedelta(minutes=5)
        builder = x509.CertificateBuilder(
            issuer_name=self._name,
            subject_name=self._name if days else x509.Name([]),
            public_key=key.public_key(),
            serial_number=serial,
            not_valid_before=start,
            not_valid_after=start + timedelta(days=days, minutes=10),
        )
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        above = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        for value, is_critical in (*traits, (own, False), (above, False)):
            builder = builder.add_extension(value, critical=is_critical)
        return builder.sign(self._key, hashes.SHA256())

    def trusted_root(self) -> dict[str, Any]:
        """Return what a client trusts, as JSON."""
        start = f"{self.now - timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}"

        def authority(*chain: x509.Certificate, since: str = start) -> dict[str, Any]:
            found = [{"rawBytes": text(one.public_bytes(Encoding.DER))} for one in chain]
            return {
                "subject": {"organization": "tests", "commonName": "builds of tests"},
                "uri": "https://builds.example.com",
                "certChain": {"certificates": found},
                "validFor": {"start": since},
            }

        def log(key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
            return {
                "baseUrl": "https://log.example.com",
                "hashAlgorithm": "SHA2_256",
                "publicKey": {
                    "rawBytes": text(_public(key)),
                    "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "validFor": {"start": start},
                },
                "logId": {"keyId": text(_key_id(key))},
            }

        stamps = self.stamps
        found = {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [] if stamps else [log(self._log)],
            "certificateAuthorities": [authority(self.certificate)],
            "ctlogs": [] if stamps else [log(self._ct)],
            "timestampAuthorities": [authority(*stamps.chain, since="2020-01-01T00:00:00Z")]
            if stamps
            else [],
        }
        # GitHub's leaves out what is empty.
        return {key: value for key, value in found.items() if value}

    def write(self, path: Path) -> str:
        """Write the trusted root to a file; return it as the configuration names it."""
        path.write_text(json.dumps(self.trusted_root()), encoding="utf-8")
        return f"file:{path}"

    def bundle(self, *digests: str, payload: bytes | None = None, **says: Any) -> bytes:
        """Return an attestation over archives, by a workflow as `says` of `workflow_names`."""
        payload = statement(*digests) if payload is None else payload
        start = says.pop("start", None)
        key = ec.generate_private_key(ec.SECP256R1())
        leaf = self._leaf(key, workflow_names(**says), start)
        signature = key.sign(signed_bytes(PAYLOAD_TYPE, payload), ec.ECDSA(hashes.SHA256()))
        material: dict[str, Any] = {
            "certificate": {"rawBytes": text(leaf.public_bytes(Encoding.DER))}
        }
        if self.stamps is None:
            material["tlogEntries"] = [self._entry(leaf, payload, signature)]
        else:
            stamp = self.stamps.answer(timestamp_request(signature))
            found = [{"signedTimestamp": text(stamp)}]
            material["timestampVerificationData"] = {"rfc3161Timestamps": found}
        value = {
            "mediaType": MEDIA_TYPE,
            "verificationMaterial": material,
            "dsseEnvelope": {
                "payload": text(payload),
                "payloadType": PAYLOAD_TYPE,
                "signatures": [{"sig": text(signature)}],
            },
        }
        return json.dumps(value).encode()

    def _leaf(
        self, key: ec.EllipticCurvePrivateKey, names: Mapping[int, str], start: datetime | None
    ) -> x509.Certificate:
        uri = x509.UniformResourceIdentifier(names[18])
        traits: list[tuple[x509.ExtensionType, bool]] = [
            (_usage("digital_signature"), True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), False),
            (x509.SubjectAlternativeName([uri]), True),
            *((_said(number, value), False) for number, value in names.items() if value),
        ]
        plain = self._issued(key, traits, start=start)
        if self.stamps is not None:
            return plain
        # AKI and SKI come last in both, so that what is left without the list is what was logged.
        return self._issued(key, [*traits, (self._sct_list(key, traits, start), False)],
                            start=start)  # fmt: skip

    def _sct_list(
        self,
        key: ec.EllipticCurvePrivateKey,
        traits: Sequence[tuple[x509.ExtensionType, bool]],
        start: datetime | None,
    ) -> x509.UnrecognizedExtension:
        """Return the entry of a certificate log (RFC 6962, section 3.2), as the extension."""
        logged = self._issued(key, traits, start=start).tbs_certificate_bytes
        moment = int(self.now.timestamp() * 1000)
        entry = hashlib.sha256(_public(self._key)).digest() + _sized(logged, 3)
        signed = struct.pack("!BBQH", 0, 0, moment, 1) + entry + b"\0\0"
        signature = self._ct.sign(signed, ec.ECDSA(hashes.SHA256()))
        one = (
            struct.pack("!B32sQH", 0, _key_id(self._ct), moment, 0) + b"\4\3" + _sized(signature, 2)
        )
        listed = _sized(_sized(one, 2), 2)
        return x509.UnrecognizedExtension(_SCT_LIST, _der(4, listed))

    def _entry(self, leaf: x509.Certificate, payload: bytes, signature: bytes) -> dict[str, Any]:
        """Return the entry of the transparency log, which has this one alone."""
        pem = leaf.public_bytes(Encoding.PEM)
        named = {"algorithm": "sha256", "value": hashlib.sha256(payload).hexdigest()}
        spec = {
            "envelopeHash": named,
            "payloadHash": named,
            "signatures": [{"signature": text(signature), "verifier": text(pem)}],
        }
        body = _canonical({"apiVersion": "0.0.1", "kind": "dsse", "spec": spec})
        moment, log_id = int(self.now.timestamp()), _key_id(self._log)
        promised = _canonical(
            {
                "body": text(body),
                "integratedTime": moment,
                "logID": log_id.hex(),
                "logIndex": 0,
            }
        )
        top = hashlib.sha256(b"\0" + body).digest()
        note = f"log.example.com - 1\n1\n{text(top)}\n"
        signed = text(log_id[:4] + self._log.sign(note.encode(), ec.ECDSA(hashes.SHA256())))
        return {
            "logIndex": "0",
            "logId": {"keyId": text(log_id)},
            "kindVersion": {"kind": "dsse", "version": "0.0.1"},
            "integratedTime": str(moment),
            "inclusionPromise": {
                "signedEntryTimestamp": text(self._log.sign(promised, ec.ECDSA(hashes.SHA256())))
            },
            "inclusionProof": {
                "logIndex": "0",
                "rootHash": text(top),
                "treeSize": "1",
                "hashes": [],
                "checkpoint": {"envelope": f"{note}\n\u2014 log.example.com {signed}\n"},
            },
            "canonicalizedBody": text(body),
        }


def workflow_names(
    *,
    issuer: str = ISSUER,
    repository: str = REPOSITORY,
    workflow: str = RELEASE,
    commit: str = COMMIT,
    repository_id: str = "804070735",
    config: str = "",
) -> dict[int, str]:
    """Return what a certificate says of a workflow, by the numbers of Fulcio's extensions."""
    return {
        8: issuer,
        12: repository,
        13: commit,
        14: "refs/tags/v1.0.0",
        15: repository_id,
        18: config or f"{repository}/{workflow}@refs/tags/v1.0.0",
    }


def _said(number: int, value: str) -> x509.UnrecognizedExtension:
    name = x509.ObjectIdentifier(f"1.3.6.1.4.1.57264.1.{number}")
    return x509.UnrecognizedExtension(name, _der(12, value.encode()))


def _usage(*wanted: str) -> x509.KeyUsage:
    flags = (
        "digital_signature content_commitment key_encipherment data_encipherment key_agreement "
        "key_cert_sign crl_sign encipher_only decipher_only"
    ).split()
    return x509.KeyUsage(**{name: name in wanted for name in flags})


def _der(tag: int, data: bytes) -> bytes:
    size = len(data)
    head = bytes([size]) if size < 128 else bytes([0x81, size])
    if size > 255:
        head = b"\x82" + size.to_bytes(2)
    return bytes([tag]) + head + data


def _sized(data: bytes, width: int) -> bytes:
    return len(data).to_bytes(width) + data


def _public(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _key_id(key: ec.EllipticCurvePrivateKey) -> bytes:
    return hashlib.sha256(_public(key)).digest()


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
