"""How a result is presented to whoever called.

What a model gets repeats no secret, and what people do not see of it (terminal escapes and other
controls, bidirectional controls, tag characters) is there as visible escapes. That holds for the
text and for every text of the data, since adapters hand both to models. Only a skill's own code
gets the data of its calls as it is: it is no model, and what it returns passes here in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from skillhouse.floor.threads import in_thread
from skillhouse.skill import revealed
from skillhouse.tools.call import ToolResult, bounded

PRESENTED_AT_ONCE = 16_384
"""Characters of a result that are looked through on the event loop: some milliseconds."""


async def presented(
    result: ToolResult, conceal: Callable[[str], str], *, to_code: bool
) -> ToolResult:
    """Return a result without secrets, and with what people do not see as escapes.

    Args:
        result: The result.
        conceal: Takes secrets out of a text.
        to_code: Whether a skill's own code gets it, whose data keeps what people do not see.
    """
    if len(result.content) > PRESENTED_AT_ONCE:
        return await in_thread(lambda: _presented(result, conceal, to_code=to_code))
    return _presented(result, conceal, to_code=to_code)


def _presented(result: ToolResult, conceal: Callable[[str], str], *, to_code: bool) -> ToolResult:
    def shown(text: str) -> str:
        return revealed(conceal(text))

    data = result.data
    if data is not None:
        data = {key: _mapped(value, conceal if to_code else shown) for key, value in data.items()}
    text = shown(result.content)
    # It was cut already; escapes may have made it longer.
    content = bounded(text) if len(text) > len(result.content) else text
    return replace(result, content=content, data=data)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(str(key)): _mapped(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mapped(item, change) for item in value]
    return value
