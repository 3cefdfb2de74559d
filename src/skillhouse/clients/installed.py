"""Finds the clients that are installed here, by their commands and the files they leave at home."""

from __future__ import annotations

import os
import shutil

from skillhouse.floor import Locations
from skillhouse.skill import Profile


def is_installed(profile: Profile, places: Locations) -> bool:
    """Whether a command of the client is on the path, or a trace of a run is at home.

    A profile that names neither, as a user's own, counts as installed.
    """
    if not profile.programs and not profile.traces:
        return True
    path = places.environment.get("PATH", os.defpath)
    if any(shutil.which(program, path=path) for program in profile.programs):
        return True
    return any(os.path.lexists(places.home / trace.removeprefix("~/")) for trace in profile.traces)
