"""Tests of extensions/cells/uv_lock.py: what one interpreter needs of a uv.lock, without uv."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.markers import Marker, default_environment
from tests.extensions.cells.test_environments import UV
from tests.harness import ran

from skillhouse.extensions.cells.uv_lock import MARKER_MAX, LockRules, uv_requirements
from skillhouse.sandbox import Python, SandboxError

SHA = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64
ROOT = '[[package]]\nname = "s"\nversion = "1"\nsource = { virtual = "." }\n'


def python(minor: int = 13, suffix: str = "") -> Python:
    return Python(
        program=Path("/usr/bin/python3"),
        prefix=Path("/usr"),
        version=(3, minor, 5),
        suffix=suffix or f".cpython-3{minor}-x86_64-linux-gnu.so",
        origin="system",
    )


def package(
    name: str,
    version: str = "1.0",
    *,
    source: str = 'registry = "https://elsewhere.invalid/simple"',
    more: str = "",
    files: tuple[str, ...] = ("py3-none-any",),
    sha: str = SHA,
) -> str:
    wheels = ", ".join(
        f'{{ url = "https://elsewhere.invalid/{name.replace("-", "_")}-{version}-{tag}.whl", '
        f'hash = "{sha}" }}'
        for tag in files
    )
    return (
        f'[[package]]\nname = "{name}"\nversion = "{version}"\nsource = {{ {source} }}\n'
        f"wheels = [{wheels}]\n{more}\n"
    )


def lock(dependencies: str, *packages: str, head: str = "version = 1", root: str = ROOT) -> str:
    return f"{head}\n{root}dependencies = [{dependencies}]\n" + "".join(packages)


def lines(text: str, rules: LockRules | None = None) -> list[str]:
    return uv_requirements(text, rules or LockRules(python=python())).splitlines()


def refusal(text: str, *wanted: str) -> tuple[str, str]:
    with pytest.raises(SandboxError) as caught:
        uv_requirements(text, LockRules(python=python()), wanted=wanted)
    return caught.value.code, str(caught.value)


def test_dependencies_of_dependencies_and_extras_are_followed() -> None:
    text = lock(
        '{ name = "a", extra = ["x"] }, { name = "s", extra = ["more"] }',
        '[package.optional-dependencies]\nmore = [{ name = "e" }]\nless = [{ name = "unwanted" }]\n'
        '[package.dev-dependencies]\ndev = [{ name = "unwanted" }]\n',
        package(
            "a",
            more='dependencies = [{ name = "b" }]\n[package.optional-dependencies]\n'
            'x = [{ name = "C.d" }]\ny = [{ name = "unwanted" }]\n',
        ),
        package("b", more='dependencies = [{ name = "a" }]\n'),
        *(package(name) for name in ("c-d", "e", "unwanted")),
    )
    found = [line.split("==")[0] for line in lines(text)]
    assert found == ["a", "b", "c-d", "e"]


def test_markers_are_those_of_the_cells_interpreter() -> None:
    names = {
        "old": "python_full_version < '3.12'",
        "new": "python_full_version >= '3.12'",
        "windows": "sys_platform == 'win32'",
        "pypy": "platform_python_implementation != 'CPython'",
        "chosen": "extra == 'extra-1-s-gpu'",
        "plain": "extra != 'extra-1-s-gpu' and sys_platform == 'linux'",
    }
    edges = ", ".join(f'{{ name = "{name}", marker = "{m}" }}' for name, m in names.items())
    text = lock(edges, *map(package, names))

    def chosen(minor: int) -> list[str]:
        found = uv_requirements(text, LockRules(python=python(minor))).splitlines()
        return [line.split("==")[0] for line in found]

    assert chosen(13) == ["new", "plain"]
    assert chosen(11) == ["old", "plain"]


def test_of_two_versions_the_edge_says_which() -> None:
    edges = (
        '{ name = "a", version = "1.0", marker = "python_full_version < \'3.12\'" }, '
        '{ name = "a", version = "2.0", marker = "python_full_version >= \'3.12\'" }'
    )
    both = (package("a"), package("a", "2.0"))
    assert lines(lock(edges, *both)) == [f"a==2.0 --hash={SHA}"]
    assert refusal(lock('{ name = "a" }', *both))[0] == "dependencies-lock"
    at_once = '{ name = "a", version = "1.0" }, { name = "a", version = "2.0" }'
    assert "two versions of `a`" in refusal(lock(at_once, *both))[1]


WHEELS = {
    "any": ("py3-none-any", True),
    "ours": ("cp313-cp313-manylinux_2_17_x86_64.manylinux2014_x86_64", True),
    "stable ABI": ("cp37-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64", True),
    "an older Python": ("cp312-cp312-manylinux_2_17_x86_64", False),
    "free-threaded": ("cp313-cp313t-manylinux_2_17_x86_64", False),
    "a newer stable ABI": ("cp314-abi3-manylinux_2_17_x86_64", False),
    "another machine": ("cp313-cp313-manylinux_2_17_s390x", False),
    "another system": ("cp313-cp313-win_amd64", False),
    "no wheel's name": ("x", False),
}


@pytest.mark.parametrize("case", WHEELS)
def test_wheels_are_chosen_by_their_tags(case: str) -> None:
    tag, is_taken = WHEELS[case]
    text = lock('{ name = "a" }', package("a", files=(tag,)))
    if is_taken:
        assert lines(text) == [f"a==1.0 --hash={SHA}"]
    else:
        code, message = refusal(text)
        assert code == "dependencies-wheel"
        assert "`a` 1.0 has no wheel in uv.lock for Python 3.13.5 on linux" in message


def test_of_an_unknown_abi_the_installer_chooses() -> None:
    text = lock('{ name = "a" }', package("a", files=("cp312-cp312-win_amd64",)))
    assert lines(text, LockRules(python=python(suffix=".so"))) == [f"a==1.0 --hash={SHA}"]


def test_a_source_distribution_only_where_the_operator_builds() -> None:
    sdist = f'sdist = {{ url = "https://elsewhere.invalid/a.tar.gz", hash = "{OTHER}" }}'
    text = lock('{ name = "a" }', package("a", files=("x",), more=sdist))
    assert refusal(text)[0] == "dependencies-wheel"
    assert lines(text, LockRules(python=python(), builds=True)) == [f"a==1.0 --hash={OTHER}"]


def test_files_without_digests_are_the_operators_choice() -> None:
    text = lock('{ name = "a" }', package("a").replace(f', hash = "{SHA}"', ""))
    assert refusal(text)[0] == "dependencies-unhashed"
    assert lines(text, LockRules(python=python(), unhashed=True)) == ["a==1.0"]


REFUSED = {
    "no TOML": ("version = ", "dependencies-lock", "not TOML"),
    "a later format": ("version = 2", "dependencies-lock", "replace it by requirements.txt"),
    "nested without end": (f"version = {'[' * 100_000}", "dependencies-lock", "not TOML"),
    "a number without end": (f"version = {'9' * 100_000}", "dependencies-lock", "not TOML"),
    "no project": (f"version = 1\n{package('a')}", "dependencies-lock", "run `uv lock`"),
    "two projects": (f"version = 1\n{ROOT}{ROOT}", "dependencies-lock", "got 2"),
    "packages of another kind": ("version = 1\npackage = 1", "dependencies-lock", "list of tables"),
    "an unknown package": (lock('{ name = "a" }'), "dependencies-lock", "expected one `a`"),
    "a repository": (
        lock('{ name = "a" }', package("a", source='git = "https://elsewhere.invalid/a?rev=1"')),
        "dependencies-source",
        "is from `git`",
    ),
    "an address": (
        lock('{ name = "a" }', package("a", source='url = "https://elsewhere.invalid/a.whl"')),
        "dependencies-source",
        "is from `url`",
    ),
    "a file of the host": (
        lock('{ name = "a" }', package("a", source='path = "/etc/a.whl"')),
        "dependencies-source",
        "is from `path`",
    ),
    "a directory of the host": (
        lock('{ name = "a" }', package("a", source='editable = "../a"')),
        "dependencies-source",
        "is from `editable`",
    ),
    "an option as name": (
        lock('{ name = "--index-url=https://elsewhere.invalid" }'),
        "dependencies-lock",
        "the name of a package",
    ),
    "a line in a name": (lock('{ name = "a\\n-e ." }'), "dependencies-lock", "name of a package"),
    "a line in a version": (
        lock('{ name = "a" }', package("a", "1\\n-e .")),
        "dependencies-lock",
        "to have a version",
    ),
    "an option as digest": (
        lock('{ name = "a" }', package("a", sha="sha256:x --index-url=y")),
        "dependencies-unhashed",
        "SHA-2 digest",
    ),
    "a weak digest": (
        lock('{ name = "a" }', package("a", sha="md5:" + "a" * 32)),
        "dependencies-unhashed",
        "SHA-2 digest",
    ),
    "a marker that is none": (
        lock('{ name = "a", marker = "os.system(1)" }', package("a")),
        "dependencies-lock",
        "a marker of uv.lock",
    ),
    "a marker of brackets": (
        lock(f'{{ name = "a", marker = "{"(" * 3_000}" }}', package("a")),
        "dependencies-lock",
        "a marker of uv.lock",
    ),
    "a long marker": (
        lock(f'{{ name = "a", marker = "{"x" * (MARKER_MAX + 1)}" }}', package("a")),
        "dependencies-lock",
        "a marker of uv.lock",
    ),
    "other systems": (
        lock("", head="version = 1\nsupported-markers = [\"sys_platform == 'win32'\"]"),
        "dependencies-wheel",
        "uv.lock is not for Python 3.13.5 on linux",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_installed_is_refused_with_what_to_do(case: str) -> None:
    text, code, part = REFUSED[case]
    found, message = refusal(text)
    assert (found, part in message) == (code, True), message
    assert len(message) < 400
    assert message.isprintable()


def test_a_lock_that_is_older_than_its_manifest_is_refused() -> None:
    metadata = '[package.metadata]\nrequires-dist = [{ name = "a" }, { name = "only-windows" }]\n'
    text = lock('{ name = "a" }', metadata, package("a"))
    rules = LockRules(python=python())
    wanted = ("A>=1", "only_windows; sys_platform == 'win32'")
    assert uv_requirements(text, rules, wanted=wanted) == f"a==1.0 --hash={SHA}\n"
    code, message = refusal(text, "a", "new[x]>=1")
    assert (code, "`new` of pyproject.toml: run `uv lock`" in message) == (
        "dependencies-lock",
        True,
    )


@pytest.mark.slow
def test_it_chooses_what_uv_itself_exports(tmp_path: Path) -> None:
    text = lock(
        '{ name = "a", extra = ["x"] }, '
        '{ name = "old", marker = "python_full_version < \'3.12\'" }, '
        '{ name = "far", marker = "sys_platform == \'win32\'" }',
        "[package.metadata]\n"
        'requires-dist = [{ name = "a", extras = ["x"] }, '
        '{ name = "old", marker = "python_full_version < \'3.12\'" }, '
        '{ name = "far", marker = "sys_platform == \'win32\'" }]\n',
        package(
            "a",
            more='dependencies = [{ name = "b", marker = "python_full_version < \'3.13\'" }]\n'
            '[package.optional-dependencies]\nx = [{ name = "c" }]\n',
        ),
        package("b", more='dependencies = [{ name = "d", marker = "os_name == \'posix\'" }]\n'),
        *(package(name) for name in ("c", "d", "old", "far")),
        head='version = 1\nrevision = 3\nrequires-python = ">=3.11"',
    )
    (tmp_path / "uv.lock").write_text(text)
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "s"\nversion = "1"\nrequires-python = ">=3.11"\n'
        'dependencies = ["a[x]", "old; python_version < \'3.12\'", '
        "\"far; sys_platform == 'win32'\"]\n"
    )
    command = [
        *(str(UV), "export", "--frozen", "--offline", "--no-config", "--no-python-downloads"),
        *("--no-emit-project", "--no-dev", "--no-header", "--no-annotate", "--quiet"),
    ]
    exported = ran(command, cwd=tmp_path, check=True)
    for minor in (11, 12, 13):
        here = {name: str(value) for name, value in default_environment().items()} | {
            "python_version": f"3.{minor}",
            "python_full_version": f"3.{minor}.5",
        }
        expected = {
            match[1]
            for match in re.finditer(r"(?m)^([a-z]+)==\S+(?: ; (.*?))? *\\$", exported.stdout)
            if not match[2] or Marker(match[2]).evaluate(here)
        }
        found = lines(text, LockRules(python=python(minor)))
        assert {line.split("==")[0] for line in found} == expected, exported.stdout
