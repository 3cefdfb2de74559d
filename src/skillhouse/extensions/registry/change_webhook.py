"""Sends each change of a registry to one configured address, signed, and in its own thread.

The changes in the database are the queue: publishing waits for nothing here, a restart goes on
where it was, and what another server of the directory took in is sent, too. Two servers may both
send a change; its id is the same.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping

from skillhouse.approval import checked_url, secret_bytes, signed_headers
from skillhouse.extensions.registry.hosting import HostedRepository
from skillhouse.extensions.registry.hosting.release_store import RepositoryChange
from skillhouse.floor import SkillhouseError
from skillhouse.floor.structs import asdict

WAITING_MAX = 10_000
"""Changes that wait; of more the oldest are passed over, and counted."""
LOOK_SECONDS = 1.0
PAUSE_MAX_SECONDS = 300.0
GIVE_UP_SECONDS = 86_400.0
"""How long one change is tried."""
_SETTING = "webhook"
_PAGE = 100
_FINAL = frozenset({400, 401, 403, 404, 405, 410, 413, 422})
"""Answers after which the same message is tried three times and no more."""
_FINAL_TRIES = 3

Post = Callable[[str, Mapping[str, str], bytes], int]
"""Sends a body to an address under the rules of `net`; returns the status."""

logger = logging.getLogger(__name__)


class ChangeWebhook:
    """Runs within a `with` block."""

    def __init__(
        self,
        repository: HostedRepository,
        url: str,
        secret: str,
        post: Post,
        *,
        clock: Callable[[], float] = time.time,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        """`url` and `secret` are as `checked_url` and `secret_bytes` take them."""
        self._repository = repository
        self._url = checked_url(url)
        self._secret = secret_bytes(secret)
        self._post = post
        self._clock = clock
        self._look_seconds = look_seconds
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="registry-webhook", daemon=True)
        self.failures = 0
        """Tries that were not answered with success."""
        self.dropped = 0
        """Changes that were given up."""

    def __enter__(self) -> ChangeWebhook:
        store = self._repository.store
        if store.setting(_SETTING) is None:
            # What was before it was configured is no news.
            store.set_setting(_SETTING, str(store.last_change()).encode())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    @property
    def waiting(self) -> int:
        """How many changes are still to be sent."""
        store = self._repository.store
        return max(0, store.last_change() - int(store.setting(_SETTING) or b"0"))

    def _run(self) -> None:
        while not self._end.is_set():
            try:
                self._send_waiting()
            except (SkillhouseError, OSError) as error:
                # The database does not answer: the changes are there when it does.
                logger.warning("the webhook cannot read the changes: %s", error)
            self._end.wait(self._look_seconds)

    def _send_waiting(self) -> None:
        store = self._repository.store
        position = int(store.setting(_SETTING) or b"0")
        if (over := store.last_change() - position - WAITING_MAX) > 0:
            self.dropped += over
            position += over
        for change in store.changes(position, _PAGE):
            if not self._sent(change):
                return
            store.set_setting(_SETTING, str(change.seq).encode())

    def _sent(self, change: RepositoryChange) -> bool:
        """Send a change until it is taken or given up; False at the end of the server."""
        started, tries, pause = self._clock(), 0, self._look_seconds
        body = json.dumps(
            {
                "type": f"skill.{change.kind}",
                "timestamp": change.at,
                "data": {"registry": self._repository.name, **asdict(change)},
            }
        ).encode()
        while True:
            status = self._answer(body, f"{self._repository.name}-{change.seq}")
            tries += 1
            if 200 <= status < 300:
                return True
            self.failures += 1
            is_final = status in _FINAL and tries >= _FINAL_TRIES
            if is_final or self._clock() - started > GIVE_UP_SECONDS:
                self.dropped += 1
                logger.warning("the webhook gave up change %d, status %d", change.seq, status)
                return True
            if self._end.wait(pause):
                return False
            pause = min(2 * pause, PAUSE_MAX_SECONDS)

    def _answer(self, body: bytes, message_id: str) -> int:
        """Send a message once; return the status, 0 where there is none."""
        headers = signed_headers(
            body, secret=self._secret, message_id=message_id, now_seconds=self._clock()
        )
        try:
            return self._post(self._url, headers, body)
        except (SkillhouseError, OSError) as error:
            logger.warning("the webhook cannot be reached: %s", error)
            return 0
