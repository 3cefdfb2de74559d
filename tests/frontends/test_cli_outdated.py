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


def test_without_a_version_the_commit_and_the_day_are_shown(run: Run, origin: Path) -> None:
    text = "---\nname: notes\ndescription: About notes.\n---\n"
    (origin / "skills/notes/SKILL.md").write_text(text)
    commit(origin)
    assert run("install", origin.as_uri(), "--skill", "notes", *AGREED)[0] == 0
    label = r"[0-9a-f]{8} 2026-01-01"
    assert re.match(rf"user:notes  {label}  file:", run("info")[1])
    (origin / "skills/notes/SKILL.md").write_text(text + "More.\n")
    commit(origin)
    for ids in ((), ("notes",), ("user:notes",)):
        code, out, _ = run("outdated", *ids)
        assert code == 1
        assert re.fullmatch(f"notes  {label} → {label}, 1 file\n", out)
    _, out, _ = run("outdated", "--json")
    (value,) = json.loads(out)["skills"]
    assert value["newest_commit"] == git(origin, "rev-parse", "HEAD")
    assert (value["commit"] != value["newest_commit"], value["changed_files"]) == (True, 1)
    assert run("outdated", "nots")[0] != 0


def test_of_two_that_have_one_version_the_commits_are_shown(run: Run, origin: Path) -> None:
    assert run("install", origin.as_uri(), "--all", *AGREED)[0] == 0
    make_skill(origin / "skills/notes", "New.")
    make_skill(origin / "skills/other", "New.", version="1.1")
    (origin / "skills/other/more.txt").write_text("x")
    commit(origin)
    _, out, _ = run("outdated")
    same, another = out.splitlines()
    label = r"1\.0 [0-9a-f]{8} 2026-01-01"
    assert re.fullmatch(f"notes  {label} → {label}, 1 file", same)
    assert another == "other  1.0 → 1.1, 2 files"
    assert run("outdated", "other")[1] == f"{another}\n"


def test_a_skill_that_has_another_name_now_is_named(run: Run, origin: Path) -> None:
    make_skill(origin / "skills/notes", "Of notes.")
    commit(origin)
    assert run("install", origin.as_uri(), "--all", *AGREED)[0] == 0
    git(origin, "mv", "skills/notes", "skills/memos")
    text = (origin / "skills/memos/SKILL.md").read_text()
    (origin / "skills/memos/SKILL.md").write_text(text.replace("name: notes", "name: memos"))
    text = (origin / "skills/other/SKILL.md").read_text()
    (origin / "skills/other/SKILL.md").write_text(text.replace("name: other", "name: others"))
    commit(origin)
    code, _, err = run("update", *AGREED)
    assert code == 1
    url = origin.as_uri()
    assert "but `skills/memos` has its files" in err
    assert f"`skillhouse install git+{url} --skill skills/memos` brings that" in err
    assert "`skillhouse uninstall notes` removes it here" in err
    assert "`other` is called `others` at its source now" in err
    assert f"`skillhouse install {url} --skill skills/other` brings that" in err


def test_a_lock_without_commits_learns_them_at_the_next_update(
    run: Run, place: Path, origin: Path
) -> None:
    assert run("install", origin.as_uri(), "--all", *AGREED)[0] == 0
    path = place / "home/.config/skillhouse/skills.lock"
    before = json.loads(path.read_text())
    old = json.loads(path.read_text())
    for entry in old["skills"].values():
        del entry["git"]
    path.write_text(json.dumps(old))
    assert run("outdated")[0] == 0
    assert run("verify", "--offline")[0] == 0
    assert run("update", "--dry-run")[0] == 0
    assert json.loads(path.read_text()) == old
    assert run("update")[0] == 0
    assert json.loads(path.read_text()) == before


def test_the_nearest_name_is_said_of_one_that_is_not_there(run: Run, origin: Path) -> None:
    code, _, err = run("install", origin.as_uri(), "--skill", "othr", *AGREED)
    assert (code, "got 0; did you mean `other`: see --list" in err) == (2, True)


def test_a_list_has_the_commit_and_what_each_skill_is_about(run: Run, origin: Path) -> None:
    head = git(origin, "rev-parse", "HEAD")
    _, out, err = run("install", origin.as_uri(), "--list")
    assert f"commit {head} of 2026-01-01" in err
    assert out.splitlines()[0] == "skills/notes  About notes. Use it in tests."
    _, out, _ = run("install", origin.as_uri(), "--list", "--json")
    first = json.loads(out)["skills"][0]
    assert (first["name"], first["description"]) == ("notes", "About notes. Use it in tests.")
