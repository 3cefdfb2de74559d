"""x"""
from __future__ import annotations
import re
from collections.abc import Iterable, Sequence
from skillhouse.floor import ConfigError
from skillhouse.tools.offer import ALL, SKILLS
from skillhouse.tools.tool import Tool
_OWN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


def check_own_tools(own: Sequence[Tool], taken: Iterable[str]) -> None:
    """Raise ConfigError for a program's own tool whose name is taken, or cannot be one.

    `taken` are the names of the other tools. No tool of a skill has such a name, whatever skills
    are added: theirs hold two underscores.
    """
    names = {name.casefold(): name for name in (*taken, ALL, SKILLS)}
    for tool in own:
        if not isinstance(tool, Tool):
            message = f"expected tools in `tools`, got {type(tool).__name__}: use `@tool`"
            raise ConfigError(message, key="tools")
        if not _OWN_NAME.fullmatch(tool.name) or "__" in tool.name or tool.full_name:
            raise ConfigError(
                f"the name of the tool `{tool.name}` cannot be used: expected a letter, then at "
                "most 63 letters, digits, `-` and `_`, with no two `_` together",
                key="tools",
            )
        if tool.name.casefold() in names:
            other = names[tool.name.casefold()]
            raise ConfigError(
                f"the name `{tool.name}` is taken by the tool `{other}`; give yours another name",
                key="tools",
            )
        names[tool.name.casefold()] = tool.name


