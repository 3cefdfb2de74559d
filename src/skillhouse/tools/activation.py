"""Which skills a conversation was given, to outlive the shortening of its context."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from skillhouse import skill as skill_package
from skillhouse.floor import DecodeError, Digest, digest, shaped
from skillhouse.floor.structs import asdict, replace

if TYPE_CHECKING:
    from skillhouse.skill import SkillContent

ACTIVATIONS_MAX = 200
"""Skills that a conversation keeps account of; the ones begun longest ago go first."""
ATTACHED_SKILL_TOKENS = 5_000
"""Tokens of one skill that is attached again (reference/standard.md section 6: Claude Code's)."""
ATTACHED_TOKENS = 25_000
FIELD_MAX = 4_096
"""Characters of a path, an id or a digest that is read back."""
DATA_VERSION = 1

By = Literal["model", "person", "preload"]


def tokens_of(text: str) -> int:
    """Return the tokens of a text as the catalog counts them: UTF-8 bytes / 4, rounded up.

    >>> tokens_of("falcon")
    2
    """
    return (len(text.encode("utf-8", "surrogatepass")) + 3) // 4


class Activation(Struct, frozen=True, kw_only=True):
    """One skill that a conversation was given."""

    skill: str
    """The skill's id."""
    name: str
    file: str
    """Its SKILL.md."""
    uri: str
    digest: Digest
    """Of the text of the whole file, as it was given."""
    tree: str = ""
    """What an approval of loading it is bound to; empty where no person had to be asked."""
    arguments: str = ""
    """What a person wrote after its name."""
    by: By = "model"
    tokens: int = 0
    """Those of the text that the model got."""
    is_whole: bool = True
    """Whether the model got all of the body."""
    call_id: str = ""
    """Identifies its text in the context: the id of the call, or of an attachment."""
    ordinal: int = 0
    """Its place among the activations of its conversation, from 1."""
    is_approved: bool = False
    """Whether a person approved it in this conversation."""
    is_restored: bool = False
    """Whether it was read back from a transcript, which is not trusted."""


class LeftOut(Struct, frozen=True, kw_only=True):
    """A skill that is not attached again, and why."""

    name: str
    reason: str


class Attachment(Struct, frozen=True, kw_only=True):
    """Skills' texts as one message that no call of the model asked for."""

    text: str = ""
    call_id: str = ""
    """`follow` takes it as it takes ids of calls."""
    activations: tuple[Activation, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


def activation_of(content: SkillContent, text: str, need_digest: str = "") -> Activation:
    skill = content.skill
    return Activation(
        skill=skill.id,
        name=skill.name,
        file=skill.file,
        uri=skill.uri,
        digest=text_digest(content),
        tree=need_digest,
        tokens=tokens_of(text),
    )


def text_digest(content: SkillContent) -> Digest:
    return digest(content.text.encode("utf-8", "surrogatepass"))


class Activations:
    """The newest activation of each skill. Nothing here knows the context itself. Whoever keeps it
    says with `follow` which calls' results are still in it; until then nothing is taken for known
    to the model."""

    def __init__(self, noted: Callable[[Activation], None] | None = None) -> None:
        self._noted = noted
        self._newest: dict[str, Activation] = {}
        self._count = 0
        # None: no caller reports what is in the context.
        self._lost: frozenset[str] | None = None
        self.last = Attachment()
        """What was attached last; it is given again while the context does not keep it."""

    def note(self, activation: Activation, *, call_id: str, is_approved: bool = False) -> None:
        self._count += 1
        self._newest.pop(activation.file, None)
        self._newest[activation.file] = replace(
            activation,
            call_id=call_id,
            ordinal=self._count,
            is_approved=activation.is_approved or is_approved,
        )
        if self._lost is not None:
            self._lost -= {activation.file}
        if self._noted is not None:
            self._noted(activation)
        while len(self._newest) > ACTIVATIONS_MAX:
            del self._newest[next(iter(self._newest))]

    def newest(self) -> tuple[Activation, ...]:
        return tuple(self._newest.values())

    def of(self, file: str) -> Activation | None:
        return self._newest.get(file)

    def is_protected(self, call_id: str) -> bool:
        return bool(call_id) and any(one.call_id == call_id for one in self._newest.values())

    def missing(self, call_ids: Iterable[str]) -> tuple[Activation, ...]:
        """Return what the model lost, by the ids of calls still in the context."""
        present = frozenset(call_ids)
        return tuple(one for one in self._newest.values() if one.call_id not in present)

    def follow(self, call_ids: Iterable[str]) -> tuple[Activation, ...]:
        """Do as `missing`, and from then on do not give a skill again while its text is there."""
        missing = self.missing(call_ids)
        self._lost = frozenset(one.file for one in missing)
        return missing

    def present(self, results: Iterable[tuple[str, str]]) -> tuple[str, ...]:
        """Return the ids of calls whose results, as (id, text), are still there. Frameworks clear a
        result and keep its place: what is shorter than what was given is gone."""
        given = {one.call_id: one.tokens for one in self._newest.values()}
        return tuple(
            call_id for call_id, text in results if tokens_of(text) >= given.get(call_id, 0)
        )

    def is_held(self, content: SkillContent, arguments: str = "") -> bool:
        """Whether the model has all of it; False unless a caller follows its context."""
        held = self._newest.get(content.skill.file)
        return (
            held is not None
            and self._lost is not None
            and held.file not in self._lost
            and held.is_whole
            and not held.is_restored
            and held.arguments == arguments
            and held.digest == text_digest(content)
        )

    def unload(self, reference: str) -> tuple[Activation, ...]:
        gone = tuple(
            one for one in self._newest.values() if reference in (one.name, one.skill, one.file)
        )
        for one in gone:
            del self._newest[one.file]
        return gone

    def as_data(self) -> dict[str, Any]:
        return {
            "version": DATA_VERSION,
            "activations": [asdict(one) for one in self._newest.values()],
        }

    def restore(self, data: object) -> None:
        """Take back what `as_data` gave; DecodeError for another shape or too much. Whoever can
        write the transcript can write this, so it says what the context holds and grants nothing:
        no approval, no directory, no skill that is for people alone."""
        restored = _checked(data)
        self._newest = {one.file: one for one in restored}
        self._count = len(restored)
        self._lost = None
        self.last = Attachment()


class _Data(Struct, frozen=True, kw_only=True):
    """The activations as a transcript keeps them."""

    version: int
    activations: tuple[Activation, ...]


def _checked(data: object) -> tuple[Activation, ...]:
    if not isinstance(data, Mapping) or not isinstance(data.get("activations"), list | tuple):
        raise DecodeError("expected the activations of a conversation")
    if len(data["activations"]) > ACTIVATIONS_MAX:
        raise DecodeError(f"expected at most {ACTIVATIONS_MAX} activations")
    restored = shaped(data, _Data)
    if restored.version != DATA_VERSION:
        raise DecodeError(f"expected activations of version {DATA_VERSION}, got {restored.version}")
    for one in restored.activations:
        texts = (one.skill, one.name, one.file, one.uri, one.digest, one.tree, one.call_id)
        is_long = len(one.arguments) > skill_package.ARGUMENTS_MAX
        if is_long or any(len(text) > FIELD_MAX for text in texts):
            raise DecodeError("an activation is too large")
    return tuple(
        replace(one, ordinal=at, is_approved=False, is_restored=True)
        for at, one in enumerate(restored.activations, 1)
    )
