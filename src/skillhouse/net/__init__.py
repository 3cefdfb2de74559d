"""Reaches the network under rules, or refuses.

Each name is loaded when it is first used, because most commands reach nothing.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.net.client import HttpResponse as HttpResponse
    from skillhouse.net.client import fetch as fetch
    from skillhouse.net.client import open_stream as open_stream
    from skillhouse.net.connection import Route as Route
    from skillhouse.net.net_errors import METHODS as METHODS
    from skillhouse.net.net_errors import NetError as NetError
    from skillhouse.net.policy import HostRule as HostRule
    from skillhouse.net.policy import NetLimits as NetLimits
    from skillhouse.net.policy import NetPolicy as NetPolicy
    from skillhouse.net.policy import Target as Target
    from skillhouse.net.policy import granted_by as granted_by
    from skillhouse.net.policy import host_rule as host_rule
    from skillhouse.net.policy import parse_url as parse_url
    from skillhouse.net.policy import within as within
    from skillhouse.net.proxy import METADATA as METADATA
    from skillhouse.net.proxy import EgressConnection as EgressConnection
    from skillhouse.net.proxy import EgressDecision as EgressDecision
    from skillhouse.net.proxy import EgressProxy as EgressProxy
    from skillhouse.net.resumed_download import Progress as Progress
    from skillhouse.net.resumed_download import download as download
    from skillhouse.net.search import BraveSearch as BraveSearch
    from skillhouse.net.search import SearchProvider as SearchProvider
    from skillhouse.net.search import SearxngSearch as SearxngSearch
    from skillhouse.net.search import WebResult as WebResult
    from skillhouse.net.secret import SecretBinding as SecretBinding
    from skillhouse.net.secret import leaked as leaked
    from skillhouse.net.secret import masked as masked
    from skillhouse.net.secret import names_in as names_in
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
