"""What a `git` command does: the options that may pass, by sub-command.

Left out is what starts programs (`-c`, `--ext-diff`, `--textconv`, `-O`, `--upload-pack`,
`--exec`), writes files of any name (`--output`) or leads to another repository (`-C`,
`--git-dir`), whose own settings name programs.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Mapping, Sequence

from skillhouse.floor import SECRET_NAMES, is_secret
from skillhouse.permission.wrappers import Grammar, Use, grammar, scan

_GLOBAL = frozenset({"--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs"})

_DIFF = (
    "patch no-patch unified= raw patch-with-raw indent-heuristic no-indent-heuristic minimal "
    "patience histogram anchored= diff-algorithm= stat=? compact-summary numstat shortstat "
    "dirstat=? cumulative summary patch-with-stat name-only name-status submodule=? color=? "
    "no-color color-moved=? color-words=? word-diff=? word-diff-regex= no-renames rename-empty "
    "check full-index binary abbrev=? break-rewrites=? find-renames=? find-copies=? "
    "find-copies-harder irreversible-delete diff-filter= pickaxe-all pickaxe-regex "
    "text ignore-cr-at-eol ignore-space-at-eol ignore-space-change ignore-all-space "
    "ignore-blank-lines inter-hunk-context= function-context exit-code quiet no-ext-diff "
    "no-textconv ignore-submodules=? src-prefix= dst-prefix= no-prefix relative=? cached staged "
    "merge-base"
)
_LOG = (
    f"{_DIFF} oneline decorate=? no-decorate graph all branches=? tags=? remotes=? max-count= "
    "skip= since= after= until= before= author= committer= grep= all-match invert-grep "
    "regexp-ignore-case extended-regexp fixed-strings merges no-merges first-parent reverse "
    "date-order author-date-order topo-order pretty=? format= abbrev-commit no-abbrev-commit "
    "date= relative-date follow full-history simplify-by-decoration show-signature left-right "
    "cherry-pick cherry-mark no-notes notes=? source full-diff"
)


def git_use(arguments: Sequence[str]) -> Use:
    at = 0
    while at < len(arguments) and arguments[at] in _GLOBAL:
        at += 1
    if at == len(arguments) or list(arguments[at:]) in (["--version"], ["--help"]):
        return Use()
    table = _tables().get(arguments[at])
    if table is None:
        concern = f"`git {arguments[at][:60]}` is not one of the sub-commands known as safe"
        return Use(concern=concern, unlisted=at == 0 and arguments[0][:1] != "-")
    rest = arguments[at + 1 :]
    scanned = scan(rest, table)
    if scanned.unknown:
        message = f"the option `{scanned.unknown[:60]}` is not one of those known as safe"
        return Use(concern=message)
    operands = [rest[place] for place in scanned.operands]
    if any("::" in word for word in operands):
        return Use(concern="an address with `::` names a program")
    shift = at + 1
    return Use(reads=[place + shift for place in scanned.operands], values=scanned.values)


@functools.cache
def _tables() -> Mapping[str, Grammar]:
    log = grammar("pusRabwWzBMCDciEFn:U:S:G:l:L:", _LOG, numbers=True)
    return {
        "status": grammar(
            "sbvuz",
            "short branch show-stash porcelain=? long verbose untracked-files=? ignored=? "
            "ignore-submodules=? column=? no-column ahead-behind no-ahead-behind renames "
            "no-renames",
        ),
        "diff": grammar("pusRabwWzBMCDU:S:G:l:", _DIFF, numbers=True),
        "log": log,
        "show": log,
        "shortlog": grammar("nsecw", "numbered summary email committer"),
        "blame": grammar("bltfnsepwMCL:S:", "root show-stats porcelain date= show-email"),
        "branch": grammar(
            "arvqil",
            "all remotes verbose list show-current sort= format= "
            "contains=? merged=? no-merged=? color=? no-color",
        ),
        "tag": grammar("ln", "list sort= format= contains=? merged=? points-at="),
        "remote": grammar("v", "verbose"),
        "rev-parse": grammar(
            "q",
            "verify short=? abbrev-ref=? show-toplevel show-prefix is-inside-work-tree quiet "
            "symbolic-full-name git-dir",
        ),
        "rev-list": grammar("n:", "count all max-count= since= until= oneline"),
        "describe": grammar("", "all tags always dirty=? abbrev= long match= exact-match"),
        "ls-files": grammar(
            "cdmosuzktvx:",
            "cached deleted modified others ignored stage unmerged killed exclude-standard "
            "exclude= full-name error-unmatch",
        ),
        "ls-tree": grammar("drtlz", "long name-only full-name full-tree abbrev=?"),
        "cat-file": grammar("tsep", ""),
        "reflog": log,
        "stash": grammar("", "include-untracked keep-index quiet"),
        "add": grammar("nvfAuN", "dry-run verbose force all update intent-to-add refresh"),
        "commit": grammar(
            "aqvsm:",
            "all quiet verbose signoff message= amend no-edit allow-empty dry-run author= date= "
            "short porcelain",
        ),
        "restore": grammar("qSWs:", "staged worktree source= quiet"),
        "rm": grammar("fnrq", "dry-run cached ignore-unmatch quiet force"),
        "mv": grammar("fknv", "force dry-run verbose"),
        "checkout": grammar("qfb:B:", "quiet force detach track=?"),
        "switch": grammar("qfdc:C:", "quiet create= detach track=?"),
        "fetch": grammar("aqvptnf", "all quiet verbose prune tags no-tags dry-run depth= force"),
        "pull": grammar("qvr", "quiet verbose rebase=? ff-only no-rebase ff no-ff prune"),
        "push": grammar(
            "fnuvqd",
            "force force-with-lease=? dry-run set-upstream tags follow-tags verbose quiet delete "
            "porcelain atomic",
        ),
        "merge": grammar("qm:", "quiet ff no-ff ff-only abort continue squash no-commit no-edit"),
        "reset": grammar("q", "quiet soft mixed hard keep"),
    }


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
