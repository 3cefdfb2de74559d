"""Exports skills, updates exports and removes them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from skillhouse.audit import AuditError
from skillhouse.audit.log import recorded
from skillhouse.clients.export_plan import ExportPlan, Planner, is_called, target_state
from skillhouse.clients.export_state import (
    Action,
    ExportError,
    ExportRequest,
    ExportSource,
    ExportState,
    Form,
    Item,
    Record,
    Records,
)
from skillhouse.clients.folders import FolderHandle, client_profile, resolved
from skillhouse.clients.trees import found_digest, remove_empty, source_digest
from skillhouse.floor import SkillhouseError, as_error, isolated, make_private
from skillhouse.floor.lock import locked_file
from skillhouse.floor.structs import replace
from skillhouse.skill import SKILL_FILE

LOCK_FILE = "export.lock"


def export(source: ExportSource, request: ExportRequest) -> tuple[Item, ...]:
    """Write skills into the folders of clients; raises as `Exporter.export`."""
    return Exporter(source).export(request)


class Exporter:
    """Writes skills into the folders of other clients; every change is in the audit log."""

    def __init__(self, source: ExportSource) -> None:
        self._source = source
        self._state = source.state_directory
        self._records = Records(self._state)

    def export(self, request: ExportRequest) -> tuple[Item, ...]:
        """Write skills into the folders of clients.

        Raises:
            ConfigError: no client has that name.
            UnknownSkillError: there is no such skill.
            StateError: the records of earlier exports cannot be read.
            AuditError: the log cannot be written; nothing was changed.
        """
        with self._locked(dry_run=request.dry_run):
            planner = Planner(self._source, self._records.all())
            return tuple(self._write(plan, request) for plan in planner.plans(request))

    def sync(self, request: ExportRequest) -> tuple[Item, ...]:
        with self._locked(dry_run=request.dry_run):
            planner = Planner(self._source, self._records.all())
            return tuple(self._write(plan, request) for plan in planner.again(request))

    def status(self) -> tuple[Item, ...]:
        return tuple(_isolated_status(record) for record in self._records.all())

    def follow(self, *directories: Path) -> tuple[Item, ...]:
        """Update what was written of the skills in directories; remove that of those that are gone.

        The skills were changed before, so nothing is raised: what failed is an item, refused.
        """
        is_there = {os.path.realpath(one): os.path.lexists(one) for one in directories}
        items: list[Item] = []
        records: list[Record] = []
        with isolated() as failed:
            records = [one for one in self._records.all() if one.source in is_there]
            for change, kept in ((self.sync, True), (self.remove, False)):
                targets = [one.target for one in records if is_there[one.source] is kept]
                if targets:
                    items += change(ExportRequest(references=tuple(targets)))
        done = {one.target for one in items}
        left = [_item_of(one) for one in records if one.target not in done]
        for error in failed:
            nameless = Item(skill="", source="", clients=(), state=ExportState.REFUSED)
            items += [
                replace(one, state=ExportState.REFUSED, reason=str(error))
                for one in left or [nameless]
            ]
        return tuple(items)

    def remove(self, request: ExportRequest) -> tuple[Item, ...]:
        """Remove exports; changed copies stay unless `force` is set."""
        with self._locked(dry_run=request.dry_run):
            clients = {client_profile(one, self._source.places).name for one in request.clients}
            chosen = [
                record
                for record in self._chosen(request)
                if not clients or clients & set(record.clients)
            ]
            return tuple(self._remove(record, clients, request) for record in chosen)

    def _chosen(self, request: ExportRequest) -> list[Record]:
        records = self._records.all()
        if request.everything:
            return list(records)
        for reference in request.references:
            if not any(is_called(record, reference) for record in records):
                message = f"nothing was exported that is called `{reference}`"
                raise ExportError("not-exported", self._state, message)
        wanted = request.references
        return [record for record in records if any(is_called(record, name) for name in wanted)]

    def _write(self, plan: ExportPlan, request: ExportRequest) -> Item:
        item = plan.item
        if request.dry_run or item.action is Action.NONE or plan.record is None:
            if (
                plan.record is not None
                and item.state is ExportState.IN_SYNC
                and not request.dry_run
            ):
                # One more client was named, which reads the same folder.
                self._records.put(plan.record)
            return item
        before = self._records.get(plan.record.target)
        try:
            self._put(plan, force=request.force)
        except AuditError:
            raise
        except Exception as error:  # noqa: BLE001 - the edge of one skill of many.
            if before is None:
                self._records.forget(plan.record.target)
            else:
                self._records.put(before)
            is_changed = isinstance(error, ExportError) and error.code == "changed-there"
            state = ExportState.CHANGED_THERE if is_changed else ExportState.REFUSED
            return replace(item, state=state, action=Action.NONE, reason=_reason(error))
        return replace(item, done=True)

    def _put(self, plan: ExportPlan, *, force: bool) -> None:
        record, folder = plan.record, plan.folder
        if record is None or folder is None:  # pragma: no cover - such a plan has no action.
            raise ExportError("no-folder", Path(plan.item.target), "there is no folder for it")
        arguments = {
            "skill": record.skill,
            "source": record.source,
            "path": record.target,
            "form": record.form.value,
            "clients": ", ".join(record.clients),
            "digest": plan.wanted,
            "replaces": record.digest,
            "force": force,
        }
        with recorded(self._source.audit, "export", arguments):
            with FolderHandle(folder, create=True) as handle, handle.staging() as staged:
                if record.form is Form.LINK:
                    digest = staged.link(plan.wanted.removeprefix("link:"))
                else:
                    digest = staged.copy(Path(record.source))
                if digest != plan.wanted:
                    raise ExportError(
                        "changed-meanwhile", Path(record.source), "changed while it was copied"
                    )
                # INVARIANT: recorded before the swap, so whatever a crash leaves is known as ours.
                made = (*record.made, *(one for one in handle.made if one not in record.made))
                record = replace(record, pending=digest, made=made)
                self._records.put(record)
                ours = {record.digest, record.pending} - {""}
                staged.put(Path(record.target).name, replaces=None if force else ours)
            self._records.put(replace(record, digest=digest, pending=""))

    def _remove(self, record: Record, clients: Collection[str], request: ExportRequest) -> Item:
        left = tuple(name for name in record.clients if clients and name not in clients)
        item = _status(record)
        if left:
            reason = f"stays for {', '.join(left)}"
            item = replace(item, action=Action.FORGET, reason=reason)
        elif item.state is ExportState.MISSING:
            item = replace(item, action=Action.FORGET, reason="is gone already")
        elif item.state is ExportState.FOREIGN:
            item = replace(
                item,
                action=Action.FORGET,
                reason="skillhouse did not write what is there; it stays",
            )
        elif item.state is ExportState.CHANGED_THERE and not request.force:
            return replace(item, reason="the copy was changed; --force removes it")
        else:
            item = replace(item, action=Action.REMOVE)
        if request.dry_run:
            return item
        arguments = {
            "skill": record.skill,
            "path": record.target,
            "action": item.action.value,
            "clients": ", ".join(sorted(clients) or record.clients),
            "force": request.force,
        }
        try:
            with recorded(self._source.audit, "unexport", arguments):
                if left:
                    self._records.put(replace(record, clients=left))
                    return replace(item, done=True)
                if item.action is Action.REMOVE:
                    self._take(record, force=request.force)
                self._records.forget(record.target)
                self._leave(record)
        except AuditError:
            raise
        except Exception as error:  # noqa: BLE001 - the edge of one skill of many.
            return replace(item, action=Action.NONE, reason=_reason(error))
        return replace(item, done=True)

    def _take(self, record: Record, *, force: bool) -> None:
        places = self._source.places
        # The anchor of the record can be another project than this one.
        folder = resolved(record.folder, places, Path(record.anchor), where=record.where)
        if os.path.join(folder.real, os.path.basename(record.target)) != record.target:
            message = f"expected the folder at `{os.path.dirname(record.target)}`"
            raise ExportError("folder-moved", Path(record.folder), message)
        with FolderHandle(folder, create=False) as handle, handle.staging() as staged:
            ours = {record.digest, record.pending} - {""}
            staged.take(os.path.basename(record.target), None if force else ours)

    def _leave(self, record: Record) -> None:
        """Remove the directories that were made for a record, or record them for a neighbour."""
        left = remove_empty(record.made)
        folder = os.path.dirname(record.target)
        for other in self._records.all() if left else ():
            if os.path.dirname(other.target) == folder:
                self._records.put(replace(other, made=tuple(dict.fromkeys((*left, *other.made)))))
                return

    @contextmanager
    def _locked(self, *, dry_run: bool) -> Iterator[None]:
        """Exclude other exporting processes; a dry run needs no lock."""
        if dry_run:
            yield
            return
        make_private(self._state)
        try:
            with locked_file(self._state / LOCK_FILE):
                yield
        except TimeoutError as error:
            message = "another process is exporting; try again"
            raise ExportError("locked", self._state / LOCK_FILE, message) from error


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"cannot be written: {(error.strerror or str(error)).lower()}"
    return str(as_error(error))


def _isolated_status(record: Record) -> Item:
    """Return the state of one target of many; what cannot be compared is refused."""
    with isolated() as failed:
        return _status(record)
    return replace(_item_of(record), state=ExportState.REFUSED, reason=str(failed[0]))


def _item_of(record: Record) -> Item:
    return Item(
        skill=record.skill,
        source=record.source,
        clients=record.clients,
        target=record.target,
        form=record.form,
        state=ExportState.IN_SYNC,
    )


def _status(record: Record) -> Item:
    """Return the state of a target, compared with the directory that it came from."""
    item = _item_of(record)
    target = Path(record.target)
    try:
        if record.form is Form.LINK:
            # A link always shows the current skill.
            wanted = record.digest
            if not os.path.isfile(os.path.join(record.source, SKILL_FILE)):
                raise ExportError("not-found", Path(record.source), "no skill is there")
        else:
            wanted = source_digest(Path(record.source))
    except SkillhouseError as error:
        digest = found_digest(target)
        if not digest or digest not in (record.digest, record.pending):
            return replace(item, state=target_state(record, target, ""))
        gone = not os.path.lexists(record.source)
        reason = "the skill is not there any more" if gone else str(error)
        return replace(item, state=ExportState.SOURCE_GONE, reason=reason)
    return replace(item, state=target_state(record, target, wanted))
