"""Attacks on where an installed skill comes from: another history, a moved tag, a planted copy.

A naive tool, which fetches what the address has now, takes each; here a person types a word, or a
script says it by an option.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.attacks.test_install_attacks import AGREED
from tests.frontends.conftest import Run, place, run, typing
from tests.loopback_http import QuietHandler, served
from tests.registry.sources import commit, git, git_server, make_repository, make_skill

__all__ = ["place", "run", "typing"]

WORD = "--accept-rewritten"


@pytest.fixture
def origin(place: Path) -> Path:
    make_skill(place / "origin/skills/notes")
    return make_repository(place / "origin")


def text(place: Path) -> str:
    return (place / "home/.agents/skills/notes/SKILL.md").read_text()


def lock_file(place: Path) -> Path:
    return place / "home/.config/skillhouse/skills.lock"


def naive(place: Path, origin: Path, ref: str = "main") -> str:
    """What a tool gets that only asks for what is there now."""
    clone = place / "naive"
    if not clone.exists():
        make_repository(clone)
    git(clone, "fetch", "--quiet", "--depth=1", str(origin), f"+refs/{ref}:refs/naive")
    return git(clone, "show", "refs/naive:skills/notes/SKILL.md")


def replaced(origin: Path) -> None:
    """Another owner has the address, with a history of their own."""
    shutil.rmtree(origin)
    make_skill(origin / "skills/notes", "Owned.")
    make_repository(origin)
    # The first commits of both would be one, as files, names and times of the tests are.
    git(origin, "commit", "--quiet", "--amend", "--message=another beginning")


def rewritten(origin: Path) -> None:
    make_skill(origin / "skills/notes", "Owned.")
    git(origin, "add", "--all")
    git(origin, "commit", "--quiet", "--message=one that takes the place of the second")


@pytest.mark.parametrize("is_old_lock", [False, True])
def test_a_repository_that_was_taken_over_under_its_address(
    run: Run, typing, place: Path, origin: Path, is_old_lock: bool
) -> None:
    assert run("install", origin.as_uri(), *AGREED)[0] == 0
    if is_old_lock:
        lock = json.loads(lock_file(place).read_text())
        del lock["skills"]["notes"]["git"]
        lock_file(place).write_text(json.dumps(lock))
    replaced(origin)
    assert "Owned." in naive(place, origin, "heads/main")
    said = "its history was rewritten" if is_old_lock else "another repository is there now"
    code, out, err = run("outdated")
    assert (code, said in out) == (1, True), out + err
    code, out, err = run("update", *AGREED)
    assert code == 2
    assert said in err
    assert f"use --yes --allow-unsigned {WORD}" in err
    assert "Owned." not in text(place)
    # A person who types another word has agreed to nothing.
    assert typing("unsigned\nunsigned", "update")[0] == 1
    assert "Owned." not in text(place)
    assert run("update", *AGREED, WORD)[0] == 0
    assert "Owned." in text(place)
    root = git(origin, "rev-list", "--max-parents=0", "HEAD")
    known = json.loads(lock_file(place).read_text())["skills"]["notes"]["git"]
    assert known == {"commit": root, "root": root, "tag": ""}
    assert run("outdated")[0] == 0


def test_a_history_that_was_rewritten_with_the_same_beginning(
    run: Run, place: Path, origin: Path
) -> None:
    make_skill(origin / "skills/notes", "Second.")
    commit(origin)
    assert run("install", origin.as_uri(), *AGREED)[0] == 0
    git(origin, "reset", "--quiet", "--hard", "HEAD~1")
    rewritten(origin)
    assert "Owned." in naive(place, origin, "heads/main")
    code, _, err = run("update", *AGREED)
    assert (code, "its history was rewritten" in err) == (2, True)
    assert "Second." in text(place)
    # Its past stays known when the same files are back in another commit.
    make_skill(origin / "skills/notes", "Second.")
    commit(origin)
    code, _, err = run("update", *AGREED)
    assert (code, "its history was rewritten" in err) == (0, True)
    make_skill(origin / "skills/notes", "Owned.")
    commit(origin)
    assert run("update", *AGREED)[0] == 2
    assert run("update", *AGREED, WORD)[0] == 0


@pytest.mark.parametrize("flags", [(), ("--annotate", "--message=signed off")])
def test_a_tag_that_was_moved_by_force(
    run: Run, place: Path, origin: Path, flags: tuple[str, ...]
) -> None:
    git(origin, "tag", *flags, "v1")
    assert run("install", f"{origin.as_uri()}@v1", *AGREED)[0] == 0
    make_skill(origin / "skills/notes", "Owned.")
    commit(origin)
    assert run("outdated")[0] == 0
    git(origin, "tag", "--force", *flags, "v1")
    assert "Owned." in naive(place, origin, "tags/v1")
    # Whoever moved it wrote on top of the history: only the tag says so.
    code, _, err = run("update", *AGREED)
    assert (code, "the tag `v1` was moved, from" in err) == (2, True)
    git(origin, "tag", "--delete", "v1")
    git(origin, "branch", "v1")
    code, _, err = run("update", *AGREED)
    assert (code, "`v1` is no tag any more" in err) == (2, True)
    assert "Owned." not in text(place)
    assert run("update", *AGREED, WORD)[0] == 0
    assert "Owned." in text(place)


def test_a_copy_of_the_same_name_that_was_planted_elsewhere(
    run: Run, typing, place: Path, origin: Path
) -> None:
    """Its own directory is gone: a tool that looks for the name alone may take the other one."""
    assert run("install", origin.as_uri(), *AGREED)[0] == 0
    make_skill(origin / "a/notes", "Owned.")
    git(origin, "mv", "skills/notes", "moved")
    commit(origin)
    found = sorted(path for path in origin.rglob("SKILL.md") if "name: notes" in path.read_text())
    assert "Owned." in found[0].read_text()
    for flags in (AGREED, (*AGREED, WORD)):
        code, _, err = run("update", *flags)
        assert (code, "a person at a terminal decides" in err) == (1, True)
    assert "a skill of that name is at `a/notes` too, with other files" in err
    code, _, err = typing("n", "update")
    assert "from `skills/notes` to `moved`" in err
    inside = json.loads(lock_file(place).read_text())["skills"]["notes"]["inside"]
    assert inside == "skills/notes"
    # With other files than those that are installed none of the two is chosen at all.
    make_skill(origin / "moved", "Later.")
    (origin / "moved/SKILL.md").write_text(
        (origin / "moved/SKILL.md").read_text().replace("name: moved", "name: notes")
    )
    commit(origin)
    code, _, err = run("update", *AGREED)
    assert (code, "it moved to `a/notes` or `moved`" in err) == (1, True)
    assert "Owned." not in text(place)


@contextmanager
def leading(to: str, top: Path) -> Iterator[tuple[str, Callable[[bool], None]]]:
    """Serve repositories, and lead all requests elsewhere once that is said."""
    is_moved = [False]
    plain = git_server(top)

    class Handler(plain):  # type: ignore[valid-type, misc]
        def do_GET(self) -> None:
            if is_moved[0]:
                self.answer(301, headers={"Location": to + self.path.replace("/old/", "/new/")})
            else:
                super().do_GET()

        do_POST = do_GET

    def move(value: bool) -> None:
        is_moved[0] = value

    with served(Handler) as address:
        yield address, move


@pytest.mark.slow
def test_a_repository_that_leads_to_another_owner(run: Run, place: Path) -> None:
    """Whoever registers a name that was given up may serve it, and what it leads to."""
    make_repository(make_skill(place / "served/old/skills.git/notes").parent)
    theirs = make_repository(make_skill(place / "served/new/skills.git/notes", "Owned.").parent)
    with served(git_server(place / "served")) as new, leading(new, place / "served") as (old, move):
        assert run("install", f"{old}/old/skills.git", *AGREED)[0] == 0
        move(True)
        followed = place / "followed"
        git(place, "clone", "--quiet", f"{old}/old/skills.git", str(followed))
        assert git(followed, "rev-parse", "HEAD") == git(theirs, "rev-parse", "HEAD")
        before = lock_file(place).read_bytes()
        said = f"`{old}/old/skills` moved to `{new}/new/skills`: install it from there if you mean"
        for verb in (("update", *AGREED, WORD), ("outdated",)):
            code, _, err = run(*verb)
            assert (code, said in err) == (1, True), err
        code, _, err = run("install", f"{new}/new/skills.git", *AGREED, WORD)
        assert (code, "is locked to" in err) == (1, True)
    assert lock_file(place).read_bytes() == before
    assert "Owned." not in text(place)


def answering(target: str) -> type[BaseHTTPRequestHandler]:
    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self.answer(301, headers={"Location": target})

    return Handler


@pytest.mark.slow
@pytest.mark.parametrize(
    "target",
    [
        "ssh://evil.test/x/info/refs",
        "file:///etc/info/refs",
        "ext::sh -c id/info/refs",
        "http://user:word@evil.test/x/info/refs",
        "http://[/info/refs",
        "http://evil.test/" + "x" * 1_000 + "/info/refs",
    ],
)
def test_an_address_to_which_no_one_is_sent(run: Run, target: str) -> None:
    with served(answering(target)) as address:
        code, out, err = run("install", f"{address}/old/skills.git", *AGREED)
    assert code == 1
    assert "its server leads elsewhere, which is not followed" in err
    assert "evil.test" not in out + err


def test_a_lock_of_a_stranger_that_claims_a_history(run: Run, place: Path, origin: Path) -> None:
    """What a lock claims never makes another history one's own."""
    url = origin.as_uri()
    assert run("install", url, "--project", *AGREED)[0] == 0
    path = place / "project/skills.lock"
    was = json.loads(path.read_text())["skills"]["notes"]["git"]["commit"]
    replaced(origin)
    now = git(origin, "rev-parse", "HEAD")

    def claim(**git_entry: object) -> None:
        lock = json.loads(path.read_text())
        lock["skills"]["notes"]["git"] = git_entry
        path.write_text(json.dumps(lock))

    claims = {
        # Its root is theirs, its commit ours.
        "its history was rewritten": {"commit": was, "root": now},
        # It claims their commit for our files.
        "the lock has other files than its commit": {"commit": now, "root": now},
        "another repository is there now": {"commit": "0" * 40, "root": was},
    }
    for said, entry in claims.items():
        claim(**entry)
        code, _, err = run("update", *AGREED)
        assert (code, said in err) == (2, True), err
    for bad in ("--upload-pack=id", "HEAD", "", "g" * 40):
        claim(commit=bad)
        code, _, err = run("update", *AGREED)
        assert (code, "expected the name of a commit" in err) == (3, True), err
    assert "Owned." not in (place / "project/.agents/skills/notes/SKILL.md").read_text()
