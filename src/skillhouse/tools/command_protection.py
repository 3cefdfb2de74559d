"""What a command writes of the files that act later, and its redirections: what is asked about."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from glob import iglob
from itertools import accumulate, islice, takewhile
from pathlib import Path

from msgspec import Struct

from skillhouse.floor import DEPENDENCIES, FIXED, named
from skillhouse.floor.errors import first_of
from skillhouse.permission import (
    CommandPlan,
    Effect,
    PathPolicy,
    Permission,
    Redirect,
    command_resource,
    loads_code,
    only_reads,
    read_command,
    unwrapped,
)
from skillhouse.sandbox import GitChanges, OpenedProtection, find_git_changes
from skillhouse.tools.call import PERSISTENCE, PermissionRequest, RefusedError
from skillhouse.tools.files import is_new_directory, read_need, redirection_need, write_need
from skillhouse.tools.tool import Session
from skillhouse.tools.workspace import Workspace

FILES_MAX = 20_000
"""Files that are looked at below a directory; our sandbox holds what is beyond."""
DEPTH_MAX, SIGNS_MAX = 32, 8
"""Parts of a pattern that are tried, and its signs in one of them."""
SHOWN_MAX = 8
"""Names that a reason has; the question's facts have all."""
KEPT = "files that agents and tools obey, such as Makefile, package.json and AGENTS.md"
_WRITING = frozenset(
    "tee touch mkdir rm mv truncate shred sed perl patch dos2unix unlink chmod".split()
)
"""Programs whose operands are written, as far as they are such files."""
_COPYING = frozenset("cp install ln rsync scp".split())
"""Programs that write their last operand, or files of the others' names in it."""
_CHANGES = frozenset(
    "install i add ci uninstall remove rm un unlink update up upgrade version init create dedupe "
    "prune require new import audit".split()
)
"""Words by which a package manager writes its own list of packages (docs.npmjs.com/cli,
pnpm.io/cli, yarnpkg.com/cli, bun.com/docs/cli, getcomposer.org/doc/03-cli)."""
_LISTS: Mapping[str, tuple[str, ...]] = {
    "npm": ("package.json",),
    "pnpm": ("package.json",),
    "yarn": ("package.json",),
    "bun": ("package.json",),
    "composer": ("composer.json",),
    "deno": ("deno.json", "deno.jsonc"),
}
_GENERATORS: Mapping[str, tuple[str, ...]] = {
    # cmake-generators(7), and the manuals of the others.
    "cmake": ("makefile",),
    "qmake": ("makefile",),
    "asdf": (".tool-versions",),
}
_EXPANDING = frozenset(
    "gzip gunzip xz unxz lzma unlzma bzip2 bunzip2 zstd unzstd lz4 unlz4 uncompress brotli".split()
)
"""Programs that write a file of the same name without its ending."""
_STARTS = frozenset("-exec -execdir -ok -okdir -x --exec -X --exec-batch".split())
"""Options of find and fd behind which a command is."""
_UNPACKING = frozenset({"tar", "bsdtar", "unzip", "7z", "7za", "cpio", "cargo", "gh"})
"""Programs that bring whole directories."""
_READERS = frozenset(
    "ls dir vdir tree find fd fdfind grep egrep fgrep zgrep rg ag ack cat tac head tail wc du df "
    "stat file readlink realpath basename dirname echo printf pwd test [ true false diff cmp comm "
    "sort uniq cut paste join tr nl od xxd hexdump strings cksum md5sum sha1sum sha224sum "
    "sha256sum sha384sum sha512sum b2sum sum less more bat jq column date seq which cd".split()
)
"""Programs that write no file but those that their words name."""
_REPORTERS = frozenset(
    "ps pstree pgrep pidof top uptime free vmstat lscpu lsblk nproc uname hostname whoami id "
    "groups who locale getconf lsb_release sw_vers nvidia-smi man help printenv sleep clear tput "
    "tty dig host nslookup ping ss netstat journalctl systemctl docker podman kubectl gh "
    "glab".split()
)
"""Programs whose commands that read write nothing into the directory they run in."""
_REPOSITORY_WORDS = frozenset({"clone", "init", "worktree", "submodule"})


class Writes(Struct, frozen=True, kw_only=True):
    """What a command line writes of such files."""

    needs: tuple[PermissionRequest, ...] = ()
    opened: OpenedProtection = OpenedProtection()
    facts: tuple[tuple[str, str], ...] = ()


def writes_of(
    plan: CommandPlan, workspace: Workspace, *, is_hidden: Callable[[str], bool]
) -> Writes:
    """Return what a plan writes of the files that act later.

    Args:
        is_hidden: Whether commands cannot read a path, relative to the workspace.

    Raises:
        RefusedError: git would write one that no approval opens, or a command would write one that
            it cannot read, and be half done.
    """
    needs: dict[PermissionRequest, None] = {}
    patterns: list[str] = []
    facts: list[tuple[str, str]] = []
    everything = trees = repositories = False
    directory = os.path.join(workspace.root, plan.directory)
    for command in plan.commands():
        argv = unwrapped(command.argv) or command.argv
        # What a path names may be another program: then nothing is known of what it writes.
        program = ("/" in argv[0] and PathPolicy().named_program(argv[0])) or argv[0]
        for path in (*_named_paths(program, argv[1:], directory), *command.redirected):
            relative = _relative(path, directory, workspace)
            makes = relative + "/" * _makes_directory(program, argv[1:], directory)
            if is_new_directory(workspace, makes):
                needs[write_need(workspace, makes)] = None
            elif relative and workspace.paths.is_asked(relative):
                needs[write_need(workspace, relative)] = None
                patterns.append(f"/{relative}")
        patterns += _listed(program, argv[1:])
        trees = trees or program in _UNPACKING
        if program == "rm":
            _refuse_hidden(argv, _removed(argv[1:], directory, workspace), is_hidden)
        if program == "git":
            changes = find_git_changes(argv, directory=Path(directory), workspace=workspace.root)
            names = _rewritten(argv, changes, workspace, is_hidden)
            if names or not changes.is_known:
                needs[rewriting_need(argv, names, is_known=changes.is_known)] = None
                facts += [("rewrites", ", ".join(names))] if names else []
            _refuse_fixed(names)
            patterns += [f"/{name}" for name in names]
            everything = everything or not changes.is_known
            repositories = repositories or not _REPOSITORY_WORDS.isdisjoint(argv)
            trees = trees or repositories
    opened = OpenedProtection(
        patterns=tuple(dict.fromkeys(patterns)),
        everything=everything,
        trees=trees,
        repositories=repositories,
        top_repository=_makes_top_repository(plan, str(workspace.root)),
    )
    return Writes(needs=tuple(needs), opened=opened, facts=tuple(facts))


def _rewritten(
    argv: Sequence[str], changes: GitChanges, workspace: Workspace, is_hidden: Callable[[str], bool]
) -> tuple[str, ...]:
    """Return the files that act later of those that git would rewrite."""
    _refuse_hidden(argv, (name for name in changes.names if name not in changes.edited), is_hidden)
    names = (name for name in changes.names if workspace.paths.group(name) is not None)
    return tuple(name for name in names if name not in changes.edited or not is_hidden(name))


def _refuse_hidden(
    argv: Sequence[str], paths: Iterable[str], is_hidden: Callable[[str], bool]
) -> None:
    names = [path for path in paths if is_hidden(path)]
    if not names:
        return
    shown = first_of([f"`{name}`" for name in names], SHOWN_MAX)
    line = command_resource(tuple(argv))
    raise RefusedError(
        f"denied, nothing was done: `{line[:80]}` would change {shown}, which commands can "
        "neither read nor write here; leave that out, or ask the user to run it",
        denied=True,
    )


def _removed(arguments: Sequence[str], directory: str, workspace: Workspace) -> Iterator[str]:
    """Yield what `rm` would remove below the directories that it names."""
    for operand in (word for word in arguments if word[:1] != "-"):
        if relative := _relative(operand, directory, workspace):
            start = f"{workspace.root}/"
            yield from (path[len(start) :] for path in files_below(f"{start}{relative}"))


def _makes_top_repository(plan: CommandPlan, root: str) -> bool:
    """Whether a plan is `git init` of the workspace and nothing else.

    INVARIANT: no other program runs, and no option names a template or another place. So what is
    in `.git` while it is open to the command comes from git and this machine alone.
    """
    argv = plan.plain() or ()
    if argv[:2] != ("git", "init"):
        return False
    words = list(argv[2:])
    operands = []
    while words:
        word = words.pop(0)
        if word in ("-b", "--initial-branch") and words:
            words.pop(0)
        elif word[:1] != "-":
            operands.append(word)
        elif word not in ("-q", "--quiet") and not word.startswith("--initial-branch="):
            return False
    return operands in ([], ["."], [root])


def kept_files(plan: CommandPlan | None, opened: OpenedProtection) -> tuple[tuple[str, str], ...]:
    """Return the fact that such files stay as they are, for a line that may run any code.

    A person understands by it why a program fails that writes one.
    """
    if opened.everything:
        return ()
    if plan is not None and not any(loads_code(command.argv) for command in plan.commands()):
        return ()
    names = ", ".join(f"`{pattern.lstrip('/')}`" for pattern in opened.patterns[:SHOWN_MAX])
    return (("read-only in the run", f"{KEPT}, but not {names}" if names else KEPT),)


def rewriting_need(
    argv: Sequence[str], names: tuple[str, ...], *, is_known: bool
) -> PermissionRequest:
    """Return the need of a command that rewrites such files: an approval that holds once."""
    line = command_resource(tuple(argv))
    shown = first_of([f"`{name}`" for name in names], SHOWN_MAX)
    what = f"rewrites {shown}" if names else "may rewrite files that agents and tools obey"
    also = "" if is_known or not names else ", and may rewrite others"
    return PermissionRequest(
        permission=Permission(action="exec-once", resource=line),
        default=Effect.ASK,
        why=f"`{line[:80]}` {what}{also}",
        caution_layer=PERSISTENCE,
        may_last=False,
    )


def _refuse_fixed(names: tuple[str, ...]) -> None:
    fixed = next((name for name in names if named(FIXED.patterns, name)), "")
    if fixed:
        raise RefusedError(
            f"denied: it would rewrite `{fixed}`, which no command writes: ask the user to run it",
            denied=True,
        )


def redirection_needs(
    redirects: Sequence[Redirect], workspace: Workspace, session: Session
) -> Iterator[PermissionRequest]:
    """Yield the needs of the redirections of a plan: files, and devices that are not harmless."""
    files = [redirect for redirect in redirects if is_of_file(redirect)]
    written = {redirect.target for redirect in files if redirect.kind != "read"}
    for redirect in files:
        if redirect.kind != "read":
            yield redirection_need(workspace, redirect.target, session)
        elif redirect.target not in written:
            yield read_need(workspace.file(redirect.target, session))
    for target in sorted({redirect.target for redirect in redirects if _is_device(redirect)}):
        # Bash opens a connection for names such as /dev/tcp/host/80 (bash(1), "Redirection").
        yield PermissionRequest(
            permission=Permission(action="exec-once", resource=f"< {target}"),
            default=Effect.ASK,
            why=f"`{target[:80]}` is a device, or a connection",
            may_last=False,
        )


def is_of_file(redirect: Redirect) -> bool:
    return redirect.kind in ("read", "write", "append") and not redirect.target.startswith("/dev/")


def _is_device(redirect: Redirect) -> bool:
    """Whether what is read is neither a file nor one of the devices that are harmless."""
    is_within = redirect.kind == "read" and redirect.target.startswith("/dev/")
    return is_within and bool(PathPolicy().reading(redirect.target))


def _listed(program: str, arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the patterns of the files that a program itself keeps."""
    words = [word for word in arguments if word[:1] != "-"]
    if program in _LISTS and (not words or words[0] in _CHANGES):
        return _LISTS[program]
    return _GENERATORS.get(program, ())


def _named_paths(program: str, arguments: Sequence[str], directory: str) -> Iterator[str]:
    operands = [word for word in arguments if word[:1] != "-"]
    if program in _WRITING:
        yield from operands
    if program == "rm":
        yield from _files_below_all(operands, directory)
    if _writes_list(program, arguments):
        yield "package.json"
    if program == "dd":
        yield from (word[3:] for word in arguments if word.startswith("of="))
    if program in _COPYING or program == "mv":
        yield from _copied_paths(program, arguments, operands, directory)
    if program in _EXPANDING:
        yield from _expanded_paths(arguments, operands, directory)
    for inner in _started(program, arguments):
        yield from _named_paths(inner[0], inner[1:], directory)
    for meaning in read_command((program, *arguments)).chain():
        # What git writes of its operands is predicted.
        written = meaning.written_values if program == "git" else meaning.written
        yield from (os.path.join(*meaning.directory, path) for path in written)


def _files_below_all(operands: Sequence[str], directory: str) -> Iterator[str]:
    for operand in operands:
        yield from files_below(os.path.join(directory, operand))


def _expanded_paths(
    arguments: Sequence[str], operands: Sequence[str], directory: str
) -> Iterator[str]:
    """Yield the files that a program such as `gunzip` makes in the place of what it is given."""
    yield from (os.path.splitext(operand)[0] for operand in operands)
    if recurses(arguments):
        for path in _files_below_all(operands, directory):
            yield from (path, os.path.splitext(path)[0])


def recurses(words: Sequence[str]) -> bool:
    """Whether `gzip` or its like takes all files below the directories that it is given."""
    options = (word for word in words if word[:1] == "-")
    return any(word[:5] == "--rec" or (word[:2] != "--" and "r" in word) for word in options)


def found_commands(words: Sequence[str]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the places of the options of find or fd that start a command, and its words."""
    for at, word in enumerate(words):
        if word in _STARTS:
            yield at, tuple(takewhile(lambda one: one not in (";", "+"), words[at + 1 :]))


def _started(program: str, arguments: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the commands that find or xargs starts, with the names that the line has."""
    if program == "xargs":
        operands = read_command((program, *arguments)).operands
        yield from [arguments[at - 1 :] for at in operands[:1]]
    elif program in ("find", "fd", "fdfind"):
        yield from (inner for _, inner in found_commands(arguments) if inner)


def _copied_paths(
    program: str, arguments: Sequence[str], operands: Sequence[str], directory: str
) -> Iterator[str]:
    """Yield what a copy, a link or a move writes: its targets, each source in one of them, and
    what is below those."""
    targets = list(operands[-1:]) if len(operands) > 1 else ["."] if program == "ln" else []
    for at, word in enumerate(arguments):
        if word.startswith("--target-directory="):
            targets.append(word.partition("=")[2])
        elif word in ("-t", "--target-directory") and at + 1 < len(arguments):
            targets.append(arguments[at + 1])
    words = dict.fromkeys(operands)
    sources = dict.fromkeys(source for word in words for source in _matching(word, directory))
    for target in targets:
        yield target
        is_within = os.path.isdir(os.path.join(directory, target))
        for source in sources:
            into = os.path.join(target, os.path.basename(source)) if is_within else target
            yield into
            place = os.path.join(directory, source)
            # What our own runs move as a whole they keep (`native_files.py` has the others).
            is_copied = program not in ("ln", "mv") and source != target
            for path in files_below(place) if is_copied else ():
                yield os.path.join(into, os.path.relpath(path, place))


def _matching(word: str, directory: str) -> list[str]:
    """Return the names that a pattern matches now, or the word itself."""
    if {*"*?["}.isdisjoint(word):
        return [word.rstrip("/") or word]
    parts = word.rstrip("/").split("/")
    if len(parts) > DEPTH_MAX:
        return [word]
    # A part of many signs counts as any name.
    parts = ["*" if sum(map(part.count, "*?[")) > SIGNS_MAX else part for part in parts]
    return [*islice(iglob("/".join(parts), root_dir=directory), FILES_MAX)] or [word]


def _writes_list(program: str, arguments: Sequence[str]) -> bool:
    """Whether `pkg` of a package manager writes its list of packages; `pkg get` reads it."""
    operands = [word for word in arguments if word[:1] != "-"]
    if program not in ("npm", "pnpm", "yarn", "bun") or operands[:1] not in (
        ["pkg"],
        ["set-script"],
    ):
        return False
    meaning = read_command((program, *arguments))
    return bool(meaning.unknown) or meaning.path != ("pkg", "get")


def _makes_directory(program: str, arguments: Sequence[str], directory: str) -> bool:
    """Whether what a command writes may be a directory: a new one, or one under another name."""
    if program == "mkdir":
        return True
    sources = arguments if program in _COPYING or program == "mv" else ()
    return any(os.path.isdir(os.path.join(directory, word)) for word in sources)


def files_below(directory: str) -> Iterator[str]:
    """Yield the files below a directory, as far as they are looked at."""
    left = FILES_MAX
    for place, files in _walked(directory):
        left -= len(files)
        if left < 0:
            return
        yield from (os.path.join(place, name) for name in files)


def has_more_below(directory: str) -> bool:
    """Whether a directory has more files than `files_below` yields."""
    counts = accumulate(len(files) for _, files in _walked(directory))
    return any(count > FILES_MAX for count in counts)


def _walked(directory: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the directories below one with their files, but those of installed packages."""
    for place, directories, files in os.walk(directory):
        directories[:] = sorted({*directories} - DEPENDENCIES)
        yield place, files


def _relative(path: str, directory: str, workspace: Workspace) -> str:
    """Return a path below the workspace, its directory's links followed, or ""."""
    joined = os.path.normpath(os.path.join(directory, path))
    above, name = os.path.split(joined)
    real = os.path.join(os.path.realpath(above), name)
    root = f"{workspace.root}/"
    return real[len(root) :] if real.startswith(root) else ""


def only_looks(plan: CommandPlan | None) -> bool:
    """Whether a command can have the whole workspace read-only without noticing.

    Stricter than `may_change`: what a package manager writes of its own is in no word of its line.
    """
    return not may_change(plan) and all(
        _program(command.argv) in _READERS
        for command in (plan.commands() if plan is not None else ())
    )


def _program(argv: Sequence[str]) -> str:
    return os.path.basename((unwrapped(argv) or argv)[0])


def may_change(plan: CommandPlan | None) -> bool:
    """Whether a command can change a file; None is one that was not taken apart.

    The words of a command say which files it names, not which it makes by itself: `npm init` writes
    package.json, `go mod tidy` go.mod, `black .` every file, and git refreshes its index where it
    only shows something. So only programs that are known to write nothing else are let off.
    """
    return plan is None or any(
        _program(command.argv) not in _READERS | _REPORTERS
        or not only_reads(command.argv)
        or command.redirected
        for command in plan.commands()
    )
