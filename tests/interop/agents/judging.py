"""What the traces of a run show: pure functions, each returning what is wrong, nothing when all is.

A trace is what the model was sent, what lies on the disk, and what the house's audit log holds. One
of them alone can be right by accident.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.interop.agents.fake_model import Asked
from tests.interop.agents.protocols import texts

PENDING = "not approved yet"
"""How the house begins when a call must wait for a person."""
CALLED = ("skill", "exec")
"""The tools that the scripts call; preparing a run is in the log as well, by other names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """What a client said to the model in one run."""

    offered: frozenset[str] = frozenset()
    """Our tools, by our own names, as the first turn offered them."""
    own_words: str = ""
    """The first turn without our tools: what the client itself tells the model."""
    results: tuple[str, ...] = ()
    """The results of the calls, as the last turn held them."""
    words: str = ""
    """All of the last turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What is left of one run."""

    transcript: Transcript
    records: Sequence[Mapping[str, Any]] = ()
    """What `audit list --json` prints."""
    is_log_whole: bool = False
    """What `audit verify` says."""
    approval: str = ""
    """Id of the question that the second process answered."""
    made_before: tuple[str, ...] = ()
    """Files that the gated command had made when the question was answered."""
    made: tuple[str, ...] = ()
    """Those at the end."""


def transcript(asked: Sequence[Asked], prefix: str) -> Transcript:
    """Read the requests of one run; those that do not offer our tools, as for titles, are left out.

    Args:
        asked: Every request, oldest first.
        prefix: What the client puts before our tools' names.
    """
    turns = [one for one in asked if described(one, prefix)]
    if not turns:
        return Transcript()
    first = turns[0]
    theirs = [tool for name, tool in _offered(first) if not name.startswith(prefix)]
    rest = {key: value for key, value in first.body.items() if key != "tools"}
    return Transcript(
        offered=frozenset(described(first, prefix)),
        own_words=json.dumps([rest, theirs], ensure_ascii=False),
        results=turns[-1].speech.results(turns[-1].body),
        words=json.dumps(turns[-1].body, ensure_ascii=False),
    )


def described(one: Asked, prefix: str) -> dict[str, str]:
    """Return the description of each tool of ours; it is empty for one that is only named.

    Args:
        one: A request.
        prefix: What the client puts before our tools' names.
    """
    found = dict.fromkeys(one.speech.deferred(one.body), "")
    found |= {name: _description(tool) for name, tool in _offered(one)}
    return {
        name.removeprefix(prefix): text for name, text in found.items() if name.startswith(prefix)
    }


def words_of(one: Asked) -> str:
    """Return every text of a request, a definition of a tool being its description alone.

    Lines begin without blanks: opencode indents what servers say of themselves. Codex has that as
    the description of a namespace.
    """
    rest = {key: value for key, value in one.body.items() if key != "tools"}
    spaces = [_description(tool) for tool in one.body.get("tools") or () if "tools" in tool]
    found = [texts(rest), *spaces, *(_description(tool) for _, tool in _offered(one))]
    return re.sub(r"\n[ \t]+", "\n", "\n".join(found))


def _description(tool: Mapping[str, Any]) -> str:
    return str(tool.get("function", tool).get("description") or "")


def lists(found: Transcript, expected: Collection[str]) -> tuple[str, ...]:
    """Judge whether the model was offered exactly the tools that the house has."""
    if not found.offered:
        return ("the model was offered none of our tools",)
    missing, more = set(expected) - found.offered, found.offered - set(expected)
    return (
        *(f"`{name}` was not offered" for name in sorted(missing)),
        *(f"`{name}` is none of the house's tools" for name in sorted(more)),
    )


def loads(trace: Trace, secret: str) -> tuple[str, ...]:
    """Judge whether the body of a skill came back, by our tool and once."""
    faults = []
    if not any(secret in result for result in trace.transcript.results):
        faults.append(f"no result holds the body: {_short(trace.transcript.results)}")
    if secret in trace.transcript.own_words:
        faults.append("the body was there before anything loaded it")
    if _statuses(trace, "skill") != ["ok"]:
        faults.append(f"expected one `skill` call that ran, got {_statuses(trace, 'skill')}")
    return (*faults, *_log(trace))


def exported(with_it: Transcript, without: Transcript, markers: Sequence[str]) -> tuple[str, ...]:
    """Judge whether the client itself lists what was exported, and only then.

    Args:
        with_it: A run after the export.
        without: A run in a home that nothing was exported to.
        markers: A word of each exported description.
    """
    if not without.own_words:
        return ("there is no run without the export to compare with",)
    return (
        *(f"{one!r} is not listed" for one in markers if one not in with_it.own_words),
        *(f"{one!r} is listed without the export" for one in markers if one in without.own_words),
    )


def gated_and_repeated(trace: Trace) -> tuple[str, ...]:
    """Judge a call that is pending, answered by another process, repeated, and then run once."""
    results = trace.transcript.results
    faults = []
    if len(results) != 2:
        faults.append(f"expected two results, got {len(results)}: {_short(results)}")
    elif PENDING not in results[0] or not trace.approval or trace.approval not in results[0]:
        faults.append(f"the first result names no open question: {_short(results[:1])}")
    # A client of protocol 2026-07-28 repeats a pending call by itself, to answer its question.
    statuses = _statuses(trace, "exec")
    if statuses not in (["pending", "ok"], ["pending", "pending", "ok"]):
        faults.append(f"expected `exec` pending and then ok, got {statuses}")
    return (*faults, *_ran_once(trace), *_log(trace))


def gated_and_held(trace: Trace) -> tuple[str, ...]:
    """Judge a call that waits, is answered by another process meanwhile, and runs once."""
    results = trace.transcript.results
    faults = []
    if len(results) != 1:
        faults.append(f"expected one result, got {len(results)}: {_short(results)}")
    if _statuses(trace, "exec") != ["ok"]:
        faults.append(f"expected one `exec` that ran, got {_statuses(trace, 'exec')}")
    return (*faults, *_ran_once(trace), *_log(trace))


def _ran_once(trace: Trace) -> tuple[str, ...]:
    faults = []
    if not trace.approval:
        faults.append("the second process found no question")
    if trace.made_before:
        faults.append(f"it ran before anybody agreed: {_short(trace.made_before)}")
    if len(trace.made) != 1:
        faults.append(f"expected one file that the command made, got {_short(trace.made)}")
    elif not any(trace.made[0] in result for result in trace.transcript.results[-1:]):
        faults.append("the model was not told what the command printed")
    done = [one["record"] for one in trace.records if _is_of(one, "exec") and one["status"] == "ok"]
    for record in done:
        detail = record["detail"]
        if (detail.get("approval"), detail.get("answered_on")) != (trace.approval, "cli"):
            faults.append(f"it did not run by the second process's answer: {detail}")
    return tuple(faults)


def _log(trace: Trace) -> tuple[str, ...]:
    calls = [one for one in trace.records if any(_is_of(one, tool) for tool in CALLED)]
    channels = {one["record"]["channel"] for one in calls}
    faults = [] if trace.is_log_whole else ["the audit log is not whole"]
    if channels - {"mcp"}:
        faults.append(f"calls came by another way than MCP: {sorted(channels)}")
    return tuple(faults)


def _statuses(trace: Trace, tool: str) -> list[str]:
    """Return the status of each call of a tool, oldest first."""
    found = [one for one in trace.records if _is_of(one, tool)]
    return [one["status"] for one in sorted(found, key=lambda one: int(one["record"]["seq"]))]


def _is_of(one: Mapping[str, Any], tool: str) -> bool:
    return bool(one["record"]["tool"] == tool)


def _offered(one: Asked) -> list[tuple[str, dict[str, Any]]]:
    return list(one.speech.offered(one.body))


def _short(values: Sequence[str]) -> str:
    return ", ".join(repr(value[:120]) for value in values) or "nothing"
