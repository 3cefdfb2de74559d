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
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import anyio
import anyio.abc
import anyio.to_thread

from skillhouse.cells.code_cache import MakeCaches, remove_caches
from skillhouse.cells.environment_locks import LOCK_MAX, clean_npm, clean_requirements
from skillhouse.cells.environment_store import EnvironmentStore
from skillhouse.floor import Digest, PathError, canonical_json, digest, read_beneath
from skillhouse.floor.threads import in_thread
from skillhouse.sandbox.interpreters import Python, default_python
from skillhouse.sandbox.profile import SandboxError
from skillhouse.skill import SkillManifest

INSTALL_SECONDS = 300.0
ENVIRONMENT_BYTES = 512 * 1024 * 1024
CACHE_BYTES = 4 * 1024 * 1024 * 1024
"""Size of all environments; beyond it the least recently used ones are removed."""

OUTPUT_MAX = 65_536
"""Bytes of an installer's output that are kept, the last ones: they say what went wrong."""
SHOWN_MAX = 600
"""Characters of it that an error shows."""

_LOCKS = {
    # By language: each lock, and the manifest that belongs to it.
    "python": (("uv.lock", "pyproject.toml"), ("requirements.txt", "")),
    "javascript": (("package-lock.json", "package.json"),),
}
_PASSED = ("PATH", "HOME", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_CONFIG_HOME")
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")
_PREFIXES = ("uv_", "pip_", "npm_config_")


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    """Exit code; negative for a signal."""
    output: str
    """Both streams, the end of them."""


class RunTool(Protocol):
    async def __call__(
        self, argv: Sequence[str], *, cwd: Path, variables: Mapping[str, str], seconds: float
    ) -> Ran:
        """Run `argv` with just these variables; nothing of it is left afterwards."""
        ...


def installer_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that installers need: paths, proxies and the operator's own settings.

    >>> installer_variables({"PATH": "/bin", "ALCHEMY_API_KEY": "x", "UV_INDEX_URL": "https://u"})
    {'PATH': '/bin', 'UV_INDEX_URL': 'https://u'}
    """
    return {
        name: value
        for name, value in variables.items()
        if name in _PASSED or name.lower() in _PROXIES or name.lower().startswith(_PREFIXES)
    }


async def run_tool(
    argv: Sequence[str], *, cwd: Path, variables: Mapping[str, str], seconds: float
) -> Ran:
    """See `RunTool`. The installer runs on the host: it needs the network and the cache."""
    output = bytearray()
    try:
        process = await anyio.open_process(
            argv,
            cwd=cwd,
            env=variables,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        message = f"cannot start `{argv[0]}`: {error.strerror}"
        raise SandboxError("dependencies-tool", message) from error
    try:
        with anyio.move_on_after(seconds) as limit:
            if process.stdout is not None:
                async for chunk in process.stdout:
                    output += chunk
                    del output[:-OUTPUT_MAX]
            await process.wait()
    finally:
        # Whatever is left of the installer's session.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            await process.wait()
            await process.aclose()
    if limit.cancelled_caught:
        raise SandboxError("dependencies-time", f"installing took longer than {seconds:g} s")
    code = -1 if process.returncode is None else process.returncode
    return Ran(code, output.decode("utf-8", "replace"))


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentRules:
    """The operator's settings for installations; a skill sets none of them."""

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
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    """All variables of the installers; `installer_variables` picks them."""
    seconds: float = INSTALL_SECONDS
    environment_bytes: int = ENVIRONMENT_BYTES
    cache_bytes: int = CACHE_BYTES


@dataclass(frozen=True, slots=True)
class Environment:
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
) -> Environment | None:
    """Return the skill's dependencies, installed now or before; None when it has none to install.

    A skill that brings its own `node_modules` needs none (S002-63), and one without a lock may
    find what it needs among the packages of its place or of the host.

    Args:
        directory: The skill's directory, of which only the lock and the manifest are read.
        cache: Directory of all environments; made when it is missing.
        caches: Makes what spares calls the compilation of packages; without it each compiles them.

    Raises:
        SandboxError: there is no usable lock, or installing failed; the cache is as before.
    """
    rules = rules or EnvironmentRules()
    if manifest.language == "javascript" and (directory / "node_modules").is_dir():
        return None
    texts = _lock_texts(manifest, directory)
    if texts is None:
        if manifest.dependencies and rules.shared is None and rules.host is None:
            raise _unlocked(manifest)
        return None
    files = await _cleaned(manifest, texts, cache, run, rules)
    about = {
        "language": manifest.language,
        "files": dict(sorted(files.items())),
        "platform": _platform(manifest, rules),
        "unhashed": rules.unhashed,
        "builds": rules.builds,
        "compiled": caches is not None,
    }
    environment_digest = digest(canonical_json(about))
    key = environment_digest.removeprefix("sha256:")
    store = EnvironmentStore(cache)
    path = store.packages(key)
    if path is None:
        async with store.alone(key, seconds=rules.seconds):
            # Whoever held the lock before may have installed the very same.
            path = store.packages(key)
            if path is None:
                path = await _install(manifest, store, key, files, run, rules, caches)
        await anyio.to_thread.run_sync(store.collect, rules.cache_bytes)
    return Environment(path, environment_digest)


def _lock_texts(manifest: SkillManifest, directory: Path) -> dict[str, str] | None:
    """Return the first lock and its manifest by their names; None when there is no lock."""
    for file, beside in _LOCKS[manifest.language]:
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


async def _cleaned(
    manifest: SkillManifest,
    texts: Mapping[str, str],
    cache: Path,
    run: RunTool,
    rules: EnvironmentRules,
) -> dict[str, str]:
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
    """Return a uv.lock as requirements; uv only reads the lock, without the network."""
    uv = _find_tool("uv", rules.uv, rules)
    if uv is None:
        message = "uv.lock needs `uv`: install it, or add requirements.txt with hashes"
        raise SandboxError("dependencies-tool", message)
    argv = [
        *(uv, "export", "--frozen", "--offline", "--no-config", "--no-python-downloads", "--quiet"),
        *("--no-emit-project", "--no-dev", "--no-header", "--no-annotate"),
        *("--format", "requirements.txt", "--output-file", "requirements.txt"),
        *("--python", str((rules.python or default_python()).program)),
    ]
    store = EnvironmentStore(cache)
    key = digest(canonical_json(dict(texts))).removeprefix("sha256:")
    async with store.alone(key, seconds=rules.seconds):
        with store.staging(key) as place:
            _write(place, texts)
            await _run(run, argv, rules, cwd=place, task="reading uv.lock")
            return (place / "requirements.txt").read_text(encoding="utf-8")


def _platform(manifest: SkillManifest, rules: EnvironmentRules) -> str:
    if manifest.language == "javascript":
        return f"{sys.platform} {platform.machine()}"
    python = rules.python or default_python()
    # Markers may ask for the whole version; the suffix names the ABI and the platform.
    return f"{python.release} {python.suffix}"


async def _install(
    manifest: SkillManifest,
    store: EnvironmentStore,
    key: str,
    files: Mapping[str, str],
    run: RunTool,
    rules: EnvironmentRules,
    caches: MakeCaches | None,
) -> Path:
    is_python = manifest.language == "python"
    with store.staging(key) as place:
        _write(place, files)
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
            named = tuple(json.loads(files.get("package.json", "{}")).get("dependencies", ()))
            python = rules.python or default_python() if is_python else None
            await caches(installed, python, named, max_bytes=rules.environment_bytes)
        return await anyio.to_thread.run_sync(
            lambda: store.publish(installed, place, key, max_bytes=rules.environment_bytes)
        )


def _write(place: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (place / name).write_text(text, encoding="utf-8")


def _find_tool(name: str, given: Path | None, rules: EnvironmentRules) -> str | None:
    if given is not None:
        return str(given)
    return shutil.which(name, path=rules.variables.get("PATH", os.defpath))


async def _python_argv(
    target: Path, file: Path, run: RunTool, rules: EnvironmentRules
) -> list[str]:
    uv = _find_tool("uv", rules.uv, rules)
    python = str((rules.python or default_python()).program)
    pip = [] if uv else await _pip(python, run, rules)
    # Copies: a hard link would share its permissions with the installer's own cache.
    by_uv = ("--no-progress", "--no-python-downloads", "--python", python, "--link-mode", "copy")
    by_pip = ("--no-input", "--no-compile", "--disable-pip-version-check")
    return [
        *((uv, "pip") if uv else pip),
        *("install", "--quiet", "--target", str(target)),
        *(by_uv if uv else (*by_pip, "--no-warn-script-location")),
        *(() if rules.unhashed else ("--no-deps", "--require-hashes")),
        *(() if rules.builds else ("--only-binary", ":all:")),
        *("--requirement", str(file)),
    ]


async def _pip(python: str, run: RunTool, rules: EnvironmentRules) -> list[str]:
    """Return the start of pip's command: that of the cell's interpreter, or ours working for it."""
    for program, more in ((python, ()), (sys.executable, ("--python", python))):
        argv = [program, "-I", "-m", "pip"]
        ran = await run(
            [*argv, "--version"], cwd=Path("/"), variables=rules.variables, seconds=rules.seconds
        )
        if ran.code == 0:
            return [*argv, *more]
    message = f"packages for Python need `uv`, or pip for `{python}`: install one of them"
    raise SandboxError("dependencies-tool", message)


def _npm_argv(rules: EnvironmentRules) -> list[str]:
    npm = _find_tool("npm", rules.npm, rules)
    if npm is None:
        raise SandboxError("dependencies-tool", "package-lock.json needs `npm`: install it")
    return [
        *(npm, "ci", "--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund"),
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
