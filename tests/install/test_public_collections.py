"""Tests of install/public_collections.py, and of `install` where no repository is configured."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skillhouse.install.public_collections import collections
from tests.frontends.conftest import Run, place, run, typing
from tests.loopback_http import served
from tests.registry.sources import commit, git_server, make_repository, make_skill
from tests.registry.test_git_program import instead

AGREED = ("--yes", "--allow-unsigned")
__all__ = ["place", "run", "typing"]

pytestmark = pytest.mark.slow


@pytest.fixture
def github(place: Path) -> Iterator[Path]:
    """Serve what stands in for github.com, where each collection has a skill of its own."""
    top = place / "github"
    for at, source in enumerate(collections()):
        origin = top / f"{source}.git"
        make_skill(origin / f"skills/tool-{at}")
        if at < 2:
            make_skill(origin / "skills/shared")
        make_repository(origin)
    with served(git_server(top)) as address:
        (place / "home/.gitconfig").write_text(instead(f"{address}/", "https://github.com/"))
        yield top


def test_the_list_names_collections_and_no_single_skills() -> None:
    found = collections()
    assert len(set(found)) == len(found) > 3
    assert all(one.count("/") == 1 and "@" not in one and "://" not in one for one in found)


def test_a_search_without_repositories_asks_once(
    github: Path, typing: Callable[..., tuple[int, str, str]], run: Run
) -> None:
    code, out, said = typing("y", "install", "--search", "tool")
    assert code == 0, said
    assert said.count("Look into public collections of GitHub: anthropics/skills") == 1
    assert [line.split("  ")[:2] for line in out.splitlines()] == [
        [source, f"tool-{at}"] for at, source in enumerate(collections())
    ]
    # What was found is kept for a day: nothing is fetched again.
    shutil.rmtree(github)
    code, out, err = run("install", "--search", "shared", "--public", "--json")
    assert code == 0, err
    found = json.loads(out)["skills"]
    assert [(one["repository"], one["name"]) for one in found] == [
        (source, "shared") for source in collections()[:2]
    ]
    assert found[0]["description"] == "About shared. Use it in tests."


def test_a_no_looks_nowhere(github: Path, typing: Callable[..., tuple[int, str, str]]) -> None:
    shutil.rmtree(github)
    code, out, said = typing("n", "install", "--search", "tool")
    assert (code, out) == (1, "")
    assert "no repository is configured" in said
    assert "cannot get" not in said


@pytest.mark.parametrize(
    "words",
    [("--search", "tool"), ("tool-0",), ("tool-0", *AGREED), ("--search", "tool", "--json")],
)
def test_nothing_is_asked_for_without_a_person_or_an_option(
    github: Path, place: Path, run: Run, words: tuple[str, ...]
) -> None:
    shutil.rmtree(github)
    code, out, err = run("install", *words)
    assert code == 1
    assert "not-configured" in err or "no repository is configured" in err or "--public" in err
    assert "cannot get" not in out + err


def test_a_name_is_installed_from_the_collection_that_has_it(
    github: Path, place: Path, run: Run
) -> None:
    code, _, err = run("install", "tool-1", "--public", *AGREED)
    assert code == 0, err
    assert (place / "home/.agents/skills/tool-1/SKILL.md").is_file()
    lock = json.loads((place / "home/.config/skillhouse/skills.lock").read_text())
    assert lock["skills"]["tool-1"]["repository"] == f"https://github.com/{collections()[1]}"
    origin = github / f"{collections()[1]}.git"
    make_skill(origin / "skills/tool-1", "Later.")
    commit(origin)
    code, out, err = run("update", *AGREED)
    assert (code, "held back" in out + err) == (0, True)
    code, _, err = run("update", "--ignore-age", *AGREED)
    assert code == 0, err
    assert "Later." in (place / "home/.agents/skills/tool-1/SKILL.md").read_text()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("shared", "several public collections have `shared`: install `anthropics/skills/skills/"),
        ("tool-x", "no public collection has `tool-x`; did you mean `tool-"),
    ],
)
def test_a_name_that_is_not_just_once_there_is_not_installed(
    github: Path, run: Run, name: str, said: str
) -> None:
    code, _, err = run("install", name, "--public", *AGREED)
    assert code == 1
    assert said in err


def test_a_collection_that_cannot_be_had_hides_no_other(github: Path, run: Run) -> None:
    shutil.rmtree(github / f"{collections()[0]}.git")
    code, out, err = run("install", "--search", "tool", "--public")
    assert code == 1
    assert f"{collections()[0]}: " in err
    assert len(out.splitlines()) == len(collections()) - 1


def test_what_is_kept_and_broken_is_fetched_again(github: Path, place: Path, run: Run) -> None:
    assert run("install", "--search", "tool", "--public")[0] == 0
    kept = list(place.rglob("collections/*.json"))
    assert len(kept) == len(collections())
    for file, content in zip(
        kept, (b"", b"{", b'{"source": "evil/skills"}', b"\xff"), strict=False
    ):
        file.write_bytes(content)
    code, out, err = run("install", "--search", "tool", "--public")
    assert code == 0, err
    assert len(out.splitlines()) == len(collections())


def test_the_option_takes_a_name_and_nothing_else(github: Path, run: Run) -> None:
    for words in (("acme/skills",), ("pdf", "--repository", "team")):
        code, _, err = run("install", *words, "--public")
        assert (code, "--public" in err) == (2, True)
