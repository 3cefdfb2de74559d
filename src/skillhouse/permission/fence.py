"""What an allow of everything leaves open beside rules that deny or ask (decision 385).

The operator's `*` covers any command. So that another command is no way around a denial, this looks
at what a command starts: by its words, by variables, by what it reads, and by a copy of a program.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence

from skillhouse.floor.regex import regex
from skillhouse.floor.rules import Effect
from skillhouse.permission import hazards
from skillhouse.permission.command_reader import read_command
from skillhouse.permission.command_rules import CommandRules
from skillhouse.permission.environment import may_start, setting_of
from skillhouse.permission.grammar import CommandMeaning, is_wrapper
from skillhouse.permission.hard_denies import FIND_RUNS, HardDenies
from skillhouse.permission.path_policy import PathPolicy
from skillhouse.permission.plan import JudgedCommand
from skillhouse.permission.raw_line import RawCommand, Word
from skillhouse.permission.unknown_program import (
    PROGRAMMED,
    VARYING,
    WORDS_MAX,
    code_words,
    hidden_code,
    possible_commands,
    table_of,
    unlisted,
)

_PRINTING = frozenset(("echo", "printf", "cat"))
_ORDERED = frozenset(
    "ed red ex vi vim nvim view emacs gdb lldb ftp sftp lftp telnet at batch crontab bc dc m4 "
    "gnuplot octave maxima gp mail mailx mutt nft ssh mosh tmux screen script groff troff tex "
    "pdftex latex pdflatex xelatex lualatex duckdb mongosh erl socat".split()
)
"""Programs that take orders from their input, and start what these say (their manuals)."""
_STARTING = {
    **dict.fromkeys("scp sftp ssh-copy-id sshfs autossh mosh".split(), "ssh"),
    **dict.fromkeys(
        "pydoc pydoc3 ipython ipython3 bpython ptpython idle idle3 pytest py.test coverage nose2 "
        "nosetests tox nox behave jupyter jupyter-lab jupyter-notebook jupyter-nbconvert papermill "
        "django-admin flask gunicorn uvicorn celery streamlit pdb3 cython3 pyinstaller".split(),
        "python",
    ),
    **dict.fromkeys("ts-node tsx nodemon pm2 mocha".split(), "node"),
}
"""Programs that do nothing but by another one, whatever their words are."""
_RUNNING = frozenset(("uv", "uvx", "poetry", "pipenv", "hatch", "pdm", "rye", "conda", "pipx"))
"""Programs that start Python where a word is its code."""
_PYTHON = regex(r".*\.pyw?|-m|--module|--script|-")
_FAR = frozenset(("fetch", "pull", "push", "clone", "ls-remote"))
_SSH = regex(r"[a-z+]*ssh://.*|.*=[a-z+]*ssh://.*")
_NAMING_FAR = frozenset((("remote", "add"), ("remote", "set-url"), ("submodule", "add")))
_MANAGING = regex(r"(system|host|time|locale|login|machine|bus|journal)ctl|systemd-\w+")
_ELSEWHERE = regex(r"-H.*|--host(=.*)?")
"""The option by which these work on another machine over ssh (systemctl(1))."""
_HOST = regex(r"[^/:]+:(?!//|:).*")
"""An address that git(1) and rsync(1) reach by ssh."""
_COMPILING = frozenset("gcc cc g++ c++ clang clang++ tcc rustc ghc as nasm".split())
"""Programs that take code from their input where a word of theirs is `-`."""
_CALL = regex(r"[(\[]")
"""In code, what may call something; assemblers have sections in brackets."""
_NAMING = regex(
    r".*(RSH|SSH|INIT|EDITOR|OPT(ION)?S|FLAGS|WRAPPER|SHELL|HOOKS?|CMD|LINKER|RUNNER|COMPILER)|"
    r"CC|CXX|CPP|LD|AR|AS",
    re.IGNORECASE,
)
"""Ends of names of variables that say what a program starts, in the manuals of many."""
_MODULE = "/__main__.py"
"""Where Python also looks for a module that it is to run: one of a library, most often."""
_PROPERTIES = frozenset(("dotnet", "docker", "podman", "buildah", "terraform", "tofu"))
"""Programs to which a variable of any name may be an option (MSBuild, "Use environment variables in
a build"), or that hand none to the code that they run."""
_CODED = regex(r"[\s;|&`$\\'\"<>]")
_ORDERS = {
    "sqlite3": regex(r"^\s*\.\w|writefile|load_extension|edit\s*\(", re.MULTILINE | re.IGNORECASE),
    "psql": regex(r"\\|\bprogram\b", re.IGNORECASE),
    "mysql": regex(r"\\|\bsystem\b", re.IGNORECASE),
    "mariadb": regex(r"\\|\bsystem\b", re.IGNORECASE),
}
"""In the input of programs whose language is mostly harmless, what starts a program or writes."""
_FINDING = {
    "find": FIND_RUNS,
    "fd": frozenset(("-x", "-X", "--exec", "--exec-batch")),
}
_DECIDING = frozenset(("config",))
_WORD = regex(r"[\w.+-]+")
_REPLACING = frozenset(("-I", "-i", "-J", "--replace"))
_SENDING = frozenset(("pushes", "publishes"))
_NAMED = frozenset(("script", "task"))
_INDIRECT = frozenset(("program", "command"))


class Fence:
    """Judges what the operator's `*` covers by the rules beside it that deny or ask."""

    def __init__(
        self,
        rules: CommandRules,
        places: PathPolicy,
        refusals: HardDenies,
        *,
        words: Callable[..., JudgedCommand],
        started: Callable[..., str],
        shape: Callable[[CommandMeaning, Sequence[str]], str],
    ) -> None:
        """Take the rules and places, and three parts of the judge.

        Args:
            rules: The rules.
            places: Where programs and files are.
            refusals: What is denied whatever rules allow.
            words: Judges the words of a command.
            started: Returns why words would need approval as programs at their places.
            shape: Returns which word of a program without a table may act.
        """
        self._rules = rules
        self._places = places
        self._refusals = refusals
        self._words = words
        self._started = started
        self._shape = shape
        self._made: list[str] = []
        """Texts that the line has written to files so far."""

    def behind(
        self, meaning: CommandMeaning, patterns: Sequence[Word], depth: int
    ) -> JudgedCommand | None:
        """Return the verdict on a command that `*` covers; None where it is allowed."""
        if not self._rules.is_fence:
            return None
        argv = meaning.argv
        if _CODED.search(argv[0]):
            return _asked(argv, f"`{argv[0][:60]}` may be code, and no program")
        patterned = [at for at, word in enumerate(patterns) if word.pattern]
        if said := _unknown_words(argv, patterned):
            return _asked(argv, said)
        if meaning.inner and not meaning.unknown:
            if around := self._around(meaning):
                return around
            rest = patterns[meaning.inner :]
            inner = self._words(argv[meaning.inner :], patterns=rest, depth=depth + 1)
            return None if inner.effect is Effect.ALLOW else inner
        for inner_argv, unknown in _over_input(meaning):
            if over := self._over(inner_argv, unknown, depth):
                return over
        for at in meaning.chain() if argv[0] != "cd" else ():
            if concern := self._concern(at, is_limited=unlisted(meaning)[1]):
                return _asked(argv, concern)
        said = self._copied(argv, patterns) if _may_write(meaning) else ""
        return _asked(argv, said) if said else None

    def variable_concern(
        self, judged: JudgedCommand | None, name: str, value: str
    ) -> tuple[bool, str]:
        """Return what `HardDenies.variable_concern` does, of a variable before a judged command.

        Where a rule with `unbound` covers the command, any code of the workspace runs. To this a
        variable is a setting, if it is one word, steers no tool, leads nowhere out of the workspace
        and names nothing that a rule denies or asks about.
        """
        is_refused, concern = self._refusals.variable_concern(name, value)
        if is_refused or not (concern and judged is not None and self._is_unbound(judged)):
            return is_refused, concern
        if name == "PYTHONPATH":
            places = [os.path.join(".", path) for path in value.split(":") if path]
            return False, concern if any(map(self._places.reading, places)) else ""
        setting = setting_of(name, value)
        if setting is None or any(map(self._leads_on, setting.words)):
            return False, concern
        if setting.database and not self._may_change(setting.database):
            return False, concern
        rulings = [self._rules.rule(words) for _, words, _ in possible_commands(("", value))]
        asked = (ruling.denied or ruling.asked for ruling in rulings)
        return False, next(filter(None, asked), "")

    def _leads_on(self, word: str) -> bool:
        """Whether a word of a value may be a file that is there, a program, or one not to make."""
        is_there = self._places.kind_of(word) or self._places.has_program(word)
        acts = self._places.paths.group(os.path.join(self._places.directory, word))
        return bool(is_there or acts) or not self._may_change(os.path.join(".", word))

    def _may_change(self, path: str) -> bool:
        is_asked = self._places.writing(path, covered=True)[0] is not Effect.ALLOW
        return not (is_asked or self._places.reading(path))

    def _is_unbound(self, judged: JudgedCommand) -> bool:
        """Whether a rule allows a command that runs the code of the workspace and does no more, and
        no approval of a person does.

        A file of tasks is approved by its bytes, which a variable may have replaced by another.
        """
        if not (judged.unbound and judged.effect is Effect.ALLOW):
            return False
        for script in judged.scripts[judged.is_own :]:
            if not script[-1].endswith(_MODULE) or any(map(self._places.kind_of, script)):
                return False
        for at in read_command(judged.argv).chain():
            # What starts a module or a program that the rule names, as `uv run pytest`, is known.
            kinds = {h.kind for h in at.hazards if h.kind != "runs" or h.depth >= 0}
            more = kinds - {"unbound"} - ({"installs"} if at.program == "npx" else set())
            if at.grammar is None or more or at.program in _PROPERTIES:
                return False
        return not self._rules.rule(judged.argv).is_granted

    def variable(self, argv: Sequence[str], name: str, value: str) -> JudgedCommand | None:
        """Return the verdict on a variable before a command that `*` covers; None where it starts
        nothing that a rule denies or asks about."""
        if not self._rules.is_fence:
            return None
        is_refused, concern = self._refusals.variable_concern(name, value)
        if is_refused:
            return JudgedCommand(
                argv=tuple(argv), effect=Effect.DENY, reason=concern, scrutiny=concern
            )
        if concern and not may_start(name, value):
            concern = self._started(("", value)) if value else ""
            if not concern and _NAMING.fullmatch(name) and VARYING.search(value):
                concern = f"the variable `{name[:60]}` may decide what is started"
        return _asked(argv, concern) if concern else None

    def _over(
        self, argv: tuple[str, ...], unknown: Sequence[int], depth: int
    ) -> JudgedCommand | None:
        """Return the verdict on what runs with words that are found or read."""
        if read_command(argv).grammar is None:
            concern = self._rules.rule(argv).denied or self._started(argv)
        else:
            inner = self._words(argv, depth=depth + 1)
            if inner.effect is not Effect.ALLOW:
                return inner
            concern = ""
        concern = concern or _unknown_words(argv, unknown)
        return _asked(argv, concern) if concern else None

    def _around(self, meaning: CommandMeaning) -> JudgedCommand | None:
        """Return the verdict on the variables and options of a wrapper, and on the words before its
        command, of which some versions leave out one (chrt(1), setarch(8))."""
        argv = meaning.argv
        for name, value in meaning.environment:
            if found := self.variable(argv, name, value):
                return found
        concern = self._started(("", *code_words(meaning))) or hidden_code(meaning)
        for at in range(1, meaning.inner):
            if not concern and argv[at][:1] not in ("-", ""):
                ruling = self._rules.rule(argv[at:])
                concern = ruling.denied or ruling.asked
        return _asked(argv, concern) if concern else None

    def _concern(self, at: CommandMeaning, *, is_limited: bool) -> str:
        """Return why one program of a chain may start what a rule denies or asks about."""
        name = at.argv[0].rpartition("/")[2]
        if said := self._linked(at):
            return said
        if at.grammar is None and name.startswith("git-"):
            whole = ("git", name[4:], *at.argv[1:])  # gitcli(7): its older name.
            ruling = self._rules.rule(whole)
            whole_meaning = read_command(whole)
            return (
                ruling.denied or ruling.asked or self._concern(whole_meaning, is_limited=is_limited)
            )
        if at.grammar is None:
            concern = self._started(at.argv, in_texts=is_limited)
            return concern or (self._shape(at, at.argv[1:]) if is_limited else "")
        if at.unknown and is_wrapper(at.grammar) and not _is_read_over(at):
            return f"what it starts is not seen: {at.unknown}"
        concern = self._started(("", *code_words(at))) or hidden_code(at)
        return concern or self._configured(at) or self._another_word(at)

    def _another_word(self, at: CommandMeaning) -> str:
        """Return why a sub-command may do what a rule denies or asks about by another."""
        named = self._rules.restricted(at.program)
        shown = " ".join(at.argv[:3])[:60]
        if named and at.unknown and table_of(at).commands and not at.operands:
            return f"`{shown}` may be another word for what a rule denies or asks about"
        kinds = {hazard.kind for hazard in at.hazards if hazard.depth >= 0} & _SENDING
        for one in named:
            if one.path != at.path and kinds & {hazard.kind for hazard in one.hazards}:
                return f"`{shown}` sends to another place, as `{' '.join(one.argv)[:60]}` does"
        for place, word in enumerate(at.argv[1:], start=1):
            # `jj git push` is git's own; `docker rm` is not the program of that name.
            if word in at.path and any(one.path for one in self._rules.restricted(word)):
                ruling = self._rules.rule(at.argv[place:])
                return ruling.denied or ruling.asked
        return ""

    def _linked(self, at: CommandMeaning) -> str:
        """Return why the program that another name is a link to, or starts, is restricted."""
        argv = at.argv
        for real, how in self._behind_name(at):
            ruling = self._rules.rule((real, *argv[1:])) if self._rules.restricted(real) else None
            if ruling and (said := ruling.denied or ruling.asked):
                return f"`{argv[0][:60]}` {how} `{real}`: {said}"
        return ""

    def _behind_name(self, at: CommandMeaning) -> Iterator[tuple[str, str]]:
        """Yield the programs by which a command works, and how; what costs a look at files last."""
        program = at.argv[0]
        yield _started_by(at), "works by"
        yield self._places.program_behind(program), "is"
        run_by = self._places.interpreter_of(program)
        if "/" in program or run_by not in hazards.SHELLS:
            # A program of the system is itself, whatever shell it was written for.
            yield run_by, "works by"

    def _configured(self, at: CommandMeaning) -> str:
        """Return which file that says what a program starts names one that is restricted."""
        words = [*at.argv[1:]] if at.unknown else [*code_words(at, kinds=_DECIDING)]
        for path in words:
            text = self._places.text_of(path) if len(words) <= WORDS_MAX else ""
            names = set(_WORD.findall(text)) if text else set()
            if found := names.intersection(self._rules.restricted_programs()):
                return f"`{path[:60]}` says what is started, and names `{min(found)[:60]}`"
        return ""

    def _copied(self, argv: Sequence[str], patterns: Sequence[Word]) -> str:
        """Return why a copy of a program, or a link to it, would run under another name."""
        for at, word in enumerate(argv[1:], start=1):
            is_pattern = at < len(patterns) and bool(patterns[at].pattern)
            for path in (word, word.partition("=")[2]):
                name = self._places.program_at(path) if "/" in path else ""
                is_any = name == "*" or (name and is_pattern)
                if is_any or (name and self._rules.restricted(name)):
                    said = "may put what a rule denies or asks about under another name"
                    return f"`{word[:60]}` is a program of the system: this {said}"
        return ""

    def fed(self, raws: Sequence[RawCommand]) -> list[str]:
        """Return why a text that a line gives a program may start what a rule denies.

        Of a text that commands print or a here-document holds each part may be a command, where a
        command of the pipeline is none that is known only to read it.
        """
        if not self._rules.is_fence:
            return []
        found = []
        texts, reading = _given(raws)
        if self._made and not all(map(_only_reads, reading)):
            # A program may be led by a file that no word names: `cmake .`, `make`.
            said = self._started(("", *self._made))
            found += [f"a file that the line writes and may run: {said}"] if said else []
        if _writes(raws):
            found += [*self._copies(raws), *self._headed(texts)]
            self._made += texts
        if not texts or all(map(_only_reads, reading)):
            return found
        said = self._started(("", *texts)) or next(filter(None, _orders(reading, texts)), "")
        return [*found, f"a text that a program reads: {said}"] if said else found

    def _copies(self, raws: Sequence[RawCommand]) -> Iterator[str]:
        """Yield which words of a pipeline that writes are programs that are restricted."""
        for raw in raws:
            if said := self._copied(tuple(word.text for word in raw.words), raw.words):
                yield said

    def _headed(self, texts: Sequence[str]) -> Iterator[str]:
        """Yield which texts name a restricted program in their first line, as one that is written
        and started does (execve(2))."""
        for text in texts:
            head = text.partition("\n")[0].removeprefix("#!").split()
            if text.startswith("#!") and (said := self._started(("", *head))):
                yield f"a text that is written as a program: {said}"


def _started_by(meaning: CommandMeaning) -> str:
    """Return the program by which another one does what its words say, or nothing.

    >>> [_started_by(read_command(("git", word, "h:b"))) for word in ("fetch", "show")]
    ['ssh', '']
    """
    name, after = meaning.argv[0].rpartition("/")[2], meaning.argv[1:]
    if name in _RUNNING and any(map(_PYTHON.fullmatch, after)):
        return "python"
    is_far = _MANAGING.fullmatch(name) and any(map(_ELSEWHERE.fullmatch, after))
    if is_far or any(map(_SSH.fullmatch, after)):
        return "ssh"
    words = meaning.words(meaning.operands) if name in ("rsync", "git") else ()
    if name == "git" and meaning.path[:2] not in _NAMING_FAR:
        words = words[:1] if not _FAR.isdisjoint(meaning.path) else ()
    return "ssh" if any(map(_HOST.fullmatch, words)) else _STARTING.get(name, "")


def _writes(raws: Sequence[RawCommand]) -> bool:
    """Whether a pipeline writes to a file, or has a command that is not known only to read."""
    if any(one.kind in ("write", "append") for raw in raws for one in raw.redirects):
        return True
    argvs = (tuple(word.text for word in raw.words) for raw in raws)
    return any(argv and _may_write(_innermost(argv)) for argv in argvs)


def _given(raws: Sequence[RawCommand]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the texts that a pipeline holds, and the words of its programs that may read them."""
    redirects = [redirect for raw in raws for redirect in raw.redirects]
    texts = [one.target for one in redirects if isinstance(one.target, str) and one.kind != "copy"]
    reading: list[tuple[str, ...]] = []
    for argv in filter(None, (tuple(word.text for word in raw.words) for raw in raws)):
        if argv[0] in _PRINTING:
            texts += map(_printed, argv[1:]) if argv[0] == "printf" else argv[1:]
        else:
            reading.append(argv)
    return texts, reading


def _printed(text: str) -> str:
    """Return what printf(1) prints of a text, as far as it matters to words."""
    return text.replace("\\n", "\n").replace("\\t", "\t").replace("%s", "")


def _orders(reading: Sequence[tuple[str, ...]], texts: Sequence[str]) -> Iterator[str]:
    """Yield why texts may be orders to one of the programs that read them."""
    for argv in reading:
        meaning = _innermost(argv)
        program = hazards.base_name(meaning.argv[0])
        sign = _ORDERS.get(program) or (VARYING if _takes_orders(program, meaning) else None)
        if _compiles(meaning):
            sign = _CALL
        if sign is not None and any(map(sign.search, texts)):
            yield f"what `{program}` does with it is not seen, and some rules deny or ask"


def _only_reads(argv: tuple[str, ...]) -> bool:
    meaning = _innermost(argv)
    return meaning.is_quiet and not _compiles(meaning)


def _compiles(meaning: CommandMeaning) -> bool:
    """Whether a command makes a program of its input."""
    return hazards.base_name(meaning.argv[0]) in _COMPILING and "-" in meaning.argv


def _takes_orders(program: str, meaning: CommandMeaning) -> bool:
    """Whether a program may start what its input says: none with a script or task that it runs."""
    if program in _ORDERED:
        return True
    if meaning.scripts or not _NAMED.isdisjoint(meaning.kinds):
        return False
    table = table_of(meaning)
    return program in hazards.SHELLS or "runs" in (
        *table.bare,
        *table.does,
        *table.operands[:1],
    )


def _innermost(argv: tuple[str, ...]) -> CommandMeaning:
    """Return what a command means without the wrappers around it."""
    meaning = read_command(argv)
    while meaning.inner and not meaning.unknown:
        meaning = read_command(meaning.argv[meaning.inner :])
    return meaning


def _over_input(meaning: CommandMeaning) -> Iterator[tuple[tuple[str, ...], list[int]]]:
    """Yield what runs with words that are found or read, and the places of these words.

    Sources: find(1), -exec; fd(1), --exec; xargs(1), -I.
    """
    if meaning.program == "xargs" and meaning.operands:
        inner = meaning.argv[meaning.operands[0] :]
        replacing = [option for option in meaning.options if option.name in _REPLACING]
        if not replacing:
            yield (*inner, "{}"), [len(inner)]
        for option in replacing:
            yield inner, _with(inner, option.value or "{}")
    for inner in _over_names(meaning):
        if meaning.program == "fd" and not _with(inner, "{"):
            inner = (*inner, "{}")  # The name is put behind the words.
        if inner and inner[0]:
            yield inner, _with(inner, "{")


def _over_names(meaning: CommandMeaning) -> Iterator[tuple[str, ...]]:
    starting = _FINDING.get(meaning.program, frozenset())
    ends = (";", "+") if meaning.program == "find" else (";",)
    for at, word in enumerate(meaning.argv):
        name, sign, value = word.partition("=")
        if name in starting:
            words = (value, *meaning.argv[at + 1 :]) if sign else meaning.argv[at + 1 :]
            yield words[: next((n for n, one in enumerate(words) if one in ends), len(words))]


def _with(words: Sequence[str], sign: str) -> list[int]:
    return [at for at, word in enumerate(words) if sign in word]


def _is_read_over(meaning: CommandMeaning) -> bool:
    """Whether a command is an `xargs` of which all words are understood."""
    words = [word for word in meaning.argv[1:] if word[:1] != "-"]
    return meaning.program == "xargs" and bool(meaning.operands or not words)


def _unknown_words(argv: tuple[str, ...], unknown: Collection[int]) -> str:
    """Return why words that are not known before a command runs may say what it starts.

    >>> _unknown_words(("git", "p*"), [1])
    '`p*` is not known before it runs, and may be what is started'
    >>> _unknown_words(("git", "add", "*.py"), [2])
    ''
    """
    while unknown:
        meaning, first = read_command(argv), min(unknown)
        place = 0 if meaning.unknown else meaning.inner or meaning.at
        is_wrapped = first < place and bool(meaning.inner)
        if is_wrapped or _decides(meaning, unknown):
            return f"`{argv[first][:60]}` is not known before it runs, and may be what is started"
        argv = argv[place:]
        unknown = [at - place for at in unknown if at >= place] if place else ()
    return ""


def _decides(meaning: CommandMeaning, unknown: Collection[int]) -> bool:
    """Whether one of some words is the program, its sub-command, what it starts, or code."""
    argv, first = meaning.argv, min(unknown)
    if first == 0:
        return True
    before = read_command(argv[:first])
    is_open = before.grammar is not None and not (before.unknown or before.operands)
    if is_open and table_of(before).commands:
        return True
    if meaning.unknown and hazards.base_name(argv[0]) in hazards.SHELLS:
        return True
    kinds = dict(zip(meaning.operands, meaning.kinds, strict=False))
    program = next((at for at, kind in kinds.items() if kind in _INDIRECT), 0)
    is_coded = table_of(meaning).reader in PROGRAMMED
    if program in unknown or (is_coded and any(kinds.get(at) == "runs" for at in unknown)):
        return True
    coded = {hazard.option[1] for hazard in meaning.hazards if hazard.option is not None}
    return not coded.isdisjoint(argv[at] for at in unknown)


def _may_write(meaning: CommandMeaning) -> bool:
    """Whether a command writes files by its words, or is not known only to read."""
    return not meaning.is_quiet or bool(meaning.writes or meaning.written_values)


def _asked(argv: Sequence[str], concern: str) -> JudgedCommand:
    said = f"`{' '.join(argv)[:120]}`: {concern}"
    return JudgedCommand(argv=tuple(argv), effect=Effect.ASK, reason=said, scrutiny=concern)
