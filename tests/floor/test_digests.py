"""Tests of floor/digests.py; the vectors of trees are described in vectors/tree_digest.md."""

from __future__ import annotations

import base64
import hashlib
import os
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from skillhouse.floor import TreeError, digest, tree_digest
from tests.vectorfile import vectors


def by_hand(files: list[dict[str, str]]) -> str:
    """Return `skilltree1` of a vector from its text alone, with the JSON written by hand."""
    lines = {}
    for file in files:
        if file["path"] == "skill.sig" or file["path"].startswith(".skill/"):
            continue
        data = base64.b64decode(file["content_b64"])
        mode = "100755" if int(file["mode"][0]) % 2 else "100644"
        path = unicodedata.normalize("NFC", file["path"])
        escaped = path.replace("\\", "\\\\").replace('"', '\\"')
        escaped = escaped.replace("\t", "\\t").replace("\n", "\\n").replace("\x1f", "\\u001f")
        lines[path.encode()] = (
            f'{{"mode":"{mode}","path":"{escaped}",'
            f'"sha256":"{hashlib.sha256(data).hexdigest()}","size":{len(data)}}}'
        )
    text = "[" + ",".join(lines[path] for path in sorted(lines)) + "]"
    return "skilltree1:" + hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(("given", "expect"), vectors("tree_digest"))
def test_the_digest_of_a_vector_can_be_computed_by_hand(
    given: dict[str, Any], expect: dict[str, str]
) -> None:
    if "digest" in expect:
        assert by_hand(given["files"]) == expect["digest"]
    else:
        assert expect["refused"].startswith("tree-")


def outcome(directory: Path) -> str:
    """Return the digest, or the code of the refusal."""
    try:
        return tree_digest(directory)
    except TreeError as error:
        return error.code


@pytest.mark.parametrize(("given", "expect"), vectors("tree_digest"))
def test_a_tree_has_the_digest_of_its_vector_or_none(
    tmp_path: Path, given: dict[str, Any], expect: dict[str, str]
) -> None:
    for file in given["files"]:
        path = tmp_path / file["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        if "link" in file:
            path.symlink_to(file["link"])
        else:
            path.write_bytes(base64.b64decode(file["content_b64"]))
            path.chmod(int(file["mode"], 8))
    assert [outcome(tmp_path)] == list(expect.values())


SKILL_MD = b"---\nname: pdf\ndescription: Fills forms.\n---\nBody.\n"
DIGEST_OF_SKILL_MD = "skilltree1:dff362dbcff02c4c5b10e88654775cd427ebe87132bf7e21af92e21140794d7b"


def test_directories_do_not_count_empty_ones_neither(tmp_path: Path) -> None:
    (tmp_path / "SKILL.md").write_bytes(SKILL_MD)
    assert outcome(tmp_path) == DIGEST_OF_SKILL_MD
    (tmp_path / "empty").mkdir()
    (tmp_path / "deep/er").mkdir(parents=True)
    assert outcome(tmp_path) == DIGEST_OF_SKILL_MD


@pytest.mark.slow
def test_a_thousand_files_have_a_digest_and_one_more_has_none(tmp_path: Path) -> None:
    for number in range(1_000):
        (tmp_path / f"f{number}").touch()
    assert outcome(tmp_path) == (
        "skilltree1:56ebb63dc535cc538e6f738b5733bf8c08588cfc16cdca768b45c26512e6dc3e"
    )
    (tmp_path / "f1000").touch()
    assert outcome(tmp_path) == "tree-too-large"


@pytest.mark.slow
def test_fifty_megabytes_have_a_digest_and_one_byte_more_has_none(tmp_path: Path) -> None:
    for name, size in (("a", 20_000_000), ("b", 30_000_000)):
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, size)
    assert outcome(tmp_path) == (
        "skilltree1:c52eeab460f5299788e1d6d1b583d4380dd3d97e22c759967c56a582b23c6844"
    )
    os.truncate(tmp_path / "a", 20_000_001)
    assert outcome(tmp_path) == "tree-too-large"
    os.truncate(tmp_path / "a", 1 << 40)
    assert outcome(tmp_path) == "tree-too-large"


def test_a_special_file_is_refused_and_named(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    os.mkfifo(tmp_path / "deep/pipe")
    with pytest.raises(TreeError) as caught:
        tree_digest(tmp_path)
    assert (caught.value.code, caught.value.path) == ("tree-special", tmp_path / "deep/pipe")
    assert str(caught.value) == f"a special file in a skill: `{tmp_path / 'deep/pipe'}`"


def test_a_name_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.md")).touch()
    assert outcome(tmp_path) == "tree-name-encoding"


def test_a_digest_is_lowercase_sha256_with_its_name() -> None:
    assert digest(b"abc") == (
        "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )


def test_neither_times_nor_the_place_nor_the_order_of_writing_count(tmp_path: Path) -> None:
    names = ["b.md", "a.md", "scripts/z.py"]
    first, second = tmp_path / "first", tmp_path / "second"
    for top, order in ((first, names), (second, names[::-1])):
        for name in order:
            path = top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
    os.utime(second / "b.md", (0, 0))
    (tmp_path / "link").symlink_to(first)
    assert tree_digest(first) == tree_digest(second) == tree_digest(tmp_path / "link")


def test_what_cannot_be_read_has_no_digest(tmp_path: Path) -> None:
    with pytest.raises(TreeError) as caught:
        tree_digest(tmp_path / "missing")
    assert (caught.value.code, caught.value.path) == ("unreadable", tmp_path / "missing")
    (tmp_path / "file").write_text("file")
    with pytest.raises(TreeError, match=r"(?i)not a directory"):
        tree_digest(tmp_path / "file")
