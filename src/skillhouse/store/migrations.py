"""The schemas, as forward steps, and the one function that applies them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from skillhouse.floor import StateError, dataclass
from skillhouse.store.access_steps import ACCESS_STEPS, SEARCH_STEPS, USE_STEPS


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A schema as its first released version and the steps from there, each to the next version."""

    name: str
    mark: int
    """Kept in the file's header (SQLite, `application_id`): a file without it is not ours."""
    steps: tuple[str, ...]
    """Never edited once released: a change is a new step."""
    disposable: bool
    """Whether the file may be thrown away and made again when it is corrupt, foreign or newer."""
    base: tuple[str, ...] = ()
    """Statements that make the first released version in an empty file."""
    base_version: int = 0

    @property
    def version(self) -> int:
        return self.base_version + len(self.steps)


STATE_FILE = "state.sqlite3"

STATE = Schema(
    name="state",
    mark=0x736B6853,  # "skhS"
    disposable=False,
    # Version 0.1.0 wrote 24; smaller numbers were never released.
    base_version=24,
    base=(
        """
        CREATE TABLE trust (
            project TEXT NOT NULL,
            directory TEXT NOT NULL,
            tree_digest TEXT NOT NULL,
            trusted_at TEXT NOT NULL,
            PRIMARY KEY (project, directory)
        )
        """,
        """
        CREATE TABLE skill_setting (
            skill TEXT NOT NULL PRIMARY KEY,
            is_enabled INTEGER NOT NULL
        )
        """,
        """
        CREATE TABLE approval (
            id TEXT NOT NULL PRIMARY KEY,
            state TEXT NOT NULL,
            request TEXT NOT NULL,
            content_digest TEXT NOT NULL,
            session TEXT NOT NULL,
            user TEXT NOT NULL,
            tool TEXT NOT NULL,
            nonce TEXT NOT NULL,
            opened_ms INTEGER NOT NULL,
            expires_ms INTEGER NOT NULL,
            closed_ms INTEGER NOT NULL DEFAULT 0,
            answer TEXT NOT NULL DEFAULT '',
            answered_by TEXT NOT NULL DEFAULT '',
            answered_channel TEXT NOT NULL DEFAULT '',
            message TEXT NOT NULL DEFAULT '',
            is_delivered INTEGER NOT NULL DEFAULT 0
        )
        """,
        "CREATE INDEX approval_session ON approval (session, tool)",
        """
        CREATE TABLE lasting_grant (
            id TEXT NOT NULL PRIMARY KEY,
            action TEXT NOT NULL,
            pattern TEXT NOT NULL,
            place TEXT NOT NULL,
            skill_digest TEXT NOT NULL,
            user TEXT NOT NULL,
            agent TEXT NOT NULL,
            granted_ms INTEGER NOT NULL,
            expires_ms INTEGER NOT NULL,
            UNIQUE (action, pattern, place, skill_digest, user, agent)
        )
        """,
        """
        CREATE TABLE device (
            id TEXT NOT NULL PRIMARY KEY,
            name TEXT NOT NULL,
            user TEXT NOT NULL,
            secret TEXT NOT NULL,
            paired_ms INTEGER NOT NULL
        )
        """,
        """
        CREATE TABLE device_nonce (
            device TEXT NOT NULL,
            nonce TEXT NOT NULL,
            expires_ms INTEGER NOT NULL,
            PRIMARY KEY (device, nonce)
        )
        """,
        # What keys have spent: `spent` is a decimal integer of up to 256 bits.
        """
        CREATE TABLE sign_counter (
            account TEXT NOT NULL,
            currency TEXT NOT NULL,
            hour INTEGER NOT NULL,
            spent TEXT NOT NULL,
            PRIMARY KEY (account, currency, hour)
        )
        """,
        # The clocks of each keystore's last signature, so that a set clock shows.
        """
        CREATE TABLE sign_clock (
            store_id TEXT NOT NULL PRIMARY KEY,
            boot TEXT NOT NULL,
            anchor_wall_ms INTEGER NOT NULL,
            anchor_running_ms INTEGER NOT NULL,
            high_water_ms INTEGER NOT NULL
        )
        """,
        # Requests and approvals that were used; each is good for one signature.
        """
        CREATE TABLE sign_used (
            token TEXT NOT NULL PRIMARY KEY,
            until_ms INTEGER NOT NULL
        )
        """,
        """
        CREATE TABLE session_key (
            key_id TEXT NOT NULL PRIMARY KEY,
            name TEXT NOT NULL,
            created_ms INTEGER NOT NULL,
            expires_ms INTEGER NOT NULL,
            revoked_ms INTEGER,
            reason TEXT NOT NULL
        )
        """,
        """
        CREATE TABLE key_event (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            at_ms INTEGER NOT NULL,
            key_id TEXT NOT NULL,
            name TEXT NOT NULL,
            event TEXT NOT NULL,
            detail TEXT NOT NULL
        )
        """,
        # The tier policy. A use is held, begun, done or failed; `usd` is a decimal number.
        """
        CREATE TABLE tier_use (
            id TEXT NOT NULL PRIMARY KEY,
            tool TEXT NOT NULL,
            user TEXT NOT NULL,
            at_ms INTEGER NOT NULL,
            usd TEXT NOT NULL,
            state TEXT NOT NULL
        )
        """,
        "CREATE INDEX tier_use_by_tool ON tier_use (tool, at_ms)",
        # How often in a row a person said no.
        """
        CREATE TABLE tier_denial (
            tool TEXT NOT NULL,
            user TEXT NOT NULL,
            count INTEGER NOT NULL,
            at_ms INTEGER NOT NULL,
            PRIMARY KEY (tool, user)
        )
        """,
        """
        CREATE TABLE tier_sign_failure (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            at_ms INTEGER NOT NULL
        )
        """,
        # A row means that everything is stopped.
        """
        CREATE TABLE tier_stop (
            id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
            at_ms INTEGER NOT NULL,
            by TEXT NOT NULL,
            reason TEXT NOT NULL
        )
        """,
        """
        CREATE TABLE tier_mark (
            name TEXT NOT NULL PRIMARY KEY,
            at_ms INTEGER NOT NULL
        )
        """,
        """
        CREATE TABLE tier_clock (
            id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
            boot TEXT NOT NULL,
            anchor_ms INTEGER NOT NULL,
            running_ms INTEGER NOT NULL,
            now_ms INTEGER NOT NULL
        )
        """,
        # What was written into other clients' folders, in our own format.
        "CREATE TABLE export (target TEXT NOT NULL PRIMARY KEY, record BLOB NOT NULL)",
        """
        CREATE TABLE client_entry (
            file TEXT NOT NULL,
            name TEXT NOT NULL,
            record BLOB NOT NULL,
            PRIMARY KEY (file, name)
        )
        """,
    ),
    steps=(
        # Which paired device gave an answer or a standing approval; empty when none did.
        "ALTER TABLE approval ADD COLUMN device TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE approval ADD COLUMN device_name TEXT NOT NULL DEFAULT ''",
        # A device's standing approval is a row of its own, so that unpairing ends no other.
        """
        CREATE TABLE lasting_grant_of_device (
            id TEXT NOT NULL PRIMARY KEY,
            action TEXT NOT NULL,
            pattern TEXT NOT NULL,
            place TEXT NOT NULL,
            skill_digest TEXT NOT NULL,
            user TEXT NOT NULL,
            agent TEXT NOT NULL,
            granted_ms INTEGER NOT NULL,
            expires_ms INTEGER NOT NULL,
            device TEXT NOT NULL DEFAULT '',
            device_name TEXT NOT NULL DEFAULT '',
            UNIQUE (action, pattern, place, skill_digest, user, agent, device)
        )
        """,
        """
        INSERT INTO lasting_grant_of_device (id, action, pattern, place, skill_digest, user, agent,
            granted_ms, expires_ms)
        SELECT id, action, pattern, place, skill_digest, user, agent, granted_ms, expires_ms
        FROM lasting_grant
        """,
        "DROP TABLE lasting_grant",
        "ALTER TABLE lasting_grant_of_device RENAME TO lasting_grant",
        # One-time tokens for `approvals approve --yes --token`: a keyed digest, never the token.
        """
        CREATE TABLE approval_token (
            approval TEXT NOT NULL PRIMARY KEY,
            digest TEXT NOT NULL,
            user TEXT NOT NULL,
            device TEXT NOT NULL,
            device_name TEXT NOT NULL,
            expires_ms INTEGER NOT NULL,
            tries INTEGER NOT NULL DEFAULT 0
        )
        """,
        # Scripts that rules may run while they are the bytes that a person approved.
        """
        CREATE TABLE approved_script (
            workspace TEXT NOT NULL,
            path TEXT NOT NULL,
            digest TEXT NOT NULL,
            user TEXT NOT NULL,
            agent TEXT NOT NULL,
            device TEXT NOT NULL,
            id TEXT NOT NULL,
            approved_ms INTEGER NOT NULL,
            PRIMARY KEY (workspace, path, user, agent)
        )
        """,
        # What the command line says once.
        "CREATE TABLE notice (name TEXT NOT NULL PRIMARY KEY, text TEXT NOT NULL)",
        # Older standing approvals covered more than was shown. One of a written file covered all
        # that is below its directory: it becomes one of the directory alone, or ends where that is
        # the top of its workspace, or not known to be below it. One of a file that was read covered
        # secrets next to it, and ends. One of a command covered any arguments, and ends: what it
        # may cover now is said by the grammar of its program.
        """
        INSERT INTO notice (name, text)
        SELECT 'standing-approvals', 'older standing approvals covered more than was shown: '
            || sum(is_kept) || ' narrowed, ' || sum(1 - is_kept) || ' ended'
        FROM (
            SELECT action = 'write' AND place <> '' AND pattern LIKE '%_/*'
                AND substr(pattern, 1, length(place) + 1) = place || '/'
                AND length(pattern) > length(place) + 2 AS is_kept
            FROM lasting_grant WHERE action IN ('exec', 'read', 'write', 'list')
        )
        HAVING count(*) > 0
        """,
        """
        DELETE FROM lasting_grant WHERE action IN ('exec', 'read', 'list') OR action = 'write'
            AND NOT (place <> '' AND pattern LIKE '%_/*'
                AND substr(pattern, 1, length(place) + 1) = place || '/'
                AND length(pattern) > length(place) + 2)
        """,
        """
        UPDATE lasting_grant SET pattern = substr(pattern, 1, length(pattern) - 1)
        WHERE action = 'write'
        """,
        # An open question would still write the wider one.
        """
        UPDATE approval SET request = json_set(
            request, '$.patterns', json('[]'), '$.always', json('[]')
        )
        WHERE state IN ('open', 'approved')
        """,
        # The question that a used approval is kept for, until that is answered.
        "ALTER TABLE approval ADD COLUMN waits_for TEXT NOT NULL DEFAULT ''",
        *ACCESS_STEPS,
        *SEARCH_STEPS,
        *USE_STEPS,
    ),
)

CACHE = Schema(
    name="cache",
    mark=0x736B6843,  # "skhC"
    disposable=True,
    steps=(
        """
        CREATE TABLE snapshot (
            root TEXT NOT NULL PRIMARY KEY,
            observed BLOB NOT NULL,
            entries BLOB NOT NULL
        )
        """,
    ),
)


def migrate(connection: sqlite3.Connection, schema: Schema, path: Path) -> None:
    """Bring a database to the newest version of `schema`, all steps in one transaction.

    StateError: a newer program wrote the file, or it is not ours; nothing was changed.
    """
    # One snapshot: a version read before another's commit and tables read after it would make
    # our own new file look like a foreign one.
    with _held(connection, "DEFERRED"):
        version = _version(connection, schema, path)
    if version == schema.version:
        return
    with immediate(connection):
        # Another process may have migrated while we waited for the lock.
        version = _version(connection, schema, path)
        if version < schema.base_version:
            for statement in schema.base:
                connection.execute(statement)
            version = schema.base_version
        for step in schema.steps[version - schema.base_version :]:
            connection.execute(step)
        connection.execute(f"PRAGMA application_id = {schema.mark}")
        connection.execute(f"PRAGMA user_version = {schema.version}")


def immediate(connection: sqlite3.Connection) -> AbstractContextManager[None]:
    """Hold the write lock for a block, which is committed, or rolled back after an error."""
    return _held(connection, "IMMEDIATE")


@contextmanager
def _held(connection: sqlite3.Connection, kind: str) -> Iterator[None]:
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite may have ended the transaction already (a full disk, an I/O error).
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection, schema: Schema, path: Path) -> int:
    """Return the file's version; an empty file has 0."""
    version = _number(connection, "PRAGMA user_version")
    mark = _number(connection, "PRAGMA application_id")
    if mark != schema.mark and (
        mark or version or _number(connection, "SELECT count(*) FROM sqlite_master")
    ):
        raise StateError(f"expected a {schema.name} of skillhouse, got another database", path)
    if version > schema.version:
        raise StateError(
            f"the {schema.name} has version {version}, this program knows "
            f"{schema.version}: use a newer skillhouse",
            path,
        )
    if 0 < version < schema.base_version:
        raise StateError(
            f"the {schema.name} has version {version}, which no release wrote: move it aside", path
        )
    return version


def _number(connection: sqlite3.Connection, query: str) -> int:
    return int(connection.execute(query).fetchone()[0])
