"""The services between calls and effects: audit log, approvals, tiers, keys, emergency stop.

Also which values of the configuration and the environment no log may hold.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillhouse import approval, permission, sandbox
from skillhouse import tools as toolbox
from skillhouse.audit import AuditDraft, AuditError, AuditLog, is_secret_name
from skillhouse.extension import own_module
from skillhouse.floor import ConfigError, MissingExtraError, SteadyClock, digest, read_regular
from skillhouse.floor.lock import once
from skillhouse.floor.regex import regex
from skillhouse.floor.structs import replace
from skillhouse.house.access_tokens import Access, AccessTokens
from skillhouse.house.config.config_files import approvals_of, profile_of
from skillhouse.house.own_files import AUDIT_FILE
from skillhouse.registry.passwords import PasswordSource
from skillhouse.store import KEYSTORE_FILE, STATE_FILE
from skillhouse.tiers import StopNotice, StopReport, TierEngine, TierPolicy, load_tier_policy
from skillhouse.tiers.emergency_stop import CALLS
from skillhouse.tiers.tier_file import POLICY_FILE_MAX
from skillhouse.tiers.tier_values import COMPANION_APP, INLINE, PAGE

if TYPE_CHECKING:
    from skillhouse.house.config import Config

POLICY_SEEN_FILE = "policy.seen"
"""Holds the digest of the tier policy that this state has last been used with."""

logger = logging.getLogger(__name__)


class EnforcementServices:
    """One for each `Skillhouse`; each part is made when it is first needed."""

    def __init__(
        self,
        config: Config,
        *,
        channels: Callable[[], Iterable[approval.Channel]] = tuple,
        secrets: Callable[[], Iterable[str]] = tuple,
        background: Callable[[], toolbox.Background | None] = lambda: None,
        on_stop: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`on_stop` is called once all is stopped, with the reason."""
        self._config = config
        self._on_stop = on_stop
        self._channels = channels
        self._secrets = secrets
        self._background = background
        self._state = config.state_directory
        self.clock = SteadyClock()
        self.agreed = toolbox.RedeemedApprovals()
        self.audit_log = AuditLog(
            self._state / AUDIT_FILE,
            secrets=lambda: self.secret_values,
            checkpoints=config.audit_checkpoints,
        )
        self.also_secret: tuple[str, ...] = ()
        """Values that only a frontend knows, such as the key of a chat's model."""
        self._former_secrets: tuple[str, ...] = ()

    def remember_secrets(self) -> None:
        """Go on hiding the values of this configuration: a result may still bring them back."""
        known = (*self._former_secrets, *self._configured_secrets, *self._secrets())
        self._former_secrets = tuple(dict.fromkeys(known))

    def adopt(self, config: Config, channels: Sequence[approval.Channel]) -> str:
        """Follow another configuration; open questions, the log and the state stay.

        Returns why the tier policy from before stays in use; empty if it does not.
        """
        before, self._config = self._config, config
        vars(self).pop("_configured_secrets", None)
        if "approvals" in vars(self) and approvals_of(before) != approvals_of(config):
            self.approvals.configure(approvals_of(config), channels)
        if "signer" in vars(self) and before.signer != config.signer:
            # A call that signs just now is asked again.
            vars(self).pop("signer").close()
        return self._adopt_policy()

    def _adopt_policy(self) -> str:
        found = self._read_policy()
        if found.fault and not self.policy.fault:
            return found.fault
        vars(self)["policy"] = found
        vars(self).pop("_wants_companion", None)
        if "tiers" in vars(self):
            self.tiers.policy = found
        if "tier_gate" in vars(self):
            self.tier_gate.has_policy = self.has_policy
            self._note_policy()
        return ""

    @once
    def approvals(self) -> approval.ApprovalBroker:
        """The approval requests; each process has a broker of its own on the same state."""
        return approval.ApprovalBroker(
            self._state,
            narrows=lambda *words: permission.narrows(*words),  # noqa: PLW0108 loaded late
            channels=tuple(self._channels()),
            settings=approvals_of(self._config),
            clock=self.clock,
        )

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

    @once
    def policy(self) -> TierPolicy:
        """The tier policy; an unusable file allows only reads."""
        return self._read_policy()

    def _read_policy(self) -> TierPolicy:
        policy = load_tier_policy(
            self._config.places.policy_file,
            assignees=self._config.assignees,
            # A paired device counts as the page does, and the page can always be opened.
            tier1_channel=PAGE,
        )
        return replace(policy, published=profile_of(self._config).tool_names)

    @property
    def has_policy(self) -> bool:
        """Whether calls have tiers: only if a policy file exists, even an unusable one."""
        file = self._config.places.policy_file
        return file.exists() or file.is_symlink()

    @once
    def tiers(self) -> TierEngine:
        """The tiers, with the side effects of stop and resume."""
        withdrawing: list[tuple[str, Callable[[StopNotice], object]]] = [
            ("end the session keys", self._revoke),
            ("withdraw open questions", lambda _: self.approvals.withdraw_all()),
        ]
        stop = ("write to the log", lambda notice: self._record("stop", notice))
        resume = ("write to the log", lambda notice: self._record("resume", notice))
        # Withdrawn before a resume too: on a full disk the stop could not.
        return TierEngine(
            self.policy,
            self._state / STATE_FILE,
            on_stop=[*withdrawing, stop],
            on_resume=[*withdrawing, resume],
        )

    @once
    def tier_gate(self) -> toolbox.TierGate:
        self._note_policy()
        return toolbox.TierGate(
            self.tiers,
            has_policy=self.has_policy,
            reachable=self._reachable,
            background=self._background,
        )

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
        self.audit_log.append_read(
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
        return {
            "sign": lambda: signing.SignTool(
                self.signer, keystore, self.session_keys, approval=self.agreed.take
            )
        }

    def why_absent(self, tool: str) -> str:
        """Return why the tool `sign` is not there though there are keys; "" for any other."""
        if tool != "sign" or not (self._state / KEYSTORE_FILE).exists():
            return ""
        try:
            own_module("signer")
        except MissingExtraError as error:
            return str(error)
        return ""

    @once
    def signer(self) -> Any:
        return own_module("signer").SignerProcess(
            self._state / KEYSTORE_FILE,
            self._state / STATE_FILE,
            environment=self._config.places.environment,
            password=PasswordSource.parse(self._config.signer.password),
        )

    def close(self) -> None:
        """End the signer's process; close the log."""
        if "signer" in self.__dict__:
            self.signer.close()
        if "tier_gate" in self.__dict__:
            self.tier_gate.close()
        if "approvals" in self.__dict__:
            self.approvals.connections.close()
        self.audit_log.close()

    def _note_policy(self) -> None:
        """Record a changed or removed tier policy."""
        seen = self._state / POLICY_SEEN_FILE
        try:
            file = self._config.places.policy_file
            now = digest(read_regular(file, POLICY_FILE_MAX)) if self.has_policy else ""
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
        known = (*self._secrets(), *self._configured_secrets, *self.also_secret)
        known += self._former_secrets
        return (*known, *self._device_secrets.all())

    @once
    def _configured_secrets(self) -> tuple[str, ...]:
        return hidden_values(self._config)

    def _reachable(self) -> frozenset[str]:
        """Return the channels that can reach a person: chat or inbox, page, paired device."""
        found = {INLINE, PAGE}
        if self._wants_companion and self.devices.all():
            found.add(COMPANION_APP)
        return frozenset(found)

    @once
    def _wants_companion(self) -> bool:
        """Whether any entry needs a paired device; listing devices takes time."""
        policy = self.policy
        entries = [policy.defaults, *policy.tools.values(), *(p for _, p in policy.wildcards)]
        entries += [policy.fallback] if policy.fallback else []
        return any(entry.confirmation_channel == COMPANION_APP for entry in entries)

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
