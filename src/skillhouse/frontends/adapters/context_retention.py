"""What adapters share to keep skills in a context: whose call it is, and what was lost."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from skillhouse.floor import SkillhouseError

if TYPE_CHECKING:
    from skillhouse.frontends.adapters.framework_bridge import FrameworkBridge

_CALLING: ContextVar[Mapping[str, str] | None] = ContextVar("skillhouse_calling", default=None)

logger = logging.getLogger(__name__)


@contextmanager
def calling(*, call_id: str | None, session_id: str | None) -> Iterator[None]:
    """Have calls of any desk inside carry the framework's ids of the call and the conversation."""
    token = _CALLING.set({"call_id": call_id or "", "session_id": session_id or ""})
    try:
        yield
    finally:
        _CALLING.reset(token)


def calling_ids() -> Mapping[str, str]:
    """Return the ids that `calling` set, if it did."""
    return _CALLING.get() or {}


def sendable(text: str) -> str:
    """Return a text that can be sent: names of files may hold bytes that are no Unicode."""
    return text.encode("utf-8", "backslashreplace").decode()


async def lost(
    desk: FrameworkBridge, results: Iterable[tuple[str, str]], session_id: str | None
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
        talk = desk.conversation(session_id)
        found = await talk.reattachment(talk.activations.present(results))
    except SkillhouseError:
        # Somebody else's loop: a context without the skills is better than none.
        logger.exception("attaching skills again")
        return ""
    return sendable(found.text)


def lost_sync(
    desk: FrameworkBridge, results: Iterable[tuple[str, str]], session_id: str | None
) -> str:
    """Do as `lost` does, from code that is not asynchronous."""
    if not session_id:
        return ""
    try:
        talk = desk.conversation(session_id)
        found = talk.reattachment_sync(talk.activations.present(results))
    except SkillhouseError:
        logger.exception("attaching skills again")
        return ""
    return sendable(found.text)
