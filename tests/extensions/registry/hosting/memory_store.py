"""A second engine, in memory: it shows that the contract suite has no SQLite in it."""

from __future__ import annotations

import re
import threading
from collections.abc import Collection
from datetime import datetime

from skillhouse.extensions.registry.hosting import ListQuery, ReleaseToken
from skillhouse.extensions.registry.hosting.release_store import (
    NO_ACTOR,
    PAGE_MAX,
    STATE_CHANGES,
    Actor,
    ChangeKind,
    HostedSkill,
    HostedSkills,
    NewestRelease,
    NewRelease,
    RepositoryChange,
    refuse_state,
    unknown_version,
    version_exists,
)
from skillhouse.extensions.registry.hosting.version_order import newest_of, version_key
from skillhouse.floor import structs
from skillhouse.registry.near_names import name_key
from skillhouse.registry.publish_checks import HostingError
from skillhouse.registry.releases import Release, SkillReleases, State, address_name

Key = tuple[str, str]


class MemoryReleases:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._versions: dict[Key, dict[str, NewRelease]] = {}
        self._channels: dict[Key, dict[str, str]] = {}
        self._updated: dict[Key, tuple[str, int]] = {}
        self._changes: list[RepositoryChange] = []
        self._settings: dict[str, bytes] = {}
        self._tokens: dict[str, ReleaseToken] = {}
        self._used: dict[tuple[str, str], datetime] = {}

    def releases(self, namespace: str, skill: str) -> SkillReleases | None:
        key = namespace, skill
        with self._lock:
            if key not in self._versions:
                return None
            found = [one.release for one in self._versions[key].values()]
            published = {one.version for one in found if one.state == "published"}
            shown = self._shown(key)
            named = self._channels.get(key, {}).items()
            return SkillReleases(
                name=address_name(*key),
                namespace=namespace,
                skill=skill,
                description=shown.description,
                latest=newest_of(published),
                versions=tuple(
                    sorted(found, key=lambda one: version_key(one.version), reverse=True)
                ),
                license=shown.license,
                channels={name: version for name, version in named if version in published},
            )

    def add(self, new: NewRelease) -> None:
        key, release = (new.namespace, new.skill), new.release
        with self._lock:
            versions = self._versions.setdefault(key, {})
            if release.version in versions:
                known = versions[release.version].release
                raise version_exists(release.version, known.digest)
            versions[release.version] = new
            self._note("publish", key, release.version, release.published_at, new.actor)

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
        key = namespace, skill
        with self._lock:
            found = self._versions.get(key, {}).get(version)
            if found is None:
                raise unknown_version(skill, version)
            refuse_state(found.release.state, state, version)
            release = structs.replace(found.release, state=state, reason=reason)
            self._versions[key][version] = structs.replace(found, release=release)
            self._note(STATE_CHANGES[state], key, version, at, actor)
            return release

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
        key = namespace, skill
        with self._lock:
            found = self._versions.get(key, {}).get(version)
            if found is None or found.release.state != "published":
                raise unknown_version(skill, version)
            self._channels.setdefault(key, {})[channel] = version
            self._note("channel", key, version, at, actor)

    def similar(self, namespace: str, keys: Collection[str]) -> tuple[str, ...]:
        return tuple(
            sorted(skill for space, skill in self._versions
                   if space == namespace and name_key(skill) in keys)
        )  # fmt: skip

    def publishing_tokens(self, namespace: str, skill: str) -> frozenset[str]:
        name = address_name(namespace, skill)
        return frozenset(
            one.actor.token
            for one in self._changes
            if (one.kind, one.name) == ("publish", name) and one.actor.token
        )

    def archive(self, digest: str) -> Release | None:
        order = ("published", "yanked", "revoked")
        found = [one for one in self._every() if one.digest == digest]
        return min(found, key=lambda one: order.index(one.state), default=None)

    def is_revoked(self, digest: str, tree_digest: str) -> bool:
        return any(
            one.state == "revoked" and (one.digest == digest or one.tree_digest == tree_digest)
            for one in self._every()
        )

    def find(self, query: ListQuery) -> HostedSkills:
        limit = max(1, min(query.limit, PAGE_MAX))
        try:
            start = int(query.cursor or "0")
        except ValueError as error:
            raise HostingError("bad-request", "expected a cursor of an earlier page") from error
        words = re.findall(r"\w+", query.text.lower())
        rows = []
        for key in self._versions:
            shown, states = self._shown(key), self._states(key)
            text = f"{key[1].replace('-', ' ')} {shown.description}".lower()
            if query.text and not any(word in text for word in words):
                continue
            if states <= {"revoked"} or (words and "published" not in states):
                continue
            signature = shown.release.signature
            hosted = HostedSkill(
                name=address_name(*key),
                namespace=key[0],
                skill=key[1],
                description=shown.description,
                latest=newest_of(self._published(key)),
                license=shown.license,
                publisher=signature.publisher if signature else "",
                updated_at=self._updated[key][0],
            )
            rank = (
                -sum(word in text for word in words),
                name_key("".join(words)) != name_key(key[1]),
            )
            if not query.publisher or hosted.publisher == query.publisher:
                rows.append((hosted, rank, self._updated[key]))
        if query.sort == "updated":
            rows.sort(key=lambda row: row[2], reverse=True)
        elif words and query.sort != "name":
            rows.sort(key=lambda row: (row[1][1], row[1][0], row[0].name))
        else:
            rows.sort(key=lambda row: (row[0].skill, row[0].namespace))
        page = tuple(row[0] for row in rows[start : start + limit])
        is_more = len(rows) > start + limit
        return HostedSkills(skills=page, next_cursor=str(start + limit) if is_more else None)

    def newest(self, namespace: str, most: int) -> tuple[NewestRelease, ...]:
        found = []
        for key in sorted(self._versions):
            latest = newest_of(self._published(key))
            if key[0] == namespace and latest:
                one = self._versions[key][latest]
                found.append(
                    NewestRelease(skill=key[1], description=one.description, release=one.release)
                )
        return tuple(found[:most])

    def changes(self, since: int, most: int) -> tuple[RepositoryChange, ...]:
        return tuple([one for one in self._changes if one.seq > since][:most])

    def last_change(self) -> int:
        return len(self._changes)

    def skill_count(self) -> int:
        return len(self._versions)

    def setting(self, name: str) -> bytes | None:
        return self._settings.get(name)

    def set_setting(
        self,
        name: str,
        value: bytes,
        *,
        kind: ChangeKind | None = None,
        at: str = "",
        actor: Actor = NO_ACTOR,
    ) -> None:
        with self._lock:
            self._settings[name] = value
            if kind is not None:
                self._note(kind, None, "", at, actor)

    def add_token(self, token: ReleaseToken) -> None:
        self._tokens[token.id] = token

    def tokens(self) -> tuple[ReleaseToken, ...]:
        return tuple(self._tokens.values())

    def token(self, token_id: str) -> ReleaseToken | None:
        return self._tokens.get(token_id)

    def revoke_token(self, token_id: str, at: str) -> bool:
        found = self._tokens.get(token_id)
        if found is None or found.revoked_at:
            return False
        self._tokens[token_id] = structs.replace(found, revoked_at=at)
        return True

    def use_once(self, issuer: str, identifier: str, until: datetime, now: datetime) -> bool:
        with self._lock:
            self._used = {key: end for key, end in self._used.items() if end >= now}
            if (issuer, identifier) in self._used:
                return False
            self._used[issuer, identifier] = until
            return True

    def close(self) -> None:
        """Free nothing."""

    def _every(self) -> list[Release]:
        return [one.release for versions in self._versions.values() for one in versions.values()]

    def _states(self, key: Key) -> set[str]:
        return {one.release.state for one in self._versions[key].values()}

    def _published(self, key: Key) -> list[str]:
        versions = self._versions[key].items()
        return [version for version, one in versions if one.release.state == "published"]

    def _shown(self, key: Key) -> NewRelease:
        versions = self._versions[key]
        latest = newest_of(self._published(key))
        if latest:
            return versions[latest]
        best = min(map(("published", "yanked", "revoked").index, self._states(key)))
        state = ("published", "yanked", "revoked")[best]
        left = [version for version, one in versions.items() if one.release.state == state]
        return versions[max(left, key=version_key)]

    def _note(self, kind: ChangeKind, key: Key | None, version: str, at: str, actor: Actor) -> None:
        seq = len(self._changes) + 1
        name = address_name(*key) if key else ""
        self._changes.append(
            RepositoryChange(seq=seq, kind=kind, name=name, version=version, at=at, actor=actor)
        )
        if key:
            self._updated[key] = at, seq
