"""What a hostile repository tries with those who mirror it; a naive copy lets it happen."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from skillhouse.floor import SkillhouseError, digest
from skillhouse.registry import (
    DirectoryAccess,
    MirrorDirectory,
    Repository,
    RepositoryAnswer,
    update_mirror,
)
from skillhouse.registry.releases import blob_path, index_path
from tests.registry.repositories import StaticRepository

Pages = dict[str, bytes]


def source_of(place: Path) -> tuple[Pages, dict[str, Any]]:
    """Return the pages of an honest source, and its document of `notes`."""
    made = StaticRepository(place / "source")
    made.make("1.0.0")
    pages = {
        path.relative_to(made.place).as_posix(): path.read_bytes()
        for path in made.place.rglob("*")
        if path.is_file()
    }
    pages["skills"] = json.dumps({"skills": [{"name": "notes"}]}).encode()
    document = json.loads(made.index().read_bytes())
    return pages, document


def naive_mirror(pages: Pages, place: Path) -> None:
    """Copy what the documents name, as a short script would."""
    for one in json.loads(pages["skills"])["skills"]:
        data = pages[index_path("default", one["name"])]
        for release in json.loads(data)["versions"]:
            target = place / blob_path(release["digest"])
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(pages[blob_path(release["digest"])])
        target = place / "index" / f"{one['name']}.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def mirrored(pages: Pages, place: Path, **options: Any) -> tuple[str, ...]:
    """Return the problems of our mirror of the pages, of which none may end it."""

    def access(
        path: str,
        max_bytes: int,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> RepositoryAnswer:
        data = pages.get(path.partition("?")[0])
        if data is not None and len(data) > max_bytes:
            raise SkillhouseError(f"more than {max_bytes} bytes")
        return (
            RepositoryAnswer(status=404)
            if data is None
            else RepositoryAnswer(status=200, body=data)
        )

    with MirrorDirectory(place) as mirror:
        found = update_mirror(mirror, lambda: Repository("https://evil.example", access), **options)
    return found.problems


def test_a_digest_that_is_a_path_writes_nothing_outside(tmp_path: Path) -> None:
    name = "sha256:../../escaped"
    pages, document = source_of(tmp_path)
    document["versions"][0]["digest"] = name
    pages[index_path("default", "notes")] = json.dumps(document).encode()
    pages[blob_path(name)] = b"evil"
    (tmp_path / "naive/blobs/sha256").mkdir(parents=True)
    naive_mirror(pages, tmp_path / "naive")
    assert (tmp_path / "escaped").read_bytes() == b"evil"
    (problem,) = mirrored(pages, tmp_path / "ours/mirror")
    assert "expected sha256:" in problem
    assert [one.name for one in (tmp_path / "ours").iterdir()] == ["mirror"]
    assert not list((tmp_path / "ours/mirror").glob("blobs/*"))


def test_other_bytes_than_those_of_the_digest_are_not_kept(tmp_path: Path) -> None:
    pages, document = source_of(tmp_path)
    path = blob_path(document["versions"][0]["digest"])
    pages[path] = b"evil" + pages[path][4:]
    naive_mirror(pages, tmp_path / "naive")
    assert (tmp_path / "naive" / path).read_bytes().startswith(b"evil")
    (problem,) = mirrored(pages, tmp_path / "mirror")
    assert "nothing was unpacked" in problem
    assert not list((tmp_path / "mirror").glob("blobs/sha256/*/*"))
    # Nor is a version named that is not there.
    assert not list((tmp_path / "mirror").glob("index/??/??/*/*.json"))


@pytest.mark.parametrize(
    "name", ["../../escaped", "/escaped", "..", "a/b", "acme--..", "no\0tes", "\x1b[2J", "NOTES"]
)
def test_a_name_that_is_a_path_is_not_listed(tmp_path: Path, name: str) -> None:
    pages, document = source_of(tmp_path)
    pages["skills"] = json.dumps({"skills": [{"name": name}, {"name": "notes"}]}).encode()
    assert mirrored(pages, tmp_path / "ours/mirror") == ()
    assert [one.name for one in (tmp_path / "ours").iterdir()] == ["mirror"]
    found = list((tmp_path / "ours/mirror").glob("index/??/??/*/*.json"))
    assert [one.name for one in found] == ["notes.json"]
    assert document["name"] == "notes"
    with pytest.raises(SkillhouseError):
        mirrored(pages, tmp_path / "ours/mirror", skills=[name])


def test_the_document_of_another_skill_is_refused(tmp_path: Path) -> None:
    pages, document = source_of(tmp_path)
    pages["skills"] = json.dumps({"skills": [{"name": "pdf"}]}).encode()
    pages[index_path("default", "pdf")] = json.dumps(document).encode()
    naive_mirror(pages, tmp_path / "naive")
    assert json.loads((tmp_path / "naive/index/pdf.json").read_bytes())["name"] == "notes"
    (problem,) = mirrored(pages, tmp_path / "mirror")
    assert "got those of 'notes'" in problem


def test_what_readers_would_understand_differently_is_written_as_we_understood_it(
    tmp_path: Path,
) -> None:
    pages, document = source_of(tmp_path)
    path = index_path("default", "notes")
    pages[path] = json.dumps({**document, "surprise": "x"}).encode()
    assert mirrored(pages, tmp_path / "mirror") == ()
    assert b"surprise" not in (tmp_path / "mirror" / path).read_bytes()
    pages[path] = pages[path].replace(b"{", b'{"latest": "9.9.9", ', 1)
    naive_mirror(pages, tmp_path / "naive")
    (problem,) = mirrored(pages, tmp_path / "other")
    assert "a key is there twice" in problem


def test_a_size_below_the_truth_and_one_beyond_all_bounds_are_refused(tmp_path: Path) -> None:
    pages, document = source_of(tmp_path)
    path = index_path("default", "notes")
    for size in (10, 10**15, -1):
        document["versions"][0]["size"] = size
        pages[path] = json.dumps(document).encode()
        try:
            problems = mirrored(pages, tmp_path / "mirror")
        except SkillhouseError as error:
            problems = (str(error),)
        assert len(problems) == 1, size
    assert not list((tmp_path / "mirror").glob("blobs/sha256/*/*"))


def test_a_link_in_a_source_directory_is_not_followed(tmp_path: Path) -> None:
    made = StaticRepository(tmp_path / "source")
    made.make("1.0.0")
    secret = tmp_path / "secret"
    secret.write_bytes(b"private")
    blob = made.place / blob_path(made.skills["notes"].versions[0].digest)
    blob.unlink()
    os.symlink(secret, blob)
    made.change("notes", "1.0.0", digest=digest(b"private"), size=7)
    os.makedirs((made.place / blob_path(digest(b"private"))).parent, exist_ok=True)
    os.symlink(secret, made.place / blob_path(digest(b"private")))

    with MirrorDirectory(tmp_path / "mirror") as mirror:
        found = update_mirror(
            mirror,
            lambda: Repository(made.address, DirectoryAccess(made.place)),
            skills=["notes"],
        )
    assert "path-link" in found.problems[0]
    assert not list((tmp_path / "mirror").glob("blobs/sha256/*/*"))
