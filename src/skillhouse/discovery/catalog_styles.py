"""The layouts of a list of skills: its frame, and one skill's lines."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

import skillhouse.skill as skill_package
from skillhouse.floor import SkillError
from skillhouse.floor.regex import regex
from skillhouse.skill import Profile, Skill, is_demanded

DIRECT_CHARS = 1_000
"""Characters of a body that the direct prompt shows (S004-38)."""
CUT_MARK = "..."
"""Appended to a text that was cut (S004-38)."""
CLUSTER_MAX = 64
"""Characters that a cut steps back at most, to keep a grapheme whole."""

_ENTITIES = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&apos;"))
_CONTROL = "\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff\\ufffe\\uffff"
"""XML 1.0 excludes these (production [2]), and newlines could imitate the layout."""
_HIDDEN = (
    "\\u061c\\u180e\\u200b\\u200c\\u200e\\u200f\\u202a-\\u202e\\u2060-\\u206f\\ufeff"
    "\\U000e0000-\\U000e007f"
)
"""What a model reads and a person does not see; a directory's name can contain it."""
_UNPRINTABLE = f"[{_CONTROL}{_HIDDEN}]+"
_UNPRINTABLE_IN_BODY = f"(?![\\n\\t])[{_CONTROL}{_HIDDEN}]"
_LAYOUT = regex(r"(?im)^(?=[ ]{0,3}#{1,3}[ \t]+(?:Skill:|Available Skills))")
"""Lines of a body that look like headings of the direct prompt."""
_JOINER = "\u200d"


class CatalogEntry(NamedTuple):
    text: str
    is_cut: bool = False
    """Whether a description or body is not there in full."""


Shortening = Callable[[Skill, int], str]
"""Gives so many characters of a skill's description."""


class Entry(Protocol):
    def __call__(
        self, skill: Skill, chars: int | None, shorten: Shortening | None = None, /
    ) -> CatalogEntry | None:
        """Return a skill's lines, or None when its file cannot be used any more.

        `chars` bounds the description: 0 is no description, None is the profile's bound. `shorten`
        cuts it to the former.
        """


class Style(Struct, frozen=True, kw_only=True):
    """How a list of skills is written for a model."""

    head: str
    tail: str
    entry: Entry


ListedFiles = Callable[[Skill], Sequence[str]]
"""Gives the names in a skill's directory that a list may have, in order."""


def style_of(name: str, profile: Profile, files: ListedFiles | None = None) -> Style:
    if name == "awareness":
        return _awareness(profile, files)
    return _BUILDERS[name](profile)


def shortened(text: str, limit: int, *, mark: str = CUT_MARK) -> str:
    """Return at most `limit` code points and the mark of a cut, or the text when it fits.

    Graphemes, such as an accented letter or a joined emoji, are not split, unless longer than
    `CLUSTER_MAX`.

    >>> shortened("abcd", 4), shortened("nai\u0308ve", 3)
    ('abcd', 'na...')
    """
    if len(text) <= limit:
        return text
    at = limit
    while at > 0 and limit - at < CLUSTER_MAX and _belongs_together(text, at):
        at -= 1
    return text[: at if at and not _belongs_together(text, at) else limit] + mark


def _belongs_together(text: str, at: int) -> bool:
    """Whether the characters before and at `at` are one grapheme (UAX #29, in part)."""
    before, after = text[at - 1], text[at]
    if after.isascii():
        return False
    if _JOINER in (before, after) or unicodedata.category(after) in ("Mn", "Me", "Mc"):
        return True
    if "\U0001f3fb" <= after <= "\U0001f3ff" or "\U000e0020" <= after <= "\U000e007f":
        return True
    if "\u1160" <= after <= "\u11ff":
        return True
    if _is_indicator(after):
        run = 0
        while run < at and run < CLUSTER_MAX and _is_indicator(text[at - 1 - run]):
            run += 1
        return run % 2 == 1
    return False


def _is_indicator(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def one_line(text: str) -> str:
    """Return a text without line breaks and without what a person cannot see."""
    if not text.isprintable():
        # Compiling the pattern takes longer than a whole catalog, so it is not done for most.
        text = re.sub(_UNPRINTABLE, _blank, text)
    return text


def _blank(found: re.Match[str]) -> str:
    """Return a blank for what a person cannot see, and as it is what spelling demands there."""
    first = found.start()
    signs = enumerate(found[0], first)
    kept = "".join(sign if is_demanded(found.string, at) else " " for at, sign in signs)
    return kept if kept.strip() else " "


def escaped(text: str) -> str:
    """Return a text for one place of an XML document."""
    text = one_line(text)
    # Faster than `translate`, because most texts contain none of them.
    for character, entity in _ENTITIES:
        if character in text:
            text = text.replace(character, entity)
    return text


def _bold(text: str) -> str:
    """Return a name that cannot end its own emphasis."""
    return one_line(text).replace("*", "\\*")


def _describing(
    profile: Profile,
) -> Callable[[Skill, int | None, Shortening | None], tuple[str, bool]]:
    """Return a function that gives a skill's description, and whether it was cut."""
    most = profile.catalog.description_chars

    def describe(skill: Skill, chars: int | None, shorten: Shortening | None) -> tuple[str, bool]:
        text = skill.description
        limit = most if chars is None else chars if most is None else min(chars, most)
        if limit is None or len(text) <= limit:
            return text, False
        if shorten is not None and limit == chars:
            return shorten(skill, limit), True
        return shortened(text, limit), True

    return describe


def _xml(profile: Profile) -> Style:
    """The lines exactly as S000-36 lays them out."""

    def attributes(skill: Skill) -> tuple[str, str]:
        if not profile.catalog.attributes:
            return "", ""
        number = skill.frontmatter.version
        version = f"    <version>{escaped(number)}</version>\n" if number else ""
        return f' id="{escaped(skill.directory.name)}"', version

    return _tagged(profile, "", lambda skill: skill.file, attributes)


def _opencode(profile: Profile) -> Style:
    """The published sentences and tags, with addresses for locations."""
    sentences = (
        "Skills provide specialized instructions and workflows for specific tasks.\n"
        "Use the skill tool to load a skill when a task matches its description.\n"
    )
    return _tagged(profile, sentences, lambda skill: skill.uri, lambda _: ("", ""))


def _tagged(
    profile: Profile,
    sentences: str,
    location: Callable[[Skill], str],
    attributes: Callable[[Skill], tuple[str, str]],
) -> Style:
    describe = _describing(profile)

    def entry(
        skill: Skill, chars: int | None, shorten: Shortening | None = None, /
    ) -> CatalogEntry:
        about, is_cut = describe(skill, chars, shorten)
        attribute, version = attributes(skill)
        description = f"    <description>{escaped(about)}</description>\n" if chars != 0 else ""
        return CatalogEntry(
            text=(
                f"  <skill{attribute}>\n"
                f"    <name>{escaped(skill.name)}</name>\n"
                f"{description}{version}"
                f"    <location>{escaped(location(skill))}</location>\n"
                "  </skill>\n"
            ),
            is_cut=is_cut,
        )

    head = f"{sentences}<available_skills>\n"
    return Style(head=head, tail="</available_skills>", entry=entry)


def _awareness(profile: Profile, files_of: ListedFiles | None = None) -> Style:
    describe = _describing(profile)
    sources = _sources(profile)
    tops: dict[str, Sequence[str]] = {}

    def entry(
        skill: Skill, chars: int | None, shorten: Shortening | None = None, /
    ) -> CatalogEntry:
        """Return the lines of S004-35."""
        about, is_cut = describe(skill, chars, shorten)
        if skill.file not in tops:
            listed = files_of(skill) if files_of else skill_package.list_top(skill.directory)
            tops[skill.file] = listed
        listed = tops[skill.file]
        files = list(listed[: profile.resources_listed])
        if len(listed) > len(files):
            files.append(f"and {len(listed) - len(files)} more")
        source = sources.get(skill.scope, skill.scope)
        text = f"- **{_bold(skill.name)}** ({one_line(source)})\n"
        if chars != 0:
            text += f"  Description: {one_line(about)}\n"
        text += f"  Path: {one_line(str(skill.directory))}/\n"
        if files:
            text += f"  Files: {', '.join(files)}\n"
        return CatalogEntry(text=text + "\n", is_cut=is_cut)

    return Style(
        head=(
            "## Available Skills\n\n"
            "The following skills are available. Use Bash to read SKILL.md for detailed "
            "instructions.\n\n"
        ),
        tail="",
        entry=entry,
    )


def _direct(profile: Profile) -> Style:
    describe = _describing(profile)
    bodies: dict[str, tuple[str, bool] | None] = {}

    def entry(
        skill: Skill, chars: int | None, shorten: Shortening | None = None, /
    ) -> CatalogEntry | None:
        """Return the lines of S004-37, the body read now."""
        heading = f"### Skill: {one_line(skill.name)}\n"
        if chars == 0:
            return CatalogEntry(text=heading + "\n", is_cut=True)
        about, is_cut = describe(skill, chars, shorten)
        if skill.file not in bodies:
            bodies[skill.file] = _body_beginning(skill)
        if (found := bodies[skill.file]) is None:
            return None
        body, is_body_cut = found
        return CatalogEntry(
            text=f"{heading}**Description:** {one_line(about)}\n\n{body}\n\n",
            is_cut=is_cut or is_body_cut,
        )

    return Style(head="## Available Skills\n\n", tail="", entry=entry)


def _body_beginning(skill: Skill) -> tuple[str, bool] | None:
    """Return the beginning of a body, and whether it was cut; None if it cannot be shown."""
    try:
        text = skill_package.load(skill).body.strip()
    except (SkillError, OSError):
        # One bad file never hides other skills; loading it reports the error.
        return None
    hidden = skill_package.hidden_text(text, is_part=True)
    if hidden is not None and hidden.asks:
        # A list asks for no approval, so text that may hide an instruction is left to the tool.
        return None
    body = skill_package.revealed(text)
    shown = shortened(body, DIRECT_CHARS)
    return _body(shown), shown is not body


def _body(text: str) -> str:
    """Return a body whose lines cannot imitate the list around it."""
    if not text.isprintable():
        text = re.sub(_UNPRINTABLE_IN_BODY, _blank, text)
    return _LAYOUT.sub(r"\\", text)


def _tool(profile: Profile) -> Style:
    describe = _describing(profile)

    def entry(
        skill: Skill, chars: int | None, shorten: Shortening | None = None, /
    ) -> CatalogEntry:
        """Return the line of S004-39."""
        if chars == 0:
            return CatalogEntry(text=f"- **{_bold(skill.name)}**\n", is_cut=True)
        about, is_cut = describe(skill, chars, shorten)
        return CatalogEntry(text=f"- **{_bold(skill.name)}**: {one_line(about)}\n", is_cut=is_cut)

    name = next((rule.name for rule in profile.tools if rule.kind == "skill"), "skill")
    return Style(
        head=(
            "## Available Skills\n\n"
            f"Use the `{name}` tool to load detailed instructions for any skill.\n\n"
        ),
        tail="",
        entry=entry,
    )


def _titled(profile: Profile) -> Style:
    """Our own layout: each skill begins as the load style `titled` shows it."""
    describe = _describing(profile)

    def entry(
        skill: Skill, chars: int | None, shorten: Shortening | None = None, /
    ) -> CatalogEntry:
        about, is_cut = describe(skill, chars, shorten)
        description = f"{one_line(about)}\n" if chars != 0 else ""
        return CatalogEntry(
            text=(
                f"# Skill: {one_line(skill.name)}\n"
                f"{description}"
                f"Location: {one_line(skill.file)}\n\n"
            ),
            is_cut=is_cut,
        )

    return Style(head="", tail="", entry=entry)


def _sources(profile: Profile) -> Mapping[str, str]:
    return {rule.name: rule.source for rule in profile.scopes if rule.source}


_BUILDERS: Mapping[str, Callable[[Profile], Style]] = {
    "xml": _xml,
    "awareness": _awareness,
    "direct": _direct,
    "tool": _tool,
    "opencode": _opencode,
    "titled": _titled,
}
COMPACT = "compact"
"""The plain list of `names_first`, one skill a line without markup."""
STYLES = (*_BUILDERS, COMPACT)
"""All renderers, which are part of the public contract."""
