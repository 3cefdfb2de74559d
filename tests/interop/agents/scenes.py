"""Runs one client in a fresh house and home, with a model that follows a script."""

from __future__ import annotations

import errno
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.interop.agents.clients import Client, OwnShell
from tests.interop.agents.fake_model import FakeModel, Step, serving
from tests.interop.agents.judging import Trace, transcript
from tests.interop.agents.offering import Offer, made_up, named_only, offer, sampled
from tests.interop.agents.protocols import NAMESPACE

CLIENT_SECONDS = 200.0
LOOK_SECONDS = 0.2
MADE = "ran-"
"""What the files that the gated command makes begin with; each run makes another one."""
GATED: Mapping[str, Any] = {"command": "mktemp", "params": ["-p", ".", f"{MADE}XXXXXX"]}
RULES = """
[[rules]]
effect = "ask"
action = "exec"
pattern = "mktemp *"
reason = "a person decides about files"
"""
HELD = '\n[approvals]\nunattended = "deny"\nwait_seconds = 45.0\n'
"""Lets a call wait for the answer where nobody can be asked; without it, it is pending."""


class SceneError(Exception):
    """A run could not be prepared, or did not end."""


@dataclass(slots=True)
class House:
    """A home, a project and a house of their own."""

    base: Path
    project: Path = field(init=False)
    """Where the client works."""
    environment: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.project = self.base / "project"
        self.home.mkdir(parents=True)
        # A project without a root would be searched for further up.
        (self.project / ".git").mkdir(parents=True)
        (self.home / ".config/skillhouse").mkdir(parents=True)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        # Codex's own sandbox does not run where the home is in the place for temporary files.
        (self.base / "tmp").mkdir()
        self.environment = {
            "HOME": str(self.home),
            "PATH": path,
            "LANG": "C.UTF-8",
            "TMPDIR": str(self.base / "tmp"),
        }

    @property
    def home(self) -> Path:
        """Home of the client, and of the house."""
        return self.base / "home"

    @property
    def skills(self) -> Path:
        """Where the user's skills are that no client but us reads."""
        return self.home / ".config/skillhouse/skills"

    def configure(self, text: str) -> None:
        """Write the user's configuration."""
        (self.home / ".config/skillhouse/config.toml").write_text(text)

    def add_skill(self, name: str, description: str, body: str) -> None:
        """Add a skill that no client but us reads."""
        self.add_file(name, f"---\nname: {name}\ndescription: {description}\n---\n{body}\n")

    def add_file(self, name: str, text: str) -> None:
        """Add a skill by its text."""
        directory = self.skills / name
        directory.mkdir(parents=True)
        (directory / "SKILL.md").write_text(text)

    def say(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `skillhouse` here, in a process of its own."""
        return subprocess.run(
            [sys.executable, "-P", "-m", "skillhouse", *words],
            cwd=self.project,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def approve(self, approval: str) -> None:
        """Say yes to a question as a person does, at a terminal.

        Raises:
            SceneError: it was not taken.
        """
        ours, theirs = os.openpty()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "skillhouse", "approvals", "approve", approval],
            cwd=self.project,
            env={**self.environment, "TERM": "dumb"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        said = b""
        with os.fdopen(ours, "r+b", buffering=0) as terminal:
            try:
                while part := terminal.read(4096):
                    said += part
                    if b"Type `approve`" in said and said.endswith(b": "):
                        terminal.write(b"approve\n")
            except OSError as error:
                # Linux says so when the other side is gone.
                if error.errno != errno.EIO:
                    raise
        if process.wait():
            raise SceneError(f"skillhouse approvals approve: {said.decode(errors='replace')}")

    def do(self, *words: str) -> str:
        """Run `skillhouse` and return what it prints.

        Raises:
            SceneError: it failed.
        """
        done = self.say(*words)
        if done.returncode:
            raise SceneError(f"skillhouse {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def greeted(self, client: str) -> dict[str, str]:
        """Return the server's `instructions` to a client, and the description of each tool."""
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": client, "version": "1"},
        }
        lines = [
            {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}},
        ]
        with subprocess.Popen(
            [sys.executable, "-P", "-m", "skillhouse", "mcp"],
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            if process.stdin is None or process.stdout is None:
                raise SceneError("expected pipes")
            process.stdin.writelines(json.dumps(line) + "\n" for line in lines)
            process.stdin.flush()
            first, second = (json.loads(process.stdout.readline())["result"] for _ in range(2))
        described = {tool["name"]: tool["description"] for tool in second["tools"]}
        return {"instructions": first.get("instructions", ""), **described}

    def made(self) -> tuple[str, ...]:
        """Return the files that the gated command has made."""
        return tuple(sorted(file.name for file in self.project.glob(f"{MADE}*")))


class Watcher(Protocol):
    """Looks now and then whether there is a question to answer."""

    def look(self) -> None: ...


@dataclass(slots=True)
class Person:
    """Answers the first open question, once the time has come."""

    house: House
    may_answer: Callable[[], bool]
    answered: threading.Event = field(default_factory=threading.Event)
    approval: str = ""
    made_before: tuple[str, ...] = ()

    def look(self) -> None:
        """Look for a question, and say yes to it."""
        if self.answered.is_set() or not self.may_answer():
            return
        found = json.loads(self.house.do("approvals", "list", "--json"))["approvals"]
        if found:
            self.made_before = self.house.made()
            self.approval = found[0]["id"]
            self.house.approve(self.approval)
            self.answered.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """A client that is installed."""

    client: Client
    program: Path
    version: str


def see_and_load(actor: Actor, base: Path) -> tuple[Trace, Sequence[str], str, Sequence[str]]:
    """Export two skills and load a third.

    Returns:
        The trace; the names of the house's tools; the secret of the third's body; and a word of
        each exported description.
    """
    house, secret = House(base), _word()
    markers = (_word(), _word())
    house.configure("")
    house.add_skill("tides", "Tells the tides of a harbour.", f"High water is at {secret}.")
    house.add_skill("owls", f"Counts owls in barns, {markers[0]}.", "Count them.")
    house.add_skill("bats", f"Counts bats in caves, {markers[1]}.", "Count them.")
    name = actor.client.name
    house.do("export", "owls", "--to", name)
    house.do("export", "bats", "--to", name, *(["--link"] if actor.client.links else []))
    for exported in ("owls", "bats"):
        # Else our own tool would list them, too.
        house.do("disable", f"user:{exported}")
    tools = [tool["name"] for tool in json.loads(house.do("tools", "list", "--json"))["tools"]]
    model = FakeModel(steps=(_step(actor, "skill", {"name": "tides"}),))
    act(actor, house, model)
    return _trace(actor, house, model), tools, secret, markers


def show(actor: Actor, base: Path, count: int, sample: Path | None) -> Offer:
    """Let the client begin where there are so many skills, and return what the model is shown."""
    house = House(base)
    house.configure("")
    builtin = len(json.loads(house.do("list", "--json"))["skills"])
    skills = [] if sample is None else list(sampled(sample, count - builtin))
    for name, text in (*skills, *made_up(count - builtin - len(skills))):
        house.add_file(name, text)
    found = json.loads(house.do("list", "--json"))["skills"]
    model = FakeModel(steps=())
    act(actor, house, model)
    sent = house.greeted(actor.client.greeting)
    known = {skill["name"]: skill["description"] for skill in found}
    if actor.client.defers:
        group = actor.client.prefix.removesuffix(NAMESPACE)
        return named_only(model.asked, group, known, sent)
    tools = [name for name in sent if name != "instructions"]
    return offer(model.asked, actor.client.prefix, known, sent, tools)


def ask_and_repeat(actor: Actor, base: Path) -> Trace:
    """Call what needs approval; it is pending, answered when the model knows so, and repeated."""
    house = House(base)
    house.configure(RULES)
    person = Person(house, lambda: bool(model.results()))
    first = _step(actor, "exec", GATED)
    again = Step(tool=first.tool, arguments=GATED, after=person.answered.wait)
    model = FakeModel(steps=(first, again))
    act(actor, house, model, person)
    return _trace(actor, house, model, person)


def ask_and_hold(actor: Actor, base: Path) -> Trace:
    """Call what needs approval, and answer while the call waits."""
    house = House(base)
    house.configure(HELD + RULES)
    person = Person(house, lambda: bool(model.asked))
    model = FakeModel(steps=(_step(actor, "exec", GATED),))
    act(actor, house, model, person)
    return _trace(actor, house, model, person)


def act(
    actor: Actor,
    house: House,
    model: FakeModel,
    person: Watcher | None = None,
    *,
    installed: Sequence[str] | None = ("--tools", "all"),
    shell: OwnShell | None = None,
) -> None:
    """Let the client read our entry and follow the script to its end.

    Args:
        actor: The client.
        house: Its home and project.
        model: What it talks to.
        person: Who answers meanwhile.
        installed: More words for `mcp install`; None for a client without us.
        shell: The client's own, if it is to use it.
    """
    client = actor.client
    with serving(model):
        client.prepare(house.home, house.project, model.url)
        if installed is not None:
            house.do("mcp", "install", client.name, "--decide-alone", *installed)
        if shell is not None:
            shell.finish(house.project, house.skills)
        with (house.base / "output.txt").open("wb") as output:
            process = subprocess.Popen(
                [str(actor.program), *(shell or client).words[1:]],
                cwd=house.project,
                env={
                    **house.environment,
                    # The Node that is installed beside a client is the one that it wants.
                    "PATH": f"{actor.program.parent}{os.pathsep}{house.environment['PATH']}",
                    **client.environment(model.url),
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                _wait(process, person)
            finally:
                # Its servers, too, where it left some.
                _end(process)
                with (house.base / "requests.jsonl").open("w") as log:
                    log.writelines(json.dumps(one.body) + "\n" for one in model.asked)


def _wait(process: subprocess.Popen[bytes], person: Watcher | None) -> None:
    until = time.monotonic() + CLIENT_SECONDS
    while process.poll() is None:
        if time.monotonic() > until:
            raise SceneError(f"it did not end within {CLIENT_SECONDS:g} seconds")
        if person is not None:
            person.look()
        time.sleep(LOOK_SECONDS)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        # All of them have gone by themselves.
        return
    process.wait()


def _trace(actor: Actor, house: House, model: FakeModel, person: Person | None = None) -> Trace:
    return Trace(
        transcript=transcript(model.asked, actor.client.prefix),
        records=json.loads(house.do("audit", "list", "--json"))["records"],
        is_log_whole=house.say("audit", "verify").returncode == 0,
        approval=person.approval if person else "",
        made_before=person.made_before if person else (),
        made=house.made(),
    )


def _step(actor: Actor, tool: str, arguments: Mapping[str, Any]) -> Step:
    return Step(tool=actor.client.prefix + tool, arguments=arguments)


def _word() -> str:
    """Return a word that nobody has used before."""
    return f"owl{secrets.token_hex(6)}"
