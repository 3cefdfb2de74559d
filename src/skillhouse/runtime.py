"""The names of `house`, `install` and `manage` under their name before 0.2; gone with 0.3."""

import importlib
from typing import Any

ROOMS = ("skillhouse.house", "skillhouse.install", "skillhouse.manage")


def __getattr__(name: str) -> Any:
    for room in ROOMS:
        module = importlib.import_module(room)
        if name in module.__all__:
            return getattr(module, name)
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
