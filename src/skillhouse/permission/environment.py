"""Variables before a command: which are harmless, which are asked about, and which load code.

And those whose value is known while a line is read, or once what is before them in it has run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from skillhouse.floor.regex import regex


class Harmless(NamedTuple):
    """Variables whose values of one form load, start and write nothing."""

    names: str
    values: str
    source: str


_WORD = r"[A-Za-z0-9_.@:,=+-]*"
_SWITCH = r"[01]|true|false|yes|no|on|off|"
_WARNING = r"(ignore|default|error|always|all|module|once)(::[A-Z][A-Za-z]*Warning)?"
_NODE = (
    r"--max[-_](old|semi)[-_]space[-_]size=\d{1,7}|--(no|trace)-(warnings|deprecation)|"
    r"--stack-trace-limit=\d{1,5}|--enable-source-maps|"
    r"--unhandled-rejections=(strict|warn|none|throw|warn-with-error-codes)|"
    r"--experimental-(vm-modules|strip-types)|--openssl-legacy-provider|--trace-uncaught|"
    r"--expose[-_]gc|--dns-result-order=(ipv4first|verbatim)"
)

_GO = (
    r"-mod=(mod|vendor|readonly)|-count=\d{1,4}|-tags=[\w.,]{1,99}|-buildvcs=(true|false|auto)|"
    r"-(v|race|short|trimpath|modcacherw)"
)

_RUST = (
    r"-[AWDF] ?[a-z_:-]+|--cap-lints[= ](allow|warn|deny|forbid)|-g|-O|--cfg[= ][a-z_]+|"
    r"-C ?(debuginfo|opt-level|codegen-units|lto|panic|overflow-checks|debug-assertions|target-cpu|"
    r"force-frame-pointers|strip|embed-bitcode)=[a-z0-9-]+"
)
# Not -B, -specs, -fplugin, -fuse-ld, -include, -I, -L, -W[alp], and -o, which name files.
_C = (
    r"-O[0-3sgz]?|-Ofast|-g[0-3]?|-w|-pipe|-pthread|-pedantic|"
    r"-W(?![alp],)[a-z0-9+-]*(=[a-z0-9+-]{1,60})?|"
    r"-std=[a-z0-9+]+|-D\w+(=\w*)?|-U\w+|-m(arch|tune)=[a-z0-9.+-]+|-m(32|64)|"
    r"-f(no-)?(PIC|pic|PIE|pie|lto|openmp|strict-aliasing|omit-frame-pointer|exceptions|rtti|wrapv|"
    r"stack-protector(-strong|-all)?)|-fsanitize=[a-z,-]+"
)

HARMLESS = (
    Harmless(
        r"LANG|LANGUAGE|LC_[A-Z]+|NO_COLOR|FORCE_COLOR|CLICOLOR(_FORCE)?|COLORTERM|COLUMNS|LINES|"
        r"TERM|PY_COLORS|CARGO_TERM_(COLOR|PROGRESS_WHEN|VERBOSE|QUIET)",
        _WORD,
        "locale(7), term(7), no-color.org: language, colour and the shape of output",
    ),
    Harmless(
        r"CI|DEBUG|VERBOSE|NODE_ENV|LOG_LEVEL|RUST_BACKTRACE|RUST_LOG|CARGO_INCREMENTAL|GOOS|GOARCH",
        _WORD,
        "a tool's mode of testing, or of saying more",
    ),
    Harmless(
        r"PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|PYTHONIOENCODING|PYTHONUTF8|PYTHONHASHSEED|"
        r"PYTHONFAULTHANDLER|PYTHONDEVMODE|PYTHONTRACEMALLOC",
        _WORD,
        "python(1), environment variables: switches that load nothing",
    ),
    Harmless(
        r"PYTHON(OPTIMIZE|NOUSERSITE|SAFEPATH|ASYNCIODEBUG|INTMAXSTRDIGITS|NODEBUGRANGES)",
        r"\d{0,6}",
        "python(1), environment variables",
    ),
    Harmless(
        # A category with a dot is a module, which is imported; one without is a builtin.
        r"PYTHONWARNINGS",
        rf"({_WARNING})(,{_WARNING})*|",
        "Python, warnings: describing warning filters",
    ),
    Harmless(
        r"NODE_OPTIONS", rf"({_NODE})( +({_NODE}))*|", "Node.js, command-line API: NODE_OPTIONS"
    ),
    Harmless(
        r"RUBYOPT", r"-W([012]|:no-(deprecated|experimental))|", "ruby(1): warnings, and no code"
    ),
    Harmless(r"NODE_(NO_WARNINGS|DISABLE_COLORS)", _SWITCH, "Node.js, command-line API"),
    Harmless(
        # Looked up in the fixed PATH of the sandbox, which no line can change.
        r"PAGER|(GIT|GH|AWS|BAT|DELTA|MAN|PSQL|SYSTEMD_)_?PAGER",
        r"cat|",
        "git(1), environment variables; environ(7)",
    ),
    Harmless(
        r"EDITOR|VISUAL|(GIT|GH|KUBE|SVN)_EDITOR|GIT_SEQUENCE_EDITOR",
        r"true|:",
        "git-var(1): the editor is a shell command; these end at once",
    ),
    Harmless(r"(GIT|SSH)_ASKPASS", r"true|", "gitcredentials(7): an empty answer"),
    Harmless(
        r"GIT_(TERMINAL_PROMPT|OPTIONAL_LOCKS|MERGE_AUTOEDIT|ADVICE|CONFIG_NOSYSTEM|LFS_SKIP_SMUDGE)",
        _SWITCH,
        "git(1), environment variables: it asks and writes less",
    ),
    Harmless(r"GIT_(AUTHOR|COMMITTER)_NAME", r"\w[\w .,'()-]{0,99}", "git-commit(1)"),
    Harmless(r"GIT_(AUTHOR|COMMITTER)_EMAIL|EMAIL", r"\w[\w.+@-]{0,99}", "git-commit(1)"),
    Harmless(r"GIT_(AUTHOR|COMMITTER)_DATE", r"[\w@+][\w@ :+,.-]{0,59}", "git-commit(1)"),
    Harmless(
        r"DO_NOT_TRACK|NEXT_TELEMETRY_DISABLED|DOTNET_CLI_TELEMETRY_OPTOUT|"
        r"PIP_DISABLE_PIP_VERSION_CHECK|PIP_NO_INPUT|HOMEBREW_NO_AUTO_UPDATE|"
        r"TOKENIZERS_PARALLELISM|TF_CPP_MIN_LOG_LEVEL|GH_PROMPT_DISABLED|GH_NO_UPDATE_NOTIFIER|"
        r"NPM_CONFIG_(AUDIT|FUND|PROGRESS|UPDATE_NOTIFIER)|npm_config_(audit|fund|progress)",
        _WORD,
        "switches that turn off what a tool does by itself",
    ),
    Harmless(r"DEBIAN_FRONTEND", r"noninteractive", "debconf(7)"),
    Harmless(
        r"SOURCE_DATE_EPOCH|JOBS|MAX_JOBS|PORT|SEED|RUST_TEST_THREADS|GOMAXPROCS|GOGC|"
        r"(OMP|MKL|OPENBLAS|NUMEXPR|RAYON)_NUM_THREADS|CARGO_BUILD_JOBS|"
        r"C(MAKE_BUILD|TEST)_PARALLEL_LEVEL|PIP_(DEFAULT_TIMEOUT|RETRIES)|UV_HTTP_TIMEOUT|"
        r"PYTEST_XDIST_AUTO_NUM_WORKERS",
        r"\d{1,12}",
        "numbers of jobs, seconds and the like",
    ),
    Harmless(
        # Not -toolexec, -exec, -ldflags and -overlay, which start programs or change what is built.
        r"GOFLAGS",
        rf"({_GO})( +({_GO}))*|",
        "Go, go help environment and go help build",
    ),
    Harmless(r"CGO_ENABLED", r"[01]", "Go, cmd/cgo"),
    Harmless(
        # Not -Clinker, -Clink-arg, -L, -Z, --sysroot, --extern and -Cincremental.
        r"RUST(DOC)?FLAGS",
        rf"({_RUST})( +({_RUST}))* *|",
        "rustc(1), and The rustc book, codegen options and lint levels",
    ),
    Harmless(
        r"C(XX|PP)?FLAGS",
        rf"({_C})( +({_C}))* *|",
        "GCC manual, 3.1 option summary: how is compiled, and no file or program by its name",
    ),
    Harmless(
        r"GOTOOLCHAIN|GOWORK|GOPROXY|GO111MODULE",
        r"local|off|on",
        "Go toolchains; go help environment: less is fetched and taken in",
    ),
    Harmless(r"GOMEMLIMIT", r"\d{1,12}([KMGT]i)?B?", "Go, package runtime"),
    Harmless(r"MAKEFLAGS", r"-j ?\d{0,4}|", "GNU make manual, 5.7.2"),
    Harmless(r"TZ", r"(?!.*\.\.)[A-Za-z0-9_+-][A-Za-z0-9_+/-]*", "tzset(3): no file by its path"),
)
"""What a line is judged as if without. A name may have several rows; the values are whole."""
_ROWS = tuple((regex(row.names), regex(row.values)) for row in HARMLESS)
_LOADING = regex(
    r"LD_.*|DYLD_.*|.*PRELOAD.*|GCONV_PATH|BASH_.*|ENV|PATH|IFS|SHELLOPTS|BASHOPTS|PS4|"
    r"PROMPT_COMMAND|CDPATH|GLOBIGNORE|"
    r"PYTHON(STARTUP|HOME|INSPECT|BREAKPOINT|USERBASE|EXECUTABLE|PLATLIBDIR|PYCACHEPREFIX)|"
    r"NODE_(OPTIONS|PATH|REPL_EXTERNAL_MODULE)|PERL5.*|PERLLIB|RUBY.*|LUA_.*|"
    r"_?JAVA_(TOOL_)?OPTIONS|JDK_JAVA_OPTIONS|CLASSPATH|LESS(OPEN|CLOSE)|"
    r"GIT_(EXEC_PATH|CONFIG.*|TEMPLATE_DIR)"
)
"""What loads code before the program does anything, or changes which program a name is."""
_STARTING = regex(
    r"GIT_.*|SSH_ASKPASS|.*PAGER|.*_COMMAND|PYTHON.*|NODE_.*|.*EDITOR|VISUAL|BROWSER|SHELL|HOME|"
    r"XDG_CONFIG_HOME|HOSTALIASES|.*_(proxy|PROXY)|.+FLAGS"
)
"""What names programs, or where settings are that name them."""
_STEERING = regex(
    r".*(OPT(ION)?S|ARG(UMENT)?S|WRAPPER|RUNNER|SHELL|CMD|COMMAND|HOOKS?|RSH|COMPILER|LINKER|"
    r"PLUGINS?|FILES?|FOLDER|DIRS?|DIRECTORY|PATHS?|PREFIX|HOME|CONF|CONFIG|REGISTRY|REPOSITORY|"
    r"PROXY|BIN|BINARY|EXE|DRIVER|PROVIDER|MODULES|LIBRAR(Y|IES)|FILENAMES|DEPENDENCIES|REPORT|"
    r"HOSTS|ALLOW|RC)|"
    r"(.*_)?(SSH|INIT|ROOT|LOG|OUT|OUTPUT|OUTPUT_NAME|HOST|INDEX|TRACE|DUMP|SITE|SOCK)|"
    r"(CARGO|RUST\w*|UV|PIP|PIPENV|PDM|POETRY|HATCH|VIRTUALENV|CONDA|MISE|NPM|PNPM|YARN|BUN|DENO|"
    r"COREPACK|PYTEST|TOX|NOX|JEST|VITEST|MOCHA|NYC|COVERAGE|PLAYWRIGHT|PW|CYPRESS|DOCKER|BUILDX|"
    r"BUILDKIT|EXPERIMENTAL|COMPOSE|CONTAINER|PODMAN|KUBE|HELM|AWS|AZURE|GCLOUD|ANSIBLE|TF|"
    r"TERRAFORM|SSL|OPENSSL|CURL|LLVM|GCOV|[ATUM]SAN|MALLOC|GLIBC|MAVEN|GRADLE|SBT|DOTNET|COMPLUS|"
    r"CORECLR|MSBUILD|NUGET|BUNDLE|GEM|COMPOSER|CCACHE|SCCACHE|DISTCC|MIX|HEX|ERL|PKG_CONFIG|CC|"
    r"CXX|AR|SUNPRO)_.*|((TARGET|HOST)_)?(CC|CXX|CPP|LD|AR|AS|NM|STRIP)|RUSTC|RUSTDOC|RUSTFMT|"
    r"CMAKE|MAKE|MAKEFILES|PROTOC|FC|NVCC|G(O[A-Z]+|CCGO)",
    re.IGNORECASE,
)
"""What steers a tool and no code of a project, by the manuals of many: options, programs that it
starts, and where it reads and writes."""
_PLAIN_WORD = regex(r"(?![-.~])[\w@%+=,:.-]*(/(?!\.)[\w@%+=,:.-]+)*")
_NO_PLACE = regex(rf"-?\d{{1,9}}|{_SWITCH}")
_DATABASE = regex(r"sqlite(\+\w+)?://(/:memory:|/(\./)?([\w-]+(/[\w-]+)*\.(db|sqlite3?)))?")


class Setting(NamedTuple):
    """What a value may lead to that only a project's own code would read."""

    words: tuple[str, ...] = ()
    """Words that are no more than words, if they name no file and no program."""
    database: str = ""
    """A file of SQLite's, which is read and written."""


def environment_concern(name: str, value: str) -> tuple[bool, str]:
    """Return whether setting a variable is refused for good, and why it is not taken for granted.

    Names that load code before the program are refused, and the values of `HARMLESS` pass; about
    every other one a person is asked.

    >>> environment_concern("GIT_PAGER", "cat"), environment_concern("PATH", "bin")[0]
    ((False, ''), True)
    """
    if _is_harmless(name, value):
        return False, ""
    if _LOADING.fullmatch(name):
        return True, f"the variable `{name[:60]}` decides what programs run or load"
    if name == "PYTHONPATH":
        return False, "`PYTHONPATH` lets whatever code is there be loaded"
    if _STARTING.fullmatch(name):
        return False, f"the variable `{name[:60]}` may decide what is started"
    return False, f"the variable `{name[:60]}` is set"


def setting_of(name: str, value: str) -> Setting | None:
    """Return what a variable says that only a project's own code would read; None for another.

    >>> setting_of("APP_SETTINGS", "app.test"), setting_of("CARGO_HOME", "x")
    (Setting(words=('app.test',), database=''), None)
    """
    if may_start(name, value) or _STEERING.fullmatch(name):
        return None
    if found := _DATABASE.fullmatch(value):
        return Setting(database=found[4] or "")
    if _NO_PLACE.fullmatch(value):
        return Setting()
    words = tuple(filter(None, re.split("[,:=]", value)))
    return Setting(words) if _PLAIN_WORD.fullmatch(value) else None


def may_start(name: str, value: str) -> bool:
    """Whether a variable may name a program that is started, or lead to settings that do.

    >>> may_start("GIT_PAGER", "cat"), may_start("GIT_PAGER", "cat; rm x"), may_start("FOO", "1")
    (False, True, False)
    """
    return not _is_harmless(name, value) and _STARTING.fullmatch(name) is not None


def _is_harmless(name: str, value: str) -> bool:
    return any(names.fullmatch(name) and values.fullmatch(value) for names, values in _ROWS)


_PLAIN = regex(r"[A-Za-z0-9_./:@%+-]+")
_OWN = regex(
    r"_|BASH.*|COMP_.*|DIRSTACK|EPOCH.*|EUID|FUNCNAME|GROUPS|HIST.*|HOST(NAME|TYPE)|IFS|LINENO|"
    r"MACHTYPE|MAILCHECK|MAPFILE|OPT(ARG|ERR|IND)|OSTYPE|PIPESTATUS|POSIXLY_CORRECT|PPID|PS[0-4]|"
    r"RANDOM|READLINE_.*|REPLY|SECONDS|SHELLOPTS|SHLVL|SRANDOM|UID|COLUMNS|LINES"
)
"""What bash sets or reads itself (bash(1), "Shell Variables")."""
_DIRECTORIES = ("PWD", "OLDPWD")


class LineSurroundings(Struct, frozen=True, kw_only=True):
    """What a line is read by beside its text."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """The variables that its commands get."""
    names: Callable[[str], Sequence[str] | None] = lambda pattern: None
    """Gives the names that match a pattern where the line begins, sorted, or None where that is
    not known; loops over patterns need a shell then."""
    top: Callable[[], str] = lambda: ""
    """Gives the root of the repository, where git finds one."""


_ACTIVATION = regex(r"([^*?\[]*/)?bin/activate")


def is_activation(words: Sequence[str]) -> bool:
    """Whether some words activate an environment in a shell (venv's documentation, "How venvs
    work").

    >>> is_activation(["source", ".venv/bin/activate"]), is_activation([".", "activate"])
    (True, False)
    """
    is_read = len(words) == 2 and words[0] in ("source", ".")
    return is_read and bool(_ACTIVATION.fullmatch(words[1]))


class KnownVariables:
    """The variables of a shell, as far as a line says.

    >>> known = KnownVariables({"HOME": "/home/u", "X": "a b"})
    >>> known.plain("HOME"), known.plain("X"), known.plain("Y")
    ('/home/u', None, None)
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.values = dict(environment)
        self._environment = frozenset(environment)
        self._exported: dict[str, str] = {}

    def plain(self, name: str) -> str | None:
        """Return a value that stays one word, without a pattern, wherever it is put, or None."""
        value = self.values.get(name)
        is_plain = value is not None and _PLAIN.fullmatch(value) and not _OWN.fullmatch(name)
        return value if is_plain else None

    def is_settable(self, name: str) -> bool:
        return not _OWN.fullmatch(name) and name not in _DIRECTORIES

    def set(self, name: str, value: str, *, exports: bool) -> None:
        """Take an assignment, which reaches later commands where the name is or gets exported."""
        self.values[name] = value
        if exports or name in self._environment or name in self._exported:
            self._exported[name] = value

    def enter(self) -> None:
        """Take a `cd`."""
        for name in _DIRECTORIES:
            self.values.pop(name, None)

    def activate(self) -> None:
        """Take the activation of an environment, which sets these."""
        for name in ("PATH", "VIRTUAL_ENV"):
            self.values.pop(name, None)

    def exported(self) -> tuple[tuple[str, str], ...]:
        """Return the variables of later commands that are not as in the environment."""
        return tuple(self._exported.items())


_PIPE_STATUS = regex(r"\$\{PIPESTATUS\[([0-9])\]\}")
_SAYING = frozenset(("echo", "printf", "test", "["))
"""Programs that may get the exit code of what ran before: they print it, or compare it."""


class ExitCodes:
    """What `$?` and `${PIPESTATUS[N]}` are at a place of a line (bash(1), "Special Parameters").

    >>> codes = ExitCodes()
    >>> codes.ran(2, is_sure=True)
    >>> codes.are_known("${PIPESTATUS[1]}", "echo"), codes.are_known("$?", "rm")
    (True, False)
    """

    def __init__(self) -> None:
        self._is_known = True
        self._count = 0

    def ran(self, commands: int, *, is_sure: bool) -> None:
        """Take a pipeline of programs; where it may not run, another of any length was the last."""
        self._is_known = True
        self._count = commands if is_sure else 1

    def succeeded(self) -> None:
        """Take what runs no program of the plan, such as an assignment or `cd`."""
        self._is_known = self._count == 0

    def are_known(self, source: str, program: str) -> bool:
        """Whether a word of a program may have those that are in it."""
        numbers = map(int, _PIPE_STATUS.findall(source))
        return self._is_known and program in _SAYING and all(n < self._count for n in numbers)
