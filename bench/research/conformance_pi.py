"""The skill tests of pi: its fixtures, found by `discover` under the profile `default`."""

from __future__ import annotations

import re
from pathlib import Path

from research.conformance_ground import Ground, Judge, Suite, agree, differ, skill_text
from skillhouse import Skill, discover, render_catalog
from skillhouse.discovery import Root
from skillhouse.floor import encode
from skillhouse.floor.structs import replace
from skillhouse.skill import RootRule, SkillIndex

FIXTURES = "packages/coding-agent/test/fixtures"
ROOTS = "client guide: skills are subdirectories of a root; decision 0004"
REPAIR = "vectors, frontmatter stage 3: F054; decision 0150"
HIDING = "`render_catalog` lists its whole index; `Skillhouse` keeps them out (decision 0397)"


def fixtures(ground: Ground) -> Path:
    """Return the directory of the fixtures."""
    return ground.checkout / FIXTURES


def fixture_index(ground: Ground) -> SkillIndex:
    """Return what discovery finds among the fixtures."""
    return discover([fixtures(ground) / "skills"], profile=ground.profile)


def fixture(name: str, *, called: str | None = "", codes: str = "", line: int = 0) -> Judge:
    """Return a judge of one fixture directory.

    Args:
        name: The directory.
        called: The name of the one skill found there; empty is the directory's, None is no skill.
        codes: Findings that there must be and others there may not be; those of a `?` may.
        line: The line that a finding must name.
    """

    def judge(ground: Ground) -> bool:
        place = fixtures(ground) / "skills" / name
        index = fixture_index(ground)
        found = [s for s in index.skills if s.directory.is_relative_to(place)]
        said = [
            d for d in index.diagnostics
            if d.path is not None and d.path.is_relative_to(place)
        ]  # fmt: skip
        if called is None:
            right = not found
        else:
            right = [skill.name for skill in found] == [called or name]
            # The file itself says what the description is; a block of lines only begins with `|`.
            text = next(iter(found)).location.read_text(encoding="utf-8") if found else ""
            written = re.search(r"(?m)^description: *(?:\|\n +)?(.*)$", text)
            right = right and written is not None and found[0].description.startswith(written[1])
        wanted = {code for code in codes.split() if not code.endswith("?")}
        allowed = {code.rstrip("?") for code in codes.split()}
        given = {finding.code for finding in said}
        lines = {finding.line for finding in said}
        return right and wanted <= given <= allowed and (not line or line in lines)

    return judge


def made_up(name: str, description: str = "A test.", **fields: str) -> Skill:
    """Return a skill that lies nowhere."""
    return Skill(
        name=name, description=description, scope="explicit", file=f"/at/{name}/SKILL.md",
        root="/at", packed_fields=encode({"name": name, "description": description, **fields}),
    )  # fmt: skip


def listed(*skills: Skill, has: str = "", lacks: str = "", empty: bool = False) -> Judge:
    """Return a judge of the catalog of `skills`: texts, separated by `…`, are in it or not."""

    def judge(_: Ground) -> bool:
        text = render_catalog(SkillIndex(skills)).text
        return (
            bool(text) is not empty
            and all(part in text for part in has.split("…"))
            and not any(part in text for part in lacks.split("…") if part)
        )

    return judge


def pi_introduces_the_list(ground: Ground) -> bool:
    for name in ("one", "two"):
        ground.put(f"home/.agents/skills/{name}/SKILL.md", skill_text(name))
    with ground.house() as house:
        # A model that is offered `read` only, as pi's is.
        words = house.view().system_prompt(offered=["read"])
    before, tag, _ = words.rpartition("\n<available_skills>\n")
    return bool(tag) and "read" in before


def pi_expands_home(ground: Ground) -> bool:
    ground.put("home/mine/one/SKILL.md", skill_text("one"))
    rules = (RootRule(scope="user", path="~/mine"),)
    tilde = replace(ground, profile=replace(ground.profile, roots=rules)).index()
    whole = discover([Root(ground.home / "mine", scope="user")], profile=ground.profile)
    return [s.file for s in tilde.skills] == [s.file for s in whole.skills] != []


def pi_keeps_the_first(ground: Ground) -> bool:
    collision = fixtures(ground) / "skills-collision"
    index = discover([collision / "first", collision / "second"], profile=ground.profile)
    winners = [skill.location for skill in index.skills]
    return (
        winners == [collision / "first/calendar/SKILL.md"]
        and [skill.location for skill in index.shadowed] == [collision / "second/calendar/SKILL.md"]
        and [finding.code for finding in index.diagnostics] == ["shadowed"]
    )


def finds(*places: str, count: int, said: bool = False) -> Judge:
    """Return a judge of `discover` on places of the fixtures: so many skills, findings or none."""

    def judge(ground: Ground) -> bool:
        index = discover([fixtures(ground) / place for place in places], profile=ground.profile)
        return len(index.skills) == count and bool(index.diagnostics) is said

    return judge


def field_of(name: str, key: str, value: str | None) -> Judge:
    """Return a judge of one field of a fixture's frontmatter."""

    def judge(ground: Ground) -> bool:
        found = [skill for skill in fixture_index(ground).skills if skill.directory.name == name]
        return [skill.frontmatter.fields.get(key) for skill in found] == [value]

    return judge


MANUAL = {"disable-model-invocation": "true"}
PI = Suite(
    name="pi, skills",
    file="packages/coding-agent/test/skills.test.ts",
    titles="8ac7467eb1fc",
    profile="default",
    cases=(
        agree("a valid skill loads and nothing is said", fixture("valid-skill")),
        agree("a name other than the directory's loads with a warning",
              fixture("name-mismatch", called="different-name", codes="name-mismatch")),
        agree("characters outside the alphabet load with a warning",
              fixture("invalid-name-chars", called="Invalid_Name",
                      codes="name-invalid name-mismatch?")),
        agree("a name over 64 characters loads with a warning",
              fixture("long-name", codes="name-invalid name-mismatch?",
                      called="this-is-a-very-long-skill-name-that-exceeds-the-sixty-four-"
                             "character-limit-set-by-the-standard")),
        agree("no description: skipped, and said",
              fixture("missing-description", called=None, codes="description-missing")),
        agree("an unknown field is passed over in silence", fixture("unknown-field")),
        agree("a skill in a subdirectory is found", fixture("nested", called="child-skill")),
        differ("a skill hides those below it, and nothing is said of its missing name",
               fixture("root-skill-preferred"),
               "the same skill alone, with the warning `name-missing`",
               "specification: `name` is required; vectors, frontmatter stage 4",
               fixture("root-skill-preferred", codes="name-missing")),
        differ("no frontmatter: skipped, for want of a description",
               fixture("no-frontmatter", called=None, codes="description-missing"),
               "skipped as `frontmatter-missing`", "vectors, frontmatter stage 2",
               fixture("no-frontmatter", called=None, codes="frontmatter-missing")),
        differ("broken YAML: skipped, with the line",
               fixture("invalid-yaml", called=None, codes="yaml-error", line=4),
               "the value is read as text, with the warning `yaml-repaired` and its line", REPAIR,
               fixture("invalid-yaml", codes="yaml-repaired", line=3)),
        agree("a description of several lines keeps them",
              lambda g: fixture("multiline-description")(g)
              and any("\n" in s.description for s in fixture_index(g).skills)),
        agree("two hyphens in a row load with a warning",
              fixture("consecutive-hyphens", called="bad--name",
                      codes="name-invalid name-mismatch?")),
        agree("of the whole directory at least six load",
              lambda g: len(fixture_index(g).skills) >= 6),
        agree("a root that is not there holds nothing, in silence", finds("none", count=0)),
        agree("a skill is named as its directory", fixture("valid-skill")),
        agree("`disable-model-invocation` is read, in silence",
              lambda g: fixture("disable-model-invocation")(g)
              and field_of("disable-model-invocation", "disable-model-invocation", "true")(g)),
        agree("and is off where it is not written",
              field_of("valid-skill", "disable-model-invocation", None)),
        agree("no skills, no text", listed(empty=True)),
        agree("a skill is listed in XML with its place",
              listed(made_up("one"), has="<available_skills>…<skill>…<name>one</name>…"
                     "<description>A test.</description>…<location>/at/one/SKILL.md</location>…"
                     "</available_skills>")),
        agree("words before the list say what to do with it", pi_introduces_the_list),
        agree("XML is escaped", listed(made_up("one", 'Has <b> & "c".'), lacks="<b>",
                                       has="&lt;b&gt;…&amp;…&quot;c&quot;")),
        agree("two skills are both listed",
              listed(made_up("one"), made_up("two"), has="<name>one</name>…<name>two</name>")),
        differ("`disable-model-invocation` keeps a skill out of the list",
               listed(made_up("one"), made_up("two", **MANUAL), lacks="<name>two</name>"),
               "it is listed", HIDING, listed(made_up("two", **MANUAL), has="<name>two</name>")),
        differ("and the list away, when all have it", listed(made_up("two", **MANUAL), empty=True),
               "it is listed", HIDING, listed(made_up("two", **MANUAL), has="<name>two</name>")),
        differ("a skill's own directory can be given", finds("skills/valid-skill", count=1),
               "nothing is found: it is no root", ROOTS, finds("skills/valid-skill", count=0)),
        differ("a given path that is not there is said", finds("none", count=0, said=True),
               "nothing is said", "S000-14: a root that does not exist is no error",
               finds("none", count=0)),
        agree("`~` is the home directory", pi_expands_home),
        agree("of two skills of one name the first is kept, and that is said", pi_keeps_the_first),
    ),
)  # fmt: skip
