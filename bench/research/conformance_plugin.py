"""Pytest plugin: puts skillhouse behind the names of skills-ref, for bench/research/conformance.py.

The tests of skills-ref import `skills_ref`; what they get are the modules made here, which ask
skillhouse and say its findings in the words that those tests look for. Nothing is judged here.
`CONFORMANCE_REPORT` names a file; at the end it holds JSON, `{test: "" or why it failed}`.
"""

from __future__ import annotations

import json
import os
import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import skillhouse
from skillhouse.floor import Diagnostic, Severity
from skillhouse.skill import SKILL_FILE, Skill, SkillIndex

WORDS = {
    "bom": "must start with YAML frontmatter",
    "frontmatter-missing": "must start with YAML frontmatter",
    "frontmatter-unclosed": "not properly closed",
    "frontmatter-not-mapping": "must be a YAML mapping",
    "yaml-error": "Invalid YAML",
    "name-missing": "Missing required field: name",
    "description-missing": "Missing required field: description",
    # One code of ours for what skills-ref says in five ways.
    "name-invalid": (
        "must be lowercase; exceeds the character limit; cannot start or end with a hyphen; "
        "consecutive hyphens; invalid characters"
    ),
    "name-mismatch": "must match skill name",
    "description-too-long": "exceeds 1024",
    "compatibility-length": "exceeds 500",
    "field-unknown": "Unexpected fields",
}
"""Our codes, in the words that the tests of skills-ref look for."""
UNREADABLE = {
    "no such directory": "does not exist",
    "expected a directory, got a file": "Not a directory",
}
"""Our messages for `not-found`, likewise; any other means that the file is missing."""


class SkillError(Exception):
    """As in skills-ref."""


class ParseError(SkillError):
    """As in skills-ref."""


class ValidationError(SkillError):
    """As in skills-ref."""


class SkillProperties:
    """The fields of a skill under the attributes of skills-ref."""

    def __init__(self, skill: Skill) -> None:
        frontmatter = skill.frontmatter
        self.name = skill.name
        self.description = skill.description
        self.license = frontmatter.license
        self.compatibility = frontmatter.compatibility
        self.allowed_tools = frontmatter.fields.get("allowed-tools")
        self.metadata = dict(frontmatter.metadata)

    def to_dict(self) -> dict[str, Any]:
        """Return what there is, by the names of the specification."""
        found = {key.replace("_", "-"): value for key, value in vars(self).items()}
        return {key: value for key, value in found.items() if value}


def said(finding: Diagnostic) -> str:
    """Return a finding of ours in the words of skills-ref."""
    if finding.code == "not-found":
        return UNREADABLE.get(finding.message, f"Missing required file: {SKILL_FILE}")
    return f"{WORDS.get(finding.code, finding.code)}: {finding.message}"


def errors_of(findings: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return those of the findings that are errors."""
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def validate(directory: Path) -> list[str]:
    """Do as `skills_ref.validate`: what our strict judgement calls an error."""
    return [said(finding) for finding in errors_of(skillhouse.validate(directory, strict=True))]


def find_skill_md(directory: Path) -> Path | None:
    """Do as `skills_ref.find_skill_md`: the file that our validation reads."""
    codes = {finding.code for finding in skillhouse.validate(directory)}
    return None if "not-found" in codes else directory / SKILL_FILE


def parse_frontmatter(content: str) -> tuple[dict[str, Any], str]:
    """Do as `skills_ref.parser.parse_frontmatter`."""
    result = skillhouse.parse(content.encode(), directory="my-skill")
    if result.skill is None:
        raise ParseError("; ".join(map(said, errors_of(result.diagnostics))))
    return dict(result.skill.frontmatter.fields), result.body


def read_properties(directory: Path) -> SkillProperties:
    """Do as `skills_ref.read_properties`: required fields are our strict judgement's."""
    file = find_skill_md(directory)
    if file is None:
        raise ParseError(f"{SKILL_FILE} not found in {directory}")
    findings = errors_of(skillhouse.validate(directory, strict=True))
    missing = [found for found in findings if found.code in ("name-missing", "description-missing")]
    if missing:
        raise ValidationError("; ".join(map(said, missing)))
    result = skillhouse.parse(file.read_bytes(), directory=directory.name, path=file)
    if result.skill is None:
        raise ParseError("; ".join(map(said, errors_of(result.diagnostics))))
    return SkillProperties(result.skill)


def to_prompt(directories: Iterable[Path]) -> str:
    """Do as `skills_ref.to_prompt`: our catalog of these skills in this order."""
    skills = []
    for directory in directories:
        file = directory / SKILL_FILE
        result = skillhouse.parse(file.read_bytes(), directory=directory.name, path=file)
        if result.skill is None:
            raise ParseError("; ".join(map(said, errors_of(result.diagnostics))))
        skills.append(result.skill)
    return skillhouse.render_catalog(SkillIndex(skills)).text


MODULES: dict[str, tuple[object, ...]] = {
    "errors": (SkillError, ParseError, ValidationError),
    "models": (SkillProperties,),
    "parser": (ParseError, ValidationError, find_skill_md, parse_frontmatter, read_properties),
    "prompt": (to_prompt,),
    "validator": (validate,),
}
"""What stands in which module of skills-ref."""


class Report:
    """Gathers how the tests of one session ended and writes it down."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the worst of a test's phases; a test that was skipped did not pass."""
        test = report.nodeid.rpartition("/")[2]
        if report.outcome == "passed":
            if report.when == "call":
                self.outcomes.setdefault(test, "")
            return
        crash = getattr(report.longrepr, "reprcrash", None)
        why = crash.message if crash is not None else report.outcome
        self.outcomes[test] = " ".join(why.split()) or report.outcome

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        self.path.write_text(json.dumps(self.outcomes, indent=1), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Put the modules where the tests look for them, before the tests are imported."""
    package = types.ModuleType("skills_ref")
    package.__path__ = []
    for name, values in MODULES.items():
        module = types.ModuleType(f"skills_ref.{name}")
        for value in values:
            for place in (module, package):
                setattr(place, str(getattr(value, "__name__", "")), value)
        setattr(package, name, module)
        sys.modules[module.__name__] = module
    sys.modules["skills_ref"] = package
    config.pluginmanager.register(Report(Path(os.environ["CONFORMANCE_REPORT"])))
