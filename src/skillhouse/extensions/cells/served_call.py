"""What the core sends about a call, and how it is read: each key and its type, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from skillhouse.extensions.cells.rpc import INVALID_PARAMS
from skillhouse.sandbox.code_call import RpcError


class ServedCall(Struct, frozen=True, kw_only=True):
    """What the core sends about a call besides the tool and its arguments."""

    meta: Mapping[str, Any] = field(default_factory=dict)
    capability: str = ""
    port: int = 0
    """Port of the core for requests of the skill; 0 is the executor's own setting."""
    digest: str = ""
    """Of the skill's tree as the core evaluated it, no other is run; "" takes the present one."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The declared variables that the operator gives to this skill, with their values."""
    permissions: str = ""
    """Calls share a cell only if this and the user are equal."""
    packages: str = ""
    """Key of its installed dependencies in the store that the core fills; "" for none."""
    packages_digest: str = ""
    """Of these dependencies, where the core sends them (code_archive.py)."""
    core: str = ""
    """Where the core that calls is asked, http[s]://HOST:PORT/rpc; "" is the executor's setting."""


def read_execution(params: Any) -> tuple[str, Mapping[str, Any], ServedCall]:
    if not isinstance(params, dict) or params.keys() - {"tool", "args", "context"}:
        raise RpcError(INVALID_PARAMS, "expected {tool, args, context}")
    tool, arguments = params.get("tool"), params.get("args", {})
    if not isinstance(tool, str) or not isinstance(arguments, dict):
        raise RpcError(INVALID_PARAMS, "expected {tool: text, args: object, context: object}")
    return tool, arguments, read_context(params.get("context", {}))


def read_context(given: Any) -> ServedCall:
    known = {"meta": dict, "env": dict, "port": int}
    texts = {"capability", "digest", "permissions", "packages", "packages_digest", "core"}
    is_right = (
        isinstance(given, dict)
        and not given.keys() - known.keys() - texts
        and all(isinstance(given.get(name, ""), str) for name in texts)
        and all(type(given.get(name, kind())) is kind for name, kind in known.items())
        and all(isinstance(value, str) for value in given.get("env", {}).values())
        and 0 <= given.get("port", 0) < 65_536
        and re.fullmatch("([0-9a-f]{64})?", given.get("packages", "")) is not None
        and re.fullmatch("(packages1:[0-9a-f]{64})?", given.get("packages_digest", "")) is not None
    )
    if not is_right:
        names = "meta, capability, port, digest, env, permissions, packages, packages_digest, core"
        message = f"expected as context {{{names}}}"
        raise RpcError(INVALID_PARAMS, message)
    return ServedCall(**given)
