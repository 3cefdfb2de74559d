"""Skills of one repository are fetched together by every verb that takes several of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from skillhouse.install import opened_sources
from tests.frontends.conftest import Run
from tests.registry.sources import commit, make_repository, make_skill

AGREED = ("--yes", "--allow-unsigned")
NAMES = ("a-one", "b-two", "c-one", "d-two", "e-one", "f-two")
"""Each in the repository of its end, so that the two take turns."""


@pytest.fixture
def origins(place: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Two repositories, and room for one source at a time, as for the ninth of many."""
    monkeypatch.setattr(opened_sources, "OPEN_MAX", 1)
    made = {end: place / f"origin-{end}" for end in ("one", "two")}
    for name in NAMES:
        make_skill(made[name.partition("-")[2]] / "skills" / name)
    for origin in made.values():
        make_repository(origin)
    return made


def origin_of(origins: dict[str, Path], name: str) -> str:
    return origins[name.partition("-")[2]].as_uri()


def installed(run: Run, origins: dict[str, Path]) -> None:
    for name in NAMES:
        assert run("install", f"{origin_of(origins, name)}@main", "--skill", name, *AGREED)[0] == 0


def changed(origins: dict[str, Path]) -> None:
    for name in NAMES:
        make_skill(origins[name.partition("-")[2]] / "skills" / name, "Changed.")
    for origin in origins.values():
        commit(origin)


@pytest.mark.parametrize("names", [(), NAMES])
@pytest.mark.parametrize("verb", ["update", "outdated"])
def test_an_update_fetches_each_repository_once(
    run: Run, place: Path, origins: dict[str, Path], verb: str, names: tuple[str, ...]
) -> None:
    installed(run, origins)
    changed(origins)
    flags = (*AGREED, "--ignore-age") if verb == "update" else ()
    code, _, err = run(verb, *names, *flags)
    assert (code, err.count("fetching ")) == (int(verb == "outdated"), 2), err
    texts = [(place / f"home/.agents/skills/{name}/SKILL.md").read_text() for name in NAMES]
    assert all("Changed." in one for one in texts) is (verb == "update")


def test_a_frozen_install_fetches_each_repository_once(
    run: Run, place: Path, origins: dict[str, Path]
) -> None:
    installed(run, origins)
    shutil.rmtree(place / "home/.agents/skills")
    shutil.rmtree(place / "home/.local/state/skillhouse/installs")
    code, out, err = run("install", "--frozen", "--allow-unsigned")
    assert (code, err.count("fetching ")) == (0, 2), out + err
    assert sorted(one.name for one in (place / "home/.agents/skills").iterdir()) == list(NAMES)


@pytest.mark.parametrize("picked", [NAMES, ("f-two", "a-one", "b-two", "c-one")])
def test_another_installers_lock_fetches_each_repository_once(
    run: Run, place: Path, origins: dict[str, Path], picked: tuple[str, ...]
) -> None:
    skills = {
        name: {
            "source": origin_of(origins, name),
            "sourceUrl": origin_of(origins, name),
            "sourceType": "git",
            "skillPath": f"skills/{name}/SKILL.md",
            "computedHash": "",
        }
        for name in NAMES
    }
    lock = place / "home/.agents/.skill-lock.json"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text(json.dumps({"version": 1, "skills": skills}))
    chosen = [word for name in picked for word in ("--skill", name)]
    code, out, err = run("install", "--from-lock", str(lock), *chosen, *AGREED)
    assert (code, err.count("fetching ")) == (0, 2), out + err
    found = sorted(one.name for one in (place / "home/.agents/skills").iterdir())
    assert found == sorted(picked)
