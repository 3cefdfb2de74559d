"""Keys of publishers, signed skills, and what was published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import UNSET, UnsetType, field

from skillhouse.answers.json_form import Count, JsonAnswer
from skillhouse.answers.packages import CertificateAnswer

if TYPE_CHECKING:
    from skillhouse.install.publisher import PreparedPackage
    from skillhouse.registry import Publisher


PublishStatus: TypeAlias = Literal["checked", "declined", "published", "unchanged"]


class PublisherKeyAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A key of a publisher; `warning` is what ends soon, and what to do."""

    name: str
    use: str = field(name="for")
    kind: Literal["p256", "p384"]
    lock: str
    registry: str
    certificates: list[CertificateAnswer]
    warning: str


class KeyChangeAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What was done with keys and certificates; each verb has some of the members."""

    flat_members = ("issued",)
    name: str | UnsetType = UNSET
    use: str | UnsetType = field(name="for", default=UNSET)
    copy: str | UnsetType = UNSET
    """An encrypted one of a key that was removed; empty for none."""
    file: str | UnsetType = UNSET
    publisher: str | UnsetType = UNSET
    crl: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    issued: CertificateAnswer | UnsetType = UNSET
    certificate: str | UnsetType = UNSET
    registry: str | UnsetType = UNSET
    repository: str | UnsetType = UNSET
    root: str | UnsetType = UNSET
    """The digest of the root that is pinned for that repository."""
    number: Count | UnsetType = UNSET
    entries: Count | UnsetType = UNSET
    removed: Count | UnsetType = UNSET


class SignedSkillAnswer(JsonAnswer, frozen=True, kw_only=True):
    name: str
    version: str
    publisher: str
    registry: str
    tree_digest: str
    file: str
    certificate_ends: str
    timestamped: bool
    """Whether an authority confirmed the time, so that it holds for longer than that."""


class VerifiedSkillAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Who signed the skill in a directory."""

    flat_members = ("publisher",)
    verified: Literal[True] = True
    name: str
    version: str
    tree_digest: str
    publisher: Publisher


class UnverifiedSkillAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The step that refused a signature, and why."""

    verified: Literal[False] = False
    step: str
    message: str


class PublishedAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A package that was published, or would be."""

    name: str
    version: str
    repository: str
    address: str
    digest: str
    tree_digest: str
    size: Count
    publisher: str | None
    files: list[str]
    warnings: list[str]
    status: PublishStatus


class ReleaseChangeAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What was said of a release in its repository, or of all by a list of revocations."""

    name: str | UnsetType = UNSET
    version: str | UnsetType = UNSET
    repository: str
    number: Count | UnsetType = UNSET
    channel: str | UnsetType = UNSET
    state: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET


def published_answer(package: PreparedPackage, status: PublishStatus) -> PublishedAnswer:
    return PublishedAnswer(
        name=package.typed,
        version=package.facts.version,
        repository=package.settings.name,
        address=f"{package.address}/{package.path}",
        digest=package.digest,
        tree_digest=package.tree.digest,
        size=len(package.archive),
        publisher=package.publisher or None,
        files=[one.path for one in package.tree.files],
        warnings=list(package.warnings),
        status=status,
    )
