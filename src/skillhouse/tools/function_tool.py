"""Makes a tool of a typed function, and keeps a program's own tools from taking others' names."""

from __future__ import annotations

import functools
import inspect
import logging
import math
import string
import traceback
import unicodedata
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeVar, overload

import anyio
import msgspec
from anyio import from_thread
from anyio.lowlevel import RunVar

from skillhouse.floor import ConfigError
from skillhouse.floor.regex import regex
from skillhouse.floor.schema_words import decoding_words, safe
from skillhouse.floor.threads import THREADS_MAX, in_thread, of_loop
from skillhouse.permission import Effect, Permission
from skillhouse.skill.hidden import one_line
from skillhouse.tools.call import (
    Output,
    PermissionRequest,
    Plan,
    Progress,
    RefusedError,
    ReportProgress,
    failure_text,
)
from skillhouse.tools.function_schema import FunctionSignature, ToolDefinitionError, signature_of
from skillhouse.tools.tool import Session, Tool
from skillhouse.tools.tool_set import ALL, SKILLS

__all__ = ["FunctionTool", "check_own_tools", "tool"]
"""The package cannot offer `tool`: a module of it has that name."""

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
V = TypeVar("V")

Resource = str | Callable[..., str]
"""A text with `{parameter}` in it, or a function of the tool's arguments."""
DefaultEffect = Effect | Literal["allow", "ask", "deny"]

OWN_NAME_MAX = 64
"""Characters of a tool's name that every large provider accepts (vectors/wire_names.jsonl)."""
FAILURE_MAX = 500
"""Characters of an exception's message that a model gets."""
FRAMES_MAX = 4
"""Innermost calls of an exception that the audit log keeps, the last one first."""
_OWN_NAME = regex(rf"[A-Za-z][A-Za-z0-9_-]{{0,{OWN_NAME_MAX - 1}}}")
_ACTION = regex(r"[A-Za-z][A-Za-z0-9_.-]*")
_RESERVED = frozenset(
    {
        "background",
        "exec",
        "exec-once",
        "invoke",
        "memory",
        "memory_search",
        "memory_write",
        "net",
        "network",
        "reattach",
        "script",
        "search_skills",
        "shell",
        "sign",
        "skill",
        "skill_tool",
        "web_search",
    }
)
"""Actions that mean something else than the text of a resource shows."""

logger = logging.getLogger(__name__)

# Not those of the gate: a function that calls further tools waits for the gate's own threads.
NAMED_CHARACTERS_MAX = 256
"""Characters of a resource that is compared with rules as a name is."""
_limiter: RunVar[anyio.CapacityLimiter] = RunVar("skillhouse own tools")


class ToolMaker(Protocol):
    """Makes a tool of a function: what `tool` with keywords returns."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, V]], /
    ) -> FunctionTool[P, Coroutine[Any, Any, V], V]: ...
    @overload
    def __call__(self, function: Callable[P, V], /) -> FunctionTool[P, V, V]: ...


@overload
def tool(
    function: Callable[P, Coroutine[Any, Any, V]], /
) -> FunctionTool[P, Coroutine[Any, Any, V], V]: ...


@overload
def tool(function: Callable[P, V], /) -> FunctionTool[P, V, V]: ...


@overload
def tool(
    *,
    name: str = "",
    description: str = "",
    level: Literal["read", "write"] = "write",
    action: str = "",
    resource: Resource = "",
    default: DefaultEffect | None = None,
    changes_workspace: bool | None = None,
) -> ToolMaker: ...


def tool(
    function: Callable[..., object] | None = None,
    /,
    *,
    name: str = "",
    description: str = "",
    level: Literal["read", "write"] = "write",
    action: str = "",
    resource: Resource = "",
    default: DefaultEffect | None = None,
    changes_workspace: bool | None = None,
) -> Any:
    """Make a tool of a typed function, for `Skillhouse(tools=[…])`, which is called as before.

    A model sees the name, the docstring and the types. A function that is not async runs on a
    thread; a cancelled call waits for it. What it returns is the result, as text or JSON; what it
    raises is an error result. A parameter of type `ReportProgress` takes how far the call is. Where
    the program calls the tool itself, as in a test, it calls the function: no rule, no record.

    Args:
        function: The function, where the decorator is used without parentheses.
        name: The tool's name; the function's when empty.
        description: For the model; the docstring before its sections when empty.
        level: `read` for what changes nothing, otherwise `write`.
        action: What rules call it; the name when empty.
        resource: What the patterns of rules are compared with, such as `"{environment}"` or a
            function of the arguments; the first argument when empty. An answer for more than one
            call is offered only where this, or the only parameter, says what a call is about.
        default: What holds when no rule matches: `allow` for `read`, otherwise `ask`.
        changes_workspace: Whether it may change files of the workspace, so that no approved
            command runs meanwhile; None is yes for `write`.

    Raises:
        ToolDefinitionError: the function cannot be made into a tool.
    """

    def made(function: Callable[P, V]) -> FunctionTool[P, V, V]:
        return FunctionTool(
            function,
            name=name,
            description=description,
            level=level,
            action=action,
            resource=resource,
            default=default,
            changes_workspace=changes_workspace,
        )

    return made if function is None else made(function)


class FunctionTool(Tool, Generic[P, R_co, V]):
    """A tool that runs a function of the program, and is called as that function is.

    `P` are the function's parameters, `R_co` is what it returns, `V` what a call returns that is
    awaited where the function is async.
    """

    category = "own"

    def __init__(
        self,
        function: Callable[P, R_co],
        *,
        name: str,
        description: str,
        level: Literal["read", "write"],
        action: str,
        resource: Resource,
        default: DefaultEffect | None,
        changes_workspace: bool | None,
    ) -> None:
        """See `tool`."""
        self.function = function
        # `help`, `inspect.signature` and documentation show the function.
        functools.update_wrapper(self, function, updated=())
        self.name = name or getattr(function, "__name__", "")
        _check_name(self.name)
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ToolDefinitionError(f"`{self.name}` is a generator: return the result instead")
        if level not in ("read", "write"):
            raise ToolDefinitionError(
                f"expected level `read` or `write` of `{self.name}`, got `{level}`: what signs is "
                "for the tool `sign`, which shows a person what the bytes say"
            )
        self._signature = signature_of(function, self.name)
        self.description = description or self._signature.description
        if not self.description:
            raise ToolDefinitionError(f"`{self.name}` has no docstring: say what it does and when")
        self.schema = self._signature.schema
        self.level = level
        self.reads_only = level == "read"
        self.durable = level != "read"
        self.action = _checked_action(action or self.name, self.name)
        self.required_actions = (self.action,)
        self._resource = _checked_resource(resource, self._signature, self.name)
        self._may_last = bool(resource) or len(self._signature.parameters) <= 1
        self._default = Effect(default or ("allow" if level == "read" else "ask"))
        self._changes_workspace = level == "write"
        if changes_workspace is not None:
            self._changes_workspace = changes_workspace
        self._is_async = inspect.iscoroutinefunction(
            function if inspect.isroutine(function) else getattr(function, "__call__", None)  # noqa: B004 - of an instance
        )
        if self._signature.is_progress_async and not self._is_async:
            message = f"`{self.name}` is not async: give `{self._signature.progress}` the type"
            raise ToolDefinitionError(f"{message} `ReportProgress`")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function, past the gate: for the program, never for a model."""
        return self.function(*args, **kwargs)

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        del session
        try:
            values = self._signature.values(arguments)
        except (msgspec.ValidationError, OverflowError, RecursionError) as error:
            place, words = decoding_words(str(error))
            where = f" `{safe(place)}`" if place else ""
            raise RefusedError(f"wrong argument{where} of `{self.name}`: {words}") from error
        resource = self._resource_of(values)
        verb = {Effect.ALLOW: "is allowed", Effect.ASK: "asks", Effect.DENY: "is denied"}
        need = PermissionRequest(
            permission=Permission(action=self.action, resource=resource),
            default=self._default,
            why=f"no rule matches; `{self.name}` {verb[self._default]} by default",
            level=self.level,
            may_last=self._may_last,
        )

        async def run(say: ReportProgress = _unheard) -> Output:
            return await self._run(values, say)

        return Plan(
            needs=(need,),
            run=run,
            run_with_progress=run,
            title=f"{self.name}: {one_line(resource)}" if self._signature.parameters else self.name,
            changes_workspace=self._changes_workspace,
        )

    def _resource_of(self, values: Mapping[str, Any]) -> str:
        try:
            found = self._resource(self._signature.complete(values))
        except Exception as error:
            # INVARIANT: what rules cannot be asked about does not run. The function is the
            # program's own, and may raise anything.
            _note(f"the resource of a call of `{self.name}`", error)
            message = f"`{self.name}` cannot say what this call is about: {type(error).__name__}"
            raise RefusedError(message) from error
        if not isinstance(found, str):
            raise RefusedError(f"`{self.name}` cannot say what this call is about: it is no text")
        if fault := _disguise(found):
            message = f"`{self.name}`: {fault}; give the value without it"
            raise RefusedError(message, denied=True)
        return found

    async def _run(self, values: Mapping[str, Any], say: ReportProgress) -> Output:
        given = dict(values)
        if self._signature.progress:
            given[self._signature.progress] = self._progress(say)
        try:
            if self._is_async:
                value = await self._awaited(given)
            else:
                function: Callable[..., object] = self.function
                value = await in_thread(
                    lambda: function(**given), limiter=of_loop(_limiter, THREADS_MAX)
                )
                if inspect.isawaitable(value):
                    value = await value
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as follows.
            # The edge to the program's own code: what it raises is a result, and a library that
            # exits does not end the server.
            _note(f"`{self.name}` failed", error)
            return _failure(self.name, error)
        return _output(self.name, value)

    async def _awaited(self, given: Mapping[str, Any]) -> object:
        function: Callable[..., object] = self.function
        value = function(**given)
        return await value if inspect.isawaitable(value) else value

    def _progress(self, say: ReportProgress) -> Callable[..., object]:
        def report(fraction: float, text: str = "") -> None:
            # Neither more than all nor a number that is none goes to a client.
            if not math.isnan(fraction):
                done = min(max(float(fraction), 0.0), 1.0)
                if self._is_async:
                    say(done, str(text))
                else:
                    from_thread.run_sync(say, done, str(text))

        async def handle(now: Progress) -> None:
            report(now.progress / now.total if now.total else now.progress, now.message)

        return handle if self._signature.is_progress_async else report


def _unheard(fraction: float, text: str) -> None: ...


def _output(name: str, value: object) -> Output:
    if value is None:
        return Output(text="done")
    if isinstance(value, str):
        return Output(text=value.encode("utf-8", "backslashreplace").decode(), returned=value)
    try:
        encoded = msgspec.json.encode(value)
        data = msgspec.json.decode(encoded)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        reason = one_line(str(error))[:FAILURE_MAX]
        text = f"`{name}` was run, and what it returned is no text and no JSON value: {reason}"
        return Output(text=text, failed=True, detail={"error": reason})
    shown = data if isinstance(data, dict) else {"result": data}
    return Output(text=encoded.decode(), data=shown, returned=value)


def _note(what: str, error: BaseException) -> None:
    """Log in one line what a program's own code raised, and the traceback for who asks for it.

    Without any handler Python prints warnings to stderr, where a chat or a page of others is.
    """
    logger.warning("%s: %s", what, type(error).__name__)
    logger.debug("%s", what, exc_info=error)


def _failure(name: str, error: BaseException) -> Output:
    """Return a result without a traceback; the audit log has the innermost calls."""
    kind = type(error).__name__
    said = one_line(str(error))[:FAILURE_MAX]
    text = f"`{name}` failed: {kind}" + (f": {said}" if said else "")
    if isinstance(error, OSError):
        text = failure_text(name, error)
    frames = traceback.extract_tb(error.__traceback__)[: -FRAMES_MAX - 1 : -1]
    places = "; ".join(f"{Path(f.filename).name}:{f.lineno} in {f.name}" for f in frames)
    detail = {"error": f"{kind}: {said}" if said else kind, "raised_in": places}
    return Output(text=text, failed=True, detail=detail)


def _check_name(name: str) -> None:
    if not _OWN_NAME.fullmatch(name) or "__" in name:
        raise ToolDefinitionError(
            f"the name of the tool `{name}` cannot be used: expected a letter, then at most "
            f"{OWN_NAME_MAX - 1} letters, digits, `-` and `_`, with no two `_` together"
        )


def _checked_action(action: str, name: str) -> str:
    if not _ACTION.fullmatch(action) or action in _RESERVED:
        why = "skillhouse uses it itself" if action in _RESERVED else "expected one word"
        raise ToolDefinitionError(f"the action `{action}` of `{name}` cannot be used: {why}")
    return action


def _checked_resource(
    resource: Resource, signature: FunctionSignature, name: str
) -> Callable[[Mapping[str, Any]], object]:
    """Return what gives the resource of a call from all its arguments."""
    if callable(resource):
        return lambda values: resource(**values)
    known = [one.name for one in signature.parameters]
    if not resource:
        return lambda values: _text(values[known[0]]) if known else name
    try:
        parts = list(string.Formatter().parse(resource))
    except ValueError as error:
        message = f"the resource of `{name}` cannot be read: {error}"
        raise ToolDefinitionError(message) from error
    for _, field, form, conversion in parts:
        if field is not None and (field not in known or form or conversion):
            raise ToolDefinitionError(
                f"`{{{field}}}` in the resource of `{name}` is no parameter; expected one of "
                f"{', '.join(known) or 'none'}"
            )
    return lambda values: "".join(
        text + ("" if field is None else _text(values[field])) for text, field, _, _ in parts
    )


def _disguise(resource: str) -> str:
    """Return why a function could take a resource for another text than rules compare, or "".

    Functions often cut blanks at the ends off, and do not see what is invisible. A long text, or
    one of several lines, is none that rules name.
    """
    plain = resource.strip()
    if len(plain) > NAMED_CHARACTERS_MAX or "\n" in plain:
        return ""
    if plain != resource:
        return "what the call is about begins or ends with a blank"
    # A joiner makes one sign of two emoji.
    hidden = [sign for sign in plain if unicodedata.category(sign) in ("Cf", "Cc")]
    is_seen = all(sign == "\u200d" for sign in hidden) and not any(map(str.isalnum, plain))
    return "" if is_seen or not hidden else "what the call is about has an invisible character"


def _text(value: object) -> str:
    plain = msgspec.to_builtins(value)
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()


def check_own_tools(own: Sequence[object], taken: Iterable[str]) -> None:
    """Raise ConfigError for a program's own tool whose name is taken, or cannot be one.

    `taken` are the names of the other tools. No tool of a skill has such a name, whatever skills
    are added: theirs hold two underscores.
    """
    names = {name.casefold(): name for name in (*taken, ALL, SKILLS)}
    for tool in own:
        if not isinstance(tool, Tool):
            message = f"expected tools in `tools`, got {type(tool).__name__}: use `@tool`"
            raise ConfigError(message, key="tools")
        if tool.full_name:
            message = f"the tool `{tool.name}` has a `full_name`: only tools of skills have one"
            raise ConfigError(message, key="tools")
        try:
            _check_name(tool.name)
        except ToolDefinitionError as error:
            raise ConfigError(str(error), key="tools") from error
        if tool.name.casefold() in names:
            other = names[tool.name.casefold()]
            raise ConfigError(
                f"the name `{tool.name}` is taken by the tool `{other}`; give yours another name",
                key="tools",
            )
        names[tool.name.casefold()] = tool.name
