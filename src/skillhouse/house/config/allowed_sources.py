"""Which sources of skills the configuration allows: `[[registry.sources]]`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from skillhouse.floor import is_below
from skillhouse.registry import SourceError
from skillhouse.registry.releases import locked_place

if TYPE_CHECKING:
    from skillhouse.house.config.repositories import AllowedSource, RegistrySettings


def rule_for(rules: Sequence[AllowedSource], text: str) -> AllowedSource | None:
    """Return the first rule for a source; None where none allows it."""
    return next((one for one in rules if fits(one.source, text)), None)


def fits(pattern: str, text: str) -> bool:
    """Whether a pattern is for a source.

    A name is a repository's, `official` or `official/@acme`. A path is a directory and all below
    it. Of an address scheme, host and port are equal, where `*.` is any name below a host;
    the path is equal, or below one that ends with `/*`.

    >>> fits("https://github.com/acme/*", "https://github.com/acme/skills")
    True
    >>> fits("https://github.com/acme/*", "https://github.com/acme-evil/skills")
    False
    """
    if "://" not in pattern:
        if pattern.startswith("/"):
            return text.startswith("/") and is_below(text, pattern)
        place = locked_place(text)
        return text == pattern or (place is not None and place[0] == pattern)
    if "://" not in text:
        return False
    try:
        wanted, given = urlsplit(pattern), urlsplit(text)
        is_same_port = wanted.port == given.port
    except ValueError:
        return False
    # INVARIANT: what a server may read as another path than is written fits no pattern.
    if re.search(r"%|\\|//|(?:^|/)\.{1,2}(?:[/;]|$)", given.path) or given.username:
        return False
    if wanted.scheme != given.scheme or not is_same_port:
        return False
    host, name = wanted.hostname or "", given.hostname or ""
    if host != name and not (host.startswith("*.") and name.endswith(host[1:])):
        return False
    return _is_path_below(given.path.rstrip("/"), wanted.path)


def _is_path_below(path: str, below: str) -> bool:
    if below in ("/*", "", "/"):
        return below == "/*" or path == ""
    if below.endswith("/*"):
        return path.startswith(below[:-1])
    return path in (below, below.removesuffix(".git")) or path == f"{below}.git"


def check_source(settings: RegistrySettings, text: str) -> None:
    """Refuse a source that no rule of the configuration allows; nothing is asked of it.

    Raises:
        SourceError: it is not allowed.
    """
    if not is_allowed(settings, text):
        allowed = ", ".join(f"`{one.source}`" for one in settings.sources[:5])
        raise SourceError(
            f"`{text[:200]}` is not among the sources that `registry.sources` of the configuration "
            f"allows: {allowed}"
        )


def is_allowed(settings: RegistrySettings, text: str) -> bool:
    """Whether skills may come from a source: `mcp:LABEL`, an address, a directory or a name."""
    return not settings.sources or rule_for(settings.sources, text) is not None
