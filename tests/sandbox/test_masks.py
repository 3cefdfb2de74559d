"""The files that are mounted over secrets: what stat(2) says of them, and where they are."""

from __future__ import annotations

import gc
import os
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from skillhouse.sandbox import masks as module
from skillhouse.sandbox.masks import UNTRACKED_BYTES, Masks
from skillhouse.sandbox.profile import SandboxError
from tests.harness import until

OLD = 1_700_000_000_000_000_000


@pytest.fixture
def root(tmp_path: Path, git: None) -> Path:
    place = tmp_path.resolve() / "r"
    for name in (".env", "run.key", "new.key", ".ssh/config", ".ssh/deep/x", "empty.key"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("" if name == "empty.key" else f"hunter2 of {name}")
        os.utime(place / name, ns=(OLD, OLD))
    (place / "run.key").chmod(0o755)
    subprocess.run(["git", "init", "-q", str(place)], check=True)
    add = ["git", "-C", str(place), "add", ".env", "run.key", ".ssh", "empty.key"]
    subprocess.run(add, check=True)
    return place


def over(masks: Masks, root: Path, *names: str) -> Mapping[str, os.stat_result]:
    """Return what stat(2) says of each mask, by the relative path."""
    files = [str(root / name) for name in names if not name.endswith("/")]
    directories = [str(root / name.rstrip("/")) for name in names if name.endswith("/")]

    async def go() -> Mapping[str, str]:
        return await masks.over(files, directories, may_refresh=False)

    made = anyio.run(go)
    return {os.path.relpath(path, root): os.stat(mask) for path, mask in made.items()}


def test_a_mask_is_what_the_index_has_and_not_what_the_file_is_now(root: Path) -> None:
    masks = Masks(root.parent)
    before = over(masks, root, ".env", "empty.key")
    (root / ".env").write_text("hunter2, changed by the person")
    assert over(masks, root, ".env", "empty.key") == before
    found = before[".env"]
    assert (found.st_size, found.st_mtime_ns) == (len("hunter2 of .env"), OLD)
    assert stat.S_ISREG(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0
    assert before["empty.key"].st_size == 0


def test_git_compares_one_bit_of_the_mode(root: Path) -> None:
    assert stat.S_IMODE(over(Masks(root.parent), root, "run.key")["run.key"].st_mode) == 0o100


def test_an_untracked_file_has_its_time_and_not_its_length(root: Path) -> None:
    found = over(Masks(root.parent), root, "new.key")["new.key"]
    assert (found.st_size, found.st_mtime_ns) == (UNTRACKED_BYTES, OLD)


def test_a_hidden_directory_has_what_git_tracks_in_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / ".ssh/id_own").write_text("hunter2")
    assert set(over(Masks(root.parent), root, ".ssh/")) == {".ssh/config", ".ssh/deep/x"}
    monkeypatch.setattr(module, "TRACKED_MAX", 1)
    assert over(Masks(root.parent), root, ".ssh/") == {}


def test_a_mask_has_no_bytes_of_the_secret_and_is_gone_with_its_maker(root: Path) -> None:
    masks = Masks(root.parent)
    over(masks, root, ".env", "new.key", ".ssh/")
    (directory,) = root.parent.glob("skillhouse-*")
    assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
    for mask in directory.iterdir():
        mask.chmod(0o400)
        assert set(mask.read_bytes()) == {0}
        assert os.stat(mask).st_blocks == 0
    del masks
    # The thread that made them may still be about to let go of them.
    until(lambda: gc.collect() >= 0 and not directory.exists())


def test_what_is_kept_is_bounded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_MAX", 3)
    masks = Masks(root.parent)
    for at in range(6):
        os.utime(root / "new.key", ns=(OLD + at, OLD + at))
        assert over(masks, root, "new.key")["new.key"].st_mtime_ns == OLD + at
    (directory,) = root.parent.glob("skillhouse-*")
    assert len(list(directory.iterdir())) == 3


def test_without_a_place_for_masks_nothing_is_run(root: Path) -> None:
    with pytest.raises(SandboxError, match="cannot make the file that hides a secret"):
        over(Masks(root / "nowhere"), root, ".env")
