"""Directories as they are sent to an executor: a list of files, and their bytes.

An archive is the length of its list (4 bytes), the list as JSON, and the files in that order. It
is not compressed, so what arrives is as long as it says, and has neither links nor devices.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import unicodedata
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct, convert

from skillhouse.extensions.cells.rpc import LENGTH
from skillhouse.floor import PathError, checked_parts
from skillhouse.sandbox import SandboxError

LIST_BYTES = 16 << 20
FILES_MAX = 50_000
"""Files of one archive, as of one environment."""
CHUNK = 1 << 18
PACKAGES_DIGEST = "packages1"


class ArchivedFile(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    path: str
    """Relative, with `/`."""
    is_program: bool
    size: int
    sha256: str


class CodeArchive(Struct, frozen=True):
    """A directory and what is sent of it."""

    directory: Path
    files: tuple[ArchivedFile, ...]
    head: bytes
    """The list with its length."""

    @property
    def size(self) -> int:
        return len(self.head) + sum(one.size for one in self.files)

    @property
    def digest(self) -> str:
        """`packages1:` and the SHA-256 of the list, which has the one of each file."""
        return f"{PACKAGES_DIGEST}:{hashlib.sha256(self.head[LENGTH.size :]).hexdigest()}"

    def parts(self) -> Iterator[bytes]:
        """Yield the bytes of it; fewer or more than `size` where a file changed meanwhile."""
        yield self.head
        for one in self.files:
            with open(self.directory / one.path, "rb", opener=_plainly) as file:
                while data := file.read(CHUNK):
                    yield data


def archive_of(directory: Path, only: Container[str] | None = None) -> CodeArchive:
    """Return a directory's regular files as an archive; links and devices are left out.

    Args:
        only: Paths, in normal form C, of the files to take; None takes all.

    Raises:
        SandboxError: "code-unreadable", there are too many files or one cannot be read.
    """
    files: list[ArchivedFile] = []
    try:
        for place, below, names in os.walk(directory):
            below.sort()
            for name in sorted(names):
                path = Path(place, name)
                info = path.lstat()
                relative = path.relative_to(directory).as_posix()
                is_left_out = (
                    only is not None and unicodedata.normalize("NFC", relative) not in only
                )
                if is_left_out or not stat.S_ISREG(info.st_mode):
                    continue
                with open(path, "rb", opener=_plainly) as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                is_program = bool(info.st_mode & stat.S_IXUSR)
                files.append(ArchivedFile(relative, is_program, info.st_size, digest))
                if len(files) > FILES_MAX:
                    raise SandboxError("code-unreadable", f"more than {FILES_MAX} files to send")
        rows = [[one.path, one.is_program, one.size, one.sha256] for one in files]
        data = json.dumps(rows, ensure_ascii=True, separators=(",", ":")).encode()
    except (OSError, UnicodeError) as error:
        raise SandboxError("code-unreadable", f"cannot send the code: {error}") from error
    return CodeArchive(directory, tuple(files), LENGTH.pack(len(data)) + data)


def unpack(source: BinaryIO, directory: Path, *, max_bytes: int) -> str:
    """Write the next archive of `source` below an empty directory; return its `packages1:` digest.

    The list is of a stranger: every path, size and digest in it is checked.

    Raises:
        SandboxError: "code-refused", it is no archive, or holds what its list does not say.
    """
    head = source.read(LENGTH.size)
    length = LENGTH.unpack(head)[0] if len(head) == LENGTH.size else 0
    if not 0 < length <= LIST_BYTES:
        raise _refused("expected a list of files")
    data = source.read(length)
    files = _listed(data)
    if sum(one.size for one in files) > max_bytes:
        raise _refused(f"expected at most {max_bytes} bytes")
    for one in files:
        try:
            parts = checked_parts(one.path, directory)
        except PathError as error:
            raise _refused(str(error)) from error
        place = directory.joinpath(*parts)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            # A directory that is no directory, or a second file of one name, ends here.
            with open(place, "xb") as file:
                found = _copied(source, file, one.size)
            place.chmod(0o755 if one.is_program else 0o644)
        except OSError as error:
            raise _refused(f"`{one.path}`: {error.strerror}") from error
        if found != one.sha256:
            raise _refused(f"`{one.path}` is not as its list says")
    return f"{PACKAGES_DIGEST}:{hashlib.sha256(data).hexdigest()}"


def _listed(data: bytes) -> Sequence[ArchivedFile]:
    try:
        files = convert(json.loads(data), tuple[ArchivedFile, ...], strict=True)
    except (ValueError, RecursionError) as error:
        raise _refused("expected a list of files") from error
    if len(files) > FILES_MAX or any(one.size < 0 for one in files):
        raise _refused("expected a list of files")
    return files


def _copied(source: BinaryIO, file: BinaryIO, size: int) -> str:
    digest, left = hashlib.sha256(), size
    while left and (data := source.read(min(left, CHUNK))):
        digest.update(data)
        file.write(data)
        left -= len(data)
    return "" if left else digest.hexdigest()


def _plainly(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)


def _refused(why: str) -> SandboxError:
    return SandboxError("code-refused", f"the code that was sent is not taken: {why}")
