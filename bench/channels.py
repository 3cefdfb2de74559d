"""What the bot adds to a chat, and what it needs while nobody and while many write.

`./x bench channels [--rounds N] [--people N] [--messages N] [--idle SECONDS]` runs `skillhouse bot`
as a program, between the tests' loopback Telegram and a model on loopback that answers at once:

- from a message to the first text of its answer, beside `skillhouse chat` on a terminal with the
  same model, messages interleaved. The middle one counts, and the ratio of both.
- `people` who write `messages` each at once, one a session: whether the answers of each are in
  order, and none is missing or there twice; how long it takes, and the memory before and after,
  and after the same again.
- the processor time of a bot that waits for `idle` seconds.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from _measure import ROOT, markdown_table, moment_of

sys.path.insert(0, str(ROOT))
import tests.extensions.channels.fake_telegram as telegram
from tests.extensions.channels.programs import echoing, start_bot, write_settings

RATIO_MAX = 1.2
"""What a turn of the bot may cost over the same turn of a chat."""
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--people", type=int, default=100)
    parser.add_argument("--messages", type=int, default=10)
    parser.add_argument("--idle", type=float, default=60)
    options = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.1f} of {os.cpu_count()} processors\n")
    rows = [*first_tokens(options.rounds), *many(options.people, options.messages)]
    rows += idle(options.idle)
    print(markdown_table(["", "measured"], rows))


@contextmanager
def bot(base: Path, fake: telegram.FakeTelegram, model: str, people: int) -> Iterator[int]:
    """Run the bot; yield its process id once it asks for updates."""
    write_settings(base, fake, model, [f"telegram:{number + 1}" for number in range(people)])
    process = start_bot(base)
    try:
        fake.wait(lambda one: one.of("getUpdates"), 60)
        yield process.pid
        process.send_signal(signal.SIGTERM)
        if process.wait(30):
            raise RuntimeError((base / "bot.log").read_text())
    finally:
        process.kill()


@contextmanager
def serving() -> Iterator[tuple[Path, telegram.FakeTelegram, str]]:
    """Yield an empty place, the loopback service, and the address of the model."""
    with (
        tempfile.TemporaryDirectory() as place,
        telegram.fake_telegram() as fake,
        echoing() as model,
    ):
        yield Path(place), fake, model.url


def first_tokens(rounds: int) -> list[list[str]]:
    took: dict[str, list[float]] = {"bot": [], "chat": []}
    with serving() as (place, fake, model), bot(place, fake, model, 1), chat(model) as asked:
        for number in range(rounds + 2):
            text = f"number {number} of the bot."
            began = time.perf_counter()
            fake.write(text, user=1)
            fake.wait(partial(shows, text))
            took["bot"].append(time.perf_counter() - began)
            took["chat"].append(asked(f"number {number} of the chat."))
    # The first ones load what the others use.
    middle = {name: median(values[2:]) * 1_000 for name, values in took.items()}
    ratio = middle["bot"] / middle["chat"]
    return [
        ["`skillhouse chat`, message to first text", f"{middle['chat']:.1f} ms"],
        ["`skillhouse bot`, message to first text", f"{middle['bot']:.1f} ms"],
        [f"ratio (at most {RATIO_MAX})", f"{ratio:.2f}"],
    ]


def shows(text: str, fake: telegram.FakeTelegram) -> bool:
    """Whether a draft or a message has a text."""
    sent = (*fake.of("sendMessage"), *fake.of("sendMessageDraft"))
    return any(text in str(payload.get("text")) for payload in sent)


def has_messages(number: int, fake: telegram.FakeTelegram) -> bool:
    return len(fake.messages) >= number


@contextmanager
def chat(url: str) -> Iterator[Callable[[str], float]]:
    """Run `skillhouse chat` on a terminal; yield what asks it and returns seconds."""
    home = tempfile.mkdtemp()
    pid, handle = pty.fork()
    if pid == 0:
        os.environ.update(HOME=home, TERM="dumb")
        os.chdir(home)
        words = ["-m", "skillhouse", "chat", "--model", "echo", "--base-url", url]
        os.execv(sys.executable, [sys.executable, *words])
    until = moment_of(handle)
    until(b"\n> ")

    def asked(text: str) -> float:
        began = time.perf_counter()
        os.write(handle, f"{text}\n".encode())
        seconds = until(f"re: {text[:8]}".encode()) - began
        until(b"> ")
        return seconds

    try:
        yield asked
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(handle)


def many(people: int, messages: int) -> list[list[str]]:
    with serving() as (place, fake, model), bot(place, fake, model, people) as pid:
        memory = [resident_mib(pid)]
        seconds = []
        for turn in range(2):
            began = time.perf_counter()
            first = turn * messages
            for number in range(first, first + messages):
                for person in range(people):
                    fake.write(f"number {number}.", user=person + 1)
            wanted = people * messages * (turn + 1)
            fake.wait(partial(has_messages, wanted), 600)
            seconds.append(time.perf_counter() - began)
            memory.append(resident_mib(pid))
        faults = wrong(fake, people, messages * 2)
    total = people * messages
    return [
        [
            f"{people} people, {messages} messages each",
            f"{seconds[0]:.1f} s, again {seconds[1]:.1f} s",
        ],
        ["answers missing, twice or out of order", str(faults)],
        [
            f"memory before, after {total} and after {2 * total} messages",
            ", ".join(f"{one:.0f} MiB" for one in memory),
        ],
    ]


def wrong(fake: telegram.FakeTelegram, people: int, messages: int) -> int:
    """Return how many answers are not where they should be."""
    found: dict[int, list[int]] = defaultdict(list)
    for message in fake.messages:
        numbers = re.findall(r"re: number (\d+)", message["text"])
        found[message["chat"]["id"]] += [int(one) for one in numbers]
    wanted = list(range(messages))
    return sum(
        sum(a != b for a, b in zip(found[person + 1], wanted, strict=False))
        + abs(len(found[person + 1]) - messages)
        for person in range(people)
    )


def idle(seconds: float) -> list[list[str]]:
    # As long as the service holds a request.
    telegram.WAIT_SECONDS = 50
    with (
        tempfile.TemporaryDirectory() as place,
        telegram.fake_telegram() as fake,
        echoing() as model,
    ):
        write_settings(Path(place), fake, model.url, ["telegram:1"])
        process = start_bot(Path(place))
        try:
            fake.wait(lambda one: one.of("setMyCommands"), 60)
            time.sleep(3)
            before, at = cpu_seconds(process.pid), time.monotonic()
            time.sleep(seconds)
            used = cpu_seconds(process.pid) - before
            share = used / (time.monotonic() - at) * 100
        finally:
            process.kill()
            process.wait()
    return [[f"processor while no one writes, {seconds:.0f} s", f"{used:.2f} s, {share:.2f} %"]]


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+) kB", text)[0]) / 1024


if __name__ == "__main__":
    main()
