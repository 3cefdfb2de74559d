"""The skill tests of Gemini CLI: places made for each, seen under the profile `gemini-cli`."""

from __future__ import annotations

from collections.abc import Sequence

from research.conformance_ground import Ground, Judge, Suite, Yes, agree, apart, differ, skill_text
from skillhouse import discover, load
from skillhouse.discovery import Root
from skillhouse.permission import Effect, Rule

BUILTIN = "profile gemini-cli, facts: the client's built-in skills are not covered"
QUESTION = "decisions 0008 and 0021: a question is worded by skillhouse, never by a skill"
WORDED = "decision 0005: only what a design publishes is copied (`load_style` is ours)"
WORKSPACE, USER = "project/.gemini/skills", "home/.gemini/skills"
EXTENSION = "home/.gemini/extensions/tools/skills"


def loads(text: str, name: str, *description: str, exact: bool = False) -> Judge:
    """Return a judge of one workspace skill: this name, and these parts of its description."""

    def judge(ground: Ground) -> bool:
        ground.put(f"{WORKSPACE}/any/SKILL.md", text)
        found = [(skill.name, skill.description) for skill in ground.index().skills]
        if ground.seen() != [name] or [called for called, _ in found] != [name]:
            return False
        about = found[0][1]
        return about == description[0] if exact else all(part in about for part in description)

    return judge


def nothing(*files: tuple[str, str], said: bool | None) -> Judge:
    """Return a judge of a workspace without skills, in which something is said or not.

    Args:
        files: Places and texts; a place that ends in `/` is a directory.
        said: Whether there is a finding or a near miss; None does not ask.
    """

    def judge(ground: Ground) -> bool:
        for place, text in files:
            if place.endswith("/"):
                (ground.base / place).mkdir(parents=True)
            else:
                ground.put(place, text)
        is_said = bool(ground.index().diagnostics or ground.lens().misses)
        return not ground.seen() and said in (None, is_said)

    return judge


def refused(text: str, code: str, *, lens: Sequence[str] = ()) -> Judge:
    """Return a judge of one workspace file that is no skill, with that finding among others.

    `lens` is what the lens says that the client takes of it all the same.
    """

    def judge(ground: Ground) -> bool:
        ground.put(f"{WORKSPACE}/any/SKILL.md", text)
        codes = [finding.code for finding in ground.index().diagnostics]
        return code in codes and ground.seen() == list(lens) and not ground.index().skills

    return judge


def gemini_plain(ground: Ground) -> bool:
    file = ground.put(f"{WORKSPACE}/one/SKILL.md", skill_text("one", "A test.", "# Do\nIt.\n"))
    index = ground.index()
    found = [(s.name, s.description, s.location, load(s).body.strip()) for s in index.skills]
    return found == [("one", "A test.", file, "# Do\nIt.")] and not index.diagnostics


def gemini_signs(ground: Ground) -> bool:
    ground.put(f"{WORKSPACE}/SKILL.md", skill_text("team:helper"))
    return ground.seen() == ["team-helper"]


def gemini_own(ground: Ground) -> bool:
    own = Root(ground.checkout / "packages/core/src/skills/builtin", scope="user")
    skills = discover([own], profile=ground.profile).skills
    found = [skill for skill in skills if skill.name == "antigravity-support"]
    return ["Antigravity CLI" in s.description and "https://" in load(s).body for s in found] == [
        True
    ]


def gemini_three(ground: Ground) -> bool:
    for place, name in ((EXTENSION, "far"), (USER, "mine"), (WORKSPACE, "here")):
        ground.put(f"{place}/{name}/SKILL.md", skill_text(name))
    return ground.seen() == ["far", "here", "mine"]


def gemini_order(ground: Ground) -> bool:
    places = (EXTENSION, USER, WORKSPACE)
    for place in places:
        ground.put(f"{place}/same/SKILL.md", skill_text("same", place))
    winners = []
    for place in reversed(places):
        winners.append([skill.description for skill in ground.index().skills])
        (ground.base / place / "same/SKILL.md").unlink()
    return winners == [[place] for place in reversed(places)]


def gemini_builtin(ground: Ground) -> bool:
    ground.put("core/own/SKILL.md", skill_text("own"))
    return [skill.name for skill in ground.index(builtin=ground.base / "core").skills] == ["own"]


def gemini_overrides(ground: Ground, *, said: bool) -> bool:
    ground.put("core/own/SKILL.md", skill_text("own", "Theirs."))
    ground.put(f"{USER}/own/SKILL.md", skill_text("own", "Mine."))
    index = ground.index(builtin=ground.base / "core")
    return [s.description for s in index.skills] == ["Mine."] and bool(index.diagnostics) is said


def gemini_off(ground: Ground) -> bool:
    ground.put(f"{USER}/one/SKILL.md", skill_text("one"))
    with ground.house() as house:
        house.services.settings_store.set_skill("user:one", enabled=False)
        return not house.view().visible.skills and [s.name for s in house.index.skills] == ["one"]


def gemini_untrusted(ground: Ground) -> bool:
    ground.put(f"{WORKSPACE}/one/SKILL.md", skill_text("one"))
    return not ground.index(trusted=False).skills and len(ground.index().skills) == 1


def gemini_conflict(ground: Ground) -> bool:
    ground.put(f"{USER}/same/SKILL.md", skill_text("same"))
    winner = ground.put(f"{WORKSPACE}/same/SKILL.md", skill_text("same"))
    loser = ground.base / USER / "same/SKILL.md"
    findings = ground.index().diagnostics
    said = [(found.code, found.path, str(winner) in found.message) for found in findings]
    return said == [("shadowed", loser, True)]


def gemini_aliases(ground: Ground) -> bool:
    for side in ("home", "project"):
        for place in (".gemini", ".agents"):
            name = f"{side}-{place.strip('.')}"
            ground.put(f"{side}/{place}/skills/{name}/SKILL.md", skill_text(name))
    return ground.seen() == ["home-agents", "home-gemini", "project-agents", "project-gemini"]


def gemini_alias_first(ground: Ground) -> bool:
    for place in (".gemini", ".agents"):
        ground.put(f"home/{place}/skills/same/SKILL.md", skill_text("same", place))
    return [skill.description for skill in ground.index().skills] == [".agents"]


def question(ground: Ground) -> tuple[str, str]:
    """Return the title and the facts of what a person is asked before a skill is loaded."""
    ground.put(f"{USER}/one/SKILL.md", skill_text("one", "Counts the stars."))
    ground.put(f"{USER}/one/notes.txt", "Notes.\n")
    person = Yes()
    with ground.house(channel=person) as house:
        house.call_sync("activate_skill", {"name": "one"})
    titles = [asked.title for asked in person.asked]
    return "; ".join(titles), repr([(*asked.found, *asked.sent) for asked in person.asked])


def gemini_titled(ground: Ground) -> bool:
    title, _ = question(ground)
    return "one" in title and "Counts the stars." in title


def gemini_shown(ground: Ground) -> bool:
    title, facts = question(ground)
    return "one" in title and "Counts the stars." in facts and "notes.txt" in facts


def ours_shown(ground: Ground) -> bool:
    _, facts = question(ground)
    return "user:one" in facts and "/one/SKILL.md" in facts and "Counts" not in facts


def gemini_call(name: str, *parts: str, refused: bool, gone: bool = False) -> Judge:
    """Return a judge of a call of the skill tool: an error or not, and parts of the answer."""

    def judge(ground: Ground) -> bool:
        file = ground.put(f"{USER}/one/SKILL.md", skill_text("one", "A test.", "Count first.\n"))
        ground.put(f"{USER}/one/notes.txt", "Notes.\n")
        allowed = Rule(effect=Effect.ALLOW, action="skill", pattern="*")
        with ground.house(allowed) as house:
            house.tools()
            if gone:
                file.unlink()
            result = house.call_sync("activate_skill", {"name": name})
        return result.is_error is refused and all(part in result.content for part in parts)

    return judge


def builtin_effects(ground: Ground) -> list[str]:
    """Return what holds for built-in skills, if the profile has such a scope."""
    return [scope.default_effect for scope in ground.profile.scopes if scope.name == "builtin"]


EMPTY = "---\nname: \ndescription: \n---\n"
CLOSE = "---\nname:foo\ndescription:bar\n---\n"
LOADER = Suite(
    name="Gemini CLI, loader",
    file="packages/core/src/skills/skillLoader.test.ts",
    titles="742f649f685a",
    profile="gemini-cli",
    cases=(
        agree("a valid skill loads whole, and nothing is said", gemini_plain),
        agree("a root that is not empty and has no skills is said",
              nothing((f"{WORKSPACE}/other/file.txt", "text"), said=True)),
        agree("an empty root holds nothing, in silence",
              nothing((f"{WORKSPACE}/", ""), said=False)),
        agree("a directory without a SKILL.md is no skill",
              nothing((f"{WORKSPACE}/other/", ""), said=None)),
        agree("no frontmatter: skipped, and said",
              nothing((f"{WORKSPACE}/one/SKILL.md", "# Title"), said=True)),
        agree("a root that is not there holds nothing, in silence", nothing(said=False)),
        agree("a colon in an unquoted description",
              loads(skill_text("foo", "Writes tales. Use for plots. Words: tale, plot."),
                    "foo", "Words: tale")),
        agree("several colons in it", loads(skill_text("foo", "Use for: this, that. Words: a, b."),
                                            "foo", "Use for: this", "Words: a, b.")),
        agree("a quoted description is as it was written",
              loads(skill_text("foo", '"With colons: here: and here."'), "foo",
                    "With colons: here: and here.", exact=True)),
        agree("a plain description over two lines",
              loads("---\nname: foo\ndescription:\n  Looks at code for style. Use when\n"
                    '  asked for "feedback" or to "check" it.\n---\nDo it.\n', "foo",
                    "Looks at code", '"check" it.')),
        differ("an empty name and description load as empty texts",
               loads(EMPTY, "", "", exact=True),
               "skipped as `description-missing`; the lens says that the client takes it",
               "specification: neither may be empty; vectors, frontmatter stage 4",
               refused(EMPTY, "description-missing", lens=["any"])),
        agree("a block that is indented as a whole",
              loads("---\n  name: in\n  description: About it.\n---\n", "in", "About it.")),
        differ("no blank after the colon",
               loads(CLOSE, "foo", "bar"),
               "skipped as `frontmatter-not-mapping`; the lens says that the client takes it",
               "YAML 1.2.2, 7.4.2: a blank follows the `:` of a plain key; vectors, stage 3",
               refused(CLOSE, "frontmatter-not-mapping", lens=["any"])),
        agree("characters that no file name has become `-`", gemini_signs),
        agree("its own skill loads from the checkout", gemini_own),
    ),
)  # fmt: skip
MANAGER = Suite(
    name="Gemini CLI, manager",
    file="packages/core/src/skills/skillManager.test.ts",
    titles="fcb11d49b41a",
    profile="gemini-cli",
    cases=(
        agree("extensions, user and workspace are all read", gemini_three),
        agree("workspace over user over extension", gemini_order),
        differ("built-in skills are found", gemini_builtin, "they are not listed", BUILTIN,
               lambda g: not gemini_builtin(g) and not g.seen()),
        agree("a skill that is off is not offered, and still known", gemini_off),
        agree("a workspace that is not trusted is not read", gemini_untrusted),
        apart("built-in skills are left out of the list for people", "a page of that program"),
        apart("an administrator's switch keeps its value", "a variable of that program"),
        apart("the names of active skills can be reset", "no such state: a skill is loaded again"),
        agree("an override is said with both files", gemini_conflict),
        differ("that of a built-in skill goes to the log only",
               lambda g: gemini_overrides(g, said=True),
               "the user's skill is in force; nothing is known of the other", BUILTIN,
               lambda g: gemini_overrides(g, said=False)),
    ),
)  # fmt: skip
ALIAS = Suite(
    name="Gemini CLI, `.agents`",
    file="packages/core/src/skills/skillManagerAlias.test.ts",
    titles="51cd9a6080b8",
    profile="gemini-cli",
    cases=(
        agree("`.agents/skills` is read beside `.gemini/skills`", gemini_aliases),
        agree("and goes before it at the same level", gemini_alias_first),
    ),
)
TOOL = Suite(
    name="Gemini CLI, tool",
    file="packages/core/src/tools/activate-skill.test.ts",
    titles="de5f13359dd9",
    profile="gemini-cli",
    cases=(
        differ("a call is described by name and description", gemini_titled,
               "by the tool and the name", QUESTION,
               lambda g: question(g)[0] == "activate_skill: one"),
        differ("the question shows the description and the files", gemini_shown,
               "it shows the skill's id and its file", QUESTION, ours_shown),
        differ("no question about a built-in skill", lambda g: builtin_effects(g) == ["allow"],
               "the profile has no such scope", BUILTIN, lambda g: not builtin_effects(g)),
        differ("the text comes in the client's own tags, with its files",
               gemini_call("one", "<activated_skill", "Count first.", "notes.txt", refused=False),
               "the same, between our marks", WORDED,
               gemini_call("one", "<skill_content", "Count first.", "notes.txt", refused=False)),
        agree("a name outside the list is refused", gemini_call("two", "two", refused=True)),
        agree("a skill that cannot be read any more is an error",
              gemini_call("one", "cannot read", refused=True, gone=True)),
        agree("an empty name is refused", gemini_call("", refused=True)),
    ),
)  # fmt: skip

SUITES = (LOADER, MANAGER, ALIAS, TOOL)
