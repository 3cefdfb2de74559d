"""Reads a function's signature: the JSON Schema of its arguments, and how they become values."""

from __future__ import annotations

import inspect
import itertools
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from skillhouse.floor import SkillhouseError
from skillhouse.floor.regex import regex
from skillhouse.tools.call import ProgressHandler, ReportProgress

_SECTION = regex(r"^(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?):\s*$")
_ENTRY = regex(r"^(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")
_VALUES = ("default", "enum", "const")
"""Keys of a schema that hold values, and no schemas."""
_REFERENCE = "#/$defs/"
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)


class ToolDefinitionError(SkillhouseError, TypeError):
    """A function cannot be made into a tool; the message says what to change."""


class Parameter(Struct, frozen=True, kw_only=True):
    """One parameter that a model fills."""

    name: str
    type: Any
    schema: Mapping[str, Any]
    is_required: bool
    default: Any = None


class FunctionSignature(Struct, frozen=True, kw_only=True):
    """What a model may give to a function."""

    description: str
    parameters: tuple[Parameter, ...]
    progress: str = ""
    """The parameter that takes how far the call is; empty when there is none."""
    is_progress_async: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {one.name: dict(one.schema) for one in self.parameters},
            "required": [one.name for one in self.parameters if one.is_required],
            "additionalProperties": False,
        }

    def values(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as values of the annotated types; a missing one is left out.

        Raises:
            msgspec.ValidationError: one does not have its type.
        """
        return {
            one.name: msgspec.convert(arguments[one.name], one.type)
            for one in self.parameters
            if one.name in arguments
        }

    def complete(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values with the defaults of those that are missing."""
        return {one.name: values.get(one.name, one.default) for one in self.parameters}


def signature_of(function: Callable[..., object], name: str) -> FunctionSignature:
    """Return what a model may give to a function.

    Raises:
        ToolDefinitionError: a parameter has no type, or one that JSON cannot give.
    """
    try:
        hints = typing.get_type_hints(_annotated(function), include_extras=True)
    except NameError as error:
        raise ToolDefinitionError(
            f"the types of `{name}` cannot be read: {error}; define them at the top of the module"
        ) from error
    text, described = _docstring(function)
    parameters: list[Parameter] = []
    progress, is_async = "", False
    for given in inspect.signature(function).parameters.values():
        if given.kind in (*_BY_POSITION, inspect.Parameter.VAR_KEYWORD):
            raise ToolDefinitionError(
                f"parameter `{given.name}` of `{name}` cannot be given by name: a tool has neither "
                "positional-only parameters nor `*args` and `**options`"
            )
        if given.name not in hints:
            message = f"parameter `{given.name}` of `{name}` has no type: annotate it"
            raise ToolDefinitionError(message)
        kind = hints[given.name]
        if kind in (ReportProgress, ProgressHandler):
            progress, is_async = given.name, kind == ProgressHandler
            continue
        parameters.append(_parameter(given, kind, described.get(given.name, ""), name))
    known = {one.name for one in parameters} | {progress}
    if unknown := [one for one in described if one not in known]:
        message = f"the docstring of `{name}` describes `{unknown[0]}`, which is no parameter"
        raise ToolDefinitionError(message)
    return FunctionSignature(
        description=text,
        parameters=tuple(parameters),
        progress=progress,
        is_progress_async=is_async,
    )


def _annotated(function: Callable[..., object]) -> Any:
    """Return the object that has the annotations: of an instance, its `__call__`."""
    is_plain = inspect.isfunction(function) or inspect.ismethod(function)
    return function if is_plain else type(function).__call__


def _parameter(given: inspect.Parameter, kind: Any, described: str, name: str) -> Parameter:
    schema = _schema(kind, f"parameter `{given.name}` of `{name}`")
    notes = getattr(kind, "__metadata__", ())
    texts = [note for note in notes if isinstance(note, str)]
    if text := " ".join(texts) or schema.get("description") or described:
        schema["description"] = text
    is_required = given.default is inspect.Parameter.empty
    default = None if is_required else given.default
    if not is_required:
        try:
            schema["default"] = msgspec.json.decode(msgspec.json.encode(default))
        except (TypeError, ValueError, OverflowError) as error:
            message = f"the default of parameter `{given.name}` of `{name}` is no JSON value"
            raise ToolDefinitionError(f"{message}: {error}") from error
    return Parameter(
        name=given.name, type=kind, schema=schema, is_required=is_required, default=default
    )


def _schema(kind: Any, what: str) -> dict[str, Any]:
    """Return the schema of a type, in one piece: not every model reads references."""
    try:
        (schema,), parts = msgspec.json.schema_components(
            [kind], ref_template=_REFERENCE + "{name}"
        )
    except (TypeError, ValueError, NameError) as error:
        raise ToolDefinitionError(
            f"{what} has a type that JSON cannot give: {error}; use str, int, float, bool, list, "
            "dict, Literal, an Enum, a TypedDict or a dataclass"
        ) from error
    whole = _inlined(schema, parts, (), what)
    assert isinstance(whole, dict)  # noqa: S101 - a schema is an object.
    return whole


def _inlined(value: Any, parts: Mapping[str, Any], within: tuple[str, ...], what: str) -> Any:
    if isinstance(value, list):
        return [_inlined(one, parts, within, what) for one in value]
    if not isinstance(value, Mapping):
        return value
    reference = value.get("$ref")
    if isinstance(reference, str):
        name = reference.removeprefix(_REFERENCE)
        if name in within:
            raise ToolDefinitionError(f"{what} has a type that contains itself: `{name}`")
        return _inlined(parts[name], parts, (*within, name), what)
    # What a class is called, and its own docstring, say nothing of the argument.
    dropped = ("title", "description") if within and "title" in value else ("title",)
    made = {
        key: {name: _inlined(one, parts, within, what) for name, one in item.items()}
        if key == "properties"
        else item
        if key in _VALUES
        else _inlined(item, parts, within, what)
        for key, item in value.items()
        if key not in dropped
    }
    if "properties" in made:
        made["additionalProperties"] = False
    return made


def _docstring(function: Callable[..., object]) -> tuple[str, dict[str, str]]:
    """Return the text before the sections of a docstring, and what `Args:` says of each.

    >>> def deploy(where: str) -> None:
    ...     '''Deploy the site.
    ...
    ...     Args:
    ...         where: Name of
    ...             the place.
    ...     '''
    >>> _docstring(deploy)
    ('Deploy the site.', {'where': 'Name of the place.'})
    """
    # An instance of a class inherits the text of its class, and a partial that of `partial`.
    text = inspect.getdoc(function) if inspect.isroutine(function) else None
    lines = (text or "").splitlines()
    starts = [at for at, line in enumerate(lines) if _SECTION.match(line)]
    head = "\n".join(lines[: starts[0]] if starts else lines).strip()
    described: dict[str, str] = {}
    for start, end in itertools.pairwise([*starts, len(lines)]):
        if lines[start].startswith(("Args", "Arguments", "Parameters")):
            described |= _entries(lines[start + 1 : end])
    return head, described


def _entries(lines: list[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    margin, name = None, ""
    for line in lines:
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if not text:
            continue
        if margin is None:
            margin = indent
        match = _ENTRY.match(text)
        if match and indent == margin:
            name = match[1]
            found[name] = [match[2]]
        elif name:
            found[name].append(text)
    return {name: " ".join(filter(None, parts)) for name, parts in found.items()}
