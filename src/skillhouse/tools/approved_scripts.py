"""Scripts of the workspace that allowed commands run: each is approved once, by its digest.

A rule may cover a script with any arguments (`python scripts/recalc.py *`). What it names can be
another file tomorrow, so that a person is asked once about its bytes and again when they change.
What runs is a sealed copy of the approved bytes (`ScriptRuns.copies`). A script that cannot be
bound so, such as one behind a symbolic link, is asked about each time.

A standing approval of code in a command's words is bound to what that code loads, as a script is
(decision record 0389), and one of an offline install to the lock and to the lists of packages
(0390).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from msgspec import Struct, field

from skillhouse.approval import ApprovedScript, ScriptStore
from skillhouse.floor.structs import replace
from skillhouse.permission import (
    Breadth,
    CommandPlan,
    CommandVerdict,
    Effect,
    JudgedCommand,
    LayerRules,
    Permission,
    only_reads,
    read_command,
    standing_bond,
    standing_rule,
    unwrapped,
)
from skillhouse.tools.call import SCRIPT, PermissionRequest, Plan, RefusedError
from skillhouse.tools.command_inputs import SEALED_BYTES_MAX, files_that_run
from skillhouse.tools.script_dependencies import (
    NOT_BOUND,
    bytes_of,
    changed_by,
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
_INSTALL_TASKS = (
    "preinstall install postinstall prepublish preprepare prepare postprepare dependencies "
    "pnpm:devPreinstall".split()
)
"""Tasks of package.json that an install runs (docs.npmjs.com/cli, "Life Cycle Operation Order")."""


class ScriptRuns(Struct, frozen=True, kw_only=True):
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
    kept_as: Mapping[str, str] = field(default_factory=dict)
    """The names under which those that an install reads are kept: their approval lets no task of
    them run."""
    unsealed: frozenset[str] = frozenset()
    """Those that the command may write: they are compared before it runs, alone."""
    runs_alone: bool = False
    """Whether no other call may change the workspace meanwhile: it could rename a directory above
    a script, or make one that is not there. What runs any code of the workspace is left out."""
    facts: tuple[tuple[str, str], ...] = ()


class ScriptPlaces(Struct, frozen=True, kw_only=True):
    """Where scripts are, and what is known of them."""

    root: str
    """Real path of the workspace."""
    approved: Callable[[], Mapping[str, frozenset[str]]]
    """Returns the approved digests of each path."""
    is_of_skill: Callable[[str], bool]
    """Whether a real path is in a loaded skill that may be loaded now: its own approval is about
    all its files."""
    is_tool: Callable[[str], bool] = lambda path: False
    """Whether a real path is a program of the system or of the person's tools, which no command
    can change."""
    which: Callable[[str], str] = lambda name: ""
    """Returns the path below the workspace that the name of a program leads to, or ""."""
    shell_which: Callable[[str], tuple[str, ...]] | None = None
    """Returns the paths below the workspace at which the PATH of the client, whose shell runs the
    line, finds a program, or would if it were there; None where no shell does."""
    shells: tuple[str, ...] = ()
    """Shells that this one may start to read the line or a part of it."""


def script_runs(
    verdict: CommandVerdict, plan: CommandPlan, rules: LayerRules, places: ScriptPlaces
) -> ScriptRuns:
    """Return what the scripts of a plan need, as the files are now.

    Only commands that a rule allows count: of any other the person is asked, and that question is
    bound to its files. The operator's `*` alone has allowed all that runs.
    """
    base = os.path.join(places.root, plan.directory)
    runs = _Collected(places)
    any_code = frozenset(
        one.argv for one in verdict.commands if one.unbound and one.effect is Effect.ALLOW
    )
    for judged, inner in _starting(verdict, plan, places):
        ruling = rules.rule(judged.argv)
        if ruling.cover is Breadth.ALL:
            continue
        if judged.effect is not Effect.ALLOW:
            for one in _answered_with(judged.argv, plan, base, places):
                runs.take(one, is_asked=True)
            continue
        for one in _bound_by(judged, base, places, is_granted=ruling.is_granted):
            is_code = judged.unbound or one.found.is_of_skill
            runs.alone = runs.alone or ruling.is_granted or not is_code
            # What runs any code of the workspace gains nothing by a module that is not there.
            is_passed = one.is_missing and (judged.unbound or one.is_by_name)
            passed = any_code if is_passed else frozenset[tuple[str, ...]]()
            if one.is_by_name:
                passed |= {each.argv for each in plan.commands() if only_reads(each.argv)}
            if odd := one.odd(plan, inner, base, passed):
                runs.unbound.append(one.name)
                runs.needs.append(_each_time(one.name, odd))
            else:
                runs.take(one)
    return runs.value()


def runs_any(judged: JudgedCommand) -> bool:
    """Whether a rule lets a command run any code of the workspace, and no file that is approved."""
    is_allowed = judged.unbound and judged.effect is Effect.ALLOW
    return is_allowed and not judged.scripts[judged.is_own :]


def _starting(
    verdict: CommandVerdict, plan: CommandPlan, places: ScriptPlaces
) -> Iterator[tuple[JudgedCommand, tuple[str, ...]]]:
    """Yield what a line starts, with the words of the program inside of its command; where a shell
    finds programs by their names, also those around others."""
    inners = [unwrapped(command.argv) or command.argv for command in plan.commands()]
    finding = next((argv for argv in inners if argv[0] in ("find", "xargs")), ())
    for judged in verdict.commands:
        yield judged, judged.argv if judged.argv in inners else finding or judged.argv
    if places.shell_which is None:
        return
    known = {one.argv for one in verdict.commands}
    for command, inner in zip(plan.commands(), inners, strict=True):
        for argv in _chain(command.argv):
            if argv not in known:
                yield JudgedCommand(argv=argv, effect=Effect.ALLOW), inner
    started = [finding[at + 1 : at + 2] for at, word in enumerate(finding) if word == "-exec"]
    for argv in (*filter(None, started), *((name,) for name in places.shells)):
        yield JudgedCommand(argv=argv, effect=Effect.ALLOW), finding or argv


def _chain(argv: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield a command, and each that it is only around of."""
    while argv:
        yield argv
        meaning = read_command(argv)
        argv = argv[meaning.inner :] if meaning.inner and not meaning.unknown else ()


class _Collected:
    """What the scripts of a plan need, as far as they were looked at."""

    def __init__(self, places: ScriptPlaces) -> None:
        self._places = places
        self._known: Mapping[str, frozenset[str]] | None = None
        self.needs: list[PermissionRequest] = []
        self.digests: dict[str, str] = {}
        self.new: list[str] = []
        self.unbound: list[str] = []
        self.linked: dict[str, str] = {}
        self.kept_as: dict[str, str] = {}
        self.unsealed: set[str] = set()
        self.alone = False

    def take(self, one: _Bound, *, is_asked: bool = False) -> None:
        """Take in what a command is bound to; where it is asked about, the answer covers it."""
        found = one.found
        if not (found.path or one.path):
            return
        if self._known is None:
            self._known = self._places.approved()
        if found.leads_to:
            self.linked[found.path] = found.leads_to
        for need, path, digest in one.files(self._places, self._known):
            if digest:
                self.digests[path] = digest
            is_written = one.is_written and path == found.path
            if is_written:
                self.kept_as[path] = one.key
            # What is asked about is bound to its files as a call; a program runs as a copy.
            if is_written or (is_asked and one.path):
                self.unsealed.add(path)
            is_known = digest in self._known.get(self.kept_as.get(path, path), ())
            if not is_known and path not in (*self.new, *self.unbound):
                (self.new if digest else self.unbound).append(path)
                self.needs += () if is_asked else (need,)

    def value(self) -> ScriptRuns:
        facts = tuple(("script", f"{path} sha256:{self.digests[path]}") for path in self.new)
        return ScriptRuns(
            needs=tuple(self.needs),
            digests=self.digests,
            new=tuple(self.new),
            odd=tuple(self.unbound),
            linked=self.linked,
            kept_as=self.kept_as,
            unsealed=frozenset(self.unsealed),
            runs_alone=self.alone,
            facts=(*facts, ("not bound", NOT_BOUND)) if facts else (),
        )


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
        data = bytes_of(os.path.join(root, path), PROGRAM_BYTES_MAX)
        if data is None or hashlib.sha256(data).hexdigest() != digest:
            raise RefusedError(f"nothing was done: `{path}` has changed since it was approved")
        if path not in before.unsealed:
            copies[os.path.join(root, path)] = data
    return copies


def kept_scripts(runs: ScriptRuns, root: str, session: Session) -> tuple[ApprovedScript, ...]:
    """Return what an approval of a call keeps of its scripts."""
    return tuple(
        ApprovedScript(
            workspace=root,
            path=runs.kept_as.get(path, path),
            digest=runs.digests[path],
            user=session.user,
            agent=session.agent,
        )
        for path in runs.new
    )


def approved_in(store: ScriptStore, root: str, session: Session) -> Mapping[str, frozenset[str]]:
    """Return the approved digests of each path of a workspace, with those of this session alone."""
    found = store.of(root, session.user, session.agent)
    for one in session.approved:
        if (one.workspace, one.user, one.agent) == (root, session.user, session.agent):
            found[one.path] = found.get(one.path, frozenset()) | {one.digest}
    return found


def asked_scripts(plan: Plan) -> tuple[ApprovedScript, ...]:
    """Return of what an approval of a plan keeps that which its question names."""
    named = {need.permission.resource for need in plan.needs if need.default is Effect.ASK}
    kept = ((os.path.join(one.workspace, one.path), one) for one in plan.approved)
    return tuple(one for path, one in kept if path in named)


class _Found(Struct, frozen=True, kw_only=True):
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


class _Bound(Struct, frozen=True, kw_only=True):
    """A script that a command runs, or code in its words, and what that loads."""

    name: str
    """As the command has it."""
    found: _Found
    path: str = ""
    """Absolute, of the script; of code, where it would be a script. Empty where there is none."""
    data: bytes = b""
    argv: tuple[str, ...] = ()
    is_written: bool = False
    """Whether the command may write it."""
    is_by_name: bool = False
    """Whether a shell finds it by the name of a program."""

    @property
    def key(self) -> str:
        """The name under which the approval of its own bytes is kept."""
        return f"install:{self.found.path}" if self.is_written else self.found.path

    def odd(
        self,
        plan: CommandPlan,
        argv: Sequence[str],
        base: str,
        passed: Collection[tuple[str, ...]] = (),
    ) -> str:
        """Return why it is asked about each time, or nothing; `passed` as of `changed_by`."""
        paths = (*self.found.paths, *self.names())
        return self.found.odd or changed_by(plan.commands(), paths, argv, base, passed)

    @property
    def is_missing(self) -> bool:
        """Whether no file of the workspace is run: a module's name that leads to none."""
        return not (self.found.path or self.data)

    def names(self) -> Iterator[str]:
        """Yield the paths at which it would load a file by name, were there one."""
        names = names_beside(self.path, self.data, self.argv) if self.path else iter(())
        yield from names if self.found.path else map(os.path.normpath, names)

    def files(
        self, places: ScriptPlaces, known: Mapping[str, frozenset[str]]
    ) -> Iterator[tuple[PermissionRequest, str, str]]:
        """Yield for itself, and for each file that it loads by name, what asks about it, its path
        below the workspace, and its digest: empty where it cannot be bound."""
        found = self.found
        if found.path:
            own = _once_for(found.path, places.root, is_known=self.key in known)
            yield own, found.path, found.digest
        beside = files_beside(self.path, self.data, places.root, self.argv) if self.path else ()
        for real in beside:
            relative = real[len(places.root) + 1 :]
            data = bytes_of(real)
            if places.is_of_skill(real):
                continue
            if data is None:
                why = "it is not a file that can be read whole"
                yield _each_time(relative, why), relative, ""
                continue
            said = f"`{relative}`, which {self._shown} loads"
            if is_in_place_of_standard(real, self.path):
                said += " in the place of a module of Python's own,"
            said += " was not approved as it is; an approval holds until it changes"
            need = PermissionRequest(
                permission=Permission(action=SCRIPT, resource=real), default=Effect.ASK, why=said
            )
            yield need, relative, hashlib.sha256(data).hexdigest()

    @property
    def _shown(self) -> str:
        return f"`{self.found.path}`" if self.found.path else "the code"


def _bound_by(
    judged: JudgedCommand, base: str, places: ScriptPlaces, *, is_granted: bool
) -> Iterator[_Bound]:
    """Yield what a command runs, and of one that a standing approval covers the rest of what that
    is bound to."""
    for candidates in _scripts_of(judged, base, places):
        found = _found(candidates, base, places, is_program=candidates == _program_of(judged))
        yield _loading(candidates[0], found, judged.argv, places)
    by_shell = () if places.shell_which is None else places.shell_which(judged.argv[0])
    # Where the shell runs any code of the workspace, it does not matter which program that is.
    if by_shell and not runs_any(judged):
        found = _found(by_shell, base, places, is_program=True)
        yield replace(_loading(by_shell[-1], found, judged.argv, places), is_by_name=True)
    yield from _standing(judged.argv, base, places) if is_granted else ()


def _answered_with(
    argv: tuple[str, ...], plan: CommandPlan, base: str, places: ScriptPlaces
) -> tuple[_Bound, ...]:
    """Return what the answer to a question about a command covers besides: the program that it
    names by a path, and what a standing approval would be bound to; nothing where one is odd, or
    the line may change it."""
    bound = list(_standing(argv, base, places)) if standing_rule(argv) else []
    is_odd = any(one.odd(plan, argv, base) for one in bound)
    if "/" in argv[0]:
        found = _found((argv[0],), base, places, is_program=True)
        bound.append(_Bound(name=argv[0], found=found))
    return () if is_odd or any(one.found.odd for one in bound) else tuple(bound)


def _standing(argv: tuple[str, ...], base: str, places: ScriptPlaces) -> Iterator[_Bound]:
    """Yield what a standing approval of a command is bound to besides its words."""
    bond = standing_bond(argv)
    if bond is None:
        return
    if bond.code:
        # INVARIANT: no real path has a `.` in it, so that it is no file that the code could load.
        path, data = os.path.join(base, f"./code{bond.suffix}"), bond.code.encode()
        yield _Bound(name="the code", found=_Found(paths=()), path=path, data=data)
    for number, candidates in enumerate(bond.files):
        found = _found(candidates, base, places)
        if not (number or found.path or found.odd):
            found = replace(found, odd="no lock file says what it installs")
        bound = _loading(candidates[0], found, (*argv, *_INSTALL_TASKS), places)
        yield replace(bound, is_written=True)


def _loading(name: str, found: _Found, argv: tuple[str, ...], places: ScriptPlaces) -> _Bound:
    if not found.path:
        return _Bound(name=name, found=found)
    path = os.path.join(places.root, found.path)
    return _Bound(name=name, found=found, path=path, data=bytes_of(path) or b"", argv=argv)


def _scripts_of(
    judged: JudgedCommand, base: str, places: ScriptPlaces
) -> Iterator[tuple[str, ...]]:
    """Yield the candidates of each script; a program that is named by its path is one itself, and
    so is one whose name leads into the workspace."""
    argv, scripts = judged.argv, judged.scripts
    is_named = judged.is_own and os.path.basename(scripts[0][0]) == argv[0]
    if "/" in argv[0] and (argv[0],) not in scripts:
        yield (argv[0],)
    elif not is_named and (path := places.which(argv[0])):
        yield (path,)
    yield from scripts
    if read_command(argv).unknown:
        yield from ((path,) for path in files_that_run(argv, base))


def _program_of(judged: JudgedCommand) -> tuple[str, ...]:
    """Return the path of a program of the workspace as a script, or nothing."""
    if judged.is_own:
        return judged.scripts[0]
    return (judged.argv[0],) if "/" in judged.argv[0] else ()


def _found(
    candidates: Sequence[str], base: str, places: ScriptPlaces, *, is_program: bool = False
) -> _Found:
    plain = (os.path.join(base, one) for one in candidates if "\0" not in one)
    paths = tuple(map(os.path.normpath, plain))
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
    data = bytes_of(real, PROGRAM_BYTES_MAX if is_program else SEALED_BYTES_MAX)
    if data is None:
        return _Found(paths=paths, odd="it is not a file that can be read whole")
    relative = real[len(places.root) + 1 :]
    return _Found(paths=paths, path=relative, digest=hashlib.sha256(data).hexdigest())


def _linked(path: str, real: str, paths: tuple[str, ...], places: ScriptPlaces) -> _Found | None:
    """Return a program of the workspace that is a link: to another file there, such as those of
    node_modules/.bin, or to an interpreter of the system or of the person's tools."""
    if not path.startswith(f"{places.root}/"):
        return None
    state = _linked_state(places.root, real)
    if state is None or not (real.startswith(f"{places.root}/") or places.is_tool(real)):
        return None
    relative = path[len(places.root) + 1 :]
    return _Found(paths=(*paths, real), path=relative, digest=state[0], leads_to=real)


def _linked_state(root: str, real: str) -> tuple[str, bytes | None] | None:
    """Return a digest of where a link leads and of what is there, and the bytes of a file of the
    workspace; None where it cannot be bound."""
    is_own = real.startswith(f"{root}/")
    try:
        data, info = bytes_of(real, PROGRAM_BYTES_MAX) if is_own else None, os.stat(real)
    except OSError:
        return None
    if is_own and data is None:
        return None
    said = (
        f"{info.st_size}:{info.st_mtime_ns}" if data is None else hashlib.sha256(data).hexdigest()
    )
    return hashlib.sha256(f"{real}\0{said}".encode("utf-8", "surrogateescape")).hexdigest(), data


def _linked_copy(root: str, path: str, real: str, digest: str) -> Mapping[str, bytes]:
    """Return the approved bytes that a link of the workspace leads to, by their real path."""
    state = _linked_state(root, real)
    is_same = os.path.realpath(os.path.join(root, path)) == real
    if not is_same or state is None or state[0] != digest:
        raise RefusedError(f"nothing was done: `{path}` has changed since it was approved")
    return {} if state[1] is None else {real: state[1]}


def _follows_link(path: str, root: str) -> bool:
    """Whether a path leads elsewhere than it says, by a link of the workspace."""
    plain = os.path.normpath(path)
    is_inside = plain.startswith(f"{root}/") or path.startswith(f"{root}/")
    return is_inside and os.path.lexists(path) and os.path.realpath(path) != plain


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
