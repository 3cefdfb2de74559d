"""The rows of `toolchains.toml`: version managers, and the caches of tools."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

PARTS = ("bin", "lib", "lib64", "libexec", "include", "share", "pyvenv.cfg")
"""Of an installed version, what programs need: not `etc`, where npm and others have settings."""
VENV_FILE = "pyvenv.cfg"
"""What makes a directory a virtual environment (PEP 405)."""
JUDGED = frozenset(
    # What is judged by its words, and is a part of the system everywhere (GNU coreutils, "Concept
    # index"; findutils, grep, sed, tar, gzip; shells; git).
    "git sh bash dash zsh ksh "
    "arch b2sum base32 base64 basename basenc cat chcon chgrp chmod chown chroot cksum comm cp "
    "csplit cut date dd df dir dircolors dirname du echo env expand expr factor false fmt fold "
    "groups head hostid id install join link ln logname ls md5sum mkdir mkfifo mknod mktemp mv "
    "nice nl nohup nproc numfmt od paste pathchk pinky pr printenv printf ptx pwd readlink "
    "realpath rm rmdir runcon seq sha1sum sha224sum sha256sum sha384sum sha512sum shred shuf sleep "
    "sort split stat stdbuf stty sum sync tac tail tee test timeout touch tr true truncate tsort "
    "tty uname unexpand uniq unlink uptime users vdir wc who whoami yes [ "
    "find xargs grep egrep fgrep sed awk gawk mawk tar gzip gunzip zcat bzip2 xz which diff cmp "
    "patch file".split()
)
"""Programs that are always the system's, where it has them."""


class Toolchain(Struct, frozen=True, kw_only=True):
    """One row of the table (docs/reference/toolchains.md)."""

    name: str
    source: str
    root: tuple[str, ...]
    prefixes: tuple[str, ...] = ()
    parts: tuple[str, ...] = PARTS
    beside: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    shims: tuple[str, ...] = ()
    version: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)


ENVIRONMENT = Toolchain(name="environment", source="PEP 405", root=())
"""What a virtual environment is that no row of the table names."""


class CacheRow(Struct, frozen=True, kw_only=True):
    """One cache of the table."""

    name: str
    source: str
    programs: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """At the top of a workspace: it counts there as well."""
    variables: Mapping[str, str] = field(default_factory=dict)
    keep: tuple[str, ...] = ()
    closed: bool = False
    at: tuple[str, ...] = ()
    """Where the person's own is, the first whose variable is set: runs see the cache there."""


@functools.cache
def tables() -> tuple[tuple[Toolchain, ...], tuple[CacheRow, ...]]:
    """Return the rows of `toolchains.toml`."""
    with Path(__file__).with_name("toolchains.toml").open("rb") as file:
        read = tomllib.load(file)
    chains = tuple(Toolchain(**_tuples(row)) for row in read["toolchains"])
    return chains, tuple(CacheRow(**_tuples(row)) for row in read["caches"])


def _tuples(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(one) if isinstance(one, list) else one for key, one in row.items()}
