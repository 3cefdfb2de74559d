"""What the two manifests have in common: plain values to a `SkillManifest`, or findings.

`requires-python` is read by PEP 440, "version specifiers".
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Callable, Iterable, Mapping
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from msgspec import Struct, field

from skillhouse.floor import PathError, checked_parts, nearest
from skillhouse.floor.regex import regex
from skillhouse.skill.hidden import find_hidden
from skillhouse.skill.manifest_schema import schema_finding
from skillhouse.skill.model import LEVELS, Language, SkillManifest, ToolSpec
from skillhouse.skill.source import FileRefusedError, Finding

CLAUSES_MAX = 20

Version = tuple[int, ...]

_CLAUSE = regex(
    r"\s*(?P<operator>~=|===?|!=|<=|>=|<|>)\s*v?(?P<release>\d{1,4}(?:\.\d{1,6}){0,4})"
    r"(?:(?P<any>\.\*)|(?P<before>[._-]?(?:a|b|c|rc|alpha|beta|pre|preview|dev)[._-]?\d{0,4}))?\s*",
    re.IGNORECASE,
)


def python_fits(specifier: str, version: Version) -> bool:
    """Whether a release satisfies every clause; an empty specifier takes all.

    >>> python_fits(">=3.11,<3.14", (3, 13, 1)), python_fits("==3.12.*", (3, 13, 1))
    (True, False)

    Raises:
        ValueError: it is none; the text says what was expected.
    """
    clauses = [text for text in specifier.split(",") if text.strip()]
    if len(clauses) > CLAUSES_MAX:
        raise ValueError(f"expected at most {CLAUSES_MAX} clauses")
    # Each is read, so that a wrong one is found whatever the others say.
    held = [_holds(text, version) for text in clauses]
    return all(held)


def _holds(text: str, version: Version) -> bool:
    match = _CLAUSE.fullmatch(text)
    if match is None:
        raise ValueError(f"expected versions such as `>=3.11,<3.14`, got {text.strip()[:80]!r}")
    operator = match["operator"]
    release = tuple(int(part) for part in match["release"].split("."))
    is_prefix = match["any"] is not None
    if is_prefix and operator not in ("==", "!="):
        raise ValueError(f"expected `==` or `!=` before `.*`, got {text.strip()[:80]!r}")
    if operator in ("==", "!=", "==="):
        is_equal = not match["before"] and (
            _begins(version, release) if is_prefix else _compared(version, release) == 0
        )
        return is_equal == (operator != "!=")
    if operator == "~=" and len(release) < 2:
        raise ValueError(f"expected at least two parts after `~=`, got {text.strip()[:80]!r}")
    order = _compared(version, release) or (1 if match["before"] else 0)
    if operator == "~=":
        return order >= 0 and _begins(version, release[:-1])
    return {">=": order >= 0, "<=": order <= 0, ">": order > 0, "<": order < 0}[operator]


def _begins(version: Version, release: Version) -> bool:
    padded = (*version, *(0 for _ in release))[: len(release)]
    return padded == release


def _compared(version: Version, release: Version) -> int:
    """Return -1, 0 or 1, missing parts read as 0."""
    for ours, theirs in zip_longest(version, release, fillvalue=0):
        if ours != theirs:
            return 1 if ours > theirs else -1
    return 0


Keys = tuple[str, ...]
LineOf = Callable[[Keys], int]

TOOLS_MAX = 64
"""Tools of one skill; each costs the model its description at every turn."""
ENV_MAX = 64
HOSTS_MAX = 32
ICONS_MAX = 4
ICON_MAX = 4_096
"""Characters of the address of an icon; each list of tools has those of every tool."""
TEXT_MAX = 4_096
"""Characters of a description, of a skill or a tool."""
TIMEOUT_MAX_MS = 600_000
"""Longest time that a tool may ask for (10 minutes)."""
FINDINGS_PLACED = 50
"""Findings that get a line; telling it walks the file, and a hostile file has thousands."""
UNKNOWN_MAX = 20

_NOWHERE = Path("skill")
_NAME = regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_STRICT_NAME = regex(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_TOOL = regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_VERSION = regex(r"[0-9A-Za-z][0-9A-Za-z.+!-]{0,63}")
_VARIABLE = regex(r"[A-Za-z_][A-Za-z0-9_]{0,127}")

_EXECUTOR = regex(r"([a-z][a-z0-9]*(-[a-z0-9]+)*)?")
_ICON_ADDRESS = regex(
    r"https://[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(?::[0-9]{1,5})?"
    r"/[A-Za-z0-9._~%/?&=+,;:@-]{0,500}"
)
_ICON_DATA = regex(r"data:image/(png|jpeg|webp);base64,([A-Za-z0-9+/]+={0,2})")
_STARTS = {"png": b"\x89PNG\r\n\x1a\n", "jpeg": b"\xff\xd8\xff", "webp": b"RIFF"}
_HOST = regex(
    r"(?:https?://)?(?:(?:\*\.)?[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])"
    r"(?::[0-9]{1,5})?"
)

_STEERING = regex(
    r"PATH|HOME|IFS|ENV|BASH_ENV|SHELLOPTS|(LD|DYLD|NODE|PYTHON|SKILLHOUSE|npm_config|GLIBC|MALLOC)_.*"
    r"|PYTHON[A-Z]+|GCONV_PATH",
    re.IGNORECASE,
)
"""Variables that decide which code a program loads, or are our own."""
_KEY_MATERIAL = regex(r"PRIVATE_?KEY|MNEMONIC|SEED_?PHRASE", re.IGNORECASE)

_ENDINGS: Mapping[Language, tuple[str, ...]] = {
    "javascript": (".js", ".mjs", ".cjs"),
    "python": (".py",),
}
_TYPESCRIPT = (".ts", ".tsx", ".mts", ".cts")


class RawManifest(NamedTuple):
    """A manifest taken apart by the rules of its language; no value has been judged."""

    language: Language
    package: Mapping[str, Any]
    """The standard fields: name, version, description, license, author as text, main."""
    package_keys: Keys
    """Where these stand in the file."""
    own: Mapping[str, Any]
    """The field that makes it a skill: requires, tools."""
    own_keys: Keys
    dependencies: tuple[str, ...]
    line_of: LineOf
    """Returns the line of the value at some keys, or of the nearest parent that is there."""


class _Notes(Struct):
    """The findings so far; all are gathered, so that an author sees them at once."""

    written: RawManifest
    findings: list[Finding] = field(default_factory=list)
    _unknown: int = 0

    def refuse(self, code: str, message: str, keys: Keys) -> None:
        self.findings.append(Finding(code, message, self._line(keys), fatal=True))

    def warn(self, code: str, message: str, keys: Keys) -> None:
        self.findings.append(Finding(code, message, self._line(keys)))

    def _line(self, keys: Keys) -> int | None:
        return self.written.line_of(keys) if len(self.findings) < FINDINGS_PLACED else None

    def unknown(self, table: Mapping[str, Any], known: Iterable[str], keys: Keys) -> None:
        """Mention keys that mean nothing here; a misspelt one would be passed over silently."""
        known = tuple(known)
        for key in table:
            if key not in known:
                self._unknown += 1
                if self._unknown > UNKNOWN_MAX:
                    return
                close = nearest(key, known)
                hint = f"; did you mean `{close[0]}`" if close else ""
                self.warn("manifest-key-unknown", f"unknown key {key[:80]!r}{hint}", (*keys, key))

    def text(self, table: Mapping[str, Any], key: str, keys: Keys, *, empty: bool = True) -> str:
        """Return a text of bounded length without hidden characters; "" when it is none."""
        value = table.get(key)
        place = (*keys, key)
        if value is None or value == "":
            if not empty:
                self.refuse("manifest-field-missing", f"expected a text `{key}`", place)
            return ""
        if not isinstance(value, str):
            self.refuse("manifest-type", f"expected `{key}` to be a text", place)
            return ""
        if len(value) > TEXT_MAX:
            self.refuse(
                "manifest-too-long",
                f"expected at most {TEXT_MAX} characters of `{key}`, got {len(value)}",
                place,
            )
            return ""
        hidden = find_hidden(value)
        if hidden is not None:
            # Decision 21: what a person cannot see must not reach a model as a description.
            message = f"hidden U+{ord(value[hidden]):04X} in `{key}`"
            self.refuse("hidden-characters", message, place)
            return ""
        return value


def read_fields(written: RawManifest) -> tuple[SkillManifest | None, list[Finding]]:
    """Return the manifest, or None when a finding is fatal, and all findings."""
    notes = _Notes(written)
    package, at = written.package, written.package_keys
    notes.unknown(
        written.own, ("requires", "tools", "icons", *_own_main(written)), written.own_keys
    )
    manifest = SkillManifest(
        name=_name(notes),
        version=_version(notes),
        description=notes.text(package, "description", at),
        language=written.language,
        entry=_entry(notes),
        env=_env(notes),
        hosts=_hosts(notes),
        executor=_executor(notes),
        tools=_tools(notes),
        icons=_icons(notes),
        author=notes.text(package, "author", at),
        license=notes.text(package, "license", at),
        requires_python=_requires_python(notes),
        dependencies=written.dependencies,
    )
    if not manifest.description:
        notes.warn("manifest-field-missing", "no description", (*at, "description"))
    is_broken = any(finding.fatal for finding in notes.findings)
    return (None if is_broken else manifest), notes.findings


def mapping_at(
    table: Mapping[str, Any], key: str, keys: Keys, line_of: LineOf
) -> Mapping[str, Any]:
    """Return the mapping under a key, empty when there is none; anything else is refused."""
    value = table.get(key, {})
    if isinstance(value, dict):
        return value
    line = line_of((*keys, key))
    raise FileRefusedError("manifest-type", f"expected `{key}` to hold keys and values", line)


def _own_main(written: RawManifest) -> tuple[str, ...]:
    # pyproject.toml has no standard field for a module to import.
    return ("main",) if written.language == "python" else ()


def _name(notes: _Notes) -> str:
    package, at = notes.written.package, notes.written.package_keys
    name = notes.text(package, "name", at, empty=False)
    if not name:
        return ""
    place = (*at, "name")
    if not _NAME.fullmatch(name):
        # INVARIANT: no colon and no slash, so `name:tool` cannot be another skill's (S002-72).
        message = f"expected 1-64 of letters, digits, `.`, `_` and `-`, got {name!r}"
        notes.refuse("manifest-name", message, place)
    elif not _STRICT_NAME.fullmatch(name):
        message = f"expected a-z, 0-9 and single hyphens, got {name!r}"
        notes.warn("name-invalid", message, place)
    return name


def _version(notes: _Notes) -> str:
    package, at = notes.written.package, notes.written.package_keys
    version = notes.text(package, "version", at)
    if version and not _VERSION.fullmatch(version):
        message = f"expected a version such as 1.2.3, got {version[:80]!r}"
        notes.refuse("manifest-version", message, (*at, "version"))
    elif not version:
        notes.warn("manifest-field-missing", "no version", (*at, "version"))
    return version


def _requires_python(notes: _Notes) -> str:
    if notes.written.language != "python":
        return ""
    package, at = notes.written.package, notes.written.package_keys
    wanted = notes.text(package, "requires-python", at)
    try:
        python_fits(wanted, (3, 11))
    except ValueError as error:
        notes.refuse("manifest-requires-python", str(error), (*at, "requires-python"))
        return ""
    return wanted


def _entry(notes: _Notes) -> str:
    """Return the module to import, checked as text; whether it is there is asked elsewhere."""
    written = notes.written
    is_python = written.language == "python"
    table, keys = (written.own, written.own_keys) if is_python else (
        written.package, written.package_keys
    )  # fmt: skip
    main = notes.text(table, "main", keys) or ("main.py" if is_python else "index.js")
    place = (*keys, "main")
    try:
        parts = checked_parts(main, _NOWHERE)
    except PathError as error:
        notes.refuse("entry-path", f"{error.code} in `main`: {main!r}", place)
        return ""
    ending = PurePosixPath(main).suffix
    if ending in _TYPESCRIPT and not is_python:
        built = "/".join(parts).removesuffix(ending) + ".js"
        notes.refuse(
            "entry-typescript",
            f"expected JavaScript, got `{main}`: compile it (`npx tsc {main}`) and set `main` to "
            f"`{built}`",
            place,
        )
    elif ending not in _ENDINGS[written.language]:
        wanted = " or ".join(f"`{one}`" for one in _ENDINGS[written.language])
        notes.refuse("entry-kind", f"expected `main` to end in {wanted}, got {main!r}", place)
    return "/".join(parts)


def _env(notes: _Notes) -> tuple[str, ...]:
    written = notes.written
    keys = (*written.own_keys, "requires")
    requires = mapping_at(written.own, "requires", written.own_keys, written.line_of)
    notes.unknown(requires, ("env", "executor", "hosts"), keys)
    names = requires.get("env", [])
    if not isinstance(names, list) or len(names) > ENV_MAX:
        message = f"expected `env` to be a list of at most {ENV_MAX} names"
        notes.refuse("manifest-type", message, (*keys, "env"))
        return ()
    found: list[str] = []
    for place, name in enumerate(names):
        at = (*keys, "env", str(place))
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            message = f"expected a variable's name, got {str(name)[:80]!r}"
            notes.refuse("env-name", message, at)
        elif _STEERING.fullmatch(name):
            message = f"`{name}` decides which code a program loads, or belongs to skillhouse"
            notes.refuse("env-refused", message, at)
        elif name not in found:
            found.append(name)
            if _KEY_MATERIAL.search(name):
                message = f"asks for a private key, `{name}`; `context.sign` needs none"
                notes.warn("env-private-key", message, at)
    return tuple(found)


def _hosts(notes: _Notes) -> tuple[str, ...]:
    written = notes.written
    keys = (*written.own_keys, "requires")
    requires = mapping_at(written.own, "requires", written.own_keys, written.line_of)
    hosts = requires.get("hosts", [])
    if not isinstance(hosts, list) or len(hosts) > HOSTS_MAX:
        message = f"expected `hosts` to be a list of at most {HOSTS_MAX} texts"
        notes.refuse("manifest-type", message, (*keys, "hosts"))
        return ()
    for place, host in enumerate(hosts):
        if not isinstance(host, str) or not _HOST.fullmatch(host):
            message = f"expected `[scheme://]host[:port]`, got {str(host)[:80]!r}"
            notes.refuse("manifest-host", message, (*keys, "hosts", str(place)))
            return ()
    return tuple(dict.fromkeys(hosts))


def _executor(notes: _Notes) -> str:
    written = notes.written
    keys = (*written.own_keys, "requires")
    requires = mapping_at(written.own, "requires", written.own_keys, written.line_of)
    name = requires.get("executor", "")
    if not isinstance(name, str) or not _EXECUTOR.fullmatch(name):
        message = "expected a name of small letters, digits and dashes as `executor`"
        notes.refuse("manifest-type", message, (*keys, "executor"))
        return ""
    return name


def _icons(notes: _Notes) -> tuple[str, ...]:
    """Return the addresses of its icons; one that is wrong costs no tool."""
    icons = notes.written.own.get("icons", [])
    keys = (*notes.written.own_keys, "icons")
    if not isinstance(icons, list) or len(icons) > ICONS_MAX:
        notes.warn("manifest-icon", f"expected `icons` to be a list of at most {ICONS_MAX}", keys)
        return ()
    found = []
    for place, icon in enumerate(icons):
        if isinstance(icon, str) and is_icon(icon):
            found.append(icon)
        else:
            message = "expected an icon as https://… or data:image/png;base64,…"
            notes.warn("manifest-icon", f"{message}, got {str(icon)[:40]!r}", (*keys, str(place)))
    return tuple(dict.fromkeys(found))


def is_icon(text: str) -> bool:
    """Whether a text is the address of an icon: of a server by https, or the bytes of an image.

    An image is what it says, and none that can hold a script.

    >>> is_icon("https://example.com/a.png"), is_icon("http://example.com/a.png")
    (True, False)
    >>> is_icon("data:image/svg+xml;base64,PHN2Zz4="), is_icon("data:image/png;base64,aGk=")
    (False, False)
    """
    if len(text) > ICON_MAX or _ICON_ADDRESS.fullmatch(text):
        return len(text) <= ICON_MAX
    image = _ICON_DATA.fullmatch(text)
    if image is None:
        return False
    try:
        data = a2b_base64(image[2], strict_mode=True)
    except ValueError:
        return False
    start = _STARTS[image[1]]
    return data.startswith(start) and (image[1] != "webp" or data[8:12] == b"WEBP")


def _tools(notes: _Notes) -> tuple[ToolSpec, ...]:
    written = notes.written
    keys = (*written.own_keys, "tools")
    tools = written.own.get("tools")
    if not isinstance(tools, list) or not 1 <= len(tools) <= TOOLS_MAX:
        notes.refuse("manifest-tools", f"expected `tools` to be a list of 1-{TOOLS_MAX}", keys)
        return ()
    found: dict[str, ToolSpec] = {}
    for place, tool in enumerate(tools):
        at = (*keys, str(place))
        if not isinstance(tool, dict):
            notes.refuse("manifest-type", "expected a tool to hold keys and values", at)
            continue
        spec = _tool(notes, tool, at)
        if spec.name in found:
            message = f"the tool `{spec.name}` is declared twice"
            notes.refuse("tool-twice", message, (*at, "name"))
        elif spec.name:
            found[spec.name] = spec
    return tuple(found.values())


def _tool(notes: _Notes, tool: Mapping[str, Any], keys: Keys) -> ToolSpec:
    notes.unknown(
        tool, ("name", "description", "parameters", "returns", "security", "timeout"), keys
    )
    name = notes.text(tool, "name", keys, empty=False)
    if name and not _TOOL.fullmatch(name):
        # INVARIANT: a colon here would be a prefix of the tool's own choice (S002-72).
        message = f"expected 1-64 of letters, digits, `_` and `-`, got {name!r}"
        notes.refuse("tool-name", message, (*keys, "name"))
    parameters, returns = tool.get("parameters"), tool.get("returns")
    for key, schema in (("parameters", parameters), ("returns", returns)):
        wrong = None if schema is None and key == "returns" else schema_finding(schema)
        if wrong is not None:
            message = f"{key} of `{name[:80]}`: {wrong.message[:300]}"
            notes.refuse("tool-schema", message, (*keys, key, *wrong.keys))
    security = mapping_at(tool, "security", keys, notes.written.line_of)
    notes.unknown(security, ("level",), (*keys, "security"))
    said = security.get("level")
    level = next((one for one in LEVELS if one == said), None)
    if level is None:
        got = "nothing" if said is None else repr(said)[:40]
        message = f"expected security.level of `{name}` to be one of {', '.join(LEVELS)}, got {got}"
        notes.refuse("tool-level", message, (*keys, "security", "level"))
    return ToolSpec(
        name=name,
        description=notes.text(tool, "description", keys, empty=False),
        parameters=parameters if isinstance(parameters, dict) else {},
        level=level or "sign",
        returns=returns if isinstance(returns, dict) else None,
        timeout_ms=_timeout(notes, tool.get("timeout"), (*keys, "timeout")),
    )


def _timeout(notes: _Notes, value: Any, keys: Keys) -> int | None:
    if value is None:
        return None
    # `True` is an integer of Python's, and no time.
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= TIMEOUT_MAX_MS:
        message = f"expected `timeout` to be 1-{TIMEOUT_MAX_MS} milliseconds, got {str(value)[:40]}"
        notes.refuse("tool-timeout", message, keys)
        return None
    return value
