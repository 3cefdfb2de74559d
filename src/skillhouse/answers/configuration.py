"""Files of the configuration and of rules, and what was written into them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from skillhouse.answers.json_form import Count, JsonAnswer
from skillhouse.answers.policy import RuleFindingAnswer
from skillhouse.floor import ConfigError
from skillhouse.house.config.bundle_files import BUNDLE_CONFIG, BUNDLE_POLICY

if TYPE_CHECKING:
    from skillhouse.house import Config


class ConfigFileAnswer(JsonAnswer, frozen=True, kw_only=True):
    name: str
    path: str
    exists: bool


class RepositorySettingsAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A configured repository; `token` says where its token is."""

    name: str
    url: str
    trusted: bool
    token: str
    require_signature: bool
    registry: str
    root: str
    """What is pinned, empty where nothing is."""
    stale_days: Count


class ConfigCheckAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What of the files has no effect, besides their faults."""

    unknown_actions: list[str]
    void_rules: list[RuleFindingAnswer]
    void_variables: list[str]


class BundleTextAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What the signed bundle in use sets besides this machine's files."""

    source: str
    """`bundle NAME` and how its digest begins, as decisions name it."""
    number: Count
    digest: str
    rules: Literal["stricter", "defaults", "none"]
    """What its rules may do here."""
    text: str
    """Its configuration; empty for none."""
    policy: str
    """Its tier policy, likewise."""
    problem: str
    """Why they cannot be used; empty for nothing."""


class ConfigTextAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The user's file; the text is null where there is none."""

    path: str
    text: str | None
    bundle: BundleTextAnswer | None


class ConfigKeyAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A key with the value in use, null where nothing sets it."""

    key: str
    value: Any
    set_by: tuple[str, ...]
    """Which of managed, environment, project, user and bundle set it, the strongest first."""


class AddedRuleAnswer(JsonAnswer, frozen=True, kw_only=True):
    path: str
    rule: str


class PolicyTextAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A policy of the program; null where none is in force."""

    policy: str | None
    text: str
    bundle: BundleTextAnswer | None = None


class ChosenPolicyAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The starting policy that the user's file names; `copies` are rules of it in that file."""

    policy: str
    path: str
    rules: Count
    written: bool
    copies: Count
    used: str | None
    """That of the managed file counts instead."""


class CompletionAnswer(JsonAnswer, frozen=True, kw_only=True):
    shell: str
    script: str


def bundle_text(config: Config) -> BundleTextAnswer | None:
    """Return what the bundle in use sets; None without one, or where it has skills alone."""
    found, problem = config.bundle, ""
    if found is None or not (found.files or found.fault):
        return None
    contents: dict[str, bytes] = {}
    try:
        contents = found.contents()
    except ConfigError as error:
        problem = error.message
    return BundleTextAnswer(
        source=found.label,
        number=found.number,
        digest=found.digest,
        rules=found.rules_are,
        text=contents.get(BUNDLE_CONFIG, b"").decode("utf-8", "replace"),
        policy=contents.get(BUNDLE_POLICY, b"").decode("utf-8", "replace"),
        problem=problem,
    )


def commented(found: BundleTextAnswer, *texts: str) -> str:
    """Return texts of a bundle as comments of TOML and YAML, so that a copy of the whole stays a
    file of this machine."""
    head = f"# {found.source}, number {found.number}: {USED[found.rules]}"
    if found.problem:
        head = f"# {found.source}: {found.problem}"
    lines = [line for text in texts for line in text.splitlines()]
    return "\n".join([head, *(f"#   {line}".rstrip() for line in lines)]) + "\n"


USED = {
    "stricter": "only stricter than this machine's own",
    "defaults": "where no rule of this machine matches",
    "none": 'not used: `source_rules = "none"`',
}
"""What the rules of a bundle may do, by `source_rules`."""
