"""The signer's own process: `python -I -m skillhouse_signer SOCKET PASSWORD IMPORT`.

The three numbers are descriptors; -1 is none. It ends when the client closes the socket.
"""

from __future__ import annotations

import contextlib
import ctypes
import resource
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from skillhouse.floor import DecodeError, MissingExtraError, SkillhouseError
from skillhouse.registry.passwords import SignerError
from skillhouse_signer.request import (
    BODIES,
    LENGTH,
    Ask,
    SignerReply,
    checked_length,
    framed,
    packed,
    unpacked,
)
from skillhouse_signer.service import Descriptors, Service

_SET_DUMPABLE = 4
"""PR_SET_DUMPABLE (prctl(2))."""


def main(argv: list[str]) -> int:
    """Answer requests until the client closes the socket."""
    harden()
    number, password, imported = map(int, argv)
    service = Service(
        Descriptors(
            password=password if password >= 0 else None,
            imported=imported if imported >= 0 else None,
        )
    )
    with socket.socket(fileno=number) as link, contextlib.suppress(OSError):
        while (data := _frame(link)) is not None:
            reply = _answer(service, data)
            link.sendall(framed(reply))
            # From here on Ctrl-C is for the client; before, it ends a question at the terminal.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    return 0


def harden() -> None:
    """Let no other process of the same user read this one's memory, and leave none on the disk.

    On Linux; the superuser, and who may trace others, can read it all the same.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(
        _SET_DUMPABLE, 0, 0, 0, 0
    ):
        raise SystemExit("the signer cannot keep others from its memory: prctl failed")


def _answer(service: Service, data: bytes) -> SignerReply:
    number = 0
    try:
        ask = unpacked(data, Ask)
        number = ask.number
        shape: Any = BODIES.get(ask.verb)
        if shape is None:
            raise DecodeError(f"unknown verb {ask.verb[:20]!r}")
        act: Callable[[Any], Any] = getattr(service, ask.verb)
        return SignerReply(number=number, body=packed(act(unpacked(ask.body, shape))))
    except SignerError as error:
        code, message = error.code, str(error)
    except MissingExtraError as error:
        code, message = "missing-extra", error.module
    except SkillhouseError as error:
        code, message = "signer-failed", str(error)
    except OSError as error:
        # Without the path: a model may read it.
        said = (error.strerror or "input or output").lower()
        code, message = "signer-failed", f"the signer failed: {said}"
    except Exception as error:  # noqa: BLE001 - a process edge; its text could hold a secret.
        code, message = "signer-failed", f"the signer failed: {type(error).__name__}"
    return SignerReply(number=number, code=code, message=message)


def _frame(link: socket.socket) -> bytes | None:
    """Return the content of the next frame, or None when the client has closed the socket."""
    head = _exactly(link, LENGTH.size)
    if head is None:
        return None
    return _exactly(link, checked_length(LENGTH.unpack(head)[0]))


def _exactly(link: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        chunk = link.recv(size - len(data))
        if not chunk:
            return None
        data += chunk
    return bytes(data)


if __name__ == "__main__":
    try:
        raise SystemExit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        # At a question at the terminal; the client reports that it was stopped.
        raise SystemExit(128 + signal.SIGINT) from None
