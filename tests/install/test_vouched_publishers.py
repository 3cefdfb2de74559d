"""Tests of the roots of publishers that a pinned root vouches for, and then no more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillhouse.registry import TRUSTED_DIRECTORY, AnchorStore, fingerprint, pem_of
from tests.frontends.conftest import Run, place, run
from tests.frontends.test_cli_repositories import configure
from tests.registry.pki import NOW, make_root
from tests.registry.rooted import RootedRegistry

__all__ = ["place", "run"]
AGREED = ("--yes", "--allow-unsigned", "--accept-untrusted")
LOAD = ("call", "skill", "--args", '{"name": "pdf"}')


@pytest.fixture
def registry(place: Path) -> Iterator[RootedRegistry]:
    made = RootedRegistry(place)
    made.publish("pdf", "1.0.0", "acme")
    pinned = f'root = "{made.root}"\n'
    configure(place, ("team", made.directory.as_uri(), True), more=pinned)
    yield made
    made.close()


def trusted(run: Run) -> list[str]:
    return [one["certificate"] for one in json.loads(run("keys", "trust", "--json")[1])["roots"]]


def vouch(registry: RootedRegistry, *parties: object) -> None:
    registry.roles.set_publishers(pem_of([one.certificate for one in parties]))  # type: ignore[attr-defined]
    registry.sign()


@pytest.mark.parametrize("verb", [("verify",), ("outdated",), ("update", *AGREED)])
def test_one_that_is_taken_out_is_forgotten_at_the_next_look(
    run: Run, registry: RootedRegistry, verb: tuple[str, ...]
) -> None:
    assert run("install", "pdf", *AGREED)[0] == 0
    old = fingerprint(registry.authority.certificate)
    assert (trusted(run), run(*LOAD)[0]) == ([old], 0)
    following = make_root(now=registry.now)
    vouch(registry, registry.authority, following)
    run(*verb)
    assert set(trusted(run)) == {old, fingerprint(following.certificate)}
    vouch(registry, following)
    run(*verb)
    assert trusted(run) == [fingerprint(following.certificate)]
    # What it signed is loaded no more.
    assert run(*LOAD)[0] == 1
    vouch(registry, registry.authority)
    run(*verb)
    assert (trusted(run), run(*LOAD)[0]) == ([old], 0)


@pytest.mark.parametrize("when", ["before", "after"])
def test_one_that_a_person_trusts_stays(
    run: Run, place: Path, registry: RootedRegistry, when: str
) -> None:
    file = place / "root.crt"
    file.write_text(registry.publishers)
    if when == "before":
        assert run("keys", "trust", str(file))[0] == 0
    assert run("install", "pdf", *AGREED)[0] == 0
    if when == "after":
        assert run("keys", "trust", str(file))[0] == 0
    following = make_root(now=registry.now)
    vouch(registry, following)
    run("verify")
    both = {fingerprint(registry.authority.certificate), fingerprint(following.certificate)}
    assert set(trusted(run)) == both
    assert run(*LOAD)[0] == 0


def test_a_pin_that_is_taken_back_takes_them_along(
    run: Run, place: Path, registry: RootedRegistry
) -> None:
    configure(place, ("team", registry.directory.as_uri(), True))
    assert run("keys", "trust", "--repository", "team", "--fingerprint", registry.root)[0] == 0
    assert run("install", "pdf", *AGREED)[0] == 0
    assert len(trusted(run)) == 1
    assert run("keys", "trust", "--remove", registry.root)[0] == 0
    assert trusted(run) == []


@pytest.fixture
def store(tmp_path: Path) -> AnchorStore:
    return AnchorStore(tmp_path / TRUSTED_DIRECTORY)


def roots(store: AnchorStore) -> set[str]:
    return {fingerprint(one) for one in store.read(NOW).roots}


def test_one_that_two_repositories_vouch_for_stays_until_neither_does(store: AnchorStore) -> None:
    one, other = make_root().certificate, make_root().certificate
    assert store.take_vouched("a", [one, other]) == ()
    assert store.take_vouched("b", [one]) == ()
    assert store.take_vouched("a", [other]) == ()
    assert roots(store) == {fingerprint(one), fingerprint(other)}
    assert store.take_vouched("b", []) == (fingerprint(one),)
    assert roots(store) == {fingerprint(other)}
    assert store.take_vouched("a", []) == (fingerprint(other),)
    assert roots(store) == set()


def test_what_stopped_half_way_is_ended_by_the_next_look(
    store: AnchorStore, tmp_path: Path
) -> None:
    one, other = make_root().certificate, make_root().certificate
    store.take_vouched("a", [one])
    # The record came, and the root did not.
    (tmp_path / TRUSTED_DIRECTORY / f"roots/{fingerprint(one)}.crt").unlink()
    store.take_vouched("a", [one])
    assert roots(store) == {fingerprint(one)}
    # Both are in the record, and the one that goes is still there.
    record = tmp_path / TRUSTED_DIRECTORY / "vouched/a.txt"
    record.write_text(f"{fingerprint(one)}\n{fingerprint(other)}")
    store.take_vouched("a", [other])
    assert roots(store) == {fingerprint(other)}
