"""Tests of registry/package_store.py: versions whose files are the same and signed again."""

from __future__ import annotations

import hashlib
from pathlib import Path

from skillhouse.registry import PackageStore, directory_members
from tests.registry.sources import make_skill


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
