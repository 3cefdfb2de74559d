"""What a tool is, and whether a call's arguments fit its schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

import jsonschema_rs

from skillhouse.floor import nearest
from skillhouse.tools.call import Plan
from skillhouse.tools.session import Session


class Tool(Protocol):
    """One thing that a model can ask for."""

    @property
    def name(self) -> str:
        """The name on the wire."""
        ...

    @property
    def description(self) -> str:
        """What it does and when to use it, for the model."""
        ...

    @property
    def schema(self) -> Mapping[str, Any]:
        """JSON Schema 2020-12 of the arguments: an object without further properties."""
        ...

    @property
    def durable(self) -> bool:
        """Whether the record of a call must be on the disk before it runs (decision 9)."""
        ...

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        """Work out a call whose arguments fit the schema; nothing happens yet.

        Raises:
            RefusedError: the call makes no sense here, whatever the rules say.
        """
        ...


def argument_fault(
    tool: Tool, arguments: Mapping[str, Any], validator: jsonschema_rs.Draft202012Validator
) -> str:
    """Return what is wrong with the arguments, naming the nearest right one, or nothing."""
    try:
        # A surrogate by itself is JSON to Python, but no text for a file or a program.
        json.dumps(dict(arguments), allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        return f"the arguments of `{tool.name}` are not JSON values: {error}"
    known = tool.schema["properties"]
    is_closed = tool.schema.get("additionalProperties") is False
    for name in arguments:
        if is_closed and name not in known:
            close = nearest(name, known)
            hint = f"did you mean `{close[0]}`" if close else f"known are {', '.join(known)}"
            return f"`{tool.name}` has no argument `{name}`; {hint}"
    for fault in validator.iter_errors(dict(arguments)):
        place = ".".join(str(part) for part in fault.instance_path)
        where = f" `{place}`" if place else ""
        return f"wrong argument{where} of `{tool.name}`: {fault.message}"
    return ""
