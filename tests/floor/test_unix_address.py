"""Tests of floor/paths.py."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from skillhouse.floor.paths import ADDRESS_MAX, unix_address


@pytest.mark.parametrize("length", [1, 90, 200])
def test_a_socket_is_bound_and_connected_whatever_the_length_of_its_directory(
    tmp_path: Path, length: int
):
    place = tmp_path / ("d" * length)
    place.mkdir()
    path = place / "s"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        with unix_address(path) as address:
            assert len(address) <= ADDRESS_MAX
            server.bind(address)
        server.listen()
        assert path.is_socket()
        with unix_address(path) as address:
            client.connect(address)


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path):
    with pytest.raises(FileNotFoundError), unix_address(tmp_path / ("d" * 150) / "s"):
        raise AssertionError
