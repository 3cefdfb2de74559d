"""Runs the example of a guide in a fresh home, with a person who answers and a scripted model.

The model loads a skill and writes three files: about the first two a person is asked, who approves
one and denies the other, and the third is denied by a rule. The conversation then goes on to its
end. With an adapter the program itself asks at its terminal, as the guide has it; over MCP the
question is answered by `skillhouse approvals`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.interop.agents.fake_model import Asked, FakeModel, Step, serving
from tests.interop.agents.scenes import House
from tests.interop.frameworks import environments
from tests.interop.frameworks.environments import Environment
from tests.interop.frameworks.table import MCP, Way
from tests.own_environments import ROOT

SECONDS = 300.0
LOOK_SECONDS = 0.3
APPROVED, REFUSED, DENIED = "poem.txt", "other.txt", "secret.txt"
"""What the model writes, in this order."""
TEXT = "Rain.\n"
PROMPT = re.compile(r"\? (?:\[y/N\] )?$")
"""How the examples end what they ask."""
ADDRESS = re.compile(r"(http://127\.0\.0\.1:\d+)/\?token=")
LAST = "All done"
"""How the model ends."""


class FrameworkError(Exception):
    """A run could not be prepared, or did not end."""


@dataclass(slots=True, kw_only=True)
class Seen:
    """What is left of one run."""

    marker: str
    """A word of the skill's description."""
    secret: str
    """A word of its body."""
    reason: str
    """A word of the rule that denies."""
    asked: Sequence[Asked] = ()
    """What the model was sent."""
    questions: list[str] = field(default_factory=list)
    """What a person was asked."""
    early: list[str] = field(default_factory=list)
    """Files that were there when the person had not answered about them."""
    files: Mapping[str, str] = field(default_factory=dict)
    records: Sequence[Mapping[str, Any]] = ()
    """What `audit list --json` prints, oldest first."""
    is_log_whole: bool = False
    code: int = 0
    said: str = ""
    """What the program printed."""


def run(environment: Environment, base: Path) -> Seen:
    """Run the example of a framework in an environment to its end.

    Args:
        environment: The version.
        base: A new folder.

    Raises:
        FrameworkError: it did not end, or a command of ours failed.
    """
    framework = environment.framework
    house = House(base)
    seen = Seen(marker=_word(), secret=_word(), reason=_word())
    rules = f'[[rules]]\neffect = "deny"\naction = "write"\npattern = "**/{DENIED}"\n'
    rules += f'reason = "it is kept, {seen.reason}"\n'
    house.configure(_waits() + rules if framework.way is Way.MCP else rules)
    house.add_skill("tides", f"Tells the tides of {seen.marker}.", f"High water: {seen.secret}.")
    steps = [_step(environment, "skill", {"name": "tides"})]
    steps += [
        _step(environment, "write", {"path": name, "content": TEXT})
        for name in (APPROVED, REFUSED, DENIED)
    ]
    if framework.ends_by:
        steps.append(Step(tool=framework.ends_by, arguments={"answer": f"{LAST}."}))
    with serving(FakeModel(steps=steps)) as model, _service(house, framework.way) as variables:
        command, more = _program(environment, house)
        _attend(command, house, seen, {**_keys(model.url), **variables, **more}, framework.way)
    seen.asked = model.asked
    with (base / "requests.jsonl").open("w") as log:
        log.writelines(json.dumps(one.body) + "\n" for one in model.asked)
    (base / "output.txt").write_text(seen.said)
    seen.files = {
        file.name: file.read_text() for file in house.project.iterdir() if file.suffix == ".txt"
    }
    listed = json.loads(house.do("audit", "list", "--json"))["records"]
    seen.records = sorted(listed, key=lambda one: int(one["record"]["seq"]))
    seen.is_log_whole = house.say("audit", "verify").returncode == 0
    return seen


def _step(environment: Environment, tool: str, arguments: Mapping[str, Any]) -> Step:
    return Step(tool=environment.framework.prefix + tool, arguments=arguments)


def _waits() -> str:
    """Return the configuration by which the guide has a call wait for its answer."""
    text = (ROOT / MCP).read_text(encoding="utf-8")
    found = re.search(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise FrameworkError(f"no configuration in {MCP}")
    return found[1]


def _program(environment: Environment, house: House) -> tuple[list[str], Mapping[str, str]]:
    """Write the program, and return how it is started, with variables of its own."""
    code = environments.example(environment.framework)
    if environment.framework.way is Way.PACKAGE:
        # Node looks for packages beside the file.
        file = environment.place / "example.ts"
        file.write_text(code)
        return [environments.node(environment), str(file)], {}
    file = house.base / "example.py"
    file.write_text(code)
    return [str(environment.python), "-u", str(file)], {"PYTHONNOUSERSITE": "1"}


def _keys(url: str) -> dict[str, str]:
    """Return what leads the providers' packages to a model on loopback."""
    return {
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": f"{url}/v1",
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_BASE_URL": url,
        "GOOGLE_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": url,
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "CREWAI_DISABLE_TELEMETRY": "true",
        "CREWAI_TRACING_ENABLED": "false",
        "MASTRA_TELEMETRY_DISABLED": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        # Root may run Claude Code in a sandbox only.
        "IS_SANDBOX": "1",
    }


@contextmanager
def _service(house: House, way: Way) -> Iterator[Mapping[str, str]]:
    """Run what the guide has beside a program of Node, and give what such a program is given."""
    if way is not Way.PACKAGE:
        yield {}
        return
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "skillhouse", "up", "--port", "0"],
        cwd=house.project,
        env=house.environment,
        stdout=subprocess.PIPE,
        stderr=(house.base / "service.txt").open("wb"),
        text=True,
    )
    with process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            address = ADDRESS.match(line)
            if address is None:
                raise FrameworkError(f"skillhouse up: {line!r}")
            # As the guide says it, one that calls and one that answers.
            calls, answers = (
                house.do("tokens", "new", name, "--scope", "read", "--scope", scope)
                for name, scope in (("helper", "call"), ("helper-user", "approve"))
            )
            yield {
                "SKILLHOUSE_URL": address[1],
                "SKILLHOUSE_TOKEN": _token(calls),
                "SKILLHOUSE_APPROVAL_TOKEN": _token(answers),
            }
        finally:
            process.kill()


def _token(said: str) -> str:
    found = re.search(r"skh_[\w-]+", said)
    if found is None:
        raise FrameworkError(f"no token in {said!r}")
    return found[0]


def _attend(
    command: Sequence[str], house: House, seen: Seen, more: Mapping[str, str], way: Way
) -> None:
    """Run the program, and answer what it asks: the first question with yes, others with no."""
    process = subprocess.Popen(
        command,
        cwd=house.project,
        env={**house.environment, **more},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    said = bytearray()
    reader = threading.Thread(target=_read, args=(process, said), daemon=True)
    reader.start()
    answered = 0
    until = time.monotonic() + SECONDS
    try:
        while process.poll() is None:
            if time.monotonic() > until:
                raise FrameworkError(f"it did not end within {SECONDS:g} seconds: {_end(said)}")
            if way is Way.MCP:
                _answer_elsewhere(house, seen)
            elif PROMPT.search(_text(said[answered:])):
                seen.questions.append(_text(said[answered:]).splitlines()[-1])
                answered = len(said)
                _type(process, _decided(house, seen))
            time.sleep(LOOK_SECONDS)
    finally:
        # All of them may have ended by themselves.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        seen.code = process.wait()
        reader.join(5)
        seen.said = _text(said)


def _read(process: subprocess.Popen[bytes], said: bytearray) -> None:
    if process.stdout is not None:
        while part := os.read(process.stdout.fileno(), 65_536):
            said += part


def _text(said: bytes | bytearray) -> str:
    return bytes(said).decode(errors="replace")


def _end(said: bytearray) -> str:
    return _text(said)[-400:]


def _type(process: subprocess.Popen[bytes], is_approved: bool) -> None:
    if process.stdin is not None:
        process.stdin.write(b"y\n" if is_approved else b"n\n")
        process.stdin.flush()


def _decided(house: House, seen: Seen) -> bool:
    """Look at what lies on the disk before the answer, and return whether it is yes."""
    is_first = len(seen.questions) == 1
    file = house.project / (APPROVED if is_first else REFUSED)
    if file.exists():
        seen.early.append(file.name)
    return is_first


def _answer_elsewhere(house: House, seen: Seen) -> None:
    """Answer an open question as a person does at another terminal."""
    found = json.loads(house.do("approvals", "list", "--json"))["approvals"]
    for one in found:
        seen.questions.append(str(one.get("title") or one["id"]))
        if _decided(house, seen):
            house.approve(one["id"])
        else:
            house.do("approvals", "deny", one["id"])


def _word() -> str:
    """Return a word that no other text has."""
    return f"owl{secrets.token_hex(6)}"
