"""The secrets of paired devices, which each record of the log is searched for.

Apart from the devices themselves, of which most processes need nothing else.
"""

from __future__ import annotations

from pathlib import Path

from skillhouse.floor import StateError
from skillhouse.store import STATE, STATE_FILE, commit_stamp, pooled, state_exists


class DeviceSecrets:
    """Those of one state, read again when the state has changed."""

    def __init__(self, state_directory: Path) -> None:
        self._path = state_directory / STATE_FILE
        self._known: tuple[tuple[int, ...], tuple[str, ...]] = ((), ())

    def all(self) -> tuple[str, ...]:
        """Return the secrets of the paired devices, which no log may hold."""
        try:
            stamp = commit_stamp(self._path)
            if stamp != self._known[0]:
                self._known = (stamp, self._read())
        except StateError:
            # INVARIANT: a state that cannot be read keeps no refusal out of the log.
            return self._known[1]
        return self._known[1]

    def _read(self) -> tuple[str, ...]:
        if not state_exists(self._path):
            return ()
        with pooled(self._path, STATE) as store:
            # An app has a key pair, and nothing of it here is secret but where its pushes go.
            rows = store.rows(
                "SELECT secret FROM device WHERE secret <> '' "
                "UNION ALL SELECT endpoint FROM push_subscription"
            )
            return tuple(secret for (secret,) in rows)
