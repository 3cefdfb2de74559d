"""Reads what a skill's code wrote to its output folder.

A cell loads it by its path once the code has returned, with the standard library only; so it runs
as the code itself may, and is no wall: the core bounds and checks all that arrives. What it reads
are plain files of one name, by descriptors below the folder, and never what a link leads to.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator

    Part = tuple[str, bytes, str]

FOLDER = "skill-output"
"""Name of the folder, below a call's own /tmp."""
VARIABLE = "OUTPUT_DIR"
"""The variable with its path, as other runners of skills call it (trpc-agent-go, "Skill")."""
PART_BYTES = 192 << 10
"""Bytes of a file in one message; a multiple of three, so that base64 has no padding inside."""
FILES_MAX = 256
BYTES_MAX = 64 << 20
"""Of all files of a call that leave the cell; the core may keep fewer."""
ENTRIES_MAX = 4_096
"""Names that are looked at."""
DEPTH_MAX = 8
OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


def output_parts(place: str) -> Generator[Part, None, None]:
    """Yield (name, bytes, "") for each piece of a file below a folder, or (name, b"", why not).

    The pieces of a file follow each other. A name is relative, and empty for the folder as a whole.
    """
    try:
        handle = os.open(place, OPEN_FLAGS | os.O_DIRECTORY)
    except OSError:
        yield "", b"", "the output folder is no directory any more"
        return
    try:
        yield from _Walk().below(handle, "", DEPTH_MAX)
    finally:
        os.close(handle)


class _Walk:
    def __init__(self) -> None:
        self.entries = ENTRIES_MAX
        self.files = FILES_MAX
        self.left = BYTES_MAX
        self.is_over = False

    def below(self, handle: int, prefix: str, depth: int) -> Generator[Part, None, None]:
        for name in sorted(os.listdir(handle)):
            self.entries -= 1
            if self.entries < 0 or self.files < 1:
                what = f"{FILES_MAX} files" if self.files < 1 else f"{ENTRIES_MAX} names"
                self.is_over = True
                yield "", b"", f"the output folder has more than {what}"
            if self.is_over:
                return
            yield from self.entry(handle, name, prefix + name, depth)

    def entry(
        self, handle: int, name: str, relative: str, depth: int
    ) -> Generator[Part, None, None]:
        shown = relative.encode("utf-8", "backslashreplace").decode()
        try:
            info = os.stat(name, dir_fd=handle, follow_symlinks=False)
            if shown != relative:
                yield shown, b"", "its name is not UTF-8"
            elif stat.S_ISDIR(info.st_mode):
                if depth < 2:
                    yield relative, b"", f"it is deeper than {DEPTH_MAX} directories"
                    return
                below = os.open(name, OPEN_FLAGS | os.O_DIRECTORY, dir_fd=handle)
                try:
                    yield from self.below(below, f"{relative}/", depth - 1)
                finally:
                    os.close(below)
            elif stat.S_ISREG(info.st_mode):
                # Not blocking: it may be another file by now, such as a pipe.
                opened = os.open(name, OPEN_FLAGS | os.O_NONBLOCK, dir_fd=handle)
                try:
                    yield from self.content(opened, relative)
                finally:
                    os.close(opened)
            else:
                yield relative, b"", "it is no plain file"
        except OSError as error:
            yield shown, b"", f"it cannot be read: {error.strerror}"

    def content(self, opened: int, relative: str) -> Generator[Part, None, None]:
        info = os.fstat(opened)
        if not stat.S_ISREG(info.st_mode):
            yield relative, b"", "it is no plain file"
        elif info.st_nlink != 1:
            yield relative, b"", "it has several names"
        elif info.st_size > self.left:
            yield relative, b"", f"it has {info.st_size} bytes, and {self.left} are left"
        else:
            self.files -= 1
            got = 0
            while piece := os.read(opened, min(PART_BYTES, info.st_size - got + 1)):
                got += len(piece)
                if got > info.st_size:
                    yield relative, b"", "it grew while it was read"
                    return
                self.left -= len(piece)
                yield relative, piece, ""
            if not got:
                yield relative, b"", ""
