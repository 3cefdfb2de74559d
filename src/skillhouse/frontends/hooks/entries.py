"""Writes our entries into clients' files, takes them away again, and says how they are."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from skillhouse.answers.hook_changes import HookChange, HookStanding
from skillhouse.audit import AuditError, AuditLog
from skillhouse.audit.log import recorded
from skillhouse.clients import own_program
from skillhouse.clients.config_file import ConfigFile, ConfigFileError, difference, replaced_part
from skillhouse.clients.jsonc import NotEditableError, without_elements
from skillhouse.clients.trees import remove_empty
from skillhouse.floor import (
    ConfigError,
    DecodeError,
    Locations,
    StateError,
    check_private,
    decode,
    encode,
    make_private,
)
from skillhouse.floor.paths import safe_path
from skillhouse.floor.structs import replace
from skillhouse.frontends.hooks.client_rules import runner_words
from skillhouse.frontends.hooks.entry_text import (
    CANNOT,
    SCRIPT,
    drop_value,
    has_exception,
    is_ours,
    is_same,
    mode_of,
    own_lines,
    parsed,
    switched_off,
    wanted_entries,
    with_exception,
    with_lines,
    without_exception,
)
from skillhouse.frontends.hooks.hook_clients import HookClient, hook_client, hook_clients
from skillhouse.frontends.hooks.judge_client import PROGRAM, VARIABLES
from skillhouse.frontends.hooks.unknown_tools import UnknownTools
from skillhouse.house.config.carried_variables import carried_by_hooks

MODES = ("watch", "enforce", "sandbox")
DIRECTORY = "hooks"
"""Directory of the state for the judge and what it keeps."""
_RECORDS = "installed"
_KEPT_VARIABLES = tuple("HOME XDG_CONFIG_HOME XDG_STATE_HOME XDG_CACHE_HOME LANG LC_ALL TZ".split())
"""Variables that say where files are and how texts are read: those of the installation hold, and
none of a project."""


class HookRecord(Struct, frozen=True, kw_only=True):
    """What we wrote into a file of a client."""

    client: str
    where: str
    file: str
    mode: str
    was: str
    became: str
    made_file: bool
    made_folders: tuple[str, ...]
    made_beside: tuple[str, ...] = ()
    """Folders that were made for the file with the exception for our runner."""


class _Beside(Struct, frozen=True, kw_only=True):
    """A change of the file with the exception for our runner."""

    file: ConfigFile
    text: str
    """What is to be in there; empty to remove it."""


class HookPlan(Struct, frozen=True, kw_only=True):
    """What would be done, to show before it is done."""

    change: HookChange
    file: ConfigFile | None = None
    """None where nothing is to be done."""
    after: str = ""
    """What is to be in it."""
    record: HookRecord | None = None
    beside: _Beside | None = None


class HookEntries:
    """The entries of one user; every change is in the audit log."""

    def __init__(
        self, *, places: Locations, project: Path, state_directory: Path, audit: AuditLog | None
    ) -> None:
        """Without `audit`, entries are only looked at."""
        self._places = places
        self._project = project
        self._state = state_directory
        self._directory = state_directory / DIRECTORY
        self._audit = audit

    def install(self, name: str, *, where: str, mode: str, dry_run: bool = False) -> HookChange:
        """Write a client's entries, or with `dry_run` say what would be written.

        Raises:
            ConfigError: the client or the mode is unknown, or no client can start this program.
            StateError: others can use our state.
            AuditError: the log cannot be written; nothing was changed.
        """
        plan = self.plan_install(name, where=where, mode=mode)
        return plan.change if dry_run else self.apply(plan)

    def remove(self, name: str, *, where: str, dry_run: bool = False) -> HookChange:
        """Take a client's entries away; errors as of `install`."""
        plan = self.plan_remove(name, where=where)
        return plan.change if dry_run else self.apply(plan)

    def apply(self, plan: HookPlan) -> HookChange:
        """Do what was planned; errors as of `install`.

        ConfigFileError: a file is not what it was then; nothing was changed.
        """
        if plan.file is None:
            return plan.change
        # INVARIANT: what is refused leaves the records and the program of what is installed.
        plan.file.refuse_if_changed()
        if plan.beside is not None:
            plan.beside.file.refuse_if_changed()
        if plan.change.action == "install":
            self._prepare()
        return self._written(plan, plan.file)

    def removable(self) -> tuple[HookChange, ...]:
        """Return what `remove` would do of every entry here; those of other projects follow, as
        they are, without an action."""
        found = [
            self.remove(change.client, where=change.where, dry_run=True)
            for change in self.status()
            if change.standing is not HookStanding.MISSING
        ]
        here = {os.path.realpath(change.file) for change in found}
        for record in self._records().values():
            if record.file not in here and os.path.exists(record.file):
                change = self._change(hook_client(record.client), record.where)
                reason = f"there: `skillhouse hooks remove {record.client} --project`"
                found.append(replace(change, file=record.file, reason=reason))
        return tuple(found)

    def status(self, names: Sequence[str] = ()) -> tuple[HookChange, ...]:
        """Return how the entries of these clients are, of all when there is none."""
        wanted = [hook_client(name) for name in names] or list(hook_clients().values())
        return tuple(
            self._status(client, where) for client in wanted for where in ("user", "project")
        )

    def _status(self, client: HookClient, where: str) -> HookChange:
        change = self._change(client, where)
        record = self._record(change.file)
        try:
            text = self._file(client, where).text
            found = list(own_lines(client, text))
        except (ConfigFileError, NotEditableError) as error:
            mode = record.mode if record is not None else ""
            standing = HookStanding.UNREADABLE
            return replace(change, standing=standing, reason=str(error), mode=mode)
        if not found and record is None:
            return change
        mode = record.mode if record is not None else mode_of(found)
        change = replace(change, mode=mode, to_do=client.to_do)
        if mode == "sandbox":
            change = replace(change, sandboxed=client.sandboxed)
        try:
            wanted = wanted_entries(client, self._lines(client, mode))
        except ConfigError as error:
            return replace(change, standing=HookStanding.CHANGED, reason=str(error))
        off = switched_off(client, text) or self._unexcepted(client, text, mode)
        if sorted(found) == sorted(wanted) and not off:
            return replace(change, standing=HookStanding.INSTALLED)
        gone = len(wanted) - len({*found} & {*wanted})
        reason = f"{gone} of {len(wanted)} entries are changed or gone: install them again"
        return replace(change, standing=HookStanding.CHANGED, reason=off or reason)

    def plan_install(self, name: str, *, where: str, mode: str) -> HookPlan:
        """Return what `install` would write (ConfigError)."""
        client = hook_client(name)
        if mode not in MODES:
            raise ConfigError(f"expected a mode of {', '.join(MODES)}, got `{mode}`", key="mode")
        if mode == "sandbox" and client.rewrite is None:
            message = f"the commands of {client.title} cannot be rewritten: use `--mode enforce`"
            raise ConfigError(message, key="mode")
        words = runner_words(self._directory)
        if mode == "sandbox" and shlex.join(words) != " ".join(words):
            message = (
                f"no exception of a client can name `{shlex.join(words)}`: use `--mode enforce`"
            )
            raise ConfigError(message, key="mode")
        change = replace(self._status(client, where), mode=mode)
        lines = self._lines(client, mode)
        try:
            file = self._file(client, where)
            before = file.text
            bare, known = self._bare(client, before, change.file)
            after = with_lines(client, bare, lines)
            if mode == "sandbox":
                after = with_exception(client, after, runner_words(self._directory))
            beside = self._beside(client, where, mode)
        except (ConfigFileError, NotEditableError) as error:
            reason = f"not edited: {error}"
            unreadable = replace(change, standing=HookStanding.UNREADABLE, reason=reason)
            return HookPlan(change=unreadable)
        if after == before and known is not None and beside is None:
            as_it_is = replace(change, standing=HookStanding.INSTALLED, to_do=client.to_do)
            return HookPlan(change=as_it_is)
        was, became = replaced_part(bare, after)
        record = HookRecord(
            client=client.name,
            where=where,
            file=str(file.real),
            mode=mode,
            was=was,
            became=became,
            made_file=known.made_file if known else not file.exists,
            made_folders=known.made_folders if known else file.missing_folders(),
            made_beside=(known.made_beside if known else ())
            or (beside.file.missing_folders() if beside and beside.text else ()),
        )
        change = replace(
            change,
            action="install",
            difference=(*difference(before, after, change.file), *_difference_of(beside)),
            to_do=client.to_do,
            sandboxed=client.sandboxed if mode == "sandbox" else (),
        )
        return HookPlan(change=change, file=file, after=after, record=record, beside=beside)

    def plan_remove(self, name: str, *, where: str) -> HookPlan:
        """Return what `remove` would take away (ConfigError)."""
        client = hook_client(name)
        change = self._status(client, where)
        if change.standing is HookStanding.MISSING:
            return HookPlan(change=replace(change, reason="there is no entry of ours"))
        try:
            file = self._file(client, where)
            before = file.text
            after, _ = self._bare(client, before, change.file)
            beside = self._beside(client, where, "")
        except (ConfigFileError, NotEditableError) as error:
            reason = f"not edited, remove the entries yourself: {error}"
            return HookPlan(change=replace(change, reason=reason))
        lines = (*difference(before, after, change.file), *_difference_of(beside))
        change = replace(change, action="remove", difference=lines, to_do="")
        return HookPlan(change=change, file=file, after=after, beside=beside)

    def _bare(self, client: HookClient, text: str, path: str) -> tuple[str, HookRecord | None]:
        """Return a text without our entries: as it was before, where nothing else changed there."""
        record = self._record(path)
        if client.configuration.kind == "file":
            return ("", record) if own_lines(client, text) else (text, record)
        wanted = text
        for event in client.events:
            wanted = without_elements(wanted, "hooks", event, is_ours)
        wanted = without_exception(client, wanted)
        if record is not None and record.became and text.count(record.became) == 1:
            back = text.replace(record.became, record.was)
            with suppress(NotEditableError):
                ours = {} if not back.strip() else parsed(client, back)
                theirs = parsed(client, wanted)
                if client.rewrite and (one := client.rewrite.exception) and one.kind == "list":
                    for each in (ours, theirs):
                        if not each.get(one.table):
                            each.pop(one.table, None)
                for value in client.configuration.values:
                    drop_value(theirs, value.table, value.name, ours)
                if is_same(ours, theirs):
                    return back, record
        return wanted, record

    def _written(self, plan: HookPlan, file: ConfigFile) -> HookChange:
        change = plan.change
        if self._audit is None:
            raise AuditError("closed", "changes need the audit log", self._directory)
        arguments = {"client": change.client, "path": str(file.real), "mode": change.mode}
        with recorded(self._audit, f"hooks-{change.action}", arguments):
            known = self._record(change.file)
            if plan.record is not None:
                # INVARIANT: recorded first, so that entries that a crash leaves are known as ours.
                self._keep(plan.record)
            is_empty = not plan.after.strip() or plan.after.strip() == "{}"
            if change.action == "remove" and is_empty and known is not None and known.made_file:
                file.remove()
                remove_empty(known.made_folders)
            else:
                file.write(plan.after, mode=0o600 if change.where == "user" else 0o644)
            if plan.beside is not None:
                if plan.beside.text:
                    plan.beside.file.write(plan.beside.text, mode=0o600)
                else:
                    plan.beside.file.remove()
                    remove_empty(known.made_beside if known is not None else ())
            if change.action == "remove":
                self._forget(change.file)
                others = (one for one in self._records().values() if one.client == change.client)
                if known is not None and known.made_beside and plan.beside is None:
                    # Whoever goes last takes them away.
                    for other in (*others,)[:1]:
                        self._keep(replace(other, made_beside=known.made_beside))
        return replace(change, done=True)

    def _unexcepted(self, client: HookClient, text: str, mode: str) -> str:
        """Return that the client has no exception for our runner, where it is to have one."""
        exception = client.rewrite.exception if client.rewrite else None
        if mode != "sandbox" or exception is None:
            return ""
        if exception.kind == "list":
            is_there = has_exception(client, text, runner_words(self._directory))
        else:
            try:
                is_there = self._beside(client, "user", mode) is None
            except (ConfigFileError, NotEditableError) as error:
                return str(error)
        gone = "the client's exception for our runner is gone: no command runs in the sandbox"
        return "" if is_there else gone

    def _beside(self, client: HookClient, where: str, mode: str) -> _Beside | None:
        """Return the change of the file with the exception; None for none.

        Raises:
            NotEditableError: a file of that name is not ours.
        """
        exception = client.rewrite.exception if client.rewrite else None
        if exception is None or exception.kind != "file":
            return None
        base = client.configuration.path(self._places, self._project, "user").parent
        file = ConfigFile(base / exception.path, bound=self._places.home, may_be_outside=True)
        wanted = exception.filled(runner_words(self._directory)) if mode == "sandbox" else ""
        if not wanted and self._is_shared(client, where):
            return None
        if file.text == wanted:
            return None
        if file.exists and file.text.partition("\n")[0] != exception.text.partition("\n")[0]:
            raise NotEditableError(f"`{file.path}` is not ours: move it away")
        return _Beside(file=file, text=wanted)

    def _is_shared(self, client: HookClient, where: str) -> bool:
        """Whether another installation of the client needs the exception too."""
        here = os.path.realpath(client.configuration.path(self._places, self._project, where))
        return any(
            one.client == client.name and one.mode == "sandbox" and one.file != here
            for one in self._records().values()
        )

    def _prepare(self) -> None:
        """Write what starts a judge: our program, and the variables that lead to our files."""
        make_private(self._directory)
        check_private(self._directory)
        words = (*own_program(self._project)[:-1], "skillhouse.frontends.hooks")
        here = self._places.environment
        kept = carried_by_hooks(here)
        of_clients = (client.configuration.variable for client in hook_clients().values())
        kept |= {name: here[name] for name in (*_KEPT_VARIABLES, *of_clients) if name in here}
        kept["HOME"] = str(self._places.home)
        kept["PATH"] = safe_path(here, self._project)
        variables = "\0".join(f"{name}={value}" for name, value in sorted(kept.items()))
        for name, text in ((PROGRAM, "\0".join(words)), (VARIABLES, variables)):
            _put(self._directory / os.fsdecode(name), os.fsencode(text))

    def _lines(self, client: HookClient, mode: str) -> Mapping[str, str]:
        """Return the line of the shell for each event."""
        program = own_program(self._project)[0]
        # The event is read to its end, or the client could take a broken pipe for an answer.
        refuse = f"{{ cat >/dev/null; echo '{CANNOT}' >&2; exit 2; }}"
        otherwise = "exit 0" if mode == "watch" else refuse
        lines = {}
        for event, moment in client.events.items():
            words = [program, "-I", "-S", str(SCRIPT), client.name, mode, moment]
            words += [str(self._directory), client.project_variable]
            line = shlex.join(filter(None, words))
            # What is after a call cannot refuse it.
            whole = f"{line} || {otherwise if moment == 'before' else 'exit 0'}"
            # Some clients give it to the person's own shell, which may read `||` in another way.
            lines[event] = shlex.join(("/bin/sh", "-c", whole))
        return lines

    def _change(self, client: HookClient, where: str) -> HookChange:
        path = client.configuration.path(self._places, self._project, where)
        judged = sorted(name for name, tool in client.tools.items() if tool.kind != "record")
        return HookChange(
            client=client.name,
            title=client.title,
            where=where,
            file=str(path),
            standing=HookStanding.MISSING,
            tried=client.tried,
            guarded=(*judged, "tools of MCP servers") if client.mcp else tuple(judged),
            recorded=tuple(sorted(n for n, t in client.tools.items() if t.kind == "record")),
            unknown=UnknownTools(self._directory).of(client.name),
        )

    def _file(self, client: HookClient, where: str) -> ConfigFile:
        path = client.configuration.path(self._places, self._project, where)
        bound = self._places.home if where == "user" else self._project
        return ConfigFile(path, bound=bound, may_be_outside=where == "user")

    def _records(self) -> dict[str, HookRecord]:
        try:
            data = (self._directory / _RECORDS).read_bytes()
        except FileNotFoundError:
            return {}
        try:
            return {one.file: one for one in decode(data, tuple[HookRecord, ...])}
        except DecodeError as error:
            raise StateError(
                f"the records of hooks cannot be read: {error}", self._directory / _RECORDS
            ) from None

    def _record(self, path: str) -> HookRecord | None:
        return self._records().get(os.path.realpath(path))

    def _keep(self, record: HookRecord) -> None:
        records = {**self._records(), record.file: record}
        _put(self._directory / _RECORDS, encode(tuple(records.values())))

    def _forget(self, path: str) -> None:
        records = self._records()
        if records.pop(os.path.realpath(path), None) is not None:
            _put(self._directory / _RECORDS, encode(tuple(records.values())))


def entry_faults(changes: Iterable[HookChange]) -> Iterator[str]:
    """Yield one sentence about each entry that is not as it should be."""
    for change in changes:
        # A file that cannot be read is a fault where entries of ours were in it.
        is_faulty = change.standing in (HookStanding.CHANGED, HookStanding.UNREADABLE)
        if is_faulty and change.mode:
            own = " --project" if change.where == "project" else ""
            yield (
                f"The hooks of {change.title} are {change.standing.value}: a person should run "
                f"`skillhouse hooks install {change.client}{own}`."
            )


def is_installed(client: HookClient) -> bool:
    """Return whether the client's program is found here."""
    return shutil.which(client.program) is not None


def _put(path: Path, data: bytes) -> None:
    made = path.with_name(f".{path.name}")
    with open(made, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(made, path)


def _difference_of(beside: _Beside | None) -> tuple[str, ...]:
    if beside is None:
        return ()
    return difference(beside.file.text, beside.text, str(beside.file.path))
