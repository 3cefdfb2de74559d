"""Keeps state durably."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.store.server_tables import SERVERS as SERVERS
    from skillhouse.store.server_tables import SERVERS_FILE as SERVERS_FILE
    from skillhouse.store.state_schema import STATE as STATE
    from skillhouse.store.state_schema import STATE_FILE as STATE_FILE
    from skillhouse.store.store import CACHE as CACHE
    from skillhouse.store.store import Schema as Schema
    from skillhouse.store.store import Store as Store
    from skillhouse.store.store import close_pooled as close_pooled
    from skillhouse.store.store import commit_stamp as commit_stamp
    from skillhouse.store.store import migrate as migrate
    from skillhouse.store.store import pooled as pooled
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
