"""What to do about each finding: one sentence a code, the same wherever it is shown.

A finding that knows more, such as the name to write, has its own sentence.
"""

from __future__ import annotations

from collections.abc import Mapping

_SEEN_ONCE = "nothing is lost; delete the link if it is not meant"

MENDS: Mapping[str, str] = {
    # About the bytes of a SKILL.md.
    "too-large": "move parts of the body into other files, such as `references/NAME.md`",
    "large": "move parts of the body into other files, such as `references/NAME.md`",
    "encoding": "save it as UTF-8 without a byte order mark",
    "bom": "save it as UTF-8 without a byte order mark",
    "line-endings": "save it with LF as the end of lines",
    "unsteady": "look again when no program writes to it",
    # About the frontmatter.
    "frontmatter-missing": "begin the file with `---`, without a line before it",
    "frontmatter-unclosed": "put a line `---` after the last field",
    "frontmatter-too-large": "move long values into the body",
    "frontmatter-not-mapping": "write it as `name: …` and `description: …`",
    "yaml-error": "put the value on the line in quotes",
    "yaml-repaired": "put the value in quotes",
    "yaml-duplicate-key": "delete one of the two",
    "yaml-alias": "write the value out",
    "yaml-tag": "write the value as plain text",
    "yaml-depth": "write the values flat",
    "hidden-characters": "delete them; `skillhouse validate` says where",
    # About fields.
    "name-missing": "add `name:` with the name of its directory",
    "name-invalid": "rename it and its directory",
    "name-mismatch": "write the directory's name, or rename the directory to that name",
    "description-missing": "add `description:`, what it does and when to use it",
    "description-type": "write it as one text in quotes",
    "description-too-long": "shorten it to 1,024 characters",
    "metadata-type": "write each value of `metadata` as text in quotes",
    "allowed-tools-form": "separate the tools by spaces, for example `Read Write`",
    "compatibility-length": "write 1 to 500 characters, or delete the field",
    # About places.
    "unreadable": "make it readable for your user",
    "not-a-file": "put a file there",
    "path-encoding": "rename the directory",
    "root-not-directory": "name the directory that holds the skills",
    "link-escape": "copy it there",
    "link-ignored": "copy what it leads to there",
    "link-broken": "delete or recreate the link",
    "link-cycle": "delete the link",
    "same-directory": _SEEN_ONCE,
    "scan-limit": "split the directory, or name a smaller one with `--root`",
    "depth-limit": "move what should be found up, or name it with `--root`",
    "root-limit": "use fewer directories there",
    "below-a-skill": "move it beside the other one to have it found; as a file of that it is fine",
    "shadowed": "rename one of them, or delete the one that is not meant",
    "duplicate": "rename one of them",
}
