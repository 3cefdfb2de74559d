"""What of a command will not work as it would run: said before a person is asked."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from skillhouse.floor.regex import regex
from skillhouse.permission import CommandPlan, command_resource, read_command, unwrapped
from skillhouse.tools.call import RefusedError

LABEL = "will not work"
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


def consequence(
    plan: CommandPlan | None, root: str, *, has_network: bool
) -> tuple[tuple[str, str], ...]:
    """Return the fact that says in one sentence what will not work, or nothing."""
    if plan is None:
        return ()
    commands = [unwrapped(command.argv) or command.argv for command in plan.commands()]
    directory = os.path.join(root, plan.directory)
    for is_so, what in (
        (lambda argv: not has_network and _reaches(argv, directory), "no network is granted"),
        (_needs_engine, "no container engine can be reached from the sandbox"),
    ):
        found = _those(commands, is_so)
        if found:
            return ((LABEL, f"{what}: {found} will fail"),)
    return ()


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
