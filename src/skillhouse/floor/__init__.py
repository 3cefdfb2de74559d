"""What every room stands on: errors, diagnostics, paths, digests, names and our own formats."""

from skillhouse.floor.clock import Clock, Moment, system_clock
from skillhouse.floor.diagnostic import Diagnostic, Severity
from skillhouse.floor.digest import Digest, TreeDigest, digest, tree_digest
from skillhouse.floor.errors import (
    AmbiguousSkillError,
    ConfigError,
    DecodeError,
    MissingExtraError,
    PathError,
    SkillError,
    SkillhouseError,
    StateError,
    TreeError,
    UnknownSkillError,
    WireNameError,
)
from skillhouse.floor.guarded import ONE_TIME, PROTECTED_NAMES, SECRET_NAMES
from skillhouse.floor.names import WireNames, nearest, wire_name
from skillhouse.floor.paths import (
    checked_parts,
    confine,
    file_stamp,
    is_utf8,
    open_beneath,
    open_directory_beneath,
    read_beneath,
)
from skillhouse.floor.wire import canonical_json, decode, encode, shaped

__all__ = [
    "ONE_TIME",
    "PROTECTED_NAMES",
    "SECRET_NAMES",
    "AmbiguousSkillError",
    "Clock",
    "ConfigError",
    "DecodeError",
    "Diagnostic",
    "Digest",
    "MissingExtraError",
    "Moment",
    "PathError",
    "Severity",
    "SkillError",
    "SkillhouseError",
    "StateError",
    "TreeDigest",
    "TreeError",
    "UnknownSkillError",
    "WireNameError",
    "WireNames",
    "canonical_json",
    "checked_parts",
    "confine",
    "decode",
    "digest",
    "encode",
    "file_stamp",
    "is_utf8",
    "nearest",
    "open_beneath",
    "open_directory_beneath",
    "read_beneath",
    "shaped",
    "system_clock",
    "tree_digest",
    "wire_name",
]
