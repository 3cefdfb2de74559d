"""The skills for hosts, as SEP-2640's requests and resources, and for users, as prompts.

Clients show prompts as slash commands.
"""

from __future__ import annotations

import base64
import logging
import shlex
from collections.abc import Mapping
from typing import Any, Literal

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

from skillhouse.discovery.catalog_text import clipped
from skillhouse.floor import SkillhouseError, isolated, nearest
from skillhouse.floor.paths import sendable
from skillhouse.floor.threads import in_thread
from skillhouse.frontends.mcp.approval_bridge import ApprovalBridge
from skillhouse.frontends.mcp.call_result import read_artifact
from skillhouse.frontends.mcp.completion import TEMPLATE
from skillhouse.frontends.mcp.skill_resources import (
    DIRECTORY,
    MARKDOWN,
    ServedFile,
    SkillResource,
    SkillResources,
    mime_type,
    paged,
)
from skillhouse.frontends.mcp.tool_list import ToolListing
from skillhouse.house import Invocable, Skillhouse, read_skill_file
from skillhouse.skill import SKILL_FILE, hidden_text
from skillhouse.skill.fields import DESCRIPTION_MAX
from skillhouse.tools import ToolResult

EXTENSION = "io.modelcontextprotocol/skills"
"""The extension's name (SEP-2640, "Extension Identifier"). It is declared from protocol 2026-07-28
on; earlier handshakes have no field for it."""
META = "io.modelcontextprotocol.skills/"
"""Prefix of our keys in a skill's `_meta` (SEP-2640, "Resource Metadata")."""
HIDDEN_META = "skillhouse/hidden-text"
"""Our key in the `_meta` of a file with invisible characters."""
META_FIELDS = ("license", "compatibility", "version")
"""Frontmatter fields that are repeated in `_meta` if they are strings."""
NOT_APPROVED = -32010
"""The error of a read that is denied or pending; `data` has the status. The protocol defines no
such code, and reserves -32099 to -32000 for servers."""
_UNCACHED: dict[str, Any] = {"ttl_ms": 0, "cache_scope": "private"}
"""Fields of results: nothing may be cached, since rules and files change."""


class GetSkillParams(types.RequestParams):
    uri: str


class ReadDirectoryParams(types.PaginatedRequestParams):
    uri: str


class ListSkillsResult(types.PaginatedResult, types.CacheableResult):
    skills: list[dict[str, Any]]
    result_type: Literal["complete"] = "complete"


class GetSkillResult(types.CacheableResult):
    skill: dict[str, Any]
    result_type: Literal["complete"] = "complete"


class ReadDirectoryResult(types.PaginatedResult):
    resources: list[types.Resource]
    result_type: Literal["complete"] = "complete"


class SkillRequests:
    """Answers hosts' requests about one agent's skills.

    Listings have the skills of the catalog, without those denied to the agent. Reading a file goes
    through the gate as loading the skill does.
    """

    def __init__(self, house: Skillhouse, agent: str, bridge: ApprovalBridge) -> None:
        self._house = house
        self._bridge = bridge
        self.resources = SkillResources(
            lambda: house.view(agent).listed.skills,
            lambda skill: house.policy.why_unseen(skill),  # noqa: PLW0108 that of the moment
        )

    def register(self, server: Server[None]) -> None:
        server.extensions[EXTENSION] = {"directoryRead": True}
        add = server.add_request_handler
        add("skills/list", types.PaginatedRequestParams, self._list_skills)
        add("skills/get", GetSkillParams, self._get_skill)
        add("resources/directory/read", ReadDirectoryParams, self._read_directory)
        add("resources/list", types.PaginatedRequestParams, self._list_resources)
        add("resources/templates/list", types.PaginatedRequestParams, self._list_templates)
        add("resources/read", types.ReadResourceRequestParams, self._read_resource)

    async def _list_skills(
        self, _: ServerRequestContext[None], params: types.PaginatedRequestParams
    ) -> ListSkillsResult:
        entries, cursor = self.resources.page(params.cursor)
        skills = [_described(entry) for entry in entries]
        return ListSkillsResult(skills=skills, next_cursor=cursor, **_UNCACHED)

    async def _get_skill(
        self, _: ServerRequestContext[None], params: GetSkillParams
    ) -> GetSkillResult:
        entry = self.resources.entry(params.uri)
        if entry is None or entry.uri != params.uri:
            raise _unknown(params.uri, "no skill is served at")
        return GetSkillResult(skill=_described(entry), **_UNCACHED)

    async def _list_resources(
        self, _: ServerRequestContext[None], params: types.PaginatedRequestParams
    ) -> types.ListResourcesResult:
        entries, cursor = self.resources.page(params.cursor)
        resources = [_resource(entry, SKILL_FILE, entry.file(entry.uri)) for entry in entries]
        return types.ListResourcesResult(resources=resources, next_cursor=cursor, **_UNCACHED)

    async def _list_templates(
        self, _: ServerRequestContext[None], __: types.PaginatedRequestParams
    ) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(
            uri_template=TEMPLATE,
            name="skill",
            description="the instructions of a skill, by its scope and name",
            mime_type=MARKDOWN,
        )
        return types.ListResourceTemplatesResult(resource_templates=[template], **_UNCACHED)

    async def _read_resource(
        self, context: ServerRequestContext[None], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult | types.InputRequiredResult:
        uri = params.uri
        artifacts = self._house.services.artifacts
        if artifacts.holds(uri):
            caller, hide = self._bridge.caller(context), self._house.services.enforcement.hide
            return await in_thread(lambda: read_artifact(artifacts, caller, uri, hide=hide))
        entry = self.resources.entry(uri)
        file = None if entry is None else entry.file(uri)
        if entry is None or file is None:
            raise _unknown(uri, "no file of a skill is served at")
        skill, relative = entry.skill, file.relative
        result = await self._bridge.call_with_approval(
            context,
            params,
            lambda caller, approval_id: read_skill_file(
                self._house, skill, relative, caller=caller, approval_id=approval_id
            ),
        )
        if isinstance(result, types.InputRequiredResult):
            return result
        if result.data is None or result.is_error:
            raise error_of(result, uri=uri)
        contents = _contents(entry, file, uri, result.data["bytes"])
        return types.ReadResourceResult(contents=[contents], **_UNCACHED)

    async def _read_directory(
        self, _: ServerRequestContext[None], params: ReadDirectoryParams
    ) -> ReadDirectoryResult:
        entry = self.resources.entry(params.uri)
        children = None if entry is None else entry.children(params.uri)
        if entry is None or children is None:
            raise _unknown(params.uri, "no directory of a skill is served at")
        page, cursor = paged(children, params.cursor, key=lambda child: child[0])
        resources = [_resource(entry, relative, file) for relative, file in page]
        return ReadDirectoryResult(resources=resources, next_cursor=cursor)


def _described(entry: SkillResource) -> dict[str, Any]:
    """Return an entry as `skills/list` and `skills/get` have it (SEP-2640, "Skill Entries")."""
    return {
        "uri": entry.uri,
        "frontmatter": dict(entry.frontmatter),
        "resources": [
            {"uri": entry.address(file.relative), "digest": file.digest, "size": file.size}
            for file in entry.manifest.files
        ],
    }


def _resource(entry: SkillResource, relative: str, file: ServedFile | None) -> types.Resource:
    uri = entry.address(relative)
    name = relative.rpartition("/")[2]
    if file is None:
        return types.Resource(uri=uri, name=name, mime_type=DIRECTORY)
    if uri != entry.uri:
        return types.Resource(uri=uri, name=name, mime_type=mime_type(relative), size=file.size)
    return types.Resource(
        uri=uri,
        name=entry.frontmatter["name"],
        description=entry.frontmatter["description"],
        mime_type=MARKDOWN,
        size=file.size,
        _meta=_meta(entry),
    )


def _meta(entry: SkillResource) -> dict[str, Any] | None:
    fields = {field: entry.frontmatter.get(field) for field in META_FIELDS}
    return {META + key: text for key, text in fields.items() if isinstance(text, str)} or None


def _contents(
    entry: SkillResource, file: ServedFile, uri: str, data: bytes
) -> types.TextResourceContents | types.BlobResourceContents:
    """Return bytes as text if they are UTF-8, so that encoding it gives the same bytes."""
    is_entry = uri == entry.uri
    kind = MARKDOWN if is_entry else mime_type(file.relative)
    meta = _meta(entry) if is_entry else None
    try:
        text = data.decode()
        # The list has the digest of these bytes, so they stay unchanged and `_meta` warns the host.
        hidden = hidden_text(text)
        if hidden is not None:
            meta = {**(meta or {}), HIDDEN_META: hidden.summary}
        return types.TextResourceContents(uri=uri, mime_type=kind, text=text, _meta=meta)
    except UnicodeDecodeError:
        blob = base64.b64encode(data).decode()
        return types.BlobResourceContents(uri=uri, mime_type=kind, blob=blob, _meta=meta)


def error_of(result: ToolResult, **data: str) -> MCPError:
    """Return the error for a call that did not succeed, with more `data`."""
    code = types.INVALID_PARAMS if result.status == "error" else NOT_APPROVED
    status = {"status": result.status, "approvalId": result.approval_id}
    return MCPError(code, sendable(result.content), {**data, **status})


def _unknown(uri: str, what: str) -> MCPError:
    return MCPError(types.INVALID_PARAMS, f"{what} {uri[:400]}", {"uri": uri})


logger = logging.getLogger(__name__)

WHOLE = "arguments"
"""The argument of a skill that declares none: all text after its name."""

UNKNOWN = "a prompt is its person's act: connect with the token, or have the model load the skill"
"""Answer to a client whose user is unknown."""


class PromptRequests:
    """Answers `prompts/list` and `prompts/get`.

    Getting a prompt is the user's act (MCP, "Prompts", user interaction model), so the rules of
    `skillhouse invoke` apply. It grants nothing else: a skill's commands are the agent's calls.
    """

    def __init__(
        self, house: Skillhouse, listing: ToolListing, bridge: ApprovalBridge, *, is_of_user: bool
    ) -> None:
        """Without `is_of_user` the client's user is unknown, and there are no prompts."""
        self._house = house
        self._listing = listing
        self._bridge = bridge
        self._is_of_user = is_of_user

    def register(self, server: Server[None]) -> None:
        add = server.add_request_handler
        add("prompts/list", types.PaginatedRequestParams, self._list)
        add("prompts/get", types.GetPromptRequestParams, self._get)

    async def _list(
        self, _: ServerRequestContext[None], params: types.PaginatedRequestParams
    ) -> types.ListPromptsResult:
        menu = self._listing.menu() if self._is_of_user else ()
        entries = sorted(menu, key=lambda entry: entry.name)
        page, cursor = paged(entries, params.cursor, key=lambda entry: entry.name)
        prompts = []
        for entry in page:
            with isolated() as failed:
                prompts.append(_prompt(entry))
            for error in failed:
                logger.warning("no prompt over MCP: `%s`: %s", entry.name, error)
        return types.ListPromptsResult(prompts=prompts, next_cursor=cursor, **_UNCACHED)

    async def _get(
        self, context: ServerRequestContext[None], params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        if not self._is_of_user:
            raise MCPError(NOT_APPROVED, UNKNOWN, {"status": "denied", "approvalId": None})
        self._listing.changed_lately()
        menu = {entry.name: entry for entry in self._listing.menu()}
        entry = menu.get(params.name)
        if entry is None:
            close = next(iter(nearest(params.name, menu)), "")
            hint = f"; did you mean `{close}`" if close else ""
            why = self._listing.why_not_in_menu(params.name)
            hint = sendable(f": {why}") if why else hint
            raise MCPError(types.INVALID_PARAMS, f"no prompt `{params.name[:200]}`{hint}")
        line = _line(entry, params.arguments or {})
        try:
            result = await self._bridge.call_with_approval(
                context,
                params,
                lambda caller, approval_id: self._house.invoke(
                    entry.name, line, caller=caller, approval_id=approval_id
                ),
            )
        except SkillhouseError as error:
            raise MCPError(types.INTERNAL_ERROR, sendable(str(error))) from error
        if isinstance(result, types.InputRequiredResult):
            return result
        if result.is_error:
            raise error_of(result)
        content = types.TextContent(type="text", text=sendable(result.content))
        return types.GetPromptResult(
            description=sendable(entry.description),
            messages=[types.PromptMessage(role="user", content=content)],
        )


def _prompt(entry: Invocable) -> types.Prompt:
    names = entry.arguments or (WHOLE,)
    hint = sendable(entry.argument_hint) or None
    return types.Prompt(
        name=sendable(entry.name),
        description=sendable(clipped(entry.description, DESCRIPTION_MAX)),
        arguments=[
            types.PromptArgument(name=name, description=hint, required=False) for name in names
        ],
    )


def _line(entry: Invocable, given: Mapping[str, str]) -> str:
    """Return the arguments as a user would write them after the name; raises MCPError."""
    names = entry.arguments or (WHOLE,)
    unknown = next((name for name in given if name not in names), None)
    if unknown is not None:
        message = f"`{entry.name}` takes {', '.join(names)}, got `{unknown[:200]}`"
        raise MCPError(types.INVALID_PARAMS, message)
    if not entry.arguments:
        return given.get(WHOLE, "")
    values = [given.get(name) for name in names]
    while values and values[-1] is None:
        values.pop()
    if None in values:
        missing = names[values.index(None)]
        raise MCPError(types.INVALID_PARAMS, f"`{entry.name}` needs `{missing}` as well")
    # Each value is one argument, whatever spaces and quotes it has.
    return shlex.join(value for value in values if value is not None)
