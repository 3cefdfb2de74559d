"""Follows a developer's certificate to a root certificate of ours, or says where that fails."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from datetime import datetime

from cryptography import x509
from cryptography.x509 import verification

from skillhouse.floor import dataclass
from skillhouse.registry.certificates import (
    PublisherName,
    Role,
    check_role,
    check_time,
    fingerprint,
    is_for_skills,
    is_issued_by,
    load_certificate,
)
from skillhouse.registry.trust import PublisherError

CHAIN_MAX = 2
"""Certificates of a signature: the developer's, and at most one intermediate."""

_OTHER_KIND = (
    "; it is none for skills either, as `keys issue` makes them: signatures of other programs in "
    "the Model Signing format are not accepted"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateChain:
    """Certificates that lead to a root of ours, and whom the first one names."""

    certificates: tuple[x509.Certificate, ...]
    """The one that signs first, the root last."""
    name: PublisherName

    @property
    def leaf(self) -> x509.Certificate:
        return self.certificates[0]

    @property
    def fingerprints(self) -> tuple[str, ...]:
        return tuple(fingerprint(one) for one in self.certificates)


def parse_chain(chain: Sequence[bytes]) -> tuple[x509.Certificate, ...]:
    """Return certificates in DER as such; PublisherError `certificate` for too many or none."""
    if not 1 <= len(chain) <= CHAIN_MAX:
        message = f"expected 1 to {CHAIN_MAX} certificates without the root, got {len(chain)}"
        raise PublisherError("certificate", message)
    return tuple(load_certificate(one) for one in chain)


def check_chain(
    given: Sequence[x509.Certificate], roots: Iterable[x509.Certificate], *, moment: datetime
) -> CertificateChain:
    """Return the chain from a developer's certificate to one of `roots`.

    Args:
        given: The developer's certificate, and the intermediate that issued it, if any.
        roots: The only certificates that are trusted; never those of the web.
        moment: When all of them must be valid.

    Raises:
        PublisherError: `chain`, `validity`, `algorithm` or `purpose`.
    """
    root = _root_of(given, tuple(roots))
    chain = (*given, root)
    roles = (Role.DEVELOPER, *(Role.INTERMEDIATE for _ in given[1:]), Role.ROOT)
    for certificate, role in zip(reversed(chain), reversed(roles), strict=True):
        check_time(certificate, role, moment)
    registry = check_role(root, Role.ROOT).registry
    for certificate, role in zip(given[1:], roles[1:-1], strict=True):
        _check_registry(check_role(certificate, role), registry)
    name = check_role(given[0], Role.DEVELOPER)
    _check_registry(name, registry)
    _check_path(chain, moment)
    return CertificateChain(certificates=chain, name=name)


def _root_of(
    given: Sequence[x509.Certificate], roots: tuple[x509.Certificate, ...]
) -> x509.Certificate:
    """Return the root that is named as the issuer; whether it issued anything is not said yet."""
    other = "" if is_for_skills(given[0]) else _OTHER_KIND
    if not roots:
        message = "no root certificate is trusted here; see `keys trust`"
        raise PublisherError("chain", message + other)
    for lower, upper in itertools.pairwise(given):
        if lower.issuer != upper.subject:
            raise PublisherError("chain", "the intermediate did not issue the certificate")
    named = [root for root in roots if root.subject == given[-1].issuer]
    if len(named) > 1:
        # While a root is replaced, there are two of one name.
        named = [root for root in named if is_issued_by(given[-1], root)]
    if not named:
        issuer = given[-1].issuer.rfc4514_string()[:120]
        message = f"no trusted root issued the certificate: issuer {issuer!r}"
        raise PublisherError("chain", message + other)
    return named[0]


def _check_registry(name: PublisherName, registry: str) -> None:
    if name.registry != registry:
        message = f"the root is that of `{registry}`, the certificate is for `{name.registry}`"
        raise PublisherError("chain", message)


def _check_path(chain: Sequence[x509.Certificate], moment: datetime) -> None:
    """Validate the path (RFC 5280, section 6) with its signatures; what it knows, we may not."""
    agnostic = verification.Criticality.AGNOSTIC
    critical = verification.Criticality.CRITICAL
    leaf = (
        verification.ExtensionPolicy.webpki_defaults_ee()
        .require_present(x509.BasicConstraints, critical, None)
        .require_present(x509.KeyUsage, critical, None)
        # Which uses is for `check_role`: the default here is that of the web.
        .require_present(x509.ExtendedKeyUsage, agnostic, None)
        .require_present(x509.SubjectAlternativeName, agnostic, None)
    )
    issuer = (
        verification.ExtensionPolicy.webpki_defaults_ca()
        .require_present(x509.BasicConstraints, critical, None)
        .require_present(x509.KeyUsage, critical, None)
        .may_be_present(x509.ExtendedKeyUsage, agnostic, None)
    )
    verifier = (
        verification.PolicyBuilder()
        .store(verification.Store([chain[-1]]))
        .time(moment)
        .max_chain_depth(CHAIN_MAX)
        .extension_policies(ca_policy=issuer, ee_policy=leaf)
        .build_client_verifier()
    )
    try:
        verifier.verify(chain[0], list(chain[1:-1]))
    except verification.VerificationError as error:
        for lower, upper in itertools.pairwise(chain):
            if not is_issued_by(lower, upper):
                message = "a certificate was not signed by the issuer that it names"
                raise PublisherError("chain", message) from error
        reason = str(error).splitlines()[0][:200]
        raise PublisherError("purpose", f"the certificates are not accepted: {reason}") from error
