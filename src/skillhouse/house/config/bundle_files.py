"""What a signed bundle brings besides skills: its configuration, and a tier policy.

Both are in the directory of the cache that has its skills, which one link names. Whoever reads the
link once uses the three of one bundle.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from skillhouse import remote
from skillhouse.floor import ConfigError, DecodeError, decode, digest, read_regular

if TYPE_CHECKING:
    from skillhouse.house.config.repositories import SkillsSettings

BUNDLE = "bundle"
"""How the names of its layers begin."""
BUNDLE_CONFIG = "config.toml"
BUNDLE_POLICY = "policy.yml"
BUNDLE_FILE_MAX = 262_144
"""Bytes of either; a file of this machine may have more."""
STATES = "bundles"
"""The directory of the state with what was taken from each source."""
NUMBER = "number"
"""The key of a bundle's number among the versions of its directory; the others are its files."""
_SHOWN = 12


class BundleState(Struct, frozen=True, kw_only=True):
    """What was taken from one source, and how the last look at it went."""

    source: str = ""
    number: int = 0
    """Of the last bundle that was accepted; 0 for none."""
    digest: str = ""
    """Of its archive."""
    publisher: str = ""
    signed_at: str = ""
    taken_at: str = ""
    asked_at: str = ""
    """When the source answered last, UTC."""
    skills: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """What it has besides: `config.toml`, `policy.yml`."""
    problem: str = ""
    """Why the last look took nothing; empty where it was well."""
    failures: int = 0
    """Looks that failed since."""

    @property
    def has_any(self) -> bool:
        """Whether a bundle was ever accepted."""
        return self.number > 0


class TakenBundle(Struct, frozen=True, kw_only=True):
    """The bundle that one configuration uses, as it was when that was read."""

    name: str
    number: int
    digest: str
    """Of its archive; empty where none is in the cache."""
    rules_are: Literal["stricter", "defaults", "none"]
    link: Path
    """What names the directory in use; a newer bundle replaces it."""
    directory: Path | None
    """That directory, with its skills and files; None where none can be used."""
    named: Path | None
    """What the link named, of use or not."""
    files: Mapping[str, str]
    """The digests of its configuration and its policy, by name."""
    fault: str = ""
    """Why the files that were taken cannot be used: they are gone from the cache, or of a publisher
    or a source that the configuration allows no more."""

    @property
    def label(self) -> str:
        """What decisions and lists call it: its name, and how its digest begins."""
        short = self.digest.removeprefix("sha256:")[:_SHOWN]
        return " ".join(filter(None, (BUNDLE, self.name, short)))

    def is_current(self) -> bool:
        """Whether the link still names what was read."""
        return _target(self.link) == self.named

    def policy_file(self) -> Path | None:
        """Return the tier policy, which counts where this machine has none of its own."""
        if self.directory is None or self.rules_are == "none" or BUNDLE_POLICY not in self.files:
            return None
        return self.directory / BUNDLE_POLICY

    def contents(self) -> dict[str, bytes]:
        """Return its files by name; ConfigError where one is not as it was signed."""
        if self.fault or self.directory is None:
            if not self.fault:
                return {}
            raise ConfigError(self.fault, path=self.link)
        found = {}
        for name, expected in self.files.items():
            path = self.directory / name
            try:
                found[name] = read_regular(path, BUNDLE_FILE_MAX)
            except OSError as error:
                message = f"cannot read `{name}` of the bundle: {error.strerror}"
                raise ConfigError(message, path=path) from error
            if digest(found[name]) != expected:
                raise ConfigError(f"`{name}` is not as it was signed", path=path)
        return found


def bundle_link(remotes: Path, source: str) -> Path:
    """Return the link in the cache that names the directory of a source's bundle."""
    return remote.place_of(remotes, BUNDLE, source) / remote.CURRENT


def state_file(state_directory: Path, remotes: Path, source: str) -> Path:
    """Return the file with what was taken from a source."""
    return state_directory / STATES / bundle_link(remotes, source).parent.name


def read_state(file: Path, source: str) -> BundleState:
    """Return what was taken; an empty one where nothing was, or the file cannot be read."""
    try:
        return decode(file.read_bytes(), BundleState)
    except (OSError, DecodeError):
        return BundleState(source=source)


def taken_bundle(
    settings: SkillsSettings, remotes: Path, state_directory: Path, *, is_allowed: bool = True
) -> TakenBundle:
    """Return the bundle of a configured source as the cache has it; no network is asked.

    Of a source that is not an allowed one, or a publisher who is not the one that is named now,
    nothing is used.
    """
    link = bundle_link(remotes, settings.source)
    named = _target(link)
    directory, versions = named, {}
    if directory is not None:
        try:
            versions = decode((directory / remote.VERSIONS).read_bytes(), dict[str, str])
        except (OSError, DecodeError):
            directory = None
    known = read_state(state_file(state_directory, remotes, settings.source), settings.source)
    fault = ""
    if directory is None and known.files:
        # INVARIANT: rules that were taken do not end with a cleared cache.
        fault = f"bundle {known.number} is not in the cache; `skillhouse bundle pull` fetches it"
    why = ""
    if not is_allowed:
        why = f"`registry.sources` does not allow `{settings.source}`"
    elif known.has_any and known.publisher != settings.source_publisher:
        why = f"bundle {known.number} is signed by `{known.publisher}`"
    if why:
        # INVARIANT: what a bundle that may not be used any more denied does not end with that.
        directory, versions, fault = None, {}, why if known.files else ""
    return TakenBundle(
        name=settings.source_name,
        number=_number(versions.get(NUMBER, "")) or known.number,
        digest=versions.get("", ""),
        rules_are=settings.source_rules,
        link=link,
        directory=directory,
        named=named,
        files={name: versions[name] for name in (BUNDLE_CONFIG, BUNDLE_POLICY) if name in versions},
        fault=fault,
    )


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 11 else 0


def _target(link: Path) -> Path | None:
    """Return the directory beside a link that it names; None where there is none."""
    try:
        name = os.readlink(link)
    except OSError:
        return None
    return link.parent / name if os.sep not in name and (link.parent / name).is_dir() else None
