"""What is refused of a skill before it is in force: another source, publisher or version."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from skillhouse.floor import SkillError, SkillhouseError
from skillhouse.house.installed_check import other_publisher
from skillhouse.install.install_report import InstallReport
from skillhouse.install.install_steps import InstallError, UnsignedError
from skillhouse.install.repositories import RepositoryOffer
from skillhouse.registry import LockEntry, SkillFacts, SourceError, is_older


class UntrustedError(SkillhouseError):
    """A skill of a repository that is not trusted, or with files that other programs obey, was not
    installed: no person agreed to that."""


def check_agreed(
    report: InstallReport,
    *,
    require_signature: bool,
    allow_unsigned: bool,
    accept_untrusted: bool,
    accept_obeyed: bool,
) -> None:
    """Refuse what no person agreed to: an unsigned skill, one of an untrusted repository, or one
    with files that other programs obey."""
    name, offer = report.name, report.offer
    if report.publisher is None:
        why = ""
        if require_signature:
            why = ", and `registry.require_signature` is set"
        elif offer is not None and offer.settings.require_signature:
            why = f", and `require_signature` is set for `{offer.settings.name}`"
        if why or not allow_unsigned:
            raise UnsignedError(f"`{name}` is unsigned{why}: nothing was installed")
    if report.is_untrusted and not accept_untrusted:
        repository = "" if offer is None else offer.settings.name
        message = f"`{name}` is from `{repository}`, which is not trusted: nothing was installed"
        raise UntrustedError(message)
    if report.is_obeyed and not accept_obeyed:
        names = ", ".join(f"`{path}`" for path, _ in report.effects.obeyed[:5])
        message = f"`{name}` brings files that other programs obey ({names}): nothing was installed"
        raise UntrustedError(message)


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
