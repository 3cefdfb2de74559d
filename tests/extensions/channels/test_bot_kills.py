"""What people write is answered once, in order, also when the bot is killed at any moment."""

from __future__ import annotations

import random
import re
import signal
import time
from collections import defaultdict, deque
from pathlib import Path

import pytest
from tests.extensions.channels.fake_service import FakeService
from tests.extensions.channels.fake_telegram import fake_telegram
from tests.extensions.channels.programs import echoing, start_bot, write_settings
from tests.harness import until

from skillhouse.extensions.channels.gateway import REPEATED

READY = b" answers ("

pytestmark = [pytest.mark.slow, pytest.mark.heavy]


def answered(fake: FakeService) -> dict[int, list[int]]:
    """Return the numbers of the answers in each chat, without those that are marked as repeated."""
    found: dict[int, list[int]] = defaultdict(list)
    for message in list(fake.messages):
        text = message["text"]
        if REPEATED not in text:
            found[message["chat"]["id"]] += [int(one) for one in re.findall(r"number (\d+)", text)]
    return found


def all_numbers(fake: FakeService) -> set[tuple[int, int]]:
    return {
        (message["chat"]["id"], int(number))
        for message in list(fake.messages)
        for number in re.findall(r"number (\d+)", message["text"])
    }


def wait_for_more(fake: FakeService, known: int) -> None:
    fake.wait(lambda one: len(all_numbers(one)) > known, 100)


@pytest.mark.parametrize(
    ("users", "messages", "kills"),
    [
        pytest.param(4, 20, 3, id="few"),
        pytest.param(100, 1_000, 50, marks=pytest.mark.nightly, id="many"),
    ],
)
def test_none_is_lost_and_none_is_answered_twice(
    tmp_path: Path, users: int, messages: int, kills: int
) -> None:
    signal.setitimer(signal.ITIMER_REAL, 600 + 20 * kills, 5)
    chance = random.Random(users)
    with fake_telegram() as fake, echoing() as model:
        write_settings(tmp_path, fake, model.url, [f"telegram:{user + 1}" for user in range(users)])
        faults = [chance.choice([429, 500, "before", 0, 0, 0]) for _ in range(messages)]
        fake.faults["sendMessage"] = deque(one or None for one in faults)  # type: ignore[misc]
        log = tmp_path / "bot.log"
        process = start_bot(tmp_path)
        try:
            fake.wait(lambda one: one.of("getUpdates"), 60)
            for number in range(messages):
                fake.write(f"number {number}", user=number % users + 1)
            begun = 0
            for _ in range(kills):
                time.sleep(chance.uniform(0.1, 6))
                process.kill()
                process.wait()
                begun = log.stat().st_size
                process = start_bot(tmp_path)
            wanted = {(number % users + 1, number) for number in range(messages)}
            # Each answer has its time: how long all take together is the machine's.
            while not all_numbers(fake) >= wanted:
                wait_for_more(fake, len(all_numbers(fake)))
            # A process that was started a moment ago ends by the signal itself.
            assert until(lambda: READY in log.read_bytes()[begun:], 30)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()
    for chat, numbers in answered(fake).items():
        assert numbers == sorted(set(numbers)), f"chat {chat}"
    assert "Traceback" not in log.read_text(encoding="utf-8")
    repeated = [text for text in fake.texts() if REPEATED in text]
    assert len(repeated) <= kills + faults.count("before") + faults.count(500)
