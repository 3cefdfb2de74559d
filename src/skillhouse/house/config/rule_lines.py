"""Where each rule is written: its file, and the line on which its table begins."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from skillhouse.floor import ConfigError, DecodeError, Locations, read_regular
from skillhouse.floor.documents import toml_table
from skillhouse.house.config.bundle_files import BUNDLE_CONFIG, TakenBundle
from skillhouse.house.config.config_files import PROJECT_FILE, project_of
from skillhouse.house.config.config_lines import CONFIG_FILE_MAX
from skillhouse.house.config.rule_tables import policy_file
from skillhouse.permission import Layer


class RuleLayer(Struct, frozen=True, kw_only=True):
    """A layer with the places of its rules."""

    layer: Layer
    agent: str
    """Name of the agent whose rules they are; empty for every agent."""
    path: Path
    lines: tuple[int | None, ...]
    """For each rule the line of its table, from 1; None where it has no lines of its own."""


def rule_layers(
    places: Locations,
    layers: Sequence[Layer],
    agents: Mapping[str, Layer],
    bundle: TakenBundle | None = None,
) -> tuple[RuleLayer, ...]:
    """Return the layers of a configuration, farthest first, then those of its agents."""
    files = {
        "managed": places.managed_file,
        "user": places.user_file,
        "project": project_of(places.start) / PROJECT_FILE,
    }
    files |= {layer.name: policy_file(layer.name) for layer in layers if layer.is_builtin}
    if bundle is not None and bundle.directory is not None:
        files[bundle.label] = bundle.directory / BUNDLE_CONFIG
    read = {path: _read(path) for path in dict.fromkeys(files.values())}
    found = []
    for layer in layers:
        path = files.get(layer.name, places.user_file)
        lines = _lines(*read[path], ("rules",), len(layer.rules))
        found.append(RuleLayer(layer=layer, agent="", path=path, lines=lines))
    # The managed file's table of agents takes the place of the user's.
    managed = "agents" in read[places.managed_file][1]
    path = places.managed_file if managed else places.user_file
    for name, layer in agents.items():
        if layer.rules:
            lines = _lines(*read[path], ("agents", name, "rules"), len(layer.rules))
            found.append(RuleLayer(layer=layer, agent=name, path=path, lines=lines))
    return tuple(found)


def _read(path: Path) -> tuple[str, Mapping[str, Any]]:
    try:
        text = read_regular(path, CONFIG_FILE_MAX).decode()
        return text, toml_table(text)
    except (OSError, ConfigError, UnicodeDecodeError, DecodeError):
        return "", {}


def _lines(
    text: str, table: Mapping[str, Any], names: Sequence[str], count: int
) -> tuple[int | None, ...]:
    """Return the line of each rule, if every table of this list begins with a header of its own."""
    dotted = r"\s*\.\s*".join(rf"[\"']?{re.escape(name)}[\"']?" for name in names)
    header = re.compile(rf"\s*\[\[\s*{dotted}\s*\]\]")
    starts = [at + 1 for at, line in enumerate(text.split("\n")) if header.match(line)]
    tables: Any = table
    for name in names:
        tables = tables.get(name, {}) if isinstance(tables, Mapping) else {}
    if not isinstance(tables, list) or len(tables) != len(starts):
        return (None,) * count
    lines: list[int | None] = [
        start
        for start, one in zip(starts, tables, strict=True)
        for _ in one.get("patterns", ("pattern",))
    ]
    return tuple(lines) if len(lines) == count else (None,) * count
