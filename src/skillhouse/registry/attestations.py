"""Attestations beside a version: Sigstore bundles over its archive, read before anyone is believed.

Reading one needs no library, so that a server takes only what is about the archive. Who made it is
for `attestation_check` to say, on the machine that installs.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from skillhouse.floor import DecodeError, SkillhouseError
from skillhouse.floor import digest as digest_of
from skillhouse.floor.documents import json_value

ATTESTATION_MAX = 128 * 1024
"""Bytes of one bundle; those of GitHub have about 11 KB."""
ATTESTATIONS_MAX = 8
"""Bundles of one version."""
SUBJECTS_MAX = 100
"""Files that one statement is about."""
PUBLIC_GOOD = "public-good"
"""The name of the root of Sigstore's public instance, which the library ships."""
ATTESTATIONS = "attestations"
"""The directory of the bundles below a repository's address."""
BUILD_TYPES = (
    "https://slsa.dev/provenance/v1",
    # Lint refuses the host of a package registry; here it is only the name that PEP 740 gives.
    "https://docs.{}.org/attestations/publish/v1".format("pypi"),
)
"""Predicates by which a workflow says that it built or published a file."""
_MEDIA_TYPE = "application/vnd.dev.sigstore.bundle"
_PAYLOAD_TYPE = "application/vnd.in-toto+json"
_STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAMED = re.compile(r"sha256:[0-9a-f]{64}")
_SIZES = re.compile(r"[1-9][0-9]{0,6}(?:,[1-9][0-9]{0,6}){0,31}")


class AttestationError(SkillhouseError):
    """A bundle is none, is about another file, or cannot be believed; `code` says which.

    One of: size, bundle, subject, and when it is verified root, issuer, identity or extra.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Attestation(Struct, frozen=True, kw_only=True):
    """What a bundle says, by whomever."""

    payload: bytes
    """The in-toto statement, as it was signed."""
    signature: bytes
    predicate_type: str
    subjects: tuple[str, ...]
    """SHA-256 of the files that it is about, 64 hex digits each."""
    certificate: bytes
    """Of the signer, in DER."""
    timestamps: tuple[bytes, ...]
    """RFC 3161 responses over the signature."""
    is_logged: bool
    """Whether it has an entry of a transparency log."""


def read_attestation(data: bytes, archive: str) -> Attestation:
    """Return what a bundle says of an archive.

    Args:
        archive: `sha256:` digest of the archive, which the statement must name.

    Raises:
        AttestationError: "size", it is too large; "bundle", it is no Sigstore bundle with an
            in-toto statement; "subject", it is about another file, or too many.
    """
    if len(data) > ATTESTATION_MAX:
        raise AttestationError("size", f"expected a bundle of at most {ATTESTATION_MAX} bytes")
    try:
        found = _attestation(json_value(data))
    except (DecodeError, LookupError, AttributeError, TypeError, ValueError) as error:
        message = f"expected a Sigstore bundle with an in-toto statement: {str(error)[:120]}"
        raise AttestationError("bundle", message) from error
    if len(found.subjects) > SUBJECTS_MAX:
        message = f"expected a statement about at most {SUBJECTS_MAX} files"
        raise AttestationError("subject", f"{message}, got one about {len(found.subjects)}")
    if archive.removeprefix("sha256:") not in found.subjects:
        listed = ", ".join(f"sha256:{one}" for one in found.subjects[:3]) or "none with a SHA-256"
        raise AttestationError("subject", f"is about {listed}, and the archive is {archive}")
    return found


def _attestation(value: Any) -> Attestation:
    if not str(value["mediaType"]).startswith(_MEDIA_TYPE):
        raise ValueError(f"expected the media type {_MEDIA_TYPE}…")
    material, envelope = value["verificationMaterial"], value["dsseEnvelope"]
    if envelope["payloadType"] != _PAYLOAD_TYPE:
        raise ValueError(f"expected the payload type {_PAYLOAD_TYPE}")
    (signature,) = envelope["signatures"]
    payload = _bytes(envelope["payload"])
    statement = json_value(payload)
    if statement["_type"] != _STATEMENT_TYPE:
        raise ValueError(f"expected a statement {_STATEMENT_TYPE}")
    found = [one["digest"].get("sha256", "") for one in _list(statement["subject"])]
    if not all(isinstance(one, str) and _SHA256.fullmatch(one) for one in found if one):
        raise ValueError("expected 64 hex digits as a digest")
    chain = material.get("x509CertificateChain", {}).get("certificates", [])
    leaf = material["certificate"] if "certificate" in material else _list(chain)[0]
    stamps = material.get("timestampVerificationData") or {}
    return Attestation(
        payload=payload,
        signature=_bytes(signature["sig"]),
        predicate_type=_text(statement["predicateType"]),
        # An empty one is a file that has other digests only.
        subjects=tuple(found),
        certificate=_bytes(leaf["rawBytes"]),
        timestamps=tuple(
            _bytes(one["signedTimestamp"]) for one in _list(stamps.get("rfc3161Timestamps", []))
        ),
        is_logged=bool(_list(material.get("tlogEntries", []))),
    )


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("expected a list")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 300 or not value.isprintable():
        raise ValueError("expected a short text")
    return value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueError("expected a text in base64")
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise ValueError("expected a text in base64") from error


def attestation_path(digest: str) -> str:
    """Return where a bundle is below a repository's address.

    >>> attestation_path("sha256:ab12")
    'attestations/sha256/ab/ab12'
    """
    name = digest.removeprefix("sha256:")
    return f"{ATTESTATIONS}/sha256/{name[:2]}/{name}"


def check_listed(digests: Sequence[str]) -> None:
    """Refuse, with DecodeError, what a document may not list as the bundles of a version."""
    if len(digests) > ATTESTATIONS_MAX or not all(map(_NAMED.fullmatch, digests)):
        raise DecodeError(f"expected at most {ATTESTATIONS_MAX} attestations, each sha256:…")


def check_attestation(data: bytes, expected: str) -> None:
    """Refuse other bytes than those that a document names; AttestationError `bundle`."""
    if digest_of(data) != expected:
        raise AttestationError("bundle", f"expected {expected}, got {digest_of(data)}")


def sizes_of(text: str) -> tuple[int, ...]:
    """Return the bytes of the bundles that follow an archive, as `attestations` of a request has.

    >>> sizes_of("11346,9000"), sizes_of("")
    ((11346, 9000), ())

    Raises:
        AttestationError: "size", they are too many or too large; "bundle", it is no list of sizes.
    """
    if not text:
        return ()
    if not _SIZES.fullmatch(text):
        raise AttestationError("bundle", "expected sizes such as `attestations=11346,9000`")
    found = tuple(map(int, text.split(",")))
    if len(found) > ATTESTATIONS_MAX or max(found) > ATTESTATION_MAX:
        message = f"expected at most {ATTESTATIONS_MAX} bundles of {ATTESTATION_MAX} bytes each"
        raise AttestationError("size", message)
    return found


def split_upload(data: bytes, sizes: Sequence[int]) -> tuple[bytes, tuple[bytes, ...]]:
    """Return the archive and the bundles that follow it.

    >>> split_upload(b"zip{}[]", (2, 2))
    (b'zip', (b'{}', b'[]'))

    Raises:
        AttestationError: "size", the bytes are fewer than the sizes say.
    """
    end = len(data) - sum(sizes)
    if end < 0:
        raise AttestationError("size", "the body is shorter than its `attestations` say")
    archive, bundles = data[:end], []
    for size in sizes:
        bundles.append(data[end : end + size])
        end += size
    return archive, tuple(bundles)
