"""The one text by which rules know a structured command."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def command_resource(argv: Sequence[str]) -> str:
    """Return the words of a command joined by blanks; a word that holds one is quoted.

    Quoting keeps `rm "a b"` and `rm a b` apart for a rule without wildcards.

    >>> command_resource(["curl", "-s", "wttr.in/Tokyo?format=3"])
    'curl -s wttr.in/Tokyo?format=3'
    """
    return " ".join(
        shlex.quote(word) if not word or any(c.isspace() or c in "'\"" for c in word) else word
        for word in argv
    )
