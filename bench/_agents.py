"""One agent of one framework before a model on loopback, for bench/adapters.py.

`_agents.py FRAMEWORK ours|native|skills skill|parallel FOLDER` prints requests, bytes, seconds, and
how many skills the first request names.
"""

# ruff: noqa: PLC0415 - each framework may be in an environment of its own.

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.frontends.adapters.loopback import Call, Loopback, listening

from skillhouse.house import Locations, Skillhouse, configured

CALLS = 100
LAST = "Done."
READ: Call = ("read", {"path": "note.txt"})
LOADS: Mapping[str, Call] = {
    "ours": ("skill", {"name": "bird-7"}),
    "native": READ,
    "agent-framework": ("load_skill", {"skill_name": "bird-7"}),
    "google-adk": ("load_skill", {"skill_name": "bird-7"}),
    "pydantic-ai": ("load_capability", {"id": "bird-7"}),
    "langchain": ("read_file", {"file_path": "/skills/bird-7/SKILL.md"}),
    "claude-agent": ("Skill", {"skill": "bird-7"}),
}
"""How a skill is loaded; native tools read a file instead."""
PREFIX = "mcp__skillhouse__"

Agent = Callable[[], Awaitable[Any]]
"""Runs one turn of an agent."""


def read(path: str) -> str:
    """Read a file."""
    return Path(path).read_text(encoding="utf-8")


def main(framework: str, kind: str, case: str, folder: str) -> None:
    base = Path(folder)
    name, given = READ
    calls = [LOADS[framework if kind == "skills" else kind]]
    if case == "parallel":
        calls = [(name, given)] * CALLS
    if framework == "claude-agent" and kind != "skills":
        calls = [(PREFIX + called, arguments) for called, arguments in calls]
    found = asyncio.run(measured(framework, kind, base, calls))
    print(json.dumps(found))


async def measured(framework: str, kind: str, base: Path, calls: list[Call]) -> dict[str, float]:
    model = Loopback(calls, LAST)
    with listening(model), house_in(base) as house:
        async with AsyncExitStack() as stack:
            make = AGENTS[framework]
            agent = await make(stack, model.url, kind, base, house)
            await agent()
            # The first turn loads modules; the second one counts.
            first = json.dumps(model.bodies[0]).replace("\\n", "\n")
            model.bodies.clear()
            began = time.perf_counter()
            await agent()
            seconds = time.perf_counter() - began
    sent = json.dumps(model.bodies[-1])
    if len(calls) == CALLS:
        assert sent.count("A note.") == CALLS
    elif kind != "native":
        assert "A line of instructions." in sent
    return {
        "requests": len(model.bodies),
        "bytes": sum(len(json.dumps(body)) for body in model.bodies),
        "named": sum(is_named(one.name, first) for one in (base / "skills").iterdir()),
        "seconds": seconds,
    }


def is_named(name: str, text: str) -> bool:
    """Whether a text has a skill's name, and not only in a path."""
    return re.search(rf"(?<![\w/.-]){re.escape(name)}(?![\w-])", text) is not None


def house_in(base: Path) -> Skillhouse:
    places = Locations(
        start=base / "project", home=base / "home", environment={}, managed_file=base / "none"
    )
    return Skillhouse(configured(places), roots=[base / "skills"])


async def pydantic_ai(
    stack: AsyncExitStack, url: str, kind: str, base: Path, house: Skillhouse
) -> Agent:
    from openai import AsyncOpenAI
    from pydantic_ai import Agent as PydanticAgent
    from pydantic_ai import Tool
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    api = await stack.enter_async_context(AsyncOpenAI(api_key="none", base_url=url))
    model = OpenAIResponsesModel("fake", provider=OpenAIProvider(openai_client=api))
    if kind == "native":
        agent = PydanticAgent(model, tools=[Tool(read)])
    elif kind == "skills":
        from pydantic_ai_skills import SkillsCapability

        own = SkillsCapability(directories=[base / "skills"])
        agent = PydanticAgent(model, capabilities=[own])
    else:
        from skillhouse.frontends.adapters.pydantic_ai import skillhouse_toolset

        agent = PydanticAgent(model, toolsets=[skillhouse_toolset(house, ask=False)])
    return lambda: agent.run("go")


async def langchain(
    stack: AsyncExitStack, url: str, kind: str, base: Path, house: Skillhouse
) -> Agent:
    from langchain_core.tools import StructuredTool
    from langchain_openai import ChatOpenAI

    del stack
    model: Any = ChatOpenAI(model="fake", api_key="none", base_url=url, use_responses_api=True)  # type: ignore[arg-type]
    agent: Any
    if kind == "skills":
        from deepagents import create_deep_agent
        from deepagents.backends import FilesystemBackend

        backend = FilesystemBackend(root_dir=str(base), virtual_mode=True)
        agent = create_deep_agent(model=model, skills=["/skills/"], backend=backend)
    else:
        from langchain.agents import create_agent

        from skillhouse.frontends.adapters.langchain import skillhouse_middleware

        if kind == "native":
            agent = create_agent(model, [StructuredTool.from_function(read)])
        else:
            agent = create_agent(model, middleware=[skillhouse_middleware(house)])
    return lambda: agent.ainvoke({"messages": "go"}, {"recursion_limit": 50})


async def openai_agents(
    stack: AsyncExitStack, url: str, kind: str, base: Path, house: Skillhouse
) -> Agent:
    from agents import Agent as OpenAIAgent
    from agents import OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    from skillhouse.frontends.adapters.openai_agents import skillhouse_tools

    del base
    set_tracing_disabled(True)
    api = await stack.enter_async_context(AsyncOpenAI(api_key="none", base_url=url))
    tools: list[Any] = [function_tool(read)] if kind == "native" else skillhouse_tools(house)
    agent = OpenAIAgent("poet", tools=tools, model=OpenAIResponsesModel("fake", api))
    return lambda: Runner.run(agent, "go")


async def agent_framework(
    stack: AsyncExitStack, url: str, kind: str, base: Path, house: Skillhouse
) -> Agent:
    from agent_framework import Agent as MicrosoftAgent
    from agent_framework import SkillsProvider, tool
    from agent_framework.openai import OpenAIChatClient
    from openai import AsyncOpenAI

    from skillhouse.frontends.adapters.agent_framework import skillhouse_provider

    api = await stack.enter_async_context(AsyncOpenAI(api_key="none", base_url=url))
    client = OpenAIChatClient("fake", async_client=api)
    if kind == "native":
        agent = MicrosoftAgent(client, tools=[tool(read)])
    elif kind == "skills":
        own = SkillsProvider.from_paths(base / "skills", disable_load_skill_approval=True)
        agent = MicrosoftAgent(client, context_providers=[own])
    else:
        agent = MicrosoftAgent(client, context_providers=[skillhouse_provider(house)])
    # A conversation that the service keeps is sent in parts; each framework sends the whole here.
    return lambda: agent.run("go", options={"store": False})


async def google_adk(
    stack: AsyncExitStack, url: str, kind: str, base: Path, house: Skillhouse
) -> Agent:
    from google.adk.agents import Agent as GoogleAgent
    from google.adk.models.google_llm import Gemini
    from google.adk.runners import InMemoryRunner
    from google.adk.skills import load_skills_from_dir
    from google.adk.tools.function_tool import FunctionTool
    from google.adk.tools.skill_toolset import SkillToolset
    from google.genai import Client
    from google.genai.types import Content, Part

    from skillhouse.frontends.adapters.google_adk import skillhouse_toolset

    client = stack.enter_context(Client(api_key="none", http_options={"base_url": url}))
    tools: list[Any] = [skillhouse_toolset(house)]
    if kind == "native":
        tools = [FunctionTool(read)]
    elif kind == "skills":
        skills = load_skills_from_dir(base / "skills")
        tools = [SkillToolset(list(getattr(skills, "values", lambda: skills)()))]
    agent = GoogleAgent(name="poet", model=Gemini(model="fake", client=client), tools=tools)
    runner = InMemoryRunner(agent=agent, app_name="talk")
    stack.push_async_callback(client.aio.aclose)
    go = Content(role="user", parts=[Part(text="go")])

    async def turn() -> None:
        session = await runner.session_service.create_session(app_name="talk", user_id="u")
        run = runner.run_async(user_id="u", session_id=session.id, new_message=go)
        assert [event async for event in run]

    return turn


async def claude_agent(
    stack: AsyncExitStack, url: str, kind: str, base: Path, house: Skillhouse
) -> Agent:
    from claude_agent_sdk import ClaudeAgentOptions, SdkMcpTool, create_sdk_mcp_server, query

    from skillhouse.frontends.adapters.claude_agent import skillhouse_options

    del stack

    async def run(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": read(**arguments)}]}

    environment = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "HOME": str(base / "home"),
        "IS_SANDBOX": "1",
    }
    # Claude Code's own tools stay out of all three.
    options = ClaudeAgentOptions(
        env=environment, cwd=base / "project", setting_sources=[], tools=[]
    )
    if kind == "skills":
        options.skills, options.tools, options.setting_sources = "all", ["Skill"], ["user"]
    elif kind == "native":
        schema = {"type": "object", "properties": {"path": {"type": "string"}}}
        server = create_sdk_mcp_server(
            "skillhouse", tools=[SdkMcpTool("read", "Read.", schema, run)]
        )
        options.mcp_servers = {"skillhouse": {**server, "alwaysLoad": True}}
        options.allowed_tools = [f"{PREFIX}read"]
    else:
        options = skillhouse_options(house, options)

    async def turn() -> None:
        assert [message async for message in query(prompt="go", options=options)]

    return turn


async def openai(
    stack: AsyncExitStack, url: str, kind: str, base: Path, house: Skillhouse
) -> Agent:
    from openai import AsyncOpenAI

    from skillhouse.frontends.adapters.openai import skillhouse_outputs_async, skillhouse_tools

    del base
    api = await stack.enter_async_context(AsyncOpenAI(api_key="none", base_url=url))
    native = [{"type": "function", "name": "read", "parameters": {"type": "object"}}]

    async def turn() -> None:
        said: list[Any] = [{"role": "user", "content": "go"}]
        tools: Any = native if kind == "native" else skillhouse_tools(house)
        answer = await api.responses.create(model="fake", input=said, tools=tools)
        calls: list[Any] = list(answer.output)
        if kind == "native":
            said += [call.model_dump(exclude_none=True) for call in calls]
            for call in calls:
                text = read(**json.loads(call.arguments))
                result = {"type": "function_call_output", "call_id": call.call_id, "output": text}
                said.append(result)
        else:
            said += await skillhouse_outputs_async(house, answer)
        await api.responses.create(model="fake", input=said, tools=tools)

    return turn


async def anthropic(
    stack: AsyncExitStack, url: str, kind: str, base: Path, house: Skillhouse
) -> Agent:
    from anthropic import AsyncAnthropic

    from skillhouse.frontends.adapters.anthropic import skillhouse_outputs_async, skillhouse_tools

    del base
    api = await stack.enter_async_context(AsyncAnthropic(api_key="none", base_url=url))
    native = [{"name": "read", "input_schema": {"type": "object"}}]

    async def turn() -> None:
        said: list[Any] = [{"role": "user", "content": "go"}]
        tools: Any = native if kind == "native" else skillhouse_tools(house)
        rest: Any = {"model": "fake", "max_tokens": 9, "messages": said, "tools": tools}
        answer = await api.messages.create(**rest)
        if kind == "native":
            blocks: list[Any] = list(answer.content)
            results = [
                {"type": "tool_result", "tool_use_id": one.id, "content": read(**one.input)}
                for one in blocks
            ]
            calls = [one.model_dump(exclude_none=True) for one in blocks]
            said += [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]
        else:
            said += await skillhouse_outputs_async(house, answer)
        await api.messages.create(**rest)

    return turn


AGENTS: Mapping[str, Callable[..., Awaitable[Agent]]] = {
    "pydantic-ai": pydantic_ai,
    "langchain": langchain,
    "openai-agents": openai_agents,
    "agent-framework": agent_framework,
    "google-adk": google_adk,
    "claude-agent": claude_agent,
    "openai": openai,
    "anthropic": anthropic,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
