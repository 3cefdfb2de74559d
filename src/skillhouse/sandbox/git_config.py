"""Lets commands of git write their `config`, and takes out afterwards what is not harmless.

Over a mount git's rename fails, so that `git branch -D` reports an error that is none, and
`git switch --track` success without an effect. Where a line is git alone, with words that write
`branch.*` or `remote.*`, the file stays uncovered; git runs no hooks then.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from skillhouse.floor.regex import regex
from skillhouse.sandbox.disarm import CONFIG_MAX
from skillhouse.sandbox.toolset import PROGRAM_PATH

SECONDS = 5.0
"""Longest time of one run of `git config` on a file."""
_KEPT = regex(
    r"branch\..*\.(?:remote|merge|rebase|pushremote|description)"
    r"|remote\..*\.(?:url|fetch|push|pushurl|mirror|prune|tagopt)",
)
"""Keys that these words write, which name no program (git-config(1))."""
_Keys = dict[str, tuple[str, ...]]


class OpenConfig(Struct):
    """A `config` that a run may write, and what it was before."""

    path: str
    before: bytes

    def check(self) -> tuple[str, ...]:
        """Take out what the run changed beyond `_KEPT`; return that in words.

        What others write meanwhile is kept: git's own lock is held, and each key is set alone.
        """
        if _bytes(self.path) == self.before:
            return ()
        lock = f"{self.path}.lock"
        try:
            handle = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            return (f"not looked through, as git has a lock there: `{self.path}`",)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_bytes(self.path) or b"")
            with contextlib.suppress(OSError):
                os.chmod(lock, os.lstat(self.path).st_mode & 0o777)
            return self._restored(lock)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(lock)

    def _restored(self, lock: str) -> tuple[str, ...]:
        # The keys as git reads them: with `--file` it obeys none of them.
        before = f"{lock}.before"
        try:
            with open(before, "xb") as file:
                file.write(self.before)
            old, new = _keys(before), _keys(lock)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(before)
        if new is None or old is None:
            # Nothing that can be taken apart: as it was.
            with open(lock, "wb") as file:
                file.write(self.before)
            os.replace(lock, self.path)
            return (f"put back, as it could not be read: `{self.path}`",)
        changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
        refused = sorted(key for key in changed if not _may_stay(key, old, new))
        for key in refused:
            _git(lock, "--unset-all", key)
            for value in old.get(key, ()):
                _git(lock, "--add", key, value)
        if not refused:
            return ()
        os.replace(lock, self.path)
        shown = ", ".join(f"`{key}`" for key in refused)
        return (f"taken out of `{self.path}`, as no command changes it: {shown}",)


def opened_config(path: str) -> OpenConfig | None:
    data = _bytes(path)
    return None if data is None else OpenConfig(path, data)


def _may_stay(key: str, old: _Keys, new: _Keys) -> bool:
    if _KEPT.fullmatch(key) is None:
        # With a branch or a remote all of its keys go, and come under another name.
        is_section = key.startswith(("branch.", "remote."))
        return is_section and (key not in new or _is_renamed(key, old, new))
    more = Counter(new.get(key, ())) - Counter(old.get(key, ()))
    return not any("::" in value or value[:1] in ("!", "-") for value in more)


def _is_renamed(key: str, old: _Keys, new: _Keys) -> bool:
    section, name = key.partition(".")[0], key.rpartition(".")[2]
    return any(
        other.startswith(f"{section}.") and other.endswith(f".{name}") and old[other] == new[key]
        for other in old
        if other not in new
    )


def _keys(path: str) -> _Keys | None:
    text = _git(path, "--no-includes", "--list", "-z")
    if text is None:
        return None
    found: dict[str, list[str]] = {}
    for entry in text.split("\0"):
        if entry:
            key, _, value = entry.partition("\n")
            found.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in found.items()}


def _git(path: str, *arguments: str) -> str | None:
    program = shutil.which("git", path=PROGRAM_PATH)
    if program is None:
        return None
    try:
        done = subprocess.run(
            (program, "config", "--file", path, *arguments),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
            cwd="/",
            env={"PATH": PROGRAM_PATH, "LC_ALL": "C.UTF-8", "GIT_CONFIG_NOSYSTEM": "1"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return os.fsdecode(done.stdout) if done.returncode == 0 else None


def _bytes(path: str) -> bytes | None:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            return file.read(CONFIG_MAX)
    except OSError:
        return None


def checked(files: Iterable[OpenConfig]) -> tuple[str, ...]:
    return tuple(note for file in files for note in file.check())
