"""Makes a request's call with its caller's ids, and has its client ask for approval if needed.

Servers of protocol 2026-07-28 may not send requests. There a call that needs approval ends as
`input_required` with the question and a sealed state; the client asks its user and repeats the call
with both, even to a later process.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import stat
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import cached_property
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
from msgspec import Struct

from skillhouse.approval import (
    Answer,
    ApprovalError,
    Connections,
    caller_connection,
    canonical,
    new_connection,
)
from skillhouse.floor import DecodeError, StateError, make_private, shaped, tracing
from skillhouse.floor.structs import asdict
from skillhouse.floor.threads import in_thread
from skillhouse.frontends.mcp.elicitation import (
    CURRENT_CLIENT,
    ElicitationClient,
    answer_of,
    elicitation_channel,
    elicitation_client,
)
from skillhouse.house import Caller, Skillhouse
from skillhouse.house.access_tokens import shared_key
from skillhouse.store import STATE_FILE, state_server
from skillhouse.tools import ToolResult

SESSION_HEADER = "mcp-session-id"
"""Has the id of a request's session until 2025-11-25; later revisions have none."""

Call = Callable[[Caller, str], Awaitable[ToolResult]]
"""Makes the call; gets the caller and the id of the approval that it may use."""


class ApprovalBridge:
    """One server's calls, with the questions that they raise."""

    def __init__(
        self, house: Skillhouse, who: dict[str, str], *, is_of_user: bool, identity: str = ""
    ) -> None:
        """Store the dependencies; `who` is agent, user and channel of this server's calls.

        With `is_of_user` the client is known to belong to the user, so its answers are the user's.
        `identity` is what clients have proved to be where requests have no connection: over HTTP.
        """
        self._house = house
        self._who = who
        self._is_of_user = is_of_user
        self._session = secrets.token_hex(8)
        self.flow = InputRequiredFlow(house, who)
        stateless = (identity, *who.values()) if identity else ()
        self.connections = ClientConnections(house.approvals.connections, stateless)
        self.running = 0
        """Calls that may still have to record their outcome."""

    def fields(self, context: ServerRequestContext[None]) -> dict[str, str]:
        """Return the fields of who makes the calls of a request."""
        ids = ids_of(context, self._session)
        return {**self._who, **self.connections.caller(context), **ids}

    def caller(self, context: ServerRequestContext[None]) -> Caller:
        """Return who makes the calls of a request."""
        return Caller(**self.fields(context))

    async def call_with_approval(
        self,
        context: ServerRequestContext[None],
        params: types.InputResponseRequestParams,
        call: Call,
    ) -> ToolResult | types.InputRequiredResult:
        """Make a call, or return the question for its client; raises MCPError for a wrong state."""
        caller, approval_id = self.fields(context), ""
        client = self.client_of(context, caller["session_id"])
        if client is not None:
            try:
                approval_id = await in_thread(lambda: self.flow.answered(params, caller))
            except DeniedError as error:
                return ToolResult(content=f"not approved: refused; {error}", status="denied")
        client = client or ElicitationClient()
        if client.send is not None and (client.form or client.url):
            elicitation_channel(self._house.approvals)
        result = await self.make(caller, approval_id, call, client)
        return result if approval_id else await self.question_or_result(result, client)

    def client_of(
        self, context: ServerRequestContext[None], session_id: str
    ) -> ElicitationClient | None:
        """Return how the client of a request can ask; None if its answers do not count."""
        if self._is_of_user and self._house.config.approvals.elicitation:
            return elicitation_client(context, session_id)
        return None

    async def make(
        self,
        caller: Mapping[str, str],
        approval_id: str,
        call: Call,
        client: ElicitationClient | None = None,
    ) -> ToolResult:
        """Make a call for `caller`, with the client that asks meanwhile, if it can."""
        token = CURRENT_CLIENT.set(client or ElicitationClient())
        self.running += 1
        try:
            return await call(Caller(**caller), approval_id)
        finally:
            self.running -= 1
            CURRENT_CLIENT.reset(token)

    async def question_or_result(
        self, result: ToolResult, client: ElicitationClient | None
    ) -> ToolResult | types.InputRequiredResult:
        """Return the question of a call that needs approval; the result if there is none to ask."""
        if result.status != "pending" or client is None:
            return result
        asked = await in_thread(lambda: self.flow.question(result.approval_id, client))
        return asked or result


ID_MAX = 128
"""Characters of a client's id or name."""
UNNAMED = "mcp"
SESSIONS_MAX = 10_000
"""Sessions over HTTP with a connection; the SDK opens no more."""


class ClientConnections:
    """The connections of one server's clients: one over stdio, one per session over HTTP.

    Since 2026-07-28 HTTP has no sessions: what a client proved to be and its name are the
    connection there, in each process of this state.
    """

    def __init__(self, connections: Connections, stateless: tuple[str, ...] = ()) -> None:
        """`stateless` identifies, beside the name, clients whose requests have no connection."""
        self._connections = connections
        self._stateless = stateless
        self._own = new_connection()
        self._sessions: OrderedDict[str, str] = OrderedDict()

    def caller(self, context: ServerRequestContext[None]) -> dict[str, str]:
        """Return a request's client, by what it says of itself, and its connection."""
        session = _session_header(context)
        if session and session not in self._sessions:
            self._sessions[session] = new_connection(identity="\0".join(self._stateless))
            if len(self._sessions) > SESSIONS_MAX:
                self.end_session(next(iter(self._sessions)))
        params = context.session.client_params
        info = None if params is None else params.client_info
        name, version = (printable(info.name), printable(info.version)) if info else ("", "")
        if session:
            connection = self._sessions[session]
        elif self._stateless:
            connection = caller_connection(*self._stateless, name)
        else:
            connection = self._own
        return {
            "client": name or UNNAMED,
            "client_info": f"{name} {version}".strip(),
            "connection": connection,
        }

    def end_session(self, session: str) -> None:
        # One that is another server's, or none: no connection ended here.
        if connection := self._sessions.pop(session, ""):
            self._connections.end(connection)

    def end(self) -> None:
        while self._sessions:
            self.end_session(next(iter(self._sessions)))
        self._connections.end(self._own)


def _session_header(context: ServerRequestContext[None]) -> str:
    headers = getattr(context.request, "headers", None)
    return headers.get(SESSION_HEADER, "") if headers is not None else ""


def ids_of(context: ServerRequestContext[None], own_session: str) -> dict[str, str]:
    given = _session_header(context)
    # A session's id gives access to the session, so the log gets a digest that identifies it.
    session = hashlib.sha256(given.encode()).hexdigest()[:16] if given else own_session
    request_id = "" if context.request_id is None else str(context.request_id)
    return {
        "session_id": session,
        "message_id": printable(request_id),
        "trace": trace_of(context),
    }


def trace_of(context: ServerRequestContext[None]) -> str:
    traceparent = (context.meta or {}).get("traceparent")
    headers = getattr(context.request, "headers", None)
    if traceparent is None and headers is not None:
        traceparent = headers.get("traceparent")
    if isinstance(traceparent, str) and tracing.is_traceparent(traceparent):
        return traceparent
    return ""


def printable(text: str) -> str:
    """Return an id as it can be logged."""
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in text[:ID_MAX])


AUDIENCE = "skillhouse"
QUESTION = "approval"
"""Key of the one question of a result."""

logger = logging.getLogger(__name__)


class FlowState(Struct, frozen=True, kw_only=True):
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
            self._codec.seal(b"")  # Creates the key, or says why there is none.
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
        approval decides about the call. `caller` has at least `client` and `connection`.

        Raises:
            MCPError: the state belongs to no question of this server.
            DeniedError: the user denied, after an approval elsewhere.
        """
        if params.request_state is None:
            # Responses without our state answer no question of ours.
            return ""
        state = self._checked(params.request_state, caller)
        given = (params.input_responses or {}).get(QUESTION)
        answer = answer_of(given) if isinstance(given, types.ElicitResult) else None
        if answer is not None:
            self.take_answer(state.approval, state.nonce, answer)
        elif isinstance(given, types.ElicitResult) and given.action != "accept":
            elicitation_channel(self._house.approvals).mark_unanswered(state.approval)
        return state.approval

    def take_answer(self, approval_id: str, nonce: str, answer: Answer) -> None:
        """Take an answer of the client's user; one that does not count changes nothing.

        Raises:
            DeniedError: the user denied, after an approval elsewhere.
        """
        try:
            user, channel = self._who["user"], self._who["channel"]
            self._house.approvals.answer(approval_id, answer, by=user, channel=channel, nonce=nonce)
        except ApprovalError as error:
            logger.info("an answer did not count: %s", error)
            if answer is Answer.NO:
                reason = f"denial of {approval_id} on {channel}: {error}"
                self._house.services.enforcement.noted("late-no", user=user, reason=reason)
                raise DeniedError(str(error)) from error

    def _checked(self, text: str, caller: Mapping[str, str]) -> FlowState:
        """Return the state, opened by the boundary, if the question belongs to this client."""
        approvals = self._house.approvals
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
    reason = {"reason": "invalid_request_state"}
    return MCPError(types.INVALID_PARAMS, "Invalid or expired requestState", reason)


KEY_FILE = "mcp-rounds.key"
"""In the state directory; shared by all servers of this installation. Where the state is on a
server, the first one of its servers puts its key there, for all of them."""
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
        self._state = directory / STATE_FILE

    @cached_property
    def sealing(self) -> AESGCMRequestStateCodec:
        """The SDK's codec; raises StateError without a usable key."""
        if state_server(self._state) is None:
            return AESGCMRequestStateCodec([read_or_create_key(self._path)])
        key = shared_key(self._state, KEY_FILE, lambda: read_or_create_key(self._path).hex())
        return AESGCMRequestStateCodec([bytes.fromhex(key)])

    def seal(self, payload: bytes) -> str:
        return self.sealing.seal(payload)

    def unseal(self, token: str) -> bytes:
        """Return the payload; raises InvalidRequestState if our key did not seal it, or is gone."""
        try:
            return self.sealing.unseal(token)
        except StateError as error:
            raise InvalidRequestState(str(error)) from error


def read_or_create_key(path: Path) -> bytes:
    """Return the key in a file, which is created if there is none; raises StateError."""
    try:
        make_private(path.parent)
        if not os.path.lexists(path):
            _create_key(path)
        return _read_key(path)
    except OSError as error:
        raise StateError(f"cannot use the key: {error.strerror}", path) from error


def _read_key(path: Path) -> bytes:
    with os.fdopen(os.open(path, _READING), "rb") as file:
        info = os.fstat(file.fileno())
        key = file.read(KEY_BYTES + 1) if stat.S_ISREG(info.st_mode) else b""
    if _IS_POSIX and (info.st_uid != os.geteuid() or info.st_mode & 0o077):
        raise StateError(
            "other users can access the key; delete it to have a new one created", path
        )
    if len(key) != KEY_BYTES:
        raise StateError(f"expected {KEY_BYTES} bytes; delete it to get a new key", path)
    return key


def _create_key(path: Path) -> None:
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
