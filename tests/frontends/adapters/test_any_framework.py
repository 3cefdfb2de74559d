"""The guide for frameworks without an adapter: a call that waits, and who answers it."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.extensions.server.test_http_serve import started
from tests.frontends.adapters.test_alone import MAKES
from tests.harness import until
from tests.house.places import make_places
from tests.own_environments import ROOT, own_python

from skillhouse import Skillhouse
from skillhouse.approval import OWNER, Answer
from skillhouse.floor import Locations
from skillhouse.house import configured
from skillhouse.house.access_tokens import AccessScope

pytestmark = pytest.mark.slow

GUIDE = ROOT / "docs/guides/any-framework-over-mcp.md"
STRANDS = (
    'agent("Write a poem about the weather skill to poem.txt.")',
    'agent.tool.skill(name="weather"), agent.tool.write(path="poem.txt", content="Rain.\\n")',
)
LLAMA_INDEX = (
    'await agent.run("Write a poem about the weather skill to poem.txt.")',
    (
        'await called(tools, "skill", name="weather"),'
        ' await called(tools, "write", path="poem.txt", content="Rain.\\n")'
    ),
)
MODEL = """\
from llama_index.core.llms import MockLLM
llm = MockLLM()
async def called(tools, wanted, **arguments):
    (tool,) = [one for one in tools if one.metadata.name == wanted]
    return await tool.acall(**arguments)
"""
"""What stands in for a model of LlamaIndex."""


def block(kind: str, holds: str = "") -> str:
    found = re.findall(
        rf"^```{kind}\n(.*?)^```", GUIDE.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    (only,) = [str(one) for one in found if holds in one]
    return only


Answering = Callable[[Skillhouse, Answer], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def at_the_terminal(house: Skillhouse, answer: Answer) -> Iterator[None]:
    """Answer as the verb `approvals` does, while the framework's program runs."""
    (found,) = until(house.approvals.pending, 120)
    nonce = found.request.nonce
    house.approvals.answer(found.id, answer, by=OWNER, channel="cli", nonce=nonce)
    yield


@contextlib.contextmanager
def by_the_program_of_the_guide(house: Skillhouse, answer: Answer) -> Iterator[None]:
    base = house.config.places.home.parent
    tokens = house.services.enforcement.access_tokens
    _, token = tokens.new("answers", (AccessScope.READ, AccessScope.APPROVE))
    with started(base) as (_, port, _):
        address = {"SKILLHOUSE_URL": f"http://127.0.0.1:{port}", "SKILLHOUSE_TOKEN": token}
        program = subprocess.Popen(
            [sys.executable, "-c", block("python", "ApiClient")],
            env={**os.environ, **address},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with program:
            try:
                assert program.stdin is not None
                program.stdin.write("y\n" if answer is Answer.ONCE else "n\n")
                program.stdin.flush()
                yield
            finally:
                program.kill()


@pytest.mark.parametrize(
    ("framework", "answering", "answer"),
    [
        ("strands", at_the_terminal, Answer.NO),
        ("strands", by_the_program_of_the_guide, Answer.ONCE),
        ("llama_index", by_the_program_of_the_guide, Answer.ONCE),
    ],
)
def test_a_call_over_mcp_waits_for_its_answer(
    tmp_path: Path, framework: str, answering: Answering, answer: Answer
) -> None:
    python = own_python("mcp-clients", makes=MAKES)
    if python is None:
        pytest.skip(f"no environment for clients of MCP: {MAKES}=1 makes one, with a network")
    places = make_places(tmp_path)
    (places.home / ".config/skillhouse").mkdir(parents=True)
    (places.home / ".config/skillhouse/config.toml").write_text(block("toml"))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {"PATH": path, "HOME": str(places.home)}
    model, calls = STRANDS if framework == "strands" else LLAMA_INDEX
    code = block("python", framework)
    assert code.count(model) == 1
    begins = MODEL if framework == "llama_index" else ""
    here = Locations(start=places.start, home=places.home, environment=environment)
    with Skillhouse(configured(here)) as house:
        program = subprocess.Popen(
            [str(python), "-c", begins + code.replace(model, calls)],
            cwd=places.start,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        with program, answering(house, answer):
            said, _ = program.communicate(timeout=300)
    assert program.returncode == 0, said
    assert "<skill_content" in said
    assert (places.start / "poem.txt").exists() is (answer is Answer.ONCE)
    assert ("not approved" in said) is (answer is Answer.NO)
