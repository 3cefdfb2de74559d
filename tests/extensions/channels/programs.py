"""`skillhouse bot` as a program, with a loopback model that answers each prompt with itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.extensions.channels.fake_discord import FakeDiscord
from tests.extensions.channels.fake_telegram import TOKEN, FakeTelegram
from tests.extensions.chat.providers import Provider, Request, provider


def last_prompt(body: bytes) -> str:
    """Return what the person wrote last, of a request to the model."""
    prompts = [one for one in json.loads(body)["messages"] if one["role"] == "user"]
    content = prompts[-1]["content"]
    return content if isinstance(content, str) else " ".join(one["text"] for one in content)


@contextmanager
def echoing() -> Iterator[Provider]:
    """Run a model that says "re: " and the prompt."""

    def reply(request: Request) -> None:
        request.stream()
        request.say(f"re: {last_prompt(request.body)}", "stop")

    with provider(reply) as found:
        yield found


def write_settings(base: Path, fake: FakeTelegram, model: str, allow: list[str]) -> None:
    """Write the configuration of a bot of Telegram below a home of its own."""
    _write(base, f'[bot.telegram]\ntoken = "env:BOT_TOKEN"\nserver = "{fake.url}"', model, allow)


def write_discord_settings(base: Path, fake: FakeDiscord, model: str, allow: list[str]) -> None:
    """Write the configuration of a bot of Discord below a home of its own."""
    _write(base, f'[bot.discord]\ntoken = "env:BOT_TOKEN"\nserver = "{fake.url}"', model, allow)


def _write(base: Path, channel: str, model: str, allow: list[str]) -> None:
    text = f"""
[bot]
model = "echo"
base_url = "{model}"
allow = {json.dumps(allow)}

{channel}
"""
    folder = base / "home/.config/skillhouse"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(text, encoding="utf-8")
    (base / "project").mkdir(exist_ok=True)


def start_bot(base: Path, *arguments: str, **more: Any) -> subprocess.Popen[str]:
    """Start the program; its lines go to `bot.log`."""
    environment = {
        "HOME": str(base / "home"),
        "PATH": os.environ["PATH"],
        "BOT_TOKEN": TOKEN,
        "NO_PROXY": "*",
        **more.pop("environment", {}),
    }
    log = (base / "bot.log").open("a", encoding="utf-8")
    with log:
        return subprocess.Popen(
            [sys.executable, "-m", "skillhouse", "bot", *arguments],
            cwd=base / "project",
            env=environment,
            stdout=log,
            stderr=log,
            text=True,
            **more,
        )
