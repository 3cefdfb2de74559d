"""The table of our own extensions: where each is, and what brings it.

The core names them here as data and imports none of them. Nothing is searched for one of ours.
"""

from __future__ import annotations

import importlib
from typing import Any

from skillhouse.floor import MissingExtraError, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnExtension:
    """One of ours."""

    package: str
    """The import package; where it is missing, the extension is not installed."""
    extra: str
    """What brings it: an extra of ours."""


OWN_EXTENSIONS = {
    "server": OwnExtension(package="skillhouse.frontends.http", extra="server"),
    "registry": OwnExtension(package="skillhouse.frontends.registry", extra="server"),
    "cells": OwnExtension(package="skillhouse.cells", extra="all"),
    "chat": OwnExtension(package="skillhouse.frontends.chat", extra="chat"),
    "meaning": OwnExtension(package="skillhouse.retrieval.semantic", extra="semantic"),
    "postgres": OwnExtension(package="skillhouse.retrieval.postgres", extra="postgres"),
    "signer": OwnExtension(package="skillhouse.signer", extra="signer"),
}
"""By name; each has its `EXTENSION` in the module `extension` of its package."""


def own_extension(name: str) -> Any:
    """Return the `EXTENSION` of one of ours.

    Raises:
        MissingExtraError: it is not installed; the text has the line that brings it.
    """
    return own_module(name, "extension").EXTENSION


def own_module(name: str, module: str = "") -> Any:
    """Return a module of one of our extensions, its face when `module` is empty."""
    own = OWN_EXTENSIONS[name]
    path = f"{own.package}.{module}" if module else own.package
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if not f"{path}.".startswith(f"{missing}."):
            raise
        raise MissingExtraError(own.extra, missing) from error
