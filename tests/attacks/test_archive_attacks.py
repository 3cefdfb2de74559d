"""Attacks on unpacking (reference on security, section 6, items 32 and 33)."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from skillhouse.skill import ArchiveError, unpack
from tests.archives import tar_archive
from tests.remote.servers import tar_of, zip_of


def refused(data: bytes, tmp_path: Path) -> str:
    """Return the code with which an archive is refused; nothing may be left of it."""
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ArchiveError) as caught:
        unpack(data, tmp_path / "out")
    assert sorted(tmp_path.rglob("*")) == before
    return caught.value.code


def tar_with(*infos: tarfile.TarInfo) -> bytes:
    return tar_archive((info, b"x" * info.size) for info in infos)


def info_of(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def unfiltered(archive: tarfile.TarFile, place: Path) -> None:
    """Unpack as Python did before 3.12, on versions that do not know the argument `filter` too."""
    archive.extraction_filter = lambda member, path: member
    archive.extractall(place)


def test_a_naive_tar_writes_outside_and_ours_does_not(tmp_path: Path) -> None:
    data = tar_with(info_of("link", tarfile.SYMTYPE, str(tmp_path)), info_of("link/owned"))
    with tarfile.open(fileobj=io.BytesIO(data)) as naive:
        unfiltered(naive, tmp_path / "naive")
    assert (tmp_path / "owned").exists()
    (tmp_path / "owned").unlink()
    assert refused(data, tmp_path) == "archive-link"


def test_a_naive_zip_renames_what_climbs_and_keeps_the_last_of_two(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("SKILL.md", "shown to the reviewer")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("SKILL.md", "given to the model")
    zipfile.ZipFile(io.BytesIO(out.getvalue())).extractall(tmp_path / "naive")
    assert (tmp_path / "naive/SKILL.md").read_text() == "given to the model"
    assert refused(out.getvalue(), tmp_path) == "path-twice"
    climbing = zip_of({"../../up.txt": b"x"})
    zipfile.ZipFile(io.BytesIO(climbing)).extractall(tmp_path / "naive")
    assert (tmp_path / "naive/up.txt").exists()
    assert refused(climbing, tmp_path) == "path-parent"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("../x", "path-parent"),
        ("a/../../x", "path-parent"),
        ("/etc/x", "path-absolute"),
        ("C:/x", "path-drive"),
        ("a\\b", "path-backslash"),
        ("ab:stream", "path-reserved"),
        ("con.txt", "path-reserved"),
        ("a/NUL", "path-reserved"),
        ("dot. ", "path-reserved"),
        (".git/hooks/x", "path-reserved"),
        ("cafe\u0301", "path-reserved"),
        ("a\u202eb", "path-reserved"),
        ("a\nb", "path-reserved"),
        ("/".join("a" * 17), "path-long"),
        ("x" * 121, "path-reserved"),
        ("/".join(["x" * 100] * 3), "path-long"),
    ],
)
@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_a_name_that_means_another_place_is_refused(
    tmp_path: Path, name: str, code: str, pack: Callable[[dict[str, bytes]], bytes]
) -> None:
    assert refused(pack({name: b"x"}), tmp_path) == code


@pytest.mark.parametrize(
    "names",
    [("A.md", "a.md"), ("caf\u00e9", "CAF\u00c9"), ("a", "a/b"), ("ﬁle", "file")],
    ids=["case", "accents", "below a file", "compatibility"],
)
@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_names_that_meet_on_another_file_system_are_refused(
    tmp_path: Path, names: tuple[str, str], pack: Callable[[dict[str, bytes]], bytes]
) -> None:
    assert refused(pack(dict.fromkeys(names, b"x")), tmp_path) == "path-twice"


@pytest.mark.parametrize(
    "info",
    [
        info_of("x", tarfile.SYMTYPE, "/etc/passwd"),
        info_of("x", tarfile.LNKTYPE, "SKILL.md"),
        info_of("x", tarfile.CHRTYPE),
        info_of("x", tarfile.FIFOTYPE),
        info_of("x", tarfile.BLKTYPE),
    ],
    ids=["symlink", "hard link", "device", "pipe", "block"],
)
def test_what_is_no_plain_file_is_refused(tmp_path: Path, info: tarfile.TarInfo) -> None:
    assert refused(tar_with(info_of("SKILL.md"), info), tmp_path) == "archive-link"


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        info = zipfile.ZipInfo("x")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    assert refused(out.getvalue(), tmp_path) == "archive-link"


@pytest.mark.slow
def test_a_bomb_is_refused_before_it_goes_off(tmp_path: Path) -> None:
    zeros = {f"{n}": bytes(9 * 1024 * 1024) for n in range(3)}
    for data in (zip_of(zeros), tar_of(zeros)):
        assert len(data) < 100_000
        assert refused(data, tmp_path) == "archive-bomb"


def test_a_size_that_lies_is_noticed_while_writing(tmp_path: Path) -> None:
    data = bytearray(zip_of({"SKILL.md": bytes(500_000)}))
    directory = data.rindex(b"PK\x01\x02")
    for place in (22, directory + 24):
        struct.pack_into("<I", data, place, 10)
    assert refused(bytes(data), tmp_path) in ("archive-bomb", "archive-broken")


def test_a_zip_whose_two_headers_differ_is_refused(tmp_path: Path) -> None:
    data = zip_of({"SKILL.md": b"x"})
    local = data.replace(b"SKILL.md", b"SKILL.mx", 1)
    assert refused(local, tmp_path) == "archive-differs"


def test_an_encrypted_zip_or_one_with_overlapping_entries_is_refused(tmp_path: Path) -> None:
    data = bytearray(zip_of({"a": b"x", "b": b"y"}))
    encrypted = bytearray(data)
    first = encrypted.index(b"PK\x01\x02")
    encrypted[first + 8] |= 1
    assert refused(bytes(encrypted), tmp_path) == "archive-encrypted"
    second = data.rindex(b"PK\x01\x02")
    struct.pack_into("<I", data, second + 42, 5)
    assert refused(bytes(data), tmp_path) == "archive-overlap"
    assert refused(b"PK\x03\x04#!/bin/sh\n" + zip_of({"a": b"x"}), tmp_path) == "archive-overlap"


@pytest.mark.slow
def test_too_many_files_and_too_large_ones_are_refused(tmp_path: Path) -> None:
    assert refused(tar_of({f"f{n}": b"" for n in range(1_001)}), tmp_path) == "too-many-files"
    big = {"big": os.urandom(10 * 1024 * 1024 + 1)}
    assert refused(zip_of(big), tmp_path) == "too-large"


def test_a_second_gzip_member_is_refused(tmp_path: Path) -> None:
    assert refused(tar_of({"a": b"x"}) + tar_of({"b": b"y"}), tmp_path) == "archive-broken"


def test_bits_that_lend_rights_are_refused(tmp_path: Path) -> None:
    info = info_of("run.sh", tarfile.REGTYPE)
    info.mode = 0o6777
    data = tar_with(info_of("SKILL.md"), info)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        unfiltered(archive, tmp_path / "naive")
    assert (tmp_path / "naive/run.sh").stat().st_mode & 0o6000 == 0o6000
    shutil.rmtree(tmp_path / "naive")
    assert refused(data, tmp_path) == "archive-mode"


def test_a_sparse_entry_that_says_it_is_a_terabyte_is_refused(tmp_path: Path) -> None:
    sparse = info_of("x", tarfile.GNUTYPE_SPARSE)
    assert refused(tar_with(info_of("SKILL.md"), sparse), tmp_path).startswith("archive-")


def test_a_name_that_ends_early_in_c_is_refused(tmp_path: Path) -> None:
    data = zip_of({"SKILL.md": b"x", "evil.shX.txt": b"x"}).replace(b"evil.shX", b"evil.sh\0")
    # zipfile itself cuts the name at the NUL: one reader sees a text, the other a program.
    assert zipfile.ZipFile(io.BytesIO(data)).namelist()[1] == "evil.sh"
    assert refused(data, tmp_path).startswith(("path-", "archive-"))


def test_what_is_behind_the_end_of_a_zip_or_before_its_directory_is_refused(tmp_path: Path) -> None:
    data = zip_of({"SKILL.md": b"x"})
    assert refused(data + b"#!/bin/sh\n", tmp_path) == "archive-overlap"
    directory = data.rindex(b"PK\x01\x02")
    moved = bytearray(data[:directory] + b"hidden" + data[directory:])
    # Where the directory begins, as the end says it.
    struct.pack_into("<L", moved, len(moved) - 6, directory + 6)
    assert refused(bytes(moved), tmp_path) == "archive-overlap"


def test_what_is_behind_the_last_entry_of_a_tar_is_refused(tmp_path: Path) -> None:
    tar = gzip.decompress(tar_of({"SKILL.md": b"x"}))
    # A header that the parser of Python cannot read ends its list; others go on behind it.
    hidden = gzip.compress(tar.rstrip(b"\0").ljust(1_024, b"\0") + b"\xff" * 512 + tar)
    assert refused(hidden, tmp_path) in ("archive-overlap", "archive-broken")
    behind = gzip.compress(tar + b"\xff" * 512)
    assert refused(behind, tmp_path) == "archive-overlap"


def test_an_extended_header_that_says_another_size_is_refused(tmp_path: Path) -> None:
    info = info_of("run.sh")
    info.size = 4
    info.pax_headers = {"size": "1"}
    assert refused(tar_with(info_of("SKILL.md"), info), tmp_path) in (
        "archive-differs",
        "archive-broken",
        "archive-overlap",
    )
