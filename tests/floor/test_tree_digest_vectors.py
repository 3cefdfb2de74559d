"""Every tree digest vector, and the bounds that no small vector can show."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from skillhouse.floor import TreeError, digest, tree_digest
from skillhouse.floor.digest import TREE_MAX_BYTES
from tests.vectorfile import vectors


@pytest.mark.parametrize(("given", "expect"), vectors("tree_digest"))
def test_a_tree_has_the_digest_its_vector_says(
    given: dict[str, Any], expect: dict[str, str], tmp_path: Path
) -> None:
    for file in given["files"]:
        place = tmp_path / file["path"]
        place.parent.mkdir(parents=True, exist_ok=True)
        if "link" in file:
            place.symlink_to(file["link"])
        else:
            place.write_bytes(base64.b64decode(file["content_b64"]))
            place.chmod(int(file["mode"], 8))
    assert outcome(tmp_path) == expect


def outcome(directory: Path) -> dict[str, str]:
    try:
        return {"digest": tree_digest(directory)}
    except TreeError as error:
        return {"refused": error.code}


def test_a_sparse_giant_and_a_pipe_are_refused_at_once(tmp_path: Path) -> None:
    giant = tmp_path / "giant"
    giant.mkdir()
    with (giant / "a").open("wb") as file:
        file.truncate(TREE_MAX_BYTES + 1)
    assert outcome(giant) == {"refused": "tree-too-large"}
    piped = tmp_path / "piped"
    piped.mkdir()
    os.mkfifo(piped / "p")
    assert outcome(piped) == {"refused": "tree-special"}
    assert outcome(tmp_path / "missing") == {"refused": "unreadable"}


def test_a_digest_is_that_of_the_supply_chain_formats() -> None:
    assert digest(b"abc") == (
        "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )
