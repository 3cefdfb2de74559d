"""The rules about paths of a workspace, for what a command names and what its sandbox covers."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from skillhouse.floor import PROTECTED_NAMES, is_below, is_secret, is_secret_file
from skillhouse.permission import Effect, Layer, PathPolicy, Permission, covers, matches, matches_in
from skillhouse.sandbox import CoveredPaths, OpenedProtection, covered_paths
from skillhouse.skill import Skill
from skillhouse.tools.call import PermissionRequest
from skillhouse.tools.files import text_if_any
from skillhouse.tools.skill_text import cautioned
from skillhouse.tools.tool import Decide, Session
from skillhouse.tools.workspace import Workspace, skill_directory_of

_ANY = "\ue000"
"""A name that no file has: what a rule says about it, it says about all names."""


class PathRules:
    """The rules about paths for one call, as a sandbox asks them (`sandbox.nested.Rules`)."""

    def __init__(
        self,
        workspace: Workspace,
        session: Session,
        layers: Sequence[Layer],
        decide: Decide,
    ) -> None:
        """What the call names is noted by `reading`: it runs only if that is allowed or approved,
        and is not covered then."""
        self._workspace = workspace
        self._session = session
        self._layers = tuple(layers)
        self._decide = decide
        self._root = str(workspace.root)
        self._opened: dict[str, set[str]] = {"read": set(), "write": set()}
        self._entered: set[str] = set()
        self._masked: dict[str, bool] = {}
        self._strict = {action: self._patterns(action) for action in ("read", "write")}

    def of(self, workspace: Workspace) -> PathRules:
        """Return the same rules for another workspace."""
        return PathRules(workspace, self._session, self._layers, self._decide)

    def policy(self, programs: Sequence[str], *, can_activate: bool = True) -> PathPolicy:
        """Return by what the paths in a command's words are judged.

        Args:
            programs: The directories of programs that no command can write.
            can_activate: As of `PathPolicy`.
        """
        once = self._session.once
        return PathPolicy(
            self._workspace.root,
            writable=(self._workspace.root,),
            readable=self._session.readable,
            paths=self._workspace.paths,
            is_open=self.is_named,
            programs=programs,
            binds_programs=True,
            can_activate=can_activate,
            real=lambda place: once(("real", place), lambda: os.path.realpath(place)),
        )

    @cached_property
    def _skills(self) -> frozenset[str]:
        """The homes of skills that are closed to the call, decided when the first path needs them:
        among 10,000 skills that takes as long as all else of most plans."""
        # A workspace belongs to one view, and so to the skills that it shows.
        key = ("closed skills", self._workspace, self._layers, *self._session.loaded)
        return self._session.once(key, lambda: frozenset(self._closed_skills()))

    @property
    def key(self) -> Hashable:
        said = ((action, p) for action, patterns in self._strict.items() for _, p in patterns)
        return tuple(sorted(said)), self._skills, frozenset(self._entered)

    def pins(self, path: str) -> bool:
        """Whether no rule is about a path if the directories above it have other names."""
        absolute = f"{self._root}/{path}"
        above = "".join(f"/{_ANY}" for _ in range(path.count("/")))
        renamed = f"{self._root}{above}/{os.path.basename(path)}"
        if self._probe(absolute) != absolute:
            renamed += f"/{_ANY}"
        return absolute in self._skills or not (
            self._said("read", renamed) or self._said("write", renamed)
        )

    def enters(self, path: str) -> bool:
        return f"{self._root}/{path}" in self._entered

    def concerns(self, path: str, *, is_directory: bool) -> bool:
        """Whether a rule or a skill is about a path, relative to the workspace."""
        absolute = f"{self._root}/{path}"
        if absolute in self._skills:
            return True
        probe = f"{absolute}/{_ANY}" if is_directory else absolute
        return self._said("read", probe) or self._said("write", probe)

    def masks(self, path: str) -> bool:
        """Whether a path cannot be read: as a whole, if it is a directory."""
        absolute = f"{self._root}/{path}"
        return absolute in self._skills or self._refuses("read", absolute)

    def hidden_by(self, path: str) -> str:
        """Return in words what keeps commands from reading a path, relative to the workspace; ""
        where there is none."""
        absolute = f"{self._root}/{path}"
        if not os.path.lexists(absolute):
            return ""
        if self._refuses("read", absolute):
            probe = self._probe(absolute)
            for layer, pattern in self._strict["read"]:
                if matches_in(layer.dialect, pattern, probe):
                    return f"rule `read {pattern}` of {layer.name} policy"
        if absolute in self._skills:
            return "it is a skill that was not loaded"
        return "its name is one of secrets, and a command that names it is asked about"

    def freezes(self, path: str) -> bool:
        return self._refuses("write", f"{self._root}/{path}")

    def opens(self, path: str) -> bool:
        """Whether a secret can be read: this call names it, or a rule that allows it does."""
        absolute = f"{self._root}/{path}"
        return absolute in self._opened["read"] or self.is_named(self._probe(absolute))

    def hides(self, path: str) -> bool:
        """Whether commands cannot read a path, relative to the workspace, if there is one; judged
        before the call has named what it opens."""
        has_rules = bool(self._strict["read"] or self._skills)
        if has_rules and (self.masks(path) or self._is_below_masked(path)):
            return True
        if not is_secret_file(path, f"{self._root}/{path}"):
            return False
        parts = path.split("/")
        return not any(self.opens("/".join(parts[:end])) for end in range(1, len(parts) + 1))

    def _is_below_masked(self, path: str) -> bool:
        above = os.path.dirname(path)
        if not above:
            return False
        if above not in self._masked:
            self._masked[above] = self.masks(above) or self._is_below_masked(above)
        return self._masked[above]

    def is_named(self, absolute: str) -> bool:
        """Whether a rule allows to read this path, and not just any of the workspace."""
        named = (
            matches_in(layer.dialect, pattern, absolute) and not covers(pattern, f"{self._root}/*")
            for layer, pattern in self._allowed("read")
        )
        return any(named) and self._effect("read", absolute) is Effect.ALLOW

    @property
    def freezes_all(self) -> bool:
        return self._said("write", f"{self._root}/{_ANY}") and self._refuses("write", self._root)

    def coverage(self, opened: OpenedProtection = OpenedProtection()) -> CoveredPaths:  # noqa: B008 - a frozen value.
        named = tuple(frozenset(paths) for paths in self._opened.values())
        key = ("coverage", self._workspace, self._layers, self.key, *self._session.loaded)
        return self._session.once((*key, named, opened), lambda: self._covered(opened))

    def _covered(self, opened: OpenedProtection) -> CoveredPaths:
        return covered_paths(
            self._root,
            PROTECTED_NAMES,
            cover_cache=self._workspace.cover_cache,
            rules=self,
            persistent=self._workspace.paths,
            opened=opened,
        )

    def refused_below(self, directory: str) -> Iterable[PermissionRequest]:
        """Yield the needs of moving a directory that rules say something about what is below."""
        for place, name, _ in self.coverage().paths:
            path = "/".join(filter(None, (self._root, place, name)))
            if path.startswith(f"{directory}/"):
                for action in ("read", "write"):
                    if self._refuses(action, path):
                        yield need_of(action, self._probe(path).removesuffix(_ANY))

    def reading(
        self, path: str, session: Session, *, is_named: bool
    ) -> tuple[PermissionRequest, ...]:
        """Return what reading a real path needs beyond the command; RefusedError for a withheld
        skill. `is_named` says that a rule names the whole command, and so the path."""
        self._workspace.check_withheld(path, os.path.relpath(path, self._root), session)
        needs: tuple[PermissionRequest, ...] = ()
        relative = path.removeprefix(f"{self._root}/")
        is_hidden = relative != path and is_secret_file(relative, path)
        why = "its name is one of secrets" if is_hidden else "no rule is about the path"
        skill = self._skill_of(path)
        if skill is not None:
            asked = (need for need in session.needs_of(skill))
            needs += tuple(n for n in asked if self._answer(n) is not Effect.ALLOW)
            self._skills -= {os.path.realpath(skill.directory)}
        for resource in self._resources(path):
            need = PermissionRequest(
                permission=Permission(action="read", resource=resource.removesuffix(_ANY)),
                default=Effect.ASK if is_hidden and not is_named else Effect.ALLOW,
                why=why,
            )
            if is_hidden or self._effect("read", resource) is not Effect.ALLOW:
                needs += (need,)
        needs = self._cautioned(needs, path, session, skill)
        # After the question of what the rules say, which is about a path that is not opened.
        self._opened["read"].add(path)
        if is_hidden:
            self._entered.update(map(str, Path(path).parents))
        return needs

    def relative(self, path: str) -> str:
        return path.removeprefix(f"{self._root}/")

    def printing(self, path: str) -> PermissionRequest | None:
        """Return what it needs to give what the history has of a path, which is not opened by it;
        None where nothing is needed."""
        is_hidden = is_secret(self.relative(path)) and not self.is_named(path)
        if not is_hidden and not self._said("read", path):
            return None
        need = PermissionRequest(
            permission=Permission(action="read", resource=path),
            default=Effect.ASK if is_hidden else Effect.ALLOW,
            why="the command gives what the history has of it",
        )
        return need if is_hidden or self._answer(need) is not Effect.ALLOW else None

    def writing(self, path: str) -> tuple[PermissionRequest, ...]:
        """Return the request where a rule denies or asks; else that for the command covers it."""
        needs = tuple(
            need_of("write", resource.removesuffix(_ANY))
            for resource in self._resources(path)
            if self._effect("write", resource) is not Effect.ALLOW
        )
        self.note_written(path)
        return needs

    def note_written(self, path: str) -> None:
        """Note what the call writes: it runs only if that is allowed or approved."""
        self._opened["write"].add(path)

    def _resources(self, path: str) -> tuple[str, ...]:
        return (path, f"{path}/{_ANY}") if os.path.isdir(path) else (path,)

    def is_special(self, path: str) -> bool:
        """Whether reading a path of the workspace is not taken for granted."""
        if not path.startswith(f"{self._root}/") or not os.path.lexists(path):
            return False
        return (
            is_secret_file(path.removeprefix(f"{self._root}/"), path)
            or any(path == home or path.startswith(f"{home}/") for home in self._skills)
            or self._refuses("read", path)
            or any(self._said("read", probe) for probe in (path, self._probe(path)))
        )

    def _cautioned(
        self, needs: tuple[PermissionRequest, ...], path: str, session: Session, skill: Skill | None
    ) -> tuple[PermissionRequest, ...]:
        base = self._workspace.base_of(path, session)
        if base is None or not os.path.isfile(path):
            return needs
        home = skill_directory_of(Path(path), base)
        if home is None:
            return needs
        place = self._workspace.file(path, session)
        first = needs or (need_of("read", path),)
        asked, facts = cautioned(
            session, first, skill=skill or home, file=path, text=text_if_any(place)
        )
        return asked if facts or needs else ()

    def is_of_skill(self, path: str) -> bool:
        """Whether a real path is in a loaded skill that may still be loaded, whose own approval is
        about all its files; no command writes to them."""
        around = (
            skill
            for skill, home in _with_homes(self._session.visible.skills)
            if is_below(path, home)
        )
        skill = max(around, key=lambda skill: len(skill.file), default=None)
        return (
            skill is not None
            and skill.file in self._session.loaded
            and all(self._answer(need) is Effect.ALLOW for need in self._session.needs_of(skill))
        )

    def _skill_of(self, path: str) -> Skill | None:
        """Return the innermost visible skill of a path that is not loaded."""
        around = (
            skill
            for skill, home in _with_homes(self._session.visible.skills)
            if is_below(path, home) and skill.file not in self._session.loaded
        )
        return max(around, key=lambda skill: len(skill.file), default=None)

    def _closed_skills(self) -> Iterable[str]:
        prefix = f"{self._root}/"
        yield from (
            place for place in self._workspace.withheld(self._session) if place.startswith(prefix)
        )
        alike: dict[str, bool] = {}
        for skill, home in _with_homes(self._session.visible.skills):
            if home.startswith(prefix) and skill.file not in self._session.loaded:
                needs = self._session.needs_of(skill)
                if not all(self._allows(need, alike) for need in needs):
                    yield home

    def _allows(self, need: PermissionRequest, alike: dict[str, bool]) -> bool:
        """Whether a request is allowed; `alike` keeps the answer for the actions with one answer.

        INVARIANT: an action has one answer for what is allowed by default and binds no bytes while
        no rule that asks or denies is about it: rules that allow change nothing then, so all names
        fare alike. One of them is decided.
        """
        action = need.permission.action
        is_alike = (
            need.default is Effect.ALLOW
            and need.effective_level == "read"
            and not (need.skill_digest or need.caution)
        )
        if is_alike and action in alike:
            return alike[action]
        allowed = self._answer(need) is Effect.ALLOW
        if is_alike and not self._is_restricted(action):
            alike[action] = allowed
        return allowed

    def _is_restricted(self, action: str) -> bool:
        return any(
            rule.effect is not Effect.ALLOW and matches(rule.action, action)
            for layer in self._layers
            for rule in layer.rules
        )

    def _patterns(self, action: str) -> tuple[tuple[Layer, str], ...]:
        """Return rules that deny or ask; one that asks about everything counts for named paths
        only: a whole workspace is not hidden from a command that was allowed."""
        return tuple(
            (layer, rule.pattern)
            for layer in self._layers
            for rule in layer.rules
            if rule.effect is not Effect.ALLOW
            and matches(rule.action, action)
            and not (rule.effect is Effect.ASK and covers(rule.pattern, f"{self._root}/*"))
        )

    def _refuses(self, action: str, absolute: str) -> bool:
        probe = self._probe(absolute)
        if probe != absolute and self._has_exception(action, absolute):
            return False
        if absolute in self._opened[action]:
            return False
        return self._said(action, probe) and self._effect(action, probe) is not Effect.ALLOW

    def _has_exception(self, action: str, directory: str) -> bool:
        prefix = f"{directory}/"
        if any(one.startswith(prefix) for one in self._opened[action]):
            return True
        heads = (
            pattern.split("*", 1)[0].split("?", 1)[0]
            for layer, pattern in self._allowed(action)
            if not matches_in(layer.dialect, pattern, prefix + _ANY)
        )
        return any(head.startswith(prefix) or prefix.startswith(head) for head in heads)

    def _allowed(self, action: str) -> Iterator[tuple[Layer, str]]:
        for layer in self._layers:
            if layer.trusted:
                for rule in layer.rules:
                    if rule.effect is Effect.ALLOW and matches(rule.action, action):
                        yield layer, rule.pattern

    def _said(self, action: str, path: str) -> bool:
        return any(matches_in(at.dialect, pattern, path) for at, pattern in self._strict[action])

    def _probe(self, absolute: str) -> str:
        is_directory = os.path.isdir(absolute) and not os.path.islink(absolute)
        return f"{absolute}/{_ANY}" if is_directory else absolute

    def _effect(self, action: str, resource: str) -> Effect:
        return self._answer(need_of(action, resource))

    def _answer(self, need: PermissionRequest) -> Effect:
        return self._decide(need, self._session)[0].effect


def need_of(action: str, resource: str) -> PermissionRequest:
    """Return a request that the rule for the command covers unless another is stricter."""
    return PermissionRequest(
        permission=Permission(action=action, resource=resource),
        default=Effect.ALLOW,
        why="the command is allowed, and no rule is about the path",
    )


def _with_homes(skills: Iterable[Skill]) -> Iterator[tuple[Skill, str]]:
    """Yield each skill with the real path of its directory, as it is now.

    What is above them is resolved once: with 1,300 skills `os.path.realpath` of each took most of
    the time of planning a command.
    """
    above: dict[str, str] = {}
    for skill in skills:
        parent, name = os.path.split(os.path.dirname(skill.file))
        if parent not in above:
            above[parent] = os.path.realpath(parent)
        home = os.path.join(above[parent], name)
        yield skill, os.path.realpath(home) if os.path.islink(home) else home
