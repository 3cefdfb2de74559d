"""Keeps questions, notifies subscribers, and accepts the first valid answer."""

from __future__ import annotations

import hmac
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec import Struct

from skillhouse.approval.connections import Connections
from skillhouse.approval.grants import Grant, GrantStore, ScriptStore, is_settled, narrowed
from skillhouse.approval.ledger import Ledger
from skillhouse.approval.request import (
    DENIAL_COOLDOWN_SECONDS,
    LASTING,
    Answer,
    Approval,
    ApprovalError,
    ApprovalRequest,
    ApprovalSettings,
    ApprovalState,
    Channel,
    Reply,
    allowed_answers,
    another_client,
    rejection,
    session_key,
    why_closed,
)
from skillhouse.approval.session_grants import SessionGrants
from skillhouse.approval.wait import (
    AWAITED,
    ApprovalOutcome,
    SessionLocks,
    outcome_of,
    wait_for_answer,
    wait_until_closed,
)
from skillhouse.floor.structs import replace
from skillhouse.floor.threads import in_thread

MESSAGE_MAX = 2_000
"""Characters of a message with an answer."""

logger = logging.getLogger(__name__)


class ApprovalEvent(Struct, frozen=True, kw_only=True):
    """What subscribers hear of a question."""

    kind: Literal["asked", "answered"]
    approval: Approval


class ApprovalBroker:
    """The questions of one state directory; each process that uses it has its own broker."""

    def __init__(
        self,
        state_directory: Path,
        *,
        narrows: Callable[[str, str], bool] = lambda offered, given: offered == given,
        channels: Sequence[Channel] = (),
        settings: ApprovalSettings | None = None,
        connections: Connections | None = None,
        clock: Callable[[], float] = time.time,
        denied: Callable[[Approval], object] = lambda _: None,
    ) -> None:
        """`narrows` says whether a rule about commands, the second, covers no more than another.
        All channels are asked at once; the first valid answer counts. `clock` gives seconds since
        1970. `denied` hears of a denial for which no call of this process waits: it may never be
        repeated. Nothing is opened before the first question."""
        self.settings = settings or ApprovalSettings()
        self.channels = list(channels)
        self._configured = tuple(channels)
        self.page = self.settings.page_url
        self.patience_seconds = 0.0
        """How long calls of this process wait for an answer; 0 is as `settings` says."""
        self.grant_store = GrantStore(state_directory)
        self.scripts = ScriptStore(state_directory)
        self.connections = connections or Connections(state_directory)
        self._ledger = Ledger(state_directory, self.settings, clock)
        self.narrows = narrows
        self._denied = denied
        self._waited: Counter[str] = Counter()
        self._is_ending = False
        self._subscribers: list[Callable[[ApprovalEvent], None]] = []
        self._session_locks = SessionLocks()
        # INVARIANT: held to change what follows; calls and pages come on threads of their own.
        self._lock = threading.Lock()
        self._sessions = SessionGrants(self.grant_store, self._ledger)
        self.connections.on_end(self._sessions.end_connection)

    def configure(self, settings: ApprovalSettings, channels: Sequence[Channel]) -> None:
        """Use other bounds from now on; channels and a page that a frontend has added stay."""
        added = [one for one in self.channels if one not in self._configured]
        self.channels[:], self._configured = [*channels, *added], tuple(channels)
        if self.page == self.settings.page_url:
            self.page = settings.page_url
        self.settings = self._ledger.settings = settings

    def subscribe(self, listener: Callable[[ApprovalEvent], None]) -> Callable[[], None]:
        """Report each question and answer of this process until the returned function is called.
        While there is a subscriber, a call waits for an answer before it is refused."""
        with self._lock:
            self._subscribers.append(listener)

        def unsubscribe() -> None:
            with self._lock:
                if listener in self._subscribers:
                    self._subscribers.remove(listener)

        return unsubscribe

    def open(self, request: ApprovalRequest) -> Approval:
        """Keep a question until it is answered or expires, and notify the subscribers. Raises
        ApprovalError if too many are open or asked, OSError if the connection cannot be tracked."""
        approval, _ = self._open_or_take(request, lambda _: False)
        self._notify("asked", approval)
        return approval

    def _open_or_take(
        self, request: ApprovalRequest, is_owner: Callable[[ApprovalRequest], bool]
    ) -> tuple[Approval, bool]:
        """Return a new question, or the one that another process opened meanwhile for the same
        call, and whether it is new."""
        # INVARIANT: alive before the question is there, so that no other client can take it over.
        self.connections.hold(request.connection)
        return self._ledger.open(request, is_owner)

    def get(self, prefix: str) -> Approval:
        """Return the question whose id begins with `prefix`; ApprovalError for none or several."""
        beginning = self._ledger.with_prefix(prefix) if prefix else ()
        exact = [approval for approval in beginning if approval.id == prefix]
        if not beginning:
            raise ApprovalError("unknown", f"no approval begins with `{prefix}`")
        if len(beginning) > 1 and not exact:
            raise ApprovalError("ambiguous", f"{len(beginning)} approvals begin with `{prefix}`")
        return (exact or list(beginning))[0]

    def pending(self) -> tuple[Approval, ...]:
        return self._ledger.open_ones()

    def latest(self, limit: int = 50) -> tuple[Approval, ...]:
        return self._ledger.latest(limit)

    def answer(
        self,
        approval_id: str,
        answer: Answer,
        *,
        by: str,
        channel: str,
        nonce: str,
        message: str = "",
        rules: Sequence[str] = (),
        device: str = "",
        device_name: str = "",
    ) -> Approval:
        """Answer a question; ApprovalError for an answer that does not count and changes nothing.
        `by` is the user as the channel knows them, `nonce` that of the question, which proves that
        it was shown, `message` what the person wants instead, `rules` those of a lasting answer
        where the person narrowed what was offered, `device` the id of a paired one."""
        question = self._ledger.get(approval_id)
        if question is None:
            raise ApprovalError("unknown", f"no approval `{approval_id}`")
        if not hmac.compare_digest(question.request.nonce.encode(), _bytes(nonce)):
            raise ApprovalError(
                "wrong-nonce", f"the answer is to another question than `{question.id}`"
            )
        reply = Reply(
            answer=answer,
            by=by,
            channel=channel,
            message=_bytes(message[:MESSAGE_MAX]).decode(),
            rules=tuple(rules),
            device=device,
            device_name=device_name,
        )
        why_not = rejection(question.request, reply)
        if why_not:
            raise ApprovalError("not-allowed", f"the answer does not count: {why_not}")
        if answer not in allowed_answers(question.request):
            raise ApprovalError("not-offered", f"`{answer.value}` is not possible for this call")
        request = self._narrowed(question.request, reply)
        if not self._ledger.answer(question, reply, request):
            now = self._ledger.get(approval_id) or question
            if now.state is ApprovalState.OPEN and device:
                raise ApprovalError("not-allowed", "the device is not paired any more")
            raise ApprovalError(*why_closed(now))
        answered = self._ledger.get(approval_id) or question
        self._notify("answered", answered)
        if answered.state is ApprovalState.DENIED and not self._waited[answered.id]:
            self._denied(answered)
        self._answer_others(answered, reply)
        return answered

    def _take(self, question: Approval, reply: Reply) -> None:
        """Take the answer of a channel, which no device signed; its name is who gave it, where
        that is another than the user."""
        self.answer(
            question.id,
            reply.answer,
            by=reply.by,
            channel=reply.channel,
            nonce=question.request.nonce,
            message=reply.message,
            rules=reply.rules,
            device_name=reply.device_name,
        )

    def _narrowed(self, request: ApprovalRequest, reply: Reply) -> ApprovalRequest:
        """Return the request with the rules that the answer gives instead of those offered."""
        if not reply.rules:
            return request
        if reply.answer not in LASTING:
            raise ApprovalError("not-offered", f"`{reply.answer.value}` writes no rule")
        patterns = narrowed(request.patterns, reply.rules, self.narrows)
        always = tuple(pattern.text for pattern in patterns)
        return replace(request, patterns=patterns, always=always)

    def redeem(
        self,
        approval_id: str,
        content_digest: str,
        session: str,
        client: str = "",
        connection: str = "",
    ) -> Approval:
        """Use an approval once, for the call as it is now. `session` is the caller's `session_key`;
        the connection must be the one that asked, or the successor of one that ended. Otherwise, or
        if it is open, denied, ended, used or about another call, raises ApprovalError."""
        is_owner = partial(self.connections.own, client=client, connection=connection)
        if self._ledger.redeem(approval_id, content_digest, session, is_owner):
            used = self._ledger.get(approval_id)
            if used is not None:
                return used
        approval = self._ledger.get(approval_id)
        if approval is None:
            raise ApprovalError("unknown", f"no approval `{approval_id}`")
        same = (approval.request.content_digest, approval.request.session)
        if same != (content_digest, session):
            raise ApprovalError(
                "another-call",
                "the call is not the one that was approved, or what it is about has changed since",
            )
        if not is_owner(approval.request):
            raise another_client(approval)
        if approval.state is ApprovalState.APPROVED:
            raise ApprovalError("clock", "the clock went back since the question was asked")
        raise ApprovalError(*why_closed(approval))

    def store_rules(self, used: Approval, client: str = "", connection: str = "") -> bool:
        """Store the rules that a lasting answer gave, and no others; return whether there are any.

        INVARIANT: called once the call has begun. An answer whose call never runs leaves no rule
        behind, and one that runs was redeemed under the rules that the person was asked under.
        """
        if used.answer not in LASTING:
            return False
        is_session = used.answer == Answer.SESSION
        place = "" if used.answer == Answer.ALWAYS else used.request.place
        grants = self._grants(used, place)
        if not self._ledger.store_grants(used.id, () if is_session else grants):
            return False
        if is_session:
            self._allow_session(used.request, grants, client, connection)
        return True

    async def request_approval(self, request: ApprovalRequest, given: str = "") -> ApprovalOutcome:
        """Return the outcome of a question: answered before, answered now, or still open. Calls of
        one conversation are asked about one after the other. `given` is the id of the approval that
        the caller says it has."""
        async with self._session_locks.of(f"{request.connection_key}{request.session_id}"):
            try:
                approval, is_new = await in_thread(lambda: self._find_or_open(request, given))
                if is_new:
                    self._notify("asked", approval)
                # What a kept approval waits for is asked about instead; see `Ledger.keep`.
                question = await in_thread(partial(self._waited_for, approval))
                if question.state is ApprovalState.OPEN and not given:
                    question = await self._wait(question)
            except ApprovalError as error:
                return ApprovalOutcome(status="denied", reason=str(error))
            if question.state is ApprovalState.DENIED:
                await in_thread(lambda: self._ledger.delivered(question.id))
            if question.id != approval.id and question.state is ApprovalState.APPROVED:
                question = approval
            return replace(outcome_of(question), is_new=is_new)

    def _find_or_open(self, request: ApprovalRequest, given: str) -> tuple[Approval, bool]:
        """Return the caller's question about this call, and whether it was opened just now."""
        own, client, connection = self.connections.own, request.client, request.connection
        is_owner = partial(own, client=client, connection=connection)
        if given:
            # A call that ended at a question of its own gave the id of that.
            question = self._ledger.kept_for(given, request) or self._ledger.get(given)
        else:
            question = self._ledger.repeated(request, is_owner)
        if given and question is None:
            raise ApprovalError("unknown", f"no approval `{given}`")
        if question is not None and not is_owner(question.request):
            raise another_client(question)
        if question is not None:
            return question, False
        self._refuse_in_cooldown(request)
        return self._open_or_take(request, is_owner)

    def _refuse_in_cooldown(self, request: ApprovalRequest) -> None:
        last_ms = self._ledger.repeated_denial_ms(request.session, request.tool)
        left = last_ms + DENIAL_COOLDOWN_SECONDS * 1000 - self._ledger.now_ms()
        if last_ms and left > 0:
            raise ApprovalError(
                "denied",
                f"`{request.tool}` was refused several times in a row; "
                f"its questions are refused for {-(-left // 1000)} seconds",
            )

    def _waited_for(self, approval: Approval) -> Approval:
        """Return the question that a kept approval waits for; of any other itself."""
        if not approval.waits_for or approval.state is not ApprovalState.APPROVED:
            return approval
        return self._ledger.get(approval.waits_for) or approval

    async def _wait(self, question: Approval) -> Approval:
        with self._waiting(question.id):
            return await wait_for_answer(
                question,
                self.channels,
                self._take,
                self._ledger,
                wait_seconds=question.request.wait_seconds
                or self.patience_seconds
                or self.settings.wait_seconds,
                waits=bool(self._subscribers) or self.settings.unattended == "deny",
                is_ending=lambda: self._is_ending,
            )

    @contextmanager
    def _waiting(self, approval_id: str) -> Iterator[None]:
        """Count a call that waits for a question, and will record its denial."""
        self._waited[approval_id] += 1
        awaited = AWAITED.get()
        if awaited is not None:
            awaited.append(approval_id)
        try:
            yield
        finally:
            if awaited is not None:
                awaited.remove(approval_id)
            self._waited[approval_id] -= 1
            if not self._waited[approval_id]:
                del self._waited[approval_id]

    async def answered(self, approval_id: str, *, wait_seconds: float) -> bool:
        """Wait until a question is open no more, in whatever process that happens; return whether
        it is. The wait keeps nothing open, and its end closes nothing."""
        with self._waiting(approval_id):
            return await wait_until_closed(self._ledger, approval_id, wait_seconds)

    def end_waits(self) -> None:
        """Let calls of this process wait no more: their questions stay open, here and at every
        other server, and the repeated call finds the answer."""
        self._is_ending = True

    def keep(self, approval: Approval, waits_for: str) -> bool:
        """Keep the approval of a call that ended at a question of its own: see `Ledger.keep`."""
        return self._ledger.keep(approval.id, waits_for)

    def withdraw(self, approval_id: str, message: str) -> bool:
        """Close a question whose caller does not wait any more, and an approval not yet used."""
        return self._ledger.withdraw_one(approval_id, message)

    def revoke(self, grant_id: str) -> bool:
        """Revoke a standing approval or one of a session, and all unused ones of its user, which
        may stem from it, and would give it once more."""
        revoked = self.grant_store.revoke(grant_id)
        user = self.grant_store.revoke_session(grant_id) if revoked is None else revoked.user
        if user is None:
            return False
        self._ledger.withdraw(user)
        return True

    def withdraw_all(self) -> None:
        """Withdraw open questions, unused approvals, and those for the rest of sessions."""
        self._sessions.forget()
        self._ledger.withdraw_all()
        self.grant_store.end_sessions()

    def listed_grants(self) -> tuple[Grant, ...]:
        """Return the standing approvals, and those of sessions that servers share."""
        return (*self.grant_store.all(), *self.grant_store.sessions(self._ledger.now_ms()))

    def session_grants(self, session: str) -> tuple[Grant, ...]:
        """Return the grants for the rest of a connection but those of unpaired devices. `session`
        is the caller's `session_key` with the client's connection.

        None where the state cannot be reached: a grant only ever allows, so what is left is
        stricter, and reads go on.
        """
        return self._sessions.of(session)

    def _grants(self, used: Approval, place: str) -> tuple[Grant, ...]:
        request, now = used.request, self._ledger.now_ms()
        return tuple(
            Grant(
                action=pattern.action,
                pattern=pattern.pattern,
                place=place,
                skill_digest=pattern.skill_digest,
                user=request.user,
                agent=request.agent,
                device=used.device,
                device_name=used.device_name,
                granted_ms=now,
                expires_ms=now + self.settings.grant_days * 86_400_000,
            )
            for pattern in request.patterns
        )

    def _allow_session(
        self, request: ApprovalRequest, grants: Sequence[Grant], client: str, connection: str
    ) -> None:
        key = session_key(request.agent, request.user, request.channel, client, connection)
        self._sessions.allow(key, grants)

    def _answer_others(self, answered: Approval, reply: Reply) -> None:
        request = answered.request
        if reply.answer is Answer.NO:
            if not self.settings.reject_all:
                return
            word = "another call of this conversation was refused"
            other_reply = replace(reply, message=word)
        elif reply.answer in LASTING:
            other_reply = replace(
                reply, answer=Answer.ONCE, message=f"covered by the answer to {answered.id}"
            )
        else:
            return
        for other in self._ledger.open_ones():
            if is_settled(other.request, request, reply) and self._ledger.answer(
                other, other_reply
            ):
                self._notify("answered", self._ledger.get(other.id) or other)

    def _notify(self, kind: Literal["asked", "answered"], approval: Approval) -> None:
        for listener in tuple(self._subscribers):
            try:
                listener(ApprovalEvent(kind=kind, approval=approval))
            except Exception:
                # Foreign code: its fault must not keep events from the other subscribers.
                logger.exception("a subscriber of approvals failed")


def _bytes(text: str) -> bytes:
    """Encode untrusted text, which may hold half of a surrogate pair."""
    return text.encode("utf-8", "replace")
