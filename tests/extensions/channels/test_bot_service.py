"""The bot as a service: its systemd unit, and the check whether it lives."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.frontends.conftest import Run, place, run

from skillhouse.extensions.channels.bot_lock import (
    STALE_SECONDS,
    BotError,
    bot_state,
    only_bot,
)

__all__ = ["place", "run"]

UNIT = "home/.config/systemd/user/skillhouse-bot.service"


def installed(run: Run, *more: str) -> dict[str, Any]:
    code, out, _ = run("bot", "--install-service", "--yes", "--json", *more)
    made: dict[str, Any] = json.loads(out)
    assert code == 0, made
    return made


def test_the_unit_is_written_once_and_says_what_to_run_then(run: Run, place: Path) -> None:
    code, out, err = run("bot", "--install-service", "--dry-run")
    assert code == 0
    assert "would be installed" in out
    assert not (place / UNIT).exists()
    assert "systemctl --user enable --now skillhouse-bot.service" in err
    assert "loginctl enable-linger" in err
    first = installed(run)
    assert (first["action"], first["done"]) == ("install", True)
    text = (place / UNIT).read_text(encoding="utf-8")
    again = installed(run)
    assert (again["action"], again["standing"], again["done"]) == ("", "installed", False)
    assert (place / UNIT).read_text(encoding="utf-8") == text
    _, out, _ = run("audit", "list", "--json")
    assert out.count('"manage:service-install"') == 2  # Intent and outcome of the one change.


def test_a_unit_that_was_edited_stays_until_one_says_so(run: Run, place: Path) -> None:
    installed(run)
    unit = place / UNIT
    edited = unit.read_text(encoding="utf-8") + "# mine\n"
    unit.write_text(edited, encoding="utf-8")
    code, out, _ = run("bot", "--install-service", "--yes")
    assert code == 1
    assert "--force" in out
    assert run("bot", "--remove-service", "--yes")[0] == 1
    code, out, err = run("self", "remove", "--dry-run")
    assert "it was edited" in out + err
    assert unit.read_text(encoding="utf-8") == edited
    assert installed(run, "--force")["done"]
    assert "# mine" not in unit.read_text(encoding="utf-8")


def test_other_options_make_another_unit(run: Run, place: Path) -> None:
    installed(run)
    made = installed(run, "--tools", "skills")
    assert made["next"][-1] == "systemctl --user restart skillhouse-bot.service"
    assert '"bot" "--tools" "skills"' in (place / UNIT).read_text(encoding="utf-8")


@pytest.mark.parametrize("how", ["bot", "self"])
def test_the_unit_is_taken_away_with_the_link_that_enables_it(
    run: Run, place: Path, how: str
) -> None:
    installed(run)
    link = place / UNIT.replace("user/", "user/default.target.wants/")
    link.parent.mkdir()
    link.symlink_to(place / UNIT)
    words = ("bot", "--remove-service") if how == "bot" else ("self", "remove")
    code, out, err = run(*words, "--yes")
    assert code == 0, out + err
    assert not os.path.lexists(place / UNIT)
    assert not os.path.lexists(link)
    assert "systemctl --user stop skillhouse-bot.service" in out + err


def test_no_secret_of_the_terminal_is_in_the_unit(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-the-model")
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", "12345:secret-of-the-bot")
    installed(run)
    assert "secret-of" not in (place / UNIT).read_text(encoding="utf-8")


def test_a_coding_agent_installs_no_service(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")
    code, _, err = run("bot", "--install-service", "--yes")
    assert code != 0
    assert "is for a person" in err
    assert not (place / UNIT).exists()


def test_systemd_takes_the_unit(run: Run, place: Path, need: Any) -> None:
    need(shutil.which("systemd-analyze"), "no systemd-analyze")
    odd = place / "project/a b 100%"
    odd.mkdir()
    installed(run, "-C", str(odd))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", "--man=no", str(place / UNIT)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "XDG_RUNTIME_DIR": str(place)},
    )
    said = [line for line in done.stderr.splitlines() if "skillhouse" in line]
    assert (done.returncode, said) == (0, []), done.stderr


def test_what_a_bubblewrap_sandbox_needs_is_not_taken_from_the_service(
    run: Run, place: Path
) -> None:
    installed(run)
    lines = (place / UNIT).read_text(encoding="utf-8").splitlines()
    settings = dict(line.split("=", 1) for line in lines if "=" in line and line[0] != "#")
    assert "AF_NETLINK" in settings["RestrictAddressFamilies"]
    assert "@mount" not in settings["SystemCallFilter"]
    assert not {"RestrictNamespaces", "PrivateUsers", "ProtectProc"} & set(settings)
    assert settings["NoNewPrivileges"] == "yes"


def test_a_check_says_whether_a_bot_lives(run: Run, tmp_path: Path) -> None:
    assert bot_state(tmp_path, 0).reason == "no bot of this state has run"
    with only_bot(tmp_path):
        marked = (tmp_path / "bot.lock").stat().st_mtime
        assert bot_state(tmp_path, marked + 1).is_running
        hung = bot_state(tmp_path, marked + STALE_SECONDS + 1)
        assert (hung.is_running, hung.reason) == (False, "the bot has not moved for 91 seconds")
        with pytest.raises(BotError, match="another process"), only_bot(tmp_path):
            pass
    assert bot_state(tmp_path, marked).reason == "no bot of this state runs"
    code, out, _ = run("bot", "--check", "--json")
    assert code == 1
    assert json.loads(out)["is_running"] is False
