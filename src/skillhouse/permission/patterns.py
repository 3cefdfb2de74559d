"""Patterns of rules about commands: what they cover, leave uncovered, and deny."""

from __future__ import annotations

import enum
import functools
import posixpath
import shlex
from collections.abc import Callable, Container, Iterator, Mapping, Sequence

from msgspec import Struct

from skillhouse.floor.regex import regex
from skillhouse.floor.rules import Effect, matches
from skillhouse.permission.command_reader import read_command
from skillhouse.permission.grammar import CommandMeaning, Hazard
from skillhouse.permission.plan import command_resource
from skillhouse.permission.raw_line import Word


class Breadth(enum.IntEnum):
    """How specifically the rules that allow a command name it."""

    NONE = 0
    PROGRAM = 1
    """A wildcard after the program's name."""
    NARROW = 2
    """A wildcard after more than the program's name."""
    EXACT = 3
    ALL = 4
    """The operator's `*` alone: any command whatever."""


class CommandPattern(Struct, frozen=True):
    """The pattern of a rule about commands, read once."""

    text: str
    words: tuple[str, ...]
    """The words before the first wildcard."""
    is_open: bool
    """Whether any further words may follow."""
    is_wild: bool = False
    """Whether it has other wildcards than a final ` *`, and is compared as text."""

    @property
    def breadth(self) -> Breadth:
        if not self.words:
            is_all = self.is_wild and not self.text.strip("*")
            return Breadth.ALL if is_all else Breadth.PROGRAM
        if not self.is_open and not self.is_wild:
            return Breadth.EXACT
        return Breadth.NARROW if len(self.words) > 1 else Breadth.PROGRAM


@functools.lru_cache(maxsize=4096)
def command_pattern(text: str) -> CommandPattern:
    """Return the pattern of a layer's rule: `*` and `?` are wildcards wherever they stand."""
    head, is_open = text, False
    if text.endswith(" *"):
        head, is_open = text[:-2], True
    if not any(sign in head for sign in "*?"):
        try:
            words = tuple(shlex.split(head))
        except ValueError:
            words = tuple(head.split(" "))
        if words:
            return CommandPattern(text, words, is_open)
    literal = min((head.find(sign) for sign in "*?" if sign in head), default=len(head))
    return CommandPattern(text, tuple(text[:literal].split(" ")[:-1]), is_open=False, is_wild=True)


def covers_command(pattern: CommandPattern, meaning: CommandMeaning) -> bool:
    """Whether a pattern that allows is about a command; what it leaves is another question."""
    argv = meaning.argv
    if pattern.is_wild:
        return _matches_text(pattern, _resource(argv))
    words = pattern.words
    if argv[: len(words)] == words and (pattern.is_open or len(argv) == len(words)):
        return True
    if argv[0] != words[0] or meaning.unknown or meaning.grammar is None:
        return False
    named = read_command(words)
    return _is_about(named, meaning, is_open=pattern.is_open)


def left_uncovered(
    pattern: CommandPattern,
    meaning: CommandMeaning,
    *,
    unbound: bool = False,
    started: bool = False,
    scripts: bool = False,
) -> str:
    """Return the first thing that a pattern which covers a command's words does not name, or "".

    Args:
        unbound: Whether the rule covers programs that run whatever code the workspace holds.
        started: Whether it covers these where another program that it names starts them.
        scripts: Whether it covers scripts and tasks of the workspace that it does not name.
    """
    if not pattern.is_open and not pattern.is_wild and pattern.words == meaning.argv:
        return ""
    named = read_command(pattern.words) if pattern.words else None
    is_free = unbound or (started and named is not None and named.started is not None)
    for at in meaning.chain():
        for hazard in at.hazards:
            is_named = _names(named, hazard) or (scripts and _is_script(at, hazard))
            if not is_named or (hazard.kind == "unbound" and not is_free):
                return hazard.said
        if at.started is not None and at.started.unknown:
            return at.started.unknown
        # What runs in a container or on another machine has not the code of this workspace.
        is_free = is_free or at.is_far
        named = named.started if named is not None else None
    return ""


def denies_command(pattern: CommandPattern, meaning: CommandMeaning) -> bool:
    """Whether a pattern that denies or asks is about a command, however it is spelt."""
    if _denies(pattern, meaning):
        return True
    in_full = _in_full(meaning)
    return in_full is not None and _denies(pattern, in_full)


def programs_of(meaning: CommandMeaning) -> frozenset[str]:
    """Return the names by which a pattern may mean a command: its own and what it starts."""
    names: set[str] = set()
    for at in meaning.chain():
        names |= {at.argv[0], at.program}
        if at.grammar is not None and at.grammar.same_as:
            names.add(at.grammar.same_as[0])
    return frozenset(names)


def _in_full(meaning: CommandMeaning) -> CommandMeaning | None:
    """Return a command by the words that its program is short for, or None where it is not."""
    if meaning.grammar is None or not meaning.grammar.same_as:
        return None
    return read_command((*meaning.grammar.same_as, *meaning.argv[1:]))


def _denies(pattern: CommandPattern, meaning: CommandMeaning) -> bool:
    if pattern.is_wild:
        texts = [_resource(meaning.argv), *map(_resource, _plain_words(meaning))]
        return any(_matches_text(pattern, text) for text in texts)
    words = pattern.words
    named = read_command(words)
    for at in meaning.chain():
        if at.argv[: len(words)] == words and (pattern.is_open or len(at.argv) == len(words)):
            return True
        if named.program == at.program and at.grammar is not None:
            if at.unknown or (named.unknown and not named.cut):
                if pattern.is_open and (
                    _follow(words[1:], at.argv[1:]) or _follow_spelt(words[1:], at)
                ):
                    return True
            elif _is_about(named, at, is_open=pattern.is_open, is_denial=True):
                return True
    return False


def applies_to_command(text: str, argv: tuple[str, ...], *, allows: bool) -> bool:
    """Whether the pattern of a rule is about a command: one that denies, however that is spelt."""
    pattern, meaning = command_pattern(text), read_command(argv)
    is_about = covers_command if allows else denies_command
    return pattern.breadth is Breadth.ALL or is_about(pattern, meaning)


def _plain_words(meaning: CommandMeaning) -> Iterator[tuple[str, ...]]:
    """Yield a command's words by the full names of its sub-command, without what is before it."""
    if meaning.grammar is None:
        return
    yield (meaning.program, *meaning.path, *meaning.words(meaning.operands))
    if meaning.path:
        rest = [w for w in meaning.argv[1:] if w[:1] == "-"]
        yield (meaning.program, *meaning.path, *rest, *meaning.words(meaning.operands))
    if meaning.started is not None:
        yield meaning.started.argv
        yield from _plain_words(meaning.started)


def _is_about(
    named: CommandMeaning, meaning: CommandMeaning, *, is_open: bool, is_denial: bool = False
) -> bool:
    """Whether the words of a rule are those of a command, by its grammar."""
    if named.unknown and not (named.cut and is_open):
        return False
    if is_denial and is_open and named.path and named.path == meaning.groups[: len(named.path)]:
        return not (_own_operands(named) or named.options)
    ours, theirs = _named_operands(named, meaning, is_denial=is_denial), _own_operands(meaning)
    if ours is None:
        return False
    if is_denial:  # A deny of `rm x` is about `rm y x` as well.
        has_operands = _in_order(ours, theirs, is_mode=meaning.program == "chmod")
    else:
        has_operands = ours == theirs[: len(ours)]
    if not has_operands or not _has_options(named, meaning, is_denial=is_denial):
        return False
    if not _has_started(named, meaning, is_open=is_open, is_denial=is_denial):
        return False
    is_whole = named.path == meaning.path and len(ours) == len(theirs)
    return is_open or (is_whole and _is_no_more(named, meaning, is_denial=is_denial))


def _named_operands(
    named: CommandMeaning, meaning: CommandMeaning, *, is_denial: bool
) -> tuple[str, ...] | None:
    """Return the operands of a rule; None where it names another sub-command."""
    ours = _own_operands(named)
    further = named.path[len(meaning.path) :]
    if named.path[: len(meaning.path)] == meaning.path and further and is_denial:
        return (*further, *ours)  # In `kubectl get pods,secrets` the kind is no sub-command.
    if named.path != meaning.path[: len(named.path)] or (ours and named.path != meaning.path):
        return None
    return ours


def _has_options(named: CommandMeaning, meaning: CommandMeaning, *, is_denial: bool) -> bool:
    given = _spelt(meaning) if is_denial else {(o.name, o.value) for o in meaning.options}
    names = {name for name, _ in given}
    for option in named.options:
        is_given = (option.name, option.value) in given
        if is_denial:  # A deny of `sed -i` is about `sed -i.bak` too.
            is_given = is_given or (option.value is None and option.name in names)
            is_given = is_given or option.is_global
        if not is_given:
            return False
    return not named.cut or named.cut in names


def _has_started(
    named: CommandMeaning, meaning: CommandMeaning, *, is_open: bool, is_denial: bool
) -> bool:
    if named.started is None:
        return True
    return meaning.started is not None and _starts(
        named.started, meaning.started, is_open=is_open, is_denial=is_denial
    )


def _is_no_more(named: CommandMeaning, meaning: CommandMeaning, *, is_denial: bool) -> bool:
    """Whether a command has nothing besides the operands that its rule does not have."""
    if named.started is None and meaning.started is not None:
        return False
    return is_denial or _local(named) == _local(meaning)


def _spelt(meaning: CommandMeaning) -> set[tuple[str, str | None]]:
    """Return the options of a command by all their names, with what they mean together."""
    given = {
        (name, option.value)
        for option in meaning.options
        for name in (option.name, *option.spellings)
    }
    for short, parts in meaning.table.means if meaning.table is not None else ():
        names = {name for name, _ in given}
        words = {f"{name}={value}" for name, value in given} | names
        added = parts if short in names else {short} if parts <= words else ()
        for word in added:
            name, sign, value = word.partition("=")
            rule = meaning.table.options[name] if meaning.table is not None else None
            others = rule.spellings if rule is not None else ()
            given |= {(one, value if sign else None) for one in (name, *others)}
    if meaning.program == "git" and meaning.path == ("push",):
        for word in meaning.words(meaning.operands):
            given |= {(one, None) for one in _said_by_refspec(word)}
    return given


def _said_by_refspec(word: str) -> tuple[str, ...]:
    """Return the options of git-push(1) that a refspec means: `+main`, `:gone`."""
    forced = ("--force", "-f") if word[:1] == "+" else ()
    ref = word.removeprefix("+")
    return (*forced, "--delete", "-d") if ref[:1] == ":" and ref != ":" else forced


_MODE = regex(r"0*([0-7]{0,3}[0-7])")
_CLAUSE = regex(r"([ugoa]*)[+=]([rwxXst]+)")
_WHO = {"u": 0o4700, "g": 0o2070, "o": 0o1007, "a": 0o7777}
_RIGHTS = {"r": 0o444, "w": 0o222, "x": 0o111, "X": 0o111, "s": 0o6000, "t": 0o1000}


def _mode(word: str) -> int | None:
    """Return the bits that a mode of chmod sets; None where it takes some away, or is none.

    >>> [oct(_mode(word) or 0) for word in ("0777", "a+rwx", "u=rw,go=r")]
    ['0o777', '0o777', '0o644']
    """
    if found := _MODE.fullmatch(word):
        return int(found[1], 8)
    bits = 0
    for clause in word.split(","):
        found = _CLAUSE.fullmatch(clause)
        if found is None:
            return None
        for right in found[2]:
            for who in found[1] or "a":
                bits |= _RIGHTS[right] & _WHO[who]
    return bits


def _is_mode(word: str, other: str) -> bool:
    """Whether a mode sets what a denied one does, perhaps with a special bit more."""
    denied, given = _mode(word), _mode(other)
    return (
        denied is not None
        and given is not None
        and denied & 0o777 == given & 0o777
        and denied & 0o7000 & ~given == 0
    )


def _starts(
    named: CommandMeaning, meaning: CommandMeaning, *, is_open: bool, is_denial: bool
) -> bool:
    count = len(named.argv)
    if meaning.argv[:count] == named.argv and (is_open or len(meaning.argv) == count):
        return True
    same = named.program == meaning.program if is_denial else named.argv[0] == meaning.argv[0]
    if not same or meaning.grammar is None or meaning.unknown:
        return False
    return _is_about(named, meaning, is_open=is_open, is_denial=is_denial)


def _own_operands(meaning: CommandMeaning) -> tuple[str, ...]:
    """Return the operands that are not words of what the command starts."""
    places = meaning.operands
    if meaning.started is not None:
        places = [place for place in places if place < meaning.at]
    return meaning.words(places)


def _local(meaning: CommandMeaning) -> list[tuple[str, str]]:
    return sorted((o.name, o.value or "") for o in meaning.options if not o.is_global)


def _names(named: CommandMeaning | None, hazard: Hazard) -> bool:
    """Whether the words of a rule name what a hazard is about."""
    if named is None:
        return False
    if hazard.option is not None:
        return any((o.name, o.value) == hazard.option for o in named.options)
    if hazard.operand >= 0:
        return len(named.operands) > hazard.operand
    return len(named.path) >= hazard.depth


_resource = functools.lru_cache(maxsize=256)(command_resource)


def _matches_text(pattern: CommandPattern, text: str) -> bool:
    """Whether a pattern with other wildcards matches; its final ` *` is also no further word."""
    bare = pattern.text.removesuffix(" *")
    return matches(pattern.text, text) or (bare != pattern.text and matches(bare, text))


def _is_script(meaning: CommandMeaning, hazard: Hazard) -> bool:
    """Whether a hazard is a script or task of the workspace, asked about by the digest of its file.

    INVARIANT: the `scripts` of the command hold that file.
    """
    place = hazard.operand
    if hazard.kind != "runs" or not 0 <= place < len(meaning.kinds):
        return False
    kind, started = meaning.kinds[place], meaning.started
    if kind == "task":
        return bool(meaning.scripts)
    path = posixpath.normpath(meaning.argv[meaning.operands[place]])
    # Without a suffix it may be a directory or a name to which the interpreter adds one.
    if path.startswith(("-", "/dev/")) or not posixpath.splitext(path)[1]:
        return False
    if kind == "program":
        # Whether its path is one of the workspace is seen only here.
        is_inside = path[0] not in "/~" and not path.startswith("../")
        # In a container, and among packages, it is not one of the workspace.
        is_here = all(h is hazard or h.kind == "unbound" for h in meaning.hazards)
        return started is not None and bool(started.scripts) and is_inside and is_here
    return kind == "script" and bool(meaning.scripts)


def _in_order(words: Sequence[str], others: Sequence[str], *, is_mode: bool = False) -> bool:
    rest = iter(others)
    return all(
        any(
            word == other or word in other.split(",") or (is_mode and _is_mode(word, other))
            for other in rest
        )
        for word in words
    )


def _follow(words: Sequence[str], argv: Sequence[str]) -> bool:
    """Whether all words are in a command in this order, a long option perhaps cut short."""
    rest = iter(argv)
    return all(any(_is_word(word, given) for given in rest) for word in words)


def _follow_spelt(words: Sequence[str], meaning: CommandMeaning) -> bool:
    """Whether all words are in a command that is not understood: options by any of their
    spellings and wherever they stand, the others in their order."""
    argv = meaning.argv[1:]
    spellings = _spellings_of(meaning)
    options: list[str] = []
    for word in words:
        letters = [f"-{letter}" for letter in word[1:]] if word[1:2] != "-" else []
        is_bundle = word not in spellings and spellings.keys() >= set(letters)
        options += () if word[:1] != "-" else letters if is_bundle else (word,)
    others = [word for word in words if word[:1] != "-"]
    return _follow(others, argv) and all(
        any(_is_word(one, given) for one in (word, *spellings.get(word, ())) for given in argv)
        for word in options
    )


def _spellings_of(meaning: CommandMeaning) -> Mapping[str, frozenset[str]]:
    """Return the further spellings of each option of the program and of its sub-commands."""
    if meaning.grammar is None:
        return {}
    table = meaning.grammar.program
    found = {word: rule.spellings for word, rule in table.options.items()}
    for name in meaning.path:
        if name not in table.commands:
            break
        table = table.commands[name]
        found |= {word: rule.spellings for word, rule in table.options.items()}
    return found


def _is_word(word: str, given: str) -> bool:
    if given == word:
        return True
    if len(word) == 2 and word[0] == "-" and given[:1] == "-" and given[1:2] != "-":
        return word[1] in given  # A letter among others: `-lc` of a shell.
    name = given.partition("=")[0]
    return word[:2] == "--" and len(name) > 2 and word.partition("=")[0].startswith(name)


PATTERNS_MAX = 64
"""Patterns of one command that a wildcard covers."""

_OPEN = frozenset(("read", "write", "text", "words", "script", "program", "command", "option"))
"""Roles of words whose text decides about nothing but the file that is meant."""


def pattern_remarks(words: Sequence[Word], guarded: Container[int]) -> Iterator[tuple[Effect, str]]:
    """Yield why the patterns of a command are asked about, whatever rules say."""
    for at, word in enumerate(words):
        if word.pattern and at == 0:
            yield Effect.ASK, "the program's name is a pattern"
        elif _may_be_option(words, at) and at not in guarded:
            said = f"`{word.text[:60]}` may match a name that is an option; write ./ before it"
            yield Effect.ASK, said


def guarded_patterns(
    words: Sequence[Word], names: Callable[[str], Sequence[str] | None]
) -> tuple[int, ...]:
    """Return the places of patterns that could match a name that is an option, and match none now.

    INVARIANT: the runner of the plan looks again, and refuses a name that has come since.

    Args:
        words: The words of a command.
        names: Gives the names that match now, or None where that is not known.
    """
    found = []
    for at in range(1, len(words)):
        if _may_be_option(words, at):
            matching = names(words[at].pattern)
            if matching is not None and not any(name[:1] == "-" for name in matching):
                found.append(at)
    return tuple(found)


def _may_be_option(words: Sequence[Word], at: int) -> bool:
    return words[at].pattern[:1] in ("*", "?", "[", "-") and all(
        word.text != "--" for word in words[:at]
    )


def pattern_concern(meaning: CommandMeaning, words: Sequence[Word]) -> str:
    """Return why a wildcard does not cover the patterns of a command, or nothing.

    Each may become several words. INVARIANT: all of these, and all words behind them, then mean
    what the words as written do: in `uniq ./*` the second name is written to.
    """
    places = [at for at, word in enumerate(words) if word.pattern]
    if not places or meaning.grammar is None:
        return ""
    if len(places) > PATTERNS_MAX:
        return f"more than {PATTERNS_MAX} patterns"
    roles = _roles(meaning)
    twice: list[str] = []
    expected: list[str] = []
    for at, word in enumerate(meaning.argv):
        count = 2 if at in places else 1
        twice += [word] * count
        expected += [roles[at]] * count
    if _roles(read_command(tuple(twice))) != expected:
        return "a pattern that matches several names changes what the words behind it mean"
    for at in places:
        if roles[at] not in _OPEN or (roles[at] in _STARTING and roles[at] not in roles[:at]):
            return f"`{words[at].text[:60]}` may match another name than is judged"
    return ""


_STARTING = ("script", "program", "command")


def _roles(meaning: CommandMeaning) -> list[str]:
    """Return what each word of a command is to its program."""
    roles = ["option"] * len(meaning.argv)
    for at, kind in zip(meaning.operands, meaning.kinds, strict=False):
        roles[at] = kind
    for at in meaning.reads:
        roles[at] = "read"
    for at in meaning.writes:
        roles[at] = "write"
    if meaning.started is not None:
        roles[meaning.at :] = _roles(meaning.started)
    return roles
