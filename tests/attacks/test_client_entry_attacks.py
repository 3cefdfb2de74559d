"""A client starts what `mcp install` wrote in an attacker's folder: nothing there runs (G17)."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from skillhouse.audit import AuditLog
from skillhouse.clients import ClientConfigs, Standing
from skillhouse.clients.client_table import server_configs
from skillhouse.clients.program import fault_of
from skillhouse.floor import ConfigError
from skillhouse.floor.paths import safe_path
from skillhouse.floor.structs import replace
from skillhouse.house import Locations
from tests.frontends.mcp_peer import PATIENCE_SECONDS
from tests.harness import ran
from tests.house.places import make_places, write_skill

MODULES = (
    *"msgspec anyio yaml h11 mcp mcp_types httpx2 json typing argparse".split(),
    *("sitecustomize", "usercustomize", "skillhouse/__init__", "encodings/__init__"),
)
"""What Python would import from here, if it looked here."""
PROGRAMS = ("skillhouse", "python", "python3", "git", "node", "npm", "uv", "bwrap", "sh")
ENVIRONMENTS: dict[str, dict[str, str]] = {
    "plain": {},
    "import path": {"PYTHONPATH": os.pathsep, "PYTHONPYCACHEPREFIX": "cache"},
    "import path here": {"PYTHONPATH": ".", "PYTHONUSERBASE": ".", "PYTHONSTARTUP": "json.py"},
    "search path": {"PATH": f"bin{os.pathsep}node_modules/.bin{os.pathsep}{os.environ['PATH']}"},
}


class Trap:
    """A folder whose every file leaves a mark when it runs."""

    def __init__(self, base: Path) -> None:
        self.folder, self.marks = base / "project", base / "marks"
        self.marks.mkdir()
        for module in MODULES:
            self._put(f"{module}.py", self.mark(module))
        code = f"import os; os.close(os.open({str(self.marks / 'pth')!r}, os.O_CREAT))\n"
        for folder in (".", "lib/python3/site-packages"):
            self._put(f"{folder}/evil.pth", code)
        (self.folder / "pyvenv.cfg").write_text("home = .\ninclude-system-site-packages = true\n")
        for program in PROGRAMS:
            for folder in ("bin", "node_modules/.bin"):
                file = self._put(
                    f"{folder}/{program}", f"#!/bin/sh\n: >{self.marks}/{program}\nexit 1\n"
                )
                file.chmod(0o755)
        monitor = self._put("monitor", f"#!/bin/sh\n: >{self.marks}/fsmonitor\n")
        monitor.chmod(0o755)
        self._put(".git/config", f"[core]\n\tfsmonitor = {monitor}\n\thooksPath = .\n")
        self._put(".git/HEAD", "ref: refs/heads/main\n")
        variables = "PYTHONPATH=.\nFASTMCP_DEBUG=true\nSKILLHOUSE_PROFILE=opencode\n"
        self._put(".env", variables + "HTTP_PROXY=http://127.0.0.1:1\n")
        self._put(".python-version", "../../../../tmp\n")
        self._put("package.json", '{"main": "index.js", "scripts": {"preinstall": "./bin/sh"}}')
        self._put("node_modules/semver/index.js", self.mark("semver"))
        self._put(".npmrc", "script-shell=./bin/sh\n")

    def mark(self, name: str) -> str:
        """Return Python that leaves a mark."""
        place = str(self.marks / name.partition("/")[0])
        return f"import os\nos.close(os.open({place!r}, os.O_CREAT))\n"

    def _put(self, relative: str, text: str) -> Path:
        path = self.folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def sprung(self) -> list[str]:
        """Return what ran."""
        return sorted(os.listdir(self.marks))


@pytest.fixture
def places(tmp_path: Path) -> Locations:
    return make_places(tmp_path, {"PATH": os.environ["PATH"]})


@pytest.fixture
def trap(places: Locations, tmp_path: Path) -> Trap:
    write_skill(places.home / ".agents/skills/tides", body="High water.\n")
    return Trap(tmp_path)


@pytest.fixture
def configs(places: Locations, tmp_path: Path) -> ClientConfigs:
    return ClientConfigs(
        places=places,
        project=places.start,
        state_directory=tmp_path / "state",
        audit=AuditLog(tmp_path / "audit.jsonl"),
    )


def written(file: Path, table: str, name: str = "skills") -> dict[str, Any]:
    """Return an entry as the client reads it."""
    text = file.read_text()
    value = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    entry: dict[str, Any] = value[table][name]
    return entry


def converse(command: list[str], folder: Path, environment: dict[str, str]) -> list[dict[str, Any]]:
    """Start a server as a client does, in `folder`, and return its answers to four requests."""
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    requests: list[tuple[str, dict[str, Any]]] = [
        ("initialize", hello),
        ("tools/list", {}),
        ("tools/call", {"name": "skill", "arguments": {"name": "tides"}}),
        ("tools/call", {"name": "list", "arguments": {"path": "."}}),
    ]
    answers: list[dict[str, Any]] = []
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for number, (method, params) in enumerate(requests):
                message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                process.stdin.write(json.dumps(message).encode() + b"\n")
                if method == "initialize":
                    done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
                    process.stdin.write(json.dumps(done).encode() + b"\n")
                process.stdin.flush()
                while not any(answer.get("id") == number for answer in answers):
                    assert select.select([process.stdout], [], [], PATIENCE_SECONDS)[0]
                    line = process.stdout.readline()
                    assert line, process.stderr and process.stderr.read().decode()
                    answers.append(json.loads(line))
        finally:
            process.kill()
    return [answer for answer in answers if "id" in answer]


CLIENTS = {config.client: config for config in server_configs()}
STARTS = [(config, where, "plain") for config in CLIENTS.values() for where in config.places]
# The words are the same for each client.
STARTS += [(CLIENTS["claude-code"], "user", around) for around in list(ENVIRONMENTS)[1:]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "where", "around"), STARTS, ids=[f"{c.client}-{w}-{a}" for c, w, a in STARTS]
)
def test_a_written_entry_runs_nothing_of_the_folder_it_is_started_in(
    config: Any, where: str, around: str, configs: ClientConfigs, places: Locations, trap: Trap
) -> None:
    change = configs.install(config.client, where=where)
    entry = written(Path(change.file), config.table)
    command = config.words(entry)
    assert command is not None
    assert os.path.isabs(command[0])
    environment = {"HOME": str(places.home), "PATH": os.environ["PATH"], **ENVIRONMENTS[around]}
    answers = converse(command, trap.folder, environment | entry.get("env", {}))
    assert trap.sprung() == []
    assert [answer["id"] for answer in answers] == [0, 1, 2, 3]
    assert "High water." in answers[2]["result"]["content"][0]["text"]
    assert not any(answer["result"].get("isError") for answer in answers)


@pytest.mark.slow
def test_words_that_were_written_once_run_what_is_there(places: Locations, trap: Trap) -> None:
    subprocess.run(
        [sys.executable, "-m", "skillhouse", "mcp"],
        cwd=trap.folder,
        env={"HOME": str(places.home), "PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert "skillhouse" in trap.sprung()


@pytest.mark.slow
def test_the_module_named_by_hand_imports_nothing_from_here_but_what_python_itself_does(
    places: Locations, trap: Trap
) -> None:
    """`python -m` looks here first; what our own program imports it takes from elsewhere."""
    for early in ("skillhouse", "encodings", "typing", "json", "argparse"):
        for file in trap.folder.glob(f"{early}*"):
            if file.suffix == ".py":
                file.unlink()
            elif file.is_dir():
                file.rename(trap.folder / f"not-{early}")
    done = ran(
        [sys.executable, "-m", "skillhouse", "list", "--json"],
        cwd=trap.folder,
        env={"HOME": str(places.home), "PATH": os.environ["PATH"]},
    )
    assert (done.returncode, trap.sprung()) == (0, [])


def program(path: Path, text: str = "#!/bin/sh\n") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


PYTHON = sys.executable
UNSAFE: dict[str, list[str]] = {
    "python -m": [PYTHON, "-m", "skillhouse", "mcp"],
    "python -P alone, which reads PYTHONPATH": [PYTHON, "-P", "-m", "skillhouse", "mcp"],
    "python -E alone": [PYTHON, "-E", "-m", "skillhouse", "mcp"],
    "python -c": [PYTHON, "-c", "from skillhouse.frontends.cli import main; main()", "mcp"],
    "a bare python": ["python3", "-I", "-m", "skillhouse", "mcp"],
    "a bare name": ["skillhouse", "mcp"],
    "a relative path": ["./skillhouse", "mcp"],
    "a relative path below": [".venv/bin/skillhouse", "mcp"],
    "uvx": ["uvx", "skillhouse", "mcp"],
    "uvx with an extra": ["/usr/bin/uvx", "--from", "skillhouse[mcp]", "skillhouse", "mcp"],
    "uv run": ["uv", "run", "--with", "skillhouse[mcp]", "skillhouse", "mcp", "--user", "me"],
    "pipx run": ["pipx", "run", "--spec", "skillhouse[mcp]", "skillhouse", "mcp"],
    "env": ["/usr/bin/env", "skillhouse", "mcp"],
    "env -S": ["/usr/bin/env", "-S", "python3 -m skillhouse mcp"],
    "a shell": ["/bin/sh", "-c", "exec skillhouse mcp"],
    "gone": ["/nowhere/bin/skillhouse", "mcp"],
    "python gone": ["/nowhere/bin/python", "-I", "-m", "skillhouse", "mcp"],
}


@pytest.mark.slow
@pytest.mark.parametrize("form", UNSAFE)
def test_every_unsafe_form_is_found_and_mended(
    form: str, configs: ClientConfigs, places: Locations
) -> None:
    file = places.home / ".claude.json"
    words = UNSAFE[form]
    other = {"command": "uvx", "args": ["other-server", "mcp"]}
    after = words[words.index("mcp") + 1 :] if "mcp" in words else []
    ours = {"type": "stdio", "command": words[0], "args": words[1:], "env": {"A": "b"}}
    config = {"theme": "dark", "mcpServers": {"mine": ours, "other": other}, "z": 1}
    file.write_text(json.dumps(config, indent=2))
    [found] = [one for one in configs.status() if one.fault]
    assert (found.client, found.name, found.file) == ("claude-code", "mine", str(file))
    [mended] = [one for one in configs.status(fix=True) if one.action]
    assert (mended.name, mended.action, mended.done) == ("mine", "fix", True)
    now = json.loads(file.read_text())
    assert [list(now), list(now["mcpServers"])] == [["theme", "mcpServers", "z"], ["mine", "other"]]
    assert now["mcpServers"]["other"] == other
    entry = now["mcpServers"]["mine"]
    command = CLIENTS["claude-code"].words(entry)
    assert command is not None
    assert fault_of(command, places.start) == ""
    assert command[command.index("mcp") :] == ["mcp", *after]
    assert (entry["env"], list(entry)) == ({"A": "b"}, ["type", "command", "args", "env"])
    assert [one for one in configs.status() if one.fault] == []


def test_an_entry_for_a_single_project_is_found(configs: ClientConfigs, places: Locations) -> None:
    """`claude mcp add` writes one unless it is told otherwise."""
    file = places.home / ".claude.json"
    entry = {"type": "stdio", "command": "skillhouse", "args": ["mcp"]}
    text = json.dumps({"projects": {"/p": {"mcpServers": {"skills": entry}}, "/q": {}}})
    file.write_text(text)
    [found] = [one for one in configs.status(fix=True) if one.fault]
    assert (found.name, found.done, "`claude mcp remove skills`" in found.reason) == (
        "skills",
        False,
        True,
    )
    assert file.read_text() == text


def test_a_script_is_judged_by_its_first_line_and_folder(places: Locations, tmp_path: Path) -> None:
    good = tmp_path / "bin/skillhouse"
    cases = {
        f"#!{PYTHON}\n": "",
        f'#!/bin/sh\n\'\'\'exec\' "{PYTHON}" "$0" "$@"\n': "",
        "#!/usr/bin/env python3\n": "first line",
        "#!python3\n": "first line",
        "#!/nowhere/python3\n": "first line",
    }
    for text, reason in cases.items():
        fault = fault_of([program(good, text), "mcp"], places.start)
        assert (reason in fault) if reason else not fault, text
    inside = program(places.start / ".venv/bin/skillhouse", f"#!{PYTHON}\n")
    assert "folder of the project" in fault_of([inside, "mcp"], places.start)
    shim = program(tmp_path / ".pyenv/shims/skillhouse", f"#!{PYTHON}\n")
    assert "shim" in fault_of([shim, "mcp"], places.start)
    cache = program(tmp_path / ".cache/uv/archive-v0/x/bin/skillhouse", f"#!{PYTHON}\n")
    assert "cache" in fault_of([cache, "mcp"], places.start)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    anyones = program(tmp_path / "open/bin/skillhouse", f"#!{PYTHON}\n")
    assert "everyone" in fault_of([anyones, "mcp"], places.start)


def test_a_mended_entry_keeps_its_place_its_comments_and_its_other_values(
    configs: ClientConfigs, places: Locations
) -> None:
    file = places.home / ".codex/config.toml"
    file.parent.mkdir()
    text = (
        "# mine\nmodel = 'x'\n\n[mcp_servers.skills] # ours\n"
        'default_tools_approval_mode = "approve"\ncommand = "skillhouse"\n'
        'args = [\n  "mcp",\n  "--agent", "b",\n]\nrequired = true # wait\n\n[tools]\na = 1\n'
    )
    file.write_text(text)
    left = configs.install("codex")
    assert (left.standing, left.action, bool(left.fault)) == (Standing.BY_HAND, "", True)
    [shown] = [one for one in configs.status(fix=True, dry_run=True) if one.action]
    assert (shown.action, shown.done, file.read_text()) == ("fix", False, text)
    [done] = [one for one in configs.status(fix=True) if one.action]
    assert done.done
    start = text.index("command =")
    assert file.read_text().startswith(text[:start])
    assert file.read_text().endswith("\nrequired = true # wait\n\n[tools]\na = 1\n")
    command = CLIENTS["codex"].words(written(file, "mcp_servers"))
    assert command is not None
    assert command[-3:] == ["mcp", "--agent", "b"]


@pytest.mark.slow
def test_installing_again_mends_an_entry_of_ours(configs: ClientConfigs, places: Locations) -> None:
    file = Path(configs.install("gemini-cli").file)
    whole = file.read_text()
    now = json.loads(whole)
    entry = now["mcpServers"]["skills"]
    entry |= {"command": sys.executable, "args": ["-m", "skillhouse", "mcp"], "trust": True}
    file.write_text(json.dumps(now, indent=2))
    change = configs.install("gemini-cli")
    assert (change.standing, change.action, change.done) == (Standing.CHANGED, "fix", True)
    mended = json.loads(file.read_text())["mcpServers"]["skills"]
    assert mended == {**json.loads(whole)["mcpServers"]["skills"], "trust": True}


def test_a_comment_in_json_stays_when_the_program_is_mended(
    configs: ClientConfigs, places: Locations
) -> None:
    file = places.home / ".config/opencode/opencode.jsonc"
    file.parent.mkdir(parents=True)
    text = '{\n  // mine\n  "mcp": {"x": {"command": [\n    "uvx", "skillhouse", "mcp",\n ]}},\n}\n'
    file.write_text(text)
    assert [one.done for one in configs.status(fix=True) if one.fault] == [True]
    assert file.read_text().startswith('{\n  // mine\n  "mcp": {"x": {"command": [\n')
    assert file.read_text().endswith("]}},\n}\n")


def test_what_cannot_be_mended_is_said_and_left(configs: ClientConfigs, places: Locations) -> None:
    file = places.home / ".codex/config.toml"
    file.parent.mkdir()
    for text in (
        'mcp_servers = { skills = { command = "skillhouse", args = ["mcp"] } }\n',
        '[mcp_servers.skills]\ncommand = "skillhouse"\nargs = ["mcp" # why\n]\n',
    ):
        file.write_text(text)
        [found] = [one for one in configs.status(fix=True) if one.fault]
        assert (found.done, "edit" in found.reason, file.read_text()) == (False, True, text)


def test_a_program_that_cannot_be_started_apart_is_not_written(
    configs: ClientConfigs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for path in ("", "python3", "/nowhere/python3"):
        monkeypatch.setattr(sys, "executable", path)
        with pytest.raises(ConfigError, match="install skillhouse"):
            configs.install("codex", dry_run=True)


def test_no_program_is_looked_up_in_the_project(places: Locations) -> None:
    inside = places.start / "node_modules/.bin"
    path = os.pathsep.join(("", ".", "bin", str(inside), "/usr/bin", str(places.start), "/bin"))
    found = safe_path({"PATH": path}, places.start / "deeper")
    assert found == os.pathsep.join(("/usr/bin", "/bin"))


def test_a_folder_named_by_a_relative_variable_is_none_of_the_project_s(places: Locations) -> None:
    """State that the project brings would say that the project is trusted."""
    found = replace(places, environment={"XDG_STATE_HOME": ".state", "XDG_CACHE_HOME": "cache"})
    assert found.state() == places.home / ".local/state/skillhouse"
    assert found.cache() == places.home / ".cache/skillhouse"


@pytest.mark.slow
def test_a_server_whose_skills_are_used_is_not_started_in_the_project(
    places: Locations, tmp_path: Path
) -> None:
    """`python -m`, npx and a relative program are what lies where they are started."""
    mark = tmp_path / "marks"
    write_skill(places.start / "x")
    for name in ("server.py", "json.py"):
        (places.start / name).write_text(
            f"import os\nos.close(os.open({str(mark)!r}, os.O_CREAT))\n"
        )
    file = places.home / ".config/skillhouse/config.toml"
    file.parent.mkdir(parents=True)
    command = json.dumps([sys.executable, "-m", "server"])
    file.write_text(f'[[mcp_servers]]\nlabel = "docs"\ncommand = {command}\n')
    done = ran(
        [sys.executable, "-P", "-m", "skillhouse", "mcp", "servers", "refresh"],
        cwd=places.start,
        env={"HOME": str(places.home), "PATH": os.environ["PATH"]},
    )
    assert (done.returncode, mark.exists()) == (1, False), done.stderr
