"""Runs clients whose own tools are judged by us, offline: `python -m tests.interop.agents.hooked`.

Each scene is one run of a client in a fresh home and project, and prints one line of JSON with what
the model was told, what lies on the disk, and what the log holds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.harness import until
from tests.interop.agents.clients import CLIENTS, OWN_SHELLS, PROMPT, Client, OwnShell
from tests.interop.agents.fake_model import FakeModel, Step
from tests.interop.agents.scenes import Actor, House, act

INSIDE = "SKILLHOUSE_HOOKED_INSIDE"
RULES = """
[[rules]]
effect = "allow"
action = "exec"
pattern = "touch *"
[[rules]]
effect = "deny"
action = "exec"
pattern = "touch forbidden*"
reason = "owls forbid it"
[[rules]]
effect = "ask"
action = "exec"
pattern = "touch asked*"
[[rules]]
effect = "allow"
action = "exec"
pattern = "sleep *"
"""
WORDS: Mapping[str, tuple[str, ...]] = {
    "claude-code": (
        *("claude", "-p", PROMPT, "--model", "sonnet"),
        *("--allowedTools", "Bash", "Write", "Read"),
    ),
    "codex": (
        *("codex", "exec", "--skip-git-repo-check", "--sandbox", "workspace-write"),
        *("--dangerously-bypass-hook-trust", PROMPT),
    ),
    "gemini-cli": OWN_SHELLS["gemini-cli"].words,
    "opencode": OWN_SHELLS["opencode"].words,
}
"""What starts each client so that its own tools run without a question of its own."""
UNTRUSTED = ("codex", "exec", "--skip-git-repo-check", "--sandbox", "workspace-write", PROMPT)
"""Codex without a person's trust in the hook."""


@dataclass(slots=True)
class Approver:
    """Says yes to the first open question, once the model knows of it."""

    house: House
    model: FakeModel
    answered: threading.Event = field(default_factory=threading.Event)

    def look(self) -> None:
        if self.answered.is_set() or not self.model.results():
            return
        found = json.loads(self.house.do("approvals", "list", "--json"))["approvals"]
        if found:
            self.house.approve(found[0]["id"])
            self.answered.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class HookScene:
    """One run: the commands that the model gives, and what happens before."""

    commands: Sequence[str]
    mode: str = "enforce"
    prepare: Callable[[House, Client], None] = lambda house, client: None
    answers: bool = False
    """Whether a person says yes to the first question, after which the call is repeated."""
    background: bool = False
    words: tuple[str, ...] = ()


def _stop(house: House, client: Client) -> None:
    del client
    house.do("stop", "--reason", "owls")


def _no_program(house: House, client: Client) -> None:
    """Take away what the entry starts."""
    file = Path(
        json.loads(house.do("hooks", "status", client.name, "--json"))["clients"][0]["file"]
    )
    text = file.read_text()
    program = str(Path(sys.executable))
    if program not in text:
        raise AssertionError(text)
    file.write_text(text.replace(program, f"{program}-gone"))


def _no_entry(house: House, client: Client) -> None:
    house.do("hooks", "remove", client.name, "--yes")


def _no_judge(house: House, client: Client) -> None:
    """Let the judge be killed each time that it is there."""
    del client
    state = house.home / ".local/state/skillhouse/hooks"
    state.joinpath("judge.sock").mkdir(parents=True)


SCENES: Mapping[str, HookScene] = {
    "decisions": HookScene(commands=("touch made", "touch forbidden")),
    "ask": HookScene(commands=("touch asked",)),
    "repeat": HookScene(commands=("touch asked", "touch asked"), answers=True),
    "watch": HookScene(commands=("touch forbidden",), mode="watch"),
    "stop": HookScene(commands=("touch made",), prepare=_stop),
    "no-program": HookScene(commands=("touch made",), prepare=_no_program),
    "no-entry": HookScene(commands=("touch made",), prepare=_no_entry),
    "no-judge": HookScene(commands=("touch made", "touch forbidden"), prepare=_no_judge),
    "background": HookScene(commands=("sleep 1",), background=True),
    "untrusted": HookScene(commands=("touch forbidden",), words=UNTRUSTED),
}


def run_scene(actor: Actor, scene: HookScene, base: Path) -> Mapping[str, Any]:
    """Run a scene, and return what is left of it."""
    house, client = House(base), actor.client
    house.configure(RULES)
    shell = OWN_SHELLS[client.name]

    def install(project: Path, skills: Path) -> None:
        shell.finish(project, skills)
        house.do("hooks", "install", client.name, "--yes", "--mode", scene.mode)
        scene.prepare(house, client)

    model = FakeModel(steps=())
    person = Approver(house, model)
    steps = []
    for at, command in enumerate(scene.commands):
        arguments: dict[str, Any] = dict(shell.arguments(command))
        if scene.background:
            arguments = {**arguments, "run_in_background": True}
        after = person.answered.wait if scene.answers and at else None
        steps.append(Step(tool=shell.tool, arguments=arguments, after=after))
    model.steps = tuple(steps)
    words = scene.words or WORDS[client.name]
    act(
        actor,
        house,
        model,
        person if scene.answers else None,
        installed=None,
        shell=OwnShell(tool=shell.tool, arguments=shell.arguments, words=words, finish=install),
    )
    listed = house.do("audit", "list", "--json", "--client", client.name)
    status = house.say("hooks", "status", client.name, "--json")
    return {
        "results": list(model.results()),
        "files": sorted(file.name for file in house.project.iterdir() if file.is_file()),
        "records": [
            {"tool": one["record"]["tool"], "status": one["status"]}
            for one in reversed(json.loads(listed)["records"])
        ],
        "status": json.loads(status.stdout)["clients"][0]["standing"],
    }


def _end_judges(base: Path) -> None:
    """Let the judges of these homes end: they do when their sockets are gone."""
    for socket in base.rglob("judge.sock"):
        if socket.is_socket():
            socket.unlink()
    until(lambda: not any(os.fsencode(base) in words for words in _commands()), 15)


def _commands() -> Iterator[bytes]:
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (place / "cmdline").read_bytes()
            if b"\0serve\0" in words:
                yield words


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--agents", required=True)
    parser.add_argument("--only", required=True)
    parser.add_argument("--scenes", required=True)
    parser.add_argument("--keep")
    options = parser.parse_args()
    if INSIDE not in os.environ:
        again = [sys.executable, "-m", "tests.interop.agents.hooked", *sys.argv[1:]]
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
        if not options.keep:
            _end_judges(base)
            shutil.rmtree(base, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
