"""Which servers share a state, and whose connections are alive: changed every few seconds.

Where the state is a file these tables are a file of their own, since a commit to the state has every
process read it again. They may be thrown away: each server writes its part at its next beat.
"""

from __future__ import annotations

from skillhouse.store.store import Schema

SERVERS_FILE = "servers.sqlite3"
SERVER_TABLES = (
    """
    CREATE TABLE server (
        id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, address TEXT NOT NULL,
        version TEXT NOT NULL, began_ms BIGINT NOT NULL, beat_ms BIGINT NOT NULL,
        state TEXT NOT NULL, token_digest TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE server_connection (
        digest TEXT NOT NULL PRIMARY KEY, server TEXT NOT NULL
    )
    """,
)
SERVERS = Schema(
    name="list of servers",
    mark=0x736B6853,  # "skhS"
    disposable=True,
    steps=(SERVER_TABLES,),
)
