"""Chooses a version of a skill: a range as npm writes it, an exact version, or a channel."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct
from semantic_version import NpmSpec, Version

from skillhouse.floor import SkillhouseError, nearest
from skillhouse.registry.releases import Release, SkillReleases

LATEST = "latest"
NAMED_MAX = 5
"""Versions that an error names."""
_SHORT = re.compile(r"v?(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?([-+][0-9A-Za-z.+-]+)?")
_WORD = re.compile(r"(?!v\d)[A-Za-z][0-9A-Za-z.-]*")


class VersionError(SkillhouseError):
    """No version fits; `code` is "unknown-version", "range", "yanked" or "revoked"."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Choice(Struct, frozen=True, kw_only=True):
    """The version that was chosen for what was asked."""

    release: Release
    channel: str = ""
    """The channel that named it; empty for a range."""
    newer_yanked: tuple[str, ...] = ()
    """Newer versions that would fit, and were taken back."""


def semantic(text: str) -> Version | None:
    """Return a version that can be compared; None for one of another form.

    >>> semantic("1.2") < semantic("1.10.0")
    True
    >>> semantic("spring") is None
    True
    """
    match = _SHORT.fullmatch(text)
    if match is None:
        return None
    numbers = [str(int(part or "0")) for part in match.groups()[:3]]
    try:
        return Version(".".join(numbers) + (match[4] or ""))
    except ValueError:
        return None


def is_older(version: str, than: str) -> bool:
    """Whether one version is before another one; versions of other forms are never.

    >>> is_older("1.0", "1.0.1"), is_older("1.0.1", "1.0"), is_older("a", "b")
    (True, False, False)
    """
    one, other = semantic(version), semantic(than)
    return one is not None and other is not None and one < other


def choose(skill: SkillReleases, wanted: str, *, allow_yanked: str = "") -> Choice:
    """Return the newest version that fits; a pre-release only where the range names one.

    Args:
        wanted: Empty or `latest` for the newest, an exact version, a range such as `^1.2` or
            `>=1 <3 || 5.x`, or a channel.
        allow_yanked: A version that a lock has: it is taken though it was yanked.

    Raises:
        VersionError: nothing fits; the message names what would.
    """
    # An exact version that is there is itself, whatever else its text could mean.
    exact = next((one for one in skill.versions if one.version == wanted), None)
    if exact is not None:
        return Choice(release=_usable(skill, exact, allow_yanked))
    channels = skill.channels or {}
    if wanted in channels and wanted != LATEST:
        named = next((o for o in skill.versions if o.version == channels[wanted]), None)
        if named is None:
            message = f"the channel `{wanted}` of `{skill.typed}` names no version of it"
            raise VersionError("unknown-version", message)
        return Choice(release=_usable(skill, named, allow_yanked), channel=wanted)
    fitting = _fitting(skill, "" if wanted == LATEST else wanted)
    usable = [one for one in fitting if one.state == "published"]
    if not usable:
        raise _nothing(skill, wanted, fitting)
    found = usable[0]
    yanked = (one for one in fitting[: fitting.index(found)] if one.state != "published")
    return Choice(release=found, newer_yanked=tuple(one.version for one in yanked))


def published_versions(skill: SkillReleases, wanted: str) -> list[Release]:
    """Return the published versions of a range, newest first; none for one version or a channel.

    Raises:
        VersionError: it is no range.
    """
    is_exact = any(one.version == wanted for one in skill.versions)
    if is_exact or (wanted != LATEST and wanted in (skill.channels or {})):
        return []
    fitting = _fitting(skill, "" if wanted == LATEST else wanted)
    return [one for one in fitting if one.state == "published"]


def _usable(skill: SkillReleases, release: Release, allow_yanked: str) -> Release:
    """Refuse a version that was taken back; a yanked one only where no lock has it."""
    why = f": {release.reason}" if release.reason else ""
    what = f"`{skill.typed}` {release.version}"
    if release.state == "revoked":
        raise VersionError("revoked", f"{what} was revoked{why}")
    if release.state == "yanked" and release.version != allow_yanked:
        raise VersionError("yanked", f"{what} was yanked, and only a lock still has it{why}")
    return release


def _fitting(skill: SkillReleases, wanted: str) -> list[Release]:
    """Return the versions of a range, newest first."""
    known = [(version, one) for one in skill.versions if (version := semantic(one.version))]
    # Stable: of two that compare equal the one that was published last comes first.
    known.sort(key=lambda pair: pair[0].precedence_key, reverse=True)
    if not wanted:
        if known:
            return [one for version, one in known if not version.prerelease]
        # Names that cannot be compared are in the order of the document, newest first.
        return list(skill.versions)
    if _WORD.fullmatch(wanted) and wanted.lower() not in ("x", "v"):
        raise _nothing(skill, wanted, [])
    try:
        spec = NpmSpec(_spaced(wanted))
    except ValueError as error:
        message = f"expected a version, a range such as `^1.2`, or a channel, got {wanted[:80]!r}"
        raise VersionError("range", message) from error
    return [one for version, one in known if spec.match(version)]


def _spaced(text: str) -> str:
    """Return a range in the one spelling that the library reads: no blank behind an operator.

    >>> _spaced(">= 1.2,  <2 ||3.x")
    '>=1.2 <2 || 3.x'
    """
    text = re.sub(r"\s*\|\|\s*", " || ", text.replace(",", " "))
    text = re.sub(r"(\^|~|>=|<=|>|<|=)\s+", r"\1", text)
    return " ".join(re.sub(r"(?<![\w.+-])v(?=\d)", "", text).split())


def _nothing(skill: SkillReleases, wanted: str, fitting: Sequence[Release]) -> VersionError:
    if fitting and all(one.state != "published" for one in fitting):
        states = ", ".join(f"{one.version} ({one.state})" for one in fitting[:NAMED_MAX])
        message = f"`{skill.typed}` has no version `{wanted or LATEST}` that may be installed"
        return VersionError("unknown-version", f"{message}: {states}")
    published = [one.version for one in skill.versions if one.state == "published"]
    if not published:
        message = f"`{skill.typed}` has no published version"
        return VersionError("unknown-version", message)
    near = list(nearest(wanted, [*published, *(skill.channels or {})]))
    rest = [one for one in published if one not in near]
    listed = ", ".join(f"`{one}`" for one in (near + rest)[:NAMED_MAX])
    more = len(published) - NAMED_MAX
    message = f"`{skill.typed}` has no version `{wanted or LATEST}`; there are {listed}"
    return VersionError("unknown-version", message + (f" and {more} more" if more > 0 else ""))
