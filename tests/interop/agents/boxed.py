"""Runs clients in mode `sandbox`, offline: `python -m tests.interop.agents.boxed`.

Each scene is one run of a client in a fresh home and project; it prints one line of JSON with what
the model was told, what lies on the disk, and what the log holds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.agents.clients import CLIENTS, OWN_SHELLS, OwnShell
from tests.interop.agents.fake_model import FakeModel, Step
from tests.interop.agents.hooked import WORDS, Approver, _end_judges
from tests.interop.agents.scenes import Actor, House, act

INSIDE = "SKILLHOUSE_BOXED_INSIDE"
RULES = """
[[rules]]
effect = "allow"
action = "exec"
pattern = "*"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxedScene:
    """One run: the commands that the model gives, and what happens before."""

    commands: Sequence[str]
    mode: str = "sandbox"
    prepare: Callable[[House], None] = lambda house: None
    background: bool = False
    answers: bool = False
    """Whether a person says yes to the first question, after which the call is repeated."""
    words: Callable[[tuple[str, ...]], tuple[str, ...]] = lambda words: words


def _own_sandbox(house: House) -> None:
    """Turn Claude Code's own sandbox on."""
    file = house.home / ".claude/settings.json"
    found = json.loads(file.read_text())
    found.setdefault("sandbox", {}).update(enabled=True, autoAllowBashIfSandboxed=True)
    file.write_text(json.dumps(found, indent=2))


def _own_rules(house: House) -> None:
    file = house.home / ".claude/settings.json"
    found = json.loads(file.read_text())
    found["permissions"] = {"deny": ["Bash(touch denied*)"]}
    file.write_text(json.dumps(found, indent=2))


_LISTENERS: list[socket.socket] = []


def _programs(house: House) -> None:
    """Write programs whose words say nothing of what they do."""
    listener = socket.create_server(("127.0.0.1", 0))
    _LISTENERS.append(listener)
    address = listener.getsockname()
    (house.project / "w.py").write_text(f"open({str(house.base / 'outside')!r}, 'w')\n")
    connects = f"import socket; socket.create_connection({address!r}, 3); print('reached')\n"
    (house.project / "c.py").write_text(connects)


def _asked(house: House) -> None:
    house.configure("")


SCENES: Mapping[str, BoxedScene] = {
    "plain": BoxedScene(commands=("touch made", "id -u", "mkdir sub", "cd sub", "touch below")),
    "moves": BoxedScene(
        commands=(*("mkdir sub && cd sub && touch in",) * 2, "touch below"), answers=True
    ),
    "codes": BoxedScene(commands=("ls missing", "false", "cat /dev/null")),
    "big": BoxedScene(commands=("seq 1 300000",)),
    "keys": BoxedScene(commands=("env",)),
    "own-sandbox": BoxedScene(commands=("touch made", "id -u"), prepare=_own_sandbox),
    "own-rules": BoxedScene(commands=("touch denied", "touch made"), prepare=_own_rules),
    "outside": BoxedScene(commands=("python3 w.py", "python3 c.py"), prepare=_programs),
    "without": BoxedScene(
        commands=("python3 w.py", "python3 c.py"), prepare=_programs, mode="watch"
    ),
    "asked": BoxedScene(commands=("id -u", "id -u"), prepare=_asked, answers=True),
    "background": BoxedScene(commands=("sleep 1", "sleep 3"), background=True),
}


def run_scene(actor: Actor, scene: BoxedScene, base: Path) -> Mapping[str, Any]:
    """Run a scene, and return what is left of it."""
    house, client = House(base), actor.client
    house.configure(RULES)
    shell = OWN_SHELLS[client.name]

    def install(project: Path, skills: Path) -> None:
        shell.finish(project, skills)
        house.do("hooks", "install", client.name, "--yes", "--mode", scene.mode)
        scene.prepare(house)

    model = FakeModel(steps=())
    person = Approver(house, model, "yes")
    steps = []
    for at, command in enumerate(scene.commands):
        arguments: dict[str, Any] = dict(shell.arguments(command))
        if scene.background:
            arguments = {**arguments, "run_in_background": True}
        after = person.answered.wait if scene.answers and at else None
        steps.append(Step(tool=shell.tool, arguments=arguments, after=after))
    model.steps = tuple(steps)
    words = scene.words(WORDS[client.name])
    act(
        actor,
        house,
        model,
        person if scene.answers else None,
        installed=None,
        shell=OwnShell(tool=shell.tool, arguments=shell.arguments, words=words, finish=install),
    )
    listed = house.do("audit", "list", "--json", "--client", client.name)
    status = json.loads(house.say("hooks", "status", client.name, "--json").stdout)
    return {
        "results": list(model.results()),
        "files": sorted(str(file.relative_to(house.project)) for file in house.project.rglob("*")),
        "outside": (house.base / "outside").exists(),
        "records": [
            {
                "tool": one["record"]["tool"],
                "status": one["status"],
                "detail": one["record"].get("detail"),
            }
            for one in reversed(json.loads(listed)["records"])
        ],
        "status": status["clients"][0],
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--agents", required=True)
    parser.add_argument("--only", required=True)
    parser.add_argument("--scenes", required=True)
    parser.add_argument("--keep")
    options = parser.parse_args()
    if INSIDE not in os.environ:
        again = [sys.executable, "-m", "tests.interop.agents.boxed", *sys.argv[1:]]
        words = ["unshare", "--map-root-user", "--net", *again]
        return subprocess.run(words, env={**os.environ, INSIDE: "1"}, check=False).returncode
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    (client,) = [one for one in CLIENTS if one.name == options.only]
    actor = Actor(client=client, program=Path(options.agents, client.words[0]), version="")
    base = Path(options.keep or tempfile.mkdtemp(dir=Path.home()))
    try:
        for name in options.scenes.split(","):
            found = run_scene(actor, SCENES[name], base / name)
            print(json.dumps({"scene": name, **found}), flush=True)
    finally:
        _end_judges(base)
        if not options.keep:
            shutil.rmtree(base, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
