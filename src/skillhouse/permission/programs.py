"""The programs whose arguments are known: which options may pass, and what the operands are.

A rule with a wildcard covers such a program only with the options listed here, each written in
full; what runs a program, writes a file or reads settings from one is left out on purpose.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence

from skillhouse.permission.git import git_use
from skillhouse.permission.wrappers import Grammar, ScannedOptions, Use, grammar, scan, unwrapped

PRINTING = frozenset({"echo", "true", "false", ":"})
"""Whatever they are given, they print it or do nothing."""
_TESTS = frozenset(
    "-a -b -c -d -e -f -g -h -k -L -n -N -o -O -G -p -r -s -S -t -u -w -x -z "
    "-eq -ne -lt -le -gt -ge -nt -ot -ef".split()
)

Operands = Callable[[Sequence[str], ScannedOptions], Use]


def use_of(name: str, arguments: Sequence[str]) -> Use | None:
    """Return what a program of the tables would do, or None for one that is not in them."""
    if name in PRINTING:
        return Use()
    if name in _SPECIAL:
        return _SPECIAL[name](arguments)
    known = _tables().get(name)
    if known is None:
        return None
    return _use(arguments, *known)


def loads_code(argv: Sequence[str]) -> bool:
    """Whether a command may run code from files that its words do not name.

    True for every program that is not in the tables, and for a known one whose words are not
    those of its table.

    >>> loads_code(("grep", "-r", "x", ".")), loads_code(("npm", "test"))
    (False, True)
    """
    use = _use_inside(argv)
    return use is None or bool(use.concern)


def only_reads(argv: Sequence[str]) -> bool:
    """Whether a command is one of the tables that by its words writes no file.

    >>> only_reads(("cat", "a")), only_reads(("cp", "a", "b")), only_reads(("make",))
    (True, False, False)
    """
    use = _use_inside(argv)
    return use is not None and not use.concern and not use.writes


def _use_inside(argv: Sequence[str]) -> Use | None:
    inner = unwrapped(argv)
    return use_of(inner[0].rsplit("/", 1)[-1], inner[1:]) if inner else None


def _use(arguments: Sequence[str], table: Grammar, operands: Operands) -> Use:
    scanned = scan(arguments, table)
    if scanned.unknown:
        return Use(concern=f"the option `{scanned.unknown[:60]}` is not one of those known as safe")
    use = operands(arguments, scanned)
    use.values += scanned.values
    return use


def _text(arguments: Sequence[str], scanned: ScannedOptions) -> Use:
    return Use()


def _read(arguments: Sequence[str], scanned: ScannedOptions) -> Use:
    return Use(reads=list(scanned.operands))


def _write(arguments: Sequence[str], scanned: ScannedOptions) -> Use:
    return Use(writes=list(scanned.operands))


def _copy(arguments: Sequence[str], scanned: ScannedOptions) -> Use:
    return Use(reads=scanned.operands[:-1], writes=scanned.operands[-1:])


def _second(arguments: Sequence[str], scanned: ScannedOptions) -> Use:
    """The second operand is written, as by uniq."""
    return Use(reads=scanned.operands[:1], writes=scanned.operands[1:])


def _mode(arguments: Sequence[str], scanned: ScannedOptions) -> Use:
    """The first operand is no path, as the mode of chmod."""
    return Use(writes=scanned.operands[1:])


def _grep(arguments: Sequence[str], scanned: ScannedOptions) -> Use:
    skipped = 0 if scanned.seen & {"e", "regexp"} else 1
    return Use(reads=scanned.operands[skipped:])


def _url(arguments: Sequence[str], scanned: ScannedOptions) -> Use:
    for place in scanned.operands:
        if not _WEB.match(arguments[place]):
            return Use(concern="an address that is not of the web")
    return Use()


_WEB = re.compile(r"https?://|(?![a-z]+:(?!\d))[A-Za-z0-9]", re.IGNORECASE)
_SED_ADDRESS = r"(?:\d+|\$|/[^/\\]*/)"
_SED = re.compile(
    rf"(?:{_SED_ADDRESS}(?:,{_SED_ADDRESS})?)?(?:[pdqD=]|s([/|,#])[^\\\n]*?\1[^\\\n]*?\1[gIip0-9]*)?"
)


def _sed(arguments: Sequence[str], scanned: ScannedOptions) -> Use:
    """One script of a few commands; the others read, write and run files."""
    if not scanned.operands:
        return Use(concern="a sed script that is not given as the first operand")
    script = arguments[scanned.operands[0]]
    sign = re.search(r"s([/|,#])", script)
    plain = sign is None or script.count(sign[1], sign.start()) == 3 or script.startswith("/")
    if _SED.fullmatch(script) is None or not plain or script.count("/") > 5:
        return Use(concern="a sed script that is not one of the plain ones")
    return Use(reads=scanned.operands[1:])


def _test(arguments: Sequence[str]) -> Use:
    """`-v` and `-R` evaluate subscripts in the shell's own test, and the rest is harmless."""
    for word in arguments:
        if "[" in word or (word[:1] == "-" and word not in _TESTS and not word[1:].isdigit()):
            return Use(concern=f"`{word[:60]}` may be evaluated by a shell")
    return Use(reads=[at for at, word in enumerate(arguments) if word[:1] != "-"])


@functools.cache
def _tables() -> Mapping[str, tuple[Grammar, Operands]]:
    sums = grammar("btzcw", "binary check tag text zero ignore-missing quiet status strict warn")
    grep = grammar(
        "abcEFGHhIiLlnoPqRrsTUVvwxyZze:A:B:C:D:d:m:",
        "extended-regexp fixed-strings basic-regexp perl-regexp regexp= ignore-case no-ignore-case "
        "word-regexp line-regexp null-data no-messages invert-match version help max-count= "
        "byte-offset line-number line-buffered with-filename no-filename label= only-matching "
        "quiet silent binary-files= text directories= devices= recursive dereference-recursive "
        "include= exclude= exclude-dir= files-without-match files-with-matches count initial-tab "
        "null before-context= after-context= context= color=? colour=?",
        numbers=True,
    )
    lines = "quiet silent verbose zero-terminated help version"
    tables: dict[str, tuple[Grammar, Operands]] = {
        "ls": (
            grammar(
                "aAbBcCdDfFgGhHiklLmnNopqQrRsStuUvxXZ1I:w:T:",
                "all almost-all author escape block-size= ignore-backups color=? directory dired "
                "classify=? file-type format= full-time group-directories-first no-group "
                "human-readable si dereference-command-line hide= hyperlink=? indicator-style= "
                "inode ignore= kibibytes dereference numeric-uid-gid literal hide-control-chars "
                "show-control-chars quote-name quoting-style= reverse recursive size sort= time= "
                "time-style= tabsize= width= context zero help version",
            ),
            _read,
        ),
        "cat": (
            grammar(
                "AbeEnstTuv",
                "show-all number-nonblank show-ends number squeeze-blank show-tabs "
                "show-nonprinting help version",
            ),
            _read,
        ),
        "head": (grammar("qvzc:n:", f"bytes= lines= {lines}", numbers=True), _read),
        "tail": (
            grammar(
                "fFqvzc:n:s:",
                f"bytes= follow=? lines= max-unchanged-stats= pid= retry sleep-interval= {lines}",
                numbers=True,
            ),
            _read,
        ),
        "wc": (grammar("cmlLw", "bytes chars lines max-line-length words total="), _read),
        "sort": (
            grammar(
                "bdfghiMnRrVcCmsuzk:t:S:",
                "ignore-leading-blanks dictionary-order ignore-case general-numeric-sort "
                "ignore-nonprinting month-sort human-numeric-sort numeric-sort random-sort "
                "reverse sort= version-sort batch-size= check=? debug key= merge stable "
                "buffer-size= field-separator= parallel= unique zero-terminated help version",
            ),
            _read,
        ),
        "uniq": (
            grammar(
                "cdDiuzf:s:w:",
                "count repeated all-repeated=? skip-fields= group=? ignore-case skip-chars= "
                "unique zero-terminated check-chars= help version",
            ),
            _second,
        ),
        "cut": (
            grammar(
                "nsb:c:d:f:z",
                "bytes= characters= delimiter= fields= complement only-delimited "
                "output-delimiter= zero-terminated",
            ),
            _read,
        ),
        "tr": (grammar("cCdst", "complement delete squeeze-repeats truncate-set1"), _text),
        "nl": (grammar("pb:d:f:h:i:l:n:s:v:w:", "body-numbering= number-format="), _read),
        "paste": (grammar("szd:", "delimiters= serial zero-terminated"), _read),
        "comm": (grammar("123z", "check-order nocheck-order output-delimiter= total"), _read),
        "cmp": (grammar("blsi:n:", "print-bytes verbose silent quiet bytes="), _read),
        "diff": (
            grammar(
                "abBcdeEfiNnpqrsTtuvwyZC:I:U:W:x:",
                "brief report-identical-files unified=? context=? side-by-side recursive "
                "new-file ignore-case ignore-all-space ignore-space-change ignore-blank-lines "
                "exclude= color=? text minimal width= label=",
            ),
            _read,
        ),
        "od": (grammar("abcdfhilosvxA:j:N:t:w:", "address-radix= format= read-bytes="), _read),
        "stat": (grammar("fLtc:", "dereference file-system format= printf= terse"), _read),
        "du": (
            grammar(
                "0abcDhHklLmPsSxd:t:",
                "all apparent-size summarize human-readable "
                "max-depth= total exclude= one-file-system",
            ),
            _read,
        ),
        "df": (grammar("ahHiklPTt:x:", "all human-readable inodes local print-type"), _read),
        "file": (grammar("bhiLkNnprsvz0", "brief mime mime-type mime-encoding"), _read),
        "readlink": (grammar("efmnqsvz", "canonicalize canonicalize-existing zero"), _read),
        "realpath": (grammar("eLmPqsz", "canonicalize-existing relative-to= strip"), _read),
        "tac": (grammar("brs:", "before regex separator="), _read),
        "rev": (grammar(), _read),
        "fold": (grammar("bsw:", "bytes spaces width="), _read),
        "column": (grammar("txnes:o:c:N:", "table separator= output-separator="), _read),
        "strings": (grammar("afoe:n:t:", "all bytes= radix="), _read),
        "md5sum": (sums, _read),
        "sha1sum": (sums, _read),
        "sha256sum": (sums, _read),
        "sha512sum": (sums, _read),
        "cksum": (sums, _read),
        "base64": (grammar("diw:", "decode ignore-garbage wrap="), _read),
        "tree": (grammar("adfilnpsughDFqNQrtcUCAL:P:I:", "noreport dirsfirst prune"), _read),
        "grep": (grep, _grep),
        "egrep": (grep, _grep),
        "fgrep": (grep, _grep),
        "rg": (
            grammar(
                "acFhHiIlLnNopPqsSuUvwx.0A:B:C:e:g:m:t:T:",
                "ignore-case smart-case case-sensitive fixed-strings word-regexp line-number "
                "no-line-number files files-with-matches files-without-match count count-matches "
                "only-matching invert-match hidden no-ignore glob= iglob= type= type-not= "
                "max-count= max-depth= context= after-context= before-context= regexp= "
                "multiline heading no-heading color= column json stats sort= sortr= "
                "with-filename no-filename type-list trim version help",
            ),
            _grep,
        ),
        "sed": (grammar("nErsuz", "quiet silent regexp-extended separate"), _sed),
        "jq": (
            grammar(
                "acCehjMnrsS",
                "arg= argjson= ascii-output color-output compact-output exit-status indent= "
                "join-output monochrome-output null-input raw-input raw-output slurp sort-keys "
                "tab",
            ),
            _grep,
        ),
        "curl": (
            grammar(
                "sSLfIivNg46A:e:m:H:X:",
                "silent show-error location fail head include verbose globoff compressed "
                "max-time= connect-timeout= header= request= user-agent= retry=",
            ),
            _url,
        ),
        "printf": (grammar(permutes=False), _text),
        "seq": (grammar("wf:s:", "format= separator= equal-width", numbers=True), _text),
        "basename": (grammar("azs:", "multiple suffix= zero"), _text),
        "dirname": (grammar("z", "zero"), _text),
        "pwd": (grammar("LP", "logical physical"), _text),
        "date": (grammar("uRId:", "utc universal rfc-email iso-8601=? date= rfc-3339="), _text),
        "uname": (grammar("asnrvmpio", "all kernel-name machine"), _text),
        "id": (grammar("aGgnruz", "group groups name real user zero"), _text),
        "whoami": (grammar(), _text),
        "hostname": (grammar("fisIdA"), _no_operand),
        "which": (grammar("as", "all"), _text),
        "sleep": (grammar(), _text),
        "mkdir": (grammar("pvm:", "parents verbose mode="), _write),
        "rmdir": (grammar("pv", "parents verbose"), _write),
        "touch": (grammar("acfhmd:t:", "no-create date= time="), _write),
        "rm": (
            grammar("fiIrRdv", "force interactive=? recursive dir verbose one-file-system"),
            _write,
        ),
        "mv": (grammar("finuvT", "force interactive no-clobber update=? verbose"), _write),
        "cp": (
            grammar(
                "abdfHiLlnPpRrsTuvx",
                "archive force interactive link no-clobber recursive update=? verbose "
                "dereference no-dereference preserve=? no-preserve= parents",
            ),
            _copy,
        ),
        "tee": (grammar("aip", "append ignore-interrupts"), _write),
        "chmod": (grammar("cfvR", "changes silent quiet verbose recursive"), _mode),
        "truncate": (grammar("cos:", "no-create size="), _write),
    }
    return tables


def _no_operand(arguments: Sequence[str], scanned: ScannedOptions) -> Use:
    return Use(concern="it would set what it shows" if scanned.operands else "")


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


_SPECIAL: Mapping[str, Callable[[Sequence[str]], Use]] = {
    "git": git_use,
    "find": find_use,
    "test": _test,
}
