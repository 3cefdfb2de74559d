"""Addresses of Unix sockets of any length; its own file because sandbox and net need it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

ADDRESS_MAX = 107
"""Bytes of an address without its final NUL: `sun_path` of unix(7) has 108."""


@contextlib.contextmanager
def unix_address(path: Path) -> Iterator[str]:
    """Yield an address by which the socket at `path` can be bound or connected to meanwhile.

    A path is limited to 107 bytes, which a temporary directory may have alone. On Linux the
    directory's descriptor names it shortly; elsewhere the address is the path.

    Raises:
        OSError: the directory cannot be opened.
    """
    if not sys.platform.startswith("linux") or len(os.fsencode(path)) <= ADDRESS_MAX:
        yield str(path)
        return
    descriptor = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)
