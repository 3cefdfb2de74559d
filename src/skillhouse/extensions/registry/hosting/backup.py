"""Copies a registry to another place, and brings such a copy back without going behind clients."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from skillhouse.extensions.registry.hosting.blobs import BlobDirectory
from skillhouse.extensions.registry.hosting.release_store import METADATA_FLOOR, utc_text
from skillhouse.extensions.registry.hosting.sqlite_schema import REPOSITORY_STORE
from skillhouse.extensions.registry.hosting.sqlite_store import DATABASE, SqliteReleases
from skillhouse.floor import (
    DecodeError,
    PathError,
    SkillhouseError,
    StateError,
    make_private,
    shaped,
    sync_directory,
)
from skillhouse.floor.digests import file_digest
from skillhouse.floor.documents import json_value
from skillhouse.floor.lock import try_lock
from skillhouse.floor.paths import checked_parts, read_regular
from skillhouse.floor.structs import asdict
from skillhouse.registry import address_name, blob_path
from skillhouse.store import migrate

FACTS = "backup.json"
"""Written last: what has none was interrupted."""
SERVED = "served.lock"
TIMESTAMP = "metadata/timestamp.json"
"""The signed file whose version clients remember."""
_FACTS_MAX = 65_536
_METADATA_MAX = 1024 * 1024
_NUMBER_MAX = 1 << 62
_FURTHER_ROUNDS = 1_000
"""Signatures since a backup that were made for people's documents, or by hand."""
_OWN = ("blobs", "uploads", SERVED, FACTS)
"""Names in a registry's directory that are not copied as they are."""


class BackupError(SkillhouseError):
    """A backup cannot be made, or is not brought back; nothing was changed.

    `code` is "backup" for one that cannot be used, "served" while a server runs, "behind" for one
    that is older than what clients saw.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class BackupFacts(Struct, frozen=True, kw_only=True):
    """What a backup says of itself."""

    format: int
    registry: str
    created_at: str
    last_change: int
    metadata_version: int
    """Of the signed timestamp; 0 without one."""
    archives: int


@contextmanager
def served(directory: Path, *, alone: bool = False) -> Iterator[None]:
    """Hold a registry: servers share it, and who replaces its files has it alone.

    Raises:
        BackupError: "served", it is held in another way.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    handle = os.open(directory / SERVED, flags, 0o600)
    try:
        if not try_lock(handle, shared=not alone):
            what = "a server of it runs: stop it first" if alone else "it is being restored"
            raise BackupError("served", f"`{directory}`: {what}")
        yield
    finally:
        os.close(handle)


def back_up(directory: Path, target: Path, now: datetime) -> BackupFacts:
    """Copy a registry, which may be served meanwhile, to a directory or into a new `.tar` file.

    A directory that has an earlier backup is brought up to date.

    Raises:
        BackupError: "backup", something else is at the target.
        OSError: it cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="skillhouse-") as place:
        # INVARIANT: an archive is durable before the row that names it, so the archives that are
        # copied after the rows are all there.
        copy = Path(place, DATABASE)
        with (
            closing(sqlite3.connect(directory / DATABASE)) as source,
            closing(sqlite3.connect(copy)) as rows,
        ):
            source.backup(rows)
            if problem := _check(rows, copy):
                raise BackupError("backup", f"`{directory}`: {problem}")
            digests = _digests(rows)
            facts = BackupFacts(
                format=1,
                registry=_setting(rows, "name"),
                created_at=utc_text(now),
                last_change=_last_change(rows),
                metadata_version=_metadata_version(directory),
                archives=len(digests),
            )
        with _sink(target) as put:
            put(copy, DATABASE)
            for digest in digests:
                put(directory / blob_path(digest), blob_path(digest))
            for relative in _others(directory):
                put(directory / relative, relative)
            (Path(place) / FACTS).write_text(json.dumps(asdict(facts)), encoding="utf-8")
            put(Path(place) / FACTS, FACTS)
    return facts


def restore(
    source: Path, directory: Path, now: datetime, *, seen: int = 0, go_back: bool = False
) -> tuple[BackupFacts, str]:
    """Put a backup in the place of a registry; return what it is, and where the former rows are.

    What was revoked here since stays revoked, tokens too. With `go_back` every skill gets a change
    after those that clients saw, so that mirrors read all of them again. Where the metadata that
    clients saw is gone, the next one has a number that is above it, so that they take it.

    Args:
        seen: The number of the last change that a client saw, where that is known from elsewhere.

    Raises:
        BackupError: as `code` says; nothing was changed.
    """
    make_private(directory)
    with served(directory, alone=True), _unpacked(source, directory) as place:
        facts = _facts(place)
        known, version = _last_change_at(directory), _metadata_version(directory)
        unknown = max(0, seen - (known or facts.last_change)) if seen > known else 0
        seen = max(seen, known)
        behind = []
        if facts.last_change < seen:
            behind.append(f"clients saw change {seen}, and it ends with {facts.last_change}")
        if facts.metadata_version < version:
            behind.append(
                f"clients saw signed metadata {version}, and it has {facts.metadata_version}"
            )
        if behind and not go_back:
            message = (
                f"the backup of {facts.created_at} is older than the registry: "
                f"{'; '.join(behind)}. What was published, yanked and changed after it would be "
                "gone, and clients and mirrors that saw it refuse to go back"
            )
            raise BackupError("behind", f"{message}: use --go-back if you mean that")
        rows = place / DATABASE
        _check_archives(rows, place)
        rows.chmod(0o600)
        _carry_over(rows, directory / DATABASE, seen, utc_text(now), is_behind=bool(behind))
        if behind and unknown and (signed := max(version, facts.metadata_version)):
            _raise_metadata(rows, signed + unknown + _rounds_since(facts, now))
        return facts, _replace(place, directory, now, keep_metadata=version > 0 and bool(behind))


def _rounds_since(facts: BackupFacts, now: datetime) -> int:
    """Return how many times metadata was signed at most since a backup, besides for changes."""
    try:
        age = now - datetime.fromisoformat(facts.created_at)
    except ValueError as error:
        raise BackupError("backup", f"`{FACTS}` has no time: {error}") from error
    return max(0, int(age.total_seconds() // 3_600)) + _FURTHER_ROUNDS


def _raise_metadata(rows: Path, floor: int) -> None:
    """Have the next signature of the metadata follow a number, which clients cannot have seen."""
    with closing(SqliteReleases(rows)) as store:
        store.set_setting(METADATA_FLOOR, str(floor).encode())


def _replace(place: Path, directory: Path, now: datetime, *, keep_metadata: bool) -> str:
    blobs = BlobDirectory(directory)
    with closing(sqlite3.connect(place / DATABASE)) as rows:
        digests = _digests(rows)
    for digest in digests:
        upload = blobs.new_upload()
        try:
            shutil.copyfile(place / blob_path(digest), upload / "archive.part")
            blobs.put(upload / "archive.part", digest)
        finally:
            blobs.end_upload(upload)
    for relative in _others(place):
        if keep_metadata and relative.startswith("metadata/") and (directory / relative).exists():
            # Its numbers are those that clients saw; the next signature follows them.
            continue
        target = directory / relative
        make_private(target.parent)
        shutil.copyfile(place / relative, target)
        target.chmod(0o600)
    former = ""
    if (directory / DATABASE).exists():
        with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(directory / DATABASE)) as old:
            # What is only in the log of changes belongs to the file that is kept.
            old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    stamp = f"{now:%Y%m%dT%H%M%SZ}"
    for suffix in ("-wal", "-shm", ""):
        path = directory / f"{DATABASE}{suffix}"
        if path.exists():
            former = f"{directory / f'{DATABASE}.before-{stamp}'}"
            os.replace(path, f"{former}{suffix}")
    shutil.copyfile(place / DATABASE, directory / f"{DATABASE}.part")
    (directory / f"{DATABASE}.part").chmod(0o600)
    os.replace(directory / f"{DATABASE}.part", directory / DATABASE)
    sync_directory(directory)
    return former


def _carry_over(rows: Path, before: Path, seen: int, at: str, *, is_behind: bool) -> None:
    """Bring into restored rows what must not be taken back, and numbers after those seen."""
    revoked: list[tuple[str, str, str, str]] = []
    with closing(sqlite3.connect(rows)) as to:
        migrate(to, REPOSITORY_STORE, rows)
        if before.exists():
            with closing(_read_only(before)) as former, suppress(sqlite3.DatabaseError):
                # What is damaged takes nothing back, and nothing over.
                revoked = former.execute(_REVOKED).fetchall()
                to.executemany(*_over(former, _ENDED, _END))
                to.executemany(*_over(former, _LISTS, _PUT_LIST))
        if is_behind:
            to.execute(
                "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'change'", (seen,)
            )
            skills = to.execute("SELECT namespace, name FROM skill ORDER BY id").fetchall()
            to.executemany(
                "INSERT INTO change (kind, name, version, at) VALUES ('restore', ?, '', ?)",
                [(address_name(namespace, name), at) for namespace, name in skills],
            )
        to.commit()
    with closing(SqliteReleases(rows)) as store:
        for namespace, name, version, reason in revoked:
            found = store.releases(namespace, name)
            states = {one.version: one.state for one in found.versions} if found else {}
            if states.get(version, "revoked") != "revoked":
                store.set_state(namespace, name, version, "revoked", reason=reason, at=at)


_REVOKED = (
    "SELECT skill.namespace, skill.name, version.version, version.reason FROM version "
    "JOIN skill ON skill.id = version.skill WHERE version.state = 'revoked'"
)
_ENDED = "SELECT revoked_at, id FROM token WHERE revoked_at > ''"
_END = "UPDATE token SET revoked_at = ? WHERE id = ? AND revoked_at = ''"
_LISTS = "SELECT name, value FROM setting WHERE name IN ('revocations', 'revoked')"
_PUT_LIST = "INSERT OR REPLACE INTO setting VALUES (?, ?)"


def _over(former: sqlite3.Connection, query: str, change: str) -> tuple[str, list[Any]]:
    return change, former.execute(query).fetchall()


def _check_archives(rows: Path, place: Path) -> None:
    with closing(sqlite3.connect(rows)) as found:
        if problem := _check(found, rows):
            raise BackupError("backup", problem)
        digests = _digests(found)
    for digest in digests:
        path = place / blob_path(digest)
        if not path.is_file() or path.is_symlink() or file_digest(path) != digest:
            raise BackupError("backup", f"the archive {digest} of the backup is not as it was")


def _check(rows: sqlite3.Connection, path: Path) -> str:
    """Return what is wrong with a database; empty for nothing."""
    try:
        ((found,),) = rows.execute("PRAGMA integrity_check(1)").fetchall()
        migrate(rows, REPOSITORY_STORE, path)
    except (sqlite3.DatabaseError, StateError) as error:
        return f"its database cannot be used: {error}"
    return "" if found == "ok" else f"its database is damaged: {found}"


def _digests(rows: sqlite3.Connection) -> list[str]:
    query = "SELECT DISTINCT digest FROM version WHERE state != 'revoked' ORDER BY digest"
    return [digest for (digest,) in rows.execute(query)]


def _setting(rows: sqlite3.Connection, name: str) -> str:
    found = rows.execute("SELECT value FROM setting WHERE name = ?", (name,)).fetchone()
    return bytes(found[0]).decode() if found else ""


def _last_change(rows: sqlite3.Connection) -> int:
    ((number,),) = rows.execute("SELECT coalesce(max(seq), 0) FROM change")
    return int(number)


def _last_change_at(directory: Path) -> int:
    """Return the last change of the registry that is in place; 0 without one that can be read."""
    path = directory / DATABASE
    if not path.exists():
        return 0
    with closing(_read_only(path)) as rows, suppress(sqlite3.DatabaseError):
        return _last_change(rows)
    return 0


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def _metadata_version(directory: Path) -> int:
    path = directory / TIMESTAMP
    if not path.is_file():
        return 0
    try:
        value = json_value(path.read_bytes()[:_METADATA_MAX])
        return min(_NUMBER_MAX, int(value["signed"]["version"]))
    except (DecodeError, KeyError, TypeError, ValueError) as error:
        raise BackupError("backup", f"`{path}` cannot be read: {error!r}") from error


def _others(directory: Path) -> list[str]:
    """Return the further files: trusted roots, and what signs and was signed."""
    found = []
    for folder, names, files in os.walk(directory):
        if Path(folder) == directory:
            names[:] = [name for name in names if name not in _OWN]
            files = [
                name
                for name in files
                if name not in _OWN and not name.startswith(DATABASE) and ".jsonl" not in name
            ]
        found += [Path(folder, name) for name in files]
    regular = [path for path in found if path.is_file() and not path.is_symlink()]
    return sorted(path.relative_to(directory).as_posix() for path in regular)


def _facts(place: Path) -> BackupFacts:
    path = place / FACTS
    if not path.is_file():
        raise BackupError("backup", f"`{FACTS}` is not there: no backup, or an interrupted one")
    try:
        facts = shaped(json_value(read_regular(path, _FACTS_MAX)), BackupFacts)
    except DecodeError as error:
        raise BackupError("backup", f"`{FACTS}` cannot be used: {error}") from error
    if facts.format != 1:
        raise BackupError(
            "backup", f"expected format 1, got {facts.format}: use a newer skillhouse"
        )
    return facts


Put = Callable[[Path, str], None]


@contextmanager
def _sink(target: Path) -> Iterator[Put]:
    """Give what takes a file under a relative name."""
    if target.suffix == ".tar":
        beside = target.with_name(f".{target.name}.part")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(beside, flags, 0o600), "wb") as file:
            with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
                yield lambda source, relative: tar.add(source, relative, filter=_anonymous)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
        return
    if target.exists() and (
        not target.is_dir() or (any(target.iterdir()) and not (target / FACTS).is_file())
    ):
        raise BackupError("backup", f"`{target}` has something that is no backup")
    make_private(target)
    (target / FACTS).unlink(missing_ok=True)

    def put(source: Path, relative: str) -> None:
        into = target / relative
        if relative.startswith("blobs/") and into.is_file():
            return
        make_private(into.parent)
        shutil.copyfile(source, into)

    yield put
    sync_directory(target)


def _anonymous(one: tarfile.TarInfo) -> tarfile.TarInfo:
    one.uid = one.gid = 0
    one.uname = one.gname = ""
    return one


@contextmanager
def _unpacked(source: Path, directory: Path) -> Iterator[Path]:
    """Give a copy of a backup's files as a directory, on the file system of the registry."""
    with tempfile.TemporaryDirectory(prefix=".restore-", dir=directory) as text:
        place = Path(text)
        if source.is_dir():
            shutil.copytree(source, place, symlinks=True, dirs_exist_ok=True)
        else:
            _unpack(source, place)
        yield place


def _unpack(source: Path, place: Path) -> None:
    try:
        with tarfile.open(source, "r:") as tar:
            for one in tar:
                if one.isdir():
                    continue
                data = tar.extractfile(one) if one.isreg() else None
                target = place.joinpath(*checked_parts(one.name, place))
                if data is None:
                    raise BackupError("backup", f"expected files only, got {one.name[:80]!r}")
                make_private(target.parent)
                # INVARIANT: a name comes once, and no file is a link, so all are below the place.
                with open(target, "xb") as file:
                    shutil.copyfileobj(data, file)
    except (tarfile.TarError, PathError, FileExistsError, NotADirectoryError) as error:
        raise BackupError("backup", f"`{source}` is no backup: {error}") from error
