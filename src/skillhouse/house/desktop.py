"""Shows a directory or an address with the program that this desktop has for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

from skillhouse.floor import SkillError
from skillhouse.house.config.config_files import safe_path

_OPENERS = {"darwin": "open", "win32": "explorer"}


def open_on_desktop(target: str | Path, *, project: Path) -> None:
    """Open a target without waiting for its program, which is never one of the project.

    Raises:
        SkillError: there is no desktop here.
    """
    wanted = _OPENERS.get(sys.platform, "xdg-open")
    opener = shutil.which(wanted, path=safe_path(os.environ, project))
    if opener is None:
        # An address may hold a token, so the message names the place alone.
        message = "no file manager or browser found; open it yourself"
        raise SkillError("no-file-manager", project, message)
    process = subprocess.Popen(
        [opener, os.fspath(target)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    # A server goes on for weeks, and each program that ended would stay in the table of processes.
    threading.Thread(target=process.wait, name="desktop", daemon=True).start()
