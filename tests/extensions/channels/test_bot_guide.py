"""docs/guides/bot.md, against the loopback services."""

from __future__ import annotations

import re
import signal
import tomllib
from pathlib import Path

import pytest
from tests.extensions.channels import fake_discord as discord
from tests.extensions.channels.bots import free_address
from tests.extensions.channels.fake_telegram import TOKEN, fake_telegram
from tests.extensions.channels.programs import echoing, start_bot, write_settings
from tests.house.places import write_skill

from skillhouse.extensions.channels.channel_session import HELP

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).resolve().parents[3] / "docs/guides/bot.md"


TELEGRAM, DISCORD = GUIDE.read_text(encoding="utf-8").split("\n## Discord\n")


def block(part: str, kind: str, number: int = 0) -> str:
    return str(re.findall(rf"```{kind}\n(.*?)```", part, re.DOTALL)[number])


def test_every_message_of_the_guide_is_one_of_the_help() -> None:
    rows = re.findall(r"^\| (`/.*?) \|", TELEGRAM, re.MULTILINE)
    named = {word for row in rows for word in re.findall(r"/[a-z-]+", row)}
    assert named == set(re.findall(r"^(/[a-z-]+)", HELP, re.MULTILINE))


def test_telegram_brings_messages_to_the_webhook_of_the_guide(tmp_path: Path) -> None:
    folder = tmp_path / "home/.config/skillhouse"
    folder.mkdir(parents=True)
    (tmp_path / "project").mkdir()
    token = folder / "telegram.token"
    token.write_text(f"{TOKEN}\n", encoding="utf-8")
    token.chmod(0o600)
    address = free_address()
    with fake_telegram() as fake, echoing() as model:
        text = block(TELEGRAM, "toml", 1)
        shown = tomllib.loads(text)["bot"]["telegram"]
        # What the test puts in place of the real services.
        text = text.replace(shown["webhook"], address)
        text = text.replace(shown["listen"], address.split("/")[2])
        head = f'[bot]\nmodel = "echo"\nbase_url = "{model.url}"\nallow = ["telegram:42"]\n'
        settings = f'{head}{text}server = "{fake.url}"\n'
        (folder / "config.toml").write_text(settings, encoding="utf-8")
        process = start_bot(tmp_path)
        try:
            fake.write("hello")
            fake.wait(lambda one: one.webhook, 60)
            assert fake.bring() == 200
            fake.said("re: hello", seconds=60)
        finally:
            process.terminate()
            assert process.wait(30) == 0
        log = (tmp_path / "bot.log").read_text(encoding="utf-8")
        assert fake.webhook["secret_token"] not in log


def test_the_guide_from_the_token_to_the_first_answer(tmp_path: Path) -> None:
    folder = tmp_path / "home/.config/skillhouse"
    folder.mkdir(parents=True)
    (tmp_path / "project").mkdir()
    write_skill(tmp_path / "home/.agents/skills/kestrel", "Finds nests of falcons.")
    token = folder / "telegram.token"
    token.write_text(f"{TOKEN}\n", encoding="utf-8")
    token.chmod(0o600)
    settings = folder / "config.toml"
    with fake_telegram() as fake, echoing() as model:

        def write(allow: str) -> None:
            text = block(TELEGRAM, "toml").replace("allow = []", f"allow = [{allow}]")
            assert tomllib.loads(text)["bot"]["model"] == "openai:gpt-5"
            # What the test puts in place of the real services.
            text = text.replace('"openai:gpt-5"', f'"echo"\nbase_url = "{model.url}"')
            settings.write_text(f'{text}server = "{fake.url}"\n', encoding="utf-8")

        write("")
        process = start_bot(tmp_path)
        try:
            fake.write("hello", user=123456789)
            said = fake.said("not on their list", seconds=60)
            assert said["text"] == block(TELEGRAM, "text").strip()
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
            write('"telegram:123456789"')
            process = start_bot(tmp_path)
            fake.write("hello again", user=123456789)
            fake.said("re: hello again", seconds=60)
            fake.write("/skills", user=123456789)
            assert "kestrel: Finds nests of falcons." in fake.said("* in use")["text"]
            second = start_bot(tmp_path)
            assert second.wait(60) == 1
            assert "another process serves" in (tmp_path / "bot.log").read_text(encoding="utf-8")
        finally:
            process.terminate()
            assert process.wait(30) == 0


def test_the_guide_from_the_developer_portal_to_the_first_answer(tmp_path: Path) -> None:
    folder = tmp_path / "home/.config/skillhouse"
    folder.mkdir(parents=True)
    (tmp_path / "project").mkdir()
    token = folder / "discord.token"
    token.write_text(f"{discord.TOKEN}\n", encoding="utf-8")
    token.chmod(0o600)
    settings = folder / "config.toml"
    user, bot = 123456789012345678, f"<@{discord.BOT_ID}>"
    with discord.fake_discord(tmp_path) as fake, echoing() as model:
        trusted = {"SSL_CERT_FILE": fake.certificate}

        def write(allow: str) -> None:
            text = block(DISCORD, "toml").replace("allow = []", f"allow = [{allow}]")
            assert tomllib.loads(text)["bot"]["model"] == "openai:gpt-5"
            # What the test puts in place of the real services.
            text = text.replace('"openai:gpt-5"', f'"echo"\nbase_url = "{model.url}"')
            settings.write_text(f'{text}server = "{fake.url}"\n', encoding="utf-8")

        write("")
        fake.allows_content = False
        assert start_bot(tmp_path, environment=trusted).wait(60) == 2
        log = tmp_path / "bot.log"
        assert "switch on `Message Content Intent`" in log.read_text(encoding="utf-8")
        fake.allows_content = True
        process = start_bot(tmp_path, environment=trusted)
        try:
            fake.wait(lambda one: one.identified, 60)
            fake.write("hello", user=user)
            said = fake.said("not on their list", seconds=60)
            assert said["text"] == block(DISCORD, "text").strip()
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
            write(f'"discord:{user}", "discord:chat:{discord.CHANNEL}"')
            process = start_bot(tmp_path, environment=trusted)
            fake.write("hello again", user=user)
            fake.said("re: hello again", seconds=60)
            fake.write(f"{bot} /new", user=7, chat=discord.CHANNEL)
            fake.said("A new conversation", chat=discord.CHANNEL, seconds=60)
        finally:
            process.terminate()
            assert process.wait(30) == 0
    assert "Traceback" not in log.read_text(encoding="utf-8")


def test_both_channels_are_served_at_once(tmp_path: Path) -> None:
    with (
        fake_telegram() as telegram,
        discord.fake_discord(tmp_path) as fake,
        echoing() as model,
    ):
        write_settings(tmp_path, telegram, model.url, ["telegram:42", "discord:42"])
        settings = tmp_path / "home/.config/skillhouse/config.toml"
        with settings.open("a", encoding="utf-8") as file:
            file.write(f'[bot.discord]\ntoken = "env:DISCORD"\nserver = "{fake.url}"\n')
        more = {"DISCORD": discord.TOKEN, "SSL_CERT_FILE": fake.certificate}
        process = start_bot(tmp_path, environment=more)
        try:
            fake.wait(lambda one: one.identified, 60)
            fake.write("in Discord")
            telegram.write("in Telegram")
            fake.said("re: in Discord", seconds=60)
            telegram.said("re: in Telegram", seconds=60)
        finally:
            process.terminate()
            assert process.wait(30) == 0
    log = (tmp_path / "bot.log").read_text(encoding="utf-8")
    assert "telegram: @house_bot answers (2 entries in `allow`)" in log
    assert "discord: @house answers (2 entries in `allow`)" in log
    assert TOKEN not in log
    assert discord.TOKEN not in log
