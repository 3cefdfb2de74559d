"""Tests of skill/mentions.py: the commands that a body names, and those that need no shell."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillhouse.skill import Mention, find_mentions, plain_words


def mentioned(body: str, *tools: str) -> list[tuple[str, str, int]]:
    return [(each.kind, each.text, each.line) for each in find_mentions(body, frozenset(tools))]


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
    assert find_mentions(body, frozenset({"exec", "read"})) == (
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


@pytest.mark.parametrize("language", ["", "python", "json", "bashrc", "text"])
def test_other_blocks_hold_none(language: str) -> None:
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
        ("    ```sh\n    ls\n    ```\n", []),
        ("```sh\n```\nls\n", []),
        ("", []),
    ],
)
def test_fences_open_and_close_as_in_markdown(body: str, commands: list[str]) -> None:
    assert [each.text for each in find_mentions(body)] == commands


def test_no_more_mentions_than_the_bound() -> None:
    body = "```sh\n" + "".join(f"ls {number}\n" for number in range(300)) + "```\n"
    assert [each.text for each in find_mentions(body)] == [f"ls {number}" for number in range(200)]


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


def test_commands_of_the_shipped_skills_are_found() -> None:
    root = Path(__file__).resolve().parents[2] / "src/skillhouse/builtin"
    bodies = [path.read_text(encoding="utf-8") for path in sorted(root.glob("*/SKILL.md"))]
    assert bodies
    tools = frozenset({"fetch", "web_search"})
    assert all(find_mentions(body, tools) for body in bodies)
