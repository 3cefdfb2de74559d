"""Every way into the house leads through the same door (S000-60)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.frontends.mcp_peer import LEGACY, MODERN, Peer, environment_of, text_of
from tests.harness import ran

CLOSED = '[write_gate]\nenabled = true\n[[rules]]\neffect = "allow"\naction = "*"\npattern = "*"\n'
CALL = {"path": "made.txt", "content": "x"}


@pytest.fixture
def peer(tmp_path: Path) -> Peer:
    found = Peer(tmp_path)
    found.configure(CLOSED)
    return found


@pytest.mark.slow
@pytest.mark.req("S000-60")
@pytest.mark.parametrize("mode", [LEGACY, MODERN])
async def test_a_client_of_mcp_meets_the_write_gate(peer: Peer, mode: str) -> None:
    # What a server without a door does with the same arguments.
    (peer.project / CALL["path"]).write_text(CALL["content"])
    (peer.project / CALL["path"]).unlink()
    async with peer.client(mode) as client:
        for tool, arguments in (("write", CALL), ("exec", {"command": "touch made.txt"})):
            result = await client.call_tool(tool, arguments)
            assert result.is_error
            assert "not_in_allowlist" in text_of(result)
    assert not (peer.project / "made.txt").exists()


@pytest.mark.slow
@pytest.mark.req("S000-60")
def test_the_command_line_meets_the_write_gate(peer: Peer) -> None:
    words = (sys.executable, "-m", "skillhouse", "call", "write", "--args", json.dumps(CALL))
    done = ran(words, cwd=peer.project, env=environment_of(peer.home))
    assert done.returncode == 1
    assert "not_in_allowlist" in done.stdout + done.stderr
    assert not (peer.project / "made.txt").exists()
