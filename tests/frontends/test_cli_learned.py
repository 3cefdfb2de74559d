"""`search --learned` and `--forget-learned`: what searches taught is shown and removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skillhouse.house import Skillhouse, configured
from tests.frontends.conftest import Run
from tests.house.places import make_places, write_skill

pytestmark = pytest.mark.slow


def test_what_was_learned_is_listed_shown_with_hits_and_forgotten(run: Run, place: Path) -> None:
    file = write_skill(place / "home/.agents/skills/ledger", description="Keeps a ledger.")
    config = place / "home/.config/skillhouse/config.toml"
    config.parent.mkdir(parents=True)
    assert run("search", "--learned")[2].endswith(
        "learning is off: set `learn = true` in [search]\n"
    )
    config.write_text("[search]\nlearn = true\n")
    with Skillhouse(configured(make_places(place))) as house:
        for session in ("one", "two", "three"):
            house.call_sync("search_skills", {"query": "our ledger"}, session_id=session)
            house.call_sync("skill", {"name": "ledger"}, session_id=session)
    value = json.loads(run("search", "--learned", "--json")[1])
    assert (value["list"], value["total"], value["learn"]) == ("choices", 3, True)
    assert value["choices"][0]["file"] == str(file / "SKILL.md")
    assert value["choices"][0]["words"] == ["ledger", "our"]
    assert "ledger our" in run("search", "--learned")[1]
    assert "loaded for similar requests" in run("search", "our", "ledger")[1]
    [hit] = json.loads(run("search", "our", "ledger", "--json")[1])["hits"][:1]
    assert (hit["name"], hit["learned"]) == ("ledger", pytest.approx(0.5, abs=0.01))
    assert "search learns from what is loaded: 3 choices kept" in " ".join(run("doctor")[1].split())
    assert run("search", "--forget-learned")[2] == "forgot 3 choices of skills after searches\n"
    assert json.loads(run("search", "--forget-learned", "--json")[1]) == {"forgotten": 0}
    assert "loaded for similar requests" not in run("search", "our", "ledger")[1]


def test_what_is_not_asked_together_is_refused(run: Run, place: Path) -> None:
    for arguments in ((), ("--learned", "--forget-learned"), ("pdf", "--learned")):
        code, _, err = run("search", *arguments)
        assert (code, err.startswith("skillhouse: expected ")) == (2, True)
