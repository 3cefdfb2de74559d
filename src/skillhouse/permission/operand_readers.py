"""Readers of operands that a table cannot describe: expressions, scripts and addresses in words."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping

from skillhouse.floor.regex import regex
from skillhouse.permission.grammar import HAZARDS, CommandMeaning, Hazard
from skillhouse.permission.program_readers import LANGUAGES, read_ffmpeg, refuse

_TESTS = frozenset(
    "-a -b -c -d -e -f -g -h -k -L -n -N -o -O -G -p -r -s -S -t -u -w -x -z "
    "-eq -ne -lt -le -gt -ge -nt -ot -ef".split()
)


def _test(meaning: CommandMeaning) -> None:
    """`-v` and `-R` evaluate subscripts in the shell's own test, and the rest is harmless."""
    meaning.unknown = ""
    meaning.options.clear()
    meaning.operands[:] = []
    for at, word in enumerate(meaning.argv[1:], start=1):
        if word == "]" and at == len(meaning.argv) - 1 and meaning.argv[0] == "[":
            break
        if "[" in word or (word[:1] == "-" and word not in _TESTS and not word[1:].isdigit()):
            refuse(meaning, f"`{word[:60]}` may be evaluated by a shell")
            return
        if word[:1] != "-":
            meaning.values.append(word)


_FIND_PLAIN = frozenset(
    "! ( ) , -not -a -and -o -or -print -print0 -empty -prune -quit -true -false -depth -xdev "
    "-mount -daystart -follow -ls -readable -writable -executable -noleaf "
    "-ignore_readdir_race -nouser -nogroup".split()
)
_FIND_VALUED = frozenset(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -type -xtype "
    "-maxdepth -mindepth -size -mtime -mmin -atime -amin -ctime -cmin -newermt -perm -user "
    "-group -uid -gid -links -inum -lname -ilname -fstype -used -printf".split()
)
_FIND_FILES = frozenset({"-newer", "-anewer", "-cnewer", "-samefile"})


def _find(meaning: CommandMeaning) -> None:
    """What only looks; whatever runs, deletes or writes is refused (find(1), ACTIONS)."""
    argv, at = meaning.argv, 1
    meaning.unknown = ""
    meaning.hazards.clear()
    meaning.operands[:], meaning.kinds[:], meaning.values[:] = [], [], []
    meaning.reads[:] = []
    while at < len(argv) and argv[at] in ("-L", "-H", "-P"):
        at += 1
    while at < len(argv) and argv[at] not in _FIND_PLAIN and argv[at][:1] != "-":
        meaning.operands.append(at)
        meaning.reads.append(at)
        at += 1
    while at < len(argv):
        word = argv[at]
        if word in _FIND_VALUED or word in _FIND_FILES:
            if at + 1 == len(argv):
                refuse(meaning, f"`{word}` without a value")
                return
            if word in _FIND_FILES:
                meaning.reads.append(at + 1)
            at += 2
        elif word in _FIND_PLAIN:
            at += 1
        else:
            refuse(meaning, f"`{word[:60]}` of find is not one of those that only look")
            return


def _git(meaning: CommandMeaning) -> None:
    """Addresses that run programs, and refspecs that delete or force (gitremote-helpers(7))."""
    for index, at in enumerate(meaning.operands):
        word = meaning.argv[at]
        if "::" in word:
            said = f"`{word[:60]}` is an address that names a program"
            meaning.hazards.append(Hazard("runs", said, operand=index))
        elif meaning.path[:1] == ("push",) and word[:1] in ("+", ":"):
            said = HAZARDS["rewrites"].format(word[:60])
            # Before that it sends: what is asked says the worst of it.
            meaning.hazards.insert(0, Hazard("rewrites", said, operand=index))
    names = {option.name for option in meaning.options}
    if meaning.path == ("clean",) and not names.isdisjoint({"-n", "--dry-run"}):
        # Only says what it would remove, whatever else is given (git-clean(1)).
        meaning.hazards[:] = [one for one in meaning.hazards if one.kind != "deletes"]
    is_look = not names.isdisjoint(_GIT_APPLY_LOOKS) and "--apply" not in names
    if meaning.path == ("apply",) and is_look:
        # These turn off the work, which `--apply` turns on again (git-apply(1)).
        meaning.hazards[:] = [one for one in meaning.hazards if one.kind != "rewrites"]
    if _git_overwrites(meaning):
        said = f"`git {meaning.path[0]}` overwrites what is not committed"
        meaning.hazards.append(Hazard("rewrites", said, depth=len(meaning.path)))


_GIT_APPLY_LOOKS = frozenset({"--check", "--stat", "--numstat", "--summary"})
_GIT_BRANCHING = frozenset({"-b", "-B", "--orphan", "-d", "--detach", "-t", "--track"})
_GIT_PATHS = frozenset({"-2", "--ours", "-3", "--theirs", "--pathspec-from-file"})
_LIKE_A_PATH = regex(r"\.{1,2}(/.*)?|:.*|.*[*?\[].*|.*/|.*\.[A-Za-z]\w{0,4}")


def _git_overwrites(meaning: CommandMeaning) -> bool:
    """Whether git replaces files of the work tree by others (git-checkout(1), git-restore(1)).

    An only word of `git checkout` may be a branch: where it is a file is seen by the judge.
    """
    names = {option.name for option in meaning.options}
    if meaning.path == ("restore",):
        return names.isdisjoint({"-S", "--staged"}) or not names.isdisjoint({"-W", "--worktree"})
    if meaning.path != ("checkout",):
        return False
    if not names.isdisjoint(_GIT_BRANCHING):
        return "-B" in names
    words = meaning.words(meaning.operands)
    return (
        "--" in meaning.argv[2:-1]
        or not names.isdisjoint(_GIT_PATHS)
        or len(words) > 1
        or any(map(_LIKE_A_PATH.fullmatch, words))
    )


def with_hyphen(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return `tar czf FILE` as `tar -czf FILE` (tar(1), "Option styles").

    Only where at most the last letter takes a word, which both styles read alike.

    >>> with_hyphen(("tar", "czf", "a")), with_hyphen(("tar", "cfz", "a"))
    (('tar', '-czf', 'a'), ('tar', 'cfz', 'a'))
    """
    letters = argv[1] if len(argv) > 1 else ""
    is_alike = letters.isascii() and letters.isalpha() and _WITH_A_WORD.isdisjoint(letters[:-1])
    return (argv[0], f"-{letters}", *argv[2:]) if is_alike else argv


_WITH_A_WORD = frozenset("bfgCFHIKLNTVX")


def _tar(meaning: CommandMeaning) -> None:
    if meaning.argv[1:] and meaning.argv[1][:1] != "-":
        refuse(meaning, "the letters of tar without a hyphen: write one before them")
    for option in meaning.options:
        # "If the archive file name includes a colon, then it specifies a file on a remote machine".
        if option.name in ("-f", "--file") and option.value and ":" in option.value:
            said = HAZARDS["address"].format(option.value[:60])
            meaning.hazards.append(Hazard("address", said, option=(option.name, option.value)))


_PREFIX = regex(r"[A-Za-z][\w.+-]*[:,]|[@|<>-].|\||github\.com/", re.ASCII)
_TO_OUTPUT = frozenset({"png:-", "jpg:-", "jpeg:-"})


def _prefixed(meaning: CommandMeaning) -> None:
    """A prefix chooses a format, a protocol or a file of words.

    Sources: ImageMagick, "Input Filename"; ffmpeg-protocols(1), subfile; docker build, "Git
    repositories".
    """
    for index, at in enumerate(meaning.operands):
        word = meaning.argv[at]
        if _PREFIX.match(word) and word not in _TO_OUTPUT:
            said = f"`{word[:60]}` is more than the path of a file"
            meaning.hazards.append(Hazard("address", said, operand=index))
    paths = {*meaning.read_values, *meaning.written_values}
    for option in meaning.options:
        value = option.value or ""
        if paths & {value, value.removeprefix("=")} and _PREFIX.match(value.removeprefix("=")):
            said = f"`{value[:60]}` is more than the path of a file"
            meaning.hazards.append(Hazard("address", said, option=(option.name, value)))


def _ffmpeg(meaning: CommandMeaning) -> None:
    """Its options and filters, and its paths, which may be protocols."""
    read_ffmpeg(meaning)
    _prefixed(meaning)


def _qpdf(meaning: CommandMeaning) -> None:
    """Behind `--` qpdf reads options again, and `@FILE` is arguments of a file (qpdf, "Usage")."""
    _prefixed(meaning)
    if "--" in meaning.argv:
        refuse(meaning, "`--` does not end the options of qpdf")
    if any(option.name == "--empty" for option in meaning.options):
        meaning.written_values += meaning.words(meaning.reads)  # There is no input file.


def _date(meaning: CommandMeaning) -> None:
    """An operand without `+` sets the clock (date(1)), but not with the `-j` of BSD."""
    for index, at in enumerate(meaning.operands):
        if meaning.argv[at][:1] != "+" and all(o.name != "-j" for o in meaning.options):
            said = HAZARDS["elsewhere"].format(f"date {meaning.argv[at][:60]}")
            meaning.hazards.append(Hazard("elsewhere", said, operand=index))


def _pager(meaning: CommandMeaning) -> None:
    """`+WORDS` are commands of the pager, and so is what follows a line end in a pattern."""
    for index, at in enumerate(meaning.operands):
        word = meaning.argv[at]
        if word[:1] == "+":
            meaning.hazards.append(Hazard("runs", HAZARDS["runs"].format(word[:60]), operand=index))
    for option in meaning.options:
        if not (option.value or "").isprintable():
            refuse(meaning, f"the value of `{option.name}` is more than one line")


def _link(meaning: CommandMeaning) -> None:
    """A link is another name of its target, to read and to write (ln(1)).

    The target of a symbolic link is relative to where the link is.
    """
    words = meaning.words(meaning.operands)
    into = [o.value or "" for o in meaning.options if o.name in ("-t", "--target-directory")]
    targets = words if into or len(words) == 1 else words[:-1]
    links = into or [words[-1] if len(words) > 1 else "."] if words else []
    is_symbolic = any(option.name in ("-s", "--symbolic") for option in meaning.options)
    meaning.reads[:] = meaning.operands[: len(targets)]
    meaning.writes[:] = meaning.operands
    for target in targets:
        if is_symbolic and ".." in target.split("/"):
            said = HAZARDS["elsewhere"].format(target[:60])
            meaning.hazards.append(Hazard("elsewhere", said, operand=len(words) - 1))
        for link in links:
            # Whether it is a directory is not known here.
            meaning.written_values.append(posixpath.join(link, posixpath.basename(target)))
            for directory in (link, posixpath.dirname(link)) if is_symbolic else ():
                reached = posixpath.join(directory, target)
                meaning.read_values.append(reached)
                meaning.written_values.append(reached)


def _requirement(meaning: CommandMeaning) -> None:
    """`NAME @ ADDRESS` and addresses (pip(1), "Requirement Specifiers"; PEP 508)."""
    for index, at in enumerate(meaning.operands):
        word = meaning.argv[at]
        if "@" in word or "://" in word:
            said = HAZARDS["address"].format(word[:60])
            meaning.hazards.append(Hazard("address", said, operand=index))
    for option in meaning.options:
        value = option.value or ""
        if option.name in ("-e", "--editable") and ("@" in value or "://" in value):
            said = HAZARDS["address"].format(value[:60])
            meaning.hazards.append(Hazard("address", said, option=(option.name, value)))


_PACKAGE_ADDRESS = regex(
    r"(?:.+@)?(?:(?:github|gitlab|bitbucket|gist|git|ssh|https?|file|link|portal|npm)[:+]|"
    r"(?![@./])[\w.-]+/[\w.-]+(?:#|$))"
)


def _package(meaning: CommandMeaning) -> None:
    """A package by an address: `USER/REPO`, `git+…`, `NAME@npm:OTHER` (npm-install(1))."""
    for index, at in enumerate(meaning.operands):
        word = meaning.argv[at]
        if _PACKAGE_ADDRESS.match(word):
            said = HAZARDS["address"].format(word[:60])
            meaning.hazards.append(Hazard("address", said, operand=index))


_SECRET_KINDS = regex(r"secret|token|credential|password|key")


def _kubectl_kinds(meaning: CommandMeaning) -> None:
    """Kinds in a list, and `KIND/NAME`; each is any but those of credentials (kubectl get)."""
    for place, at in enumerate(meaning.operands):
        word = meaning.argv[at]
        kinds = [part.partition("/")[0] for part in word.split(",")]
        if place > 0 and "/" not in word:
            continue
        for kind in kinds:
            if not re.fullmatch(r"[a-z][a-z0-9.-]*", kind) or _SECRET_KINDS.search(kind):
                said = HAZARDS["secret"].format(word[:60])
                meaning.hazards.append(Hazard("secret", said, operand=place))


def _npm_exec(meaning: CommandMeaning) -> None:
    """Options behind the program are npm's up to `--` (npm-exec(1)), so that one is refused."""
    if meaning.started is None or "--" in meaning.argv[: meaning.at + 1]:
        return
    if any(word[:1] == "-" for word in meaning.argv[meaning.at + 1 :]):
        refuse(meaning, "options behind the program are npm's: write `--` before the program")


_NODE_READS_NOTHING = frozenset(
    "-v --version -h --help --v8-options --completion-bash -c --check -e --eval -p --print -pe "
    "--test --run".split()
)


def _node(meaning: CommandMeaning) -> None:
    """Without a script, code in a word or a question, its input is the script (node(1))."""
    if meaning.operands or not _NODE_READS_NOTHING.isdisjoint(o.name for o in meaning.options):
        return
    said = HAZARDS["runs"].format(f"{meaning.argv[0]} without a script"[:60])
    meaning.hazards.append(Hazard("runs", said, depth=1))


def _shell(meaning: CommandMeaning) -> None:
    """With `-n` a script is read and not run, unless `+n` takes it back (bash(1), SHELL BUILTIN
    COMMANDS, set; sh(1p), OPTIONS)."""
    if not meaning.operands or all(option.name != "-n" for option in meaning.options):
        return
    if meaning.argv[meaning.operands[0]][:1] not in ("+", "-"):
        meaning.hazards[:] = [hazard for hazard in meaning.hazards if hazard.operand != 0]
        meaning.scripts.clear()
        meaning.reads.append(meaning.operands[0])


_GO_PACKAGE = regex(r"\.|(?:\./)?(?!\.\.?(?:/|$))[\w.-]+(?:/(?!\.\.?(?:/|$))[\w.-]+)*/?", re.ASCII)


def _go_run(meaning: CommandMeaning) -> None:
    """A package of the workspace by its path, or a file of it, is compiled as `go build` does it;
    one by its import path may be of another module, `@VERSION` is fetched (go help run)."""
    if not meaning.operands:
        return
    word = meaning.argv[meaning.operands[0]]
    is_path = word == "." or word.startswith("./") or word.endswith(".go")
    if is_path and _GO_PACKAGE.fullmatch(word):
        meaning.hazards[:] = [hazard for hazard in meaning.hazards if hazard.operand != 0]
        meaning.scripts.clear()
        meaning.reads.append(meaning.operands[0])


def _curl_data(meaning: CommandMeaning) -> None:
    """`@FILE` in data and headers is a file that is sent (curl(1), --data, --header)."""
    for option in meaning.options:
        if option.value is None:
            continue
        name, value = option.name, option.value
        if name in ("-F", "--form") and "=" in value:
            value = value.partition("=")[2]
            if value[:1] == "<":
                value = f"@{value[1:]}"
        elif name == "--data-urlencode" and "@" in value and "=" not in value.partition("@")[0]:
            value = value[value.index("@") :]
        if name in ("-w", "--write-out") and "%output{" in value:
            refuse(meaning, "`%output{` of curl writes a file")
        if value[:1] == "@":
            path = value[1:].partition(";")[0]
            meaning.read_values.append(path)


_GPG_COMMANDS = frozenset(
    "--verify --dearmor --dearmour --enarmor --enarmour --list-packets --show-keys --show-key "
    "--export --fingerprint --list-keys --list-public-keys --list-key -k --list-signatures "
    "--list-sigs --list-sig --check-signatures --check-sigs --check-sig --list-config --version "
    "--print-md --print-mds --encrypt -e --store --help -h --warranty --dump-options".split()
)


def _gpg(meaning: CommandMeaning) -> None:
    """Without a command gpg decrypts its operand or its input (gpg(1), COMMANDS)."""
    if not any(option.name in _GPG_COMMANDS for option in meaning.options):
        said = HAZARDS["secret"].format("gpg without a command")
        meaning.hazards.append(Hazard("secret", said, operand=len(meaning.operands)))


def _host_path(meaning: CommandMeaning) -> None:
    """`host:path`, `host::module` and `rsync://` are another machine (rsync(1), scp(1))."""
    for index, at in enumerate(meaning.operands):
        word = meaning.argv[at]
        if ":" in word.partition("/")[0]:
            said = HAZARDS["address"].format(word[:60])
            meaning.hazards.append(Hazard("address", said, operand=index))


def _env(meaning: CommandMeaning) -> None:
    """`NAME=value` words before the command are variables (env(1))."""
    meaning.inner = 0
    for at in meaning.operands:
        name, sign, value = meaning.argv[at].partition("=")
        if not sign:
            meaning.inner = at
            return
        meaning.environment.append((name, value))
    if [option.name for option in meaning.options] not in (["--help"], ["--version"]):
        said = HAZARDS["secret"].format("env without a command")
        meaning.hazards.append(Hazard("secret", said, operand=len(meaning.operands)))


def _xargs(meaning: CommandMeaning) -> None:
    """The words that it adds come from its input, which no rule has seen (xargs(1))."""
    meaning.inner = 0
    refuse(meaning, "`xargs` adds words from its input, which no rule has seen")


_SETS = regex(r"([^\s:?+!=]+)\s*(!|[:?+]*)=(.*)", re.DOTALL)
_SHELL_SIGNS = regex(r"[$`;|&<>\n]")
"""What a shell, or make itself, takes for a command in a value that a recipe puts into its line."""
_MAKE_ORDERS = frozenset({"SHELL", ".SHELLFLAGS", "MAKE", "MAKEFLAGS", "GNUMAKEFLAGS", "MAKEFILES"})
_MAKE_PROGRAMS = frozenset(
    "AR AS CC CXX CPP FC M2C PC CO GET LEX YACC LINT MAKEINFO TEX TEXI2DVI WEAVE CWEAVE TANGLE "
    "CTANGLE RM LD PYTHON PYTHON3 NODE NPM GO CARGO PIP UV DOCKER".split()
)
"""Variables of implicit rules that name programs (GNU make, 10.3), and those of many makefiles."""
_PROGRAM_NAME = regex(r"[A-Za-z0-9_+.-]+")


def _recipe(meaning: CommandMeaning) -> None:
    """Variables and arguments of a recipe, which its lines hold as they are (GNU make, 6.5, 9.5;
    just, "Recipe Parameters"; Task, "CLI_ARGS")."""
    # Operands behind an option that is not known have no kinds, and are asked about for it.
    for index, (at, _) in enumerate(zip(meaning.operands, meaning.kinds, strict=False)):
        word = meaning.argv[at]
        name, how, value = found.groups() if (found := _SETS.fullmatch(word)) else ("", "", word)
        names_other = name in _MAKE_PROGRAMS and not _PROGRAM_NAME.fullmatch(value)
        if how == "!" or name in _MAKE_ORDERS or names_other or _SHELL_SIGNS.search(value):
            # It is no task then, which a rule covers with its file: only by its words.
            meaning.kinds[index] = "runs"


def _prints(meaning: CommandMeaning) -> None:
    """Whatever they are given, they print it or do nothing; a word like an option is a word."""
    meaning.unknown = ""
    meaning.options.clear()


READERS: Mapping[str, Callable[[CommandMeaning], None]] = {
    **LANGUAGES,
    "curl_data": _curl_data,
    "date": _date,
    "env": _env,
    "ffmpeg": _ffmpeg,
    "find": _find,
    "git": _git,
    "go_run": _go_run,
    "gpg": _gpg,
    "host_path": _host_path,
    "kubectl_kinds": _kubectl_kinds,
    "link": _link,
    "node": _node,
    "npm_exec": _npm_exec,
    "pager": _pager,
    "prefixed": _prefixed,
    "prints": _prints,
    "qpdf": _qpdf,
    "package": _package,
    "recipe": _recipe,
    "requirement": _requirement,
    "shell": _shell,
    "tar": _tar,
    "test": _test,
    "xargs": _xargs,
}
"""Each named by `reader` of a table; called with what the table made of the words."""
