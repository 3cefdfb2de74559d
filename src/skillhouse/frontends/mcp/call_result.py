"""What comes of a call, as MCP has it: a text, a declared value, or an error without traceback.

The files that a skill's code wrote are links beside the text, which the caller of that call reads.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import mcp_types as types
from mcp.shared.exceptions import MCPError

from skillhouse.floor import InternalFaultError, SkillhouseError, as_error
from skillhouse.floor.paths import sendable
from skillhouse.house import Caller
from skillhouse.tools import (
    ArtifactError,
    ArtifactFile,
    Artifacts,
    ToolResult,
    UnknownToolError,
    structured_content,
)

R = TypeVar("R")
_TEXTS = frozenset({"application/json", "image/svg+xml"})


async def guarded(call: Awaitable[R]) -> R | ToolResult:
    """Return what a call returns; a failure as a result that says so, for the model.

    Raises:
        MCPError: the request itself is wrong.
    """
    try:
        return await call
    except UnknownToolError as error:
        raise MCPError(types.INVALID_PARAMS, str(error)) from error
    except MCPError:
        raise
    except SkillhouseError as error:
        return ToolResult(content=str(error), status="error")
    except Exception as error:  # noqa: BLE001 - the edge of the process.
        # A traceback is for our log, never for a model.
        return ToolResult(
            content=f"the call failed inside skillhouse{report_of(error)}", status="error"
        )


def report_of(error: Exception) -> str:
    """Return by which report a fault is found; nothing else of it is for a client."""
    fault = as_error(error)
    return f": report `{fault.report}`" if isinstance(fault, InternalFaultError) else ""


def call_result(result: ToolResult, *, is_structured: bool = True) -> types.CallToolResult:
    """Return a result on the wire: a text, its files, and the value that its tool declares.

    A server must provide a value that fits `outputSchema`, and clients refuse a result without: it
    is an error where the value has to be left out. Other values are not structured content, which
    clients give to a model as JSON.

    Args:
        is_structured: Whether the revision has structured values and links (2025-06-18 on).
    """
    answered = _answer(result, is_structured=is_structured)
    answered.content.extend(_links(result.artifacts, is_linked=is_structured))
    if result.artifacts_left_out:
        said = "\n".join(f"file not kept: {one}" for one in result.artifacts_left_out)
        answered.content.append(types.TextContent(type="text", text=sendable(said)))
    return answered


def _answer(result: ToolResult, *, is_structured: bool) -> types.CallToolResult:
    if result.returns is None or not is_structured:
        return text_answer(result.content, is_error=result.is_error)
    value, why = structured_content(result.returns, result.data or {})
    if why:
        text = f"the tool was run, and its result is a text: {why}\n{result.content}"
        return text_answer(text, is_error=True)
    answered = text_answer(result.content, is_error=False)
    answered.structured_content = value
    return answered


def _links(files: Sequence[ArtifactFile], *, is_linked: bool) -> list[types.ContentBlock]:
    """Return a link to each file; in older revisions a text that has its address."""
    if not is_linked:
        texts = (f"file {one.name} ({one.bytes} bytes): resource {one.uri}" for one in files)
        return [types.TextContent(type="text", text=text) for text in texts]
    return [
        types.ResourceLink(
            type="resource_link",
            uri=one.uri,
            name=one.name,
            mime_type=one.media_type,
            size=one.bytes,
        )
        for one in files
    ]


def read_artifact(
    artifacts: Artifacts, caller: Caller, uri: str, *, hide: Callable[[str], str]
) -> types.ReadResourceResult:
    """Return a file that a call of this caller wrote; bytes as text if their type is one.

    Raises:
        MCPError: it is not there, or is another caller's, in the same words.
    """
    try:
        file, data = artifacts.read(uri, caller)
    except ArtifactError as error:
        raise MCPError(types.INVALID_PARAMS, sendable(str(error)), {"uri": uri[:400]}) from error
    return types.ReadResourceResult(
        contents=[_contents(file, data, hide)], ttl_ms=0, cache_scope="private"
    )


def _contents(
    file: ArtifactFile, data: bytes, hide: Callable[[str], str]
) -> types.TextResourceContents | types.BlobResourceContents:
    about: dict[str, Any] = {"uri": file.uri, "mime_type": file.media_type}
    if file.media_type.startswith("text/") or file.media_type in _TEXTS:
        try:
            # As the result itself: what is known as a secret goes to no model.
            return types.TextResourceContents(text=hide(data.decode()), **about)
        except UnicodeDecodeError:
            pass
    return types.BlobResourceContents(blob=base64.b64encode(data).decode(), **about)


def text_answer(text: str, *, is_error: bool) -> types.CallToolResult:
    content = types.TextContent(type="text", text=sendable(text))
    return types.CallToolResult(content=[content], is_error=is_error)
