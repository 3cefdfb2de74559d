"""Counts the lines and files of each package in src, names that repeat, cycles, and complexity.

`./x py -m scripts.size [--tree DIR] [--json] [--names]`: DIR is another checkout, this one if left
out; `--names` lists what the second table counts. Only Python files count. A line is, by the first
of these that fits:

- docstring: of a string that stands alone as a statement, its quotes and blank lines included
- blank: nothing but whitespace, outside of strings
- comment: nothing but a comment
- code: any other
"""

from __future__ import annotations

import argparse
import ast
import functools
import io
import json
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "skillhouse"
TOP = "(top)"
EXTENSIONS = "extensions"
FACADE = "Skillhouse"
PARTICIPLES = ("ing", "ed")
STEM_REPEATS_MAX = 2
"""A module stem may be there twice."""
COMPLEXITY_MAX = 20
"""The most decisions of a function, and one (review 3, H8)."""
DECISIONS = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.comprehension,
    ast.match_case,
)

Cycles = tuple[tuple[str, ...], ...]
"""Sets of nodes that reach each other."""


@dataclass(slots=True, kw_only=True)
class Size:
    """Lines and files of a package."""

    files: int = 0
    code: int = 0
    docstring: int = 0
    comment: int = 0
    blank: int = 0

    def add(self, other: Size) -> None:
        """Add the numbers of another."""
        for name, count in asdict(other).items():
            setattr(self, name, getattr(self, name) + count)

    @property
    def total(self) -> int:
        """All lines."""
        return self.code + self.docstring + self.comment + self.blank


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """Names and import cycles; everything is sorted."""

    repeated_classes: Mapping[str, tuple[str, ...]]
    """Names of classes that are defined more than once, with their files."""
    repeated_stems: Mapping[str, int]
    """Stems of modules that are there more than twice; `__init__` and `__main__` aside."""
    participles: tuple[str, ...]
    """Modules whose last word ends in -ing or -ed."""
    members: tuple[str, ...]
    """Public methods, properties and attributes of `Skillhouse` and its bases."""
    file_cycles: Mapping[str, Cycles]
    """By package of src: sets of its files that import each other, however far around."""
    sibling_cycles: Mapping[str, Cycles]
    """By any package: sets of its children, sub-packages taken whole, that import each other."""
    public_names: Mapping[str, int]
    """By package of src: how many names its face offers."""
    complexity: Mapping[str, int]
    """Functions of more than `COMPLEXITY_MAX`, by file and name."""


def files_of(tree: Path) -> list[Path]:
    """Return the Python files of a checkout's package, sorted."""
    return sorted((tree / "src" / PACKAGE).rglob("*.py"))


def package_of(path: Path, tree: Path) -> str:
    """Return the package below the top one that a file belongs to; each extension is one."""
    *parents, _ = path.relative_to(tree / "src" / PACKAGE).parts
    return package_named(parents) or TOP


def package_named(parts: Sequence[str]) -> str:
    """Return the package of a path below the top one, in parts; each extension is one.

    >>> package_named(["tools"]), package_named(["extensions", "chat", "deep"])
    ('tools', 'extensions/chat')
    """
    return "/".join(parts[: 2 if parts and parts[0] == EXTENSIONS else 1])


@functools.cache
def parsed(path: Path) -> ast.Module:
    """Return the tree of a file; each is read once, however many things are counted."""
    return ast.parse(path.read_text(encoding="utf-8"))


def counted(text: str, tree: ast.Module | None = None) -> Size:
    """Return the lines of a module by their kind; `tree` is that of the text, if there is one.

    >>> size = counted('x = 1  # one' + chr(10) * 2 + '# two' + chr(10))
    >>> size.code, size.blank, size.comment
    (1, 1, 1)
    """
    kinds = dict.fromkeys(range(1, len(text.splitlines()) + 1), "blank")
    quiet = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in quiet:
            continue
        kind = "comment" if token.type == tokenize.COMMENT else "code"
        for line in range(token.start[0], token.end[0] + 1):
            kinds[line] = "code" if "code" in (kinds[line], kind) else kind
    for node in ast.walk(tree or ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                kinds.update(dict.fromkeys(lines, "docstring"))
    found = Counter(kinds.values())
    return Size(
        files=1, **{kind: found[kind] for kind in ("code", "docstring", "comment", "blank")}
    )


def sizes(tree: Path) -> dict[str, Size]:
    """Return the size of each package, by name."""
    found: dict[str, Size] = defaultdict(Size)
    for path in files_of(tree):
        found[package_of(path, tree)].add(counted(path.read_text(encoding="utf-8"), parsed(path)))
    return dict(sorted(found.items()))


def structure(tree: Path) -> Structure:
    """Return the names and cycles of a checkout."""
    files = {path: parsed(path) for path in files_of(tree)}
    source = tree / "src" / PACKAGE
    classes: dict[str, list[str]] = defaultdict(list)
    nodes: dict[str, ast.ClassDef] = {}
    for path, module in files.items():
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(path.relative_to(source).as_posix())
                nodes[node.name] = node
    stems = Counter(path.stem for path in files if not path.stem.startswith("__"))
    imports = imports_of(tree)
    return Structure(
        repeated_classes={n: tuple(p) for n, p in sorted(classes.items()) if len(p) > 1},
        repeated_stems={n: c for n, c in sorted(stems.items()) if c > STEM_REPEATS_MAX},
        participles=tuple(
            path.relative_to(source).as_posix() for path in files if path.stem.endswith(PARTICIPLES)
        ),
        members=tuple(sorted(set(members_of(FACADE, nodes)))),
        file_cycles=dict(by_package(imports)),
        sibling_cycles=dict(by_siblings(imports)),
        public_names={
            package_of(path, tree): len(offered(module))
            for path, module in files.items()
            if path.name == "__init__.py" and path.parent == source / package_of(path, tree)
        },
        complexity={
            f"{path.relative_to(source).as_posix()} {name}": value
            for path, module in files.items()
            for name, value in complexities(module)
            if value > COMPLEXITY_MAX
        },
    )


def offered(face: ast.Module) -> set[str]:
    """Return the public names of a package: those that its `__init__` imports as themselves.

    >>> sorted(offered(ast.parse("from a.b import C as C, D as _D, E")))
    ['C']
    """
    return {
        alias.name
        for node in ast.walk(face)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == alias.asname
    }


def complexities(node: ast.AST, before: str = "") -> Iterator[tuple[str, int]]:
    """Yield each function below a node, by its qualified name, with its cyclomatic complexity.

    Each branch, loop, handler, `case`, clause of a comprehension and boolean operator counts.
    A function inside of another counts for itself.

    >>> list(complexities(ast.parse("def f(a, b): return 1 if a and b else 2")))
    [('f', 3)]
    """
    for child in ast.iter_child_nodes(node):
        inside = before
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inside = f"{before}{child.name}."
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield f"{before}{child.name}", 1 + _decisions(child)
        yield from complexities(child, inside)


def _decisions(node: ast.AST) -> int:
    count = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        count += isinstance(child, DECISIONS) + _decisions(child)
        if isinstance(child, ast.BoolOp):
            count += len(child.values) - 1
        elif isinstance(child, ast.comprehension):
            count += len(child.ifs)
    return count


def members_of(name: str, nodes: Mapping[str, ast.ClassDef]) -> Iterator[str]:
    """Yield the public members of a class: what its body defines, and what it sets on `self`."""
    if name not in nodes:
        return
    for base in nodes[name].bases:
        yield from members_of(ast.unparse(base).rpartition(".")[2], nodes)
    for node in ast.walk(nodes[name]):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), ctx=ast.Store(), attr=attribute):
                yield from _public(attribute)
    for node in nodes[name].body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _public(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield from _public(node.target.id)


def _public(name: str) -> Iterator[str]:
    if not name.startswith("_"):
        yield name


def imports_of(tree: Path) -> dict[str, set[str]]:
    """Return what each module imports inside the package, type-checking imports included."""
    # Before the place where this project's own package is installed.
    sys.path.insert(0, str(tree / "src"))
    graph = grimp.build_graph(PACKAGE, exclude_type_checking_imports=False, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def by_package(
    imports: Mapping[str, set[str]],
) -> Iterator[tuple[str, Cycles]]:
    """Yield the packages of src that have cycles of files, with these."""
    for package in sorted({package_named(m.split(".")[1:]) for m in imports if "." in m}):
        top = f"{PACKAGE}.{package.replace('/', '.')}"
        inside = {m: i for m, i in imports.items() if m == top or m.startswith(f"{top}.")}
        if found := cycles(inside):
            yield package, found


def by_siblings(
    imports: Mapping[str, set[str]],
) -> Iterator[tuple[str, Cycles]]:
    """Yield the packages whose children import each other in a circle, with these."""
    for package in sorted({module.rpartition(".")[0] for module in imports if "." in module}):
        squashed: dict[str, set[str]] = defaultdict(set)
        for module, imported in imports.items():
            if one := _child(package, module):
                others = {_child(package, other) for other in imported} - {"", one}
                squashed[one] |= others
        if found := cycles(squashed):
            yield package, found


def _child(package: str, module: str) -> str:
    """Return the direct child of a package to which a module belongs, or nothing."""
    below = module.removeprefix(f"{package}.")
    return "" if below == module else f"{package}.{below.split('.')[0]}"


def cycles(graph: Mapping[str, Iterable[str]]) -> Cycles:
    """Return the sets of nodes that reach each other, larger than one.

    >>> cycles({"a": ["b"], "b": ["a", "c"], "c": []})
    (('a', 'b'),)
    """
    reached = {node: _reached(graph, node) for node in graph}
    groups = {
        tuple(sorted(other for other in graph if other in reached[node] and node in reached[other]))
        for node in graph
    }
    return tuple(sorted(group for group in groups if len(group) > 1))


def _reached(graph: Mapping[str, Iterable[str]], start: str) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        for other in graph.get(waiting.pop(), ()):
            if other not in reached:
                reached.add(other)
                waiting.append(other)
    return reached


def shown(by_name: Mapping[str, Size], found: Structure, *, names: bool) -> Iterator[str]:
    """Yield the lines of both tables."""
    yield "| package | files | code | docstring | comment | blank | lines |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    everything = Size()
    for name, size in by_name.items():
        everything.add(size)
        yield _row(name, size)
    yield _row("all", everything)
    yield ""
    yield "| | count |"
    yield "|---|--:|"
    listed = {
        "class names that repeat": [f"{n} ({len(p)})" for n, p in found.repeated_classes.items()],
        "module stems more than twice": [f"{n} ({c})" for n, c in found.repeated_stems.items()],
        "modules in -ing": [name for name in found.participles if name.endswith("ing.py")],
        "modules in -ed": [name for name in found.participles if name.endswith("ed.py")],
        f"public members of `{FACADE}`": list(found.members),
        "cycles of files inside packages": _cycle_lines(found.file_cycles),
        "cycles of siblings in a package": _cycle_lines(found.sibling_cycles),
        f"functions of complexity above {COMPLEXITY_MAX}": [
            f"{name} ({value})" for name, value in found.complexity.items()
        ],
    }
    for what, words in listed.items():
        yield f"| {what} | {len(words)} |"
    for what, words in listed.items() if names else ():
        yield f"\n{what}:\n  " + "\n  ".join(words)


def _row(name: str, size: Size) -> str:
    counts = (size.files, size.code, size.docstring, size.comment, size.blank, size.total)
    return f"| {name} | {' | '.join(f'{count:,}' for count in counts)} |"


def _cycle_lines(found: Mapping[str, Cycles]) -> list[str]:
    return [
        f"{package}: {len(cycle)}: {' '.join(cycle)}"
        for package, every in found.items()
        for cycle in every
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Count lines, files, names and import cycles.")
    parser.add_argument("--tree", type=Path, default=ROOT, metavar="DIR")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--names", action="store_true", help="list what is counted")
    options = parser.parse_args()
    by_name, found = sizes(options.tree), structure(options.tree)
    if options.json:
        packages = {name: asdict(size) for name, size in by_name.items()}
        print(json.dumps({"packages": packages, "structure": asdict(found)}, indent=1))
    else:
        print("\n".join(shown(by_name, found, names=options.names)))


if __name__ == "__main__":
    main()
