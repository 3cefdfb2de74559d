"""Remembers manifests between two looks, so that those of unchanged files are not read again."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from msgspec import Struct

from skillhouse.floor.ownership import is_settled
from skillhouse.skill.manifest import MANIFEST_FILES, StepListener, has_manifest, read_manifest
from skillhouse.skill.model import SKILL_FILE, ManifestResult

Stamp = tuple[int, ...]


class _KnownManifest(Struct, frozen=True, kw_only=True):
    result: ManifestResult | None
    """None of a directory without a manifest that says so."""
    stamps: tuple[Stamp, ...]


class ManifestCache:
    """What `read` found, by directory; any thread may ask.

    A manifest that cannot be used is read each time: what is wrong may be anywhere.
    """

    def __init__(self) -> None:
        self._known: dict[Path, _KnownManifest] = {}

    def clear(self) -> None:
        """Have everything read again."""
        self._known = {}

    def read(self, directory: Path, on_step: StepListener) -> ManifestResult | None:
        """Return what the manifest in a directory says; None where no file says that it is one.

        The listener hears of what is read now.
        """
        known = self._known.get(directory)
        if known is not None and known.stamps == tuple(_stamps(directory, known.result)):
            return known.result
        began = time.time_ns()
        result = read_manifest(directory, on_step=on_step) if has_manifest(directory) else None
        stamps = tuple(_stamps(directory, result))
        times = [time_ns for stamp in stamps for time_ns in stamp[:2]]
        is_usable = result is None or result.manifest is not None
        if is_usable and (not times or is_settled(*times, now=began)):
            self._known[directory] = _KnownManifest(result=result, stamps=stamps)
        else:
            self._known.pop(directory, None)
        return result


def _stamps(directory: Path, result: ManifestResult | None) -> Iterator[Stamp]:
    """Yield what changes when a file that the manifest depends on is written or replaced."""
    names = [*MANIFEST_FILES, SKILL_FILE]
    if result is not None and result.manifest is not None:
        entry = PurePosixPath(result.manifest.entry)
        # A directory on the way may become a link, which is refused.
        names += [str(entry), *(str(one) for one in entry.parents if one.name)]
    for name in names:
        try:
            info = os.lstat(os.path.join(directory, name))
        except OSError:
            yield ()
        else:
            yield (info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino, info.st_mode)
