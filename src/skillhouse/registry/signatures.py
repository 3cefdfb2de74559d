"""Signs the files of a skill, and checks such a signature step by step.

When it was made, a timestamp authority confirms (RFC 3161).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec import Struct
from rfc3161_client import (
    HashAlgorithm,
    TimestampRequestBuilder,
    TimeStampResponse,
    VerificationError,
    VerifierBuilder,
    decode_timestamp_response,
)

from skillhouse.floor import Tree
from skillhouse.registry.certificates import (
    CHAIN_MAX,
    CertificateChain,
    check_chain,
    elliptic_key,
    fingerprint,
    parse_chain,
)
from skillhouse.registry.facts import compare_trees
from skillhouse.registry.revocations import CLOCK_SKEW, IssuedList, check_revocations, time_text
from skillhouse.registry.signature_bundle import (
    PAYLOAD_TYPE,
    SignatureBundle,
    SignedStatement,
    check_signature,
    read_bundle,
    read_statement,
    sign_payload,
    write_statement,
)
from skillhouse.registry.trust import Publisher, PublisherError, SkillIdentity

TIMESTAMP_MAX = 32 * 1_024
"""Bytes of a response: with its certificates one has about 5 KiB."""
ENDS_SOON = timedelta(days=30)
"""How long before the end of a certificate people are warned, as `keys list` does."""
STEPS = (
    "size bundle timestamp certificate chain validity algorithm purpose signature statement "
    "identity files revocation"
).split()
"""The steps of verification, in their order; a refusal names one of them."""


def timestamp_request(signature: bytes) -> bytes:
    """Return a request for a timestamp over a signature (RFC 3161, section 2.4.1)."""
    builder = TimestampRequestBuilder().data(signature).hash_algorithm(HashAlgorithm.SHA256)
    return builder.cert_request(cert_request=True).build().as_bytes()


class ConfirmedTime(Struct, frozen=True, kw_only=True):
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


class TrustAnchors(Struct, frozen=True, kw_only=True):
    """What signatures are checked against on this machine."""

    roots: tuple[x509.Certificate, ...] = ()
    timestamp_roots: tuple[x509.Certificate, ...] = ()
    revocations: tuple[IssuedList, ...] = ()


def sign_tree(
    tree: Tree,
    identity: SkillIdentity,
    *,
    key: ec.EllipticCurvePrivateKey,
    chain: Sequence[x509.Certificate],
    now: datetime,
) -> SignatureBundle:
    """Return a signature over the files of a skill.

    Args:
        chain: The developer's certificate, and the intermediate that issued it, if any.

    Raises:
        PublisherError: the certificate does not belong to the key, or is not for signing skills.
    """
    if chain[0].public_key() != key.public_key():
        raise PublisherError("certificate", "does not belong to the key")
    if len(chain) > CHAIN_MAX:
        raise PublisherError("certificate", f"expected at most {CHAIN_MAX} without the root")
    payload = write_statement(SignedStatement(identity=identity, tree=tree, signed_at=now))
    certificates = [one.public_bytes(Encoding.DER) for one in chain]
    return sign_payload(payload, PAYLOAD_TYPE, key=key, certificates=certificates)


def verify_signature(
    tree: Tree,
    signature: bytes,
    expected: SkillIdentity,
    *,
    anchors: TrustAnchors,
    now: datetime,
    verified: datetime | None = None,
) -> Publisher:
    """Return who signed the files of a skill, after every step of verification.

    Args:
        tree: The files as they are on the disk.
        signature: The content of `skill.sig`.
        expected: What is being installed or checked; an empty version or repository is not
            compared.
        verified: When this machine verified this tree and signature before, by its own state:
            a certificate or a list that ended since is a warning.

    Raises:
        PublisherError: `step` is the one that refuses (`STEPS`).
    """
    bundle = read_bundle(signature, PAYLOAD_TYPE)
    confirmed = confirmed_time(bundle.timestamps, bundle.signature, anchors.timestamp_roots)
    chain, ended = _chain(bundle, anchors, confirmed, now, verified)
    check_signature(bundle, elliptic_key(chain.leaf))
    # INVARIANT: nothing of the payload is read before its signature was checked.
    statement = read_statement(bundle.payload)
    _check_identity(statement, expected, chain, now)
    _check_files(statement, tree)
    lists = check_revocations(
        anchors.revocations,
        chain,
        statement,
        confirmed=confirmed.moment,
        now=now,
        verified=verified,
    )
    if not ended and confirmed.moment is None:
        ended = _soon(chain, now)
    ending = (*ended, *lists.old)
    return Publisher(
        handle=chain.name.handle,
        certificate=fingerprint(chain.leaf),
        signed_at=time_text(confirmed.moment or statement.signed_at),
        registry=chain.name.registry,
        is_time_trusted=confirmed.moment is not None,
        signature_sha256=hashlib.sha256(signature).hexdigest(),
        warnings=(*confirmed.problems, *lists.missing, *ending),
        ending=ending,
    )


def _chain(
    bundle: SignatureBundle,
    anchors: TrustAnchors,
    confirmed: ConfirmedTime,
    now: datetime,
    verified: datetime | None,
) -> tuple[CertificateChain, tuple[str, ...]]:
    """Return the chain, and what is to be said of one that has ended since `verified`."""
    if confirmed.moment is not None and confirmed.moment > now + CLOCK_SKEW:
        raise PublisherError("timestamp", "confirms a time to come: check the clock")
    given = parse_chain(bundle.certificates)
    try:
        return check_chain(given, anchors.roots, moment=confirmed.moment or now), ()
    except PublisherError as error:
        if error.step != "validity":
            raise
        reason = str(error).removeprefix("validity: ")
        # One that is not valid yet was not verified before it was: the clock was set back.
        if verified is not None and verified <= now:
            chain = check_chain(given, anchors.roots, moment=verified)
            day = f"{verified:%Y-%m-%d}"
            said = f"{reason} ({chain.name.handle}); this machine verified these files on {day}"
            return chain, (said,)
        if not confirmed.problems:
            raise
        raise PublisherError("validity", f"{reason} ({confirmed.problems[0]})") from error


def _soon(chain: CertificateChain, now: datetime) -> tuple[str, ...]:
    """Return a warning where a certificate ends before long, and with it what it signed."""
    end = min(one.not_valid_after_utc for one in chain.certificates)
    if end - now > ENDS_SOON:
        return ()
    said = f"the certificate of {chain.name.handle} ends on {end:%Y-%m-%d}"
    return (f"{said}, and no timestamp keeps what it signed",)


def _check_identity(
    statement: SignedStatement, expected: SkillIdentity, chain: CertificateChain, now: datetime
) -> None:
    """Refuse, with `identity`, a signature of another skill, version or repository."""
    identity = statement.identity
    for what, wanted, found in (
        ("skill", expected.name, identity.name),
        ("version", expected.version, identity.version),
        ("repository", expected.repository, identity.repository),
    ):
        if wanted and wanted != found:
            message = f"expected the {what} `{wanted}`, it signs `{found[:120]}`"
            raise PublisherError("identity", message)
    if identity.repository != chain.name.registry:
        message = f"signs for `{identity.repository[:120]}`, the key is of `{chain.name.registry}`"
        raise PublisherError("identity", message)
    if statement.signed_at > now + CLOCK_SKEW:
        message = f"was made at {time_text(statement.signed_at)}, which is to come: check the clock"
        raise PublisherError("identity", message)


def _check_files(statement: SignedStatement, tree: Tree) -> None:
    """Refuse, with `files`, other files than those signed, in either direction."""
    if changes := compare_trees(statement.tree, tree):
        parts = {
            "changed": changes.changed,
            "not signed": changes.added,
            "missing": changes.removed,
            "with another mode": changes.modes,
        }
        named = "; ".join(
            f"{word}: {', '.join(paths[:3])}{' …' if len(paths) > 3 else ''}"
            for word, paths in parts.items()
            if paths
        )
        raise PublisherError("files", named)
    if statement.tree != tree:
        raise PublisherError("files", "the sizes of files differ")
