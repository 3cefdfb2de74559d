"""Walks five requests through the program in a throw-away home, and counts what they enter.

`./x py -m scripts.walk [--tree DIR] [--rounds N] [--names]`: DIR is another checkout, this one if
left out; `--names` prints the files. The medians of the rounds are shown. The walks are:

- list: `skillhouse list` in a new home, from start to end
- exec: from an `exec` sent to `skillhouse mcp`, which was initialized and listed its tools, over
  the question, which the client answers with "allow once", to the result
- tool: `skillhouse call` of a skill's tool in Python that reads a file through the gate, from start
  to end
- install: `skillhouse install ./stand-up` of a directory into an empty home, from start to end
- page: from the form with which a person approves a waiting call to the answer of `skillhouse up`

A function is entered when it is called in any thread of the process meanwhile, also by a timer.
What has the same name in the same file (two lambdas, methods of two classes) counts once. Bodies of
modules do not count, and neither does what an import calls: a module that is loaded at its first
use would otherwise count in whichever request that is. The code in the cell, which is another
program, is not watched.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_SECONDS = 120
CHECK_SECONDS = 1.0
"""Of frontends/mcp/tool_list.py, in whichever tree is walked."""
SETTINGS = "[skill_code]\nenabled = true\n"
MANIFEST = """[project]
name = "counter"
version = "1.0.0"
description = "Counts letters."

[tool.skillhouse]
requires = {env = []}
tools = [{name = "count", description = "Counts letters.", parameters = {type = "object"}, \
security = {level = "read"}}]
"""
CODE = """
async def count(params, context):
    return {"length": len(await context.read_file("a.txt"))}

tools = {"count": count}
"""
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "walk", "version": "1"},
}

Entered = set[tuple[str, str]]
"""Functions: file below src, and name."""


class Place:
    """A home with a skill and a project with a file, thrown away afterwards."""

    def __init__(self, base: Path, tree: Path) -> None:
        self.tree, self.home, self.project = tree, base / "home", base / "project"
        (self.project / ".git").mkdir(parents=True)
        (self.project / "a.txt").write_text("hello", encoding="utf-8")
        notes = self.home / ".agents/skills/notes"
        notes.mkdir(parents=True)
        text = "---\nname: notes\ndescription: Takes notes.\n---\nWrite them down.\n"
        (notes / "SKILL.md").write_text(text, encoding="utf-8")
        self._out = base / "entered"
        self._started = 0

    def add_code(self) -> None:
        """Add a skill with a tool, and turn skills' code on."""
        counter = self.home / ".agents/skills/counter"
        counter.mkdir()
        (counter / "pyproject.toml").write_text(MANIFEST, encoding="utf-8")
        (counter / "main.py").write_text(CODE, encoding="utf-8")
        settings = self.home / ".config/skillhouse/config.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text(SETTINGS, encoding="utf-8")

    def add_source(self) -> None:
        """Add a skill to install to the project."""
        source = self.project / "stand-up"
        source.mkdir()
        text = "---\nname: stand-up\ndescription: Writes a note.\n---\nThree lines.\n"
        (source / "SKILL.md").write_text(text, encoding="utf-8")

    def start(self, *arguments: str) -> Walked:
        """Start the program here, watched."""
        self._started += 1
        out = self._out.with_suffix(f".{self._started}")
        command = [sys.executable, str(ROOT / "scripts/walk_tracer.py"), str(out), *arguments]
        environment = {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(self.tree / "src"),
        }
        process = subprocess.Popen(
            command,
            cwd=self.project,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return Walked(process, out, self.tree / "src")

    def run(self, *arguments: str) -> tuple[Entered, str]:
        """Run a command to its end; return what it entered and printed."""
        walked = self.start(*arguments)
        printed, noted = walked.process.communicate(timeout=PATIENCE_SECONDS)
        return walked.entered(1), printed + noted


class Walked:
    """A watched process."""

    def __init__(self, process: subprocess.Popen[str], out: Path, source: Path) -> None:
        self.process, self._out, self._source = process, out, source
        self._parts = 0

    def cut(self) -> Entered:
        """Return what was entered since the last cut, and begin again."""
        self._parts += 1
        self.process.send_signal(signal.SIGUSR2)
        return self.entered(self._parts)

    def entered(self, part: int) -> Entered:
        """Wait for a part and return its functions."""
        file = Path(f"{self._out}.{part}")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not file.exists():
            if time.monotonic() > deadline:
                raise SystemExit(f"no part {part} of what was entered")
            time.sleep(0.01)
        rows = json.loads(file.read_text(encoding="utf-8"))
        return {
            (os.path.relpath(file_name, self._source), function)
            for file_name, function in rows
            if file_name.startswith(f"{self._source}{os.sep}") and function != "<module>"
        }


class McpClient:
    """Lines of JSON-RPC to a walked `skillhouse mcp`."""

    def __init__(self, walked: Walked) -> None:
        self.process, self._number, self.questions = walked.process, 0, 0
        self.ask("initialize", HELLO)
        self._send({"method": "notifications/initialized"})

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        """Return the result of a request; what the server asks meanwhile is answered."""
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            message = json.loads(line)
            if message.get("method") == "elicitation/create":
                self.questions += 1
                schema = message["params"]["requestedSchema"]["properties"]
                content = {name: value["enum"][-1] for name, value in schema.items()}
                result = {"action": "accept", "content": content}
                self._send({"id": message["id"], "result": result})
            elif message.get("id") == self._number and "method" not in message:
                return message["result"]
        raise SystemExit(f"no answer to {method}")


def list_skills(place: Place) -> Entered:
    """Walk `skillhouse list`."""
    entered, printed = place.run("list")
    _check("notes" in printed, printed)
    return entered


def exec_over_mcp(place: Place) -> Entered:
    """Walk an `exec` over MCP that is asked about and allowed."""
    walked = place.start("mcp")
    with walked.process:
        client = McpClient(walked)
        client.ask("tools/list", {})
        # The list is answered while the SDK is loaded. What follows, up to the index of search in
        # a thread, is of the start: the next request is answered after it.
        client.ask("prompts/list", {})
        # A call looks for changed skills unless the last look is younger (tool_list.py), so that
        # on a fast machine this one would enter fewer files.
        time.sleep(CHECK_SECONDS + 0.1)
        walked.cut()
        arguments = {"command": "touch", "params": ["b.txt"]}
        result = client.ask("tools/call", {"name": "exec", "arguments": arguments})
        entered = walked.cut()
    _check(client.questions == 1 and (place.project / "b.txt").exists(), result)
    return entered


def tool_of_a_skill(place: Place) -> Entered:
    """Walk the call of a skill's own tool."""
    place.add_code()
    entered, printed = place.run("call", "counter__count", "--args", "{}")
    _check(json.loads(printed or "null") == {"length": 5}, printed)
    return entered


def install_a_directory(place: Place) -> Entered:
    """Walk `skillhouse install` of a directory."""
    place.add_source()
    entered, printed = place.run("install", "./stand-up", "--yes", "--allow-unsigned")
    _check((place.home / ".agents/skills/stand-up/SKILL.md").exists(), printed)
    return entered


def answer_on_page(place: Place) -> Entered:
    """Walk the approval of a waiting call on the page."""
    place.run("call", "write", "--args", '{"path": "n.txt", "content": "x"}')
    walked = place.start("up", "--port", "0")
    with walked.process:
        assert walked.process.stdout is not None
        line = walked.process.stdout.readline()
        host, token = re.findall(r"http://([^/]+)/\?token=(\S+)", line)[0]
        cookie = _request(host, "GET", f"/?token={token}", {})[1].partition(";")[0]
        ours = {"cookie": cookie, "origin": f"http://{host}"}
        page = _request(host, "GET", "/approvals", ours)[2]
        path = re.findall(r"/approvals/[0-9a-f]{16}", page)[0]
        form = _form(_request(host, "GET", path, ours)[2], "once")
        walked.cut()
        status, _, answer = _request(host, "POST", path, ours, form)
        entered = walked.cut()
        walked.process.terminate()
    _check(status == http.HTTPStatus.SEE_OTHER, answer)
    return entered


def _request(
    host: str, method: str, path: str, headers: Mapping[str, str], form: str = ""
) -> tuple[int, str, str]:
    """Return the status, the cookie that is set, and the text of an answer."""
    kind = {"content-type": "application/x-www-form-urlencoded"} if form else {}
    connection = http.client.HTTPConnection(host, timeout=PATIENCE_SECONDS)
    with contextlib.closing(connection):
        connection.request(method, path, form, {**headers, **kind})
        answer = connection.getresponse()
        return answer.status, answer.headers.get("set-cookie", ""), answer.read().decode()


def _form(page: str, answer: str) -> str:
    """Return the body that the form with an answer sends."""
    for form in re.findall(r"<form.*?</form>", page, re.DOTALL):
        if f'value="{answer}"' in form:
            hidden = re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form)
            return urllib.parse.urlencode({**dict(hidden), "answer": answer})
    raise SystemExit(f"no form for {answer}")


def _check(holds: bool, found: object) -> None:  # noqa: FBT001 - as `assert`.
    """Stop when a walk did not do what it is counted for."""
    if not holds:
        raise SystemExit(f"the walk went another way: {found}")


WALKS: dict[str, Callable[[Place], Entered]] = {
    "list": list_skills,
    "exec": exec_over_mcp,
    "tool": tool_of_a_skill,
    "install": install_a_directory,
    "page": answer_on_page,
}


def walked(name: str, tree: Path) -> Entered:
    """Return what a walk enters, in a place of its own."""
    with tempfile.TemporaryDirectory() as base:
        return WALKS[name](Place(Path(base), tree.resolve()))


def files_of(entered: Entered) -> set[str]:
    """Return the files that were entered."""
    return {file for file, _ in entered}


def main() -> None:
    parser = argparse.ArgumentParser(description="Count what five requests enter.")
    parser.add_argument("--tree", type=Path, default=ROOT, metavar="DIR")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--names", action="store_true", help="print the files of the last round")
    options = parser.parse_args()
    print("| walk | files | functions | files of the rounds | functions of the rounds |")
    print("|---|--:|--:|--:|--:|")
    for name in WALKS:
        rounds = [walked(name, options.tree) for _ in range(options.rounds)]
        files = [len(files_of(entered)) for entered in rounds]
        functions = [len(entered) for entered in rounds]
        middles = (round(statistics.median(files)), round(statistics.median(functions)))
        spread = [f"{min(each)} to {max(each)}" for each in (files, functions)]
        print(f"| {name} | {middles[0]} | {middles[1]} | {' | '.join(spread)} |", flush=True)
        if options.names:
            print(*sorted(files_of(rounds[-1])), sep="\n")


if __name__ == "__main__":
    main()
