"""Passed self-tests, kept for as long as what they depend on is the same, a day at most.

INVARIANT: no level comes from a file. Its level is what `detect` finds now; a file only says which
probes passed at that level, on this machine as it is. Whatever failed is tested again each time.

`needed_test` is the part of the self-test that a use of the sandbox needs beyond those: the probes
are loaded only where something is tested.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from skillhouse.floor import (
    Clock,
    DecodeError,
    canonical_json,
    decode,
    directory_problem,
    encode,
    make_private,
    structs,
    system_clock,
)
from skillhouse.floor.paths import sendable, write_atomically
from skillhouse.sandbox.code_call import Language
from skillhouse.sandbox.interpreters import interpreter, own_python
from skillhouse.sandbox.profile import PROGRAM_PATH
from skillhouse.sandbox.status import (
    BUBBLEWRAP,
    SWITCHES,
    ProbeResult,
    SandboxLevel,
    SandboxStatus,
    detect,
    find_program,
    holds,
    landlock_abi,
    surroundings,
)

VERSION = 1
KEPT_MS = 24 * 3_600 * 1_000
MAX_BYTES = 65_536
MAX_FILES = 16
"""One for each control group, user and namespace that tests were made in."""

_PREFIX = "tested-"
_ROOM = Path(__file__).parent
_CODE = (_ROOM, _ROOM.parent / "extensions/cells", _ROOM.with_name("floor"))
"""What makes the sandbox: changed code of ours is tested again without a new version number."""
_PROC_SELF = Path("/proc/self")
_STATUS = ("Uid:", "Gid:", "Groups:", "Cap", "NoNewPrivs:", "Seccomp")
_NAMESPACES = ("user", "mnt", "pid", "net", "cgroup")
_SECURITY = (Path("/sys/kernel/security/lsm"), _PROC_SELF / "attr/current")
_MORE_SWITCHES = ("kernel/seccomp/actions_avail", "kernel/unprivileged_userns_apparmor_policy")
_PROGRAMS = ("node", "python3", "sh")


class _Kept(Struct, frozen=True, kw_only=True):
    """The file of passed self-tests."""

    version: int = VERSION
    facts: str = ""
    """Digest of all that the results depend on."""
    made_ms: int = 0
    """On the clock that runs since the boot, which cannot be set."""
    level: SandboxLevel = SandboxLevel.NONE
    parts: Mapping[str, Sequence[ProbeResult]] = field(default_factory=dict)
    check: str = ""
    """Digest of all else, by which a damaged file is seen."""


class KeptTests:
    """Files of the state directory, one for each set of facts."""

    def __init__(self, directory: Path, *, clock: Clock = system_clock) -> None:
        self._directory = directory
        self._clock = clock

    def facts(self) -> str:
        """Return the digest of what a result depends on, as it is now; "" where it is unknown."""
        try:
            return hashlib.sha256(canonical_json(_facts(self._clock().boot))).hexdigest()
        except (OSError, ValueError, TypeError):
            return ""

    def has_bubblewrap(self, facts: str) -> bool:
        """Whether bubblewrap, as it is with these facts, has passed a test."""
        kept = self._read(facts)
        return kept is not None and kept.level in BUBBLEWRAP

    def passed(self, facts: str, level: SandboxLevel) -> Mapping[str, tuple[ProbeResult, ...]]:
        """Return the parts that hold at that level, with their probes."""
        kept = self._read(facts)
        if kept is None or kept.level is not level or level is SandboxLevel.NONE:
            return {}
        return _holding(kept.parts, level)

    def keep(
        self, facts: str, level: SandboxLevel, parts: Mapping[str, Sequence[ProbeResult]]
    ) -> None:
        """Keep what holds, unless something that it depends on has changed since `facts`.

        A directory that cannot be written keeps nothing: the next process tests.
        """
        good = _holding(parts, level)
        if not facts or not good or level is SandboxLevel.NONE or facts != self.facts():
            return
        made_ms = self._clock().running_ms
        before = self._read(facts)
        if before is not None and before.level is level:
            # The oldest part decides when all are tested again.
            made_ms = min(made_ms, before.made_ms)
            good = {name: tuple(probes) for name, probes in before.parts.items()} | good
        kept = _Kept(facts=facts, made_ms=made_ms, level=level, parts=good)
        with contextlib.suppress(OSError):
            make_private(self._directory)
            if directory_problem(self._directory, secret=True):
                return
            with write_atomically(self._path(facts)) as file:
                file.write(encode(_sealed(kept)))
            self._drop_oldest()

    def _path(self, facts: str) -> Path:
        return self._directory / f"{_PREFIX}{facts[:32]}"

    def _read(self, facts: str) -> _Kept | None:
        if not facts:
            return None
        try:
            data = _own_bytes(self._path(facts))
            kept = decode(data, _Kept) if data else None
        except (OSError, DecodeError):
            return None
        if kept is None or kept.version != VERSION or kept.facts != facts:
            return None
        age_ms = self._clock().running_ms - kept.made_ms
        return kept if 0 <= age_ms < KEPT_MS and kept == _sealed(kept) else None

    def _drop_oldest(self) -> None:
        files = [one for one in os.scandir(self._directory) if one.name.startswith(_PREFIX)]
        files.sort(key=lambda one: one.stat(follow_symlinks=False).st_mtime_ns, reverse=True)
        for one in files[MAX_FILES:]:
            os.unlink(one.path)


def _holding(
    parts: Mapping[str, Sequence[ProbeResult]], level: SandboxLevel
) -> dict[str, tuple[ProbeResult, ...]]:
    return {
        name: tuple(probes)
        for name, probes in parts.items()
        if probes and all(holds(probe, level) for probe in probes)
    }


def _sealed(kept: _Kept) -> _Kept:
    rows = [
        [name, *([probe.name, probe.passed, probe.detail] for probe in probes)]
        for name, probes in sorted(kept.parts.items())
    ]
    value = [kept.version, kept.facts, kept.made_ms, str(kept.level), rows]
    return _Kept(
        facts=kept.facts,
        made_ms=kept.made_ms,
        level=kept.level,
        parts={name: list(probes) for name, probes in kept.parts.items()},
        check=hashlib.sha256(canonical_json(value)).hexdigest(),
    )


def _own_bytes(path: Path) -> bytes:
    """Return what is in a private file of our own, in a private directory; nothing from others."""
    if directory_problem(path.parent, secret=True):
        return b""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        info = os.fstat(file.fileno())
        is_ours = info.st_uid == os.geteuid() and info.st_nlink == 1
        if not (stat.S_ISREG(info.st_mode) and is_ours and stat.S_IMODE(info.st_mode) == 0o600):
            return b""
        return file.read(MAX_BYTES)


def _facts(boot: str) -> dict[str, object]:
    around = surroundings()
    program = find_program(around)
    paths = [program, interpreter()[0], own_python()[1]]
    paths += [shutil.which(name, path=PROGRAM_PATH) for name in _PROGRAMS]
    machine = platform.uname()
    return {
        "boot": boot,
        "kernel": [machine.release, machine.version, machine.machine],
        "programs": [_identity(path) for path in paths],
        "landlock": landlock_abi(),
        "code": sorted(_code()),
        "user": [
            line
            for line in (_PROC_SELF / "status").read_text("utf-8", "replace").splitlines()
            if line.startswith(_STATUS)
        ],
        "cgroup": (_PROC_SELF / "cgroup").read_text("utf-8", "replace"),
        "namespaces": [os.readlink(_PROC_SELF / "ns" / name) for name in _NAMESPACES],
        "sysctls": [_text(around.sysctl / name) for name in (*SWITCHES, *_MORE_SWITCHES)],
        "security": [_text(path) for path in _SECURITY],
    }


def _identity(path: Path | str | None) -> list[object]:
    """Return what changes when another program is at a path; its ctime cannot be set."""
    if path is None:
        return []
    try:
        real = os.path.realpath(path)
        info = os.stat(real)
    except OSError:
        return [str(path)]
    name = sendable(real)
    times = (info.st_mtime_ns, info.st_ctime_ns)
    return [name, info.st_dev, info.st_ino, info.st_size, info.st_mode, info.st_uid, *times]


def _code() -> Iterator[str]:
    for room in _CODE:
        yield sendable(str(room))
        for one in os.scandir(room):
            if one.name.endswith((".py", ".cjs")):
                info = one.stat()
                yield f"{one.name} {info.st_size} {info.st_mtime_ns}"


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip("\0\n")
    except OSError:
        return ""


class CellTests(Protocol):
    """The self-tests of what runs the code of skills."""

    async def self_test(
        self, *, least: SandboxLevel, languages: Sequence[Language]
    ) -> SandboxStatus: ...

    async def language_test(self, found: SandboxStatus, language: Language) -> SandboxStatus: ...

    def installed(self) -> tuple[Language, ...]: ...


COMMANDS = "commands"
"""The part of the self-test that every use of the sandbox needs."""


async def needed_test(
    kept: KeptTests,
    language: Language | None,
    *,
    before: SandboxStatus | None = None,
    least: SandboxLevel = SandboxLevel.LANDLOCK,
    cells: CellTests | None = None,
) -> SandboxStatus:
    """Return the level for commands, and for cells of a language; test only what is not kept.

    Args:
        kept: The results of earlier processes.
        language: Of the code that is to run; None for commands only.
        before: What this process has tested already, whose level is not found again.
        least: The weakest level that the operator accepts.
        cells: Tests the cells of languages; None where none are installed.
    """
    facts = kept.facts()
    found = before
    if found is None:
        found = await detect(least=least, is_version_known=kept.has_bubblewrap(facts))
    known = {} if found.level is SandboxLevel.NONE else kept.passed(facts, found.level)
    if before is None:
        if COMMANDS not in known:
            if language is None or cells is None:
                from skillhouse.sandbox.level_probes import self_test  # noqa: PLC0415 - see above.

                tested = await self_test(least=least)
            else:
                tested = await cells.self_test(least=least, languages=(language,))
            kept.keep(facts, tested.level, _parts(tested))
            return tested
        found = structs.replace(found, probes=known[COMMANDS])
    if language is None or found.level is SandboxLevel.NONE:
        return found
    if language in known:
        return structs.replace(found, probes=(*found.probes, *known[language]))
    if cells is None or language not in cells.installed():
        return found
    tested = await cells.language_test(found, language)
    kept.keep(facts, tested.level, _parts(tested))
    return tested


async def kept_test(
    kept: KeptTests, language: Language, *, least: SandboxLevel
) -> SandboxStatus | None:
    """Return the level for commands and cells of a language; None unless both tests are kept.

    Nothing is tested; arguments as of `needed_test`.
    """
    facts = kept.facts()
    if not kept.has_bubblewrap(facts):
        return None
    found = await detect(least=least, is_version_known=True)
    known = kept.passed(facts, found.level)
    if COMMANDS not in known or language not in known:
        return None
    return structs.replace(found, probes=(*known[COMMANDS], *known[language]))


def _parts(status: SandboxStatus) -> Mapping[str, tuple[ProbeResult, ...]]:
    """Return the probes of commands, and those of the cells of each language."""
    parts: dict[str, tuple[ProbeResult, ...]] = {}
    for probe in status.probes:
        language, mark, _ = probe.name.partition("_cell_")
        name = language if mark else COMMANDS
        parts[name] = (*parts.get(name, ()), probe)
    return parts
