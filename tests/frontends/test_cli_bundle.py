"""Tests of `skillhouse bundle`: published by one, taken by others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.frontends.conftest import Run
from tests.house.places import write_skill
from tests.registry.publisher_skill import LOCKED, REGISTRY

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("publisher")]


@pytest.fixture
def skills(place: Path) -> Path:
    write_skill(place / "made/notes")
    write_skill(place / "made/winds")
    (place / "made/README.md").write_text("not a skill")
    return place / "made"


def configure(source: str) -> None:
    file = Path.home() / ".config/skillhouse/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    text = f'[skills]\nsource = "{source}"\nsource_publisher = "acme of {REGISTRY}"\n'
    file.write_text(text)


def test_a_bundle_is_published_taken_and_shown(run: Run, place: Path, skills: Path) -> None:
    source = f"file://{place / 'store/team'}"
    code, out, _ = run("bundle", "push", str(skills), source, *LOCKED)
    said = f"bundle 1 of `{source}` is published: 2 skills, signed by acme of {REGISTRY}\n"
    assert (code, out) == (0, said)

    configure(source)
    assert run("bundle")[:2] == (0, f"{source}\n  bundle    none yet\n")
    code, out, _ = run("bundle", "pull")
    assert (code, out.splitlines()[0]) == (0, f"{source}: taken now")
    assert "  skills    notes, winds" in out
    assert "remote:winds" in run("list", "--json")[1]
    assert run("list")[1].startswith(f"remote  {source[:40]}")

    write_skill(skills / "winds", body="Zephyr.\n")
    published = json.loads(run("bundle", "push", str(skills), source, "--json", *LOCKED)[1])
    assert (published["number"], published["skills"]) == (2, ["notes", "winds"])
    code, out, _ = run("bundle", "pull", "--json")
    taken = json.loads(out)
    assert (code, taken["status"], taken["number"]) == (0, "taken", 2)
    assert taken["digest"] == published["digest"]
    assert json.loads(run("bundle", "pull", "--json")[1])["status"] == "unchanged"


def test_what_is_refused_is_said_with_what_is_kept(run: Run, place: Path, skills: Path) -> None:
    store = place / "store/team"
    source = f"file://{store}"
    run("bundle", "push", str(skills), source, *LOCKED)
    configure(source)
    run("bundle", "pull")
    (store / "current.json").write_text("{}")
    code, out, err = run("bundle", "pull")
    assert (code, out.splitlines()[0]) == (1, f"{source}: not taken")
    assert err.endswith("; bundle 1 is kept\n")
    assert "; bundle 1 is kept" in " ".join(run("doctor")[1].split())
    assert json.loads(run("bundle", "show", "--json")[1])["failures"] == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("made", "https://example.com/team"), "expected s3://BUCKET/PATH or file:///DIRECTORY"),
        (("made", "STORE", "--number", "0"), "expected a number from 1"),
        (("made", "STORE", "--key", "root"), "issues certificates"),
        (("empty", "STORE"), "expected directories with a `SKILL.md`"),
    ],
)
def test_what_cannot_be_published_is_said(
    run: Run, place: Path, skills: Path, words: tuple[str, ...], said: str
) -> None:
    (place / "empty").mkdir()
    source = f"file://{place / 'store/team'}"
    given = [source if word == "STORE" else word for word in words]
    given[0] = str(place / given[0])
    code, _, err = run("bundle", "push", *given, *LOCKED)
    assert code != 0
    assert said in " ".join(err.split())
    assert not (place / "store/team/current.json").exists()


def test_without_a_source_nothing_is_pulled(run: Run) -> None:
    code, _, err = run("bundle", "pull")
    assert code != 0
    assert "set `source` and `source_publisher` in `[skills]`" in err
