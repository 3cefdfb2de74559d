"""The questions in the state database: every change is one compare-and-set."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from skillhouse.approval.grants import Grant, insert_grants
from skillhouse.approval.request import (
    APPROVAL_SECONDS,
    CLOCK_BACK_SECONDS,
    CONTENT_SECONDS,
    DENIAL_COOLDOWN_AFTER,
    KEPT_MAX,
    KEPT_SECONDS,
    RATE_SECONDS,
    Answer,
    Approval,
    ApprovalError,
    ApprovalRequest,
    ApprovalSettings,
    ApprovalState,
    Reply,
)
from skillhouse.floor import digest, shaped, structs
from skillhouse.store import (
    STATE,
    STATE_FILE,
    StateConnection,
    commit_stamp,
    pooled,
    state_clock,
    state_exists,
)

_NOT_KEPT = "withdrawn"
"""In `waits_for` of an approval that is in use: `keep` does not keep it, since it was withdrawn."""
_COLUMNS = (
    "request, state, expires_ms, answer, answered_by, answered_channel, message, closed_ms, "
    "device, device_name, waits_for"
)
_FOUND_COUNT = "found_count"
"""Member of a stored request that earlier versions did not write."""
_FIELDS = (
    *("answer", "by", "channel", "message", "closed_ms", "device", "device_name", "waits_for"),
)
"""The fields of an `Approval` that the columns from `answer` on are."""


class Ledger:
    """The questions as they are stored; what a person or a channel does is in `broker`."""

    def __init__(
        self, state_directory: Path, settings: ApprovalSettings, clock: Callable[[], float]
    ) -> None:
        self._path = state_directory / STATE_FILE
        self.settings = settings
        self._clock = state_clock(self._path, clock)

    def now_ms(self) -> int:
        return int(self._clock() * 1000)

    def stamp(self) -> tuple[int, ...]:
        """Return numbers that change with each write of any process."""
        return commit_stamp(self._path)

    def open(
        self, request: ApprovalRequest, is_owner: Callable[[ApprovalRequest], bool]
    ) -> tuple[Approval, bool]:
        """Add an id, a nonce and an end; ApprovalError if too many are open or asked.

        Returns what another process has opened meanwhile for the same call of the same caller, if
        there is such a question, and whether the question is new.
        """
        now = self.now_ms()
        request = structs.replace(
            request,
            id=secrets.token_hex(8),
            nonce=secrets.token_urlsafe(16),
            opened_ms=now,
            expires_ms=now + self.settings.expires_seconds * 1000,
        )
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            _sweep(connection, now)
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM approval "  # noqa: S608 - columns are ours.
                "WHERE content_digest = ? AND session = ? AND state = 'open' ORDER BY seq DESC",
                (request.content_digest, request.session),
            ).fetchall()
            for row in rows:
                found = _approval(row, now)
                if is_owner(found.request):
                    return found, False
            self._refuse_flood(connection, request.user, now)
            connection.execute(
                "INSERT INTO approval (id, state, request, content_digest, session, user_name, "
                "tool, nonce, opened_ms, expires_ms) VALUES (?, 'open', ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    request.id,
                    _stored_text(request),
                    request.content_digest,
                    request.session,
                    request.user,
                    request.tool,
                    request.nonce,
                    now,
                    request.expires_ms,
                ),
            )
        return Approval(request=request, state=ApprovalState.OPEN), True

    def answer(
        self,
        question: Approval,
        reply: Reply,
        request: ApprovalRequest | None = None,
    ) -> bool:
        """Write an answer; return whether the question was still open. `request` is the question
        with the rules that the person narrowed; None where it is as it was asked."""
        now = self.now_ms()
        state = ApprovalState.DENIED if reply.answer is Answer.NO else ApprovalState.APPROVED
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            _expire_due(connection, now)
            # INVARIANT: the state is compared and set in one statement, so that of two answers,
            # from whatever process, exactly one counts.
            changed = connection.execute(
                "UPDATE approval SET state = ?, answer = ?, answered_by = ?, answered_channel = ?, "
                "message = ?, closed_ms = ?, request = ?, device = ?, device_name = ?, "
                "expires_ms = CASE WHEN expires_ms > ? THEN expires_ms ELSE ? END "
                "WHERE id = ? AND state = 'open' AND nonce = ? AND expires_ms > ? "
                # INVARIANT: a device that was unpaired meanwhile gives no answer.
                "AND (? = '' OR EXISTS (SELECT 1 FROM device WHERE id = ?))",
                (
                    state.value,
                    reply.answer.value,
                    reply.by,
                    reply.channel,
                    reply.message,
                    now,
                    _stored_text(request or question.request),
                    reply.device,
                    reply.device_name,
                    now + APPROVAL_SECONDS * 1000,
                    now + APPROVAL_SECONDS * 1000,
                    question.id,
                    question.request.nonce,
                    now,
                    reply.device,
                    reply.device,
                ),
            ).rowcount
        return changed == 1

    def store_grants(self, approval_id: str, grants: Sequence[Grant]) -> bool:
        """Store the rules of an approval in use; return whether it may still give any: not once
        it was withdrawn, nor once its device is not paired any more."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            row = connection.execute(
                "SELECT 1 FROM approval WHERE id = ? AND state = 'used' AND waits_for <> ? "
                "AND (device = '' OR EXISTS (SELECT 1 FROM device WHERE id = approval.device))",
                (approval_id, _NOT_KEPT),
            ).fetchone()
            if row is not None:
                insert_grants(connection, grants)
        return row is not None

    def redeem(
        self,
        approval_id: str,
        content_digest: str,
        session: str,
        is_owner: Callable[[ApprovalRequest], bool],
    ) -> bool:
        """Use an approval for its call, once; return whether that was possible."""
        now = self.now_ms()
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            _expire_due(connection, now)
            row = connection.execute(
                "SELECT request FROM approval WHERE id = ?", (approval_id,)
            ).fetchone()
            if row is None:
                return False
            request = _request(row[0])
            if not (is_owner(request) and _is_about(request, content_digest)):
                return False
            changed = connection.execute(
                "UPDATE approval SET state = 'used' WHERE id = ? AND state = 'approved' "
                "AND content_digest = ? AND session = ? AND expires_ms > ? AND opened_ms <= ? "
                # INVARIANT: one that was kept lets nothing run before what it waits for is
                # approved, and nothing after that has been used.
                "AND (waits_for = '' OR EXISTS (SELECT 1 FROM approval AS inner_one "
                "WHERE inner_one.id = approval.waits_for AND inner_one.state = 'approved' "
                "AND inner_one.expires_ms > ?))",
                (
                    approval_id,
                    content_digest,
                    session,
                    now,
                    now + CLOCK_BACK_SECONDS * 1000,
                    now,
                ),
            ).rowcount
        return changed == 1

    def keep(self, approval_id: str, waits_for: str) -> bool:
        """Give the approval of a call back that ended at a question of its own, `waits_for`.

        It can be used once more, for the same call, when that question is approved. What was
        withdrawn meanwhile, and what a device gave that is not paired any more, is not kept.
        """
        now = self.now_ms()
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            _expire_due(connection, now)
            row = connection.execute(
                "SELECT expires_ms FROM approval WHERE id = ? AND state IN ('open', 'approved')",
                (waits_for,),
            ).fetchone()
            if row is None:
                return False
            changed = connection.execute(
                "UPDATE approval SET state = 'approved', waits_for = ?, "
                # The answer to the question may prolong it as `answer` does.
                "expires_ms = CASE WHEN expires_ms > ? THEN expires_ms ELSE ? END "
                "WHERE id = ? AND state = 'used' AND waits_for <> ? AND answer = ? "
                "AND (device = '' AND answered_channel <> 'device' "
                "OR EXISTS (SELECT 1 FROM device WHERE device.id = approval.device))",
                (
                    waits_for,
                    row[0] + APPROVAL_SECONDS * 1000,
                    row[0] + APPROVAL_SECONDS * 1000,
                    approval_id,
                    _NOT_KEPT,
                    # A lasting answer allows the repeated call anyway, until it is revoked.
                    Answer.ONCE.value,
                ),
            ).rowcount
        return changed == 1

    def kept_for(self, waits_for: str, request: ApprovalRequest) -> Approval | None:
        """Return the kept approval of the caller's call that waits for this question."""
        found = self._select(
            "WHERE waits_for = ? AND content_digest = ? AND session = ? AND state = 'approved'",
            waits_for,
            request.content_digest,
            request.session,
        )
        return next(iter(found), None)

    def expire(self, approval_id: str, message: str) -> bool:
        """Close an unanswered question; return whether it was open."""
        changed = self._update(
            "state = 'expired', message = ?, closed_ms = ?, is_delivered = 1 "
            "WHERE id = ? AND state = 'open'",
            message,
            self.now_ms(),
            approval_id,
        )
        return changed == 1

    def withdraw(self, user: str) -> None:
        self._update(
            "state = 'expired', message = 'withdrawn' WHERE state = 'approved' AND user_name = ?",
            user,
        )
        # A call that runs now may stem from it as well.
        self._update("waits_for = ? WHERE state = 'used' AND user_name = ?", _NOT_KEPT, user)

    def withdraw_one(self, approval_id: str, message: str) -> bool:
        """Close a question of which nothing has come; return whether it was open or approved."""
        changed = self._update(
            "state = 'expired', message = ?, closed_ms = ?, is_delivered = 1 "
            "WHERE id = ? AND state IN ('open', 'approved')",
            message,
            self.now_ms(),
            approval_id,
        )
        return changed == 1

    def withdraw_all(self) -> None:
        self._update(
            "state = 'expired', message = 'everything was stopped', closed_ms = ? "
            "WHERE state IN ('open', 'approved')",
            self.now_ms(),
        )

    def delivered(self, approval_id: str) -> None:
        self._update("is_delivered = 1 WHERE id = ?", approval_id)

    def _update(self, change: str, *values: object) -> int:
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            query = f"UPDATE approval SET {change}"  # noqa: S608 - changes are ours.
            return connection.execute(query, values).rowcount

    def get(self, approval_id: str) -> Approval | None:
        return next(iter(self._select("WHERE id = ?", approval_id)), None)

    def with_prefix(self, prefix: str) -> tuple[Approval, ...]:
        return self._select("WHERE substr(id, 1, ?) = ? ORDER BY seq", len(prefix), prefix)

    def repeated(
        self, request: ApprovalRequest, is_owner: Callable[[ApprovalRequest], bool]
    ) -> Approval | None:
        """Return the caller's question about this call whose outcome is open or not delivered."""
        asked = self._select(
            "WHERE content_digest = ? AND session = ? AND (state IN ('open', 'approved') OR "
            "state = 'denied' AND is_delivered = 0) "
            # One that is kept for a question which has come to nothing is not found any more.
            "AND (state <> 'approved' OR waits_for = '' OR EXISTS (SELECT 1 FROM approval AS "
            "inner_one WHERE inner_one.id = approval.waits_for AND "
            "(inner_one.state IN ('open', 'approved') AND inner_one.expires_ms > ? "
            "OR inner_one.state = 'denied' AND inner_one.is_delivered = 0))) ORDER BY seq DESC",
            request.content_digest,
            request.session,
            self.now_ms(),
        )
        own = [a for a in asked if a.state is not ApprovalState.EXPIRED and is_owner(a.request)]
        # An unused approval has precedence over a later question.
        return next((a for a in own if a.state is ApprovalState.APPROVED), next(iter(own), None))

    def open_ones(self) -> tuple[Approval, ...]:
        kept = self._select("WHERE state = 'open' ORDER BY seq")
        return tuple(approval for approval in kept if approval.state is ApprovalState.OPEN)

    def latest(self, limit: int) -> tuple[Approval, ...]:
        return self._select("ORDER BY seq DESC LIMIT ?", limit)

    def repeated_denial_ms(self, session: str, tool: str) -> int:
        """Return the time of the last of `DENIAL_COOLDOWN_AFTER` consecutive denials, or 0."""
        answered = self._select(
            "WHERE session = ? AND tool = ? AND answer <> '' AND answered_by <> '' "
            "ORDER BY closed_ms DESC, seq DESC LIMIT ?",
            session,
            tool,
            DENIAL_COOLDOWN_AFTER,
        )
        is_full = len(answered) == DENIAL_COOLDOWN_AFTER
        is_denied = all(approval.answer == Answer.NO.value for approval in answered)
        return answered[0].closed_ms if is_full and is_denied else 0

    def paired(self) -> frozenset[str]:
        if not state_exists(self._path):
            return frozenset()
        with pooled(self._path, STATE) as store:
            return frozenset(str(row[0]) for row in store.rows("SELECT id FROM device"))

    def _select(self, clause: str, *values: object) -> tuple[Approval, ...]:
        if not state_exists(self._path):
            return ()
        now = self.now_ms()
        with pooled(self._path, STATE) as store:
            rows = store.rows(f"SELECT {_COLUMNS} FROM approval {clause}", values)  # noqa: S608 - clauses are ours.
        return tuple(_approval(row, now) for row in rows)

    def _refuse_flood(self, connection: StateConnection, user: str, now: int) -> None:
        bounds = self.settings
        everyone = connection.execute("SELECT count(*) FROM approval WHERE state = 'open'")
        own = connection.execute(
            "SELECT count(*) FROM approval WHERE state = 'open' AND user_name = ?", (user,)
        )
        lately = connection.execute(
            "SELECT count(*) FROM approval WHERE user_name = ? AND opened_ms > ?",
            (user, now - RATE_SECONDS * 1000),
        )
        in_time = f"questions of this user in {RATE_SECONDS // 60} minutes"
        for found, most, code, words in (
            (everyone, bounds.open_max, "queue-full", "questions are open"),
            (own, bounds.user_open_max, "queue-full", "questions of this user are open"),
            (lately, bounds.user_rate, "too-many", in_time),
        ):
            if found.fetchone()[0] >= most:
                raise ApprovalError(
                    code,
                    f"{most} {words}, and no more are taken; ask the user to answer some, or wait",
                )


def _is_about(request: ApprovalRequest, content_digest: str) -> bool:
    """Whether a question showed this content, by the bytes that were shown.

    INVARIANT: a digest that another process wrote beside a question makes its answer one to no
    other call.
    """
    return content_digest == request.content_digest == digest(request.content.encode())


def _expire_due(connection: StateConnection, now: int) -> None:
    """Close expired questions, so that they stay closed when the clock is set back."""
    connection.execute(
        "UPDATE approval SET state = 'expired', closed_ms = ? "
        "WHERE state IN ('open', 'approved') AND expires_ms <= ?",
        (now, now),
    )


def _sweep(connection: StateConnection, now: int) -> None:
    _expire_due(connection, now)
    old = connection.execute(
        "SELECT id, request FROM approval "
        "WHERE state NOT IN ('open', 'approved') AND closed_ms < ? AND is_cleared = 0",
        (now - CONTENT_SECONDS * 1000,),
    ).fetchall()
    for approval_id, request in old:
        connection.execute(
            "UPDATE approval SET request = ?, is_cleared = 1 WHERE id = ?",
            (_without_content(request), approval_id),
        )
    connection.execute(
        "DELETE FROM approval WHERE state NOT IN ('open', 'approved') AND (opened_ms < ? "
        "OR seq <= (SELECT max(seq) FROM approval) - ?)",
        (now - KEPT_SECONDS * 1000, KEPT_MAX),
    )


def _stored_text(request: ApprovalRequest) -> str:
    """Return a request as it is stored: its facts as one list, which earlier versions read too,
    and how many of them, from the first on, were found."""
    value = msgspec.to_builtins(request)
    facts = (*value.pop("found"), *value.pop("sent"))
    return json.dumps(value | {"facts": facts, _FOUND_COUNT: len(request.found)})


def _request(text: str) -> ApprovalRequest:
    value = json.loads(text)
    if isinstance(value, dict) and isinstance(facts := value.pop("facts", None), list):
        if _FOUND_COUNT in value:
            count = shaped(value.pop(_FOUND_COUNT), int)
            value |= {"found": facts[:count], "sent": facts[count:]}
        else:
            value |= _split(facts, value.get("content"))
    return shaped(value, ApprovalRequest)


def _split(facts: list[object], content: object) -> dict[str, list[object]]:
    """Split the facts of an earlier version, which had one list: what its content has as `shown`
    was found, once for each time that it is there, and of nothing else is that known."""
    bound = shaped(json.loads(content), dict) if isinstance(content, str) and content else {}
    shown = bound.get("shown")
    left = list(shown) if isinstance(shown, list) else []
    found: list[object] = []
    sent: list[object] = []
    for fact in facts:
        if fact in left:
            left.remove(fact)
            found.append(fact)
        else:
            sent.append(fact)
    return {"found": found, "sent": sent}


def _without_content(request: str) -> str:
    """Return a stored request without the text of its call; nothing of one that is damaged."""
    try:
        value = json.loads(request)
    except (ValueError, RecursionError):
        value = None
    return (
        json.dumps(value | {"content": "{}", "facts": [], _FOUND_COUNT: 0})
        if isinstance(value, dict)
        else "{}"
    )


def _approval(row: Sequence[object], now: int) -> Approval:
    text, state, expires_ms, *answered = row
    request = _request(str(text))
    kept = ApprovalState(str(state))
    # A row that was not swept yet has expired all the same.
    if kept in (ApprovalState.OPEN, ApprovalState.APPROVED) and int(str(expires_ms)) <= now:
        kept = ApprovalState.EXPIRED
    values = dict(zip(_FIELDS, answered, strict=True))
    return Approval(request=request, state=kept, **values)  # type: ignore[arg-type]
