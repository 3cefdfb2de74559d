"""The tables of the state's later steps: chats with a bot, apps on phones, what was learned of
publishers and repositories, calls that clients poll for, and which servers share a state."""

from __future__ import annotations

from skillhouse.store.store import Schema

_SEQ = "seq INTEGER PRIMARY KEY AUTOINCREMENT"

CHATS = (
    f"""
    CREATE TABLE channel_message (
        {_SEQ}, channel TEXT NOT NULL, key TEXT NOT NULL, chat TEXT NOT NULL,
        sender TEXT NOT NULL, content TEXT NOT NULL, state TEXT NOT NULL,
        at_ms INTEGER NOT NULL, UNIQUE (channel, key)
    )
    """,
    "CREATE INDEX channel_message_of ON channel_message (channel, chat, sender, state)",
    f"""
    CREATE TABLE channel_answer ({_SEQ}, channel TEXT NOT NULL, chat TEXT NOT NULL,
        content TEXT NOT NULL, state TEXT NOT NULL, at_ms INTEGER NOT NULL)
    """,
    """
    CREATE TABLE channel_session (channel TEXT NOT NULL, chat TEXT NOT NULL,
        sender TEXT NOT NULL, transcript TEXT NOT NULL, answered_ms INTEGER NOT NULL,
        PRIMARY KEY (channel, chat, sender))
    """,
)
"""What people write to a bot, what it answers, and whose conversations there are (0494)."""

APPS = (
    "ALTER TABLE device ADD COLUMN public_key TEXT NOT NULL DEFAULT ''",
    """
    CREATE TABLE pairing_code (name TEXT NOT NULL PRIMARY KEY, digest TEXT NOT NULL,
        device_name TEXT NOT NULL, user_name TEXT NOT NULL, expires_ms INTEGER NOT NULL,
        tries INTEGER NOT NULL)
    """,
    """
    CREATE TABLE push_subscription (device TEXT NOT NULL PRIMARY KEY,
        endpoint TEXT NOT NULL, public_key TEXT NOT NULL, secret TEXT NOT NULL,
        failures INTEGER NOT NULL, next_ms INTEGER NOT NULL)
    """,
)
"""Apps with a key pair, the codes that pair them, and where their pushes go (0497)."""

PUBLISHERS = (
    f"""
    CREATE TABLE verified_tree ({_SEQ}, home TEXT NOT NULL, tree_digest TEXT NOT NULL,
        signature TEXT NOT NULL, at_ms INTEGER NOT NULL,
        UNIQUE (home, tree_digest, signature))
    """,
    f"""
    CREATE TABLE takedown ({_SEQ}, repository TEXT NOT NULL, skill TEXT NOT NULL,
        version TEXT NOT NULL, digest TEXT NOT NULL, tree_digest TEXT NOT NULL,
        reason TEXT NOT NULL, signed INTEGER NOT NULL, at_ms INTEGER NOT NULL,
        UNIQUE (repository, digest))
    """,
    "CREATE INDEX takedown_of_tree ON takedown (repository, tree_digest)",
    """
    CREATE TABLE repository_look (repository TEXT NOT NULL PRIMARY KEY, url TEXT NOT NULL,
        asked_ms INTEGER NOT NULL, next_ms INTEGER NOT NULL, failures INTEGER NOT NULL,
        problem TEXT NOT NULL)
    """,
)
"""When this machine verified a tree, what repositories took down, and when they were asked (0507,
0508)."""

HEADS = """
    CREATE TABLE audit_head (log_name TEXT NOT NULL, seq INTEGER NOT NULL, server TEXT NOT NULL,
        record_hash TEXT NOT NULL, seal TEXT NOT NULL, at_ms INTEGER NOT NULL,
        PRIMARY KEY (log_name, seq))
"""
"""Records of the logs of servers, which the logs have to fit (0541)."""

TASKS = f"""
    CREATE TABLE call_task ({_SEQ}, digest TEXT NOT NULL UNIQUE, agent TEXT NOT NULL,
        user_name TEXT NOT NULL, channel TEXT NOT NULL, client TEXT NOT NULL,
        connection TEXT NOT NULL, tool TEXT NOT NULL, arguments TEXT NOT NULL,
        state TEXT NOT NULL, approval TEXT NOT NULL, outcome TEXT NOT NULL,
        runner TEXT NOT NULL, opened_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL)
"""
"""Calls that clients of MCP poll for: a digest, never the id (0519)."""

SERVER_TABLES = (
    """
    CREATE TABLE server (
        id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, address TEXT NOT NULL,
        version TEXT NOT NULL, began_ms INTEGER NOT NULL, beat_ms INTEGER NOT NULL,
        state TEXT NOT NULL, token_digest TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE server_connection (
        digest TEXT NOT NULL PRIMARY KEY, server TEXT NOT NULL
    )
    """,
)
"""Which servers share a state, and whose connections are alive (0549)."""

_SHARED = (
    """
    CREATE TABLE stop_given (id TEXT NOT NULL PRIMARY KEY, at_ms INTEGER NOT NULL,
        by TEXT NOT NULL, reason TEXT NOT NULL, lifted_ms INTEGER NOT NULL DEFAULT 0)
    """,
    f"""
    CREATE TABLE session_grant ({_SEQ}, id TEXT NOT NULL UNIQUE, session TEXT NOT NULL,
        action TEXT NOT NULL, pattern TEXT NOT NULL, place TEXT NOT NULL,
        skill_digest TEXT NOT NULL, user_name TEXT NOT NULL, agent TEXT NOT NULL,
        granted_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL, device TEXT NOT NULL,
        device_name TEXT NOT NULL, UNIQUE (session, action, pattern, place, skill_digest, device))
    """,
    """
    CREATE TABLE session_mark (session TEXT NOT NULL, file TEXT NOT NULL, request TEXT NOT NULL,
        expires_ms INTEGER NOT NULL, PRIMARY KEY (session, file))
    """,
    """
    CREATE TABLE log_key (log_name TEXT NOT NULL PRIMARY KEY, server TEXT NOT NULL,
        public_key TEXT NOT NULL, at_ms INTEGER NOT NULL)
    """,
    """
    CREATE TABLE log_request (id TEXT NOT NULL PRIMARY KEY, question TEXT NOT NULL,
        asked_ms INTEGER NOT NULL)
    """,
    """
    CREATE TABLE log_answer (request TEXT NOT NULL, log_name TEXT NOT NULL, body TEXT NOT NULL,
        signature TEXT NOT NULL, at_ms INTEGER NOT NULL, PRIMARY KEY (request, log_name))
    """,
)
SERVER_LOGS = (
    "ALTER TABLE server ADD COLUMN log_name TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE server ADD COLUMN skew_ms INTEGER NOT NULL DEFAULT 0",
)
"""Which log a server writes, and by how much its clock is before that of the state (0571)."""
SHARED = (*_SHARED, *SERVER_LOGS)
"""Stops by their identity, session approvals of several servers, and what servers ask each other of
their logs (0571 to 0573)."""

SERVERS_FILE = "servers.sqlite3"
SERVERS = Schema(
    name="list of servers",
    mark=0x736B6853,  # "skhS"
    disposable=True,
    steps=(SERVER_TABLES, SERVER_LOGS),
)
"""A file of its own where the state is a file, since each commit to that has every process read it
again; on a server these tables are beside the others, and their changes do not count as commits. It
may be thrown away: each server writes its part at its next beat."""
