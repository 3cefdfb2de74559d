"""What seven clients themselves list, each in a project and a home of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from tests.interop.agents.fake_model import FakeModel, serving

CLIENT_SECONDS = 240.0
"""A program that takes longer has failed."""


class Listed(NamedTuple):
    """A skill as a client lists it."""

    name: str
    description: str
    """As far as the client shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A client that can be asked for its skills."""

    profile: str
    """The name of our profile of it."""
    command: str
    root: str
    """The directory of skills, below the project."""
    ask: Callable[[Place], Iterator[tuple[str, Listed]]]
    """Yields the path of each SKILL.md below the project, and what is listed of it."""
    shown_chars: int = 900
    """Characters that it shows of every description at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a client is started."""

    program: Path
    home: Path
    project: Path

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return a small environment, so that nothing of the caller's changes a client."""
        kept = {key: os.environ[key] for key in ("LANG", "TERM") if key in os.environ}
        path = f"{self.program.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return {**kept, "PATH": path, "HOME": str(self.home), **(more or {})}


def make_place(base: Path, program: Path) -> Place:
    """Return an empty home and an empty project, which is a git repository."""
    home, project = base / "home", base / "project"
    home.mkdir(parents=True)
    (project / ".git").mkdir(parents=True)
    (project / ".git/HEAD").write_text("ref: refs/heads/main\n")
    for below in ("objects", "refs"):
        (project / ".git" / below).mkdir()
    return Place(program=program, home=home, project=project)


def _below(place: Place, path: str) -> str:
    return os.path.relpath(path, place.project)


def _ask_claude(place: Place) -> Iterator[tuple[str, Listed]]:
    """Take names and descriptions from the first request to the model."""
    model = FakeModel(steps=())
    with serving(model):
        done = subprocess.run(
            [str(place.program), "-p", "List.", "--model", "sonnet"],
            cwd=place.project,
            env=place.environment(
                {
                    "ANTHROPIC_BASE_URL": model.url,
                    "ANTHROPIC_API_KEY": "k",
                    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                    "CLAUDE_CODE_MAX_RETRIES": "1",
                    "DISABLE_AUTOUPDATER": "1",
                    # So that no description is dropped for want of room.
                    "SLASH_COMMAND_TOOL_CHAR_BUDGET": "100000000",
                    "IS_SANDBOX": "1",
                }
            ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=CLIENT_SECONDS,
        )
    request = next((one.body for one in model.asked), None)
    if request is None:
        raise RuntimeError(f"{place.program}: {done.stderr[-400:] or done.stdout[-400:]}")
    # A name is that of its directory. Its first event names only what has a description.
    root = place.project / ".claude/skills"
    for name, described in _described(request, sorted(os.listdir(root))).items():
        yield f".claude/skills/{name}/SKILL.md", Listed(name, described)


_ENTRY = re.compile(r"(?P<head>- .+?)(?: \([^()]*\))?:(?: |$)")


def _described(request: Any, names: list[str]) -> dict[str, str]:
    """Return the description behind each name in the list of a request.

    A description may hold anything, so a line counts as an entry only where it names a skill.
    """
    marker = "for use with the Skill tool:\n\n"
    text = next((text for text in _texts(request) if marker in text), "")
    text = text.partition(marker)[2].partition("\n</system-reminder>")[0]
    known = {f"- {name}": name for name in names}
    entries: list[tuple[str, list[str]]] = []
    for line in text.split("\n"):
        # 2.1.330 puts a `name` that differs in brackets.
        found = _ENTRY.match(line)
        head = next((h for h in (line, line.partition(": ")[0]) if h in known), None)
        if head is None and found and found["head"] in known:
            head = found["head"]
            line = f"{head}: {line[found.end() :]}"
        if head is not None:
            entries.append((known[head], [line[len(head) :].removeprefix(":").strip()]))
        elif entries:
            entries[-1][1].append(line)
    return {name: "\n".join(lines) for name, lines in entries}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _ask_codex(place: Place) -> Iterator[tuple[str, Listed]]:
    """Ask the app server, which lists what a session would."""
    running = subprocess.Popen(
        [str(place.program), "app-server"],
        cwd=place.project,
        env=place.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert running.stdin is not None
    assert running.stdout is not None

    def send(**message: Any) -> None:
        assert running.stdin is not None
        running.stdin.write(json.dumps(message) + "\n")
        running.stdin.flush()

    def answer(number: int) -> Any:
        assert running.stdout is not None
        for line in running.stdout:
            message = json.loads(line)
            if message.get("id") == number:
                return message["result"]
        raise RuntimeError(f"{place.program}: no answer")

    try:
        client = {"name": "lens", "version": "1"}
        send(id=1, method="initialize", params={"clientInfo": client})
        answer(1)
        send(method="initialized")
        wanted = {"cwds": [str(place.project)], "forceReload": True}
        send(id=2, method="skills/list", params=wanted)
        found = answer(2)["data"][0]["skills"]
    finally:
        running.stdin.close()
        running.terminate()
        running.wait()
        running.stdout.close()
    for skill in found:
        if skill["scope"] == "repo":
            yield _below(place, skill["path"]), Listed(skill["name"], skill["description"])


def _ask_opencode(place: Place) -> Iterator[tuple[str, Listed]]:
    more = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    for skill in json.loads(_said(place, ["debug", "skill"], more)):
        # Its model is shown only what has a description.
        if skill["location"] != "<built-in>" and skill.get("description") is not None:
            listed = Listed(skill["name"], skill["description"])
            yield _below(place, skill["location"]), listed


_GEMINI_ENTRY = re.compile(
    r"(?m)^(?P<name>.*) \[(?:Enabled|Disabled)\]\n  Description: (?P<description>(?s:.*?))"
    r"\n  Location:    (?P<path>.*)$"
)


def _ask_gemini(place: Place) -> Iterator[tuple[str, Listed]]:
    more = {"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_TELEMETRY_ENABLED": "false"}
    # A description may hold anything; the last place in an entry is the true one.
    said = _said(place, ["skills", "list"], more)
    _, _, listed = said.partition("Discovered Agent Skills:\n\n")
    for found in _GEMINI_ENTRY.finditer(listed):
        yield _below(place, found["path"]), Listed(found["name"], found["description"])


_MANUAL = re.compile(r"(?m)^disable-model-invocation: true")


def _ask_copilot(place: Place) -> Iterator[tuple[str, Listed]]:
    for skill in json.loads(_said(place, ["skill", "list", "--json"])):
        file = Path(skill["path"]) / "SKILL.md"
        # The command lists for people; its docs say that a model does not get what has the field.
        if skill["source"] != "builtin" and not _MANUAL.search(file.read_text("utf-8", "replace")):
            yield _below(place, str(file)), Listed(skill["name"], skill["description"])


_KIMI_PATH = re.compile(r"(?m)^  Path: (.*)$")


def _ask_kimi(place: Place) -> Iterator[tuple[str, Listed]]:
    """Take names and descriptions from the first request to the model."""
    model = FakeModel(steps=())
    with serving(model):
        done = subprocess.run(
            [str(place.program), "-p", "List."],
            cwd=place.project,
            env=place.environment(
                {
                    "KIMI_MODEL_NAME": "fake",
                    "KIMI_MODEL_API_KEY": "k",
                    "KIMI_MODEL_BASE_URL": f"{model.url}/v1",
                    "KIMI_MODEL_PROVIDER_TYPE": "openai",
                    "KIMI_CODE_NO_AUTO_UPDATE": "1",
                    "KIMI_DISABLE_TELEMETRY": "1",
                }
            ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=CLIENT_SECONDS,
        )
    said = [text for one in model.asked for text in _texts(one.body) if "\n  Path: " in text]
    if not said:
        raise RuntimeError(f"{place.program}: {done.stderr[-400:] or done.stdout[-400:]}")
    # A description may hold anything but a line of its own form; an entry ends with its path.
    *entries, _ = _KIMI_PATH.split(said[0].partition("Current available skills:")[2])
    for entry, path in zip(entries[::2], entries[1::2], strict=True):
        head, _, _ = entry.partition("\n  When to use: ")
        name, _, description = head[head.index("\n- ") + 3 :].partition(": ")
        yield _below(place, path), Listed(name, description.rstrip())


_NO_TEXT_NAME = re.compile(r"(?m)^name:[ \t]*(?:[-+.\d:]*|true|false|null|~|\[.*)[ \t]*$")


def _ask_amp(place: Place) -> Iterator[tuple[str, Listed]]:
    # A name that is no text costs Amp its whole list, so each of those is asked about alone.
    root = place.project / ".agents/skills"
    texts = {file.parent: file.read_text("utf-8", "replace") for file in root.glob("*/SKILL.md")}
    odd = sorted(skill for skill, text in texts.items() if _NO_TEXT_NAME.search(text[:4_000]))
    moved = {}
    for skill in odd:
        alone = make_place(place.home.parent / "alone" / skill.name, place.program)
        moved[skill] = alone.project / ".agents/skills" / skill.name
        moved[skill].parent.mkdir(parents=True)
        skill.rename(moved[skill])
        try:
            yield from _amp_list(alone, seconds=20)
        except subprocess.TimeoutExpired:
            continue
    yield from _amp_list(place, seconds=CLIENT_SECONDS)
    for skill, aside in moved.items():
        aside.rename(skill)


def _amp_list(place: Place, *, seconds: float) -> Iterator[tuple[str, Listed]]:
    said = _said(place, ["skill", "list", "--json"], {"AMP_API_KEY": "k"}, seconds=seconds)
    for skill in json.loads(said)["skills"]:
        if skill["source"] != "builtin":
            path = f"{unquote(urlsplit(skill['baseDir']).path)}/SKILL.md"
            described = skill["description"]
            if not isinstance(described, str):
                # A number or a list is listed as it is.
                described = json.dumps(described, ensure_ascii=False)
            if isinstance(skill["name"], str):
                yield _below(place, path), Listed(skill["name"], described)


def _said(
    place: Place,
    words: list[str],
    more: Mapping[str, str] | None = None,
    *,
    seconds: float = CLIENT_SECONDS,
) -> str:
    """Return what a command prints, taken from a file: some programs end before a pipe is read."""
    output = place.home.parent / "said"
    with output.open("wb") as file:
        subprocess.run(
            [str(place.program), *words],
            cwd=place.project,
            env=place.environment(more),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.DEVNULL,
            check=True,
            timeout=seconds,
        )
    return output.read_text(encoding="utf-8")


PROGRAMS = (
    Program(profile="claude-code", command="claude", root=".claude/skills", ask=_ask_claude),
    Program(profile="codex", command="codex", root=".agents/skills", ask=_ask_codex),
    Program(profile="opencode-cli", command="opencode", root=".agents/skills", ask=_ask_opencode),
    Program(profile="gemini-cli", command="gemini", root=".agents/skills", ask=_ask_gemini),
    Program(profile="copilot-cli", command="copilot", root=".agents/skills", ask=_ask_copilot),
    Program(
        profile="kimi-code-cli",
        command="kimi",
        root=".kimi-code/skills",
        ask=_ask_kimi,
        shown_chars=200,
    ),
    Program(profile="amp", command="amp", root=".agents/skills", ask=_ask_amp),
)
