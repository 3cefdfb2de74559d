"""Readers of operands that a table cannot describe: expressions, scripts and addresses in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from skillhouse.permission.command_meaning import CommandMeaning, Hazard
from skillhouse.permission.grammar import HAZARDS

_SED_ADDRESS = r"(?:\d+|\$|/[^/\\]*/)"
_SED = re.compile(
    rf"(?:{_SED_ADDRESS}(?:,{_SED_ADDRESS})?)?(?:[pdqD=]|s([/|,#])[^\\\n]*?\1[^\\\n]*?\1[gIip0-9]*)?"
)


def _sed(meaning: CommandMeaning) -> None:
    """One script of a few commands; the others read, write and run files (sed(1), COMMANDS)."""
    words = meaning.words(meaning.operands)
    if not words:
        _refuse(meaning, "a sed script that is not given as the first operand")
        return
    script = words[0]
    sign = re.search(r"s([/|,#])", script)
    plain = sign is None or script.count(sign[1], sign.start()) == 3 or script.startswith("/")
    if _SED.fullmatch(script) is None or not plain or script.count("/") > 5:
        _refuse(meaning, "a sed script that is not one of the plain ones")
    # `-i` makes each file that is read one that is written.
    if any(option.name in ("-i", "--in-place") for option in meaning.options):
        meaning.writes += meaning.operands[1:]


_AWK_TEXT = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"')
_AWK_REGEX = re.compile(r"(?<=[~(,!&|;{])\s*/(?:[^/\\\n]|\\[^\n])*/|^\s*/(?:[^/\\\n]|\\[^\n])*/")
_AWK_UNSAFE = re.compile(
    r"(?<!\|)\|(?!\|)|[@`\"]|\b(?:system|getline|close|fflush|ENVIRON|ARGV|ARGC|PROCINFO)\b"
)


def _awk(meaning: CommandMeaning) -> None:
    """A program that only prints: no pipe, no file, no call that runs (POSIX awk, "Actions")."""
    words = meaning.words(meaning.operands)
    if not words:
        _refuse(meaning, "an awk program that is not given as the first operand")
        return
    program = _AWK_REGEX.sub("", _AWK_TEXT.sub("", words[0]))
    statements = re.split(r"[;{}\n]", program)
    # A `>` is a comparison, but behind `print` it is a file, in brackets or not.
    writes = any("print" in statement and ">" in statement for statement in statements)
    if writes or _AWK_UNSAFE.search(program) or "//" in program:
        _refuse(meaning, "an awk program that could run or write something")


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
            _refuse(meaning, f"`{word[:60]}` may be evaluated by a shell")
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
                _refuse(meaning, f"`{word}` without a value")
                return
            if word in _FIND_FILES:
                meaning.reads.append(at + 1)
            at += 2
        elif word in _FIND_PLAIN:
            at += 1
        else:
            _refuse(meaning, f"`{word[:60]}` of find is not one of those that only look")
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
            meaning.hazards.append(Hazard("rewrites", said, operand=index))


def _tar_old_style(meaning: CommandMeaning) -> None:
    """`tar xzf FILE`: the first word without a hyphen is letters (tar(1), "Option styles")."""
    if meaning.argv[1:] and meaning.argv[1][:1] != "-":
        _refuse(meaning, "the letters of tar without a hyphen: write one before them")
    for option in meaning.options:
        # "If the archive file name includes a colon, then it specifies a file on a remote machine".
        if option.name in ("-f", "--file") and option.value and ":" in option.value:
            said = HAZARDS["address"].format(option.value[:60])
            meaning.hazards.append(Hazard("address", said, option=(option.name, option.value)))


_PREFIX = re.compile(r"[A-Za-z][\w.+-]*:|[@|<>-].|\|", re.ASCII)


def _prefixed(meaning: CommandMeaning) -> None:
    """A prefix chooses a format, a protocol or a file of words (ImageMagick, "Input Filename")."""
    for index, at in enumerate(meaning.operands):
        word = meaning.argv[at]
        if _PREFIX.match(word):
            said = f"`{word[:60]}` is more than the path of a file"
            meaning.hazards.append(Hazard("address", said, operand=index))
    for option in meaning.options:
        value = option.value or ""
        if value in meaning.read_values and _PREFIX.match(value):
            said = f"`{value[:60]}` is more than the path of a file"
            meaning.hazards.append(Hazard("address", said, option=(option.name, value)))


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
            _refuse(meaning, "`%output{` of curl writes a file")
        if value[:1] == "@":
            path = value[1:].partition(";")[0]
            meaning.read_values.append(path)


def _jq(meaning: CommandMeaning) -> None:
    """The filter may import modules and read the environment (jq 1.6 manual, "Modules")."""
    if meaning.operands:
        program = meaning.argv[meaning.operands[0]]
        if re.search(r"\b(import|include|input_filename|env)\b|\$ENV|\$__", program):
            _refuse(meaning, "a jq filter that imports, or reads the environment")


_JQ_UNSAFE = re.compile(r"\b(import|include|input_filename|\$ENV|env|getpath_file)\b|\$(__|ENV)")


def _jq_option(meaning: CommandMeaning) -> None:
    """The same of a filter in an option: gh reads its environment, with the token in it."""
    for option in meaning.options:
        if option.name in ("-q", "--jq") and _JQ_UNSAFE.search(option.value or ""):
            _refuse(meaning, "a jq filter that imports, or reads the environment")


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


def _xargs(meaning: CommandMeaning) -> None:
    """The words that it adds come from its input, which no rule has seen (xargs(1))."""
    meaning.inner = 0
    _refuse(meaning, "`xargs` adds words from its input, which no rule has seen")


def _prints(meaning: CommandMeaning) -> None:
    """Whatever they are given, they print it or do nothing; a word like an option is a word."""
    meaning.unknown = ""
    meaning.options.clear()


def _refuse(meaning: CommandMeaning, said: str) -> None:
    meaning.unknown = said


READERS: Mapping[str, Callable[[CommandMeaning], None]] = {
    "awk": _awk,
    "curl_data": _curl_data,
    "env": _env,
    "find": _find,
    "gpg": _gpg,
    "host_path": _host_path,
    "git": _git,
    "jq": _jq,
    "prefixed": _prefixed,
    "jq_option": _jq_option,
    "prints": _prints,
    "sed": _sed,
    "tar_old_style": _tar_old_style,
    "test": _test,
    "xargs": _xargs,
}
"""Each named by `reader` of a table; called with what the table made of the words."""
