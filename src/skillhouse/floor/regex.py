"""Regular expressions that are compiled when they are first used.

Compiling is most of the time that importing a reader of some language takes, and most starts read
none of it.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


class _LateRegex:
    """Has the members of the compiled expression, each from its first use on."""

    def __init__(self, text: str | bytes, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        # `re` keeps what it compiled. Later uses find the member in the instance.
        compiled: Any = re.compile(self._text, self._flags)
        found = getattr(compiled, name)
        setattr(self, name, found)
        return found


def regex(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Do as `re.compile` for a constant; what is wrong with the text shows at the first use.

    >>> regex("[a-z]+").fullmatch("weather") is not None
    True
    """
    return cast("re.Pattern[AnyStr]", _LateRegex(text, flags))
