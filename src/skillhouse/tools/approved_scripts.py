"""Scripts of the workspace that allowed commands run: each is approved once, by its digest.

A rule may cover a script with any arguments (`python scripts/recalc.py *`). What it names can be
another file tomorrow, so that a person is asked once about its bytes and again when they change.
What runs is a sealed copy of the approved bytes (`ScriptRuns.copies`). A script that cannot be
bound so, such as one behind a symbolic link, is asked about each time.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from skillhouse.approval import Approval, ApprovedScript, ScriptStore
from skillhouse.floor import dataclass
from skillhouse.permission import (
    Breadth,
    CommandPlan,
    CommandVerdict,
    Effect,
    JudgedCommand,
    LayerRules,
    Permission,
    SimpleCommand,
    only_reads,
    read_command,
    unwrapped,
)
from skillhouse.tools.call import SCRIPT, PermissionRequest, RefusedError
from skillhouse.tools.command_inputs import SEALED_BYTES_MAX, files_that_run
from skillhouse.tools.script_imports import (
    NOT_BOUND,
    files_beside,
    is_in_place_of_standard,
    names_beside,
)
from skillhouse.tools.tool import Session

PROGRAM_BYTES_MAX = 128 * 1_048_576
"""Bytes of a program of the workspace that is bound; a larger one is asked about each time.
Compiled tools that packages bring (linters, bundlers) have 10 to 60 MB."""

_GLOB = frozenset("*?[\0")
"""In a script's name: another file may be what runs."""
_SHOWING = frozenset(
    "echo printf cat head tail grep rg uniq wc cut tr ls pwd date true false test [ jq nl tac "
    "column basename dirname which".split()
)
_GIT_SHOWS = (("log",), ("status",), ("diff",), ("show",))
_WRITING = frozenset("mkdir touch tee cp mv rm".split())
"""Programs whose grammar says all that they write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRuns:
    """The scripts that the commands of one plan run."""

    needs: tuple[PermissionRequest, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 in hex of each that is bound, by its path below the workspace."""
    new: tuple[str, ...] = ()
    """Those of them that are not approved yet."""
    odd: tuple[str, ...] = ()
    """Scripts that cannot be bound, as the commands name them."""
    linked: Mapping[str, str] = field(default_factory=dict)
    """Where programs of the workspace that are links lead, by their path below it."""
    runs_alone: bool = False
    """Whether no other call may change the workspace meanwhile: it could rename a directory above
    a script, or make one that is not there. What runs any code of the workspace is left out."""
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptPlaces:
    """Where scripts are, and what is known of them."""

    root: str
    """Real path of the workspace."""
    approved: Callable[[], Mapping[str, str]]
    """Returns the approved digest of each path."""
    is_of_skill: Callable[[str], bool]
    """Whether a real path is in a loaded skill that may be loaded now: its own approval is about
    all its files."""
    is_tool: Callable[[str], bool] = lambda path: False
    """Whether a real path is a program of the system or of the person's tools, which no command
    can change."""
    which: Callable[[str], str] = lambda name: ""
    """Returns the path below the workspace that the name of a program leads to, or ""."""


def script_runs(
    verdict: CommandVerdict, plan: CommandPlan, rules: LayerRules, places: ScriptPlaces
) -> ScriptRuns:
    """Return what the scripts of a plan need, as the files are now.

    Only commands that a rule allows count: of any other the person is asked, and that question is
    bound to its files. The operator's `*` alone has allowed all that runs.
    """
    base = os.path.join(places.root, plan.directory)
    known: Mapping[str, str] | None = None
    needs: list[PermissionRequest] = []
    digests: dict[str, str] = {}
    new: list[str] = []
    unbound: list[str] = []
    linked: dict[str, str] = {}
    alone = False
    for judged in verdict.commands:
        if rules.rule(judged.argv).cover is Breadth.ALL:
            continue
        if judged.effect is not Effect.ALLOW:
            _note_program(judged.argv, base, places, digests, linked, new)
            continue
        for candidates in _scripts_of(judged, base, places):
            found = _found(candidates, base, places, is_program=candidates == _program_of(judged))
            alone = alone or not (judged.unbound or found.is_of_skill)
            paths = (*found.paths, *_loadable(found, judged.argv, places))
            odd = found.odd or _changed_by_line(paths, plan, judged.argv, base)
            if odd:
                unbound.append(candidates[0])
                needs.append(_each_time(candidates[0], odd))
            elif found.path:
                known = places.approved() if known is None else known
                if found.leads_to:
                    linked[found.path] = found.leads_to
                own = _once_for(found.path, places.root, is_known=found.path in known)
                itself = (own, found.path, found.digest)
                for need, path, digest in (itself, *_beside(found, judged.argv, places)):
                    if digest:
                        digests[path] = digest
                    if known.get(path) != digest and path not in (*new, *unbound):
                        (new if digest else unbound).append(path)
                        needs.append(need)
    facts = tuple(("script", f"{path} sha256:{digests[path]}") for path in new)
    if new:
        facts += (("not bound", NOT_BOUND),)
    return ScriptRuns(
        needs=tuple(needs),
        digests=digests,
        new=tuple(new),
        odd=tuple(unbound),
        linked=linked,
        runs_alone=alone,
        facts=facts,
    )


def _loadable(script: _Found, argv: Sequence[str], places: ScriptPlaces) -> Iterable[str]:
    """Return the paths at which a script would load a file by name, were there one."""
    if not script.path:
        return ()
    path = os.path.join(places.root, script.path)
    return names_beside(path, _bytes(path) or b"", argv)


def _beside(
    script: _Found, argv: Sequence[str], places: ScriptPlaces
) -> Iterator[tuple[PermissionRequest, str, str]]:
    """Yield for each file that a script loads by name what asks about it, its path below the
    workspace, and its digest: empty where it cannot be bound."""
    path = os.path.join(places.root, script.path)
    for real in files_beside(path, _bytes(path) or b"", places.root, argv):
        relative = real[len(places.root) + 1 :]
        data = _bytes(real)
        if places.is_of_skill(real):
            continue
        if data is None:
            yield _each_time(relative, "it is not a file that can be read whole"), relative, ""
            continue
        said = f"`{relative}`, which `{script.path}` loads"
        if is_in_place_of_standard(real, path):
            said += " in the place of a module of Python's own,"
        said += " was not approved as it is; an approval holds until it changes"
        need = PermissionRequest(
            permission=Permission(action=SCRIPT, resource=real), default=Effect.ASK, why=said
        )
        yield need, relative, hashlib.sha256(data).hexdigest()


def script_copies(before: ScriptRuns, now: ScriptRuns, root: str) -> Mapping[str, bytes]:
    """Return the approved bytes of each script by its real path, to be sealed.

    Args:
        before: What was decided about.
        now: The same at the moment of the run, when no other call changes the workspace.
        root: Real path of the workspace.

    Raises:
        RefusedError: something has changed in between.
    """
    names = sorted(
        path
        for path in {*before.digests, *now.digests}
        if before.digests.get(path) != now.digests.get(path)
    )
    if names or before.odd != now.odd or before.linked != now.linked:
        shown = f"`{names[0]}`" if names else "a script"
        raise RefusedError(f"nothing was done: {shown} has changed meanwhile; try again")
    copies: dict[str, bytes] = {}
    for path, digest in before.digests.items():
        if path in before.linked:
            copies.update(_linked_copy(root, path, before.linked[path], digest))
            continue
        data = _bytes(os.path.join(root, path), PROGRAM_BYTES_MAX)
        if data is None or hashlib.sha256(data).hexdigest() != digest:
            raise RefusedError(f"nothing was done: `{path}` has changed since it was approved")
        copies[os.path.join(root, path)] = data
    return copies


def keeping(
    store: ScriptStore, runs: ScriptRuns, root: str, session: Session
) -> Callable[[Approval], None] | None:
    """Return what keeps the scripts of an approved call, or None where none is new."""
    new = tuple(
        ApprovedScript(
            workspace=root,
            path=path,
            digest=runs.digests[path],
            user=session.user,
            agent=session.agent,
        )
        for path in runs.new
    )

    def keep(approval: Approval) -> None:
        store.add(
            [replace(one, device=approval.device, approved_ms=approval.closed_ms) for one in new]
        )

    return keep if new else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The file that a command runs as a script."""

    paths: tuple[str, ...]
    """Absolute, without `..`: where a file would be meant."""
    path: str = ""
    """Below the workspace; empty where there is none, or none that has to be approved."""
    digest: str = ""
    odd: str = ""
    """Why it is asked about each time."""
    leads_to: str = ""
    """Its real path, where it is a link that may be approved."""
    is_of_skill: bool = False


def _scripts_of(
    judged: JudgedCommand, base: str, places: ScriptPlaces
) -> Iterator[tuple[str, ...]]:
    """Yield the candidates of each script; a program that is named by its path is one itself, and
    so is one whose name leads into the workspace."""
    argv, scripts = judged.argv, judged.scripts
    if "/" in argv[0] and (argv[0],) not in scripts:
        yield (argv[0],)
    elif not judged.is_own and (path := places.which(argv[0])):
        yield (path,)
    yield from scripts
    if read_command(argv).unknown:
        yield from ((path,) for path in files_that_run(argv, base))


def _program_of(judged: JudgedCommand) -> tuple[str, ...]:
    """Return the path of a program of the workspace as a script, or nothing."""
    if judged.is_own:
        return judged.scripts[0]
    return (judged.argv[0],) if "/" in judged.argv[0] else ()


def _note_program(
    argv: Sequence[str],
    base: str,
    places: ScriptPlaces,
    digests: dict[str, str],
    linked: dict[str, str],
    new: list[str],
) -> None:
    """Remember the bytes of a program that is asked about by its path: the answer covers them."""
    if "/" not in argv[0]:
        return
    found = _found((argv[0],), base, places, is_program=True)
    if not found.path or found.odd:
        return
    digests[found.path] = found.digest
    if found.leads_to:
        linked[found.path] = found.leads_to
    if found.path not in new and places.approved().get(found.path) != found.digest:
        new.append(found.path)


def _found(
    candidates: Sequence[str], base: str, places: ScriptPlaces, *, is_program: bool = False
) -> _Found:
    paths = tuple(os.path.normpath(os.path.join(base, one)) for one in _all(candidates, base))
    if any(_GLOB & {*one} for one in candidates):
        return _Found(paths=paths, odd="its name is a pattern")
    path = next(filter(os.path.lexists, _above(paths, candidates, base, places.root)), "")
    if not path:
        odd = "" if not any(map(_has_neighbour, paths)) else "another file may be what runs"
        return _Found(paths=paths, odd=odd)
    real = os.path.realpath(path)
    # Where `..` follows a link, or the path is one, it may be another file at the next moment.
    # Links outside the workspace are none that a command can change.
    if any(_follows_link(os.path.join(base, one), places.root) for one in (*candidates, path)):
        linked = _linked(path, real, paths, places) if is_program else None
        return linked or _Found(paths=paths, odd="it is reached through a symbolic link")
    if places.is_of_skill(real):
        return _Found(paths=paths, is_of_skill=True)
    if real != path or not real.startswith(f"{places.root}/"):
        return _Found(paths=paths, odd="it is outside the workspace")
    paths = (*paths, real)
    data = _bytes(real, PROGRAM_BYTES_MAX if is_program else SEALED_BYTES_MAX)
    if data is None:
        return _Found(paths=paths, odd="it is not a file that can be read whole")
    relative = real[len(places.root) + 1 :]
    return _Found(paths=paths, path=relative, digest=hashlib.sha256(data).hexdigest())


def _linked(path: str, real: str, paths: tuple[str, ...], places: ScriptPlaces) -> _Found | None:
    """Return a program of the workspace that is a link: to another file there, such as those of
    node_modules/.bin, or to an interpreter of the system or of the person's tools."""
    if not path.startswith(f"{places.root}/"):
        return None
    digest = _linked_digest(places.root, real)
    if digest is None or not (real.startswith(f"{places.root}/") or places.is_tool(real)):
        return None
    relative = path[len(places.root) + 1 :]
    return _Found(paths=(*paths, real), path=relative, digest=digest, leads_to=real)


def _linked_digest(root: str, real: str) -> str | None:
    """Return a digest of where a link leads and of what is there."""
    if real.startswith(f"{root}/"):
        data = _bytes(real, PROGRAM_BYTES_MAX)
        if data is None:
            return None
        said = hashlib.sha256(data).hexdigest()
    else:
        try:
            info = os.stat(real)
        except OSError:
            return None
        said = f"{info.st_size}:{info.st_mtime_ns}"
    return hashlib.sha256(f"{real}\0{said}".encode("utf-8", "surrogateescape")).hexdigest()


def _linked_copy(root: str, path: str, real: str, digest: str) -> Mapping[str, bytes]:
    """Return the approved bytes that a link of the workspace leads to, by their real path."""
    is_same = os.path.realpath(os.path.join(root, path)) == real
    if not is_same or _linked_digest(root, real) != digest:
        raise RefusedError(f"nothing was done: `{path}` has changed since it was approved")
    data = _bytes(real, PROGRAM_BYTES_MAX) if real.startswith(f"{root}/") else None
    return {} if data is None else {real: data}


def _follows_link(path: str, root: str) -> bool:
    """Whether a path leads elsewhere than it says, by a link of the workspace."""
    plain = os.path.normpath(path)
    is_inside = plain.startswith(f"{root}/") or path.startswith(f"{root}/")
    return is_inside and os.path.lexists(path) and os.path.realpath(path) != plain


def _all(candidates: Sequence[str], base: str) -> Iterator[str]:
    yield from (os.path.join(base, one) for one in candidates if "\0" not in one)


def _above(paths: Sequence[str], candidates: Sequence[str], base: str, root: str) -> Iterator[str]:
    """Yield the paths, and where a plain name is not there those of it further up: npm, just and
    others look for their file there."""
    yield from paths
    directory = os.path.normpath(base)
    while directory.startswith(f"{root}/"):
        directory = os.path.dirname(directory)
        yield from (os.path.join(directory, one) for one in candidates if "/" not in one)


def _has_neighbour(path: str) -> bool:
    """Whether there is a file of that name with a suffix, which some programs run instead."""
    directory, name = os.path.split(path)
    try:
        names = os.listdir(directory)
    except OSError:
        return False
    return "." not in name and any(one.startswith(f"{name}.") for one in names)


def _bytes(path: str, most: int = SEALED_BYTES_MAX) -> bytes | None:
    """Return the bytes of a regular file of at most so many; else None."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(os.open(path, flags), "rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode) or info.st_size > most:
                return None
            data = file.read(info.st_size + 1)
    except OSError:
        return None
    return data if len(data) <= most else None


def _changed_by_line(
    paths: Sequence[str], plan: CommandPlan, argv: Sequence[str], base: str
) -> str:
    """Return why the line itself may decide what the script is, or nothing.

    A sealed copy keeps a file, but not the names of the directories above it, and there is none of
    a file that only comes to be.
    """
    seen = False
    for command in plan.commands():
        inner = unwrapped(command.argv) or command.argv
        # A path may have been judged by the name of its program.
        is_same = os.path.basename(inner[0]) == os.path.basename(argv[0])
        is_own = not seen and is_same and inner[1:] == tuple(argv[1:])
        seen = seen or is_own
        written = list(command.redirected) if is_own else _all_written(command)
        if written is None:
            return "another command of the line may change it"
        if any(_covers(target, path, base) for target in written for path in paths):
            return "the line writes it"
    return ""


def may_be_made(path: str, commands: Iterable[SimpleCommand], base: str) -> bool:
    """Whether one of some commands that run in `base` may write a path, as far as is known."""
    for command in commands:
        written = _all_written(command)
        if written is None or any(_covers(target, path, base) for target in written):
            return True
    return False


def _covers(target: str, path: str, base: str) -> bool:
    real = os.path.realpath(os.path.join(base, target))
    return path == real or path.startswith(f"{real}/")


def _all_written(command: SimpleCommand) -> list[str] | None:
    """Return all that a command writes, or None where that is not known."""
    argv = unwrapped(command.argv) or command.argv
    if "/" in argv[0]:
        return None
    if _only_shows(argv):
        return list(command.redirected)
    known = _written(command)
    return None if known is None else [*command.redirected, *known]


def _written(command: SimpleCommand) -> list[str] | None:
    """Return all that a command writes, or None where its grammar does not say."""
    meaning = read_command(unwrapped(command.argv) or command.argv)
    is_known = meaning.is_quiet and not (command.patterns or meaning.directory)
    if not is_known or meaning.program not in _WRITING:
        return None
    if meaning.program in ("mv", "cp") and len(meaning.argv) > 3:
        # With options a link may be copied as one.
        return None
    return list(meaning.written)


def _only_shows(argv: tuple[str, ...]) -> bool:
    meaning = read_command(argv)
    if meaning.program == "git":
        return only_reads(argv) and meaning.path[:1] in _GIT_SHOWS
    return meaning.program in _SHOWING and only_reads(argv)


def _once_for(path: str, root: str, *, is_known: bool) -> PermissionRequest:
    said = "has changed since it was approved" if is_known else "was not approved yet"
    return PermissionRequest(
        permission=Permission(action=SCRIPT, resource=os.path.join(root, path)),
        default=Effect.ASK,
        why=f"`{path}` {said}; an approval holds until it changes",
    )


def _each_time(name: str, odd: str) -> PermissionRequest:
    return PermissionRequest(
        permission=Permission(action=SCRIPT, resource=name),
        default=Effect.ASK,
        why=f"the script `{name[:80]}` is asked about each time: {odd}",
    )
