"""Programs without a table: what a wildcard covers of their words, and what these could start.

Nothing is known of such a program but that it may do anything with a word that says what to do. So
a wildcard covers plain words, files that hold data, and options without values; and a word that
names a program is taken for that program at its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from skillhouse.floor.regex import regex
from skillhouse.permission import hazards
from skillhouse.permission.command_reader import read_command
from skillhouse.permission.grammar import CommandMeaning, CommandTable
from skillhouse.permission.path_policy import PathPolicy

WORDS_MAX = 256
"""Words of a command that are tried as the names of programs; more are asked about."""

_OPTION = regex(r"--?[A-Za-z0-9][A-Za-z0-9_-]*")
_PLAIN = regex(r"[^\W_][\w.+-]*")
_PATH = regex(r"[\w./+@ -]+")
_NUMBER = regex(r"[+-]?\d+(\.\d+)?%?")
_PATTERN = regex(r"[\w./*?-]*[\w*?]\.(\w+)")
_PARTS = regex(r"[^\w./+-]+")
"""Between the parts of a word each of which may be a program: `EXEC:"rm -rf v"`, `--rsh=ssh`."""

_ACTING = regex(
    r"exec|eval|expr|cmd|command|run|plugin|load|require|import|unsafe|shell|script|hook|conf|"
    r"init|startup|proxy|wrapper|launch|program|interp|editor|pager|browser|filter|pipe|spawn|"
    r"system|module|preload|specs|rsh|url|upload|post|send|host|remote|server|delete|remove|purge|"
    r"force|overwrite|in-?place|output|write|root|sudo|password|token|macro|trust|allow|rules?|"
    r"repl|interactive|code|lang|backend|driver|tool|include|path|file|dir|prefix|fix|save|apply|"
    r"publish|deploy|push|install|upgrade|update|destroy|kill|drop|reset|clean|sync|share|open|web|"
    r"edit|serve|listen|daemon|watch|sandbox|insecure|privileged|live|commit|sign|yes|auto",
)
"""In the names of options that say what is run, read or written."""
_HARMLESS = frozenset(
    "--verbose --quiet --silent --json --help --version --dry-run --color --no-color --colour "
    "--recursive --all --long --human-readable --summary --stats --list --debug --strict".split()
)
"""Long options behind which an operand is no value, in all programs that are known."""
_LETTERS = frozenset("ahnqv0123456789")
"""Letters that seldom have a value which is more than a number."""
_VERBS = frozenset(
    "exec run eval shell sh call script start up down apply deploy destroy delete remove rm del "
    "purge push publish release upload send install uninstall add upgrade update login logout "
    "auth config configure set edit open serve server connect ssh attach debug console repl task "
    "job build test check bench compile watch dev make do spawn launch import load plugin plugins "
    "init new create generate gen sync pull clone fetch get download commit merge rebase reset "
    "revert restore clean prune gc migrate rollback drop exec-all foreach each with kill stop "
    "rollout scale patch reload restart enable disable unlock export submit approve".split()
)
"""Sub-commands of many programs that run, change or send something."""
BY_HAND = regex(
    r"(?i).*\.(?:c|h|cc|cpp|hpp|rs|go|java|kt|swift|py|rb|php|pl|lua|js|mjs|cjs|ts|tsx|jsx|vue|sh|"
    r"bash|zsh|fish|sql|md|rst|adoc|tex|txt|toml|ya?ml|json|ini|cfg|conf|html?|css|scss|lock|csv)"
    r"|(?:.*/)?(?:Makefile|Dockerfile|README|LICENSE)"
)
"""Paths of files that people write."""
_DATA = frozenset(("csv", "json"))
"""Suffixes of files that many programs read two of."""
CODE_SUFFIXES = frozenset(
    "py pyw pyc pyz ipynb sh bash zsh fish ksh csh ps1 bat cmd js mjs cjs jsx ts mts cts tsx rb "
    "pl pm t php phar lua tcl tk exp r rmd jl m scm ss rkt lisp lsp cl el fasl hs lhs ml mli ex "
    "exs erl beam escript clj cljs cljc edn groovy gradle kts scala sc java jar class war go rs "
    "zig nim d v so dll dylib o a ko wasm exe out app awk sed nix dhall jsonnet star bzl bazel "
    "mk mak cmake ninja just spec service desktop scpt applescript vbs wsf ahk gdb lldb sql "
    "xsh nu elv janet fnl raku p6 cr dart swift kt vim tex ltx sty cls latexmkrc ps eps gp gnuplot "
    "plt plot roff ms me man tr bc dc oct sage mac max wl nb feature robot tap do ado sas sps por "
    "ll mir k q ijs apl forth fs fsx csx cs vb ron pp hcl tf rego j2 tmpl erb".split()
)
"""Ends of names of files that some program runs."""


def shape_concern(words: Sequence[str], places: PathPolicy) -> str:
    """Return the first of some words of a program without a table that a wildcard does not cover.

    >>> shape_concern(["-v", "--json", "report"], PathPolicy())
    ''
    >>> shape_concern(["-wrapper", "./evil"], PathPolicy())
    '`-wrapper` may say what is run, read or written'
    """
    if len(words) > WORDS_MAX:
        return f"more than {WORDS_MAX} words of a program without a grammar"
    before, is_first, ended = "", True, False
    files: list[str] = []
    for word in words:
        if word == "--" and not ended:
            before, ended = "", True
        elif word[:1] == "-" and not ended and not _NUMBER.fullmatch(word):
            if concern := _option_concern(word):
                return concern
            before = word
        else:
            if before and not (_NUMBER.fullmatch(word) or _is_alone(before)):
                return f"`{word[:60]}` may be the value of `{before[:60]}`"
            if is_first and word in _VERBS:
                return f"`{word}` may run, change or send something"
            if concern := _operand_concern(word, places):
                return concern
            before, is_first = "", False
            files += [word] if places.kind_of(word) else []
    last = files[-1] if len(files) > 1 and places.kind_of(files[-1]) == "file" else ""
    if BY_HAND.fullmatch(last) and _suffix(last) not in _DATA:
        return f"`{files[-1][:60]}` may be overwritten with what is made of `{files[0][:60]}`"
    return ""


def _option_concern(word: str) -> str:
    if word == "-":
        return "`-` is the input, which no rule has seen"
    if _OPTION.fullmatch(word) is None:
        return f"`{word[:60]}` is an option with a value"
    is_long = word[:2] == "--" or (len(word) > 4 and word[1:].isalpha() and word.islower())
    if is_long:
        if word not in _HARMLESS and _ACTING.search(word.casefold()):
            return f"`{word[:60]}` may say what is run, read or written"
    elif len(word) > 2 and not (_LETTERS | {"l"}).issuperset(word[1:]):
        return f"`{word[:60]}` may be an option with its value"
    return ""


def _is_alone(option: str) -> bool:
    """Whether a word behind an option is hardly its value."""
    if option[:2] == "--":
        return option in _HARMLESS or option.startswith("--no-")
    return _LETTERS.issuperset(option[1:])


def _operand_concern(word: str, places: PathPolicy) -> str:
    shown = word[:60]
    if _NUMBER.fullmatch(word):
        return ""
    if found := _PATTERN.fullmatch(word):
        if found[1].casefold() in CODE_SUFFIXES:
            return f"`{shown}` may be code"
        if "*" in word or "?" in word:
            return ""
    if not word or _PATH.fullmatch(word) is None or word[0] in "-@ ":
        return f"`{shown}` is no plain word and no file of the workspace"
    kind = places.kind_of(word)
    if kind == "code" or (kind == "file" and _suffix(word) in CODE_SUFFIXES):
        return f"`{shown}` may be code"
    if kind or (_PLAIN.fullmatch(word) and " " not in word):
        return ""
    return f"`{shown}` is no plain word and no file of the workspace"


def _suffix(word: str) -> str:
    return word.rsplit("/", 1)[-1].rpartition(".")[2].casefold()


def unlisted(meaning: CommandMeaning) -> tuple[CommandMeaning | None, bool]:
    """Return the part of a command whose program has no table, and whether its words are limited.

    They are not where a program that has one starts a package or task that a rule must name, such
    as `npx NAME` and `npm run NAME`; a module of Python is on this machine, and may do anything.
    """
    above: CommandMeaning | None = None
    if meaning.argv[0] == "cd":
        return None, False  # It goes to a directory, which is compared as a path.
    for at in meaning.chain():
        if at.grammar is None:
            is_named = above is not None and above.at in above.operands
            return at, not is_named
        above = at
    return None, False


def possible_commands(argv: Sequence[str]) -> Iterator[tuple[int, tuple[str, ...], bool]]:
    """Yield the place of a word, what it could start, and whether it begins with the whole word.

    Each word with those behind it is one, and so is each part of a word. Whoever allows a command
    looks that it has no more than `WORDS_MAX` words.

    >>> [words for _, words, _ in possible_commands(["socat", "-", "EXEC:rm -rf v"])]
    [('EXEC', 'rm', '-rf', 'v'), ('rm', '-rf', 'v'), ('f', 'v'), ('v',)]
    """
    for at, word in enumerate(argv[1 : WORDS_MAX + 1], start=1):
        rest = tuple(argv[at + 1 : at + WORDS_MAX])
        parts = tuple(filter(None, _PARTS.split(word)))
        if parts == (word,):
            if word[0] != "-":
                yield at, (word, *rest), True
            elif len(word) > 2 and word[1] != "-":
                yield at, (word[2:], *rest), False  # A value glued to its letter.
            continue
        for place, part in enumerate(parts):
            if part[0] != "-":
                yield at, (*parts[place:], *rest), False
            elif len(part) > 2 and part[1] != "-":
                yield at, (part[2:], *parts[place + 1 :], *rest), False


def runs_at_its_place(argv: tuple[str, ...]) -> bool:
    """Whether some words are a command that runs, starts or changes something, were they one.

    >>> runs_at_its_place(("sh", "-c", "x")), runs_at_its_place(("report",))
    (True, False)
    """
    program = hazards.base_name(argv[0])
    if program in hazards.SHELLS | hazards.PRIVILEGED:
        return True
    meaning = read_command(argv)
    if meaning.grammar is None:
        return program in hazards.RUNNING
    if meaning.grammar.program.operands[:1] == ("script",):
        return True  # An interpreter, which without words reads its input.
    if meaning.unknown:
        return _may_run(meaning.grammar.program)
    return bool(meaning.hazards or meaning.inner or meaning.started or meaning.scripts)


def _may_run(table: CommandTable) -> bool:
    kinds = {rule.kind for rule in table.options.values()} | {*table.operands}
    running = {"runs", "unbound", "module", "program", "command", "script", "task"}
    return bool(table.does or table.bare or table.commands or kinds & running)


def code_words(meaning: CommandMeaning, *, kinds: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Return the words of a command with a table that are, or may be, code or a command.

    Those of what it does not understand are all of them.

    Args:
        meaning: The command.
        kinds: The hazards that count; all where it is empty.
    """
    if meaning.unknown:
        return meaning.argv[1:]
    found: list[str] = []
    for hazard in meaning.hazards:
        if kinds and hazard.kind not in kinds:
            continue
        if hazard.option is not None:
            found.append(hazard.option[1] or "")
        elif 0 <= hazard.operand < len(meaning.operands):
            found.append(meaning.argv[meaning.operands[hazard.operand]])
    return tuple(filter(None, found))


_CODE = regex(r"[\s;()|&`$<>{}'\"]")
VARYING = regex(r"[$`\\'\"*?\[{<]")
"""In a text, what may make other words of it than are read there."""


_CODING = frozenset(("runs", "config"))
_INPUTS = frozenset(("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"))


def _reads_code(meaning: CommandMeaning, *, is_shell: bool) -> bool:
    """Whether a command takes what it runs from its input, whatever its operands are."""
    itself = any(h.kind == "runs" and h.depth == 0 and not meaning.path for h in meaning.hazards)
    given = [h.option[1] for h in meaning.hazards if h.option is not None and h.kind in _CODING]
    named = any(
        meaning.argv[at] in _INPUTS and kind in ("script", "runs", "program", "task")
        for at, kind in zip(meaning.operands, meaning.kinds, strict=False)
    )
    is_asked_to = is_shell and any(word[:1] == "-" and "s" in word for word in meaning.argv[1:])
    # `sed -f -`, whose option is not known.
    is_guess = bool(meaning.unknown and _possible_code(meaning))
    inputs = (*meaning.argv[1:], *(w[2:] for w in meaning.argv[1:])) if is_guess else given
    return itself or named or is_asked_to or not _INPUTS.isdisjoint(inputs)


_STARTING = frozenset(("runs", "script", "program"))
PROGRAMMED = frozenset(("awk", "sed"))
"""Readers of programs whose operand is code that can start a command."""


def table_of(meaning: CommandMeaning) -> CommandTable:
    """Return the table of the sub-command of a program with a grammar, as far as it is read."""
    table = meaning.grammar.program if meaning.grammar is not None else CommandTable()
    for name in meaning.path:
        table = table.commands.get(name, table)
    return table


def _possible_code(meaning: CommandMeaning) -> tuple[str, ...]:
    """Return the words of a command that is not understood which are code if its program runs any:
    behind an option that is not known it may be each, as in `perl -CSD -e CODE`."""
    table = table_of(meaning)
    first = {one.operands[0] for one in (table, *table.commands.values()) if one.operands}
    if "runs" in table.bare or first & _STARTING:
        return meaning.argv[1:]
    if table.reader in PROGRAMMED:
        kinds = zip(meaning.operands, meaning.kinds, strict=False)
        given = [option.value or "" for option in meaning.options if option.name in _GIVEN]
        coded = [*given, *(meaning.argv[at] for at, kind in kinds if kind == "runs")]
        return tuple(coded) or meaning.argv[1:]
    pairs = zip(meaning.argv, meaning.argv[1:], strict=False)
    return tuple(word for before, word in pairs if _is_coding(table, before))


def _is_coding(table: CommandTable, option: str) -> bool:
    return option in table.options and table.options[option].kind in _CODING


_GIVEN = frozenset(("-e", "--expression", "--source"))


_EVALUATING = frozenset(("-e", "-E", "-c", "-p", "--eval", "--print"))


def _written_code(meaning: CommandMeaning) -> Iterator[str]:
    """Yield the code that an interpreter is given in a word, which may be one name: `perl -lne
    unlink list`."""
    if table_of(meaning).operands[:1] == ("script",):
        for hazard in meaning.hazards:
            if hazard.option is not None and hazard.option[0] in _EVALUATING:
                yield hazard.option[1] or ""


def hidden_code(meaning: CommandMeaning) -> str:
    """Return why code in the words of a command, or in its input, may do what is not seen."""
    shell = hazards.base_name(meaning.argv[0]) in hazards.SHELLS
    sign = VARYING if shell else _CODE
    is_guess = bool(meaning.unknown) and not shell
    words = _possible_code(meaning) if is_guess else code_words(meaning, kinds=_CODING)
    hidden = next(filter(sign.search, words), "")
    if not (shell or hidden):
        hidden = next(filter(None, _written_code(meaning)), "")
    bare = any(hazard.depth > len(meaning.path) for hazard in meaning.hazards)
    if (bare and not words) or _reads_code(meaning, is_shell=shell):
        hidden = hidden or "its input"
    return f"what `{hidden[:60]}` does is not seen, and some rules deny or ask" if hidden else ""
