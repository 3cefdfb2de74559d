"""Search over MCP while the index of thousands of skills is being made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.frontends.mcp_peer import Peer, Pipe
from tests.house.places import write_skill

pytestmark = pytest.mark.slow

SKILLS = 3_000
BODY = "Needs gravel and patience, and more words than fit in a description. " * 30


@pytest.mark.heavy
def test_the_first_search_of_thousands_says_what_it_looked_at_and_a_later_one_is_complete(
    tmp_path: Path,
) -> None:
    """Review D2: the first `search_skills` with 10,000 skills took 6 s of CPU."""
    peer = Peer(tmp_path)
    root = tmp_path / "library"
    for number in range(SKILLS):
        write_skill(root / f"kite-{number:04}", description="Flies kites.", body=BODY)

    def searched(pipe: Pipe, query: str) -> str:
        pipe.send("tools/call", 1, name="search_skills", arguments={"query": query, "limit": 1})
        answer: dict[str, Any] = pipe.receive()
        assert answer["id"] == 1
        text: str = answer["result"]["content"][0]["text"]
        return text

    with Pipe(peer, "--root", str(root)) as pipe:
        pipe.shake_hands()
        said = "names and descriptions alone"
        first = searched(pipe, "kites")
        assert first.startswith("kite-0000: Flies kites. (name: kites")
        assert said in first
        while said in (answer := searched(pipe, "gravel")):
            assert answer.startswith("no skill fits")
        assert answer == "kite-0000: Flies kites. (body: gravel)"
    with Pipe(peer, "--root", str(root)) as pipe:
        pipe.shake_hands()
        assert searched(pipe, "gravel") == "kite-0000: Flies kites. (body: gravel)"
