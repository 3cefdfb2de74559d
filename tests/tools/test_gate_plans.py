"""The law of decision 8 for commands: a plan that runs is the plan that was approved."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillhouse.approval import Answer, ApprovalBroker, ScriptStore
from skillhouse.audit import AuditLog
from skillhouse.net import NetPolicy
from skillhouse.permission import Decision, Effect, Layer, Rule, decide
from skillhouse.sandbox import Completed, Limits, SandboxProfile
from skillhouse.skill import SkillIndex
from skillhouse.tools import (
    ExecTool,
    PermissionRequest,
    Progress,
    Session,
    ToolCall,
    ToolResult,
    Workspace,
)
from tests.tools.gates import gate_to
from tests.tools.houses import no_background

pytestmark = [pytest.mark.slow, pytest.mark.heavy]

FILES = ("one", "two", "run.sh")
COMMANDS: tuple[tuple[str, tuple[str, ...] | None, frozenset[str]], ...] = (
    ("sh", ("run.sh",), frozenset(FILES)),
    ("sort one two", None, frozenset({"one", "two"})),
    ("sort one | uniq", None, frozenset({"one"})),
    ("sort one && sh run.sh", None, frozenset(FILES)),
    ("sort < two", None, frozenset({"two"})),
    ("sh < run.sh", None, frozenset(FILES)),
    ("sort one > three", None, frozenset({"one"})),
    ("for f in 1 2; do sh run.sh; done", None, frozenset(FILES)),
    ("echo ${HOME:-x}", None, frozenset(FILES)),
    ("ls", None, frozenset()),
)
"""A command, its params, and the files that its meaning depends on: a shell may load any."""
CHANGES = ("nothing", *FILES, "deny", "ask", "network", "place", "timeout", "loaded")


class Recorder:
    """A sandbox that runs nothing and remembers what it was told to run."""

    level: Any = "recorded"

    def __init__(self) -> None:
        self.ran: list[tuple[tuple[str, ...], SandboxProfile, Path]] = []

    async def run(
        self, argv: Sequence[str], profile: SandboxProfile, *, cwd: Path, **_: object
    ) -> Completed:
        self.ran.append((tuple(argv), profile, cwd))
        return Completed(exit_code=0, stdout=b"", stderr=b"", duration_seconds=0)


class Desk:
    """A door with the tool `exec` alone, whose surroundings a test changes."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.places = (base / "here", base / "there")
        for place in self.places:
            place.mkdir()
            for name in FILES:
                (place / name).write_text(f"echo {name}\n")
        self.rules: list[Rule] = []
        self.network = False
        self.place = self.places[0]
        self.recorder = Recorder()
        self.broker = ApprovalBroker(base)
        self.session = Session(
            agent="default",
            user="local",
            channel="library",
            visible=SkillIndex(),
            skill_need=lambda _: pytest.fail("no skill is loaded"),
        )

    def call(self, command: str, params: tuple[str, ...] | None, **more: Any) -> ToolResult:
        async def launcher() -> Any:
            return self.recorder

        def layers(_: str) -> tuple[Layer, ...]:
            return (Layer(name="user", rules=tuple(self.rules)),)

        def decided(need: PermissionRequest, _: Session) -> tuple[Decision, str]:
            return decide(layers(""), need.permission, default=need.default), need.why

        tool = ExecTool(
            Workspace(self.place),
            launcher,
            layers=layers,
            network_effect=lambda *_: Effect.ALLOW if self.network else Effect.DENY,
            net_policy=NetPolicy,
            way_out=lambda *_: pytest.fail("nothing runs with a network that nobody saw"),
            environment={},
            decide=decided,
            scripts=ScriptStore(self.base),
            limits=Limits(),
            background=no_background(self.base),
        )
        log = AuditLog(self.base / "audit.jsonl")
        gate = gate_to(
            tool, decide=decided, approvals=self.broker, audit=log, workspace_root=str(self.place)
        )
        approval_id, listener = more.pop("approval_id", ""), more.pop("listener", None)
        arguments = {"command": command, **({"params": list(params)} if params else {}), **more}
        wanted = ToolCall(name="exec", arguments=arguments, approval_id=approval_id)
        with log:
            return anyio.run(lambda: gate.call(wanted, self.session, listener=listener))

    def approve(self, approval_id: str | None) -> dict[str, Any]:
        """Say yes, and return what the yes is about."""
        found = self.broker.get(approval_id or "")
        self.broker.answer(
            found.id, Answer.ONCE, by="local", channel="cli", nonce=found.request.nonce
        )
        content: dict[str, Any] = json.loads(found.request.content)
        return content

    def change(self, what: str) -> dict[str, Any]:
        """Change something, and return what is then different in the call itself."""
        if what in FILES:
            (self.place / what).write_text("echo something else\n")
        elif what == "deny":
            self.rules.append(Rule(effect=Effect.DENY, action="*", pattern="*"))
        elif what == "ask":
            self.rules.append(Rule(effect=Effect.ASK, action="*", pattern="*"))
        elif what == "network":
            self.network = True
        elif what == "place":
            self.place = self.places[1]
        elif what == "loaded":
            # What a command may read besides is no part of what was approved: it only grows by
            # skills that a person or a rule let be loaded.
            (self.base / "skill").mkdir()
            self.session.loaded["skill"] = self.base / "skill"
        return {"timeout_seconds": 7} if what == "timeout" else {}


@settings(max_examples=80, deadline=None)
@given(
    command=st.sampled_from(COMMANDS),
    change=st.sampled_from(CHANGES),
    names_the_yes=st.booleans(),
)
def test_a_plan_that_runs_is_the_plan_that_was_approved(
    command: tuple[str, tuple[str, ...] | None, frozenset[str]], change: str, names_the_yes: bool
) -> None:
    line, params, depends = command
    with TemporaryDirectory() as base:
        desk = Desk(Path(base).resolve())
        asked = desk.call(line, params)
        assert (asked.status, desk.recorder.ran) == ("pending", [])
        content = desk.approve(asked.approval_id)
        more = desk.change(change)
        given_id = {"approval_id": asked.approval_id or ""} if names_the_yes else {}
        told = desk.call(line, params, **more, **given_id)
        touches = change in depends or change in ("deny", "network", "place", "timeout")
        if change == "ask":
            # What the judge says of a command may change with a rule about it, and then it shows.
            touches = told.status != "ok"
        assert (told.status == "ok") is not touches, (told.content, content)
        assert len(desk.recorder.ran) == (not touches)
        if touches:
            assert told.approval_id != asked.approval_id
            # The same call under other circumstances is a new question; another call is refused.
            is_denied = change == "deny" or (names_the_yes and change in ("place", "timeout"))
            assert told.status == ("denied" if is_denied else "pending")
        else:
            ((_, profile, cwd),) = desk.recorder.ran
            shown = dict(content["shown"])
            assert (str(cwd), profile.network) == (content["cwd"], shown["network"] != "none")
            # And once: the same call is asked about again.
            assert desk.call(line, params, **more, **given_id).status != "ok"


def test_what_runs_is_what_the_same_plan_would_run_without_a_question(tmp_path: Path) -> None:
    for number, (line, params, _) in enumerate(COMMANDS):
        base = tmp_path / str(number)
        base.mkdir(0o700)
        desk = Desk(base)
        desk.approve(desk.call(line, params).approval_id)
        assert desk.call(line, params).status == "ok"
        ((argv, profile, cwd),) = desk.recorder.ran
        assert (cwd, profile.workspace) == (base / "here", base / "here")
        if params:
            assert argv == (line, *params)


def test_whoever_hears_of_progress_runs_the_approved_bytes(tmp_path: Path) -> None:
    """What has progress is another way into a plan than that which has the sealed copies."""

    async def hear(_: Progress) -> None:
        await anyio.lowlevel.checkpoint()

    for listener in (None, hear):
        base = tmp_path / str(listener is None)
        base.mkdir(mode=0o700)
        desk = Desk(base)
        (desk.place / "a.py").write_text("print('approved')\n")
        asked = desk.call("python3", ("a.py",))
        desk.approve(asked.approval_id)
        done = desk.call("python3", ("a.py",), approval_id=asked.approval_id, listener=listener)
        assert done.status == "ok", done.content
        ((_, profile, _),) = desk.recorder.ran
        assert profile.sealed == {f"{desk.place}/a.py": b"print('approved')\n"}
