"""When a signature was made, as a timestamp authority confirms it (RFC 3161)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime

from cryptography import x509
from rfc3161_client import (
    HashAlgorithm,
    TimestampRequestBuilder,
    TimeStampResponse,
    VerificationError,
    VerifierBuilder,
    decode_timestamp_response,
)

from skillhouse.floor import dataclass
from skillhouse.registry.trust import PublisherError

TIMESTAMP_MAX = 32 * 1_024
"""Bytes of a response: with its certificates one has about 5 KiB."""
REQUEST_TYPE = "application/timestamp-query"
RESPONSE_TYPE = "application/timestamp-reply"


def timestamp_request(signature: bytes) -> bytes:
    """Return a request for a timestamp over a signature (RFC 3161, section 2.4.1)."""
    builder = TimestampRequestBuilder().data(signature).hash_algorithm(HashAlgorithm.SHA256)
    return builder.cert_request(cert_request=True).build().as_bytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmedTime:
    """When a signature existed, at the latest."""

    moment: datetime | None
    """None where no timestamp is accepted."""
    problems: tuple[str, ...] = ()
    """Why timestamps are not."""


def confirmed_time(
    timestamps: Sequence[bytes], signature: bytes, roots: Sequence[x509.Certificate]
) -> ConfirmedTime:
    """Return the earliest time that a trusted authority confirms for a signature.

    A timestamp that is not accepted confirms nothing, so that certificates are judged at the
    present moment: leaving it out would do the same.
    """
    moments: list[datetime] = []
    problems: list[str] = []
    for one in timestamps:
        try:
            moments.append(check_timestamp(one, signature, roots))
        except PublisherError as error:
            problems.append(str(error))
    return ConfirmedTime(moment=min(moments, default=None), problems=tuple(problems))


def check_timestamp(data: bytes, signature: bytes, roots: Sequence[x509.Certificate]) -> datetime:
    """Return the time that a response confirms; PublisherError `timestamp` if it confirms none."""
    response = read_timestamp(data, signature)
    if not roots:
        message = "no timestamp authority is trusted here; see `keys trust --for timestamps`"
        raise PublisherError("timestamp", message)
    verifier = VerifierBuilder(roots=list(roots)).build()
    try:
        verifier.verify_message(response, signature)
    except (VerificationError, ValueError) as error:
        raise PublisherError("timestamp", f"is not accepted: {str(error)[:160]}") from error
    return response.tst_info.gen_time.astimezone(UTC)


def read_timestamp(data: bytes, signature: bytes) -> TimeStampResponse:
    """Return a response of an authority about a signature; PublisherError `timestamp` otherwise."""
    if len(data) > TIMESTAMP_MAX:
        raise PublisherError("timestamp", f"expected at most {TIMESTAMP_MAX} bytes")
    try:
        response = decode_timestamp_response(data)
        _ = response.tst_info.gen_time
    except ValueError as error:
        raise PublisherError("timestamp", f"cannot be read: {str(error)[:160]}") from error
    if response.tst_info.message_imprint.message != hashlib.sha256(signature).digest():
        raise PublisherError("timestamp", "is about another signature")
    return response
