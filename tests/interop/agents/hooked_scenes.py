"""What clients do whose own tools are judged by us: the calls of each scene, what is prepared, and
what has to be left of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skillhouse.frontends.hooks.hook_clients import HookClient
from tests.harness import until
from tests.interop.agents.clients import OWN_SHELLS, PROMPT, Client
from tests.interop.agents.fake_model import Step
from tests.interop.agents.protocols import Call
from tests.interop.agents.scenes import House

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
[[rules]]
effect = "allow"
action = "exec"
pattern = "cat *"
[[rules]]
effect = "deny"
action = "skill"
pattern = "owls"
reason = "no owls"
"""
SUBAGENT = "Count the owls of the barn."
"""What a subagent is told, by which its conversation is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTools:
    """How a client calls its own tools."""

    words: tuple[str, ...]
    """Starts it so that they run without a question of its own."""
    shell: str
    command: str
    """The argument of `shell`."""
    more: Mapping[str, Any] = field(default_factory=dict)
    background: Mapping[str, Any] = field(default_factory=dict)
    skill: str = ""
    skill_argument: str = "name"
    skills: str = ""
    """Where it looks for skills, below home."""
    agent_tool: str = ""
    wait_tool: str = ""
    """Waits for a subagent, where starting one does not."""
    agent: Mapping[str, Any] = field(default_factory=dict)
    unknown: str = ""
    unknown_arguments: Mapping[str, Any] = field(default_factory=dict)
    """A tool that our data file does not name."""


_TELL = {"description": "Count owls", "prompt": SUBAGENT}
OWN_TOOLS: Mapping[str, OwnTools] = {
    "claude-code": OwnTools(
        words=(
            *("claude", "-p", PROMPT, "--model", "sonnet"),
            *("--allowedTools", "Bash", "Write", "Read", "Skill"),
        ),
        shell="Bash",
        command="command",
        more={"description": "Run it"},
        background={"run_in_background": True},
        skill="Skill",
        skill_argument="skill",
        skills=".claude/skills",
        agent_tool="Agent",
        agent={**_TELL, "subagent_type": "general-purpose"},
        unknown="CronList",
    ),
    "codex": OwnTools(
        words=(
            *("codex", "exec", "--skip-git-repo-check", "--sandbox", "workspace-write"),
            *("--dangerously-bypass-hook-trust", PROMPT),
        ),
        shell="exec_command",
        command="cmd",
        background={"yield_time_ms": 300},
        agent_tool="multi_agent_v1::spawn_agent",
        agent={"message": SUBAGENT},
        wait_tool="multi_agent_v1::wait_agent",
        unknown="get_goal",
    ),
    "gemini-cli": OwnTools(
        words=OWN_SHELLS["gemini-cli"].words,
        shell="run_shell_command",
        command="command",
        more={"description": "Run it"},
        background={"is_background": True},
        skill="activate_skill",
        skills=".agents/skills",
        agent_tool="invoke_agent",
        agent={"agent_name": "generalist", "prompt": SUBAGENT},
        unknown="write_todos",
        unknown_arguments={"todos": []},
    ),
    "opencode": OwnTools(
        words=OWN_SHELLS["opencode"].words,
        shell="bash",
        command="command",
        more={"description": "Run it"},
        skill="skill",
        skills=".agents/skills",
        agent_tool="task",
        agent={**_TELL, "subagent_type": "general"},
        unknown="todowrite",
        unknown_arguments={"todos": []},
    ),
}


class Canary(threading.Thread):
    """Notes whether somebody connects."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.connected = False
        self._socket = socket.create_server(("127.0.0.1", port))

    def run(self) -> None:
        while True:
            self._socket.accept()[0].close()
            self.connected = True


@dataclass(slots=True, kw_only=True)
class Stage:
    """The home and the client of a scene."""

    house: House
    client: Client
    own: OwnTools
    listener: Canary | None = None
    said: dict[str, Any] = field(default_factory=dict)

    def shell(self, command: str, given: Mapping[str, Any] | None = None, **more: Any) -> Step:
        arguments = {**self._command(command), **(given or {})}
        return Step(tool=self.own.shell, arguments=arguments, **more)

    def _command(self, command: str) -> dict[str, Any]:
        return {self.own.command: command, **self.own.more}

    def call(self, command: str) -> Call:
        return Call(self.own.shell, self._command(command))

    @property
    def entry(self) -> Path:
        found = self.house.do("hooks", "status", self.client.name, "--json")
        return Path(json.loads(found)["clients"][0]["file"])

    def replace(self, old: str, new: str) -> None:
        """Change the client's entry."""
        file = self.entry
        text = file.read_text()
        if old not in text:
            raise AssertionError(text)
        file.write_text(text.replace(old, new))

    def calls(self) -> Iterator[dict[str, Any]]:
        """Yield what the log holds, oldest first."""
        log = self.house.home / ".local/state/skillhouse/audit.jsonl"
        for line in log.read_text().splitlines() if log.exists() else ():
            one = json.loads(line)
            if one.get("channel") == "hooks":
                names = ("tool", "kind", "status", "reason", "trace", "client", "detail")
                yield {name: one.get(name) for name in names}


def _nothing(stage: Stage) -> None:
    del stage


Found = Mapping[str, Any]
"""What is left of a run, as it is printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookScene:
    """One run: the calls that the model makes, what happens before, and what has to be left."""

    title: str = ""
    """As the table has it."""
    steps: Callable[[Stage], Sequence[Step]]
    holds: Callable[[Found, Client], bool] = lambda found, client: True
    others: Callable[[Stage], Mapping[str, Sequence[Step]]] = lambda stage: {}
    """The calls of other conversations than the first."""
    rules: str = RULES
    mode: str = "enforce"
    set_up: Callable[[Stage], None] = _nothing
    """Before our entry is there."""
    prepare: Callable[[Stage], None] = _nothing
    """When it is there."""
    answer: str = ""
    """What a person says to the first question, after which the call is repeated: yes or no."""
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    clients: Callable[[OwnTools, HookClient], bool] = lambda own, client: True
    """Which clients have this."""
    ended: int = 0
    """Outcomes that the log has in the end: the last events may come after the client's end."""


def _commands(*lines: str) -> Callable[[Stage], Sequence[Step]]:
    return lambda stage: [stage.shell(line) for line in lines]


def _statuses(found: Found) -> list[str]:
    return [one["status"] for one in found["records"] if one["kind"] != "intent"]


def _left(*files: str, statuses: Sequence[str] = ()) -> Callable[[Found, Client], bool]:
    return lambda found, client: (
        found["files"] == sorted(files) and (not statuses or _statuses(found) == list(statuses))
    )


def _refused(*words: str, statuses: Sequence[str]) -> Callable[[Found, Client], bool]:
    """Nothing was made, and the last result has the words."""
    return lambda found, client: (
        not found["files"]
        and _statuses(found) == list(statuses)
        and all(word in found["results"][-1] for word in words)
    )


def _stop(stage: Stage) -> None:
    stage.house.do("stop", "--reason", "owls")


def _no_program(stage: Stage) -> None:
    """Take away what the entry starts."""
    stage.replace(sys.executable, f"{sys.executable}-gone")


def _no_entry(stage: Stage) -> None:
    stage.house.do("hooks", "remove", stage.client.name, "--yes")


def _no_judge(stage: Stage) -> None:
    """Keep the judge from having its socket."""
    state = stage.house.home / ".local/state/skillhouse/hooks"
    state.joinpath("judge.sock").mkdir(parents=True)


def _killed(stage: Stage) -> Sequence[Step]:
    """The judge is killed between two calls, and again while one may be judged."""

    def kill(seconds: float) -> bool:
        found = until(lambda: judges(stage.house.base), seconds)
        for one in found:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        stage.said.setdefault("killed", []).append(len(found))
        return bool(found)

    return [
        stage.shell("touch made"),
        stage.shell("touch forbidden", after=kill),
        stage.shell("touch again", after=kill),
    ]


def judges(base: Path) -> list[int]:
    """Return the processes that judge for the homes below a directory."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (place / "cmdline").read_bytes()
            if b"\0serve\0" in words and os.fsencode(base) in words:
                found.append(int(place.name))
    return found


def _add_skills(stage: Stage) -> None:
    for name in ("owls", "bats"):
        file = stage.house.home / stage.own.skills / name / "SKILL.md"
        file.parent.mkdir(parents=True)
        file.write_text(f"---\nname: {name}\ndescription: Counts {name}.\n---\nWORD-{name}\n")


def _skills(stage: Stage) -> Sequence[Step]:
    given = ({stage.own.skill_argument: name} for name in ("bats", "owls"))
    return [Step(tool=stage.own.skill, arguments=one) for one in given]


def _skill_refused(found: Found, client: Client) -> bool:
    refused = [one for one in found["records"] if one["kind"] == "refusal"]
    sent = json.dumps(found["asked"])
    is_refused = "WORD-owls" not in sent and "skillhouse: " in found["results"][-1]
    return is_refused and len(refused) == 1 and "WORD-bats" in sent


def _subagent(stage: Stage) -> Sequence[Step]:
    own = stage.own
    steps = [Step(tool=own.agent_tool, arguments=own.agent)]
    if own.wait_tool:
        steps.append(Step(tool=own.wait_tool, arguments=_waited))
    return steps


def _waited(results: Sequence[str]) -> Mapping[str, Any]:
    return {"targets": [json.loads(results[0])["agent_id"]], "timeout_ms": 30_000}


def _of_subagent(stage: Stage) -> Mapping[str, Sequence[Step]]:
    calls = [stage.shell("touch forbidden"), stage.shell("touch made")]
    if stage.client.name == "gemini-cli":
        calls.append(Step(tool="complete_task", arguments={"result": "done"}))
    return {SUBAGENT: calls}


def _subagent_judged(found: Found, client: Client) -> bool:
    own = [one for one in found["records"] if one["tool"] == found["shell"]]
    ends = [one["status"] for one in own if one["kind"] != "intent"]
    named = [one["trace"] for one in own if one["trace"]]
    # Gemini CLI names no subagent, and a subagent of opencode is a session of its own.
    is_named = len(named) == len(own) if client.name in ("claude-code", "codex") else not named
    return found["files"] == ["made"] and ends == ["denied", "ok"] and is_named


def _parallel(stage: Stage) -> Sequence[Step]:
    return [stage.shell("touch made", beside=[stage.call("touch forbidden")])]


def _both_judged(found: Found, client: Client) -> bool:
    return found["files"] == ["made"] and sorted(_statuses(found)) == ["denied", "ok"]


def _background(stage: Stage) -> Sequence[Step]:
    return [stage.shell("sleep 4; touch late", given=stage.own.background)]


def _background_told(found: Found, client: Client) -> bool:
    (outcome,) = [one for one in found["records"] if one["kind"] == "outcome"] or [{}]
    if client.name == "codex":
        # It sends nothing before the end, and in this run there is none: it is not known.
        return not outcome and len(found["records"]) == 1
    return outcome["status"] == "ok" and "its end is not seen" in json.dumps(outcome["detail"])


def _big(stage: Stage) -> Sequence[Step]:
    (stage.house.project / "big.txt").write_text("owls and bats\n" * 150_000)
    return [stage.shell("cat big.txt"), stage.shell("touch made")]


def _unknown(stage: Stage) -> Sequence[Step]:
    own = stage.own
    # Newer versions of Claude Code only name some tools, and take calls of them all the same.
    return [Step(tool=own.unknown, arguments=own.unknown_arguments, is_offered=False)]


def _unknown_recorded(found: Found, client: Client) -> bool:
    records = [(one["kind"], one["status"]) for one in found["records"]]
    return records == [("intent", ""), ("outcome", "ok")]


TOOL_DENIED = '\n[[rules]]\neffect = "deny"\naction = "tool"\npattern = "*"\nreason = "no tools"\n'


def _person(stage: Stage) -> None:
    """Let a person answer Claude Code's own question: by a tool of an MCP server, as it can be
    told where it has no terminal."""
    server = stage.house.base / "person.py"
    server.write_text(PERSON)
    entry = {"command": sys.executable, "args": [str(server), stage.said["answer"]]}
    (stage.house.base / "person.json").write_text(json.dumps({"mcpServers": {"person": entry}}))


PERSON = """
import json, sys
TOOL = {"name": "answer", "description": "Answers.", "inputSchema": {"type": "object"}}
for line in sys.stdin:
    said = json.loads(line)
    if "id" not in said:
        continue
    if said["method"] == "initialize":
        version = said["params"]["protocolVersion"]
        server = {"name": "person", "version": "1"}
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
    elif said["method"] == "tools/list":
        result = {"tools": [TOOL]}
    else:
        given = said["params"].get("arguments", {})
        answer = {"behavior": "allow", "updatedInput": given.get("input")}
        if sys.argv[1] == "no":
            answer = {"behavior": "deny", "message": "use the owls"}
        result = {"content": [{"type": "text", "text": json.dumps(answer)}]}
    print(json.dumps({"jsonrpc": "2.0", "id": said["id"], "result": result}), flush=True)
"""
_ASKING = (
    *("claude", "-p", PROMPT, "--model", "sonnet", "--allowedTools", "Bash"),
    *("--mcp-config", "../person.json", "--permission-prompt-tool", "mcp__person__answer"),
)


def _answering(answer: str) -> Callable[[Stage], None]:
    def set_up(stage: Stage) -> None:
        stage.said["answer"] = answer
        _person(stage)

    return set_up


def _asks_itself(own: OwnTools, client: HookClient) -> bool:
    return client.asks


def _waits_with_us(own: OwnTools, client: HookClient) -> bool:
    return not client.asks


HINTED = "Please tell me the tides of the harbour of Oban, with high water and low water."
TIDES = "Tells the tides of a harbour: high water and low water, by its name."


def _add_tides(stage: Stage) -> None:
    stage.house.add_skill("tides", TIDES, "High water is at noon.")


def _hinted(own: OwnTools, client: HookClient) -> bool:
    return "prompt" in client.events.values()


def _prompted(prompt: str) -> Mapping[str, tuple[str, ...]]:
    words = {name: own.words for name, own in OWN_TOOLS.items()}
    return {
        name: tuple(prompt if word == PROMPT else word for word in each)
        for name, each in words.items()
    }


def _boxed(own: OwnTools, client: HookClient) -> bool:
    return getattr(client, "rewrite", None) is not None


EVERYTHING = '[[rules]]\neffect = "allow"\naction = "exec"\npattern = "*"\n'


def _leaves(stage: Stage) -> Sequence[Step]:
    outside = stage.house.home / "outside"
    port = stage.house.base.stat().st_ino % 10_000 + 20_000
    listener = stage.listener = Canary(port)
    listener.start()
    connects = f'import socket; socket.create_connection(("127.0.0.1", {port}), 2)'
    return [
        stage.shell(f'python3 -c \'open("{outside}", "w")\''),
        stage.shell(f"python3 -c '{connects}'"),
        stage.shell("touch made"),
    ]


def _kept_in(found: Found, client: Client) -> bool:
    wrote, reached = found["results"][:2]
    return (
        found["files"] == ["made"]
        and not found["outside"]
        and not found["connected"]
        # They ran, and were not refused.
        and "Read-only file system" in wrote
        and "Connection refused" in reached
    )


def _got_out(found: Found, client: Client) -> bool:
    return bool(found["files"] == ["made"] and found["outside"] and found["connected"])


SCENES: Mapping[str, HookScene] = {
    "decisions": HookScene(
        title="allowed runs, denied does not, the reason reaches the model",
        steps=_commands("touch made", "touch forbidden"),
        holds=lambda found, client: (
            found["status"] == "installed"
            and _left("made", statuses=["ok", "denied"])(found, client)
            and "owls forbid it" in found["results"][1]
        ),
    ),
    "ask": HookScene(
        title="a question, and no person is there",
        steps=_commands("touch asked"),
        clients=_asks_itself,
        # It has no event for a refusal: the call ends as `not run` when the turn does.
        holds=_refused("touch asked*", statuses=["denied"]),
    ),
    "ask-yes": HookScene(
        title="a question in the client's own dialogue, answered yes",
        steps=_commands("touch asked"),
        clients=_asks_itself,
        set_up=_answering("yes"),
        words={"claude-code": _ASKING},
        holds=_left("asked", statuses=["ok"]),
    ),
    "ask-no": HookScene(
        title="the same, answered no: `not run`",
        steps=_commands("touch asked"),
        clients=_asks_itself,
        set_up=_answering("no"),
        words={"claude-code": _ASKING},
        holds=lambda found, client: (
            _refused("use the owls", statuses=["denied"])(found, client)
            and found["records"][-1]["reason"].startswith("not run")
        ),
    ),
    "repeat": HookScene(
        title="a question that waits with us: after a yes the repeat runs",
        steps=_commands("touch asked", "touch asked"),
        clients=_waits_with_us,
        answer="yes",
        holds=lambda found, client: (
            _left("asked", statuses=["pending", "ok"])(found, client)
            and "ask the user to approve" in found["results"][0]
        ),
    ),
    "repeat-no": HookScene(
        title="after a no the repeat is refused, with the person's words",
        steps=_commands("touch asked", "touch asked"),
        clients=_waits_with_us,
        answer="no",
        holds=_refused("use the owls", statuses=["pending", "denied", "denied"]),
    ),
    "skill": HookScene(
        title="a native skill is refused, another loaded",
        steps=_skills,
        set_up=_add_skills,
        clients=lambda own, client: bool(own.skill),
        holds=_skill_refused,
    ),
    "subagent": HookScene(
        title="a subagent's calls are judged",
        steps=_subagent,
        others=_of_subagent,
        ended=3,
        holds=_subagent_judged,
    ),
    "parallel": HookScene(
        title="two calls in one turn, each by itself", steps=_parallel, holds=_both_judged
    ),
    "background": HookScene(
        title="a command in the background: its start is recorded",
        steps=_background,
        clients=lambda own, client: bool(own.background),
        holds=_background_told,
    ),
    "big": HookScene(
        title="an output of 2 MB",
        steps=_big,
        holds=lambda found, client: (
            found["files"] == ["big.txt", "made"] and _statuses(found) == ["ok", "ok"]
        ),
    ),
    "unknown": HookScene(
        title="a tool that we do not know is recorded", steps=_unknown, holds=_unknown_recorded
    ),
    "unknown-denied": HookScene(
        title="and refused by a rule of action `tool`",
        steps=_unknown,
        rules=RULES + TOOL_DENIED,
        holds=_refused("no tools", statuses=["denied"]),
    ),
    "watch": HookScene(
        title="`watch` records and refuses nothing",
        steps=_commands("touch forbidden"),
        mode="watch",
        holds=_left("forbidden", statuses=["ok"]),
    ),
    "stop": HookScene(
        title="after `skillhouse stop` each call is refused",
        steps=lambda stage: [stage.shell("touch made"), *_unknown(stage)],
        prepare=_stop,
        holds=_refused("stopped", statuses=["emergency-stopped"] * 2),
    ),
    "killed": HookScene(
        title="the judge is killed in the middle: the next hook judges, and starts another",
        steps=_killed,
        holds=lambda found, client: (
            _left("again", "made", statuses=["ok", "denied", "ok"])(found, client)
            and found["said"]["killed"] == [1, 1]
        ),
    ),
    "no-judge": HookScene(
        title="no judge can be there: each hook judges",
        steps=_commands("touch made", "touch forbidden"),
        prepare=_no_judge,
        holds=_left("made", statuses=["ok", "denied"]),
    ),
    "no-program": HookScene(
        title="the program of the entry is gone: refused, and `status` says so",
        steps=_commands("touch made"),
        prepare=_no_program,
        holds=lambda found, client: not found["files"] and found["status"] == "changed",
    ),
    "no-entry": HookScene(
        title="the entry is gone: nothing is guarded, and `status` says so",
        steps=_commands("touch made"),
        prepare=_no_entry,
        holds=lambda found, client: (
            _left("made")(found, client) and (found["records"], found["status"]) == ([], "missing")
        ),
    ),
    "untrusted": HookScene(
        title="an entry that no person trusted is skipped in silence",
        steps=_commands("touch forbidden"),
        words={
            "codex": tuple(
                one for one in OWN_TOOLS["codex"].words if one != "--dangerously-bypass-hook-trust"
            )
        },
        clients=lambda own, client: client.name == "codex",
        holds=lambda found, client: _left("forbidden")(found, client) and not found["records"],
    ),
    "hint": HookScene(
        title="a hint about a skill that fits reaches the model's request",
        steps=lambda stage: [],
        set_up=_add_tides,
        clients=_hinted,
        words=_prompted(HINTED),
        holds=lambda found, client: "tides" in json.dumps(found["asked"]).replace(HINTED, ""),
    ),
    "no-hint": HookScene(
        title="and none where nothing fits",
        steps=lambda stage: [],
        set_up=_add_tides,
        clients=_hinted,
        words=_prompted("Rename the variable x to y in the file a.py."),
        holds=lambda found, client: "tides" not in json.dumps(found["asked"]),
    ),
    "boxed": HookScene(
        title="`sandbox`: a write outside of the workspace and a connection fail",
        steps=_leaves,
        rules=EVERYTHING,
        mode="sandbox",
        clients=_boxed,
        holds=_kept_in,
    ),
    "not-boxed": HookScene(
        title="and without the hook they succeed",
        steps=_leaves,
        prepare=_no_entry,
        words={
            "codex": tuple(
                "danger-full-access" if one == "workspace-write" else one
                for one in OWN_TOOLS["codex"].words
            )
        },
        clients=_boxed,
        holds=_got_out,
    ),
}
