"""The frameworks: where their guide is, what is installed for it, and what stands for the model."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

ADAPTERS = "docs/guides/frameworks.md"
MCP = "docs/guides/any-framework-over-mcp.md"
TYPESCRIPT = "docs/guides/typescript.md"


class Way(enum.StrEnum):
    """How a framework reaches our tools."""

    ADAPTER = "adapter"
    """Python, with an adapter of ours in its process."""
    MCP = "mcp"
    """Python, as a client of `skillhouse mcp`."""
    PACKAGE = "package"
    """Node, with our package and `skillhouse up`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A framework and its example."""

    name: str
    """That of its folder."""
    title: str
    heading: str
    """Of the section in the guide."""
    way: Way
    package: str
    """What the index calls it; its version is the row's."""
    extra: str = ""
    """Of skillhouse, as the guide's install line names it."""
    more: tuple[str, ...] = ()
    """What its example, or a model of the protocol, needs besides."""
    pins: str = "requirements/dev.txt"
    """Where the version is that our tests use."""
    prefix: str = ""
    """What it puts before the names of our tools."""
    models: Mapping[str, str] = field(default_factory=dict)
    """What stands for a model in the example, each once, by what it is to be instead."""
    begins: str = ""
    """Lines before the example, which make a model."""
    ends_by: str = ""
    """A tool that the model calls to say its last words, where words alone do not end a run."""


_AI_SDK = 'import { openai } from "@ai-sdk/openai";\n'
_STRANDS = """\
from strands.models.openai import OpenAIModel
model = OpenAIModel(model_id="gpt-5")
"""
_LLAMA_INDEX = """\
import os
from llama_index.llms.openai import OpenAI
llm = OpenAI(model="gpt-5", api_base=os.environ["OPENAI_BASE_URL"])
"""
_SMOLAGENTS = """\
from smolagents import OpenAIModel
model = OpenAIModel("gpt-5")
"""

FRAMEWORKS = (
    Framework(
        name="pydantic-ai",
        title="Pydantic AI",
        heading="Pydantic AI",
        way=Way.ADAPTER,
        package="pydantic-ai-slim",
        extra="pydantic-ai",
    ),
    Framework(
        name="langchain",
        title="LangChain",
        heading="LangChain and LangGraph",
        way=Way.ADAPTER,
        package="langchain",
        extra="langchain",
    ),
    Framework(
        name="openai-agents",
        title="OpenAI Agents SDK",
        heading="OpenAI Agents SDK",
        way=Way.ADAPTER,
        package="openai-agents",
        extra="openai-agents",
    ),
    Framework(
        name="agent-framework",
        title="Microsoft Agent Framework",
        heading="Microsoft Agent Framework",
        way=Way.ADAPTER,
        package="agent-framework-core",
        extra="agent-framework",
    ),
    Framework(
        name="google-adk",
        title="Google ADK",
        heading="Google ADK",
        way=Way.ADAPTER,
        package="google-adk",
        extra="google-adk",
        pins="requirements/adapter-google-adk.txt",
    ),
    Framework(
        name="crewai",
        title="CrewAI",
        heading="CrewAI",
        way=Way.ADAPTER,
        package="crewai",
        extra="crewai",
        pins="requirements/adapter-crewai.txt",
    ),
    Framework(
        name="claude-agent",
        title="Claude Agent SDK",
        heading="Claude Agent SDK",
        way=Way.ADAPTER,
        package="claude-agent-sdk",
        extra="claude-agent",
        pins="requirements/adapter-claude-agent.txt",
        prefix="mcp__skillhouse__",
    ),
    Framework(
        name="openai",
        title="OpenAI API",
        heading="OpenAI API",
        way=Way.ADAPTER,
        package="openai",
        extra="openai",
    ),
    Framework(
        name="anthropic",
        title="Anthropic API",
        heading="Anthropic API",
        way=Way.ADAPTER,
        package="anthropic",
        extra="anthropic",
    ),
    Framework(
        name="ai-sdk",
        title="AI SDK",
        heading="AI SDK",
        way=Way.PACKAGE,
        package="ai",
        more=("@ai-sdk/openai",),
        pins="typescript/package.json",
        models={'const model = "openai/gpt-5.2";': 'const model = openai("gpt-5.2");'},
        begins=_AI_SDK,
    ),
    Framework(
        name="mastra",
        title="Mastra",
        heading="Mastra",
        way=Way.PACKAGE,
        package="@mastra/core",
        more=("@ai-sdk/openai",),
        pins="typescript/package.json",
        models={'const model = "openai/gpt-5.2";': 'const model = openai("gpt-5.2");'},
        begins=_AI_SDK,
    ),
    Framework(
        name="strands",
        title="Strands",
        heading="Strands",
        way=Way.MCP,
        package="strands-agents",
        more=("openai",),
        pins="requirements/mcp-clients.txt",
        models={"agent = Agent(tools=": "agent = Agent(model=model, tools="},
        begins=_STRANDS,
    ),
    Framework(
        name="llama-index",
        title="LlamaIndex",
        heading="LlamaIndex",
        way=Way.MCP,
        package="llama-index-core",
        more=("llama-index-llms-openai",),
        pins="requirements/mcp-clients.txt",
        begins=_LLAMA_INDEX,
    ),
    Framework(
        name="smolagents",
        title="smolagents",
        heading="smolagents",
        way=Way.MCP,
        package="smolagents",
        more=("openai",),
        pins="",
        begins=_SMOLAGENTS,
        ends_by="final_answer",
    ),
)
