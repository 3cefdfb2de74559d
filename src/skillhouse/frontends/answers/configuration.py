"""Files of the configuration and of rules, and what was written into them."""

from __future__ import annotations

from typing import Any

from skillhouse.frontends.answers.json_form import Count, JsonAnswer
from skillhouse.frontends.answers.policy import RuleFindingAnswer


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


class ConfigTextAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The user's file; the text is null where there is none."""

    path: str
    text: str | None


class ConfigKeyAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A key with the value in use, null where nothing sets it."""

    key: str
    value: Any
    set_by: tuple[str, ...]
    """Which of managed, environment, project and user set it, the strongest first."""


class AddedRuleAnswer(JsonAnswer, frozen=True, kw_only=True):
    path: str
    rule: str


class PolicyTextAnswer(JsonAnswer, frozen=True, kw_only=True):
    policy: str
    text: str


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
