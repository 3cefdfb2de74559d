"""A home with hooks: what a client writes to our entry, and what it gets."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skillhouse.audit import AuditLog
from skillhouse.floor import Locations, make_private
from skillhouse.floor.structs import replace
from skillhouse.frontends.hooks.entries import HookEntries
from skillhouse.frontends.hooks.hook_clients import hook_client
from skillhouse.frontends.hooks.judge import HookAnswer, HookJudge, HookRequest
from skillhouse.frontends.hooks.judge_client import PROGRAM, VARIABLES
from skillhouse.frontends.hooks.tickets import ProcessId
from tests.house.places import make_places

SCRIPT = Path(__file__).parents[3] / "src/skillhouse/frontends/hooks/hook_client.py"
RULES = """
[[rules]]
effect = "allow"
action = "exec"
pattern = "touch *"
[[rules]]
effect = "deny"
action = "exec"
pattern = "git push *"
reason = "a person pushes"
[[rules]]
effect = "deny"
action = "mcp"
pattern = "shop/buy*"
[[rules]]
effect = "deny"
action = "tool"
pattern = "WebSearch"
"""


@dataclass(slots=True)
class HookedHome:
    """One user's home and project."""

    base: Path
    rules: str = RULES
    places: Locations = field(init=False)
    judge: HookJudge = field(init=False)
    calls: int = 0

    def __post_init__(self) -> None:
        self.places = make_places(self.base)
        self.places.user_file.parent.mkdir(parents=True, exist_ok=True)
        self.places.user_file.write_text(self.rules)
        make_private(self.directory)
        self.judge = HookJudge(self.directory, lambda start: replace(self.places, start=start))

    @property
    def directory(self) -> Path:
        return self.places.state() / "hooks"

    @property
    def project(self) -> Path:
        return self.places.start

    def entries(self) -> HookEntries:
        return HookEntries(
            places=self.places,
            project=self.project,
            state_directory=self.places.state(),
            audit=AuditLog(self.places.state() / "audit.jsonl"),
        )

    def event(self, tool: str, given: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """Return an event of Claude Code's shape."""
        self.calls += 1
        return {
            "session_id": "s-1",
            "cwd": str(self.project),
            "hook_event_name": "PreToolUse",
            "tool_name": tool,
            "tool_input": dict(given),
            "tool_use_id": f"call-{self.calls}",
            **more,
        }

    async def ask(
        self,
        event: Mapping[str, Any] | bytes,
        moment: str = "before",
        *,
        client: str = "claude-code",
        mode: str = "enforce",
        directory: str = "",
        project: str = "",
        above: tuple[ProcessId, ...] = (),
    ) -> HookAnswer:
        data = event if isinstance(event, bytes) else json.dumps(event).encode()
        return await self.judge.answer(
            HookRequest(
                client=client,
                mode=mode,
                moment=moment,
                directory=directory or str(self.project),
                project=project,
                event=data,
                above=above,
            )
        )

    async def effect(self, tool: str, given: Mapping[str, Any], **more: Any) -> tuple[str, str]:
        """Return what Claude Code is told of a call: its effect and the reason."""
        return effect_of(await self.ask(self.event(tool, given, **more)))

    def records(self) -> list[tuple[str, str, str]]:
        """Return tool, kind and status of each record, oldest first."""
        lines = (next(self.places.state().rglob("*.jsonl"))).read_text().splitlines()
        found = [json.loads(line) for line in lines]
        return [(one["tool"], one["kind"], one["status"]) for one in found]

    def line(
        self, moment: str = "before", mode: str = "enforce", client: str = "claude-code"
    ) -> str:
        """Return a line as `install` writes it, with the interpreter of this process."""
        words = (self.directory / os.fsdecode(PROGRAM), self.directory / os.fsdecode(VARIABLES))
        source = str(SCRIPT.parents[3])
        start = f"import sys; sys.path.insert(0, {source!r}); import runpy; "
        start += "sys.argv = ['hooks', *sys.argv[1:]]; "
        start += "runpy.run_module('skillhouse.frontends.hooks', run_name='__main__')"
        words[0].write_text(f"{sys.executable}\0-I\0-c\0{start}")
        words[1].write_text(f"HOME={self.places.home}")
        given = [sys.executable, "-I", "-S", str(SCRIPT), client, mode, moment]
        given += [str(self.directory), hook_client(client).project_variable]
        otherwise = "exit 0" if mode == "watch" else "{ echo cannot judge >&2; exit 2; }"
        return f"{shlex.join(filter(None, given))} || {otherwise}"

    def run(
        self, line: str, event: Mapping[str, Any] | bytes, **environment: str
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a line as a client does."""
        data = event if isinstance(event, bytes) else json.dumps(event).encode()
        return subprocess.run(
            ["/bin/sh", "-c", line],
            input=data,
            cwd=self.project,
            env={"PATH": os.environ["PATH"], "HOME": str(self.places.home), **environment},
            capture_output=True,
            check=False,
            timeout=60,
        )

    def end(self) -> None:
        """Let a judge that was started here end: it does when its socket is gone."""
        (self.directory / "judge.sock").unlink(missing_ok=True)
        self.judge.close()


def effect_of(answer: HookAnswer) -> tuple[str, str]:
    if not answer.output:
        return ("cannot" if answer.code else "allow", answer.error)
    said = json.loads(answer.output)["hookSpecificOutput"]
    return (said["permissionDecision"], said["permissionDecisionReason"])


HEAVY_MODULES = frozenset({"json", "os", "socket", "signal", "re", "site", "subprocess"})
"""What no program that a client starts for each call may load."""


def loaded_beside(script: Path, other: str) -> set[str]:
    """Return the modules that a script and another one beside it load, without running either."""
    names = [str(script), str(script.with_name(other))]
    code = (
        f"import sys; sys.argv = ['x']; names = {names!r}\n"
        "for name in names: exec(open(name).read().split('if __name__')[0])\n"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())
