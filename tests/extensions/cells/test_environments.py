"""Tests of extensions/cells/environments.py: dependencies installed from locks, without their code."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import pytest
from tests.extensions.cells.packages import (
    npm_lock,
    npm_package,
    npm_registry,
    source_package,
    wheel,
)

from skillhouse.extensions.cells.environment_store import YOUNG_SECONDS, EnvironmentStore
from skillhouse.extensions.cells.environments import (
    Environment,
    EnvironmentRules,
    check_installable,
    prepare,
)
from skillhouse.extensions.cells.installers import InstallerResult, run_tool
from skillhouse.floor import structs
from skillhouse.sandbox import SandboxError, default_python
from skillhouse.skill import SkillManifest

pytestmark = pytest.mark.slow

UV = next(
    (path for path in (Path(__file__).parents[2] / ".x/uv/bin/uv",) if path.exists()),
    Path(shutil.which("uv") or "uv"),
)
NPM = shutil.which("npm")
needs_npm = pytest.mark.skipif(NPM is None, reason="npm is not installed")

PYTHON = SkillManifest(
    name="s", version="1", description="d", language="python", entry="main.py", env=(), tools=(),
    dependencies=("greet==1.0",),
)  # fmt: skip
JAVASCRIPT = structs.replace(
    PYTHON, language="javascript", entry="index.js", dependencies=("greet@^1.0.0",)
)


def rules_for(tmp_path: Path, **variables: str) -> EnvironmentRules:
    """Return rules whose installers find packages in `tmp_path/wheels` alone, and no network."""
    settings = tmp_path / "uv.toml"
    settings.write_text(f'no-index = true\noffline = true\nfind-links = ["{tmp_path}/wheels"]\n')
    (tmp_path / "wheels").mkdir(exist_ok=True)
    return EnvironmentRules(
        uv=UV,
        variables={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path / "home"),
            "UV_CONFIG_FILE": str(settings),
            "UV_CACHE_DIR": str(tmp_path / "uv-cache"),
            **variables,
        },
    )


def search_path(
    manifest: SkillManifest,
    directory: Path,
    environment: Environment | None,
    *,
    rules: EnvironmentRules | None = None,
) -> tuple[Path, ...]:
    """Return where a dependency is looked for, nearest first (S002-63).

    The skill's own, what was installed for it, the packages of its place, those of the host. Python
    has them on `sys.path`; for Node each is a `node_modules` one level further up from the skill.
    """
    rules = rules or EnvironmentRules()
    own = directory if manifest.language == "python" else directory / "node_modules"
    places = (own, environment.path if environment else None, rules.shared, rules.host)
    return tuple(place for place in places if place is not None and place.is_dir())


def python_skill(tmp_path: Path, *lines: str, name: str = "skill") -> Path:
    skill = tmp_path / name
    skill.mkdir(parents=True)
    (skill / "requirements.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return skill


def prepared(
    manifest: SkillManifest, skill: Path, tmp_path: Path, rules: EnvironmentRules
) -> Environment | None:
    async def go() -> Environment | None:
        return await prepare(manifest, skill, tmp_path / "cache", rules=rules)

    return anyio.run(go)


def environment_of(
    manifest: SkillManifest, skill: Path, tmp_path: Path, rules: EnvironmentRules
) -> Environment:
    found = prepared(manifest, skill, tmp_path, rules)
    assert found is not None
    return found


def refusal(
    manifest: SkillManifest, skill: Path, tmp_path: Path, rules: EnvironmentRules
) -> tuple[str, str]:
    """Return code and message of a refusal; no environment and no staging may be left."""
    with pytest.raises(SandboxError) as caught:
        prepared(manifest, skill, tmp_path, rules)
    if (tmp_path / "cache").exists():
        assert [path.name for path in (tmp_path / "cache").iterdir() if path.name != "locks"] == []
    return caught.value.code, str(caught.value)


def said(code: str, *places: Path) -> str:
    """Return what a fresh Python prints that has only these places."""
    program = f"import sys; sys.path[:0] = {[str(place) for place in places]!r}; {code}"
    done = subprocess.run(
        [sys.executable, "-I", "-B", "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


class Counted:
    """Runs installers, or fails, and remembers which."""

    def __init__(self, *, works: bool = True) -> None:
        self.programs: list[str] = []
        self._works = works

    async def __call__(
        self, argv: Sequence[str], *, cwd: Path, variables: Mapping[str, str], seconds: float
    ) -> InstallerResult:
        self.programs.append(argv[0])
        if not self._works:
            return InstallerResult(1, "")
        return await run_tool(argv, cwd=cwd, variables=variables, seconds=seconds)


def test_locked_wheels_are_installed_once_and_read_only(tmp_path: Path) -> None:
    sha = wheel(tmp_path / "wheels", "greet", "1.0", "word = 'hello'")
    line = f"greet==1.0 \\\n    --hash=sha256:{sha}  # via nothing"
    skill = python_skill(tmp_path, "# a comment", line)
    rules = rules_for(tmp_path)
    first = environment_of(PYTHON, skill, tmp_path, rules)
    assert said("import greet; print(greet.word)", first.path) == "hello"
    assert [path for path in first.path.rglob("*") if path.stat().st_mode & 0o222] == []
    other = python_skill(tmp_path, f"greet == 1.0 --hash=sha256:{sha}", name="other")

    calls = Counted(works=False)

    async def again() -> Environment | None:
        return await prepare(PYTHON, other, tmp_path / "cache", run=calls, rules=rules)

    assert anyio.run(again) == first
    assert calls.programs == []


def uv_skill(tmp_path: Path, sha: str, *, name: str = "skill") -> Path:
    """Write a skill with a uv.lock whose addresses nobody asks."""
    skill = tmp_path / name
    skill.mkdir()
    (skill / "pyproject.toml").write_text(
        '[project]\nname = "s"\nversion = "1"\nrequires-python = ">=3.11"\n'
        'dependencies = ["greet==1.0"]\n'
        '[tool.uv]\nindex-url = "https://elsewhere.invalid/"\n'
    )
    (skill / "uv.lock").write_text(
        'version = 1\nrequires-python = ">=3.11"\n'
        '[[package]]\nname = "greet"\nversion = "1.0"\n'
        'source = { registry = "https://elsewhere.invalid/simple" }\n'
        'wheels = [{ url = "https://elsewhere.invalid/greet-1.0-py3-none-any.whl", '
        f'hash = "sha256:{sha}" }}]\n'
        '[[package]]\nname = "s"\nversion = "1"\nsource = { virtual = "." }\n'
        'dependencies = [{ name = "greet" }]\n'
        "[package.metadata]\n"
        'requires-dist = [{ name = "greet", specifier = "==1.0" }]\n'
    )
    return skill


def test_a_uv_lock_is_read_without_looking_anything_up(tmp_path: Path) -> None:
    sha = wheel(tmp_path / "wheels", "greet", "1.0", "word = 'hello'")
    skill = uv_skill(tmp_path, sha)
    found = environment_of(PYTHON, skill, tmp_path, rules_for(tmp_path))
    assert said("import greet; print(greet.word)", found.path) == "hello"


def test_an_installed_uv_lock_needs_no_uv_and_no_pip(tmp_path: Path) -> None:
    sha = wheel(tmp_path / "wheels", "greet", "1.0", "word = 'hello'")
    skill = uv_skill(tmp_path, sha)
    first = environment_of(PYTHON, skill, tmp_path, rules_for(tmp_path))
    without = EnvironmentRules(variables={"PATH": str(tmp_path)})
    calls = Counted(works=False)

    async def again() -> Environment | None:
        cache = tmp_path / "cache"
        await check_installable(PYTHON, skill, cache, run=calls, rules=without)
        return await prepare(PYTHON, skill, cache, run=calls, rules=without)

    assert anyio.run(again) == first
    # Also where the note about this lock is gone, and it is read again.
    shutil.rmtree(tmp_path / "cache/known")
    assert anyio.run(again) == first
    assert calls.programs == []


def test_a_note_about_a_lock_counts_as_long_as_its_environment_is_there(tmp_path: Path) -> None:
    sha = wheel(tmp_path / "wheels", "greet", "1.0", "word = 'hello'")
    skill = uv_skill(tmp_path, sha)
    rules = rules_for(tmp_path)
    first = environment_of(PYTHON, skill, tmp_path, rules)
    [note] = (tmp_path / "cache/known").iterdir()
    store = EnvironmentStore(tmp_path / "cache", clock=lambda: time.time() + 2 * YOUNG_SECONDS)
    assert store.collect(0) == (first.digest.removeprefix("sha256:"),)
    assert environment_of(PYTHON, skill, tmp_path, rules) == first
    # One that was changed names nothing.
    note.write_text("../../elsewhere")
    assert environment_of(PYTHON, skill, tmp_path, rules) == first
    assert note.read_text() == first.digest.removeprefix("sha256:")
    other = uv_skill(tmp_path, "0" * 64, name="other")
    assert refused_code(PYTHON, other, tmp_path, rules) == "dependencies-install"


def refused_code(
    manifest: SkillManifest, skill: Path, tmp_path: Path, rules: EnvironmentRules
) -> str:
    with pytest.raises(SandboxError) as caught:
        prepared(manifest, skill, tmp_path, rules)
    return caught.value.code


def test_what_cannot_be_installed_is_known_before_anything_is(tmp_path: Path) -> None:
    sha = wheel(tmp_path / "wheels", "greet", "1.0", "word = 'hello'")
    skill = uv_skill(tmp_path, sha)
    nothing = EnvironmentRules(variables={"PATH": str(tmp_path)})

    def code(manifest: SkillManifest, directory: Path, rules: EnvironmentRules) -> str:
        calls = Counted(works=False)

        async def check() -> None:
            await check_installable(manifest, directory, tmp_path / "cache", run=calls, rules=rules)

        try:
            anyio.run(check)
        except SandboxError as error:
            return error.code
        finally:
            assert not (tmp_path / "cache").exists()
        return ""

    assert code(PYTHON, skill, rules_for(tmp_path)) == ""
    assert code(PYTHON, skill, nothing) == "dependencies-tool"
    (tmp_path / "empty").mkdir()
    assert code(PYTHON, tmp_path / "empty", nothing) == "dependencies-unlocked"
    node = npm_skill(tmp_path, "1.0.0", b"x", name="node")
    assert code(JAVASCRIPT, node, nothing) == "dependencies-tool"
    (skill / "uv.lock").write_text("version = 2\n")
    assert code(PYTHON, skill, rules_for(tmp_path)) == "dependencies-lock"


def test_a_package_of_other_bytes_than_locked_is_not_installed(tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "greet", "1.0", "word = 'evil'")
    skill = python_skill(tmp_path, f"greet==1.0 --hash=sha256:{'0' * 64}")
    assert refusal(PYTHON, skill, tmp_path, rules_for(tmp_path))[0] == "dependencies-install"


REFUSED = {
    "no hash": ("greet==1.0", "dependencies-unhashed"),
    "a range": (f"greet>=1.0 --hash=sha256:{'0' * 64}", "dependencies-unhashed"),
    "an index": ("--index-url https://elsewhere.invalid/", "dependencies-line"),
    "links": ("--find-links /tmp", "dependencies-line"),
    "another file": ("-r /etc/passwd", "dependencies-line"),
    "editable": ("-e .", "dependencies-line"),
    "a directory": ("./local", "dependencies-line"),
    "an address": (
        f"greet @ https://elsewhere.invalid/g.whl --hash=sha256:{'0' * 64}",
        "dependencies-line",
    ),
    "a repository": ("git+https://elsewhere.invalid/g.git", "dependencies-line"),
    "an option behind": (
        f"greet==1.0 --hash=sha256:{'0' * 64} --global-option=x",
        "dependencies-line",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_line_that_is_no_pinned_name_is_refused(case: str, tmp_path: Path) -> None:
    line, code = REFUSED[case]
    found, message = refusal(
        PYTHON, python_skill(tmp_path, "", line), tmp_path, rules_for(tmp_path)
    )
    assert (found, "line 2" in message) == (code, True)


def test_set_up_code_runs_only_where_the_operator_allows_it(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    sha = source_package(tmp_path / "wheels", "greet", "1.0", f"open({str(ran)!r}, 'w').close()")
    skill = python_skill(tmp_path, f"greet==1.0 --hash=sha256:{sha}")
    rules = rules_for(tmp_path)
    assert refusal(PYTHON, skill, tmp_path, rules)[0] == "dependencies-install"
    assert not ran.exists()
    # What allows it runs it; a back end that builds nothing then fails.
    assert refusal(PYTHON, skill, tmp_path, structs.replace(rules, builds=True))
    assert ran.exists()


def test_without_uv_the_interpreters_pip_installs_the_same(tmp_path: Path) -> None:
    for python in (str(default_python().program), sys.executable):
        argv = [python, "-I", "-m", "pip", "--version"]
        if subprocess.run(argv, capture_output=True, check=False).returncode == 0:
            break
    else:
        pytest.skip("neither the default Python nor ours has pip")
    sha = wheel(tmp_path / "wheels", "greet", "1.0", "word = 'hello'")
    skill = python_skill(tmp_path, f"greet==1.0 --hash=sha256:{sha}")
    variables = {
        "PATH": str(tmp_path),  # Where there is no uv.
        "HOME": str(tmp_path / "home"),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "wheels"),
    }
    rules = EnvironmentRules(variables=variables)
    found = environment_of(PYTHON, skill, tmp_path, rules)
    assert said("import greet; print(greet.word)", found.path) == "hello"


def test_each_interpreter_has_wheels_of_its_own(tmp_path: Path) -> None:
    sha = wheel(tmp_path / "wheels", "greet", "1.0", "word = 'hello'")
    skill = python_skill(tmp_path, f"greet==1.0 --hash=sha256:{sha}")
    default = default_python()
    major, minor, patch = default.version
    others = (
        structs.replace(default, version=(major, minor, patch + 1)),
        structs.replace(default, suffix=".cpython-399-x86_64-linux-gnu.so"),
    )
    rules = rules_for(tmp_path)
    digests = {
        environment_of(PYTHON, skill, tmp_path, structs.replace(rules, python=one)).digest
        for one in (None, default, *others)
    }
    assert len(digests) == 3


async def test_without_uv_and_pip_it_is_said_what_to_install(tmp_path: Path) -> None:
    skill = python_skill(tmp_path, f"greet==1.0 --hash=sha256:{'0' * 64}")
    rules = EnvironmentRules(variables={"PATH": str(tmp_path)})

    async def fail(
        argv: Sequence[str], *, cwd: Path, variables: Mapping[str, str], seconds: float
    ) -> InstallerResult:
        return InstallerResult(1, "No module named pip")

    with pytest.raises(SandboxError, match="need `uv`, or pip for") as caught:
        await prepare(PYTHON, skill, tmp_path / "cache", run=fail, rules=rules)
    assert caught.value.code == "dependencies-tool"


def test_unhashed_lines_are_the_operators_choice(tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "greet", "1.0", "word = 'hello'")
    skill = python_skill(tmp_path, "greet>=0.5,<2")
    rules = structs.replace(rules_for(tmp_path), unhashed=True)
    found = environment_of(PYTHON, skill, tmp_path, rules)
    assert said("import greet; print(greet.word)", found.path) == "hello"


def test_dependencies_without_a_lock_are_refused_unless_the_host_has_some(tmp_path: Path) -> None:
    skill = tmp_path / "skill"
    skill.mkdir()
    rules = rules_for(tmp_path)
    code, message = refusal(PYTHON, skill, tmp_path, rules)
    assert (code, "uv.lock" in message) == ("dependencies-unlocked", True)
    assert prepared(structs.replace(PYTHON, dependencies=()), skill, tmp_path, rules) is None
    host = structs.replace(rules, host=tmp_path)
    assert prepared(PYTHON, skill, tmp_path, host) is None


@pytest.mark.req("S002-63", "S002-64", "S002-65", "S002-66")
def test_python_looks_in_the_skill_then_its_lock_then_its_place_then_the_host(
    tmp_path: Path,
) -> None:
    old = wheel(tmp_path / "wheels", "greet", "1.0", "word = 'one'")
    new = wheel(tmp_path / "wheels", "greet", "2.0", "word = 'two'")
    one = python_skill(tmp_path, f"greet==1.0 --hash=sha256:{old}", name="one")
    two = python_skill(tmp_path, f"greet==2.0 --hash=sha256:{new}", name="two")
    plain = tmp_path / "plain"
    plain.mkdir()
    for level, modules in {
        "shared": ("greet", "both"),
        "host": ("greet", "both", "common"),
    }.items():
        for module in modules:
            (tmp_path / level).mkdir(exist_ok=True)
            (tmp_path / level / f"{module}.py").write_text(f"word = {level!r}")
    rules = structs.replace(rules_for(tmp_path), shared=tmp_path / "shared", host=tmp_path / "host")
    code = "import greet, both, common; print(greet.word, both.word, common.word)"
    words = {
        skill.name: said(
            code, *search_path(PYTHON, skill, prepared(PYTHON, skill, tmp_path, rules), rules=rules)
        )
        for skill in (one, two, plain)
    }
    assert words == {
        "one": "one shared host",
        "two": "two shared host",
        "plain": "shared shared host",
    }
    (one / "greet.py").write_text("word = 'own'")
    environment = prepared(PYTHON, one, tmp_path, rules)
    assert said(code, *search_path(PYTHON, one, environment, rules=rules)) == "own shared host"


def npm_skill(tmp_path: Path, version: str, data: bytes, name: str = "skill") -> Path:
    skill = tmp_path / name
    skill.mkdir()
    package = {
        "name": name,
        "dependencies": {"greet": version},
        "scripts": {"preinstall": f"touch {tmp_path}/ran"},
        "owliabot": {},
    }
    (skill / "package.json").write_text(json.dumps(package))
    lock = npm_lock({"greet": data}, versions={"greet": version})
    (skill / "package-lock.json").write_text(json.dumps(lock))
    return skill


@needs_npm
@pytest.mark.req("S002-63", "S002-64", "S002-65", "S002-66")
def test_npm_installs_what_is_locked_and_runs_no_script(tmp_path: Path) -> None:
    scripts = {"postinstall": f"touch {tmp_path}/ran"}
    packages = {
        ("greet", f"{n}.0.0"): npm_package(
            "greet", f"{n}.0.0", f"module.exports = {n};", scripts=scripts
        )
        for n in (1, 2)
    }
    skills = [
        npm_skill(tmp_path, version, data, name=f"skill{version[0]}")
        for (_, version), data in packages.items()
    ]
    for skill in skills:
        (skill / ".npmrc").write_text(
            "registry=https://elsewhere.invalid/\nignore-scripts=false\nscript-shell=/bin/false\n"
        )
    with npm_registry(packages) as (address, asked):
        rules = rules_for(
            tmp_path, npm_config_registry=address, npm_config_cache=str(tmp_path / "npm-cache")
        )
        found = [environment_of(JAVASCRIPT, skill, tmp_path, rules) for skill in skills]
    assert asked
    assert not (tmp_path / "ran").exists()
    # As a cell nests them: host, place, lock, skill; Node walks up (S002-63).
    words = {}
    for skill, environment in zip(skills, found, strict=True):
        place = tmp_path / f"cell-{skill.name}"
        for level, module, word in (
            ("", "common", "host"), ("", "greet", "host"), ("", "both", "host"),
            ("place", "both", "place"),
        ):  # fmt: skip
            package = place / level / "node_modules" / module
            package.mkdir(parents=True)
            (package / "index.js").write_text(f"module.exports = {word!r};")
        shutil.copytree(environment.path, place / "place/lock/node_modules")
        entry = place / "place/lock/skill/index.mjs"
        entry.parent.mkdir()
        entry.write_text(
            "import greet from 'greet'; import both from 'both'; import common from 'common';"
            "console.log(greet, both, common);"
        )
        node = shutil.which("node") or "node"
        done = subprocess.run([node, entry], capture_output=True, text=True, check=True)
        words[skill.name] = done.stdout.strip()
    assert words == {"skill1": "1 place host", "skill2": "2 place host"}


@needs_npm
def test_npm_refuses_bytes_that_differ_from_the_lock(tmp_path: Path) -> None:
    locked = npm_package("greet", "1.0.0", "module.exports = 1;")
    skill = npm_skill(tmp_path, "1.0.0", locked)
    served = {("greet", "1.0.0"): npm_package("greet", "1.0.0", "module.exports = 'evil';")}
    with npm_registry(served) as (address, _):
        rules = rules_for(
            tmp_path, npm_config_registry=address, npm_config_cache=str(tmp_path / "npm-cache")
        )
        code, message = refusal(JAVASCRIPT, skill, tmp_path, rules)
    assert (code, "EINTEGRITY" in message) == ("dependencies-install", True), message


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({"resolved": "git+ssh://git@elsewhere.invalid/x.git#abc"}, "dependencies-source"),
        ({"resolved": "file:../../../etc"}, "dependencies-source"),
        ({"link": True}, "dependencies-source"),
        ({"integrity": None}, "dependencies-unhashed"),
        ({"integrity": "sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk="}, "dependencies-unhashed"),
        ({"dependencies": {"x": "https://elsewhere.invalid/x.tgz"}}, "dependencies-source"),
        ({"dependencies": {"x": "file:../x"}}, "dependencies-source"),
        ({"dependencies": {"../x": "1"}}, "dependencies-source"),
        ({"version": "git://elsewhere.invalid/x"}, "dependencies-lock"),
    ],
)
def test_an_npm_package_from_elsewhere_is_refused(
    entry: dict[str, object], code: str, tmp_path: Path
) -> None:
    skill = npm_skill(tmp_path, "1.0.0", b"x")
    lock = json.loads((skill / "package-lock.json").read_text())
    lock["packages"]["node_modules/greet"].update(entry)
    (skill / "package-lock.json").write_text(json.dumps(lock))
    assert refusal(JAVASCRIPT, skill, tmp_path, rules_for(tmp_path))[0] == code


def test_a_skill_that_brings_its_packages_needs_no_environment(tmp_path: Path) -> None:
    skill = npm_skill(tmp_path, "1.0.0", b"x")
    (skill / "node_modules").mkdir()
    assert prepared(JAVASCRIPT, skill, tmp_path, rules_for(tmp_path)) is None
    assert search_path(JAVASCRIPT, skill, None) == (skill / "node_modules",)


def made(store: EnvironmentStore, key: str, size: int) -> None:
    store.cache.mkdir(exist_ok=True)
    with store.staging(key) as place:
        (place / "x").mkdir()
        (place / "x" / "data").write_bytes(b"x" * size)
        store.publish(place / "x", place, key, max_bytes=10_000)


def test_what_was_not_used_for_longest_goes_first_and_what_is_held_stays(tmp_path: Path) -> None:
    now = [1_000_000.0]
    store = EnvironmentStore(tmp_path / "cache", lambda: now[0])
    for key in ("aa", "bb", "cc"):
        made(store, key, 1_000)
        assert store.packages(key) is not None
        now[0] += 10
    assert store.collect(0) == ()  # Too young, all of them.
    now[0] += YOUNG_SECONDS
    assert store.packages("aa") is not None
    now[0] += YOUNG_SECONDS + 1
    with store.lease("bb") as held:
        now[0] += YOUNG_SECONDS + 1
        assert store.collect(1_500) == ("cc", "aa")
        assert held.is_dir()
    assert sorted(path.name for path in store.cache.iterdir()) == ["bb", "locks"]
    with pytest.raises(SandboxError, match="were removed"), store.lease("cc"):
        pytest.fail("a lease of nothing")


def test_what_a_crash_left_is_removed(tmp_path: Path) -> None:
    store = EnvironmentStore(tmp_path / "cache")
    made(store, "aa", 10)
    left = store.cache / "staging-bb-0011"
    (left / "deep").mkdir(parents=True)
    (left / "deep").chmod(0o500)
    store.collect(10_000)
    assert sorted(path.name for path in store.cache.iterdir()) == ["aa", "locks"]


@pytest.mark.parametrize("kind", ["link", "large"])
def test_what_may_not_be_installed_leaves_nothing(kind: str, tmp_path: Path) -> None:
    store = EnvironmentStore(tmp_path / "cache")
    store.cache.mkdir()
    with store.staging("aa") as place:
        (place / "x").mkdir()
        if kind == "link":
            (place / "x" / "etc").symlink_to("/etc")
        else:
            (place / "x" / "data").write_bytes(b"x" * 101)
        with pytest.raises(SandboxError) as caught:
            store.publish(place / "x", place, "aa", max_bytes=100)
    assert caught.value.code == ("dependencies-link" if kind == "link" else "dependencies-large")
    assert list(store.cache.iterdir()) == []


async def test_two_that_ask_at_once_install_once(tmp_path: Path) -> None:
    sha = wheel(tmp_path / "wheels", "greet", "1.0", "word = 'hello'")
    skill = python_skill(tmp_path, f"greet==1.0 --hash=sha256:{sha}")
    rules = rules_for(tmp_path)
    calls = Counted()

    async def one() -> None:
        await prepare(PYTHON, skill, tmp_path / "cache", run=calls, rules=rules)

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(one)
    assert calls.programs == [str(UV)]


def test_an_installer_that_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    slow = tmp_path / "uv"
    slow.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {tmp_path}/child\nsleep 600\n")
    slow.chmod(0o755)
    skill = python_skill(tmp_path, f"greet==1.0 --hash=sha256:{'0' * 64}")
    rules = structs.replace(rules_for(tmp_path), uv=slow, seconds=0.3)
    assert refusal(PYTHON, skill, tmp_path, rules)[0] == "dependencies-time"
    try:
        child = os.pidfd_open(int((tmp_path / "child").read_text()))
    except ProcessLookupError:
        return
    gone = select.poll()
    gone.register(child, select.POLLIN)
    assert gone.poll(10_000)
    os.close(child)


def test_a_process_that_dies_while_installing_leaves_nothing_that_counts(tmp_path: Path) -> None:
    sha = wheel(tmp_path / "wheels", "greet", "1.0", "word = 'hello'")
    skill = python_skill(tmp_path, f"greet==1.0 --hash=sha256:{sha}")
    half = tmp_path / "uv"
    # Half of an installation, then a pipe that nobody opens.
    half.write_text(
        "#!/bin/sh\nmkdir site-packages && echo half > site-packages/greet.py\n"
        f"echo > {tmp_path}/begun\nread line < {tmp_path}/never\n"
    )
    half.chmod(0o755)
    os.mkfifo(tmp_path / "never")
    os.mkfifo(tmp_path / "begun")
    rules = rules_for(tmp_path)
    code = (
        "import sys, anyio; from pathlib import Path\n"
        "from tests.extensions.cells.test_environments import *\n"
        "place = Path(sys.argv[1])\n"
        "rules = structs.replace(rules_for(place), uv=place / 'uv')\n"
        "prepared(PYTHON, place / 'skill', place, rules)\n"
    )
    root = Path(__file__).parents[2]
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=root)
    (tmp_path / "begun").read_text()
    process.kill()
    process.wait()
    left = [path.name for path in (tmp_path / "cache").iterdir()]
    assert [name for name in left if name.startswith("staging-")]
    found = environment_of(PYTHON, skill, tmp_path, rules)
    assert said("import greet; print(greet.word)", found.path) == "hello"
    key = found.digest.removeprefix("sha256:")
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == [key, "locks"]
    (tmp_path / "never").open("w").close()  # The orphan ends.
