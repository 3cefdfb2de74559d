"""What the sandbox has of the person's git settings: identity and style, and nothing that runs.

Git itself reads them, outside and in the workspace, so that `includeIf` holds (git-config(1)). Of
what it says only keys that name no program, no address and no further file are written down again.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from skillhouse.floor import is_secret
from skillhouse.floor.regex import regex
from skillhouse.sandbox.profile import PROGRAM_PATH, GitSettings

READ_SECONDS = 5.0
"""Time that git may take to say its settings."""
CONFIG_MAX = 131_072
"""Bytes of all settings that are written down."""
IGNORED_MAX = 262_144
"""Bytes of a file of patterns."""
KEPT_MAX = 64
"""Workspaces whose settings are remembered."""

IDENTITY = (
    *("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"),
    "EMAIL",
)
"""Variables that say who commits (git-commit(1), "COMMIT INFORMATION")."""
_OWN = ("XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
"""Variables besides HOME that say where git's settings are."""

_ALLOWED = regex(
    # git-config(1): nothing of it names a program, an address, a key or another file, and none
    # makes git do what was not said (`help.autocorrect` runs another command than the judged one).
    r"(?:user|author|committer)\.(?:name|email)|user\.useconfigonly"
    r"|init\.defaultbranch|init\.defaultobjectformat"
    r"|pull\.(?:rebase|ff|octopus|twohead)|push\.(?:default|autosetupremote|followtags)"
    r"|fetch\.(?:prune|prunetags|writecommitgraph|parallel|output|showforcedupdates)"
    r"|merge\.(?:ff|conflictstyle|renames|renamelimit|directoryrenames|stat|log|branchdesc"
    r"|autostash|suppressdest|verbosity|defaulttoupstream)"
    r"|rebase\.(?:autostash|autosquash|updaterefs|stat|abbreviatecommands|missingcommitscheck"
    r"|rebasemerges|forkpoint|maxlabellength)"
    r"|branch\.(?:autosetupmerge|autosetuprebase|sort)|tag\.sort|versionsort\.suffix"
    r"|checkout\.(?:defaultremote|guess|workers|thresholdforparallelism)"
    r"|commit\.(?:verbose|cleanup|status)|status\.[a-z]+|stash\.[a-z]+|column\.[a-z]+"
    r"|log\.(?:date|abbrevcommit|decorate|follow|initialdecorationset|showroot|diffmerges)"
    r"|blame\.(?:coloring|date|showemail|showroot|blankboundary|markunblamablelines"
    r"|markignoredlines)"
    r"|diff\.(?:algorithm|renames|renamelimit|mnemonicprefix|noprefix|srcprefix|dstprefix"
    r"|relative|context|interhunkcontext|colormoved|colormovedws|indentheuristic|statgraphwidth"
    r"|statnamewidth|submodule|wordregex|wserrorhighlight|dirstat|ignoresubmodules"
    r"|suppressblankempty|autorefreshindex)"
    r"|color\..+|advice\.[a-z]+|pretty\..+|format\.(?:pretty|signoff|numbered|subjectprefix|thread)"
    r"|grep\.(?:linenumber|column|patterntype|extendedregexp|threads|fullname|fallbacktonoindex)"
    r"|rerere\.(?:enabled|autoupdate)|apply\.(?:whitespace|ignorewhitespace)|i18n\.[a-z]+"
    r"|core\.(?:autocrlf|eol|safecrlf|quotepath|abbrev|whitespace|precomposeunicode|commentchar"
    r"|commentstring|logallrefupdates|preloadindex|bigfilethreshold|compression"
    r"|loosecompression|protecthfs|protectntfs|checkroundtripencoding)"
    r"|index\.(?:version|threads)|lfs\.repositoryformatversion"
)
_LFS: Mapping[str, frozenset[str]] = {
    # git-lfs: lfs/attribute.go and what `git lfs install [--skip-smudge]` of its releases wrote.
    "filter.lfs.clean": frozenset({"git-lfs clean -- %f", "git-lfs clean %f", "git lfs clean %f"}),
    "filter.lfs.smudge": frozenset(
        {
            *("git-lfs smudge -- %f", "git-lfs smudge --skip -- %f", "git-lfs smudge %f"),
            *("git-lfs smudge --skip %f", "git lfs smudge %f", "git lfs smudge --skip %f"),
        }
    ),
    "filter.lfs.process": frozenset(
        {
            *("git-lfs filter-process", "git-lfs filter-process --skip"),
            *("git lfs filter-process", "git lfs filter-process --skip"),
        }
    ),
    "filter.lfs.required": frozenset({"true"}),
}
_SIGNING = ("commit.gpgsign", "tag.gpgsign", "tag.forcesignannotated", "push.gpgsign")
_TRUE = frozenset({"", "true", "yes", "on", "1", "if-asked"})
_SECTION = regex(r"[A-Za-z0-9-]+")
_NAME = regex(r"[A-Za-z][A-Za-z0-9-]*")


class PersonGit:
    """Reads the settings of git for workspaces, and again when one of their files has changed."""

    def __init__(self, environment: Mapping[str, str], home: Path) -> None:
        self._home = str(home)
        own = {name: environment[name] for name in _OWN if name in environment}
        self._environment = {"HOME": self._home, **own}
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[tuple[object, ...], tuple[str, ...], GitSettings]] = {}

    def of(self, workspace: Path, program: str | None = None) -> GitSettings:
        """Return the settings that hold in a workspace; empty where there is no git.

        Args:
            workspace: Its real path.
            program: The git to ask; without one the system's.
        """
        place = str(workspace)
        with self._lock:
            kept = self._kept.get(place)
            if kept is not None and _stamps(kept[1]) == kept[0]:
                return kept[2]
        program = shutil.which("git", path=PROGRAM_PATH) or program
        entries = _entries(program, workspace, self._environment) if program else []
        files = tuple(
            sorted({*self._own_files(), *_repository_files(place), *_origins(entries, place)})
        )
        # Before what they name is read, so that a change meanwhile is seen the next time.
        stamps = _stamps(files)
        found = self._settings(entries)
        with self._lock:
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            self._kept[place] = (stamps, files, found)
        return found

    def _own_files(self) -> Iterator[str]:
        """Yield the files that hold a person's settings, whether they are there or not."""
        xdg = self._environment.get("XDG_CONFIG_HOME") or f"{self._home}/.config"
        yield from (f"{self._home}/.gitconfig", f"{xdg}/git/config")
        yield from (f"{xdg}/git/ignore", f"{xdg}/git/attributes")
        yield self._environment.get("GIT_CONFIG_GLOBAL") or ""
        yield self._environment.get("GIT_CONFIG_SYSTEM") or "/etc/gitconfig"

    def _settings(self, entries: Sequence[_GitSetting]) -> GitSettings:
        personal = [entry for entry in entries if entry.scope in ("system", "global")]
        lines, left_out = [], []
        for entry in personal:
            if _is_allowed(entry):
                lines.append(_written(entry.key, entry.value))
            elif entry.key not in _PATHS and not entry.key.startswith(("include.", "includeif.")):
                left_out.append(entry.key)
        size, kept = 0, []
        for line in lines:
            size += len(line)
            if size <= CONFIG_MAX:
                kept.append(line)
        signing = {entry.key: entry.value for entry in entries if entry.key in _SIGNING}
        forced = {
            key: "false" for key, value in signing.items() if (value or "").casefold() in _TRUE
        }
        xdg = self._environment.get("XDG_CONFIG_HOME") or f"{self._home}/.config"
        named = {entry.key: entry.value for entry in personal if entry.key in _PATHS}
        texts = [
            _patterns(self._path(named[key]) if key in named else f"{xdg}/git/{default}")
            for key, default in _PATHS.items()
        ]
        return GitSettings(
            config="".join(kept),
            ignored=texts[0],
            attributes=texts[1],
            forced=forced,
            left_out=tuple(dict.fromkeys(left_out)),
        )

    def _path(self, value: str | None) -> str:
        text = value or ""
        return f"{self._home}/{text[2:]}" if text.startswith("~/") else text


_PATHS = {"core.excludesfile": "ignore", "core.attributesfile": "attributes"}
"""Settings whose file is handed over as a text, and its name where it is not set."""


class _GitSetting(Struct, frozen=True):
    scope: str
    origin: str
    key: str
    value: str | None
    """None for a key without a `=`, which is true."""


def _entries(program: str, workspace: Path, environment: Mapping[str, str]) -> list[_GitSetting]:
    for directory in (str(workspace), "/"):
        # The second without the repository: git refuses one that belongs to another user.
        try:
            done = subprocess.run(
                (program, "config", "--list", "-z", "--includes", "--show-scope", "--show-origin"),
                cwd=directory,
                env={"PATH": PROGRAM_PATH, "LC_ALL": "C", **environment},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=READ_SECONDS,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            continue
        parts = os.fsdecode(done.stdout).split("\0")
        triples = zip(parts[::3], parts[1::3], parts[2::3], strict=False)
        return [_entry(*triple) for triple in triples]
    return []


def _entry(scope: str, origin: str, text: str) -> _GitSetting:
    key, sign, value = text.partition("\n")
    return _GitSetting(scope, origin, key, value if sign else None)


def _is_allowed(entry: _GitSetting) -> bool:
    if entry.key in _LFS:
        return (entry.value or "true") in _LFS[entry.key]
    section, _, rest = entry.key.partition(".")
    subsection, _, name = rest.rpartition(".")
    if not (_SECTION.fullmatch(section) and _NAME.fullmatch(name)) or "\n" in subsection:
        return False
    return _ALLOWED.fullmatch(entry.key) is not None


def _written(key: str, value: str | None) -> str:
    r"""Return a setting as a section of its own (git-config(1), "Syntax").

    >>> _written("color.diff.meta", 'a "b"\n')
    '[color "diff"]\n\tmeta = "a \\"b\\"\\n"\n'
    """
    section, _, rest = key.partition(".")
    subsection, _, name = rest.rpartition(".")
    quoted = re.sub(r'(["\\])', r"\\\1", subsection)
    heading = f'[{section} "{quoted}"]' if subsection else f"[{section}]"
    if value is None:
        return f"{heading}\n\t{name}\n"
    text = re.sub(r'(["\\])', r"\\\1", value).replace("\n", "\\n").replace("\t", "\\t")
    return f'{heading}\n\t{name} = "{text}"\n'


def _patterns(path: str) -> str:
    """Return the text of a file of patterns; nothing of one that is no such file."""
    if not os.path.isabs(path) or is_secret(os.path.realpath(path)):
        return ""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            info = os.fstat(handle)
            if not stat.S_ISREG(info.st_mode) or info.st_uid not in (0, os.geteuid()):
                return ""
            data = file.read(IGNORED_MAX + 1)
    except (OSError, ValueError):
        return ""
    if len(data) > IGNORED_MAX or b"\0" in data:
        return ""
    text = data.decode("utf-8", "surrogateescape")
    return text if text.endswith("\n") or not text else f"{text}\n"


def _origins(entries: Iterable[_GitSetting], place: str) -> Iterator[str]:
    """Yield the files that the settings are from; those of a repository are relative paths."""
    for entry in entries:
        kind, _, path = entry.origin.partition(":")
        if kind == "file":
            yield os.path.join(place, path)
        if entry.scope == "local":
            # The branch, which conditions may be about.
            yield os.path.join(place, os.path.dirname(path), "HEAD")


def _repository_files(place: str) -> Iterator[str]:
    """Yield what decides which conditions hold: the settings of the repository and its branch."""
    for name in ("config", "config.worktree", "HEAD"):
        yield f"{place}/.git/{name}"
    yield f"{place}/.git"


def _stamps(files: Sequence[str]) -> tuple[object, ...]:
    found: list[object] = []
    for path in files:
        try:
            info = os.stat(path)
        except (OSError, ValueError):
            found.append(None)
        else:
            is_directory = stat.S_ISDIR(info.st_mode)
            changed = 0 if is_directory else info.st_mtime_ns
            found.append((info.st_ino, info.st_size if not is_directory else 0, changed))
    return tuple(found)
