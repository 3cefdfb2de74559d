"""A room's face that loads a name when it is first used (PEP 562, decision 0106)."""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_face(
    room: str, files: Mapping[str, str], *, loaded: str = ""
) -> tuple[list[str], Callable[[str], Any]]:
    """Return the `__all__` and the `__getattr__` of a room.

    Args:
        room: The room's `__name__`.
        files: The names that each file of the room offers, separated by blanks.
        loaded: Further names, which the face has from the start.
    """
    file_of = {name: file for file, names in files.items() for name in names.split()}

    def load(name: str) -> Any:
        file = file_of.get(name)
        if file is None:
            raise AttributeError(f"module `{room}` has no attribute `{name}`")
        value = getattr(importlib.import_module(f"{room}.{file}"), name)
        # From now on the name is found without asking here.
        setattr(sys.modules[room], name, value)
        return value

    return sorted([*file_of, *loaded.split()]), load
