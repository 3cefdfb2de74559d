"""Why a client does not list a file, and what to change, by the code of the finding."""

from __future__ import annotations

from typing import NamedTuple


class Cause(NamedTuple):
    """What is wrong in a few words, and the one change that ends it."""

    title: str
    fix: str


_ONE_UP = "move it, so that it is ROOT/NAME/SKILL.md"

CAUSES = {
    "frontmatter-missing": Cause(
        "the first line is not `---`", "begin the file with `---`, without a line before it"
    ),
    "frontmatter-unclosed": Cause(
        "the frontmatter has no closing `---`", "put a line `---` after the last field"
    ),
    "frontmatter-not-mapping": Cause(
        "the frontmatter is no list of fields", "write it as `name: …` and `description: …`"
    ),
    "frontmatter-too-large": Cause(
        "the frontmatter is too large", "move long values into the body"
    ),
    "bom": Cause("it begins with a byte order mark", "save it as UTF-8 without a byte order mark"),
    "encoding": Cause("it is not UTF-8", "save it as UTF-8 without a byte order mark"),
    "fence-blanks": Cause("there are blanks behind the first `---`", "delete them"),
    "yaml-error": Cause("its YAML cannot be read", "put the value on the line in quotes"),
    "yaml-duplicate-key": Cause("a field is there twice", "delete one of the two"),
    "yaml-alias": Cause("its YAML uses an anchor or alias", "write the value out"),
    "yaml-tag": Cause("its YAML uses a tag", "write the value as plain text"),
    "yaml-depth": Cause("its YAML is nested too deeply", "write the values flat"),
    "one-line-block": Cause(
        "a value begins with `>` or `|` on one line", "put the value in quotes, without the mark"
    ),
    "not-text": Cause(
        "`name` or `description` is a number, or true, false or null", "put the value in quotes"
    ),
    "description-missing": Cause(
        "it has no description", "add `description:`, what it does and when to use it"
    ),
    "description-blank": Cause(
        "nothing stands behind `description:`",
        "say in `description` what it does and when to use it",
    ),
    "name-blank": Cause(
        "nothing stands behind `name:`", "add `name:` with the name of its directory"
    ),
    "colon-unspaced": Cause("there is no blank behind a colon", "write a blank behind the colon"),
    "description-empty": Cause(
        "its description is empty", "say in `description` what it does and when to use it"
    ),
    "description-type": Cause("its description is no text", "write it as one text in quotes"),
    "description-too-long": Cause("its description is too long", "shorten it to 1,024 characters"),
    "hidden-characters": Cause(
        "there are hidden characters in it", "delete them; `skillhouse validate` says where"
    ),
    "name-missing": Cause("it has no name", "add `name:` with the name of its directory"),
    "name-invalid": Cause(
        "its name is not of a-z, 0-9 and single hyphens", "rename it and its directory"
    ),
    "name-mismatch": Cause(
        "its name is not that of its directory", "rename the directory to that name"
    ),
    "name-long": Cause("its name is longer than 64 characters", "shorten the name"),
    "too-large": Cause("the file is too large", "move parts of the body into other files"),
    "unreadable": Cause("it cannot be read", "give yourself the right to read it"),
    "not-a-file": Cause("SKILL.md is no file", "put a file there"),
    "path-encoding": Cause("the name of its directory is not UTF-8", "rename the directory"),
    "link-file": Cause("SKILL.md is a symbolic link", "link the directory and not the file"),
    "link-escape": Cause("a link out of the directory of skills is not followed", "copy it there"),
    "link-ignored": Cause("a symbolic link is not followed", "copy what it leads to there"),
    "link-broken": Cause("a symbolic link leads nowhere", "delete the link, or make it anew"),
    "link-cycle": Cause("a symbolic link leads in a circle", "delete the link"),
    "root-file": Cause("SKILL.md lies in the directory of skills itself", _ONE_UP),
    "too-deep": Cause("it lies too deep", _ONE_UP),
    "inside-a-skill": Cause("it lies inside another skill", _ONE_UP),
    "hidden-directory": Cause(
        "a directory on the way begins with a dot", "rename the directory, without the dot"
    ),
    "skipped-directory": Cause("it lies in a directory that is skipped", _ONE_UP),
    "not-listed": Cause(
        "it is where the client looks, and was not found",
        "the client looks at a bounded number of directories: use fewer",
    ),
}
"""In the order in which they are reported."""

MISSES = {
    "wrong-case": Cause(
        "the name of the file is not exactly SKILL.md", "rename the file to `SKILL.md`"
    ),
    "no-skill-file": Cause(
        "a directory of skills has a directory without SKILL.md",
        "put a SKILL.md there, or move the directory elsewhere",
    ),
}
