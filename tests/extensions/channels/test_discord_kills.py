"""In Discord each message is answered exactly once, also when the bot is killed at any moment."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest
from tests.extensions.channels.fake_discord import TOKEN, fake_discord, faults
from tests.extensions.channels.programs import echoing, start_bot, write_discord_settings
from tests.extensions.channels.test_bot_kills import all_numbers, answered

pytestmark = [pytest.mark.slow, pytest.mark.heavy]


@pytest.mark.parametrize(
    ("users", "messages", "kills"),
    [
        pytest.param(4, 20, 3, id="few"),
        pytest.param(50, 500, 50, marks=pytest.mark.nightly, id="many"),
    ],
)
def test_none_is_lost_and_none_is_answered_twice(
    tmp_path: Path, users: int, messages: int, kills: int
) -> None:
    signal.setitimer(signal.ITIMER_REAL, 120 + 20 * kills, 5)
    chance = random.Random(users)
    with fake_discord(tmp_path) as fake, echoing() as model:
        people = [user + 1 for user in range(users)]
        write_discord_settings(tmp_path, fake, model.url, [f"discord:{user}" for user in people])
        environment = {"BOT_TOKEN": TOKEN, "SSL_CERT_FILE": fake.certificate}
        kinds: list[int | str] = [429, 500, "before", "after", *[0] * 8]
        found = [chance.choice(kinds) for _ in range(messages)]
        fake.faults["send"] = faults(*found)
        fake.faults["history"] = faults(*(chance.choice([429, 503, 0, 0]) for _ in range(40)))
        process = start_bot(tmp_path, environment=environment)
        try:
            fake.wait(lambda one: one.identified, 60)
            written = 0
            for kill in range(kills):
                # Some come while it runs, some while it is gone, some while it starts.
                for moment in ("before", "after"):
                    until = messages * (2 * kill + 1 + (moment == "after")) // (2 * kills)
                    for number in range(written, until):
                        fake.write(f"number {number}", user=number % users + 1)
                    written = until
                    if moment == "before":
                        time.sleep(chance.uniform(0.1, 3))
                        if chance.random() < 0.3:
                            fake.disconnect(forget=chance.random() < 0.5)
                        process.kill()
                        process.wait()
                process = start_bot(tmp_path, environment=environment)
            wanted = {(fake.direct_chat(number % users + 1), number) for number in range(messages)}
            fake.wait(lambda one: all_numbers(one) >= wanted, 60 + messages * 2)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()
    for chat, numbers in answered(fake).items():
        assert numbers == sorted(set(numbers)), f"chat {chat}"
    # The nonce keeps what was cut off from being there twice, and no text has to say that it may.
    texts = fake.texts()
    assert len(texts) == len(set(texts)) == messages
    assert "Traceback" not in (tmp_path / "bot.log").read_text(encoding="utf-8")
