"""The table of our own extensions: where each is, and what brings it.

The core names them here as data and imports none of them. Nothing is searched for one of ours.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from skillhouse.floor import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skillhouse.extension.contract import Verb


class OwnExtension(Struct, frozen=True, kw_only=True):
    """One of ours."""

    package: str
    """Its import package; where it is missing, the extension is not installed."""
    extra: str
    """What brings it: an extra of ours."""
    verbs: str = ""
    """Its module with `VERBS`; empty where it has no verbs of its own."""


OWN_EXTENSIONS = {
    "server": OwnExtension(package="skillhouse.extensions.server", extra="server", verbs="up_verb"),
    "registry": OwnExtension(
        package="skillhouse.extensions.registry", extra="server", verbs="registry_verb"
    ),
    "cells": OwnExtension(
        package="skillhouse.extensions.cells", extra="all", verbs="worker.worker_verb"
    ),
    "chat": OwnExtension(package="skillhouse.extensions.chat", extra="chat", verbs="chat_verb"),
    "channels": OwnExtension(
        package="skillhouse.extensions.channels", extra="telegram", verbs="bot_verb"
    ),
    "installs": OwnExtension(package="skillhouse.extensions.installs", extra="all"),
    "meaning": OwnExtension(package="skillhouse.extensions.meaning", extra="semantic"),
    "postgres": OwnExtension(package="skillhouse.extensions.postgres", extra="postgres"),
    "signer": OwnExtension(package="skillhouse_signer", extra="signer"),
}
"""By name."""


def own_verbs(name: str) -> Mapping[str, Verb]:
    """Return the verbs of one of ours.

    Raises:
        MissingExtraError: it is not installed; the text has the line that brings it.
    """
    found: Mapping[str, Verb] = own_module(name, OWN_EXTENSIONS[name].verbs).VERBS
    return found


def own_module(name: str, module: str = "") -> Any:
    """Return a module of one of our extensions, its face when `module` is empty.

    Raises:
        MissingExtraError: as of `own_verbs`.
    """
    own = OWN_EXTENSIONS[name]
    return _imported(f"{own.package}.{module}" if module else own.package, own)


class OwnPackage:
    """The face of one of our extensions, loaded when a name of it is first used.

    MissingExtraError where it is not installed.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(own_module(self._name), attribute)


def _imported(path: str, own: OwnExtension) -> Any:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        is_own = any(f"{one}.".startswith(f"{missing}.") for one in (path, own.package))
        if not is_own:
            raise
        raise MissingExtraError(own.extra, missing) from error


def is_installed(name: str) -> bool:
    """Whether one of our extensions is there; it is loaded then."""
    try:
        own_module(name)
    except MissingExtraError:
        return False
    return True
