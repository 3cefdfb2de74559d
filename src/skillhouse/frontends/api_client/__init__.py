"""Uses the HTTP API of a `skillhouse up` from Python; it needs no extra.

>>> from skillhouse.frontends.api_client import ApiClient
>>> ApiClient("http://127.0.0.1:8600", "skh_0").base_url
'http://127.0.0.1:8600'
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.frontends.api_client.api_connection import ApiClientError as ApiClientError
    from skillhouse.frontends.api_client.api_connection import ApiConnection as ApiConnection
    from skillhouse.frontends.api_client.api_connection import ApiEvent as ApiEvent
    from skillhouse.frontends.api_client.api_values import AgreedJson as AgreedJson
    from skillhouse.frontends.api_client.api_values import AuditEntryJson as AuditEntryJson
    from skillhouse.frontends.api_client.api_values import CallResultJson as CallResultJson
    from skillhouse.frontends.api_client.api_values import ContentJson as ContentJson
    from skillhouse.frontends.api_client.api_values import DecisionJson as DecisionJson
    from skillhouse.frontends.api_client.api_values import DefinitionJson as DefinitionJson
    from skillhouse.frontends.api_client.api_values import HitJson as HitJson
    from skillhouse.frontends.api_client.api_values import JobJson as JobJson
    from skillhouse.frontends.api_client.api_values import LibrarySkillJson as LibrarySkillJson
    from skillhouse.frontends.api_client.api_values import ListedSkillJson as ListedSkillJson
    from skillhouse.frontends.api_client.api_values import PageJson as PageJson
    from skillhouse.frontends.api_client.api_values import PlannedJson as PlannedJson
    from skillhouse.frontends.api_client.api_values import QuestionJson as QuestionJson
    from skillhouse.frontends.api_client.api_values import RehearsalJson as RehearsalJson
    from skillhouse.frontends.api_client.api_values import SkillJson as SkillJson
    from skillhouse.frontends.api_client.api_values import SourceJson as SourceJson
    from skillhouse.frontends.api_client.api_values import ToolJson as ToolJson
    from skillhouse.frontends.api_client.client import ApiClient as ApiClient
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
