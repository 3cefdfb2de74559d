"""Brings skills of other servers into a verified cache.

Each name is loaded when it is first used, because most commands fetch nothing.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.remote.cache_sync import CURRENT as CURRENT
    from skillhouse.remote.cache_sync import SKILLS as SKILLS
    from skillhouse.remote.cache_sync import VERSIONS as VERSIONS
    from skillhouse.remote.cache_sync import Fetch as Fetch
    from skillhouse.remote.cache_sync import Fetched as Fetched
    from skillhouse.remote.cache_sync import SyncReport as SyncReport
    from skillhouse.remote.cache_sync import cache_fault as cache_fault
    from skillhouse.remote.cache_sync import cached as cached
    from skillhouse.remote.cache_sync import fetch_listing as fetch_listing
    from skillhouse.remote.cache_sync import fetch_skill as fetch_skill
    from skillhouse.remote.cache_sync import place_of as place_of
    from skillhouse.remote.cache_sync import skills_place as skills_place
    from skillhouse.remote.cache_sync import sync as sync
    from skillhouse.remote.mcp_entry import McpServer as McpServer
    from skillhouse.remote.mcp_entry import VerificationError as VerificationError
    from skillhouse.remote.mcp_host import McpCache as McpCache
    from skillhouse.remote.mcp_host import McpHost as McpHost
    from skillhouse.remote.mcp_host import McpReport as McpReport
    from skillhouse.remote.mcp_source import Dial as Dial
    from skillhouse.remote.mcp_source import Peer as Peer
    from skillhouse.remote.mcp_source import connected as connected
    from skillhouse.remote.mcp_source import read_members as read_members
    from skillhouse.remote.mcp_source import read_offer as read_offer
    from skillhouse.remote.mcp_source import server_identity as server_identity
    from skillhouse.remote.object_store import ObjectStore as ObjectStore
    from skillhouse.remote.object_store import StoreAccess as StoreAccess
    from skillhouse.remote.object_store import StoredObject as StoredObject
    from skillhouse.remote.object_store import open_store as open_store
    from skillhouse.remote.source import RemoteError as RemoteError
    from skillhouse.remote.source import RemoteSource as RemoteSource
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
