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

from skillhouse.permission.grammar import grammar_of
from skillhouse.permission.raw_line import is_whole_line
from skillhouse.skill import BodyMentions, Mention, UnjudgedBlock, find_mentions, plain_words
from skillhouse.skill.body import (
    ARGUMENTS_MAX,
    LOOKS_MAX,
    STATEMENT_CHARS,
    STATEMENT_LINES,
    PlaceholderSubstitution,
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
    filling = PlaceholderSubstitution("'a b; $(x)' --c", directory=PLACE, names=("issue",))
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
    filling = PlaceholderSubstitution(arguments, directory=PLACE)
    words = filling.words("git log $ARGUMENTS $0 '$1'")
    assert words is not None
    assert (len(words), words[:3]) == (5, ("git", "log", arguments))


def found(body: str, *tools: str) -> BodyMentions:
    return find_mentions(
        body, frozenset(tools), is_program=lambda name: grammar_of(name) is not None
    )


def mentioned(body: str, *tools: str) -> list[tuple[str, str, int]]:
    return [(each.kind, each.text, each.line) for each in found(body, *tools).found]


def statements(lines: str) -> list[tuple[str, int]]:
    mentions = find_mentions(f"```bash\n{lines}\n```\n", is_whole=is_whole_line)
    return [(each.text, each.line) for each in mentions.found]


@pytest.mark.parametrize(
    "whole",
    [
        "if [ -f a.js ]; then\n  rm a.js\n\n  ls\nfi",
        "for host in a b; do\n  ping $host\ndone",
        "case $ENV in\nstaging) ls ;;\nesac",
        "while read line; do\necho $line\ndone < in.txt",
        "deploy() {\n  ls\n}",
        "cat << 'EOF' > rules.txt\nif then\n'\nEOF",
        "git commit -m \"$(cat <<'EOF'\nIt's done\nEOF\n)\"",
        "python3 -c '\nimport os\nprint(1)\n'",
        "curl -d '{\n \"a\": 1\n}' https://a.example",
    ],
)
def test_a_statement_of_several_lines_is_one_command(whole: str) -> None:
    assert statements(f"#!/bin/bash\n# It's a script\n{whole}\nls -l") == [
        (whole, 4),
        ("ls -l", 5 + whole.count("\n")),
    ]


@pytest.mark.parametrize("opened", ["if true", "cat <<EOF", "echo 'a", "f() {", "for x in a; do"])
def test_what_never_ends_is_taken_line_by_line(opened: str) -> None:
    assert statements(f"{opened}\nrm -r b\n\nls") == [(opened, 2), ("rm -r b", 3), ("ls", 5)]
    many = [f"echo {number}" for number in range(2 * STATEMENT_LINES)]
    assert [text for text, _ in statements("\n".join([opened, *many]))] == [opened, *many]


def test_looks_for_the_end_of_statements_are_counted() -> None:
    looks = []

    def is_whole(text: str) -> bool:
        looks.append(len(text))
        return False

    body = "```sh\n" + "if x\n" * 100_000 + f"echo '{'a' * 10_000}\n" * 10 + "```\n"
    find_mentions(body, is_whole=is_whole)
    assert LOOKS_MAX * 0.9 < len(looks) <= LOOKS_MAX
    assert max(looks) <= STATEMENT_CHARS


def test_a_body_names_commands_and_tools_with_their_lines() -> None:
    body = """# Weather

Use the `exec` tool, or ``exec``, or `exec` again. Not `curl`.

```bash
# Ask for a city
curl -s "wttr.in/Tokyo?format=3"
$ curl -s \\
    wttr.in/Kyoto
  ls   -l

curl -s "wttr.in/Tokyo?format=3"
```
`read`
"""
    assert found(body, "exec", "read").found == (
        Mention(kind="tool", text="exec", line=3),
        Mention(kind="command", text='curl -s "wttr.in/Tokyo?format=3"', line=7),
        Mention(kind="command", text="curl -s      wttr.in/Kyoto", line=8),
        Mention(kind="command", text="ls   -l", line=10),
        Mention(kind="tool", text="read", line=14),
    )


@pytest.mark.parametrize(
    "language", ["bash", "sh", "shell", "zsh", "console", "Bash", "bash title=x"]
)
@pytest.mark.parametrize("fence", ["```", "````", "~~~", "   ```", "``` "])
def test_blocks_of_shells_hold_commands(fence: str, language: str) -> None:
    body = f"{fence}{language}\nls\n{fence}\nrm\n"
    assert mentioned(body) == [("command", "ls", 2)]


@pytest.mark.parametrize("language", ["python", "json", "bashrc"])
def test_blocks_of_other_languages_are_counted_and_not_judged(language: str) -> None:
    assert found(f"```{language}\nrm -rf /\n```").unjudged == (
        UnjudgedBlock(line=1, label=language),
    )
    assert mentioned(f"```{language}\nls `exec`\n```\n`exec`\n", "exec") == [("tool", "exec", 4)]


@pytest.mark.parametrize(
    ("body", "commands"),
    [
        ("```sh\nls\n~~~\n```\npwd\n", ["ls", "~~~"]),
        ("````sh\nls\n```\npwd\n````\nid\n", ["ls", "```", "pwd"]),
        ("```sh\nls\n``` x\npwd\n```\nid\n", ["ls", "``` x", "pwd"]),
        ("```sh\nls", ["ls"]),
        ("```sh\nls \\", ["ls"]),
        ("```sh\nls \\\n```\npwd\n", ["ls"]),
        ("```sh\n# a comment \\\nls\n```", ["ls"]),
        ("```sh\n> ls\n% pwd\n$ id\n$HOME/x\n```", ["ls", "pwd", "id", "$HOME/x"]),
        ("```ls```\n\n```sh\npwd\n```\n", ["pwd"]),
        ("    ```sh\n    ls\n    ```\n", ["ls"]),
        ("```sh\n    ```\nls\n```\n", ["```", "ls"]),
        ("- ```sh\n  ls\n  ```\n\npwd\n", ["ls"]),
        ("> ```sh\n> ls\n> ```\npwd\n", ["ls"]),
        ("```sh\n> ls\n```\n> ```\n> ls -l\n> ```\n", ["ls", "ls -l"]),
        ("```sh\n```\nls\n", []),
        ("", []),
    ],
)
def test_fences_open_and_close_as_in_markdown(body: str, commands: list[str]) -> None:
    assert [each.text for each in found(body).found] == commands


def test_no_more_mentions_than_the_bound() -> None:
    body = "```sh\n" + "".join(f"ls {number}\n" for number in range(300)) + "```\n"
    assert [each.text for each in found(body).found] == [f"ls {number}" for number in range(200)]


def test_commands_of_the_shipped_skills_are_found() -> None:
    root = Path(__file__).resolve().parents[2] / "src/skillhouse/builtin"
    bodies = [path.read_text(encoding="utf-8") for path in sorted(root.glob("*/SKILL.md"))]
    assert bodies
    tools = frozenset({"fetch", "web_search"})
    assert all(find_mentions(body, tools).found for body in bodies)


@pytest.mark.parametrize(
    "body",
    [
        "```\nrm -rf /\n```\n",
        "~~~\nrm -rf /\n~~~\n",
        "```text\nrm -rf /\n```\n",
        "```{.bash}\nrm -rf /\n```\n",
        "Run it:\n\n    rm -rf /\n",
        "# Clean\n    rm -rf /\n",
        "Run it:\n\n\trm -rf /\n",
        "1. Run it:\n\n       rm -rf /\n",
        "1. Run it:\n\n    rm -rf /\n",
        "1. Run it:\n\n    ```\n    rm -rf /\n    ```\n",
        "- ```\n  rm -rf /\n  ```\n",
        "> Run it:\n>\n>     rm -rf /\n",
        "> ```\n> rm -rf /\n> ```\n",
        "Now run `rm -rf /` at once.\n",
        "Now run ``rm -rf /`` at once.\n",
        "- Now run `$ rm -rf /` at once.\n",
        "Now run <code>rm -rf /</code> at once.\n",
        "```\n$ rm -rf /\n```\n",
        "```\nrm \\\n-rf /\n```\n",
    ],
)
def test_a_command_is_found_wherever_a_model_would_read_it(body: str) -> None:
    said = found(body)
    assert [each.text.split() for each in said.found] == [["rm", "-rf", "/"]]
    assert said.unjudged == ()


@pytest.mark.parametrize(
    "command",
    [
        "sudo rm -rf /",
        "LANG=C git log",
        "./install.sh",
        "scripts/run.py x",
        "~/bin/tool -x",
        "su -",
    ],
)
def test_wrappers_assignments_and_scripts_begin_commands(command: str) -> None:
    assert mentioned(f"```\n{command}\n```") == [("command", command, 2)]


def test_a_block_that_holds_more_than_commands_is_counted() -> None:
    body = "```\ngit status\nnothing to commit\n```\n\n    some text\n\n<pre>rm -rf /</pre>\n"
    assert found(body) == BodyMentions(
        found=(Mention(kind="command", text="git status", line=2),),
        unjudged=(
            UnjudgedBlock(line=1, label=""),
            UnjudgedBlock(line=6, label="indented"),
            UnjudgedBlock(line=8, label="html"),
        ),
    )


def test_a_block_beyond_the_bound_is_counted() -> None:
    commands = "".join(f"ls {number}\n" for number in range(201))
    assert found(f"```sh\n{commands}```\n").unjudged == (UnjudgedBlock(line=1, label="sh"),)
    inline = " ".join(f"`ls {number}`" for number in range(202))
    assert found(inline).unjudged == (UnjudgedBlock(line=1, label="inline"),)


@pytest.mark.parametrize(
    "body",
    [
        "Use `git` and `/etc/hosts`, or `a title`.\n",
        "A paragraph\n    find the rest here\n",
        "- An item\n\n    find the rest here\n",
        "find the file and make a copy\n",
    ],
)
def test_prose_and_names_are_no_commands(body: str) -> None:
    assert found(body) == BodyMentions(found=(), unjudged=())
