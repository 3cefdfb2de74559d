"""Skills before they are installed and afterwards, and where they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import UNSET, UnsetType, field

from skillhouse import registry
from skillhouse.answers.json_form import Count, JsonAnswer, copied
from skillhouse.floor import isolated, structs
from skillhouse.retrieval import reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cryptography.x509 import Certificate

    from skillhouse.house import InstalledState
    from skillhouse.install import Installer
    from skillhouse.install.repository_search import ListedHit
    from skillhouse.registry import (
        BuildOrigin,
        Candidate,
        InstallPlace,
        LockEntry,
        Release,
        TrustAnchors,
    )


_TIME = "%Y-%m-%dT%H:%M:%SZ"


class BuildAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Where a package was built, as a verified attestation says."""

    issuer: str
    repository: str
    workflow: str
    repository_id: str
    commit: str
    ref: str


def build_answer(found: BuildOrigin) -> BuildAnswer:
    return copied(BuildAnswer, found)


class InstalledAnswer(JsonAnswer, frozen=True, kw_only=True):
    """An entry of the lock."""

    name: str
    scope: str
    version: str | None
    repository: str
    resolved: str
    inside: str
    requested: str
    digest: str
    tree_digest: str
    size: Count
    publisher: str | None
    build: BuildAnswer | None
    """Where it was built, as an attestation said that was verified when it was installed."""
    pinned: bool
    pin_reason: str
    dated: str
    commit: str
    rollback: bool


class InstalledStateAnswer(JsonAnswer, frozen=True, kw_only=True):
    """How an installed skill is now."""

    flat_members = ("installed",)
    installed: InstalledAnswer
    path: str
    state: str
    problem: str
    note: str
    found: str
    left: tuple[str, ...]
    changes: tuple[str, ...]


class NewerAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What the source of an installed skill has now."""

    newest: str
    newest_version: str | None
    newest_dated: str
    newest_label: str
    newest_commit: str
    changed_files: Count | None
    """How many files differ; None where those that were installed are not kept."""
    rewritten: str
    unexpected: str
    """How it was not built as the installed version was; empty where it was."""
    outdated: bool
    moved_to: str
    signed_again: bool
    held: str
    waiting: str
    """A newer version than this one that is held back, and until when; empty for none."""


class NewestAnswer(JsonAnswer, frozen=True, kw_only=True):
    """An installed skill with what its source has now, or why that is not known."""

    flat_members = ("installed", "now")
    installed: InstalledAnswer
    state: str
    problem: str
    label: str
    now: NewerAnswer | UnsetType = UNSET
    error: str | UnsetType = UNSET


class VerifiedAnswer(JsonAnswer, frozen=True, kw_only=True):
    """How an installed skill is, and why its repository could not be asked."""

    flat_members = ("state",)
    state: InstalledStateAnswer
    is_well: bool
    error: str | UnsetType = UNSET


class ConfiguredRepositoryAnswer(JsonAnswer, frozen=True, kw_only=True):
    name: str
    url: str
    trusted: bool
    require_signature: bool


class RepositoriesAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What is said of several repositories besides what they list."""

    weak: bool
    problems: list[str] | UnsetType = UNSET


class PackageVersionsAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A package with its versions, newest first."""

    list_of: Literal["versions"] = field(name="list", default="versions")
    total: Count
    name: str
    repository: str
    trusted: bool
    description: str
    license: str
    latest: str
    channels: dict[str, str]
    versions: list[ReleaseAnswer]


class RemovedPackageAnswer(JsonAnswer, frozen=True, kw_only=True):
    name: str
    scope: str
    path: str


class PackageAnswer(JsonAnswer, frozen=True, kw_only=True):
    name: str
    repository: str
    version: str
    description: str
    license: str
    publisher: str | None
    reason: str
    matches: dict[str, tuple[str, ...]]


class ReleaseAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A version as its repository describes it; the signature is its word, unchecked."""

    version: str
    state: str
    reason: str
    digest: str
    tree_digest: str
    size: Count
    files: Count
    published_at: str
    publisher: str | None
    registry: str | None
    certificate: str | None


class CandidateAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A skill of a source that may be installed."""

    name: str
    description: str
    path: str
    fault: str
    installed_as: str
    lacking: tuple[str, ...]
    links: tuple[str, ...]
    inner: bool


class CertificateAnswer(JsonAnswer, frozen=True, kw_only=True):
    certificate: str
    serial: str
    names: str | None
    valid_from: str
    valid_until: str


class TimestampRootAnswer(JsonAnswer, frozen=True, kw_only=True):
    certificate: str
    subject: str


class RevocationListAnswer(JsonAnswer, frozen=True, kw_only=True):
    issuer: str
    number: Count
    issued_at: str
    expires_at: str
    entries: Count


class PinnedRootAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The root of a repository that `keys trust` pinned, by its digest."""

    repository: str
    root: str


class PublishersAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The roots that are trusted for skills and for timestamps, and the revocations."""

    roots: tuple[CertificateAnswer, ...]
    timestamps: tuple[TimestampRootAnswer, ...]
    revocations: tuple[RevocationListAnswer, ...]
    repositories: tuple[PinnedRootAnswer, ...] = ()


class RemoteAnswer(JsonAnswer, frozen=True, kw_only=True):
    url: str
    kind: str
    directory: str
    skills: tuple[str, ...]
    synced_at: str | None
    read: bool


class SyncReportAnswer(JsonAnswer, frozen=True, kw_only=True):
    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]
    repaired: tuple[str, ...]
    problems: tuple[str, ...]


class SyncedAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What came of asking a remote."""

    flat_members = ("report",)
    url: str
    kind: str
    report: SyncReportAnswer | UnsetType = UNSET
    error: str | UnsetType = UNSET


class PublishedBundleAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A bundle of skills that was published."""

    source: str
    name: str
    number: Count
    digest: str
    publisher: str
    skills: tuple[str, ...]
    files: tuple[str, ...]
    """What it has besides: `config.toml`, `policy.yml`."""
    bytes: Count
    """Of the archive; after `--dry-run` of its files."""
    dry_run: bool = False
    """Whether nothing was published, so that there is no digest."""


class BundleAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The bundle of skills that is used here, and how the last look for one went."""

    source: str
    number: Count
    """0 where none was ever taken."""
    digest: str
    publisher: str
    signed_at: str
    taken_at: str
    asked_at: str
    skills: tuple[str, ...]
    files: tuple[str, ...]
    """What it has besides: `config.toml`, `policy.yml`."""
    rules: Literal["stricter", "defaults", "none"]
    """What its rules may do here."""
    problem: str
    failures: Count
    status: Literal["taken", "unchanged", "refused"] | UnsetType = UNSET
    """Of the look that was just made."""
    dry_run: bool | UnsetType = UNSET
    """Whether that look wrote nothing."""


class McpServerAnswer(JsonAnswer, frozen=True, kw_only=True):
    label: str
    where: str | None
    skills: tuple[str, ...]
    asked_at: str | None


class UnaskedServerAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Why an MCP server could not be asked; what came of one that was is `McpReport`."""

    label: str
    error: str


class ForgottenServerAnswer(JsonAnswer, frozen=True, kw_only=True):
    label: str
    skills: Count


def installed_answer(name: str, scope: str, entry: LockEntry) -> InstalledAnswer:
    signature = entry.signature
    return copied(
        InstalledAnswer,
        entry,
        name=name,
        scope=scope,
        publisher=None if signature is None else signature.publisher,
        build=None if entry.build is None else build_answer(entry.build),
        rollback=entry.previous is not None,
    )


def installed_state(state: InstalledState) -> InstalledStateAnswer:
    return InstalledStateAnswer(
        installed=installed_answer(state.name, state.place.scope, state.entry),
        path=str(state.place.target(state.name)),
        state=state.state,
        problem=state.problem,
        note=state.note,
        found=state.digest,
        left=tuple(state.left),
        changes=tuple(state.difference),
    )


def absence(state: InstalledState) -> str:
    """Return why a skill is not up to date although its source has nothing newer; else empty."""
    skill = f"{state.place.scope}:{state.name}"
    if state.state == "missing":
        return (
            f"{state.problem} any more: `skillhouse verify {skill} --restore` puts it back, "
            f"`skillhouse uninstall {skill}` takes it out of the lock"
        )
    if state.state in ("unreadable", "refused"):
        return f"{state.problem}: `skillhouse verify {skill}` shows more"
    return ""


def newest_answer(
    installer: Installer, name: str, entry: LockEntry, place: InstallPlace
) -> NewestAnswer:
    """Return an entry of the lock with what its source has now, or why that is not known."""
    state = installer.installed.state(name, entry, place)
    found = NewestAnswer(
        installed=installed_answer(name, place.scope, entry),
        state=state.state,
        problem=absence(state),
        label=entry.label,
    )
    with isolated() as failed, installer.newest(name, entry, place) as staged:
        report = staged.report
        after = report.entry
        # Two of one version are shown with what makes them differ, where it is their files.
        is_named = entry.version != after.version or entry.tree_digest == after.tree_digest
        now = NewerAnswer(
            newest=after.tree_digest,
            newest_version=after.version,
            newest_dated=after.dated,
            newest_label=after.label if is_named else after.exact,
            newest_commit=after.commit,
            changed_files=None if report.changes is None else report.changes.count,
            rewritten=report.rewritten,
            unexpected=report.unexpected,
            outdated=not report.is_same or bool(report.moved_from),
            moved_to=report.inside if report.moved_from else "",
            signed_again=report.is_signed_again,
            held=report.held,
            waiting=report.waiting,
        )
        label = entry.label if is_named else entry.exact
        found = structs.replace(found, now=now, label=label)
    for error in failed:
        found = structs.replace(found, error=str(error))
    return found


def package_answer(one: ListedHit) -> PackageAnswer:
    """Return a line of a repository's list, its word; only why it fits is judged here."""
    settings, skill, hit = one
    return PackageAnswer(
        name=skill.typed,
        repository=settings.name,
        version=skill.latest,
        description=skill.description,
        license=skill.license,
        publisher=skill.publisher or None,
        reason="" if hit is None else reason(hit),
        matches={} if hit is None else {key: tuple(words) for key, words in hit.matches.items()},
    )


def release_answer(release: Release) -> ReleaseAnswer:
    signature = release.signature
    return copied(
        ReleaseAnswer,
        release,
        publisher=None if signature is None else signature.publisher,
        registry=None if signature is None else signature.registry,
        certificate=None if signature is None else signature.cert_sha256,
    )


def candidate_answer(one: Candidate) -> CandidateAnswer:
    return CandidateAnswer(
        name=one.name or one.folder,
        description=one.description,
        path=one.path,
        fault=one.fault,
        installed_as=one.installed_as,
        lacking=tuple(one.lacking),
        links=tuple(one.links),
        inner=one.is_inner,
    )


def certificate_answer(certificate: Certificate) -> CertificateAnswer:
    return CertificateAnswer(
        certificate=registry.fingerprint(certificate),
        serial=f"{certificate.serial_number:x}",
        names=registry.named_uri(certificate),
        valid_from=f"{certificate.not_valid_before_utc:{_TIME}}",
        valid_until=f"{certificate.not_valid_after_utc:{_TIME}}",
    )


def publishers_answer(found: TrustAnchors, pinned: Mapping[str, str]) -> PublishersAnswer:
    """Return what is trusted here.

    Args:
        pinned: The digest of each pinned root, by the repository's name.
    """
    return PublishersAnswer(
        roots=tuple(map(certificate_answer, found.roots)),
        timestamps=tuple(
            TimestampRootAnswer(
                certificate=registry.fingerprint(one), subject=one.subject.rfc4514_string()
            )
            for one in found.timestamp_roots
        ),
        revocations=tuple(
            RevocationListAnswer(
                issuer=one.issuer,
                number=one.content.number,
                issued_at=one.content.issued_at,
                expires_at=one.content.expires_at,
                entries=len(one.content.entries),
            )
            for one in found.revocations
        ),
        repositories=tuple(
            PinnedRootAnswer(repository=name, root=root) for name, root in pinned.items()
        ),
    )
