"""Runs clients whose own tools are judged by us, offline: `python -m tests.interop.agents.hooked`.

Each scene is one run of a client in a fresh home and project, and prints one line of JSON with what
the model was told, what lies on the disk, and what the log holds. `--calls FILE` runs the calls of
a JSON file instead, as `[{"tool": …, "arguments": …}, …]`, which is how to look for what passes by.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from skillhouse.floor.structs import replace
from skillhouse.frontends.hooks import hook_client as hook_script
from skillhouse.frontends.hooks.hook_clients import hook_client
from tests.harness import until
from tests.interop.agents.clients import CLIENTS, OWN_SHELLS, OwnShell
from tests.interop.agents.fake_model import FakeModel, Step
from tests.interop.agents.hooked_scenes import OWN_TOOLS, SCENES, HookScene, Stage, judges
from tests.interop.agents.scenes import Actor, House, SceneError, act

SCRIPT = str(Path(hook_script.__file__))
TEE = """
import json, os, subprocess, sys
event = sys.stdin.buffer.read()
with open({kept!r}, "a") as file:
    file.write(json.dumps([os.getcwd(), sys.argv[3], event.decode()]) + "\\n")
words = [sys.executable, "-I", "-S", {script!r}, *sys.argv[1:]]
sys.exit(subprocess.run(words, input=event).returncode)
"""
INSIDE = "SKILLHOUSE_HOOKED_INSIDE"
WORDS = {name: own.words for name, own in OWN_TOOLS.items()}
SHOWN_MAX = 3000
"""Characters of a result that are printed."""


@dataclass(slots=True)
class Approver:
    """Answers the first open question, once the model knows of it."""

    house: House
    model: FakeModel
    answer: str
    answered: threading.Event = field(default_factory=threading.Event)

    def look(self) -> None:
        if self.answered.is_set() or not self.model.results():
            return
        found = json.loads(self.house.do("approvals", "list", "--json"))["approvals"]
        if found:
            if self.answer == "yes":
                self.house.approve(found[0]["id"])
            else:
                self.house.do("approvals", "deny", found[0]["id"], "--message", "use the owls")
            self.answered.set()


def run_scene(actor: Actor, scene: HookScene, base: Path) -> Mapping[str, Any]:
    """Run a scene, and return what is left of it."""
    house, client = House(base), actor.client
    stage = Stage(house=house, client=client, own=OWN_TOOLS[client.name])
    house.configure(scene.rules)
    shell = OWN_SHELLS[client.name]

    def install(project: Path, skills: Path) -> None:
        shell.finish(project, skills)
        scene.set_up(stage)
        house.do("hooks", "install", client.name, "--yes", "--mode", scene.mode)
        scene.prepare(stage)

    model = FakeModel(steps=())
    person = Approver(house, model, scene.answer)
    steps = list(scene.steps(stage))
    first, rest = steps[:1], steps[1:]
    again = [replace(one, after=person.answered.wait) for one in rest] if scene.answer else rest
    model.steps = [*first, *again]
    model.others = scene.others(stage)
    words = scene.words.get(client.name) or stage.own.words
    act(
        actor,
        house,
        model,
        person if scene.answer else None,
        installed=None,
        shell=OwnShell(tool=shell.tool, arguments=shell.arguments, words=words, finish=install),
    )
    # The last events of a client may come when it has ended.
    until(lambda: sum(one["kind"] != "intent" for one in stage.calls()) >= scene.ended, 15)
    status = house.say("hooks", "status", client.name, "--json")
    if not status.stdout:
        raise SceneError(f"hooks status: {status.returncode} {status.stderr}")
    offered = {name for one in model.asked for name, _ in one.speech.offered(one.body)}
    return {
        "shell": hook_shell(client.name),
        "results": [one[:SHOWN_MAX] for one in model.results()],
        "files": sorted(
            file.name
            for file in house.project.iterdir()
            if file.is_file() and file.name != "opencode.json"
        ),
        "records": list(stage.calls()),
        "status": json.loads(status.stdout)["clients"][0]["standing"],
        "said": stage.said,
        "outside": (house.home / "outside").exists(),
        "connected": stage.listener is not None and stage.listener.connected,
        "offered": sorted(offered),
        "asked": [one.body for one in model.asked],
    }


def hook_shell(name: str) -> str:
    """Return the name that a client's hooks have for its shell."""
    tools = hook_client(name).tools
    return next(tool for tool, shape in tools.items() if shape.kind == "exec")


def _filled(given: Mapping[str, Any], results: Sequence[str]) -> Mapping[str, Any]:
    """Return arguments with the id of the command that began last, where they say SESSION."""
    ids = re.findall(r"session ID (\d+)", "\n".join(results)) or ["0"]
    return {name: int(ids[-1]) if value == "SESSION" else value for name, value in given.items()}


def probe(file: Path) -> HookScene:
    """Return the scene of a file: `calls`, and as one likes `rules`, `files`, `others`, `words`."""
    given = json.loads(file.read_text())
    if isinstance(given, list):
        given = {"calls": given}

    def steps(calls: Any) -> list[Step]:
        return [
            Step(tool=one["tool"], arguments=partial(_filled, one["arguments"]), is_offered=False)
            for one in calls
        ]

    def set_up(stage: Stage) -> None:
        for name, text in given.get("files", {}).items():
            base = stage.house.home if name.startswith("~/") else stage.house.project
            path = base / name.removeprefix("~/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        for name, more in given.get("merged", {}).get(stage.client.name, {}).items():
            base = stage.house.home if name.startswith("~/") else stage.house.project
            path = base / name.removeprefix("~/")
            text = path.read_text() if path.exists() else ""
            if name.endswith(".toml"):
                path.write_text(text + more)
            else:
                kept = "\n".join(one for one in text.split("\n") if "//" not in one[:4])
                path.write_text(json.dumps({**json.loads(kept or "{}"), **more}))
        stage.house.environment |= given.get("environment", {})
        if given.get("git"):
            stage.house.project.joinpath(".git").rmdir()
            git = ("git", "init", "-q", "-b", "main")
            who = (("config", "user.name", "A"), ("config", "user.email", "a@example.com"))
            for line in (git, *(("git", *words) for words in who)):
                where, variables = stage.house.project, stage.house.environment
                subprocess.run([*line], cwd=where, env=variables, check=True)
        if given.get("policy"):
            stage.house.do("policy", "init", given["policy"], "--write")

    def prepare(stage: Stage) -> None:
        """Keep what the client gives to each hook in `events.jsonl`."""
        between = stage.house.base / "hook_client.py"
        between.write_text(TEE.format(kept=str(stage.house.base / "events.jsonl"), script=SCRIPT))
        stage.replace(SCRIPT, str(between))

    return HookScene(
        prepare=prepare,
        steps=lambda stage: steps(given["calls"]),
        others=lambda stage: {key: steps(value) for key, value in given.get("others", {}).items()},
        rules=given.get("rules", ""),
        set_up=set_up,
        mode=given.get("mode", "enforce"),
        words={name: tuple(words) for name, words in given.get("words", {}).items()},
    )


def _end_judges(base: Path) -> None:
    """Let the judges of these homes end: they do when their sockets are gone."""
    for socket in base.rglob("judge.sock"):
        if socket.is_socket():
            socket.unlink()
    until(lambda: not judges(base), 15)


def table(rows: Mapping[str, Mapping[str, str]]) -> str:
    """Return what held as a table: by the client's title with its version, by scene."""
    lines = ["| | " + " | ".join(rows) + " |", "|---" * (len(rows) + 1) + "|"]
    for name, scene in SCENES.items():
        cells = [found.get(name, "") for found in rows.values()]
        if any(cells):
            lines.append(f"| {scene.title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def actors(folders: Sequence[Path], only: Sequence[str]) -> Mapping[str, Actor]:
    """Return the clients that are installed and have scenes of hooks, each version once, by title
    and version."""
    found: dict[str, Actor] = {}
    for folder in folders:
        for client in (one for one in CLIENTS if one.name in OWN_TOOLS):
            program = folder / client.words[0]
            if program.exists() and (not only or client.name in only):
                package = client.package.rpartition("@")[0]
                about = json.loads((folder.parent / package / "package.json").read_text())
                actor = Actor(client=client, program=program, version=about["version"])
                found.setdefault(f"{client.title} {actor.version}", actor)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.agents.hooked")
    parser.add_argument("--agents", action="append", required=True, type=Path)
    parser.add_argument("--only", default="", help="names of clients, separated by commas")
    parser.add_argument("--scenes", default="", help=f"of {', '.join(SCENES)}; all without it")
    parser.add_argument("--calls", type=Path)
    parser.add_argument("--keep", help="a folder outside of /tmp, for homes, outputs and requests")
    options = parser.parse_args()
    if INSIDE not in os.environ:
        again = [sys.executable, "-m", "tests.interop.agents.hooked", *sys.argv[1:]]
        words = ["unshare", "--map-root-user", "--net", *again]
        return subprocess.run(words, env={**os.environ, INSIDE: "1"}, check=False).returncode
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    base = Path(options.keep or tempfile.mkdtemp(dir=Path.home())).resolve()
    scenes = {name: SCENES[name] for name in options.scenes.split(",") if name}
    if options.calls:
        scenes[options.calls.stem] = probe(options.calls)
    rows: dict[str, dict[str, str]] = {}
    only = [name for name in options.only.split(",") if name]
    found_actors = actors(options.agents, only)
    if not found_actors:
        parser.error("no client is there: --agents takes a folder of programs, node_modules/.bin")
    try:
        for title, actor in found_actors.items():
            row = rows[title] = {}
            for name, scene in (scenes or SCENES).items():
                if not scene.clients(OWN_TOOLS[actor.client.name], hook_client(actor.client.name)):
                    row[name] = "–"
                    continue
                place = base / f"{actor.client.name}-{actor.version}-{name}"
                try:
                    found = run_scene(actor, scene, place)
                except SceneError as error:
                    # One that cannot be run holds up none of the others.
                    row[name] = "no"
                    failed = {"client": title, "scene": name, "holds": "no", "failed": str(error)}
                    print(json.dumps(failed), flush=True)
                    continue
                row[name] = "yes" if scene.holds(found, actor.client) else "no"
                shown = {**found, "asked": len(found["asked"])}
                about = {"client": title, "scene": name, "holds": row[name], **shown}
                print(json.dumps(about), flush=True)
    finally:
        _end_judges(base)
        if not options.keep:
            shutil.rmtree(base, ignore_errors=True)
    print(table(rows))
    missed = [
        f"{title}: {name}" for title, row in rows.items() for name in row if row[name] == "no"
    ]
    print(f"clients: {len(rows)}, did not hold: {', '.join(missed) or 'nothing'}")
    return 0 if rows and not missed else 1


if __name__ == "__main__":
    sys.exit(main())
