"""Tests of registry/package.py, also of versions whose files are the same and signed again."""

from __future__ import annotations

import hashlib
import io
import os
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.floor import SkillError, TreeError, read_tree
from skillhouse.registry import PackageStore, directory_members, member_tree, pack, write_archive
from skillhouse.skill import ArchiveError, read_archive, unpack
from tests.harness import ran
from tests.registry.sources import make_skill, skill_text

segments = st.text("abcXYZ09-_é中 ", min_size=1, max_size=60).filter(
    lambda text: text == text.strip() and text.lower() not in ("con", "aux", "nul", "prn")
)


def test_the_bytes_are_those_of_every_machine_and_time(tmp_path: Path) -> None:
    package = pack(make_skill(tmp_path / "notes"))
    # INVARIANT: a change of these bytes is a change of the format.
    assert package.digest == (
        "sha256:531b50ab2329735d911cb91023cfc7ae0601d74bc48b5acc21e1231adf137f78"
    )


@pytest.mark.slow
def test_another_user_clock_umask_and_locale_give_the_same_bytes(tmp_path: Path) -> None:
    skill = make_skill(tmp_path / "notes")
    (skill / "é.md").write_text("x")
    expected = pack(skill).digest
    for path in skill.rglob("*"):
        os.utime(path, (1, 1))
    script = (
        "import os, sys; os.umask(0o077); from pathlib import Path;"
        " from skillhouse import registry; print(registry.pack(Path(sys.argv[1])).digest)"
    )
    environment = {"LC_ALL": "C", "TZ": "Asia/Tokyo", "PATH": os.defpath}
    command = [sys.executable, "-c", script, str(skill)]
    done = ran(command, env=environment, check=True)
    assert done.stdout.strip() == expected


def test_stock_tools_read_what_is_packed(tmp_path: Path) -> None:
    skill = make_skill(tmp_path / "notes")
    long = "/".join(["d" * 100, "e" * 110])
    (skill / long).parent.mkdir()
    (skill / long).write_text("long")
    (skill / "empty").touch()
    package = pack(skill)
    (tmp_path / "n.tar.gz").write_bytes(package.archive)
    listed = ran(["tar", "-tzf", tmp_path / "n.tar.gz"], check=True)
    names = ["SKILL.md", long, "empty", "scripts/run.sh"]
    assert listed.stdout.split() == names
    with tarfile.open(fileobj=io.BytesIO(package.archive)) as archive:
        assert {(m.uid, m.gid, m.uname, m.mtime) for m in archive} == {(0, 0, "", 0)}
    assert unpack(package.archive, tmp_path / "out") == tuple(names)
    assert read_tree(tmp_path / "out") == package.tree == member_tree(read_archive(package.archive))


@pytest.mark.slow
@given(
    st.dictionaries(
        st.lists(segments, min_size=1, max_size=3).map("/".join),
        st.tuples(st.binary(max_size=2_000), st.booleans()),
        max_size=6,
    )
)
def test_a_tree_comes_back_as_it_was_packed_or_is_refused(files) -> None:
    with tempfile.TemporaryDirectory() as directory:
        skill = Path(directory, "notes")
        skill.mkdir()
        (skill / "SKILL.md").write_text(skill_text("notes"))
        try:
            for name, (content, is_executable) in files.items():
                (skill / name).parent.mkdir(parents=True, exist_ok=True)
                (skill / name).write_bytes(content)
                (skill / name).chmod(0o755 if is_executable else 0o644)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            return
        try:
            package = pack(skill)
        except ArchiveError as error:
            code = error.code
        else:
            code = ""
        if code:
            assert code in ("path-twice", "path-reserved", "path-long")
            return
        unpack(package.archive, Path(directory, "out"))
        assert read_tree(Path(directory, "out")) == package.tree


def test_a_signature_is_packed_and_is_no_part_of_the_tree(tmp_path: Path) -> None:
    skill = make_skill(tmp_path / "notes")
    before = pack(skill)
    (skill / "skill.sig").write_text("{}")
    (skill / ".skill").mkdir()
    (skill / ".skill/origin.json").write_text("{}")
    package = pack(skill)
    assert package.tree == before.tree
    assert "skill.sig" in {member.path for member in read_archive(package.archive)}
    assert ".skill/origin.json" not in {member.path for member in read_archive(package.archive)}


@pytest.mark.parametrize(
    "name", [".git/config", "con.txt", "a:b", "cafe\u0301", "x\u202ey", "a\\b"]
)
def test_what_no_archive_may_hold_is_not_packed(tmp_path: Path, name: str) -> None:
    skill = make_skill(tmp_path / "notes")
    (skill / name).parent.mkdir(exist_ok=True)
    (skill / name).write_text("x")
    with pytest.raises(ArchiveError, match="no package may hold"):
        pack(skill)


def test_links_and_names_that_meet_are_not_packed(tmp_path: Path) -> None:
    skill = make_skill(tmp_path / "notes")
    (skill / "A.md").touch()
    (skill / "a.md").touch()
    with pytest.raises(ArchiveError) as caught:
        pack(skill)
    assert caught.value.code == "path-twice"
    (skill / "a.md").unlink()
    (skill / "link").symlink_to("/etc/passwd")
    with pytest.raises(TreeError):
        directory_members(skill)


@pytest.mark.slow
def test_only_a_skill_in_its_own_directory_is_packed(tmp_path: Path) -> None:
    skill = make_skill(tmp_path / "notes")
    skill.rename(tmp_path / "other")
    with pytest.raises(SkillError, match="expected a directory named `notes`"):
        pack(tmp_path / "other")
    (tmp_path / "none").mkdir()
    with pytest.raises(SkillError):
        pack(tmp_path / "none")


def test_a_package_of_nothing_is_an_archive(tmp_path: Path) -> None:
    assert read_archive(write_archive([])) == ()


def test_names_are_where_every_reader_looks_for_them(tmp_path: Path) -> None:
    # `skills` 1.5.18 of npm passes extended headers over.
    long = "/".join(["deep"] * 8 + ["n" * 80])
    longest = "/".join(["x" * 60, "y" * 100, "z" * 90])
    skill = make_skill(tmp_path / "notes")
    for name in ("Große Tabelle.md", long, longest):
        (skill / name).parent.mkdir(parents=True, exist_ok=True)
        (skill / name).write_text(name)
    package = pack(skill)
    found = [one.path for one in read_archive(package.archive)]
    assert found == sorted(found, key=str.encode)
    assert {"Große Tabelle.md", long, longest} <= set(found)
    with tarfile.open(fileobj=io.BytesIO(package.archive), encoding="utf-8") as tar:
        extended = [one.name for one in tar.getmembers() if one.pax_headers]
    # There is room for a name of 255 bytes that has a slash in the right place.
    assert extended == [longest]


def test_the_same_files_are_kept_with_each_of_their_signatures(tmp_path: Path) -> None:
    store, skill = PackageStore(tmp_path / "packages"), make_skill(tmp_path / "notes")
    digests = []
    for text in ("", "one", "two"):
        if text:
            (skill / "skill.sig").write_text(text)
        tree, members = directory_members(skill)
        store.put(members, tree.digest)
        digests.append(hashlib.sha256(text.encode()).hexdigest())

    def signature(wanted: str) -> bytes | None:
        found = store.get(tree.digest, signature=wanted)
        assert found is not None
        texts = [b"".join(one.read()) for one in found if one.path == "skill.sig"]
        return texts[0] if texts else None

    assert [signature(""), signature(digests[1]), signature(digests[2])] == [None, b"one", b"two"]
    assert store.get(tree.digest, signature="0" * 64) is None


def test_a_signed_package_of_an_older_version_is_found_by_its_content(tmp_path: Path) -> None:
    store, skill = PackageStore(tmp_path / "packages"), make_skill(tmp_path / "notes")
    (skill / "skill.sig").write_text("one")
    tree, members = directory_members(skill)
    store.put(members, tree.digest)
    (file,) = (tmp_path / "packages").iterdir()
    assert store.get(tree.digest) is not None
    file.rename(file.with_name(f"{tree.digest.rpartition(':')[2]}.tar.gz"))
    wanted = hashlib.sha256(b"one").hexdigest()
    assert store.get(tree.digest) is not None
    assert store.get(tree.digest, signature=wanted) is not None
    assert store.get(tree.digest, signature="0" * 64) is None
