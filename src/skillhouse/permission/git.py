"""The paths in the arguments of git: in `REV:PATH`, in pathspecs and in values of options."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

from skillhouse.floor import SECRET_NAMES, is_secret

_MAGIC = re.compile(r":(?:\([^)]*\)|[!^/]*)")
_STAGE = re.compile(r"[0-3]:")
_WILD = re.compile(r"[*?\[]")
_EXAMPLES = tuple(name.rpartition("/")[2].replace("*", "x") for name in SECRET_NAMES)


def git_paths(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return every text in the arguments of git that may be a path.

    Of `REV:PATH` that is the path, which is below the top of the repository; of a pattern that
    fits the name of a secret, that name. Words that are no paths are among them.

    >>> git_paths(["show", "HEAD:a/.env"]), git_paths(["log", "-p", "--", ":(top).e*"])[-1]
    (('a/.env',), '.env')
    """
    paths: list[str] = []
    for word in arguments[1:]:
        # `-L1,9:PATH` and `--source=REV:PATH`.
        text = word.partition("=")[2] or word if word.startswith("-") else word
        if text.startswith(":"):
            text = _STAGE.sub("", _MAGIC.sub("", text, count=1), count=1)
        elif ":" in text and "://" not in text:
            text = text.partition(":")[2]
        elif text.startswith("-"):
            continue
        if _WILD.search(text):
            text = _secret_that_fits(text) or text
        if text:
            paths.append(text)
    return tuple(dict.fromkeys(paths))


def _secret_that_fits(pattern: str) -> str:
    last = pattern.rpartition("/")[2].casefold()
    return next((n for n in _EXAMPLES if is_secret(n) and fnmatch.fnmatchcase(n, last)), "")
