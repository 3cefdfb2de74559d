"""What an archive must be before it becomes a version: judged by the code that installs it."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from skillhouse.floor import (
    MissingExtraError,
    Severity,
    SkillError,
    SkillhouseError,
    Tree,
    TreeError,
)
from skillhouse.floor.trees import read_tree
from skillhouse.registry.facts import SkillFacts, read_facts
from skillhouse.registry.lock import LockedSignature
from skillhouse.registry.signed_directory import PublisherCheck
from skillhouse.registry.trust import PublisherError
from skillhouse.skill import SKILL_FILE, ArchiveError, read_archive, validate
from skillhouse.skill.archive import write_members

_GZIP, _ZIP = b"\x1f\x8b", b"PK\x03\x04"


class HostingError(SkillhouseError):
    """A request is refused; `code` is one of those that docs/reference/registry-api.md lists."""

    def __init__(self, code: str, message: str, *, digest: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.digest = digest
        """Of the archive that is there already, for `version-exists`."""


class CheckedPackage(Struct, frozen=True, kw_only=True):
    """An archive that may be published under the name and version that it was given for."""

    facts: SkillFacts
    tree: Tree
    signature: LockedSignature | None


def media_type_of(head: bytes) -> str:
    """Return the kind of an archive by its first bytes; HostingError `media-type`."""
    if head.startswith(_GZIP):
        return "application/gzip"
    if head.startswith(_ZIP):
        return "application/zip"
    raise HostingError("media-type", "expected a .tar.gz or a .zip, as `skillhouse pack` makes it")


class PublishChecks:
    """Judges archives for one registry."""

    def __init__(
        self, publishers: PublisherCheck, *, registry: str, requires_signature: bool = False
    ) -> None:
        self._publishers = publishers
        self._registry = registry
        self._requires_signature = requires_signature

    def check(self, data: bytes, staging: Path, *, skill: str, version: str) -> CheckedPackage:
        """Return what is in an archive, which is unpacked into a new directory in `staging`.

        Raises:
            HostingError: archive, skill, name, version or signature.
        """
        directory = staging / skill
        try:
            write_members(read_archive(data), directory)
            # Read again from the disk, as whoever installs it does.
            tree = read_tree(directory, whole=True)
        except (ArchiveError, TreeError) as error:
            raise HostingError("archive", f"{error.code}: {_plain(error, staging)}") from error
        facts = self._facts(directory)
        _check_address(facts, skill=skill, version=version)
        return CheckedPackage(
            facts=facts, tree=tree, signature=self._signer(directory, tree, facts)
        )

    def _facts(self, directory: Path) -> SkillFacts:
        try:
            facts = read_facts(directory, directory.name)
        except SkillError as error:
            code = "name" if error.code.startswith("name") else "skill"
            message = f"{error.code}: {_plain(error, directory)}"
            if not (directory / SKILL_FILE).is_file():
                message += f"; expected {SKILL_FILE} at the top of the archive"
            raise HostingError(code, message) from error
        if os.path.lexists(directory / SKILL_FILE):
            found = [
                one
                for one in validate(directory)
                # Whether the name is that of the address is asked later, with a better answer.
                if one.severity is Severity.ERROR and one.code != "name-mismatch"
            ]
            if found:
                listed = "; ".join(f"{one.code}: {one.message}" for one in found[:5])
                raise HostingError("skill", f"`skillhouse validate` refuses it: {listed}")
        return facts

    def _signer(self, directory: Path, tree: Tree, facts: SkillFacts) -> LockedSignature | None:
        try:
            publisher = self._publishers.publisher_of(
                directory, tree, facts=facts, repository=self._registry
            )
        except (PublisherError, MissingExtraError) as error:
            step = error.step if isinstance(error, PublisherError) else "extra"
            hint = _HINTS.get(step, "")
            raise HostingError("signature", f"{_plain(error, directory)}{hint}") from error
        if publisher is None:
            if self._requires_signature:
                message = "this registry takes signed skills only: `skillhouse sign DIRECTORY`"
                raise HostingError("signature", message)
            return None
        return LockedSignature(
            publisher=publisher.handle,
            cert_sha256=publisher.certificate,
            signed_at=publisher.signed_at,
            registry=publisher.registry,
        )


_HINTS = {"chain": "; whoever runs the registry trusts a root by `skillhouse registry trust FILE`"}


def _check_address(facts: SkillFacts, *, skill: str, version: str) -> None:
    if facts.name != skill:
        raise HostingError("name", f"the address names `{skill}`, the archive holds `{facts.name}`")
    if facts.version != version:
        found = f"the archive has {facts.version}" if facts.version else "the archive names none"
        message = (
            f"the address names version {version}, {found} (metadata: version in {SKILL_FILE})"
        )
        raise HostingError("version", message)


def _plain(error: Exception, directory: Path) -> str:
    """Return a message without the place on the server's disk."""
    text = str(error)
    for place in (directory, directory.parent):
        text = text.replace(f": `{place}`", "").replace(f"{place}/", "").replace(str(place), "")
    return text
