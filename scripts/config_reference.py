"""The keys of the configuration, from the fields of its values and what is written under each.

`./x docs` writes of them the tables of docs/reference/configuration.md and the keywords of
`Skillhouse(…)`; the list of the contract tries each key by a value of its type.
"""

from __future__ import annotations

import ast
import enum
import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from scripts.profile_reference import described, values

from skillhouse.house.config import config_values
from skillhouse.house.config.config_keys import (
    has_names,
    hints_of,
    noted,
    parts_of,
    project_keys,
    table_in,
)
from skillhouse.house.config.config_values import BY_VARIABLE, Config, Settings

ROOT = Path(__file__).resolve().parents[1]
PAGE = "docs/reference/configuration.md"
KEYWORDS = "src/skillhouse/house/config/config_keywords.py"

SEE = {
    "roots": "the variable is `SKILLHOUSE_SKILLS_DIR`, separated as `PATH` is",
    "exec_environment": "`PATH` and `HOME` have no effect, which `config check` says",
    "sandbox": "a word, or [the table](#sandbox)",
    "policy": "[rules](../guides/rules.md)",
    "rules": "[below](#rules)",
    "approvals": "[agents](../guides/agents.md#questions), [webhook](#webhook-of-approvals)",
    "write_gate": "[write gate](write-gate.md)",
    "extensions": "[below](#extensions)",
    "skill_code": "[below](#code-of-skills)",
    "memory": "[notes](../guides/memory.md)",
    "search": "[search by meaning](../guides/search.md), "
    "[searches that learn](../guides/context.md#searches-that-learn), "
    "[a PostgreSQL for the index](../guides/context.md#an-index-for-several-machines)",
    "protection": "[protected paths](protected-paths.md#never-written)",
    "mcp_servers": "[remote skills](../guides/remote-skills.md)",
    "agents": "[below](#agents)",
    "tools": "[below](#agents)",
    "net": "[below](#network)",
    "remotes": "[remote skills](../guides/remote-skills.md)",
    "signer": "[below](#keys-that-sign-tiers-and-the-log)",
    "oauth": "[logging in](../guides/any-framework-over-mcp.md#log-in-by-an-authorization-server)",
    "registry": "[signed skills](../guides/sign-skills.md)",
    "skills": "[below](#repositories-of-packages)",
    "assignees": "[tiers](tiers.md)",
}
"""Where more is written about a key."""


_CITES = re.compile(r" \((?:`RATE|`net\.|decision|S00|opencode)[^)]*\)")
"""What a text cites for those who read the source."""


class Key(typing.NamedTuple):
    """One key, by its whole name: `sandbox.seconds`, `agents.NAME.tools`."""

    name: str
    shape: type
    """The Struct whose field it is."""
    field: str
    header: str
    """What its table begins with in a file; empty at the top."""

    @property
    def hint(self) -> Any:
        return hints_of(self.shape)[self.field]


def all_keys(shape: type = Settings, name: str = "", header: str = "") -> Iterator[Key]:
    """Yield every key and, after it, those of its table; the keys of rules once."""
    for field, hint in hints_of(shape).items():
        whole = f"{name}{field}"
        yield Key(whole, shape, field, header)
        inner = table_in(hint)
        if inner is None or whole == "agents.NAME.rules":
            continue
        if has_names(hint):
            yield from all_keys(inner, f"{whole}.NAME.", f"[{whole}.reviewer]")
        else:
            header_of = f"[[{whole}]]" if is_list(hint) else f"[{whole}]"
            yield from all_keys(inner, f"{whole}.", header_of)


def is_list(hint: Any) -> bool:
    """Whether a key takes a list."""
    return typing.get_origin(hint) is tuple or any(map(is_list, typing.get_args(hint)))


def page() -> str:
    """Return the page of the configuration with its two tables as the source has them."""
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    rows: dict[str, list[str]] = {"keys": [], "keys of tables": []}
    for key in all_keys():
        text_of = _CITES.sub("", dict(described(key.shape))[key.field])
        if key.shape is Settings:
            cells = (_variable(key), _yes(key.name in project_keys()))
            about = "; ".join(filter(None, (text_of.rstrip("."), _see(key.name))))
            rows["keys"].append(f"| `{key.name}` | {' | '.join(cells)} | {about} |")
        else:
            row = f"| `{key.name}` | {_kind(key.hint)} | {_default(key)} | {text_of.rstrip('.')} |"
            rows["keys of tables"].append(row)
    for mark, found in rows.items():
        table = re.search(rf"<!-- {mark}: .*-->\n\n(?:\|.*\n){{2}}((?:\|.*\n)*)", text)
        if table is None:
            raise SystemExit(f"expected the mark `<!-- {mark}: … -->` and a table in {PAGE}")
        text = "\n".join((text[: table.start(1)] + found[0], *found[1:], text[table.end(1) :]))
    return text


def _variable(key: Key) -> str:
    return f"`SKILLHOUSE_{key.name.upper()}`" if key.name in noted(BY_VARIABLE) else ""


def _see(name: str) -> str:
    return f"see {SEE[name]}" if SEE.get(name, "").startswith("[") else SEE.get(name, "")


def _yes(is_so: bool) -> str:  # noqa: FBT001 - a cell.
    return "yes" if is_so else ""


def _kind(hint: Any) -> str:
    if has_names(hint):
        return "tables by name"
    return values(hint)


def _default(key: Key) -> str:
    """Return what a key is that nobody sets, as TOML has it; nothing where its text says it."""
    found = {one.name: one for one in msgspec.structs.fields(key.shape)}[key.field]
    if found.required:
        return "has to be given"
    value = found.default
    if value is msgspec.NODEFAULT or value is None:
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple | frozenset | dict):
        return "`[]`" if not value else f"`{[*value]}`"
    return f"`{value}`" if isinstance(value, int | float) else f'`"{value}"`'


def keywords() -> str:
    """Return the module with the keywords of `Skillhouse(…)`: the fields of `Config`."""
    tree = ast.parse(inspect.getsource(config_values))
    (body,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Config")
    fields = {
        node.target.id: ast.unparse(node.annotation)
        for node in body.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    fields = {name: fields[name] for name in Config.__struct_fields__ if name != "source"}
    fields["roots"] = "Sequence[str | Path]"
    used = set(re.findall(r"\w+", " ".join(fields.values())))
    imports = [
        f"from {node.module} import {', '.join(names)}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        and (names := [alias.name for alias in node.names if alias.name in used])
    ]
    own = {node.name for node in tree.body if isinstance(node, ast.ClassDef)} & used
    lines = [
        '"""The keywords of `Skillhouse(…)`: the fields of `Config`.\n',
        'Generated from config_values.py by `./x docs`; do not edit.\n"""\n',
        "from __future__ import annotations\n",
        "from typing import TYPE_CHECKING, TypedDict\n",
        "if TYPE_CHECKING:",
        "    from collections.abc import Sequence",
        *(f"    {line}" for line in imports),
        f"    from {config_values.__name__} import {', '.join(own)}\n",
        "class ConfigFields(TypedDict, total=False):",
        '    """The values that a program replaces; `roots` may be texts."""\n',
        *(f"    {name}: {kind}" for name, kind in fields.items()),
    ]
    text = "\n".join(lines) + "\n"
    for command in (("check", "--select", "I", "--fix-only", "-q"), ("format", "-q")):
        text = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", KEYWORDS, "-"],
            cwd=ROOT,
            input=text,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return text


def documents(written: Mapping[str, str]) -> dict[str, str]:
    """Return a document for each key: as `written`, else with a value of its type."""
    return {
        key.name: written.get(key.name) or _document(key)
        for key in all_keys()
        if key.name in written or table_in(key.hint) is None
    }


def _document(key: Key) -> str:
    required = [one.name for one in msgspec.structs.fields(key.shape) if one.required]
    names = dict.fromkeys((*required, key.field))
    lines = (f"{name} = {_sample(hints_of(key.shape)[name])}" for name in names)
    return "\n".join(filter(None, (key.header, *lines)))


def _sample(hint: Any) -> str:
    """Return a value of a type, as TOML writes it."""
    *_, kind = parts_of(hint)
    if typing.get_origin(kind) is typing.Literal:
        value = f'"{typing.get_args(kind)[-1]}"'
    elif isinstance(kind, type) and issubclass(kind, enum.Enum):
        value = f'"{[*kind][-1].value}"'
    else:
        value = {bool: "true", int: "5000", float: "1.5", str: '"sample"'}[kind]
    value = f"[{value}]" if is_list(hint) else value
    return f"{{sample = {value}}}" if Mapping in _origins(hint) else value


def _origins(hint: Any) -> set[Any]:
    return {typing.get_origin(hint)}.union(*map(_origins, typing.get_args(hint)))
