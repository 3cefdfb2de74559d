"""Tests of registry/mirror.py: what a mirror has, what it asks for, and what a kill leaves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from skillhouse.floor import digest
from skillhouse.registry import (
    DirectoryAccess,
    MirrorDirectory,
    MirrorReport,
    Repository,
    RepositoryAnswer,
    RepositoryError,
    Revocation,
    next_list,
    sign_list,
    update_mirror,
)
from skillhouse.registry.mirror_directory import MirrorError
from skillhouse.registry.releases import blob_path
from tests.harness import ran
from tests.registry.pki import NOW, make_world
from tests.registry.repositories import StaticRepository, encode_value

ADDRESS = "https://skills.example.com"


class Live:
    """A server: the files of a repository, with its lists of skills and of changes."""

    def __init__(self, made: StaticRepository) -> None:
        self.made = made
        self.files = DirectoryAccess(made.place)
        self.changes: list[str] = []
        self.asked: list[str] = []

    def publish(self, version: str, name: str = "notes", *, namespace: str = "default") -> None:
        self.made.make(version, name, namespace=namespace)
        self.changes.append(name if namespace == "default" else f"{namespace}--{name}")

    def __call__(
        self,
        path: str,
        max_bytes: int,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> RepositoryAnswer:
        self.asked.append(path)
        kind, _, query = path.partition("?")
        words = {key: found[0] for key, found in parse_qs(query).items()}
        if kind == "skills":
            listed = [{"name": name} for name in self.made.skills]
            return RepositoryAnswer(status=200, body=encode_value({"skills": listed}))
        if kind == "changes":
            since, limit = int(words["since"]), int(words["limit"])
            found = [
                {"seq": number, "kind": "publish", "name": name}
                for number, name in enumerate(self.changes, start=1)
            ][since : since + limit]
            value = {"changes": found, "next": found[-1]["seq"] if found else since}
            return RepositoryAnswer(status=200, body=encode_value(value))
        return self.files(path, max_bytes)

    def open(self) -> Repository:
        return Repository(ADDRESS, self)


@pytest.fixture
def live(tmp_path: Path) -> Live:
    made = Live(StaticRepository(tmp_path / "source"))
    made.publish("1.0.0")
    made.publish("1.1.0")
    made.publish("1.0.0", "pdf")
    made.publish("2.0.0", namespace="acme")
    return made


def update(place: Path, live: Live, **options: object) -> MirrorReport:
    live.asked.clear()
    with MirrorDirectory(place) as mirror:
        return update_mirror(mirror, live.open, **options)  # type: ignore[arg-type]


def opened(place: Path) -> Repository:
    return Repository(place.as_uri(), DirectoryAccess(place))


def served_files(place: Path) -> dict[str, bytes]:
    return {
        path.relative_to(place).as_posix(): path.read_bytes()
        for path in place.rglob("*")
        if path.is_file() and ".mirror" not in path.parts
    }


def check(place: Path, made: StaticRepository) -> None:
    """Everything that can be installed from the source can be from the mirror."""
    found = opened(place)
    assert sorted(one.name for one in found.listed()) == sorted(made.skills)
    for name, skill in made.skills.items():
        mirrored = found.skill(skill.namespace, skill.skill)
        assert mirrored == skill, name
        for release in skill.versions:
            assert found.archive(skill, release) == made.archives[release.digest]


@pytest.mark.req("S002-104")
def test_a_mirror_has_all_that_its_source_has_and_asks_for_nothing_twice(
    tmp_path: Path, live: Live
) -> None:
    place = tmp_path / "mirror"
    done = update(place, live)
    assert (done.looked_at, done.changed, done.archives, done.problems) == (3, 3, 4, ())
    check(place, live.made)
    assert update(place, live).archives == 0
    assert live.asked == ["registry.json", "revocations.json", "changes?since=4&limit=1000"]
    live.publish("1.2.0")
    assert update(place, live).changed == 1
    digests = [release.digest for release in live.made.skills["notes"].versions]
    assert [path for path in live.asked if path.startswith("blobs/")] == [blob_path(digests[0])]
    check(place, live.made)


def test_a_mirror_of_a_mirror_is_the_same(tmp_path: Path, live: Live) -> None:
    for number in range(3):
        update(tmp_path / "first", live)
        with MirrorDirectory(tmp_path / "second") as mirror:
            update_mirror(mirror, lambda: opened(tmp_path / "first"))
        assert served_files(tmp_path / "first") == served_files(tmp_path / "second")
        live.publish(f"3.{number}.0")


def test_long_lists_have_pages(tmp_path: Path, live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skillhouse.registry.mirror_directory.PAGE", 2)
    update(tmp_path / "mirror", live)
    check(tmp_path / "mirror", live.made)
    assert (tmp_path / "mirror/index/list/2.json").exists()
    assert [one.name for one in opened(tmp_path / "mirror").listed("acme")] == ["acme--notes"]


def test_only_the_skills_that_were_named_are_mirrored(tmp_path: Path, live: Live) -> None:
    place = tmp_path / "mirror"
    update(place, live, skills=["@acme/notes"])
    assert [one.name for one in opened(place).listed()] == ["acme--notes"]
    live.publish("1.2.0", "pdf")
    assert update(place, live, skills=["@acme/notes"]).looked_at == 0
    # More of them later: then all is compared.
    assert update(place, live, skills=["@acme/notes", "pdf"]).looked_at == 2
    done = update(place, live, skills=["gone"])
    assert done.problems == ("gone: it is not at the source",)


def test_the_well_known_list_has_the_newest_versions_with_their_archives(
    tmp_path: Path, live: Live
) -> None:
    place = tmp_path / "mirror"
    update(place, live)
    for top, names in ((place, ["notes", "pdf"]), (place / "acme", ["notes"])):
        base = top / ".well-known/agent-skills"
        value = json.loads((base / "index.json").read_text())
        assert [one["name"] for one in value["skills"]] == names
        for one in value["skills"]:
            assert digest((base / one["url"]).read_bytes()) == one["digest"]
    # Who read the list before still gets what it named; an older one is gone.
    for number, archives in enumerate((1, 2, 2)):
        assert len(list((place / ".well-known/agent-skills/notes").iterdir())) == archives
        live.publish(f"2.{number}.0")
        update(place, live)


def test_a_yanked_version_stays_and_a_revoked_one_goes(tmp_path: Path, live: Live) -> None:
    place = tmp_path / "mirror"
    update(place, live)
    live.made.change("notes", "1.0.0", state="yanked", reason="slow")
    live.made.change("notes", "1.1.0", state="revoked", reason="bad")
    live.changes.append("notes")
    update(place, live)
    newest, oldest = live.made.skills["notes"].versions
    found = served_files(place)
    assert blob_path(oldest.digest) in found
    assert not [path for path in found if newest.digest.removeprefix("sha256:") in path]
    mirrored = opened(place).skill("default", "notes")
    assert mirrored is not None
    assert [one.state for one in mirrored.versions] == ["revoked", "yanked"]


def test_a_list_of_revocations_is_never_replaced_by_an_older_one(
    tmp_path: Path, live: Live
) -> None:
    world = make_world(tmp_path / "pki")
    entry = Revocation(release="notes@1.0.0")
    first = next_list(None, [entry], NOW)
    lists = [
        sign_list(one, key=world.root.key, issuer=[world.root.certificate])
        for one in (first, next_list(first, [entry], NOW))
    ]
    place = tmp_path / "mirror"
    for data in reversed(lists):
        live.made.write("revocations.json", data)
        done = update(place, live)
    assert "an older list of revocations, 1" in done.problems[0]
    assert (place / "revocations.json").read_bytes() == lists[1]
    live.made.write("revocations.json", b"{}")
    assert "the list of revocations of the source is none" in update(place, live).problems[0]
    (live.made.place / "revocations.json").unlink()
    assert "no list of revocations any more" in update(place, live).problems[0]
    assert opened(place).revocations() == lists[1]


def test_what_cannot_be_had_leaves_the_version_before_and_is_asked_for_again(
    tmp_path: Path, live: Live
) -> None:
    place = tmp_path / "mirror"
    update(place, live)
    before = opened(place).skill("default", "notes")
    live.publish("1.2.0")
    blob = live.made.place / blob_path(live.made.skills["notes"].versions[0].digest)
    good = blob.read_bytes()
    for broken in (good[:-1] + b"x", good[:-9], good + b"more"):
        blob.write_bytes(broken)
        (problem,) = update(place, live).problems
        assert problem.startswith("notes: ")
        assert opened(place).skill("default", "notes") == before
    blob.write_bytes(good)
    assert update(place, live).problems == ()
    check(place, live.made)


def test_check_finds_a_damaged_archive(tmp_path: Path, live: Live) -> None:
    place = tmp_path / "mirror"
    update(place, live)
    blob = place / blob_path(live.made.skills["pdf"].versions[0].digest)
    blob.write_bytes(b"damaged")
    assert update(place, live).archives == 0
    assert update(place, live, check=True).archives == 1
    check(place, live.made)


def test_a_directory_is_a_mirror_of_one_source(tmp_path: Path, live: Live) -> None:
    place = tmp_path / "mirror"
    update(place, live)
    other = StaticRepository(tmp_path / "other")
    with MirrorDirectory(place) as mirror, pytest.raises(MirrorError, match="is a mirror of"):
        update_mirror(mirror, lambda: opened(other.place))
    renamed = Live(StaticRepository(tmp_path / "renamed", "evil.example"))
    with pytest.raises(MirrorError, match=r"evil\.example"):
        update(place, renamed)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/letter.txt").write_text("mine")
    with pytest.raises(MirrorError, match="has other files"):
        update(tmp_path / "full", live)
    with MirrorDirectory(place), pytest.raises(MirrorError, match="another process"):
        update(place, live)
    (place / ".mirror/state").write_bytes(b"\xff")
    with pytest.raises(MirrorError, match="cannot be read"):
        update(place, live)


def test_a_source_with_too_much_is_refused(tmp_path: Path, live: Live) -> None:
    place = tmp_path / "mirror"
    size = live.made.skills["pdf"].versions[0].size
    with pytest.raises(MirrorError, match="would be larger than"):
        update(place, live, max_bytes=2 * size)
    assert (
        sum(len(data) for path, data in served_files(place).items() if "blobs" in path) < 3 * size
    )
    assert update(place, live).problems == ()
    check(place, live.made)


TRIAL = """
import os, signal, sys
from pathlib import Path
from tests.registry import test_mirror as tried
from tests.registry.test_installs import NOT_REACHED, fail_at

base = Path(sys.argv[1])
live = tried.Live(tried.StaticRepository(base / "source"))
live.publish("1.0.0")
live.publish("1.0.0", "pdf")
moment = ended = 0
while not ended:
    place = base / f"mirror-{moment}"
    if moment % 2:
        tried.update(place, live)
        live.publish(f"1.{moment}.0")
        live.made.change("notes", "1.0.0", state="revoked")
    child = os.fork()
    if child == 0:
        fired = fail_at(moment // 2, "killed", place)
        tried.update(place, live)
        os._exit(0 if fired() else NOT_REACHED)
    _, status = os.waitpid(child, 0)
    ended = os.WIFEXITED(status) and os.WEXITSTATUS(status) == NOT_REACHED
    tried.check_whole(place)
    tried.update(place, live)
    tried.check_whole(place)
    names = sorted(one.name for one in tried.opened(place).listed())
    print(moment, status, *names, len(list((place / ".mirror").iterdir())), flush=True)
    moment += 1
"""


def check_whole(place: Path) -> None:
    """Whatever a mirror names is there, and is what it says."""
    for path in place.glob("blobs/sha256/*/*"):
        assert digest(path.read_bytes()) == f"sha256:{path.name}"
    with MirrorDirectory(place) as mirror:
        found = list(mirror.skills())
    documents = list(place.glob("index/??/??/*/*.json"))
    assert len(found) == len(documents)
    for skill in found:
        for release in skill.versions:
            if release.state != "revoked":
                assert (place / blob_path(release.digest)).is_file(), release
    index = place / ".well-known/agent-skills/index.json"
    if index.exists():
        for one in json.loads(index.read_text())["skills"]:
            assert digest((index.parent / one["url"]).read_bytes()) == one["digest"]


@pytest.mark.slow
def test_killed_at_any_moment_a_mirror_works_and_goes_on(tmp_path: Path) -> None:
    done = ran([sys.executable, "-c", TRIAL, str(tmp_path)], cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3_000:]
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) > 40
    killed = [line for line in lines if int(line[1]) == signal.SIGKILL]
    assert len(killed) >= len(lines) - 2
    # Both skills, and only the lock and the state are left beside what is served.
    assert {tuple(line[2:]) for line in lines} == {("notes", "pdf", "2")}


def endless(live: Live, kind: str) -> Iterator[dict[str, object]]:
    number = 0
    while True:
        number += 1
        if kind == "changes":
            yield {"changes": [{"seq": number, "kind": "publish", "name": "notes"}], "next": 1}
        else:
            yield {"skills": [{"name": "notes"}], "next_cursor": "1"}


@pytest.mark.parametrize("kind", ["changes", "skills"])
def test_a_list_without_an_end_is_refused(tmp_path: Path, live: Live, kind: str) -> None:
    pages = endless(live, kind)
    real = live.__call__

    def access(path: str, max_bytes: int, **words: object) -> RepositoryAnswer:
        if path.startswith(f"{kind}?"):
            return RepositoryAnswer(status=200, body=encode_value(next(pages)))
        return real(path, max_bytes)

    with MirrorDirectory(tmp_path / "mirror") as mirror, pytest.raises(RepositoryError) as caught:
        update_mirror(mirror, lambda: Repository(ADDRESS, access))
    assert "has no end" in str(caught.value)


def test_a_source_of_files_that_dislikes_queries_can_be_mirrored(
    tmp_path: Path, live: Live
) -> None:
    update(tmp_path / "first", live)
    files = DirectoryAccess(tmp_path / "first")

    def access(path: str, max_bytes: int, **words: object) -> RepositoryAnswer:
        return RepositoryAnswer(status=405) if "changes?" in path else files(path, max_bytes)

    with MirrorDirectory(tmp_path / "mirror") as mirror:
        update_mirror(mirror, lambda: Repository(ADDRESS, access))
    check(tmp_path / "mirror", live.made)


def test_a_file_system_without_second_names_gets_copies(
    tmp_path: Path, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    update(tmp_path / "mirror", live)
    check_whole(tmp_path / "mirror")
    shutil.rmtree(tmp_path / "mirror/blobs")
    assert len(list((tmp_path / "mirror/.well-known/agent-skills/notes").iterdir())) == 1
