"""What a person must agree to of a skill, and what is refused before it is in force."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from skillhouse.floor import SkillError, SkillhouseError, isolated
from skillhouse.house.installed_check import other_publisher
from skillhouse.install.install_report import InstallReport
from skillhouse.install.install_steps import InstallError, UnsignedError
from skillhouse.install.repositories import FoundSkill, RepositoryOffer
from skillhouse.registry import (
    GitRepository,
    LockEntry,
    Publisher,
    SkillFacts,
    SkillReleases,
    SourceError,
    is_older,
    split_name,
    typed_name,
)
from skillhouse.registry.lock import COMMIT_SHOWN
from skillhouse.registry.near_names import is_near
from skillhouse.registry.owners import refused_signer
from skillhouse.registry.releases import locked_place

UNSIGNED = "unsigned"
UNTRUSTED = "untrusted"
"""Its repository is not trusted."""
OBEYED = "obeyed"
"""It brings files that other programs act on."""
NEAR = "near"
"""Its name may be taken for that of another skill."""
REWRITTEN = "rewritten"
"""Its source has another history than it had, or the tag was moved."""
PROVENANCE = "provenance"
"""It was not built where earlier versions were, or nothing that is verified here says so."""
AGREEMENTS = (UNSIGNED, UNTRUSTED, OBEYED, NEAR, REWRITTEN, PROVENANCE)
"""What a person may have to agree to of a skill, by name, whatever is in its place."""


class UntrustedError(SkillhouseError):
    """A skill of a repository that is not trusted, or with files that other programs obey, was not
    installed: no person agreed to that."""


class HeldBackError(SkillhouseError):
    """An update is too new to be installed yet."""

    code = "held-back"

    def __init__(self, name: str, held: str) -> None:
        message = (
            f"`{name}` is held back: {held}; `skillhouse update {name} --ignore-age` does it now"
        )
        super().__init__(message)


class RewrittenError(SkillhouseError):
    """The commit that is installed is not in the past of its source any more, and no person agreed
    to that."""

    code = "rewritten"


class ProvenanceError(SkillhouseError):
    """A version was not built where earlier ones were, and no person agreed to that."""

    code = "provenance"


def agreements(report: InstallReport) -> tuple[str, ...]:
    """Return those of `AGREEMENTS` that a skill needs; `check_agreed` refuses it without."""
    return (
        *[UNSIGNED] * (report.publisher is None),
        *[UNTRUSTED] * report.is_untrusted,
        *[OBEYED] * report.is_obeyed,
        *[NEAR] * bool(report.near),
        *[REWRITTEN] * bool(report.rewritten),
        *[PROVENANCE] * bool(report.unexpected),
    )


def check_agreed(
    report: InstallReport, agreed: Collection[str], *, require_signature: bool
) -> None:
    """Refuse what no person agreed to: what `agreements` names and is not in `agreed`."""
    name, offer = report.name, report.offer
    if report.rewritten and REWRITTEN not in agreed:
        raise RewrittenError(f"`{name}`: {report.rewritten}: nothing was installed")
    if report.publisher is None:
        why = ""
        if require_signature:
            why = ", and `registry.require_signature` is set"
        elif offer is not None and offer.settings.require_signature:
            why = f", and `require_signature` is set for `{offer.settings.name}`"
        if why or UNSIGNED not in agreed:
            raise UnsignedError(f"`{name}` is unsigned{why}: nothing was installed")
    if report.is_untrusted and UNTRUSTED not in agreed:
        repository = "" if offer is None else offer.settings.name
        message = f"`{name}` is from `{repository}`, which is not trusted: nothing was installed"
        raise UntrustedError(message)
    if report.is_obeyed and OBEYED not in agreed:
        names = ", ".join(f"`{path}`" for path, _ in report.effects.obeyed[:5])
        message = f"`{name}` brings files that other programs obey ({names}): nothing was installed"
        raise UntrustedError(message)
    if report.unexpected and PROVENANCE not in agreed:
        raise ProvenanceError(f"{report.unexpected}: nothing was installed")
    if report.near and NEAR not in agreed:
        raise UntrustedError(f"{report.near}: nothing was installed")


def rewritten(before: LockEntry, after: LockEntry, git: GitRepository, *, ref: str | None) -> str:
    """Return what a repository did to the commit that is installed; empty where that is in its
    past.

    INVARIANT: what a lock claims decides only what is said; whether a commit is in the past is
    read from what was fetched.

    Args:
        before: What is installed, from the same repository.
        after: What would be installed.
        ref: The branch or tag, empty for HEAD, where it was asked for before, too; else None.
    """
    was, now = before.commit, git.commit
    if not was:
        return ""
    known = before.git
    if ref and known is not None and known.tag and known.tag != git.tag:
        to = f"from {known.tag[:COMMIT_SHOWN]} to {git.tag[:COMMIT_SHOWN]}"
        return f"the tag `{ref}` was moved, {to}" if git.tag else f"`{ref}` is no tag any more"
    if was == now:
        is_other = before.inside == after.inside and before.tree_digest != after.tree_digest
        said = f"the lock has other files than its commit {was[:COMMIT_SHOWN]}"
        return said if is_other else ""
    if ref and known is None and git.tag:
        return f"the tag `{ref}` was moved, from {was[:COMMIT_SHOWN]} to {now[:COMMIT_SHOWN]}"
    history = git.history()
    if was in history.commits:
        return ""
    root = "" if known is None else known.root
    if root and history.root and root != history.root:
        begin = root[:COMMIT_SHOWN]
        return f"another repository is there now: its history does not begin with {begin}"
    if ref is None:
        # Another branch was asked for, which may not have that commit.
        return ""
    if history.problem:
        return f"its history cannot be compared with {was[:COMMIT_SHOWN]}: {history.problem}"
    return f"its history was rewritten: {was[:COMMIT_SHOWN]} is no part of it any more"


def check_offer(offer: RepositoryOffer, facts: SkillFacts, tree_digest: str) -> None:
    """Refuse files that are not the version that a repository offers.

    Raises:
        SourceError: they are another skill, another version or another tree.
    """
    release = offer.release
    if facts.name != offer.skill:
        message = f"expected the skill `{offer.skill}` of `{offer.settings.name}`"
        raise SourceError(f"{message}, its archive holds `{facts.name}`")
    if facts.version and facts.version != release.version:
        message = f"expected version {release.version} of `{offer.skill}`"
        raise SourceError(f"{message}, its archive holds {facts.version}")
    if tree_digest != release.tree_digest:
        message = f"expected {release.tree_digest} of `{offer.skill}` {release.version}"
        raise SourceError(f"{message}, got {tree_digest}")


def check_taken_down(name: str, problem: str) -> None:
    """Refuse a release that its repository took down, whatever it says by now.

    Raises:
        SourceError: this machine knows that it did.
    """
    if problem:
        more = f"`skillhouse verify {name} --lift` asks the repository whether that still holds"
        raise SourceError(f"`{name}` is not installed, {problem}; {more}")


def check_owner(offer: RepositoryOffer, publisher: Publisher | None) -> None:
    """Refuse a skill that is not signed by an owner of its name, also where none is installed yet.

    Raises:
        SourceError: the root of its repository gives the name to others.
    """
    name = typed_name(offer.namespace, offer.skill)
    handle = "" if publisher is None else publisher.handle
    if why := refused_signer(offer.owners or (), handle, name):
        raise SourceError(f"{why}: the root of `{offer.settings.name}` says whose it is")


def check_repository(name: str, installed: LockEntry | None, entry: LockEntry) -> None:
    """Refuse another repository than the one that a name is locked to (dependency confusion).

    Raises:
        SourceError: the lock has another one.
    """
    if installed is not None and installed.repository != entry.repository:
        raise SourceError(
            f"`{name}` is locked to {installed.repository}, and this one is from "
            f"{entry.repository}: uninstall it first if you mean that"
        )


def check_alone(name: str, done: LockEntry | None, entry: LockEntry, target: Path) -> None:
    """Refuse a second skill of a name in one run: it would replace the first unasked.

    Raises:
        SkillError: `done`, which this run put into the place, is from elsewhere in the source.
    """
    if done is not None and (done.repository, done.inside) != (entry.repository, entry.inside):
        other = done.inside or done.resolved
        message = f"`{name}` is the name of `{other}` too, which was just installed; choose one"
        raise SkillError("same-name", target, message)


def check_publisher(name: str, installed: LockEntry | None, entry: LockEntry) -> None:
    """Refuse a skill of another publisher than the one that is installed, or an unsigned one.

    Raises:
        SourceError: the lock has a publisher, and it is another one.
    """
    before = None if installed is None else installed.signature
    if before is None:
        return
    after = "unsigned" if entry.signature is None else f"signed by {entry.signature.who}"
    if after != f"signed by {before.who}":
        raise SourceError(
            f"`{name}` is installed as signed by {before.who}, and this one is {after}: uninstall "
            "it first if you mean that"
        )


def check_as_locked(name: str, entry: LockEntry, report: InstallReport) -> None:
    """Refuse what is not exactly that of the lock: it would be refused when it is loaded.

    Raises:
        InstallError: `digest`, other files or another name; `signature`, another signer.
    """
    if report.tree.digest != entry.tree_digest or report.name != name:
        message = (
            f"`{name}`: expected {entry.tree_digest} at `{entry.resolved}`, "
            f"got {report.tree.digest}: nothing was installed"
        )
        raise InstallError("digest", SourceError(message))
    if problem := other_publisher(entry, report.publisher):
        message = (
            f"`{name}` is not as in the lock: {problem}; `skillhouse update` shows what is there"
        )
        raise InstallError("signature", SourceError(message))


def check_newer(
    name: str, installed: LockEntry, entry: LockEntry, *, taken_back: Sequence[str] = ()
) -> None:
    """Refuse an update that would go back, as a channel or a yank can make it.

    Args:
        taken_back: Versions that the repository took back.

    Raises:
        SourceError: the version is older than the installed one.
    """
    if is_older(entry.version, installed.version):
        is_back = installed.version in taken_back
        why = ", which its repository took back," if is_back else ""
        raise SourceError(
            f"`{name}` would go back from {installed.version}{why} to {entry.version}: "
            f"`skillhouse install {name}@{entry.version}` if you mean that"
        )


LISTED_MAX = 200
"""Skills of a repository whose names are compared."""


def near_installed(name: str, entry: LockEntry, installed: Iterable[tuple[str, LockEntry]]) -> str:
    """Return what to say where a name is near that of an installed skill of someone else."""
    for other, known in installed:
        if is_near(name, other) and not _is_of_one_owner(entry, known):
            return (
                f"`{name}` may be taken for `{other}`, which is installed from {known.repository}"
            )
    return ""


def _is_of_one_owner(one: LockEntry, other: LockEntry) -> bool:
    mine, theirs = one.signature, other.signature
    if mine is not None and theirs is not None and mine.who == theirs.who:
        return True
    # Of a repository of packages many publish; a git repository is of those who write to it.
    return one.repository == other.repository and locked_place(one.repository) is None


def near_listed(found: FoundSkill) -> str:
    """Return what to say where a name is near an older one of the same repository and namespace."""
    skill, repository = found.skill, found.repository
    with isolated():
        # A repository without a list has no names to compare; it still has the skill.
        listed = {split_name(one.name) for one in repository.listed("", limit=LISTED_MAX)}
        for namespace, other in sorted(listed):
            if namespace != skill.namespace or not is_near(skill.skill, other):
                continue
            known = repository.skill(namespace, other)
            if known is not None and _is_older(known, skill):
                return (
                    f"`{skill.skill}` may be taken for `{other}`, which "
                    f"`{found.settings.name}` had before"
                )
    return ""


def _is_older(one: SkillReleases, other: SkillReleases) -> bool:
    signers = [
        {who.signature.who for who in found.versions if who.signature} for found in (one, other)
    ]
    dates = [min((x.published_at for x in found.versions), default="") for found in (one, other)]
    return bool(dates[0]) and dates[0] < dates[1] and not signers[0] & signers[1]
