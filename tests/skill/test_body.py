"""Tests of skill/body.py: commands that need no shell, and placeholders."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillhouse.skill import plain_words
from skillhouse.skill.body import (
    ARGUMENTS_MAX,
    Filling,
    SubstitutionError,
    argument_names,
    find_commands,
    substitute,
)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("ls", ("ls",)),
        ("  ls\t-l  ", ("ls", "-l")),
        ("curl -s 'wttr.in/Paris?format=3'", ("curl", "-s", "wttr.in/Paris?format=3")),
        ('git commit -m "it\'s done; > 5"', ("git", "commit", "-m", "it's done; > 5")),
        ("echo 'a;b|c>d$e`f`*?[]{}~#!\\'", ("echo", "a;b|c>d$e`f`*?[]{}~#!\\")),
        ("echo a'b'\"c\"d", ("echo", "abcd")),
        ("echo '' \"\"", ("echo", "", "")),
        ("echo a~ a~b x#y ''#z", ("echo", "a~", "a~b", "x#y", "#z")),
        (
            "make prefix=/usr a,b %c @d ^e +f",
            ("make", "prefix=/usr", "a,b", "%c", "@d", "^e", "+f"),
        ),
        ("écho 日本 😀", ("écho", "日本", "😀")),
        ("ls" + " a" * 2_000, ("ls", *["a"] * 2_000)),
    ],
)
def test_a_command_that_needs_no_shell_is_taken_apart(command: str, words: tuple[str, ...]) -> None:
    assert plain_words(command) == words


@pytest.mark.parametrize(
    "command",
    [
        *("", " ", "\t", "a; b", "a;", "a & b", "a &", "a && b", "a || b", "a | b", "a |& b"),
        *("a > b", "a >> b", "a < b", "a 2>&1", "a >&2", "a << b", "a <(b)", "a <<< b", "a >| b"),
        *("$a", "a $b", "a ${b}", "a $(b)", "a $((1))", "a `b`", 'a "$b"', 'a "`b`"', 'a "$(b)"'),
        *("a *", "a ?", "a [b]", "a {b,c}", "a ~", "a ~b", "~/a", "a b=~/c", "a b:~/c", "a =~"),
        *(
            "a \\b",
            "a\\\nb",
            'a "\\b"',
            "a\nb",
            "a\n",
            "\na",
            "a # b",
            "# a",
            "a !b",
            'a "!b"',
            "! a",
        ),
        *("(a)", "{ a; }", "a()", "a=b", "a=b c", "'a=b' c", '"a"=b c', "a 'b", 'a "b', "a 'b\nc'"),
        *("a\0b", "a 'b\0'", "a\rb", "a\r", "a 'b' \r", "a\u00a0b", "a\u2003b", "a\x0bb", "a\x1fb"),
        "a " + "b" * 4_096,
    ],
)
def test_a_command_that_a_shell_would_expand_join_or_redirect_is_not_plain(command: str) -> None:
    assert plain_words(command) is None


def shells() -> list[str]:
    return [path for name in ("sh", "dash", "bash") if (path := shutil.which(name))]


@pytest.fixture(scope="module")
def split_by_shell(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], list[str]]:
    """Return a function that has a shell split words, where every expansion would show."""
    home = tmp_path_factory.mktemp("home")
    for name in ("a", "b", "ab", "x=a", "x:a"):
        (home / name).touch()
    environment = {"HOME": str(home), "PATH": "", "a": "expanded", "LC_ALL": "C.UTF-8"}

    def split(shell: str, words: str) -> list[str]:
        done = subprocess.run(
            [shell, "-c", f"printf '%s\\0' {words}"],
            cwd=home,
            env=environment,
            capture_output=True,
            check=True,
        )
        assert done.stderr == b""
        return done.stdout.decode().split("\0")[:-1]

    return split


FRAGMENTS = (
    *(
        "a",
        "b",
        "ab",
        "x=",
        "x:",
        "~",
        "~/",
        "~root",
        "#",
        "*",
        "?",
        "[a]",
        "{a,b}",
        "$a",
        "${a}",
        "$",
        "`",
    ),
    *(
        "'",
        '"',
        "\\",
        " ",
        "  ",
        "\t",
        "\n",
        "\r",
        ";",
        "&",
        "|",
        ">",
        "<",
        "(",
        ")",
        "!",
        "=",
        ",",
        ":",
        "/",
    ),
    *(
        "%",
        "@",
        "^",
        "+",
        "-",
        "é",
        "日",
        "\x0b",
        "\x1f",
        "\u00a0",
        "\u3000",
        "\x7f",
        "\x01",
        ".",
        "''",
        '""',
    ),
)


def agree(split: Callable[[str, str], list[str]], text: str) -> None:
    """Hold a text that is taken for plain against what each shell makes of it."""
    words = plain_words(f"run {text}")
    if words is None:
        return
    for shell in shells():
        assert tuple(split(shell, f"run {text}")) == words


@pytest.mark.slow
@settings(max_examples=150)
@given(parts=st.lists(st.sampled_from(FRAGMENTS), max_size=8))
def test_a_shell_splits_a_plain_command_into_the_same_words(
    split_by_shell: Callable[[str, str], list[str]], parts: list[str]
) -> None:
    agree(split_by_shell, "".join(parts))


@pytest.mark.heavy
@pytest.mark.slow
@settings(max_examples=2_500)
@given(parts=st.lists(st.sampled_from(FRAGMENTS), max_size=8))
def test_a_shell_splits_very_many_plain_commands_into_the_same_words(
    split_by_shell: Callable[[str, str], list[str]], parts: list[str]
) -> None:
    agree(split_by_shell, "".join(parts))


@pytest.mark.parametrize("unit", ["a", "'a'", '"a"', "a ", "a~", "a#", "~", "''"])
@pytest.mark.parametrize("end", ["$", "'", '"', "\\"])
def test_a_long_command_is_judged_at_once(unit: str, end: str) -> None:
    # A pattern that can match a run in several ways would need 2^n steps to see that it fails.
    command = "run " + unit * (4_000 // len(unit)) + end
    before = time.process_time()
    assert plain_words(command) is None
    assert time.process_time() - before < 1


PLACE = Path("/skills/fix")


@pytest.mark.parametrize(
    ("body", "arguments", "expected"),
    [
        ("Do $ARGUMENTS now", "a b", "Do a b now"),
        ("$0, $1, $2.", "'one two' three", "one two, three, ."),
        ("$ARGUMENTS[1]", "a b", "b"),
        ("no place", "a b", "no place\n\nARGUMENTS: a b\n"),
        ("no place", "", "no place"),
        ("$ARGUMENTS", "", ""),
        ("${CLAUDE_SKILL_DIR}/run.py", "", "/skills/fix/run.py"),
        ("${CLAUDE_SESSION_ID}", "", "s1"),
        ("cost: $HOME ${HOME} $$", "", "cost: $HOME ${HOME} $$"),
        ("$ARGUMENTS", "$0 ${CLAUDE_SKILL_DIR}", "$0 ${CLAUDE_SKILL_DIR}"),
        ("$0", "it's", "it's"),
        ("Fix $issue for $who", "12", "Fix 12 for "),
    ],
)
def test_places_are_filled(body: str, arguments: str, expected: str) -> None:
    filled = substitute(body, arguments, directory=PLACE, session="s1", names=("issue", "who"))
    assert filled == expected


@pytest.mark.parametrize(
    ("value", "names"),
    [("issue who", ("issue", "who")), (["a", "b"], ("a", "b")), ({"x": "y"}, ()), (None, ())],
)
def test_the_frontmatter_names_the_arguments(value: object, names: tuple[str, ...]) -> None:
    assert argument_names({"arguments": value}) == names


def test_commands_are_found_where_the_author_wrote_them() -> None:
    body = "State: !`git status`\n```!\nls -l\npwd\n```\n`code` ! `no`\n```\n!x\n```\n"
    found = list(find_commands(body))
    assert [place.command for place in found] == ["git status", "ls -l\npwd"]
    assert [body[place.start : place.end] for place in found] == [
        "!`git status`",
        "```!\nls -l\npwd\n```",
    ]


@pytest.mark.parametrize(
    "body",
    [
        "```bash\n!`ls`\n```\n",
        "~~~\n```!\nls\n```\n~~~\n",
        "````\n```!\nls\n```\n````\n",
        "```!\nls\n",
        "```!\nls\n!`pwd`\n",
        "KEY=!`ls`",
        "`!`ls`",
        "!``",
        "!`a\nb`",
    ],
)
def test_examples_and_what_is_not_closed_are_no_commands(body: str) -> None:
    assert [place.command for place in find_commands(body)] == []


def test_a_block_has_a_command_a_line() -> None:
    (place,) = find_commands("```!\nls -l\n\n  # a comment\n  pwd\n```")
    assert place.lines == ("ls -l", "pwd")


def test_a_body_full_of_openings_is_read_once() -> None:
    assert list(find_commands("```!\n" * 50_000)) == []
    assert len(list(find_commands("!`" * 100_000))) == 1


def test_positions_can_begin_with_one() -> None:
    assert substitute("$0|$1|$2", "a b", directory=PLACE, positions_from=1) == "|a|b"


def test_places_that_would_fill_the_memory_are_refused() -> None:
    with pytest.raises(SubstitutionError, match="expected at most 1048576 characters"):
        substitute("$ARGUMENTS" * 20, "a" * ARGUMENTS_MAX, directory=PLACE)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("git log $0", ("git", "log", "a b; $(x)")),
        ("git log '$0' \"x$1\"", ("git", "log", "a b; $(x)", "x--c")),
        ("sh ${CLAUDE_SKILL_DIR}/run.sh $issue", ("sh", "/skills/fix/run.sh", "a b; $(x)")),
        ("echo $ARGUMENTS", ("echo", "'a b; $(x)' --c")),
        ("$0 x", None),
        ("$ARGUMENTS", None),
        ("echo $HOME", None),
        ("echo $(id)", None),
        ("ls | sh", None),
        ("ls; id", None),
        ("ls > $0", None),
        ("echo \ue0000\ue001", None),
        ("", None),
    ],
)
def test_a_command_is_taken_apart_before_its_places_are_filled(
    command: str, words: tuple[str, ...] | None
) -> None:
    filling = Filling("'a b; $(x)' --c", directory=PLACE, names=("issue",))
    assert filling.words(command) == words


_BODY = st.text(alphabet="!`~a $0\n{}#", max_size=60)


@given(body=_BODY)
def test_commands_are_parts_of_the_body_in_their_order(body: str) -> None:
    at = 0
    for place in find_commands(body):
        assert at <= place.start < place.end <= len(body)
        part = body[place.start : place.end]
        assert part.startswith(("!`", "```!\n"))
        assert place.command == part.strip("!`\n ") or place.command in part
        at = place.end


@given(arguments=st.text(alphabet="!`$ARGUMENTS0{}_'\" ;|\n", max_size=40))
def test_no_argument_changes_how_many_words_a_command_has(arguments: str) -> None:
    filling = Filling(arguments, directory=PLACE)
    words = filling.words("git log $ARGUMENTS $0 '$1'")
    assert words is not None
    assert (len(words), words[:3]) == (5, ("git", "log", arguments))
