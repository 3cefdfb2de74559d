"""Tests of skill/invocation.py: the fields, and the patterns of `paths`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.floor import Diagnostic, Severity
from skillhouse.floor.structs import replace
from skillhouse.skill import (
    Extensions,
    Invocation,
    Skill,
    SkillIndex,
    current_invocation,
    described,
    invocation_findings,
    load,
    parse,
    read_invocation,
    relative_file,
)
from skillhouse.skill.invocation import (
    BRACES_MAX,
    GLOB_MAX,
    HINT_MAX,
    PATHS_MAX,
    WHEN_MAX,
    is_glob,
    matches_glob,
    split_globs,
)

OFF = Extensions(invocation=False, substitution=False)
ON = Extensions(invocation=True, substitution=True, when_to_use=True, paths=True, commands=True)
ALL = (
    "disable-model-invocation: true\nuser-invocable: FALSE\nargument-hint: [issue, who]\n"
    "when_to_use: |\n  When it\n  breaks.\npaths: src/**, '*.{ts,tsx}'\n"
)


def skill_with(fields: str, directory: Path = Path("/skills/s")) -> Skill:
    data = f"---\nname: s\ndescription: Does things.\n{fields}---\nBody.\n".encode()
    found = parse(data, directory="s", path=directory / "SKILL.md").skill
    assert found is not None
    return found


def test_each_field_is_read_when_it_is_turned_on() -> None:
    skill = skill_with(ALL.replace("'*.{ts,tsx}'", "*.{ts,tsx}"))
    assert read_invocation(skill, ON) == Invocation(
        model_invocable=False,
        user_invocable=False,
        argument_hint="[issue, who]",
        when_to_use="When it breaks.",
        paths=("src/**", "*.{ts,tsx}"),
    )
    assert read_invocation(skill, OFF) == Invocation()
    assert read_invocation(skill, replace(OFF, when_to_use=True)) == Invocation(
        when_to_use="When it breaks."
    )
    assert read_invocation(skill, replace(OFF, commands=True)) == Invocation()


def test_when_to_use_is_part_of_the_description_where_it_is_on() -> None:
    skill = skill_with("when_to_use: On Mondays.\n")
    assert described(skill, ON).description == "Does things. - On Mondays."
    assert described(skill, OFF) is skill
    assert described(skill_with(""), ON) == skill_with("")


@pytest.mark.parametrize(
    ("field", "message", "expected"),
    [
        (
            "disable-model-invocation: yes",
            "expected true or false, got 'yes'",
            Invocation(model_invocable=False),
        ),
        (
            "disable-model-invocation: [true]",
            "expected true or false, got a list or map",
            Invocation(model_invocable=False),
        ),
        (
            "user-invocable: 1",
            "expected true or false, got '1'",
            Invocation(user_invocable=False),
        ),
        ("argument-hint: {a: b}", "expected text, got a list or map", Invocation()),
        (
            "when_to_use: a\u200bb",
            "a hidden character in it; the field is passed over",
            Invocation(),
        ),
        (
            "paths: {a: b}",
            "expected patterns as text or a list, got a list or map",
            Invocation(paths=("",)),
        ),
        (
            "paths: ../secret/**",
            "no pattern of paths below the project: '../secret/**'",
            Invocation(paths=("../secret/**",)),
        ),
    ],
)
def test_what_cannot_be_read_counts_as_the_stricter_and_is_a_finding_with_its_line(
    tmp_path: Path, field: str, message: str, expected: Invocation
) -> None:
    skill = skill_with(f"{field}\n", tmp_path / "s")
    (tmp_path / "s").mkdir()
    skill.location.write_text(f"---\nname: s\ndescription: Does things.\n{field}\n---\nBody.\n")
    key = field.partition(":")[0]
    found = read_invocation(skill, ON)
    assert found == Invocation(
        model_invocable=expected.model_invocable,
        user_invocable=expected.user_invocable,
        paths=expected.paths,
        faults=((key, message),),
    )
    assert not (found.paths and found.is_listed_for(["secret/a", "../secret/a", ""]))
    index = SkillIndex([skill])
    assert invocation_findings(index, ON) == (
        Diagnostic(
            code="invocation-field",
            severity=Severity.WARNING,
            message=f"`{key}`: {message}",
            path=skill.location,
            line=4,
        ),
    )
    assert invocation_findings(index, OFF) == ()
    skill.location.unlink()
    assert [found.line for found in invocation_findings(index, ON)] == [None]


def test_every_text_and_list_has_a_bound() -> None:
    globs = ", ".join(["a"] * (PATHS_MAX + 1))
    fields = f"argument-hint: {'x' * 300}\nwhen_to_use: {'y' * 2000}\npaths: {globs}\n"
    found = read_invocation(skill_with(fields), ON)
    assert found.argument_hint == "x" * HINT_MAX + "..."
    assert found.when_to_use == "y" * WHEN_MAX + "..."
    assert len(found.paths) == PATHS_MAX
    assert [field for field, _ in found.faults] == ["when_to_use", "paths"]


def test_a_file_that_changed_since_it_was_listed_says_what_holds_now(tmp_path: Path) -> None:
    listed = skill_with("", tmp_path / "s")
    (tmp_path / "s").mkdir()
    listed.location.write_text(
        "---\nname: s\ndescription: Does things.\ndisable-model-invocation: true\n---\nBody.\n"
    )
    content = load(listed)
    assert read_invocation(content.skill, ON).model_invocable
    assert not current_invocation(content, ON).model_invocable


def test_a_skill_without_patterns_is_always_listed() -> None:
    assert Invocation().is_listed_for([])
    limited = Invocation(paths=("*.md", "src/**"))
    assert [limited.is_listed_for(files) for files in ([], ["a.py"], ["a.py", "src/b"])] == [
        False,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("path", "relative"),
    [
        ("/p/a", "a"),
        ("src/a", "src/a"),
        ("/p", "."),
        ("/pp/a", None),
        ("/p/../etc", None),
        ("../a", None),
    ],
)
def test_paths_are_relative_to_the_project_or_outside(path: str, relative: str | None) -> None:
    assert relative_file(path, Path("/p")) == relative


@pytest.mark.parametrize("fields", ["paths: [src/**, ' *.md ']", "paths:\n  - src/**\n  - '*.md'"])
def test_patterns_can_be_a_list(fields: str) -> None:
    assert read_invocation(skill_with(f"{fields}\n"), ON).paths == ("src/**", "*.md")


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("*.md", ["a.md", ".md"], ["docs/a.md", "a.MD", "a.mdx"]),
        ("**/*.ts", ["a.ts", "src/a.ts", "src/ui/a.ts"], ["a.tsx", "a.ts/b"]),
        ("src/**", ["src/a", "src/a/b"], ["srcs/a", "a/src/b"]),
        ("src/**/test_*.py", ["src/test_a.py", "src/x/y/test_b.py"], ["src/a.py", "test_a.py"]),
        ("src/", ["src/a", "src/a/b"], ["a/src/b"]),
        ("./a.md", ["a.md"], ["b/a.md"]),
        ("*.{ts,tsx}", ["a.ts", "a.tsx"], ["a.t", "a.{ts,tsx}"]),
        ("{a,b}/{c,d}", ["a/c", "b/d"], ["a", "a/b"]),
        ("a?c", ["abc"], ["a/c", "ac"]),
        ("[ab].md", ["a.md"], ["c.md"]),
        ("**/**/a", ["a", "x/a", "x/y/a"], ["b"]),
        ("**", ["a", "a/b"], []),
        ("a{b", ["a{b"], ["ab"]),
    ],
)
def test_patterns_match_whole_paths(pattern: str, matching: list[str], others: list[str]) -> None:
    assert [path for path in matching + others if matches_glob(pattern, path)] == matching


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "/etc/*",
        "~/x",
        "../x",
        "a/../../x",
        "a\nb",
        "x" * (GLOB_MAX + 1),
        "{a,b}" * 7,
        "{" + "," * BRACES_MAX + "}",
    ],
)
def test_what_is_no_pattern_of_the_project_matches_nothing(pattern: str) -> None:
    assert not is_glob(pattern)
    assert not any(matches_glob(pattern, path) for path in (pattern, "a", "x", "etc/a", "aaaaaaa"))


def test_many_stars_take_no_time_that_grows_with_their_number() -> None:
    pattern = "/".join(["**", "a*a*a*a*a*a*b"] * 30)
    assert is_glob(pattern)
    assert not matches_glob(pattern, "/".join(["a" * 200] * 100))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a, b", ("a", "b")),
        ("*.{ts,tsx},b", ("*.{ts,tsx}", "b")),
        (" , ", ()),
        ("a{b,c", ("a{b,c",)),
        ("a},b", ("a}", "b")),
    ],
)
def test_commas_separate_patterns_outside_braces(text: str, found: tuple[str, ...]) -> None:
    assert split_globs(text) == found


_TEXT = st.text(alphabet="ab*?[]{},/.!-\\^ é", max_size=24)


@given(pattern=_TEXT, path=_TEXT)
def test_any_text_is_a_pattern_or_none_and_a_path_matches_it_or_not(
    pattern: str, path: str
) -> None:
    assert matches_glob(pattern, path) in ((True, False) if is_glob(pattern) else (False,))


@given(path=st.text(alphabet="ab./-_", min_size=1, max_size=24).filter(is_glob))
def test_a_path_without_wildcards_matches_itself(path: str) -> None:
    below = path if not path.endswith("/") else f"{path}x"
    assert matches_glob(path, below.removeprefix("./"))
