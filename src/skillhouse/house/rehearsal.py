"""What an agent would see for a request, and what its calls would meet, without a model."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from skillhouse import tools as toolbox
from skillhouse.clients import ExportSource
from skillhouse.discovery import Catalog
from skillhouse.floor import (
    PROTECTED_NAMES,
    PathError,
    TreeError,
    confine,
    isolated,
    structs,
    tree_digest,
)
from skillhouse.floor.regex import regex
from skillhouse.house.agent_search import CodeMatch, code_matches
from skillhouse.house.house import Skillhouse
from skillhouse.house.line_verdicts import LineVerdict, line_verdict
from skillhouse.house.policy import Explanation
from skillhouse.house.remote_skills import load_known
from skillhouse.permission import (
    Decision,
    Effect,
    Permission,
    decide,
)
from skillhouse.permission.grammar import grammar_of
from skillhouse.permission.raw_line import is_whole_line
from skillhouse.retrieval import Fit, Hit, fit_of, skills_of
from skillhouse.sandbox import SandboxStatus
from skillhouse.skill import Mention, Skill, SkillContent, UnjudgedBlock, find_mentions
from skillhouse.tools import Caller, PermissionRequest, UnknownToolError
from skillhouse.tools.consequences import missing_scripts

TOOL_DEFAULTS = {
    "skill": Effect.ALLOW,
    "search_skills": Effect.ALLOW,
    "read": Effect.ALLOW,
    "list": Effect.ALLOW,
    "write": Effect.ASK,
    "edit": Effect.ASK,
    "exec": Effect.ASK,
    "fetch": Effect.ASK,
    "web_search": Effect.ALLOW,
}
"""The tools a body may name, and what each meets when no rule matches: reads inside the allowed
places are no effects (decision 9), a search goes to the service that the operator chose, everything
else is asked about."""


_BLANK = regex(r"<([A-Za-z][\w .:/|,-]*\b)>")
"""What an author leaves to who types a line, such as `<file>`."""


class MentionVerdict(Struct, frozen=True, kw_only=True):
    """One command or tool that the body mentions, and what it would meet."""

    mention: Mention
    effect: Effect
    layer: str
    reason: str
    argv: tuple[str, ...] | None = None
    """The words of a line that is one command."""
    reasons: tuple[str, ...] = ()
    """Everything that was said about a command line, the strictest first."""


class CodeVerdict(Struct, frozen=True, kw_only=True):
    """A tool of a skill's own code that fits, and what a call of it would meet."""

    skill: str
    """The id of its skill."""
    tool: str
    """Its full name."""
    description: str
    level: str
    effect: Effect
    reason: str


class Rehearsal(Struct, frozen=True, kw_only=True):
    """One request followed from the catalog to the sandbox."""

    request: str
    catalog: Catalog
    hidden: int
    """Skills that a rule denies: neither listed nor found."""
    hits: tuple[Hit, ...]
    marks: tuple[str, ...]
    """How a model hears of each hit, as `AgentView.mark`."""
    skill: Skill | None
    """The best hit; None when no skill fits the request."""
    decision: Explanation | None
    """Whether that skill may be loaded."""
    content: SkillContent | None
    """Its body; None when it may not be loaded."""
    fault: str = ""
    """Why a skill that rules allow is not loaded: it was edited, or its signature is refused."""
    mentions: tuple[MentionVerdict, ...] = ()
    unjudged: tuple[UnjudgedBlock, ...] = ()
    """Blocks of the body that hold more than the commands above: code, output, text."""
    sandbox: SandboxStatus | None = None
    """Where commands would run; None when it came to none."""
    code: tuple[CodeMatch, ...] = ()
    """Skills of code alone that fit, best first: the model has their tools and loads nothing."""
    code_verdicts: tuple[CodeVerdict, ...] = ()
    """Their tools, in the same order."""
    protected: tuple[str, ...] = PROTECTED_NAMES
    """Paths of the workspace that no command or tool may change."""

    @property
    def fit(self) -> Fit:
        return fit_of([*self.hits, *(one.hit for one in self.code)])


def rehearse(house: Skillhouse, request: str, *, limit: int = 5) -> Rehearsal:
    """Walk a request through catalog, ranking, permission, body and what the body mentions.

    Raises:
        SkillError: the chosen skill's file cannot be used any more.
    """
    catalog = house.catalog()
    hits = tuple(house.search(request, limit=limit))
    view = house.view()
    hidden = len(view.hidden)
    marks = tuple(view.mark(skill) for skill in skills_of(view.visible, hits))
    tools = house.tools(every=True) if house.runs_code else ()
    code = code_matches(tools, request, limit=limit, among=len(view.visible))
    verdicts = tuple(_code_verdict(house, tool, one.hit.id) for one in code for tool in one.tools)
    if not hits:
        return Rehearsal(
            request=request,
            catalog=catalog,
            hidden=hidden,
            hits=(),
            marks=(),
            skill=None,
            decision=None,
            content=None,
            code=code,
            code_verdicts=verdicts,
        )
    skill = house.view().visible.get(hits[0].id)
    explained = explain_loading(house, skill)
    fault = house.services.installed_check.fault(skill.directory, skill.scope)
    is_denied = explained.decision.effect is Effect.DENY or bool(fault)
    content = None if is_denied else load_known(skill)
    if content is not None:
        explained = explain_loading(house, skill, content=content)
    body = content.body if content else ""
    mentions, unjudged = judged_mentions(house, body, skill.directory)
    return Rehearsal(
        request=request,
        catalog=catalog,
        hidden=hidden,
        hits=hits,
        marks=marks,
        skill=skill,
        decision=explained,
        content=content,
        fault=fault,
        mentions=mentions,
        unjudged=unjudged,
        sandbox=house.services.expected_sandbox(),
        code=code,
        code_verdicts=verdicts,
    )


def _code_verdict(house: Skillhouse, tool: toolbox.SkillCodeTool, its_id: str) -> CodeVerdict:
    try:
        need = tool.need(tree_digest(tool.skill.directory))
        found = house.forecast(tool.name, {}, need=need)
        effect, reason = found.effect, found.reasons[0]
    except TreeError as error:
        effect, reason = Effect.DENY, str(error)
    return CodeVerdict(
        skill=its_id,
        tool=tool.full_name,
        description=tool.description,
        level=tool.level,
        effect=effect,
        reason=reason,
    )


def judged_mentions(
    house: Skillhouse,
    body: str,
    directory: Path | None = None,
    *,
    lines: toolbox.ForecastCache | None = None,
) -> tuple[tuple[MentionVerdict, ...], tuple[UnjudgedBlock, ...]]:
    """Return what a body mentions with the verdict of each, and the blocks that were not judged.

    The skill in `directory` is supposed loaded: its own scripts are judged where they are. `lines`
    is shared by several skills of one moment, in which many lines are the same.
    """
    tools = frozenset(TOOL_DEFAULTS)
    mentions = find_mentions(
        body, tools, is_program=lambda name: grammar_of(name) is not None, is_whole=is_whole_line
    )
    seen = lines or toolbox.ForecastCache()

    def judge(line: str) -> LineVerdict:
        line = _filled(line)
        # What a skill lets a line reach is below its directory, which no author knows.
        return seen.once(line, lambda: line_verdict(house, line, cache=seen, loaded=directory))

    found = (_verdict(house, mention, judge, directory) for mention in mentions.found)
    return tuple(found), mentions.unjudged


def _filled(line: str) -> str:
    """Return a line with a word for each `<name>` that an author leaves to who types it.

    >>> _filled("convert <input file> <out>.png"), _filled("sort < names.txt > sorted.txt")
    ('convert input-file out.png', 'sort < names.txt > sorted.txt')
    """
    if _BLANK.search(line) is None or is_whole_line(line):
        return line
    return _BLANK.sub(lambda blank: re.sub(r"\W+", "-", blank[1]), line)


def _verdict(
    house: Skillhouse, mention: Mention, judge: Callable[[str], LineVerdict], directory: Path | None
) -> MentionVerdict:
    if mention.kind == "command":
        return _command_verdict(house, mention, judge, directory)
    need = PermissionRequest(
        permission=Permission(action=mention.text, resource=""),
        default=TOOL_DEFAULTS.get(mention.text, Effect.ASK),
        why="",
    )
    try:
        found = house.forecast(mention.text, {}, need=need)
    except UnknownToolError as error:
        return MentionVerdict(
            mention=mention, effect=Effect.DENY, layer="", reason=f"denied: {error}"
        )
    return MentionVerdict(
        mention=mention, effect=found.effect, layer=found.layer, reason=found.reasons[0]
    )


def _command_verdict(
    house: Skillhouse, mention: Mention, judge: Callable[[str], LineVerdict], directory: Path | None
) -> MentionVerdict:
    judged = judge(mention.text)
    plan = judged.verdict.plan
    gone = _missing_scripts(house, judged, directory)
    own = {word: path for word, path in gone.items() if path}
    placed = _placed(mention.text, own)
    if placed != mention.text and judged.effect is not Effect.DENY:
        judged = judge(placed)
    reasons = judged.reasons
    if gone and judged.effect is not Effect.DENY:
        # Rules say nothing of a file that is not there; an earlier step may make it.
        reasons = judged.verdict.reasons or reasons
        words = ", ".join(f"`{word}`" for word in gone if word not in own)
        later = f"; no file {words} is there yet" if words else ""
        reasons = (f"{reasons[0]}{later}", *reasons[1:])
    if directory is not None:
        # The author wrote it relative to the skill.
        reasons = tuple(reason.replace(f"{directory}/", "") for reason in reasons)
    return MentionVerdict(
        mention=mention,
        effect=judged.effect,
        layer=judged.layer,
        reason=reasons[0],
        argv=plan[0] if plan is not None and len(plan) == 1 else None,
        reasons=reasons,
    )


def _missing_scripts(
    house: Skillhouse, judged: LineVerdict, directory: Path | None
) -> dict[str, str]:
    """Return the scripts that are not in the workspace, each with its path in the skill, if any."""
    root = str(house.config.places.start)
    found: dict[str, str] = {}
    if judged.verdict.structure is None:
        return found
    for word, base in missing_scripts(judged.verdict.structure, root):
        found[word] = ""
        relative = os.path.relpath(os.path.join(base, word), root)
        with contextlib.suppress(PathError):
            if directory is not None and os.path.isfile(confine(directory, relative)):
                found[word] = os.path.join(directory, os.path.normpath(relative))
    return found


def _placed(line: str, own: Mapping[str, str]) -> str:
    """Return a line with scripts of a skill where they are, as a model that loaded it writes it."""
    for word, path in own.items():
        # A path that needs quotes might be inside some.
        if shlex.quote(path) == path:
            whole = rf"(?<![^\s'\"=;|&(]){re.escape(word)}(?![^\s'\";|&)])"
            # A quoted path has no backslash, so it is its own replacement.
            line = re.sub(whole, path, line)
    return line


def explain_loading(
    house: Skillhouse, skill: Skill, *, agent: str = "default", content: SkillContent | None = None
) -> Explanation:
    """Return what the gate would answer to a call that loads a skill, and the rules that match.

    `skill` need not be listed; `content` is its text where that is known: it may hide instructions.

    Raises:
        ConfigError: no agent has that name.
    """
    policy = house.policy
    need = policy.loading_need(skill, content)
    by_rules = policy.explain_need(need, agent=agent)
    offered = [tool.name for tool in house.tools(agent=agent)]
    loading = [rule.name for rule in policy.profile.tools if rule.kind == "skill"]
    # Without a tool of its own a skill is loaded by reading its file.
    name = next((name for name in loading if name in offered), "read")
    forecast = house.forecast(name, {}, need=need, agent=agent)
    decision = Decision(effect=forecast.effect, layer=forecast.layer)
    decisions = (evaluated.decision for evaluated in forecast.judged)
    same = next((one for one in decisions if one.effect is forecast.effect), decision)
    return structs.replace(by_rules, decision=same, reason=forecast.reasons[0])


def loading_effects(
    house: Skillhouse, skills: Iterable[Skill], *, digests: int, agent: str = "default"
) -> dict[str, str]:
    """Return what the gate would answer to a call that loads each skill, by its file.

    Of project skills, whose default depends on the bytes of their files, the first `digests` are
    read; the others are left out.
    """
    policy = house.policy
    # Without a digest all skills share the layers, which are built once.
    layers = policy.layers(agent)
    found: dict[str, str] = {}
    alike: dict[object, str] = {}
    for skill in skills:
        if skill.scope == "project":
            digests -= 1
            if digests < 0:
                continue
        # One of which that cannot be said is left out, too.
        with isolated():
            need = policy.loading_need(skill, None)
            if need.skill_digest:
                found[skill.file] = explain_loading(house, skill, agent=agent).decision.effect.value
                continue
            # Skills about which the rules say the same fare alike at the gate, whose forecast takes
            # longer than all of their rules: one of them is forecast.
            decided = decide(layers, need.permission, default=need.default)
            key = (decided.effect, decided.layer, need.default, need.level)
            if key not in alike:
                alike[key] = explain_loading(house, skill, agent=agent).decision.effect.value
            found[skill.file] = alike[key]
    return found


async def read_skill_file(
    house: Skillhouse,
    skill: Skill,
    relative: str,
    *,
    caller: Caller | None = None,
    approval_id: str | None = None,
) -> toolbox.ToolResult:
    """Return the bytes of one file of a skill as `data["bytes"]`, or why not.

    It needs the permission that loading the skill needs, and is recorded like a tool call.

    Args:
        relative: POSIX path below its directory, checked when it is opened.
        approval_id: Of an answered approval of this very read.

    Raises:
        ConfigError: no agent has that name.
    """
    services = house.services
    who = services.caller(caller)
    view = house.view(who.agent)
    arguments = {"skill": skill.file, "path": relative}
    call = who.tool_call(toolbox.SKILL_FILE_TOOL, arguments, approval_id=approval_id)
    gate = services.gates.for_host(view)
    return await gate.call(call, services.sessions.of(call, view.visible))


def export_source(house: Skillhouse) -> ExportSource:
    """Return the skills of this installation as the exporter takes them."""

    def is_enabled(skill_id: str) -> bool:
        return house.snapshot.settings.is_enabled(skill_id)

    def obstacle(skill: Skill, content: SkillContent | None) -> str:
        explanation = house.policy.explain_skill(skill, content=content)
        return "" if explanation.decision.effect is Effect.ALLOW else explanation.reason

    return ExportSource(
        places=house.config.places,
        project=house.project,
        state_directory=house.config.state_directory,
        audit=house.audit_log,
        index=lambda: house.index,
        visible=lambda: house.view().visible.skills,
        skill=house.index.get,
        is_enabled=is_enabled,
        obstacle=obstacle,
    )
