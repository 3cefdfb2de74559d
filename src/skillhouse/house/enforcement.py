"""The services between calls and effects: audit log, approvals, tiers, keys, emergency stop.

Also which values of the configuration and the environment no log may hold.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from skillhouse import approval, permission, sandbox
from skillhouse import tools as toolbox
from skillhouse.audit import AuditDraft, AuditError, KnownSecrets, is_secret_name
from skillhouse.extension import own_module
from skillhouse.floor import ConfigError, MissingExtraError, SteadyClock, digest, read_regular
from skillhouse.floor.lock import Lazy, once
from skillhouse.floor.regex import regex
from skillhouse.floor.structs import replace
from skillhouse.house.access_tokens import Access, AccessTokens
from skillhouse.house.config.config_files import approvals_of, tier_policy_file
from skillhouse.house.network import Network
from skillhouse.house.own_files import KEYSTORE_FILE, audit_log_of, tier_policy_of
from skillhouse.registry.passwords import PasswordSource
from skillhouse.store import STATE_FILE, state_server
from skillhouse.tiers import (
    StopNotice,
    StopReport,
    TierEngine,
    TierPolicy,
)
from skillhouse.tiers.emergency_stop import CALLS
from skillhouse.tiers.tier_file import POLICY_FILE_MAX
from skillhouse.tiers.tier_values import COMPANION_APP, INLINE, PAGE
from skillhouse.tools.recorder import denied_later
from skillhouse.tools.tier_gate import Running

if TYPE_CHECKING:
    from skillhouse.house.config import Config

POLICY_SEEN_FILE = "policy.seen"
"""Holds the digest of the tier policy that this state has last been used with."""

logger = logging.getLogger(__name__)


class EnforcementSettings:
    """What one configuration says to the enforcement; a reload makes another.

    INVARIANT: nothing in it changes but what is made late.
    """

    def __init__(
        self,
        config: Config,
        network: Lazy[Network],
        channel: approval.Channel | None = None,
        before: EnforcementSettings | None = None,
        further: Callable[[Config], tuple[approval.Channel, ...]] = lambda _: (),
    ) -> None:
        """`channel` asks a person besides those of the configuration, and so do those that
        `further` gives. The signer's process of `before` goes on where its settings are the same,
        and its tier policy where the file that replaces it has a fault."""
        self.config = config
        self._network = network
        self._channel = channel
        self._further = further
        self.approvals = approvals_of(config)
        self.hidden = Lazy(partial(hidden_values, config))
        self.signer = Lazy(partial(_signer, config))
        self.tier_policy = Lazy(partial(tier_policy_of, config))
        self.tier_fault = ""
        """Why the tier policy from before stays in use; empty if it does not."""
        if before is not None and before.config.signer == config.signer:
            self.signer = before.signer
        if before is not None and before.tier_policy.made:
            fault = self.tier_policy.get().fault
            if fault and not before.tier_policy.get().fault:
                self.tier_policy, self.tier_fault = before.tier_policy, fault
        self.wants_companion = Lazy(self._wants_companion)

    def channels(self) -> tuple[approval.Channel, ...]:
        """Return what asks a person; ConfigError where one of them cannot be used."""
        own = self._network.get().channels(self._channel)
        return (*own, *self._further(self.config))

    def secret_values(self) -> tuple[str, ...]:
        """Return the values of the network and of the configuration that no log may hold."""
        return (*self._network.get().secret_values, *self.hidden.get())

    @property
    def has_tier_policy(self) -> bool:
        """Whether calls have tiers: only if a policy file exists, even an unusable one."""
        return tier_policy_file(self.config) is not None

    def _wants_companion(self) -> bool:
        """Whether any entry needs a paired device; listing devices takes time."""
        policy = self.tier_policy.get()
        entries = [policy.defaults, *policy.tools.values(), *(p for _, p in policy.wildcards)]
        entries += [policy.fallback] if policy.fallback else []
        return policy.has_companion or COMPANION_APP in {e.confirmation_channel for e in entries}


def _signer(config: Config) -> Any:
    return own_module("signer").SignerProcess(
        config.state_directory / KEYSTORE_FILE,
        config.state_directory / STATE_FILE,
        environment=config.places.environment,
        password=PasswordSource.parse(config.signer.password),
    )


class SettingsInUse(Protocol):
    """What gives the settings that hold now."""

    @property
    def enforcement_settings(self) -> EnforcementSettings: ...


class _Fixed:
    """Settings that no file replaces."""

    def __init__(self, config: Config) -> None:
        self.enforcement_settings = EnforcementSettings(config, Lazy(partial(Network, config)))


class EnforcementServices:
    """One for each `Skillhouse`, which outlives every reload: log, questions, keys and stop.

    The approvals, the tiers and their gate are made at first use, and end with `close`; what a
    configuration says to them is read in `EnforcementSettings` when it is needed, and given to
    those that are made by `follow`.
    """

    def __init__(
        self,
        in_use: SettingsInUse,
        *,
        background: Callable[[], toolbox.Background | None] = lambda: None,
        on_stop: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`background` gives the cells that a stop ends, where there are any; `on_stop` is called
        once all is stopped, with the reason."""
        self._on_stop = on_stop
        config = in_use.enforcement_settings.config
        self._in_use = in_use
        self._background = background
        self._state = config.state_directory
        self.clock = SteadyClock()
        self.redeemed = toolbox.RedeemedApprovals()
        self.audit_log = audit_log_of(config, secrets=self._secrets)
        self.also_secret: tuple[str, ...] = ()
        """Values that only a frontend knows, such as the key of a chat's model."""
        self._former_secrets: tuple[str, ...] = ()
        self._approvals = Lazy(self._make_approvals)
        self._tiers = Lazy(self._make_tiers)
        self._tier_gate = Lazy(self._make_tier_gate)

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return those of a configuration alone, for a stop where no house can be opened."""
        return cls(_Fixed(config))

    @property
    def _settings(self) -> EnforcementSettings:
        return self._in_use.enforcement_settings

    def remember_secrets(self) -> None:
        """Go on hiding the values of this configuration: a result may still bring them back."""
        known = (*self._former_secrets, *self._settings.secret_values())
        self._former_secrets = tuple(dict.fromkeys(known))

    def follow(self, before: EnforcementSettings, channels: Sequence[approval.Channel]) -> None:
        """Give the settings in use to what is made already; open questions and the log stay."""
        now = self._settings
        if self._approvals.made and before.approvals != now.approvals:
            self.approvals.configure(now.approvals, channels)
        if before.signer is not now.signer and before.signer.made:
            # A call that signs just now is asked again.
            before.signer.get().close()
        if now.tier_fault:
            return
        if self._tiers.made:
            self.tiers.policy = self.policy
        if self._tier_gate.made:
            self.tier_gate.has_policy = self.has_policy
            self._note_policy()

    @property
    def approvals(self) -> approval.ApprovalBroker:
        """The approval requests; each process has a broker of its own on the same state."""
        return self._approvals.get()

    def _make_approvals(self) -> approval.ApprovalBroker:
        return approval.ApprovalBroker(
            self._state,
            narrows=_narrows,
            channels=self._settings.channels(),
            settings=self._settings.approvals,
            connections=self.connections,
            clock=self.clock,
            denied=lambda answered: self.audit_log.write_or_keep(denied_later(answered)),
        )

    @once
    def connections(self) -> approval.Connections:
        """The connections of callers: what is theirs ends with them."""
        return approval.Connections(self._state)

    def session_grants(self, key: str) -> tuple[approval.Grant, ...]:
        """Return the approvals for the rest of a conversation: a broker that answered has them, or
        the state that servers share."""
        is_shared = state_server(self._state / STATE_FILE) is not None
        if not (is_shared or self._approvals.made):
            return ()
        return self.approvals.session_grants(key)

    @once
    def devices(self) -> approval.Devices:
        return approval.Devices(self._state, record=self._device_event, clock=self.clock)

    @once
    def _device_secrets(self) -> approval.DeviceSecrets:
        return approval.DeviceSecrets(self._state)

    @once
    def tokens(self) -> approval.Tokens:
        """The one-time tokens with which a script approves a request."""
        return approval.Tokens(self._state, clock=self.clock)

    @once
    def access_tokens(self) -> AccessTokens:
        """The named tokens and the browsers of the HTTP service."""
        return AccessTokens(self._state, record=self._token_event, clock=self.clock)

    @once
    def session_keys(self) -> Any:
        """The keys that sign without an approval; MissingExtraError without the signer."""
        return own_module("signer").SessionKeys(self._state / STATE_FILE)

    @property
    def policy(self) -> TierPolicy:
        """The tier policy; an unusable file allows only reads."""
        return self._settings.tier_policy.get()

    @property
    def has_policy(self) -> bool:
        """Whether calls have tiers: only if a policy file exists, even an unusable one."""
        return self._settings.has_tier_policy

    @property
    def tiers(self) -> TierEngine:
        """The tiers, with the side effects of stop and resume."""
        return self._tiers.get()

    def _make_tiers(self) -> TierEngine:
        withdrawing: list[tuple[str, Callable[[StopNotice], object]]] = [
            ("end the session keys", self._revoke),
            ("withdraw open questions", self._withdraw),
        ]
        stop = ("write to the log", partial(self._record, "stop"))
        resume = ("write to the log", partial(self._record, "resume"))
        # Withdrawn before a resume too: on a full disk the stop could not.
        return TierEngine(
            self.policy,
            self._state / STATE_FILE,
            on_stop=[*withdrawing, stop],
            on_resume=[*withdrawing, resume],
        )

    @property
    def tier_gate(self) -> toolbox.TierGate:
        return self._tier_gate.get()

    def _make_tier_gate(self) -> toolbox.TierGate:
        self._note_policy()
        return toolbox.TierGate(
            self.tiers,
            has_policy=self.has_policy,
            reachable=self._reachable,
            background=self._background,
        )

    def running(self) -> Running:
        """Return what a stop ends, for one call or command."""
        return self.tier_gate.running()

    def stop(self, by: str, reason: str) -> StopReport:
        """Stop everything in every process of this state; kill commands of those that are silent.

        Raises:
            StateError: the state cannot be written; this process is stopped all the same.
        """
        report = self.tiers.stop(by, reason)
        shown_in = (self.tiers.stop_directory / CALLS).resolve()
        killed = sum(sandbox.kill_sandboxes(pid, shown_in) for pid in report.silent)
        self._on_stop(reason)
        return replace(report, killed=killed)

    def resume(self, by: str, channel: str) -> bool:
        return self.tiers.resume(by, channel)

    def event(
        self,
        what: str,
        *,
        user: str,
        reason: str = "",
        arguments: Mapping[str, object] | None = None,
        **values: str,
    ) -> None:
        """Record, durably, what is no call, such as a change of keys; AuditError if it fails.

        `arguments` is what changed, and `values` is said about it.
        """
        self.audit_log.append(
            AuditDraft(
                kind="event",
                tool=f"system:{what}",
                user=user,
                status="ok",
                reason=reason,
                arguments=arguments or {},
                detail=dict(values),
            ),
            durable=True,
        )

    def noted(self, what: str, *, user: str, **more: Any) -> None:
        """Record an event with what `event` takes; if the audit log fails, only log an error."""
        try:
            self.event(what, user=user, **more)
        except AuditError:
            logger.exception("`%s` is not in the audit log", what)

    def note_background(self, run: toolbox.BackgroundRun) -> None:
        """Record the end of a command in the background."""
        agent, user, channel = run.owner
        self.audit_log.append_or_keep(
            AuditDraft(
                kind="event",
                tool="exec",
                agent=agent,
                user=user,
                channel=channel,
                arguments={"command": run.title},
                status="error" if run.failure else "ok",
                reason=run.state,
                duration_ms=int(run.seconds * 1000),
                detail={"event": "background-end", **toolbox.end_of(run)},
            )
        )

    def _device_event(self, what: str, device: approval.Device | None, detail: str) -> None:
        """Record an event about a device; only pairing depends on the audit log."""
        reason = f"{what}: {detail}" if detail else what
        record = self.event if what == "paired" else self.noted
        if device is None:
            record("device", user="", reason=reason)
        else:
            record("device", user=device.user, reason=reason, device=device.id, name=device.name)

    def tools(self) -> dict[str, toolbox.ToolMaker]:
        """Return what makes the tool `sign`, if there is a keystore."""
        keystore = self._state / KEYSTORE_FILE
        if not keystore.exists():
            return {}
        try:
            signing = own_module("signer")
        except MissingExtraError:
            return {}
        return {"sign": partial(self._sign_tool, signing, keystore)}

    def _sign_tool(self, signing: Any, keystore: Path) -> toolbox.Tool:
        made: toolbox.Tool = signing.SignTool(
            self.signer, keystore, self.session_keys, approval=self.redeemed.take
        )
        return made

    def why_absent(self, tool: str) -> str:
        """Return why the tool `sign` is not there though there are keys; "" for any other."""
        if tool != "sign" or not (self._state / KEYSTORE_FILE).exists():
            return ""
        try:
            own_module("signer")
        except MissingExtraError as error:
            return str(error)
        return ""

    @property
    def signer(self) -> Any:
        return self._settings.signer.get()

    def close(self) -> None:
        """End the signer's process; close the log."""
        if self._settings.signer.made:
            self.signer.close()
        if self._tier_gate.made:
            self.tier_gate.close()
        if "connections" in vars(self):
            self.connections.close()
        self.audit_log.close()

    def _note_policy(self) -> None:
        """Record a changed or removed tier policy."""
        seen = self._state / POLICY_SEEN_FILE
        try:
            file = tier_policy_file(self._settings.config)
            now = "" if file is None else digest(read_regular(file, POLICY_FILE_MAX))
        except (OSError, ConfigError):
            now = "unreadable"
        try:
            before = seen.read_text() if seen.exists() else ""
            if now != before:
                reason = self.policy.fault or ("a policy holds" if now else "no policy holds")
                self.event("policy", user=approval.OWNER, reason=reason, digest=now)
                seen.touch(0o600)
                seen.write_text(now)
        except (OSError, AuditError):
            # What is not recorded now is recorded by the next house of this state.
            logger.warning("a change of the tier policy is not in the audit log yet")

    @property
    def secret_values(self) -> tuple[str, ...]:
        """The values that no record, log line or transcript may hold, as they are now."""
        return self._secrets()

    def _secrets(self) -> tuple[str, ...]:
        known = (*self._settings.secret_values(), *self.also_secret, *self._former_secrets)
        return (*known, *self._device_secrets.all())

    def hide(self, text: str) -> str:
        """Return a text without these values."""
        return KnownSecrets(self.secret_values).hide(text)

    def _reachable(self) -> frozenset[str]:
        """Return the channels that can reach a person: chat or inbox, page, paired device."""
        found = {INLINE, PAGE}
        if self._settings.wants_companion.get() and self.devices.all():
            found.add(COMPANION_APP)
        return frozenset(found)

    def _token_event(self, what: str, access: Access) -> None:
        """Record a new or revoked token; what cannot be recorded is not made."""
        record = self.event if what == "new" else self.noted
        scopes = " ".join(sorted(access.scopes))
        record(
            "token", user=access.user, reason=what, id=access.id, name=access.name, scopes=scopes
        )

    def _revoke(self, notice: StopNotice) -> None:
        # Whatever the policy's action: docs/decisions/0111-tier-policy.md.
        try:
            keys = self.session_keys
        except MissingExtraError:
            # INVARIANT: keys that cannot be ended are said to be so, by whoever calls this.
            if (self._state / KEYSTORE_FILE).exists():
                raise
            return
        keys.revoke_all(f"emergency stop: {notice.reason}")

    def _withdraw(self, _: StopNotice) -> None:
        self.approvals.withdraw_all()

    def _record(self, what: str, notice: StopNotice) -> None:
        self.audit_log.append(
            AuditDraft(
                kind="event",
                tool=f"system:emergency-{what}",
                user=notice.by,
                status="emergency-stopped" if what == "stop" else "ok",
                reason=notice.reason,
                tier="1",
                effective_tier="1",
            ),
            durable=True,
        )


def _narrows(*words: str) -> bool:
    # Asked of an answer alone: what judges commands is not loaded before.
    return permission.narrows(*words)


TOKEN_BYTES = 4_096
"""Bytes of a file with a token that are read."""
_WORD_MAX = 16
"""Letters of a word; a longer row of letters is no word of any configuration."""

_ORIGIN = regex(r"[a-z][a-z0-9+.-]*://[A-Za-z0-9.-]+(:[0-9]+)?/?")


def hidden_values(config: Config) -> tuple[str, ...]:
    """Return the values that no record, log line or transcript may hold.

    These are the variables that are named as secrets, the variables that skills get, what servers
    of skills are started with, and the tokens and passwords that the configuration points at.
    `KnownSecrets` leaves out what has fewer than 8 characters.
    """
    return tuple(dict.fromkeys(value for value in _values(config) if value))


def is_plain(value: str) -> bool:
    """Whether a value without a telling name is a setting and no secret.

    Hiding a word, an origin or a place of this machine would take it out of every record.

    >>> [is_plain(value) for value in ("production", "https://api.example.org", "k7-xTq9-aa")]
    [True, True, False]
    """
    is_word = value.isalpha() and len(value) < _WORD_MAX and value[1:].islower() | value.isupper()
    if is_word or _ORIGIN.fullmatch(value):
        return True
    try:
        return os.path.isabs(value) and os.path.lexists(value)
    except ValueError:
        # A NUL is in no path.
        return False


def _values(config: Config) -> Iterator[str]:
    environment = config.places.environment
    yield from (value for name, value in environment.items() if is_secret_name(name))
    handed = {name for names in config.skill_code.env.values() for name in names}
    yield from _without_settings({name: environment.get(name, "") for name in sorted(handed)})
    for server in config.mcp_servers:
        yield from _without_settings(server.environment)
        yield from _named_arguments(server.command)
    tokens = (one.token for one in config.repositories)
    for place in (config.signer.password, config.skill_code.executor_token, *tokens):
        kind, _, name = place.partition(":")
        if kind == "env":
            yield environment.get(name, "")
        elif kind == "file":
            yield _token(Path(name))


def _without_settings(values: Mapping[str, str]) -> Iterator[str]:
    return (value for name, value in values.items() if is_secret_name(name) or not is_plain(value))


def _named_arguments(command: Sequence[str]) -> Iterator[str]:
    """Yield the values of options that are named as secrets: `--token x` and `--token=x`."""
    for before, word in zip(("", *command), command, strict=False):
        name, equals, value = word.partition("=")
        if equals and is_secret_name(name):
            yield value
        elif before.startswith("-") and "=" not in before and is_secret_name(before):
            yield word


def _token(path: Path) -> str:
    try:
        # A pipe would be waited for.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            return (file.read(TOKEN_BYTES) or b"").decode("ascii", "replace").strip()
    except OSError:
        # The code that uses it looks again, and reports that it is missing.
        return ""
