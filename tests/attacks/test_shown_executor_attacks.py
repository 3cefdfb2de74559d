"""Attacks by executors with what they say: of themselves, of others, and of how far a call is.

Each is shown on the naive version first: what one would write that believes them.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest

from skillhouse.extensions.cells import (
    Capabilities,
    ExecutorPool,
    RpcClient,
    RpcError,
    core_methods,
)
from skillhouse.extensions.cells.cell import ASKED_MOST
from skillhouse.sandbox.code_call import ExecutorState
from tests.executors import Answer, answering
from tests.extensions.cells.lab import Core
from tests.extensions.server.pages.test_system_page import (
    client_of,
    executors_of,
    house_with_executors,
)

TOKEN = "token-of-the-one-core"
SCRIPT = "<img src=x onerror=alert(1)>"


def health_of(**said: Any) -> Answer:
    """Return an executor that answers every request with this."""

    def answer(asked: dict[str, Any], _: dict[str, str]) -> tuple[int, Any]:
        return 200, {"jsonrpc": "2.0", "result": {"status": "ok", **said}, "id": asked["id"]}

    return answer


def states_at(*addresses: str) -> list[ExecutorState]:
    async def look() -> list[ExecutorState]:
        pool = ExecutorPool([RpcClient(url, TOKEN) for url in addresses])
        return list(await pool.states("python"))

    return anyio.run(look)


@pytest.mark.slow
def test_html_in_the_words_of_an_executor_is_not_on_the_page(tmp_path: Path) -> None:
    said: Mapping[str, Any] = {"name": SCRIPT, "version": f"1{SCRIPT}", "level": SCRIPT}
    # What would be shown by one that puts values into its page as they are.
    assert SCRIPT in "<td>{name} {version}</td>".format_map(said)
    with answering(health_of(**said)) as address, house_with_executors(tmp_path, address) as house:
        client = client_of(house)
        page = client.get("/system").text
        [found] = client.get("/api/v1/executors").json()["executors"]
    assert "onerror" not in page
    [row] = executors_of(page)
    assert row[0].endswith("without a name python")
    assert (found["name"], found["version"], found["level"]) == ("", "", "")
    # The reason why it takes nothing is text of its own, and stays text.
    (tmp_path / "2").mkdir()

    def refuses(asked: dict[str, Any], _: dict[str, str]) -> tuple[int, Any]:
        error = {"code": -32000, "message": f"{SCRIPT}\x1b[2J\u202e{'x' * 9_000}"}
        return 200, {"jsonrpc": "2.0", "error": error, "id": asked["id"]}

    with answering(refuses) as address, house_with_executors(tmp_path / "2", address) as house:
        page = client_of(house).get("/system").text
    assert SCRIPT not in page
    [row] = executors_of(page)
    assert SCRIPT in row[1]
    assert not set("\x1b\u202e") & set(page)
    assert len(row[1]) < 300


@pytest.mark.parametrize(
    "said",
    [
        {"calls": -5, "most": 10**30},
        {"calls": True, "most": "<b>9"},
        {"calls": 1.5, "most": None},
        {"calls": [0], "most": {"n": 1}},
    ],
)
def test_a_capacity_that_is_none_is_not_shown(said: dict[str, Any]) -> None:
    with answering(health_of(**said, is_ready="yes", is_ending=1)) as address:
        [state] = states_at(address)
    assert (state.calls, state.most) == (None, None)
    assert state.state == "ready"


def test_who_says_that_it_has_all_the_room_gets_no_more_calls_for_it() -> None:
    taken: Counter[str] = Counter()
    said = {"liar": {"calls": 0, "most": 1_000_000}, "honest": {"calls": 7, "most": 8}}

    def counted(name: str) -> Answer:
        def answer(asked: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
            if asked["method"] != "health":
                taken[name] += 1
                time.sleep(0.1)
            return health_of(**said[name])(asked, headers)

        return answer

    async def many(pool: ExecutorPool) -> None:
        await pool.states("python")
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(pool.ask, "tool.check", {})

    with answering(counted("liar")) as first, answering(counted("honest")) as second:
        # The naive one asks how much room there is, and sends to the most.
        naive = max(said, key=lambda name: said[name]["most"] - said[name]["calls"])
        assert naive == "liar"
        anyio.run(many, ExecutorPool([RpcClient(url, TOKEN) for url in (first, second)]))
    assert taken == {"liar": 5, "honest": 5}


def test_an_answer_about_another_executor_is_that_of_none() -> None:
    first: list[Any] = []

    def of_another(asked: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
        """Return what the first request got, to each later one."""
        first.append(health_of(name="honest", level="container")(asked, headers)[1])
        return 200, first[0]

    with answering(of_another) as address:
        [mine], [other] = states_at(address), states_at(address)
    assert (mine.state, mine.name) == ("ready", "honest")
    # A naive client takes any result; this one has the id of another request.
    assert first[0]["result"]["name"] == "honest"
    assert (other.state, other.name, other.seen_ms) == ("silent", "", 0)
    assert "answered something else" in other.why
    # One that takes the name of another is shown at its own address, beside it.
    with answering(health_of(name="one")) as one, answering(health_of(name="one")) as two:
        states = states_at(one, two)
    assert [state.id for state in states] == [urlsplit(url).netloc for url in (one, two)]
    # By its word alone nothing is isolated.
    assert {state.isolation for state in states} == {"unasked"}


def test_one_that_never_says_how_it_is_holds_nothing_up() -> None:
    def hangs(asked: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
        time.sleep(3)
        return 500, {}

    with answering(hangs) as slow, answering(health_of(name="honest")) as quick:
        began = time.monotonic()
        states = states_at(slow, quick)
        took = time.monotonic() - began
    assert took < 2.9
    assert [(one.state, one.name) for one in states] == [("silent", ""), ("ready", "honest")]
    assert states[0].why == "it takes too long"


async def test_a_flood_of_progress_ends_with_its_own_call() -> None:
    capabilities, core, other = Capabilities(), Core(), Core()
    report = core_methods(capabilities)["core.progress"]
    with capabilities.of(other) as beside, capabilities.of(core) as token:
        params = {"fraction": 0.5, "text": "x", "capability": token}
        for _ in range(ASKED_MOST):
            await report(params)
        # The naive one takes as many as come; this many are what a cell here may send, too.
        for _ in range(3):
            with pytest.raises(RpcError, match="at most 10000 requests"):
                await report(params)
        assert len(core.told) == ASKED_MOST
        await report({**params, "capability": beside})
        assert other.told == [(0.5, "x")]
        # Neither a number that is none, nor the capability of another call, which it cannot know.
        for fraction in (float("nan"), float("inf"), "1", None):
            await report({"fraction": fraction, "text": "x", "capability": beside})
        with pytest.raises(RpcError):
            await report({**params, "capability": re.sub(".", "0", token)})
        assert other.told == [(0.5, "x")]
    with pytest.raises(RpcError, match="its call has ended"):
        await report(params)
