"""Dependencies of executable skills: installed once for each lock, outside of every cell.

No code of a package runs while it is installed: wheels only, and npm without scripts. The result
is a directory that cells see read-only, shared by all skills whose lock says the same.
"""

from __future__ import annotations

import contextlib
import platform
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import anyio.to_thread

from skillhouse.cells.environment_locks import LOCK_MAX, clean_npm, clean_requirements
from skillhouse.cells.environment_store import EnvironmentStore
from skillhouse.cells.environment_tools import (
    RunTool,
    check,
    export_argv,
    find_tool,
    npm_argv,
    pip_argv,
    run_tool,
    uv_argv,
)
from skillhouse.floor import Digest, PathError, canonical_json, digest, read_beneath
from skillhouse.sandbox.errors import SandboxError
from skillhouse.skill import SkillManifest

INSTALL_SECONDS = 300.0
"""Time of one installation."""
ENVIRONMENT_BYTES = 512 * 1024 * 1024
"""Size of one environment."""
CACHE_BYTES = 4 * 1024 * 1024 * 1024
"""Size of all of them, from which on the least recently used one is removed."""

_WHERE_PYTHON = (
    "import sys, sysconfig; print(sys.implementation.cache_tag, sysconfig.get_platform())"
)
_PYTHON_FILES = ("uv.lock", "requirements.txt")
_JAVASCRIPT_FILES = ("package-lock.json",)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentRules:
    """What the operator allows, and where the tools are; no skill sets any of it."""

    python: Path = Path(sys.executable)
    """The interpreter that cells run, for which wheels are chosen."""
    uv: Path | None = None
    """None takes the one in the PATH, else the interpreter's pip."""
    npm: Path | None = None
    unhashed: bool = False
    """Take requirements without digests, and what these need in turn."""
    builds: bool = False
    """Take source distributions: building one runs its code on the host, outside of any cell."""
    shared: Path | None = None
    """Packages for all skills of a place: what `site-packages` or `node_modules` would hold."""
    host: Path | None = None
    """Packages of the host that skills may import, likewise (S002-64)."""
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    """All variables of the installers; `installer_variables` picks them."""
    seconds: float = INSTALL_SECONDS
    environment_bytes: int = ENVIRONMENT_BYTES
    cache_bytes: int = CACHE_BYTES


@dataclass(frozen=True, slots=True)
class Environment:
    """Installed dependencies."""

    path: Path
    """What `site-packages` or `node_modules` would hold; nobody may write there."""
    digest: Digest
    """Of all that decides what is in it: the lock, the platform, the operator's rules."""

    @contextlib.contextmanager
    def lease(self) -> Iterator[Path]:
        """Keep it from being removed as long as a cell has it; the same process or another.

        Raises:
            SandboxError: it has been removed; prepare it again.
        """
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
) -> Environment | None:
    """Return the skill's dependencies, installed now or before; None when it has none to install.

    A skill that brings its own `node_modules` needs none (S002-63), and one without a lock may
    find what it needs among the packages of its place or of the host.

    Args:
        manifest: What the skill says about itself.
        directory: The skill's directory, of which only the lock and the manifest are read.
        cache: Directory of all environments; made when it is missing.
        run: Runs an installer.
        rules: What the operator allows.

    Raises:
        SandboxError: there are dependencies without a usable lock, or installing failed; the
            cache is as it was before.
    """
    rules = rules or EnvironmentRules()
    if manifest.language == "javascript" and (directory / "node_modules").is_dir():
        return None
    texts = _lock_texts(manifest, directory)
    if texts is None:
        if manifest.dependencies and rules.shared is None and rules.host is None:
            raise _unlocked(manifest)
        return None
    asked = await _cleaned(manifest, texts, cache, run, rules)
    about = {
        "language": manifest.language,
        "files": dict(sorted(asked.items())),
        "platform": await _platform(manifest, run, rules),
        "unhashed": rules.unhashed,
        "builds": rules.builds,
    }
    found = digest(canonical_json(about))
    key = found.removeprefix("sha256:")
    store = EnvironmentStore(cache)
    path = store.packages(key)
    if path is None:
        async with store.alone(key, seconds=rules.seconds):
            # Whoever held the lock before may have installed the very same.
            path = store.packages(key) or await _install(manifest, store, key, asked, run, rules)
        await anyio.to_thread.run_sync(store.collect, rules.cache_bytes)
    return Environment(path, found)


def search_path(
    manifest: SkillManifest,
    directory: Path,
    environment: Environment | None,
    *,
    rules: EnvironmentRules | None = None,
) -> tuple[Path, ...]:
    """Return where a dependency is looked for, nearest first (S002-63).

    These are: what the skill brings, what was installed for it, the packages of its place, those
    of the host. A cell that runs Python puts them on `sys.path` in this order; for Node each is a
    `node_modules` one level further up from the skill.
    """
    rules = rules or EnvironmentRules()
    own = directory if manifest.language == "python" else directory / "node_modules"
    places = (own, environment.path if environment else None, rules.shared, rules.host)
    return tuple(place for place in places if place is not None and place.is_dir())


def _lock_texts(manifest: SkillManifest, directory: Path) -> dict[str, str] | None:
    """Return the manifest and the lock by their names; None when there is nothing to install."""
    is_python = manifest.language == "python"
    for file in _PYTHON_FILES if is_python else _JAVASCRIPT_FILES:
        text = _read(directory, file)
        if text is None:
            continue
        beside = {"uv.lock": "pyproject.toml", "package-lock.json": "package.json"}.get(file)
        manifest_text = _read(directory, beside) if beside else None
        return {file: text} | ({beside: manifest_text} if beside and manifest_text else {})
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
    how = {
        "python": "uv.lock (`uv lock`) or requirements.txt with hashes (`pip-compile`)",
        "javascript": "package-lock.json (`npm install --package-lock-only`)",
    }[manifest.language]
    message = f"`{manifest.name}` needs {needs}: expected {how} beside its manifest"
    return SandboxError("dependencies-unlocked", message)


async def _cleaned(
    manifest: SkillManifest,
    texts: Mapping[str, str],
    cache: Path,
    run: RunTool,
    rules: EnvironmentRules,
) -> dict[str, str]:
    """Return the files that an installer gets, written by us."""
    if manifest.language == "javascript":
        package, lock = clean_npm(texts.get("package.json", "{}"), texts["package-lock.json"])
        return {"package.json": package, "package-lock.json": lock}
    text = texts.get("requirements.txt")
    if text is None:
        text = await _exported(texts, cache, run, rules)
    return {"requirements.txt": clean_requirements(text, unhashed=rules.unhashed)}


async def _exported(
    texts: Mapping[str, str], cache: Path, run: RunTool, rules: EnvironmentRules
) -> str:
    """Return a uv.lock as requirements; uv reads the lock and looks nothing up."""
    uv = find_tool("uv", rules.uv, rules.variables)
    if uv is None:
        message = "uv.lock needs `uv`: install it, or add requirements.txt with hashes"
        raise SandboxError("dependencies-tool", message)
    store = EnvironmentStore(cache)
    key = digest(canonical_json(dict(texts))).removeprefix("sha256:")
    async with store.alone(key, seconds=rules.seconds):
        with store.staging(key) as place:
            _write(place, texts)
            ran = await run(
                export_argv(uv), cwd=place, variables=rules.variables, seconds=rules.seconds
            )
            check(ran, "reading uv.lock")
            return (place / "requirements.txt").read_text(encoding="utf-8")


async def _platform(manifest: SkillManifest, run: RunTool, rules: EnvironmentRules) -> str:
    """Return what packages are chosen by beside the lock."""
    if manifest.language == "javascript":
        return f"{sys.platform} {platform.machine()}"
    if rules.python == Path(sys.executable):
        return f"{sys.implementation.cache_tag} {sysconfig.get_platform()}"
    argv = [str(rules.python), "-I", "-S", "-c", _WHERE_PYTHON]
    ran = await run(argv, cwd=Path("/"), variables=rules.variables, seconds=rules.seconds)
    check(ran, "asking Python for its version")
    return ran.output.strip()


async def _install(
    manifest: SkillManifest,
    store: EnvironmentStore,
    key: str,
    files: Mapping[str, str],
    run: RunTool,
    rules: EnvironmentRules,
) -> Path:
    with store.staging(key) as place:
        _write(place, files)
        installed = place / "node_modules"
        if manifest.language == "javascript":
            npm = find_tool("npm", rules.npm, rules.variables)
            if npm is None:
                raise SandboxError("dependencies-tool", "package-lock.json needs `npm`: install it")
            argv = npm_argv(npm)
        else:
            installed = place / "site-packages"
            argv = _python_argv(installed, place / "requirements.txt", rules)
        ran = await run(argv, cwd=place, variables=rules.variables, seconds=rules.seconds)
        check(ran, f"installing the dependencies of `{manifest.name}`")
        # An installer that had nothing to do makes no directory.
        installed.mkdir(exist_ok=True)
        return await anyio.to_thread.run_sync(
            lambda: store.publish(installed, place, key, max_bytes=rules.environment_bytes)
        )


def _python_argv(target: Path, file: Path, rules: EnvironmentRules) -> list[str]:
    uv = find_tool("uv", rules.uv, rules.variables)
    hashed = not rules.unhashed
    if uv is not None:
        return uv_argv(uv, rules.python, target, file, hashed=hashed, builds=rules.builds)
    return pip_argv(rules.python, target, file, hashed=hashed, builds=rules.builds)


def _write(place: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (place / name).write_text(text, encoding="utf-8")
