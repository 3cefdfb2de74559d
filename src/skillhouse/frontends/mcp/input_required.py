"""Questions that come back with a retry (protocol 2026-07-28), also to a later server.

A server may not send requests there. A call that needs a yes ends as `input_required` with the
question and a sealed state; the client asks its person and repeats the call with both.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.request_state import (
    AESGCMRequestStateCodec,
    InvalidRequestState,
    RequestStateBoundary,
    RequestStateSecurity,
)
from mcp.shared.exceptions import MCPError

from skillhouse.approval import Answer, ApprovalBroker, ApprovalError, canonical
from skillhouse.floor import DecodeError, StateError, make_private, shaped
from skillhouse.frontends.mcp.elicitation import ElicitationClient, answer_of, elicitation_channel
from skillhouse.runtime import Skillhouse

AUDIENCE = "skillhouse"
QUESTION = "approval"
"""What the one question of a round is called."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowState:
    """What a client keeps between two rounds; it can neither read nor change it."""

    approval: str
    nonce: str
    """That of the question: an answer proves with it that this very one was shown."""
    content: str
    """Digest of the exact call."""


class DeniedError(Exception):
    """The person said no to a question that somebody else had said yes to."""


class InputRequiredFlow:
    """The questions of one server's calls, and the answers that come with retries."""

    def __init__(self, house: Skillhouse, who: dict[str, str]) -> None:
        """Take the house, and agent, user and channel of this server's calls."""
        self._house = house
        self._who = who
        self._codec = StateCodec(house.config.state_directory)

    def boundary(self) -> RequestStateBoundary:
        """Return what seals each state that leaves, and opens and checks each that comes back.

        A state is bound to the method, the tool and its arguments, to agent and user, and to an
        end; another one ends the request with -32602 before anything of ours runs.
        """
        principal = canonical(self._who)

        def bound(_: ServerRequestContext[Any, Any]) -> str:
            return principal

        security = RequestStateSecurity(
            codec=self._codec,
            ttl=float(self._house.config.approvals.expires_seconds),
            bind_principal=bound,
            audience=AUDIENCE,
        )
        return RequestStateBoundary(security, default_audience=AUDIENCE)

    def question(
        self, approval_id: str | None, client: ElicitationClient
    ) -> types.InputRequiredResult | None:
        """Return the round that asks an open question; None when the client cannot be asked."""
        if approval_id is None or client.send is not None or not (client.form or client.url):
            return None
        approvals = self._house.approvals
        request = approvals.get(approval_id).request
        wanted = elicitation_channel(approvals).question(request, client)
        if wanted is None:
            return None
        try:
            self._codec.prepare()
        except StateError as error:
            logger.warning("calls stay pending: %s", error)
            return None
        state = FlowState(
            approval=request.id, nonce=request.nonce, content=str(request.content_digest)
        )
        return types.InputRequiredResult(
            input_requests={QUESTION: types.ElicitRequest(params=wanted)},
            request_state=json.dumps(asdict(state)),
        )

    def answered(self, params: types.InputResponseRequestParams, caller: Mapping[str, str]) -> str:
        """Take the answer that a retry brings, and return the approval that its call is to use.

        Empty for a call that is no retry. An answer that does not count changes nothing: what
        becomes of the call is what the approval says.

        Args:
            params: Those of the request.
            caller: Has the client that calls and its connection.

        Raises:
            MCPError: the state is not of a question of this server.
            DeniedError: the person said no, after somebody else said yes.
        """
        if params.request_state is None:
            # Responses without our own state are to no question of ours.
            return ""
        approvals = self._house.approvals
        state = self._checked(params.request_state, approvals, caller)
        given = (params.input_responses or {}).get(QUESTION)
        answer = answer_of(given) if isinstance(given, types.ElicitResult) else None
        if answer is not None:
            self._take(approvals, state, answer)
        elif isinstance(given, types.ElicitResult) and given.action != "accept":
            elicitation_channel(approvals).mark_unanswered(state.approval)
        return state.approval

    def _take(self, approvals: ApprovalBroker, state: FlowState, answer: Answer) -> None:
        try:
            approvals.answer(
                state.approval,
                answer,
                by=self._who["user"],
                channel=self._who["channel"],
                nonce=state.nonce,
            )
        except ApprovalError as error:
            logger.info("an answer did not count: %s", error)
            if answer is Answer.NO:
                reason = f"a no to {state.approval} on {self._who['channel']}: {error}"
                self._house.safeguards.noted("late-no", user=self._who["user"], reason=reason)
                raise DeniedError(str(error)) from error

    def _checked(
        self, text: str, approvals: ApprovalBroker, caller: Mapping[str, str]
    ) -> FlowState:
        """Return the state, which the boundary has opened, if the question is this client's."""
        try:
            state = shaped(json.loads(text), FlowState)
            request = approvals.get(state.approval).request
        except (ValueError, DecodeError, ApprovalError) as error:
            raise _unknown() from error
        ours = {"agent": request.agent, "user": request.user, "channel": request.channel}
        if (request.id, request.content_digest) != (state.approval, state.content):
            raise _unknown()
        own = approvals.connections.own(request, caller["client"], caller["connection"])
        if ours != self._who or not own:
            raise _unknown()
        return state


def _unknown() -> MCPError:
    # The words of the boundary, so that a caller cannot tell one refusal from another.
    return MCPError(
        types.INVALID_PARAMS,
        "Invalid or expired requestState",
        {"reason": "invalid_request_state"},
    )


KEY_FILE = "mcp-rounds.key"
"""Below the state directory; every server of the house has the same."""
KEY_BYTES = 32

_READING = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_IS_POSIX = os.name == "posix"
"""Elsewhere the directory's own protection is all there is."""


class StateCodec:
    """Seals state with a key that outlives the process; the key is made when it is first needed.

    What is sealed is encrypted and authenticated (AES-GCM, by the SDK), so a client neither reads
    nor changes it.
    """

    def __init__(self, directory: Path) -> None:
        """Take the state directory."""
        self._path = directory / KEY_FILE
        self._codec: AESGCMRequestStateCodec | None = None

    def prepare(self) -> None:
        """Have a key.

        Raises:
            StateError: there is none that can be used, and none can be made.
        """
        if self._codec is None:
            self._codec = AESGCMRequestStateCodec([read_or_create_key(self._path)])

    def seal(self, payload: bytes) -> str:
        """Return a text that only this house can have made.

        Raises:
            StateError: as `prepare`.
        """
        self.prepare()
        assert self._codec is not None  # noqa: S101 - `prepare` made it.
        return self._codec.seal(payload)

    def unseal(self, token: str) -> bytes:
        """Return what was sealed.

        Raises:
            InvalidRequestState: this house did not make it, or the key is gone.
        """
        try:
            self.prepare()
        except StateError as error:
            raise InvalidRequestState(str(error)) from error
        assert self._codec is not None  # noqa: S101 - `prepare` made it.
        return self._codec.unseal(token)


def read_or_create_key(path: Path) -> bytes:
    """Return the key in a file that is its owner's alone; make it where there is none.

    Raises:
        StateError: it cannot be read or made, or others could have read or changed it.
    """
    try:
        make_private(path.parent)
        if not os.path.lexists(path):
            _make(path)
        return _read(path)
    except OSError as error:
        raise StateError(f"cannot use the key: {error.strerror}", path) from error


def _read(path: Path) -> bytes:
    handle = os.open(path, _READING)
    with os.fdopen(handle, "rb") as file:
        info = os.fstat(handle)
        key = file.read(KEY_BYTES + 1) if stat.S_ISREG(info.st_mode) else b""
    if _IS_POSIX and (info.st_uid != os.geteuid() or info.st_mode & 0o077):
        raise StateError("the key is not for its owner alone; delete it, and it is made anew", path)
    if len(key) != KEY_BYTES:
        raise StateError(f"expected {KEY_BYTES} bytes; delete it, and it is made anew", path)
    return key


def _make(path: Path) -> None:
    """Put a whole key in place; of two processes that do so at once, one is first."""
    made = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(made, path, follow_symlinks=False)
    finally:
        made.unlink()
