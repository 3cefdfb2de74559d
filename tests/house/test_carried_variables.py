"""Tests of house/config/carried_variables.py: what hooks, units and entries of clients know."""

from __future__ import annotations

import os
import stat
from contextlib import nullcontext
from pathlib import Path

import pytest

from skillhouse.floor import ConfigError
from skillhouse.floor.structs import replace
from skillhouse.frontends.cli.service_unit import ServiceUnit
from skillhouse.house import configured
from skillhouse.house.config.carried_variables import (
    carried_by_hooks,
    deciding_variables,
    is_plain_address,
    refuse_lost_address,
)
from skillhouse.house.config.state_settings import StateSettings
from tests.extensions.postgres.state_servers import new_database
from tests.frontends.conftest import Run, place, run
from tests.house.places import make_places

__all__ = ["place", "run"]

PASSWORD = "postgresql://me:hunter2@db.example/state"
PLAIN = "postgresql://me@127.0.0.1:1/state"
QUERY = "postgresql://db.example/state?password=hunter2"


@pytest.mark.parametrize(
    ("address", "is_plain"),
    [
        (PLAIN, True),
        ("file:/run/secrets/state-url", True),
        (PASSWORD, False),
        (QUERY, False),
        ("postgresql://db.example/state?PASSWORD=x", False),
        # To libpq `#` and `?` are characters of a password, and names may be encoded.
        ("postgresql://me:hun#ter2@db.example/state", False),
        ("postgresql://me:hun?ter2@db.example/state", False),
        ("postgresql://me:hun/ter2@db.example/state", False),
        ("postgresql://db.example/state?pass%77ord=hunter2", False),
        ("postgresql://db.example/state#?password=hunter2", False),
        ("postgresql://db.example:5432/state?user=me@db.example", True),
        ("postgresql://a.example:1,b.example:2/state?user=me@db.example", True),
        ("postgresql://[broken", False),
    ],
)
def test_an_address_with_a_password_is_written_nowhere(address: str, is_plain: bool) -> None:
    environment = {"SKILLHOUSE_STATE_URL": address, "SKILLHOUSE_PROFILE": "codex", "HOME": "/h"}
    assert is_plain_address(address) is is_plain
    wanted = {"SKILLHOUSE_PROFILE": "codex"}
    wanted |= {"SKILLHOUSE_STATE_URL": address} if is_plain else {}
    assert carried_by_hooks(environment) == deciding_variables(environment) == wanted
    if address.startswith("postgresql:"):
        # Nor does a configuration have it, which `config show` prints.
        with nullcontext() if is_plain else pytest.raises(ConfigError):
            StateSettings(url=address)


def test_a_token_of_a_login_is_kept_by_nothing() -> None:
    assert carried_by_hooks({"SKILLHOUSE_ID_TOKEN": "ey…"}) == {}


def test_the_address_of_a_model_with_a_password_is_kept_by_nothing() -> None:
    plain = {"SKILLHOUSE_CHAT_BASE_URL": "https://model.example/v1"}
    assert carried_by_hooks(plain) == plain
    assert carried_by_hooks({"SKILLHOUSE_CHAT_BASE_URL": "https://me:hunter2@model.example"}) == {}


def test_a_variable_without_a_value_is_not_there_for_a_unit(tmp_path: Path) -> None:
    unit = ServiceUnit(make_places(tmp_path))
    unit.variables_file.parent.mkdir(parents=True)
    unit.variables_file.write_text('# A=1\nEMPTY=\nQUOTED=""\nGIVEN=x=y\n')
    unit.variables_file.chmod(0o600)
    assert {"EMPTY", "QUOTED", "GIVEN"} & {*unit.secret_variables()} == {"GIVEN"}


@pytest.mark.parametrize("key", ["url", "listen_url"])
def test_an_address_in_a_variable_that_will_not_be_there_is_refused(
    tmp_path: Path, key: str
) -> None:
    state = {"url": PLAIN, key: "env:STATE_ADDRESS"}
    config = replace(configured(make_places(tmp_path)), state=StateSettings(**state))
    with pytest.raises(ConfigError, match=f'`STATE_ADDRESS`.*`{key} = "file:PATH"`'):
        refuse_lost_address(config, (), what="the unit")
    refuse_lost_address(config, {"STATE_ADDRESS"}, what="the unit")


@pytest.mark.parametrize("url", ["", PLAIN, "file:/run/secrets/state-url"])
def test_an_address_of_the_file_is_known_everywhere(tmp_path: Path, url: str) -> None:
    config = replace(configured(make_places(tmp_path)), state=StateSettings(url=url))
    refuse_lost_address(config, (), what="the unit")


@pytest.fixture
def with_password(postgres_server: str) -> str:
    """Return the address of a database; the server of the tests takes any password."""
    return new_database(postgres_server).replace("tests@", "tests:hunter2@")


INSTALLS = (
    ("hooks", "install", "claude-code", "--yes"),
    ("mcp", "install", "claude-code", "--hooks"),
    ("bot", "--install-service", "--yes"),
)


@pytest.mark.slow
@pytest.mark.file_state
@pytest.mark.parametrize("words", INSTALLS, ids=lambda words: words[0])
def test_nothing_is_installed_that_would_look_for_another_state(
    place: Path,
    run: Run,
    words: tuple[str, ...],
    with_password: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SKILLHOUSE_STATE_URL", with_password)
    code, out, err = run(*words)
    assert code != 0
    assert "would not know where the state is" in err
    assert "file:PATH" in err
    assert "hunter2" not in out + err
    written = [
        Path(folder, name)
        for folder, _, names in os.walk(place / "home")
        for name in names
        if b"hunter2" in Path(folder, name).read_bytes()
    ]
    assert written == []
    assert not (place / "home/.claude").exists()


@pytest.mark.file_state
def test_hooks_keep_what_decides_in_a_file_of_the_owner_alone(
    place: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLHOUSE_PROFILE", "codex")
    monkeypatch.setenv("SKILLHOUSE_ID_TOKEN", "hunter2")
    code, _, err = run("hooks", "install", "claude-code", "--yes")
    assert code == 0, err
    kept = place / "home/.local/state/skillhouse/hooks/variables"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert b"SKILLHOUSE_PROFILE=codex" in kept.read_bytes()
    assert b"hunter2" not in kept.read_bytes()


@pytest.mark.slow
@pytest.mark.file_state
def test_a_unit_has_what_decides_and_takes_the_address_from_a_private_file(
    place: Path, run: Run, with_password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = place / "home/.config/skillhouse/bot.env"
    secrets.parent.mkdir(parents=True)
    secrets.write_text(f"SKILLHOUSE_STATE_URL={with_password}\n")
    secrets.chmod(0o644)
    monkeypatch.setenv("SKILLHOUSE_STATE_URL", with_password)
    monkeypatch.setenv("SKILLHOUSE_PROFILE", "codex")
    code, _, err = run("bot", "--install-service", "--dry-run")
    assert code != 0
    assert "the variables of the unit are not used" in err
    secrets.chmod(0o600)
    code, out, err = run("bot", "--install-service", "--dry-run")
    assert code == 0, err
    assert 'Environment="SKILLHOUSE_PROFILE=codex"' in out
    assert "hunter2" not in out


@pytest.mark.file_state
def test_an_entry_of_a_client_says_what_may_be_missing(
    place: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLHOUSE_PROFILE", "codex")
    _, _, err = run("mcp", "install", "claude-code", "--no-hooks")
    assert "may lack SKILLHOUSE_PROFILE" in err
