"""Commands that obey what is typed into them while they run."""

from __future__ import annotations

import os
from collections.abc import Sequence

from skillhouse.permission import unwrapped

_OBEYING = frozenset(
    "less more most man info vi vim view nvim vimdiff nano emacs ed ex mc gdb ftp sftp telnet "
    "mysql psql sqlite3 tmux screen".split()
)
"""Programs that start others at a word that is typed: editors, pagers and shells of their own."""
_WITH_VALUE = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace"})
_PATCHING = frozenset({"add", "checkout", "commit", "reset", "restore", "stash"})
"""Sub-commands of git that can ask for each hunk, where `e` is an editor."""
_WRITING = frozenset({"commit", "tag", "notes", "merge", "revert"})
"""Those that want a text."""
_WITH_TEXT = ("--message", "--file", "--no-edit", "--reuse-message", "--dry-run", "--fixup")
_MERGING = frozenset({"merge", "revert"})
_WITHOUT_TEXT = ("--abort", "--quit", "--ff-only", "--squash", "--no-commit")
"""Options by which these make no commit of their own (git-merge(1), git-revert(1))."""
_REBASING = ("--autosquash", "--skip", "--exec")
"""Options by which `git rebase` may want a text, beside `_EDITING` (git-rebase(1))."""
_EDITING = ("--edit", "--interactive", "--reedit-message", "--edit-todo", "--continue")


def obeys_typing(argv: Sequence[str], environment: Sequence[tuple[str, str]] = ()) -> bool:
    """Whether a command may start what is typed into it.

    Args:
        argv: The command.
        environment: The variables before it: an editor among them is judged by itself.

    >>> [obeys_typing(one.split()) for one in ("less a", "git commit", "git commit -qm a", "ls")]
    [True, True, False, False]
    >>> obeys_typing(["git", "rebase", "--continue"], [("GIT_EDITOR", "true")])
    False
    """
    argv = unwrapped(tuple(argv)) or tuple(argv)
    name, words = os.path.basename(argv[0]), list(argv[1:])
    if name != "git":
        return name in _OBEYING
    words = _without_options(words)
    return bool(words) and _git_obeys(words[0], words[1:], environment)


def _git_obeys(verb: str, words: Sequence[str], environment: Sequence[tuple[str, str]]) -> bool:
    options = [word for word in words if word.startswith("-")]
    short = {sign for word in options if word[1:2] != "-" for sign in word[1:]}
    if verb == "stash" and words[:1] in (["show"], ["list"]):
        return False
    if verb in _PATCHING and (short & {"p", "i", "e"} or {"--patch", "--interactive"} & {*options}):
        return True
    if any(name == "GIT_EDITOR" for name, _ in environment):
        return False
    return any(word.startswith(_EDITING) for word in options) or _wants_text(verb, words, short)


def _wants_text(verb: str, words: Sequence[str], short: set[str]) -> bool:
    """Whether git opens an editor by itself."""
    if verb == "rebase":
        return bool(short & {"i", "x"}) or any(word.startswith(_REBASING) for word in words)
    if verb in _MERGING and any(word.startswith(_WITHOUT_TEXT) for word in words):
        return False
    has_text = short & {"m", "F", "C"} or any(word.startswith(_WITH_TEXT) for word in words)
    return verb in _WRITING and not _only_lists(verb, words, short) and not has_text


def _without_options(words: list[str]) -> list[str]:
    """Return what follows the options of git itself."""
    while words and words[0].startswith("-"):
        words = words[2 if words[0] in _WITH_VALUE else 1 :]
    return words


def _only_lists(verb: str, words: Sequence[str], short: set[str]) -> bool:
    """Whether a verb of git that may write a text only shows or names something."""
    if verb == "tag":
        return not short & {"a", "s", "u"} and "--annotate" not in words
    return verb == "notes" and not {"add", "append", "edit"} & {*words}
