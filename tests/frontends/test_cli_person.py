"""Who may answer at the command line: a person, and no coding agent's shell (review G15)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from skillhouse.approval import Issuer
from skillhouse.clients import coding_agents
from skillhouse.frontends.cli.person import coding_agent
from skillhouse.house import Skillhouse, configured
from tests.approval.questions import question
from tests.frontends.conftest import Run
from tests.frontends.mcp_peer import environment_of
from tests.harness import ran
from tests.house.places import make_places, write_skill
from tests.person_answers import ANSWERING

Typing = Run

WRITE = ("call", "write", "--args", '{"path": "a.txt", "content": "text"}', "--json")
STATE = "home/.local/state/skillhouse"
VARIABLES = [name for agent in coding_agents() for name in agent.variables]


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the terminal of whoever runs the tests out of them."""
    monkeypatch.setattr("skillhouse.frontends.cli.person.TERMINAL", tmp_path / "no-terminal")


def asked(run: Run) -> str:
    return str(json.loads(run(*WRITE)[1])["approval_id"])


def state_of(run: Run, approval: str) -> str:
    return str(json.loads(run("approvals", "show", approval, "--json")[1])["state"])


def test_a_refusal_names_the_question_and_no_command(run: Run) -> None:
    found = json.loads(run(*WRITE)[1])
    assert f"ask the user to approve {found['approval_id']}" in found["content"]
    assert not ANSWERING.search(found["content"])


@pytest.mark.slow
def test_approve_without_a_terminal_is_refused(run: Run) -> None:
    found = asked(run)
    code, out, err = run("approvals", "approve", found)
    assert (code, out) == (2, "")
    assert "cannot ask without a terminal" in err
    assert state_of(run, found) == "open"


@pytest.mark.slow
@pytest.mark.parametrize("variable", VARIABLES)
def test_a_coding_agent_approves_neither_at_a_terminal_nor_with_a_token(
    run: Run, typing: Typing, place: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    found = asked(run)
    with Skillhouse(configured(make_places(place))) as house:
        token = house.services.enforcement.tokens.issue(
            house.approvals.get(found), Issuer(user="local")
        )
    monkeypatch.setenv(variable, "1")
    for words in ((), ("--always",), ("--yes", "--token", token)):
        code, out, err = typing("approve", "approvals", "approve", found, *words)
        assert (code, out) == (1, "")
        assert f"the variable {variable} is set" in err
    assert state_of(run, found) == "open"
    monkeypatch.setenv(variable, "0")
    assert typing("approve", "approvals", "approve", found)[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "env -i HOME=$HOME PYTHONPATH=$PYTHONPATH {command}; true",
        "script -qec '{command}' /dev/null; true",
        "script -qec 'env -i HOME=$HOME PYTHONPATH=$PYTHONPATH {command}; true' /dev/null; true",
        "setsid -w env -u CLAUDECODE {command}; true",
        "unset CLAUDECODE; {command}; true",
    ],
)
def test_an_agent_s_shell_cannot_shake_off_its_environment(
    run: Run, place: Path, line: str
) -> None:
    found = asked(run)
    command = f"{sys.executable} -m skillhouse approvals approve {found}"
    done = ran(
        ["sh", "-c", line.format(command=command)],
        env={**environment_of(place / "home"), "CLAUDECODE": "1"},
        cwd=place / "project",
        input="approve\n",
        timeout=60,
    )
    assert "Claude Code runs this" in done.stdout + done.stderr
    assert state_of(run, found) == "open"


@pytest.mark.slow
def test_an_agent_is_known_by_its_program_where_its_shell_is_gone(tmp_path: Path) -> None:
    """`sh -c 'env -i …'` becomes `env`, and then the command: only the agent is left above it."""
    names = {name for agent in coding_agents() for name in agent.programs}
    code = "from skillhouse.frontends.cli.person import coding_agent as c; print(c({}))"
    paths = os.pathsep.join(path for path in sys.path if path)
    for name in ("claude", "codex", "tool.js", "vim"):
        program = tmp_path / name
        program.write_text(
            "import subprocess, sys\n"
            f"subprocess.run(['env', '-i', 'PYTHONPATH={paths}', sys.executable, '-c', {code!r}])\n"
        )
        environment = {"PATH": os.environ["PATH"]}
        done = ran([sys.executable, program], env=environment, check=True)
        if not coding_agent({}):
            assert bool(done.stdout.strip()) is (name in names), done


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("trust",),
        ("enable", "--all"),
        ("resume",),
        ("approvals", "pair", "phone"),
        ("keys", "new", "main", "--password", "env:PASSWORD"),
        ("keys", "session", "new", "bot", "--password", "env:PASSWORD"),
        ("keys", "accept", "--password", "env:PASSWORD"),
    ],
)
def test_a_coding_agent_loosens_nothing_else(
    run: Run, typing: Typing, place: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    write_skill(place / "project/.agents/skills/pdf")
    run("stop")
    monkeypatch.setenv("GEMINI_CLI", "1")
    monkeypatch.setenv("PASSWORD", "a-password-of-the-test")
    code, out, err = typing(words[0], *words)
    assert (code, out) == (1, "")
    assert "Gemini CLI runs this" in err
    assert run("stop", "--status")[0] == 1
    assert json.loads(run("trust", "--list", "--json")[1])["projects"] == []
    assert run("approvals", "devices") == (0, "", "no devices\n")
    assert json.loads(run("keys", "list", "--json")[1])["keys"] == []


@pytest.mark.slow
def test_what_makes_things_stricter_stays_open_to_everyone(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")
    assert run("approvals", "deny", asked(run))[0] == 0
    for words in (("stop",), ("disable", "--all"), ("trust", "--show"), ("approvals", "list")):
        assert run(*words)[0] == 0, words


def test_an_agent_with_a_terminal_of_its_own_is_not_asked_there(
    run: Run, typing: Typing, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_SANDBOX", "seatbelt")
    code, out, _ = typing("y", *WRITE)
    assert (code, json.loads(out)["status"]) == (1, "pending")
    assert not (place / "project/a.txt").exists()


@pytest.mark.slow
def test_a_token_approves_its_question_once(run: Run, place: Path) -> None:
    found, other = asked(run), ""
    with Skillhouse(configured(make_places(place))) as house:
        other = house.approvals.open(question()).id
        token = house.services.enforcement.tokens.issue(
            house.approvals.get(found), Issuer(user="local")
        )
    code, _, err = run("approvals", "approve", other, "--yes", "--token", token)
    assert (code, "the token is wrong" in err) == (1, True)
    for words in (("--yes",), ("--token", token), ("--always", "--yes", "--token", token)):
        assert run("approvals", "approve", found, *words)[0] == 2
    assert run("approvals", "approve", found, "--yes", "--token", token)[0] == 0
    assert state_of(run, found) == "approved"
    assert run("approvals", "approve", found, "--yes", "--token", token)[0] == 1
    for listing in ("list --all --json", f"show {found} --json", f"show {found}"):
        assert token not in run("approvals", *listing.split())[1]
    kept = b"".join(file.read_bytes() for file in (place / STATE).glob("state.sqlite3*"))
    assert token.encode() not in kept
    assert run(*WRITE)[0] == 0
