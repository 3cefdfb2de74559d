"""Tests of registry/git_repository.py; hostile repositories are in tests/attacks."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from skillhouse.registry import (
    Git,
    GitRepository,
    Source,
    SourceError,
    find_candidates,
    parse_source,
)
from tests.loopback_http import served
from tests.registry.sources import commit, git, git_server, make_repository, make_skill, skill_text


def program() -> Git:
    found = shutil.which("git")
    assert found is not None
    return Git(program=found, environment=dict(os.environ))


def source_of(place: Path, more: str = "") -> Source:
    return parse_source(f"git+{place.as_uri()}{more}", place, home=place)


@pytest.mark.slow
def test_a_commit_a_branch_and_a_tag_are_fetched(tmp_path: Path) -> None:
    origin = make_repository(make_skill(tmp_path / "origin/notes").parent)
    first = git(origin, "rev-parse", "HEAD")
    git(origin, "tag", "--annotate", "--message=x", "v1")
    (origin / "notes/SKILL.md").write_text(skill_text("notes", "later"))
    commit(origin)
    for ref, expected in {"@v1": first, f"@{first}": first, "@main": None, "": None}.items():
        with GitRepository(program(), source_of(origin, ref)) as repository:
            assert repository.commit == (expected or git(origin, "rev-parse", "HEAD"))
            (found,) = find_candidates(repository.files(), folder="origin").candidates
            assert [one.path for one in found.members] == ["SKILL.md", "scripts/run.sh"]
            assert [one.is_executable for one in found.members] == [False, True]
            text = b"".join(found.members[0].read())
            assert (text == skill_text("notes", "later").encode()) == (expected is None)
    for ref in ("@nowhere", "@" + "0" * 40):
        with pytest.raises(SourceError, match="cannot get"):
            GitRepository(program(), source_of(origin, ref))


@pytest.mark.slow
def test_nothing_of_it_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    origin = make_repository(make_skill(tmp_path / "origin/notes").parent)
    with GitRepository(program(), source_of(origin)) as repository:
        assert len(list((tmp_path / "tmp").iterdir())) == 1
        repository.files()
    with pytest.raises(SourceError):
        GitRepository(program(), source_of(tmp_path / "none"))
    assert list((tmp_path / "tmp").iterdir()) == []


def test_what_git_says_is_not_passed_on(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"cannot get `file:.*: there is no git repository$"):
        GitRepository(program(), source_of(tmp_path))
    missing = Git(program=str(tmp_path / "no-git"), environment={"PATH": os.defpath})
    with pytest.raises(SourceError):
        GitRepository(missing, source_of(tmp_path))


@pytest.mark.slow
def test_skills_inside_a_skill_belong_to_it(tmp_path: Path) -> None:
    make_skill(tmp_path / "origin/a")
    make_skill(tmp_path / "origin/a/examples/inner")
    make_skill(tmp_path / "origin/deep/b/c")
    origin = make_repository(tmp_path / "origin")
    with GitRepository(program(), source_of(origin)) as repository:
        files = repository.files()
        assert [one.path for one in find_candidates(files, folder="origin").candidates] == [
            "a",
            "deep/b/c",
        ]
        below = find_candidates(files, below="a/examples", folder="origin").candidates
        assert [(one.path, one.folder) for one in below] == [("a/examples/inner", "inner")]
        with pytest.raises(SourceError, match="no directory `nowhere`"):
            find_candidates(files, below="nowhere", folder="origin")


@pytest.mark.slow
def test_one_commit_comes_over_http_and_no_history(tmp_path: Path) -> None:
    origin = make_repository(make_skill(tmp_path / "served/acme/skills.git/notes").parent)
    first = git(origin, "rev-parse", "HEAD")
    for number in range(3):
        (origin / "notes/SKILL.md").write_text(skill_text("notes", f"later {number}"))
        commit(origin)
    with served(git_server(tmp_path / "served")) as address:
        for ref, count in {"": 1, f"@{first}": 1}.items():
            source = parse_source(f"{address}/acme/skills.git//notes{ref}", tmp_path, home=tmp_path)
            with GitRepository(program(), source) as repository:
                place = repository._directory  # noqa: SLF001 how much of it was fetched
                assert git(place, "rev-list", "--count", repository.commit) == str(count)
                files = repository.files()
                (found,) = find_candidates(files, below=source.path, folder="skills").candidates
                assert [one.path for one in found.members] == ["SKILL.md", "scripts/run.sh"]


@pytest.mark.slow
def test_a_repository_of_a_short_name_is_one_of_the_configured_forge(tmp_path: Path) -> None:
    make_repository(make_skill(tmp_path / "served/acme/skills.git/notes").parent)
    with served(git_server(tmp_path / "served")) as address:
        source = parse_source("acme/skills/notes@main", tmp_path, home=tmp_path, github=address)
        with GitRepository(program(), source) as repository:
            files = repository.files()
            (found,) = find_candidates(files, below=source.path, folder="skills").candidates
            assert (found.path, found.folder, len(found.members)) == ("notes", "notes", 2)
