"""Archives of tests, of any entries."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable


def tar_archive(
    entries: Iterable[tuple[tarfile.TarInfo | str, bytes]], *, form: int = tarfile.PAX_FORMAT
) -> bytes:
    """Return a tar archive, compressed with gzip, of files by their names or of any entries."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=form) as archive:
        for name, content in entries:
            info = tarfile.TarInfo(name) if isinstance(name, str) else name
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()
