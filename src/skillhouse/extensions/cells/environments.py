"""Dependencies of executable skills: installed once for each lock, outside of every cell.

No code of a package runs while it is installed: wheels only, and npm without scripts. The result
is a directory that cells see read-only, shared by all skills with an equal lock.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import anyio.to_thread
from msgspec import Struct, field

from skillhouse.extensions.cells.code_cache import MakeCaches, remove_caches
from skillhouse.extensions.cells.environment_locks import (
    LOCK_MAX,
    LOCKS,
    clean_npm,
    clean_requirements,
)
from skillhouse.extensions.cells.environment_store import EnvironmentStore
from skillhouse.extensions.cells.installers import RunTool, run_tool
from skillhouse.floor import Digest, PathError, canonical_json, digest, read_beneath
from skillhouse.floor.structs import PartialStruct
from skillhouse.floor.threads import in_thread
from skillhouse.sandbox import Python, SandboxError, default_python
from skillhouse.skill import SkillManifest

INSTALL_SECONDS = 300.0
ENVIRONMENT_BYTES = 512 * 1024 * 1024
CACHE_BYTES = 4 * 1024 * 1024 * 1024
"""Size of all environments; beyond it the least recently used ones are removed."""

SHOWN_MAX = 600
"""Characters of it that an error shows."""


class EnvironmentRules(PartialStruct, frozen=True, kw_only=True):
    """The operator's settings for installations; a skill sets none of them."""

    HIDDEN = frozenset(("variables",))

    python: Python | None = None
    """The interpreter of the cell, for which wheels are chosen; None takes the default."""
    uv: Path | None = None
    """None takes the one in the PATH, else a pip."""
    npm: Path | None = None
    unhashed: bool = False
    """Take requirements without digests, and what these need in turn."""
    builds: bool = False
    """Take source distributions: building one runs its code on the host, outside of any cell."""
    shared: Path | None = None
    """Packages for all skills of a place, laid out like `site-packages` or `node_modules`."""
    host: Path | None = None
    """Packages of the host that skills may import, likewise (S002-64)."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """All variables of the installers; `installer_variables` picks them."""
    seconds: float = INSTALL_SECONDS
    environment_bytes: int = ENVIRONMENT_BYTES
    cache_bytes: int = CACHE_BYTES


class Environment(Struct, frozen=True):
    """The installed packages of one lock."""

    path: Path
    """What `site-packages` or `node_modules` would hold; read-only."""
    digest: Digest
    """Of all that determines its content: the lock, the platform, the operator's rules."""

    @contextlib.contextmanager
    def lease(self) -> Iterator[Path]:
        """Keep it from being removed while a cell of any process uses it."""
        key = self.digest.removeprefix("sha256:")
        with EnvironmentStore(self.path.parent.parent).lease(key) as path:
            yield path


async def prepare(
    manifest: SkillManifest,
    directory: Path,
    cache: Path,
    *,
    run: RunTool = run_tool,
    rules: EnvironmentRules | None = None,
    caches: MakeCaches | None = None,
    count: Callable[[int], None] = lambda _: None,
) -> Environment | None:
    """Return the skill's dependencies, installed now or before; None when it has none to install.

    A skill that brings its own `node_modules` needs none (S002-63), and one without a lock may
    find what it needs among the packages of its place or of the host.

    Args:
        directory: The skill's directory, of which only the lock and the manifest are read.
        cache: Directory of all environments; made when it is missing.
        caches: Makes what spares calls the compilation of packages; without it each compiles them.
        count: Hears how many packages are installed, where they are not yet.

    Raises:
        SandboxError: there is no usable lock, or installing failed; the cache is as before.
    """
    rules = rules or EnvironmentRules()
    store = EnvironmentStore(cache)
    compiled = caches is not None
    wanted = await anyio.to_thread.run_sync(
        lambda: _wanted(manifest, directory, store, rules, compiled=compiled)
    )
    if wanted is None:
        return None
    key, path = wanted.key, wanted.path
    if path is None:
        count(_count(wanted.files))
        async with store.alone(key, seconds=rules.seconds):
            # Whoever held the lock before may have installed the very same.
            path = store.packages(key) or await _install(
                manifest, store, wanted, run, rules, caches
            )
        await anyio.to_thread.run_sync(store.collect, rules.cache_bytes)
    if wanted.source:
        store.note(wanted.source, key)
    return Environment(path, Digest(f"sha256:{key}"))


async def check_installable(
    manifest: SkillManifest,
    directory: Path,
    cache: Path,
    *,
    run: RunTool = run_tool,
    rules: EnvironmentRules | None = None,
    compiled: bool = False,
) -> None:
    """Raise what `prepare` would before it starts to install, without installing.

    What is installed already needs neither uv nor pip nor npm.
    """
    rules = rules or EnvironmentRules()
    store = EnvironmentStore(cache)
    wanted = await anyio.to_thread.run_sync(
        lambda: _wanted(manifest, directory, store, rules, compiled=compiled)
    )
    if wanted is None or wanted.path is not None:
        return
    if manifest.language == "javascript":
        _npm(rules)
    else:
        await _python_installer(run, rules)


class _Wanted(Struct, frozen=True, kw_only=True):
    key: str
    """Of the environment in the store."""
    path: Path | None
    """Where it is; None if it is not installed."""
    files: Mapping[str, str]
    """The cleaned locks to install; empty where it is known to be installed."""
    source: str = ""
    """Key of the uv.lock as it is, by which the environment is found without reading it again."""


def _wanted(
    manifest: SkillManifest,
    directory: Path,
    store: EnvironmentStore,
    rules: EnvironmentRules,
    *,
    compiled: bool,
) -> _Wanted | None:
    """Return the environment of a skill; None if it needs none."""
    if manifest.language == "javascript" and (directory / "node_modules").is_dir():
        return None
    texts = _lock_texts(manifest, directory)
    if texts is None:
        if manifest.dependencies and rules.shared is None and rules.host is None:
            raise _unlocked(manifest)
        return None
    source = _source_key(manifest, texts, rules, compiled) if "uv.lock" in texts else ""
    if source:
        key = store.known(source)
        path = store.packages(key) if key else None
        if path is not None:
            return _Wanted(key=key, path=path, files={})
    files = _cleaned(manifest, texts, rules)
    about = {"language": manifest.language, "files": files, "compiled": compiled}
    key = _key(about, manifest, rules)
    return _Wanted(key=key, path=store.packages(key), files=files, source=source)


def _source_key(
    manifest: SkillManifest,
    texts: Mapping[str, str],
    rules: EnvironmentRules,
    compiled: bool,  # noqa: FBT001 a part of the key
) -> str:
    # Markers may ask for the kernel's release and version.
    system = (*os.uname()[:1], *os.uname()[2:])
    about = {"texts": texts, "needs": manifest.dependencies, "system": system}
    return _key({**about, "compiled": compiled}, manifest, rules)


def _key(about: Mapping[str, object], manifest: SkillManifest, rules: EnvironmentRules) -> str:
    about = {
        **about,
        "platform": _platform(manifest, rules),
        "unhashed": rules.unhashed,
        "builds": rules.builds,
    }
    return digest(canonical_json(about)).removeprefix("sha256:")


def _lock_texts(manifest: SkillManifest, directory: Path) -> dict[str, str] | None:
    """Return the first lock and its manifest by their names; None when there is no lock."""
    for file, beside in LOCKS[manifest.language]:
        text = _read(directory, file)
        if text is not None:
            manifest_text = _read(directory, beside) if beside else None
            return {file: text} | ({beside: manifest_text} if manifest_text else {})
    return None


def _read(directory: Path, file: str) -> str | None:
    try:
        data = read_beneath(directory, file, max_bytes=LOCK_MAX)
        if len(data) > LOCK_MAX:
            raise SandboxError("dependencies-lock", f"expected at most {LOCK_MAX} bytes of {file}")
        return data.decode()
    except PathError as error:
        if error.code == "not-found":
            return None
        raise SandboxError("dependencies-lock", f"{error.code}: {file}") from error
    except UnicodeDecodeError as error:
        raise SandboxError("dependencies-lock", f"expected {file} to be UTF-8") from error


def _unlocked(manifest: SkillManifest) -> SandboxError:
    needs = ", ".join(manifest.dependencies)[:200]
    expected = "package-lock.json (`npm install --package-lock-only`)"
    if manifest.language == "python":
        expected = "uv.lock (`uv lock`) or requirements.txt with hashes (`pip-compile`)"
    message = f"`{manifest.name}` needs {needs}: expected {expected} beside its manifest"
    return SandboxError("dependencies-unlocked", message)


def _cleaned(
    manifest: SkillManifest, texts: Mapping[str, str], rules: EnvironmentRules
) -> dict[str, str]:
    if manifest.language == "javascript":
        package, lock = clean_npm(texts.get("package.json", "{}"), texts["package-lock.json"])
        return {"package.json": package, "package-lock.json": lock}
    text = texts.get("requirements.txt")
    if text is None:
        # Only a uv.lock needs what reads it, which loads `packaging`.
        from skillhouse.extensions.cells.uv_lock import LockRules, uv_requirements  # noqa: PLC0415

        lock_rules = LockRules(
            python=rules.python or default_python(), builds=rules.builds, unhashed=rules.unhashed
        )
        text = uv_requirements(texts["uv.lock"], lock_rules, wanted=manifest.dependencies)
    return {"requirements.txt": clean_requirements(text, unhashed=rules.unhashed)}


def _platform(manifest: SkillManifest, rules: EnvironmentRules) -> str:
    if manifest.language == "javascript":
        return f"{sys.platform} {platform.machine()}"
    python = rules.python or default_python()
    # Markers may ask for the whole version; the suffix names the ABI and the platform.
    return f"{python.release} {python.suffix}"


async def _install(
    manifest: SkillManifest,
    store: EnvironmentStore,
    wanted: _Wanted,
    run: RunTool,
    rules: EnvironmentRules,
    caches: MakeCaches | None,
) -> Path:
    is_python = manifest.language == "python"
    with store.staging(wanted.key) as place:
        for name, text in wanted.files.items():
            (place / name).write_text(text, encoding="utf-8")
        installed = place / ("site-packages" if is_python else "node_modules")
        argv = (
            await _python_argv(installed, place / "requirements.txt", run, rules)
            if is_python
            else _npm_argv(rules)
        )
        task = f"installing the dependencies of `{manifest.name}`"
        await _run(run, argv, rules, cwd=place, task=task)
        # An installer that had nothing to do makes no directory.
        installed.mkdir(exist_ok=True)
        await in_thread(lambda: remove_caches(installed))
        if caches is not None:
            named = tuple(
                json.loads(wanted.files.get("package.json", "{}")).get("dependencies", ())
            )
            python = rules.python or default_python() if is_python else None
            await caches(installed, python, named, max_bytes=rules.environment_bytes)
        return await anyio.to_thread.run_sync(
            lambda: store.publish(installed, place, wanted.key, max_bytes=rules.environment_bytes)
        )


def _count(files: Mapping[str, str]) -> int:
    """Return how many packages the cleaned locks name."""
    if "package-lock.json" in files:
        packages = json.loads(files["package-lock.json"]).get("packages", {})
        return sum(bool(name) for name in packages)
    lines = files.get("requirements.txt", "").splitlines()
    return sum(bool(line) and not line[0].isspace() and line[0] not in "#-" for line in lines)


def _find_tool(name: str, given: Path | None, rules: EnvironmentRules) -> str | None:
    if given is not None:
        return str(given)
    return shutil.which(name, path=rules.variables.get("PATH", os.defpath))


async def _python_argv(
    target: Path, file: Path, run: RunTool, rules: EnvironmentRules
) -> list[str]:
    start, is_uv = await _python_installer(run, rules)
    python = str((rules.python or default_python()).program)
    # Copies: a hard link would share its permissions with the installer's own cache.
    by_uv = ("--no-progress", "--no-python-downloads", "--python", python, "--link-mode", "copy")
    by_pip = ("--no-input", "--no-compile", "--disable-pip-version-check")
    return [
        *start,
        *("install", "--quiet", "--target", str(target)),
        *(by_uv if is_uv else (*by_pip, "--no-warn-script-location")),
        *(() if rules.unhashed else ("--no-deps", "--require-hashes")),
        *(() if rules.builds else ("--only-binary", ":all:")),
        *("--requirement", str(file)),
    ]


async def _python_installer(run: RunTool, rules: EnvironmentRules) -> tuple[list[str], bool]:
    """Return the start of a command, and whether it is uv's.

    Otherwise it is pip's: that of the cell's interpreter, or ours working for it.
    """
    uv = _find_tool("uv", rules.uv, rules)
    if uv is not None:
        return [uv, "pip"], True
    python = str((rules.python or default_python()).program)
    for program, more in ((python, ()), (sys.executable, ("--python", python))):
        argv = [program, "-I", "-m", "pip"]
        ran = await run(
            [*argv, "--version"], cwd=Path("/"), variables=rules.variables, seconds=rules.seconds
        )
        if ran.code == 0:
            return [*argv, *more], False
    message = f"packages for Python need `uv`, or pip for `{python}`: install one of them"
    raise SandboxError("dependencies-tool", message)


def _npm(rules: EnvironmentRules) -> str:
    npm = _find_tool("npm", rules.npm, rules)
    if npm is None:
        raise SandboxError("dependencies-tool", "package-lock.json needs `npm`: install it")
    return npm


def _npm_argv(rules: EnvironmentRules) -> list[str]:
    return [
        *(_npm(rules), "ci", "--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund"),
        # Links to programs are of no use in a cell.
        *("--bin-links=false", "--install-links=false"),
        *("--update-notifier=false", "--loglevel=error"),
    ]


async def _run(
    run: RunTool, argv: Sequence[str], rules: EnvironmentRules, *, cwd: Path, task: str
) -> str:
    ran = await run(argv, cwd=cwd, variables=rules.variables, seconds=rules.seconds)
    if ran.code != 0:
        shown = " ".join(ran.output.split())[-SHOWN_MAX:]
        raise SandboxError("dependencies-install", f"{task} failed ({ran.code}): {shown}")
    return ran.output
