"""Every statement that the source runs on the state, read from the source and for PostgreSQL."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[2] / "src" / "skillhouse"
SIGNER = Path(__file__).parents[2] / "signer" / "src" / "skillhouse_signer"
RUNS = frozenset({"execute", "executemany", "executescript", "rows"})
"""Methods of connections and stores whose first argument is a statement."""
NOT_STATE = frozenset(
    {
        # What opens and migrates any SQLite file.
        *("store/store.py", "store/state_backup.py"),
        # Caches and indexes, which are made again.
        *("discovery/scan.py", "retrieval/tokens.py", "retrieval/segment_store.py"),
        # What makes, moves and counts the state on a server, each in PostgreSQL's own words.
        "extensions/postgres/state_move.py",
        "extensions/postgres/state_server.py",
        "extensions/postgres/state_session.py",
        "extensions/postgres/state_tables.py",
        "extensions/postgres/state_watch.py",
        # The database of a registry server.
        "extensions/registry/hosting/backup.py",
        "extensions/registry/hosting/sqlite_schema.py",
        "extensions/registry/hosting/sqlite_search.py",
        "extensions/registry/hosting/sqlite_store.py",
    }
)


class Unreadable(NamedTuple):
    """A call whose statement a reader of the source cannot know."""

    file: str
    line: int
    text: str


class Statement(NamedTuple):
    file: str
    line: int
    sql: str


def state_files(source: Path = SOURCE) -> list[Path]:
    """Return the modules that can reach a connection of the state: by sqlite3 or the store."""
    found = []
    for path in sorted(source.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if (
            path.relative_to(source).as_posix() not in NOT_STATE
            and re.search(r"\b(sqlite3|store)\b", text)
            and any(map(_reaches_state, ast.walk(ast.parse(text))))
        ):
            found.append(path)
    return found


def _reaches_state(node: ast.AST) -> bool:
    """Whether a part of a module imports sqlite3 or the store, in any form of an import."""
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    return any(re.match(r"(sqlite3|skillhouse\.store)(\.|$)", name) for name in names)


def collected(text: str, file: str) -> Iterator[Statement | Unreadable]:
    """Read each statement that a module runs, in every form that its parts can give it."""
    tree = ast.parse(text)
    names = _Names(tree)
    for function, call in _calls(tree):
        if not (isinstance(call.func, ast.Attribute) and call.func.attr in RUNS and call.args):
            continue
        found = names.values(call.args[0], function)
        if found is None:
            yield Unreadable(file, call.lineno, ast.unparse(call.args[0]))
        else:
            yield from (Statement(file, call.lineno, " ".join(sql.split())) for sql in found)


_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _calls(tree: ast.Module) -> Iterator[tuple[_Function | None, ast.Call]]:
    def walk(
        node: ast.AST, function: _Function | None
    ) -> Iterator[tuple[_Function | None, ast.Call]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Call):
                yield function, child
            inner = child if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
            yield from walk(child, inner)

    yield from walk(tree, None)


class _Names:
    """What an expression of a module can be, where it is made of literals of the same module."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._constants = {
            target.id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    def values(self, node: ast.expr, function: _Function | None) -> list[str] | None:
        """Return each text that an expression can be; None where that cannot be read."""
        match node:
            case ast.Constant(value=str(text)):
                return [text]
            case ast.JoinedStr(values=parts):
                return self._joined(parts, function)
            case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
                return self.values(value, function)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._joined([left, right], function)
            case ast.IfExp(body=body, orelse=other):
                return self._all([body, other], function)
            case ast.Name(id=name):
                return self._named(name, function)
        return None

    def _joined(self, parts: list[ast.expr], function: _Function | None) -> list[str] | None:
        found = [self.values(part, function) for part in parts]
        if any(values is None for values in found):
            return None
        return ["".join(each) for each in itertools.product(*(v for v in found if v is not None))]

    def _all(
        self, nodes: Sequence[ast.expr | None], function: _Function | None
    ) -> list[str] | None:
        found = [None if node is None else self.values(node, function) for node in nodes]
        if not found or any(values is None for values in found):
            return None
        return [text for values in found if values is not None for text in values]

    def _named(self, name: str, function: _Function | None) -> list[str] | None:
        if function is not None:
            if given := self._assigned(name, function):
                return self._all(given, function)
            names = [one.arg for one in function.args.args]
            if name in names:
                return self._passed(function, names.index(name), name)
        if name in self._constants:
            return self.values(self._constants[name], None)
        return None

    @staticmethod
    def _assigned(name: str, function: _Function) -> list[ast.expr | None]:
        """Return what a local name is given; None for each way that cannot be read, as `+=`."""
        given: list[ast.expr | None] = []
        for node in ast.walk(function):
            pairs: list[tuple[ast.expr, ast.expr]] = []
            if isinstance(node, ast.Assign):
                pairs = [(target, node.value) for target in node.targets]
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                pairs = [(node.target, node.value)]
            for target, value in pairs:
                if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                    pairs += zip(target.elts, value.elts, strict=True)
                elif isinstance(target, ast.Name) and target.id == name:
                    given.append(value)
        bound = [
            node
            for node in ast.walk(function)
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
        ]
        return given if len(bound) == len(given) else [None]

    def _passed(self, function: _Function, place: int, name: str) -> list[str] | None:
        """Return what the calls of a function in this module give for a parameter."""
        given: list[str] = []
        for caller, call in _calls(self._tree):
            called, is_method = call.func, isinstance(call.func, ast.Attribute)
            if getattr(called, "attr", getattr(called, "id", "")) != function.name:
                continue
            at = place - 1 if is_method else place
            named = [one.value for one in call.keywords if one.arg == name]
            node = named[0] if named else call.args[at] if at < len(call.args) else None
            found = None if node is None else self.values(node, caller)
            if found is None:
                return None
            given += found
        return given or None


TEXT = re.compile(r"'(?:[^']|'')*'")
"""A text literal of SQL."""
OWN = (
    ("rowid", re.compile(r"\b(_?rowid_?|oid)\b", re.IGNORECASE)),
    ("INSERT OR", re.compile(r"\b(INSERT|UPDATE)\s+OR\b|\bREPLACE\s+INTO\b", re.IGNORECASE)),
    ("user", re.compile(r"(?<![:\w])user(?!\w)", re.IGNORECASE)),
)
"""What SQLite alone understands, or PostgreSQL understands as something else."""


def words_of_sqlite(sql: str) -> list[str]:
    """Return what a statement says that PostgreSQL refuses or, which is worse, reads otherwise."""
    plain = TEXT.sub("''", sql)
    return [name for name, pattern in OWN if pattern.search(plain)]


def for_postgres(sql: str) -> str:
    """Return a statement, or a table's definition, with PostgreSQL's types and placeholders."""
    parts = re.split(f"({TEXT.pattern})", sql)
    named: dict[str, int] = {}
    count = itertools.count(1)

    def number(found: re.Match[str]) -> str:
        if found[0] == "?":
            return f"${next(count)}"
        return f"${named.setdefault(found[0], len(named) + 1)}"

    for at, part in enumerate(parts):
        if at % 2 == 0:
            part = re.sub(r"\bINTEGER PRIMARY KEY AUTOINCREMENT\b", _IDENTITY, part)
            part = re.sub(r"\bINTEGER\b", "BIGINT", part)
            part = re.sub(r"\bBLOB\b", "BYTEA", part)
            parts[at] = re.sub(r"\?|:[a-z_]+", number, part)
    return "".join(parts)


_IDENTITY = "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"
