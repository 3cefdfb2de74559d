"""Tests of registry/other_locks.py: locks of others, in our words."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from skillhouse.floor import StateError
from skillhouse.registry import OtherEntry, compare_hash, directory_members, read_other_lock
from skillhouse.registry.other_locks import folder_hash, git_tree_hash
from tests.harness import Need
from tests.registry.sources import git, make_repository, make_skill

HASH = "0" * 64
TREE = "1" * 40


def lock_file(place: Path, skills: Any, *, version: object = 1) -> Path:
    path = place / "lock.json"
    path.write_text(json.dumps({"version": version, "skills": skills}))
    return path


def only(place: Path, value: Any, *, version: int = 1, name: str = "pdf") -> OtherEntry:
    (found,) = read_other_lock(lock_file(place, {name: value}, version=version)).entries
    return found


@pytest.mark.parametrize(
    ("value", "source", "inside"),
    [
        (
            {"source": "a/b", "sourceType": "github", "skillPath": "skills/pdf/SKILL.md"},
            "a/b",
            "skills/pdf",
        ),
        (
            {"source": "a/b", "sourceType": "github", "ref": "v1", "skillPath": "SKILL.md"},
            "a/b@v1",
            "",
        ),
        ({"source": "a/b", "sourceType": "github"}, "a/b", None),
        (
            {"source": "x", "sourceUrl": "https://github.com/a/b.git", "sourceType": "github"},
            "git+https://github.com/a/b.git",
            None,
        ),
        (
            {"source": "g/r", "sourceUrl": "https://git.test/g/r.git", "sourceType": "gitlab"},
            "git+https://git.test/g/r.git",
            None,
        ),
        (
            {"source": "git@git.test:g/r.git", "ref": "main", "sourceType": "git"},
            "git@git.test:g/r.git@main",
            None,
        ),
        ({"source": "skills.test", "sourceType": "well-known"}, "https://skills.test", None),
    ],
)
def test_an_entry_of_a_projects_lock_becomes_a_source(
    tmp_path: Path, value: dict[str, str], source: str, inside: str | None
) -> None:
    found = only(tmp_path, {**value, "computedHash": HASH})
    assert (found.fault, found.source, found.inside) == ("", source, inside)
    assert (found.hash, found.hash_kind) == (HASH, "folder")


def test_a_users_lock_has_the_address_of_a_server_and_the_tree_of_a_commit(tmp_path: Path) -> None:
    address = "http://127.0.0.1:8080/team/.well-known/agent-skills/pdf.tar.gz"
    value = {"source": "127.0.0.1", "sourceType": "well-known", "sourceUrl": address}
    found = only(tmp_path, {**value, "skillFolderHash": ""}, version=3)
    assert (found.source, found.hash_kind) == ("http://127.0.0.1:8080/team", "")
    value = {"source": "a/b", "sourceType": "github", "sourceUrl": "https://github.com/a/b.git"}
    found = only(tmp_path, {**value, "skillFolderHash": TREE}, version=3)
    assert (found.source, found.hash_kind) == ("a/b", "git-tree")


def test_a_directory_and_an_npm_package_are_those_beside_the_lock(tmp_path: Path) -> None:
    place = make_skill(tmp_path / "node_modules/@acme/tools/skills/pdf").parents[1]
    value = {"source": "@acme/tools", "sourceType": "node_modules"}
    assert only(tmp_path, value).source == str(place)
    assert only(tmp_path, {"source": "node_modules", "sourceType": "local"}).source == str(
        tmp_path / "node_modules"
    )


def test_a_lock_of_clawhub_names_a_version_in_the_repositories(tmp_path: Path) -> None:
    value = {"version": "1.2.0", "installedAt": 1, "pinned": True, "pinReason": "works"}
    skills = {"acme--pdf": {**value, "version": None}, "notes": value}
    lock = read_other_lock(lock_file(tmp_path, skills))
    assert lock.kind == "clawhub"
    first, second = lock.entries
    assert (first.name, first.source) == ("pdf", "@acme/pdf")
    assert (second.name, second.source) == ("notes", "notes@1.2.0")
    assert (second.pinned, second.pin_reason) == (True, "works")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"source": "127.0.0.1", "sourceType": "well-known"}, "neither the scheme nor the port"),
        ({"source": "localhost", "sourceType": "well-known"}, "neither the scheme nor the port"),
        ({"source": "a/b", "sourceType": "git"}, "no address of the Git server"),
        ({"source": "a/b", "sourceType": "mintlify"}, "is not known here"),
        ({"source": "ext::sh -c x", "sourceType": "git"}, "no address of the Git server"),
        ({"source": "ext::sh://x", "sourceType": "git"}, "expected an address of"),
        ({"source": "https://u:p@git.test/x.git", "sourceType": "git"}, "without a password"),
        ({"source": "a/b", "sourceType": "github", "ref": "--upload-pack=x"}, "no branch"),
        ({"source": "a/b", "sourceType": "github", "skillPath": "../x/SKILL.md"}, "refused path"),
        ({"source": "../../etc", "sourceType": "node_modules"}, "no name of an npm package"),
        ({"source": "tools", "sourceType": "node_modules"}, "which is not at"),
        ({"source": "/nowhere/at/all", "sourceType": "local"}, "nothing is at"),
        ({"source": "a\0b", "sourceType": "local"}, "no path"),
        ({"source": 7, "sourceType": "github"}, "expected `str`"),
        ("text", "expected `object`"),
    ],
)
def test_an_entry_that_cannot_be_restored_says_why_and_costs_no_other(
    tmp_path: Path, value: Any, said: str
) -> None:
    other = {"source": "a/b", "sourceType": "github"}
    lock = read_other_lock(lock_file(tmp_path, {"bad": value, "good": other}))
    bad, good = lock.entries
    assert said in bad.fault
    assert (bad.source, good.fault, good.source) == ("", "", "a/b")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"version": 1}',
        b'{"version": 2, "skills": {}}',
        b'{"version": true, "skills": {}}',
        b'{"version": "1", "skills": {}}',
        b"[" * 100_000,
        b"\xff",
        json.dumps({"version": 1, "skills": dict.fromkeys(map(str, range(10_001)))}).encode(),
    ],
)
def test_what_is_no_lock_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "lock.json"
    path.write_bytes(data)
    with pytest.raises(StateError):
        read_other_lock(path)


def test_the_tree_hash_is_that_of_git(tmp_path: Path) -> None:
    skill = make_skill(tmp_path / "skills/pdf")
    for name in ("scripts.md", "scripts-2/x", "a/b/c", "é"):
        (skill / name).parent.mkdir(parents=True, exist_ok=True)
        (skill / name).write_text(name)
    make_repository(tmp_path)
    tree = git(tmp_path, "rev-parse", "HEAD:skills/pdf")
    _, members = directory_members(skill)
    entry = OtherEntry(name="pdf", hash=tree, hash_kind="git-tree")
    assert compare_hash(entry, members) == "same"
    (skill / "scripts/run.sh").chmod(0o644)
    _, members = directory_members(skill)
    assert compare_hash(entry, members) == "different"
    assert git_tree_hash({}) == "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def test_a_hash_that_cannot_be_compared_is_unknown(tmp_path: Path) -> None:
    skill = make_skill(tmp_path / "pdf")
    (skill / "é.md").write_text("x")
    _, members = directory_members(skill)
    assert compare_hash(OtherEntry(name="pdf"), members) == "unknown"
    entry = OtherEntry(name="pdf", inside="pdf", hash=HASH, hash_kind="folder")
    assert compare_hash(entry, members) == "unknown"
    (skill / "é.md").unlink()
    _, members = directory_members(skill)
    assert compare_hash(entry, members) == "different"
    # At the top of a repository it may be the hash of the SKILL.md alone.
    top = OtherEntry(name="pdf", inside="", hash=HASH, hash_kind="folder")
    assert compare_hash(top, members) == "unknown"


def test_files_are_in_the_order_of_javascript(need: Need) -> None:
    need(shutil.which("node"), "no node here")
    chance = random.Random(19)
    signs = "".join(map(chr, range(32, 127)))
    names = [
        "".join(chance.choice(chance.choice([signs, "aAbB/-_."])) for _ in range(8))
        for _ in range(2_000)
    ]
    files = {name: name.encode() for name in names}
    program = """
    const names = JSON.parse(require("fs").readFileSync(0)), crypto = require("crypto")
    const hash = crypto.createHash("sha256")
    for (const name of names.sort((a, b) => a.localeCompare(b))) hash.update(name).update(name)
    console.log(hash.digest("hex"))
    """
    done = subprocess.run(
        ["node", "-e", program],
        input=json.dumps(list(files)).encode(),
        capture_output=True,
        check=True,
    )
    kept = {name: content for name, content in files.items() if "node_modules" not in name}
    assert folder_hash(kept) == done.stdout.decode().strip()


@pytest.mark.parametrize("odd", [1, None, True, "x", [], ["source"], [[]], {}, 1.5])
def test_an_entry_that_is_no_object_says_so_and_costs_no_other(tmp_path: Path, odd: Any) -> None:
    good = {"source": "a/b", "sourceType": "github"}
    found = read_other_lock(lock_file(tmp_path, {"odd": odd, "pdf": good})).entries
    assert [one.name for one in found if not one.fault] == ["pdf"]
    assert [one.name for one in read_other_lock(lock_file(tmp_path, {"odd": odd})).entries] == [
        "odd"
    ]
