"""Tests of skill/body.py: the commands and tools a body names, and what was not judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.permission.grammar import grammar_of
from skillhouse.skill import BodyMentions, Mention, UnjudgedBlock, find_mentions


def found(body: str, *tools: str) -> BodyMentions:
    return find_mentions(
        body, frozenset(tools), is_program=lambda name: grammar_of(name) is not None
    )


def mentioned(body: str, *tools: str) -> list[tuple[str, str, int]]:
    return [(each.kind, each.text, each.line) for each in found(body, *tools).found]


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
