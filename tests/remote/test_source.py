"""Tests of remote/source.py."""

from __future__ import annotations

import json
from typing import Any

import pytest

from skillhouse.floor import ConfigError
from skillhouse.remote import RemoteError, RemoteSource
from skillhouse.remote.source import read_listing
from tests.remote.servers import BASE, SCHEMA, WELL_KNOWN

DIGEST = f"sha256:{'a' * 64}"
GOOD = {"name": "a", "type": "skill-md", "description": "x", "url": "a.md", "digest": DIGEST}


@pytest.mark.parametrize(
    "url",
    ["skills.test", "ftp://skills.test", "https://u:p@skills.test", "https://x/?q", "https://x/#f",
     "file:///etc", ""],
)  # fmt: skip
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="expected https"):
        RemoteSource(url=url)


def listed(entry: Any, *, kind: str = "well-known") -> Any:
    source = RemoteSource(url=BASE, kind=kind)  # type: ignore[arg-type]
    document: dict[str, Any] = {"skills": [entry]}
    if kind == "well-known":
        document["$schema"] = SCHEMA
    return read_listing(source, json.dumps(document).encode(), WELL_KNOWN)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "../x"}, "no usable name"),
        ({"name": "A"}, "no usable name"),
        ({"name": 1}, "no usable name"),
        ({"type": "zip"}, "unknown type"),
        ({"digest": "sha256:abc"}, "expected a sha256 digest"),
        ({"digest": None}, "expected a sha256 digest"),
        ({"digest": f"md5:{'a' * 64}"}, "expected a sha256 digest"),
        ({"url": None}, "no url"),
        ({"url": "file:///etc/passwd"}, "refused address"),
        ({"url": "http://skills.test/a"}, "refused address"),
    ],
)
def test_an_entry_that_breaks_the_rfc_is_passed_over(change: dict[str, Any], said: str) -> None:
    found = listed({**GOOD, **change})
    assert found.skills == ()
    assert said in found.problems[0]


def test_unknown_fields_are_ignored_and_addresses_resolved() -> None:
    (skill,) = listed({**GOOD, "extra": 1, "url": "/x/a.md"}).skills
    assert [a.url for a in skill.artifacts] == [f"{BASE}/x/a.md"]


@pytest.mark.parametrize(
    "file",
    ["../x", "/etc/passwd", "a/../../x", "..%2fx", "%2e%2e/x", "a\\b", "a?b", "a#b", "https://x/y",
     "a%00b", "C:\\x", "", "a\nb", "%252e%252e/x"],
)  # fmt: skip
def test_trap_16_a_listed_file_never_means_another_place(file: str) -> None:
    found = listed({"name": "a", "files": ["SKILL.md", file]}, kind="opencode")
    assert found.skills == ()
    assert "passed over" in found.problems[0]


def test_a_list_without_the_skills_own_file_or_with_one_twice_is_passed_over() -> None:
    for files, said in ((["x.md"], "no SKILL.md"), (["SKILL.md", "skill.md"], "one place")):
        assert said in listed({"name": "a", "files": files}, kind="opencode").problems[0]


def test_an_unknown_schema_is_not_processed() -> None:
    document = json.dumps({"$schema": "https://x/9", "skills": [GOOD]}).encode()
    with pytest.raises(RemoteError, match="unknown schema"):
        read_listing(RemoteSource(url=BASE), document, WELL_KNOWN)


def test_too_many_skills_are_said_to_be_left_out() -> None:
    document = {"$schema": SCHEMA, "skills": [{**GOOD, "name": f"s{n}"} for n in range(1_002)]}
    found = read_listing(RemoteSource(url=BASE), json.dumps(document).encode(), WELL_KNOWN)
    assert (len(found.skills), found.problems[-1]) == (
        1_000,
        "2 skills over the first 1000 left out",
    )
