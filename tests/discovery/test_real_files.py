"""Discovery of 1,367 published SKILL.md files, judged by what `parse` says of their heads."""

from __future__ import annotations

import base64
import gzip
import json
import re
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pytest

from skillhouse.discovery import discover
from skillhouse.skill import SKILL_FILE_MAX, Profile, SkillIndex, parse
from skillhouse.skill.model import LOADING_POLICY
from tests.discovery.trees import everything, probe

pytestmark = pytest.mark.slow

CHECKED = Path(__file__).resolve().parents[1] / "data" / "anthropics_skills_findings.jsonl"
"""What is wrong in anthropics/skills at 9d2f1ae1 (2026-07-01), each line looked up by hand there.

The other 16 of its 18 files were read as well: their names are those of their directories, their
descriptions have at most 1,024 characters, and no field is of another type than specified.
"""

_HEAD = re.compile(rb"(?:\xef\xbb\xbf)?---[ \t]*\r?\n(?:.*\n)*?---[ \t]*(?:\r?\n|\Z)")
"""From the opening to the closing line; where there is none, the whole file is the head."""


class Published(NamedTuple):
    """The sample on disk, one directory a repository."""

    roots: list[Path]
    files: dict[Path, bytes]
    loadable: set[Path]
    """The files that `parse` would load by their heads."""


def loads(file: Path, data: bytes) -> bool:
    head = _HEAD.match(data)
    # Of the body only the first line matters, where it takes a missing description's place.
    read = partial(parse, directory=file.parent.name, path=file, policy=LOADING_POLICY)
    texts = (head[0], data) if head else (data,)
    return len(data) <= SKILL_FILE_MAX and any(read(text).skill for text in texts)


@pytest.fixture(scope="module")
def published(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Published:
    base = tmp_path_factory.mktemp("published").resolve()
    files: dict[Path, bytes] = {}
    with gzip.open(shared_data / "skill-files" / "sample.jsonl.gz") as lines:
        for line in lines:
            row = json.loads(line)
            relative = PurePosixPath(row["repo"].replace("/", "+"), row["path"])
            assert not relative.is_absolute()
            assert ".." not in relative.parts
            file = base / relative
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(base64.b64decode(row["skill_md_b64"]))
            files[file] = file.read_bytes()
    assert len(files) == 1_367
    loadable = {file for file, data in files.items() if loads(file, data)}
    return Published(sorted(base.iterdir()), files, loadable)


def found_in(index: SkillIndex) -> set[Path]:
    return {skill.location for skill in (*index.skills, *index.shadowed)}


def refused_by(index: SkillIndex) -> set[Path]:
    return {found.path for found in index.diagnostics if found.severity == "error" and found.path}


def test_with_nested_skills_exactly_the_files_are_found_that_parse_loads(
    published: Published,
) -> None:
    index = discover(published.roots, profile=Profile(nested_skills=True))
    assert found_in(index) == published.loadable
    assert refused_by(index) == set(published.files) - published.loadable
    assert len(published.loadable) > 1_300


def test_by_default_exactly_those_are_found_that_lie_in_no_other_skill(
    published: Published,
) -> None:
    index = discover(published.roots)
    inside = {
        file
        for file in published.files
        for above in file.parent.parents
        if above / "SKILL.md" in published.loadable
    }
    assert len(inside & published.loadable) == 5
    assert found_in(index) == published.loadable - inside
    assert refused_by(index) == set(published.files) - published.loadable - inside


@pytest.mark.req("S001-28")
def test_every_run_says_the_same(published: Published, tmp_path: Path) -> None:
    first = probe(*published.roots)
    assert first.everything == everything(discover(published.roots))
    for seed, cache in ((1, None), (2, tmp_path), (3, tmp_path)):
        assert probe(*published.roots, shuffled=seed, cache=cache).everything == first.everything


def test_a_description_and_a_name_are_those_of_the_whole_file(published: Published) -> None:
    index = discover(published.roots)
    for skill in (*index.skills, *index.shadowed):
        whole = parse(published.files[skill.location], directory=skill.directory.name)
        if whole.skill is not None:  # Some have a body that is not UTF-8.
            assert (skill.name, skill.description, skill.frontmatter) == (
                whole.skill.name,
                whole.skill.description,
                whole.skill.frontmatter,
            )


def test_anthropics_skills_has_exactly_the_findings_of_the_checked_list(
    published: Published,
) -> None:
    root = next(place for place in published.roots if place.name == "anthropics+skills")
    index = discover([root])
    there = {file.relative_to(root).as_posix() for file in published.files if root in file.parents}
    assert len(index.skills) == len(there) == 17
    found = [
        {
            "path": finding.path.relative_to(root).as_posix() if finding.path else "",
            "line": finding.line,
            "severity": finding.severity,
            "code": finding.code,
        }
        for finding in index.diagnostics
    ]
    checked = [json.loads(line) for line in CHECKED.read_text(encoding="utf-8").splitlines()]
    # One file of the repository is not in the sample.
    assert found == [finding for finding in checked if finding["path"] in there]
    assert len(checked) == 2
