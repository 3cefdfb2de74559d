"""`update` and `outdated` say what is gone, what moved, and what has no version."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.frontends.conftest import Run
from tests.registry.sources import commit, git, make_repository, make_skill

AGREED = ("--yes", "--allow-unsigned")


def installed(place: Path, name: str = "notes") -> Path:
    return place / "home/.agents/skills" / name


@pytest.fixture
def origin(place: Path) -> Path:
    for name in ("notes", "other"):
        make_skill(place / "origin/skills" / name)
    return make_repository(place / "origin")


def test_a_directory_that_is_gone_is_not_up_to_date(run: Run, place: Path, origin: Path) -> None:
    assert run("install", origin.as_uri(), "--all", *AGREED)[0] == 0
    shutil.rmtree(installed(place))
    for verb in ("update", "outdated"):
        code, _, err = run(verb)
        assert code == 1
        assert f"no directory `{installed(place)}` any more" in err
        assert "`skillhouse verify user:notes --restore` puts it back" in err
        assert "notes: up to date" not in err
    _, out, _ = run("outdated", "--json")
    states = {one["name"]: one["state"] for one in json.loads(out)["skills"]}
    assert states == {"notes": "missing", "other": "ok"}
    assert run("verify", "user:notes", "--restore")[0] == 0
    assert run("update")[0] == 0


def test_a_skill_that_is_gone_is_taken_out_of_the_lock(run: Run, place: Path, origin: Path) -> None:
    assert run("install", origin.as_uri(), "--all", *AGREED)[0] == 0
    shutil.rmtree(installed(place))
    code, out, err = run("uninstall", "user:notes")
    assert code == 0
    assert "is in the lock no longer" in out
    assert "trash" not in err
    assert run("outdated")[0] == 0


MOVED = "notes: it moved from `skills/notes` to `skills/group/notes` at its source\n"


def move(origin: Path, body: str = "Body.") -> None:
    (origin / "skills/group").mkdir()
    git(origin, "mv", "skills/notes", "skills/group/notes")
    make_skill(origin / "skills/group/notes", body)
    commit(origin)


@pytest.mark.parametrize("inside", ["", "//skills/notes"])
def test_an_update_follows_a_skill_that_moved(
    run: Run, place: Path, origin: Path, inside: str
) -> None:
    flags = () if inside else ("--skill", "notes")
    assert run("install", f"{origin.as_uri()}{inside}@main", *flags, *AGREED)[0] == 0
    move(origin, "New.")
    code, out, _ = run("outdated")
    assert (code, out.count("moved to skills/group/notes")) == (1, 1)
    _, out, err = run("update", "--dry-run")
    assert MOVED in err
    assert "moved      at its source, from skills/notes" in out
    assert run("update")[0] == 2
    assert run("update", *AGREED)[0] == 0
    assert "New." in (installed(place) / "SKILL.md").read_text()
    assert run("outdated")[0] == 0
    assert "inside     skills/group/notes" in run("info", "notes")[1]


@pytest.mark.parametrize("inside", ["", "//skills/notes"])
def test_a_skill_that_moved_with_the_same_files_is_followed_once_a_person_agrees(
    run: Run, typing, origin: Path, inside: str
) -> None:
    flags = () if inside else ("--skill", "notes")
    assert run("install", f"{origin.as_uri()}{inside}@main", *flags, *AGREED)[0] == 0
    move(origin)
    # An old copy elsewhere has the same name, and other files.
    make_skill(origin / "attic/notes", "Old.")
    commit(origin)
    assert run("update")[0] == 2
    for answer, code in (("n", 1), ("y", 0)):
        _, _, err = typing(answer, "update", "notes")
        assert MOVED.strip() in err
        assert "Its files are the same. Follow it there?" in err
        assert run("outdated")[0] == code
    assert "follow" in run("audit", "list")[1]


def test_a_skill_that_is_at_several_places_now_is_not_followed(run: Run, origin: Path) -> None:
    assert run("install", origin.as_uri(), "--skill", "notes", *AGREED)[0] == 0
    move(origin, "New.")
    make_skill(origin / "attic/notes", "Old.")
    commit(origin)
    command = f"`skillhouse install git+{origin.as_uri()} --skill attic/notes`"
    for verb in ("update", "outdated"):
        code, _, err = run(verb)
        assert code == 1
        said = "it moved to `attic/notes` or `skills/group/notes` at its source"
        assert said in err
        assert command in err


def test_a_skill_that_its_source_dropped_is_named(run: Run, origin: Path) -> None:
    assert run("install", f"{origin.as_uri()}//skills/notes", *AGREED)[0] == 0
    shutil.rmtree(origin / "skills/notes")
    commit(origin)
    for verb in ("update", "outdated"):
        code, _, err = run(verb)
        assert code == 1
        assert "no skill `notes` is at `skills/notes`" in err
        assert "`skillhouse uninstall notes` removes it here" in err


def test_without_a_version_the_day_and_the_digest_are_shown(run: Run, origin: Path) -> None:
    text = "---\nname: notes\ndescription: About notes.\n---\n"
    (origin / "skills/notes/SKILL.md").write_text(text)
    commit(origin)
    assert run("install", origin.as_uri(), "--skill", "notes", *AGREED)[0] == 0
    assert re.match(r"user:notes  2026-01-01 skilltree1:[0-9a-f]{12}  file:", run("info")[1])
    (origin / "skills/notes/SKILL.md").write_text(text + "More.\n")
    commit(origin)
    code, out, _ = run("outdated")
    label = r"2026-01-01 skilltree1:[0-9a-f]{12}"
    assert code == 1
    assert re.fullmatch(f"notes  {label} → {label}\n", out)
