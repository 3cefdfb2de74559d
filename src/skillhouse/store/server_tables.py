"""Which servers share a state, and whose connections are alive: changed every few seconds.

On a server these tables are beside the others, and their changes do not count as commits. Where
the state is a file they are a file of their own, since each commit to it has every process read it
again. It may be thrown away: each server writes its part at its next beat.
"""

from __future__ import annotations

from skillhouse.store.people_tables import SERVER_LOGS, SERVER_TABLES
from skillhouse.store.store import Schema

SERVERS_FILE = "servers.sqlite3"
SERVERS = Schema(
    name="list of servers",
    mark=0x736B6853,  # "skhS"
    disposable=True,
    steps=(SERVER_TABLES, SERVER_LOGS),
)
