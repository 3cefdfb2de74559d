"""Keeps questions, tells those who listen, and takes the first answer that counts."""

from __future__ import annotations

import dataclasses
import hmac
import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from skillhouse.approval.connections import Connections
from skillhouse.approval.grants import Grant, GrantStore
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
    closed,
    rejection,
    session_key,
)
from skillhouse.approval.wait import ApprovalOutcome, SessionLocks, outcome_of, wait_for_answer
from skillhouse.floor.threads import in_thread

MESSAGE_MAX = 2_000
"""Characters of what a person says with an answer."""

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalEvent:
    """Something that a subscriber is told."""

    kind: Literal["asked", "answered"]
    approval: Approval


class ApprovalBroker:
    """The questions of one house; every process of the house has one of its own on one store."""

    def __init__(
        self,
        state_directory: Path,
        *,
        matches: Callable[[str, str], bool],
        channels: Sequence[Channel] = (),
        settings: ApprovalSettings | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Take where state is kept, and who can be asked.

        Args:
            state_directory: Where the house keeps its state.
            matches: Whether a pattern of a lasting yes covers a resource.
            channels: Who is asked, all at once; the first valid answer counts.
            settings: The bounds of asking.
            clock: Seconds since 1970.
        """
        self.settings = settings or ApprovalSettings()
        self.channels = list(channels)
        self.page = self.settings.page_url
        """Address of the page where questions are decided, as far as this process knows it."""
        self.grant_store = GrantStore(state_directory)
        self.connections = Connections(state_directory)
        """The clients' connections that have asked in this process."""
        self._ledger = Ledger(state_directory, self.settings, clock)
        self._matches = matches
        self._subscribers: list[Callable[[ApprovalEvent], None]] = []
        self._turns = SessionLocks()
        # INVARIANT: held to change what follows; calls and pages come on threads of their own.
        self._lock = threading.Lock()
        self._session_grants: dict[str, tuple[Grant, ...]] = {}
        self._paired: tuple[tuple[int, ...], frozenset[str]] = ((), frozenset())

    def subscribe(self, told: Callable[[ApprovalEvent], None]) -> Callable[[], None]:
        """Tell a callable of each question and answer of this process, until what is returned runs.

        While there is a subscriber, a call waits for an answer before it is refused.
        """
        with self._lock:
            self._subscribers.append(told)

        def unsubscribe() -> None:
            with self._lock:
                if told in self._subscribers:
                    self._subscribers.remove(told)

        return unsubscribe

    def open(self, request: ApprovalRequest) -> Approval:
        """Keep a question until it is answered or ends, and tell the subscribers.

        Raises:
            ApprovalError: too many are open, or this user's calls ask too often.
            OSError: nobody could see later whether the client's connection has ended.
        """
        approval = self._opened(request)
        self._tell("asked", approval)
        return approval

    def _opened(self, request: ApprovalRequest) -> Approval:
        # INVARIANT: alive before the question is there, so that no other client can take it over.
        self.connections.hold(request.connection)
        return self._ledger.open(request)

    def get(self, prefix: str) -> Approval:
        """Return the question whose id is or begins with `prefix`.

        Raises:
            ApprovalError: there is none, or there are several.
        """
        found = self._ledger.beginning(prefix) if prefix else ()
        exact = [approval for approval in found if approval.id == prefix]
        if not found:
            raise ApprovalError("unknown", f"no approval begins with `{prefix}`")
        if len(found) > 1 and not exact:
            raise ApprovalError("ambiguous", f"{len(found)} approvals begin with `{prefix}`")
        return (exact or list(found))[0]

    def pending(self) -> tuple[Approval, ...]:
        """Return the open questions, oldest first."""
        return self._ledger.open_ones()

    def latest(self, limit: int = 50) -> tuple[Approval, ...]:
        """Return questions of any state, newest first."""
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
        device: str = "",
        device_name: str = "",
    ) -> Approval:
        """Answer a question; of all who answer, the first whose answer counts has answered it.

        Args:
            approval_id: The whole id.
            answer: What the person said.
            by: The user who said it, as the channel knows them.
            channel: Where they said it.
            nonce: That of the question, as a proof that this very one was seen.
            message: What the person would have instead.
            device: Id of the paired device that gave the answer, if one did.
            device_name: What that device is called.

        Raises:
            ApprovalError: the answer does not count; nothing was changed.
        """
        found = self._ledger.get(approval_id)
        if found is None:
            raise ApprovalError("unknown", f"no approval `{approval_id}`")
        if not hmac.compare_digest(found.request.nonce.encode(), _bytes(nonce)):
            raise ApprovalError(
                "wrong-nonce", f"the answer is to another question than `{found.id}`"
            )
        reply = Reply(
            answer=answer,
            by=by,
            channel=channel,
            message=_bytes(message[:MESSAGE_MAX]).decode(),
            device=device,
            device_name=device_name,
        )
        why_not = rejection(found.request, reply)
        if why_not:
            raise ApprovalError("not-allowed", f"the answer does not count: {why_not}")
        if answer not in allowed_answers(found.request):
            raise ApprovalError("not-offered", f"`{answer.value}` is not possible for this call")
        if not self._ledger.answer(found, reply, self._lasting(found.request, reply)):
            now = self._ledger.get(approval_id) or found
            if now.state is ApprovalState.OPEN and device:
                raise ApprovalError("not-allowed", "the device is not paired any more")
            raise ApprovalError(*closed(now))
        answered = self._ledger.get(approval_id) or found
        self._tell("answered", answered)
        self._answer_others(answered, reply)
        return answered

    def redeem(
        self,
        approval_id: str,
        content_digest: str,
        session: str,
        client: str = "",
        connection: str = "",
    ) -> Approval:
        """Use a yes for the call that it is about, once.

        Args:
            approval_id: The whole id.
            content_digest: Digest of the call as it is at the moment of use.
            session: Who calls, as `session_key` gives it; nobody else's call can use the yes.
            client: Name of the client that calls.
            connection: Its connection: the one that asked, or the successor of one that ended.

        Raises:
            ApprovalError: it is open, denied, ended, used, about another call or another client's.
        """
        is_owner = partial(self.connections.own, client=client, connection=connection)
        if self._ledger.redeem(approval_id, content_digest, session, is_owner):
            used = self._ledger.get(approval_id)
            if used is not None:
                if used.answer == Answer.SESSION.value:
                    self._allow_session(used, client, connection)
                return used
        found = self._ledger.get(approval_id)
        if found is None:
            raise ApprovalError("unknown", f"no approval `{approval_id}`")
        same = (found.request.content_digest, found.request.session)
        if same != (content_digest, session):
            raise ApprovalError(
                "another-call",
                "the call is not the one that was approved, or what it is about has changed since",
            )
        if not is_owner(found.request):
            raise another_client(found)
        if found.state is ApprovalState.APPROVED:
            raise ApprovalError("clock", "the clock went back since the question was asked")
        raise ApprovalError(*closed(found))

    async def request_approval(self, request: ApprovalRequest, given: str = "") -> ApprovalOutcome:
        """Return how a question stands: answered before, answered now, or still open.

        Calls of one conversation are asked about one after the other.

        Args:
            request: The exact call.
            given: Id of the approval that the caller says it has.
        """
        async with self._turns.of(f"{request.connection_key}{request.session_id}"):
            try:
                found, is_new = await in_thread(lambda: self._question(request, given))
                if is_new:
                    self._tell("asked", found)
                if found.state is ApprovalState.OPEN and not given:
                    found = await wait_for_answer(
                        found,
                        self.channels,
                        self.answer,
                        self._ledger,
                        wait_seconds=request.wait_seconds or self.settings.wait_seconds,
                        waits=bool(self._subscribers) or self.settings.unattended == "deny",
                    )
            except ApprovalError as error:
                return ApprovalOutcome(status="denied", reason=str(error))
            if found.state is ApprovalState.DENIED:
                await in_thread(lambda: self._ledger.delivered(found.id))
            return outcome_of(found)

    def _question(self, request: ApprovalRequest, given: str) -> tuple[Approval, bool]:
        """Return the question about a call, and whether it was not there before."""
        own, client, connection = self.connections.own, request.client, request.connection
        is_owner = partial(own, client=client, connection=connection)
        found = self._ledger.get(given) if given else self._ledger.repeated(request, is_owner)
        if given and found is None:
            raise ApprovalError("unknown", f"no approval `{given}`")
        if found is not None and not is_owner(found.request):
            raise another_client(found)
        if found is not None:
            return found, False
        self._refuse_in_cooldown(request)
        return self._opened(request), True

    def revoke(self, grant_id: str) -> bool:
        """Take a lasting yes back, with every yes of that user that waits to be used.

        A call that such a yes let through may have left its own behind, which must not outlive it.
        """
        revoked = self.grant_store.revoke(grant_id)
        if revoked is None:
            return False
        self._ledger.withdraw(revoked.user)
        return True

    def withdraw_all(self) -> None:
        """End all that waits: open questions, and each yes that was not used yet."""
        self._ledger.withdraw_all()

    def session_grants(self, session: str) -> tuple[Grant, ...]:
        """Return what was allowed for the rest of a connection, by whom still may answer.

        Args:
            session: Who calls, with the client's connection, as `session_key` gives it.
        """
        found = self._session_grants.get(session, ())
        if not any(grant.device for grant in found):
            return found
        # Another process may have unpaired the device.
        stamp = self._ledger.stamp()
        if stamp != self._paired[0]:
            self._paired = (stamp, self._ledger.paired())
        return tuple(g for g in found if not g.device or g.device in self._paired[1])

    def _lasting(self, request: ApprovalRequest, reply: Reply) -> tuple[Grant, ...]:
        """Return what an answer grants beyond this process."""
        if reply.answer not in (Answer.PROJECT, Answer.ALWAYS):
            return ()
        return self._grants(request, request.place if reply.answer is Answer.PROJECT else "", reply)

    def _grants(
        self, request: ApprovalRequest, place: str, given: Reply | Approval
    ) -> tuple[Grant, ...]:
        now = self._ledger.now_ms()
        return tuple(
            Grant(
                action=pattern.action,
                pattern=pattern.pattern,
                place=place,
                skill_digest=pattern.skill_digest,
                user=request.user,
                agent=request.agent,
                device=given.device,
                device_name=given.device_name,
                granted_ms=now,
                expires_ms=now + self.settings.grant_days * 86_400_000,
            )
            for pattern in request.patterns
        )

    def _allow_session(self, used: Approval, client: str, connection: str) -> None:
        request = used.request
        key = session_key(request.agent, request.user, request.channel, client, connection)
        with self._lock:
            before = self._session_grants.get(key, ())
            fresh = [g for g in self._grants(request, request.place, used) if g not in before]
            self._session_grants[key] = (*before, *fresh)

    def _answer_others(self, answered: Approval, reply: Reply) -> None:
        """Answer the open questions that this answer settles as well."""
        request = answered.request
        if reply.answer is Answer.NO:
            if not self.settings.reject_all:
                return
            word = "another call of this conversation was refused"
            outcome_of = dataclasses.replace(reply, message=word)
        elif reply.answer in LASTING:
            outcome_of = dataclasses.replace(
                reply, answer=Answer.ONCE, message=f"covered by the answer to {answered.id}"
            )
        else:
            return
        for other in self._ledger.open_ones():
            if self._is_settled(other.request, request, reply) and self._ledger.answer(
                other, outcome_of, ()
            ):
                self._tell("answered", self._ledger.get(other.id) or other)

    def _is_settled(self, other: ApprovalRequest, request: ApprovalRequest, reply: Reply) -> bool:
        if rejection(other, reply):
            return False
        if reply.answer is Answer.NO:
            return other.connection_key == request.connection_key
        if other.out_of_band_only or (other.user, other.agent) != (request.user, request.agent):
            return False
        if reply.answer is Answer.SESSION and other.connection_key != request.connection_key:
            return False
        if reply.answer is not Answer.ALWAYS and other.place != request.place:
            return False
        return all(
            any(
                pattern.action == asked.action
                and pattern.skill_digest == asked.skill_digest
                and self._matches(pattern.pattern, asked.resource)
                for pattern in request.patterns
            )
            for asked in other.asked
        )

    def _refuse_in_cooldown(self, request: ApprovalRequest) -> None:
        last_ms = self._ledger.repeated_denial_ms(request.session, request.tool)
        left = last_ms + DENIAL_COOLDOWN_SECONDS * 1000 - self._ledger.now_ms()
        if last_ms and left > 0:
            raise ApprovalError(
                "denied",
                f"`{request.tool}` was refused several times in a row; "
                f"nobody is asked about it for {-(-left // 1000)} seconds",
            )

    def _tell(self, kind: Literal["asked", "answered"], approval: Approval) -> None:
        for told in tuple(self._subscribers):
            try:
                told(ApprovalEvent(kind=kind, approval=approval))
            except Exception:
                # Somebody else's code: the others are told all the same.
                logger.exception("a subscriber of approvals failed")


def _bytes(text: str) -> bytes:
    """Return text of an untrusted source, which may hold half of a surrogate pair."""
    return text.encode("utf-8", "replace")
