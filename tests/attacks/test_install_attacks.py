"""Attacks on `install`: hostile archives, repositories, servers, locks.

Each is first let loose on a naive installer (`git clone`, `tar -x`, `unzip`), where it works. What
ours answers names the step, and nothing is on the disk or in the lock.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import struct
import subprocess
import tarfile
import threading
import unicodedata
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from skillhouse.registry import GitRepository, SourceError, git_repository, pack, parse_source
from tests.attacks.test_archive_attacks import info_of, unfiltered
from tests.frontends.conftest import Run, place, run
from tests.loopback_http import served
from tests.registry.sources import (
    commit_objects,
    git,
    make_repository,
    make_skill,
    pages,
    skill_text,
)
from tests.registry.test_git_repository import program, source_of
from tests.remote.servers import zip_of

__all__ = ["place", "run"]

AGREED = ("--yes", "--allow-unsigned")
SKILL = skill_text("notes").encode()


def refused(run: Run, place: Path, *arguments: str) -> str:
    """Return what `install` says; it must refuse, and leave nothing at all."""
    home = place / "home"
    code, out, err = run("install", *arguments, *AGREED)
    assert code == 1, out + err
    assert list((home / ".agents").glob("skills/*")) == []
    assert list((home / ".agents").glob(".*")) == []
    assert not (home / ".config/skillhouse/skills.lock").exists()
    return err.removeprefix("skillhouse: ").strip()


def tar_of_infos(*entries: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=form) as archive:
        for info, content in entries:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def entry(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    return info_of(name, kind, link), b"x" if kind == tarfile.REGTYPE else b""


def skill_entry() -> tuple[tarfile.TarInfo, bytes]:
    return info_of("SKILL.md"), SKILL


def linked(out: Path) -> bytes:
    """A link that leads out, and a file through it."""
    return tar_of_infos(skill_entry(), entry("up", tarfile.SYMTYPE, str(out)), entry("up/owned"))


def climbing(out: Path) -> bytes:
    return tar_of_infos(skill_entry(), entry("../owned"))


def hard_linked(out: Path) -> bytes:
    return tar_of_infos(skill_entry(), entry("owned", tarfile.LNKTYPE, "../secret"))


def second_name(out: Path) -> bytes:
    """A header that other readers pass over gives the file another name (PAX `path`)."""
    info = info_of("notes.txt")
    info.pax_headers = {"path": "owned"}
    return tar_of_infos(skill_entry(), (info, b"x"))


def concatenated(out: Path) -> bytes:
    """A second archive behind the first, which `tar -i` reads."""
    first = zlib.decompress(tar_of_infos(skill_entry()), 31)
    second = zlib.decompress(tar_of_infos(entry("owned")), 31)
    packer = zlib.compressobj(wbits=31)
    return packer.compress(first + second) + packer.flush()


TARS: dict[str, tuple[Callable[[Path], bytes], str]] = {
    "a link, and a file through it": (linked, "archive: no plain file: 'up' [archive-link]"),
    "a path that climbs": (climbing, "archive: refused name '../owned' [path-parent]"),
    "a hard link to another file": (hard_linked, "archive: no plain file: 'owned' [archive-link]"),
    "two names of one file": (
        second_name,
        "archive: two names of one entry: 'owned' [archive-differs]",
    ),
    "two archives in one": (
        concatenated,
        "archive: bytes behind the last entry [archive-overlap]",
    ),
}


@pytest.mark.req("S002-107")
@pytest.mark.parametrize("attack", TARS)
def test_33_a_hostile_tar(run: Run, place: Path, attack: str) -> None:
    make, expected = TARS[attack]
    naive = place / "naive/inside"
    naive.mkdir(parents=True)
    (place / "naive/secret").write_text("x")
    file = place / "notes.tar.gz"
    file.write_bytes(make(place / "naive"))
    if attack == "two archives in one":
        subprocess.run(["tar", "-xzif", file, "-C", naive], check=True)
    else:
        with tarfile.open(file) as archive:
            unfiltered(archive, naive)
    assert list((place / "naive").rglob("owned")), "the attack works on a naive installer"
    assert expected in refused(run, place, str(file))


def test_33_the_escape_from_the_data_filter(run: Run, place: Path) -> None:
    """CVE-2025-4517: links in links, whose whole path is longer than PATH_MAX."""
    step, deep = "d" * 247, 16
    entries = [skill_entry()]
    path = ""
    for number in range(deep):
        letter = chr(97 + number)
        entries.append((info_of(path + step, tarfile.DIRTYPE), b""))
        entries.append(entry(path + letter, tarfile.SYMTYPE, step))
        path += f"{step}/"
    short = "/".join(chr(97 + number) for number in range(deep))
    end = f"{short}/{'l' * 254}"
    entries.append(entry(end, tarfile.SYMTYPE, "../" * deep))
    entries.append(entry("escape", tarfile.SYMTYPE, f"{end}/../../naive-out"))
    entries.append(entry("escape/owned"))
    for info, _ in entries:
        info.mode = 0o755
    data = tar_of_infos(*entries)
    naive = place / "naive-in"
    naive.mkdir()
    (place / "naive-out").mkdir()
    # Whether this Python is one that the escape works on is not ours to say.
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        try:
            archive.extractall(naive, filter="data")
        except (tarfile.TarError, OSError):
            assert not (place / "naive-out/owned").exists()
    (place / "notes.tar.gz").write_bytes(data)
    assert "archive: " in refused(run, place, str(place / "notes.tar.gz"))


def duplicate() -> bytes:
    """A reviewer reads the first SKILL.md, and a naive installer writes the last one."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("SKILL.md", SKILL)
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("SKILL.md", SKILL + b"owned")
    return out.getvalue()


def two_headers() -> bytes:
    """The entry's own header names one file, the directory at the end another."""
    data = zip_of({"SKILL.md": SKILL, "notes.txt": b"owned"})
    place = data.index(b"notes.txt")
    return data[:place] + b"owned.txt" + data[place + 9 :]


def prefixed() -> bytes:
    return b"#!/bin/sh\necho owned\n" + zip_of({"SKILL.md": SKILL})


def hidden_between() -> bytes:
    """An entry that no directory lists, which readers of the stream find."""
    data = bytearray(zip_of({"SKILL.md": SKILL, "owned": b"x"}))
    first, second = data.index(b"PK\x01\x02"), data.rindex(b"PK\x01\x02")
    end = data.index(b"PK\x05\x06")
    del data[second:end]
    end = data.index(b"PK\x05\x06")
    struct.pack_into("<HHLL", data, end + 8, 1, 1, end - first, first)
    return bytes(data)


def by_stream(data: bytes) -> list[bytes]:
    """Return the names that a reader finds who goes by the entries' own headers."""
    names, at = [], 0
    while (at := data.find(b"PK\x03\x04", at)) >= 0:
        size = struct.unpack_from("<H", data, at + 26)[0]
        names.append(data[at + 30 : at + 30 + size])
        at += 30
    return names


def zip_names(data: bytes) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(data)).namelist()


ZIPS: dict[str, tuple[Callable[[], bytes], Callable[[bytes], bool], str]] = {
    "two files of one name": (
        duplicate,
        lambda data: b"owned" in zipfile.ZipFile(io.BytesIO(data)).read("SKILL.md"),
        "archive: the same path twice: `SKILL.md` [path-twice]",
    ),
    "two names of one file": (
        two_headers,
        lambda data: b"owned.txt" in by_stream(data) and "owned.txt" not in zip_names(data),
        "archive: two names of one entry: 'notes.txt' [archive-differs]",
    ),
    "a program before it": (
        prefixed,
        lambda data: data.startswith(b"#!") and zip_names(data) == ["SKILL.md"],
        "[archive-",
    ),
    "a file that is not listed": (
        hidden_between,
        lambda data: b"owned" in by_stream(data) and "owned" not in zip_names(data),
        "[archive-overlap]",
    ),
    "a backslash as a separator": (
        lambda: zip_of({"SKILL.md": SKILL, "..\\owned": b"x"}),
        lambda data: zip_names(data)[1] == "..\\owned",
        "archive: refused name '..\\\\owned' [path-backslash]",
    ),
    "a device of Windows": (
        lambda: zip_of({"SKILL.md": SKILL, "aux.md": b"x"}),
        lambda data: "aux.md" in zip_names(data),
        "archive: refused name 'aux.md' [path-reserved]",
    ),
    "names that are one on another system": (
        lambda: zip_of({"SKILL.md": SKILL, "skill.md": b"owned"}),
        lambda data: len({name.casefold() for name in zip_names(data)}) == 1,
        "[path-twice]",
    ),
    "a letter in two spellings": (
        lambda: zip_of({"SKILL.md": SKILL, unicodedata.normalize("NFD", "é.md"): b"x"}),
        lambda data: unicodedata.normalize("NFC", zip_names(data)[1]) != zip_names(data)[1],
        "[path-reserved]",
    ),
    "hooks of git": (
        lambda: zip_of({"SKILL.md": SKILL, "sub/.GIT/hooks/post-checkout": b"x"}),
        lambda data: ".GIT" in zip_names(data)[1],
        "[path-reserved]",
    ),
}


@pytest.mark.req("S002-107")
@pytest.mark.parametrize("attack", ZIPS)
def test_32_a_hostile_zip(run: Run, place: Path, attack: str) -> None:
    make, works, expected = ZIPS[attack]
    data = make()
    assert works(data), "the attack works on a naive reader"
    file = place / "notes.zip"
    file.write_bytes(data)
    assert expected in refused(run, place, str(file))


@pytest.mark.slow
def test_32_ten_kilobytes_that_become_gigabytes(run: Run, place: Path) -> None:
    (place / "notes.zip").write_bytes(
        zip_of({"SKILL.md": SKILL, **{f"{n}": bytes(9_000_000) for n in range(4)}})
    )
    assert "[archive-bomb]" in refused(run, place, str(place / "notes.zip"))


def test_a_swapped_archive_is_refused_by_its_digest(run: Run, place: Path) -> None:
    good, other = (pack(make_skill(place / name / "notes", name)) for name in ("good", "other"))
    (place / "notes.tar.gz").write_bytes(other.archive)
    said = refused(run, place, str(place / "notes.tar.gz"), "--digest", good.digest)
    assert "digest: expected " in said
    assert "nothing was unpacked" in said


def test_a_file_that_is_called_a_signature_is_never_passed_over(run: Run, place: Path) -> None:
    skill = make_skill(place / "notes")
    (skill / "skill.sig").write_text("{}")
    assert "signature: " in refused(run, place, str(skill))
    (skill / "skill.sig").unlink()
    (skill / "skill.sig").mkdir()
    (skill / "skill.sig/x").write_text("x")
    refused(run, place, str(skill))


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
    said = refused(run, place, f"git+{origin.as_uri()}")
    assert "archive-link: no plain file: `more.md`" in said


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
    assert "archive-link: no plain file: `more`" in refused(run, place, f"git+{origin.as_uri()}")


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
@pytest.mark.parametrize(
    "name", ["..", ".git", ".GIT", "git~1", "con.txt", "a\\b", "a:b", "x\u202ey", "caf\udce9"]
)
def test_a_repository_with_a_name_that_means_another_place(
    run: Run, place: Path, name: str
) -> None:
    origin = make_repository(place / "origin")
    empty = git(origin, "mktree", stdin=b"")
    content: tuple[str, bytes | str] = ("100644", b"x")
    if "." in name[:1]:
        content = ("040000", empty)
    try:
        commit = commit_objects(origin, {"SKILL.md": ("100644", SKILL), name: content})
    except subprocess.CalledProcessError:
        pytest.fail(f"git makes no such tree: {name!r}")
    git(origin, "update-ref", "refs/heads/main", commit)
    refused(run, place, f"git+{origin.as_uri()}")


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
    monkeypatch.setattr(git_repository, "PACK_MAX", 1024 * 1024)
    origin = place / "origin"
    make_skill(origin / "notes")
    (origin / "big").write_bytes(os.urandom(4 * 1024 * 1024))
    make_repository(origin)
    with pytest.raises(SourceError, match="larger than 1048576 bytes"):
        GitRepository(program(), source_of(origin))


def moved(target: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", target + self.path)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    return Handler


@pytest.mark.slow
def test_a_server_that_leads_elsewhere(run: Run, place: Path) -> None:
    """Of git, so that no abandoned name is taken over; of an archive, to this machine."""
    asked: list[str] = []

    class Inner(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    with served(Inner) as inner, served(moved(inner)) as outer:
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{outer}/a.git/info/refs")
        assert asked == ["/a.git/info/refs"]
        asked.clear()
        assert "source: cannot get" in refused(run, place, f"{outer}/a.git")
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

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(package.archive)))
            self.end_headers()
            self.wfile.write(package.archive[:1_000])

        def log_message(self, *_: object) -> None:
            """Write nothing."""

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
