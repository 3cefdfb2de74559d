"""Scripts of workspaces that a person approved, by the digests of their bytes."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path

from skillhouse.approval.request import OWNER
from skillhouse.floor.structs import PartialStruct, asdict, replace
from skillhouse.store import STATE, STATE_FILE, pooled

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
        rows = [asdict(replace(one, id=one.id or secrets.token_hex(8))) for one in scripts]
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.executemany(
                f"INSERT INTO approved_script ({_COLUMNS}) "  # noqa: S608 - a constant.
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
        if not self._path.exists():
            return False
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            query = (
                "DELETE FROM approved_script WHERE (workspace, path, user_name, agent) IN "
                "(SELECT workspace, path, user_name, agent FROM approved_script WHERE id = ?)"
            )
            return connection.execute(query, (script_id,)).rowcount > 0

    def _select(self, clause: str, *values: object) -> tuple[ApprovedScript, ...]:
        if not self._path.exists():
            return ()
        with pooled(self._path, STATE) as store:
            query = f"SELECT {_COLUMNS} FROM approved_script {clause}"  # noqa: S608 - constants.
            rows = store.rows(query, values)
        return tuple(ApprovedScript(**dict(zip(_FIELDS, row, strict=True))) for row in rows)


_COLUMNS = "workspace, path, digest, user_name, agent, device, id, approved_ms"
_FIELDS = _COLUMNS.replace("user_name", "user").split(", ")
"""The fields of an `ApprovedScript` that the columns are."""
