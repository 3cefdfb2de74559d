"""What every engine of a package server must do; put another one into `ENGINES` to hold it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.extensions.registry.hosting.memory_store import MemoryReleases

from skillhouse.extensions.registry.hosting import (
    HostingError,
    ListQuery,
    ReleaseStore,
    ReleaseToken,
    SqliteReleases,
)
from skillhouse.extensions.registry.hosting.release_store import NO_ACTOR, Actor, NewRelease
from skillhouse.floor import structs
from skillhouse.registry import LockedSignature
from skillhouse.registry.near_names import name_key, near_keys
from skillhouse.registry.releases import Release

ENGINES: dict[str, Callable[[Path], ReleaseStore]] = {
    "sqlite": lambda place: SqliteReleases(place / "registry.sqlite3"),
    "memory": lambda _: MemoryReleases(),
}


@pytest.fixture(params=ENGINES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ReleaseStore]:
    made = ENGINES[request.param](tmp_path)
    yield made
    made.close()


def at(minute: int) -> str:
    return f"2026-11-23T12:{minute:02}:00Z"


def release(version: str = "1.0.0", *, mark: str = "", **changes: Any) -> Release:
    mark = mark or version
    digits = f"{abs(hash(mark)):016x}"[:16] * 4
    return structs.replace(
        Release(
            version=version,
            digest=f"sha256:{digits}",
            tree_digest=f"skilltree1:{digits[::-1]}",
            size=10,
            files=1,
            published_at=at(0),
        ),
        **changes,
    )


def add(
    store: ReleaseStore,
    skill: str = "pdf",
    version: str = "1.0.0",
    *,
    namespace: str = "default",
    description: str = "Reads PDF files.",
    actor: Actor = NO_ACTOR,
    **changes: Any,
) -> Release:
    found = release(version, mark=f"{namespace}/{skill}@{version}", **changes)
    store.add(
        NewRelease(
            namespace=namespace,
            skill=skill,
            description=description,
            license="MIT",
            release=found,
            actor=actor,
        )
    )
    return found


def names(store: ReleaseStore, **query: Any) -> list[str]:
    return [one.name for one in store.find(ListQuery(**query)).skills]


def test_nothing_is_known_at_first(store: ReleaseStore):
    assert store.releases("default", "pdf") is None
    assert store.archive("sha256:00") is None
    assert (store.find(ListQuery()).skills, store.changes(0, 10), store.tokens()) == ((), (), ())


def test_a_release_comes_back_as_it_was(store: ReleaseStore):
    signature = LockedSignature(
        publisher="acme", cert_sha256="ab", signed_at=at(1), registry="skills.example.com"
    )
    given = add(store, namespace="acme", signature=signature, media_type="application/zip")
    found = store.releases("acme", "pdf")
    assert found is not None
    assert found.versions == (given,)
    assert (found.name, found.latest, found.license) == ("acme--pdf", "1.0.0", "MIT")
    assert store.archive(given.digest) == given


def test_a_number_is_used_once_whatever_the_bytes_are(store: ReleaseStore):
    first = add(store)
    for again in (first, release("1.0.0", mark="other")):
        with pytest.raises(HostingError) as caught:
            store.add(
                NewRelease(
                    namespace="default", skill="pdf", description="", license="", release=again
                )
            )
        assert (caught.value.code, caught.value.digest) == ("version-exists", first.digest)
    assert len(store.changes(0, 10)) == 1


@pytest.mark.parametrize("state", ["yanked", "revoked"])
def test_a_number_stays_used_after_it_was_taken_back(store: ReleaseStore, state: Any):
    add(store)
    store.set_state("default", "pdf", "1.0.0", state, reason="bad", at=at(1))
    with pytest.raises(HostingError):
        add(store)


def test_versions_are_newest_first_and_latest_is_no_pre_release(store: ReleaseStore):
    for version in ("1.9.0", "1.10.0", "2.0.0-rc.1", "1.2.0"):
        add(store, version=version, description=f"About {version}")
    found = store.releases("default", "pdf")
    assert found is not None
    assert [one.version for one in found.versions] == ["2.0.0-rc.1", "1.10.0", "1.9.0", "1.2.0"]
    assert (found.latest, found.description) == ("1.10.0", "About 1.10.0")


def test_latest_follows_what_is_taken_back_and_put_back(store: ReleaseStore):
    for version in ("1.0.0", "1.1.0"):
        add(store, version=version)
    seen = []
    for state in ("yanked", "published", "revoked"):
        done = store.set_state("default", "pdf", "1.1.0", state, reason=f"is {state}", at=at(1))
        found = store.releases("default", "pdf")
        assert found is not None
        assert found.versions[0] == done
        seen.append((done.state, done.reason, found.latest))
    assert seen == [
        ("yanked", "is yanked", "1.0.0"),
        ("published", "is published", "1.1.0"),
        ("revoked", "is revoked", "1.0.0"),
    ]


@pytest.mark.parametrize("state", ["yanked", "published"])
def test_a_revocation_is_final(store: ReleaseStore, state: Any):
    given = add(store)
    store.set_state("default", "pdf", "1.0.0", "revoked", reason="", at=at(1))
    with pytest.raises(HostingError) as caught:
        store.set_state("default", "pdf", "1.0.0", state, reason="", at=at(2))
    assert caught.value.code == "bad-request"
    assert store.is_revoked(given.digest, "skilltree1:0")
    assert store.is_revoked("sha256:0", given.tree_digest)
    assert not store.is_revoked("sha256:0", "skilltree1:0")


def test_what_is_unknown_changes_nothing(store: ReleaseStore):
    add(store)
    for change in (
        lambda: store.set_state("default", "pdf", "9", "yanked", reason="", at=at(1)),
        lambda: store.set_state("default", "doc", "1.0.0", "yanked", reason="", at=at(1)),
        lambda: store.set_channel("default", "pdf", "beta", "9", at=at(1)),
        lambda: store.set_channel("default", "doc", "beta", "1.0.0", at=at(1)),
    ):
        with pytest.raises(HostingError) as caught:
            change()
        assert caught.value.code == "unknown-version"
    assert [one.kind for one in store.changes(0, 10)] == ["publish"]
    assert store.releases("default", "doc") is None


def test_an_archive_of_several_releases_is_that_of_an_installable_one(store: ReleaseStore):
    first = add(store, version="1.0.0", digest="sha256:" + "a" * 64)
    second = add(store, version="1.1.0", digest=first.digest)
    store.set_state("default", "pdf", "1.0.0", "revoked", reason="", at=at(1))
    assert store.archive(first.digest) == second


def test_a_channel_moves_and_names_published_versions_only(store: ReleaseStore):
    for version in ("1.0.0", "2.0.0-rc.1"):
        add(store, version=version)
    seen = []

    def channels() -> None:
        found = store.releases("default", "pdf")
        assert found is not None
        seen.append(dict(found.channels or {}))

    store.set_channel("default", "pdf", "beta", "1.0.0", at=at(1))
    channels()
    store.set_channel("default", "pdf", "beta", "2.0.0-rc.1", at=at(2))
    channels()
    store.set_state("default", "pdf", "2.0.0-rc.1", "yanked", reason="", at=at(3))
    channels()
    assert seen == [{"beta": "1.0.0"}, {"beta": "2.0.0-rc.1"}, {}]
    with pytest.raises(HostingError):
        store.set_channel("default", "pdf", "beta", "2.0.0-rc.1", at=at(4))


def test_changes_are_in_order_and_can_be_read_from_anywhere(store: ReleaseStore):
    add(store)
    store.set_state("default", "pdf", "1.0.0", "yanked", reason="", at=at(1))
    store.set_state("default", "pdf", "1.0.0", "published", reason="", at=at(2))
    store.set_channel("default", "pdf", "beta", "1.0.0", at=at(3))
    store.set_setting("list", b"1", kind="revocations", at=at(4))
    add(store, namespace="acme")
    store.set_state("acme", "pdf", "1.0.0", "revoked", reason="", at=at(5))
    found = store.changes(0, 100)
    assert [(one.kind, one.name, one.version) for one in found] == [
        ("publish", "pdf", "1.0.0"),
        ("yank", "pdf", "1.0.0"),
        ("unyank", "pdf", "1.0.0"),
        ("channel", "pdf", "1.0.0"),
        ("revocations", "", ""),
        ("publish", "acme--pdf", "1.0.0"),
        ("revoke", "acme--pdf", "1.0.0"),
    ]
    numbers = [one.seq for one in found]
    assert numbers == sorted(set(numbers))
    assert store.changes(numbers[2], 2) == found[3:5]
    assert store.changes(numbers[-1], 2) == ()


def test_every_change_has_who_made_it(store: ReleaseStore):
    by = [Actor(f"token{number}", f"claims{number}", f"192.0.2.{number}") for number in range(4)]
    add(store, actor=by[0])
    store.set_state("default", "pdf", "1.0.0", "yanked", reason="", at=at(1), actor=by[1])
    store.set_state("default", "pdf", "1.0.0", "published", reason="", at=at(2))
    store.set_channel("default", "pdf", "beta", "1.0.0", at=at(3), actor=by[2])
    store.set_setting("list", b"{}", kind="revocations", at=at(4), actor=by[3])
    found = [one.actor for one in store.changes(0, 10)]
    assert found == [by[0], by[1], Actor(), by[2], by[3]]
    assert store.last_change() == store.changes(0, 10)[-1].seq


def test_near_names_are_found_in_their_namespace(store: ReleaseStore):
    for skill in ("pdf-tools", "claude", "csv"):
        add(store, skill=skill)
    add(store, skill="elsewhere", namespace="acme")
    asked = {
        "pdftools": ("pdf-tools",),
        "pdf-tool": ("pdf-tools",),
        "pdf-t00ls": ("pdf-tools",),
        "c1aude": ("claude",),
        "ciaude": ("claude",),
        "claude1": ("claude",),
        "claudes": ("claude",),
        "tsv": (),
        "elsewhere": (),
        "pdf-viewer": (),
    }
    assert {name: store.similar("default", near_keys(name)) for name in asked} == asked
    assert store.similar("default", [name_key("csv")]) == ("csv",)


def test_a_list_is_sorted_by_name_and_read_in_pages(store: ReleaseStore):
    for skill in ("c", "a", "b", "d"):
        add(store, skill=skill)
    add(store, skill="a", namespace="acme")
    seen, cursor = [], ""
    while True:
        page = store.find(ListQuery(limit=2, cursor=cursor))
        seen.append([one.name for one in page.skills])
        if page.next_cursor is None:
            break
        cursor = page.next_cursor
    assert seen == [["acme--a", "a"], ["b", "c"], ["d"]]


def test_a_list_by_time_has_the_last_change_first(store: ReleaseStore):
    for minute, skill in enumerate(("c", "a", "b")):
        add(store, skill=skill, published_at=at(minute))
    store.set_channel("default", "c", "beta", "1.0.0", at=at(9))
    page = store.find(ListQuery(sort="updated", limit=2))
    assert [one.name for one in page.skills] == ["c", "b"]
    assert names(store, sort="updated", limit=2, cursor=page.next_cursor) == ["a"]


def test_a_list_shows_what_its_newest_version_says(store: ReleaseStore):
    signature = LockedSignature(publisher="acme", cert_sha256="ab")
    add(store, signature=signature, published_at=at(3))
    (found,) = store.find(ListQuery(publisher="acme")).skills
    assert structs.asdict(found) == {
        "name": "pdf",
        "namespace": "default",
        "skill": "pdf",
        "description": "Reads PDF files.",
        "latest": "1.0.0",
        "license": "MIT",
        "publisher": "acme",
        "updated_at": at(3),
    }
    assert names(store, publisher="other") == []
    assert names(store, text="files", publisher="other") == []
    assert names(store, text="files", publisher="acme") == ["pdf"]


def test_words_find_names_and_descriptions(store: ReleaseStore):
    add(store, skill="weather", description="Says how the sky will be.")
    add(store, skill="report", description="Writes about weather and sky at length for files.")
    add(store, skill="other", description="Does nothing of it.")
    assert names(store, text="weather") == ["weather", "report"]
    assert set(names(store, text="sky weather")) == {"weather", "report"}
    assert names(store, text="weather", limit=1) == ["weather"]
    assert names(store, text="absent") == []
    assert names(store, text='" * ( ; --') == []


def test_a_skill_that_is_called_as_the_query_comes_first(store: ReleaseStore):
    add(store, skill="aaa", description="pdf tools pdf tools pdf tools")
    add(store, skill="pdf-tools", description="Something.")
    assert names(store, text="pdf tools")[0] == "pdf-tools"


def test_what_cannot_be_installed_is_not_found(store: ReleaseStore):
    add(store, skill="yanked")
    add(store, skill="revoked")
    add(store, skill="early", version="1.0.0-rc.1")
    store.set_state("default", "yanked", "1.0.0", "yanked", reason="", at=at(1))
    store.set_state("default", "revoked", "1.0.0", "revoked", reason="", at=at(1))
    assert names(store, text="files") == ["early"]
    # A lock can still name a version that was yanked, so a mirror needs it.
    assert names(store) == ["early", "yanked"]
    store.set_state("default", "yanked", "1.0.0", "published", reason="", at=at(2))
    assert sorted(names(store, text="files")) == ["early", "yanked"]


@pytest.mark.parametrize("cursor", ["x", "W10", "bnVsbA", "-", "WyJhIl0", "9" * 40, "é", "\0"])
@pytest.mark.parametrize("query", [{}, {"text": "files"}, {"sort": "updated"}])
def test_a_cursor_of_others_is_refused_or_leads_nowhere(
    store: ReleaseStore, cursor: str, query: dict[str, Any]
):
    add(store)
    try:
        assert names(store, cursor=cursor, **query) == []
    except HostingError as error:
        assert error.code == "bad-request"  # noqa: PT017 - either is right.


def test_the_newest_versions_of_a_namespace_are_listed_by_name(store: ReleaseStore):
    add(store, skill="b", version="1.0.0")
    newest = add(store, skill="b", version="1.1.0", description="Newer.")
    first = add(store, skill="a")
    add(store, skill="early", version="1.0.0-rc.1")
    add(store, skill="z", namespace="acme")
    found = store.newest("default", 10)
    assert [(one.skill, one.description, one.release) for one in found] == [
        ("a", "Reads PDF files.", first),
        ("b", "Newer.", newest),
    ]
    assert store.newest("default", 1) == found[:1]
    assert store.skill_count() == 4


def test_settings_are_kept(store: ReleaseStore):
    assert store.setting("name") is None
    store.set_setting("name", b"\x00\xff")
    store.set_setting("name", b"other")
    assert store.setting("name") == b"other"
    assert store.changes(0, 10) == ()


def test_tokens_are_kept_until_they_are_revoked(store: ReleaseStore):
    token = ReleaseToken(
        id="ab12",
        digest="0" * 64,
        scopes=("publish:default/pdf", "read"),
        note="for tests",
        created_at=at(0),
        expires_at="",
    )
    store.add_token(token)
    assert store.token("ab12") == token
    assert store.token("ab13") is None
    assert [store.revoke_token(one, at(1)) for one in ("ab12", "ab12", "no")] == [
        True,
        False,
        False,
    ]
    assert store.tokens() == (structs.replace(token, revoked_at=at(1)),)


def test_of_many_publishers_of_one_version_one_succeeds(store: ReleaseStore):
    start = threading.Barrier(8)
    results: list[str] = []

    def publish(number: int) -> None:
        start.wait()
        try:
            new = release("1.0.0", mark=str(number))
            store.add(
                NewRelease(
                    namespace="default", skill="pdf", description="", license="", release=new
                )
            )
            results.append(new.digest)
        except HostingError as error:
            results.append(error.code)

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = store.releases("default", "pdf")
    assert found is not None
    assert sorted(results) == sorted([found.versions[0].digest, *["version-exists"] * 7])
    assert [one.kind for one in store.changes(0, 100)] == ["publish"]


def test_an_id_is_used_once_until_its_end(store: ReleaseStore):
    now = datetime(2026, 11, 29, 12, tzinfo=UTC)
    end = now + timedelta(minutes=5)
    assert store.use_once("a", "1", end, now)
    assert not store.use_once("a", "1", end, now)
    assert store.use_once("b", "1", end, now)
    assert not store.use_once("a", "1", end, end)
