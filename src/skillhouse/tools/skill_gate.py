"""The gate as an agent's tools need it: it first puts a call into the words of its schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jsonschema_rs

from skillhouse.tools.call import Tool, ToolCall, ToolResult
from skillhouse.tools.gate import Gate
from skillhouse.tools.session import Session


class SkillGate(Gate):
    """Takes the aliases of a tool's parameters, then does what every gate does.

    A tool may have `canonical(arguments)`, which renames and never decides; `accepted`, the schema
    that its calls are checked against when that is wider than the one it shows; and
    `shaped(result)`, the data of a refusal.
    """

    def __init__(self, tools: Sequence[Tool], **parts: Any) -> None:
        super().__init__(tools, **parts)
        for tool in tools:
            accepted = getattr(tool, "accepted", None)
            if accepted is not None:
                validator = jsonschema_rs.Draft202012Validator(dict(accepted))
                self._validators[tool.name] = validator

    async def call(self, call: ToolCall, session: Session, **more: Any) -> ToolResult:
        """Rename, let the call through the door, and give a refusal the tool's shape.

        Raises:
            UnknownToolError: no tool has that name.
        """
        tool = self.tools.get(call.name)
        canonical = getattr(tool, "canonical", None)
        if canonical is not None:
            call = replace(call, arguments=canonical(call.arguments))
        result = await super().call(call, session, **more)
        shaped = getattr(tool, "shaped", None)
        if shaped is not None and result.is_error and result.data is None:
            result = replace(result, data=shaped(result))
        return result
