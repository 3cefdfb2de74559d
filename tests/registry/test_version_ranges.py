"""Tests of choosing a version: ranges as npm has them, exact versions, channels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.floor import structs
from skillhouse.registry import SkillReleases
from skillhouse.registry.version_ranges import VersionError, choose, is_older
from tests.registry.test_releases import RELEASE, SKILL


def skill(*versions: str) -> SkillReleases:
    """Return a skill with versions, newest first; `1.0!` is yanked, `1.0!!` revoked."""
    releases = [
        structs.replace(
            RELEASE,
            version=text.rstrip("!"),
            state=("published", "yanked", "revoked")[text.count("!")],
        )
        for text in versions
    ]
    return structs.replace(SKILL, versions=tuple(releases))


NUMBERED = skill("2.1.0-rc.1", "2.0.0", "1.10.0", "1.9.1", "1.9.0", "0.9.5", "0.9.0")


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("", "2.0.0"),
        ("latest", "2.0.0"),
        ("^1", "1.10.0"),
        ("^1.9", "1.10.0"),
        ("~1.9.0", "1.9.1"),
        ("1.9", "1.9.1"),
        ("1.x", "1.10.0"),
        ("=1.9.0", "1.9.0"),
        ("v1.9.0", "1.9.0"),
        ("1.9.0", "1.9.0"),
        ("<1.9", "0.9.5"),
        (">= 1 <1.10", "1.9.1"),
        (">=1, <1.10", "1.9.1"),
        ("^0.9.0", "0.9.5"),
        ("0.9.0 - 1.9.0", "1.9.0"),
        ("0.9.0 || 1.9.x", "1.9.1"),
        ("*", "2.0.0"),
        ("2.1.0-rc.1", "2.1.0-rc.1"),
        (">=2.1.0-rc.0", "2.1.0-rc.1"),
    ],
)
def test_the_newest_version_of_a_range_is_chosen(wanted, expected):
    assert choose(NUMBERED, wanted).release.version == expected


@pytest.mark.req("S002-105")
@pytest.mark.parametrize(
    ("wanted", "code", "said"),
    [
        ("3.0.0", "unknown-version", "no version `3.0.0`; there are `2.0.0`, "),
        ("^7", "unknown-version", "`1.9.1`"),
        ("betta", "unknown-version", "there are `beta`, "),
        ("nothing", "unknown-version", "and 2 more"),
        (">>1", "range", "expected a version, a range such as `^1.2`"),
        ("1.2.3.4", "range", "got '1.2.3.4'"),
        ("^1 || spring", "range", "got '^1 || spring'"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(wanted, code, said):
    channels = {"beta": "2.1.0-rc.1"}
    with pytest.raises(VersionError) as caught:
        choose(structs.replace(NUMBERED, channels=channels), wanted)
    assert caught.value.code == code
    assert said in str(caught.value)


def test_a_channel_names_a_version_and_latest_is_what_we_find():
    channels = {"beta": "2.1.0-rc.1", "latest": "0.9.0", "gone": "9.0.0"}
    found = structs.replace(NUMBERED, channels=channels, latest="0.9.0")
    assert choose(found, "beta").release.version == "2.1.0-rc.1"
    assert choose(found, "beta").channel == "beta"
    # Neither the field nor a channel `latest` leads back to an old version.
    assert choose(found, "latest").release.version == "2.0.0"
    with pytest.raises(VersionError, match="names no version"):
        choose(found, "gone")


def test_what_was_taken_back_is_chosen_from_a_lock_only():
    found = skill("1.3.0!!", "1.2.0!", "1.1.0", "1.0.0")
    chosen = choose(found, "^1")
    assert (chosen.release.version, chosen.newer_yanked) == ("1.1.0", ("1.3.0", "1.2.0"))
    assert choose(found, "1.2.0", allow_yanked="1.2.0").release.version == "1.2.0"
    for wanted, allowed, code in (
        ("1.2.0", "", "yanked"),
        ("1.2.0", "1.1.0", "yanked"),
        ("1.3.0", "1.3.0", "revoked"),
        ("^1.2.0", "1.2.0", "unknown-version"),
    ):
        with pytest.raises(VersionError) as caught:
            choose(found, wanted, allow_yanked=allowed)
        assert caught.value.code == code
    with pytest.raises(VersionError, match="no published version"):
        choose(skill("1.0!"), "2")
    with pytest.raises(VersionError, match=r"may be installed: 1\.0 \(yanked\)"):
        choose(skill("1.0!"), "")


def test_versions_of_other_forms_are_in_the_order_of_the_document():
    found = skill("spring", "autumn")
    assert choose(found, "").release.version == "spring"
    assert choose(found, "autumn").release.version == "autumn"
    assert choose(skill("2024-spring", "1.0", "0.9"), "").release.version == "1.0"
    with pytest.raises(VersionError, match="no version `latest`"):
        choose(skill("1.0.0-rc.1"), "")
    assert is_older("1.9", "1.10")
    assert not is_older("1.10", "1.10.0")


@given(st.text(max_size=30), st.text(alphabet="0123456789.^~<>=|x-* v", max_size=20))
def test_no_text_is_more_than_refused(text, spec):
    for wanted in (text, spec):
        try:
            choose(NUMBERED, wanted)
        except VersionError:
            continue
