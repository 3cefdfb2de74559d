"""Attacks by what a public collection holds, and by what is kept of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from skillhouse.install.public_collections import collections
from tests.frontends.conftest import Run, place, run
from tests.install.test_public_collections import AGREED, github
from tests.registry.sources import commit, make_skill

__all__ = ["github", "place", "run"]

pytestmark = pytest.mark.slow


def test_a_collection_cannot_write_to_the_terminal_or_name_another_place(
    github: Path, run: Run
) -> None:
    origin = github / f"{collections()[0]}.git"
    hostile = make_skill(origin / "skills/hostile")
    text = (hostile / "SKILL.md").read_text()
    escape = text.replace("About hostile.", '"\\e]0;owned\\a\\u202eAbout hostile."')
    (hostile / "SKILL.md").write_text(escape)
    for name in ("x@--upload-pack=x", "y#v1", "z\x1b[2J"):
        make_skill(origin / "skills" / name / "inner")
    commit(origin)
    code, out, err = run("install", "--search", "", "--public")
    assert code == 0, err
    assert "\x1b" not in out + err
    assert "\u202e" not in out + err
    assert "inner" not in out
    assert run("install", "inner", "--public", *AGREED)[0] == 1


def test_what_is_kept_leads_into_the_collection_and_nowhere_else(
    github: Path, run: Run, place: Path
) -> None:
    """Whoever writes the cache chooses a directory of the same repository at most."""
    assert run("install", "--search", "tool", "--public")[0] == 0
    secret = make_skill(place / "evil/pdf")
    for path in ("../../../evil/pdf", "/etc", "x@main", "--option", "a\n b", str(secret)):
        for file in place.rglob("collections/*.json"):
            kept = json.loads(file.read_text())
            kept["skills"] = [{"name": "pdf", "description": "x", "path": path}]
            file.write_text(json.dumps(kept) if kept["source"] == collections()[0] else "{}")
        code, out, err = run("install", "pdf", "--public", *AGREED)
        assert code == 1, out
        assert not (place / "home/.agents/skills/pdf").exists()
        assert "\n b" not in err


def test_a_cache_that_cannot_be_written_or_is_no_file_costs_no_answer(
    github: Path, run: Run, place: Path
) -> None:
    assert run("install", "--search", "tool", "--public")[0] == 0
    (kept, *_) = place.rglob("collections/*.json")
    kept.unlink()
    os.mkfifo(kept)
    code, out, err = run("install", "--search", "tool", "--public")
    assert code == 0, err
    assert len(out.splitlines()) == len(collections())
