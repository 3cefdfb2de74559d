"""The values of exporting: what is asked for, how each target stands, and what is kept of it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from skillhouse.audit import AuditLog
from skillhouse.floor import DecodeError, Locations, SkillhouseError, StateError, decode, encode
from skillhouse.skill import Skill, SkillContent, SkillIndex
from skillhouse.store import STATE, STATE_FILE, pooled


class ExportError(SkillhouseError):
    """A skill cannot be written into a folder; `code` says why, and nothing there was changed."""

    def __init__(self, code: str, path: Path, message: str) -> None:
        super().__init__(f"{message}: `{path}`")
        self.code = code
        self.path = path


class ExportState(enum.StrEnum):
    """How a target stands to its skill and to what we wrote there."""

    IN_SYNC = "in-sync"
    NEEDS_SYNC = "needs-sync"
    """The skill has changed since; the target is as we left it."""
    CHANGED_THERE = "changed-there"
    """Somebody else changed what we wrote."""
    FOREIGN = "foreign"
    """Something is there that we did not write."""
    MISSING = "missing"
    ALREADY_THERE = "already-there"
    """The client has the skill without us."""
    SOURCE_GONE = "source-gone"
    """The skill that it came from is not there any more, or cannot be copied."""
    REFUSED = "refused"
    """The skill may not be exported, or the client would not load it."""


class Action(enum.StrEnum):
    """What is done about a target, or would be."""

    NONE = ""
    WRITE = "write"
    REPLACE = "replace"
    REMOVE = "remove"
    FORGET = "forget"
    """Only our record of it goes: the target is gone already, or stays for other clients."""


class Form(enum.StrEnum):
    """How a skill stands in a folder."""

    COPY = "copy"
    LINK = "link"


Where = Literal["user", "project"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is kept of a target that we wrote."""

    target: str
    """Real path of its folder, and its name there."""
    skill: str
    """Id of the skill."""
    source: str
    """Real path of the skill's directory."""
    form: Form
    where: Where
    folder: str
    """The folder as its clients have it."""
    anchor: str
    """Real path of home or of the project: no link may lead out of it."""
    clients: tuple[str, ...]
    """For whom it was asked, sorted."""
    digest: str = ""
    """What lies there: `skilltree1:…`, or `link:` and where it leads; empty before the first."""
    pending: str = ""
    """What is just being put there, so that a crash leaves nothing that looks foreign."""
    made: tuple[str, ...] = ()
    """Directories that had to be made for it, outermost first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSource:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """What a person asks to be exported or removed."""

    references: tuple[str, ...] = ()
    """Ids, names or directory names of skills."""
    clients: tuple[str, ...] = ()
    """Names of clients; of a removal, none stands for all."""
    everything: bool = False
    """All skills that the default agent sees, without those that come with this package."""
    form: Form = Form.COPY
    where: Where = "user"
    own: bool = False
    """Take the client's own folder, where the usual one is shared with other clients."""
    force: bool = False
    """Also write over what somebody changed there; never over what is foreign."""
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One skill at one target: how it stands, and what is or would be done."""

    skill: str
    source: str
    clients: tuple[str, ...]
    target: str = ""
    """Empty where there is none."""
    form: Form = Form.COPY
    state: ExportState
    """How it stood before anything was done."""
    action: Action = Action.NONE
    done: bool = False
    reason: str = ""
    """Why it stands so, or why nothing is done."""
    warnings: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    """Other clients that read the same folder."""

    @property
    def is_well(self) -> bool:
        """Whether the clients have the skill as it is, now or after the action."""
        return self.action is not Action.NONE or self.state in (
            ExportState.IN_SYNC,
            ExportState.ALREADY_THERE,
        )


class Records:
    """The manifest of all exports of a user."""

    def __init__(self, state_directory: Path) -> None:
        self._path = state_directory / STATE_FILE

    def all(self) -> tuple[Record, ...]:
        """Return every record, by target.

        Raises:
            StateError: the state cannot be read.
        """
        if not self._path.exists():
            return ()
        with pooled(self._path, STATE) as store:
            rows = store.rows("SELECT record FROM export ORDER BY target")
        return tuple(self._decoded(record) for (record,) in rows)

    def get(self, target: str) -> Record | None:
        """Return the record of a target, if we wrote it."""
        return next((found for found in self.all() if found.target == target), None)

    def put(self, record: Record) -> None:
        """Keep a record in the place of what was kept of its target."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                "INSERT INTO export VALUES (?, ?) "
                "ON CONFLICT (target) DO UPDATE SET record = excluded.record",
                (record.target, encode(record)),
            )

    def forget(self, target: str) -> None:
        """Drop what is kept of a target."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute("DELETE FROM export WHERE target = ?", (target,))

    def _decoded(self, data: bytes) -> Record:
        try:
            return decode(data, Record)
        except DecodeError as error:
            raise StateError(f"a record of an export cannot be read: {error}", self._path) from None
