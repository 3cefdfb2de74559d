"""How a call's conversation ended, within its time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import anyio

from skillhouse.cells.call_channel import CallChannel, GoneError
from skillhouse.cells.cell import Kind, timeout_text
from skillhouse.cells.rpc import RESOURCE_LIMIT, RpcError


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutcome:
    """What the conversation alone tells."""

    kind: Kind
    value: Any = None
    error: str = ""


async def attempt(dialogue: CallChannel, *, seconds: float) -> CallOutcome:
    """Wait for the answer, and return what came of it; it raises nothing."""
    with anyio.move_on_after(seconds):
        return await _answered(dialogue)
    return CallOutcome(kind="timeout", error=timeout_text(seconds))


async def _answered(dialogue: CallChannel) -> CallOutcome:
    try:
        answer = await dialogue.answer()
    except GoneError:
        return CallOutcome(kind="crashed")
    except RpcError as error:
        kind: Kind = "resource-limit" if error.code == RESOURCE_LIMIT else "protocol"
        return CallOutcome(kind=kind, error=f"the skill broke the protocol: {error}")
    if answer.error is None:
        return CallOutcome(kind="ok", value=answer.result)
    kind = "resource-limit" if answer.error.code == RESOURCE_LIMIT else "error"
    return CallOutcome(kind=kind, error=str(answer.error))
