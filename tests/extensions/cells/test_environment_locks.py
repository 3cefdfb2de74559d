"""Tests of extensions/cells/environment_locks.py: lock files taken apart and written anew."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.extensions.cells.environment_locks import (
    PACKAGES_MAX,
    clean_npm,
    clean_requirements,
)
from skillhouse.sandbox import SandboxError

A, B = "a" * 64, "b" * 64
SHA = "sha512-" + "A" * 86 + "=="


def test_requirements_are_written_in_one_spelling_and_order() -> None:
    text = (
        "# made by a tool\r\n"
        f"Zope.Interface[test] == 5.0 ; python_version < '3.13' \\\n    --hash=sha256:{A} \\\n"
        f"    --hash=sha256:{B}  # via x\n\n"
        f"a_b==1.0+local --hash=sha384:{A}{'a' * 32}"
    )
    assert clean_requirements(text) == (
        f"a-b==1.0+local --hash=sha384:{A}{'a' * 32}\n"
        f"zope-interface[test]==5.0 ; python_version < '3.13' --hash=sha256:{A} --hash=sha256:{B}\n"
    )
    assert clean_requirements("") == ""
    assert clean_requirements("a>=1, <2\nb\n", unhashed=True) == "a>=1,<2\nb\n"


def test_a_continued_last_line_is_a_line() -> None:
    with pytest.raises(SandboxError, match="line 1"):
        clean_requirements("a==1 \\")


def test_too_many_packages_are_refused() -> None:
    lines = f"a==1 --hash=sha256:{A}\n" * (PACKAGES_MAX + 1)
    with pytest.raises(SandboxError, match=str(PACKAGES_MAX)):
        clean_requirements(lines)
    with pytest.raises(SandboxError, match=str(PACKAGES_MAX)):
        clean_npm("{}", locked({f"node_modules/a{n}": entry() for n in range(PACKAGES_MAX)}))


def entry(**more: Any) -> dict[str, Any]:
    return {"version": "1.0.0", "integrity": SHA, **more}


def locked(places: Any, **more: Any) -> str:
    packages = {"": {"name": "x"}, **places} if isinstance(places, dict) else places
    return json.dumps({"lockfileVersion": 3, "packages": packages, **more})


def test_an_npm_lock_keeps_what_is_installed_and_nothing_else() -> None:
    place = "node_modules/@me/a/node_modules/b"
    full = entry(
        resolved="https://elsewhere.invalid/b.tgz", bin={"b": "../../../etc"}, os=["linux"],
        optional=True, hasInstallScript=True, name="c", dependencies={"d": "npm:e@^1.0.0 || 2.x"},
        engines={"node": ">=18"}, funding="x",
    )  # fmt: skip
    inside = {"version": "2.0.0", "inBundle": True, "integrity": SHA}
    told = {"scripts": {"preinstall": "x"}, "dependencies": {"@me/a": "^1.0.0"}, "overrides": None}
    package, lock = clean_npm(json.dumps(told), locked({place: full, "node_modules/f": inside}))
    assert json.loads(package) == {
        "name": "skill",
        "version": "0.0.0",
        "dependencies": {"@me/a": "^1.0.0"},
    }
    assert json.loads(lock)["packages"] == {
        "": {"name": "skill", "version": "0.0.0"},
        place: entry(
            optional=True, hasInstallScript=True, os=["linux"], name="c",
            dependencies={"d": "npm:e@^1.0.0 || 2.x"},
        ),
        "node_modules/f": {"version": "2.0.0", "inBundle": True},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("package", "lock", "code"),
    [
        ("{", locked({}), "dependencies-lock"),
        ("{}", "[" * 100_000, "dependencies-lock"),
        ("[]", locked({}), "dependencies-lock"),
        ("{}", locked({}, lockfileVersion=1), "dependencies-lock"),
        ("{}", locked([]), "dependencies-lock"),
        ("{}", locked({"node_modules/a": []}), "dependencies-source"),
        ("{}", locked({"node_modules/a": entry(resolved=7)}), "dependencies-source"),
        ("{}", locked({"node_modules/a": entry(version=7)}), "dependencies-lock"),
        ("{}", locked({"node_modules/a": entry(dependencies=["b"])}), "dependencies-lock"),
        ('{"overrides": {"a": "file:x"}}', locked({}), "dependencies-overrides"),
        ('{"dependencies": {"a": "user/repo"}}', locked({}), "dependencies-source"),
        ('{"devDependencies": {"a": "link:../a"}}', locked({}), "dependencies-source"),
    ],
)
def test_what_is_no_lock_of_npm_is_refused(package: str, lock: str, code: str) -> None:
    with pytest.raises(SandboxError) as caught:
        clean_npm(package, lock)
    assert caught.value.code == code


@given(text=st.text(alphabet="ab=1.; -\\\n#@:/[]'\"<>,\t\u2028", max_size=60))
def test_whatever_is_written_has_neither_options_nor_addresses(text: str) -> None:
    try:
        written = clean_requirements(text, unhashed=True)
    except SandboxError:
        return
    for line in written.splitlines():
        assert line[0] in "ab1"
        assert "://" not in line.partition(";")[0]
        assert " -" not in line.partition(";")[0]


@pytest.mark.parametrize(
    "marker",
    [
        "python_version > '3' --index-url x",
        "python_version > ' --index-url x'",
        "python_version > '3' -r b",
        "extra == '' -e .",
        "x\n--find-links y",
    ],
)
def test_a_marker_smuggles_no_option(marker: str) -> None:
    with pytest.raises(SandboxError, match=r"line [12]"):
        clean_requirements(f"a==1 ; {marker} --hash=sha256:{A}")


def test_extras_smuggle_no_option() -> None:
    with pytest.raises(SandboxError, match="line 1"):
        clean_requirements(f"a[ --index-url x]==1 --hash=sha256:{A}")


def test_the_markers_of_uv_and_pip_compile_are_taken() -> None:
    marker = (
        "(python_full_version >= '3.11' and platform_python_implementation != 'PyPy') or "
        "(extra == \"all-of\" and sys_platform not in 'win32')"
    )
    line = f"a==1 ; {marker} --hash=sha256:{A}\n"
    assert clean_requirements(line) == line


def test_a_long_marker_is_judged_in_time() -> None:
    for text in ("a==1 ; " + "a" * 100_000, "a==1 ; " + "a " * 50_000, "a==1 ; " + "(" * 100_000):
        with pytest.raises(SandboxError):
            clean_requirements(text)
