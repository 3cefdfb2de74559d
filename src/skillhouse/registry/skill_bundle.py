"""A bundle: many skills in one archive with one signature, numbered, for servers that take it.

It is a package whose files are below `skills/NAME/`, with a configuration and a policy beside them,
if the publisher gives any; what they say is not read here. Its signature is that of a package: over
every file with its mode. What is signed has a name that no skill can have, so neither ever passes
for the other, and a number in the place of a version.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec import Struct

from skillhouse.floor import SIGNATURE_FILE, Digest, SkillError, Tree, digest
from skillhouse.registry.certificates import Role, check_role, check_time
from skillhouse.registry.facts import read_facts
from skillhouse.registry.package import directory_members, member_tree, write_archive
from skillhouse.registry.signature_bundle import (
    PAYLOAD_TYPE,
    read_bundle,
    read_statement,
    write_bundle,
)
from skillhouse.registry.signatures import TrustAnchors, sign_tree, verify_signature
from skillhouse.registry.trust import SIGNATURE_MAX, Publisher, PublisherError, SkillIdentity
from skillhouse.skill import SKILL_FILE, ArchiveError, ArchiveMember, read_archive, validate_name

BUNDLE_SKILLS = "skills"
"""The directory of an archive in which the skills are."""
BUNDLE_FILES = ("config.toml", "policy.yml")
"""What may be beside the skills."""
BUNDLE_FILE_MAX = 262_144
"""Bytes of each of these."""
NUMBER_MAX = 1_000_000_000
NO_FILES: Mapping[str, bytes] = MappingProxyType({})
_NAME = "bundle/"
"""How the signed name begins; a skill's has no `/`."""


class SkillBundle(Struct, frozen=True, kw_only=True):
    """A bundle: made here, or with a signature that was accepted."""

    name: str
    number: int
    """From 1; the higher one is the newer one."""
    publisher: Publisher
    skills: Mapping[str, str]
    """The tree digest of each skill, by its name."""
    files: Mapping[str, bytes]
    """What is beside the skills, by name: of `BUNDLE_FILES`."""
    members: tuple[ArchiveMember, ...]
    """All of them but the signature."""
    digest: Digest
    """Of the archive."""


class PackedBundle(Struct, frozen=True, kw_only=True):
    """A bundle as it is published."""

    archive: bytes
    skills: tuple[str, ...]
    """Names, sorted."""


def pack_bundle(
    directory: Path,
    name: str,
    number: int,
    *,
    key: ec.EllipticCurvePrivateKey,
    chain: Sequence[x509.Certificate],
    now: datetime,
    files: Mapping[str, bytes] = NO_FILES,
) -> PackedBundle:
    """Return the skills in a directory as one signed archive.

    Args:
        directory: Each directory in it that holds a SKILL.md is a skill; other entries stay out.
        name: Of the bundle, as a skill may be called.
        chain: As of `sign_tree`.
        files: What is beside the skills, by name.

    Raises:
        SkillError: there is no skill, or one has another name than its directory.
        TreeError, ArchiveError: it holds what no package may hold, or too much for one archive.
        PublisherError: the certificate does not fit the key or the purpose, or has ended.
    """
    publisher = check_role(chain[0], Role.DEVELOPER)
    check_time(chain[0], Role.DEVELOPER, now)
    members = bundle_members(directory, files)
    tree = member_tree(members)
    identity = SkillIdentity(name=_NAME + name, version=str(number), repository=publisher.registry)
    signature = write_bundle(sign_tree(tree, identity, key=key, chain=chain, now=now))
    archive = write_archive([*members, _file_member(SIGNATURE_FILE, signature)])
    # INVARIANT: what no server takes is not published: a file that changed meanwhile is found too.
    if member_tree(_signed_files(read_archive(archive))) != tree:
        raise SkillError("unsteady", directory, "changed while it was packed")
    names = {one.path.split("/")[1] for one in members if one.path not in BUNDLE_FILES}
    return PackedBundle(archive=archive, skills=tuple(sorted(names)))


def bundle_members(
    directory: Path, files: Mapping[str, bytes] = NO_FILES
) -> tuple[ArchiveMember, ...]:
    """Return what a bundle of a directory holds; errors as of `pack_bundle`."""
    members: list[ArchiveMember] = []
    found = sorted(one.name for one in os.scandir(directory) if one.is_dir(follow_symlinks=False))
    for skill in found:
        place = directory / skill
        if not (place / SKILL_FILE).is_file():
            continue
        facts = read_facts(place, skill)
        if facts.name != skill:
            message = f"expected a directory named `{facts.name}`, got `{skill}`"
            raise SkillError("name-directory", place, message)
        _, own = directory_members(place)
        members += (_below(one, f"{BUNDLE_SKILLS}/{skill}") for one in own)
    if not members:
        message = f"expected directories with a `{SKILL_FILE}`"
        raise SkillError("no-skill", directory, message)
    members += (_file_member(one, files[one]) for one in BUNDLE_FILES if one in files)
    return tuple(members)


def open_bundle(data: bytes, name: str, *, anchors: TrustAnchors, now: datetime) -> SkillBundle:
    """Return the bundle in an archive, after every step of verification; nothing is written.

    Args:
        data: The archive.
        name: Of the bundle that is wanted; one of another name is refused.
        anchors: What is trusted here.

    Raises:
        ArchiveError: the archive is refused, or holds what no bundle holds.
        PublisherError: `unsigned`, or the step that refuses the signature.
    """
    members = read_archive(data)
    signatures = [one for one in members if one.path == SIGNATURE_FILE]
    if not signatures:
        raise PublisherError("unsigned", f"there is no `{SIGNATURE_FILE}` in the bundle")
    if signatures[0].size > SIGNATURE_MAX:
        raise PublisherError("size", f"expected a signature of at most {SIGNATURE_MAX} bytes")
    signature = b"".join(signatures[0].read())
    files = _signed_files(members)
    tree = member_tree(files)
    expected = SkillIdentity(name=_NAME + name)
    publisher = verify_signature(tree, signature, expected, anchors=anchors, now=now)
    # INVARIANT: read after the signature was accepted, as all that the archive says of itself.
    version = read_statement(read_bundle(signature, PAYLOAD_TYPE).payload).identity.version
    if not (version.isascii() and version.isdecimal() and 0 < len(version) < 11):
        raise PublisherError("statement", f"expected the number of a bundle, got {version[:20]!r}")
    number = int(version)
    if not 1 <= number <= NUMBER_MAX or version != str(number):
        raise PublisherError("statement", f"expected a number from 1 to {NUMBER_MAX}")
    return SkillBundle(
        name=name,
        number=number,
        publisher=publisher,
        skills={one: tree.digest for one, tree in _trees(files).items()},
        files={one.path: b"".join(one.read()) for one in files if one.path in BUNDLE_FILES},
        members=files,
        digest=digest(data),
    )


def _below(member: ArchiveMember, directory: str) -> ArchiveMember:
    path, size = f"{directory}/{member.path}", member.size
    return ArchiveMember(path, False, member.is_executable, size, member.open)  # noqa: FBT003 - a Struct's fields


def _file_member(path: str, data: bytes) -> ArchiveMember:
    return ArchiveMember(path, False, False, len(data), lambda: iter([data]))  # noqa: FBT003 - a Struct's fields


def _signed_files(members: Iterable[ArchiveMember]) -> tuple[ArchiveMember, ...]:
    """Return the files that are signed; ArchiveError for one that no bundle has."""
    found = []
    for member in members:
        if member.is_directory or member.path == SIGNATURE_FILE:
            continue
        if member.path in BUNDLE_FILES:
            if member.size > BUNDLE_FILE_MAX or member.is_executable:
                message = f"expected a text of at most {BUNDLE_FILE_MAX} bytes as `{member.path}`"
                raise ArchiveError("bundle-file", message)
            found.append(member)
            continue
        parts = member.path.split("/")
        if len(parts) < 3 or parts[0] != BUNDLE_SKILLS:
            message = f"expected files below `{BUNDLE_SKILLS}/NAME/`, got {member.path[:80]!r}"
            raise ArchiveError("bundle-file", message)
        found.append(member)
    return tuple(found)


def _trees(files: Iterable[ArchiveMember]) -> Mapping[str, Tree]:
    """Return the tree of each skill, by its name; ArchiveError for what is none."""
    own: dict[str, list[ArchiveMember]] = {}
    for member in files:
        if member.path in BUNDLE_FILES:
            continue
        _, name, path = member.path.split("/", 2)
        inner = ArchiveMember(path, False, member.is_executable, member.size, member.open)  # noqa: FBT003 - a Struct's fields
        own.setdefault(name, []).append(inner)
    for name, members in own.items():
        if validate_name(name, directory=name):
            raise ArchiveError("bundle-file", f"no name of a skill: {name[:80]!r}")
        if all(one.path != SKILL_FILE for one in members):
            raise ArchiveError("bundle-file", f"no {SKILL_FILE} in `{name}`")
    return {name: member_tree(members) for name, members in own.items()}
