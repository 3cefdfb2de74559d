"""Files that are edited while they are read: each answer is of one state of a file."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from skillhouse.discovery import discover
from skillhouse.floor import SkillError
from skillhouse.skill import HEAD_BYTES, load
from tests.discovery.trees import names, write_skill

pytestmark = pytest.mark.slow

LONG = "x" * HEAD_BYTES


def text(version: str, filling: str = LONG) -> str:
    """Return a SKILL.md whose frontmatter does not end in the first read."""
    return (
        f"---\nname: pdf\ndescription: Version {version}.\nfilling: {filling}\n"
        f"last: {version}\n---\n{version}\n"
    )


def written_while_read(
    monkeypatch: pytest.MonkeyPatch, file: Path, versions: list[str]
) -> Callable[[], int]:
    """Write the next version in place after each first read of the file; return how many left."""
    real = os.read

    def read(handle: int, size: int) -> bytes:
        data = real(handle, size)
        if versions and data.startswith(b"---"):
            before = os.stat(file).st_ctime_ns
            while os.stat(file).st_ctime_ns == before:
                # The time stamps of a file system move in ticks.
                with open(file, "r+b") as target:
                    target.write(versions[0].encode())
            versions.pop(0)
        return data

    monkeypatch.setattr(os, "read", read)
    return lambda: len(versions)


def test_a_file_edited_in_place_between_two_reads_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_skill(tmp_path / "pdf")
    file.write_text(text("1"))
    left = written_while_read(monkeypatch, file, [text("2")])
    (skill,) = discover([tmp_path]).skills
    assert left() == 0
    # Without a second look this is the description of the old and the last field of the new one.
    assert (skill.description, skill.frontmatter.fields["last"]) == ("Version 2.", "2")


def test_a_file_that_never_rests_is_an_error_and_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_skill(tmp_path / "pdf")
    file.write_text(text("0"))
    write_skill(tmp_path / "quiet")
    written_while_read(monkeypatch, file, [text(str(number % 10)) for number in range(20)])
    index = discover([tmp_path])
    assert names(index) == ["quiet"]
    assert [(found.severity, found.code) for found in index.diagnostics] == [("error", "unsteady")]


def test_a_body_edited_while_it_is_loaded_is_of_one_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_skill(tmp_path / "pdf")
    file.write_text(text("1"))
    (skill,) = discover([tmp_path]).skills
    real, looked = os.fstat, []

    def fstat(handle: int) -> os.stat_result:
        info = real(handle)
        if info.st_ino == os.stat(file).st_ino:
            looked.append(info)
            if len(looked) == 1 or forever:
                while os.stat(file).st_ctime_ns == info.st_ctime_ns:
                    file.write_text(text("2"))
        return info

    forever = False
    monkeypatch.setattr(os, "fstat", fstat)
    content = load(skill)
    assert (content.body, content.text.count("2")) == ("2\n", 3)
    assert content.frontmatter_changed
    forever = True
    with pytest.raises(SkillError) as caught:
        load(skill)
    assert caught.value.code == "unsteady"


@pytest.mark.parametrize("cached", [True, False])
def test_under_replacement_every_look_gives_the_old_or_the_new_skill(
    tmp_path: Path, cached: bool
) -> None:
    root = tmp_path / "root"
    file = write_skill(root / "pdf")
    file.write_text(text("0"))
    done = threading.Event()

    def edit() -> None:
        for number in range(10_000):
            new = root / "pdf" / "new"
            new.write_text(text(str(number % 10), LONG * (number % 3)))
            os.replace(new, file)
            if done.is_set():
                return

    writer = threading.Thread(target=edit)
    writer.start()
    seen = set()
    try:
        for _ in range(200):
            index = discover([root], cache=tmp_path / "cache" if cached else None)
            (skill,) = index.skills
            assert skill.description == f"Version {skill.frontmatter.fields['last']}."
            # The index stays what it was when it was made.
            assert index.get("pdf") is skill
            content = load(skill)
            assert content.body.strip() in content.text.splitlines()[2]
            seen.add(skill.description)
    finally:
        done.set()
        writer.join()
    assert len(seen) > 1
