"""Programs that a wildcard never covers, and commands that nothing ever covers."""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Sequence

from skillhouse.floor.regex import regex

SHELLS = frozenset("sh bash dash zsh ksh mksh fish csh tcsh ash rbash busybox toybox".split())

BUILTINS = frozenset(
    ". source eval exec builtin export declare typeset local readonly set unset shopt trap alias "
    "unalias enable hash let read mapfile readarray wait jobs fg bg disown ulimit umask times "
    "getopts pushd popd dirs bind complete compgen compopt return exit break continue shift "
    "suspend logout caller coproc history fc help type".split()
)
"""What means something in a shell only, and much of it runs text."""

RUNNING = frozenset(
    # Interpreters, and programs with a language of their own that runs commands.
    "python pypy perl ruby irb node nodejs deno bun php lua luajit tclsh wish expect R Rscript "
    "julia ghc ghci runghc guile racket ocaml erl elixir iex scala groovy jshell java osascript "
    "pwsh powershell awk gawk mawk nawk ed ex vi vim nvim view emacs nano joe m4 bc dc gdb lldb "
    "sqlite3 psql mysql mariadb mongosh redis-cli ftp sftp telnet tar rsync zip unzip cpio scp "
    "less more most man info pager bat lynx w3m screen tmux crontab at batch "
    # Programs that start another one.
    "xargs parallel flock watch script scriptreplay strace ltrace perf valgrind rlwrap unbuffer "
    "chroot unshare nsenter setpriv capsh systemd-run ssh slogin mosh runcon firejail bwrap proot "
    "fakeroot taskset chrt numactl prlimit cgexec dbus-run-session xvfb-run start-stop-daemon "
    "run-parts ld.so npx bunx pnpx uvx pipx tsx ts-node fd fdfind entr "
    # Programs that take orders from a file of the place where they run.
    "make gmake ninja just rake ant mvn gradle cmake "
    "install ln dd split csplit shuf xxd wget openssl gpg".split()
)
"""Covered by an exact rule only, or by one that names more than the program."""

PRIVILEGED = frozenset(
    "sudo sudo-rs doas su su-rs pkexec runuser run0 dzdo sudoedit gksudo kdesudo calife super sg "
    "newgrp".split()
)

_VERSIONED = regex(r"(python|pypy|pip|perl|ruby|node|php|lua|gcc|tclsh)[\d.]+w?")
_LOADER = regex(r"ld(-linux[\w.-]*|-musl[\w.-]*)?\.so[\w.]*")

_LOOKED_UP = regex(r"[A-Za-z0-9_.+][A-Za-z0-9_.+-]*")
_ROOTS = regex(
    r"(/|~[\w-]*|\$\{?HOME\}?|\.\.(/\.\.)*|/[A-Za-z0-9_.-]+|/(home|Users|usr|var)/[\w.-]+)?"
    r"/*(\*|\.\*|\{\*\})?/*"
)
_OFF = frozenset("shutdown reboot halt poweroff telinit".split())


@functools.lru_cache(maxsize=1024)
def base_name(program: str) -> str:
    """Return the program that a path or version names: `/usr/bin/python3.11` is `python`."""
    name = program.rsplit("/", 1)[-1]
    versioned = _VERSIONED.fullmatch(name)
    return versioned[1] if versioned else "ld.so" if _LOADER.fullmatch(name) else name


def running(program: str) -> str:
    """Return why a wildcard does not cover a program, or nothing."""
    name = base_name(program)
    if name in SHELLS:
        return "a shell is covered by an exact rule only"
    if name in BUILTINS:
        return f"`{name}` means something to a shell only"
    if name in RUNNING:
        return f"`{name}` can run other code, and is covered by an exact rule only"
    return ""


def looks_up(argv: tuple[str, ...]) -> bool:
    """Whether a command only says what a name would start, which the runner of plans does itself.

    >>> looks_up(("command", "-v", "git")), looks_up(("command", "git"))
    (True, False)
    """
    names = argv[2:] if argv[:2] == ("command", "-v") else argv[1:] if argv[0] == "type" else ()
    return bool(names) and all(map(_LOOKED_UP.fullmatch, names))


def without_shell(argv: Sequence[str]) -> str:
    """Return how a line does without a command that only a shell has, to say behind another text.

    >>> without_shell([".", ".venv/bin/activate"])
    '; needless where programs are named by their path: `.venv/bin/python`'
    """
    is_activation = len(argv) == 2 and argv[0] in (".", "source")
    if not is_activation or not argv[1].endswith("/bin/activate"):
        return ""
    path = f"{posixpath.dirname(argv[1])}/python"[:120]
    return f"; needless where programs are named by their path: `{path}`"


def destruction(argv: Sequence[str]) -> str:
    """Return what is beyond any rule about a command, or nothing.

    >>> destruction(("rm", "-rf", "/")) != "", destruction(("rm", "-rf", "build"))
    (True, '')
    """
    name, rest = base_name(argv[0]), argv[1:]
    if name not in _DESTROYING and not name.startswith("mkfs"):
        return ""
    return _ended_tree(name, rest) or _ended_machine(name, rest) or _device_written(name, rest)


def _ended_tree(name: str, rest: Sequence[str]) -> str:
    longs = {word for word in rest if word[:2] == "--"}
    if name in ("rm", "chmod", "chown", "chgrp", "mv", "shred"):
        targets = [word for word in rest if word[:1] != "-"]
        everything = [word for word in targets if word and _ROOTS.fullmatch(word) and word != "*"]
        is_recursive = bool(_letters(rest) & set("rR")) or "--recursive" in longs
        if everything and (is_recursive or name in ("mv", "shred")):
            return f"`{name}` of `{everything[0][:60]}`"
        if "--no-preserve-root" in longs:
            return f"`{name}` without its safety catch"
    if name == "find" and "-delete" in rest and _ROOTS.fullmatch(rest[0]) and rest[0] != "*":
        return f"deleting all of `{rest[0][:60]}`"
    return ""


def _ended_machine(name: str, rest: Sequence[str]) -> str:
    if name == "kill" and "-1" in rest[1:]:
        return "a signal to every process"
    if name in _OFF or (name == "systemctl" and set(rest) & (_OFF | {"kexec"})):
        return "switching the machine off"
    if name == "init" and rest[:1] in (("0",), ("6",), ["0"], ["6"]):
        return "switching the machine off"
    if name.startswith("mkfs") or name in ("wipefs", "mkswap", "blkdiscard", "fdisk", "parted"):
        return "writing to a disk"
    return ""


def _device_written(name: str, rest: Sequence[str]) -> str:
    if name in ("dd", "cp", "tee", "shred", "mv", "truncate") and any(
        _is_device(word.removeprefix("of=")) for word in rest if not word.startswith("if=")
    ):
        return "writing to a device"
    operands = [word for word in rest if word[:1] != "-"]
    changed = operands if name in _REPLACING else []
    if name == "cp" and _letters(rest):
        # Options of cp make a link, keep a backup or remove what is there.
        changed = operands[-1:]
    if any(map(_is_in_devices, changed)):
        return "removing a device, or changing who may use it"
    return ""


def _letters(rest: Sequence[str]) -> set[str]:
    """Return the short options, their dash included."""
    return {letter for word in rest if word[:1] == "-" != word[1:2] for letter in word}


_DESTROYING = _OFF | frozenset(
    "rm chmod chown chgrp mv shred find kill systemctl init wipefs mkswap blkdiscard fdisk parted "
    "dd cp tee truncate rmdir ln unlink install".split()
)
"""Programs that are looked at more closely; and `mkfs` of each kind."""
_REPLACING = frozenset("rm rmdir mv ln unlink shred truncate install chmod chown chgrp".split())
"""Programs that put something in the place of a file, or end it."""


def _is_in_devices(path: str) -> bool:
    return posixpath.normpath(f"/{path.lstrip('/')}").startswith("/dev/") and path[:1] == "/"


def _is_device(path: str) -> bool:
    return path.startswith("/dev/") and path not in DEVICES


DEVICES = frozenset(
    {"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/zero"}
    | {"/dev/random", "/dev/urandom", "/dev/fd/0", "/dev/fd/1", "/dev/fd/2"}
)
"""Devices that are there in the sandbox, and harmless."""
