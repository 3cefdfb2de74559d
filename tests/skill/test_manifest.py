"""Tests of skill/manifest.py: what the two manifests say, and what is wrong with one."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillhouse.floor import Severity
from skillhouse.skill import (
    MANIFEST_MAX,
    ManifestResult,
    SkillManifest,
    ToolSpec,
    find_manifests,
    has_manifest,
    read_manifest,
    says_skill,
)

PUBLISHED = """\
{
  "name": "crypto-balance",
  "version": "0.1.0",
  "description": "Query token balances across multiple chains",
  "author": "zhixian",
  "license": "MIT",
  "main": "index.js",

  "dependencies": {
    "viem": "^2.0.0"
  },

  "owliabot": {
    "requires": {
      "env": ["ALCHEMY_API_KEY"]
    },
    "tools": [
      {
        "name": "get_balance",
        "description": "Get native or token balance for an address",
        "parameters": {
          "type": "object",
          "properties": {
            "address": {
              "type": "string",
              "description": "Wallet address (0x...)"
            }
          },
          "required": ["address"]
        },
        "security": {
          "level": "read"
        }
      }
    ]
  }
}
"""
"""Section 3.2 of the published design, with fewer parameters."""

PYTHON = """\
[project]
name = "crypto-balance"
version = "0.1.0"
description = "Query token balances across multiple chains"
authors = [{ name = "zhixian" }]
license = "MIT"
dependencies = ["viem==2.0.0"]

[tool.skillhouse]
requires = { env = ["ALCHEMY_API_KEY"] }

[[tool.skillhouse.tools]]
name = "get_balance"
description = "Get native or token balance for an address"
security = { level = "read" }

[tool.skillhouse.tools.parameters]
type = "object"
required = ["address"]

[tool.skillhouse.tools.parameters.properties]
address = { type = "string", description = "Wallet address (0x...)" }
"""

EXPECTED = SkillManifest(
    name="crypto-balance",
    version="0.1.0",
    description="Query token balances across multiple chains",
    language="javascript",
    entry="index.js",
    env=("ALCHEMY_API_KEY",),
    tools=(
        ToolSpec(
            name="get_balance",
            description="Get native or token balance for an address",
            parameters={
                "type": "object",
                "properties": {
                    "address": {"type": "string", "description": "Wallet address (0x...)"}
                },
                "required": ["address"],
            },
            level="read",
        ),
    ),
    author="zhixian",
    license="MIT",
    dependencies=("viem@^2.0.0",),
)

TOOL: dict[str, Any] = {
    "name": "look",
    "description": "PathStateCache.",
    "parameters": {"type": "object"},
    "security": {"level": "read"},
}


def skill_at(
    directory: Path, manifest: str, *, file: str = "package.json", entry: str = "index.js"
) -> Path:
    """Write a skill whose entry would leave a file behind if anybody ran it."""
    directory.mkdir(parents=True)
    (directory / file).write_text(manifest, encoding="utf-8")
    (directory / entry).parent.mkdir(parents=True, exist_ok=True)
    code = (
        "open(__file__ + '.ran', 'w')"
        if entry.endswith(".py")
        else "require('fs').writeFileSync(__filename + '.ran', '')"
    )
    (directory / entry).write_text(code, encoding="utf-8")
    return directory


def package(**changes: Any) -> str:
    """Return a package.json; `own` replaces parts of its special field, None takes a field out."""
    own = {"tools": [TOOL], **changes.pop("own", {})}
    table: dict[str, Any] = {
        "name": "eyes",
        "version": "1.0.0",
        "description": "Sees.",
        "owliabot": own,
    }
    table.update(changes)
    return json.dumps({key: value for key, value in table.items() if value is not None}, indent=1)


def findings(result: ManifestResult) -> list[tuple[str, int | None]]:
    return [(found.code, found.line) for found in result.diagnostics]


@pytest.mark.req("S002-24", "S002-25", "S002-28", "S002-29", "S002-30", "S002-35")
def test_the_published_manifest_is_read_as_published(tmp_path: Path) -> None:
    skill = skill_at(tmp_path / "skill", PUBLISHED)
    assert read_manifest(skill) == ManifestResult(directory=skill, manifest=EXPECTED)
    assert has_manifest(skill)
    assert not (skill / "index.js.ran").exists()


@pytest.mark.req("S002-35")
def test_python_says_the_same_in_its_own_manner(tmp_path: Path) -> None:
    skill = skill_at(tmp_path / "skill", PYTHON, file="pyproject.toml", entry="main.py")
    found = read_manifest(skill).manifest
    assert found is not None
    shared = ("name", "version", "description", "env", "tools", "author", "license")
    assert [getattr(found, key) for key in shared] == [getattr(EXPECTED, key) for key in shared]
    assert (found.language, found.entry) == ("python", "main.py")
    assert found.dependencies == ("viem==2.0.0",)
    assert not (skill / "main.py.ran").exists()


@pytest.mark.req("S002-26", "S002-27", "S002-74")
def test_what_may_be_left_out(tmp_path: Path) -> None:
    tools = [TOOL, {**TOOL, "name": "stare", "timeout": 120_000}]
    skill = skill_at(tmp_path / "skill", package(own={"tools": tools}))
    found = read_manifest(skill).manifest
    assert found is not None
    assert (found.entry, found.env, found.dependencies) == ("index.js", (), ())
    assert [tool.timeout_ms for tool in found.tools] == [None, 120_000]


def test_the_long_form_of_an_author_is_read(tmp_path: Path) -> None:
    skill = skill_at(tmp_path / "skill", package(author={"name": "zhixian", "email": "z@x"}))
    found = read_manifest(skill).manifest
    assert found is not None
    assert found.author == "zhixian"


BROKEN: dict[str, tuple[str, list[tuple[str, int | None]]]] = {
    "not JSON": ('{"name": "a",\n "x": }', [("manifest-syntax", 2)]),
    "a list": ("[]", [("manifest-syntax", 1)]),
    "a key twice": ('{"name": "a", "name": "b", "owliabot": {}}', [("manifest-syntax", None)]),
    "no number": ('{"name": NaN, "owliabot": {}}', [("manifest-syntax", None)]),
    "deep": ("[" * 100_000, [("manifest-syntax", None)]),
    "digits": ('{"owliabot": ' + "9" * 5_000 + "}", [("manifest-syntax", None)]),
    "no field": (package(owliabot=None), [("manifest-field-missing", None)]),
    "field of text": (package(owliabot="yes"), [("manifest-type", 5)]),
    "no name": (package(name=None), [("manifest-field-missing", 1)]),
    "name of a number": (package(name=7), [("manifest-type", 2)]),
    "another's prefix": (package(name="a:b"), [("manifest-name", 2)]),
    "scoped": (package(name="@me/eyes"), [("manifest-name", 2)]),
    "hidden": (package(description="Sees.\U000e0041"), [("hidden-characters", 4)]),
    "long": (package(description="x" * 4_097), [("manifest-too-long", 4)]),
    "version": (package(version="1; x"), [("manifest-version", 3)]),
    "no tools": (package(own={"tools": []}), [("manifest-tools", 6)]),
    "many tools": (package(own={"tools": [TOOL] * 65}), [("manifest-tools", 6)]),
    "tool of text": (package(own={"tools": ["look"]}), [("manifest-type", 7)]),
    "tool twice": (package(own={"tools": [TOOL, TOOL]}), [("tool-twice", 18)]),
    "bare name": (package(own={"tools": [{**TOOL, "name": "a:b"}]}), [("tool-name", 8)]),
    "level": (
        package(own={"tools": [{**TOOL, "security": {"level": "admin"}}]}),
        [("tool-level", 14)],
    ),
    "no level": (package(own={"tools": [{**TOOL, "security": {}}]}), [("tool-level", 13)]),
    "no schema": (package(own={"tools": [{**TOOL, "parameters": None}]}), [("tool-schema", 10)]),
    "schema": (
        package(own={"tools": [{**TOOL, "parameters": {"type": "object", "required": "a"}}]}),
        [("tool-schema", 12)],
    ),
    "returns a list": (
        package(own={"tools": [{**TOOL, "returns": {"type": "array"}}]}),
        [("tool-schema", 16)],
    ),
    "returns elsewhere": (
        package(own={"tools": [{**TOOL, "returns": {"type": "object", "$ref": "https://a.b"}}]}),
        [("tool-schema", 18)],
    ),
    "timeout 0": (package(own={"tools": [{**TOOL, "timeout": 0}]}), [("tool-timeout", 16)]),
    "timeout true": (package(own={"tools": [{**TOOL, "timeout": True}]}), [("tool-timeout", 16)]),
    "timeout long": (package(own={"tools": [{**TOOL, "timeout": 1e9}]}), [("tool-timeout", 16)]),
    "env of text": (package(own={"requires": {"env": "A"}}), [("manifest-type", 19)]),
    "env name": (package(own={"requires": {"env": ["A", "A=B"]}}), [("env-name", 21)]),
    "loader": (package(own={"requires": {"env": ["LD_PRELOAD"]}}), [("env-refused", 20)]),
    "options": (package(own={"requires": {"env": ["NODE_OPTIONS"]}}), [("env-refused", 20)]),
    "ours": (package(own={"requires": {"env": ["SKILLHOUSE_TOKEN"]}}), [("env-refused", 20)]),
    "absolute": (package(main="/etc/passwd.js"), [("entry-path", 19)]),
    "climbing": (package(main="../index.js"), [("entry-path", 19)]),
    "missing": (package(main="lib/none.js"), [("entry-not-found", None)]),
    "binary": (package(main="index.node"), [("entry-kind", 19)]),
}


@pytest.mark.req("S002-33", "S002-34", "S002-72")
@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_manifest_gives_no_skill_but_code_and_line(case: str, tmp_path: Path) -> None:
    text, expected = BROKEN[case]
    result = read_manifest(skill_at(tmp_path / "skill", text))
    errors = [found for found in result.diagnostics if found.severity is Severity.ERROR]
    assert result.manifest is None
    assert [(found.code, found.line) for found in errors] == expected
    assert all("\n" not in found.message and found.path is not None for found in errors)


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    broken = {**TOOL, "security": {"level": "admin"}, "timeout": -1, "name": "a b"}
    text = package(name="a/b", own={"tools": [broken, broken], "requires": {"env": ["1"]}})
    codes = {code for code, _ in findings(read_manifest(skill_at(tmp_path / "skill", text)))}
    assert codes >= {"manifest-name", "tool-level", "tool-timeout", "tool-name", "env-name"}


@pytest.mark.req("S002-36")
def test_typescript_is_refused_with_what_to_do(tmp_path: Path) -> None:
    result = read_manifest(skill_at(tmp_path / "skill", package(main="src/index.ts")))
    (found,) = result.diagnostics
    assert found.message == (
        "expected JavaScript, got `src/index.ts`: compile it (`npx tsc src/index.ts`) and set "
        "`main` to `src/index.js`"
    )


def test_a_misspelt_key_is_mentioned(tmp_path: Path) -> None:
    text = package(own={"tools": [{**TOOL, "timeuot": 5}], "require": {"env": ["A"]}})
    result = read_manifest(skill_at(tmp_path / "skill", text))
    assert result.manifest is not None
    assert [found.message for found in result.diagnostics] == [
        "unknown key 'require'; did you mean `requires`",
        "unknown key 'timeuot'; did you mean `timeout`",
    ]


def test_a_secret_must_be_declared_and_a_private_key_is_mentioned(tmp_path: Path) -> None:
    names = ["TELEGRAM_BOT_TOKEN", "WALLET_PRIVATE_KEY", "TELEGRAM_BOT_TOKEN"]
    result = read_manifest(skill_at(tmp_path / "a", package(own={"requires": {"env": names}})))
    assert result.manifest is not None
    assert result.manifest.env == ("TELEGRAM_BOT_TOKEN", "WALLET_PRIVATE_KEY")
    assert findings(result) == [("env-private-key", 21)]
    none = read_manifest(skill_at(tmp_path / "b", package())).manifest
    assert none is not None
    assert none.env == ()


def test_two_manifests_are_one_too_many(tmp_path: Path) -> None:
    skill = skill_at(tmp_path / "skill", PUBLISHED)
    (skill / "pyproject.toml").write_text(PYTHON, encoding="utf-8")
    result = read_manifest(skill)
    assert (result.manifest, findings(result)) == (None, [("manifest-twice", None)])


def test_a_file_that_claims_nothing_is_no_second_manifest(tmp_path: Path) -> None:
    skill = skill_at(tmp_path / "skill", PYTHON, file="pyproject.toml", entry="main.py")
    (skill / "package.json").write_text('{"devDependencies": {}}', encoding="utf-8")
    result = read_manifest(skill)
    assert result.manifest is not None
    assert result.diagnostics == ()


@pytest.mark.req("S002-32")
def test_a_package_without_the_field_is_an_error_unless_it_is_a_markdown_skill(
    tmp_path: Path,
) -> None:
    skill = skill_at(tmp_path / "skill", package(owliabot=None))
    assert not has_manifest(skill)
    assert findings(read_manifest(skill)) == [("manifest-field-missing", None)]
    (skill / "SKILL.md").write_text("---\nname: skill\ndescription: d\n---\n", encoding="utf-8")
    assert read_manifest(skill) == ManifestResult(directory=skill, manifest=None)


def test_either_may_stand_beside_a_skill_md(tmp_path: Path) -> None:
    skill = skill_at(tmp_path / "skill", PUBLISHED)
    (skill / "SKILL.md").write_text("---\nname: skill\ndescription: d\n---\n", encoding="utf-8")
    assert read_manifest(skill).manifest == EXPECTED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PYTHON.replace('"read"', '"admin"'), [("tool-level", 15)]),
        (PYTHON.replace('["address"]', "[2026-01-27]"), [("tool-schema", 17)]),
        (PYTHON.replace('["viem==2.0.0"]', '"viem"'), [("manifest-type", 7)]),
        (PYTHON.replace("[project]", "[project"), [("manifest-syntax", 1)]),
        (
            PYTHON.replace("[tool.skillhouse]", "[tool.skillhouse]\nmain='x.js'"),
            [("entry-kind", 10)],
        ),
        ("a = " + "[" * 100_000, [("manifest-syntax", None)]),
        ('tool = "x"\n', [("manifest-field-missing", None)]),
    ],
)
def test_a_broken_pyproject_has_code_and_line(
    text: str, expected: list[tuple[str, int | None]], tmp_path: Path
) -> None:
    skill = skill_at(tmp_path / "skill", text, file="pyproject.toml", entry="main.py")
    result = read_manifest(skill)
    assert (result.manifest, findings(result)) == (None, expected)


@pytest.mark.req("S002-32", "S002-33", "S002-54")
def test_a_bad_skill_costs_no_other(tmp_path: Path) -> None:
    skill_at(tmp_path / "b-good", PUBLISHED)
    skill_at(tmp_path / "a-bad", '{"owliabot": {')
    skill_at(tmp_path / "e-broken", "{")
    skill_at(tmp_path / "c-fieldless", package(owliabot=None))
    skill_at(tmp_path / "d-levelless", package(own={"tools": [{**TOOL, "security": None}]}))
    skill_at(tmp_path / "node_modules/x", package())
    skill_at(tmp_path / ".hidden", package())
    (tmp_path / "plain").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "z-link").symlink_to(tmp_path / "b-good")
    found = {result.directory.name: result for result in find_manifests(tmp_path)}
    assert {name: findings(result) for name, result in found.items()} == {
        "a-bad": [("manifest-syntax", 1)],
        "b-good": [],
        "d-levelless": [("manifest-type", 13)],
    }
    assert found["b-good"].manifest == EXPECTED
    # Whoever names such a directory hears what it lacks; found below a root it is no skill at all.
    for name, code in (("c-fieldless", "manifest-field-missing"), ("e-broken", "manifest-syntax")):
        assert [one for one, _ in findings(read_manifest(tmp_path / name))] == [code]


CLAIMS: dict[str, list[tuple[str, bytes]]] = {
    "said": [
        ("package.json", b'{"name": "x", "owliabot": {"tools": []}}'),
        ("package.json", b'\xef\xbb\xbf{"owliabot": {}}'),
        ("package.json", b'{"owliab\\u006ft": {}}'),
        ("package.json", b'{"owliabot": {}, "a": NaN, "a": 1}'),
        ("package.json", b'{"name": "x", "owliabot": {"tools": ['),
        ("package.json", b'{"owliabot"\n:\n{' + b" " * (1 << 20)),
        ("pyproject.toml", b"[tool.skillhouse]\n"),
        ("pyproject.toml", b"[[tool.skillhouse.tools]]\n"),
        ("pyproject.toml", b"[tool]\nskillhouse = {}\n"),
        ("pyproject.toml", b"tool.skillhouse.main = 'a.py'\n"),
        ("pyproject.toml", b'[tool."skill\\u0068ouse"]\n'),
        ("pyproject.toml", b"\xef\xbb\xbf[tool.skillhouse]\n"),
        ("pyproject.toml", b"[project\n[tool . skillhouse]\n"),
    ],
    "not said": [
        ("package.json", b'{"name": "x"}'),
        ("package.json", b'{"dependencies": {"owliabot": "^1.0.0"}}'),
        ("package.json", b'{"name": "owliabot", "keywords": ["owliabot"]}'),
        ("package.json", b'{"config": {"owliabot": {}}}'),
        ("package.json", b'{"name": "a", "name": "b", "devDependencies": {"owliabot": "*"}}'),
        ("package.json", b'{"name": "owliabot",'),
        ("package.json", b'{"devDependencies": {"owliabot": "1"},'),
        ("package.json", b"[1, 2]"),
        ("package.json", b"null"),
        ("package.json", b""),
        ("package.json", b"[" * 100_000),
        ("package.json", b'{"a": "' + b"x" * 10_000_000 + b'"}'),
        ("package.json", b'\xff\xfe{\x00"\x00}\x00'),
        ("package.json", b'{"a": "\\ud800", "b": "\xed\xa0\x80 owliabot"}'),
        ("pyproject.toml", b"[project]\ndependencies = ['skillhouse']\n"),
        (
            "pyproject.toml",
            b"[project]\nname = 'skillhouse'\n[project.scripts]\nskillhouse = 'a'\n",
        ),
        ("pyproject.toml", b"[tool.uv.sources]\nskillhouse = {path = '.'}\n"),
        ("pyproject.toml", b"[tool.skillhouse-lint]\n"),
        ("pyproject.toml", b"[project\n[tool.skillhouse-lint]\n"),
        ("pyproject.toml", b"a." * 100_000 + b"skillhouse = 1"),
        ("pyproject.toml", b"a = 'skillhouse'\nb = " + b"[" * 100_000),
        ("Cargo.toml", b"[tool.skillhouse]\n"),
    ],
}


@pytest.mark.req("S002-24", "S002-32")
@pytest.mark.parametrize(
    ("said", "file", "data"),
    [(said == "said", *case) for said, cases in CLAIMS.items() for case in cases],
    ids=lambda value: value[:40].decode("latin-1") if isinstance(value, bytes) else None,
)
def test_a_package_is_a_skill_only_where_it_says_so(
    said: bool,
    file: str,
    data: bytes,
    tmp_path: Path,
) -> None:
    assert says_skill(file, data[: MANIFEST_MAX + 1]) is said
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / file).write_bytes(data)
    assert has_manifest(tmp_path / "one") is said
    assert [one.directory.name for one in find_manifests(tmp_path)] == ["one"] * said


def test_the_broken_package_of_a_markdown_skill_is_no_fault_of_the_skill(tmp_path: Path) -> None:
    skill = tmp_path / "skill"
    skill.mkdir()
    (skill / "SKILL.md").write_text("---\nname: skill\ndescription: d\n---\n", encoding="utf-8")
    for data in (b"{", b"[]", b"\xff", b'{"a": "' + b"x" * 300_000, b'{"a": 1, "a": 2}'):
        (skill / "package.json").write_bytes(data)
        assert read_manifest(skill) == ManifestResult(directory=skill, manifest=None)
    (skill / "package.json").write_bytes(b'{"owliabot": {')
    assert [code for code, _ in findings(read_manifest(skill))] == ["manifest-syntax"]


@pytest.mark.req("S002-72")
def test_no_skill_takes_the_name_of_another(tmp_path: Path) -> None:
    for name in ("aaa", "crypto"):
        skill_at(tmp_path / name, PUBLISHED)
    results = find_manifests(tmp_path)
    assert [result.manifest for result in results] == [None, None]
    assert {code for result in results for code, _ in findings(result)} == {"duplicate"}


def test_a_root_that_is_missing_has_none_and_a_large_one_is_cut_with_a_word(tmp_path: Path) -> None:
    assert find_manifests(tmp_path / "none") == ()
    for number in range(4):
        skill_at(tmp_path / f"s{number}", package(name=f"s{number}"))
    *results, last = find_manifests(tmp_path, max_directories=2)
    assert [result.directory.name for result in results] == ["s0", "s1"]
    assert findings(last) == [("scan-limit", None)]


WORDS = st.sampled_from(
    "name version description author license main dependencies owliabot requires env tools "
    "parameters security level timeout type properties project tool skillhouse".split()
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["read", "object", "index.js", "../x.js", "A", "a:b"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=30,
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=30)
@given(
    own=VALUES, rest=st.dictionaries(WORDS, VALUES, max_size=4), tool=st.dictionaries(WORDS, VALUES)
)
def test_whatever_a_manifest_holds_is_judged(
    own: object, rest: dict[str, object], tool: dict[str, object]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        for table in (
            {**rest, "owliabot": own},
            {**rest, "owliabot": {"tools": [{**TOOL, **tool}]}},
        ):
            (Path(directory) / "package.json").write_text(json.dumps(table))
            (Path(directory) / "index.js").touch()
            result = read_manifest(Path(directory))
            errors = [found for found in result.diagnostics if found.severity is Severity.ERROR]
            assert (result.manifest is None) == bool(errors)


@given(data=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_whatever_bytes_a_manifest_has_are_judged(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        for file in ("package.json", "pyproject.toml"):
            (Path(directory) / file).write_bytes(data)
            assert read_manifest(Path(directory)).manifest is None
            (Path(directory) / file).unlink()
