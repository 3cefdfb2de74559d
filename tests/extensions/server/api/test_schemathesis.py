"""schemathesis compares the service with its document: no server error, no undocumented answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.extensions.server.api.test_events import started
from tests.harness import ran
from tests.house.places import write_skill
from tests.own_environments import own_python

from skillhouse.extensions.server.api.routes import ENDPOINTS

pytestmark = [pytest.mark.slow, pytest.mark.heavy]

MAKES = "SKILLHOUSE_SCHEMATHESIS"
ACCEPTED = ("2xx", "3xx", 401, 403, 404, 409, 429, "5xx")
REFUSED = (400, 401, 403, 404, 405, 406, 409, 415, 422, 428, "5xx")
CURSORS = tuple(one.name for one in ENDPOINTS if any(each.name == "cursor" for each in one.query))
TIMES = ("showStats", "showSeries", "exportJson", "exportCsv", "exportWriteGate")
TOGETHER = ("planChange", "applyChange", "planExports", "applyExports")
EXPLAINED: tuple[tuple[str, tuple[str, ...], Sequence[int | str], str], ...] = (
    (
        "missing_required_header",
        (),
        (*REFUSED,),
        "RFC 6585, 3: 428 is for a request that has to have `If-Match`",
    ),
    ("negative_data_rejection", (), (*REFUSED, 413), "a body that is too large is not read"),
    (
        "positive_data_acceptance",
        (),
        (*ACCEPTED, 412, 422),
        "a tag or digest of something else, and names of what is not configured here",
    ),
    (
        "positive_data_acceptance",
        (*CURSORS, *TIMES, *TOGETHER),
        (*ACCEPTED, 400, 412, 422),
        "a cursor is of an earlier answer, few months have 31 days, and one of two is given",
    ),
)
"""What a check says though it is meant: the check, the operations (none: all), the statuses that
are right and why. All other checks hold everywhere."""
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
        command += ["--exclude-path", "/api/v1/events", "--checks", "all"]
        # It adds an address that no one answers at, of which other answers then say so (502).
        command += ["--exclude-operation-id", "addRepository"]
        # DELETE ends a job, which is still known; in a chain no setting of an operation counts.
        command += ["--exclude-checks", "use_after_free"]
        command += ["--max-examples", EXAMPLES, "--seed", "20261123", "--workers", "1"]
        done = ran(command, timeout=SECONDS, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]


def _settings(place: Path) -> Path:
    """Write the settings of the run: all checks, but for what is explained."""
    lines = []
    for check, operations, statuses, _ in sorted(EXPLAINED, key=lambda one: one[1]):
        value = (
            f"expected-statuses = {json.dumps(list(statuses))}" if statuses else "enabled = false"
        )
        if operations:
            lines += ["[[operations]]", f"include-operation-id = {json.dumps(list(operations))}"]
            lines += [f"[operations.checks.{check}]", value]
        else:
            lines += [f"[checks.{check}]", value]
    file = place / "schemathesis.toml"
    file.write_text("\n".join([*lines, ""]))
    return file
