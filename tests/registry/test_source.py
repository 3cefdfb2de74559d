"""Tests of registry/source.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.registry import (
    Source,
    SourceError,
    SourceFile,
    find_candidates,
    parse_source,
)
from skillhouse.skill import ArchiveMember


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


SHA = "0123456789abcdef0123456789abcdef01234567"
GITHUB = "https://github.com/acme/skills.git"
CODEBERG = "https://codeberg.org/acme/skills.git"
BITBUCKET = "https://bitbucket.org/acme/skills.git"
GITLAB = "https://gitlab.com/acme/group/skills.git"
RAW = "https://raw.githubusercontent.com/acme/skills"
ORGANIZATION = "https://dev.azure.com/acme"
AZURE = f"{ORGANIZATION}/My%20Project/_git/skills"
GIST = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "location", "path", "ref", "skill"),
    [
        # As others write a ref and a skill.
        ("acme/skills#v1", GITHUB, "", "v1", ""),
        ("acme/skills/a#feature/x", GITHUB, "a", "feature/x", ""),
        ("acme/skills#v1@pdf", GITHUB, "", "v1", "pdf"),
        ("github:acme/skills#v1", GITHUB, "", "v1", ""),
        ("gitlab:acme/group/skills", GITLAB, "", "", ""),
        ("bitbucket:acme/skills", BITBUCKET, "", "", ""),
        ("git@git.test:a/b.git#main", "ssh://git@git.test/a/b.git", "", "main", ""),
        ("ssh://git@git.test:22/a/b.git#v1", "ssh://git@git.test:22/a/b.git", "", "v1", ""),
        ("git+ssh://git@git.test/a/b.git@v1", "ssh://git@git.test/a/b.git", "", "v1", ""),
        ("https://git.test:8443/a/b.git#v1", "https://git.test:8443/a/b.git", "", "v1", ""),
        ("git@ssh.dev.azure.com:v3/a/b/c", "ssh://git@ssh.dev.azure.com/v3/a/b/c", "", "", ""),
        # The page of a repository.
        ("https://github.com/acme/skills/", GITHUB, "", "", ""),
        ("https://github.com/acme/skills.git/", GITHUB, "", "", ""),
        ("https://GitHub.com:443/acme/skills", GITHUB, "", "", ""),
        ("http://www.github.com/acme/skills", GITHUB, "", "", ""),
        ("www.github.com/acme/skills", GITHUB, "", "", ""),
        ("github.com/acme/skills/tree/v1/a", GITHUB, "a", "v1", ""),
        ("https://github.com/acme/skills#readme", GITHUB, "", "", ""),
        ("https://github.com/acme/skills#", GITHUB, "", "", ""),
        ("https://github.com/acme/skills?tab=readme-ov-file#use", GITHUB, "", "", ""),
        ("https://github.com/acme/skills#v1", GITHUB, "", "v1", ""),
        ("https://www.gitlab.com/acme/group/skills/", GITLAB, "", "", ""),
        ("https://me@bitbucket.org/acme/skills.git", BITBUCKET, "", "", ""),
        ("https://acme@dev.azure.com/acme/b/_git/c", f"{ORGANIZATION}/b/_git/c", "", "", ""),
        ("https://a.visualstudio.com/b/_git/c", "https://a.visualstudio.com/b/_git/c", "", "", ""),
        (f"https://gist.github.com/me/{GIST}", f"https://gist.github.com/{GIST}.git", "", "", ""),
        (
            f"https://gist.githubusercontent.com/me/{GIST}/raw/{SHA}/SKILL.md",
            f"https://gist.github.com/{GIST}.git", "", "", "",
        ),
        ("https://skills.sh/acme/skills", GITHUB, "", "", ""),
        ("https://www.skills.sh/acme/skills/pdf/?x=1", GITHUB, "", "", "pdf"),
        # A directory, a file, a commit, a release.
        ("https://github.com/acme/skills/tree/main/a/b/?x=1", GITHUB, "a/b", "main", ""),
        ("https://github.com/acme/skills/tree/feature/x/a", GITHUB, "x/a", "feature", ""),
        ("https://github.com/acme/skills/tree/main/@acme/x", GITHUB, "@acme/x", "main", ""),
        ("https://github.com/acme/skills/blob/v1/a/SKILL.md#L10", GITHUB, "a", "v1", ""),
        ("https://github.com/acme/skills/blob/v1/a/README.md?plain=1", GITHUB, "a", "v1", ""),
        ("https://github.com/acme/skills/raw/refs/heads/v1/a/SKILL.md", GITHUB, "a", "v1", ""),
        (f"https://github.com/acme/skills/commit/{SHA}", GITHUB, "", SHA, ""),
        ("https://github.com/acme/skills/releases/tag/v1.2", GITHUB, "", "v1.2", ""),
        (f"{RAW}/main/a/b/SKILL.md", GITHUB, "a/b", "main", ""),
        (f"{RAW}/refs/tags/v1/SKILL.md", GITHUB, "", "v1", ""),
        ("https://gitlab.com/acme/group/skills/-/tree/v1/a?ref_type=tags", GITLAB, "a", "v1", ""),
        ("https://gitlab.com/acme/group/skills/-/tree/feature%2Fx/a", GITLAB, "a", "feature/x", ""),
        ("https://gitlab.com/acme/group/skills/-/raw/v1/a/SKILL.md", GITLAB, "a", "v1", ""),
        (f"https://gitlab.com/acme/group/skills/-/commit/{SHA}", GITLAB, "", SHA, ""),
        ("https://gitlab.com/acme/group/skills/-/tags/v1", GITLAB, "", "v1", ""),
        ("https://codeberg.org/acme/skills/src/branch/main/a/b/", CODEBERG, "a/b", "main", ""),
        ("https://codeberg.org/acme/skills/src/tag/v1/SKILL.md", CODEBERG, "", "v1", ""),
        (f"https://codeberg.org/acme/skills/src/commit/{SHA}/a", CODEBERG, "a", SHA, ""),
        ("https://codeberg.org/acme/skills/raw/branch/main/a/SKILL.md", CODEBERG, "a", "main", ""),
        ("https://git.test/sub/a/b/src/branch/x/c", "https://git.test/sub/a/b.git", "c", "x", ""),
        ("https://bitbucket.org/acme/skills/src/main/a/", BITBUCKET, "a", "main", ""),
        (f"https://bitbucket.org/acme/skills/src/{SHA}/a?at=b%2Fx", BITBUCKET, "a", "b/x", ""),
        ("https://bitbucket.org/acme/skills/branch/feature/x", BITBUCKET, "", "feature/x", ""),
        (
            "https://git.test/projects/AB/repos/c/browse/a/SKILL.md?at=refs%2Fheads%2Fx",
            "https://git.test/scm/ab/c.git", "a", "refs/heads/x", "",
        ),
        ("https://git.test/users/me/repos/c", "https://git.test/scm/~me/c.git", "", "", ""),
        (f"{AZURE}?path=/a/b&version=GBfeature%2Fx&_a=contents", AZURE, "a/b", "feature/x", ""),
        (f"{AZURE}?path=/a/SKILL.md&version=GC{SHA}", AZURE, "a", SHA, ""),
        (AZURE, AZURE, "", "", ""),
        ("https://git.test/a/b/tree/main/c", "https://git.test/a/b.git", "c", "main", ""),
        ("http://127.0.0.1:8080/a/b/-/tree/v1/c", "http://127.0.0.1:8080/a/b.git", "c", "v1", ""),
    ],
)  # fmt: skip
def test_what_people_paste_is_a_repository(
    text: str, location: str, path: str, ref: str, skill: str
) -> None:
    found = parsed(text)
    expected = ("git", location, path, ref, skill)
    assert (found.kind, found.location, found.path, found.ref, found.skill) == expected
    assert found.repository == location.removesuffix(".git")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("https://github.com/acme/skills/issues/3", "is `https://github.com/acme/skills`"),
        ("https://gitlab.com/a/g/b/-/issues", "its repository is `https://gitlab.com/a/g/b`"),
        ("https://github.com/acme", "expected github.com/owner/repo"),
        ("https://skills.sh/trending", "expected skills.sh/owner/repo/skill"),
        ("https://example.com/x/SKILL.md", "one file of a skill"),
        ("acme/skills@v1#v2", "and not both"),
        ("https://git.test/a/b.git@v1#v2", "and not both"),
        (f"{RAW}/main/SKILL.md?token=GHSAT0AAAA", "without a token"),
        ("https://ghp_0123456789@github.com/acme/skills", "without a user"),
        ("https://0123456789@dev.azure.com/acme/b/_git/c", "without a user"),
        ("ftp://me:GHSAT0AAAA@git.test/a", "got 'ftp://git.test/a'"),
        ("https://x.test/team#a", "without `#`"),
        (f"{AZURE}?version=XXmain", "expected `version=GB`"),
    ],
)
def test_what_is_no_repository_is_said_so_without_what_may_be_a_secret(
    text: str, said: str
) -> None:
    with pytest.raises(SourceError) as caught:
        parsed(text)
    assert said in str(caught.value)
    assert "GHSAT0" not in str(caught.value)
    assert "0123456789" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("https://github.com/acme/skills/archive/refs/tags/v1.zip", "url"),
        ("https://github.com/acme/skills/releases/download/v1/pdf.tar.gz", "url"),
        ("https://gitlab.com/a/b/-/archive/v1/b-v1.tar.gz", "url"),
        ("https://github.com/acme/skills/raw/main/pdf.zip", "url"),
        ("https://github.com/acme/skills/raw/main/pdf.skill", "url"),
        ("https://github.com/acme/skills/releases/download/v1/pdf.skill", "url"),
        ("https://x.test/pdf.skill", "url"),
        ("https://github.com/acme/pdf.skill", "git"),
        ("https://gitlab.com/a/b/pdf.skill", "git"),
        ("acme/pdf.skill", "git"),
        ("https://github.com:8443/acme", "well-known"),
    ],
)
def test_an_archive_of_a_forge_stays_one(text: str, kind: str) -> None:
    assert parsed(text).kind == kind


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
        "https://github.com/acme/skills/tree/main/../../etc",
        "https://github.com/acme/skills/tree/main/%2e%2e/etc",
        "https://github.com/acme/skills/tree/main/.git/hooks",
        "https://github.com/acme/skills/tree/--upload-pack=x",
        "https://github.com/acme/skills/tree/%2Dx",
        "https://github.com/acme/skills/tree/a%0ab",
        "https://github.com/acme/skills/commit/-x",
        "https://github.com/acme/..%2Fx",
        "https://git.test/a/%2e%2e/-/tree/main",
        "https://git.test/a/b%0ax/-/tree/main",
        "https://codeberg.org/a/b/src/branch/-x/c",
        "https://bitbucket.org/a/b/src/main/c?at=-x",
        "https://dev.azure.com/a/b/_git/c?version=GB-x",
        "https://dev.azure.com/a/b/_git/c?path=/../../etc",
        "https://skills.sh/acme/skills/%2e%2e",
        "https://skills.sh/-x/skills",
        "acme/skills#-x",
        "acme/skills#--upload-pack=x",
        "acme/skills#a..b",
        "git@git.test:a/b.git#-x",
        "acme/skills@" + "x" * 3_000,
        "https:///a.git",
        "http://x.test\\@y.test/a.git",
        "./nothing-is-here",
        "../../../../etc/passwd",
    ],
)
def test_what_means_something_else_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        parsed(text, tmp_path)


def test_what_is_left_out_of_a_skill_is_bounded_as_what_is_in_it() -> None:
    def files(count: int) -> list[SourceFile]:
        names = [f"one/{number}:{'x' * 5_000}" for number in range(count)]
        names.append("one/SKILL.md")
        data = b"---\nname: one\ndescription: D.\n---\n"
        return [
            SourceFile(
                path=name,
                member=ArchiveMember(name, False, False, len(data), lambda: iter((data,))),
            )
            for name in names
        ]

    (few,) = find_candidates(files(3), folder="one").candidates
    assert (few.fault, len(few.lacking), len(few.members)) == ("", 3, 1)
    assert max(map(len, few.lacking)) < 500
    (many,) = find_candidates(files(1_001), folder="one").candidates
    assert many.fault.endswith("got 1001 and 34")
    assert many.lacking == ()
