"""A bot in a thread of the test, with a scripted model and a loopback service."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
from tests.extensions.channels.fake_service import FakeService
from tests.frontends.adapters.houses import FALCONS
from tests.house.places import make_places, write_skill

from skillhouse.extensions.channels.bot import gateway_of
from skillhouse.extensions.channels.channel_questions import ChannelQuestions
from skillhouse.extensions.channels.chat_channel import ChatChannel
from skillhouse.extensions.channels.send_file import SendFileTool
from skillhouse.extensions.chat.models import UsableModel
from skillhouse.house import BotSettings, Skillhouse, configured
from skillhouse.permission import Layer, Rule

ALLOWED = (
    *("telegram:42", "telegram:43", "telegram:chat:-100"),
    *("discord:42", "discord:43", "discord:chat:900", "discord:chat:901"),
)


@contextmanager
def bot(
    base: Path,
    fake: FakeService,
    model: Any,
    *rules: Rule,
    webhook: str = "",
    **more: Any,
) -> Iterator[Skillhouse]:
    """Run a bot of a service while the block runs; what it raised is raised at the end."""
    with bot_of(base, lambda house: fake.channel(house, webhook), model, *rules, **more) as house:
        yield house


@contextmanager
def bot_of(
    base: Path,
    make_channel: Callable[[Skillhouse], ChatChannel],
    model: Any,
    *rules: Rule,
    allow: tuple[str, ...] = ALLOWED,
    approvers: tuple[str, ...] = (),
    **more: Any,
) -> Iterator[Skillhouse]:
    """Run a bot of one channel, which is made in its event loop."""
    questions, send_file = ChannelQuestions(), SendFileTool()
    write_skill(base / "skills/kestrel", FALCONS)
    house = Skillhouse(
        configured(make_places(base)),
        channel=questions,
        tools=(send_file,),
        layers=(Layer(name="user", rules=rules),),
        roots=[base / "skills"],
        bot=BotSettings(allow=allow, approvers=approvers),
        **more,
    )
    ended = threading.Event()
    raised: list[BaseException] = []

    async def serve() -> None:
        channel = make_channel(house)
        usable = UsableModel(model=model, reports_end=False)
        gateway = gateway_of(house, questions, {channel.name: channel}, usable, send_file)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gateway.run)
            await anyio.to_thread.run_sync(ended.wait)
            tasks.cancel_scope.cancel()
        await house.release_loop()

    def run() -> None:
        try:
            anyio.run(serve)
        except BaseException as error:  # noqa: BLE001 - raised in the test's thread.
            raised.append(error)

    with house:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield house
        finally:
            ended.set()
            thread.join(20)
            if raised:
                raise raised[0]


def free_address() -> str:
    """Return the address of a webhook on a port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}/from-telegram"
