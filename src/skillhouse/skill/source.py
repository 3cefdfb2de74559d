"""Stages 1 and 2 of reading a SKILL.md: bytes to text, and the fences of its frontmatter.

With what is wrong and what to do about it: one title and one sentence a code, wherever it is shown.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from skillhouse.floor import Diagnostic, Severity, digest
from skillhouse.floor.regex import regex


class Cause(NamedTuple):
    title: str
    """What is wrong, in the report on clients; empty where that does not report it."""
    hint: str
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

HINTS: Mapping[str, str] = {code: cause.hint for code, cause in CAUSES.items()}


SKILL_FILE_MAX = 1_048_576
"""Bytes of a SKILL.md (docs/reference/limits.md)."""
SKILL_FILE_LARGE = 262_144
"""Bytes above which a SKILL.md loads with a warning; a model gets no more of it at a time
(docs/reference/limits.md)."""
FRONTMATTER_MAX = 65_536
"""Bytes between the fences (docs/reference/limits.md)."""

YAML_DEPTH_MAX = 16
"""Nested collections; the top mapping is level 1 (docs/reference/limits.md)."""
FIRST_LINE = 2
"""Line of the file at which a frontmatter block begins."""

_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_LONE_CR = regex(rb"\r(?!\n)")
_CLOSING = regex(rb"[\r\n]---[ \t]*(?:\r\n|\r|\n|\Z)")
_BLANKS = b" \t"


class Finding(NamedTuple):
    """A diagnostic before it has a place in the file system."""

    code: str
    message: str
    line: int | None = None
    fatal: bool = False
    field: str = ""
    hint: str = ""
    """What to do instead, where that of the code is not exact enough."""
    detail: str = ""
    info: bool = False

    def diagnostic(self, path: Path | None) -> Diagnostic:
        severity = Severity.INFO if self.info else Severity.WARNING
        return Diagnostic(
            code=self.code,
            severity=Severity.ERROR if self.fatal else severity,
            message=self.message,
            path=path,
            line=self.line,
            field=self.field,
            hint=self.hint or HINTS.get(self.code, ""),
            detail=self.detail,
        )


class FileRefusedError(Exception):
    """Reading ended here; the finding says why. Private to this package."""

    def __init__(
        self,
        code: str,
        message: str,
        line: int | None = None,
        *,
        field: str = "",
        hint: str = "",
        detail: str = "",
    ) -> None:
        super().__init__(message)
        self.finding = Finding(
            code, message, line, fatal=True, field=field, hint=hint, detail=detail
        )


class SourceHead(NamedTuple):
    """The frontmatter of a file and where its body begins."""

    block: str
    """The text between the fences, newlines as LF; it begins at line 2 of the file."""
    end: int
    """Offset of the body in the bytes that `normalise` returned."""


class IncompleteError(Exception):
    """The bytes given end before the frontmatter does; more of the file is needed."""


def check_size(size: int, findings: list[Finding]) -> None:
    """Refuse a file that is `too-large`; a warning about its size is added to `findings`."""
    if size > SKILL_FILE_MAX:
        raise FileRefusedError("too-large", f"expected at most {SKILL_FILE_MAX} bytes, got {size}")
    if size > SKILL_FILE_LARGE:
        message = f"{size} bytes: a model gets at most {SKILL_FILE_LARGE} of them at a time"
        findings.append(Finding("large", message))


def normalise(data: bytes, findings: list[Finding]) -> bytes:
    """Return `data` without a mark and with LF newlines, adding warnings to `findings`.

    A UTF-16 mark or a NUL is refused as `encoding`; UTF-8 is judged by `decoded`.
    """
    if data[:2] in _UTF16:
        raise FileRefusedError("encoding", "expected UTF-8, got UTF-16", 1)
    nul = data.find(b"\0")
    if nul >= 0:
        # Not a count of LF: CR alone is a newline as well.
        raise FileRefusedError("encoding", "a NUL byte", len(data[: nul + 1].splitlines()))
    if data.startswith(_BOM):
        findings.append(Finding("bom", "a byte order mark before the frontmatter", 1))
        data = data[3:]
    if b"\r" in data:
        lone = _LONE_CR.search(data)
        if lone:
            line = data.count(b"\n", 0, lone.start()) + 1
            findings.append(Finding("line-endings", "CR alone as a newline", line))
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data


def decoded(data: bytes, first_line: int = 1) -> str:
    """Return `data` as text; `encoding` has the line of the first byte that is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        raise FileRefusedError(
            "encoding", f"byte 0x{data[error.start]:02x} is not UTF-8", line
        ) from None


def cut_head(data: bytes, *, complete: bool) -> bytes:
    """Return the beginning of a file up to the end of its closing line, bytes as they are.

    Without an opening or a closing line all of `data` is returned, for `split_head` to refuse.
    IncompleteError: the file goes on, and the closing line does not end in `data`.
    """
    if not data.startswith((b"---", _BOM + b"---")):
        return data
    if b"\r" in data:
        closing = _CLOSING.search(data)
        end = closing.end() if closing else -1
        # At the end of what was read, more of the line may follow, or the LF of its CRLF.
        ended = bool(closing) and (complete or data[end - 1 : end] == b"\n" or end < len(data))
    else:
        fence, end = _find_closing(data, data.find(b"\n"))
        ended = fence >= 0 and (complete or data[end - 1 : end] == b"\n")
    if ended:
        return data[:end]
    if not complete:
        raise IncompleteError
    return data


def _find_closing(data: bytes, at: int) -> tuple[int, int]:
    """Return where, from the newline at `at`, the newline before a closing line is, and its end.

    The newline that ends the opening line may be the one before the closing line.
    """
    fence = data.find(b"\n---", at) if at >= 0 else -1
    while fence >= 0:
        newline = data.find(b"\n", fence + 4)
        end = newline if newline >= 0 else len(data)
        if not data[fence + 4 : end].strip(_BLANKS):
            return fence, end + (newline >= 0)
        fence = data.find(b"\n---", fence + 4)
    return -1, -1


def split_head(data: bytes) -> SourceHead:
    """Return the frontmatter of normalised `data`, or refuse what has none that can be read."""
    start = data.find(b"\n") + 1
    opening = data[:start] if start else data
    if opening[:3] != b"---" or opening[3:].strip(b" \t\n"):
        raise FileRefusedError("frontmatter-missing", "expected `---` as the first line", 1)
    fence, end = _find_closing(data, start - 1)
    if fence < 0:
        raise FileRefusedError(
            "frontmatter-unclosed", "no closing line `---` after the frontmatter", 1
        )
    block = data[start : fence + 1]
    if len(block) > FRONTMATTER_MAX:
        raise FileRefusedError(
            "frontmatter-too-large",
            f"expected at most {FRONTMATTER_MAX} bytes of frontmatter, got {len(block)}",
            1,
        )
    return SourceHead(decoded(block, 2), end)


NAME_MAX = 64
"""Characters of a name (specification, `name`)."""

_NO_NAME = regex(r"[^a-z0-9]+")
_STRICT = regex(r"[a-z0-9]+(?:-[a-z0-9]+)*")


def name_findings(name: str, directory: str) -> list[Finding]:
    strict = len(name) <= NAME_MAX and _STRICT.fullmatch(name) is not None
    if strict and name == directory:
        return []
    findings = []
    if not strict:
        findings.append(
            Finding(
                "name-invalid",
                f"`name`: expected 1-64 of a-z, 0-9 and single hyphens, got {name!r}",
                field="name",
                hint=_suggested(name),
            )
        )
    # macOS keeps accents apart from their letters: that is no second fault of the name.
    if name != directory and not (findings and _is_one_text(name, directory)):
        findings.append(
            Finding(
                "name-mismatch",
                f"`name`: expected the directory's name {directory!r}, got {name!r}",
                field="name",
            )
        )
    return findings


def _is_one_text(one: str, other: str) -> bool:
    return unicodedata.normalize("NFC", one) == unicodedata.normalize("NFC", other)


def _suggested(name: str) -> str:
    """Return what to write instead of a name; empty where nothing of it can stay.

    >>> _suggested("PDF Tools_2")
    'write `name: pdf-tools-2`, and rename the directory to it'
    """
    made = _plain_name(name)
    return f"write `name: {made}`, and rename the directory to it" if made else ""


def _plain_name(name: str) -> str:
    """Return the strict name that is nearest to another; empty where nothing of it can stay.

    >>> [_plain_name(name) for name in ("Content Strategist", "node.js", "größe", "中文技能")]
    ['content-strategist', 'node-js', 'grosse', '']
    """
    # Letters without their accents.
    plain = unicodedata.normalize("NFKD", name[: 4 * NAME_MAX].casefold())
    bare = "".join(sign for sign in plain if not unicodedata.combining(sign))
    return _NO_NAME.sub("-", bare).strip("-")[:NAME_MAX].strip("-")


def install_name(said: str, folder: str) -> str:
    """Return what an installed skill is called in commands and in the lock, and its directory here.

    Args:
        said: Its name, as it says it.
        folder: Its directory where it is from.

    >>> install_name("pdf", "x"), install_name("Content Strategist", "x")
    ('pdf', 'content-strategist')
    >>> install_name("中文技能", "chinese"), install_name("中文技能", "中文")
    ('chinese', 'skill-7dc30721')
    """
    # INVARIANT: the name becomes that of a directory, so only the strict alphabet will do.
    return _plain_name(said) or _plain_name(folder) or f"skill-{digest(said.encode())[7:15]}"


def validate_name(name: str, *, directory: str) -> tuple[Diagnostic, ...]:
    """Return the findings of the strict rule for `name` in a directory of that name."""
    findings = (
        name_findings(name, directory)
        if name
        else [Finding("name-missing", "`name`: expected a name, got nothing", field="name")]
    )
    return tuple(finding._replace(fatal=True).diagnostic(None) for finding in findings)
