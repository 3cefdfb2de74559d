"""Attacks by Git servers, other servers and locks of projects; a naive tool tries each first.

Each is refused by a named step; nothing is on the disk and nothing in the lock.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from skillhouse.registry import GitRepository, SourceError, git_program, pack, parse_source
from tests.attacks.test_install_attacks import AGREED, SKILL, refused
from tests.frontends.conftest import Run, place, run
from tests.frontends.terminals import Seat
from tests.harness import Need, ran
from tests.loopback_http import QuietHandler, served
from tests.machines import OWN_MOUNTS
from tests.registry.sources import (
    commit_objects,
    git,
    git_server,
    make_repository,
    make_skill,
    pages,
)
from tests.registry.test_git_repository import program, source_of

__all__ = ["place", "run"]


def without(run: Run, place: Path, source: str, path: str) -> str:
    """Install what lacks one path; return what was said of it before (decision 410)."""
    code, out, err = run("install", source, *AGREED, "--accept-obeyed")
    said = next(line for line in f"{out}{err}".splitlines() if "not there" in line)
    assert (code, path in said) == (0, True), out + err
    [installed] = (place / "home").rglob("notes/SKILL.md")
    assert not (installed.parent / path).exists()
    assert not (installed.parent / path).is_symlink()
    return said


@pytest.mark.slow
def test_a_repository_with_a_link_out(run: Run, place: Path) -> None:
    origin = make_repository(place / "origin")
    secret = place / "secret"
    secret.write_text("owned")
    commit = commit_objects(
        origin,
        {"SKILL.md": ("100644", SKILL), "more.md": ("120000", os.fsencode(secret))},
    )
    git(origin, "update-ref", "refs/heads/main", commit)
    git(place, "clone", "--quiet", str(origin), "naive")
    assert (place / "naive/more.md").read_text() == "owned"
    said = without(run, place, f"git+{origin.as_uri()}", "more.md")
    assert "owned" not in said


def test_an_address_that_is_a_command(run: Run, place: Path) -> None:
    """Transports of git that start programs, and references that are options."""
    command = f"ext::sh -c touch% {place}/owned"
    options = ("-c", "protocol.ext.allow=always", "clone", "--quiet")
    with pytest.raises(subprocess.CalledProcessError):
        git(place, *options, command, "naive")
    assert (place / "owned").exists()
    (place / "owned").unlink()
    origin = make_repository(make_skill(place / "origin/notes").parent)
    pack_option = f"--upload-pack=touch {place}/owned;git-upload-pack"
    git(origin, "fetch", "--quiet", pack_option, str(origin), "main:x")
    assert (place / "owned").exists(), "a reference that git takes for an option"
    (place / "owned").unlink()
    for text in (command, f"git+{command}", f"git+{origin.as_uri()}@{pack_option}", "fd::17"):
        assert refused(run, place, text).startswith("source: ")
    assert not (place / "owned").exists()


def test_a_lock_whose_address_is_a_command(run: Run, place: Path) -> None:
    """What refuses a person's word refuses that of a project's lock as well."""
    origin = make_repository(make_skill(place / "origin/notes").parent)
    assert run("install", f"git+{origin.as_uri()}", "--project", *AGREED)[0] == 0
    for gone in (place / "project/.agents", place / "home/.local/state/skillhouse/installs"):
        shutil.rmtree(gone)
    path = place / "project/skills.lock"
    lock = json.loads(path.read_text())
    for address in (f"git+ext::sh -c touch% {place}/owned", f"ext::sh -c touch% {place}/owned"):
        for key in ("resolved", "requested"):
            lock["skills"]["notes"][key] = address
        path.write_text(json.dumps(lock))
        code, _, err = run("install", "--frozen", "--project", "--allow-unsigned")
        assert (code, "source: " in err) == (1, True)
        assert run("update", *AGREED)[0] == 1
    assert not (place / "owned").exists()


@pytest.mark.slow
def test_a_server_that_writes_to_the_terminal(place: Path) -> None:
    """Git shows what the server says beside the objects, `remote:` before each line."""
    make_repository(make_skill(place / "repos/origin/notes").parent)
    said = "\\033]0;owned\\007\\033[2J\\r100%% owned"
    hook = f"printf '{said}\\n' >&2; sleep 1.5;"
    variables = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "uploadpack.packObjectsHook",
        "GIT_CONFIG_VALUE_0": f"sh -c '{hook[:-1].replace(chr(39), chr(34))}; exec \"$@\"' sh",
    }
    with served(git_server(place / "repos", **variables)) as address:
        url = f"{address}/origin/.git"
        naive = ["git", "clone", "--progress", url, str(place / "naive")]
        done = subprocess.run(naive, capture_output=True, check=True)
        assert b"100% owned" in done.stderr
        seat = Seat(place, "install", url, "--dry-run")
        code = seat.end()
    assert (code, "notes" in seat.text) == (0, True), seat.text
    assert "owned" not in seat.text
    assert "\x1b]" not in seat.text


FULL = """
import sys
from skillhouse.frontends.cli import main, person
from pathlib import Path
person.PROC = Path("/no-processes")
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("what", ["git", "archive"])
def test_a_full_disk_while_it_is_fetched(place: Path, need: Need, what: str) -> None:
    """The place of temporary files, the cache and the skills are on a disk of 1 MiB."""
    skill = make_skill(place / "origin/notes")
    (skill / "noise.bin").write_bytes(os.urandom(3 * 1024 * 1024))
    disk = place / "disk"
    disk.mkdir()
    package = pack(skill)
    make_repository(skill.parent)
    with served(pages({"/notes.tar.gz": package.archive})) as address:
        source = f"git+{skill.parent.as_uri()}" if what == "git" else f"{address}/notes.tar.gz"
        command = [sys.executable, "-c", FULL, "install", source, *AGREED]
        script = 'mount -t tmpfs -o size=1m none "$0" && "$@"; echo $?; find "$0" -type f'
        done = ran(
            [*OWN_MOUNTS, "sh", "-c", script, str(disk), *command],
            env={"PATH": os.environ["PATH"], "HOME": str(disk), "TMPDIR": str(disk)},
            cwd=place / "project",
            timeout=120,
        )
    need("mount" not in done.stderr, "unshare with a tmpfs of its own")
    code, *left = done.stdout.splitlines()
    print(done.stderr)
    assert code in ("1", "3"), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("skillhouse: ")
    assert [one for one in left if "/skills/" in one or one.endswith("skills.lock")] == []


@pytest.mark.slow
def test_a_repository_with_a_submodule(run: Run, place: Path) -> None:
    inner = make_repository(make_skill(place / "inner/x").parent)
    origin = make_repository(place / "origin")
    url = b'[submodule "more"]\n\tpath = more\n\turl = ' + os.fsencode(inner) + b"\n"
    commit = commit_objects(
        origin,
        {
            "SKILL.md": ("100644", SKILL),
            ".gitmodules": ("100644", url),
            "more": ("160000", git(inner, "rev-parse", "HEAD")),
        },
    )
    git(origin, "update-ref", "refs/heads/main", commit)
    options = ("-c", "protocol.file.allow=always", "clone", "--quiet", "--recurse-submodules")
    git(place, *options, str(origin), "naive")
    assert (place / "naive/more/x/SKILL.md").exists()
    assert "submodule" in without(run, place, f"git+{origin.as_uri()}", "more")


@pytest.mark.slow
def test_a_repository_whose_configuration_starts_programs(run: Run, place: Path) -> None:
    """Filters of attributes, hooks, and a command of the server's own configuration."""
    origin = make_repository(make_skill(place / "origin/notes").parent)
    (origin / ".gitattributes").write_text("* filter=owned\n")
    git(origin, "config", "filter.owned.smudge", f"touch {place}/owned; cat")
    git(origin, "config", "uploadpack.packObjectsHook", f"touch {place}/owned;")
    for hook in ("post-checkout", "reference-transaction", "post-merge"):
        (origin / f".git/hooks/{hook}").parent.mkdir(exist_ok=True)
        (origin / f".git/hooks/{hook}").write_text(f"#!/bin/sh\ntouch {place}/owned\n")
        (origin / f".git/hooks/{hook}").chmod(0o755)
    git(origin, "add", "--all")
    (place / "owned").unlink(missing_ok=True)
    git(origin, "checkout", "--quiet", "-b", "other")
    assert (place / "owned").exists(), "it works for who works in the repository"
    (place / "owned").unlink()
    assert run("install", f"git+{origin.as_uri()}", *AGREED)[0] == 0
    assert not (place / "owned").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["..", ".git", ".GIT", "git~1"])
def test_a_repository_with_a_directory_that_means_another_place(
    run: Run, place: Path, name: str
) -> None:
    refused(run, place, _with_entry(place, name, tree=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["con.txt", "a\\b", "a:b", "x\u202ey", "caf\udce9"])
def test_a_repository_with_a_file_that_means_another_place_is_installed_without_it(
    run: Run, place: Path, name: str
) -> None:
    code, out, err = run("install", _with_entry(place, name), *AGREED)
    assert code == 0, err
    assert "a name that means another file" in out
    assert out.replace("\n", "").isprintable()
    found = [path.name for path in (place / "home/.agents/skills").rglob("*")]
    assert sorted(found) == ["SKILL.md", "notes"]


def _with_entry(place: Path, name: str, *, tree: bool = False) -> str:
    """Return the address of a repository with a skill and an entry that git itself would refuse."""
    origin = make_repository(place / "origin")
    content: tuple[str, bytes | str] = ("100644", b"x")
    if tree:
        content = ("040000", git(origin, "mktree", stdin=b""))
    try:
        commit = commit_objects(origin, {"SKILL.md": ("100644", SKILL), name: content})
    except subprocess.CalledProcessError:
        pytest.fail(f"git makes no such tree: {name!r}")
    git(origin, "update-ref", "refs/heads/main", commit)
    return f"git+{origin.as_uri()}"


@pytest.mark.slow
def test_ten_objects_that_name_ten_million_files(place: Path) -> None:
    origin = make_repository(place / "origin")
    blob = git(origin, "hash-object", "-w", "--stdin", stdin=b"x")
    tree, mode = blob, "100644 blob"
    for _ in range(7):
        lines = b"".join(f"{mode} {tree}\tf{number}\0".encode() for number in range(10))
        tree, mode = git(origin, "mktree", "-z", stdin=lines), "040000 tree"
    git(origin, "update-ref", "refs/heads/main", git(origin, "commit-tree", "-m", "bomb", tree))
    with (
        GitRepository(program(), source_of(origin)) as repository,
        pytest.raises(SourceError, match="the list of files"),
    ):
        repository.files()


@pytest.mark.slow
def test_a_pack_that_is_too_large(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_program, "PACK_MAX", 1024 * 1024)
    origin = place / "origin"
    make_skill(origin / "notes")
    (origin / "big").write_bytes(os.urandom(4 * 1024 * 1024))
    make_repository(origin)
    with pytest.raises(SourceError, match="larger than 1048576 bytes"):
        GitRepository(program(), source_of(origin))


def moved(target: str) -> type[BaseHTTPRequestHandler]:
    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self.answer(302, headers={"Location": target + self.path})

    return Handler


@pytest.mark.slow
def test_a_server_that_leads_elsewhere(run: Run, place: Path) -> None:
    """Of git, so that no abandoned name is taken over; of an archive, to this machine."""
    asked: list[str] = []

    class Inner(QuietHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

    with served(Inner) as inner, served(moved(inner)) as outer:
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{outer}/a.git/info/refs")
        assert asked == ["/a.git/info/refs"]
        asked.clear()
        said = refused(run, place, f"{outer}/a.git")
        assert f"source: `{outer}/a` moved to `{inner}/a`: install it from there if you" in said
        assert "redirect" in refused(run, place, f"{outer}/a.tar.gz")
    assert asked == []


@contextmanager
def answering(data: bytes) -> Iterator[str]:
    """A server that sends this to whoever connects, and then says nothing more."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept: list[socket.socket] = []

        def serve() -> None:
            try:
                while True:
                    peer, _ = server.accept()
                    peer.sendall(data)
                    kept.append(peer)
            except OSError:
                return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            for peer in kept:
                peer.close()
            thread.join()


def test_a_server_that_says_nothing_and_one_that_stops(place: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-advertisement\r\n"
    for data in (b"", head + b"Content-Length: 5000\r\n\r\n001e# service=git-upload"):
        with answering(data) as address:
            source = parse_source(f"http://{address}/a.git", place, home=place)
            with pytest.raises(SourceError, match=r"no answer within 1 s"):
                GitRepository(program(), source, fetch_seconds=1)


def test_a_server_that_is_cut_off(run: Run, place: Path) -> None:
    package = pack(make_skill(place / "notes"))

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            size = str(len(package.archive))
            self.answer(200, package.archive[:1_000], {"Content-Length": size})

    with served(Handler) as address:
        assert "source: " in refused(run, place, f"{address}/notes.tar.gz")


@pytest.mark.slow
def test_a_lock_that_names_another_place_writes_nothing_there(run: Run, place: Path) -> None:
    """A project's lock is as untrusted as its skills."""
    package = pack(make_skill(place / "notes"))
    (place / "notes.tar.gz").write_bytes(package.archive)
    project = place / "project"
    assert run("install", str(place / "notes.tar.gz"), "--project", *AGREED)[0] == 0
    shutil.rmtree(project / ".agents")
    lock = json.loads((project / "skills.lock").read_text())
    lock["skills"]["notes"]["install"]["path"] = ".git/hooks"
    (project / "skills.lock").write_text(json.dumps(lock))
    frozen = ("install", "--frozen", "--project", "--allow-unsigned")
    assert run(*frozen)[0] == 0
    assert not (project / ".git/hooks").exists()
    assert (project / ".agents/skills/notes/SKILL.md").exists()
    lock["skills"]["../../home/.config"] = lock["skills"].pop("notes")
    (project / "skills.lock").write_text(json.dumps(lock))
    code, _, err = run(*frozen)
    assert code == 3
    assert "no name of a skill" in err


@pytest.mark.slow
def test_a_skill_whose_name_is_another_installed_one_is_told_by_its_repository(
    run: Run, place: Path
) -> None:
    """Dependency confusion: the name is ours, the repository is theirs."""
    ours = make_repository(make_skill(place / "ours/notes").parent)
    theirs = make_repository(make_skill(place / "theirs/notes", "Owned.").parent)
    assert run("install", f"git+{ours.as_uri()}", *AGREED)[0] == 0
    code, _, err = run("install", f"git+{theirs.as_uri()}", *AGREED)
    assert code == 1
    assert "policy: `notes` is locked to" in err
    body = (place / "home/.agents/skills/notes/SKILL.md").read_text()
    assert "Owned." not in body


@pytest.mark.slow
def test_a_lock_that_leads_to_this_machine(run: Run, place: Path) -> None:
    """Whoever writes a project's lock would send requests to services behind the firewall."""
    package = pack(make_skill(place / "notes"))
    handler = pages({"/notes.tar.gz": package.archive})
    project = place / "project"
    with served(handler) as address:
        url = f"{address}/notes.tar.gz"
        # A person may type it.
        assert run("install", url, "--project", *AGREED)[0] == 0
        asked: list[str] = handler.asked  # type: ignore[attr-defined]
        assert asked == ["/notes.tar.gz"]
        for gone in (project / ".agents", place / "home/.local/state/skillhouse/installs"):
            shutil.rmtree(gone)
        lock = json.loads((project / "skills.lock").read_text())
        for resolved in (url, address, f"git+{address}/x.git"):
            for key in ("resolved", "requested"):
                lock["skills"]["notes"][key] = resolved
            lock["skills"]["notes"]["digest"] = package.digest if resolved == url else ""
            (project / "skills.lock").write_text(json.dumps(lock))
            code, _, err = run("install", "--frozen", "--project", "--allow-unsigned")
            assert (code, "source: " in err) == (1, True), err
            assert run("outdated")[0] == 1
            assert run("update", *AGREED)[0] == 1
        assert asked == ["/notes.tar.gz"]
    assert not (project / ".agents/skills/notes").exists()
