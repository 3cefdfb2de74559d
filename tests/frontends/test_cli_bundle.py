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


def configure(source: str, more: str = "") -> None:
    file = Path.home() / ".config/skillhouse/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    text = f'[skills]\nsource = "{source}"\nsource_publisher = "acme of {REGISTRY}"\n'
    file.write_text(text + more)


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


RULES = '[[rules]]\neffect = "deny"\naction = "exec"\npattern = "rm *"\n'
POLICY = 'version: "1"\ntools:\n  exec:\n    tier: 1\n'


def test_rules_and_a_policy_of_a_bundle_are_shown_with_their_source(
    run: Run, place: Path, skills: Path
) -> None:
    source = f"file://{place / 'store/team'}"
    (place / "rules.toml").write_text(RULES)
    (place / "tiers.yml").write_text(POLICY)
    given = ("--config", str(place / "rules.toml"), "--policy", str(place / "tiers.yml"))
    code, out, _ = run("bundle", "push", str(skills), source, *given, "--dry-run", *LOCKED)
    said = f"bundle 1 of `{source}` would be published: 2 skills, config.toml, policy.yml, signed"
    assert (code, out.startswith(said)) == (0, True)
    assert not (place / "store").exists()
    pushed = run("bundle", "push", str(skills), source, *given, "--json", *LOCKED)[1]
    published = json.loads(pushed)
    assert (published["files"], published["dry_run"]) == (["config.toml", "policy.yml"], False)

    configure(source)
    assert run("bundle", "pull", "--dry-run")[1].startswith(f"{source}: would be taken\n")
    assert run("bundle")[1].endswith("none yet\n")
    code, out, _ = run("bundle", "pull")
    assert "  rules     config.toml: only stricter than this machine's own\n" in out
    assert "  policy    policy.yml: used\n" in out

    label = f"bundle team {published['digest'][7:19]}"
    shown = run("config", "show")[1]
    assert f'{source}"\n' in shown
    assert f"# {label}, number 1: only stricter than this machine's own\n" in shown
    assert '#   pattern = "rm *"\n#   version: "1"\n' in shown
    found = json.loads(run("config", "show", "--json")[1])["bundle"]
    assert (found["source"], found["text"], found["policy"]) == (label, RULES, POLICY)
    assert f"# {label}, number 1" in run("policy", "show")[1]
    assert json.loads(run("policy", "show", "--json")[1])["bundle"]["source"] == label
    assert label in run("policy", "list")[1]
    code, out, _ = run("policy", "explain", "exec", "rm", "x")
    assert code == 1
    assert f"rule `exec rm *` of {label} policy" in out
    assert "  bundle" in run("config", "path")[1]


def test_what_a_bundle_may_not_set_is_not_published(run: Run, place: Path, skills: Path) -> None:
    source = f"file://{place / 'store/team'}"
    file = place / "rules.toml"
    file.write_text("[registry]\nrequire_signature = false\n")
    for more in ((), ("--dry-run",)):
        words = ("bundle", "push", str(skills), source, "--config", str(file), *more, *LOCKED)
        code, _, err = run(*words)
        assert code != 0
        assert "key `registry` cannot be set by a bundle" in " ".join(err.split())
    assert not (place / "store").exists()


def test_a_person_goes_back_once(run: Run, place: Path, skills: Path) -> None:
    store = place / "store/team"
    source = f"file://{store}"
    run("bundle", "push", str(skills), source, *LOCKED)
    first = (store / "current.json").read_bytes()
    configure(source)
    write_skill(skills / "winds", body="Zephyr.\n")
    run("bundle", "push", str(skills), source, *LOCKED)
    run("bundle", "pull")
    (store / "current.json").write_bytes(first)
    code, _, err = run("bundle", "pull")
    assert code == 1
    assert "`skillhouse bundle pull --allow-older` takes it; bundle 2 is kept" in err
    code, out, _ = run("bundle", "pull", "--allow-older")
    assert (code, "  bundle    1, taken" in out) == (0, True)


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
