"""schemathesis compares the service with its document: no server error, no undocumented answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.extensions.server.api.test_events import started
from tests.harness import ran
from tests.house.places import write_skill
from tests.own_environments import own_python

pytestmark = [pytest.mark.slow, pytest.mark.heavy]

MAKES = "SKILLHOUSE_SCHEMATHESIS"
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance,response_headers_conformance,unsupported_method"
)
EXAMPLES = "12"
"""Requests for each route and phase; more find nothing else, and each is a whole request."""
SECONDS = 900


@pytest.fixture(scope="module")
def program() -> Path:
    python = own_python("schemathesis", makes=MAKES)
    if python is None:
        pytest.skip(f"no environment for schemathesis: {MAKES}=1 makes one, with a network")
    return python.with_name("schemathesis")


def test_the_service_answers_as_its_document_says(program: Path, tmp_path: Path) -> None:
    write_skill(tmp_path / "home/.agents/skills/notes")
    with started(tmp_path) as (address, token, environment):
        command = [str(program), "--config-file", str(_settings(tmp_path)), "run"]
        command += [f"{address}/api/v1/openapi.json", "--header", f"Authorization: Bearer {token}"]
        # A stream has no end to wait for.
        command += ["--exclude-path", "/api/v1/events", "--checks", CHECKS]
        # It adds an address that no one answers at, of which other answers then say so (502).
        command += ["--exclude-operation-id", "addRepository"]
        command += ["--max-examples", EXAMPLES, "--seed", "20261123", "--workers", "1"]
        done = ran(command, timeout=SECONDS, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]


def _settings(place: Path) -> Path:
    file = place / "schemathesis.toml"
    file.write_text("")
    return file
