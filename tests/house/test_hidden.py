"""Tests of house/hidden.py: each value of the configuration that is a secret, and no other."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import quote

import pytest

from skillhouse.floor import structs
from skillhouse.house import Skillhouse, configured
from tests.house.places import make_places

KEY = 'k7/xTq9 "aa'
TOKENS = {
    "CRYPTO_ENDPOINT_ID": KEY,
    "MODE": "production",
    "FLAG": "1",
    "STATE_DIR": "/usr/lib",
    "ORIGIN": "https://api.example.org",
    "OPENAI_API_KEY": "provider-key-0123",
    "NET_VALUE": "net-value-0123",
    "HOOK_VALUE": "whsec_" + base64.b64encode(b"a" * 32).decode(),
    "BRAVE_VALUE": "brave-value-0123",
    "SIGNER_VALUE": "signer-value-0123",
}
CONFIG = """
[skill_code]
executor = "http://127.0.0.1:8701/rpc"
executor_token = "file:{base}/token"
[skill_code.env]
balance = ["CRYPTO_ENDPOINT_ID", "MODE", "FLAG", "STATE_DIR", "ORIGIN", "NOT_SET"]
[signer]
password = "env:SIGNER_VALUE"
[approvals]
webhook_url = "https://hook.example.org/"
webhook_secret_env = "HOOK_VALUE"
[net]
brave_key_env = "BRAVE_VALUE"
[[net.secrets]]
name = "service"
env = "NET_VALUE"
hosts = ["api.example.org"]
[[mcp_servers]]
label = "docs"
command = ["docs-server", "--api-key", "argument-0123", "--auth-token=argument-4567", "--mode=fast"]
environment = {{ DOCS_ID = "mcp-value-0123", LEVEL = "debugging" }}
"""
SETTINGS = ("MODE", "FLAG", "STATE_DIR", "ORIGIN")
HIDDEN = (
    *(value for name, value in TOKENS.items() if name not in SETTINGS),
    *("worker-token-0123456789abcdef0123", "argument-0123", "argument-4567", "mcp-value-0123"),
)
PLAIN = ("production", "/usr/lib", "https://api.example.org", "debugging", "--mode=fast")


@pytest.fixture
def house(tmp_path: Path) -> Skillhouse:
    places = make_places(tmp_path)
    (tmp_path / "token").write_text("worker-token-0123456789abcdef0123\n")
    file = tmp_path / "home/.config/skillhouse/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(CONFIG.format(base=tmp_path))
    environment = {**places.environment, **TOKENS}
    return Skillhouse(configured(structs.replace(places, environment=environment)))


def spellings(value: str) -> tuple[str, ...]:
    coded = base64.b64encode(f"id:{value}".encode()).decode()
    return (value, quote(value, safe=""), quote(value), json.dumps(value)[1:-1], coded)


@pytest.mark.slow
@pytest.mark.parametrize("value", HIDDEN)
def test_a_secret_is_in_no_record_and_no_log_line_in_any_spelling(
    house: Skillhouse, value: str
) -> None:
    with house:
        for spelled in spellings(value):
            house.call_sync("write", {"path": "a.txt", "content": f"id={spelled}"})
            assert spelled not in house.audit_log.clean(f"GET /v2/{spelled}/x failed")
        house.call_sync("fetch", {"url": f"https://rpc.example.org/v2/{quote(value, safe='')}?x=1"})
        log = house.audit_log.path.read_text()
    for spelled in spellings(value):
        assert spelled not in log
    assert "rpc.example.org" in log


def test_a_setting_that_is_no_secret_stays_readable(house: Skillhouse) -> None:
    with house:
        for value in (*PLAIN, "1"):
            text = f"the value is {value} here"
            assert house.audit_log.clean(text) == text


def test_a_device_s_secret_is_hidden_as_soon_as_it_is_paired(house: Skillhouse) -> None:
    with house:
        house.services.enforcement.devices.pair("first", user="local")
        secret = house.services.enforcement.devices.pair("phone", user="local").secret
        assert secret not in house.audit_log.clean(f"sent {secret}")


def test_a_token_file_that_is_missing_or_a_pipe_hides_nothing_and_stops_nothing(
    house: Skillhouse, tmp_path: Path
) -> None:
    (tmp_path / "token").unlink()
    with house:
        assert house.audit_log.clean("some text") == "some text"
