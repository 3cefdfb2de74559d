"""What all adapters share: shown tools, calls that never raise, and a person's word on one call."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from skillhouse.approval import Answer, ApprovalRequest
from skillhouse.discovery import within
from skillhouse.floor import SkillhouseError
from skillhouse.floor.threads import in_thread
from skillhouse.permission import Effect
from skillhouse.runtime import Conversation, Skillhouse
from skillhouse.tools import ProgressHandler, Tool, ToolResult

V = TypeVar("V")

logger = logging.getLogger(__name__)

OPENAI_CHARS = 1_000
"""Characters of a tool's description where OpenAI's API, or one that does as it does, may get it:
that API refuses a request with a description of more than 1,024 (`string_above_max_length`,
getsentry/sentry-mcp#106)."""
LONG_DESCRIPTIONS = ("anthropic", "google")
"""How providers are called whose own API takes longer ones."""


def description_chars(provider: str) -> int | None:
    """Return the bound of descriptions for a provider; those that nothing is known of get OpenAI's.

    >>> description_chars("openrouter"), description_chars("anthropic")
    (1000, None)
    """
    return None if provider.startswith(LONG_DESCRIPTIONS) else OPENAI_CHARS


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTools:
    """A tool as every provider takes it."""

    name: str
    description: str
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkBridge:
    """One framework's place in a house: who calls, and on which channel."""

    house: Skillhouse
    channel: str
    """Named after the framework; answers of its person come from there."""
    agent: str = "default"
    user: str = "local"
    ask: bool = True
    """Whether questions go to the framework; the model is told of them where they do not."""

    def tools(self, chars: int | None = None) -> list[OfferedTools]:
        """Return the agent's tools, all from one look.

        Args:
            chars: Most characters of a description; None leaves the profile's bound, and 0 leaves
                the list of skills out of the skill tool's.

        Raises:
            ConfigError: no agent has that name.
        """
        return [
            OfferedTools(
                name=tool.name,
                description=sendable(_description(tool, chars)),
                # Frameworks change what they are given; the gate's own stays as it is.
                schema=copy.deepcopy(dict(tool.schema)),
            )
            for tool in self.house.tools(agent=self.agent)
        ]

    def prompt(
        self, offered: Iterable[str] | None = None, *, prefix: str = "", always: bool = False
    ) -> str:
        """Return what the system prompt says of the skills; mostly nothing, the tool lists them.

        Args:
            offered: Names of the tools that the model is offered; all of them when None.
            prefix: What the framework puts before the names of tools.
            always: List the skills although the tool lists them too.
        """
        return sendable(self.house.view(self.agent).prompts(prefix).system(offered, always=always))

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        approval_id: str = "",
        listener: ProgressHandler | None = None,
        **ids: str,
    ) -> ToolResult:
        """Let a call through the gate; whatever goes wrong is a result for the model.

        `listener` and `ids` are as of `Skillhouse.call`.
        """
        try:
            asked = {**self._caller(), "approval_id": approval_id, **ids}
            return self._for_model(
                await self.house.call(name, arguments, listener=listener, **asked)
            )
        except SkillhouseError as error:
            return _failed(str(error))
        except Exception:
            # Somebody else's loop: a traceback is for our log, never for a model.
            logger.exception("calling %s", name)
            return _failed("the call failed inside skillhouse")

    def call_sync(
        self, name: str, arguments: Mapping[str, Any], *, approval_id: str = ""
    ) -> ToolResult:
        """Do as `call` does, from code that is not asynchronous."""
        try:
            return self._for_model(
                self.house.call_sync(name, arguments, approval_id=approval_id, **self._caller())
            )
        except SkillhouseError as error:
            return _failed(str(error))
        except Exception:
            # Somebody else's loop: a traceback is for our log, never for a model.
            logger.exception("calling %s", name)
            return _failed("the call failed inside skillhouse")

    def question(self, result: ToolResult) -> dict[str, Any] | None:
        """Return what the framework's person is asked, or None where it is not for them to say.

        What signs is decided on the transaction page or a paired device only.
        """
        request = self._request(result)
        if not self.ask or request is None or request.level == "sign":
            return None
        return {
            "approval_id": result.approval_id,
            "tool": request.tool,
            "title": sendable(request.title),
            "reasons": [sendable(reason) for reason in request.reasons],
            "facts": [[sendable(label), sendable(fact)] for label, fact in request.facts],
        }

    async def may_ask(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Whether the gate may not simply allow a call, for frameworks that ask beforehand.

        A forecast, for which nothing is done or recorded. In doubt it may; the gate then says what
        is wrong. It is worked out on another thread: git is asked in a sandbox what it would write.
        """
        caller = self._caller()
        try:
            found = await in_thread(lambda: self.house.forecast(name, arguments, **caller))
        except Exception:
            # A tool that is gone, an agent that nobody knows: each is the gate's to say.
            logger.debug("no forecast for %s", name, exc_info=True)
            return True
        return found.effect is not Effect.ALLOW

    def conversation(self, session_id: str) -> Conversation:
        """Return the house's account of one of the framework's conversations."""
        return self.house.conversation(
            agent=self.agent, user=self.user, channel=self.channel, session_id=session_id
        )

    async def allowed(
        self, name: str, arguments: Mapping[str, Any], approval_id: str
    ) -> ToolResult:
        """Give the person's yes to one approval, and repeat the call with it.

        The call is worked out anew first. If it is another one by now, since its arguments or the
        files that it depends on have changed, it has another approval: the yes is not given, and
        that one is returned as pending.
        """
        now = await self.call(name, arguments)
        if now.status != "pending" or now.approval_id != approval_id:
            return now
        self._answer(approval_id, Answer.ONCE)
        return await self.call(name, arguments, approval_id=approval_id)

    def allowed_sync(self, name: str, arguments: Mapping[str, Any], approval_id: str) -> ToolResult:
        """Do as `allowed` does, from code that is not asynchronous."""
        now = self.call_sync(name, arguments)
        if now.status != "pending" or now.approval_id != approval_id:
            return now
        self._answer(approval_id, Answer.ONCE)
        return self.call_sync(name, arguments, approval_id=approval_id)

    def refused(self, approval_id: str, message: str = "") -> ToolResult:
        """Give the person's no to one approval, and return what the model is told."""
        self._answer(approval_id, Answer.NO, message)
        said = f": {sendable(message)}" if message else ""
        return ToolResult(content=f"not approved: refused{said}", status="denied")

    def _answer(self, approval_id: str, answer: Answer, message: str = "") -> None:
        try:
            found = self.house.approvals.get(approval_id)
            self.house.approvals.answer(
                found.id,
                answer,
                by=self.user,
                channel=self.channel,
                nonce=found.request.nonce,
                message=message,
            )
        except SkillhouseError as error:
            # Somebody else was first, or it does not count: the gate says so to the next call.
            logger.warning("the answer to approval %s was not taken: %s", approval_id, error)

    def _caller(self) -> dict[str, str]:
        return {
            "agent": self.agent,
            "user": self.user,
            "channel": self.channel,
            **framework_ids(),
        }

    def _for_model(self, result: ToolResult) -> ToolResult:
        text = sendable(result.content)
        request = self._request(result)
        if request is not None and request.level == "sign":
            text = (
                f"not approved yet: {'; '.join(request.reasons)}; nothing was done. This call "
                f"signs: ask the user to approve {request.id} on the skillhouse page or a paired "
                "device, then repeat the same call"
            )
        return replace(result, content=sendable(text))

    def _request(self, result: ToolResult) -> ApprovalRequest | None:
        """Return the open question of a call, if there is one that can be read."""
        if result.status != "pending" or result.approval_id is None:
            return None
        try:
            return self.house.approvals.get(result.approval_id).request
        except SkillhouseError:
            logger.exception("reading approval %s", result.approval_id)
            return None


class KeptResult(Generic[V]):
    """What is known about a framework's call ids; the oldest go first."""

    MAX = 1_000

    def __init__(self) -> None:
        self._values: dict[str, V] = {}

    def keep(self, call_id: str | None, value: V) -> None:
        """Remember something about a call; nothing where the framework gave it no id."""
        if call_id:
            self._values.pop(call_id, None)
            self._values[call_id] = value
            while len(self._values) > self.MAX:
                del self._values[next(iter(self._values))]

    def take(self, call_id: str | None) -> V | None:
        """Return what is known about a call, and forget it."""
        return self._values.pop(call_id or "", None)


def _description(tool: Tool, chars: int | None) -> str:
    """Return a description as `FrameworkBridge.tools` has it; its list says what it leaves out."""
    if chars is None or 0 < chars >= len(tool.description):
        return tool.description
    shortened: Callable[[int], str] | None = getattr(tool, "description_within", None)
    text = tool.description if shortened is None else shortened(chars)
    return within(text, chars) if chars else text


def _failed(text: str) -> ToolResult:
    return ToolResult(content=sendable(text), status="error")


_CALLING: ContextVar[Mapping[str, str] | None] = ContextVar("skillhouse_calling", default=None)


@contextmanager
def framework_call(*, call_id: str | None, session_id: str | None) -> Iterator[None]:
    """Have calls of any desk inside carry the framework's ids of the call and the conversation."""
    token = _CALLING.set({"call_id": call_id or "", "session_id": session_id or ""})
    try:
        yield
    finally:
        _CALLING.reset(token)


def framework_ids() -> Mapping[str, str]:
    """Return the ids that `framework_call` set, if it did."""
    return _CALLING.get() or {}


def sendable(text: str) -> str:
    """Return a text that can be sent: names of files may hold bytes that are no Unicode."""
    return text.encode("utf-8", "backslashreplace").decode()


async def lost_skills(
    bridge: FrameworkBridge, results: Iterable[tuple[str, str]], session_id: str | None
) -> str:
    """Return the skills' texts that a context has not any more, as a message to begin it with.

    The framework's own record of the conversation stays as it is: the same message is given until
    something else is lost.

    Args:
        desk: Whose conversation it is.
        results: Of each result of a call in the context, the call's id and the text.
        session_id: The framework's id of the conversation. Without one, nobody can say which of
            several contexts has lost what, and nothing is given again.
    """
    if not session_id:
        return ""
    try:
        talk = bridge.conversation(session_id)
        found = await talk.reattachment(talk.activations.present(results))
    except SkillhouseError:
        # Somebody else's loop: a context without the skills is better than none.
        logger.exception("attaching skills again")
        return ""
    return sendable(found.text)


def lost_skills_sync(
    bridge: FrameworkBridge, results: Iterable[tuple[str, str]], session_id: str | None
) -> str:
    """Do as `lost_skills` does, from code that is not asynchronous."""
    if not session_id:
        return ""
    try:
        talk = bridge.conversation(session_id)
        found = talk.reattachment_sync(talk.activations.present(results))
    except SkillhouseError:
        logger.exception("attaching skills again")
        return ""
    return sendable(found.text)
