"""Loads each public name of a package when it is first used (PEP 562, decision 0106)."""

import importlib
import sys
from collections.abc import Callable
from typing import Any


def lazy_exports(package: str) -> tuple[list[str], Callable[[str], Any]]:
    """Return the `__all__` and the `__getattr__` of a package.

    The names are those that its `__init__` imports in the form `from module import name as name`
    (PEP 484, re-exports), so a name is listed once, for type checkers and for this function. Names
    imported outside `if TYPE_CHECKING` are loaded already and are never asked for here.

    Raises:
        ImportError: the package was installed without its source.
    """
    source = _source_of(package)
    module_of: dict[str, str] = {}
    opened = ""
    for line in source.splitlines():
        match line.rstrip(",").split():
            case ["from", module, "import", name, "as", alias] if name == alias:
                module_of[name] = module
            case ["from", module, "import", "("]:
                # A line that would be too long has its one name on the next.
                opened = module
            case [name, "as", alias] if name == alias:
                module_of[name] = opened

    def load(name: str) -> Any:
        module = module_of.get(name)
        if module is None:
            raise AttributeError(f"module `{package}` has no attribute `{name}`")
        value = getattr(importlib.import_module(module), name)
        # Later accesses find the name in the package and do not call this function.
        setattr(sys.modules[package], name, value)
        return value

    return sorted(module_of), load


def _source_of(package: str) -> str:
    spec = sys.modules[package].__spec__
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        raise ImportError(f"`{package}` needs its source file: install skillhouse from its wheel")
    # Not `get_source`, which imports `tokenize` for the encoding; ours is UTF-8. The protocol of
    # loaders in typeshed lacks `get_data`, which those of files and of archives have.
    data: bytes = spec.loader.get_data(spec.origin)  # type: ignore[union-attr]
    return data.decode()
