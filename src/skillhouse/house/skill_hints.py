"""A hint beside a prompt: the skills that fit it, and how a client loads them.

A hint is read by a model on every turn that has one, so that nothing is better than a guess: it
takes a match that is surer than what a search shows (decision record 0452).

INVARIANT: a hint names no skill that the agent would not be given without a question, and has no
text of a skill but its name, and words of the prompt.
"""

from __future__ import annotations

import filecmp
import math
import os
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct

from skillhouse import clients
from skillhouse.approval import OWNER
from skillhouse.floor import SkillhouseError, isolated
from skillhouse.floor.regex import regex
from skillhouse.house.remote_skills import load_known
from skillhouse.permission import Effect
from skillhouse.retrieval import Hit, skills_of
from skillhouse.retrieval.confidence import UNFIT
from skillhouse.skill import Profile, Skill
from skillhouse.skill.profile import DEFAULT_TOOLS

if TYPE_CHECKING:
    from skillhouse.house.agent_view import AgentView
    from skillhouse.house.house import Skillhouse
    from skillhouse.house.house_snapshot import HouseSnapshot

HINT_MAX = 400
"""Characters of a hint."""
SKILLS_MAX = 3
WORDS_MAX = 4
"""Words of the prompt that are said for one skill."""
PROMPT_MAX = 2_000
"""Characters of a prompt that are searched for: what is pasted below a request says less."""
WEIGHTS = (0.64, 0.98, 0.25)
BOUND = 3.65
"""Of `clues`, and the sum from which there is a hint: by logistic regression on the development set
and everyday requests, in libraries of 1,294 skills (`./x bench hints`, decision record 0452)."""
_CAPS = (3, 4)
"""Words of a prompt that count at most, in the description and in all: without a cap any long
prompt would fit."""
_SURE = 6.0
"""The most that confidence counts, in logits."""
_NAME = regex(r"\w[\w.:+-]{0,63}")
"""Names that a line may hold as they are: without blanks, so that none is a sentence."""
_PATH = regex(r"(?:/[\w.+@-]+)+")
"""Paths likewise."""
_SEEN = frozenset({clients.LensState.SEEN, clients.LensState.FOLDER})


class HintedSkill(Struct, frozen=True, kw_only=True):
    """A skill of a hint."""

    file: str
    """Its SKILL.md: what the caller gives as `named` the next time."""
    name: str
    words: tuple[str, ...]
    """Words of the prompt that it answers."""
    load: str
    """How this client loads it, as the hint says it."""


class Hint(Struct, frozen=True, kw_only=True):
    """One line for a model."""

    text: str
    skills: tuple[HintedSkill, ...]


def clues(hits: Sequence[Hit]) -> tuple[float, ...]:
    """Return what decides whether the best hits are worth a hint.

    The best confidence of those that could be named, as a logit; the words of the prompt that the
    first one has in its description and in all, each up to a cap.
    """
    best = max(hit.confidence for hit in hits[:SKILLS_MAX])
    likely = min(max(best, 1e-4), 1 - 1e-4)
    matches = hits[0].matches
    counts = (len(matches.get("description", ())), sum(map(len, matches.values())))
    capped = (float(min(count, cap)) for count, cap in zip(counts, _CAPS, strict=True))
    return (min(math.log(likely / (1 - likely)), _SURE), *capped)


def worth(hits: Sequence[Hit]) -> float:
    """Return how far the best hits are above the bound; below 0 there is no hint."""
    return sum(weight * clue for weight, clue in zip(WEIGHTS, clues(hits), strict=True)) - BOUND


class SkillHints:
    """Gives hints for the prompts of a `Skillhouse`; any thread may ask."""

    def __init__(self, house: Skillhouse) -> None:
        self._house = house
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[HouseSnapshot, Mapping[str, str]]] = {}

    def hint(
        self,
        prompt: str,
        *,
        agent: str = "default",
        client: str = "",
        own_tool: str = "",
        named: Collection[str] = (),
        user: str = OWNER,
    ) -> Hint | None:
        """Return the hint for a prompt; None where no skill surely fits, or its hint was given.

        Args:
            prompt: A person's words.
            agent: Whose rules and skills count.
            client: The profile of the program that shows it to its model; empty for one that has
                skillhouse's skill tool and none of its own.
            own_tool: The name by which the model knows skillhouse's skill tool; empty where the
                client does not have it, or, without a client, for its name in the profile.
            named: SKILL.md files of the skills that earlier hints of this conversation named.
            user: Whose earlier choices count.

        Raises:
            ConfigError: no agent or profile has that name.
        """
        words = prompt.strip()[:PROMPT_MAX]
        # A slash command names its skill itself.
        if not words or words.startswith("/"):
            return None
        view = self._house.view(agent)
        if not view.visible.skills:
            return None
        found = view.search.find(words, limit=5, waits=False, user=user)
        if found.is_partial or not found.hits:
            return None
        skills = skills_of(view.visible, found.hits)
        if skills[0].file in named or worth(found.hits) < 0:
            return None
        fitting = [
            (hit, skill)
            for hit, skill in islice(zip(found.hits, skills, strict=True), SKILLS_MAX)
            if hit.confidence >= UNFIT and skill.file not in named and self._is_given(view, skill)
        ]
        # The best one is what the match was sure of.
        if not fitting or fitting[0][1] is not skills[0]:
            return None
        hinted = self._hinted(fitting, view.profile, client, own_tool)
        return _written([one for one in hinted if one.load and _NAME.fullmatch(one.name)])

    def _hinted(
        self, fitting: Sequence[tuple[Hit, Skill]], profile: Profile, client: str, own_tool: str
    ) -> Iterator[HintedSkill]:
        known: Mapping[str, str] = {}
        own = own_tool or _skill_tool(profile)
        if client:
            known, profile, own = self._names_of(client), self._profile(client), own_tool
        for hit, skill in fitting:
            name = known.get(_real(skill), "")
            if not name and (copies := known.get(skill.name)):
                # A copy that a client has is the same skill while its text is.
                name = skill.name if is_copy(skill.file, copies) else ""
            yield HintedSkill(
                file=skill.file,
                name=name or skill.name,
                words=_words(hit),
                load=_loading(skill, profile, own, is_known=bool(name)),
            )

    def _is_given(self, view: AgentView, skill: Skill) -> bool:
        """Whether the agent may load a skill as it is now, without a question."""
        if skill.file in view.waiting or view.withholds(skill.directory):
            return False
        if self._house.services.installed_check.fault(skill.directory, skill.scope):
            return False
        with isolated():
            content = load_known(skill)
            policy = self._house.policy
            found = policy.explain_skill(skill, agent=view.agent, content=content)
            return found.decision.effect is Effect.ALLOW
        return False

    def _profile(self, client: str) -> Profile:
        return clients.profile_to_compare(client, self._house.config.places)

    def _names_of(self, client: str) -> Mapping[str, str]:
        """Return what a client calls each skill that it lists, by the real path of its file, and
        that file by the name."""
        snapshot = self._house.snapshot
        with self._lock:
            kept = self._seen.get(client)
            if kept is not None and kept[0] is snapshot:
                return kept[1]
        names: dict[str, str] = {}
        for name, file in client_skills(self._house, client):
            names[file] = name
            names[name] = file
        with self._lock:
            self._seen[client] = (snapshot, names)
        return names


def client_skills(house: Skillhouse, client: str) -> list[tuple[str, str]]:
    """Return name and SKILL.md, links followed, of each skill that a client lists for its model.

    Raises:
        ConfigError: no profile has that name.
    """
    places = house.config.places
    profile = clients.profile_to_compare(client, places)
    try:
        report = clients.compare(
            start=places.start,
            home=places.home,
            environment=places.environment,
            profiles=[profile],
            cache=house.config.cache_directory,
        )
    except SkillhouseError:
        # Then each is loaded by its path.
        return []
    return [
        (verdict.name or skill.name, skill.file)
        for skill in report.skills
        for verdict in skill.verdicts[:1]
        if verdict.state in _SEEN
    ]


def _real(skill: Skill) -> str:
    return os.path.realpath(skill.file)


def _skill_tool(profile: Profile) -> str:
    return next((rule.name for rule in profile.tools if rule.kind == "skill"), "")


def is_copy(file: str, other: str) -> bool:
    """Whether two files have the same bytes."""
    try:
        return filecmp.cmp(file, other, shallow=False)
    except OSError:
        return False


def _loading(skill: Skill, profile: Profile, own_tool: str, *, is_known: bool) -> str:
    """Return how a client loads a skill: by its own tool, by ours, or by the file."""
    # Of a client whose tools its profile does not say, they are those of the default.
    is_said = profile.tools != DEFAULT_TOOLS
    if is_known and is_said and (tool := _skill_tool(profile)):
        return f"with the {tool} tool"
    if own_tool:
        return f"with the tool {own_tool}"
    return f"by reading `{skill.file}`" if _PATH.fullmatch(skill.file) else ""


def _words(hit: Hit) -> tuple[str, ...]:
    """Return the words of the prompt that a skill answers, those of its name first."""
    found = (word for words in hit.matches.values() for word in words)
    # Of a word that was corrected or translated the skill's comes first, the prompt's in brackets.
    words = dict.fromkeys(word.partition(" (")[2].removesuffix(")") or word for word in found)
    return tuple(word for word in words if word.isprintable())[:WORDS_MAX]


def _written(skills: Sequence[HintedSkill]) -> Hint | None:
    """Return a hint of at most `HINT_MAX` characters about as many of the skills as it has room
    for."""
    for count in range(len(skills), 0, -1):
        for words in (WORDS_MAX, 2, 0):
            text = _text(skills[:count], words)
            if len(text) <= HINT_MAX:
                return Hint(text=text, skills=tuple(skills[:count]))
    return None


def _text(skills: Sequence[HintedSkill], words: int) -> str:
    ways: dict[str, list[str]] = {}
    for one in skills:
        why = f" ({', '.join(one.words[:words])})" if words and one.words else ""
        ways.setdefault(one.load, []).append(f"`{one.name}`{why}")
    said = "; ".join(f"{', '.join(names)}: load {way}" for way, names in ways.items())
    noun = "skill" if len(skills) == 1 else "skills"
    return f"Installed {noun} for this request, by skillhouse: {said}. Load what fits first."
