"""`skillhouse worker`: its answers to JSON-RPC requests, as a core gets them."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.frontends.mcp_peer import environment_of
from tests.house.coded import tool, write_code

pytestmark = pytest.mark.slow

TOKEN = "e" * 64
Post = Callable[[object], tuple[int, Any]]


@contextmanager
def worker(base: Path, skills: Path) -> Iterator[Post]:
    """Give what sends bodies to a worker; status and decoded answer come back, None for none."""
    (base / "token").write_text(TOKEN)
    home = base / "home"
    home.mkdir()
    words = ["worker", "--skills", str(skills), "--core", "http://127.0.0.1:9/rpc", "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "skillhouse", *words, "--token-file", str(base / "token"),
         "--json"],
        env=environment_of(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    first = process.stdout.readline()
    assert first, process.communicate()[1]
    address = json.loads(first)["address"]

    def send(body: object) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        request = urllib.request.Request(address, data, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = answer.read()
            return answer.status, json.loads(found) if found else None

    try:
        yield send
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0


def asks(method: str, number: object = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params, "id": number}


@pytest.mark.req("S002-14", "S002-15")
def test_requests_errors_batches_and_notifications_are_answered_by_the_specification(
    tmp_path: Path,
) -> None:
    skills = tmp_path / "skills"
    skills.mkdir()
    with worker(tmp_path, skills) as post:
        check_answers(post, skills)


def check_answers(post: Post, skills: Path) -> None:
    def code_of(body: object) -> tuple[int, Any]:
        status, answer = post(body)
        assert status == 200
        assert set(answer) == {"jsonrpc", "error", "id"}
        assert isinstance(answer["error"]["message"], str)
        return answer["error"]["code"], answer["id"]

    assert post(asks("tool.list", "a")) == (200, {"jsonrpc": "2.0", "result": [], "id": "a"})
    assert code_of(b"{") == (-32700, None)
    assert code_of({"method": "tool.list", "id": 3}) == (-32600, 3)
    assert code_of([]) == (-32600, None)
    assert code_of(asks("tool.unknown", 4)) == (-32601, 4)
    assert code_of(asks("tool.execute", 5, tool="none", params={}, context={})) == (-32602, 5)
    silent = {key: value for key, value in asks("tool.list").items() if key != "id"}
    status, answers = post([asks("tool.list", 6), silent, asks("tool.unknown", 7), 8])
    assert status == 200
    assert [(each["id"], each.get("error", {}).get("code")) for each in answers] == [
        (6, None),
        (7, -32601),
        (None, -32600),
    ]
    for body in (silent, [silent, silent], {**silent, "method": "tool.unknown"}):
        assert post(body)[1] is None
    # An answer beyond the bound of a frame is an internal error, and the next is an answer again.
    tools = [tool(f"t{number}", description="x" * 3_900) for number in range(60)]
    write_code(skills / "large", "tools = {}\n", *tools)
    assert post(asks("skill.reload", 9))[1]["result"] == {"loaded": ["large"], "failed": []}
    assert code_of([asks("tool.list", number) for number in range(50)]) == (-32603, None)
    assert len(post(asks("tool.list", 10))[1]["result"]) == 60
