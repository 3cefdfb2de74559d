"""What a signature says: an in-toto statement over every file, and which skill it is."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from skillhouse.floor import (
    EXECUTABLE_MODE,
    SIGNATURE_FILE,
    DecodeError,
    Tree,
    dataclass,
    shaped,
    tree_of,
)
from skillhouse.floor.trees import FILE_MODE, INSTALL_DIRECTORY, TREE_MAX_FILES, TreeFile
from skillhouse.registry.signature_bundle import strict_json
from skillhouse.registry.trust import PublisherError, SkillIdentity

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://model_signing/signature/v1.0"
_SERIALIZATION = {
    "method": "files",
    "hash_type": "sha256",
    "allow_symlinks": False,
    "ignore_paths": [SIGNATURE_FILE, INSTALL_DIRECTORY],
}
OTHER_PROGRAM = (
    "has no object `skill`: another program signed it in the Model Signing format, which binds "
    "neither name, version and registry nor the modes of files; its publisher has to sign it with "
    "`skillhouse sign`"
)
"""What is said of signatures that the stock program makes."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedStatement:
    """What was signed."""

    identity: SkillIdentity
    tree: Tree
    signed_at: datetime
    """As the signer's clock had it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resource:
    """One file, as the Model Signing format lists it."""

    name: str
    algorithm: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Skill:
    """What the format does not bind: the rest of a tree, and whose it is."""

    name: str
    version: str
    repository: str
    signed_at: str
    tree_digest: str
    modes: Mapping[str, str]
    sizes: Mapping[str, int]


def write_statement(statement: SignedStatement) -> bytes:
    """Return a statement as the payload of a signature."""
    files = statement.tree.files
    identity = statement.identity
    value = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": identity.name, "digest": {"sha256": _root_digest(statement.tree)}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "serialization": _SERIALIZATION,
            "resources": [
                {"algorithm": "sha256", "digest": one.sha256, "name": one.path} for one in files
            ],
            "skill": {
                "name": identity.name,
                "version": identity.version,
                "repository": identity.repository,
                "signed_at": f"{statement.signed_at.astimezone(UTC):{_TIME}}",
                "tree_digest": statement.tree.digest,
                "modes": {one.path: one.mode for one in files},
                "sizes": {one.path: one.size for one in files},
            },
        },
    }
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def read_statement(payload: bytes) -> SignedStatement:
    """Return what a payload says; PublisherError `statement` unless it is exactly such a one."""
    value = strict_json(payload, "statement")
    try:
        return _statement(value)
    except (KeyError, TypeError, AttributeError, ValueError, DecodeError) as error:
        message = f"is no statement over the files of a skill: {str(error)[:120]}"
        raise PublisherError("statement", message) from error


def _statement(value: Any) -> SignedStatement:
    for key, wanted in (("_type", STATEMENT_TYPE), ("predicateType", PREDICATE_TYPE)):
        if value[key] != wanted:
            raise ValueError(f"expected `{key}` to be {wanted}, got {str(value[key])[:80]!r}")
    predicate = value["predicate"]
    if "skill" not in predicate:
        raise PublisherError("statement", OTHER_PROGRAM)
    # INVARIANT: a statement that leaves out more paths, or hashes otherwise, is not one of ours.
    if predicate["serialization"] != _SERIALIZATION:
        raise ValueError("expected each file with its SHA-256, and none left out")
    skill = shaped(predicate["skill"], _Skill)
    tree = _tree(shaped(predicate["resources"], tuple[_Resource, ...]), skill)
    subject = {"name": skill.name, "digest": {"sha256": _root_digest(tree)}}
    if value["subject"] != [subject]:
        raise ValueError("expected one subject: the skill with the digest of its files")
    if skill.tree_digest != tree.digest:
        raise ValueError("its tree digest is not that of its files")
    identity = SkillIdentity(name=skill.name, version=skill.version, repository=skill.repository)
    signed_at = datetime.strptime(skill.signed_at, _TIME).replace(tzinfo=UTC)
    return SignedStatement(identity=identity, tree=tree, signed_at=signed_at)


def _tree(resources: tuple[_Resource, ...], skill: _Skill) -> Tree:
    names = [one.name for one in resources]
    if len(names) > TREE_MAX_FILES or len(set(names)) != len(names):
        raise ValueError("it lists too many files, or one twice")
    if not set(names) == skill.modes.keys() == skill.sizes.keys():
        raise ValueError("expected a mode and a size of each file")
    for one in resources:
        if one.algorithm != "sha256" or not _SHA256.fullmatch(one.digest):
            raise ValueError(f"expected the SHA-256 of {one.name[:80]!r}")
        if skill.modes[one.name] not in (FILE_MODE, EXECUTABLE_MODE):
            raise ValueError(f"expected a mode of a file, got {skill.modes[one.name][:20]!r}")
    return tree_of(
        TreeFile(
            path=one.name,
            mode=skill.modes[one.name],
            size=skill.sizes[one.name],
            sha256=one.digest,
        )
        for one in resources
    )


def _root_digest(tree: Tree) -> str:
    """Return the digest that the Model Signing format has of all files, in their order."""
    hasher = hashlib.sha256()
    for one in tree.files:
        hasher.update(bytes.fromhex(one.sha256))
    return hasher.hexdigest()
