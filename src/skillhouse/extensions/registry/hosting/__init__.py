"""Hosts packages: what `registry serve` keeps and checks, without HTTP.

Each name is loaded when it is first used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.extensions.registry.hosting.access_tokens import TokenAccess as TokenAccess
    from skillhouse.extensions.registry.hosting.access_tokens import access_of as access_of
    from skillhouse.extensions.registry.hosting.access_tokens import checked_scope as checked_scope
    from skillhouse.extensions.registry.hosting.access_tokens import new_token as new_token
    from skillhouse.extensions.registry.hosting.hosted_repository import DIRECTORY as DIRECTORY
    from skillhouse.extensions.registry.hosting.hosted_repository import Address as Address
    from skillhouse.extensions.registry.hosting.hosted_repository import (
        HostedRepository as HostedRepository,
    )
    from skillhouse.extensions.registry.hosting.hosted_repository import (
        checked_address as checked_address,
    )
    from skillhouse.extensions.registry.hosting.hosted_repository import (
        open_repository as open_repository,
    )
    from skillhouse.extensions.registry.hosting.release_store import PAGE_MAX as PAGE_MAX
    from skillhouse.extensions.registry.hosting.release_store import ListQuery as ListQuery
    from skillhouse.extensions.registry.hosting.release_store import ReleaseStore as ReleaseStore
    from skillhouse.extensions.registry.hosting.release_store import ReleaseToken as ReleaseToken
    from skillhouse.extensions.registry.hosting.release_store import utc_text as utc_text
    from skillhouse.extensions.registry.hosting.sqlite_store import SqliteReleases as SqliteReleases
    from skillhouse.registry import HostingError as HostingError
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
