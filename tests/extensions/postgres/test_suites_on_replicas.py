"""The end-to-end suites with `--state=postgresql --replicas`: part of them for each change, all of
them each night."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.balanced import PROGRAM
from tests.extensions.postgres.test_suites_on_a_server import SECONDS, short, suite
from tests.harness import Need

__all__ = ["short"]

# They start the suites with these options themselves.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.file_state,
    pytest.mark.one_server("servers"),
    pytest.mark.takes(SECONDS),
]

CHOSEN = """
    tests/approval/test_crash.py tests/tiers/test_emergency_stop.py
    tests/tools/test_gate_approvals.py
    tests/extensions/server/test_http_calls.py tests/extensions/server/api/test_changing.py
    tests/extensions/server/pages/test_question_pages.py
    tests/extensions/registry/test_clawhub_routes.py
    tests/extensions/channels/test_bot_in_up.py
    tests/frontends/test_mcp_over_http.py
"""

WIDE = {
    "mcp": """
        tests/frontends/test_mcp_over_http.py tests/frontends/test_mcp_http_messages.py
        tests/frontends/test_mcp_oauth.py tests/frontends/test_mcp_restart.py
        tests/frontends/test_mcp_tasks.py tests/frontends/test_answers_everywhere.py
    """,
    "api": "tests/extensions/server/api tests/extensions/server/test_http_[ago]*.py",
    "pages": "tests/extensions/server/pages/test_[!el]*_page*.py",
    "lists": "tests/extensions/server/pages/test_skill_list.py",
    "browser": """
        tests/extensions/server/pages/test_*_browser.py tests/extensions/server/test_http_browser.py
        tests/extensions/server/companion
    """,
    "channels": "tests/extensions/channels/test_bot_in_up.py",
    "registry": "tests/extensions/registry",
    "code": "tests/tools/test_skill_code.py tests/house/test_skill_code.py",
}


def test_a_part_passes_with_two_replicas_behind_haproxy(short: Path, need: Need) -> None:
    need(Path(PROGRAM).exists(), "HAProxy is not installed")
    suite(short, CHOSEN, "--replicas")


@pytest.mark.heavy
@pytest.mark.nightly
@pytest.mark.parametrize("name", WIDE)
def test_each_suite_passes_with_two_replicas(short: Path, name: str, need: Need) -> None:
    need(Path(PROGRAM).exists(), "HAProxy is not installed")
    suite(short, WIDE[name], "--replicas")
