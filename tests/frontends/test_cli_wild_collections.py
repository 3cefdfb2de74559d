"""Thirteen collections made after public ones: no traceback, each skill installed or refused."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from skillhouse.floor import InternalFaultError
from skillhouse.presentation.text import shown
from tests.frontends.conftest import Run
from tests.wild_collections import SIZES, Collection, make_collection

AGREED = ("--yes", "--allow-unsigned", "--json")


def outcomes_of(run: Run, place: Path, made: Collection) -> dict[str, str]:
    """Install a whole collection; return `installed` for each skill, or why it is refused."""
    code, out, err = run("install", f"git+file://{made.repository}", "--all", *AGREED)
    found = json.loads(out)["skills"]
    refused = {one["source"]: one["error"] for one in found if "error" in one}
    assert code == (1 if refused else 0)
    # Each is said with its name where a person sees it, in a line of its own.
    said = [line for line in err.splitlines() if line.startswith("skillhouse: ")]
    assert len(said) == len(refused)
    assert "Traceback" not in err
    return refused | {one["inside"]: one["status"] for one in found if "error" not in one}


ALWAYS = (("list",), ("verify", "--offline"))
ALSO = (*ALWAYS, ("search", "react"), ("doctor",))


def check(
    run: Run, place: Path, name: str, count: int, verbs: Sequence[tuple[str, ...]] = ALWAYS
) -> None:
    made = make_collection(place, name, count)
    outcomes = outcomes_of(run, place, made)
    assert sorted(set(made.skills) - set(outcomes)) == []
    refused = {path: text for path, text in outcomes.items() if text != "installed"}
    assert all(text and text.isprintable() for text in map(shown, refused.values()))
    assert [text for text in refused.values() if InternalFaultError.code in text] == []
    assert [text for text in refused.values() if "unexpected fault" in text] == []
    installed = len(outcomes) - len(refused)
    assert installed > len(outcomes) // 2
    lock = json.loads((place / "home/.config/skillhouse/skills.lock").read_text())["skills"]
    assert len(lock) == installed
    for verb in verbs:
        code, out, err = run(*verb, "--json")
        assert "error" not in json.loads(out), err
        assert code == 0 or verb == ("doctor",)
    assert not (place / "home/.local/state/skillhouse/faults").exists()
    reasons = Counter(text.partition("]")[0].rpartition("[")[2] for text in refused.values())
    print(f"{name}: {len(outcomes)} found, {installed} installed, refused {dict(reasons)}")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["flat", "mixed", "odd"])
def test_a_slice_of_a_collection_is_installed_or_refused(run: Run, place: Path, name: str) -> None:
    check(run, place, name, 40, ALSO)


@pytest.mark.heavy
@pytest.mark.parametrize(
    "name",
    # CI has the largest, which is the oddest; the others take a quarter of an hour.
    [pytest.param(n, marks=() if n == "odd" else pytest.mark.nightly) for n in SIZES],
)
def test_each_skill_of_a_collection_is_installed_or_refused_with_its_reason(
    run: Run, place: Path, name: str
) -> None:
    check(run, place, name, SIZES[name])
