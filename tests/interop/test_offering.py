"""Tests of what is read from a client's first request; the clients are run by hand."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from skillhouse.floor.structs import replace
from skillhouse.skill import parse
from tests.interop.agents.__main__ import COLUMNS, WORK, Row, offers_table
from tests.interop.agents.clients import CLIENTS
from tests.interop.agents.fake_model import Asked, FakeModel, Step
from tests.interop.agents.judging import described, transcript
from tests.interop.agents.offering import Offer, made_up, named_only, offer, sampled
from tests.interop.agents.protocols import SEARCH, TOOL_SEARCH, Call, Json, Say, speech_of

PREFIX = "mcp__skills__"
REMINDER = (
    f"<system-reminder>\nDeferred:\nCronList\n{PREFIX}skill\n{PREFIX}exec\n</system-reminder>"
)
KNOWN = {f"skill-{n}": f"Counts the owls of barn {n}. Use it at night." for n in range(30)}
SENT = {"instructions": "Skills guide through tasks. Load one.", "exec": "Runs."}
TOOLS = ("skill", "exec")


def request(*blocks: Json, tools: tuple[Json, ...] = (), words: str = REMINDER) -> Asked:
    speech = speech_of("/v1/messages")
    assert speech is not None
    said = [{"role": "user", "content": [{"type": "text", "text": words}]}]
    said += [{"role": "user", "content": [block]} for block in blocks]
    return Asked(speech=speech, body={"messages": said, "tools": [{"name": SEARCH}, *tools]})


def ours(catalog: str) -> tuple[Json, ...]:
    """Our two tools; the first has the catalog behind its description."""
    return (
        {"name": f"{PREFIX}skill", "description": f"Loads.\n{catalog}"},
        {"name": f"{PREFIX}exec", "description": "Runs."},
    )


def lines(count: int) -> str:
    return "\n".join(f"skill-{n}: Counts the owls of barn {n}." for n in range(count))


def found(one: Asked, sent: dict[str, str] = SENT) -> Offer:
    return offer([one], PREFIX, KNOWN, sent, TOOLS)


# --- tools that are only named


def test_a_deferred_tool_is_offered_and_has_no_description() -> None:
    one = request()
    assert described(one, PREFIX) == {"skill": "", "exec": ""}
    assert transcript([one], PREFIX).offered == {"skill", "exec"}
    # Without the tool that describes others, a name in a text is a word.
    plain = replace(one, body={**one.body, "tools": []})
    assert described(plain, PREFIX) == {}


def test_the_model_asks_for_a_deferred_tool_once_and_then_calls_it() -> None:
    step = Step(tool=f"{PREFIX}skill", arguments={"name": "tides"})
    model = FakeModel(steps=(step,))
    query = {"query": f"select:{step.tool}", "max_results": 1}
    search = {"type": "tool_use", "id": "a", "name": SEARCH, "input": query}
    answer = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "tool_reference"}]}
    call = {"type": "tool_use", "id": "b", "name": step.tool, "input": {}}
    body = {"type": "tool_result", "tool_use_id": "b", "content": "High water."}
    first, again = request(), request(search, answer)
    loaded = request(search, answer, tools=ours(""))
    last = request(search, answer, call, body, tools=ours(""))
    assert [model.turn(one.speech, one.body) for one in (first, again, loaded, last)] == [
        Call(SEARCH, query),
        Say("There is no such tool."),
        Call(step.tool, {"name": "tides"}),
        Say("All done: High water."),
    ]


# --- what is shown


def test_what_is_whole_has_no_faults() -> None:
    catalog = "10 more: `search_skills`\n" + lines(20)
    one = request(tools=ours(catalog), words=SENT["instructions"])
    seen = found(one, {**SENT, "skill": f"Loads.\n{catalog}"})
    assert seen == Offer(
        skills=30,
        tools=2,
        description_chars=len(f"Loads.\n{catalog}Runs."),
        instructions_chars=len(SENT["instructions"]),
        catalog_chars=seen.catalog_chars,
        shown=20,
    )
    assert 20 * 33 < seen.catalog_chars < 20 * 40


@pytest.mark.parametrize(
    ("catalog", "words", "fault"),
    [
        ("11 more: `search_skills`\n" + lines(19), "", "at least 20 skills"),
        (lines(20), "", "is not said"),
        ("10 more: `search_skills`\n" + lines(20)[:-9], "", "cut without a mark"),
        ("10 more: `search_skills`\n" + lines(20), SENT["instructions"][:30], "after 30 char"),
    ],
)
def test_what_is_missing_or_cut_is_said(catalog: str, words: str, fault: str) -> None:
    one = request(tools=ours(catalog), words=words)
    seen = found(one, {**SENT, "skill": f"Loads.\n{catalog}"})
    assert [text for text in seen.faults if fault in text], seen.faults


def test_a_description_that_the_client_cut_is_said() -> None:
    catalog = "10 more: `search_skills`\n" + lines(20)
    seen = found(request(tools=ours(catalog)), {**SENT, "skill": f"Loads.\n{catalog} And more."})
    assert [text for text in seen.faults if text.startswith("the description of `skill` is cut")]


def test_a_mark_and_xml_are_understood() -> None:
    xml = "".join(
        f"<skill><name>{name}</name>\n<description>{text}</description></skill>"
        for name, text in KNOWN.items()
    )
    assert found(request(tools=ours(xml))).shown == 30
    marked = "\n".join(f"{name}: Counts the owls…" for name in KNOWN)
    seen = found(
        request(tools=ours(marked)), {**SENT, "skill": f"Loads.\n{marked}".replace("…", "...")}
    )
    assert (seen.shown, seen.faults) == (30, ())
    # A line of another program's with a name of ours.
    assert found(request(tools=ours("skill-1: no owl anywhere"))).shown == 0


def test_without_our_tools_nothing_is_shown() -> None:
    seen = found(request(words="CronList"))
    assert seen == Offer(skills=30, faults=("the model was offered none of our tools",))


# --- skills to be shown


def test_made_up_and_sampled_skills_are_valid(tmp_path: Path) -> None:
    file = tmp_path / "sample.jsonl.gz"
    rows: list[dict[str, Any]] = [
        {"path": "a/owls/SKILL.md", "text": "---\nname: owls\ndescription: Counts.\n---\n"},
        {"path": "b/owls/SKILL.md", "text": "---\nname: owls\ndescription: Again.\n---\n"},
        {"path": "c/bats/SKILL.md", "text": "---\nname: other\ndescription: Counts.\n---\n"},
    ]
    with gzip.open(file, "wt") as out:
        for row in rows:
            text = base64.b64encode(row["text"].encode()).decode()
            out.write(json.dumps({"path": row["path"], "skill_md_b64": text}) + "\n")
    assert list(sampled(file, 5)) == [("owls", rows[0]["text"])]
    texts = dict(made_up(50))
    assert len(texts) == 50
    for name, text in texts.items():
        result = parse(text.encode(), directory=name)
        assert (result.skill is not None, result.diagnostics) == (True, ())


def test_the_table_has_a_row_for_each_number_of_skills() -> None:
    seen = Offer(skills=1_294, tools=9, deferred=7, shown=30, faults=("why",))
    row = Row(client=CLIENTS[0], version="2.1", offers=[replace(seen, faults=()), seen])
    title = f"| {CLIENTS[0].title} 2.1 | 1,294 | 9, 7 of them by name only | 0 | 0 | 0 | 30 | 0 |"
    assert offers_table([row]).splitlines()[2:] == [f"{title} yes |", f"{title} no |"]
    faults: dict[str, tuple[str, ...]] = dict.fromkeys(COLUMNS, ())
    work: dict[str, dict[str, tuple[str, ...]]] = {
        subset: dict.fromkeys(columns, ()) for subset, columns in WORK.items()
    }
    whole = replace(row, faults=faults, work=work)
    assert not whole.holds()
    assert replace(whole, offers=row.offers[:1]).holds()


# --- a client that names our tools as a group


def test_the_first_line_is_all_that_such_a_model_gets() -> None:
    speech = speech_of("/v1/responses")
    assert speech is not None
    known = {"owls": "Counts owls.", "bats": "Counts bats.", "elks": "Counts elks."}

    def seen(line: str, arrived: str) -> Offer:
        text = f"<tools>\nDeferred tool namespaces:\n- mcp__skills: {arrived}\n</tools>"
        body = {"input": [{"type": "message", "content": text}], "tools": [{"type": TOOL_SEARCH}]}
        sent = {"instructions": f"{line}\nowls: Counts owls."}
        return named_only([Asked(speech=speech, body=body)], "mcp__skills", known, sent)

    good = "Load the one that fits: owls, bats, 1 more."
    right = Offer(skills=3, shown=2, catalog_chars=8, instructions_chars=len(good))
    assert seen(good, good) == right
    assert len(seen(good, good[:-9] + "...").faults) == 1
    assert len(seen("Load one.", "Load one.").faults) == 2
    assert len(seen(good.replace("1 more", "more"), good.replace("1 more", "more")).faults) == 1
    assert named_only([], "mcp__skills", known, {}).faults
