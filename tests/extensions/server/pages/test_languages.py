"""Tests of the interface's texts: every text has a translation, and the language is chosen."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment

from skillhouse.extensions.server.api import problems
from skillhouse.extensions.server.pages.languages import (
    LANGUAGES,
    TEXTS,
    accepted,
    finding_texts,
    problem_texts,
    texts_of,
)
from skillhouse.extensions.server.pages.policy_pages import ACTION_TEXTS
from skillhouse.extensions.server.pages.renderer import FACT_LABELS, FACT_WORDS, TEMPLATES, WORDS
from skillhouse.extensions.server.pages.site import PLACES, local_path
from skillhouse.extensions.server.pages.skill_markdown import IMAGE
from skillhouse.extensions.server.pages.system_page import SCOPE_TEXTS
from skillhouse.house import POLICY_SUMMARIES
from skillhouse.permission.lint import UNKNOWN_ACTION
from skillhouse.presentation.question import ANSWER_WORDS

ROOT = Path(__file__).resolve().parents[4]
OTHERS = [code for code in LANGUAGES if code != "en"]


def extracted(environment: Environment, file: Path) -> list[Any]:
    found = environment.extract_translations(  # type: ignore[attr-defined] # of the extension
        file.read_text(encoding="utf-8")
    )
    return list(found)


def shown_texts() -> set[str]:
    """Return the English texts of all templates, as gettext looks them up."""
    environment = Environment(extensions=["jinja2.ext.i18n"])
    environment.policies["ext.i18n.trimmed"] = True
    found = (
        {place.name for place in PLACES}
        | WORDS
        | {IMAGE}
        | set(SCOPE_TEXTS.values())
        | set(ACTION_TEXTS.values())
        | {text for texts in POLICY_SUMMARIES.values() for text in texts}
        | (FACT_LABELS - FACT_WORDS.keys())
        | set(FACT_WORDS.values())
        | set(ANSWER_WORDS.values())
    )
    for file in TEMPLATES.glob("*.html"):
        for _, function, text in extracted(environment, file):
            texts = [one for one in (text if isinstance(text, tuple) else (text,)) if one]
            # Of a plural, the form of many is looked up; a value that is translated has no text.
            found.update(texts[-1:] if function == "ngettext" else texts[:1])
    return found


@pytest.mark.parametrize("language", OTHERS)
def test_every_text_of_the_pages_is_translated_and_no_other(language: str):
    found, shown = set(texts_of(language)), shown_texts()
    place = f"src/skillhouse/extensions/server/texts/{language}/"
    assert not shown - found, f"write these with their translation to a file of {place}"
    assert not found - shown, f"no page has these any more: remove them from {place}"


@pytest.mark.parametrize("language", OTHERS)
def test_a_translation_has_the_values_of_the_text(language: str):
    for text, translated in texts_of(language).items():
        assert translated.strip(), text
        assert sorted(re.findall(r"%\(\w+\)s", text)) == sorted(
            re.findall(r"%\(\w+\)s", translated)
        ), text


@pytest.mark.parametrize("language", OTHERS)
def test_two_files_translate_a_text_alike(language: str):
    seen: dict[str, tuple[str, Path]] = {}
    for file in sorted((TEXTS / language).glob("*.toml")):
        for text, translated in tomllib.loads(file.read_text(encoding="utf-8")).items():
            assert seen.setdefault(text, (translated, file))[0] == translated, (text, file.name)


@pytest.mark.parametrize("language", OTHERS)
def test_every_code_of_the_api_has_a_name(language: str):
    api = Path(problems.__file__).parent
    source = "\n".join(file.read_text(encoding="utf-8") for file in api.rglob("*.py"))
    codes = set(re.findall(r'ApiProblem\(\s*\d+,\s*"([a-z-]+)"', source))
    assert len(codes) > 20
    statuses = Path(problems.__file__).read_text(encoding="utf-8")
    codes |= set(re.findall(r'^    "([a-z-]+)": \d{3},$', statuses, re.MULTILINE))
    found = problem_texts(language)
    assert codes - found.keys() == set()
    assert all(text.strip() for text in found.values())


@pytest.mark.parametrize("language", OTHERS)
def test_every_code_of_a_finding_has_a_text_and_no_other(language: str):
    page = (ROOT / "docs/reference/findings.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`[a-z-]+`(?: · `[a-z-]+`)*) \|", page, re.MULTILINE)
    codes = set(re.findall("[a-z-]+", " ".join(cells)))
    assert len(codes) > 70
    source = "\n".join(
        file.read_text(encoding="utf-8") for file in (ROOT / "src/skillhouse").rglob("*.py")
    )
    made = r'\b(?:Diagnostic|Finding)\(\s*(?:code=)?"([a-z-]+)"'
    codes |= set(re.findall(made, source)) | set(re.findall(r'found\(\s*"(rule-[a-z-]+)"', source))
    codes |= {UNKNOWN_ACTION, "rule-duplicate"}
    assert codes == finding_texts(language).keys()
    assert all(re.search("[\u4e00-\u9fff]", text) for text in finding_texts(language).values())


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("en-GB, zh;q=0.9", "en"),
        ("de, zh;q=0.1", "zh"),
        ("zh;q=0", "en"),
        ("zh;q=nan, en;q=x", "en"),
        (";;;,,,q=", "en"),
        ("", "en"),
    ],
)
def test_the_language_is_the_one_a_browser_prefers(header: str, language: str):
    assert accepted(header) == language


@pytest.mark.parametrize(
    "address", ["//evil.example", "https://evil.example", "/\\evil.example", "/a\r\nb", ""]
)
def test_only_addresses_of_ours_are_returned_to(address: str):
    assert local_path(address) == "/"
