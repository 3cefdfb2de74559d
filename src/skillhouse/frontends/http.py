"""The old name of `skillhouse.extensions.server`, until version 0.3 (decision 472)."""

from typing import Any

from skillhouse.extension import own_module


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    return getattr(own_module("server"), name)
