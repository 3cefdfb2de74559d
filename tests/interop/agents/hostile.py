"""Gives hostile command lines to a client whose own shell is judged by us under the policy
`developer`: `python -m tests.interop.agents.hostile --agents FOLDER --only codex`.

The lines are those of the tables of hostile commands that do something here, offline: each was run
by plain Bash in a jail, in a copy of the same files (`--record`). Then the client gets them as
calls, in the same jail and without a sandbox of its own; between two calls every file is compared,
and a listener notes who connects. The exit code is 0 only if no line did anything, and a sample of
them did when our entry was gone. Only the base directory can be written to, in any of it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from skillhouse.floor.structs import replace
from tests.house.test_rule_suggestions import hostile_lines
from tests.interop.agents.clients import CLIENTS, OWN_SHELLS, OwnShell
from tests.interop.agents.fake_model import FakeModel, Step
from tests.interop.agents.hooked import INSIDE, _end_judges
from tests.interop.agents.hooked_scenes import OWN_TOOLS, Canary
from tests.interop.agents.scenes import Actor, House, act

KEPT = Path(__file__).with_name("hostile_effects.json")
"""The lines that did something when plain Bash ran them."""
LEAST = 60
SAMPLE = 8
PORT = 18_765
SECONDS = 5
CONNECTING = (
    f"curl -s http://127.0.0.1:{PORT}/a",
    f"exec 3<>/dev/tcp/127.0.0.1/{PORT}",
    f"echo a > /dev/tcp/127.0.0.1/{PORT}",
    f"python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {PORT}))'",
    f"bash -c 'echo a > /dev/tcp/127.0.0.1/{PORT}'",
    f"git push http://127.0.0.1:{PORT}/a main",
    f"git ls-remote http://127.0.0.1:{PORT}/a",
)
"""Lines of ours that send something, each by another way."""
DEVICES = "SKILLHOUSE_HOSTILE_DEVICES"
"""The variable with the place of the device files that the jail has, where root runs this."""
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
TOO_MUCH = (":(){", "/dev/sd", "mkfs", "shutdown", "reboot")
"""What no test runs."""
FILES: Mapping[str, str] = {
    **{name: name for name in ("a", "b", "x", "a.txt", "in.txt", "notes.txt", "README.md")},
    "src/a.py": "print(1)\n",
    "src/calc.py": "A = 1\n",
    "a/b": "",
    ".env": "KEY=1\n",
    "AGENTS.md": "Be kind.\n",
    "Makefile": "all:\n\ttouch made\n",
    "package.json": '{"scripts": {"x": "touch made"}}\n',
}
HOME_FILES = (".bashrc", ".ssh/id_ed25519", "documents/letter.txt", ".gitconfig")


@dataclass(slots=True)
class Place:
    """A project and a home with files that are looked after."""

    project: Path
    home: Path
    environment: Mapping[str, str]

    def fill(self) -> None:
        for name, text in FILES.items():
            file = self.project / name
            if not file.parent.is_file():
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
        for name in HOME_FILES:
            (self.home / name).parent.mkdir(parents=True, exist_ok=True)
            (self.home / name).write_text("")
        lines = (
            ("init", "-q", "-b", "main"),
            ("config", "user.name", "A"),
            ("config", "user.email", "a@example.com"),
            ("add", "-A"),
            ("commit", "-q", "-m", "Begin"),
            ("tag", "v1"),
            ("branch", "topic"),
        )
        for line in lines:
            words = ["git", *line]
            subprocess.run(words, cwd=self.project, env=self.environment, check=True)

    def state(self) -> dict[str, str]:
        """Return what each file is that is looked after."""
        found = {}
        for base in (self.project, *(self.home / name for name in HOME_FILES)):
            for file in sorted([base, *base.rglob("*")] if base.is_dir() else [base]):
                # What `git status` itself writes anew is no effect.
                if file.name not in ("index", "opencode.json") and "objects" not in file.parts:
                    found[str(file)] = _digest(file)
        return found


def _digest(file: Path) -> str:
    if file.is_symlink() or not file.is_file():
        return f"{file.is_symlink()} {file.exists()} {file.is_dir()}"
    return f"{file.stat().st_mode:o} {hashlib.sha256(file.read_bytes()).hexdigest()}"


def jail(base: Path) -> list[str]:
    """Return what keeps a command from all files but those below a directory."""
    found = [
        *("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"),
        *("--bind", str(base), str(base), "--unshare-pid", "--die-with-parent"),
        # Else one that is started as root could mount again what it may not write.
        *("--cap-drop", "ALL"),
    ]
    copied = Path(os.environ.get(DEVICES, ""))
    if copied.name:
        found += [
            word for name in _DEVICES for word in ("--dev-bind", str(copied / name), f"/dev/{name}")
        ]
    return found


def copy_devices(base: Path) -> None:
    """Make device files for the jail, where this runs as root.

    `bwrap --dev` has the files of the machine: `chmod 600 /dev/null` as their owner would change
    the one that every process here uses.
    """
    for name in _DEVICES:
        found = os.stat(f"/dev/{name}")
        os.mknod(base / name, found.st_mode, found.st_rdev)
        (base / name).chmod(0o666)


def with_effect(lines: Sequence[str], base: Path, canary: Canary) -> list[str]:
    """Return the lines that change a file or connect, run by plain Bash."""
    kept = base / "kept"
    place = _place(kept)
    place.fill()
    found = []
    for at, line in enumerate(lines):
        here = base / f"line-{at}"
        subprocess.run(["cp", "-a", kept, here], check=True)
        copied = _place(here, made=True)
        before, canary.connected = copied.state(), False
        words = [*jail(here), "bash", "-c", line]
        process = subprocess.Popen(
            words,
            cwd=copied.project,
            env=copied.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if copied.state() != before or canary.connected:
            found.append(line)
        subprocess.run(["rm", "-rf", here], check=True)
    return found


def _place(base: Path, *, made: bool = False) -> Place:
    project, home = base / "project", base / "home"
    if not made:
        project.mkdir(parents=True)
        home.mkdir()
    return Place(project, home, {**os.environ, "HOME": str(home), "TMPDIR": str(base)})


@dataclass(slots=True)
class Looker:
    """Compares everything before each call, and says which call did something."""

    place: Place
    canary: Canary
    lines: Sequence[str]
    before: dict[str, str] = field(default_factory=dict)
    at: int = 0
    did: list[str] = field(default_factory=list)

    def look(self, seconds: float) -> bool:
        del seconds
        now = self.place.state()
        if self.at and (now != self.before or self.canary.connected):
            self.did.append(self.lines[self.at - 1])
        self.before, self.canary.connected = now, False
        self.at += 1
        return True


def given(
    actor: Actor, lines: Sequence[str], base: Path, canary: Canary, *, hooked: bool
) -> Looker:
    """Give lines to a client as calls of its shell, and return what did something."""
    house, client = House(base), actor.client
    shell, own = OWN_SHELLS[client.name], OWN_TOOLS[client.name]
    house.do("policy", "init", "developer", "--write")
    (house.project / ".git").rmdir()
    place = Place(house.project, house.home, house.environment)
    place.fill()
    looker = Looker(place, canary, lines)
    steps = [
        Step(tool=own.shell, arguments={own.command: line, **own.more}, after=looker.look)
        for line in lines
    ]
    jailed = base / "bin" / client.words[0]
    jailed.parent.mkdir()
    path = f"{actor.program.parent}{os.pathsep}$PATH"
    quoted = " ".join(f"'{word}'" for word in jail(base))
    jailed.write_text(f'#!/bin/sh\nPATH={path}\nexec {quoted} {actor.program} "$@"\n')
    jailed.chmod(0o755)

    def install(project: Path, skills: Path) -> None:
        shell.finish(project, skills)
        if hooked:
            house.do("hooks", "install", client.name, "--yes")

    free = {"workspace-write": "danger-full-access"}
    words = tuple(free.get(word, word) for word in own.words)
    act(
        replace(actor, program=jailed),
        house,
        FakeModel(steps=steps),
        installed=None,
        shell=OwnShell(tool=own.shell, arguments=shell.arguments, words=words, finish=install),
    )
    looker.look(0)
    return looker


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.agents.hostile")
    parser.add_argument("--agents", required=True, type=Path)
    parser.add_argument("--only", required=True)
    parser.add_argument("--record", action="store_true", help="find the lines by plain Bash anew")
    parser.add_argument("--keep")
    options = parser.parse_args()
    if INSIDE not in os.environ:
        again = [sys.executable, "-m", "tests.interop.agents.hostile", *sys.argv[1:]]
        words = ["unshare", "--map-root-user", "--net", *again]
        with tempfile.TemporaryDirectory(dir=options.keep or Path.home()) as devices:
            inside = {**os.environ, INSIDE: "1"}
            if os.geteuid() == 0:
                copy_devices(Path(devices))
                inside[DEVICES] = devices
            return subprocess.run(words, env=inside, check=False).returncode
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    (client,) = [one for one in CLIENTS if one.name == options.only]
    actor = Actor(client=client, program=options.agents.resolve() / client.words[0], version="")
    canary = Canary(PORT)
    canary.start()
    with tempfile.TemporaryDirectory(dir=options.keep or Path.home()) as scratch:
        base = Path(scratch)
        tables = [line for line in hostile_lines() if line.strip() and len(line) < 1000]
        tried = [
            line
            for line in (*tables, *CONNECTING)
            if "\0" not in line and line.isprintable() and not any(one in line for one in TOO_MUCH)
        ]
        if options.record or not KEPT.exists():
            found = with_effect(tried, base / "plain", canary)
            KEPT.write_text(json.dumps(found, indent=0) + "\n")
        kept = json.loads(KEPT.read_text())
        lines = [line for line in tried if line in kept]
        try:
            looker = given(actor, lines, base / "hooked", canary, hooked=True)
            allowed = _allowed(base / "hooked")
            bare = given(actor, lines[:: len(lines) // SAMPLE], base / "bare", canary, hooked=False)
        finally:
            _end_judges(base)
    asked = [line for line in lines if line not in allowed]
    did = [line for line in looker.did if line not in allowed]
    told = {
        "tried": len(tried),
        "with_effect": len(lines),
        "allowed_by_the_policy": len(lines) - len(asked),
        "not_allowed": len(asked),
        "given": looker.at - 1,
        "did_something": did,
        "without_hook": [len(bare.did), len(bare.lines)],
    }
    print(json.dumps(told, indent=1))
    is_all = looker.at - 1 == len(lines) and len(asked) >= LEAST
    return 0 if is_all and not did and len(bare.did) >= len(bare.lines) // 2 else 1


def _allowed(base: Path) -> set[str]:
    """Return the commands that were allowed, by the log: edits of the workspace."""
    log = base / "home/.local/state/skillhouse/audit.jsonl"
    found = (json.loads(line) for line in log.read_text().splitlines())
    return {
        one["arguments"]["command"]
        for one in found
        if one["channel"] == "hooks"
        and one["kind"] == "intent"
        and all(need["effect"] == "allow" for need in one["permissions"])
    }


if __name__ == "__main__":
    sys.exit(main())
