"""Tests of tools/delivery.py: a listener hears how far a call is, and never holds it up."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from skillhouse.house import Skillhouse
from skillhouse.tools import Progress, RefusedError
from skillhouse.tools.delivery import relayed
from tests.house.coded import best_sandbox, coded_house, played, write_code


def progress(fraction: float, message: str) -> Progress:
    return Progress(progress=fraction, total=1.0, message=message)


class Heard:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.words: list[Progress] = []

    async def __call__(self, word: Progress) -> None:
        self.words.append(word)


async def test_only_the_newest_is_told_and_the_last_word_always() -> None:
    heard = Heard()
    async with relayed(heard, pause_seconds=60) as say:
        say(0.1, "begun")
        await anyio.wait_all_tasks_blocked()
        for step in range(2, 1_000):
            say(step / 1_000, f"step {step}")
        say(1.0, "done\x1b[2J\n")
    assert heard.words == [progress(0.1, "begun"), progress(1.0, "done [2J ")]


async def test_what_is_no_more_than_before_is_passed_over() -> None:
    heard = Heard()
    async with relayed(heard, pause_seconds=0) as say:
        for fraction in (0.0, 0.0, 0.5, 0.4, 0.5, 0.6):
            say(fraction, "")
            await anyio.wait_all_tasks_blocked()
            await anyio.lowlevel.checkpoint()
    assert [word.progress for word in heard.words] == sorted({w.progress for w in heard.words})
    assert heard.words[-1] == progress(0.6, "")


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_listener_that_fails_costs_the_call_nothing(is_late: bool, caplog: Any) -> None:
    async def fails(word: Progress) -> None:
        raise ValueError("this client has gone")

    async with relayed(fails) as say:
        say(0.5, "half")
        if not is_late:
            await anyio.wait_all_tasks_blocked()
        say(0.6, "more")
    assert "result" == "result"
    assert [record.message for record in caplog.records] == ["telling of progress"]


async def test_a_listener_that_never_returns_does_not_hold_up_the_result() -> None:
    async def hangs(word: Progress) -> None:
        await anyio.sleep_forever()

    async with relayed(hangs, last_seconds=0.01) as say:
        say(0.5, "half")
    assert "result" == "result"


def test_what_the_call_raises_goes_out_as_it_is() -> None:
    async def main() -> None:
        async with relayed(Heard()) as say:
            say(0.5, "half")
            raise RefusedError("not like this")

    with pytest.raises(RefusedError, match="not like this"):
        anyio.run(main)


TELLS = {
    "python": """
        def tool(params, context):
            context.progress(0.25, "a quarter")
            context.progress(1, "all")
            return {"done": True}

        tools = {"tool": tool}
    """,
    "javascript": """
        export const tools = {
            tool: async (params, context) => {
                context.progress(0.25, "a quarter");
                context.progress(1, "all");
                return { done: true };
            },
        };
    """,
}


@pytest.mark.slow
@pytest.mark.parametrize("language", ["python", "javascript"])
def test_a_callers_listener_hears_what_a_skill_says(
    language: str, tmp_path: Path, need: Any
) -> None:
    need(language == "python" or shutil.which("node"), "no node here")
    status = best_sandbox(need)
    write_code(tmp_path / "skills/one", TELLS[language], language=language)
    heard, nobody = Heard(), Heard()

    async def scene(house: Skillhouse) -> list[Any]:
        told = await house.call("one:tool", {}, listener=heard)
        untold = await house.call("one:tool", {})
        looked = await house.call("list", {"path": "."}, listener=nobody)
        return [told.data, untold.data, looked.status]

    done = {"success": True, "data": {"done": True}}
    house = coded_house(tmp_path, tmp_path / "skills", status=status)
    assert played(house, scene) == [done, done, "ok"]
    assert heard.words[-1] == progress(1.0, "all")
    assert heard.words[:-1] in ([], [progress(0.25, "a quarter")])
    assert nobody.words == []
