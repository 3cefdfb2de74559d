"""Tests of source_policy.py: what an operator allows, and how new an update may be."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from skillhouse.floor import ConfigError, StateError
from skillhouse.house.config.allowed_sources import fits
from skillhouse.house.config.repositories import AllowedSource, RegistrySettings, RepositorySettings
from skillhouse.install import repositories
from skillhouse.install.source_policy import (
    FIRST_SEEN,
    PUBLIC_AGE,
    first_seen,
    held_back,
    is_own,
    required_age,
)
from skillhouse.registry import LockEntry, Release, SkillReleases
from skillhouse.registry.releases import index_path
from tests.frontends.conftest import Run, place, run
from tests.frontends.test_cli_repositories import configure, lock_of
from tests.registry.repositories import StaticRepository
from tests.registry.sources import make_skill

__all__ = ["place", "run"]

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
FLAGS = ("--yes", "--allow-unsigned")


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("official", "official", True),
        ("official", "official/@acme", True),
        ("official/@acme", "official/@acme", True),
        ("official/@acme", "official", False),
        ("official", "official2", False),
        ("mcp:docs", "mcp:docs", True),
        ("mcp:docs", "mcp:docs2", False),
        ("/srv/skills", "/srv/skills/pdf", True),
        ("/srv/skills", "/srv/skills-evil/pdf", False),
        ("https://github.com/acme/*", "https://github.com/acme/skills", True),
        ("https://github.com/acme/skills", "https://github.com/acme/skills", True),
        ("https://github.com/acme/skills", "https://github.com/acme/skills-evil", False),
        ("https://github.com/acme/*", "https://github.com/acme", False),
        ("https://github.com/acme/*", "https://github.com/acme-evil/skills", False),
        ("https://*.example.com/*", "https://git.example.com/a/b", True),
        ("https://*.example.com/*", "https://example.com.evil.net/a/b", False),
        ("https://*.example.com/*", "https://evilexample.com/a/b", False),
        ("https://example.com", "https://example.com/", True),
        ("https://example.com", "https://example.com/other", False),
        ("https://example.com/acme/*", "https://example.com/acme/..;/evil/x", False),
        ("https://example.com/acme/*", "https://example.com/acme/x;y", True),
        ("https://example.com/*", "https://example.com:99999/x", False),
        ("https://example.com/*", "https://[x/x", False),
        ("ssh://git.example.com/*", "ssh://git.example.com/a", True),
    ],
)
def test_which_source_a_pattern_fits(pattern: str, text: str, expected: bool):
    assert fits(pattern, text) is expected


@pytest.mark.parametrize(
    "pattern",
    [
        "https://*/x",
        "https://github.com/*/skills",
        "https://git*.example.com/",
        "a\nb",
        "https://example.com:99999/*",
        "https://example.com:x/*",
        "https://[x/*",
    ],
)
def test_a_pattern_that_could_mean_more_than_it_says_is_refused(pattern: str):
    with pytest.raises(ConfigError):
        AllowedSource(source=pattern)


@pytest.mark.parametrize("age", ["soon", "-1h", "24", "1w", "999999d"])
def test_a_time_that_is_none_is_refused(age: str):
    with pytest.raises(ConfigError):
        RegistrySettings(min_release_age=age)


@pytest.mark.parametrize(
    ("text", "requested", "hours"),
    [
        ("https://github.com/acme/skills", "acme/skills", 24),
        ("https://github.com/acme/skills", "acme/skills@main", 24),
        ("https://github.com/acme/skills", f"acme/skills@{'a' * 40}", 0),
        ("https://github.com/acme/skills", "acme/skills@v1.2.0", 0),
        ("https://example.com", "https://example.com", 24),
        ("https://example.com", "https://user@example.com", 24),
        ("/srv/skills", "/srv/skills", 0),
        ("http://127.0.0.1:8640/x.zip", "http://127.0.0.1:8640/x.zip", 0),
        ("https://10.1.2.3/x", "https://10.1.2.3/x", 0),
        ("https://git.internal/x", "https://git.internal/x", 0),
        ("https://127.0.0.1.example.com/x", "https://127.0.0.1.example.com/x", 24),
    ],
)
def test_updates_of_public_sources_wait_a_day(text: str, requested: str, hours: int):
    assert required_age(RegistrySettings(), text, requested, None) == timedelta(hours=hours)
    set_ = RegistrySettings(
        min_release_age="7d", sources=(AllowedSource(source=text, min_release_age="0"),)
    )
    assert required_age(set_, text, requested, None) == timedelta()
    assert required_age(RegistrySettings(min_release_age="7d"), text, requested, None).days == 7
    assert PUBLIC_AGE.days == 1
    assert is_own(text) is (hours == 0) or "@" in requested


def test_the_time_left_is_said():
    day = timedelta(hours=24)
    until = "from 2026-11-30 12:00 UTC"
    assert held_back(NOW, day, NOW) == f"seen first 0 min ago, to be installed in 24 h, {until}"
    assert held_back(NOW, day, NOW + timedelta(hours=23, minutes=30)) == (
        f"seen first 23 h ago, to be installed in 31 min, {until}"
    )
    assert held_back(NOW, day, NOW + day) == ""


def entry(digest: str = "a") -> LockEntry:
    return LockEntry(
        tree_digest=f"skilltree1:{digest * 64}",
        repository="https://github.com/acme/skills",
        resolved="git+https://github.com/acme/skills.git@1",
        dated="2001-01-01",
    )


def test_what_this_machine_saw_first_is_kept(tmp_path: Path):
    later = NOW + timedelta(days=3)
    assert first_seen(tmp_path, entry(), None, NOW) == NOW
    assert first_seen(tmp_path, entry(), None, later) == NOW
    assert first_seen(tmp_path, entry("b"), None, later) == later
    # A clock that went back makes nothing older than now.
    assert first_seen(tmp_path, entry("b"), None, NOW) == NOW
    (tmp_path / FIRST_SEEN).write_text("[")
    with pytest.raises(StateError):
        first_seen(tmp_path, entry(), None, NOW)


@pytest.mark.parametrize(("trusted", "expected"), [(True, datetime(2026, 11, 1, 12, tzinfo=UTC)),
                                                   (False, NOW)])  # fmt: skip
def test_the_time_of_a_repository_counts_where_it_is_trusted(
    tmp_path: Path, trusted: bool, expected: datetime
):
    settings = RepositorySettings(name="official", url="https://example.com", trusted=trusted)
    release = Release(
        version="1.1.0",
        digest=f"sha256:{'0' * 64}",
        tree_digest=f"skilltree1:{'0' * 64}",
        size=1,
        published_at="2026-11-01T12:00:00Z",
    )
    skill = SkillReleases(
        name="pdf",
        namespace="default",
        skill="pdf",
        description="Reads.",
        latest="1.1.0",
        versions=(release,),
    )
    found = repositories.FoundSkill(settings=settings, repository=None, skill=skill)  # type: ignore[arg-type]
    offer = repositories.RepositoryOffer(
        settings=settings, namespace="default", skill="pdf", release=release, found=found
    )
    assert first_seen(tmp_path, entry(), offer, NOW) == expected


def test_a_new_update_waits_and_is_installed_by_a_word(run: Run, place: Path):
    community = StaticRepository(place / "community")
    community.make("1.0.0")
    configure(
        place, ("community", community.address, False), more='[registry]\nmin_release_age = "24h"\n'
    )
    flags = (*FLAGS, "--accept-untrusted")
    # An install is what a person chose now.
    assert run("install", "notes", *flags)[0] == 0
    community.make("1.1.0", published_at="2001-01-01T00:00:00Z")
    code, _, err = run("update", *flags)
    assert (code, lock_of(place)["notes"]["version"]) == (0, "1.0.0"), err
    assert "notes: 1.1.0 is held back, seen first 0 min ago, to be installed in 24 h" in err
    code, out, _ = run("outdated")
    assert (code, "held back" in out) == (1, True)
    kept = next(place.rglob(FIRST_SEEN))
    seen = json.loads(kept.read_text())
    kept.write_text(json.dumps(dict.fromkeys(seen, "2026-01-01T00:00:00+00:00")))
    assert run("update", *flags)[0] == 0
    assert lock_of(place)["notes"]["version"] == "1.1.0"
    community.make("1.2.0")
    assert run("update", *flags, "--ignore-age")[0] == 0
    assert lock_of(place)["notes"]["version"] == "1.2.0"


def aged(place: Path, *versions: str, of: StaticRepository) -> None:
    """Let the first sight of some versions be long ago."""
    kept = next(place.rglob(FIRST_SEEN))
    seen = json.loads(kept.read_text())
    document = json.loads((of.place / index_path("default", "notes")).read_text())
    for one in document["versions"]:
        key = next((key for key in seen if key.endswith(one["tree_digest"])), "")
        if one["version"] in versions:
            seen[key] = "2026-01-01T00:00:00+00:00"
    kept.write_text(json.dumps(seen))


@pytest.mark.parametrize("asked", ["notes", "notes@^1.0", "notes@latest"])
def test_the_newest_version_that_waited_is_taken_and_the_newer_one_named(
    run: Run, place: Path, asked: str
):
    official = StaticRepository(place / "official")
    old = "2026-01-01T00:00:00Z"
    official.make("1.0.0", published_at=old)
    more = '[registry]\nmin_release_age = "7d"\n'
    configure(place, ("official", official.address, True), more=more)
    assert run("install", asked, *FLAGS)[0] == 0
    for version in ("1.1.0", "1.2.0"):
        official.make(version, published_at=old)
    fresh = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    official.make("1.3.0", published_at=fresh)
    value = json.loads(run("outdated", "--json")[1])["skills"][0]
    assert (value["newest_version"], value["held"]) == ("1.2.0", "")
    assert value["waiting"].startswith("1.3.0 is held back, seen first ")
    assert "1.0.0 → 1.2.0, 1.3.0 is held back, seen first " in run("outdated")[1]
    code, _, err = run("update", *FLAGS)
    assert (code, lock_of(place)["notes"]["version"]) == (0, "1.2.0"), err
    until = f"{datetime.now(UTC) + timedelta(days=7):%Y-%m-%d}"
    assert "notes: 1.3.0 is held back, seen first 0 min ago, to be installed in 168 h, from " in err
    assert f"from {until} " in err
    assert lock_of(place)["notes"]["requested"] == asked
    # Nothing older comes back, and the newest one is had by a word.
    assert "1.3.0 is held back" in run("update", *FLAGS)[2]
    assert lock_of(place)["notes"]["version"] == "1.2.0"
    assert run("update", *FLAGS, "--ignore-age")[0] == 0
    assert lock_of(place)["notes"]["version"] == "1.3.0"


def test_what_an_index_says_of_files_begins_no_time(run: Run, place: Path):
    """Of a repository that is not trusted the dates are its word: files that were here count."""
    community = StaticRepository(place / "community")
    community.make("1.0.0")
    more = '[registry]\nmin_release_age = "24h"\n'
    configure(place, ("community", community.address, False), more=more)
    flags = (*FLAGS, "--accept-untrusted")
    assert run("install", "notes", *flags)[0] == 0
    for version in ("1.1.0", "1.2.0"):
        community.make(version, published_at="2001-01-01T00:00:00Z")
    assert "notes: 1.2.0 is held back" in run("update", *flags)[2]
    assert lock_of(place)["notes"]["version"] == "1.0.0"
    # 1.2.0 was seen and waits; then 1.3.0 comes, and 1.2.0 has waited.
    aged(place, "1.2.0", of=community)
    community.make("1.3.0")
    code, _, err = run("update", *flags)
    assert (code, lock_of(place)["notes"]["version"]) == (0, "1.2.0"), err
    assert "notes: 1.3.0 is held back" in err


def test_a_version_that_was_taken_back_is_not_the_one_that_waited(run: Run, place: Path):
    official = StaticRepository(place / "official")
    old = "2026-01-01T00:00:00Z"
    official.make("1.0.0", published_at=old)
    more = '[registry]\nmin_release_age = "7d"\n'
    configure(place, ("official", official.address, True), more=more)
    assert run("install", "notes", *FLAGS)[0] == 0
    official.make("1.1.0", published_at=old)
    official.make("1.2.0", published_at=old)
    official.change("notes", "1.2.0", state="yanked", reason="broken")
    official.make("1.3.0", published_at=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
    assert run("update", *FLAGS)[0] == 0
    assert lock_of(place)["notes"]["version"] == "1.1.0"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("/srv/skills", True),
        ("/srv/a:b", True),
        ("./skills", True),
        ("file:///srv/skills", True),
        ("official/@acme", True),
        ("mcp:docs", True),
        ("http://127.0.0.1:8640", True),
        ("http://localhost:8640/x", True),
        ("http://[::1]:8640", True),
        ("https://192.168.0.7/r", True),
        ("https://10.1.2.3/r", True),
        ("https://git.internal/r", True),
        ("https://box/r", True),
        ("ssh://git@box.lan/r", True),
        ("git+ssh://git@10.0.0.7/r", True),
        ("git@box:team/r", True),
        ("git@git.home.arpa:team/r.git", True),
        ("git@192.168.0.7:team/r", True),
        ("git@[fd00::7]:team/r", True),
        ("box:team/r", True),
        ("https://example.com", False),
        ("https://1.1.1.1/r", False),
        ("https://[2606:4700::1111]/r", False),
        ("https://[::ffff:8.8.8.8]/r", False),
        ("https://134744072/r", False),
        ("https://0x08080808/r", False),
        ("ssh://git@github.com/o/r", False),
        ("ssh://github.com:22/o/r", False),
        ("git+ssh://git@github.com/o/r", False),
        ("git@github.com:o/r", False),
        ("git@GitHub.com:o/r.git", False),
        ("github.com:o/r", False),
        ("github.com.:o/r", False),
        ("git@8.8.8.8:o/r", False),
        ("git@[2606:4700::1111]:o/r", False),
        ("git@box.internal.example.com:o/r", False),
    ],
)
def test_an_address_is_our_own_by_its_host_in_every_form(address: str, expected: bool):
    assert is_own(address) is expected
    wanted = timedelta() if expected else PUBLIC_AGE
    assert required_age(RegistrySettings(), address, address, None) == wanted


ONLY = '[[registry.sources]]\nsource = "{}"\n'


def test_only_listed_sources_are_asked_and_installed_from(run: Run, place: Path):
    official = StaticRepository(place / "official")
    official.make("1.0.0")
    mine = make_skill(place / "mine/other")
    configure(place, ("official", official.address, True), more=ONLY.format("official"))
    assert run("install", "notes", *FLAGS)[0] == 0
    for source in (
        str(mine),
        "acme/skills",
        "https://example.com/pdf.zip",
        "https://example.com",
        "git@git.example.com:team/skills.git",
        "mcp:docs/pdf",
    ):
        code, _, err = run("install", source, *FLAGS)
        assert (code, "registry.sources" in err) == (1, True), (source, err)
    lock = place / "project/skills-lock.json"
    lock.write_text(json.dumps({"version": 1, "skills": {"other": {
        "source": str(mine), "sourceType": "local", "computedHash": ""}}}))  # fmt: skip
    assert run("install", "--from-lock", str(lock), *FLAGS)[0] == 1
    assert list(lock_of(place)) == ["notes"]


def test_what_was_installed_before_is_not_updated_or_restored_from_elsewhere(run: Run, place: Path):
    mine = make_skill(place / "mine/other")
    assert run("install", str(mine), *FLAGS)[0] == 0
    configure(place, ("official", "/none", True), more=ONLY.format("official"))
    make_skill(place / "mine/other", "Changed.")
    code, _, err = run("update", *FLAGS)
    assert (code, "registry.sources" in err) == (1, True)
    installed = place / "home/.agents/skills/other"
    before = (installed / "SKILL.md").read_text()
    assert "Changed" not in before
    shutil.rmtree(installed)
    for flags in ((), ("--offline",)):
        code, _, err = run("install", "--frozen", *flags, "--allow-unsigned")
        assert (code, "registry.sources" in err) == (1, True), err
    assert not installed.exists()


def test_a_source_may_require_a_signature_and_name_who_signs(run: Run, place: Path):
    official = StaticRepository(place / "official")
    official.make("1.0.0")
    for more in ("require_signature = true\n", 'publishers = ["acme of skills.example.com"]\n'):
        configure(place, ("official", official.address, True), more=ONLY.format("official") + more)
        code, _, err = run("install", "notes", *FLAGS)
        assert (code, "requires a signature" in err) == (1, True), err
    assert lock_of(place) == {}
