"""Commands on a small disk of their own with less and less room: `full_disk.py DIRECTORY`.

Prints a line of JSON for each try. Runs in a mount namespace that it may mount in.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from skillhouse.registry import read_lock
from skillhouse.runtime import Installer, Skillhouse, load_config
from tests.registry.sources import make_skill
from tests.runtime.places import make_places

DISK = 3 * 1024 * 1024
PAGE = 4096
ROOM = {"install": range(22), "update": range(15), "uninstall": range(4)}
"""Pages that are left for the command; it takes a page or more for each file and directory."""
AGREED = ("--yes", "--allow-unsigned")


def on_a_disk(place: Path) -> None:
    """Mount a disk of its own there, in memory."""
    place.mkdir(parents=True, exist_ok=True)
    size = f"size={DISK},nr_inodes=2000"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", place], check=True)


def fill(place: Path, *, pages_left: int) -> Path:
    """Leave only so much room on the disk of a place."""
    file = place / "filler"
    with open(file, "wb", buffering=0) as opened:
        free = os.statvfs(place).f_bavail * PAGE
        # The file system allocates, so that nothing is left over by an estimate.
        os.posix_fallocate(opened.fileno(), 0, max(PAGE, free - pages_left * PAGE))
    return file


def run(home: Path, start: Path, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "skillhouse", *words],
        cwd=start,
        env={
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


def state(home: Path) -> str:
    """Return the version in force, after a check that it is whole and that the lock has it."""
    with Skillhouse(load_config(make_places(home.parent))) as house, Installer(house) as installer:
        found = list(installer.installed.entries())
        for place, name, entry in found:
            assert installer.installed.state(name, entry, place).is_well, (name, entry)
    names = [one.name for one in (home / ".agents/skills").glob("*")]
    assert names == [name for _, name, _ in found], names
    return found[0][2].version if found else ""


def tries(base: Path) -> Iterator[dict[str, object]]:
    origin = make_skill(base / "origin/notes", version="1")
    start = base / "project"
    for act, room in ROOM.items():
        for pages in room:
            at = base / f"{act}-{pages}"
            home = at / "home"
            on_a_disk(home)
            make_places(at)
            make_skill(origin, version="1")
            install = ("install", str(origin), *AGREED)
            if act != "install":
                assert run(home, start, *install)[0] == 0
            make_skill(origin, "New.", version="2")
            (origin / "long.md").write_text("x" * 3 * PAGE)
            words = {"install": install, "update": ("update", *AGREED)}
            filler = fill(home, pages_left=pages)
            code, said = run(home, start, *words.get(act, ("uninstall", "notes")))
            lock = read_lock(home / ".config/skillhouse/skills.lock").skills
            filler.unlink()
            after = state(home)
            yield {
                "act": act,
                "pages": pages,
                "code": code,
                "said": said,
                "after": after,
                "locked": lock["notes"].version if "notes" in lock else "",
                "again": [run(home, start, *install), run(home, start, "verify")],
                "end": state(home),
                "left": [one.name for one in (home / ".agents").iterdir()],
            }
            subprocess.run(["umount", home], check=True)


if __name__ == "__main__":
    for one in tries(Path(sys.argv[1])):
        print(json.dumps(one), flush=True)
