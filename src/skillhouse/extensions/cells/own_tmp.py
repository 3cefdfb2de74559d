"""Gives a call its own /tmp and /dev/shm where nothing can be mounted there.

A cell loads it by its path, with the standard library only. Where a file function of Python is
refused a path below these two, or finds nothing there, the call's own directory is tried. This is
no wall, and takes nothing away from one: Landlock allows that directory and refuses the rest, to
Python as to code in C, which does not come through here and finds its directory in TMPDIR.
"""

from __future__ import annotations

import builtins
import errno
import io
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SHARED = ("/tmp", "/dev/shm")  # noqa: S108 - what the call's directory replaces.
RETRIED = frozenset((errno.EACCES, errno.ENOENT, errno.EPERM, errno.EROFS, errno.EXDEV))
FUNCTIONS = (
    "access link listdir lstat mkdir mkfifo open pathconf readlink remove rename replace "
    "rmdir scandir stat statvfs symlink truncate unlink"
).split()
NAMED = ("path", "file", "src", "dst")
"""Parameters that take a path, where they are given by name."""

place = ""
"""The call's directory; empty before there is a call."""


class WithOwnTmp:
    """A file function that tries the call's directory. No function: it is never bound as a method.

    The path is tried as it is first, so that nothing here hides what could be reached.
    """

    def __init__(self, original: Callable[..., Any]) -> None:
        self.original = original
        self.__name__ = original.__name__
        self.__doc__ = original.__doc__

    def __call__(self, *args: Any, **named: Any) -> Any:
        first: OSError | None = None
        result: Any = False
        try:
            result = self.original(*args, **named)
        except OSError as error:
            if error.errno not in RETRIED:
                raise
            first = error
        # `access` raises nothing where it refuses.
        if result is not False:
            return result
        own = (*map(own_path, args[:2]), *args[2:])
        own_named = {k: own_path(v) if k in NAMED else v for k, v in named.items()}
        if (own, own_named) != (args, named):
            try:
                return self.original(*own, **own_named)
            except OSError:
                if first is None:
                    return result
        if first is not None:
            raise first from None
        return result


class OwnTmpFirst(WithOwnTmp):
    """`chdir`, which Landlock does not refuse: the real directory would be of no use."""

    def __call__(self, path: Any) -> Any:
        try:
            return self.original(own_path(path))
        except FileNotFoundError:
            return self.original(path)


def own_path(path: Any) -> Any:
    """Return a path below /tmp or /dev/shm as one of the call's directory; others as they are."""
    if not place or not isinstance(path, (str, bytes, os.PathLike)):
        return path
    given = os.fspath(path)
    text = os.fsdecode(given)
    for shared in SHARED:
        if text == shared or text.startswith(shared + "/"):
            own = place + text[len(shared) :]
            return os.fsencode(own) if isinstance(given, bytes) else own
    return path


def install() -> None:
    for name in (*FUNCTIONS, "chdir"):
        original = getattr(os, name)
        wrapped = (OwnTmpFirst if name == "chdir" else WithOwnTmp)(original)
        # shutil asks there what may be given a directory's descriptor.
        for known in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
            if original in known:
                known.add(wrapped)
        setattr(os, name, wrapped)
    builtins.open = io.open = WithOwnTmp(io.open)
