"""What is wrong and what to do about it: one title and one sentence a code, wherever it is shown.

A finding that knows more, such as the name to write, has its own sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Cause(NamedTuple):
    title: str
    """What is wrong, in the report on clients; empty where that does not report it."""
    mend: str
    """What to do about it."""


ONE_UP = "move it, so that it is ROOT/NAME/SKILL.md"
ONE_NAME = "rename all but one, directory and `name`, or delete them"
_SEEN_ONCE = "nothing is lost; delete the link if it is not meant"

CAUSES: Mapping[str, Cause] = {
    "frontmatter-missing": Cause(
        "the first line is not `---`", "begin the file with `---`, without a line before it"
    ),
    "frontmatter-unclosed": Cause(
        "the frontmatter has no closing `---`", "put a line `---` after the last field"
    ),
    "frontmatter-not-mapping": Cause(
        "the frontmatter is not a list of fields", "write it as `name: …` and `description: …`"
    ),
    "frontmatter-too-large": Cause(
        "the frontmatter is too large", "move long values into the body"
    ),
    "bom": Cause("it begins with a byte order mark", "save it as UTF-8 without a byte order mark"),
    "encoding": Cause("it is not UTF-8", "save it as UTF-8 without a byte order mark"),
    "fence-blanks": Cause("there are spaces after the first `---`", "delete them"),
    "frontmatter-ignored": Cause(
        "its YAML cannot be read, and the first line of the body is taken for the description",
        "put the value on the line in quotes",
    ),
    "frontmatter-cut": Cause(
        "`---` within a value ends the frontmatter", "write the value without three hyphens"
    ),
    "read-by-lines": Cause(
        "its YAML gives no text for `name` and `description`, and both are read line by line",
        "write each as text on one line, with a space after the colon",
    ),
    "yaml-error": Cause("its YAML cannot be read", "put the value on the line in quotes"),
    "yaml-duplicate-key": Cause("a field occurs twice", "delete one of the two"),
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
    "description-ignored": Cause(
        "its description is no text, and the first line of the body is used",
        "write it as one text in quotes",
    ),
    "name-type": Cause("its name is not text", "write it as one text in quotes"),
    "metadata-typed": Cause(
        "`metadata` is not a map", "write it as a map of text to text, or delete it"
    ),
    "field-type": Cause(
        "a field is of another type than the client reads",
        "write it as text or list of texts, or as `true` or `false`",
    ),
    "description-type": Cause("its description is not text", "write it as one text in quotes"),
    "description-too-long": Cause("its description is too long", "shorten it to 1,024 characters"),
    "hidden-characters": Cause(
        "it contains hidden characters", "delete them; `skillhouse validate` says where"
    ),
    "name-missing": Cause("it has no name", "add `name:` with the name of its directory"),
    "name-invalid": Cause(
        "its name is not of a-z, 0-9 and single hyphens", "rename it and its directory"
    ),
    "name-mismatch": Cause(
        "its name is not that of its directory",
        "give the directory and `name` the same name, of a-z, 0-9 and single hyphens",
    ),
    "name-long": Cause("its name is longer than 64 characters", "shorten the name"),
    "too-large": Cause(
        "the file is too large",
        "move parts of the body into other files, such as `references/NAME.md`",
    ),
    "unreadable": Cause("it cannot be read", "make it readable for your user"),
    "not-a-file": Cause("SKILL.md is not a file", "put a file there"),
    "path-encoding": Cause("the name of its directory is not UTF-8", "rename the directory"),
    "link-file": Cause("SKILL.md is a symbolic link", "link the directory and not the file"),
    "link-escape": Cause("a link out of the directory of skills is not followed", "copy it there"),
    "link-owner": Cause(
        "a link leads to what other users can write, and is not followed",
        "copy it there, or make what it leads to yours alone",
    ),
    "link-untrusted": Cause(
        "a link leads into the project", "`skillhouse trust` in the project lets it be read"
    ),
    "link-ignored": Cause("a symbolic link is not followed", "copy what it leads to there"),
    "link-broken": Cause("a symbolic link is broken", "delete or recreate the link"),
    "link-cycle": Cause("a symbolic link leads in a circle", "delete the link"),
    "root-file": Cause("SKILL.md is directly in the directory of skills", ONE_UP),
    "too-deep": Cause("it is nested too deeply", ONE_UP),
    "inside-a-skill": Cause("it is inside another skill", ONE_UP),
    "hidden-directory": Cause(
        "a directory on the way begins with a dot", "rename the directory, without the dot"
    ),
    "skipped-directory": Cause("it is in a directory that is skipped", ONE_UP),
    "not-listed": Cause(
        "it is where the client looks, and was not found",
        "the client looks at a bounded number of directories: use fewer",
    ),
    "wrong-case": Cause(
        "the name of the file is not exactly SKILL.md", "rename the file to `SKILL.md`"
    ),
    "no-skill-file": Cause(
        "a directory of skills has a directory without SKILL.md",
        "put a SKILL.md there, or move the directory elsewhere",
    ),
    # Not in the report on clients.
    "large": Cause("", "move parts of the body into other files, such as `references/NAME.md`"),
    "line-endings": Cause("", "save it with LF as the end of lines"),
    "unsteady": Cause("", "look again when no program writes to it"),
    "yaml-repaired": Cause("", "put the value in quotes"),
    "comment-cut": Cause(
        "YAML takes the rest of its description for a comment", "put the value in quotes"
    ),
    "key-case": Cause("a field is written in another case", "write it in small letters"),
    "metadata-type": Cause("", "write each value of `metadata` as text in quotes"),
    "allowed-tools-form": Cause("", "separate the tools by spaces, for example `Read Write`"),
    "compatibility-length": Cause("", "write 1 to 500 characters, or delete the field"),
    "root-not-directory": Cause("", "name the directory that holds the skills"),
    "same-directory": Cause("", _SEEN_ONCE),
    "other-checkout": Cause("", "nothing is lost; work in that checkout to use its own"),
    "linked-changed": Cause("", "`skillhouse trust` shows it and takes it as it is"),
    "scan-limit": Cause("", "split the directory, or name a smaller one with `--root`"),
    "depth-limit": Cause("", "move what should be found up, or name it with `--root`"),
    "root-limit": Cause("", "use fewer directories there"),
    "below-a-skill": Cause(
        "", "move it beside the other one to have it found; as a file of that it is fine"
    ),
    "shadowed": Cause("", ONE_NAME),
    "duplicate": Cause("", ONE_NAME),
}
"""In the order in which the report on clients has them."""

MENDS: Mapping[str, str] = {code: cause.mend for code, cause in CAUSES.items()}
