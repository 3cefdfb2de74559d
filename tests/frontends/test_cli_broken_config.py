"""A file of the configuration that cannot be used: `doctor` and `policy lint` go on and say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.frontends.conftest import Run
from tests.house.places import write_skill

BROKEN = '[[rules]]\neffect = "alow"\naction = "exec"\npattern = "x"\n'


@pytest.fixture
def config(place: Path) -> Path:
    directory = place / "home/.config/skillhouse"
    directory.mkdir(parents=True)
    write_skill(place / "home/.claude/skills/pdf")
    return directory


@pytest.mark.slow
def test_doctor_goes_on_with_a_broken_configuration(run: Run, config: Path) -> None:
    (config / "config.toml").write_text(BROKEN)
    assert run("list")[0] == 2
    code, out, _ = run("doctor")
    text = " ".join(out.split())
    assert code == 1
    assert "line 2: wrong value: `effect` is one of allow, ask, deny" in text
    assert "claude-code" in text
    value = json.loads(run("doctor", "--json")[1])
    assert [(one["code"], one["line"]) for one in value["configuration"]] == [
        ("config-unusable", 2)
    ]
    assert [skill["name"] for skill in value["skills"]] == ["pdf"]


@pytest.mark.slow
def test_policy_lint_names_a_policy_that_cannot_be_used(run: Run, config: Path) -> None:
    (config / "policy.yml").write_text("version: 1\ntools:\n  exec: {tier: 9}\n")
    code, out, err = run("policy", "lint")
    assert code == 1
    assert "policy.yml: error: the policy file cannot be used: line 3" in out
    assert "until it can be used only reads are allowed [policy-unusable]" in out
    assert err == "0 rules: 0 findings, 1 fault of files: not every rule was read\n"
    value = json.loads(run("policy", "lint", "--json")[1])
    assert [one["code"] for one in value["files"]] == ["policy-unusable"]
    assert run("doctor")[0] == 1


def test_policy_lint_reads_what_can_be_read(run: Run, config: Path) -> None:
    (config / "config.toml").write_text(BROKEN)
    code, out, _ = run("policy", "lint")
    assert code == 1
    assert "config.toml:2: error: line 2: wrong value" in out
    (config / "config.toml").write_text(BROKEN.replace("alow", "allow"))
    assert run("policy", "lint")[0] == 0
