"""Tests of skill/invocation.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.skill.invocation import BRACES_MAX, GLOB_MAX, is_glob, matches_glob, split_globs


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
