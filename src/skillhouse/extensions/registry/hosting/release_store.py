"""What a server of packages keeps: one protocol, which each engine implements.

tests/extensions/registry/hosting/test_release_store_contract.py holds what every engine must do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Literal, Protocol

from msgspec import Struct

from skillhouse.registry import HostingError, Release, SkillReleases
from skillhouse.registry.releases import State

ChangeKind = Literal["publish", "yank", "unyank", "revoke", "channel", "revocations", "restore"]
Sort = Literal["relevance", "name", "updated"]
PAGE_MAX = 200
"""Skills of one page."""


class Actor(Struct, frozen=True):
    """Who made a change."""

    token: str = ""
    """The id of the token, never the token; empty for a change on the machine of the registry."""
    claims: str = ""
    """What an identity provider vouched for, where the token is one of its exchange."""
    address: str = ""
    """The address from which the request came."""


NO_ACTOR = Actor()


class NewRelease(Struct, frozen=True, kw_only=True):
    """A version to add, and what its SKILL.md says of the skill."""

    namespace: str
    skill: str
    description: str
    license: str
    release: Release
    actor: Actor = NO_ACTOR


class HostedSkill(Struct, frozen=True, kw_only=True):
    """A skill in a list: what its newest version says."""

    name: str
    namespace: str
    skill: str
    description: str
    latest: str
    license: str
    publisher: str
    """Who signed the newest version; empty for an unsigned one."""
    updated_at: str


class HostedSkills(Struct, frozen=True, kw_only=True):
    """One page of a list."""

    skills: tuple[HostedSkill, ...]
    next_cursor: str | None = None


class ListQuery(Struct, frozen=True, kw_only=True):
    """Which skills are listed."""

    text: str = ""
    """Words of name and description; empty for all skills."""
    also: tuple[str, ...] = ()
    """Further words, such as translations: skills with them follow those with words of `text`."""
    cursor: str = ""
    limit: int = 20
    sort: Sort | None = None
    """By relevance where there are words, else by name."""
    publisher: str = ""


class NewestRelease(Struct, frozen=True, kw_only=True):
    """The newest published version of a skill."""

    skill: str
    description: str
    release: Release


class RepositoryChange(Struct, frozen=True, kw_only=True):
    """One line of the feed of changes."""

    seq: int
    kind: str
    name: str
    """As in addresses; empty for what is about no skill."""
    version: str
    at: str
    actor: Actor = NO_ACTOR


class ReleaseToken(Struct, frozen=True, kw_only=True):
    """A token without its secret."""

    id: str
    digest: str
    """SHA-256 of the whole token, 64 hex digits."""
    scopes: tuple[str, ...]
    note: str
    created_at: str
    expires_at: str
    """Empty for one that does not end."""
    revoked_at: str = ""
    claims: str = ""
    """What an identity provider vouched for, of a token that was exchanged."""


class ReleaseStore(Protocol):
    """Releases, channels, changes and tokens; for any thread, and for several processes.

    What returned is durable, and each call happens as a whole or not at all, also in a crash.
    """

    def releases(self, namespace: str, skill: str) -> SkillReleases | None:
        """Return a skill with its versions, newest first."""

    def add(self, new: NewRelease) -> None:
        """Add a version. HostingError `version-exists`: the number was used, by any archive."""

    def set_state(
        self,
        namespace: str,
        skill: str,
        version: str,
        state: State,
        *,
        reason: str,
        at: str,
        actor: Actor = NO_ACTOR,
    ) -> Release:
        """Yank, unyank or revoke. HostingError `unknown-version`; `bad-request` after a revoke."""

    def set_channel(
        self,
        namespace: str,
        skill: str,
        channel: str,
        version: str,
        *,
        at: str,
        actor: Actor = NO_ACTOR,
    ) -> None:
        """Let a channel name a version. HostingError `unknown-version`: it is not published."""

    def similar(self, namespace: str, keys: Collection[str]) -> tuple[str, ...]:
        """Return the skills of a namespace whose `name_key` is one of these, sorted."""

    def publishing_tokens(self, namespace: str, skill: str) -> frozenset[str]:
        """Return the ids of the tokens that published a skill, as far as they are known."""

    def archive(self, digest: str) -> Release | None:
        """Return a release with this archive, an installable one where there is one."""

    def is_revoked(self, digest: str, tree_digest: str) -> bool:
        """Whether a release with this archive or these files was revoked."""

    def find(self, query: ListQuery) -> HostedSkills:
        """Return a page of the skills. HostingError `bad-request`: no cursor of ours.

        Words find skills with a published version; without words those are listed, too, of which
        every version that is not revoked was yanked.
        """

    def newest(self, namespace: str, most: int) -> tuple[NewestRelease, ...]:
        """Return skills with a published version, by name; at most so many."""

    def changes(self, since: int, most: int) -> tuple[RepositoryChange, ...]:
        """Return changes after a number, oldest first."""

    def last_change(self) -> int:
        """Return the number of the newest change; 0 before the first."""

    def skill_count(self) -> int:
        """Return how many skills there are."""

    def setting(self, name: str) -> bytes | None:
        """Return a value that was set."""

    def set_setting(
        self,
        name: str,
        value: bytes,
        *,
        kind: ChangeKind | None = None,
        at: str = "",
        actor: Actor = NO_ACTOR,
    ) -> None:
        """Set a value, and record a change where it is one for others."""

    def add_token(self, token: ReleaseToken) -> None:
        """Keep a token; its id is new."""

    def tokens(self) -> tuple[ReleaseToken, ...]:
        """Return all tokens, ended ones too, oldest first."""

    def token(self, token_id: str) -> ReleaseToken | None:
        """Return a token, ended or not."""

    def revoke_token(self, token_id: str, at: str) -> bool:
        """End a token; False where there is none that is in use."""

    def use_once(self, issuer: str, identifier: str, until: datetime, now: datetime) -> bool:
        """Use an id of an identity provider's token; False where it was used.

        It is kept until a time; with it exchanged tokens go that ended a week ago.
        """

    def close(self) -> None:
        """Free what is open."""


STATE_CHANGES: Mapping[State, ChangeKind] = {
    "published": "unyank",
    "yanked": "yank",
    "revoked": "revoke",
}


METADATA_FLOOR = "metadata-floor"
"""The setting with the number that the next signed metadata follows, after a restore."""


def utc_text(moment: datetime) -> str:
    """Return a time as documents have it; such texts sort by time."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def refuse_state(before: State, after: State, version: str) -> None:
    """Refuse to take a revocation back; every engine asks here."""
    if before == "revoked" and after != "revoked":
        raise HostingError("bad-request", f"version {version} was revoked, which is final")


def unknown_version(skill: str, version: str) -> HostingError:
    return HostingError("unknown-version", f"`{skill}` has no version {version}")


def version_exists(version: str, digest: str) -> HostingError:
    """Return the refusal of a number that was used; a new archive needs a new number."""
    message = f"version {version} is there already and never changes: publish another number"
    return HostingError("version-exists", message, digest=digest)
