from __future__ import annotations

from pathlib import Path

from skillhouse.approval import Devices, DeviceSecrets
from skillhouse.store import STATE_FILE


def test_the_secrets_are_those_of_the_devices_that_are_paired_now(tmp_path: Path) -> None:
    known, devices = DeviceSecrets(tmp_path), Devices(tmp_path)
    assert known.all() == ()
    first, second = devices.pair("one", user="local"), devices.pair("two", user="local")
    assert known.all() == (first.secret, second.secret)
    devices.unpair(first.id)
    assert known.all() == (second.secret,)


def test_a_state_that_cannot_be_read_takes_no_known_secret_out_of_the_search(
    tmp_path: Path,
) -> None:
    known = DeviceSecrets(tmp_path)
    paired = Devices(tmp_path).pair("one", user="local")
    assert known.all() == (paired.secret,)
    (tmp_path / STATE_FILE).chmod(0o666)
    (tmp_path / STATE_FILE).write_bytes(b"no database")
    assert known.all() == (paired.secret,)
