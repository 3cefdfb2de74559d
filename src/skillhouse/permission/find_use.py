"""What a `find` does: a small language of its own, of which only the looking part passes."""

from __future__ import annotations

from collections.abc import Sequence

from skillhouse.permission.options import Use

_PLAIN = frozenset(
    "! ( ) , -not -a -and -o -or -print -print0 -empty -prune -quit -true -false -depth -xdev "
    "-mount -daystart -follow -ls -readable -writable -executable -noleaf "
    "-ignore_readdir_race -nouser -nogroup".split()
)
_VALUED = frozenset(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -type -xtype "
    "-maxdepth -mindepth -size -mtime -mmin -atime -amin -ctime -cmin -newermt -perm -user "
    "-group -uid -gid -links -inum -lname -ilname -fstype -used -printf".split()
)
_FILES = frozenset({"-newer", "-anewer", "-cnewer", "-samefile"})


def find_use(arguments: Sequence[str]) -> Use:
    """Return what a find would do; whatever runs, deletes or writes is a concern."""
    at, use = 0, Use()
    while at < len(arguments) and arguments[at] in ("-L", "-H", "-P"):
        at += 1
    while at < len(arguments) and arguments[at] not in _PLAIN and arguments[at][:1] != "-":
        use.reads.append(at)
        at += 1
    while at < len(arguments):
        word = arguments[at]
        if word in _VALUED or word in _FILES:
            if at + 1 == len(arguments):
                return Use(concern=f"`{word}` without a value")
            if word in _FILES:
                use.reads.append(at + 1)
            at += 2
        elif word in _PLAIN:
            at += 1
        else:
            return Use(concern=f"`{word[:60]}` of find is not one of those that only look")
    return use
