"""Shared by all adapters: the tools offered, calls that never raise, and approvals of one call."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

import anyio
from msgspec import Struct

from skillhouse.approval import Answer, ApprovalRequest
from skillhouse.floor import InternalFaultError, SkillhouseError
from skillhouse.floor.paths import sendable
from skillhouse.floor.structs import replace
from skillhouse.floor.threads import in_thread
from skillhouse.house import Caller, Conversation, Skillhouse
from skillhouse.house.model_tools import OPENAI_CHARS, ShownTool
from skillhouse.permission import Effect
from skillhouse.presentation.question import question_of
from skillhouse.tools import ProgressHandler, ToolResult, kept_line

V = TypeVar("V")

logger = logging.getLogger(__name__)
_FRAMEWORK_IDS: ContextVar[Mapping[str, str] | None] = ContextVar(
    "skillhouse_framework_ids", default=None
)

LONG_DESCRIPTIONS = ("anthropic", "google")
"""Providers whose own API accepts longer descriptions."""


def description_chars(provider: str) -> int | None:
    """Return the bound of descriptions for a provider; unknown providers get OpenAI's.

    >>> description_chars("openrouter"), description_chars("anthropic")
    (1000, None)
    """
    return None if provider.startswith(LONG_DESCRIPTIONS) else OPENAI_CHARS


class FrameworkBridge(Struct, frozen=True, kw_only=True):
    """One framework's access to Skillhouse: who calls, and on which channel."""

    house: Skillhouse
    channel: str
    """Named after the framework; its user's answers come from there."""
    agent: str = "default"
    user: str = "local"
    ask: bool = True
    """Whether the framework asks for approvals; if not, the model gets a pending result."""
    also: tuple[str, ...] = ()
    """Names of unlisted tools that are offered here."""

    def tools(self, chars: int | None = None, *, lists: bool = True) -> list[ShownTool]:
        """Return the agent's tools, all from one snapshot; raises ConfigError without the agent.

        `chars` is the maximum length of a description; None leaves it at that of the catalog.
        Without `lists` that of the skill tool has no list of skills. Skills that it has no room to
        name are named in the schema.
        """
        tools = self.house.tools(agent=self.agent, also=self.also, caller=self.caller())
        return tools.offered(chars, lists=lists)

    def deferred(self, chars: int | None = None) -> list[ShownTool]:
        """Return the tools of skills for which there is no room, for a framework that finds tools
        by itself; see `ModelTools.deferred`."""
        tools = self.house.tools(agent=self.agent, also=self.also, caller=self.caller())
        return tools.deferred(chars)

    def prompt(
        self,
        offered: Iterable[str] | None = None,
        *,
        prefix: str = "",
        always: bool = False,
        chars: int | None = None,
    ) -> str:
        """Return the skills' part of the system prompt; often empty, since the tool lists them.

        `offered` names the tools that the model is offered, all by default; `prefix` is the
        framework's for names of tools; `always` lists the skills even if the tool does; `chars` is
        the maximum length of a tool's description, which may have no room for the list.
        """
        prompts = self.house.view(self.agent).prompts(prefix)
        return sendable(prompts.system(offered, always=always, tool_chars=chars))

    def offer(
        self, chars: int | None, offered: Iterable[str] | None = None
    ) -> tuple[list[ShownTool], str]:
        """Return the tools, and the skills' part of the system prompt; the list is in one of them.

        The arguments are those of `tools` and `prompt`.
        """
        prompt = self.prompt(offered, chars=chars)
        return self.tools(chars, lists=not prompt), prompt

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        approval_id: str = "",
        listener: ProgressHandler | None = None,
        **ids: str,
    ) -> ToolResult:
        """Make a call as `Skillhouse.call` does; every failure becomes a result for the model."""
        try:
            caller = self.caller(**ids)
            result = await self.house.call(
                name, arguments, caller=caller, approval_id=approval_id, listener=listener
            )
            return _for_model(result)
        except Exception as error:  # noqa: BLE001 - an edge of the process; it is logged there.
            return _failed(name, error)

    def call_sync(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        approval_id: str = "",
        wait: float = 0,
        cancel: threading.Event | None = None,
    ) -> ToolResult:
        """Do what `call` does, from synchronous code; `wait` is that of `Skillhouse.call`.

        Once `cancel` is set, a call ends as one of a cancelled task does, and none begins:
        asyncio.CancelledError, which no framework takes for the failure of a tool.
        """
        caller = self.caller()

        async def made() -> ToolResult | None:
            result: ToolResult | None = None
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancelled, cancel, tasks.cancel_scope)
                if cancel is None or not cancel.is_set():
                    # Its failure is a result here: the group would wrap what is raised.
                    try:
                        result = await self.house.call(
                            name, arguments, caller=caller, approval_id=approval_id, wait=wait
                        )
                    except Exception as error:  # noqa: BLE001 - as below.
                        result = _failed(name, error)
                tasks.cancel_scope.cancel()
            return result

        try:
            if cancel is None:
                result = self.house.call_sync(
                    name, arguments, caller=caller, approval_id=approval_id, wait=wait
                )
                return _for_model(result)
            found = self.house.services.portal().call(made)
        except Exception as error:  # noqa: BLE001 - an edge of the process; it is logged there.
            return _failed(name, error)
        if found is None:
            raise asyncio.CancelledError(f"the run was cancelled, and with it `{name}`")
        return _for_model(found)

    def question(self, result: ToolResult) -> dict[str, Any] | None:
        """Return the question for the framework's user; None if the framework must not ask.

        What signs, and what a tier policy asks about on the page, is decided there only.
        """
        request = self._request(result)
        if not self.ask or request is None or request.out_of_band_only:
            return None
        question = question_of(request)
        return {
            "approval_id": question.id,
            "tool": request.tool,
            "title": sendable(question.title),
            "reasons": [sendable(reason) for reason in question.reasons],
            "facts": {
                "found": [[label, sendable(fact)] for label, fact in question.found],
                "sent": [[sendable(label), sendable(fact)] for label, fact in question.sent],
            },
        }

    async def may_ask(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Whether a call may need approval, for frameworks that ask beforehand.

        This is a forecast: nothing is done or recorded. It runs on another thread, since it may
        start git in a sandbox to learn what a command would write.
        """
        caller = self.caller()
        try:
            forecast = await in_thread(lambda: self.house.forecast(name, arguments, caller=caller))
        except Exception:
            # The gate reports the reason, such as an unknown tool or agent.
            logger.debug("no forecast for %s", name, exc_info=True)
            return True
        return forecast.effect is not Effect.ALLOW

    def conversation(self, session_id: str) -> Conversation:
        return self.house.conversation(
            agent=self.agent, user=self.user, channel=self.channel, session_id=session_id
        )

    async def allowed(
        self, name: str, arguments: Mapping[str, Any], approval_id: str
    ) -> ToolResult:
        """Approve one call for the user, and repeat it with the approval.

        The call is planned again first. If it has changed, since its arguments or the files that it
        depends on have, it needs another approval: nothing is approved, and the new question is
        returned as pending.
        """
        now = await self.call(name, arguments)
        if not self.approve_unchanged(now, approval_id):
            return now
        return await self.call(name, arguments, approval_id=approval_id)

    def allowed_sync(
        self,
        name: str,
        arguments: Mapping[str, Any],
        approval_id: str,
        *,
        cancel: threading.Event | None = None,
    ) -> ToolResult:
        """Do what `allowed` does, from synchronous code; `cancel` is that of `call_sync`."""
        now = self.call_sync(name, arguments, cancel=cancel)
        if not self.approve_unchanged(now, approval_id):
            return now
        return self.call_sync(name, arguments, approval_id=approval_id, cancel=cancel)

    def approve_unchanged(self, now: ToolResult, approval_id: str) -> bool:
        """Approve a call that, planned again, still has this question; return whether it has."""
        if now.status != "pending" or now.approval_id != approval_id:
            return False
        self._answer(approval_id, Answer.ONCE)
        return True

    async def asked_about(self, name: str, call_id: str | None) -> str:
        """Return the id of the open question about a framework's call; empty when there is none.

        It is found by the framework's id of the call, also by a process that did not ask. Two
        questions with one id, from a model that uses an id twice, are none. The question approves
        nothing: `allowed` compares it with the call as it is then.
        """
        if not call_id:
            return ""
        whose = (name, self.agent, self.user, self.channel, call_id)
        found = [
            request.id
            for request in (one.request for one in await in_thread(self.house.approvals.pending))
            if (request.tool, request.agent, request.user, request.channel, request.call_id)
            == whose
        ]
        return found[0] if len(found) == 1 else ""

    def refused(self, approval_id: str, message: str = "") -> ToolResult:
        """Deny one approval for the user, and return the result for the model."""
        self._answer(approval_id, Answer.NO, message)
        reason = f": {sendable(message)}" if message else ""
        return ToolResult(content=f"not approved: refused{reason}", status="denied")

    def _answer(self, approval_id: str, answer: Answer, message: str = "") -> None:
        try:
            approval = self.house.approvals.get(approval_id)
            self.house.approvals.answer(
                approval.id,
                answer,
                by=self.user,
                channel=self.channel,
                nonce=approval.request.nonce,
                message=message,
            )
        except SkillhouseError as error:
            # Already answered elsewhere, or not valid: the gate reports that to the next call.
            logger.warning("the answer to approval %s was not taken: %s", approval_id, error)

    def caller(self, **ids: str) -> Caller:
        """Return who calls, with the framework's ids of the call; those given come first."""
        known = {**(_FRAMEWORK_IDS.get() or {}), **ids}
        return Caller(agent=self.agent, user=self.user, channel=self.channel, **known)

    def _request(self, result: ToolResult) -> ApprovalRequest | None:
        """Return the open question of a call; None when there is none or it cannot be read."""
        if result.status != "pending" or result.approval_id is None:
            return None
        try:
            return self.house.approvals.get(result.approval_id).request
        except SkillhouseError:
            logger.exception("reading approval %s", result.approval_id)
            return None


class KeptResult(Generic[V]):
    """Values by a framework's call ids; the oldest are dropped first."""

    MAX = 1_000

    def __init__(self) -> None:
        self._values: dict[str, V] = {}

    def keep(self, call_id: str | None, value: V) -> None:
        if call_id:
            self._values.pop(call_id, None)
            self._values[call_id] = value
            while len(self._values) > self.MAX:
                del self._values[next(iter(self._values))]

    def take(self, call_id: str | None) -> V | None:
        return self._values.pop(call_id or "", None)


CANCEL_SECONDS = 0.1
"""Delay until a cancellation is seen that is said by another thread."""


async def _cancelled(cancel: threading.Event | None, scope: anyio.CancelScope) -> None:
    # An event of another thread, which no event of this loop is set by.
    while cancel is not None and not cancel.is_set():  # noqa: ASYNC110
        await anyio.sleep(CANCEL_SECONDS)
    scope.cancel()


def _for_model(result: ToolResult) -> ToolResult:
    lines = filter(None, (result.content, kept_line(result.artifacts)))
    return replace(result, content=sendable("\n".join(lines)))


def _failed(name: str, error: Exception) -> ToolResult:
    text = str(error)
    if not isinstance(error, SkillhouseError) or isinstance(error, InternalFaultError):
        # The framework's loop goes on: the traceback is for our log, never for a model.
        logger.error("calling %s", name, exc_info=error)
        text = "the call failed inside skillhouse"
    return ToolResult(content=sendable(text), status="error")


def json_arguments(text: str) -> dict[str, Any]:
    """Return a call's arguments; those that are no JSON object in a form that the gate refuses."""
    try:
        arguments = json.loads(text or "{}")
    except (ValueError, RecursionError):
        arguments = None
    return arguments if isinstance(arguments, dict) else {"arguments": text}


@contextmanager
def framework_call(
    *, call_id: str | None, session_id: str | None, model: str = ""
) -> Iterator[None]:
    """Attach the framework's ids of call and conversation, and its model, to calls made inside."""
    token = _FRAMEWORK_IDS.set(
        {"call_id": call_id or "", "session_id": session_id or "", "model": model}
    )
    try:
        yield
    finally:
        _FRAMEWORK_IDS.reset(token)


async def lost_skills(
    bridge: FrameworkBridge, results: Iterable[tuple[str, str]], session_id: str | None
) -> str:
    """Return the texts of skills that a context has lost, as a message to begin it with.

    `results` has id and text of each call's result in the context. The framework's own record of
    the conversation is not changed, so the message stays the same until another skill is lost.
    Without an id of the conversation contexts cannot be distinguished, and nothing is attached.
    """
    if not session_id:
        return ""
    try:
        talk = bridge.conversation(session_id)
        reattached = await talk.reattachment(talk.activations.present(results))
    except SkillhouseError:
        # The framework's loop goes on: a context without the skills is better than none.
        logger.exception("attaching skills again")
        return ""
    return sendable(reattached.text)


def lost_skills_sync(
    bridge: FrameworkBridge, results: Iterable[tuple[str, str]], session_id: str | None
) -> str:
    """Do what `lost_skills` does, from synchronous code."""
    if not session_id:
        return ""
    try:
        talk = bridge.conversation(session_id)
        reattached = talk.reattachment_sync(talk.activations.present(results))
    except SkillhouseError:
        logger.exception("attaching skills again")
        return ""
    return sendable(reattached.text)
