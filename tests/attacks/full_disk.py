"""Commands on a small disk of their own, with more and more room: `full_disk.py WHAT DIRECTORY`.

WHAT is installs, registry, publish or mirror. Prints a line of JSON for each try. Runs in a mount
namespace that it may mount in.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from skillhouse.floor import digest
from skillhouse.house import Skillhouse, load_config
from skillhouse.install import Installer
from skillhouse.registry import DirectoryAccess, Repository, read_lock
from tests.extensions.registry.hosting.servers import Server, package, serving
from tests.harness import ran
from tests.house.places import make_places
from tests.registry.repositories import StaticRepository
from tests.registry.sources import make_skill
from tests.registry.test_mirror import check_whole

DISK = 3 * 1024 * 1024
PAGE = 4096
ROOM = {"install": range(22), "update": range(15), "uninstall": range(4)}
"""Pages that are left for the command; it takes a page or more for each file and directory."""
AGREED = ("--yes", "--allow-unsigned")


def on_a_disk(place: Path) -> None:
    """Mount a disk of its own there, in memory."""
    place.mkdir(parents=True, exist_ok=True)
    size = f"size={DISK},nr_inodes=2000,mode=700"
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
    done = ran(
        [sys.executable, "-m", "skillhouse", *words],
        cwd=start,
        env={
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        stdin=subprocess.DEVNULL,
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


def installs(base: Path) -> Iterator[dict[str, object]]:
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


def registry(base: Path) -> Iterator[dict[str, object]]:
    """A server whose directory has no room for what is published."""
    first, second = (package(base, "notes", version, "x" * 9 * PAGE) for version in ("1.0", "2.0"))
    for pages in range(0, 40, 2):
        disk = base / f"registry-{pages}"
        on_a_disk(disk)
        with serving(disk / "registry") as server:
            token = server.token("admin")
            assert server.publish(first, "notes", "1.0", token).status == 201
            filler = fill(disk, pages_left=pages)
            answer = server.publish(second, "notes", "2.0", token)
            before = versions(server)
            filler.unlink()
            again = server.publish(second, "notes", "2.0", token)
            yield {
                "pages": pages,
                "status": answer.status,
                "said": answer.body.decode(),
                "before": before,
                "again": again.status,
                "after": versions(server),
            }
        with serving(disk / "registry") as server:
            assert versions(server) == ["1.0", "2.0"]
        subprocess.run(["umount", disk], check=True)


def versions(server: Server) -> list[str]:
    """Return the versions that the server names, after a check that all of each is there."""
    found = server.ask("/skills/notes/versions").json["versions"]
    for one in found:
        body = server.ask(f"/skills/notes/{one['version']}").body
        assert digest(body) == one["digest"]
    return sorted(one["version"] for one in found)


def publish(base: Path) -> Iterator[dict[str, object]]:
    """A publisher whose home has no room."""
    skill = make_skill(base / "made/notes", "x" * 3 * PAGE)
    with serving(base / "server") as server:
        token = server.token("admin")
        for pages in range(12):
            home = base / f"publish-{pages}/home"
            on_a_disk(home)
            make_skill(skill, "x" * 3 * PAGE, version=f"1.{pages}.0")
            config = home / ".config/skillhouse/config.toml"
            config.parent.mkdir(parents=True)
            (home / "token").write_text(token)
            (home / "token").chmod(0o600)
            config.write_text(
                f'[[skills.repositories]]\nname = "ours"\nurl = "{server.url}"\n'
                f'token = "file:{home}/token"\n'
            )
            words = ("publish", str(skill), *AGREED)
            filler = fill(home, pages_left=pages)
            code, said = run(home, base, *words)
            filler.unlink()
            again = run(home, base, *words)
            yield {"pages": pages, "code": code, "said": said, "again": again}
            assert f"1.{pages}.0" in versions(server)
            subprocess.run(["umount", home], check=True)


def mirror(base: Path) -> Iterator[dict[str, object]]:
    """A mirror that has no room for all of its source."""
    source = StaticRepository(base / "source")
    for number in range(4):
        source.make(f"1.{number}.0")
    for pages in range(0, 40, 2):
        disk = base / f"mirror-{pages}"
        on_a_disk(disk)
        (base / "home").mkdir(exist_ok=True)
        filler = fill(disk, pages_left=pages)
        words = ("registry", "mirror", source.address, str(disk / "mirror"), "--skill", "notes")
        code, said = run(base / "home", base, *words)
        check_whole(disk / "mirror")
        filler.unlink()
        again = run(base / "home", base, *words)
        check_whole(disk / "mirror")
        opened = Repository("here", DirectoryAccess(disk / "mirror"))
        assert opened.skill("default", "notes") == source.skills["notes"], again
        yield {"pages": pages, "code": code, "said": said, "again": again}
        subprocess.run(["umount", disk], check=True)


TRIES = {"installs": installs, "registry": registry, "publish": publish, "mirror": mirror}

if __name__ == "__main__":
    for one in TRIES[sys.argv[1]](Path(sys.argv[2])):
        print(json.dumps(one), flush=True)
