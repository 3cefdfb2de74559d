"""Network access under the configured policy, and the record of what commands ask the proxy for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from skillhouse import approval, net, remote
from skillhouse.audit import AuditDraft, DecidedPermission
from skillhouse.floor import ConfigError
from skillhouse.floor.lock import once
from skillhouse.floor.structs import replace
from skillhouse.house.config import secret_variables
from skillhouse.permission import Decision, Effect, Permission
from skillhouse.tools import PermissionRequest

if TYPE_CHECKING:
    from skillhouse.audit import AuditLog
    from skillhouse.house.config import Config
    from skillhouse.tools import NamedRequest, Session

SYNC_SECONDS = 120.0
"""Time for one file or archive of a remote: 50 MB take longer than a page."""
DOWNLOADS = "downloads"
"""The directory of the cache with beginnings of downloads, which the next run continues."""
WEBHOOK_SECONDS = 10.0
"""Time for telling a webhook of a question, which waits for the answer elsewhere."""
_LOOPBACK = {
    "localhost": ("127.0.0.1/32", "::1/128"),
    "127.0.0.1": ("127.0.0.1/32",),
    "::1": ("::1/128",),
}
"""What an address on this machine that an operator wrote down may lead to."""


class Network:
    """Which hosts may be reached, by what, and with which secrets."""

    def __init__(self, config: Config, *, route: net.Route | None = None) -> None:
        self._settings = config.net
        self._approvals = config.approvals
        self._skills = replace(config.skills, repositories=config.repositories)
        self._search = config.search
        self._state = config.state
        self._environment = config.places.environment
        cache = config.cache_directory
        self._downloads = None if cache is None else cache / DOWNLOADS
        self._route = route

    @once
    def route(self) -> net.Route:
        return self._route or net.Route(environment=self._environment)

    @once
    def policy(self) -> net.NetPolicy:
        """What may be reached without asking, private networks and secrets.

        A secret whose variable is not set is not there: a request that wants it is refused.

        Raises:
            ConfigError: a secret's value is none.
        """
        values = ((one, self._environment.get(one.env, "")) for one in self._settings.secrets)
        try:
            return net.NetPolicy(
                hosts=tuple(map(net.host_rule, self._settings.hosts)),
                private=self._settings.private,
                secrets=tuple(
                    net.SecretBinding(name=one.name, value=value, hosts=one.hosts)
                    for one, value in values
                    if value
                ),
            )
        except net.NetError as error:
            raise ConfigError(f"wrong value: {error}", key="net") from error

    @once
    def provider(self) -> net.SearchProvider | None:
        """The service that searches the web, or None."""
        if self._settings.searxng_url:
            return net.SearxngSearch(base_url=self._settings.searxng_url)
        key = self._environment.get(self._settings.brave_key_env, "")
        return net.BraveSearch(key=key) if key else None

    @property
    def no_provider(self) -> str:
        variable = self._settings.brave_key_env
        if variable:
            return f"no web search: the variable `{variable}` of `brave_key_env` is not set"
        from skillhouse.tools.web import NO_PROVIDER  # noqa: PLC0415 - not needed to list skills

        return NO_PROVIDER

    @once
    def secret_values(self) -> tuple[str, ...]:
        """The values that no log may hold."""
        variables = sorted(
            secret_variables(
                self._settings, self._approvals, self._skills, self._search, self._state
            )
        )
        return tuple(value for name in variables if (value := self._environment.get(name, "")))

    def conceal(self, text: str) -> str:
        """Return a text without the secrets that are bound to hosts, in any spelling."""
        if not self._settings.secrets:
            return text
        try:
            secrets = self.policy.secrets
        except ConfigError:
            # Nothing was sent with them either, and the call that is over is no place for an error.
            return text
        return net.masked(text, secrets)

    def way_out(
        self,
        report: Callable[[net.EgressDecision], None],
        named: Sequence[NamedRequest] = (),
        *,
        idle_seconds: float | None = None,
    ) -> AbstractAsyncContextManager[Path]:
        """Open a proxy and give its socket; what `report` raises refuses the request.

        With requests it lets through these alone, otherwise what the list of hosts allows.
        """
        policy = replace(self.policy, hosts=()) if named else self.policy
        for request in named:
            policy = policy.granted(request.target, request.method)
        return net.EgressProxy(
            policy, report=report, route=self.route, idle_seconds=idle_seconds
        ).listening()

    def fetch_for(
        self, source: remote.RemoteSource, report: Callable[[str], None] = lambda _: None
    ) -> remote.Fetch:
        """Return the way to a source: its own origin, and what the operator listed besides.

        `report` gets each address before it is requested.
        """
        target = net.parse_url(source.url)
        own = net.HostRule(
            host=target.host, scheme=target.scheme, port=target.port, methods=frozenset({"GET"})
        )

        async def fetch(url: str, max_bytes: int) -> remote.Fetched:
            report(url)
            policy = self._only(own, *self.policy.hosts, body_bytes=max_bytes, seconds=SYNC_SECONDS)
            response = await net.fetch(url, policy=policy, route=self.route)
            return remote.Fetched(response.status, response.url, response.body)

        return fetch

    def download_for(
        self,
        url: str,
        report: Callable[[str], None] = lambda _: None,
        *,
        is_typed: bool = True,
        digest: str = "",
        progress: net.Progress = lambda _done, _total: None,
    ) -> remote.Fetch:
        """Return the way to an address, and to where it leads; a cut stream is continued.

        It may lead to any public host over https: what comes is shown before it is used. An
        address on this machine is reached only if a person typed it.

        Args:
            digest: `sha256:` digest of what is there, if it is known: then a server without ETags
                is continued, too. Whether it fits is for the caller to check.
            progress: Receives the bytes that are here and those of the whole.
        """
        target = net.parse_url(url)
        own = net.HostRule(
            host=target.host, scheme=target.scheme, port=target.port, methods=frozenset({"GET"})
        )
        public = net.HostRule(host="*", methods=frozenset({"GET"}))
        private = _LOOPBACK.get(target.host, ()) if is_typed else ()

        async def fetch(address: str, max_bytes: int) -> remote.Fetched:
            report(address)
            policy = self._only(
                own, public, private=private, body_bytes=max_bytes, seconds=SYNC_SECONDS
            )
            response = await net.download(
                address,
                policy=policy,
                digest=digest,
                directory=self._downloads,
                progress=progress,
                route=self.route,
            )
            return remote.Fetched(response.status, response.url, response.body)

        return fetch

    async def exchange(
        self,
        url: str,
        max_bytes: int,
        *,
        method: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        secrets: tuple[net.SecretBinding, ...] = (),
        digest: str = "",
        progress: net.Progress = lambda _done, _total: None,
    ) -> net.HttpResponse:
        """Make one request to a server that an operator configured.

        Args:
            secrets: Further ones that `{{secret:NAME}}` in a header may name.
            digest: `sha256:` digest of a file: it may come from any public host over https, where
                the server leads to one, and is continued where it is cut. All else comes from the
                server itself.
            progress: As of `download_for`.
        """
        target = net.parse_url(url)
        own = net.HostRule(
            host=target.host,
            scheme=target.scheme,
            port=target.port,
            methods=frozenset({"GET", method}),
        )
        public = (net.HostRule(host="*", methods=frozenset({"GET"})),) if digest else ()
        policy = self._only(
            own,
            *public,
            private=_LOOPBACK.get(target.host, ()),
            body_bytes=max_bytes,
            request_bytes=max(len(body), 1),
            seconds=SYNC_SECONDS,
            # What is sent goes to the server that was named, and to no other.
            redirects=3 if method == "GET" else 0,
        )
        policy = replace(policy, secrets=(*policy.secrets, *secrets))
        if digest:
            return await net.download(
                url,
                policy=policy,
                headers=headers,
                digest=digest,
                directory=self._downloads,
                progress=progress,
                route=self.route,
            )
        return await net.fetch(
            url, policy=policy, method=method, headers=headers, body=body, route=self.route
        )

    def channels(self, own: approval.Channel | None) -> tuple[approval.Channel, ...]:
        """Return `own` and the configured webhook; ConfigError if its variable holds no secret."""
        settings = self._approvals
        asked = () if own is None else (own,)
        if not settings.webhook_url:
            return asked
        secret = self._environment.get(settings.webhook_secret_env, "")
        if not secret:
            message = f"the variable `{settings.webhook_secret_env}` is not set"
            raise ConfigError(message, key="approvals.webhook_secret_env")
        try:
            webhook = approval.WebhookChannel(
                settings.webhook_url, secret, self.post, page=settings.page_url
            )
            return (*asked, webhook)
        except approval.SignatureError as error:
            message = f"`{settings.webhook_secret_env}` cannot sign: {error}"
            raise ConfigError(message, key="approvals.webhook_secret_env") from error

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        """Send one body to the configured address, and to no other."""
        private = _LOOPBACK.get(urlsplit(url).hostname or "", ())
        return await self._sent(url, headers, body, private=private)

    async def push(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        """Send one body to an address that a browser named, which may lead to no private network
        unless `net.private` lists it."""
        return await self._sent(url, headers, body)

    async def _sent(
        self, url: str, headers: Mapping[str, str], body: bytes, *, private: tuple[str, ...] = ()
    ) -> int:
        target = net.parse_url(url)
        own = net.HostRule(
            host=target.host, scheme=target.scheme, port=target.port, methods=frozenset({"POST"})
        )
        # A redirect would carry the question to an address that is not configured.
        policy = self._only(own, private=private, redirects=0, seconds=WEBHOOK_SECONDS)
        response = await net.fetch(
            url, policy=policy, method="POST", headers=headers, body=body, route=self.route
        )
        return response.status

    def _only(
        self, *hosts: net.HostRule, private: tuple[str, ...] = (), **limits: Any
    ) -> net.NetPolicy:
        """Return the policy with other hosts and limits; its secrets stay guarded."""
        return net.NetPolicy(
            hosts=hosts,
            private=(*self.policy.private, *private),
            secrets=self.policy.secrets,
            limits=net.NetLimits(**limits),
        )


REQUESTS_MAX = 1_000
"""Requests of one command that are recorded; further ones are refused, so that no command can fill
the log."""


class EgressReport:
    """Receives each decision of a command's proxy; refuses what a rule or the log refuses.

    The list of hosts says what can be reached; rules about `fetch` can only take away from it, as
    no person can be asked while a command runs.
    """

    def __init__(
        self,
        command: str,
        session: Session,
        decide: Callable[[PermissionRequest, Session], tuple[Decision, str]],
        audit: AuditLog,
        named: Sequence[NamedRequest] = (),
        *,
        tool: str = "exec",
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        """Take the command and its conversation; a person said yes to the requests `named`.

        Args:
            tool: What the records name as the tool.
            arguments: Likewise; by default the command.
        """
        self._tool = tool
        self._arguments = {"command": command} if arguments is None else arguments
        self._approved = frozenset(request.resource for request in named)
        self._session = session
        self._decide = decide
        self._audit = audit
        # Connections report on threads of their own; `next` counts each once.
        self._counter = itertools.count(1)

    def __call__(self, decision: net.EgressDecision) -> None:
        """Record a decision, durably where something is about to be sent.

        Raises:
            net.NetError: "host-refused", a rule is against it, or there were too many.
            AuditError: it cannot be recorded.
        """
        count = next(self._counter)
        if count > REQUESTS_MAX:
            what = "command" if self._tool == "exec" else "call"
            message = f"more than {REQUESTS_MAX} requests of one {what}"
            raise net.NetError("host-refused", message)
        need = PermissionRequest(
            permission=Permission(action="fetch", resource=f"{decision.method} {decision.origin}"),
            default=Effect.ALLOW,
            why="the list of hosts allows it",
        )
        if decision.allowed:
            found, why = self._decide(need, self._session)
            if found.effect is Effect.ASK and need.permission.resource in self._approved:
                found, why = Decision(effect=Effect.ALLOW, layer="approval"), "approved"
        else:
            found, why = Decision(effect=Effect.DENY, layer="default"), decision.reason
        allowed = found.effect is Effect.ALLOW
        reason = "" if allowed else f"denied: {why}"
        if count == REQUESTS_MAX:
            reason += f" (the last of {REQUESTS_MAX} requests; further ones are refused)"
        draft = self.draft(
            "ok" if allowed else "denied",
            {"event": "egress", "addresses": " ".join(decision.addresses)},
            reason=reason.strip(),
            permissions=(
                DecidedPermission(
                    action="fetch",
                    resource=need.permission.resource,
                    effect=found.effect.value,
                    layer=found.layer,
                    rule_index=found.rule_index,
                ),
            ),
        )
        if not allowed:
            self._audit.append_or_keep(draft)
            if decision.allowed:
                raise net.NetError("host-refused", reason)
            return
        self._audit.append(draft, durable=True)

    def draft(self, status: str, detail: Mapping[str, object], **more: Any) -> AuditDraft:
        """Return what is recorded of an event of the same command or call."""
        return AuditDraft(
            kind="event",
            tool=self._tool,
            agent=self._session.agent,
            user=self._session.user,
            channel=self._session.channel,
            arguments=self._arguments,
            status=status,
            detail=detail,
            **more,
        )
