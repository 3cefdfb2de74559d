"""The exceptions that callers of skillhouse meet, and the findings that authors of skills get.

Also how to add an optional part or package to the environment that this program runs from.
"""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

_IN_ALL = frozenset(
    "mcp server watch chat telegram discord telemetry registry sigstore postgres s3".split()
)
"""The extras that `all` has (pyproject.toml)."""
_DISTRIBUTIONS = {"signer": "signer", "hsm": "signer[hsm]"}
"""What is a distribution of its own, by its folder in the clone; as an extra it is no more."""
_BIN, _SUFFIX = ("Scripts", ".exe") if os.name == "nt" else ("bin", "")


def extra_advice(extra: str, prefix: Path | None = None) -> str:
    """Return the command that installs an extra of ours; `prefix` is that of the environment.

    It is installed from the clone: no name on a package index is ours.
    """
    place = Path(sys.prefix) if prefix is None else prefix
    if extra in _DISTRIBUTIONS:
        return _distribution_advice(_DISTRIBUTIONS[extra], place)
    if clone := _clone_of(place):
        return _clone_command(place, f"-e '{clone}[{extra}]'")
    # A tool is installed as a whole: with one extra alone the others would go.
    whole = "all" if extra in _IN_ALL else f"all,{extra}"
    if _is_tool(place):
        return f"run in the clone `uv tool install --force '.[{whole}]'`"
    if _is_pipx(place):
        return f"run in the clone `pipx install --force '.[{whole}]'`"
    return f"run in the clone `{_pip(place)} '.[{extra}]'`"


def _distribution_advice(folder: str, place: Path) -> str:
    """Return the command that installs a distribution of the clone beside this program."""
    if clone := _clone_of(place):
        return _clone_command(place, f"-e '{clone}/{folder}'")
    named = f"'./{folder}'" if "[" in folder else f"./{folder}"
    if _is_tool(place):
        return f"run in the clone `uv tool install --force --with {named} '.[all]'`"
    if _is_pipx(place):
        return f"run in the clone `pipx inject skillhouse {named}`"
    return f"run in the clone `{_pip(place)} {named}`"


def package_advice(package: str, prefix: Path | None = None) -> str:
    """Return the command that installs another package beside this program."""
    place = Path(sys.prefix) if prefix is None else prefix
    if _clone_of(place):
        return _clone_command(place, f"'{package}'")
    if _is_tool(place):
        return f"run in the clone `uv tool install --force --with '{package}' '.[all]'`"
    if _is_pipx(place):
        return f"run `pipx inject skillhouse '{package}'`"
    return f"run `{_pip(place)} '{package}'`"


def _clone_of(prefix: Path) -> Path | None:
    """Return the clone whose `./x` made the environment; None for another one."""
    clone = prefix.parent.parent
    is_ours = prefix.parts[-2:] == (".x", "env") and (clone / "x").is_file()
    return clone if is_ours else None


def _clone_command(prefix: Path, what: str) -> str:
    uv = prefix.parent / "uv" / _BIN / f"uv{_SUFFIX}"
    python = prefix / _BIN / f"python{_SUFFIX}"
    return f"run `{uv} pip install --python {python} {what}`"


def _is_tool(prefix: Path) -> bool:
    return (prefix / "uv-receipt.toml").is_file()


def _is_pipx(prefix: Path) -> bool:
    return (prefix / "pipx_metadata.json").is_file()


def _pip(prefix: Path) -> str:
    """Return how packages get into an environment; one that uv made has no pip."""
    has_pip = any(prefix.glob("[Ll]ib*/**/site-packages/pip"))
    python = prefix / _BIN / f"python{_SUFFIX}"
    return f"{python} -m pip install" if has_pip else f"uv pip install --python {python}"


class SkillhouseError(Exception):
    """Root of every error raised here on purpose."""


class PathError(SkillhouseError):
    """A path from outside is refused; `code` says why (vectors/paths.jsonl)."""

    def __init__(self, code: str, relative: str, base: Path) -> None:
        super().__init__(f"{code} under `{base}`: {relative!r}")
        self.code = code
        self.relative = relative
        self.base = base


class PlaceError(SkillhouseError):
    """Something about the file or directory at `path` is refused; `code` says what."""

    def __init__(self, code: str, path: Path, message: str) -> None:
        super().__init__(f"{message}: `{path}`")
        self.code = code
        self.path = path


class TreeError(PlaceError):
    """A directory has no tree digest: it holds a link, a device or too much."""


class SkillError(PlaceError):
    """A skill cannot be loaded; `code` is that of the diagnostic that refused it."""


class UnknownSkillError(SkillhouseError):
    """No skill goes by this id, name or directory name."""

    def __init__(
        self, reference: str, suggestions: tuple[str, ...], *, hint: str = "", message: str = ""
    ) -> None:
        near = f"; nearest: {', '.join(f'`{s}`' for s in suggestions)}" if suggestions else ""
        more = f"; {hint}" if hint else ""
        super().__init__(message or f"no skill `{reference}`{near}{more}")
        self.reference = reference
        self.suggestions = suggestions
        self.hint = hint
        """Where else it may be, for a person."""


class UnusableSkillError(UnknownSkillError):
    """A skill of this name or path is here and cannot be used; for people, never for a model."""

    def __init__(
        self,
        reference: str,
        *,
        state: str,
        reason: str,
        hint: str,
        path: Path,
        line: int | None = None,
    ) -> None:
        place = f"{path}:{line}" if line else str(path)
        advice = f"{reason}; {hint}" if hint else reason
        message = f"skill `{reference}` cannot be used: {advice} (at `{place}`)"
        super().__init__(reference, (), message=message)
        self.state = state
        """broken, untrusted, left-out, below-a-skill or outside."""
        self.reason = reason
        self.hint = hint
        self.path = path
        self.line = line

    @property
    def mend(self) -> str:
        """The former name of `hint`, until 0.3."""
        return self.hint


class AmbiguousSkillError(SkillhouseError):
    """A name fits several skills; `candidates` are ids or paths that fit one each."""

    def __init__(self, reference: str, candidates: tuple[str, ...]) -> None:
        super().__init__(
            f"`{reference}` fits {len(candidates)} skills, name one of: "
            + ", ".join(f"`{c}`" for c in candidates)
        )
        self.reference = reference
        self.candidates = candidates


class WireNameError(SkillhouseError):
    """A wire name is already taken by another pair of skill and tool."""

    def __init__(self, wire: str, pair: tuple[str, str], taken_by: tuple[str, str]) -> None:
        super().__init__(
            f"wire name `{wire}` of `{':'.join(pair)}` is taken by `{':'.join(taken_by)}`"
        )
        self.wire = wire
        self.pair = pair
        self.taken_by = taken_by


class ConfigError(SkillhouseError):
    """A configuration file or value cannot be used; `key` and `suggestion` where known.

    `known` are the names that can be used, where there are few.
    """

    def __init__(
        self,
        message: str,
        *,
        path: Path | None = None,
        key: str = "",
        suggestion: str = "",
        known: Sequence[str] = (),
        line: int | None = None,
    ) -> None:
        at = f"line {line}: " if line else ""
        where = f" in `{path}`" if path else ""
        hint = f"; did you mean `{suggestion}`" if suggestion else ""
        super().__init__(f"{at}{message}{where}{hint}")
        self.message = message
        self.path = path
        self.key = key
        self.suggestion = suggestion
        self.known = tuple(known)
        self.line = line
        """Line of the file, from 1, where the message does not say it itself."""

    def at_line(self, line: int) -> ConfigError:
        """Return the same error with the line of its file."""
        return ConfigError(
            self.message,
            path=self.path,
            key=self.key,
            suggestion=self.suggestion,
            known=self.known,
            line=line,
        )


class StateError(SkillhouseError):
    """Kept state is corrupt or newer than this program; nothing was changed."""

    def __init__(self, message: str, path: Path, *, advice: str = "") -> None:
        super().__init__(f"{message}: `{path}`{f'; {advice}' if advice else ''}")
        self.path = path


class ExposedError(SkillhouseError):
    """Other users can read, change or replace a file of ours, so it is not used."""

    def __init__(self, problem: str, path: Path) -> None:
        super().__init__(f"{problem}: `{path}`")
        self.problem = problem
        """What is wrong, and the command that fixes it."""
        self.path = path


class LocationError(StateError):
    """A directory that we work in is gone, or has a name that cannot be kept."""


class DecodeError(SkillhouseError):
    """Bytes from a file or a peer do not have the expected shape."""


class MissingExtraError(SkillhouseError):
    """An optional part is not installed; `extra` names what to install."""

    def __init__(self, extra: str, module: str) -> None:
        super().__init__(
            f"this needs the optional part `{extra}` (no module `{module}`); {extra_advice(extra)}"
        )
        self.extra = extra
        self.module = module


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Turn a package that is missing for an import into the error that names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("skillhouse"):
            raise
        raise MissingExtraError(extra, error.name) from error


def first_of(texts: Sequence[str], most: int) -> str:
    """Return the first of many texts for a message, and how many there are besides.

    >>> first_of(["a", "b", "c"], 3), first_of(["a", "b", "c"], 2)
    ('a, b, c', 'a, b and 1 more')
    """
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more} more" if more > 0 else "")


class Severity(enum.StrEnum):
    """How much a finding matters: an error costs the skill, a warning does not."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Diagnostic(Struct, frozen=True, kw_only=True):
    """One finding, with a stable code and its place."""

    code: str
    severity: Severity
    message: str
    path: Path | None = None
    line: int | None = None
    """Line in the file, from 1; None where the finding is about the whole."""
    field: str = ""
    """The field or key that it is about; empty where it is about none."""
    hint: str = ""
    """What to write or do instead; empty where there is nothing to be done."""
    detail: str = ""
    """What a parser reported, in its own words, for programs."""

    @property
    def advice(self) -> str:
        """The message with what to do about it, in one line."""
        return f"{self.message}; {self.hint}" if self.hint else self.message

    @property
    def mend(self) -> str:
        """The former name of `hint`, until 0.3."""
        return self.hint

    def __str__(self) -> str:
        place = "" if self.path is None else f"{self.path}:"
        if place and self.line is not None:
            place += f"{self.line}:"
        return f"{place}{' ' if place else ''}{self.severity}: {self.advice} [{self.code}]"
