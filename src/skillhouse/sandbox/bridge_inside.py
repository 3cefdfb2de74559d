"""The process beside a command in the sandbox that forwards its connections to the proxy.

Run as a script, with the standard library only: `SOCKET PORT FILTER COMMAND...`, the filter in
hexadecimal. It ends when the command ends, and as the command did. Each import here is time that
every run waits: `socket`, `signal` and `selectors` would take as long as starting Python, so they
come with the first connection, and what is needed before that is taken from the modules below them.
"""

from __future__ import annotations

import _socket
import ctypes
import os
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import selectors
    import socket

PR_SET_DUMPABLE, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 4, 22, 2
SIGPIPE, SIGXFSZ = 13, 25
CHUNK = 65_536
CONNECTIONS = 64
"""Connections at one time; a further one is closed at once."""
NOT_STARTED = 126
NOT_FOUND = 127
SIGNAL_BASE = 128


class Filter(ctypes.Structure):
    """struct sock_fprog of linux/filter.h."""

    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def main() -> None:
    path, port, seccomp, *command = sys.argv[1:]
    library = ctypes.CDLL(None, use_errno=True)
    # INVARIANT: the command is of the same user, and could else write into this process, which may
    # make the sockets that the command may not (ptrace(2), "Ptrace access mode checking").
    if library.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        sys.exit("bridge: the process cannot be protected")
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(port)))
    listener.listen(CONNECTIONS)
    child = os.fork()
    if child == 0:
        start(command, bytes.fromhex(seccomp), library)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        # The command's output ends when the command's side of it is closed.
        os.dup2(nothing, descriptor)
    ended = os.pidfd_open(child)
    if not ends_unconnected(ended, listener.fileno()):
        Bridge(path, listener.detach()).carry_until(ended)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os._exit(code if code >= 0 else SIGNAL_BASE - code)


def ends_unconnected(ended: int, listener: int) -> bool:
    """Wait for the command's end or first connection; True if it ended without one."""
    waiting = select.poll()
    for descriptor in (ended, listener):
        waiting.register(descriptor, select.POLLIN)
    return all(descriptor == ended for descriptor, _ in waiting.poll())


def start(command: list[str], seccomp: bytes, library: ctypes.CDLL) -> None:
    """Become the command, under the whole filter; never returns."""
    code = NOT_STARTED
    try:
        for number in (SIGPIPE, SIGXFSZ):
            # Python ignores these two, and a program would inherit that; None is SIG_DFL.
            library.signal(number, None)
        given = Filter(len(seccomp) // 8, seccomp)
        if library.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(given), 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "the filter was refused")
        os.execvp(command[0], command)
    except FileNotFoundError:
        code = NOT_FOUND
        os.write(2, f"{command[0]}: not found\n".encode())
    except OSError as error:
        os.write(2, f"bridge: {error.strerror}\n".encode())
    finally:
        os._exit(code)


class OneDirection:
    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source = source
        self.sink = sink
        self.waiting = b""
        self.ended = False
        self.done = False

    def read(self) -> None:
        self.waiting = self.source.recv(CHUNK)
        self.ended = not self.waiting

    def write(self) -> None:
        if self.waiting:
            self.waiting = self.waiting[self.sink.send(self.waiting) :]
        if self.ended and not self.done:
            self.done = True
            try:
                self.sink.shutdown(socket.SHUT_WR)
            except OSError:
                # It is closed altogether, which is an end as well.
                return


class Bridge:
    """Forwards connections, without threads, which would count as processes of the run."""

    def __init__(self, path: str, listener: int) -> None:
        global selectors, socket  # noqa: PLW0603 - see the module's docstring.
        import selectors  # noqa: PLC0415
        import socket  # noqa: PLC0415

        self._path = path
        self._listener = socket.socket(fileno=listener)
        self._selector = selectors.DefaultSelector()
        self._ways: dict[socket.socket, tuple[OneDirection, OneDirection]] = {}
        """Of each socket, the way in which it is the source, and that in which it is the sink."""

    def carry_until(self, ended: int) -> None:
        self._listener.setblocking(False)  # noqa: FBT003 - the parameter has no name.
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(ended, selectors.EVENT_READ)
        while True:
            for key, events in self._selector.select():
                if key.fileobj == ended:
                    return
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._ways:
                    self._serve(key.fileobj, events)

    def _accept(self) -> None:
        try:
            inner, _ = self._listener.accept()
        except OSError:
            return
        outer = None
        try:
            if len(self._ways) >= 2 * CONNECTIONS:
                raise OSError("too many connections")
            outer = socket.socket(socket.AF_UNIX)
            outer.connect(self._path)
        except OSError:
            inner.close()
            if outer is not None:
                outer.close()
            return
        out, back = OneDirection(inner, outer), OneDirection(outer, inner)
        self._ways |= {inner: (out, back), outer: (back, out)}
        for end in (inner, outer):
            end.setblocking(False)  # noqa: FBT003 - the parameter has no name.
            self._selector.register(end, selectors.EVENT_READ)

    def _serve(self, end: socket.socket, events: int) -> None:
        out, back = self._ways[end]
        try:
            if events & selectors.EVENT_READ and not out.waiting and not out.ended:
                out.read()
                out.write()
            if events & selectors.EVENT_WRITE:
                back.write()
        except BlockingIOError:
            pass
        except OSError:
            self._close(out)
            return
        if out.done and back.done:
            self._close(out)
            return
        for socket_ in (out.source, out.sink):
            self._watch(socket_)

    def _watch(self, end: socket.socket) -> None:
        out, back = self._ways[end]
        wanted = selectors.EVENT_READ if not out.waiting and not out.ended else 0
        if back.waiting or (back.ended and not back.done):
            wanted |= selectors.EVENT_WRITE
        watched = end in self._selector.get_map()
        if wanted and watched:
            self._selector.modify(end, wanted)
        elif wanted:
            self._selector.register(end, wanted)
        elif watched:
            self._selector.unregister(end)

    def _close(self, way: OneDirection) -> None:
        for end in (way.source, way.sink):
            del self._ways[end]
            if end in self._selector.get_map():
                self._selector.unregister(end)
            end.close()


if __name__ == "__main__":
    main()
