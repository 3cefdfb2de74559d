"""`lock` shows the locks, and mends one that git left the marks of a merge in."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from skillhouse.registry import read_lock
from tests.frontends.conftest import Run
from tests.registry.sources import GIT, commit, git, make_repository, make_skill

AGREED = ("--yes", "--allow-unsigned", "--project")


@pytest.fixture
def conflict(run: Run, place: Path) -> Path:
    """A project whose lock has the marks of a merge of two branches."""
    project = make_repository(place / "project")
    git(project, "switch", "-qc", "theirs")
    assert run("install", str(make_skill(place / "two")), *AGREED)[0] == 0
    commit(project)
    git(project, "switch", "-q", "main")
    assert run("install", str(make_skill(place / "one")), *AGREED)[0] == 0
    commit(project)
    done = subprocess.run(
        ["git", "-C", str(project), "merge", "-q", "theirs"], env=GIT, check=False
    )
    assert done.returncode == 1
    return project / "skills.lock"


def test_a_lock_with_marks_of_a_merge_is_named_and_mended(
    run: Run, place: Path, conflict: Path
) -> None:
    for verb in ("lock", "verify", "update"):
        code, _, err = run(verb)
        assert code == (1 if verb == "lock" else 3)
        assert "the lock has the marks of a merge in line" in err
        assert "`skillhouse lock --merge` fixes it" in err
    before = conflict.read_bytes()
    code, out, _ = run("lock", "--merge", "--dry-run")
    assert (code, conflict.read_bytes()) == (0, before)
    assert "project  " + str(conflict) + "  2 skills, would be merged" in out
    code, out, _ = run("lock", "--merge")
    assert code == 0
    assert out.splitlines()[:2] == ["one: of ours alone", "two: of theirs alone"]
    assert sorted(read_lock(conflict).skills) == ["one", "two"]
    assert run("lock", "--json")[0] == 0
    assert run("verify")[:2] == (0, "project:one  as installed\nproject:two  as installed\n")
    assert "merge-lock" in run("audit", "list")[1]


def test_what_nothing_decides_is_asked_for(run: Run, place: Path, conflict: Path) -> None:
    entry = next(
        iter(json.loads(git(conflict.parent, "show", "main:skills.lock"))["skills"].values())
    )
    sides = [{**entry, "tree_digest": f"skilltree1:{number:064}"} for number in (1, 2)]
    texts = [json.dumps({"lockfile_version": 1, "skills": {"one": one}}) for one in sides]
    conflict.write_text(f"<<<<<<< a\n{texts[0]}\n=======\n{texts[1]}\n>>>>>>> b\n")
    before = conflict.read_bytes()
    code, out, err = run("lock", "--merge")
    assert (code, out.splitlines()[0], conflict.read_bytes()) == (1, "one: not decided", before)
    assert "use --ours or --theirs" in err
    assert run("lock", "--merge", "--theirs")[0] == 0
    assert read_lock(conflict).skills["one"].tree_digest == sides[1]["tree_digest"]


def test_a_coding_agent_merges_no_lock(
    run: Run, conflict: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = conflict.read_bytes()
    monkeypatch.setenv("CLAUDECODE", "1")
    code, _, err = run("lock", "--merge")
    assert (code, conflict.read_bytes()) == (1, before)
    assert "is for a person" in err
    assert run("lock", "--ours")[0] == 2
