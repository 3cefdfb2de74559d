"""Reads a uv.lock without uv: what one interpreter on this machine needs, with its digests.

The file is for every platform and version of Python. Here it is one of each, so markers are decided
and wheels chosen, and what cannot be installed is known before anything is fetched. The result goes
through the grammar of `environment_locks` as any other requirements do.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from msgspec import Struct
from packaging.markers import Marker, default_environment
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

from skillhouse.extensions.cells.environment_locks import PACKAGES_MAX
from skillhouse.floor.regex import regex
from skillhouse.sandbox import Python, SandboxError

FORMAT = 1
"""The version of the format that is read; its revisions add keys only."""
MARKER_MAX = 4_000
"""Characters of one marker."""
REQUIREMENTS = "uv export --no-emit-project --no-dev --format requirements.txt"

_OWN = ("virtual", "editable", "directory")
_NAME = regex(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
_VERSION = regex(r"[A-Za-z0-9.+!_-]{1,64}")
_HASH = regex(r"sha(?:256|384|512):[0-9a-f]{64,128}")
_ABI = regex(r"\.cpython-(\d{2,4}[a-z]{0,3})-")

Table = Mapping[str, Any]


class LockRules(Struct, frozen=True, kw_only=True):
    python: Python
    """The interpreter of the cell."""
    builds: bool = False
    """Take source distributions as well."""
    unhashed: bool = False
    """Take files without digests."""


def uv_requirements(text: str, rules: LockRules, *, wanted: Iterable[str] = ()) -> str:
    """Return the packages of a uv.lock for one interpreter, as lines with versions and digests.

    Only digests of files that fit are named. Groups for development are left out.

    Args:
        wanted: The dependencies of the manifest, which the lock has to know.

    Raises:
        SandboxError: it cannot be installed; the text says what to do.
    """
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise _refused(f"uv.lock is not TOML: {str(error)[:200]}") from error
    if table.get("version") != FORMAT:
        raise _refused(
            f"expected uv.lock in version {FORMAT} of its format, got {table.get('version')!r:.20}:"
            f" replace it by requirements.txt (`{REQUIREMENTS}`)"
        )
    lock = _Lock(table, rules)
    lock.check_wanted(wanted)
    return "".join(f"{line}\n" for line in sorted(lock.lines()))


class _Lock:
    def __init__(self, table: Table, rules: LockRules) -> None:
        self._rules = rules
        self._variables = _variables(rules.python)
        packages = _tables(table, "package")
        if len(packages) > PACKAGES_MAX:
            raise SandboxError("dependencies-many", f"expected at most {PACKAGES_MAX} packages")
        self._named: dict[str, list[Table]] = {}
        for package in packages:
            self._named.setdefault(_name(package), []).append(package)
        roots = [one for one in packages if _is_root(one)]
        if len(roots) != 1:
            message = f"expected uv.lock to have one project of its own, got {len(roots)}"
            raise _refused(f"{message}: run `uv lock` beside pyproject.toml")
        self._root = roots[0]
        supported = table.get("supported-markers", [])
        if not isinstance(supported, list):
            raise _refused("expected `supported-markers` of uv.lock to be a list")
        if supported and not any(self._holds(one) for one in supported):
            message = f"uv.lock is not for {self._here()}"
            raise SandboxError(
                "dependencies-wheel",
                f"{message}: add it to `environments` of [tool.uv] and run `uv lock`",
            )

    def _here(self) -> str:
        names = ("sys_platform", "platform_machine")
        system, machine = (self._variables[name] for name in names)
        return f"Python {self._rules.python.release} on {system} {machine}"

    def check_wanted(self, wanted: Iterable[str]) -> None:
        """Refuse a lock that is older than a dependency of the manifest."""
        metadata = self._root.get("metadata", {})
        declared = _tables(metadata, "requires-dist") if isinstance(metadata, dict) else []
        known = {_name(one) for one in (*declared, *_tables(self._root, "dependencies"))}
        for text in wanted:
            match = _NAME.match(text)
            if match is not None and canonicalize_name(match[0]) not in known:
                message = f"uv.lock does not have `{match[0]}` of pyproject.toml"
                raise _refused(f"{message}: run `uv lock`")

    def lines(self) -> Iterator[str]:
        """Yield a line for each package that is needed here."""
        chosen: dict[str, Table] = {}
        followed: set[tuple[str, str]] = set()
        waiting = list(self._edges(self._root, ()))
        while waiting:
            edge = waiting.pop()
            name, package = _name(edge), self._target(edge)
            if chosen.setdefault(name, package) is not package:
                raise _refused(f"uv.lock wants two versions of `{name}` at once: run `uv lock`")
            # "" is for the package itself, without any extra.
            for extra in {"", *_texts(edge, "extra")}:
                if (name, extra) not in followed:
                    followed.add((name, extra))
                    waiting += self._edges(package, (extra,) if extra else ())
        for name, package in chosen.items():
            if package is not self._root:
                yield self._line(name, package)

    def _edges(self, package: Table, extras: Sequence[str]) -> Iterator[Table]:
        """Yield the dependencies that hold here: of the package, or of its extras."""
        edges = [] if extras else _tables(package, "dependencies")
        optional = package.get("optional-dependencies", {})
        for extra in extras:
            if isinstance(optional, dict):
                edges += _tables(optional, extra)
        yield from (one for one in edges if self._holds(one.get("marker", "")))

    def _holds(self, marker: object) -> bool:
        if not marker:
            return True
        try:
            if not isinstance(marker, str) or len(marker) > MARKER_MAX:
                raise ValueError(f"expected text of at most {MARKER_MAX} characters")
            return Marker(marker).evaluate(self._variables)
        except (ValueError, RecursionError) as error:
            raise _refused(f"a marker of uv.lock cannot be read: {str(marker)[:80]!r}") from error

    def _target(self, edge: Table) -> Table:
        name = _name(edge)
        # An edge has version and source only where the name alone says too little.
        found = [
            one
            for one in self._named.get(name, [])
            if all(edge.get(key) in (None, one.get(key)) for key in ("version", "source"))
        ]
        if len(found) != 1:
            raise _refused(f"expected one `{name}` in uv.lock, got {len(found)}: run `uv lock`")
        return found[0]

    def _line(self, name: str, package: Table) -> str:
        source = package.get("source")
        kind = next(iter(source), "") if isinstance(source, dict) else ""
        if kind != "registry":
            message = f"`{name}` of uv.lock is from `{kind[:20]}`, and packages are from an index"
            raise SandboxError(
                "dependencies-source",
                f"{message}: depend on a released version, or put its code into the skill",
            )
        version = package.get("version")
        if not isinstance(version, str) or not _VERSION.fullmatch(version):
            raise _refused(f"expected `{name}` of uv.lock to have a version, got {version!r:.80}")
        wheels = _tables(package, "wheels")
        files = [one for one in wheels if self._fits(_file_name(one))]
        sdist = package.get("sdist")
        if self._rules.builds and isinstance(sdist, dict):
            files.append(sdist)
        if not files:
            message = f"`{name}` {version} has no wheel in uv.lock for {self._here()}"
            raise SandboxError(
                "dependencies-wheel",
                f"{message}: lock a version that has one, or let the operator allow building"
                " (`builds` of [skill_code])",
            )
        hashes = [one.get("hash") for one in files]
        if None in hashes and self._rules.unhashed:
            return f"{name}=={version}"
        parts = [f"{name}=={version}"]
        for text in sorted({str(one) for one in hashes}):
            if not _HASH.fullmatch(text):
                message = f"expected each file of `{name}` in uv.lock to have a SHA-2 digest"
                raise SandboxError("dependencies-unhashed", f"{message}, got {text[:20]!r}")
            parts.append(f"--hash={text}")
        return " ".join(parts)

    def _fits(self, file: str) -> bool:
        tags = _tags(self._rules.python)
        try:
            _, _, _, own = parse_wheel_filename(file)
        except ValueError:
            return False
        # Of an interpreter whose ABI is not known, the installer chooses.
        return tags is None or not tags.isdisjoint(own)


def _refused(message: str) -> SandboxError:
    return SandboxError("dependencies-lock", message)


def _is_root(package: Table) -> bool:
    source = package.get("source")
    return isinstance(source, dict) and any(source.get(kind) == "." for kind in _OWN)


def _tables(table: Table, key: str) -> list[Table]:
    found = table.get(key, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise _refused(f"expected `{key[:40]}` of uv.lock to be a list of tables")
    return list(found)


def _texts(table: Table, key: str) -> list[str]:
    found = table.get(key, [])
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise _refused(f"expected `{key}` of uv.lock to be a list of names")
    return found


def _name(table: Table) -> str:
    name = table.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _refused(f"expected the name of a package in uv.lock, got {name!r:.80}")
    return canonicalize_name(name)


def _file_name(file: Table) -> str:
    place = next((file[key] for key in ("filename", "url", "path") if key in file), "")
    return unquote(str(place).partition("#")[0].replace("\\", "/").rpartition("/")[2])


def _variables(python: Python) -> dict[str, str]:
    """Return what markers may ask for: this machine's, with the interpreter of the cell."""
    return {
        **{name: str(value) for name, value in default_environment().items()},
        "implementation_name": "cpython",
        "implementation_version": python.release,
        "platform_python_implementation": "CPython",
        "python_full_version": python.release,
        "python_version": ".".join(map(str, python.version[:2])),
        "extra": "",
    }


def _tags(python: Python) -> frozenset[Tag] | None:
    match = _ABI.search(python.suffix)
    return _tags_of(python.version[:2], f"cp{match[1]}") if match else None


@functools.cache
def _tags_of(version: tuple[int, int], abi: str) -> frozenset[Tag]:
    interpreter = f"cp{version[0]}{version[1]}"
    return frozenset(
        (*cpython_tags(version, [abi]), *compatible_tags(version, interpreter=interpreter))
    )
