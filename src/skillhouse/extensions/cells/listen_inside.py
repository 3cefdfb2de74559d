"""Binds the way out of a Node process in its own network, hands it over, and becomes Node.

Run as a script by `python -I -S`, with the standard library only, by `DESCRIPTOR VARIABLES
COMMAND...`: the variables as JSON, with `{port}` in place of the port. The socket is bound and does
not listen: whoever gets it lets it listen when the call begins.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` takes as long as all else.
import _socket
import json
import os
import struct
import sys


def main() -> None:
    link = _socket.socket(fileno=int(sys.argv[1]))
    command = sys.argv[3:]
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    port = str(listener.getsockname()[1])
    given = struct.pack("i", listener.fileno())
    link.sendmsg([b"l"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, given)])
    listener.close()
    link.close()
    for name, value in json.loads(sys.argv[2]).items():
        os.environ[name] = value.replace("{port}", port)
    # What this interpreter needed, and no other program.
    os.environ.pop("LD_ORIGIN_PATH", None)
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
        # Python ignores these two, and a program would inherit that.
        _signal.signal(number, _signal.SIG_DFL)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
