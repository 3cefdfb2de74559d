"""The state's schema: what version 0.1.0 wrote, and the steps of the versions since."""

from __future__ import annotations

from skillhouse.store.people_tables import (
    APPS,
    CHATS,
    HEADS,
    PUBLISHERS,
    SERVER_TABLES,
    SHARED,
    TASKS,
)
from skillhouse.store.store import Schema

STATE_FILE = "state.sqlite3"


def _made_again(table: str, columns: str, values: str) -> tuple[str, ...]:
    """Make a table once more, with these columns, from the values of the old ones in order."""
    # Not by RENAME: with 25 tables each takes a millisecond, in every new state too.
    return (
        f"CREATE TABLE old_values AS SELECT {values} FROM {table} ORDER BY rowid",  # noqa: S608 - ours.
        f"DROP TABLE {table}",
        f"CREATE TABLE {table} ({columns})",
        f"INSERT INTO {table} SELECT * FROM old_values ORDER BY rowid",  # noqa: S608 - ours.
        "DROP TABLE old_values",
    )


_SEQ = "seq INTEGER PRIMARY KEY AUTOINCREMENT"

# A bare `user` is the role to PostgreSQL, and its tables have no row ids. These statements are for
# SQLite alone: another database is made with the schema that they end in.
_PORTABLE = (
    *_made_again(
        "approval",
        f"""{_SEQ}, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL, request TEXT NOT NULL,
        content_digest TEXT NOT NULL, session TEXT NOT NULL, user_name TEXT NOT NULL,
        tool TEXT NOT NULL, nonce TEXT NOT NULL, opened_ms INTEGER NOT NULL,
        expires_ms INTEGER NOT NULL, closed_ms INTEGER NOT NULL DEFAULT 0,
        answer TEXT NOT NULL DEFAULT '', answered_by TEXT NOT NULL DEFAULT '',
        answered_channel TEXT NOT NULL DEFAULT '', message TEXT NOT NULL DEFAULT '',
        is_delivered INTEGER NOT NULL DEFAULT 0, device TEXT NOT NULL DEFAULT '',
        device_name TEXT NOT NULL DEFAULT '', waits_for TEXT NOT NULL DEFAULT '',
        is_cleared INTEGER NOT NULL DEFAULT 0""",
        """rowid, id, state, request, content_digest, session, user, tool, nonce, opened_ms,
        expires_ms, closed_ms, answer, answered_by, answered_channel, message, is_delivered, device,
        device_name, waits_for, 0""",
    ),
    "CREATE INDEX approval_session ON approval (session, tool)",
    *_made_again(
        "lasting_grant",
        f"""{_SEQ}, id TEXT NOT NULL UNIQUE, action TEXT NOT NULL, pattern TEXT NOT NULL,
        place TEXT NOT NULL, skill_digest TEXT NOT NULL, user_name TEXT NOT NULL,
        agent TEXT NOT NULL, granted_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL,
        device TEXT NOT NULL DEFAULT '', device_name TEXT NOT NULL DEFAULT '',
        UNIQUE (action, pattern, place, skill_digest, user_name, agent, device)""",
        """rowid, id, action, pattern, place, skill_digest, user, agent, granted_ms, expires_ms,
        device, device_name""",
    ),
    *_made_again(
        "device",
        f"""{_SEQ}, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, user_name TEXT NOT NULL,
        secret TEXT NOT NULL, paired_ms INTEGER NOT NULL""",
        "rowid, id, name, user, secret, paired_ms",
    ),
    *_made_again(
        "approved_script",
        f"""{_SEQ}, workspace TEXT NOT NULL, path TEXT NOT NULL, digest TEXT NOT NULL,
        user_name TEXT NOT NULL, agent TEXT NOT NULL, device TEXT NOT NULL, id TEXT NOT NULL,
        approved_ms INTEGER NOT NULL, UNIQUE (workspace, path, user_name, agent)""",
        "rowid, workspace, path, digest, user, agent, device, id, approved_ms",
    ),
    *_made_again(
        "session_key",
        f"""{_SEQ}, key_id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, created_ms INTEGER NOT NULL,
        expires_ms INTEGER NOT NULL, revoked_ms INTEGER, reason TEXT NOT NULL""",
        "rowid, key_id, name, created_ms, expires_ms, revoked_ms, reason",
    ),
    *_made_again(
        "access_token",
        f"""{_SEQ}, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, kind TEXT NOT NULL,
        user_name TEXT NOT NULL, agent TEXT NOT NULL, scopes TEXT NOT NULL,
        digest TEXT NOT NULL, created_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL,
        used_ms INTEGER NOT NULL DEFAULT 0""",
        "rowid, id, name, kind, user, agent, scopes, digest, created_ms, expires_ms, used_ms",
    ),
    *_made_again(
        "approval_token",
        """approval TEXT NOT NULL PRIMARY KEY, digest TEXT NOT NULL, user_name TEXT NOT NULL,
        device TEXT NOT NULL, device_name TEXT NOT NULL, expires_ms INTEGER NOT NULL,
        tries INTEGER NOT NULL DEFAULT 0""",
        "approval, digest, user, device, device_name, expires_ms, tries",
    ),
    *_made_again(
        "tier_use",
        """id TEXT NOT NULL PRIMARY KEY, tool TEXT NOT NULL, user_name TEXT NOT NULL,
        at_ms INTEGER NOT NULL, usd TEXT NOT NULL, state TEXT NOT NULL""",
        "id, tool, user, at_ms, usd, state",
    ),
    "CREATE INDEX tier_use_by_tool ON tier_use (tool, at_ms)",
    *_made_again(
        "tier_denial",
        """tool TEXT NOT NULL, user_name TEXT NOT NULL, count INTEGER NOT NULL,
        at_ms INTEGER NOT NULL, PRIMARY KEY (tool, user_name)""",
        "tool, user, count, at_ms",
    ),
    *_made_again(
        "search_choice",
        f"{_SEQ}, user_name TEXT NOT NULL, file TEXT NOT NULL, words TEXT NOT NULL, "
        "at_ms INTEGER NOT NULL",
        "seq, user, file, words, at_ms",
    ),
    "CREATE INDEX search_choice_of ON search_choice (user_name, file, at_ms)",
)

STATE = Schema(
    name="state",
    mark=0x736B6853,  # "skhS"
    disposable=False,
    is_secret=True,
    # While it was made, version 0.1.0 wrote 24 to 43; smaller numbers were never released.
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
            id TEXT NOT NULL PRIMARY KEY, action TEXT NOT NULL, pattern TEXT NOT NULL,
            place TEXT NOT NULL, skill_digest TEXT NOT NULL, user TEXT NOT NULL,
            agent TEXT NOT NULL, granted_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL,
            device TEXT NOT NULL DEFAULT '', device_name TEXT NOT NULL DEFAULT '',
            UNIQUE (action, pattern, place, skill_digest, user, agent, device)
        )
        """,
        """
        INSERT INTO lasting_grant_of_device
        (id, action, pattern, place, skill_digest, user, agent, granted_ms, expires_ms)
        SELECT id, action, pattern, place, skill_digest, user, agent, granted_ms, expires_ms
        FROM lasting_grant
        """,
        "DROP TABLE lasting_grant",
        "ALTER TABLE lasting_grant_of_device RENAME TO lasting_grant",
        # One-time tokens for `approvals approve --yes --token`: a keyed digest, never the token.
        """
        CREATE TABLE approval_token (
            approval TEXT NOT NULL PRIMARY KEY, digest TEXT NOT NULL, user TEXT NOT NULL,
            device TEXT NOT NULL, device_name TEXT NOT NULL, expires_ms INTEGER NOT NULL,
            tries INTEGER NOT NULL DEFAULT 0
        )
        """,
        # Scripts that rules may run while they are the bytes that a person approved.
        """
        CREATE TABLE approved_script (
            workspace TEXT NOT NULL, path TEXT NOT NULL, digest TEXT NOT NULL, user TEXT NOT NULL,
            agent TEXT NOT NULL, device TEXT NOT NULL, id TEXT NOT NULL,
            approved_ms INTEGER NOT NULL, PRIMARY KEY (workspace, path, user, agent)
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
        UPDATE approval
        SET request = json_set(request, '$.patterns', json('[]'), '$.always', json('[]'))
        WHERE state IN ('open', 'approved')
        """,
        # The question that a used approval is kept for, until that is answered.
        "ALTER TABLE approval ADD COLUMN waits_for TEXT NOT NULL DEFAULT ''",
        # Named tokens and browsers: a digest, never the token.
        """
        CREATE TABLE access_token (
            id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, kind TEXT NOT NULL,
            user TEXT NOT NULL, agent TEXT NOT NULL, scopes TEXT NOT NULL, digest TEXT NOT NULL,
            created_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL
        )
        """,
        # Calls with an Idempotency-Key; one without an answer runs, or its process ended before.
        """
        CREATE TABLE call_key (
            access TEXT NOT NULL,
            key TEXT NOT NULL,
            request TEXT NOT NULL,
            process TEXT NOT NULL,
            answer TEXT NOT NULL DEFAULT '',
            opened_ms INTEGER NOT NULL,
            PRIMARY KEY (access, key)
        )
        """,
        # Skills that agents loaded after a search, where `[search] learn` is on.
        """
        CREATE TABLE search_choice (
            seq INTEGER PRIMARY KEY AUTOINCREMENT, user TEXT NOT NULL, file TEXT NOT NULL,
            words TEXT NOT NULL, at_ms INTEGER NOT NULL
        )
        """,
        "CREATE INDEX search_choice_of ON search_choice (user, file, at_ms)",
        # When a token or browser was used last, to a few minutes; 0 for never.
        "ALTER TABLE access_token ADD COLUMN used_ms INTEGER NOT NULL DEFAULT 0",
        # Names and order that every database reads alike (decision record 0362).
        _PORTABLE,
        # A script keeps the approvals of its earlier bytes (decision record 0388).
        _made_again(
            "approved_script",
            f"""{_SEQ}, workspace TEXT NOT NULL, path TEXT NOT NULL, digest TEXT NOT NULL,
            user_name TEXT NOT NULL, agent TEXT NOT NULL, device TEXT NOT NULL, id TEXT NOT NULL,
            approved_ms INTEGER NOT NULL, UNIQUE (workspace, path, user_name, agent, digest)""",
            "seq, workspace, path, digest, user_name, agent, device, id, approved_ms",
        ),
        # Skills that a person linked from git work trees, as they were first seen (record 0399).
        """
        CREATE TABLE linked_skill (
            directory TEXT NOT NULL PRIMARY KEY, tree_digest TEXT NOT NULL, name TEXT NOT NULL,
            description TEXT NOT NULL, seen_at TEXT NOT NULL
        )
        """,
        # What a person saw of a trusted directory, as JSON; empty where only its digest is known
        # (decision record 0402).
        "ALTER TABLE trust ADD COLUMN shown TEXT NOT NULL DEFAULT ''",
        # Several texts, as clients read one file in several ways (decision record 0407).
        "UPDATE trust SET shown = '[' || shown || ']' WHERE shown <> ''",
        # With what the pages prove that a form is theirs; a key, so this file is private.
        "CREATE TABLE page_key (name TEXT NOT NULL PRIMARY KEY, secret TEXT NOT NULL)",
        CHATS,
        APPS,
        PUBLISHERS,
        TASKS,
        HEADS,
        SERVER_TABLES,
        SHARED,
    ),
)
