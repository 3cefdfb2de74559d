"""Completions in real shells: verbs, options, fixed values, and names that are here."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillhouse.frontends.cli.candidates import CANDIDATES_MAX, safe
from skillhouse.frontends.cli.completion_scripts import SCRIPTS
from skillhouse.frontends.cli.completions import nodes
from skillhouse.frontends.cli.verbs import VERBS
from tests.frontends.conftest import Run
from tests.frontends.shells import REAL, SHELLS, Shell, put_program, started
from tests.house.places import write_skill

pytestmark = pytest.mark.slow


@pytest.fixture
def crowd(place: Path) -> Path:
    """Skills of the user, one of them deleted and one disabled."""
    for name in ("meeting-notes", "minutes", "天气"):
        write_skill(place / f"home/.agents/skills/{name}")
    return place


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, run: Run, crowd: Path) -> Iterator[Shell]:
    home = crowd / "home"
    put_program(home, REAL)
    script = crowd / "script"
    script.write_text(run("completions", request.param)[1], encoding="utf-8")
    with started(request.param, home, script, crowd / "project") as shell:
        yield shell


def test_a_shell_completes_each_kind_of_word(shell: Shell, run: Run, crowd: Path) -> None:
    (crowd / "project/some dir").mkdir()
    (crowd / "project/body.md").write_text("x")
    table = {
        "skillhouse rehea": ["rehearse"],
        "skillhouse profiles comp": ["profiles", "compare"],
        "skillhouse help polic": ["help", "policy"],
        "skillhouse list --prob": ["list", "--problem"],
        "skillhouse list --problem shad": ["list", "--problem", "shadowed"],
        "skillhouse list --sort=na": ["list", "--sort=name"],
        "skillhouse list --scope bui": ["list", "--scope", "builtin"],
        "skillhouse load meet": ["load", "meeting-notes"],
        "skillhouse load user:mi": ["load", "user:minutes"],
        "skillhouse load --json minu": ["load", "--json", "minutes"],
        "skillhouse show 天": ["show", "天气"],
        "skillhouse export minutes meet": ["export", "minutes", "meeting-notes"],
        "skillhouse export --to codex,gemi": ["export", "--to", "codex,gemini-cli"],
        "skillhouse profiles show owliabot-": ["profiles", "show", "owliabot-js"],
        "skillhouse list --profile gem": ["list", "--profile", "gemini-cli"],
        "skillhouse policy explain exec-": ["policy", "explain", "exec-once"],
        "skillhouse policy allow netw": ["policy", "allow", "network"],
        "skillhouse call searc": ["call", "search_skills"],
        "skillhouse mcp stat": ["mcp", "status"],
        "skillhouse list --root so": ["list", "--root", "some dir"],
        "skillhouse new x --body bo": ["new", "x", "--body", "body.md"],
        "skillhouse show no-such": ["show", "no-such"],
    }
    # zsh takes the slash of a directory back when the word ends.
    found = {line: [word.rstrip("/") for word in shell.completed(line)] for line in table}
    assert found == table


def test_the_names_are_those_that_the_verb_can_be_used_for(
    shell: Shell, run: Run, crowd: Path
) -> None:
    run("disable", "minutes")
    run("delete", "meeting-notes", "--yes")
    table = {
        "skillhouse enable mi": ["enable", "minutes"],
        "skillhouse load mi": ["load", "mi"],
        "skillhouse delete --undo meet": ["delete", "--undo", "meeting-notes"],
        "skillhouse show meet": ["show", "meet"],
        f"skillhouse load -C {crowd} we": ["load", "-C", str(crowd), "we"],
    }
    (crowd / "skillhouse.toml").write_text("")
    found = {line: shell.completed(line) for line in table}
    # `weather` and `web-search` begin alike: what is typed stays as far as it is common.
    assert found == table


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_verb_and_option_is_in_each_script(run: Run, name: str) -> None:
    code, out, _ = run("completions", name)
    assert (code, json.loads(run("completions", name, "--json")[1])["script"]) == (0, out)
    found = tuple(nodes())
    assert {node.path for node in found} >= {"", *VERBS, "policy explain", "keys session new"}
    for node in found:
        for option, _ in node.options:
            assert option in out
    assert run("completions", "tcsh")[0] == 2


def test_a_skill_of_the_log_completes_and_one_of_a_source_does_not() -> None:
    sources = {node.path: node.sources for node in nodes()}
    assert sources["audit list"]["--skill"].kind == "skills"
    assert "--skill" not in sources["install"]


def test_what_completes_nothing_is_silent(run: Run, place: Path) -> None:
    assert run("--complete") == (0, "", "")
    assert run("--complete", "nonsense", "--", "x") == (0, "", "")
    file = place / "home/.config/skillhouse/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("nonsense = 1")
    assert run("--complete", "skills", "--", "load", "") == (1, "", "")


def test_many_names_are_cut() -> None:
    names = [f"skill-{number}" for number in range(CANDIDATES_MAX + 5)]
    assert len(list(safe(names))) == CANDIDATES_MAX
    assert list(safe(names, "skill-1003")) == ["skill-1003"]


@pytest.mark.parametrize(
    ("line", "kind", "wanted"),
    [
        (("load", "--root", "{other}", "o"), "skills", "odd"),
        (("load", "-C", "{project}", "o"), "skills", ""),
        (("call", "--agent", "default", "wr"), "tools", "write"),
        (("list", "--agent", ""), "agents", "default"),
        (("audit", "list", "--server", ""), "servers", "{host}"),
        (("load", "--profile=codex", "meet"), "skills", "meeting-notes"),
    ],
)
def test_options_of_the_line_are_heeded(
    run: Run, crowd: Path, line: tuple[str, ...], kind: str, wanted: str
) -> None:
    write_skill(crowd / "other/odd")
    words = [word.format(other=crowd / "other", project=crowd / "project") for word in line]
    assert run("--complete", kind, "--", *words)[1].strip() == wanted.format(
        host=socket.gethostname()
    )


def test_open_approvals_and_remotes_are_named(run: Run, place: Path) -> None:
    write = ("call", "write", "--args", '{"path": "a.txt", "content": "x"}', "--json")
    approval = json.loads(run(*write)[1])["approval_id"]
    assert run("--complete", "approvals", "--", "approvals", "show", "")[1] == f"{approval}\n"
    file = place / "home/.config/skillhouse/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('[[remotes]]\nurl = "https://skills.example.com"\n')
    assert run("--complete", "remotes", "--", "remote", "sync", "")[1] == (
        "https://skills.example.com\n"
    )
