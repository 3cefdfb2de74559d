"""`install --from-lock`: skills of other installers' locks, from the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from skillhouse.registry import directory_members, pack
from skillhouse.registry.other_locks import folder_hash
from tests.frontends.conftest import Run
from tests.loopback_http import served
from tests.registry.sources import commit, git, make_repository, make_skill, pages
from tests.remote.servers import SCHEMA, digest_of

AGREED = ("--yes", "--allow-unsigned")


def written(path: Path, skills: Any, *, version: int = 1) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"version": version, "skills": skills}))
    return str(path)


def hash_of(skill: Path) -> str:
    _, members = directory_members(skill)
    return folder_hash({one.path: b"".join(one.read()) for one in members})


def entry_of(origin: Path, name: str, **also: str) -> dict[str, str]:
    return {
        "source": origin.as_uri(),
        "sourceUrl": origin.as_uri(),
        "sourceType": "git",
        "skillPath": f"skills/{name}/SKILL.md",
        "computedHash": hash_of(origin / "skills" / name),
        **also,
    }


def origin_of(place: Path, *names: str) -> Path:
    for name in names:
        make_skill(place / "origin/skills" / name)
    return make_repository(place / "origin")


def installed(place: Path) -> list[str]:
    return sorted(path.name for path in (place / "home/.agents/skills").glob("*"))


def test_the_skills_of_a_projects_lock_are_restored(run: Run, place: Path) -> None:
    origin = origin_of(place, "notes", "pdf")
    entries = {name: entry_of(origin, name) for name in ("notes", "pdf")}
    lock = written(place / "project/skills-lock.json", entries)
    code, out, err = run("install", "--from-lock", "skills-lock.json", "--list")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"notes  from git+{origin.as_uri()}  in skills/notes"
    assert installed(place) == []
    code, _, err = run("install", "--from-lock", lock, *AGREED)
    assert code == 0, err
    assert "notes: its files are those that the lock has the hash of" in err
    # One fetch for both.
    assert err.count("fetching ") == 1
    assert installed(place) == ["notes", "pdf"]
    assert run("verify")[0] == 0
    kept = json.loads((place / "home/.config/skillhouse/skills.lock").read_text())["skills"]
    assert kept["pdf"]["requested"] == f"git+{origin.as_uri()}"
    assert kept["pdf"]["inside"] == "skills/pdf"
    # It is an install like any other one, and can be updated.
    make_skill(origin / "skills/pdf", "New.")
    commit(origin)
    assert run("update", "pdf", *AGREED)[0] == 0


def test_other_files_than_those_of_the_lock_need_a_further_word(
    run: Run, typing, place: Path
) -> None:
    origin = origin_of(place, "notes")
    lock = written(place / "lock.json", {"notes": entry_of(origin, "notes")})
    make_skill(origin / "skills/notes", "Changed since.")
    commit(origin)
    code, _, err = run("install", "--from-lock", lock, *AGREED)
    assert code == 1
    assert "NOT those that the lock has the hash of" in err
    assert installed(place) == []
    code, out, _ = run("install", "--from-lock", lock, "--dry-run", "--json")
    assert code == 0
    assert json.loads(out)["skills"][0]["lock_hash"] == "different"
    code, out, err = typing("unsigned", "install", "--from-lock", lock)
    assert code == 0
    assert "NOT those" in err
    assert run("uninstall", "notes")[0] == 0
    assert run("install", "--from-lock", lock, *AGREED, "--allow-changed")[0] == 0
    assert installed(place) == ["notes"]


def test_each_skill_that_cannot_be_restored_is_named_with_the_reason(run: Run, place: Path) -> None:
    origin = origin_of(place, "notes", "pdf")
    skills = {
        "gone": entry_of(origin, "notes", skillPath="skills/gone/SKILL.md"),
        "host": {"source": "127.0.0.1", "sourceType": "well-known", "computedHash": ""},
        "notes": entry_of(origin, "notes"),
        "renamed": entry_of(origin, "pdf"),
        "\x1b[2Jodd": {"source": "a", "sourceType": "git"},
    }
    lock = written(place / "lock.json", skills)
    code, out, err = run("install", "--from-lock", lock, *AGREED, "--json")
    assert code == 1
    values = {one.get("source") or one["name"]: one for one in json.loads(out)["skills"]}
    errors = {name: one["error"] for name, one in values.items() if "error" in one}
    assert errors.pop("host").startswith("source: the lock has neither the scheme nor the port")
    assert "no skill at `skills/gone`" in errors.pop("gone")
    assert "`renamed` is called `pdf` at its source" in errors.pop("renamed")
    assert "no address of the Git server" in errors.popitem()[1]
    assert errors == {}
    assert "\x1b" not in out + err
    assert installed(place) == ["notes"]


def test_a_lock_of_clawhub_says_what_is_missing(run: Run, place: Path) -> None:
    value = {"version": "1.0.0", "installedAt": 1}
    lock = written(place / "project/.clawhub/lock.json", {"notes": value})
    code, out, _ = run("install", "--from-lock", lock, "--list", "--json")
    assert code == 0
    assert json.loads(out)["skills"][0]["source"] == "notes@1.0.0"
    code, _, err = run("install", "--from-lock", lock, *AGREED)
    assert code == 1
    assert "no repository" in err


def test_only_the_users_own_lock_leads_to_addresses_near_by(run: Run, place: Path) -> None:
    package = pack(make_skill(place / "notes"))
    listed = {
        "name": "notes",
        "type": "archive",
        "description": "About notes.",
        "url": "notes.tar.gz",
        "digest": digest_of(package.archive),
    }
    base = "/.well-known/agent-skills"
    index = json.dumps({"$schema": SCHEMA, "skills": [listed]}).encode()
    served_files = {f"{base}/index.json": index, f"{base}/notes.tar.gz": package.archive}
    with served(pages(served_files)) as address:
        entry = {
            "source": "127.0.0.1",
            "sourceType": "well-known",
            "sourceUrl": f"{address}{base}/notes.tar.gz",
            "skillFolderHash": "",
        }
        lock = written(place / "project/.skill-lock.json", {"notes": entry}, version=3)
        code, _, err = run("install", "--from-lock", lock, *AGREED)
        assert code == 1, err
        assert installed(place) == []
        lock = written(place / "home/.agents/.skill-lock.json", {"notes": entry}, version=3)
        code, _, err = run("install", "--from-lock", "~/.agents/.skill-lock.json", *AGREED)
        assert code == 0, err
    assert installed(place) == ["notes"]
    assert os.access(place / "home/.agents/skills/notes/scripts/run.sh", os.X_OK)


def test_the_verbs_that_contradict_it_are_usage_errors(run: Run, place: Path) -> None:
    origin = origin_of(place, "notes")
    lock = written(place / "lock.json", {"notes": entry_of(origin, "notes")})
    for words in ([str(origin)], ["--all"], ["--frozen"], ["--skill", "other"]):
        code, _, err = run("install", "--from-lock", lock, *words)
        assert code == 2, err
    assert run("install", "--from-lock", lock, "--skill", "notes", *AGREED)[0] == 0
    assert run("install", "--from-lock", str(place / "none.json"))[0] == 3
    assert git(origin, "status", "--porcelain") == ""
