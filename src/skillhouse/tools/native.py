"""The calls of a coding agent's own tools: planned as ours are, decided by the gate, and handed
over to the agent, which runs them itself.

What is judged is the words of a call. A program that the agent starts outside of our sandbox can do
more than its words say, and a file can change between the decision and the agent's own access.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from skillhouse.floor import AmbiguousSkillError, UnknownSkillError
from skillhouse.floor.structs import replace
from skillhouse.permission import Effect, Layer, Permission
from skillhouse.skill import SKILL_FILE, Skill, SkillIndex
from skillhouse.tools.call import (
    PermissionRequest,
    Plan,
    RefusedError,
)
from skillhouse.tools.command import ExecTool
from skillhouse.tools.files import change_facts, held_before, write_need
from skillhouse.tools.native_call import NativeCall, hand_over
from skillhouse.tools.native_files import (
    PatchError,
    hidden_needs,
    is_searched,
    may_have_trees,
    patched_paths,
    unbounded_needs,
)
from skillhouse.tools.native_skills import commands_run, loading_needs, skills_read
from skillhouse.tools.path_rules import PathRules
from skillhouse.tools.skill_text import binding_of, cautioned
from skillhouse.tools.tool import Decide, Session, Tool
from skillhouse.tools.typed_commands import obeys_typing
from skillhouse.tools.workspace import Workspace

MCP_ACTION, TOOL_ACTION = "mcp", "tool"


class NativePlans:
    """Plans the calls of one agent's client."""

    def __init__(
        self,
        workspace: Workspace,
        *,
        layers: Callable[[str], Sequence[Layer]],
        decide: Decide,
        tool: Callable[[str], Tool],
        skill_tool: str,
        known_skills: frozenset[str],
    ) -> None:
        """`tool` gives our tools by name; `skill_tool` is that which loads skills, empty where
        there is none; `known_skills` are all that are seen here, also those that are denied."""
        self._workspace = workspace
        self._layers = layers
        self._decide = decide
        self._tool = tool
        self._skill_tool = skill_tool
        self._known_skills = known_skills
        self._real_files: tuple[SkillIndex, Mapping[str, Skill]] | None = None
        self._kinds: Mapping[str, Callable[[NativeCall, Session], Plan]] = {
            "exec": self._exec,
            "read": self._read,
            "search": self._search,
            "grep": self._grep,
            "write": self._write,
            "edit": self._edit,
            "patch": self._patch,
            "fetch": self._fetch,
            "skill": self._skill,
            "mcp": self._mcp,
            "record": self._record,
        }

    def plan(self, call: NativeCall, session: Session) -> Plan:
        """Plan a call as ours of that kind; RefusedError for one that cannot be judged."""
        session = replace(
            session, is_handed_over=not call.is_sandboxed, search_path=call.search_path
        )
        plan = self._kinds[call.kind](call, session)
        if call.is_typed_into:
            return replace(plan, needs=(*plan.needs, *self._typing_needs(call, session)))
        if call.kind != "skill":
            return plan
        run = [
            self._exec(replace(call, values={"command": command}), session)
            for command in commands_run(call)
        ]
        needs = (*plan.needs, *loading_needs(call, session))
        return _joined([replace(plan, needs=tuple(dict.fromkeys(needs))), *run])

    def named(self, call: NativeCall, session: Session) -> tuple[Skill, ...]:
        """Return the skill that a call loads by its name, if it is one of ours."""
        if call.kind != "skill" or call.elsewhere:
            return ()
        try:
            return (session.visible.get(_skill_name(call)),)
        except (UnknownSkillError, AmbiguousSkillError):
            return ()

    def _files(self, session: Session) -> Mapping[str, Skill]:
        """Return the visible skills by the real paths of their files, links followed."""
        if self._real_files is None or self._real_files[0] is not session.visible:
            found = {os.path.realpath(skill.file): skill for skill in session.visible.skills}
            self._real_files = (session.visible, found)
        return self._real_files[1]

    def _exec(self, call: NativeCall, session: Session) -> Plan:
        command, tool = self._command(call), self._tool("exec")
        # As by the client's own skill tool: what it reads is loaded, and asked about as a load is.
        skills = self._read_by(command, session)
        loads = [self._loading(skill.file, session) for skill in skills]
        for skill in skills:
            session = session.with_loaded(skill)
        plan = _joined([tool.plan({"command": command}, session), *loads])
        if not isinstance(tool, ExecTool) or call.is_sandboxed or not may_have_trees(command):
            return plan
        more = self._uncovered(tool, command, session)
        return replace(plan, needs=tuple(dict.fromkeys((*plan.needs, *more))))

    def _command(self, call: NativeCall) -> str:
        command = _text(call, "command")
        directory = os.path.realpath(call.directory)
        if directory == str(self._workspace.root):
            return command
        # The client's shell is elsewhere, and the words mean what they mean there.
        return f"cd {shlex.quote(directory)} && {command}"

    def _read_by(self, command: str, session: Session) -> tuple[Skill, ...]:
        """Return the skills of which a command reads the SKILL.md and does nothing else with it."""
        tool = self._tool("exec")
        if not self._skill_tool or not isinstance(tool, ExecTool):
            return ()
        root = str(self._workspace.root)
        return skills_read(command, tool, session, root=root, files=lambda: self._files(session))

    def _typing_needs(self, call: NativeCall, session: Session) -> tuple[PermissionRequest, ...]:
        tool, command = self._tool("exec"), _text(call, "command")
        if not isinstance(tool, ExecTool):
            return ()
        verdict, _ = tool._judged(command, None, session)  # noqa: SLF001 - of this package.
        commands = () if verdict.structure is None else tuple(verdict.structure.commands())
        return tuple(
            PermissionRequest(
                permission=Permission(action=TOOL_ACTION, resource=shlex.join(one.argv)[:200]),
                default=Effect.ASK,
                why=f"`{shlex.join(one.argv)[:80]}` obeys what is typed into it, which is not "
                "judged; give it a text by an option (-m, --no-edit), or use another command",
            )
            for one in commands
            if obeys_typing(one.argv, one.environment)
        )

    def _uncovered(
        self, tool: ExecTool, command: str, session: Session
    ) -> Iterator[PermissionRequest]:
        """Yield the requests of what our sandbox would keep from a command: reading what is hidden
        below a directory, changing files that act later there."""
        verdict, context = tool._judged(command, None, session)  # noqa: SLF001 - of this package.
        structure = verdict.structure
        if structure is not None:
            yield from unbounded_needs(structure, self._workspace, context.paths.coverage)

    def _read(self, call: NativeCall, session: Session) -> Plan:
        plans = []
        for given in _paths(call):
            path = self._absolute(given, call)
            if os.path.isdir(path):
                plans.append(self._searched(path, session))
            else:
                plans.append(self._tool("read").plan({"path": path}, session))
            skill = (
                self._files(session).get(os.path.realpath(path)) if _is_skill_file(path) else None
            )
            if skill is not None and self._skill_tool:
                # As by the client's own skill tool: also by another path, and as it was approved.
                plans.append(self._loading(skill.file, session))
        return _joined(plans)

    def _search(self, call: NativeCall, session: Session) -> Plan:
        """Plan a look for names: where it begins, and where its pattern leads to."""
        places = [call.values.get("path") or "."]
        pattern = call.values.get("pattern")
        if isinstance(pattern, str) and (pattern[:1] in "/~" or ".." in Path(pattern).parts):
            places.append(_stem(pattern))
        plans = []
        for given in places:
            if not isinstance(given, str):
                raise RefusedError("cannot judge: expected a path as text")
            path = self._absolute(given, call)
            is_file = os.path.isfile(path)
            read = self._tool("read") if is_file else None
            plans.append(
                read.plan({"path": path}, session) if read else self._searched(path, session)
            )
        return _joined(plans)

    def _grep(self, call: NativeCall, session: Session) -> Plan:
        """Plan a look into files: below a directory, or those that patterns name."""
        named, globs = _patterns(call, "paths"), _patterns(call, "glob")
        wanted: list[tuple[str, tuple[str, ...]]] = [(_stem(one), (one,)) for one in named]
        given = call.values.get("path") or "."
        if not isinstance(given, str):
            raise RefusedError("cannot judge: expected a path as text")
        plans = []
        for place, patterns in wanted or [(given, globs)]:
            path = self._absolute(place, call)
            if os.path.isfile(path):
                plans.append(self._tool("read").plan({"path": path}, session))
            else:
                plans.append(self._searched(path, session, into=patterns))
        return _joined(plans)

    def _searched(self, path: str, session: Session, into: tuple[str, ...] | None = None) -> Plan:
        """Plan a search below a directory; `into` are the patterns of the files that are looked
        into, none for all, and None where only names are given."""
        real = os.path.realpath(path)
        self._workspace.check_withheld(real, path, session)
        if self._workspace.is_private(real):
            raise RefusedError(f"denied: `{path}` belongs to skillhouse itself", denied=True)
        is_inside = self._workspace.base_of(real, session) is not None
        rules = PathRules(self._workspace, session, self._layers(session.agent), self._decide)
        need = PermissionRequest(
            permission=Permission(action="read", resource=real),
            default=Effect.ALLOW if is_inside else Effect.ASK,
            why="it is in the workspace or a loaded skill"
            if is_inside
            else "it is outside the workspace and the loaded skills",
        )
        root = str(self._workspace.root)
        needs = [need]
        if is_inside or root.startswith(f"{real.rstrip('/')}/"):
            below = rules.refused_below(real.rstrip("/"))
            needs += [one for one in below if one.permission.action == "read"]
            if into is not None:
                coverage = rules.coverage().paths
                hidden = (
                    os.path.join(root, p, name) for p, name, is_hidden in coverage if is_hidden
                )
                found = [
                    file
                    for file in hidden
                    if file.startswith(f"{real.rstrip('/')}/") and is_searched(file, root, into)
                ]
                needs += hidden_needs(found, root, "the search looks into")
        if not is_inside:
            self._refuse_strict(real, path, session)
        return Plan(needs=tuple(dict.fromkeys(needs)), run=hand_over)

    def _refuse_strict(self, real: str, path: str, session: Session) -> None:
        """Refuse a search outside of the workspace that holds what a rule keeps from reading.

        What is below is not listed there, so rules are asked by the text before their wildcards.
        """
        for layer in self._layers(session.agent):
            for rule in layer.rules:
                is_strict = rule.action in ("read", "*") and rule.effect is not Effect.ALLOW
                begin = os.path.expanduser(re.split(r"[*?\[{]", rule.pattern, maxsplit=1)[0])
                if is_strict and begin.startswith(f"{real.rstrip('/')}/"):
                    message = (
                        f"denied: a rule keeps `{rule.pattern}` from reading, which is in `{path}`"
                    )
                    raise RefusedError(message, denied=True)

    def _write(self, call: NativeCall, session: Session) -> Plan:
        content = call.values.get("content")
        return self._change(
            self._absolute(_text(call, "path"), call),
            session,
            lambda _: content if isinstance(content, str) else None,
        )

    def _edit(self, call: NativeCall, session: Session) -> Plan:
        edits = call.values.get("edits")
        steps = edits if isinstance(edits, list) else [call.values]

        def after(before: str) -> str | None:
            for step in steps:
                old, new = step.get("old"), step.get("new")
                if not isinstance(old, str) or not isinstance(new, str) or old not in before:
                    return None
                before = before.replace(old, new, -1 if step.get("all") else 1)
            return before

        return self._change(self._absolute(_text(call, "path"), call), session, after)

    def _patch(self, call: NativeCall, session: Session) -> Plan:
        try:
            paths = patched_paths(_text(call, "patch"))
        except PatchError as error:
            raise RefusedError(f"cannot judge: {error}") from error
        plans = [
            self._change(self._absolute(path, call), session, lambda _: None) for path in paths
        ]
        return _joined(plans)

    def _change(self, path: str, session: Session, after: Callable[[str], str | None]) -> Plan:
        """Plan the change of a file; `after` gives its new text, None where only the client knows.

        The client follows links, so what a path leads to has to be writable as well.
        """
        needs: tuple[PermissionRequest, ...] = ()
        facts: tuple[tuple[str, str], ...] = ()
        for name in dict.fromkeys((path, os.path.realpath(path))):
            relative = self._workspace.writable(name, session)
            needs += (write_need(self._workspace, relative),)
            if name == os.path.realpath(name):
                facts = self._difference(relative, after)
        return Plan(needs=tuple(dict.fromkeys(needs)), run=hand_over, facts=facts)

    def _difference(
        self, relative: str, after: Callable[[str], str | None]
    ) -> tuple[tuple[str, str], ...]:
        before = held_before(self._workspace, relative)
        try:
            text = after("" if before is None else before.decode())
        except UnicodeDecodeError:
            text = None
        return (("changes", relative),) if text is None else change_facts(before, text, relative)

    def _fetch(self, call: NativeCall, session: Session) -> Plan:
        urls = [call.values["url"]] if call.values.get("url") else []
        given = call.values.get("text")
        # What a client takes for addresses in a prompt.
        urls += [one for one in str(given or "").split() if "://" in one]
        if not urls:
            raise RefusedError("cannot judge: expected an address that begins with https://")
        plans = [self._tool("fetch").plan({"url": url}, session) for url in dict.fromkeys(urls)]
        return _joined(plans)

    def _skill(self, call: NativeCall, session: Session) -> Plan:
        name = _skill_name(call)
        if call.elsewhere:
            return self._loading_elsewhere(name, call.elsewhere, session)
        if name in self._known_skills and self._skill_tool:
            return self._loading(name, session)
        need = PermissionRequest(
            permission=Permission(action="skill", resource=name),
            default=Effect.ASK,
            why="skillhouse does not see this skill, so nothing is known of it",
        )
        return Plan(needs=(need,), run=hand_over)

    def _loading(self, reference: str, session: Session) -> Plan:
        tool = self._tool(self._skill_tool)
        (parameter,) = tool.schema["properties"]
        plan = tool.plan(tool.canonical({parameter: reference}), session)
        # INVARIANT: what is loaded is what was judged: a link to it may lead elsewhere meanwhile.
        return replace(plan, loads=(session.visible.get(reference).file,))

    def _loading_elsewhere(self, name: str, file: str, session: Session) -> Plan:
        """Plan a load of a file that only has the name of a skill of ours, and not its trust."""
        said = "".join(sign if sign.isprintable() else "\ufffd" for sign in file)
        need = PermissionRequest(
            permission=Permission(action="skill", resource=name),
            default=Effect.ASK,
            why=f"the client has another file by this name, `{said[:200]}`",
            skill_digest=binding_of(session, Path(file).parent),
        )
        text = Path(file).read_text("utf-8", "replace")
        needs, facts = cautioned(session, (need,), skill=Path(file).parent, file=file, text=text)
        return Plan(needs=needs, run=hand_over, facts=(("file", said), *facts))

    def _mcp(self, call: NativeCall, session: Session) -> Plan:
        del session
        why = "no rule matches; tools of MCP servers ask by default"
        need = PermissionRequest(
            permission=Permission(action=MCP_ACTION, resource=call.resource),
            default=Effect.ALLOW if call.is_ours else Effect.ASK,
            why="our own server asks by itself" if call.is_ours else why,
        )
        others = (
            replace(
                need,
                permission=Permission(action=MCP_ACTION, resource=other),
                default=Effect.ALLOW,
                why="no rule is about this name",
            )
            for other in call.others
        )
        return Plan(needs=(need, *others), run=hand_over)

    def _record(self, call: NativeCall, session: Session) -> Plan:
        del session
        need = PermissionRequest(
            permission=Permission(action=TOOL_ACTION, resource=call.resource),
            default=Effect.ASK if call.may_act else Effect.ALLOW,
            why="the tool is not known here, and may run or change what its arguments name"
            if call.may_act
            else "no rule is about this tool, and it is only recorded",
            level="read",
        )
        return Plan(needs=(need,), run=hand_over)

    def _absolute(self, given: str, call: NativeCall) -> str:
        if not given or "\0" in given or given != given.strip():
            # Some clients take blanks off.
            raise RefusedError("cannot judge: expected a path, without blanks around it")
        if given == "~" or given.startswith("~/"):
            given = os.path.expanduser(given)
        path = os.path.join(call.directory, given)
        # With `..` a path means what its links lead to.
        return os.path.realpath(path) if ".." in Path(path).parts else os.path.normpath(path)


def _stem(pattern: str) -> str:
    """Return the directory, or the one file, of which a pattern names what is below.

    >>> _stem("/etc/*.conf"), _stem("../a/b?/c"), _stem("*.py"), _stem("a/b.txt"), _stem("/*")
    ('/etc', '../a', '.', 'a/b.txt', '/')
    """
    begin = re.split(r"[*?\[{]", pattern, maxsplit=1)[0]
    if begin == pattern:
        return pattern
    return begin.rpartition("/")[0] or ("/" if begin.startswith("/") else ".")


def _patterns(call: NativeCall, role: str) -> tuple[str, ...]:
    given = call.values.get(role) or []
    if not isinstance(given, list) or not all(isinstance(one, str) and one for one in given):
        raise RefusedError(f"cannot judge: expected texts as the {role} of the call")
    return tuple(given)


def _skill_name(call: NativeCall) -> str:
    return _text(call, "name").strip().removeprefix("/")


def _is_skill_file(path: str) -> bool:
    return os.path.basename(path).casefold() == SKILL_FILE.casefold() or os.path.islink(path)


def _text(call: NativeCall, role: str) -> str:
    value = call.values.get(role)
    if not isinstance(value, str) or not value:
        raise RefusedError(f"cannot judge: expected a text as the {role} of the call")
    return value


def _paths(call: NativeCall) -> Iterator[str]:
    several = call.values.get("paths")
    if isinstance(several, list) and several and all(isinstance(one, str) for one in several):
        yield from several
    else:
        yield _text(call, "path")


def _joined(plans: Sequence[Plan]) -> Plan:
    """Return one plan of several, whose needs are all needed."""
    needs = dict.fromkeys(need for plan in plans for need in plan.needs)
    facts = tuple(fact for plan in plans for fact in plan.facts)
    claims = tuple(claim for plan in plans for claim in plan.claims)
    loads = dict.fromkeys(file for plan in plans for file in plan.loads)
    return replace(plans[0], needs=tuple(needs), facts=facts, claims=claims, loads=tuple(loads))
