"""Which repositories a command of git talks to by a path (git-fetch(1), "GIT URLS").

Names, defaults and rewritten addresses are taken from git's configuration, as git takes them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

from skillhouse.floor.regex import regex
from skillhouse.sandbox.git_changes import ask_git

_ADDRESS = regex(r"[^/]*:.*")
"""With a colon before the first slash: a scheme, a helper of gitremote-helpers(7) or HOST:PATH."""
_KEYS = r"^(branch\..*\.(push)?remote|remote\..*\.(push)?url|remote\.pushdefault|url\..*insteadof)$"
_VALUED = frozenset(
    "--depth --deepen --shallow-since --shallow-exclude -j --jobs --refmap --upload-pack -o "
    "--server-option --negotiation-tip -s --strategy -X --strategy-option --push-option --exec "
    "--receive-pack --repo -b --branch --origin -u --template -c --config --separate-git-dir "
    "--bundle-uri --filter --sort --reference --reference-if-able --remote --format --output "
    "--prefix --add-file -t -m".split()
)
"""Options whose value may be the next word."""
_FLAGS: Mapping[str, frozenset[str]] = {
    # The same letters without a value (git-push(1), git-pull(1), git-ls-remote(1)).
    "push": frozenset({"-u"}),
    "pull": frozenset({"-t"}),
    "fetch": frozenset({"-u", "-t", "-m"}),
    "ls-remote": frozenset({"-t"}),
}
_NAMING = frozenset({"show", "prune", "set-head"})
Added = Mapping[str, str]


def remote_paths(
    word: str, arguments: Sequence[str], directory: Path, added: Added
) -> tuple[tuple[str, str], ...]:
    """Return the paths of the repositories that `git WORD` talks to: each as it is written, and
    absolute, with no link followed.

    Args:
        directory: Where git runs.
        added: Addresses of remotes that the same line names before.
    """
    operands, values = _parts(word, arguments)
    remotes = _Remotes(directory, added, is_push=word == "push")
    names = tuple(_named(word, operands, values, arguments, remotes))
    if not names:
        return ()
    # "git clone" makes its own repository; the others work from the top of theirs.
    base = str(directory)
    if word != "clone":
        base = (ask_git(directory, "rev-parse", "--show-toplevel") or base).rstrip("\n")
    found = [path for name in names for url in remotes.urls(name) if (path := path_of(url))]
    return tuple((path, os.path.normpath(os.path.join(base, path))) for path in found)


def added_remote(word: str, arguments: Sequence[str]) -> Added:
    """Return the address that `git remote` gives a name, for what follows in the same line."""
    operands, _ = _parts(word, arguments)
    if word == "remote" and operands[:1] in (("add",), ("set-url",)) and len(operands) > 2:
        return {operands[1]: operands[2]}
    return {}


def path_of(url: str) -> str:
    """Return the path that an address is, or "" where it leads to another machine.

    >>> path_of("file:///srv/a%20b"), path_of("../up"), path_of("host:up"), path_of("https://a/b")
    ('/srv/a b', '../up', '', '')
    """
    if url.startswith("file://"):
        return "/" + unquote(url[len("file://") :]).lstrip("/")
    # A home is the run's own; what a shell puts in is not known.
    return "" if _ADDRESS.fullmatch(url) or url[:1] == "~" or not {*"$`*"}.isdisjoint(url) else url


def _parts(
    word: str, arguments: Sequence[str]
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Return the operands, and the options that have a value with it."""
    flags = _FLAGS.get(word, frozenset())
    operands: list[str] = []
    values: list[tuple[str, str]] = []
    words = iter(arguments)
    for one in words:
        if one == "--":
            operands += words
        elif one[:1] != "-" or one == "-":
            operands.append(one)
        elif one in _VALUED - flags:
            values.append((one, next(words, "")))
        elif one[:2] == "--" and "=" in one:
            name, _, value = one.partition("=")
            values.append((name, value))
    return tuple(operands), tuple(values)


def _named(
    word: str,
    operands: tuple[str, ...],
    values: Sequence[tuple[str, str]],
    arguments: Sequence[str],
    remotes: _Remotes,
) -> Iterator[str]:
    """Yield the names or addresses that a command talks to."""
    if "--get-url" in arguments:
        return
    of = {"clone": ("--reference", "--reference-if-able"), "archive": ("--remote",)}.get(word, ())
    yield from (value for name, value in values if name in of)
    match word, operands:
        case "clone", (source, *_):
            yield source
        case "fetch", _ if "--all" in arguments:
            yield from remotes.names()
        case "fetch", _ if {"--multiple", "-m"} & {*arguments}:
            yield from operands
        case "fetch" | "pull" | "push" | "ls-remote", ():
            named = [value for name, value in values if word == "push" and name == "--repo"]
            yield from named or (remotes.default(),)
        case "fetch" | "pull" | "push" | "ls-remote", (name, *_):
            yield name
        case "remote", ("update", *names):
            yield from names or remotes.names()
        case "remote", ("add", _, url, *_) if {"-f", "--fetch"} & {*arguments}:
            yield url
        case "remote", (first, *names) if first in _NAMING and "-n" not in arguments:
            yield from names[:1]


class _Remotes:
    def __init__(self, directory: Path, added: Added, *, is_push: bool) -> None:
        self._directory = directory
        self._added = added
        self._is_push = is_push
        self._read: dict[str, list[str]] | None = None

    @property
    def _settings(self) -> Mapping[str, Sequence[str]]:
        """The keys as git gives them, of which the first and the last part are in lower case."""
        if self._read is None:
            self._read = {}
            text = ask_git(self._directory, "config", "-z", "--get-regexp", _KEYS) or ""
            for entry in filter(None, text.split("\0")):
                key, _, value = entry.partition("\n")
                self._read.setdefault(key, []).append(value)
        return self._read

    def names(self) -> tuple[str, ...]:
        urls = (key for key in self._settings if key.endswith(".url"))
        return tuple(dict.fromkeys([*self._added, *(key[len("remote.") : -4] for key in urls)]))

    def default(self) -> str:
        """Return the remote that is meant where none is named (git-push(1), git-fetch(1))."""
        branch = (ask_git(self._directory, "symbolic-ref", "--short", "-q", "HEAD") or "").strip()
        keys = [f"branch.{branch}.pushremote", "remote.pushdefault"] if self._is_push else []
        for key in (*keys, f"branch.{branch}.remote"):
            if key in self._settings:
                return self._settings[key][-1]
        names = self.names()
        return names[0] if len(names) == 1 else "origin"

    def urls(self, name: str) -> tuple[str, ...]:
        """Return the addresses of a remote, or the word itself where it is the name of none."""
        if name in self._added:
            return (self._added[name],)
        urls: Sequence[str] = ()
        for key in ("pushurl", "url") if self._is_push else ("url",):
            urls = urls or self._settings.get(f"remote.{name}.{key}", ())
        return tuple(map(self._rewritten, urls or (name,)))

    def _rewritten(self, url: str) -> str:
        """Return the address that git-config(1) makes of one, by `url.<base>.insteadOf`."""
        starts = {
            start: key[len("url.") :].rpartition(".")[0]
            for kind in ("insteadof", *(("pushinsteadof",) if self._is_push else ()))
            for key, values in self._settings.items()
            if key.startswith("url.") and key.endswith(f".{kind}")
            for start in values
            if url.startswith(start)
        }
        longest = max(starts, key=len, default="")
        return starts[longest] + url[len(longest) :] if longest else url
