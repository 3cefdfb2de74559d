"""Tests of the skills that a person may start, as prompts of the MCP server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, Prompt, PromptArgument, TextContent

from skillhouse.audit import read_records
from skillhouse.frontends.mcp.skill_resources import PAGE_MAX
from skillhouse.frontends.mcp.skills import NOT_APPROVED
from skillhouse.frontends.mcp.tool_list import CHECK_SECONDS, ToolListing
from skillhouse.house import ExtensionSettings
from skillhouse.permission import Effect, Layer, Rule
from tests.approval.questions import question
from tests.frontends.mcp_inside import ERAS, Inside, talk
from tests.frontends.mcp_peer import LEGACY
from tests.house.places import write_skill

EXTENDED = ExtensionSettings(invocation=True, substitution=True, commands=True)
FIX = """---
name: fix
description: Fixes an issue.
argument-hint: "[issue] [branch]"
arguments: issue branch
---
Fix $issue on $branch.
"""


@pytest.fixture
def inside(tmp_path: Path) -> Inside:
    return Inside(tmp_path, extensions=EXTENDED)


def got(inside: Inside, name: str, arguments: dict[str, str], mode: str = "auto") -> str:
    """Return the text of a prompt."""

    async def work(client: Client) -> str:
        [message] = (await client.get_prompt(name, arguments)).messages
        assert message.role == "user"
        assert isinstance(message.content, TextContent)
        return message.content.text

    text: str = talk(inside, work, mode)
    return text


def refused(inside: Inside, name: str, arguments: dict[str, str]) -> MCPError:
    """Return the error that asking for a prompt gives."""

    async def work(client: Client) -> MCPError:
        with pytest.raises(MCPError) as caught:
            await client.get_prompt(name, arguments)
        return caught.value

    error: MCPError = talk(inside, work)
    return error


def skill(inside: Inside, name: str, text: str) -> Path:
    """Write a skill of the user as it is."""
    directory = inside.places.home / ".agents/skills" / name
    directory.mkdir(parents=True)
    (directory / "SKILL.md").write_text(text)
    inside.house.refresh()
    return directory


@pytest.mark.parametrize("mode", ERAS)
def test_what_a_person_may_start_is_listed_with_its_arguments(inside: Inside, mode: str) -> None:
    skill(inside, "fix", FIX)
    hidden = "---\nname: inner\ndescription: D.\nuser-invocable: false\n---\nBody.\n"
    skill(inside, "inner", hidden)

    async def work(client: Client) -> list[Prompt]:
        capabilities = client.server_capabilities
        assert capabilities.prompts is not None
        assert capabilities.prompts.list_changed
        return (await client.list_prompts()).prompts

    found = talk(inside, work, mode)
    assert [prompt.name for prompt in found] == ["fix", "github", "weather", "web-search"]
    assert found[0] == Prompt(
        name="fix",
        description="Fixes an issue.",
        arguments=[
            PromptArgument(name="issue", description="[issue] [branch]", required=False),
            PromptArgument(name="branch", description="[issue] [branch]", required=False),
        ],
    )
    assert found[1].arguments == [PromptArgument(name="arguments", required=False)]


def test_a_prompt_is_one_line_of_a_menu_and_starts_by_it(inside: Inside) -> None:
    words = "Handles invoices. " * 1_000
    skill(inside, "odd", f'---\nname: |\n  odd one\ndescription: "{words}"\n---\nBODY $ARGUMENTS\n')

    async def work(client: Client) -> list[Prompt]:
        return (await client.list_prompts()).prompts

    found = next(one for one in talk(inside, work) if one.name.startswith("odd"))
    assert found.name == "odd one"
    assert found.description is not None
    assert (len(found.description) <= 1_024, found.description[-1]) == (True, "…")
    assert "BODY now" in got(inside, "odd one", {"arguments": "now"})


@pytest.mark.parametrize("mode", ERAS)
def test_a_prompt_is_the_skill_as_a_person_starts_it(inside: Inside, mode: str) -> None:
    skill(inside, "fix", FIX)
    text = got(inside, "fix", {"issue": 'a "b" $(c)', "branch": "main"}, mode)
    assert 'Fix a "b" $(c) on main.' in text
    [record] = [entry.record for entry in read_records(inside.house.audit_log.path)][:1]
    assert (record.tool, record.channel) == ("invoke", "mcp")


def test_what_is_written_after_a_skill_without_names_stays_as_it_is(inside: Inside) -> None:
    skill(inside, "note", "---\nname: note\ndescription: D.\n---\nNote: $ARGUMENTS\n")
    assert "Note: two words 'and more\n" in got(
        inside, "note", {"arguments": "two words 'and more"}
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("fixx", {}, "no prompt `fixx`; did you mean `fix`"),
        ("fix", {"isue": "1"}, "`fix` takes issue, branch, got `isue`"),
        ("fix", {"branch": "main"}, "`fix` needs `issue` as well"),
    ],
)
def test_what_does_not_fit_is_an_error_that_says_what_does(
    inside: Inside, name: str, arguments: dict[str, str], says: str
) -> None:
    skill(inside, "fix", FIX)
    error = refused(inside, name, arguments)
    assert (error.code, error.message) == (INVALID_PARAMS, says)


def test_a_prompt_of_a_skill_that_cannot_be_used_says_why(inside: Inside) -> None:
    skill(inside, "broken", "---\nname: broken\ndescription: x\nmetadata:\n  a: b: c\n---\n")
    error = refused(inside, "broken", {})
    why = "skill `broken` cannot be used: `metadata`: a colon"
    assert error.message.startswith(f"no prompt `broken`: {why}")
    assert "SKILL.md:5" in error.message


@pytest.mark.slow
def test_a_prompt_grants_no_more_than_the_persons_own_start(tmp_path: Path) -> None:
    """Its commands are the agent's calls, and what a rule denies to people stays denied."""
    rule = Rule(effect=Effect.DENY, action="skill", pattern="fix")
    inside = Inside(tmp_path, extensions=EXTENDED, layers=(Layer(name="user", rules=(rule,)),))
    skill(inside, "fix", FIX)
    skill(inside, "run", "---\nname: run\ndescription: D.\n---\n!`touch made`\n")
    assert refused(inside, "fix", {}).code == INVALID_PARAMS
    text = got(inside, "run", {})
    assert 'status="pending"' in text
    assert not (inside.project / "made").exists()


def test_a_skill_that_needs_a_yes_is_an_error_with_the_way_to_give_it(inside: Inside) -> None:
    changed = write_skill(inside.project / ".agents/skills/deploy")
    inside.house.project_trust.trust()
    (changed / "SKILL.md").write_text("---\nname: deploy\ndescription: D.\n---\nOther.\n")
    inside.house.refresh()
    error = refused(inside, "deploy", {})
    assert error.code == NOT_APPROVED
    assert "ask the user to approve " in error.message
    inside.answer()
    assert "Other." in got(inside, "deploy", {})


@pytest.mark.file_state
def test_a_house_whose_state_is_lost_starts_nothing(inside: Inside) -> None:
    changed = write_skill(inside.project / ".agents/skills/deploy")
    inside.house.project_trust.trust()
    (changed / "SKILL.md").write_text("---\nname: deploy\ndescription: D.\n---\nOther.\n")
    inside.house.refresh()
    inside.house.approvals.open(question())
    state = inside.house.config.state_directory / "state.sqlite3"

    async def work(client: Client) -> None:
        for file in state.parent.glob("state.sqlite3*"):
            file.write_bytes(b"no database at all, and long enough to be looked at" * 9)
        with pytest.raises(MCPError, match="the state cannot be used") as caught:
            await client.get_prompt("deploy", {})
        assert caught.value.code == INTERNAL_ERROR

    talk(inside, work)


def test_many_prompts_come_in_pages(inside: Inside) -> None:
    for number in range(PAGE_MAX + 5):
        write_skill(inside.places.home / f".agents/skills/s{number}")
    inside.house.refresh()

    async def work(client: Client) -> list[str]:
        first = await client.list_prompts()
        assert len(first.prompts) == PAGE_MAX
        second = await client.list_prompts(cursor=first.next_cursor)
        assert second.next_cursor is None
        with pytest.raises(MCPError):
            await client.list_prompts(cursor="none of ours")
        return [prompt.name for prompt in (*first.prompts, *second.prompts)]

    names = talk(inside, work)
    assert len(set(names)) == PAGE_MAX + 5 + 3


def test_a_change_of_the_menu_alone_is_noticed(inside: Inside) -> None:
    """The agent sees the same skills; its person may start another."""
    directory = skill(inside, "fix", FIX)
    now = [0.0]
    listing = ToolListing(inside.house, "default", clock=lambda: now[0])
    now[0] += CHECK_SECONDS
    assert not listing.changed_lately()
    (directory / "SKILL.md").write_text(FIX.replace("branch\n---", "base\n---"))
    assert not listing.changed_lately()
    now[0] += CHECK_SECONDS
    assert listing.changed_lately()
    [entry] = [entry for entry in listing.menu() if entry.name == "fix"]
    assert entry.arguments == ("issue", "base")
    assert not listing.changed()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_is_told_that_the_menu_has_changed(inside: Inside, mode: str) -> None:
    told = anyio.Event()

    async def handle(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/prompts/list_changed":
            told.set()

    async with inside.client(mode, message_handler=handle) as client:
        assert "fix" not in [one.name for one in (await client.list_prompts()).prompts]
        if mode == LEGACY:
            skill(inside, "fix", FIX)
            await told.wait()
        else:
            async with client.listen(prompts_list_changed=True) as changes:
                skill(inside, "fix", FIX)
                await anext(aiter(changes))
        assert "fix" in [one.name for one in (await client.list_prompts()).prompts]
