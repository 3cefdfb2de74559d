"""The gate as an agent's tools need it: a call in the words of its schema, a result to be shown.

What a model gets repeats no secret, and what people do not see of it (terminal escapes and other
controls, bidirectional controls, tag characters) is there as visible escapes. That holds for the
text and for every text of the data, since adapters hand both to models. Only a skill's own code
gets the data of its calls as it is: it is no model, and what it returns passes here in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jsonschema_rs

from skillhouse.floor.threads import in_thread
from skillhouse.skill import revealed
from skillhouse.tools.call import ToolCall, ToolResult, bounded
from skillhouse.tools.forecast import Forecast
from skillhouse.tools.gate import Gate
from skillhouse.tools.session import Session
from skillhouse.tools.tool import Tool

SHOWN_AT_ONCE = 16_384
"""Characters of a result that are looked through on the event loop: some milliseconds."""


class SkillGate(Gate):
    """Takes the aliases of a tool's parameters, then does what every gate does.

    A tool may have `canonical(arguments)`, which renames and never decides; `accepted`, the schema
    that its calls are checked against when that is wider than the one it shows; and
    `shaped(result)`, the data of a refusal.
    """

    def __init__(
        self, tools: Sequence[Tool], *, conceal: Callable[[str], str] = str, **parts: Any
    ) -> None:
        """Take the tools, what takes secrets out of a text, and the parts of a gate."""
        super().__init__(tools, **parts)
        self._conceal = conceal
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
        found = await super().call(self._renamed(call), session, **more)
        if len(found.content) > SHOWN_AT_ONCE:
            result = await in_thread(lambda: self._shown(found, session))
        else:
            result = self._shown(found, session)
        shaped = getattr(self.tools.get(call.name), "shaped", None)
        if shaped is not None and result.is_error and result.data is None:
            result = replace(result, data=shaped(result))
        return result

    def forecast(self, call: ToolCall, session: Session, **more: Any) -> Forecast:
        """Rename, and forecast as every gate does.

        Raises:
            UnknownToolError: no tool has that name.
        """
        return super().forecast(self._renamed(call), session, **more)

    def _renamed(self, call: ToolCall) -> ToolCall:
        canonical = getattr(self.tools.get(call.name), "canonical", None)
        return call if canonical is None else replace(call, arguments=canonical(call.arguments))

    def _shown(self, result: ToolResult, session: Session) -> ToolResult:
        """Return a result without secrets, and with what people do not see as escapes."""

        def shown(text: str) -> str:
            return revealed(self._conceal(text))

        data = result.data
        if data is not None:
            data = {
                k: _mapped(v, self._conceal if session.origin_digest else shown)
                for k, v in data.items()
            }
        text = shown(result.content)
        # It was cut already; escapes may have made it longer.
        content = bounded(text) if len(text) > len(result.content) else text
        return replace(result, content=content, data=data)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Return a value of JSON with every text in it changed, the keys of objects too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(str(key)): _mapped(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mapped(item, change) for item in value]
    return value
