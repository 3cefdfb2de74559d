"""The line of each finding, which is what an author sees first."""

from __future__ import annotations

import pytest

from skillhouse.skill import parse

LINES = [
    ("no fence", b"name: a\n", "frontmatter-missing", 1),
    ("comment before the fence", b"# c\n---\nname: a\n---\n", "frontmatter-missing", 1),
    ("not closed", b"---\nname: a\ndescription: b\n", "frontmatter-unclosed", 1),
    ("NUL in the third line", b"---\nname: a\ndesc\0: b\n---\n", "encoding", 3),
    ("bad byte in the second line", b"---\nname: \xff\n---\n", "encoding", 2),
    ("bad byte in the body", b"---\nname: a\ndescription: b\n---\nx\n\xff", "encoding", 6),
    ("mark", b"\xef\xbb\xbf---\nname: a\ndescription: b\n---\n", "bom", 1),
    ("lone CR", b"---\nname: a\ndescription: b\rlicense: c\n---\n", "line-endings", 3),
    ("alias", b"---\nname: a\ndescription: b\nx: *y\n---\n", "yaml-alias", 4),
    ("anchor", b"---\nname: &n a\ndescription: b\n---\n", "yaml-alias", 2),
    ("tag", b"---\nname: a\ndescription: !!str b\n---\n", "yaml-tag", 3),
    ("duplicate key", b"---\nname: a\ndescription: b\nname: c\n---\n", "yaml-duplicate-key", 4),
    ("nested duplicate", b"---\nmetadata:\n  k: 1\n  k: 2\n---\n", "yaml-duplicate-key", 4),
    ("depth", b"---\nname: a\nx: " + b"[" * 20 + b"]" * 20 + b"\n---\n", "yaml-depth", 3),
    ("open bracket", b"---\nname: a\nx: [1, 2\n---\n", "yaml-error", 4),
    ("a list", b"---\n- a\n- b\n---\n", "frontmatter-not-mapping", 2),
    ("colon", b"---\nname: a\ndescription: b: c\n---\n", "yaml-repaired", 3),
    ("second colon", b"---\nname: a\nlicense: x\ndescription: b: c\n---\n", "yaml-repaired", 4),
    ("no name", b"---\ndescription: b\n---\n", "name-missing", 1),
    ("empty name", b"---\ndescription: b\nname:\n---\n", "name-missing", 3),
    ("invalid name", b"---\nlicense: x\nname: A B\ndescription: b\n---\n", "name-invalid", 3),
    ("other name", b"---\nname: other\ndescription: b\n---\n", "name-mismatch", 2),
    ("no description", b"---\nname: a\n---\n", "description-missing", 1),
    ("blank description", b"---\nname: a\n\ndescription: ' '\n---\n", "description-missing", 4),
    ("list description", b"---\nname: a\ndescription: [b]\n---\n", "description-type", 3),
    (
        "long description",
        b"---\nname: a\nlicense: x\ndescription: " + b"d" * 1025 + b"\n---\n",
        "description-too-long",
        4,
    ),
    (
        "nested metadata",
        b"---\nname: a\ndescription: b\nmetadata:\n  k: [1]\n---\n",
        "metadata-type",
        4,
    ),
    (
        "commas",
        b"---\nname: a\ndescription: b\nallowed-tools: Read, Write\n---\n",
        "allowed-tools-form",
        4,
    ),
    (
        "compatibility",
        b"---\nname: a\ndescription: b\nlicense: x\ncompatibility: ''\n---\n",
        "compatibility-length",
        5,
    ),
    (
        "hidden in the description",
        "---\nname: a\ndescription: b\u200bc\n---\n".encode(),
        "hidden-characters",
        3,
    ),
    (
        "hidden in the body",
        "---\nname: a\ndescription: b\n---\none\ntwo\u202e\n".encode(),
        "hidden-characters",
        6,
    ),
    (
        "a key named in a value first",
        b"---\nlicense: |\n  name: no\nname: A\ndescription: b\n---\n",
        "name-invalid",
        4,
    ),
]


@pytest.mark.req("S001-24")
@pytest.mark.parametrize(
    ("data", "code", "line"), [case[1:] for case in LINES], ids=[c[0] for c in LINES]
)
def test_a_finding_names_its_line(data: bytes, code: str, line: int) -> None:
    found = parse(data, directory="a").diagnostics
    assert (code, line) in {(diagnostic.code, diagnostic.line) for diagnostic in found}
