"""Questions that are answered with a retry (protocol 2026-07-28), even to a later process.

Servers of this revision may not send requests. A call that needs approval ends as `input_required`
with the question and a sealed state; the client asks its user and repeats the call with both.
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
"""Key of the one question of a result."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowState:
    """State that a client returns with its retry; it can neither read nor change it."""

    approval: str
    nonce: str
    """The question's nonce, which proves that exactly this question was shown."""
    content: str
    """Digest of the exact call."""


class DeniedError(Exception):
    """The user denied a question that was approved elsewhere before."""


class InputRequiredFlow:
    """The questions of one server's calls, and the answers in retries."""

    def __init__(self, house: Skillhouse, who: dict[str, str]) -> None:
        """Store the dependencies; `who` is agent, user and channel of this server's calls."""
        self._house = house
        self._who = who
        self._codec = StateCodec(house.config.state_directory)

    def boundary(self) -> RequestStateBoundary:
        """Return the middleware that seals each state sent, and opens and checks each received.

        A state is bound to method, tool and arguments, to agent and user, and expires; any other
        one ends the request with -32602 before our code runs.
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
        """Return the result that asks an open question; None if the client cannot ask it."""
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
        """Process the answer in a retry, and return the id of the approval that its call may use.

        Empty if the call is not a retry. An answer that does not count changes nothing: the
        approval decides about the call.

        Args:
            params: The request's parameters.
            caller: Has at least `client` and `connection`.

        Raises:
            MCPError: the state belongs to no question of this server.
            DeniedError: the user denied, after an approval elsewhere.
        """
        if params.request_state is None:
            # Responses without our state answer no question of ours.
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
                reason = f"denial of {state.approval} on {self._who['channel']}: {error}"
                self._house.services.enforcement.noted(
                    "late-no", user=self._who["user"], reason=reason
                )
                raise DeniedError(str(error)) from error

    def _checked(
        self, text: str, approvals: ApprovalBroker, caller: Mapping[str, str]
    ) -> FlowState:
        """Return the state, opened by the boundary, if the question belongs to this client."""
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
    # The boundary's words, so that callers cannot distinguish the reasons.
    return MCPError(
        types.INVALID_PARAMS,
        "Invalid or expired requestState",
        {"reason": "invalid_request_state"},
    )


KEY_FILE = "mcp-rounds.key"
"""In the state directory; shared by all servers of this installation."""
KEY_BYTES = 32

_READING = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_IS_POSIX = os.name == "posix"
"""Elsewhere only the directory's permissions protect the key."""


class StateCodec:
    """Encrypts and authenticates state (AES-GCM, by the SDK) with a key that outlives the process.

    The key is created in the state directory `directory` when it is first needed.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / KEY_FILE
        self._codec: AESGCMRequestStateCodec | None = None

    def prepare(self) -> AESGCMRequestStateCodec:
        """Read or create the key.

        Raises:
            StateError: there is no usable key, and none can be created.
        """
        if self._codec is None:
            self._codec = AESGCMRequestStateCodec([read_or_create_key(self._path)])
        return self._codec

    def seal(self, payload: bytes) -> str:
        """Return the sealed payload; raises StateError as `prepare` does."""
        return self.prepare().seal(payload)

    def unseal(self, token: str) -> bytes:
        """Return the payload.

        Raises:
            InvalidRequestState: it was not sealed with this installation's key, or the key is gone.
        """
        try:
            codec = self.prepare()
        except StateError as error:
            raise InvalidRequestState(str(error)) from error
        return codec.unseal(token)


def read_or_create_key(path: Path) -> bytes:
    """Return the key in a file; create the file if there is none.

    Raises:
        StateError: it cannot be read or created, or others could have read or changed it.
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
        raise StateError(
            "other users can access the key; delete it to have a new one created", path
        )
    if len(key) != KEY_BYTES:
        raise StateError(f"expected {KEY_BYTES} bytes; delete it to get a new key", path)
    return key


def _make(path: Path) -> None:
    """Create the key atomically; of two processes that do so at once, the first one wins."""
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
