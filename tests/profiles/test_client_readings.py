"""The clients' own readings of a SKILL.md, held against what the programs listed."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from skillhouse.discovery import discover
from skillhouse.skill import Profile, load_profile, parse, revealed
from tests.interop.lens.cases import HIDDEN, Case, hard_files

LISTED: dict[str, Any] = json.loads(Path(__file__).with_name("listed.json").read_text())
"""What each program lists of each hard file: directory, and then name and description, the
description cut (`python -m tests.interop.lens --record`)."""
CASES = {case.directory: case for case in hard_files()}
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028\u2029\u2060-\u206f\ufeff\ufffd"
    r"\U000e0000-\U000e007f]|\\(?:U[0-9a-f]{8}|u[0-9a-f]{4}|x[0-9a-f]{2})|\s"
)
"""What a client writes in another way than it was read, and our escapes of it."""
DIFFERS = frozenset({"sign-08-colon", "odd-nul-field"})
"""Files that are listed alike with another description: an anchor named `word:`, and NUL."""
DIFFERS_IN = {"amp": frozenset({"value-octal", "value-braces"})}
"""The same of one client: it writes a number of base 8 as one of base 10, and a map as a key."""
NOT_READ_BY_US = {
    "amp": frozenset({"sign-08-colon"}),
    "kimi-code-cli": frozenset({"sign-08-colon"}),
}
"""Listed by the client, and dropped by us: an anchor named `word:`."""


def ours(case: Case, profile: Profile) -> list[str]:
    skill = parse(case.data, directory=case.directory, policy=profile.parse_policy).skill
    # Where a field hides a skill from the model, it is read all the same.
    is_manual = profile.extensions.invocation and b"disable-model" in case.data
    if skill is None or is_manual:
        return []
    return [skill.name, skill.description]


def plain(text: str) -> str:
    unescaped = text.replace("&lt;", "<").replace("&gt;", ">")
    return _UNSEEN.sub("", unescaped)


@pytest.mark.parametrize("name", sorted(LISTED))
def test_each_hard_file_is_read_as_the_program_reads_it(name: str) -> None:
    profile = load_profile(name)
    wrong = []
    for directory, *listed in LISTED[name]["listed"]:
        found = ours(CASES[directory], profile)
        if directory in NOT_READ_BY_US.get(name, ()):
            assert listed, "the lens is right here now"
            assert not found
            continue
        if (
            bool(found) != bool(listed)
            or (listed and found[0] != revealed(listed[0]))
            or (
                listed
                and directory not in DIFFERS | DIFFERS_IN.get(name, frozenset())
                and not plain(found[1]).startswith(plain(listed[1]))
            )
        ):
            wrong.append((directory, listed, found))
    assert wrong == []


def test_every_hard_file_was_asked_about() -> None:
    for measured in LISTED.values():
        assert [directory for directory, *_ in measured["listed"]] == list(CASES)


@pytest.mark.parametrize("name", sorted(LISTED))
def test_the_profile_names_the_version_that_was_asked(name: str) -> None:
    version = LISTED[name]["program"].split(" ")[-1]
    assert load_profile(name).client.endswith(f" {version}")


def test_what_a_client_lists_the_default_profile_loads() -> None:
    """But for what is written down here, each kind with its reason."""
    default = load_profile("default")
    kept = {
        case.directory
        for case in CASES.values()
        if parse(case.data, directory=case.directory, policy=default.parse_policy).skill
    }
    lost = {
        directory
        for measured in LISTED.values()
        for directory, *listed in measured["listed"]
        if listed and directory not in kept
    }
    assert lost == set(NOT_LOADED)


NOT_LOADED = (
    # Hidden characters in a name or description are refused (decision 0151).
    *(f"hidden-{kind}" for kind in HIDDEN),
    *(f"hidden-first-{kind}" for kind in HIDDEN),
    *(f"hidden-name-{kind}" for kind in HIDDEN),
    # No text, or more of it than is read (decisions 0013 and 0152).
    *("odd-utf-16", "odd-latin-1", "odd-latin-1-field", "odd-nul", "odd-nul-field"),
    *("odd-long-head", "odd-large-1100k", "odd-large-11m"),
    # Anchors, aliases and tags stay refused (decision 0150).
    *("sign-08-word", "sign-09-word", "sign-09-word-blank", "sign-09-colon"),
    *("value-anchor", "value-alias", "value-tag", "value-bang", "whole-anchors"),
    # Only Claude Code lists these, after its directory, with the first line of the body.
    *("sign-30-word", "sign-30-word-blank", "sign-30-colon", "sign-30-colon-blank"),
    *("sign-31-word", "sign-31-word-blank", "sign-31-colon", "sign-31-colon-blank"),
    *("value-folded-flush", "value-list", "value-mapping"),
    "value-unclosed-double",
    *("value-unclosed-single", "value-bad-escape", "whole-empty-file", "whole-empty-frontmatter"),
    *("whole-blank-frontmatter", "whole-comment-only", "whole-list-frontmatter"),
    *("whole-text-frontmatter", "whole-dots", "whole-twice-key", "whole-twice-name"),
    *("whole-no-blank-after-colon", "whole-stray-line"),
    *("whole-list-below", "whole-map-below"),
    # Other fences, and what is below the top level.
    *("whole-closing-text", "whole-closing-indented", "whole-closing-four"),
    "whole-nested-bad",
)
"""Each is an error with its line and mend (decision 0250)."""


@pytest.mark.slow
def test_the_default_profile_loads_every_published_file(shared_data: Path, tmp_path: Path) -> None:
    """Claude Code lists each of them; Codex and opencode fewer (docs/interop.md)."""
    count = 0
    with gzip.open(shared_data / "skill-files/sample.jsonl.gz", "rt", encoding="utf-8") as lines:
        for count, line in enumerate(lines, 1):
            value = json.loads(line)
            directory = tmp_path / f"{count:04}" / (Path(value["path"]).parent.name or "skill")
            directory.mkdir(parents=True)
            (directory / "SKILL.md").write_bytes(base64.b64decode(value["skill_md_b64"]))
    index = discover([tmp_path])
    assert (count, len(index.skills) + len(index.shadowed)) == (1_367, 1_367)


@pytest.mark.parametrize("name", sorted(LISTED))
@pytest.mark.parametrize("kind", sorted(HIDDEN))
def test_what_a_client_hands_over_hidden_is_shown_as_escapes(name: str, kind: str) -> None:
    """Their models get the signs; nobody gets them from us (decision 0151)."""
    policy = load_profile(name).parse_policy
    for directory in (f"hidden-{kind}", f"hidden-first-{kind}", f"hidden-name-{kind}"):
        case = CASES[directory]
        result = parse(case.data, directory=directory, policy=policy)
        if result.skill is None:
            # Copilot CLI and Amp refuse such a name themselves.
            assert name in ("amp", "copilot-cli")
            assert [one.code for one in result.diagnostics] == ["name-invalid"]
            continue
        assert HIDDEN[kind] not in result.skill.name + result.skill.description


TYPES = {
    "argument-hint: [a, b]": False,
    "argument-hint: 12": False,
    "argument-hint:": True,
    'argument-hint: ""': True,
    "allowed-tools: 12": False,
    "allowed-tools: {a: b}": False,
    "allowed-tools:": False,
    "allowed-tools: [Read, Write]": True,
    "user-invocable: 12": False,
    "user-invocable:": False,
    'user-invocable: "true"': False,
    "disable-model-invocation: yes": False,
    "disable-model-invocation: True": True,
    "license: [a]": True,
    "compatibility: [a]": True,
}
"""Whether Copilot CLI 1.0.102 listed a skill with such a field, on 2026-11-23."""


@pytest.mark.parametrize("line", sorted(TYPES))
def test_copilot_cli_lists_by_the_types_of_these_fields(line: str) -> None:
    data = f"---\nname: a\ndescription: x\n{line}\n---\nB\n".encode()
    result = parse(data, directory="a", policy=load_profile("copilot-cli").parse_policy)
    assert (result.skill is not None) == TYPES[line]
    assert [one.code for one in result.diagnostics] == ([] if TYPES[line] else ["field-type"])


def test_anchors_that_repeat_without_end_are_refused_by_every_reading() -> None:
    long = "x" * 60_000
    lines = "\n".join(f"k{number}: *a" for number in range(500))
    data = f"---\nname: bomb\ndescription: x\na: &a {long}\n{lines}\n---\n".encode()
    for name in ("codex", "opencode-cli"):
        policy = load_profile(name).parse_policy
        result = parse(data, directory="bomb", policy=policy)
        assert [one.code for one in result.diagnostics] == ["yaml-alias"]
    deep = b"---\nname: deep\ndescription: x\na: " + b"[" * 20_000 + b"]" * 20_000 + b"\n---\n"
    for name in ("claude-code", "codex", "opencode-cli", "gemini-cli"):
        result = parse(deep, directory="deep", policy=load_profile(name).parse_policy)
        assert result.diagnostics
