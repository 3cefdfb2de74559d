"""What of a command will not work as it would run: said or refused before a person is asked.

A skill says `python3 scripts/x.py`, and means its own directory; a command begins in the workspace.
Such a call would ask a person, run, and fail. The refusal names the file that was meant.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from skillhouse.floor import PathError, confine
from skillhouse.floor.regex import regex
from skillhouse.permission import (
    CommandMeaning,
    CommandPlan,
    SimpleCommand,
    command_resource,
    judge_command,
    read_command,
    unwrapped,
)
from skillhouse.skill import Skill
from skillhouse.tools.call import WILL_NOT_WORK, RefusedError
from skillhouse.tools.script_dependencies import may_be_made
from skillhouse.tools.tool import Session
from skillhouse.tools.workspace import Workspace

_ALWAYS = frozenset({""})
_INSTALLS = "install i add ci update up upgrade"
_REACHING: Mapping[str, frozenset[str]] = {
    name: frozenset(words.split()) or _ALWAYS
    for names, words in (
        # Sub-commands that talk to another machine whatever else they say (the programs' manuals).
        ("git", "clone fetch pull push ls-remote"),
        ("npm pnpm", f"{_INSTALLS} publish view info outdated audit login search dist-tag owner"),
        ("yarn bun", "add install upgrade update publish outdated"),
        ("pip pip3 pipx", "install download search index"),
        ("uv", "add sync lock publish"),
        ("poetry pdm pipenv", "add install update lock publish"),
        ("conda mamba micromamba", "install update create search"),
        ("cargo", "install publish search login update fetch owner yank add"),
        ("gem", "install update push search fetch"),
        ("bundle", "install update add outdated"),
        ("composer", "install update require outdated"),
        ("apt apt-get", "update install upgrade dist-upgrade download"),
        ("brew", "install update upgrade search"),
        ("helm", "pull push install upgrade"),
        ("terraform tofu", "init plan apply destroy refresh"),
        ("twine", "upload"),
        ("gh glab", ""),
        ("aws gcloud az doctl flyctl heroku vercel netlify firebase wrangler gsutil", ""),
        ("kubectl argocd flux", ""),
        ("curl wget ssh scp sftp ftp telnet ping dig nslookup host traceroute whois", ""),
    )
    for name in names.split()
}
_ENGINES = frozenset("docker podman docker-compose nerdctl".split())
"""Programs that talk to a service of this machine, whose socket is not in the sandbox."""
_QUIET = frozenset("--help -h --version -V -v help version --offline --no-index completion".split())
"""Words with which they do not."""
_REMOTE = regex(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*://.*|[^/\s:]+@?[^/\s:]*:(?!//).*")
"""An address of git-clone(1), "GIT URLS": with a scheme, or HOST:PATH."""
_URL = regex(r"(?mi)^\s*(?:push)?url\s*=\s*(\S+)")
_REPLACING = frozenset({"rm", "mv", "sed", "unlink", "rmdir"})
"""Programs that put another file in the place of one, or none."""
CONFIG_MAX = 262_144
SUGGESTED_MAX = 3
"""Files that a refusal names."""
SKILLS_SEARCHED = 2_000
"""Listed skills in which the file is looked for, those that are loaded first."""
SHELL_PATH = "/usr/local/bin:/usr/bin:/bin"
"""Where a shell in the sandbox looks for a script that is not in its directory (bash(1), -s)."""

_UNKNOWN_PATH = regex(r"[*?\[{$`~\0]|[A-Za-z][A-Za-z0-9+.-]+:")
"""What makes a word a pattern, an address or the like: which file it means is not known here."""
_SUFFIXES = frozenset(
    ".py .sh .bash .zsh .rb .pl .php .lua .js .mjs .cjs .ts .mts .cts .tsx .jsx .R .r .go".split()
)
_ONLY_FILES = frozenset("python ruby perl php lua Rscript".split())
"""Programs whose operand is a file, whatever it is called."""
_SHELLS = frozenset({"sh"})
_LOADING = {
    "python": frozenset({"-W", "-X", "-i"}),
    "node": frozenset({"-r", "--require", "--import", "--loader", "--experimental-loader"}),
    "ruby": frozenset({"-r", "-I"}),
    "perl": frozenset({"-M", "-m", "-I"}),
}
"""Options that run something and leave the first operand the script."""
_LINE_OPTION = regex(r"-[a-z]*c")
_LEADING_AWAY = frozenset({"address", "config"})
"""Hazards by which a program that starts another one may choose where."""
DEPTH_MAX = 2
"""Shells inside one another whose lines are read."""
_ADDS_SUFFIX = frozenset("node bun deno tsx ts-node".split())
_ADDED = (".js", ".cjs", ".mjs", ".json", ".node", ".ts", ".tsx", ".mts", ".cts", ".jsx")
_MAKES_NO_FILE = frozenset({"chmod", "sleep"})
"""Programs before a script that make none, whatever their arguments."""
_TESTS = frozenset({"test", "["})
"""Programs by which a line itself finds out whether a file is there."""


def consequence(
    plan: CommandPlan | None, root: str, *, has_network: bool
) -> tuple[tuple[str, str], ...]:
    """Return the fact that says in one sentence what will not work, or nothing."""
    if plan is None:
        return ()
    directory = os.path.join(root, plan.directory)
    commands = [
        unwrapped(argv) or argv
        for command in plan.commands()
        for argv in commands_inside(command.argv, directory) or (command.argv,)
    ]
    for is_so, what in (
        (lambda argv: not has_network and _reaches(argv, directory), "no network is granted"),
        (_needs_engine, "no container engine can be reached from the sandbox"),
    ):
        found = _those(commands, is_so)
        if found:
            return ((WILL_NOT_WORK, f"{found} will fail: {what}"),)
    return ()


def commands_inside(
    argv: tuple[str, ...], directory: str, depth: int = DEPTH_MAX
) -> tuple[tuple[str, ...], ...]:
    """Return the commands of the line that a shell in a command is given; of no such, nothing.

    >>> commands_inside(("timeout", "5", "sh", "-ec", "npm ci && ls"), "/w")
    (('npm', 'ci'), ('ls',))
    """
    inside = _plan_inside(unwrapped(argv) or argv, directory) if argv and depth else None
    if inside is None:
        return ()
    base = os.path.join(directory, inside.directory)
    return tuple(
        part
        for command in inside.commands()
        for part in commands_inside(command.argv, base, depth - 1) or (command.argv,)
    )


def refuse_outside(plan: CommandPlan, root: str) -> None:
    """Refuse a command whose words say that it writes outside of the workspace, which none can.

    A relative path that leads to a place below /tmp would even seem to be written: it is the run's
    own /tmp, which goes with it. Whoever names /tmp means that one.

    Raises:
        RefusedError: there is such a path.
    """
    directory = os.path.join(root, plan.directory)
    for command in plan.commands():
        meaning = read_command(unwrapped(command.argv) or command.argv)
        if not meaning.is_quiet or meaning.directory or meaning.program == "git":
            continue
        for target in meaning.written:
            real = os.path.realpath(os.path.join(directory, target))
            is_inside = f"{real}/".startswith(f"{root}/")
            if not is_inside and not target.startswith(("/tmp/", "/dev/", "-")):  # noqa: S108
                message = f"`{target[:80]}` is outside of the workspace `{root}`"
                raise RefusedError(f"denied: {message}, where commands cannot write", denied=True)


def refuse_replaced(plan: CommandPlan | None, root: str, sealed: Collection[str]) -> None:
    """Refuse a line that removes, renames or rewrites by a new file what it runs.

    The approved bytes are mounted over it, so that this would fail after the rest was done.

    Args:
        sealed: Real paths of the files that the line runs with the bytes that are approved.

    Raises:
        RefusedError: it has such a command.
    """
    if plan is None or not sealed:
        return
    directory = os.path.join(root, plan.directory)
    for command in plan.commands():
        meaning = read_command(unwrapped(command.argv) or command.argv)
        if meaning.program not in _REPLACING or meaning.directory:
            continue
        for target in meaning.written:
            real = os.path.realpath(os.path.join(directory, target))
            held = next((path for path in sealed if f"{path}/".startswith(f"{real}/")), "")
            if held:
                name = os.path.relpath(held, root)[:80]
                said = f"`{name}` runs as it was approved while the line runs"
                what = f"which `{_short(command.argv)}` cannot change"
                raise RefusedError(f"{said}, {what}; nothing was done: do it in a call of its own")


def _those(commands: Sequence[tuple[str, ...]], is_so: Callable[[tuple[str, ...]], bool]) -> str:
    """Name the commands that are so; "this" where there is no other."""
    found = [argv for argv in commands if is_so(argv)]
    if not found or len(commands) == 1:
        return "this" if found else ""
    return ", ".join(dict.fromkeys(f"`{_short(argv)}`" for argv in found))


def _short(argv: tuple[str, ...]) -> str:
    path = read_command(argv).path
    return command_resource((argv[0], *path))[:40]


def _needs_engine(argv: tuple[str, ...]) -> bool:
    name = os.path.basename(argv[0])
    return name in _ENGINES and _QUIET.isdisjoint(argv) and len(argv) > 1


def _reaches(argv: tuple[str, ...], directory: str) -> bool:
    name = os.path.basename(argv[0])
    if name.startswith("python") and argv[1:3] == ("-m", "pip"):
        name, argv = "pip", argv[2:]
    words = _REACHING.get(name)
    if words is None or not _QUIET.isdisjoint(argv[1:]):
        return False
    operands = [word for word in argv[1:] if word[:1] != "-"]
    if words is _ALWAYS:
        # By itself such a program prints its help.
        return len(argv) > 1
    sub_command = next((word for word in operands if word in words), "")
    if not sub_command:
        return name in ("yarn", "bun", "bundle") and not operands
    given = operands[operands.index(sub_command) + 1 :]
    if name == "git":
        return _is_remote(sub_command, given, directory)
    # What is installed from a directory of the workspace may need nothing else.
    return not given or not all(word.startswith((".", "/")) for word in given)


def _is_remote(sub_command: str, given: Sequence[str], directory: str) -> bool:
    if given and _REMOTE.fullmatch(given[0]):
        return True
    if sub_command == "clone" or (given and "/" in given[0] and os.path.exists(given[0])):
        return False
    return any(_REMOTE.fullmatch(url) for url in _urls(directory))


def _urls(directory: str) -> Iterator[str]:
    """Yield the addresses of the remotes of the repository that a directory is in."""
    while not os.path.exists(f"{directory}/.git") and directory != os.path.dirname(directory):
        directory = os.path.dirname(directory)
    try:
        with open(f"{directory}/.git/config", encoding="utf-8", errors="replace") as file:
            yield from _URL.findall(file.read(CONFIG_MAX))
    except OSError:
        return


def check_scripts(plan: CommandPlan, workspace: Workspace, session: Session) -> None:
    """Raise RefusedError if a script that a plan certainly runs is not there.

    What an earlier command of the line may make is left to the run, and so is what the line expects
    to fail.
    """
    for word, base in missing_scripts(plan, str(workspace.root)):
        if workspace.is_withheld(os.path.normpath(os.path.join(base, word)), session):
            continue
        meant = _meant(word, workspace, session)
        if meant:
            raise RefusedError(f"no such file: `{word}`; did you mean {meant}")
        place = os.path.normpath(base)
        raise RefusedError(f"no such file: `{word}`; relative paths begin at `{place}`")


def missing_scripts(
    plan: CommandPlan, directory: str, before: Sequence[SimpleCommand] = (), depth: int = 0
) -> Iterator[tuple[str, str]]:
    """Yield the scripts that a plan given in a directory runs and that are not there, each with
    the directory that it is relative to. `before` ran earlier."""
    base = os.path.join(directory, plan.directory)
    if any(command.argv[0] in _TESTS for command in plan.commands()):
        return
    earlier = list(before)
    for place, pipeline in enumerate(plan.pipelines):
        following = plan.pipelines[place + 1 : place + 2]
        is_certain = pipeline.joined != "||" and not any(p.joined == "||" for p in following)
        for command in pipeline.commands:
            argv = unwrapped(command.argv)
            if is_certain and argv is not None:
                inside = _plan_inside(argv, base) if depth < DEPTH_MAX else None
                if inside is not None:
                    yield from missing_scripts(inside, base, earlier, depth + 1)
                for word in _missing(argv, base):
                    path = os.path.normpath(os.path.join(base, word))
                    if not may_be_made(path, earlier, base):
                        yield word, base
            if command.redirects or command.argv[0] not in _MAKES_NO_FILE:
                earlier.append(command)


def _plan_inside(argv: tuple[str, ...], base: str) -> CommandPlan | None:
    """Return the plan of a line that a shell is given, as in `bash -lc LINE`, if it has one."""
    if read_command(argv).program not in _SHELLS:
        return None
    for place, word in enumerate(argv[1:-1], start=1):
        if _LINE_OPTION.fullmatch(word):
            return judge_command(argv[place + 1], cwd=Path(base)).structure
    return None


def _missing(argv: tuple[str, ...], base: str) -> Iterator[str]:
    """Yield the scripts that a command names and that are not there."""
    for meaning in read_command(argv).chain():
        if meaning.unknown or meaning.directory or _runs_elsewhere(meaning) or _has_code(meaning):
            # It may run in another directory, or its first operand is no script.
            return
        for candidates in meaning.scripts:
            word = candidates[0]
            # Several candidates are what a program looks for by itself, such as a Makefile.
            if len(candidates) == 1 and word in meaning.argv and _is_gone(meaning, word, base):
                yield word


def _runs_elsewhere(meaning: CommandMeaning) -> bool:
    """Whether what it starts runs in a container, on another machine as with `ssh HOST ./x.sh`, or
    in another directory as with `npm -w PACKAGE exec`."""
    is_led_away = any(hazard.kind in _LEADING_AWAY for hazard in meaning.hazards)
    return meaning.is_far or (meaning.started is not None and is_led_away)


def _has_code(meaning: CommandMeaning) -> bool:
    """Whether an option holds what runs, as in `python -c CODE`: operands are its arguments."""
    loading = _LOADING.get(meaning.program, frozenset())
    options = (hazard.option for hazard in meaning.hazards if hazard.kind == "runs")
    return any(option is not None and option[0] not in loading for option in options)


def _is_gone(meaning: CommandMeaning, word: str, base: str) -> bool:
    path, program = os.path.join(base, word), meaning.program
    if word[:1] == "-" or _UNKNOWN_PATH.search(word):
        return False
    if (program in _SHELLS and word[:1] == "+") or (program == "go" and "..." in word):
        return False  # An option (bash(1), `+O`), and a pattern of packages (go help packages).
    if os.path.lexists(path):
        return False
    suffix = os.path.splitext(word)[1]
    if program in _ADDS_SUFFIX and any(os.path.lexists(path + added) for added in _ADDED):
        return False
    if program in _SHELLS and "/" not in word:
        return shutil.which(word, path=SHELL_PATH) is None
    if program == "go" and word[:1] not in (".", "/"):
        return suffix == ".go"  # Another operand is a package.
    return program in _ONLY_FILES or "/" in word or suffix in _SUFFIXES


def _meant(word: str, workspace: Workspace, session: Session) -> str:
    """Return the files that may have been meant, in words."""
    suggested = itertools.islice(_suggestions(word, workspace, session), SUGGESTED_MAX)
    return " or ".join(f"`{path}` ({whose})" for path, whose in suggested)


def _suggestions(word: str, workspace: Workspace, session: Session) -> Iterator[tuple[str, str]]:
    """Yield files of that name, each with whose it is."""
    name = PurePosixPath(word).name
    relative = () if word.startswith("/") else (os.path.normpath(word),)
    wanted = tuple(dict.fromkeys((*relative, f"scripts/{name}", name)))
    for skill in _skills(session):
        if workspace.is_withheld(str(skill.directory), session):
            continue
        if path := _first(skill.directory, wanted):
            how = "" if skill.file in session.loaded else ", load it first"
            yield path, f"of skill `{skill.name}`{how}"
    if path := _first(workspace.root, wanted):
        yield path, "in the workspace"


def _skills(session: Session) -> Iterator[Skill]:
    """Yield the listed skills, those that were loaded last first."""
    listed = session.visible.skills[:SKILLS_SEARCHED]
    if session.loaded:
        by_file = {skill.file: skill for skill in session.visible.skills}
        yield from (by_file[file] for file in reversed(session.loaded) if file in by_file)
    yield from (skill for skill in listed if skill.file not in session.loaded)


def _first(directory: Path, wanted: Sequence[str]) -> str:
    for relative in wanted:
        # A quick look first: there may be thousands of skills.
        if os.path.isfile(os.path.join(directory, relative)):
            try:
                confine(directory, relative)
            except PathError:
                continue
            return os.path.join(directory, relative)
    return ""
