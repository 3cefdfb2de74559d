"""The engine of one machine: SQLite with a write-ahead log."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from skillhouse.extensions.registry.hosting.release_store import (
    NO_ACTOR,
    STATE_CHANGES,
    Actor,
    ChangeKind,
    HostedSkills,
    ListQuery,
    NewestRelease,
    NewRelease,
    ReleaseToken,
    RepositoryChange,
    refuse_state,
    unknown_version,
    utc_text,
    version_exists,
)
from skillhouse.extensions.registry.hosting.sqlite_schema import REPOSITORY_STORE
from skillhouse.extensions.registry.hosting.sqlite_search import (
    find_skills,
    index_missing,
    index_text,
)
from skillhouse.extensions.registry.hosting.version_order import newest_of, version_key
from skillhouse.floor import StateError, shaped
from skillhouse.floor.structs import asdict
from skillhouse.registry import LockedSignature, Release, SkillReleases, address_name, name_key
from skillhouse.registry.releases import State
from skillhouse.store import Store

DATABASE = "registry.sqlite3"
READERS_MAX = 8
"""Connections that are kept open for readers."""
_RELEASE = (
    "version, digest, tree_digest, size, files, published_at, media_type, state, reason, "
    "attestations, signature"
)
_TOKEN = "id, digest, scopes, note, created_at, expires_at, revoked_at, claims"  # noqa: S105


class SqliteReleases:
    """A `ReleaseStore` in one file."""

    def __init__(self, path: Path) -> None:
        """Open or make the file; StateError where it cannot be used."""
        self._path = path
        self._writer = Store(path, REPOSITORY_STORE)
        index_missing(self._writer)
        self._writing = threading.Lock()
        self._idle: list[Store] = []
        self._lending = threading.Lock()

    def close(self) -> None:
        with self._lending, self._writing:
            for one in (self._writer, *self._idle):
                one.close()
            self._idle = []

    def releases(self, namespace: str, skill: str) -> SkillReleases | None:
        with self._snapshot() as reader:
            found = _skill_row(reader, namespace, skill)
            if found is None:
                return None
            number, description, license_text, latest = found
            query = f"SELECT {_RELEASE} FROM version WHERE skill = ?"  # noqa: S608 - columns.
            versions = [_release(row) for row in reader.rows(query, (number,))]
            channels = reader.rows(
                "SELECT channel.name, channel.version FROM channel JOIN version ON "
                "version.skill = channel.skill AND version.version = channel.version "
                "WHERE channel.skill = ? AND version.state = 'published' ORDER BY channel.name",
                (number,),
            )
        versions.sort(key=lambda one: version_key(one.version), reverse=True)
        return SkillReleases(
            name=address_name(namespace, skill),
            namespace=namespace,
            skill=skill,
            description=description,
            latest=latest,
            versions=tuple(versions),
            license=license_text,
            channels=dict(channels),
        )

    def add(self, new: NewRelease) -> None:
        release = new.release
        with self._change() as connection:
            # INVARIANT: one transaction has the number, the row and the change: never half of it.
            connection.execute(
                "INSERT INTO skill (namespace, name, key) VALUES (?, ?, ?) "
                "ON CONFLICT (namespace, name) DO NOTHING",
                (new.namespace, new.skill, name_key(new.skill)),
            )
            number = _number(connection, new.namespace, new.skill)
            known = connection.execute(
                "SELECT digest FROM version WHERE skill = ? AND version = ?",
                (number, release.version),
            ).fetchone()
            if known is not None:
                raise version_exists(release.version, known[0])
            signature = "" if release.signature is None else json.dumps(asdict(release.signature))
            connection.execute(
                f"INSERT INTO version (skill, {_RELEASE}, description, license) "  # noqa: S608
                f"VALUES ({', '.join('?' * 14)})",
                (
                    number,
                    release.version,
                    release.digest,
                    release.tree_digest,
                    release.size,
                    release.files,
                    release.published_at,
                    release.media_type,
                    release.state,
                    release.reason,
                    " ".join(release.attestations),
                    signature,
                    new.description,
                    new.license,
                ),
            )
            _refresh(connection, number, release.published_at)
            name = address_name(new.namespace, new.skill)
            at = release.published_at
            _note(connection, "publish", name, release.version, at=at, actor=new.actor)

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
        name = address_name(namespace, skill)
        with self._change() as connection:
            number = _number(connection, namespace, skill)
            query = f"SELECT {_RELEASE} FROM version WHERE skill = ? AND version = ?"  # noqa: S608
            row = connection.execute(query, (number, version)).fetchone()
            if row is None:
                raise unknown_version(name, version)
            refuse_state(_release(row).state, state, version)
            connection.execute(
                "UPDATE version SET state = ?, reason = ? WHERE skill = ? AND version = ?",
                (state, reason, number, version),
            )
            _refresh(connection, number, at)
            _note(connection, STATE_CHANGES[state], name, version, at=at, actor=actor)
            return _release(connection.execute(query, (number, version)).fetchone())

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
        name = address_name(namespace, skill)
        with self._change() as connection:
            number = _number(connection, namespace, skill)
            query = "SELECT state FROM version WHERE skill = ? AND version = ?"
            if connection.execute(query, (number, version)).fetchone() != ("published",):
                raise unknown_version(name, version)
            connection.execute(
                "INSERT INTO channel VALUES (?, ?, ?) "
                "ON CONFLICT (skill, name) DO UPDATE SET version = excluded.version",
                (number, channel, version),
            )
            connection.execute("UPDATE skill SET updated_at = ? WHERE id = ?", (at, number))
            _note(connection, "channel", name, version, at=at, actor=actor)

    def similar(self, namespace: str, keys: Collection[str]) -> tuple[str, ...]:
        query = (
            "SELECT name FROM skill WHERE namespace = ? AND key IN (SELECT value FROM json_each(?))"
        )
        rows = self._rows(query, (namespace, json.dumps(sorted(keys))))
        return tuple(sorted(name for (name,) in rows))

    def publishing_tokens(self, namespace: str, skill: str) -> frozenset[str]:
        query = (
            "SELECT DISTINCT token FROM change WHERE kind = 'publish' AND name = ? AND token > ''"
        )
        rows = self._rows(query, (address_name(namespace, skill),))
        return frozenset(token for (token,) in rows)

    def archive(self, digest: str) -> Release | None:
        query = (
            f"SELECT {_RELEASE} FROM version WHERE digest = ? "  # noqa: S608
            "ORDER BY state = 'revoked', state = 'yanked', id LIMIT 1"
        )
        return next((_release(row) for row in self._rows(query, (digest,))), None)

    def is_revoked(self, digest: str, tree_digest: str) -> bool:
        query = (
            "SELECT 1 FROM version WHERE tree_digest = ? AND state = 'revoked' UNION ALL "
            "SELECT 1 FROM version WHERE digest = ? AND state = 'revoked' LIMIT 1"
        )
        return bool(self._rows(query, (tree_digest, digest)))

    def find(self, query: ListQuery) -> HostedSkills:
        with self._snapshot() as reader:
            return find_skills(reader, query)

    def newest(self, namespace: str, most: int) -> tuple[NewestRelease, ...]:
        columns = ", ".join(f"version.{name}" for name in _RELEASE.split(", "))
        query = (
            f"SELECT skill.name, skill.description, {columns} FROM skill "  # noqa: S608
            "JOIN version ON version.skill = skill.id AND version.version = skill.latest "
            "WHERE skill.namespace = ? ORDER BY skill.name LIMIT ?"
        )
        return tuple(
            NewestRelease(skill=name, description=description, release=_release(row))
            for name, description, *row in self._rows(query, (namespace, most))
        )

    def changes(self, since: int, most: int) -> tuple[RepositoryChange, ...]:
        query = (
            "SELECT seq, kind, name, version, at, token, claims, address FROM change "
            "WHERE seq > ? ORDER BY seq LIMIT ?"
        )
        return tuple(
            RepositoryChange(
                seq=seq, kind=kind, name=name, version=version, at=at, actor=Actor(*actor)
            )
            for seq, kind, name, version, at, *actor in self._rows(query, (since, most))
        )

    def last_change(self) -> int:
        ((number,),) = self._rows("SELECT coalesce(max(seq), 0) FROM change", ())
        return int(number)

    def skill_count(self) -> int:
        ((count,),) = self._rows("SELECT count(*) FROM skill", ())
        return int(count)

    def setting(self, name: str) -> bytes | None:
        rows = self._rows("SELECT value FROM setting WHERE name = ?", (name,))
        return rows[0][0] if rows else None

    def set_setting(
        self,
        name: str,
        value: bytes,
        *,
        kind: ChangeKind | None = None,
        at: str = "",
        actor: Actor = NO_ACTOR,
    ) -> None:
        with self._change() as connection:
            connection.execute(
                "INSERT INTO setting VALUES (?, ?) "
                "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                (name, value),
            )
            if kind is not None:
                _note(connection, kind, "", "", at=at, actor=actor)

    def add_token(self, token: ReleaseToken) -> None:
        with self._change() as connection:
            connection.execute(
                f"INSERT INTO token ({_TOKEN}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                (
                    token.id,
                    token.digest,
                    " ".join(token.scopes),
                    token.note,
                    token.created_at,
                    token.expires_at,
                    token.revoked_at,
                    token.claims,
                ),
            )

    def tokens(self) -> tuple[ReleaseToken, ...]:
        rows = self._rows(f"SELECT {_TOKEN} FROM token ORDER BY rowid", ())  # noqa: S608
        return tuple(map(_token, rows))

    def token(self, token_id: str) -> ReleaseToken | None:
        rows = self._rows(f"SELECT {_TOKEN} FROM token WHERE id = ?", (token_id,))  # noqa: S608
        return _token(rows[0]) if rows else None

    def revoke_token(self, token_id: str, at: str) -> bool:
        with self._change() as connection:
            done = connection.execute(
                "UPDATE token SET revoked_at = ? WHERE id = ? AND revoked_at = ''", (at, token_id)
            )
            return done.rowcount == 1

    def use_once(self, issuer: str, identifier: str, until: datetime, now: datetime) -> bool:
        with self._change() as connection:
            connection.execute("DELETE FROM used_once WHERE until < ?", (utc_text(now),))
            ended = utc_text(now - timedelta(days=7))
            connection.execute("DELETE FROM token WHERE claims > '' AND expires_at < ?", (ended,))
            done = connection.execute(
                "INSERT OR IGNORE INTO used_once VALUES (?, ?, ?)",
                (issuer, identifier, utc_text(until)),
            )
            return done.rowcount == 1

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        with self._writing, self._writer.transaction() as connection:
            yield connection

    @contextmanager
    def _reader(self) -> Iterator[Store]:
        with self._lending:
            found = self._idle.pop() if self._idle else None
        reader = found or Store(self._path, REPOSITORY_STORE)
        try:
            yield reader
        except StateError:
            reader.close()
            raise
        except BaseException:
            # A request that is refused; the reader is as it was.
            self._give_back(reader)
            raise
        self._give_back(reader)

    def _give_back(self, reader: Store) -> None:
        with self._lending:
            if len(self._idle) < READERS_MAX:
                self._idle.append(reader)
                return
        reader.close()

    @contextmanager
    def _snapshot(self) -> Iterator[Store]:
        """Give a reader whose queries see one state."""
        with self._reader() as reader:
            reader.rows("BEGIN")
            try:
                yield reader
            finally:
                reader.rows("COMMIT")

    def _rows(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        with self._reader() as reader:
            return reader.rows(query, values)


def _skill_row(reader: Store, namespace: str, skill: str) -> tuple[Any, ...] | None:
    query = "SELECT id, description, license, latest FROM skill WHERE namespace = ? AND name = ?"
    return next(iter(reader.rows(query, (namespace, skill))), None)


def _number(connection: sqlite3.Connection, namespace: str, skill: str) -> int:
    """Return the row of a skill; 0, which no row has, for an unknown one."""
    query = "SELECT id FROM skill WHERE namespace = ? AND name = ?"
    row = connection.execute(query, (namespace, skill)).fetchone()
    return 0 if row is None else int(row[0])


def _refresh(connection: sqlite3.Connection, number: int, at: str) -> None:
    """Recompute what a skill has of its versions."""
    states = dict(
        connection.execute("SELECT version, state FROM version WHERE skill = ?", (number,))
    )
    latest = newest_of(version for version, state in states.items() if state == "published")
    # A skill without such a version has the text of the newest that there is, pre-releases first.
    standings = {"published": 2, "yanked": 1, "revoked": 0}
    standing = max(standings[state] for state in states.values())
    best = [version for version, state in states.items() if standings[state] == standing]
    shown = latest or max(best, key=version_key)
    query = "SELECT description, license, signature FROM version WHERE skill = ? AND version = ?"
    description, license_text, signature = connection.execute(query, (number, shown)).fetchone()
    publisher = json.loads(signature)["publisher"] if signature else ""
    connection.execute(
        "UPDATE skill SET description = ?, license = ?, publisher = ?, latest = ?, standing = ?, "
        "updated_at = ? WHERE id = ?",
        (description, license_text, publisher, latest, standing, at, number),
    )
    index_text(connection, number)


def _note(
    connection: sqlite3.Connection,
    kind: ChangeKind,
    name: str,
    version: str,
    *,
    at: str,
    actor: Actor,
) -> None:
    connection.execute(
        "INSERT INTO change (kind, name, version, at, token, claims, address) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (kind, name, version, at, actor.token, actor.claims, actor.address),
    )


def _release(row: Any) -> Release:
    *_, attestations, signature = row
    version, digest, tree_digest, size, files, published_at, media_type, state, reason, *_ = row
    return Release(
        version=version,
        digest=digest,
        tree_digest=tree_digest,
        size=size,
        published_at=published_at,
        files=files,
        state=state,
        reason=reason,
        signature=shaped(json.loads(signature), LockedSignature) if signature else None,
        media_type=media_type,
        attestations=tuple(attestations.split()),
    )


def _token(row: tuple[Any, ...]) -> ReleaseToken:
    token_id, digest, scopes, note, created_at, expires_at, revoked_at, claims = row
    return ReleaseToken(
        id=token_id,
        digest=digest,
        scopes=tuple(scopes.split()),
        note=note,
        created_at=created_at,
        expires_at=expires_at,
        revoked_at=revoked_at,
        claims=claims,
    )
