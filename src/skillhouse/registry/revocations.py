"""Lists of what a registry takes back: certificates, files, releases; signed by its issuers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec import Struct

from skillhouse.floor import DecodeError, shaped
from skillhouse.floor.structs import field_names, replace
from skillhouse.registry.certificates import (
    CertificateChain,
    Role,
    check_role,
    check_root,
    check_time,
    curve_hash,
    elliptic_key,
    fingerprint,
    is_issued_by,
    parse_chain,
)
from skillhouse.registry.signature_bundle import (
    SignatureBundle,
    SignedStatement,
    check_signature,
    read_bundle,
    sign_payload,
    strict_json,
    write_bundle,
)
from skillhouse.registry.trust import PublisherError

LIST_TYPE = "application/vnd.skillhouse.revocations+json"
LIST_VERSION = 1
ENTRIES_MAX = 10_000
REVOCATION_DAYS = 30
"""Days after which a list is too old to rely on (reference/registry.md, L1)."""
WARN_AFTER = timedelta(days=7)
"""After which a newer list should be there (likewise)."""
CLOCK_SKEW = timedelta(minutes=10)
"""How far a signer's clock may be ahead of ours."""
_TIME = "%Y-%m-%dT%H:%M:%SZ"


class Revocation(Struct, frozen=True, kw_only=True):
    """One thing that is taken back; exactly one of its first three fields is set."""

    certificate: str = ""
    """SHA-256 of a certificate."""
    tree_digest: str = ""
    """Of the files of a skill."""
    release: str = ""
    """NAME@VERSION."""
    serial: str = ""
    """Of a certificate that the list's own issuer issued, in hex, for lists in other formats."""
    invalid_from: str = ""
    """Signatures with a confirmed time before it stay valid; empty for none."""
    reason: str = ""

    @property
    def what(self) -> str:
        return self.certificate or self.tree_digest or self.release


class RevocationList(Struct, frozen=True, kw_only=True):
    """Everything that one issuer takes back."""

    number: int
    """Larger in each newer list."""
    issued_at: str
    expires_at: str
    entries: tuple[Revocation, ...] = ()

    def moment(self, text: str) -> datetime:
        return datetime.strptime(text, _TIME).replace(tzinfo=UTC)


class IssuedList(Struct, frozen=True, kw_only=True):
    """A revocation list whose signature was checked."""

    content: RevocationList
    issuer: str
    """SHA-256 of the certificate that signed it."""
    root: str
    """SHA-256 of the root certificate above it."""
    data: bytes
    """Its file."""


def time_text(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):{_TIME}}"


def next_list(
    before: RevocationList | None,
    added: Iterable[Revocation],
    now: datetime,
    *,
    days: int = REVOCATION_DAYS,
) -> RevocationList:
    """Return a newer list with more entries; PublisherError `revocation` where one is no entry."""
    entries = {} if before is None else {one.what: one for one in before.entries}
    for one in added:
        _check(one)
        entries[one.what] = one
    if len(entries) > ENTRIES_MAX:
        raise PublisherError("revocation", f"expected at most {ENTRIES_MAX} entries")
    return RevocationList(
        number=1 if before is None else before.number + 1,
        issued_at=time_text(now),
        expires_at=time_text(now + timedelta(days=days)),
        entries=tuple(entries[what] for what in sorted(entries)),
    )


def sign_list(
    content: RevocationList,
    *,
    key: ec.EllipticCurvePrivateKey,
    issuer: Sequence[x509.Certificate],
) -> bytes:
    """Return a list as its file, signed by a root, or by an intermediate with what is above it."""
    value = {
        "version": LIST_VERSION,
        "number": content.number,
        "issued_at": content.issued_at,
        "expires_at": content.expires_at,
        "entries": [
            {name: text for name in field_names(Revocation) if (text := getattr(one, name))}
            for one in content.entries
        ],
    }
    payload = json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
    certificates = [one.public_bytes(Encoding.DER) for one in issuer]
    return write_bundle(sign_payload(payload, LIST_TYPE, key=key, certificates=certificates))


def read_list(data: bytes, roots: Sequence[x509.Certificate], now: datetime) -> IssuedList:
    """Return a list that an issuer below one of `roots`, or one of them, signed.

    Whether it is still fresh is judged with each use.

    Raises:
        PublisherError: `revocation`, or the step at which its signature fails.
    """
    bundle = read_bundle(data, LIST_TYPE)
    if bundle.timestamps:
        raise PublisherError("revocation", "a list has no timestamp")
    own, *above = parse_chain(bundle.certificates)
    root = next((one for one in roots if one == own or is_issued_by(own, one)), None)
    if root is None or above:
        raise PublisherError("chain", "no trusted root vouches for the issuer of the list")
    check_root(root)
    check_role(own, Role.ROOT if own == root else Role.INTERMEDIATE)
    check_signature(bundle, elliptic_key(own))
    content = _read_content(bundle)
    issued_at = content.moment(content.issued_at)
    if issued_at > now + CLOCK_SKEW:
        raise PublisherError("revocation", "the list is of a time to come: check the clock")
    # At the time of the list: one of a root that ended must not stop what others vouch for.
    for certificate, role in ((root, Role.ROOT), (own, Role.INTERMEDIATE)):
        check_time(certificate, role, issued_at)
    return IssuedList(content=content, issuer=fingerprint(own), root=fingerprint(root), data=data)


def list_number(data: bytes) -> int:
    """Return the number that a list says it has, whoever signed it: for those who only copy it.

    Raises:
        PublisherError: it is no list.
    """
    return _read_content(read_bundle(data, LIST_TYPE)).number


def _read_content(bundle: SignatureBundle) -> RevocationList:
    try:
        return _content(strict_json(bundle.payload, "revocation"))
    except (DecodeError, ValueError, TypeError, KeyError) as error:
        raise PublisherError("revocation", f"is no list: {str(error)[:120]}") from error


def _content(value: Any) -> RevocationList:
    if value["version"] != LIST_VERSION:
        raise ValueError(f"expected version {LIST_VERSION}, got {str(value['version'])[:20]}")
    content = shaped(value, RevocationList)
    known = set(field_names(Revocation))
    if any(set(entry) - known for entry in value["entries"]):
        # An entry that we do not understand may be the one that matters.
        raise ValueError("an entry has an unknown key: use a newer skillhouse")
    if content.number < 1 or len(content.entries) > ENTRIES_MAX:
        raise ValueError("expected a number from 1, and no more entries than that")
    for moment in (content.issued_at, content.expires_at):
        content.moment(moment)
    for one in content.entries:
        _check(one)
    return content


def _check(entry: Revocation) -> None:
    subjects = [entry.certificate, entry.tree_digest, entry.release]
    if sum(map(bool, subjects)) != 1:
        raise PublisherError("revocation", "expected one certificate, digest or release an entry")
    if entry.invalid_from:
        datetime.strptime(entry.invalid_from, _TIME).replace(tzinfo=UTC)


def refuse_older(known: Iterable[IssuedList], given: IssuedList) -> None:
    """Refuse, with `revocation`, a list where there is a newer one of its issuer already."""
    for one in known:
        if one.issuer != given.issuer:
            continue
        if one.content.number > given.content.number:
            message = (
                f"expected a list from number {one.content.number}, got {given.content.number}: "
                "it is older than the one that is here"
            )
            raise PublisherError("revocation", message)
        if one.content.number == given.content.number and one.content != given.content:
            raise PublisherError("revocation", "two lists of one number differ")


class ListWarnings(Struct, frozen=True, kw_only=True):
    """What a person should know of the lists by which a signature was judged."""

    missing: tuple[str, ...] = ()
    old: tuple[str, ...] = ()
    """Of lists that ended, or that should have a newer one."""


def check_revocations(
    lists: Iterable[IssuedList],
    chain: CertificateChain,
    statement: SignedStatement,
    *,
    confirmed: datetime | None,
    now: datetime,
    verified: datetime | None = None,
) -> ListWarnings:
    """Refuse, with `revocation`, what was taken back; return warnings about the lists.

    Args:
        confirmed: When the signature existed, as an authority confirms it; None if none does.
        verified: When this machine verified these very files, which an ended list leaves good. It
            is no time before a revocation: what is revoked is refused, whenever it was verified.
    """
    above = chain.fingerprints[1:]
    applicable = [one for one in lists if one.issuer in above]
    # INVARIANT: the entries of an ended list bind too, so they come before its end.
    for one in applicable:
        for entry in one.content.entries:
            if _is_meant(entry, chain, statement) and not _is_before(entry, confirmed, one.content):
                why = f" ({entry.reason[:120]})" if entry.reason else ""
                kind = "certificate" if entry.certificate else "release"
                raise PublisherError("revocation", f"the {kind} was revoked{why}")
    old = [text for one in applicable for text in _freshness(one.content, now, verified)]
    if not any(one.issuer == above[-1] for one in applicable):
        return ListWarnings(
            missing=("the registry has no revocation list here, so none was asked",)
        )
    return ListWarnings(old=tuple(old))


def _freshness(content: RevocationList, now: datetime, verified: datetime | None) -> list[str]:
    expires = content.moment(content.expires_at)
    if now > expires:
        message = f"the list ended on {expires:%Y-%m-%d}: get a newer one from the registry"
        if verified is None:
            raise PublisherError("revocation", message)
        return [f"the revocations are not known any more, {message}"]
    issued = content.moment(content.issued_at)
    if now - issued > WARN_AFTER:
        return [f"the revocation list is of {issued:%Y-%m-%d}: get a newer one"]
    return []


def _is_meant(entry: Revocation, chain: CertificateChain, statement: SignedStatement) -> bool:
    identity = statement.identity
    return (
        entry.certificate in chain.fingerprints[:-1]
        or entry.tree_digest == statement.tree.digest
        or entry.release == f"{identity.name}@{identity.version}"
    )


def _is_before(entry: Revocation, confirmed: datetime | None, content: RevocationList) -> bool:
    """Return whether a signature is of a time when all was well yet, confirmed by an authority."""
    if not entry.invalid_from or confirmed is None or not entry.certificate:
        return False
    return confirmed < content.moment(entry.invalid_from)


def crl_of(
    content: RevocationList,
    *,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate,
) -> bytes:
    """Return the certificates of a list as an X.509 CRL in PEM, for other tools (RFC 5280)."""
    builder = x509.CertificateRevocationListBuilder(
        issuer_name=issuer.subject,
        last_update=content.moment(content.issued_at),
        next_update=content.moment(content.expires_at),
    ).add_extension(x509.CRLNumber(content.number), critical=False)
    for one in content.entries:
        if not one.certificate or not one.serial:
            continue
        moment = content.moment(one.invalid_from or content.issued_at)
        revoked = x509.RevokedCertificateBuilder(
            serial_number=int(one.serial, 16), revocation_date=moment
        )
        builder = builder.add_revoked_certificate(revoked.build())
    crl = builder.sign(key, curve_hash(key.curve))
    return crl.public_bytes(Encoding.PEM)


def revoked_certificate(
    certificate: x509.Certificate,
    issuer: x509.Certificate,
    *,
    reason: str = "",
    since: datetime | None = None,
) -> Revocation:
    """Return the entry of a certificate for the list of `issuer`, or of one below it."""
    # A CRL names certificates by their serial, which is its own issuer's.
    is_own = is_issued_by(certificate, issuer)
    entry = Revocation(
        certificate=fingerprint(certificate),
        serial=f"{certificate.serial_number:x}" if is_own else "",
        reason=reason,
    )
    return entry if since is None else replace(entry, invalid_from=time_text(since))
