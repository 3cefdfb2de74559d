"""Claude Agent SDK: its server and options without its CLI, whose place a client of ours takes.

The package carries a CLI of 240 MB, so it has an environment of its own; test_alone.py runs this
file there.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.floor.structs import replace

pytest.importorskip("claude_agent_sdk", reason="not in this environment: see test_alone.py")

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    SdkMcpTool,
    ToolPermissionContext,
    create_sdk_mcp_server,
)
from mcp import Client
from tests.frontends.adapters.guide import CALLS, LAST, WRITE, Typing, run_example
from tests.frontends.adapters.houses import FALCONS, answers, open_house, written
from tests.frontends.adapters.loopback import Loopback, listening
from tests.frontends.adapters.parallel import (
    AFTERWARDS,
    Reaction,
    Scenario,
    Waiting,
    each_scenario,
    hold_as_native,
    native_read,
    native_write,
)
from tests.house.places import make_places

from skillhouse.floor import ConfigError
from skillhouse.frontends.adapters.claude_agent import skillhouse_options
from skillhouse.house import Skillhouse
from skillhouse.permission import Effect, Rule

pytestmark = pytest.mark.slow

OURS = "mcp__skillhouse__"


class Cli:
    """Does as the CLI does with a script of calls: asks for each, then calls the server."""

    def __init__(self, options: ClaudeAgentOptions, *calls: tuple[str, dict[str, Any]]) -> None:
        self.options = options
        self.calls = list(calls or CALLS)
        self.told: list[tuple[bool, str]] = []

    async def __aenter__(self) -> Cli:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def query(self, prompt: str) -> None:
        assert prompt
        servers: Any = self.options.mcp_servers
        async with Client(servers["skillhouse"]["instance"]) as client:
            for name, arguments in self.calls:
                if not await self._may(OURS + name, arguments):
                    continue
                found = await client.call_tool(name, arguments)
                texts = [getattr(content, "text", "") for content in found.content]
                self.told.append((bool(found.is_error), "".join(texts)))

    async def _may(self, name: str, arguments: dict[str, Any]) -> bool:
        if name in self.options.allowed_tools:
            return True
        assert self.options.can_use_tool is not None
        context = ToolPermissionContext(tool_use_id="t")
        found = await self.options.can_use_tool(name, arguments, context)
        return isinstance(found, PermissionResultAllow)

    async def receive_response(self) -> AsyncIterator[str]:
        yield LAST


@pytest.mark.parametrize(("answer", "expected"), [("y", "Rain.\n"), ("n", None)])
def test_the_example_of_the_guide_runs(
    place: Path, capsys: pytest.CaptureFixture[str], answer: str, expected: str | None
) -> None:
    person = Typing(answer)
    models = {"ClaudeSDKClient(options)": "Cli(options)"}
    run_example("Claude Agent SDK", models, {"Cli": Cli}, person)
    assert LAST in capsys.readouterr().out
    # Nothing is asked about the skill, which needs no yes.
    assert person.asked == [f"write: {place / 'project/poem.txt'}? "]
    assert written(place) == expected


async def allow(tool: str, arguments: dict[str, Any], context: ToolPermissionContext) -> Any:
    return PermissionResultAllow(updated_input=arguments)


async def change(tool: str, arguments: dict[str, Any], context: ToolPermissionContext) -> Any:
    return PermissionResultAllow(updated_input={**arguments, "content": "Snow.\n"})


async def deny(tool: str, arguments: dict[str, Any], context: ToolPermissionContext) -> Any:
    return PermissionResultDeny(message="not today")


async def fail(tool: str, arguments: dict[str, Any], context: ToolPermissionContext) -> Any:
    raise ValueError("secret")


@pytest.mark.parametrize(
    ("ask", "error", "words", "states"),
    [
        (allow, False, "", ["used"]),
        (deny, True, "not approved: refused: not today", ["denied"]),
        (change, True, "not approved yet", ["open", "open"]),
        (fail, True, "not approved yet", ["open"]),
        (None, True, "not approved yet", ["open"]),
    ],
)
def test_only_an_allow_of_this_very_call_is_a_yes(
    tmp_path: Path, ask: Any, error: bool, words: str, states: list[str]
) -> None:
    with open_house(tmp_path) as house:
        options = skillhouse_options(house, ClaudeAgentOptions(can_use_tool=ask))
        cli = Cli(options, WRITE)
        anyio.run(cli.query, "go")
        assert cli.told[0][0] is error
        assert words in cli.told[0][1]
        assert "secret" not in cli.told[0][1]
        assert (written(tmp_path) is None) is error
        assert [state for _, state, _, _ in answers(house)] == states


def test_the_server_lists_the_tools_and_each_skill_once(tmp_path: Path) -> None:
    with open_house(tmp_path) as house:
        options = skillhouse_options(house)

        async def go() -> Any:
            servers: Any = options.mcp_servers
            async with Client(servers["skillhouse"]["instance"]) as client:
                return await client.list_tools()

        listed = anyio.run(go).tools
        assert {tool.name: tool.input_schema for tool in listed} == {
            tool.name: dict(tool.schema) for tool in house.tools()
        }
        assert FALCONS not in "".join(tool.description or "" for tool in listed)
        prompt = str(options.system_prompt)
        assert prompt.count(FALCONS) == 1
        assert "load that skill with `mcp__skillhouse__skill`" in prompt
        servers: Any = options.mcp_servers
        assert servers["skillhouse"]["alwaysLoad"] is True
        assert (options.skills, options.disallowed_tools) == ([], ["Skill"])
        assert options.allowed_tools == sorted(OURS + tool.name for tool in listed)


def test_other_tools_are_asked_about_as_before(tmp_path: Path) -> None:
    with open_house(tmp_path) as house:
        given = ClaudeAgentOptions(can_use_tool=deny, allowed_tools=["Read"])
        options = skillhouse_options(house, given)
        assert options.allowed_tools == ["Read"]
        assert options.can_use_tool is not None
        context = ToolPermissionContext()
        other = anyio.run(options.can_use_tool, "Bash", {}, context)
        ours = anyio.run(options.can_use_tool, f"{OURS}write", {}, context)
        assert (other.behavior, ours.behavior) == ("deny", "allow")
        with pytest.raises(ConfigError, match="mcp_servers"):
            skillhouse_options(house, replace(given, mcp_servers="servers.json"))


def test_errors_are_texts(tmp_path: Path) -> None:
    rule = Rule(effect=Effect.DENY, action="exec", pattern="ls")
    with open_house(tmp_path, rule) as house:
        cli = Cli(
            skillhouse_options(house), ("skill", {"name": "robin"}), ("exec", {"command": "ls"})
        )
        anyio.run(cli.query, "go")
        assert [error for error, _ in cli.told] == [True, True]
        assert "denied: " in cli.told[1][1]


def test_a_cancelled_call_of_its_server_ends(tmp_path: Path) -> None:
    waiting = Waiting()
    with open_house(tmp_path, channel=waiting) as house:
        servers: Any = skillhouse_options(house).mcp_servers

        async def go() -> None:
            async with Client(servers["skillhouse"]["instance"]) as client:
                await waiting.cancelled(client.call_tool(*WRITE))
                # The server serves the next one.
                assert not (await client.call_tool("skill", {"name": "kestrel"})).is_error

        anyio.run(go)
        assert [one.state.value for one in house.approvals.latest()] == ["open"]
    assert written(tmp_path) is None


@each_scenario
def test_the_results_of_parallel_calls_reach_the_model_as_those_of_native_tools(
    tmp_path: Path, scenario: Scenario
) -> None:
    def run(url: str, answer: Reaction, house: Skillhouse | None) -> None:
        anyio.run(talk, url, answer, house, tmp_path)

    calls = tuple((OURS + name, given) for name, given in scenario.calls)
    hold_as_native(tmp_path, replace(scenario, calls=calls), run)


async def talk(url: str, answer: Reaction, house: Skillhouse | None, place: Path) -> None:
    asked = anyio.Event()

    async def ask(tool: str, arguments: dict[str, Any], context: ToolPermissionContext) -> Any:
        if tool == f"{OURS}read":
            return PermissionResultAllow()
        asked.set()
        if answer == "left":
            await anyio.sleep_forever()
        return PermissionResultAllow() if answer == "yes" else PermissionResultDeny(message="no")

    options = ClaudeAgentOptions(
        can_use_tool=ask, cwd=place, env=surroundings(url, place), setting_sources=[], tools=[]
    )
    if house is not None:
        options = skillhouse_options(house, options)
    else:
        native = create_sdk_mcp_server(
            "skillhouse", tools=[tool_of(native_read), tool_of(native_write)]
        )
        options = replace(options, mcp_servers={"skillhouse": {**native, "alwaysLoad": True}})
    async with ClaudeSDKClient(options) as client:
        await client.query("go")
        if answer == "left":
            await asked.wait()
            await client.interrupt()
            assert [one async for one in client.receive_response()]
            await client.query(AFTERWARDS)
        *_, last = [one async for one in client.receive_response()]
        assert isinstance(last, ResultMessage)
        assert last.result == LAST


BASH = ("Bash", {"command": "touch made", "description": "Make a file"})


class Asked:
    """Answers as it is to, and keeps what it was asked."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.titles: list[tuple[str, str | None]] = []

    async def __call__(self, tool: str, arguments: Any, context: ToolPermissionContext) -> Any:
        self.titles.append((tool, context.title))
        return await self.answer(tool, arguments, context)


def worked(
    base: Path, house: Skillhouse, given: ClaudeAgentOptions, own_tools: Any, *calls: Any
) -> list[Any]:
    """Have Claude Code make calls in a project, and return the requests that the model got."""

    async def go(url: str) -> None:
        options = replace(given, cwd=base / "project", env=surroundings(url, base))
        options = skillhouse_options(house, options, own_tools=own_tools)
        async with ClaudeSDKClient(options) as client:
            await client.query("go")
            *_, last = [one async for one in client.receive_response()]
            assert isinstance(last, ResultMessage)

    with listening(Loopback(calls, LAST)) as model:
        anyio.run(go, model.url)
    return model.bodies


def records(base: Path) -> list[tuple[str, str, str]]:
    """Return kind, tool and status of each record, oldest first."""
    (log,) = make_places(base).state().rglob("*.jsonl")
    found = [json.loads(line) for line in log.read_text().splitlines()]
    return [(one["kind"], one["tool"], one["status"]) for one in found]


# The SDK says that under `bypassPermissions` only a hook can ask, which is how we ask.
@pytest.mark.filterwarnings("ignore:can_use_tool will not be invoked")
@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
@pytest.mark.parametrize("answer", [allow, deny, fail, None])
def test_its_own_tools_are_behind_the_gate(tmp_path: Path, mode: Any, answer: Any) -> None:
    asked = Asked(answer) if answer else None
    with open_house(tmp_path) as house:
        given = ClaudeAgentOptions(
            can_use_tool=asked, permission_mode=mode, setting_sources=[], skills=[]
        )
        bodies = worked(tmp_path, house, given, "gated", BASH)
        made = (tmp_path / "project/made").exists()
        assert made is (answer is allow)
        if asked is not None:
            # Once, by the gate: Claude Code itself does not ask again.
            assert asked.titles == [("Bash", "exec: touch made")]
        states = {allow: "used", deny: "denied"}.get(answer, "open")
        assert [one[:2] for one in answers(house)] == [("Bash", states)]
        told = json.dumps(bodies[-1]["messages"])
        assert ("not approved" in told) is not made
        assert records(tmp_path)[-1][2] == (
            "ok" if made else "denied" if answer is deny else "pending"
        )


def test_a_denial_by_a_rule_holds_for_its_own_tools(tmp_path: Path) -> None:
    rules = [
        Rule(effect=Effect.DENY, action="exec", pattern="touch *"),
        Rule(effect=Effect.ALLOW, action="write", pattern="*"),
    ]
    with open_house(tmp_path, *rules) as house:
        asked = Asked(allow)
        given = ClaudeAgentOptions(can_use_tool=asked, setting_sources=[])
        poem = {"file_path": str(tmp_path / "project/poem.txt"), "content": "Rain.\n"}
        worked(tmp_path, house, given, "gated", BASH, ("Write", poem))
        assert not (tmp_path / "project/made").exists()
        assert written(tmp_path) == "Rain.\n"
        assert asked.titles == []
        assert ("outcome", "Write", "ok") in records(tmp_path)


@pytest.mark.parametrize(("own_tools", "some"), [("kept", True), ("off", False)])
def test_its_own_tools_are_offered_unless_they_are_off(
    tmp_path: Path, own_tools: str, some: bool
) -> None:
    with open_house(tmp_path) as house:
        given = ClaudeAgentOptions(setting_sources=[])
        bodies = worked(tmp_path, house, given, own_tools, (f"{OURS}skill", {"name": "kestrel"}))
        names = {tool["name"] for body in bodies for tool in body["tools"]}
        assert f"{OURS}write" in names
        assert bool({"Bash", "Write", "Edit"} & names) is some
        # The CLI adds a placeholder for what it loads later.
        others = {name for name in names if not name.startswith(OURS)}
        assert some or others <= {"DeferredToolPlaceholder"}


def tool_of(function: Any) -> SdkMcpTool[Any]:
    async def run(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": function(**arguments)}]}

    taken = [name for name in function.__annotations__ if name != "return"]
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in taken}}
    name = function.__name__.removeprefix("native_")
    return SdkMcpTool(name, str(function.__doc__), {**schema, "required": taken}, run)


def surroundings(url: str, place: Path) -> dict[str, str]:
    return {
        "HOME": str(place),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "DISABLE_AUTOUPDATER": "1",
        # Root may run it in a sandbox only.
        "IS_SANDBOX": "1",
    }
