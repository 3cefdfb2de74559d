"""Runs every verb, every route and every page over a place, and says what is no answer.

An answer is an exit code from 0 to 3 (or 130, of what a signal ends), with one JSON object where
`--json` asks for one, or a status below 500. An exception, exit code 70, an exception in the log
and more than `HANG_SECONDS` are faults.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import socket
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import pytest
from mcp import MCPError
from mcp.client import Client
from mcp_types import INTERNAL_ERROR
from starlette.testclient import TestClient

from skillhouse.extensions.server.api.route_table import EVENT_STREAM, Endpoint
from skillhouse.extensions.server.api.routes import ENDPOINTS
from skillhouse.extensions.server.app import make_app
from skillhouse.floor import Locations, SkillhouseError
from skillhouse.frontends.cli import main
from skillhouse.frontends.cli.verbs import VERBS, parser_of
from skillhouse.frontends.mcp.server import SkillhouseServer
from skillhouse.frontends.mcp.tool_list import ToolListing
from skillhouse.house import Skillhouse, configured
from tests.frontends.mcp_peer import LEGACY

HANG_SECONDS = 20
INTERNAL = 70
"""The exit code of a fault inside the program (EX_SOFTWARE of sysexits)."""
ANSWERS = (0, 1, 2, 3)
FAULT = -1
"""Instead of an exit code, where a call raised something."""

SERVED = {
    # What serves until it is ended: only with arguments that end it, and in `ServedHouse`.
    "up": (("--host", "nowhere"), ("--root", "{home}/none")),
    "worker": (
        ("--skills", "{root}", "--core", "http://127.0.0.1:9/rpc", "--token-file", "{file}"),
    ),
    "mcp": (
        *(
            ("status",),
            ("status", "--json"),
            ("servers",),
            ("servers", "--json"),
            ("servers", "refresh"),
        ),
        *(("install", client) for client in ("claude-code", "codex", "gemini-cli", "opencode")),
        *(("install", client, "--project") for client in ("claude-code", "codex", "opencode")),
        *(("status", "--fix"), ("uninstall", "codex"), ("uninstall", "claude-code", "--project")),
    ),
    "registry": (
        ("token", "list"),
        ("token", "list", "--json"),
        ("trust", "{file}"),
        ("mirror", "{root}", "{home}/mirror"),
    ),
    "chat": (("--print", "hello"), ("--resume",)),
}
"""Verbs with no other calls than these."""

SAMPLES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "list": (
        ("--findings",),
        ("--problem",),
        ("--client", "codex"),
        ("--sort", "name"),
        ("skill",),
    ),
    "catalog": (
        ("--for", "merge work"),
        ("--style", "compact"),
        ("--style", "xml", "--budget", "90000"),
    ),
    "show": (("{skill}",), ("{skill}", "--json")),
    "search": (("read the guide",), ("https://[port]/ \ud800", "--json"), ("{skill}",)),
    "load": (("{skill}",), ("{skill}", "--raw", "--anyway"), ("{skill}", "--json")),
    "invoke": ((), ("{skill}", "a b", "--json"), ("{skill}", "x", "'", "$1")),
    "files": (("{skill}",), ("{skill}", "--json")),
    "new": (("made", "--description", "Does things."),),
    "install": (
        *(("{root}", "--list"), ("{root}", "--list", "--json"), ("{root}", "--all", "--dry-run")),
        ("{root}", "--all", "--project", "--yes", "--allow-unsigned"),
        ("{root}", "--all", "--yes", "--allow-unsigned", "--json"),
        *(("--frozen",), ("--frozen", "--project", "--yes"), ("--search", "pdf"), ("pdf",)),
        *(("--from-lock", "skills-lock.json", "--dry-run"), ("--from-lock", "{file}", "--yes")),
        *(("{directory}", "--dry-run"), ("{directory}", "--yes", "--allow-unsigned")),
    ),
    "update": (
        ("--dry-run",),
        ("--yes", "--allow-unsigned"),
        ("--json", "--yes"),
        ("{skill}", "--dry-run"),
    ),
    "outdated": ((), ("--json",)),
    "rollback": (("{skill}", "--yes"),),
    "uninstall": (("{skill}",),),
    "info": ((), ("--json",), ("{skill}",)),
    "pin": (("{skill}", "--reason", "\ud800"), ("{skill}", "--off")),
    "verify": (
        (),
        ("--json",),
        ("--full", "--offline"),
        ("{directory}",),
        ("{directory}", "--json"),
        ("{skill}", "--accept"),
    ),
    "publish": (("{directory}", "--dry-run"),),
    "skill": (("install", "{skill}"),),
    "pack": (
        ("{directory}", "-o", "{home}/packed.tar.gz"),
        ("{directory}", "-o", "{home}/packed.tar.gz", "--json"),
    ),
    "enable": (("{skill}",), ("--all",)),
    "disable": (("{skill}",),),
    "delete": (("--list",), ("--list", "--json"), ("{skill}", "--yes"), ("--undo",)),
    "validate": (
        ("{root}",),
        ("{root}", "--json", "--all"),
        ("{root}", "--lenient"),
        ("{directory}",),
        (".",),
    ),
    "doctor": ((), ("--json",), ("--client", "all"), ("--client", "codex", "--json")),
    "profiles": (
        ("list",),
        ("list", "--json"),
        ("show", "codex"),
        ("show", "mine", "--toml"),
        ("compare", "claude-code", "codex"),
    ),
    "export": (
        *(
            ("--all", "--to", "codex,claude-code,gemini-cli,opencode", "--dry-run"),
            ("--status",),
            ("--status", "--json"),
        ),
        *(
            ("--all", "--to", "claude-code"),
            ("--sync",),
            ("{skill}", "--to", "claude-code", "--dry-run"),
            ("--all", "--remove"),
        ),
    ),
    "trust": (("--show",), ("--show", "--json"), ("--yes",), ("--list",)),
    "rehearse": (("read the guide",), ("read the guide", "--full"), ("work", "--json")),
    "tools": (("list",), ("list", "--json")),
    "call": (
        ("skill", "name={skill}"),
        ("skill", "name={skill}", "--json"),
        ("read", "path={file}"),
        ("skill_search", "query=work"),
    ),
    "reload": ((), ("--json",)),
    "approvals": (("list",), ("list", "--json"), ("grants",), ("scripts",), ("devices",)),
    "audit": (
        ("list",),
        ("list", "--json"),
        ("stats",),
        ("verify",),
        ("export", "--format", "csv"),
        ("show", "0"),
    ),
    "policy": (
        ("lint",),
        ("lint", "--json"),
        ("explain", "exec", "rm"),
        ("explain", "skill", "{skill}"),
        ("explain", "git log | head"),
    ),
    "config": (
        ("path",),
        ("show",),
        ("check",),
        ("check", "--json"),
        ("repositories",),
        ("repositories", "--json"),
    ),
    "completions": (("bash",),),
    "remote": (("list",), ("list", "--json"), ("sync",)),
    "sandbox": (("status",),),
    "tokens": (("list",), ("list", "--json")),
    "sign": (("{directory}",),),
    "keys": (("list",), ("list", "--json"), ("session", "list"), ("log",)),
    "stop": (("--status",), ("--status", "--json")),
    "resume": (("--json",),),
}
"""More arguments than those that `below` finds; the order of VERBS is that of the calls.

`{skill}` is a name, `{directory}` its directory, `{root}` that of all, `{file}` a document.
"""


def below(verb: str) -> Iterator[tuple[str, ...]]:
    """Return a verb's calls as its parser has them: bare, and each verb below it."""
    if verb in SERVED:
        yield from SERVED[verb]
        return
    if verb in SAMPLES:
        yield from SAMPLES[verb]
        return
    yield ()
    yield ("{skill}",)
    _, parser = parser_of(verb)
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to list them.
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for name in action.choices:
                yield (name,)
                yield (name, "{skill}")


def calls() -> tuple[tuple[str, ...], ...]:
    """Return the calls of every verb, in the order of the program's own table."""
    return tuple((verb, *arguments) for verb in VERBS for arguments in below(verb))


def is_of_a_skill(call: Sequence[str]) -> bool:
    return any("{skill}" in word or "{directory}" in word for word in call)


@dataclass
class Run:
    """A place, what is called in it, and the faults so far."""

    base: Path
    root: Path
    file: Path
    faults: list[str] = field(default_factory=list)
    is_refused: bool = False
    """Whether a configuration or a lock may end every verb, so that 2 and 3 are answers too."""

    def call(self, words: Iterable[str], skill: str = "", directory: Path | None = None) -> int:
        """Run one call in this process; a fault is kept with its traceback."""
        named = {
            "{skill}": skill,
            "{directory}": str(directory or self.root),
            "{root}": str(self.root),
            "{file}": str(self.file),
            "{home}": str(self.base / "home"),
        }
        given = []
        for word in words:
            for mark, value in named.items():
                word = word.replace(mark, value)
            given.append(word)
        return self.command(*given)

    def command(self, *given: str) -> int:
        # The encoding of a terminal: what is written must be text.
        out, err = (TextIOWrapper(BytesIO(), encoding="utf-8") for _ in range(2))
        began = time.monotonic()
        code = FAULT
        with self.watched(f"{given}"), redirect_stdout(out), redirect_stderr(err), unasked():
            try:
                code = main(given)
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
        for stream in (out, err):
            stream.flush()
        took = time.monotonic() - began
        said, talk = (stream.buffer.getvalue().decode("utf-8") for stream in (out, err))
        if took > HANG_SECONDS:
            self.faults.append(f"{given}: {took:.0f} seconds")
        if code == FAULT:
            return INTERNAL
        if code not in ANSWERS:
            self.faults.append(f"{given}: exit code {code}: {talk[-2000:]}")
        if "--json" in given and code in ANSWERS:
            self.check_json(given, said)
        return code

    def check_json(self, given: Sequence[str], said: str) -> None:
        try:
            value = json.loads(said)
        except ValueError as error:
            self.faults.append(f"{given}: no JSON: {error}: {said[:200]!r}")
        else:
            if not isinstance(value, dict):
                self.faults.append(f"{given}: no object: {said[:200]!r}")

    @contextmanager
    def watched(self, what: str) -> Iterator[None]:
        """Keep an exception, and one that is only logged, as a fault."""
        logged = _Logged()
        logging.getLogger().addHandler(logged)
        try:
            yield
        except SkillhouseError as error:
            if not self.is_refused:
                self.faults.append(f"{what}: {error!r}")
        except Exception:  # noqa: BLE001 - each of them is what is looked for.
            self.faults.append(f"{what}: {traceback.format_exc(limit=-12)}")
        finally:
            logging.getLogger().removeHandler(logged)
        self.faults += [f"{what}: logged: {one}" for one in logged.found]

    def house(self) -> Skillhouse:
        places = Locations(
            start=self.base / "project",
            home=self.base / "home",
            environment=os.environ,
            managed_file=self.base / "managed.toml",
        )
        return Skillhouse(configured(places))

    def serve(self, skills: Iterable[str]) -> None:
        """Ask every route, every page and the MCP server of the place."""
        with self.watched("house"), self.house() as house:
            names = [*skills, *listed(house)][:400]
            with self.watched("HTTP"):
                ServedHouse(self, house, names).ask()
            with self.watched("MCP"):
                anyio.run(self._mcp, house, names)

    async def _mcp(self, house: Skillhouse, names: Sequence[str]) -> None:
        server = SkillhouseServer(
            house, ToolListing(house, "default"), agent="default", user="local"
        )
        async with Client(server.sdk, mode=LEGACY) as client:
            tools = (await client.list_tools()).tools
            await client.list_prompts()
            listed = await client.list_resources()
            for name in [one for one in names if one.isprintable()]:
                await client.call_tool("skill", {"name": name})
            for resource in listed.resources[:200]:
                try:
                    await client.read_resource(str(resource.uri))
                except MCPError as error:
                    # A refusal is an answer; what the server did not foresee is none.
                    if error.code == INTERNAL_ERROR:
                        raise
            for tool in tools:
                if "query" in tool.input_schema["properties"] and tool.name != "web_search":
                    await client.call_tool(tool.name, {"query": "read the guide"})


def listed(house: Skillhouse) -> list[str]:
    return [skill.id for skill in house.index.skills]


class _Logged(logging.Handler):
    """Keeps what is logged with an exception that is no answer."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, SkillhouseError):
            lines = traceback.format_exception(error, limit=-12)
            self.found.append(f"{record.getMessage()}: {''.join(lines)}")


@contextmanager
def unasked() -> Iterator[None]:
    """Give the program an input that ends at once."""
    before = sys.stdin
    with open(os.devnull, encoding="utf-8") as nothing:
        sys.stdin = nothing
        try:
            yield
        finally:
            sys.stdin = before


PORT, TOKEN, SESSION = 8600, "token-of-this-start", "session-of-this-start"
PAGES = (
    *("/", "/?q=work", "/new", "/packages", "/clients", "/clients/exports?action=export"),
    *("/rehearse?q=read+the+guide", "/approvals", "/approvals/standing", "/approvals/history"),
    *("/audit", "/policy", "/policy/add", "/policy/remove/0", "/system", "/system/trust", "/stop"),
    *(
        "/version",
        "/language/zh/problems",
    ),
)
PAGES_OF_A_SKILL = (
    "/skills/{}",
    "/files/{}",
    "/seen/{}",
    "/edit/{}",
    "/clients/exports?action=export&skill={}&client=claude-code",
)
BODIES: Mapping[str, Any] = {
    "/changes/plan": {"action": "install", "source": "{root}"},
    "/exports/plan": {"action": "export", "skills": ["{skill}"], "clients": ["claude-code"]},
}
"""Bodies of requests other than the examples of their routes."""
SAFE = frozenset(
    "/validate /rehearse /policy/explain /policy/test /changes/plan /exports/plan /outdated "
    "/verify /calls /reload".split()
)
"""Paths whose POST changes nothing outside of the place."""


class ServedHouse:
    """The HTTP service of a place, asked for all that it has."""

    def __init__(self, run: Run, house: Skillhouse, skills: Sequence[str]) -> None:
        self._run = run
        self._skills = skills
        app = make_app(house, token=TOKEN, port=PORT, session=SESSION)
        base = f"http://127.0.0.1:{PORT}"
        self._client = TestClient(app, base, follow_redirects=False)

    def ask(self) -> None:
        with self._client:
            for path in PAGES:
                self._page(path)
            for endpoint in ENDPOINTS:
                self._api(endpoint)
            for name in self._skills:
                for path in PAGES_OF_A_SKILL:
                    self._page(path.format(quoted(name)))

    def _page(self, path: str) -> None:
        cookie = {"cookie": f"skillhouse_{PORT}={SESSION}"}
        self._judge(path, "GET", path, headers=cookie)

    def _api(self, endpoint: Endpoint) -> None:
        if endpoint.media == EVENT_STREAM or endpoint.method not in ("GET", "POST"):
            return
        if endpoint.method == "POST" and endpoint.path not in SAFE:
            return
        skills = self._skills if endpoint.names or endpoint.path in BODIES else ("",)
        for name in skills:
            path = endpoint.path
            for one in endpoint.names:
                path = path.replace(f"{{{one}}}", quoted("SKILL.md" if one == "file" else name))
            query = "&".join(
                f"{one.name}={quoted(str(one.example or 'work'))}"
                for one in endpoint.query
                if one.required
            )
            body = BODIES.get(endpoint.path, endpoint.body.example if endpoint.body else None)
            text = json.dumps(body).replace('"{skill}"', json.dumps(name))
            text = text.replace("{root}", str(self._run.root))
            self._judge(
                endpoint.path,
                endpoint.method,
                f"/api/v1{path}" + (f"?{query}" if query else ""),
                headers={"authorization": f"Bearer {TOKEN}", "content-type": "application/json"},
                content=text.encode() if body is not None else None,
            )
            if endpoint.path == "/changes/plan":
                self._wait_for_jobs()
                break

    def _wait_for_jobs(self) -> None:
        headers = {"authorization": f"Bearer {TOKEN}"}
        ends = time.monotonic() + 3 * HANG_SECONDS
        while time.monotonic() < ends:
            jobs = self._client.get("/api/v1/jobs", headers=headers).json()["jobs"]
            if all(job["state"] not in ("waiting", "running") for job in jobs):
                return
            time.sleep(0.02)
        self._run.faults.append("a job of the API does not end")

    def _judge(self, what: str, method: str, path: str, **request: Any) -> None:
        began = time.monotonic()
        with self._run.watched(f"{method} {path[:300]}"):
            answer = self._client.request(method, path, **request)
            if answer.status_code >= 500 and not self._run.is_refused:
                self._run.faults.append(
                    f"{method} {path[:300]}: {answer.status_code}: {answer.text[:300]}"
                )
        if time.monotonic() - began > HANG_SECONDS:
            self._run.faults.append(f"{method} {what}: over {HANG_SECONDS} seconds")


def quoted(name: str) -> str:
    return quote(os.fsencode(name), safe=":")


@contextmanager
def offline(patched: pytest.MonkeyPatch) -> Iterator[None]:
    """Let no name be looked up, and send git to a port where no one listens."""
    asked = socket.getaddrinfo

    def refused(host: Any, *more: Any, **options: Any) -> Any:
        if host in (None, "127.0.0.1", "localhost", "::1", b"127.0.0.1"):
            return asked(host, *more, **options)
        raise socket.gaierror(socket.EAI_NONAME, "no network in this test")

    with patched.context() as patch:
        patch.setattr(socket, "getaddrinfo", refused)
        for name in ("http_proxy", "https_proxy", "ALL_PROXY"):
            patch.setenv(name, "http://127.0.0.1:9")
        yield
