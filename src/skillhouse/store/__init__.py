"""Keeps state durably."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.store.people_tables import SERVERS as SERVERS
    from skillhouse.store.people_tables import SERVERS_FILE as SERVERS_FILE
    from skillhouse.store.state_backup import copy_file as copy_file
    from skillhouse.store.state_backup import table_counts as table_counts
    from skillhouse.store.state_place import StateConflictError as StateConflictError
    from skillhouse.store.state_place import StateConnection as StateConnection
    from skillhouse.store.state_place import StateServer as StateServer
    from skillhouse.store.state_place import StateStore as StateStore
    from skillhouse.store.state_place import forget_state as forget_state
    from skillhouse.store.state_place import serve_every_state as serve_every_state
    from skillhouse.store.state_place import serve_state as serve_state
    from skillhouse.store.state_place import state_clock as state_clock
    from skillhouse.store.state_place import state_exists as state_exists
    from skillhouse.store.state_place import state_server as state_server
    from skillhouse.store.state_schema import STATE as STATE
    from skillhouse.store.state_schema import STATE_FILE as STATE_FILE
    from skillhouse.store.store import CACHE as CACHE
    from skillhouse.store.store import MOVED_MARK as MOVED_MARK
    from skillhouse.store.store import Schema as Schema
    from skillhouse.store.store import Store as Store
    from skillhouse.store.store import close_pooled as close_pooled
    from skillhouse.store.store import commit_stamp as commit_stamp
    from skillhouse.store.store import migrate as migrate
    from skillhouse.store.store import pooled as pooled
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
