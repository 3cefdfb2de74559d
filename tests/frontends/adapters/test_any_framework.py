"""The guide for frameworks without an adapter: Strands over MCP, and a call that waits."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.frontends.adapters.test_alone import MAKES
from tests.own_environments import ROOT, own_python

from skillhouse import Skillhouse
from skillhouse.approval import OWNER, Answer
from skillhouse.floor import Locations
from skillhouse.house import configured

pytestmark = pytest.mark.slow

GUIDE = ROOT / "docs/guides/any-framework-over-mcp.md"
MODEL = 'agent("Write a poem about the weather skill to poem.txt.")'
CALLS = 'agent.tool.skill(name="weather"), agent.tool.write(path="poem.txt", content="Rain.\\n")'


def block(kind: str) -> str:
    found = re.findall(
        rf"^```{kind}\n(.*?)^```", GUIDE.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    (only,) = found
    return str(only)


@pytest.mark.parametrize("answer", [Answer.ONCE, Answer.NO])
def test_a_call_over_mcp_waits_for_its_answer(tmp_path: Path, answer: Answer) -> None:
    python = own_python("mcp-clients", makes=MAKES)
    if python is None:
        pytest.skip(f"no environment for clients of MCP: {MAKES}=1 makes one, with a network")
    home, project = tmp_path / "home", tmp_path / "project"
    (home / ".config/skillhouse").mkdir(parents=True)
    (home / ".config/skillhouse/config.toml").write_text(block("toml"))
    (project / ".git").mkdir(parents=True)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {"PATH": path, "HOME": str(home)}
    code = block("python")
    assert code.count(MODEL) == 1
    program = subprocess.Popen(
        [str(python), "-c", code.replace(MODEL, CALLS)],
        cwd=project,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    places = Locations(start=project, home=home, environment=environment)
    with Skillhouse(configured(places)) as house, program:
        ends = time.monotonic() + 120
        while not (found := house.approvals.pending()):
            assert program.poll() is None, program.communicate()
            assert time.monotonic() < ends
            time.sleep(0.1)
        nonce = found[0].request.nonce
        house.approvals.answer(found[0].id, answer, by=OWNER, channel="cli", nonce=nonce)
        said, _ = program.communicate(timeout=60)
    assert program.returncode == 0, said
    assert "<skill_content" in said
    assert (project / "poem.txt").exists() is (answer is Answer.ONCE)
    assert ("not approved" in said) is (answer is Answer.NO)
