"""The guide's table of lines: what it takes here, and with what each framework has of its own."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.frontends.adapters.guide import GUIDE
from tests.house.places import write_skill

pytestmark = pytest.mark.slow

OWN = {
    "Pydantic AI": """
from pydantic_ai_skills import SkillsCapability
Agent(capabilities=[SkillsCapability("skills")])
""",
    "LangChain, LangGraph": """
from deepagents import create_deep_agent
from deepagents.backends import FilesystemBackend
create_deep_agent(backend=FilesystemBackend(root_dir=".", virtual_mode=True), skills=["/skills/"])
""",
    "OpenAI Agents SDK": """
from agents.sandbox import SandboxAgent, SandboxRunConfig
from agents.sandbox.capabilities import Capabilities, LocalDirLazySkillSource, Skills
from agents.sandbox.entries import LocalDir
from agents.sandbox.sandboxes.unix_local import UnixLocalSandboxClient
skills = Skills(lazy_from=LocalDirLazySkillSource(source=LocalDir(src=Path("skills"))))
SandboxAgent(name="poet", capabilities=[*Capabilities.default(), skills])
RunConfig(sandbox=SandboxRunConfig(client=UnixLocalSandboxClient()))
""",
    "Microsoft Agent Framework": """
from agent_framework import SkillsProvider
Agent(client, context_providers=[SkillsProvider.from_paths("skills")])
""",
    "Google ADK": """
from google.adk.skills import load_skills_from_dir
from google.adk.tools.skill_toolset import SkillToolset
Agent(name="poet", tools=[SkillToolset(load_skills_from_dir("skills"))])
""",
    "Claude Agent SDK": """
ClaudeAgentOptions(skills="all")
""",
}
"""What each has of its own, tried with the versions that the guide names."""

BARE = {
    "Pydantic AI": "from pydantic_ai import Agent",
    "LangChain, LangGraph": "",
    "OpenAI Agents SDK": "from pathlib import Path\nfrom agents import RunConfig",
    "Microsoft Agent Framework": "from agent_framework import Agent\nclient = None",
    "Google ADK": "from google.adk.agents import Agent",
    "Claude Agent SDK": "from claude_agent_sdk import ClaudeAgentOptions",
}
"""What an agent without skills has as well."""

NEEDED = {
    "Pydantic AI": "pydantic_ai_skills",
    "LangChain, LangGraph": "deepagents",
    "OpenAI Agents SDK": "agents",
    "Microsoft Agent Framework": "agent_framework",
    "Google ADK": "google.adk",
    "Claude Agent SDK": "claude_agent_sdk",
}

HERE = {
    "Pydantic AI": "Agent(model, toolsets=[skillhouse_toolset(Skillhouse())])",
    "LangChain, LangGraph": "create_agent(model, middleware=[skillhouse_middleware(Skillhouse())])",
    "OpenAI Agents SDK": 'Agent("poet", tools=skillhouse_tools(Skillhouse()))',
    "Microsoft Agent Framework": "Agent(c, context_providers=[skillhouse_provider(Skillhouse())])",
    "Google ADK": 'Agent(name="poet", tools=[skillhouse_toolset(Skillhouse())])',
    "Claude Agent SDK": "skillhouse_options(Skillhouse())",
}
"""The line that changes, beside two imports."""


def table() -> dict[str, tuple[int, int]]:
    """Return the guide's lines here and with the framework's own."""
    section = GUIDE.read_text(encoding="utf-8").partition("## Lines of code\n")[2]
    rows = re.findall(r"^\| ([^|]+) \| (\d+) \| (\d+) \|", section, re.MULTILINE)
    return {name: (int(here), int(own)) for name, here, own in rows}


def test_the_table_counts_what_one_writes() -> None:
    counted = {name: (3, len(code.strip().splitlines())) for name, code in OWN.items()}
    assert table() == counted
    guide = GUIDE.read_text(encoding="utf-8")
    for name, line in HERE.items():
        made = re.search(r"skillhouse_\w+", line)
        assert made is not None
        assert name in counted
        assert f"import {made[0]}" in guide


@pytest.mark.parametrize("name", sorted(OWN))
def test_what_a_framework_has_of_its_own_is_written_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    top = NEEDED[name].partition(".")[0]
    if find_spec(top) is None or find_spec(NEEDED[name]) is None:
        pytest.skip(f"`{NEEDED[name]}` is not in this environment")
    write_skill(tmp_path / "skills/kestrel", "Finds nests of falcons.")
    monkeypatch.chdir(tmp_path)
    exec(compile(f"{BARE[name]}\n{OWN[name]}", name, "exec"), {})
