"""A client's configuration file, replaced atomically, and the records of our entries in it."""

from __future__ import annotations

import difflib
import enum
import json
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from skillhouse.clients import jsonc, toml_text
from skillhouse.clients.client_table import ClientConfig
from skillhouse.clients.jsonc import NotEditableError
from skillhouse.clients.trees import remove_empty
from skillhouse.floor import (
    DecodeError,
    PathError,
    PlaceError,
    StateError,
    decode,
    descriptor,
    digest,
    encode,
    make_private,
    open_directory_beneath,
)
from skillhouse.floor.structs import replace
from skillhouse.store import STATE, STATE_FILE, pooled, state_exists

CONFIG_MAX = 16 * 1024 * 1024
"""Bytes of a client's configuration; Claude Code's grows with every project."""

_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
# Opening a FIFO must not hang.
_READ |= getattr(os, "O_NONBLOCK", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)


class ConfigFileError(PlaceError):
    """A client's file cannot be edited; nothing was changed."""


class ConfigFile:
    """One file with the content that was read."""

    def __init__(self, path: Path, *, bound: Path, may_be_outside: bool) -> None:
        """Resolve the path, which may contain links, and read the file.

        No link may leave `bound`, home or the project. With `may_be_outside` a path without links
        may be elsewhere, as a variable can name a directory. `ConfigFileError` also for what is
        not a regular file of this user, or too large.
        """
        self.path = path
        self.real = Path(os.path.realpath(path))
        anchor = Path(os.path.realpath(bound))
        if not self.real.is_relative_to(anchor):
            if not may_be_outside or str(self.real) != os.path.abspath(path):
                raise self._error("link-escape", f"a link leads out of `{bound}`; edit it yourself")
            anchor = Path(self.real.anchor)
        self._anchor = anchor
        self._inside = self.real.parent.relative_to(anchor).as_posix()
        self._data, self._mode = self._read()

    @property
    def exists(self) -> bool:
        return self._data is not None

    @property
    def text(self) -> str:
        """The content, empty for a missing file; raises `ConfigFileError` if it is not UTF-8."""
        try:
            return (self._data or b"").decode()
        except UnicodeDecodeError:
            raise self._error("not-text", "expected UTF-8 text") from None

    def write(self, text: str, *, mode: int) -> None:
        """Replace the file atomically if it did not change; `mode` is for a new file."""
        handle = self._directory(create=True)
        name = f".{self.real.name}.{secrets.token_hex(8)}"
        with descriptor(handle):
            made = os.open(name, _CREATE, 0o600, dir_fd=handle)
            try:
                with os.fdopen(made, "wb") as file:
                    file.write(text.encode())
                    file.flush()
                    os.fchmod(file.fileno(), mode if self._mode is None else self._mode)
                    os.fsync(file.fileno())
                self.refuse_if_changed()
                os.rename(name, self.real.name, src_dir_fd=handle, dst_dir_fd=handle)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=handle)
                raise
            os.fsync(handle)

    def missing_folders(self) -> tuple[str, ...]:
        """Return the directories that `write` has to make, the outermost first."""
        above = (self.real.parent, *self.real.parent.parents)
        return tuple(str(one) for one in reversed(above) if not os.path.lexists(one))

    def remove(self) -> None:
        with descriptor(self._directory(create=False)) as handle:
            self.refuse_if_changed()
            os.unlink(self.real.name, dir_fd=handle)

    def back_up(self, directory: Path) -> Path | None:
        """Copy the file into `directory` unless a copy exists; None when there is no file."""
        if self._data is None:
            return None
        make_private(directory)
        mark = digest(os.fsencode(self.real)).removeprefix("sha256:")[:16]
        place = directory / f"{mark}-{self.real.name}"
        try:
            handle = os.open(place, _CREATE, 0o600)
        except FileExistsError:
            return place
        with os.fdopen(handle, "wb") as file:
            file.write(self._data)
            file.flush()
            os.fsync(file.fileno())
        return place

    def refuse_if_changed(self) -> None:
        """Raise `ConfigFileError` if the file is not what was read."""
        # The client may write the file itself. The remaining race is one rename.
        if self._read()[0] != self._data:
            raise self._error("changed-meanwhile", "it was changed meanwhile; try again")

    def _read(self) -> tuple[bytes | None, int | None]:
        try:
            handle = self._directory(create=False)
        except ConfigFileError as error:
            if error.code == "not-found":
                return None, None
            raise
        try:
            file = os.open(self.real.name, _READ, dir_fd=handle)
        except FileNotFoundError:
            return None, None
        except OSError as error:
            raise self._error("unreadable", (error.strerror or "unreadable").lower()) from error
        finally:
            os.close(handle)
        with os.fdopen(file, "rb") as opened:
            info = os.fstat(opened.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise self._error("not-a-file", "expected a regular file")
            if info.st_uid != os.geteuid():
                raise self._error("not-ours", "it belongs to another user; edit it yourself")
            if info.st_nlink > 1:
                # Replacing the file would separate it from its other names.
                raise self._error("hard-links", "it has several hard links; edit it yourself")
            data = opened.read(CONFIG_MAX + 1)
        if len(data) > CONFIG_MAX:
            raise self._error("too-large", f"expected at most {CONFIG_MAX} bytes")
        return data, stat.S_IMODE(info.st_mode)

    def _directory(self, *, create: bool) -> int:
        if os.open not in os.supports_dir_fd:  # pragma: no cover - Windows
            raise self._error("no-descriptors", "this system has no directory descriptors")
        try:
            return open_directory_beneath(self._anchor, self._inside, create=create)
        except PathError as error:
            code = error.code
            if code == "unreadable" and not os.path.lexists(self.real.parent):
                code = "not-found"
            raise self._error(code, f"its directory cannot be opened ({code})") from error

    def _error(self, code: str, message: str) -> ConfigFileError:
        return ConfigFileError(code, self.path, message)


class Standing(enum.StrEnum):
    INSTALLED = "installed"
    """As we wrote it, and current."""
    OUTDATED = "outdated"
    """As we wrote it, but we would write another one now."""
    CHANGED = "changed"
    """We wrote it, and it was changed since."""
    BY_HAND = "by-hand"
    """It starts skillhouse, and we did not write it."""
    FOREIGN = "foreign"
    """The name belongs to another server."""
    MISSING = "missing"
    UNREADABLE = "unreadable"


class ServerEntry(Struct, frozen=True, kw_only=True):
    file: str
    """Real path of the client's file."""
    client: str
    name: str
    text: str
    """The entry as JSON."""
    made_file: bool = False
    """Whether we made the file."""
    made_table: bool = False
    """Whether we made the table of servers."""
    made_folders: tuple[str, ...] = ()
    """Directories that we made for the file, the outermost first."""
    was: str = ""
    """What of the file was replaced by `became`, which holds the entry."""
    became: str = ""


class Change(Struct, frozen=True, kw_only=True):
    """One client's entry: its state, and what was or would be done."""

    client: str
    file: str
    name: str
    standing: Standing
    """Before the action."""
    fault: str = ""
    """Why it is not safe to start the entry's command; empty when it is."""
    action: str = ""
    """install, uninstall, fix, or empty."""
    done: bool = False
    reason: str = ""
    snippet: str = ""
    """The entry to paste when the file cannot be edited."""
    difference: tuple[str, ...] = ()
    """Lines of a unified diff."""
    backup: str = ""
    """Path of the copy from before our first change."""
    note: str = ""
    decides_alone: bool = False
    """Whether the client calls our tools without asking its user, as far as its files say so."""
    listed_twice: int = 0
    """Skills of our list, in a state of the entry, that the client lists by itself as well."""
    also: tuple[Change, ...] = ()
    """What was or would be done in another file of the client for the same entry."""


class Entries:
    def __init__(self, state_directory: Path) -> None:
        self._path = state_directory / STATE_FILE

    def get(self, file: str, name: str) -> ServerEntry | None:
        if not state_exists(self._path):
            return None
        with pooled(self._path, STATE) as store:
            query = "SELECT record FROM client_entry WHERE file = ? AND name = ?"
            rows = store.rows(query, (file, name))
        try:
            return decode(rows[0][0], ServerEntry) if rows else None
        except DecodeError as error:
            message = f"a record of an entry cannot be read: {error}"
            raise StateError(message, self._path) from None

    def files(self) -> tuple[tuple[str, str, str], ...]:
        """Return (file, name, client) of every entry that was written and not removed, sorted."""
        if not state_exists(self._path):
            return ()
        with pooled(self._path, STATE) as store:
            rows = store.rows("SELECT record FROM client_entry ORDER BY file, name", ())
        found = []
        for (record,) in rows:
            with suppress(DecodeError):
                entry = decode(record, ServerEntry)
                found.append((entry.file, entry.name, entry.client))
        return tuple(found)

    def put(self, entry: ServerEntry) -> None:
        """Store a record; it replaces the one of the same file and name."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                "INSERT INTO client_entry VALUES (?, ?, ?) "
                "ON CONFLICT (file, name) DO UPDATE SET record = excluded.record",
                (entry.file, entry.name, encode(entry)),
            )

    def hand_over(self, file: str, name: str) -> None:
        """Forget an entry; what we made for it and is left goes to another one of ours there."""
        gone = self.get(file, name)
        self.forget(file, name)
        if gone is None:
            return
        left = remove_empty(gone.made_folders)
        for path, other, _ in self.files():
            heir = self.get(path, other)
            if heir is not None and path == file:
                made_file, made_table = gone.made_file, gone.made_table
                heir = replace(heir, made_file=made_file or heir.made_file)
                heir = replace(heir, made_table=made_table or heir.made_table)
            elif heir is None or not path.startswith(tuple(f"{place}/" for place in left)):
                continue
            self.put(replace(heir, made_folders=(*left, *heir.made_folders)))
            break

    def forget(self, file: str, name: str) -> None:
        if state_exists(self._path):
            with pooled(self._path, STATE) as store, store.transaction() as connection:
                query = "DELETE FROM client_entry WHERE file = ? AND name = ?"
                connection.execute(query, (file, name))


def parsed(config: ClientConfig, text: str) -> dict[str, Any]:
    """Return the value of a text; `NotEditableError` if the client itself cannot read it."""
    if config.format == "toml":
        return toml_text.parse(text)
    document = jsonc.parse(text)
    if document.comments and not config.comments:
        raise NotEditableError(
            f"{config.client} is not known to read comments, and this file has some"
        )
    if document.has_trailing_commas and not config.trailing_commas:
        raise NotEditableError(
            f"{config.client} is not known to read a comma behind the last value, "
            "and this file has one"
        )
    value: dict[str, Any] = document.value
    return value


def with_entry(config: ClientConfig, text: str, name: str, entry: dict[str, Any]) -> str:
    if config.format == "toml":
        return toml_text.with_entry(text, config.table, name, entry)
    changed = jsonc.with_entry(text, config.table, name, entry)
    return changed if changed.endswith("\n") or text.strip() else f"{changed}\n"


def without_entry(
    config: ClientConfig, text: str, name: str, kept: ServerEntry | None = None
) -> str:
    """Return a text without an entry, and where `kept` made the table without the empty table.

    What we replaced is put back as it was, so that what no parser sees is the same too.
    """
    servers = dict(parsed(config, text)[config.table])
    del servers[name]
    with_table = kept is not None and kept.made_table and not servers
    if kept is not None and kept.became and text.count(kept.became) == 1:
        back = text.replace(kept.became, kept.was)
        wanted = {**parsed(config, text), config.table: servers}
        if with_table:
            del wanted[config.table]
        with suppress(NotEditableError):
            if parsed(config, back) == wanted:
                return back
    if config.format == "toml":
        return toml_text.without_entry(text, config.table, name)
    return jsonc.without_entry(text, config.table, name, with_table=with_table)


def replaced_part(before: str, after: str) -> tuple[str, str]:
    """Return what of a text was replaced, and by what.

    >>> replaced_part("{}", '{"a": 1}')
    ('', '"a": 1')
    """
    most = min(len(before), len(after))
    start = next((at for at in range(most) if before[at] != after[at]), most)
    tail = (at for at in range(most - start) if before[-1 - at] != after[-1 - at])
    end = next(tail, most - start)
    return before[start : len(before) - end], after[start : len(after) - end]


def snippet_of(config: ClientConfig, name: str, entry: dict[str, Any]) -> str:
    """Return the text of a file with this entry alone, to be pasted."""
    if config.format == "toml":
        return toml_text.rendered(config.table, name, entry)
    return json.dumps({config.table: {name: entry}}, indent=2, ensure_ascii=False) + "\n"


def difference(before: str, after: str, label: str) -> tuple[str, ...]:
    old, new = before.splitlines(), after.splitlines()
    return tuple(difflib.unified_diff(old, new, label, label, lineterm="", n=2))


def with_values(config: ClientConfig, text: str, name: str, values: Mapping[str, Any]) -> str:
    """Return a text with these values in an entry, whose other values stay."""
    write = toml_text.with_values if config.format == "toml" else jsonc.with_values
    return write(text, config.table, name, values)
