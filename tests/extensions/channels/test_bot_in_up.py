"""`skillhouse up` serves the channels too, and its page answers the bot's questions."""

from __future__ import annotations

import json
import signal
import urllib.request
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.extensions.channels.fake_telegram import TOKEN, fake_telegram
from tests.extensions.channels.programs import echoing, start_bot, write_settings
from tests.extensions.chat.providers import Request, provider
from tests.extensions.server.test_http_serve import fetched, started
from tests.harness import until
from tests.house.places import make_places

from skillhouse.extensions.channels import bot
from skillhouse.extensions.channels.bot_lock import BotLock
from skillhouse.extensions.channels.send_file import SendFileTool
from skillhouse.floor import StateError
from skillhouse.house import Skillhouse, configured

pytestmark = pytest.mark.slow

WRITE = {"path": "poem.txt", "content": "Rain.\n"}


def writing(request: Request) -> None:
    """Call `write` once; with its result there, say so."""
    request.stream()
    if b'"role":"tool"' in request.body.replace(b'": "', b'":"'):
        request.say("It is written.", "stop")
        return
    function = {"name": "write", "arguments": json.dumps(WRITE)}
    call = {"index": 0, "id": "call1", "type": "function", "function": function}
    choice = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    request.wfile.write(f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\n".encode())


@pytest.fixture(autouse=True)
def _variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOT_TOKEN", TOKEN)
    monkeypatch.setenv("NO_PROXY", "*")


def test_a_question_of_the_bot_is_answered_on_the_page(tmp_path: Path) -> None:
    with fake_telegram() as fake, provider(writing) as model:
        write_settings(tmp_path, fake, model.url, ["telegram:42"])
        with started(tmp_path) as (process, port, token):
            fake.write("Write a poem")
            fake.said("poem.txt", seconds=60)

            def opened() -> list[dict[str, Any]]:
                found = json.loads(fetched(port, "/api/v1/approvals", token))["approvals"]
                return [one for one in found if one["state"] == "open"]

            question = until(opened)[0]
            body = {"answer": "once", "content_digest": question["content_digest"]}
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/api/v1/approvals/{question['id']}/answer",
                json.dumps(body).encode(),
                {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=20) as answer:
                assert answer.status == 200
            fake.said("It is written.")
            assert (tmp_path / "project/poem.txt").read_text(encoding="utf-8") == "Rain.\n"
            fake.said("answered elsewhere")
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=30)
            assert process.returncode == 0, err
            assert "telegram: @house_bot answers (1 entry in `allow`)" in err


def test_up_goes_on_without_the_bot_that_another_process_is_and_follows_it(tmp_path: Path) -> None:
    with fake_telegram() as fake, echoing() as model:
        write_settings(tmp_path, fake, model.url, ["telegram:42"])
        bot = start_bot(tmp_path)
        try:
            fake.wait(lambda one: one.of("getUpdates"), 60)
            with started(tmp_path) as (process, port, token):
                assert process.stderr is not None
                line = next(line for line in process.stderr if "bot" in line)
                assert "the bot is not served here: another process serves" in line
                assert json.loads(fetched(port, "/api/v1/health", token))["status"] == "ok"
                fake.write("hello")
                fake.said("re: hello", seconds=60)
                bot.terminate()
                assert bot.wait(30) == 0
                fake.write("again")
                fake.said("re: again", seconds=60)
        finally:
            bot.kill()
            bot.wait()


def test_up_goes_on_where_the_bot_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOT_TOKEN", "99:wrong-token")
    with fake_telegram() as fake, echoing() as model:
        write_settings(tmp_path, fake, model.url, ["telegram:42"])
        with started(tmp_path) as (process, port, token):
            assert process.stderr is not None
            line = next(line for line in process.stderr if "bot" in line)
            assert "Telegram does not know the bot's token" in line
            assert "wrong-token" not in line
            assert json.loads(fetched(port, "/api/v1/health", token))["status"] == "ok"


def test_a_server_that_waits_for_the_bot_goes_on_after_its_state_was_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else no server takes over from one that ends after the database was restarted."""
    taken: list[int] = []
    notes: list[str] = []

    def take(_: BotLock) -> None:
        taken.append(1)
        raise StateError("the state on the server cannot be used", tmp_path)

    monkeypatch.setattr(BotLock, "take", take)
    monkeypatch.setattr(bot, "AGAIN_SECONDS", 0.01)

    async def work(house: Skillhouse) -> None:
        with anyio.fail_after(10):
            async with bot.bot_beside(house, SendFileTool(), notes.append):
                while len(taken) < 3:  # noqa: ASYNC110 - nothing else says it.
                    await anyio.sleep(0.01)

    with Skillhouse(configured(make_places(tmp_path))) as house:
        anyio.run(work, house)
    [line] = notes
    assert "cannot be used" in line
