"""Tests of the fake model and the judges of the seven clients; the clients are run by hand."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from skillhouse.floor.structs import replace
from tests.interop.agents.__main__ import COLUMNS, WORK, Row, table, with_tables, work_table
from tests.interop.agents.clients import CLIENTS
from tests.interop.agents.fake_model import Asked, FakeModel, Step, serving
from tests.interop.agents.judging import (
    Trace,
    Transcript,
    exported,
    gated_and_held,
    gated_and_repeated,
    lists,
    loads,
    transcript,
)
from tests.interop.agents.protocols import Call, Json, Say, speech_of

SECRET, OWLS, BATS = "owl1secret", "owl2word", "owl3word"
ARGUMENTS = {"name": "tides"}


# --- what each client's requests look like, shortened


def chat(*results: str, words: str = "", prefix: str = "skills_") -> Json:
    said: list[Json] = [{"role": "system", "content": words}, {"role": "user", "content": "go"}]
    for result in results:
        said += [{"role": "assistant", "tool_calls": []}, {"role": "tool", "content": result}]
    tools = [
        {"type": "function", "function": {"name": name, "description": SECRET if ours else words}}
        for name, ours in (("bash", False), (f"{prefix}skill", True), (f"{prefix}exec", True))
    ]
    return {"model": "fake", "messages": said, "tools": tools, "stream": True}


def responses(*results: str, words: str = "") -> Json:
    items: list[Json] = [{"type": "message", "content": [{"type": "input_text", "text": words}]}]
    for result in results:
        output = [{"type": "input_text", "text": result}]
        items += [{"type": "function_call"}, {"type": "function_call_output", "output": output}]
    ours = [{"type": "function", "name": name} for name in ("skill", "exec")]
    tools = [
        {"type": "function", "name": "exec_command"},
        {"type": "namespace", "name": "mcp__skills", "tools": ours},
        {"type": "web_search"},
    ]
    return {"model": "fake", "input": items, "tools": tools, "stream": True}


def messages(*results: str, words: str = "") -> Json:
    said: list[Json] = [{"role": "user", "content": words}]
    for result in results:
        content = [{"type": "text", "text": result}]
        said.append({"role": "assistant", "content": [{"type": "tool_use", "name": "x"}]})
        said.append({"role": "user", "content": [{"type": "tool_result", "content": content}]})
    tools = [{"name": n} for n in ("Bash", "mcp__skills__skill", "mcp__skills__exec")]
    return {"model": "claude", "messages": said, "tools": tools, "stream": True}


def contents(*results: str, words: str = "") -> Json:
    said: list[Json] = [{"role": "user", "parts": [{"text": words}]}]
    for result in results:
        parts = [{"functionResponse": {"name": "x", "response": {"output": result}}}]
        said += [{"role": "model", "parts": [{"functionCall": {}}]}, {"parts": parts}]
    tools = [{"name": n} for n in ("glob", "mcp_skills_skill", "mcp_skills_exec")]
    return {"contents": said, "tools": [{"functionDeclarations": tools}]}


KINDS: dict[str, tuple[str, Any]] = {
    "opencode": ("/v1/chat/completions", chat),
    "codex": ("/v1/responses", responses),
    "claude-code": ("/v1/messages", messages),
    "gemini-cli": ("/v1beta/models/x:streamGenerateContent", contents),
    "copilot-cli": ("/v1/chat/completions", partial(chat, prefix="skills-")),
    "qwen-code": ("/v1/chat/completions", partial(chat, prefix="mcp__skills__")),
    "kimi-code-cli": ("/v1/chat/completions", partial(chat, prefix="mcp__skills__")),
}
EVERY = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: str(client.name))


def asked(name: str, *results: str, words: str = "") -> Asked:
    path, request = KINDS[name]
    speech = speech_of(path)
    assert speech is not None
    return Asked(speech=speech, body=request(*results, words=words))


# --- the fake model


@EVERY
def test_a_conversation_is_read_whatever_the_protocol(client: Any) -> None:
    first, last = asked(client.name, words=OWLS), asked(client.name, "one", "two", words=OWLS)
    found = transcript([first, last], client.prefix)
    assert found.offered == {"skill", "exec"}
    assert found.results == ("one", "two")
    assert OWLS in found.own_words


def test_what_our_own_tools_say_is_not_the_client_s() -> None:
    # The description of our tool holds the catalog, and with it what was never exported.
    assert SECRET not in transcript([asked("opencode")], "skills_").own_words


def test_a_response_is_continued_by_its_id() -> None:
    model = FakeModel(steps=())
    first = {"input": "go"}
    answer = {"id": "resp_1", "output": [{"type": "function_call", "call_id": "c"}]}
    model.keep(first, answer)
    result = {"type": "function_call_output", "output": "one"}
    whole = model.taken({"previous_response_id": "resp_1", "input": [result]})
    assert whole["input"] == [{"role": "user", "content": "go"}, *answer["output"], result]
    assert model.taken(first) == first
    with pytest.raises(KeyError):
        model.taken({"previous_response_id": "resp_2", "input": []})


def test_what_smolagents_says_of_a_tool_is_a_result() -> None:
    observed = {"role": "user", "content": [{"type": "text", "text": "Observation:\none"}]}
    body = {"messages": [{"role": "user", "content": "go"}, observed]}
    speech = speech_of("/v1/chat/completions")
    assert speech is not None
    assert speech.results(body) == ("Observation:\none",)


def test_a_request_for_a_title_is_no_turn() -> None:
    title = replace(asked("opencode"), body={"messages": [{"role": "user", "content": OWLS}]})
    assert transcript([title, asked("opencode", "one")], "skills_").results == ("one",)
    assert transcript([title], "skills_") == Transcript()


@EVERY
def test_the_script_goes_by_the_results_in_the_request(client: Any) -> None:
    steps = [Step(tool=client.prefix + name, arguments=ARGUMENTS) for name in ("skill", "exec")]
    model = FakeModel(steps=steps)
    turns = [
        model.turn(one.speech, one.body)
        for one in (asked(client.name, *results) for results in ([], [], ["a"], ["a", "b"]))
    ]
    first = Call(client.prefix + "skill", ARGUMENTS)
    # The same request twice is the same turn: a client that tries again calls nothing twice.
    assert turns == [first, first, Call(client.prefix + "exec", ARGUMENTS), Say("All done: b")]


def test_a_tool_that_is_not_offered_is_not_called() -> None:
    model = FakeModel(steps=[Step(tool="skills_sign", arguments={})])
    one = asked("opencode")
    assert isinstance(model.turn(one.speech, one.body), Say)


@EVERY
def test_a_call_goes_over_the_wire_and_is_kept(client: Any) -> None:
    path, request = KINDS[client.name]
    step = Step(tool=f"{client.prefix}skill", arguments=ARGUMENTS)
    with serving(FakeModel(steps=[step])) as model:
        body = json.dumps(request()).encode()
        with urllib.request.urlopen(urllib.request.Request(model.url + path, body)) as answer:
            lines = answer.read().decode().splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    events = [json.loads(line) for line in data if line != "[DONE]"]
    tool = step.tool.rpartition("::")[2]
    assert any(f'"{tool}"' in json.dumps(event) for event in events)
    assert any("tides" in json.dumps(event) for event in events)
    assert [one.body for one in model.asked] == [request()]
    assert model.results() == ()


def test_a_repeated_call_waits_for_the_person() -> None:
    answered = threading.Event()
    model = FakeModel(steps=[Step(tool="skills_exec", arguments={}, after=answered.wait)])
    one = asked("opencode")
    turns: list[object] = []
    waiting = threading.Thread(target=lambda: turns.append(model.turn(one.speech, one.body)))
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    answered.set()
    waiting.join()
    assert turns == [Call("skills_exec", {})]


def searching(*items: Json) -> Asked:
    """A request of Codex for a model that searches for tools."""
    words = "<tools>\nDeferred tool namespaces:\n- mcp__skills: Load one.\n- other\n</tools>"
    body = responses(words=words)
    tools = [{"type": "function", "name": "exec_command"}, {"type": "tool_search"}]
    one = asked("codex")
    return replace(one, body={**body, "input": [*body["input"], *items], "tools": tools})


def test_a_model_that_searches_finds_a_tool_once() -> None:
    wanted = "mcp__skills::skill"
    model = FakeModel(steps=[Step(tool=wanted, arguments=ARGUMENTS)])
    one = searching()
    call = model.turn(one.speech, one.body)
    assert call == Call("tool_search", {"query": "skill", "limit": 20})
    item = one.speech.answer(one.body, call).whole["output"][0]
    assert (item["type"], item["arguments"]) == ("tool_search_call", dict(call.arguments))
    found = {"type": "namespace", "name": "mcp__skills", "tools": [{"name": "skill"}]}
    for tools, turn in (([found], Call(wanted, ARGUMENTS)), ([], Say("There is no such tool."))):
        two = searching(item, {"type": "tool_search_output", "tools": tools})
        assert two.speech.results(two.body) == ()
        assert model.turn(two.speech, two.body) == turn
    assert transcript([one, two], "mcp__skills::") == Transcript()


# --- the judges


def record(
    tool: str, status: str, number: int, *, on: str = "cli", by: str = "mcp"
) -> dict[str, Any]:
    detail = {"approval": "5c1f", "answered_on": on if status == "ok" else ""}
    inner = {"tool": tool, "seq": number, "channel": by, "detail": detail}
    return {"record": inner, "outcome": None, "status": status}


INSTALL = record("client_config", "ok", 1, by="")
REFUSED = "not approved yet: a rule asks. A person can answer with `… approve 5c1f`"
LOADED = Trace(
    transcript=Transcript(results=(f"# Tides\n{SECRET}",)),
    # Newest first, as the verb prints them.
    records=[record("skill", "ok", 2), INSTALL],
    is_log_whole=True,
)
REPEATED = Trace(
    transcript=Transcript(results=(REFUSED, "./ran-1")),
    records=[record("exec", "ok", 3), record("exec", "pending", 2), INSTALL],
    is_log_whole=True,
    approval="5c1f",
    made=("ran-1",),
)
HELD = replace(
    REPEATED,
    transcript=Transcript(results=("./ran-1",)),
    records=[record("exec", "ok", 2), INSTALL],
)


def with_results(trace: Trace, *results: str) -> Trace:
    return replace(trace, transcript=replace(trace.transcript, results=results))


def test_what_is_right_is_right() -> None:
    assert loads(LOADED, SECRET) == ()
    assert gated_and_repeated(REPEATED) == ()
    assert gated_and_held(HELD) == ()


@pytest.mark.parametrize(
    ("offered", "faults"),
    [
        ({"skill", "exec"}, 0),
        (set(), 1),
        ({"skill"}, 1),
        ({"skill", "exec", "rm"}, 1),
        ({"rm"}, 3),
    ],
)
def test_every_tool_is_offered_and_no_other(offered: set[str], faults: int) -> None:
    found = lists(Transcript(offered=frozenset(offered)), ["skill", "exec"])
    assert len(found) == faults


@pytest.mark.parametrize(
    "wrong",
    [
        with_results(LOADED),
        with_results(LOADED, "no such skill"),
        replace(LOADED, is_log_whole=False),
        replace(LOADED, records=[]),
        replace(LOADED, records=[record("skill", "denied", 2)]),
        replace(LOADED, records=[record("skill", "ok", 3), record("skill", "ok", 2)]),
        replace(LOADED, records=[record("skill", "ok", 2, by="cli")]),
        # The client had it from elsewhere.
        replace(LOADED, transcript=replace(LOADED.transcript, own_words=f"… {SECRET} …")),
    ],
)
def test_a_skill_that_did_not_come_by_our_tool_is_not_loaded(wrong: Trace) -> None:
    assert loads(wrong, SECRET)


@pytest.mark.parametrize(
    "change",
    [
        {"approval": ""},
        {"is_log_whole": False},
        {"made": ()},
        {"made": ("ran-1", "ran-2")},
        # Another file than the one that the model was told of.
        {"made": ("ran-2",)},
        {"made_before": ("ran-1",)},
        {"records": []},
        {"records": [record("exec", "pending", 2)]},
        {"records": [record("exec", "ok", n) for n in (4, 3)] + [record("exec", "pending", 2)]},
        {"records": [record("exec", "ok", 2, on="mcp"), record("exec", "pending", 1)]},
        {"records": [record("exec", "ok", 3), record("exec", "denied", 2)]},
    ],
)
def test_what_is_not_asked_about_and_run_once_does_not_hold(change: dict[str, Any]) -> None:
    assert gated_and_repeated(replace(REPEATED, **change))
    if "records" not in change or len(change["records"]) != 1:
        assert gated_and_held(replace(HELD, **change))


@pytest.mark.parametrize(
    "results", [(), ("./ran-1",), (REFUSED,), ("./ran-1", "./ran-1"), (REFUSED, REFUSED)]
)
def test_a_call_that_was_not_first_pending_was_not_repeated(results: Sequence[str]) -> None:
    assert gated_and_repeated(with_results(REPEATED, *results))


def test_a_pending_that_names_another_question_does_not_hold() -> None:
    other = REFUSED.replace("5c1f", "9d2e")
    assert gated_and_repeated(with_results(REPEATED, other, "./ran-1"))


def test_a_call_that_did_not_wait_was_not_held() -> None:
    assert gated_and_held(REPEATED)
    assert gated_and_held(with_results(HELD, "not approved"))


@pytest.mark.parametrize(
    ("with_it", "without", "holds"),
    [
        (f"{OWLS} {BATS}", "nothing", True),
        (OWLS, "nothing", False),
        (f"{OWLS} {BATS}", OWLS, False),
        # Without anything to compare with, nobody knows.
        (f"{OWLS} {BATS}", "", False),
    ],
)
def test_exported_skills_are_listed_only_after_the_export(
    with_it: str, without: str, holds: bool
) -> None:
    found = exported(Transcript(own_words=with_it), Transcript(own_words=without), [OWLS, BATS])
    assert (not found) is holds


# --- the table


def test_a_client_holds_only_when_every_column_does() -> None:
    work: dict[str, dict[str, tuple[str, ...]]] = {
        subset: dict.fromkeys(columns, ()) for subset, columns in WORK.items()
    }
    good = Row(client=CLIENTS[0], version="1.2", faults=dict.fromkeys(COLUMNS, ()), work=work)
    bad = replace(good, client=CLIENTS[1], faults={**good.faults, "held": ("why",)})
    lazy = replace(good, work={**work, "skills": {**work["skills"], "hidden": ("why",)}})
    assert [lazy.holds(), lazy.holds("calls"), lazy.holds("work")] == [False, True, False]
    assert not replace(good, work={"all": work["all"]}).holds()
    assert " | no | " in work_table([lazy], "skills").splitlines()[-1]
    half = Row(client=CLIENTS[2], version="1.2", faults={"lists": ()})
    absent = Row(client=CLIENTS[3], missing="try npm")
    assert [row.holds() for row in (good, bad, half, absent)] == [True, False, False, False]
    lines = table([good, bad, half, absent]).splitlines()[2:]
    assert lines[0] == f"| {CLIENTS[0].title} 1.2 | yes | yes | yes | yes | yes |"
    assert lines[1] == f"| {CLIENTS[1].title} 1.2 | yes | yes | yes | no | yes |"
    assert lines[2] == f"| {CLIENTS[2].title} 1.2 | yes | – | – | – | – |"
    assert lines[3] == f"| {CLIENTS[3].title} (not installed) | – | – | – | – | – |"


def test_a_page_gets_the_tables_of_a_run_with_their_day() -> None:
    page = "before\n<!-- run calls -->\nOn 2026-01-01:\n\nold\n<!-- end calls -->\nafter\n"
    made = with_tables(page, {"calls": "| new |", "skills": "| shown |"}, "2026-11-29")
    assert made == (
        "before\n<!-- run calls -->\nOn 2026-11-29:\n\n| new |\n<!-- end calls -->\nafter\n"
    )
    assert with_tables(made, {"calls": "| new |"}, "2026-11-29") == made
    first, other = (
        "| client | lists |\n|---|---|\n| A | no |\n| B | yes |",
        "| client | lists |\n|---|---|\n| A | yes |",
    )
    both = with_tables(
        with_tables(page, {"calls": first}, "2026-11-29"), {"calls": other}, "2026-11-29"
    )
    assert "| A | yes |\n| B | yes |\n<!-- end" in both
    # What was seen on another day goes.
    assert "| B |" not in with_tables(both, {"calls": other}, "2026-11-30")
    for name in ("calls", "frameworks"):
        with pytest.raises(ValueError, match="once each on the page"):
            with_tables("no marks", {name: "| new |"}, "2026-11-29")
