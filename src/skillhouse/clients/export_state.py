"""The request, the items and the stored records of an export."""

from __future__ import annotations

import enum
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from msgspec import Struct

from skillhouse.audit import AuditLog
from skillhouse.floor import DecodeError, Locations, PlaceError, StateError, decode, encode
from skillhouse.skill import Skill, SkillContent, SkillIndex
from skillhouse.store import STATE, STATE_FILE, pooled, state_exists


class ExportError(PlaceError):
    """A skill cannot be written into a folder; nothing there was changed."""


class ExportState(enum.StrEnum):
    """State of a target, compared with its skill and its record."""

    IN_SYNC = "in-sync"
    NEEDS_SYNC = "needs-sync"
    """The skill has changed since the export; the target has not."""
    CHANGED_THERE = "changed-there"
    """The target was changed by another program."""
    FOREIGN = "foreign"
    """Skillhouse did not write the target."""
    MISSING = "missing"
    ALREADY_THERE = "already-there"
    """The client has the skill without an export."""
    SOURCE_GONE = "source-gone"
    """The original skill does not exist any more, or cannot be copied."""
    REFUSED = "refused"
    """The skill may not be exported, or the client would not load it."""


class Action(enum.StrEnum):
    NONE = ""
    WRITE = "write"
    REPLACE = "replace"
    REMOVE = "remove"
    FORGET = "forget"
    """Only the record is deleted: the target is gone already, or stays for other clients."""


class Form(enum.StrEnum):
    COPY = "copy"
    LINK = "link"


Where = Literal["user", "project"]


class Record(Struct, frozen=True, kw_only=True):
    """The stored record of a target that skillhouse wrote."""

    target: str
    """Real path of its folder, and its name there."""
    skill: str
    """Id of the skill."""
    source: str
    """Real path of the skill's directory."""
    form: Form
    where: Where
    folder: str
    """The folder as its clients name it."""
    anchor: str
    """Real path of home or the project, which no link may leave."""
    clients: tuple[str, ...]
    """The clients that the export named, sorted."""
    digest: str = ""
    """Digest of the target: `skilltree1:…`, or `link:` and its target; empty before the first."""
    pending: str = ""
    """Digest of an unfinished write, so that after a crash the target is not foreign."""
    made: tuple[str, ...] = ()
    """Directories that were made for it, outermost first."""


class ExportSource(Struct, frozen=True, kw_only=True):
    """The skills that can be exported, and what decides about them."""

    places: Locations
    project: Path
    state_directory: Path
    audit: AuditLog
    index: Callable[[], SkillIndex]
    """Every skill that is found, with the shadowed ones."""
    visible: Callable[[], tuple[Skill, ...]]
    """The skills that the default agent sees."""
    skill: Callable[[str], Skill]
    """Return the skill of an id or a name, or raise `UnknownSkillError`."""
    is_enabled: Callable[[str], bool]
    """Whether a person left the skill of an id switched on."""
    obstacle: Callable[[Skill, SkillContent | None], str]
    """Why the policy does not allow loading a skill without approval; empty when it does."""


class ExportRequest(Struct, frozen=True, kw_only=True):
    """Which skills to export or remove, and how."""

    references: tuple[str, ...] = ()
    """Ids, names or directory names of skills."""
    clients: tuple[str, ...] = ()
    """Names of clients; a removal without names is for all."""
    everything: bool = False
    """All skills that the default agent sees, except built-in ones."""
    form: Form = Form.COPY
    where: Where = "user"
    own: bool = False
    """Prefer the client's own folder to one that it shares with other clients."""
    force: bool = False
    """Also overwrite changed copies, but never foreign content."""
    dry_run: bool = False


class Item(Struct, frozen=True, kw_only=True):
    """One skill at one target: its state, and what is or would be done."""

    skill: str
    source: str
    clients: tuple[str, ...]
    target: str = ""
    """Empty when there is none."""
    form: Form = Form.COPY
    state: ExportState
    """Before the action."""
    action: Action = Action.NONE
    done: bool = False
    reason: str = ""
    """Why it has this state, or why nothing is done."""
    warnings: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    """Other clients that read the same folder."""

    @property
    def is_well(self) -> bool:
        """Whether the clients have the current skill, now or after the action."""
        return self.action is not Action.NONE or self.state in (
            ExportState.IN_SYNC,
            ExportState.ALREADY_THERE,
        )


class Records:
    def __init__(self, state_directory: Path) -> None:
        self._path = state_directory / STATE_FILE

    def all(self) -> tuple[Record, ...]:
        if not state_exists(self._path):
            return ()
        with pooled(self._path, STATE) as store:
            rows = store.rows("SELECT record FROM export ORDER BY target")
        return tuple(self._decoded(record) for (record,) in rows)

    def get(self, target: str) -> Record | None:
        return next((record for record in self.all() if record.target == target), None)

    def put(self, record: Record) -> None:
        """Store a record; it replaces the one of the same target."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                "INSERT INTO export VALUES (?, ?) "
                "ON CONFLICT (target) DO UPDATE SET record = excluded.record",
                (record.target, encode(record)),
            )

    def forget(self, target: str) -> None:
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute("DELETE FROM export WHERE target = ?", (target,))

    def _decoded(self, data: bytes) -> Record:
        try:
            return decode(data, Record)
        except DecodeError as error:
            raise StateError(f"a record of an export cannot be read: {error}", self._path) from None


def exported_sources(state_directory: Path) -> dict[str, str]:
    """Return the real path of each exported copy with that of the skill it was copied from."""
    records = Records(state_directory).all()
    return {record.target: record.source for record in records if record.form is Form.COPY}
