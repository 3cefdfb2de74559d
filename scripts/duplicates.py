"""Finds blocks of at least six code lines that are twice in src, letter for letter.

`./x py -m scripts.duplicates [--tree DIR]` prints each block with its places. Space, comments,
docstrings, imports and lines of brackets alone do not count, so a block that was only moved into
another indentation or given other comments is found.
"""

from __future__ import annotations

import argparse
import ast
import io
import token
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.size import PACKAGE, ROOT, files_of, parsed

LINES_MIN = 6
QUIET = {
    token.NL,
    token.NEWLINE,
    token.INDENT,
    token.DEDENT,
    token.ENDMARKER,
    token.COMMENT,
}

Place = tuple[str, int]
"""A file below the package, and the index of a line among its code lines."""


@dataclass(frozen=True, slots=True)
class Block:
    """Code lines that are at several places."""

    lines: int
    places: tuple[Place, ...]
    """File and line number (1-based) of each first line, sorted."""


def code_lines(text: str, tree: ast.Module | None = None) -> list[tuple[int, str]]:
    """Return the code lines of a module with their numbers, in a form that compares.

    `tree` is that of the text, if there is one.

    >>> code_lines('import a' + chr(10) + 'x = (  # one' + chr(10) + '  1' + chr(10) + ')')
    [(2, 'x = ('), (3, '1')]
    """
    skipped = {
        number
        for node in ast.walk(tree or ast.parse(text))
        if isinstance(node, ast.stmt) and _is_quiet(node)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    parts: dict[int, list[str]] = defaultdict(list)
    for each in tokenize.generate_tokens(io.StringIO(text).readline):
        if each.type not in QUIET and each.start[0] not in skipped:
            parts[each.start[0]].append(each.string)
    lines = ((number, " ".join(words)) for number, words in sorted(parts.items()))
    return [(number, line) for number, line in lines if any(map(str.isalnum, line))]


def _is_quiet(node: ast.stmt) -> bool:
    """Whether a statement is an import or a docstring."""
    return isinstance(node, (ast.Import, ast.ImportFrom)) or (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def blocks(modules: Mapping[str, Sequence[tuple[int, str]]]) -> list[Block]:
    """Return the longest blocks that are more than once in some modules, given by their code lines.

    >>> lines = [(number, f"line {number}") for number in range(1, 8)]
    >>> blocks({"a.py": lines, "b.py": lines[1:]})
    [Block(lines=6, places=(('a.py', 2), ('b.py', 2)))]
    """
    windows: dict[tuple[str, ...], list[Place]] = defaultdict(list)
    for name, lines in sorted(modules.items()):
        for start in range(len(lines) - LINES_MIN + 1):
            windows[tuple(line for _, line in lines[start : start + LINES_MIN])].append(
                (name, start)
            )
    repeated = {tuple(places) for places in windows.values() if len(places) > 1}
    found = []
    for places in sorted(repeated):
        if _moved(places, -1) in repeated:
            continue  # Inside of a longer block.
        length = LINES_MIN
        while _moved(places, length - LINES_MIN + 1) in repeated:
            length += 1
        numbered = tuple((name, modules[name][start][0]) for name, start in places)
        found.append(Block(length, numbered))
    return found


def _moved(places: tuple[Place, ...], by: int) -> tuple[Place, ...]:
    return tuple((name, start + by) for name, start in places)


def in_tree(tree: Path) -> list[Block]:
    """Return the blocks that are more than once in the package of a checkout."""
    source = tree / "src" / PACKAGE
    return blocks(
        {
            path.relative_to(source).as_posix(): code_lines(
                path.read_text(encoding="utf-8"), parsed(path)
            )
            for path in files_of(tree)
        }
    )


def by_files(found: Sequence[Block]) -> dict[str, int]:
    """Return how many lines the same files have in common, by their names."""
    shared: dict[str, int] = defaultdict(int)
    for block in found:
        shared[" ".join(sorted({name for name, _ in block.places}))] += block.lines
    return dict(sorted(shared.items()))


def shown(found: Sequence[Block]) -> Iterator[str]:
    """Yield a line for each block, the longest first."""
    for block in sorted(found, key=lambda each: (-each.lines, each.places)):
        places = ", ".join(f"{name}:{number}" for name, number in block.places)
        yield f"{block.lines} lines: {places}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Find code lines that are twice in src.")
    parser.add_argument("--tree", type=Path, default=ROOT, metavar="DIR")
    print(*shown(in_tree(parser.parse_args().tree)), sep="\n")


if __name__ == "__main__":
    main()
