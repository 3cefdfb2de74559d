"""Standing approvals and approved scripts: what one covers, and where it is kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from skillhouse.approval.request import (
    CLOCK_BACK_SECONDS,
    OWNER,
    Answer,
    ApprovalError,
    ApprovalRequest,
    Asked,
    Pattern,
    Reply,
    covers_resource,
    is_directory,
    rejection,
)
from skillhouse.floor import ONE_TIME
from skillhouse.floor.structs import PartialStruct, asdict, replace
from skillhouse.store import (
    STATE,
    STATE_FILE,
    StateConnection,
    pooled,
    state_exists,
    state_server,
)

NEVER_LASTING = ONE_TIME | {"sign"}
"""Actions without standing approvals; only a rule of the user may let a session key sign."""


def _new_id() -> str:
    """Return eight bytes of chance in hexadecimal (as `secrets`, which every start would load)."""
    return os.urandom(8).hex()


class Grant(PartialStruct, frozen=True, kw_only=True):
    """A remembered allow: one action on one pattern, for one state of a skill."""

    UNCOMPARED = frozenset({"device_name", "id", "granted_ms", "expires_ms"})

    action: str
    pattern: str
    place: str
    """Real path of the workspace it holds in; empty is every place of the user."""
    skill_digest: str = ""
    """Tree digest of the skill it is about, if any."""
    user: str = OWNER
    agent: str = "default"
    device: str = ""
    """Id of the paired device that granted it; unpairing ends it."""
    device_name: str = ""
    id: str = ""
    granted_ms: int = 0
    expires_ms: int = 0
    """From then on it does not hold."""
    session: str = ""
    """Whose rest it holds for, as a digest; empty for a standing approval."""

    @property
    def is_directory(self) -> bool:
        """Whether its pattern is a directory, and it is about the files directly in that."""
        return is_directory(self.action, self.pattern)

    def is_current(self, now_ms: float) -> bool:
        """Whether it holds at a time; before the grant only within `CLOCK_BACK_SECONDS`."""
        return self.granted_ms - CLOCK_BACK_SECONDS * 1000 <= now_ms < self.expires_ms

    def is_for(self, *, user: str, agent: str, place: str, skill_digest: str) -> bool:
        return (
            (self.user, self.agent) == (user, agent)
            and self.place in ("", place)
            and self.skill_digest == skill_digest
        )


def narrowed(
    offered: Sequence[Pattern], rules: Sequence[str], narrows: Callable[[str, str], bool]
) -> tuple[Pattern, ...]:
    """Return the patterns that a person gave instead of those that were offered.

    Args:
        offered: What the question showed.
        rules: Each as it was shown or narrower; the action may be left out where one was offered.
        narrows: Whether a command's rule, the second, covers no more than another, the first.

    Raises:
        ApprovalError: `too-wide`, a rule is not covered by one that was offered.

    >>> shown = Pattern(action="write", pattern="/w/notes/")
    >>> narrowed([shown], ["write /w/notes/a.md"], lambda *_: False)[0].pattern
    '/w/notes/a.md'
    """
    patterns: list[Pattern] = []
    for rule in rules:
        given = next(
            (found for one in offered if (found := _narrowed(one, rule, len(offered), narrows))),
            None,
        )
        if given is None:
            shown = ", ".join(f"`{one.text}`" for one in offered)
            raise ApprovalError(
                "too-wide", f"the rule `{rule[:200]}` is not covered by what was offered: {shown}"
            )
        patterns.append(given)
    return tuple(dict.fromkeys(patterns))


def _narrowed(
    offered: Pattern, rule: str, count: int, narrows: Callable[[str, str], bool]
) -> Pattern | None:
    rule = rule.strip()
    if rule in (offered.text, f"{offered.action} {offered.pattern}", offered.pattern):
        return offered
    action, _, pattern = rule.partition(" ")
    if action != offered.action:
        if count > 1:
            return None
        pattern = rule
    pattern = pattern.strip()
    if offered.action == "exec":
        is_narrower = narrows(offered.pattern, pattern)
    else:
        has_wildcard = "*" in pattern or "?" in pattern or pattern.endswith(("/.", "/.."))
        is_narrower = not has_wildcard and covers_resource(offered.action, offered.pattern, pattern)
    return replace(offered, pattern=pattern) if is_narrower else None


class GrantStore:
    def __init__(self, state_directory: Path) -> None:
        self._path = state_directory / STATE_FILE

    def all(self) -> tuple[Grant, ...]:
        """Return every grant, oldest first, also ended ones; StateError if the state cannot be
        read."""
        if not state_exists(self._path):
            return ()
        with pooled(self._path, STATE) as store:
            query = f"SELECT {_COLUMNS} FROM lasting_grant ORDER BY seq"  # noqa: S608 - a constant.
            return tuple(_grant(row) for row in store.rows(query))

    def take_notice(self) -> str:
        """Return, once, what an update changed about standing approvals; "" when nothing is new."""
        if not state_exists(self._path):
            return ""
        with pooled(self._path, STATE) as store:
            if not store.rows("SELECT 1 FROM notice WHERE name = 'standing-approvals'"):
                return ""
            with store.transaction() as connection:
                query = "DELETE FROM notice WHERE name = 'standing-approvals' RETURNING text"
                row = connection.execute(query).fetchone()
        return "" if row is None else str(row[0])

    def add(self, grants: Sequence[Grant]) -> None:
        """Keep grants; one that is there gets the new end."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            insert_grants(connection, grants)

    def end(self, now_ms: int) -> None:
        """End grants for good, so that they hold no more when the clock is set back."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                "UPDATE lasting_grant SET expires_ms = granted_ms "
                "WHERE expires_ms <= ? AND expires_ms > granted_ms",
                (now_ms,),
            )

    def revoke(self, grant_id: str) -> Grant | None:
        revoked = next((grant for grant in self.all() if grant.id == grant_id), None)
        if revoked is not None:
            with pooled(self._path, STATE) as store, store.transaction() as connection:
                connection.execute("DELETE FROM lasting_grant WHERE id = ?", (grant_id,))
        return revoked

    @property
    def is_shared(self) -> bool:
        """Whether other servers may get the next call of a session."""
        return state_server(self._path) is not None

    def add_session(self, grants: Sequence[Grant]) -> bool:
        """Keep grants of sessions for every server of the state; False while all is stopped."""
        rows = [asdict(replace(one, id=one.id or _new_id())) for one in grants]
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            # INVARIANT: in one transaction. A stop ends those that it finds, and no call that it
            # ended is to leave another one behind.
            if connection.execute("SELECT 1 FROM tier_stop").fetchall():
                return False
            connection.execute(
                "DELETE FROM session_grant WHERE expires_ms <= ?",
                (min((one.granted_ms for one in grants), default=0),),
            )
            connection.executemany(
                f"INSERT INTO session_grant ({_COLUMNS}, session) "  # noqa: S608 - a constant.
                "VALUES (:id, :action, :pattern, :place, :skill_digest, :user, :agent, "
                ":granted_ms, :expires_ms, :device, :device_name, :session) "
                "ON CONFLICT (session, action, pattern, place, skill_digest, device) DO UPDATE "
                "SET granted_ms = excluded.granted_ms, expires_ms = excluded.expires_ms",
                rows,
            )
        return True

    def sessions(self, now_ms: int) -> tuple[Grant, ...]:
        """Return the grants of all sessions that hold, oldest first."""
        if not self.is_shared:
            return ()
        query = (
            f"SELECT {_COLUMNS}, session FROM session_grant "  # noqa: S608 - a constant.
            "WHERE expires_ms > ? ORDER BY seq"
        )
        with pooled(self._path, STATE) as store:
            rows = store.rows(query, (now_ms,))
        return tuple(replace(_grant(row[:-1]), session=str(row[-1])) for row in rows)

    def end_sessions(self, beginning: str = "") -> None:
        """End the grants of the sessions whose digest begins so: of all of them by default, also
        of those that processes of one home keep in memory."""
        if not self.is_shared:
            if not beginning and state_exists(self._path):
                self._change_mark()
            return
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                "DELETE FROM session_grant WHERE substr(session, 1, ?) = ?",
                (len(beginning), beginning),
            )

    def session_mark(self) -> str | None:
        """Return a text that changes when the grants of all sessions end; None while all is
        stopped, and none may be added."""
        if not state_exists(self._path):
            return ""
        with pooled(self._path, STATE) as store:
            if store.rows("SELECT 1 FROM tier_stop"):
                return None
            rows = store.rows("SELECT text FROM notice WHERE name = 'sessions-ended'")
        return str(rows[0][0]) if rows else ""

    def _change_mark(self) -> None:
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                "INSERT INTO notice (name, text) VALUES ('sessions-ended', ?) "
                "ON CONFLICT (name) DO UPDATE SET text = excluded.text",
                (_new_id(),),
            )

    def revoke_session(self, grant_id: str) -> str | None:
        """Return whose it was; None where there is none of this id."""
        if not self.is_shared:
            return None
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            query = "DELETE FROM session_grant WHERE id = ? RETURNING user_name"
            row = connection.execute(query, (grant_id,)).fetchone()
        return None if row is None else str(row[0])

    def clear(self) -> int:
        count = len(self.all())
        if count:
            with pooled(self._path, STATE) as store, store.transaction() as connection:
                connection.execute("DELETE FROM lasting_grant")
        return count


def insert_grants(connection: StateConnection, grants: Sequence[Grant]) -> None:
    connection.executemany(
        f"INSERT INTO lasting_grant ({_COLUMNS}) "  # noqa: S608 - a constant.
        "VALUES (:id, :action, :pattern, :place, :skill_digest, :user, :agent, :granted_ms, "
        ":expires_ms, :device, :device_name) "
        "ON CONFLICT (action, pattern, place, skill_digest, user_name, agent, device) DO UPDATE "
        "SET granted_ms = excluded.granted_ms, expires_ms = excluded.expires_ms",
        [asdict(replace(grant, id=grant.id or _new_id())) for grant in grants],
    )


_COLUMNS = (
    "id, action, pattern, place, skill_digest, user_name, agent, granted_ms, expires_ms, "
    "device, device_name"
)
_FIELDS = _COLUMNS.replace("user_name", "user").split(", ")
"""The fields of a `Grant` that the columns are."""


def _grant(row: Sequence[object]) -> Grant:
    return Grant(**dict(zip(_FIELDS, row, strict=True)))  # type: ignore[arg-type]


def is_settled(other: ApprovalRequest, request: ApprovalRequest, reply: Reply) -> bool:
    """Return whether the reply to one question also answers another one that is open."""
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
        any(_settles(pattern, asked, other.patterns) for pattern in request.patterns)
        for asked in other.asked
    )


def _settles(pattern: Pattern, asked: Asked, offered: Sequence[Pattern]) -> bool:
    """Whether a standing approval answers another question about `asked`, which offers `offered`.

    What a rule about commands covers is said by their grammar, so that of another command it is
    only known to where the same rule was offered for it.
    """
    if (pattern.action, pattern.skill_digest) != (asked.action, asked.skill_digest):
        return False
    if pattern.action == "exec" and pattern in offered and len(offered) == 1:
        return True
    return covers_resource(pattern.action, pattern.pattern, asked.resource)


DIGESTS_MAX = 16
"""Approved digests that one path keeps, those of the latest approvals (decision record 0388)."""


class ApprovedScript(PartialStruct, frozen=True, kw_only=True):
    """A script that rules may run while its bytes are those that were approved."""

    UNCOMPARED = frozenset({"id", "approved_ms"})

    workspace: str
    """Real path."""
    path: str
    """Relative to the workspace."""
    digest: str
    """SHA-256 of its bytes, in hex."""
    user: str = OWNER
    agent: str = "default"
    device: str = ""
    """Id of the paired device that approved it; unpairing ends it."""
    id: str = ""
    approved_ms: int = 0


class ScriptStore:
    """The approved scripts of one state directory; StateError if the state cannot be read."""

    def __init__(self, state_directory: Path) -> None:
        self._path = state_directory / STATE_FILE

    def all(self) -> tuple[ApprovedScript, ...]:
        """Return every approved script, oldest first."""
        return self._select("ORDER BY approved_ms, seq")

    def of(self, workspace: str, user: str, agent: str) -> dict[str, frozenset[str]]:
        """Return the approved digests of each path of a workspace."""
        found = self._select(
            "WHERE workspace = ? AND user_name = ? AND agent = ?", workspace, user, agent
        )
        digests: dict[str, set[str]] = {}
        for script in found:
            digests.setdefault(script.path, set()).add(script.digest)
        return {path: frozenset(of_path) for path, of_path in digests.items()}

    def add(self, scripts: Sequence[ApprovedScript]) -> None:
        """Keep approvals, beside those of earlier bytes of the same path."""
        rows = [asdict(replace(one, id=one.id or _new_id())) for one in scripts]
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.executemany(
                f"INSERT INTO approved_script ({_SCRIPT_COLUMNS}) "  # noqa: S608 - a constant.
                "VALUES (:workspace, :path, :digest, :user, :agent, :device, :id, :approved_ms) "
                "ON CONFLICT (workspace, path, user_name, agent, digest) DO UPDATE SET "
                "device = excluded.device, id = excluded.id, approved_ms = excluded.approved_ms",
                rows,
            )
            connection.executemany(
                "DELETE FROM approved_script WHERE workspace = :workspace AND path = :path "
                "AND user_name = :user AND agent = :agent AND id NOT IN ("
                "SELECT id FROM approved_script WHERE workspace = :workspace AND path = :path "
                "AND user_name = :user AND agent = :agent "
                "ORDER BY approved_ms DESC, seq DESC LIMIT :kept)",
                [{**row, "kept": DIGESTS_MAX} for row in rows],
            )

    def revoke(self, script_id: str) -> bool:
        """Forget an approval, with those of other bytes of its path: whoever ends it would not
        expect an older file to run. Return whether there was one."""
        if not state_exists(self._path):
            return False
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            query = (
                "DELETE FROM approved_script WHERE (workspace, path, user_name, agent) IN "
                "(SELECT workspace, path, user_name, agent FROM approved_script WHERE id = ?)"
            )
            return connection.execute(query, (script_id,)).rowcount > 0

    def _select(self, clause: str, *values: object) -> tuple[ApprovedScript, ...]:
        if not state_exists(self._path):
            return ()
        with pooled(self._path, STATE) as store:
            query = f"SELECT {_SCRIPT_COLUMNS} FROM approved_script {clause}"  # noqa: S608 - constants.
            rows = store.rows(query, values)
        return tuple(ApprovedScript(**dict(zip(_SCRIPT_FIELDS, row, strict=True))) for row in rows)


_SCRIPT_COLUMNS = "workspace, path, digest, user_name, agent, device, id, approved_ms"
_SCRIPT_FIELDS = _SCRIPT_COLUMNS.replace("user_name", "user").split(", ")
"""The fields of an `ApprovedScript` that the columns are."""
