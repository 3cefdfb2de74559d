"""Where what a repository offers was built, and whether that is as it was before."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from skillhouse.floor import (
    DecodeError,
    MissingExtraError,
    isolated,
    needs_extra,
    shaped,
    structs,
    write_atomically,
)
from skillhouse.floor.documents import json_value
from skillhouse.floor.lock import locked_file
from skillhouse.house.config.repositories import RegistrySettings
from skillhouse.install.repositories import RepositoryOffer
from skillhouse.install.source_policy import read_texts
from skillhouse.registry import AttestationError, BuildOrigin, LockEntry

BUILDS = "builds.json"
"""The file of the state with where installed skills were built."""
BUILDS_MAX = 10_000
"""Skills of which that is kept; of more the oldest are forgotten."""


class AttestedBuild(Struct, frozen=True, kw_only=True):
    """What the attestations of one version say."""

    origins: tuple[BuildOrigin, ...] = ()
    """Those that were verified here."""
    problems: tuple[str, ...] = ()
    """Why others were not."""

    def origin(self, expected: Sequence[BuildOrigin]) -> BuildOrigin | None:
        """Return the one that the lock keeps: one that is expected, else the first."""
        likely = [one for one in self.origins if any(map(one.is_same_as, expected))]
        return next(iter((*likely, *self.origins)), None)


class BuildOrigins:
    """The attestations of one configuration, and what this machine knows of earlier ones."""

    def __init__(self, settings: RegistrySettings, state_directory: Path) -> None:
        self._settings = settings
        self._path = state_directory / BUILDS

    def read(self, offer: RepositoryOffer) -> AttestedBuild:
        """Fetch the attestations of an offered version and verify them.

        What cannot be had or verified is no evidence, and refuses nothing by itself: whoever
        serves the files could leave it out as well.
        """
        digests = offer.release.attestations
        if not digests:
            return AttestedBuild()
        try:
            with needs_extra("sigstore"):
                # The library takes half a second to load, and most versions have no attestation.
                from skillhouse.registry.attestation_check import (  # noqa: PLC0415
                    AttestationVerifier,
                )
            settings = self._settings
            verifier = AttestationVerifier(settings.sigstore_roots, settings.attestation_issuers)
        except (MissingExtraError, AttestationError) as error:
            there = "an attestation" if len(digests) == 1 else f"{len(digests)} attestations"
            message = f"there is {there} that this machine cannot verify: {error}"
            return AttestedBuild(problems=(message,))
        origins: list[BuildOrigin] = []
        problems: list[str] = []
        for digest in digests:
            with isolated() as failed:
                data = offer.found.repository.attestation(digest)
                origins.append(verifier.verify(data, offer.release.digest))
            problems += [f"an attestation: {error}" for error in failed]
        return AttestedBuild(origins=tuple(origins), problems=tuple(problems))

    def expected(self, entry: LockEntry, installed: LockEntry | None) -> tuple[BuildOrigin, ...]:
        """Return where a skill was built before, as the lock and this machine know it.

        Raises:
            StateError: what is kept cannot be read.
        """
        found = [None if installed is None else installed.build, self._kept(entry)]
        return tuple(dict.fromkeys(one for one in found if one is not None))

    def _kept(self, entry: LockEntry) -> BuildOrigin | None:
        text = read_texts(self._path).get(_key(entry), "")
        if not text:
            return None
        try:
            return shaped(json_value(text), BuildOrigin)
        except DecodeError:
            # One that is damaged would refuse every install; the lock has it as well.
            return None

    def keep(self, entries: Iterable[LockEntry]) -> None:
        """Keep where skills were built that a person agreed to; one without forgets it."""
        changed = {
            _key(one): "" if one.build is None else json.dumps(structs.asdict(one.build))
            for one in entries
        }
        with locked_file(self._path.with_suffix(".lock")):
            before = read_texts(self._path)
            if all(before.get(key, "") == text for key, text in changed.items()):
                return
            kept = {key: text for key, text in before.items() if key not in changed}
            kept |= {key: text for key, text in changed.items() if text}
            with write_atomically(self._path) as file:
                file.write(json.dumps(dict(list(kept.items())[-BUILDS_MAX:])).encode())


def unexpected(name: str, expected: Iterable[BuildOrigin], found: AttestedBuild) -> str:
    """Return how a version is not built as earlier ones were; empty where it is.

    >>> unexpected("pdf", (), AttestedBuild())
    ''
    """
    for one in expected:
        if any(map(one.is_same_as, found.origins)):
            continue
        if found.origins:
            now = f"this version was {found.origins[0].text}"
            if found.origins[0].who == one.who:
                now += ", of another issuer or another repository of that name"
        elif found.problems:
            now = f"of this version that is not known: {found.problems[0]}"
        else:
            now = "this version has no attestation"
        return f"`{name}` was {one.who} before, and {now}"
    return ""


def _key(entry: LockEntry) -> str:
    return f"{entry.repository} {entry.path.rpartition('/')[2]}"
