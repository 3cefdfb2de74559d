"""The store of installed dependencies: by digest, atomic, read-only, bounded in size.

```
CACHE/<key>/packages/   what was installed; no link, nothing that can be written
CACHE/<key>/size        its bytes
CACHE/<key>/used        its time is that of the last use
CACHE/known/<source>    the key of what was installed for a lock file, which need not be read again
CACHE/locks/<key>       held exclusively to install or remove, shared to use
CACHE/staging-<key>-*   an installation in progress, or the rest of a crashed one
```
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from pathlib import Path

import anyio
from msgspec import Struct

from skillhouse.floor import make_private
from skillhouse.floor.lock import lock, try_lock
from skillhouse.sandbox import SandboxError

FILES_MAX = 50_000
"""Files of one environment."""
WAIT_SECONDS = 0.05
"""Pause between two attempts to get a lock; an installation takes seconds."""
YOUNG_SECONDS = 60.0
"""An environment used within this time is not removed: its user may not hold the lease yet."""

_READ_ONLY = 0o555
_LOCKS = "locks"
_KNOWN = "known"
_PACKAGES = "packages"
_STAGING = "staging-"


class EnvironmentStore(Struct, frozen=True):
    """The cache of all environments of a user; several processes share it."""

    cache: Path
    clock: Callable[[], float] = time.time
    """Seconds since 1970."""

    def packages(self, key: str) -> Path | None:
        """Return the packages installed under a key, and record the use; None without any."""
        try:
            os.utime(self.cache / key / "used", (self.clock(), self.clock()))
        except FileNotFoundError:
            return None
        return self.cache / key / _PACKAGES

    def known(self, source: str) -> str:
        """Return the key that was noted for a source; "" without any."""
        try:
            key = (self.cache / _KNOWN / source).read_text(encoding="ascii", errors="replace")
        except FileNotFoundError:
            return ""
        return key if re.fullmatch("[0-9a-f]{64}", key) else ""

    def note(self, source: str, key: str) -> None:
        """Note which environment a source came to."""
        known = self.cache / _KNOWN
        make_private(known)
        place = known / f"{source}-{secrets.token_hex(8)}"
        place.write_text(key, encoding="ascii")
        # A reader sees all of it or nothing. `collect` of another process may have dropped it: then
        # the source is read once more.
        with contextlib.suppress(FileNotFoundError):
            place.rename(known / source)

    @contextlib.asynccontextmanager
    async def alone(self, key: str, *, seconds: float) -> AsyncIterator[None]:
        """Hold a key exclusively; "dependencies-busy" if another process has it all the time."""
        with self._lock_file(key) as handle:
            with anyio.move_on_after(seconds) as waiting:
                # Another process holds it, so there is no event to wait for.
                while not try_lock(handle):  # noqa: ASYNC110
                    await anyio.sleep(WAIT_SECONDS)
            if waiting.cancelled_caught:
                message = "another process has been installing these dependencies for too long"
                raise SandboxError("dependencies-busy", message)
            yield

    @contextlib.contextmanager
    def lease(self, key: str) -> Iterator[Path]:
        """Keep the packages from being removed while they are used ("dependencies-gone")."""
        with self._lock_file(key) as handle:
            lock(handle, shared=True)
            packages = self.packages(key)
            if packages is None:
                raise SandboxError("dependencies-gone", "the dependencies were removed; try again")
            yield packages

    @contextlib.contextmanager
    def staging(self, key: str) -> Iterator[Path]:
        """Yield an empty directory, removed at the end; the caller holds the key `alone`."""
        for left in self.cache.glob(f"{_STAGING}{key}-*"):
            _remove(left)
        place = self.cache / f"{_STAGING}{key}-{secrets.token_hex(8)}"
        place.mkdir(mode=0o700)
        try:
            yield place
        finally:
            _remove(place)

    def publish(self, installed: Path, staging: Path, key: str, *, max_bytes: int) -> Path:
        """Make `installed`, a directory in `staging`, the content of a key, atomically."""
        whole = staging / "whole"
        whole.mkdir(mode=0o700)
        size = _sealed(installed, max_bytes)
        # A read-only directory cannot be moved.
        installed.chmod(0o700)
        installed.rename(whole / _PACKAGES)
        (whole / _PACKAGES).chmod(_READ_ONLY)
        (whole / "size").write_text(str(size))
        (whole / "used").touch()
        _sync(whole / "size")
        _sync(whole)
        # INVARIANT: an environment has its name only when all of it is on the disk.
        whole.rename(self.cache / key)
        _sync(self.cache)
        return self.cache / key / _PACKAGES

    def collect(self, max_bytes: int) -> tuple[str, ...]:
        """Remove the least recently used until `max_bytes` are left; return the removed keys.

        Environments in use, or used a moment ago, stay even beyond the bound.
        """
        kept: list[tuple[float, str, int]] = []
        for entry in os.scandir(self.cache):
            if entry.name.startswith(_STAGING):
                self._sweep(entry.name)
            elif entry.name not in (_LOCKS, _KNOWN):
                with contextlib.suppress(OSError, ValueError):
                    used = os.stat(f"{entry.path}/used").st_mtime
                    kept.append((used, entry.name, int(Path(entry.path, "size").read_text())))
        self._forget({key for _, key, _ in kept})
        total = sum(size for _, _, size in kept)
        removed: list[str] = []
        for used, key, size in sorted(kept):
            if total <= max_bytes or used > self.clock() - YOUNG_SECONDS:
                break
            if self._remove_unused(key):
                removed.append(key)
                total -= size
        return tuple(removed)

    def _forget(self, keys: Collection[str]) -> None:
        """Drop the notes of environments that are gone, and what a crash left of one."""
        known = self.cache / _KNOWN
        for name in os.listdir(known) if known.is_dir() else ():
            if "-" in name or self.known(name) not in keys:
                (known / name).unlink(missing_ok=True)

    def _remove_unused(self, key: str) -> bool:
        with self._lock_file(key) as handle:
            if not try_lock(handle):
                return False
            # Renamed first, so that after a crash the next sweep removes the rest.
            gone = self.cache / f"{_STAGING}{key}-{secrets.token_hex(8)}"
            (self.cache / key).rename(gone)
            _remove(gone)
        return True

    def _sweep(self, name: str) -> None:
        key = name.removeprefix(_STAGING).partition("-")[0]
        with self._lock_file(key) as handle:
            if try_lock(handle):
                _remove(self.cache / name)

    @contextlib.contextmanager
    def _lock_file(self, key: str) -> Iterator[int]:
        # Never removed: a lock on an unlinked file excludes no other process.
        locks = self.cache / _LOCKS
        make_private(locks)
        handle = os.open(locks / key, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield handle
        finally:
            os.close(handle)


def _sealed(directory: Path, max_bytes: int) -> int:
    """Make a tree read-only and durable and return its bytes; refuse links and devices."""
    size = count = 0
    for place, directories, files in os.walk(directory):
        for name in (*directories, *files):
            path = os.path.join(place, name)
            info = os.lstat(path)
            count += 1
            if stat.S_ISREG(info.st_mode):
                size += info.st_size
                os.chmod(path, _READ_ONLY if info.st_mode & stat.S_IXUSR else 0o444)
                _sync(Path(path))
            elif not stat.S_ISDIR(info.st_mode):
                shown = os.path.relpath(path, directory)
                raise SandboxError("dependencies-link", f"a link or device was installed: {shown}")
            if size > max_bytes or count > FILES_MAX:
                message = f"expected at most {max_bytes} bytes and {FILES_MAX} files"
                raise SandboxError("dependencies-large", message)
    for place, _, _ in os.walk(directory, topdown=False):
        os.chmod(place, _READ_ONLY)
        _sync(Path(place))
    return size


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(directory: Path) -> None:
    for place, _, _ in os.walk(directory):
        os.chmod(place, 0o700)
    shutil.rmtree(directory, ignore_errors=False) if directory.exists() else None
