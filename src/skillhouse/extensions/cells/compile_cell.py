"""Compiles installed Python modules, as the tool of a skill in a cell; see bytecode.py."""

import base64
import marshal
import sys
import warnings
from importlib.util import MAGIC_NUMBER, source_hash
from typing import Any

UNCHECKED = (1).to_bytes(4, "little")
"""PEP 552: bytecode with the hash of its source, which an import does not compare."""


def compiled(params: dict[str, Any], context: object) -> dict[str, str]:
    """Return the bytecode of each file that is a Python module, in base64, and run none of it."""
    warnings.simplefilter("ignore")
    # After the skill's own directory: the packages.
    place = sys.path[1]
    made = {}
    for name in params["files"]:
        path = f"{place}/{name}"
        with open(path, "rb") as file:
            source = file.read()
        try:
            code = compile(source, path, "exec", dont_inherit=True)
            data = MAGIC_NUMBER + UNCHECKED + source_hash(source) + marshal.dumps(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
            # An import of it reports this.
            continue
        made[name] = base64.b64encode(data).decode()
    return made


tools = {"compile": compiled}
