"""Tests of registry/source.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.registry import Source, SourceError, parse_source


def parsed(text: str, start: Path = Path("/")) -> Source:
    return parse_source(text, start, home=Path("/home/me"))


@pytest.mark.parametrize(
    ("text", "location", "path", "ref"),
    [
        ("acme/skills", "https://github.com/acme/skills.git", "", ""),
        ("acme/skills@v1.2", "https://github.com/acme/skills.git", "", "v1.2"),
        ("acme/skills/a/b@main", "https://github.com/acme/skills.git", "a/b", "main"),
        ("https://github.com/acme/skills", "https://github.com/acme/skills.git", "", ""),
        (
            "https://github.com/acme/skills/tree/v2/a/b",
            "https://github.com/acme/skills.git",
            "a/b",
            "v2",
        ),
        (
            "https://github.com/acme/skills/blob/v2/a/b/SKILL.md",
            "https://github.com/acme/skills.git",
            "a/b",
            "v2",
        ),
        ("https://git.test/a/b.git", "https://git.test/a/b.git", "", ""),
        ("https://git.test/a/b.git//c/d@feature/x", "https://git.test/a/b.git", "c/d", ""),
        ("https://git.test/a/b.git@v1", "https://git.test/a/b.git", "", "v1"),
        ("git+https://git.test/a/b@v1", "https://git.test/a/b", "", "v1"),
        ("ssh://git@git.test/a/b.git", "ssh://git@git.test/a/b.git", "", ""),
        ("ssh://git@git.test/a/b.git//c@v1", "ssh://git@git.test/a/b.git", "c", "v1"),
        ("git@git.test:a/b.git@v1", "ssh://git@git.test/a/b.git", "", "v1"),
        ("file:///srv/b.git", "file:///srv/b.git", "", ""),
        ("https://git.test/a/b/-/tree/v2/c/d", "https://git.test/a/b.git", "c/d", "v2"),
        ("https://git.test/a/g/b/-/tree/v2?ref_type=heads", "https://git.test/a/g/b.git", "", "v2"),
        ("https://git.test/a/b/-/blob/v2/c/SKILL.md", "https://git.test/a/b.git", "c", "v2"),
        ("https://gitlab.com/a/g/b", "https://gitlab.com/a/g/b.git", "", ""),
        ("https://codeberg.org/a/b//c@v1", "https://codeberg.org/a/b.git", "c", "v1"),
    ],
)
def test_a_repository_is_named_in_many_ways(text: str, location: str, path: str, ref: str) -> None:
    if "feature/x" in text:
        # A branch with a slash goes with `//` before it.
        ref = "feature/x"
    found = parsed(text)
    assert (found.kind, found.location, found.path, found.ref) == ("git", location, path, ref)
    assert found.repository == location.removesuffix(".git")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("git@git.test:a/b.git#main", "follows `@`, and not `#`: `git@git.test:a/b.git@main`"),
        ("acme/skills#v1", "`acme/skills@v1`"),
        ("https://git.test/a/b.git#v1", "`https://git.test/a/b.git@v1`"),
        ("https://skills.sh/acme/skills", "`skillhouse install acme/skills`"),
        ("https://skills.sh/acme/skills/pdf", "`skillhouse install acme/skills --skill pdf`"),
    ],
)
def test_what_is_written_elsewhere_is_said_as_it_is_here(text: str, said: str) -> None:
    with pytest.raises(SourceError) as caught:
        parsed(text)
    assert said in str(caught.value)


def test_addresses_and_paths_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "skill").mkdir()
    (tmp_path / "a.zip").touch()
    assert parsed("./skill", tmp_path).kind == "directory"
    assert parsed("./a.zip", tmp_path).kind == "archive"
    assert parsed("https://x.test/a-1.0.tar.gz").kind == "url"
    assert parsed("https://x.test/a-1.0.tar.gz").repository == "https://x.test"
    assert parsed("https://x.test").kind == "well-known"
    assert parsed("https://x.test/team").kind == "well-known"
    assert (parsed("pdf@^1.2").kind, parsed("pdf@^1.2").ref) == ("name", "^1.2")


@pytest.mark.parametrize(
    "text",
    [
        "",
        " a/b",
        "--upload-pack=touch x",
        "-x/y",
        "ext::sh -c touch% /tmp/x",
        "git+ext::sh -c id",
        "git://x.test/a.git",
        "ftp://x.test/a.zip",
        "https://user:secret@x.test/a.git",
        "https://user@x.test/a.git",
        "ssh://-oProxyCommand=x/a.git",
        "git@-oProxyCommand=x:a/b",
        "git@x.test:-a/b",
        "git@x.test:../../a",
        "https://x.test/a.git@--upload-pack=x",
        "https://x.test/a.git@a..b",
        "https://x.test/a.git@",
        "acme/skills@",
        "acme/skills@-x",
        "acme/skills/../x",
        "acme/..",
        "a/b/\u202e",
        "https://x.test/a.git//../../etc",
        "https://x.test/a.git//.git/hooks",
        "https://[x/a.git",
        "https://x.test/a?b=c",
        "https:///a.git",
        "http://x.test\\@y.test/a.git",
        "./nothing-is-here",
        "../../../../etc/passwd",
    ],
)
def test_what_means_something_else_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        parsed(text, tmp_path)
