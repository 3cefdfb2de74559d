"""The bot in the core's container, as deploy/core.toml and deploy/bot.yaml have it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.containers import DEPLOY, Composition
from tests.extensions.channels.fake_telegram import TOKEN, fake_telegram
from tests.extensions.channels.programs import echoing
from tests.harness import ran
from tests.test_deploy import bot_settings

from skillhouse.skill.yaml_text import read_mapping

pytestmark = pytest.mark.slow


def test_the_core_answers_in_telegram_and_its_check_says_so(tmp_path: Path, need: Any) -> None:
    need(shutil.which("bwrap"), "no bubblewrap to make places like containers")
    skills = tmp_path / "skills"
    skills.mkdir()
    place = Composition(tmp_path / "place", skills)
    settings = bot_settings()["bot"]
    further = place.base / "further-secrets"
    further.mkdir()
    for name, text in (("bot-token", TOKEN), ("model-key", "sk-of-the-model")):
        (further / name).write_text(f"{text}\n")
        (further / name).chmod(0o400)
    check = read_mapping((DEPLOY / "bot.yaml").read_text())["services"]["core"]["healthcheck"]
    program, *words = check["test"][1:]
    assert program == "skillhouse"
    with fake_telegram() as fake, echoing() as model:
        with place.settings.open("a") as file:
            file.write(
                f'[bot]\nmodel = "echo"\nbase_url = "{model.url}"\nkey = "{settings["key"]}"\n'
                f'allow = ["telegram:42"]\n[bot.telegram]\n'
                f'token = "{settings["telegram"]["token"]}"\nserver = "{fake.url}"\n'
            )
        checked = place.argv("core", *words, environment={})
        assert ran(checked, timeout=60).returncode == 1
        with place.running("core") as core:
            core.first_line()
            fake.write("hello")
            fake.said("re: hello", seconds=60)
            assert ran(checked, timeout=60).returncode == 0, core.said
            assert model.requests[-1][0]["authorization"] == "Bearer sk-of-the-model"
            assert core.terminate() == 0
        assert ran(checked, timeout=60).returncode == 1
    assert all("sk-of" not in line and TOKEN not in line for line in core.said)
