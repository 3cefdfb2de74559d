"""The base class of tools, and the check of a call's arguments against a tool's schema."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import jsonschema_rs

from skillhouse.floor import nearest
from skillhouse.tools.call import Plan, ToolResult
from skillhouse.tools.session import Session


class Tool(ABC):
    """One thing that a model can ask for: a name, a description, a schema and `plan`.

    All other members have defaults.
    """

    name: str
    """The name on the wire."""
    description: str
    """What it does and when to use it, for the model."""
    schema: Mapping[str, Any]
    """JSON Schema 2020-12 of the arguments: an object with `properties`."""
    accepted: Mapping[str, Any] | None = None
    """The schema that calls are checked against, where it is wider than the one that is shown."""
    durable: bool = True
    """Whether the record of a call must be on the disk before it runs (decision 9)."""
    reads_only: bool = False
    """Whether it changes nothing; clients show it, and no rule depends on it."""
    full_name: str = ""
    """`skill:tool` of a skill's tool (decision 12); calls may use it too."""
    category: str = ""
    """Where it comes from (S004-42)."""
    listed_at_once: bool = False
    """Whether clients that defer tools should list it from the start."""
    loads_skills: bool = False
    """Whether its calls load skills."""

    @cached_property
    def title(self) -> str:
        return self.name

    @abstractmethod
    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        """Work out a call whose arguments fit the schema; nothing happens yet.

        Raises:
            RefusedError: the call makes no sense here, whatever the rules say.
        """

    def canonical(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments under the schema's names; it renames and never decides."""
        return arguments

    def shaped(self, result: ToolResult) -> Mapping[str, Any] | None:
        """Return the data of a call that was refused before it ran."""
        del result
        return None

    def description_within(self, chars: int | None) -> str:
        """Return a description of at most so many characters where it can be shortened."""
        del chars
        return self.description


def argument_fault(
    tool: Tool, arguments: Mapping[str, Any], validator: jsonschema_rs.Draft202012Validator
) -> str:
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
