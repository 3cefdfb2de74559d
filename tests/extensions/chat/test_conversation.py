"""Conversations with a scripted model: calls, stops, compaction, resuming."""

from __future__ import annotations

import io
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from tests.frontends.adapters.houses import open_house, written
from tests.house.coded import coded_house, played, tool, write_code
from tests.house.places import write_skill

from skillhouse.audit import KnownSecrets, read_records
from skillhouse.discovery.catalog import LISTED, OVER_MCP, SEARCH_ONLY
from skillhouse.extensions.chat.compaction import texts
from skillhouse.extensions.chat.conversation import ChatConversation
from skillhouse.extensions.chat.marks import SUMMARY
from skillhouse.extensions.chat.models import UsableModel
from skillhouse.extensions.chat.repl import Commands
from skillhouse.extensions.chat.screen import Screen
from skillhouse.extensions.chat.transcript import Transcripts
from skillhouse.house import Skillhouse
from skillhouse.sandbox import SandboxStatus
from skillhouse.tiers.emergency_stop import OwnLine

LOAD = ("skill", {"name": "kestrel"})
WRITE = ("write", {"path": "poem.txt", "content": "Rain.\n"})


class Script:
    """Does one step a request: a tuple is a call, a text is said; keeps what it was sent."""

    def __init__(self, *steps: Any) -> None:
        self.steps = list(steps)
        self.sent: list[list[ModelMessage]] = []
        self.waits = anyio.Event()
        """Set where a step says "…": what was said before it has arrived."""
        self.model = FunctionModel(self.whole, stream_function=self.stream)

    async def whole(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart("They spoke of birds.")])

    async def stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        self.sent.append(messages)
        step = self.steps.pop(0) if self.steps else "done"
        if isinstance(step, tuple):
            made = json.dumps(step[1])
            yield {0: DeltaToolCall(step[0], made, tool_call_id=f"call-{len(self.sent)}")}
            return
        for piece in step.split("|"):
            if piece == "…":
                self.waits.set()
                await anyio.sleep_forever()
            yield piece


def talk(
    house: Skillhouse, script: Script | UsableModel, **more: Any
) -> tuple[ChatConversation, io.StringIO]:
    out = io.StringIO()
    screen = Screen(out, out)
    known = KnownSecrets()
    found = (
        script
        if isinstance(script, UsableModel)
        else UsableModel(model=script.model, reports_end=False)
    )
    return ChatConversation(house, found, screen, session_id="s1", known=known, **more), out


def run(conversation: ChatConversation, *prompts: str) -> Any:
    async def asked() -> Any:
        answered = None
        for prompt in prompts:
            answered = await conversation.ask(prompt)
        await conversation.house.services.release_loop()
        return answered

    return anyio.run(asked)


def parts_of(messages: list[ModelMessage], kind: type[Any]) -> list[Any]:
    return [part for one in messages for part in one.parts if isinstance(part, kind)]


def test_calls_go_through_the_gate_with_the_chats_ids(tmp_path: Path) -> None:
    with open_house(tmp_path) as house:
        conversation, _ = talk(house, Script(LOAD, WRITE, "it waits"))
        answered = run(conversation, "go")
        assert (answered.text, len(answered.pending)) == ("it waits", 1)
        assert written(tmp_path) is None
        records = [found.record for found in read_records(house.audit_log.path)]
        made = {(one.tool, one.channel, one.model.partition(":")[0]) for one in records}
        assert ("skill", "chat", "function") in made
        request = house.approvals.get(answered.pending[0]).request
        assert (request.channel, request.session_id, request.call_id) == ("chat", "s1", "call-2")
        assert request.message_id


def test_what_a_model_says_cannot_act_on_the_terminal(tmp_path: Path) -> None:
    with open_house(tmp_path) as house:
        conversation, out = talk(house, Script("a\x1b[2J|\x9bb\rc"))
        run(conversation, "go")
    assert out.getvalue() == "a\\x1b[2J\\x9bb\\rc\n"


def test_a_stop_keeps_what_was_said_and_the_next_prompt_works(tmp_path: Path) -> None:
    async def stopped(conversation: ChatConversation) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(conversation.ask, "go")
            await script.waits.wait()
            tasks.cancel_scope.cancel()

    with open_house(tmp_path) as house:
        script = Script("I was say|…", "again")
        conversation, _ = talk(house, script)
        anyio.run(stopped, conversation)
        assert run(conversation, "and now?").text == "again"
        assert "I was say" in str(script.sent[1])


@pytest.mark.slow
def test_a_skill_is_not_given_twice(tmp_path: Path) -> None:
    script = Script(LOAD, LOAD, "ok")
    with open_house(tmp_path) as house:
        run(talk(house, script)[0], "go")
    results = [str(part.content) for part in parts_of(script.sent[-1], ToolReturnPart)]
    assert ["Body." in text for text in results] == [True, False]


@pytest.mark.slow
def test_compaction_tears_no_pair_and_keeps_the_skill_and_the_prompt(tmp_path: Path) -> None:
    script = Script(LOAD, "loaded", *(f"{'long ' * 900}{n}" for n in range(12)))
    with open_house(tmp_path) as house:
        conversation, out = talk(house, script, context_tokens=9_000)
        run(conversation, "load it", *(f"prompt {n}" for n in range(12)))
    last = script.sent[-1]
    calls = {part.tool_call_id for part in parts_of(last, ToolCallPart)}
    assert calls == {part.tool_call_id for part in parts_of(last, ToolReturnPart)}
    prompts = [str(part.content) for part in parts_of(last, UserPromptPart)]
    assert prompts[0] == f"{SUMMARY}\nThey spoke of birds."
    assert prompts.count("prompt 11") == 1
    assert sum("Body." in text for text in prompts) == 1
    assert any(mark.startswith("attached-") for mark, _ in texts(last))
    assert "summarised" in out.getvalue()


@pytest.mark.slow
def test_a_resumed_conversation_goes_on_where_it_was(tmp_path: Path) -> None:
    kept = Transcripts(tmp_path / "state")
    made = kept.begin(place="/p", agent="default", model="m")
    with open_house(tmp_path) as house:
        conversation, _ = talk(house, Script(LOAD, "first"), transcript=made)
        run(conversation, "remember falcons")
        made.close()
        before = len(conversation.history)
    with open_house(tmp_path) as house:
        again, found = kept.resume(made.path)
        script = Script("second")
        conversation, _ = talk(house, script, transcript=again)
        conversation.restore(found)
        assert len(conversation.history) == before
        assert [one.name for one in conversation.skills.activations.newest()] == ["kestrel"]
        assert run(conversation, "go on").text == "second"
        assert "remember falcons" in str(script.sent[0])
        again.close()


@pytest.mark.slow
def test_slash_commands(tmp_path: Path) -> None:
    with open_house(tmp_path) as house:
        script = Script("started")
        conversation, out = talk(house, script)
        commands = Commands(conversation, Screen(out, out))

        async def typed() -> None:
            for line in ("/skils", "/cost", "/skills", "/reload-skills", "/kestrel x y", "/stop"):
                await commands.take(line)
            await house.services.release_loop()

        anyio.run(typed)
        told = out.getvalue()
        assert "unknown command `/skils`; did you mean `/skills`" in told
        assert "catalog about" in told
        assert "everything is stopped, 0 calls ended" in told
        silent = OwnLine(house.services.enforcement.tiers.stop_directory)
        silent.write(1, 0)
        anyio.run(commands.take, "/stop")
        silent.close()
        assert f"process {silent.pid} did not end every call within 1 s" in out.getvalue()
        assert house.services.enforcement.tiers.stopped_reason
        assert len(script.sent) == 1
        assert "Body." in str(script.sent[0])


@pytest.mark.slow
@pytest.mark.under("owliabot-js")
@pytest.mark.req("S002-52", "S002-54", "S002-55", "S002-57")
def test_a_reload_in_a_chat_takes_edited_code_and_says_what_fails(
    status: SandboxStatus, tmp_path: Path
) -> None:
    root = tmp_path / "project/workspace/skills"
    gives = "tools = {'tool': lambda params, context: {'gave': '%s'}}\n"
    write_code(root / "one", gives % "old")
    house = coded_house(tmp_path, root, status=status)
    script = Script(("one__tool", {}), "it was old", ("one__tool", {}), "it is new")

    async def scene(house: Skillhouse) -> str:
        conversation, out = talk(house, script)
        commands = Commands(conversation, Screen(out, out))
        await conversation.ask("call it")
        write_code(root / "one", gives % "new")
        write_code(root / "two", gives % "two")
        write_code(root / "lacks", gives % "x", tool("absent"))
        write_code(root / "level", gives % "x", tool(level="root"))
        house.project_trust.trust()
        await commands.take("/reload-skills")
        await conversation.ask("call it again")
        return out.getvalue()

    said = played(house, scene)
    results = [str(part.content) for part in parts_of(script.sent[-1], ToolReturnPart)]
    assert [word in text for word, text in zip(("old", "new"), results, strict=True)] == [True] * 2
    for line in ("  tool: one:tool", "  tool: two:tool", "  failed: lacks:absent: "):
        assert line in said
    assert re.search(r"  failed: .*level.*: .*expected security.level of `tool`", said), said


@pytest.mark.slow
def test_skills_that_lists_leave_out_are_marked_as_list_marks_them(tmp_path: Path) -> None:
    for at in range(600):
        write_skill(tmp_path / f"home/.claude/skills/kite-number-{at:04}", "Builds kites of paper.")
    with open_house(tmp_path) as house:
        conversation, out = talk(house, Script())
        anyio.run(Commands(conversation, Screen(out, out)).take, "/skills")
        view = house.view()
        lines = {line.split()[0].rstrip(":"): line for line in out.getvalue().splitlines()}
        marks = {skill.name: view.mark(skill) for skill in view.visible.skills}
    assert {*marks.values()} == {LISTED, SEARCH_ONLY, SEARCH_ONLY + OVER_MCP}
    for name, mark in marks.items():
        said = "" if mark == LISTED else f" [{mark}]"
        assert lines[name].lstrip().startswith(f"{name}:{said} "), lines[name]


def test_an_unloaded_skill_leaves_the_history(tmp_path: Path) -> None:
    with open_house(tmp_path) as house:
        conversation, _ = talk(house, Script(LOAD, "ok"))
        run(conversation, "go")
        assert conversation.unload("kestrel")
        assert "Body." not in str(conversation.history)
