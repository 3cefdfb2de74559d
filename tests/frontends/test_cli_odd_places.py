"""Links, names that are not UTF-8, places that are gone, missing parts: each has a clear answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from skillhouse.frontends.cli import EXTRAS
from skillhouse.frontends.cli.verbs import VERBS as ALL_VERBS
from tests.frontends.conftest import Run
from tests.harness import ran
from tests.house.places import write_skill

NEW = ("new", "three", "--description", "Does things. Use it.")
VERBS = ("list", "doctor", "trust --show", "trust --yes", "audit", "sandbox", "search weather")
ODD = "x\udcff"
"""A name that is not UTF-8, as Python reads it."""
BLOCKED = """
import importlib.abc, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from skillhouse.frontends.cli import main
sys.exit(main(sys.argv[2:]))
"""


def names(place: Path) -> set[bytes]:
    return {os.fsencode(path) for path in place.rglob("*")}


@pytest.mark.parametrize("link", [".agents", ".agents/skills"])
def test_a_skill_is_made_where_a_link_of_dotfiles_leads(run: Run, place: Path, link: str) -> None:
    target = place / "home/dotfiles/agents"
    target.mkdir(parents=True)
    path = place / "home" / link
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(target)
    code, out, err = run(*NEW)
    made = target / ("skills/three" if link == ".agents" else "three")
    assert (code, out) == (0, f"user:three is at {made}/SKILL.md\n"), err
    assert run("show", "three")[0] == 0
    assert run("delete", "three", "--yes")[0] == 0


def test_a_skill_of_a_linked_project_is_made(run: Run, place: Path) -> None:
    (place / "linked").symlink_to(place / "project")
    assert run(*NEW, "--project", "-C", str(place / "linked"))[0] == 0
    assert (place / "project/.agents/skills/three/SKILL.md").is_file()


@pytest.mark.parametrize("leads_to", ["nowhere", ".agents"])
def test_a_link_that_leads_nowhere_makes_nothing(run: Run, place: Path, leads_to: str) -> None:
    (place / "home/.agents").symlink_to(leads_to)
    code, out, err = run(*NEW)
    assert (code in (1, 3), out) == (True, "")
    assert "leads nowhere" in err or "too many levels" in err
    assert not (place / "home/nowhere").exists()
    assert run("list")[0] == 0


@pytest.mark.parametrize("words", VERBS)
def test_a_directory_whose_name_is_not_utf8_is_refused(
    run: Run, place: Path, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill(place / "project/.agents/skills/notes")
    run("trust", "--yes")
    (place / ODD).mkdir()
    monkeypatch.chdir(place / ODD)
    before = names(place)
    code, _, err = run(*words.split())
    assert (code, "is not UTF-8; rename it, or work in another" in err) == (3, True), err
    assert run("stop", "--status")[0] == 0
    monkeypatch.chdir(place / "project")
    monkeypatch.setenv("HOME", str(place / ODD))
    code, _, err = run(*words.split())
    assert (code, "is not UTF-8" in err) == (3, True), err
    assert {one for one in names(place) - before if b"\xff" in one} == set()


@pytest.mark.parametrize(
    ("variable", "expected"),
    [("XDG_STATE_HOME", 3), ("XDG_CACHE_HOME", 3), ("SKILLHOUSE_STATE_DIRECTORY", 2)],
)
def test_a_variable_that_is_not_utf8_is_refused(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch, variable: str, expected: int
) -> None:
    monkeypatch.setenv(variable, str(place / ODD))
    code, _, err = run("list")
    assert (code, "UTF-8" in err, (place / ODD).exists()) == (expected, True, False)


@pytest.mark.parametrize("words", [("show",), ("new",), ("list", "-C"), ("validate",), ()])
def test_an_argument_that_is_not_utf8_is_refused(run: Run, words: tuple[str, ...]) -> None:
    code, _, err = run(*words, ODD)
    assert (code, err) == (2, "skillhouse: expected UTF-8 in every argument, got `x\\udcff`\n")


@pytest.mark.slow
@pytest.mark.parametrize("words", [*VERBS, "validate", "pack weather", "new"])
def test_a_removed_directory_is_named_and_not_the_verb(place: Path, words: str) -> None:
    code = (
        "import os, sys\n"
        "os.mkdir('gone'); os.chdir('gone'); os.rmdir(os.getcwd())\n"
        "from skillhouse.frontends.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    done = started(code, *words.split())
    if words == "new":
        assert (done.returncode, "cannot ask" in done.stderr) == (2, True)
    else:
        assert done.returncode == 3
        assert "the current directory is gone; go to another one" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("missing", "words", "extra"),
    [
        ("cryptography", "keys trust", "registry"),
        ("cryptography", "keys new a --for skills", "registry"),
        ("cryptography", "sign .", "registry"),
        ("starlette,uvicorn", "registry serve", "server"),
        ("starlette,uvicorn,structlog", "up --port 0", "server"),
        ("mcp,mcp_types", "mcp", "mcp"),
        ("pydantic_ai", "chat --print hi", "chat"),
    ],
)
def test_a_missing_part_is_named_with_its_extra(
    place: Path, missing: str, words: str, extra: str
) -> None:
    done = started(BLOCKED, missing, *words.split())
    assert (done.returncode, "Traceback" in done.stderr) == (3, False), done.stderr
    assert f"this needs the optional part `{extra}`" in done.stderr


@pytest.mark.slow
def test_help_and_completions_need_no_part(place: Path) -> None:
    last = "sys.exit(main(sys.argv[2:]))"
    assert last in BLOCKED
    each = BLOCKED.replace(last, "sys.exit(max(main(line.split()) for line in sys.argv[2:]))")
    lines = [f"{verb} --help" for verb in ALL_VERBS]
    lines += [f"completions {shell}" for shell in ("bash", "zsh", "fish")]
    done = started(each, ",".join(EXTRAS), *lines)
    assert (done.returncode, done.stderr) == (0, "")


def test_who_lists_the_tokens_of_a_registry_makes_none(run: Run, place: Path) -> None:
    before = names(place)
    for words in (("list",), ("revoke", "x")):
        code, _, err = run("registry", "token", *words, "--directory", str(place / "none"))
        assert (code, "no registry is in" in err) == (2, True)
    assert run("registry", "token", "list")[0] == 0
    assert names(place) - before == set()


def started(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return ran([sys.executable, "-c", code, *words], input="", timeout=60, start_new_session=True)
