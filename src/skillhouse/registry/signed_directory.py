"""Says who published the skill in a directory; everything that installs asks here."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from skillhouse.floor import SIGNATURE_FILE, PathError, Tree, needs_extra, read_beneath, read_tree
from skillhouse.registry.package import directory_members
from skillhouse.registry.trust import (
    SIGNATURE_MAX,
    TRUSTED_DIRECTORY,
    Publisher,
    PublisherError,
    SkillIdentity,
)

if TYPE_CHECKING:
    from skillhouse.registry.facts import SkillFacts
    from skillhouse.registry.trust_anchors import AnchorStore
    from skillhouse.registry.trust_memory import TrustMemory

OTHER_SIGNATURES = (".oms.sig", ".sigstore", ".sigstore.json", "model.sig")
"""How names of signatures end that other programs make: NVIDIA's catalogue, `model_signing`."""


def read_signature(directory: Path) -> bytes | None:
    """Return the signature in a directory, None for none; PublisherError `bundle`."""
    if not os.path.lexists(directory / SIGNATURE_FILE):
        return None
    try:
        return read_beneath(directory, SIGNATURE_FILE, max_bytes=SIGNATURE_MAX)
    except PathError as error:
        raise PublisherError("bundle", f"`{SIGNATURE_FILE}` is not read: {error.code}") from error


class PublisherCheck:
    """Says who published the skill in a directory, by what this user trusts."""

    def __init__(
        self,
        state_directory: Path,
        clock: Callable[[], datetime] | None = None,
        *,
        memory: TrustMemory | None = None,
        refuses_ended: bool = False,
    ) -> None:
        """Take the directory of the state and the clock, the system's without one.

        Args:
            memory: Where the time at which a tree was verified is kept; None keeps none.
            refuses_ended: Refuse a certificate or a list that ended, whatever was verified before.
        """
        self._memory = memory
        self._refuses_ended = refuses_ended
        self._anchors = state_directory / TRUSTED_DIRECTORY
        self._clock = clock or utc_now
        self._store: AnchorStore | None = None

    def publisher_of(
        self, directory: Path, tree: Tree, *, facts: SkillFacts | None = None, repository: str = ""
    ) -> Publisher | None:
        """Return who signed the skill in `directory`, or None for an unsigned one.

        Args:
            tree: The files that were read there, without the signature.
            facts: What its files say, where that was read already.
            repository: The registry that it must be signed for; empty for any that is trusted.

        Raises:
            PublisherError: there is a signature, and it is not accepted.
            MissingExtraError: there is one, and what checks it is not installed.
        """
        # INVARIANT: a signature that is not accepted never passes for one that is, nor for none.
        signature = read_signature(directory)
        if signature is None:
            return None
        facts = facts or _facts(directory)
        identity = SkillIdentity(name=facts.name, version=facts.version, repository=repository)
        with needs_extra("registry"):
            # cryptography is an optional part, and unsigned skills need none of it.
            from skillhouse.registry.signatures import verify_signature  # noqa: PLC0415
            from skillhouse.registry.trust_anchors import AnchorStore  # noqa: PLC0415
        now = self._clock()
        self._store = self._store or AnchorStore(self._anchors)
        anchors = self._store.read(now)
        memory, file = self._memory, hashlib.sha256(signature).hexdigest()
        before = None if memory is None else memory.verified_at(tree.digest, file)
        verified = None if self._refuses_ended else before
        found = verify_signature(
            tree, signature, identity, anchors=anchors, now=now, verified=verified
        )
        if memory is not None and before is None:
            memory.keep_verified(tree.digest, file, found.handle, now)
        return found

    def publisher_in(
        self, directory: Path, *, facts: SkillFacts | None = None, repository: str = ""
    ) -> Publisher | None:
        """Return who signed the skill in `directory`, whatever programs left beside its files.

        A package may have been signed with such files in it. Errors as of `publisher_of`, and
        TreeError.
        """
        tree = read_tree(directory)
        try:
            return self.publisher_of(directory, tree, facts=facts, repository=repository)
        except PublisherError:
            if not tree.left:
                raise
        whole = read_tree(directory, whole=True)
        return self.publisher_of(directory, whole, facts=facts, repository=repository)


def _facts(directory: Path) -> SkillFacts:
    # What reads manifests takes 30 ms to load, and unsigned skills need none of it.
    from skillhouse.registry.facts import read_facts  # noqa: PLC0415

    return read_facts(directory, directory.name)


def utc_now() -> datetime:
    return datetime.now(UTC)


class SignedSkill(Struct, frozen=True, kw_only=True):
    """A skill whose signature was accepted."""

    publisher: Publisher
    facts: SkillFacts
    tree: Tree


def signed_skill(directory: Path, check: PublisherCheck, *, repository: str = "") -> SignedSkill:
    """Return the skill in a directory, which must be signed, for `repository` if one is given.

    Raises:
        PublisherError: `unsigned`, or the step that refuses the signature.
        TreeError, ArchiveError: the directory holds what no package may hold.
        SkillError: it is no skill, or its name is not that of the directory.
    """
    tree, _ = directory_members(directory)
    facts = _facts(directory)
    if facts.name != directory.name:
        message = f"expected a directory named `{facts.name}`, got `{directory.name}`"
        raise PublisherError("identity", message)
    publisher = check.publisher_in(directory, facts=facts, repository=repository)
    if publisher is None:
        message = f"there is no `{SIGNATURE_FILE}` in `{directory}`"
        others = [one.path for one in tree.files if one.path.endswith(OTHER_SIGNATURES)]
        if others:
            message += f"; `{others[0]}` is of another program, whose signatures are not accepted"
        raise PublisherError("unsigned", message)
    return SignedSkill(publisher=publisher, facts=facts, tree=tree)
