"""Tests of signed_targets.py: what is kept, asked and said. tests/attacks has the attacks."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skillhouse.house.config import RepositorySettings
from skillhouse.install.pinned_roots import registry_name, signed_by_root
from skillhouse.registry import DirectoryAccess, Repository, RepositoryAnswer, RepositoryError
from skillhouse.registry.releases import index_path
from skillhouse.registry.signed_targets import SignedTargets
from tests.registry.repositories import StaticRepository
from tests.registry.rooted import RootedRegistry

PDF = index_path("default", "pdf")


class Counted:
    """Reads a directory, or answers in the same way to all; keeps what was asked."""

    def __init__(self, place: Path, answer: RepositoryAnswer | None = None) -> None:
        self.files = DirectoryAccess(place)
        self.answer = answer
        self.asked: list[str] = []

    def __call__(self, path: str, max_bytes: int, **_: Any) -> RepositoryAnswer:
        self.asked.append(path)
        return self.answer or self.files(path, max_bytes)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RootedRegistry]:
    made = RootedRegistry(tmp_path)
    made.publish("pdf", "1.0.0", "acme")
    yield made
    made.close()


def opened(registry: RootedRegistry, access: Any, **changes: Any) -> SignedTargets:
    values = {
        "address": "https://skills.example.com",
        "root": registry.root,
        "state": registry.place / "seen",
        "stale_days": 7,
        **changes,
    }
    return SignedTargets(access, **values)


def test_what_is_kept_is_not_asked_for_again(registry: RootedRegistry):
    access = Counted(registry.directory)
    first = opened(registry, access).read(PDF)
    assert len(access.asked) == 8
    access.asked.clear()
    signed = opened(registry, access)
    assert (signed.read(PDF), signed.read(PDF)) == (first, first)
    assert access.asked == ["metadata/2.root.json", "metadata/timestamp.json"]


def test_a_kept_document_that_was_changed_is_fetched_again(registry: RootedRegistry):
    access = Counted(registry.directory)
    first = opened(registry, access).read(PDF)
    (kept,) = (registry.place / "seen/targets").iterdir()
    kept.write_bytes(b"{}")
    assert opened(registry, access).read(PDF) == first


def test_a_name_that_is_not_signed_is_none(registry: RootedRegistry):
    assert opened(registry, Counted(registry.directory)).read("index/00/00/default/no.json") is None


def test_the_root_may_be_any_in_a_file(registry: RootedRegistry, tmp_path: Path):
    registry.roles.rotate(online=True)
    registry.sign()
    file = registry.directory / "metadata/2.root.json"
    settings = RepositorySettings(name="team", url="/srv", root=f"file:{file}")
    make = signed_by_root(settings, tmp_path / "state")
    assert make is not None
    assert make("x", DirectoryAccess(registry.directory)).read(PDF)
    assert signed_by_root(RepositorySettings(name="team", url="/srv"), tmp_path) is None


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (RepositoryAnswer(status=503), "unreachable"),
        (RepositoryAnswer(status=401), "unauthorized"),
        (RepositoryAnswer(status=404), "signed"),
        (RepositoryAnswer(status=200, body=b"{}"), "signed"),
        (RepositoryAnswer(status=200, body=b"\xff" * 100), "signed"),
    ],
)
@pytest.mark.parametrize("user", ["existing", "fresh"])
def test_any_other_answer_is_an_error_of_ours(
    registry: RootedRegistry, user: str, answer: RepositoryAnswer, code: str
):
    if user == "existing":
        opened(registry, Counted(registry.directory)).read(PDF)
    with pytest.raises(RepositoryError) as caught:
        opened(registry, Counted(registry.directory, answer)).read(PDF)
    assert caught.value.code == code
    assert opened(registry, Counted(registry.directory)).read(PDF)


def test_a_state_that_cannot_be_kept_is_said(registry: RootedRegistry):
    (registry.place / "file").write_text("")
    with pytest.raises(RepositoryError, match="cannot be kept"):
        opened(registry, Counted(registry.directory), state=registry.place / "file/seen").read(PDF)


def read_often(place: Path, root: str, state: Path) -> None:
    for _ in range(5):
        signed = SignedTargets(
            DirectoryAccess(place), address="x", root=root, state=state, stale_days=7
        )
        assert signed.read(PDF)
        assert signed.read("registry.json")


@pytest.mark.slow
def test_several_processes_share_a_state(registry: RootedRegistry):
    fresh = multiprocessing.get_context("spawn")
    arguments = (registry.directory, registry.root, registry.place / "seen")
    readers = [fresh.Process(target=read_often, args=arguments) for _ in range(3)]
    for one in readers:
        one.start()
    for version in ("1.1.0", "1.2.0", "1.3.0"):
        registry.publish("pdf", version, "acme")
    for one in readers:
        one.join(60)
    assert [one.exitcode for one in readers] == [0, 0, 0]


def test_a_configured_registry_holds_where_the_repository_says_nothing(tmp_path: Path):
    settings = RepositorySettings(name="team", url="/srv", registry="company.example")
    made = StaticRepository(tmp_path / "public", "public.example")
    access = DirectoryAccess(made.place)
    with pytest.raises(RepositoryError, match=r"it calls itself `public\.example`"):
        registry_name(settings, Repository("x", access))
    (made.place / "registry.json").unlink()
    assert registry_name(settings, Repository("x", access)) == "company.example"
    plain = RepositorySettings(name="team", url="/srv")
    assert registry_name(plain, Repository("x", access)) == ""
