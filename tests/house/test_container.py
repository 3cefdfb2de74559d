"""Tests of the executor elsewhere, as the core sees it: settings, token, and what comes back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.extensions.cells import CellResult, CellSpec, RpcError, RpcServer
from skillhouse.floor import ConfigError
from skillhouse.house import SkillCodeSettings, load_config
from skillhouse.house.container import ContainerExecutor, token_at
from tests.extensions.cells.lab import Core
from tests.house.places import make_places

TOKEN = "a-token-of-enough-letters"
SPEC = CellSpec(
    skill="one",
    digest="skilltree1:x",
    directory=Path("/nowhere"),
    language="python",
    entry="main.py",
    env={"KEY": "v"},
    dependencies=Path("/cache/packages/abc/packages"),
    permissions="default KEY",
)


def settings(**more: Any) -> SkillCodeSettings:
    given = {"executor": "http://127.0.0.1:1/rpc", "executor_token": "env:WORD", **more}
    return SkillCodeSettings(enabled=True, **given)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('executor = "http://a/rpc"', "`executor` and `executor_token` together"),
        ('executor_token = "env:A"', "`executor` and `executor_token` together"),
        (f'executor = "http://a/rpc"\nexecutor_token = "{TOKEN}"', "`file:PATH` or `env:NAME`"),
        (f'executor = "http://a/rpc"\nexecutor_token = "word:{TOKEN}"', "`file:PATH`"),
        ('executors.python = "http://a/rpc"', "`executor` and `executor_token` together"),
        ('executor = "ours"\nexecutors.python = "http://a/rpc"', "no `executors` beside an"),
        (
            'executor_token = "env:A"\nexecutors."GPU 1" = "http://a/rpc"',
            "expected a name of small letters",
        ),
        ('executor_certificate = "/a"', "`executor_certificate` and `executor_key` together"),
        ('callback_url = "https://a/rpc"', "`executor_certificate` with a `callback_url`"),
        ('callback = "8701"', "expected ADDRESS:PORT in `callback`"),
        ('callback = "0.0.0.0:99999"', "expected ADDRESS:PORT in `callback`"),
        ('callback = "127.0.0.1:\u0663"', "expected ADDRESS:PORT in `callback`"),
        ('executer = ""', "did you mean `executor`"),
    ],
)
def test_settings_that_are_off_are_named(tmp_path: Path, lines: str, said: str) -> None:
    places = make_places(tmp_path)
    places.user_file.parent.mkdir(parents=True)
    places.user_file.write_text(f"[skill_code]\n{lines}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(places)
    assert said in str(caught.value)
    assert TOKEN not in str(caught.value)


def test_the_token_is_read_from_a_file_or_a_variable(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    os.mkfifo(tmp_path / "pipe")
    assert token_at(f"file:{tmp_path}/token", {}) == TOKEN
    assert token_at("env:WORD", {"WORD": TOKEN}) == TOKEN
    for given, environment in (
        (f"file:{tmp_path}/missing", {}),
        (f"file:{tmp_path}/pipe", {}),
        ("env:WORD", {}),
        ("env:WORD", {"WORD": "short-secret"}),
    ):
        with pytest.raises(ConfigError) as caught:
            token_at(given, environment)
        assert "short-secret" not in str(caught.value)


def executed(answer: Any) -> tuple[Any, dict[str, Any]]:
    """Return what comes of a call to an executor that answers so, and what it was told."""
    told: list[Any] = []

    async def execute(params: Any) -> Any:
        told.append(params)
        return answer

    async def scene() -> CellResult | RpcError:
        server = RpcServer({"tool.execute": execute}, token=TOKEN)
        async with server.listening("127.0.0.1", 0) as port:
            given = settings(executor=f"http://127.0.0.1:{port}/rpc")
            executor = ContainerExecutor(given, {"WORD": TOKEN})
            try:
                return await executor.execute(
                    SPEC, "tool", {"a": 1}, meta={"callId": "1"}, timeout=5.0, host=Core()
                )
            except RpcError as error:
                return error
            finally:
                await executor.close()

    return anyio.run(scene), told[0]


def test_a_call_is_told_what_was_judged_and_a_capability_of_its_own() -> None:
    _, told = executed({"success": True, "data": 1})
    context = told["context"]
    assert len(context.pop("capability")) == 32
    assert context.pop("port") > 0
    assert told == {
        "tool": "one:tool",
        "args": {"a": 1},
        "context": {
            "meta": {"callId": "1"},
            "digest": "skilltree1:x",
            "env": {"KEY": "v"},
            "permissions": "default KEY",
            "packages": "abc",
        },
    }


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ({"success": True, "data": 1}, "ok"),
        ({"success": False, "error": "no coin"}, "error"),
        ({"success": False, "error": "Skill execution timeout (5000ms)"}, "timeout"),
        ({"success": False, "error": "no coin", "more": 1}, "ok"),
        ({"success": "yes"}, "ok"),
    ],
)
def test_what_comes_back_reads_as_what_ran_here(answer: Any, kind: str) -> None:
    assert executed(answer)[0].kind == kind


@pytest.mark.parametrize("answer", [None, [], "text", {"data": 1}])
def test_an_answer_that_is_none_is_refused(answer: Any) -> None:
    result = executed(answer)[0]
    assert result.kind == "unknown"
    assert result.error.startswith("the executor answered something else; the call may have had")


def checked(**methods: Any) -> tuple[str, list[Any]]:
    """Return why an executor with these methods could not run a tool, and what it was told."""
    told: list[Any] = []

    def method(answer: Any) -> Any:
        async def run(params: Any) -> Any:
            told.append(params)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return run

    async def scene() -> str:
        served = {f"tool.{name}": method(answer) for name, answer in methods.items()}
        async with RpcServer(served, token=TOKEN).listening("127.0.0.1", 0) as port:
            given = settings(executor=f"http://127.0.0.1:{port}/rpc")
            executor = ContainerExecutor(given, {"WORD": TOKEN})
            try:
                await executor.check(SPEC, "tool")
            except RpcError as error:
                return str(error)
            finally:
                await executor.close()
        return ""

    return anyio.run(scene), told


def test_before_a_question_the_executor_is_asked_about_the_digest_alone() -> None:
    why, told = checked(check={})
    assert (why, told) == ("", [{"tool": "one:tool", "context": {"digest": "skilltree1:x"}}])
    refusal = RpcError(-32_005, "the skill `one` is not as it is in the core")
    assert checked(check=refusal)[0] == f"nothing was run: {refusal}"
    # One that others wrote has no such method.
    assert checked(execute={}) == ("", [])


async def test_where_nobody_is_nothing_was_run() -> None:
    executor = ContainerExecutor(settings(), {"WORD": TOKEN})
    try:
        with pytest.raises(RpcError, match="nothing was run: no server answers at"):
            await executor.execute(SPEC, "tool", {}, meta={}, timeout=1.0, host=Core())
        with pytest.raises(RpcError, match="no server answers"):
            await executor.reload(None)
    finally:
        await executor.close()


async def test_two_programs_of_a_house_listen_at_ports_of_their_own() -> None:
    async def listening(port: int) -> tuple[ContainerExecutor, str]:
        executor = ContainerExecutor(settings(callback=f"127.0.0.1:{port}"), {"WORD": TOKEN})
        with pytest.raises(RpcError) as caught:
            await executor.execute(SPEC, "tool", {}, meta={}, timeout=1.0, host=Core())
        return executor, str(caught.value)

    server = RpcServer({}, token=TOKEN)
    async with server.listening("127.0.0.1", 0) as taken:
        executor, said = await listening(taken)
        await executor.close()
    other = ContainerExecutor(settings(callback="192.0.2.1:1"), {"WORD": TOKEN})
    with pytest.raises(RpcError) as caught:
        await other.execute(SPEC, "tool", {}, meta={}, timeout=1.0, host=Core())
    await other.close()
    first, second = [said, str(caught.value)]
    assert "no server answers" in first
    assert "cannot listen on `192.0.2.1`, which `callback` names" in second
