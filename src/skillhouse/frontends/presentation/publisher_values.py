"""Certificates of publishers, and what is trusted here, as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skillhouse import registry

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

    from skillhouse.registry import TrustAnchors

_TIME = "%Y-%m-%dT%H:%M:%SZ"


def certificate_value(certificate: Certificate) -> dict[str, Any]:
    return {
        "certificate": registry.fingerprint(certificate),
        "serial": f"{certificate.serial_number:x}",
        "names": registry.named_uri(certificate),
        "valid_from": f"{certificate.not_valid_before_utc:{_TIME}}",
        "valid_until": f"{certificate.not_valid_after_utc:{_TIME}}",
    }


def trusted_value(found: TrustAnchors) -> dict[str, Any]:
    """Return the roots that are trusted for skills and for timestamps, and the revocations."""
    return {
        "roots": [certificate_value(one) for one in found.roots],
        "timestamps": [
            {"certificate": registry.fingerprint(one), "subject": one.subject.rfc4514_string()}
            for one in found.timestamp_roots
        ],
        "revocations": [
            {
                "issuer": one.issuer,
                "number": one.content.number,
                "issued_at": one.content.issued_at,
                "expires_at": one.content.expires_at,
                "entries": len(one.content.entries),
            }
            for one in found.revocations
        ],
    }
