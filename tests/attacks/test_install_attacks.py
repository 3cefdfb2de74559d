"""Attacks on `install`: hostile archives, repositories, servers, locks.

Each is first let loose on a naive installer (`git clone`, `tar -x`, `unzip`), where it works. What
ours answers names the step, and nothing is on the disk or in the lock.
"""

from __future__ import annotations

import io
import struct
import subprocess
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from skillhouse.registry import pack
from tests.archives import tar_archive
from tests.attacks.test_archive_attacks import info_of, unfiltered
from tests.frontends.conftest import Run, place, run
from tests.registry.sources import (
    make_skill,
    skill_text,
)
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


def entry(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    return info_of(name, kind, link), b"x" if kind == tarfile.REGTYPE else b""


def skill_entry() -> tuple[tarfile.TarInfo, bytes]:
    return info_of("SKILL.md"), SKILL


def linked(out: Path) -> bytes:
    """A link that leads out, and a file through it."""
    return tar_archive([skill_entry(), entry("up", tarfile.SYMTYPE, str(out)), entry("up/owned")])


def climbing(out: Path) -> bytes:
    return tar_archive([skill_entry(), entry("../owned")])


def hard_linked(out: Path) -> bytes:
    return tar_archive([skill_entry(), entry("owned", tarfile.LNKTYPE, "../secret")])


def second_name(out: Path) -> bytes:
    """A header that other readers pass over gives the file another name (PAX `path`)."""
    info = info_of("notes.txt")
    info.pax_headers = {"path": "owned"}
    return tar_archive([skill_entry(), (info, b"x")])


def concatenated(out: Path) -> bytes:
    """A second archive behind the first, which `tar -i` reads."""
    first = zlib.decompress(tar_archive([skill_entry()]), 31)
    second = zlib.decompress(tar_archive([entry("owned")]), 31)
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
    data = tar_archive(entries)
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
    "names that are one on another system": (
        lambda: zip_of({"SKILL.md": SKILL, "skill.md": b"owned"}),
        lambda data: len({name.casefold() for name in zip_names(data)}) == 1,
        "path-twice: two files have names that are one on other systems",
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


@pytest.mark.parametrize("name", ["aux.md", unicodedata.normalize("NFD", "é.md")])
def test_32_a_name_that_another_system_reads_as_another_is_left_out(
    run: Run, place: Path, name: str
) -> None:
    data = zip_of({"SKILL.md": SKILL, name: b"x"})
    assert zip_names(data)[1] == name, "the attack works on a naive reader"
    (place / "notes.zip").write_bytes(data)
    code, out, _ = run("install", str(place / "notes.zip"), *AGREED)
    assert (code, "not there" in out) == (0, True), out
    files = [path.name for path in (place / "home/.agents/skills/notes").iterdir()]
    assert files == ["SKILL.md"]


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


def test_r7_a_skill_with_files_that_agents_obey_is_asked_for_by_name(run: Run, place: Path) -> None:
    skill = make_skill(place / "src/notes")
    for name in (".claude/settings.json", ".mcp.json", "CLAUDE.md"):
        (skill / name).parent.mkdir(exist_ok=True)
        (skill / name).write_text("{}")
    code, _, err = run("install", str(skill), *AGREED)
    assert (code, "--accept-obeyed" in err) == (2, True)
    assert not (place / "home/.agents/skills/notes").exists()
    code, out, _ = run("install", str(skill), "--dry-run")
    assert code == 0
    for name in (".claude/settings.json", ".mcp.json", "CLAUDE.md"):
        assert any("obeyed" in line and name in line for line in out.splitlines())
    assert run("install", str(skill), *AGREED, "--accept-obeyed")[0] == 0
