"""The tides of a sea: a verb, a tool, a page and a section of the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skillhouse import ConfigError, tool
from skillhouse.extension import (
    ConfigSection,
    Extension,
    ExtensionContext,
    ExtensionPage,
    ExtensionRoute,
    Verb,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping

    from skillhouse import Tool

SEAS = {"north": "high at six", "baltic": "hardly any"}


def tide_of(sea: str) -> str:
    return SEAS.get(sea, "not known")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sea", help="such as north")


def _run(options: argparse.Namespace, terminal: Any) -> int:
    terminal.line(f"{options.sea}: {tide_of(options.sea)}")
    return 0 if options.sea in SEAS else 1


def _tool(context: ExtensionContext) -> Tool:
    @tool(resource="{sea}", level="read")
    def tide(sea: str = context.settings["sea"]) -> str:
        """Say when the tide of a sea is high."""
        return tide_of(sea)

    return tide


def _pages(context: ExtensionContext) -> Iterable[ExtensionPage]:
    def body(query: Mapping[str, str]) -> str:
        sea = query.get("sea", context.settings["sea"])
        return f"{sea}: {tide_of(sea)}"

    return [ExtensionPage(path="", title="Tides", body=body)]


def _routes(context: ExtensionContext) -> Iterable[ExtensionRoute]:
    def answer(query: Mapping[str, str]) -> dict[str, str]:
        sea = query.get("sea", context.settings["sea"])
        return {"sea": sea, "high": tide_of(sea)}

    return [
        ExtensionRoute(
            path="tide",
            what="When the tide of a sea is high.",
            answer=answer,
            parameters={"sea": "Such as north."},
        )
    ]


def _section(table: Mapping[str, Any]) -> dict[str, str]:
    unknown = table.keys() - {"sea"}
    if unknown:
        raise ConfigError(f"unknown key `{min(unknown)}`", key="tides")
    sea = table.get("sea", "north")
    if sea not in SEAS:
        raise ConfigError(f"expected one of {', '.join(SEAS)}, got {sea!r}", key="tides.sea")
    return {"sea": sea}


EXTENSION = Extension(
    name="tides",
    verbs={
        "tide": Verb(
            "examples:\n  skillhouse tide north",
            _configure,
            _run,
            summary="say when the tide of a sea is high",
        )
    },
    tools={"tide": _tool},
    pages=_pages,
    routes=_routes,
    section=ConfigSection(name="tides", parse=_section),
)
