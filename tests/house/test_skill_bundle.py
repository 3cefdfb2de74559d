"""Tests of house/skill_bundle.py: a bundle is taken whole, or the last good one is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse import remote
from skillhouse.floor import ConfigError, structs
from skillhouse.house import Skillhouse, configured
from skillhouse.house.skill_bundle import (
    POINTER,
    BundleRefresh,
    SkillBundleSource,
    bundle_note,
    bundle_place,
    publish_bundle,
    read_pointer,
)
from skillhouse.manage import trust_notes
from tests.bundles import PUBLISHER, S3_FAULTS, BundlePlace, small_s3
from tests.harness import until
from tests.house.places import write_skill
from tests.registry.pki import NOW


def test_a_bundle_is_taken_and_the_next_one_replaces_it(tmp_path: Path) -> None:
    place = BundlePlace(tmp_path)
    place.push(1)
    first = place.look()
    assert (first.status, first.state.number, first.state.publisher) == ("taken", 1, PUBLISHER)
    assert place.taken() == {"pdf": "First.\n"}
    write_skill(place.skills / "pdf", body="Second.\n")
    write_skill(place.skills / "notes")
    place.push(2)
    assert place.look().state.skills == ("notes", "pdf")
    assert place.taken() == {"notes": "Body.\n", "pdf": "Second.\n"}
    assert place.look().status == "unchanged"
    with Skillhouse(place.config) as house:
        found = {skill.id for skill in house.index.skills if skill.scope == "remote"}
    assert found == {"remote:notes", "remote:pdf"}


def test_a_skill_that_left_the_bundle_is_gone(tmp_path: Path) -> None:
    place = BundlePlace(tmp_path)
    write_skill(place.skills / "notes")
    place.push(1)
    place.look()
    (place.skills / "notes/SKILL.md").unlink()
    place.push(2)
    place.look()
    assert list(place.taken()) == ["pdf"]


def test_a_running_process_finds_what_was_taken(tmp_path: Path) -> None:
    place = BundlePlace(tmp_path)
    with Skillhouse(place.config) as house:
        assert "pdf" not in {skill.name for skill in house.index.skills}
        assert trust_notes(house) == [
            (
                f"bundle `{place.source}` was not taken yet: `up`, `mcp` and "
                "`skillhouse bundle pull` do it"
            )
        ]
        place.push(1)
        place.look()
        house.refresh()
        assert "pdf" in {skill.name for skill in house.index.skills}
        assert trust_notes(house) == []


def test_without_a_bundle_at_the_source_nothing_is_taken(tmp_path: Path) -> None:
    place = BundlePlace(tmp_path)
    found = place.look()
    assert (found.status, found.state.has_any) == ("refused", False)
    assert bundle_note(place.config) == (
        f"bundle `{place.source}`: there is no bundle at `{place.source}`; there is none yet"
    )


def test_files_that_changed_in_the_cache_are_taken_again(tmp_path: Path) -> None:
    place = BundlePlace(tmp_path)
    place.push(1)
    place.look()
    file = bundle_place(place.config) / "current/skills/pdf/SKILL.md"
    file.write_text("other")
    place.look()
    assert place.taken() == {"pdf": "First.\n"}


def test_the_files_before_stay_for_calls_that_run_and_go_with_the_next(tmp_path: Path) -> None:
    place = BundlePlace(tmp_path)
    seen = []
    for number in (1, 2, 3):
        write_skill(place.skills / "pdf", body=f"{number}\n")
        place.push(number)
        place.look()
        seen.append((bundle_place(place.config) / "current").resolve())
    assert [one.is_dir() for one in seen] == [False, True, True]


def test_what_is_taken_is_in_the_log(tmp_path: Path) -> None:
    place = BundlePlace(tmp_path)
    place.push(1)
    place.look()
    place.look()
    with Skillhouse(place.config) as house:
        path = house.audit_log.path
    text = path.read_text()
    assert text.count('"manage:bundle"') == 2
    assert place.source in text


def test_two_publishers_at_one_moment_never_both_count(tmp_path: Path) -> None:
    place = BundlePlace(tmp_path)
    store = remote.open_store(place.source, remote.StoreAccess())
    place.push(1)
    pointer, found = read_pointer(store)
    assert pointer is not None
    write_skill(place.skills / "pdf", body="Second.\n")
    place.push(2)
    assert not store.replace("current.json", b"{}", found)
    with pytest.raises(remote.RemoteError, match="bundle 2 is published already"):
        place.push(2)


def test_an_object_is_made_once_and_read_up_to_a_bound(tmp_path: Path) -> None:
    place = BundlePlace(tmp_path)
    archive = place.packed(1)
    store = remote.open_store(place.source, remote.StoreAccess())
    assert store.create("bundles/x", archive)
    assert not store.create("bundles/x", b"other")
    found = store.read("bundles/x", len(archive))
    assert found is not None
    assert found.data == archive
    with pytest.raises(remote.RemoteError):
        store.read("bundles/x", len(archive) - 1)


def test_a_bucket_does_the_same(tmp_path: Path) -> None:
    with small_s3() as server:
        source = "s3://acme-skills/servers/team"
        place = BundlePlace(tmp_path, source=source, more=server.settings)
        store = remote.open_store(source, server.access)
        publish_bundle(store, place.packed(1), 1)
        assert place.look().status == "taken"
        assert place.look().status == "unchanged"
        write_skill(place.skills / "pdf", body="Second.\n")
        publish_bundle(store, place.packed(2), 2)
        assert place.look().state.number == 2
        assert place.taken() == {"pdf": "Second.\n"}
        _, before = read_pointer(store)
        assert before is not None
        stale = structs.replace(before, tag='"0"')
        assert not store.replace("current.json", b"{}", stale)
        assert not store.create("current.json", b"{}")
        assert server.objects.keys() >= {"/acme-skills/servers/team/current.json"}
    found = SkillBundleSource(
        place.config,
        open_store=lambda address, _: remote.open_store(address, server.access),
        now=lambda: NOW,
    ).look()
    assert (found.status, found.state.number) == ("refused", 2)
    assert place.taken() == {"pdf": "Second.\n"}


@pytest.mark.parametrize("part", [POINTER, "bundles/"])
@pytest.mark.parametrize("manner", [*S3_FAULTS, "cut"])
def test_what_a_bucket_answers_is_said_and_the_last_good_one_is_kept(
    tmp_path: Path, manner: str, part: str
) -> None:
    """Wrong keys, expired ones, one that may not, a clock, a full server, an answer that ends."""
    with small_s3() as server:
        place = BundlePlace(tmp_path, source="s3://acme-skills/team", more=server.settings)
        store = remote.open_store(place.source, server.access)
        publish_bundle(store, place.packed(1), 1)
        bundle = SkillBundleSource(
            place.config,
            open_store=lambda address, _: remote.open_store(address, server.access),
            now=lambda: NOW,
        )
        assert bundle.look().status == "taken"
        write_skill(place.skills / "pdf", body="Second.\n")
        publish_bundle(store, place.packed(2), 2)
        server.manner, server.is_about = manner, part
        found = bundle.look()
        assert found.status == "refused"
        assert bundle_note(place.config).endswith("; bundle 1 is kept")
        assert "secret" not in found.state.problem.replace("the secret key does not fit", "")
        if manner == "NoSuchBucket" or manner == "cut":
            assert "in the bucket `acme-skills`: " in found.state.problem
        else:
            said = f"the server answered {S3_FAULTS[manner]} {manner}"
            assert said in found.state.problem
        assert place.taken() == {"pdf": "First.\n"}
        server.manner = ""
        assert bundle.look().status == "taken"
        assert place.taken() == {"pdf": "Second.\n"}


def test_an_archive_that_changed_in_the_bucket_is_not_taken(tmp_path: Path) -> None:
    """The pointer was read, and the bytes behind the digest are others then."""
    with small_s3() as server:
        place = BundlePlace(tmp_path, source="s3://acme-skills/team", more=server.settings)
        store = remote.open_store(place.source, server.access)
        pointer = publish_bundle(store, place.packed(1), 1)
        bundle = SkillBundleSource(
            place.config,
            open_store=lambda address, _: remote.open_store(address, server.access),
            now=lambda: NOW,
        )
        server.objects[f"/acme-skills/team/{pointer.path}"] = place.packed(2)
        found = bundle.look()
    assert (found.status, found.state.has_any) == ("refused", False)
    assert f"expected {pointer.digest} at" in found.state.problem


def test_a_process_looks_by_itself_and_follows_its_configuration(tmp_path: Path) -> None:
    place = BundlePlace(tmp_path)
    place.push(1)
    places = place.places
    before = places.user_file.read_text()
    places.user_file.write_text("")
    with Skillhouse(configured(places)) as house, BundleRefresh(house):
        assert not place.bundle.is_here()
        places.user_file.write_text(before)

        def is_asked() -> bool:
            house.refresh()
            return place.bundle.state().asked_at != "" or place.bundle.state().failures > 0

        assert until(is_asked)


@pytest.mark.parametrize(
    ("lines", "key"),
    [
        ('source = "https://example.com/team"', "source"),
        ('source = "file://host/team"', "source"),
        ('source = "file:///"', "source"),
        ('source = "file:///srv/../team"', "source"),
        ('source = "s3://a/team?x=1"', "source"),
        ('source = "s3://acme-skills/Team Name"', "source"),
        ('source = "s3://acme-skills/team"', "source_publisher"),
        ('source = "s3://acme-skills/team"\nsource_publisher = "acme"', "source_publisher"),
        ("source_seconds = 4", "source_seconds"),
        ("source_seconds = 86401", "source_seconds"),
        ('source_access_key = "AKIA1234"', "source_access_key"),
        ('source_access_key = "env:A"', "source_secret_key"),
        ('source_endpoint = "http://example.com"', "source_endpoint"),
        ('source_endpoint = "example.com"', "source_endpoint"),
    ],
)
def test_a_source_that_cannot_be_one_is_refused(tmp_path: Path, lines: str, key: str) -> None:
    place = BundlePlace(tmp_path)
    place.places.user_file.write_text(f"[skills]\n{lines}\n")
    with pytest.raises(ConfigError) as caught:
        configured(place.places)
    assert caught.value.key == f"skills.{key}"
    assert "AKIA1234" not in str(caught.value)
